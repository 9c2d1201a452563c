//! Coefficients up to their limit are read; larger ones leave the file to libjpeg.

use super::*;
use crate::jpeg::baseline::bits::BitWindow;
use crate::jpeg::baseline::header::parse;
use crate::jpeg::baseline::huffman::{AcTable, DcTable};
use crate::jpeg::baseline::scan::{Coded, Coding, McuBlocks, Scan, ScanLayout, plain_bits};

/// Bits of an entropy-coded segment, in order.
#[derive(Default)]
struct Stream(Vec<bool>);

impl Stream {
    fn put(&mut self, value: u32, count: u32) {
        self.0.extend((0..count).rev().map(|bit| value >> bit & 1 == 1));
    }

    /// Appends a value after the code of its size: in both tables, every size has a code of four bits.
    fn put_value(&mut self, value: i32) {
        let size = 32 - value.unsigned_abs().leading_zeros();
        self.put(size, 4);
        self.put(if value < 0 { value - 1 } else { value } as u32, size);
    }

    /// Returns whole bytes: fills up the last byte with ones and stuffs a zero after each 0xFF.
    fn bytes(mut self) -> Vec<u8> {
        self.0.resize(self.0.len().next_multiple_of(8), true);
        let byte = |bits: &[bool]| bits.iter().fold(0, |byte, &bit| byte << 1 | u8::from(bit));
        self.0.chunks(8).map(byte).flat_map(|byte| [byte, 0].into_iter().take(1 + usize::from(byte == 0xFF))).collect()
    }
}

fn segment(code: u8, payload: &[u8]) -> Vec<u8> {
    [&[0xFF, code][..], &(payload.len() as u16 + 2).to_be_bytes(), payload].concat()
}

/// Returns a gray image of 8 × 8 pixels with this quantisation step, this DC coefficient and this first AC coefficient.
fn of_one_block(step: u8, dc: i32, ac: i32) -> Vec<u8> {
    let mut stream = Stream::default();
    stream.put_value(dc);
    stream.put_value(ac);
    // Code of the end of the block.
    stream.put(0, 4);
    let quant = [&[0][..], &[step; 64]].concat();
    let table = |class: u8| [&[class, 0, 0, 0, 12][..], &[0; 12], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]].concat();
    [
        vec![0xFF, 0xD8],
        segment(0xDB, &quant),
        segment(0xC0, &[8, 0, 8, 0, 8, 1, 1, 0x11, 0]),
        segment(0xC4, &table(0)),
        segment(0xC4, &table(0x10)),
        segment(0xDA, &[1, 1, 0, 0, 63, 0]),
        stream.bytes(),
        vec![0xFF, 0xD9],
    ]
    .concat()
}

/// Reads the file's one block and returns its DC coefficient and its first AC coefficient.
fn read(level: Level, file: &[u8]) -> Result<[i16; 2], LeftToLibjpeg> {
    let header = parse(file).unwrap();
    let (layout, part) = (ScanLayout::new(&header), &header.components[0]);
    let ac = AcTable::new(&part.ac, plain_bits(part.quant)).unwrap();
    let coding = Coding { dc: DcTable::new(&part.dc).unwrap(), ac };
    let (mut window, mut blocks) = (BitWindow::default(), McuBlocks::new(1));
    Scan::new(Coded::whole(header.scan), &layout, [&coding; 3], level, &mut window).read(1, &mut blocks)?;
    Ok([blocks.coefficients[0], blocks.coefficients[1]])
}

#[test]
fn coefficients_up_to_their_limits_are_read_and_larger_ones_leave_the_file_to_libjpeg() {
    for level in Level::tested() {
        // The largest coefficients that, times their step, are at most 2047 (DC) and 16383 (AC).
        for (step, dc, ac) in [(2, 1023, 1023), (17, 120, 963), (100, 20, 163), (255, 8, 64)] {
            for sign in [1, -1] {
                let of = |dc: i32, ac: i32| read(level, &of_one_block(step, sign * dc, sign * ac));
                assert_eq!(of(dc, ac), Ok([sign * dc, sign * ac].map(|value| value as i16)), "{level:?} {step}");
                assert_eq!(of(dc + 1, ac), Err(LeftToLibjpeg), "{level:?}: DC {} x {step}", dc + 1);
                // 1024, with a step of 2, has eleven bits: the tables refuse it.
                assert_eq!(of(dc, ac + 1), Err(LeftToLibjpeg), "{level:?}: AC {} x {step}", ac + 1);
            }
        }
    }
}
