//! Decodes any bytes as an L3 image with all sets of vector instructions, whole and in part. Then takes the bytes as
//! pixels, which must come back from an encoder and a decoder.
#![no_main]

use ddlp_l3::{Error, HEADER_BYTES, Image, Index, Level, OpenImage, Options, PatchSize, Region};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = decode(bytes);
    decode_with_right_checksums(bytes.to_vec());
    come_back(bytes);
});

/// Decodes an image with each set of instructions, which must agree.
fn decode(bytes: &[u8]) -> Result<(), Error> {
    let opened = OpenImage::open(bytes)?;
    let decoded = Level::all().map(|level| opened.clone().with_level(level).decode(1));
    let decoded: Vec<_> = decoded.collect();
    assert!(decoded.windows(2).all(|two| two[0] == two[1]));
    let (x, y) = (opened.width() / 3, opened.height() / 3);
    let region = Region { x, y, width: (opened.width() - x).div_ceil(2), height: (opened.height() - y).div_ceil(2) };
    let stride = region.width * opened.channels();
    let mut pixels = vec![0; stride * region.height];
    opened.decode_region(region, &mut pixels, stride)?;
    if let Ok(whole) = &decoded[0] {
        for (row, part) in pixels.chunks(stride).enumerate() {
            let begin = ((y + row) * opened.width() + x) * opened.channels();
            assert_eq!(whole[begin..][..stride], *part);
        }
    }
    Ok(())
}

/// Decodes an image after it got the checksums that its bytes need, so that the code behind them is reached.
fn decode_with_right_checksums(mut bytes: Vec<u8>) {
    let Ok(index_bytes) = Index::bytes(&bytes) else { return };
    let Some(patches) = usize::try_from(index_bytes).ok().filter(|&index_bytes| index_bytes <= bytes.len()) else {
        return;
    };
    // Of N patches, the table has N lengths of two bytes, up to a multiple of four, and N checksums.
    let count = (patches - HEADER_BYTES) / 6;
    let checksums = patches - 4 * count;
    let mut begin = patches;
    for patch in 0..count {
        let length = &bytes[HEADER_BYTES + 2 * patch..][..2];
        let end = begin + 4 * usize::from(u16::from_le_bytes([length[0], length[1]]));
        let Some(patch_bytes) = bytes.get(begin..end) else { return };
        let checksum = crc32c::crc32c(patch_bytes);
        bytes[checksums + 4 * patch..][..4].copy_from_slice(&checksum.to_le_bytes());
        begin = end;
    }
    bytes.truncate(begin);
    let checksum = crc32c::crc32c(&bytes[..HEADER_BYTES - 4]);
    let checksum = crc32c::crc32c_append(checksum, &bytes[HEADER_BYTES..patches]);
    bytes[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    let _ = decode(&bytes);
}

/// Encodes an image of these bytes, whose width is in the first.
fn come_back(bytes: &[u8]) {
    let Some((&width, pixels)) = bytes.split_first() else { return };
    let (width, channels) = (usize::from(width / 2) + 1, if width % 2 == 0 { 1 } else { 3 });
    let height = pixels.len() / (width * channels);
    let pixels = &pixels[..width * height * channels];
    let Ok(image) = Image::new(pixels, width, height, channels) else { return };
    for patch in [PatchSize::Side32, PatchSize::Side64] {
        let encoded = ddlp_l3::encode(image, Options { patch, threads: 1 });
        for level in Level::all() {
            let opened = OpenImage::open(&encoded).expect("an encoder's bytes").with_level(level);
            assert_eq!(opened.decode(1).expect("an encoder's bytes"), pixels);
        }
    }
}
