use super::*;
use crate::encode::{self, JpegOptions, Layout};
use crate::level::Level;
use crate::synthetic;

fn file() -> Vec<u8> {
    let options = JpegOptions { layout: Layout::Yuv420, orientation: Some(6), ..JpegOptions::default() };
    encode::jpeg(&synthetic::photo(131, 97, 4), 131, 97, &options).unwrap()
}

fn index() -> RowIndex {
    RowIndex::of(&mut BaselineDecoder::new(Level::best()), &mut Vec::new(), &file()).unwrap()
}

/// Writes the checksum of changed bytes.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = crc32c::crc32c(&bytes[CHECKSUM_BYTES..]);
    bytes[..CHECKSUM_BYTES].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

#[test]
fn an_index_survives_and_covers_its_file() {
    let (file, index) = (file(), index());
    assert_eq!(RowIndex::parse(&index.to_bytes()).as_ref(), Ok(&index));
    assert_eq!((index.size(), index.orientation(), index.rows()), ((131, 97), 6, 7));
    assert!(index.has_header(&file[..index.header_bytes() as usize]));
    // Only the end marker follows.
    assert_eq!(index.file_bytes_min(), file.len() as u64 - 2);
    assert_eq!(index.in_file(0..7), index.header_bytes()..index.file_bytes_min());
    for row in 1..7 {
        let (above, below) = (index.in_file(row - 1..row), index.in_file(row..row + 1));
        assert!(matches!(above.end - below.start, 0 | 1), "{above:?} {below:?}");
        assert_eq!(index.in_file(row - 1..row + 1), above.start..below.end);
    }
}

#[test]
fn damaged_bytes_are_no_index() {
    let good = index().to_bytes();
    for length in 0..good.len() {
        assert!(RowIndex::parse(&good[..length]).is_err(), "{length} bytes");
        if length >= CHECKSUM_BYTES {
            assert!(RowIndex::parse(&sealed(good[..length].to_vec())).is_err(), "{length} bytes with their checksum");
        }
    }
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        assert!(RowIndex::parse(&bad).is_err(), "byte {at}");
    }
    assert!(RowIndex::parse(&sealed([&good[..], &[0]].concat())).is_err(), "bytes after it");
}

#[test]
fn impossible_numbers_are_no_index() {
    let good = index().to_bytes();
    // Offset and bytes of a number of the head.
    let cases: [(usize, &[u8]); 12] = [
        (4, &[0]),
        (4, &[2]),
        (5, &[0]),
        (5, &[9]),
        (6, &[0]),
        (6, &[3]),
        (7, &[0]),
        (7, &[3]),
        (8, &[0, 0]),
        (10, &[0, 0]),
        // Other numbers of rows, and a scan that ends before its last row begins.
        (10, &[113, 0]),
        (20, &[100, 0, 0, 0]),
    ];
    for (at, number) in cases {
        let mut bad = good.clone();
        bad[at..at + number.len()].copy_from_slice(number);
        assert!(RowIndex::parse(&sealed(bad)).is_err(), "{number:?} at {at}");
    }
    assert!(RowIndex::parse(&sealed(good)).is_ok());
}

#[test]
fn checkpoints_have_to_begin_the_rows() {
    let (file, index) = (file(), index());
    let mut decoder = BaselineDecoder::new(Level::best());
    let with = |checkpoints: Checkpoints| RowIndex { checkpoints, ..index.clone() }.to_bytes();
    let twice_a_row = Checkpoints::make(&mut decoder, &file, 5).unwrap();
    assert!(RowIndex::parse(&with(twice_a_row)).is_err());
    let options = JpegOptions { layout: Layout::Gray, ..JpegOptions::default() };
    let gray = encode::jpeg(&vec![90; 72 * 56], 72, 56, &options).unwrap();
    let of_gray = Checkpoints::make(&mut decoder, &gray, 9).unwrap();
    assert!(RowIndex::parse(&with(of_gray)).is_ok(), "9 x 7 MCUs, too: the header tells them apart");
}
