use std::sync::Mutex;

use proptest::prelude::*;

use super::*;
use crate::synthetic;

/// A file in memory that records what is read.
struct Memory {
    bytes: Vec<u8>,
    read: Mutex<Vec<std::ops::Range<u64>>>,
    at_once: u64,
}

impl Memory {
    fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, read: Mutex::default(), at_once: CACHED_BYTES }
    }
}

impl ReadAt for Memory {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let end = offset as usize + out.len();
        let bytes = self.bytes.get(offset as usize..end).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.read.lock().unwrap().push(offset..end as u64);
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn at_once_bytes(&self) -> u64 {
        self.at_once
    }
}

const OFFSET: u64 = 7;

fn stored(pixels: &[u8]) -> Memory {
    Memory::new([&[0xEE; OFFSET as usize][..], pixels].concat())
}

fn image<'a>(file: &'a Memory, (width, height): (u32, u32), group_rows: u32, checksums: &'a [u8]) -> RawImage<'a> {
    RawImage { width, height, orientation: 1, was_shrunk: false, file, offset: OFFSET, group_rows, checksums }
}

fn cut(image: RawImage<'_>, rect: Rect) -> Result<Vec<u8>, PixelError> {
    let mut band = Vec::new();
    let mut rows = RawRows::new(image, Limits::default(), &mut band)?;
    let mut out = Vec::new();
    rows.read(rect, &mut |band| {
        assert_eq!(band.y as usize * rect.width as usize * 3, out.len(), "bands come one after the other");
        (0..band.rows).for_each(|row| out.extend_from_slice(band.row(row, rect.width)));
        Ok(())
    })?;
    Ok(out)
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: proptest::test_runner::RngSeed::Fixed(53),
        ..ProptestConfig::with_cases(1500)
    })]

    #[test]
    fn a_rectangle_is_read_by_the_groups_it_touches(
        width in 1u32..300, height in 1u32..200, group_rows in 1u32..40, corners: [u16; 4], damage: prop::sample::Index,
    ) {
        let span = |first: u16, second: u16, length: u32| {
            let (first, second) = (u32::from(first) % length, u32::from(second) % length);
            (first.min(second), first.abs_diff(second) + 1)
        };
        let ((x, across), (y, down)) = (span(corners[0], corners[1], width), span(corners[2], corners[3], height));
        let rect = Rect { x, y, width: across, height: down };
        let pixels = synthetic::photo(width, height, 3);
        let checksums = RawImage::checksums_of(&pixels, width, group_rows);
        let mut file = stored(&pixels);
        let found = cut(image(&file, (width, height), group_rows, &checksums), rect).unwrap();
        let row_bytes = width as usize * 3;
        let rows = pixels.chunks_exact(row_bytes).skip(y as usize).take(down as usize);
        let expected: Vec<u8> =
            rows.flat_map(|row| row[x as usize * 3..][..across as usize * 3].to_vec()).collect();
        prop_assert!(found == expected);

        let touched = y / group_rows * group_rows..((y + down).div_ceil(group_rows) * group_rows).min(height);
        let [start, end] = [touched.start, touched.end].map(|row| OFFSET + (row as usize * row_bytes) as u64);
        let touched = start..end;
        let read = file.read.lock().unwrap().clone();
        prop_assert_eq!(read[0].start, touched.start);
        prop_assert_eq!(read[read.len() - 1].end, touched.end);
        prop_assert!(read.windows(2).all(|pair| pair[0].end == pair[1].start), "each byte once: {:?}", read);

        // A flipped bit is noticed if it is read, and only then.
        let at = damage.index(pixels.len());
        file.bytes[OFFSET as usize + at] ^= 1;
        let outcome = cut(image(&file, (width, height), group_rows, &checksums), rect);
        if touched.contains(&(OFFSET + at as u64)) {
            prop_assert!(matches!(outcome, Err(PixelError::Checksum { .. })), "{:?}", outcome.map(drop));
        } else {
            prop_assert!(outcome.unwrap() == expected);
        }
    }
}

#[test]
fn a_file_says_how_much_is_read_at_once() {
    let (width, height) = (500, 300);
    let pixels = synthetic::photo(width, height, 1);
    let checksums = RawImage::checksums_of(&pixels, width, 8);
    let whole = Rect { x: 0, y: 0, width, height };
    let reads = [CACHED_BYTES, 1 << 20, 1].map(|at_once| {
        let file = Memory { at_once, ..stored(&pixels) };
        assert!(cut(image(&file, (width, height), 8, &checksums), whole).unwrap() == pixels);
        file.read.into_inner().unwrap().len()
    });
    assert_eq!(reads, [4, 1, 38], "groups of 12 000 bytes");
}

#[test]
fn what_cannot_be_is_an_error() {
    let pixels = synthetic::photo(20, 10, 1);
    let checksums = RawImage::checksums_of(&pixels, 20, 4);
    let file = stored(&pixels);
    let good = image(&file, (20, 10), 4, &checksums);
    let whole = Rect { x: 0, y: 0, width: 20, height: 10 };
    assert_eq!(cut(good, whole), Ok(pixels));
    for bad in [
        RawImage { width: 0, ..good },
        RawImage { height: 0, ..good },
        RawImage { orientation: 0, ..good },
        RawImage { orientation: 9, ..good },
        RawImage { group_rows: 0, ..good },
        RawImage { group_rows: 5, ..good },
        RawImage { offset: u64::MAX, ..good },
        RawImage { checksums: &checksums[..8], ..good },
        RawImage { width: u32::MAX, height: u32::MAX, group_rows: u32::MAX, ..good },
    ] {
        assert!(matches!(cut(bad, whole), Err(PixelError::Malformed { .. })), "{bad:?}");
    }
    let beyond = RawImage { offset: OFFSET + 1, ..good };
    assert!(matches!(cut(beyond, whole), Err(PixelError::Io { .. } | PixelError::Checksum { .. })));
    let one_group = RawImage { group_rows: u32::MAX, checksums: &RawImage::checksums_of(&[0; 3], 1, u32::MAX), ..good };
    let far = RawImage { width: 1 << 31, height: 1, ..one_group };
    assert!(cut(far, Rect { x: 0, y: 0, width: 1, height: 1 }).is_err());
    let wide = RawImage { width: 1 << 28, height: 1, group_rows: 1, checksums: &[0; 4], ..good };
    assert!(matches!(cut(wide, Rect { x: 0, y: 0, width: 1, height: 1 }), Err(PixelError::Io { .. })));
}
