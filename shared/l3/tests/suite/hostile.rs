//! Damaged and hostile bytes give an error.

use ddlp_l3::{Error, HEADER_BYTES, Image, Index, OpenImage, PatchSize};

use crate::images::{Pixels, Random};

fn decode(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    OpenImage::open(bytes)?.decode(1)
}

fn sample() -> Vec<u8> {
    Pixels::random(14, (70, 40), 3, &mut Random::new(11)).encoded(PatchSize::Side32)
}

/// Encodes an image of one gray patch of 8 columns and 2 rows.
fn tiny() -> Vec<u8> {
    Pixels::new((8, 2), 1, |x, y, _| (x * 9 + y * 50) as u8).encoded(PatchSize::Side32)
}

/// Where the only patch of `tiny` begins.
const PATCH: usize = HEADER_BYTES + 8;

/// Makes the checksums of `tiny`, after a change of its bytes, right again.
fn with_right_checksums(mut bytes: Vec<u8>) -> Vec<u8> {
    let patch = crc32c::crc32c(&bytes[PATCH..]);
    bytes[PATCH - 4..PATCH].copy_from_slice(&patch.to_le_bytes());
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..HEADER_BYTES - 4]), &bytes[HEADER_BYTES..PATCH]);
    bytes[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

#[test]
fn every_truncation_and_every_extension_is_an_error() {
    let bytes = sample();
    assert!(decode(&bytes).is_ok());
    for end in 0..bytes.len() {
        assert!(decode(&bytes[..end]).is_err(), "{end} bytes");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(matches!(decode(&longer), Err(Error::Length { what: "bytes of the L3 image", .. })));
}

#[test]
fn every_flipped_bit_is_an_error() {
    let bytes = sample();
    for bit in 0..8 * bytes.len() {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(decode(&damaged).is_err(), "bit {bit}");
    }
}

/// Bytes that a hostile encoder gave the right checksums: each flipped bit gives other pixels or an error.
#[test]
fn bits_behind_right_checksums_do_no_harm() {
    let bytes = tiny();
    assert_eq!(with_right_checksums(bytes.clone()), bytes);
    let mut errors = 0;
    for bit in 0..8 * bytes.len() {
        let mut hostile = bytes.clone();
        hostile[bit / 8] ^= 1 << (bit % 8);
        errors += usize::from(decode(&with_right_checksums(hostile)).is_err());
    }
    assert!(errors > 100, "{errors} errors");
}

#[test]
fn an_error_names_what_is_wrong() {
    let error = |position: usize, byte: u8| {
        let mut bytes = tiny();
        bytes[position] = byte;
        decode(&with_right_checksums(bytes)).unwrap_err().to_string()
    };
    assert_eq!(error(0, b'P'), "not an L3 image: its first bytes are [50, 44, 4c, 33]");
    assert_eq!(error(4, 2), "the L3 image has version 2; this program reads version 1");
    assert_eq!(error(5, 4), "the header of the L3 image is invalid: the number of channels is 4");
    assert_eq!(error(6, 48), "the header of the L3 image is invalid: the patch side is 48");
    assert_eq!(error(8, 0), "the header of the L3 image is invalid: the width is 0");
    assert_eq!(error(HEADER_BYTES, 1), "patch 0 of the L3 image is invalid: no patch of its size has its length");
    assert_eq!(error(HEADER_BYTES + 1, 1), "patch 0 of the L3 image is invalid: no patch of its size has its length");
    assert_eq!(error(PATCH, 7), "patch 0 of the L3 image is invalid: its predictor is unknown");
    assert_eq!(error(PATCH + 3, 1), "patch 0 of the L3 image is invalid: a gray patch has the head of an RGB patch");
    assert_eq!(error(PATCH + 4, 9), "patch 0 of the L3 image is invalid: a width exceeds eight bits");
    assert_eq!(
        error(PATCH + 4, 0x88),
        "patch 0 of the L3 image is invalid: its length differs from what its widths say"
    );
}

#[test]
fn a_huge_image_needs_its_bytes_first() {
    let mut header = tiny();
    header[8..16].fill(0xFF);
    header.truncate(HEADER_BYTES);
    let expected = HEADER_BYTES as u64 + (6 << 54);
    assert_eq!(Index::bytes(&header), Ok(expected));
    let error = Error::Length { what: "index of the L3 image", expected, found: HEADER_BYTES as u64 };
    assert_eq!(Index::read(&header).unwrap_err(), error);
}

#[test]
fn impossible_images_are_errors() {
    let error = |bytes: &[u8], width, height, channels| Image::new(bytes, width, height, channels).unwrap_err();
    assert_eq!(error(&[], 0, 1, 1), Error::Size { width: 0, height: 1 });
    assert_eq!(error(&[0; 4], 2, 2, 4), Error::Channels(4));
    assert_eq!(error(&[0; 4], 2, 2, 3), Error::Length { what: "pixels of the image", expected: 12, found: 4 });
    let side = u32::MAX as usize + 1;
    assert_eq!(error(&[], side, 1, 1), Error::Size { width: side, height: 1 });
    let side = u32::MAX as usize;
    assert_eq!(error(&[], side, side, 3), Error::Size { width: side, height: side });
}
