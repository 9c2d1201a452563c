//! Formats other than JPEG against Pillow, on small files that `golden/formats.py` makes.

use std::fs;
use std::path::Path;

use ddlp_pixels::ops::CenterCrop;
use ddlp_pixels::{CorruptReason, Draw, Limits, Pipeline, PixelError, Preparer, Source};

const SQUARE: u32 = 40;

/// CRC-32 as zlib has it.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 })
    })
}

fn file(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/formats").join(name)).unwrap()
}

fn seen(file: &[u8], exif_orientation: bool) -> Result<Vec<u8>, PixelError> {
    let pipeline = Pipeline { exif_orientation, operations: vec![CenterCrop::to(SQUARE).into()] };
    let mut out = vec![0; pipeline.output().bytes()];
    Preparer::new(Limits::default()).prepare(Source::Encoded(file), &pipeline, Draw::default(), &mut out)?;
    Ok(out)
}

/// Files that we refuse, and Pillow does not.
const REFUSED: [&str; 4] = ["float.tif", "jpeg.tif", "la.tif", "palette.tif"];
/// Files of 16-bit gray. We keep the upper 8 bits of a value; Pillow turns every value above 255 into 255.
const GRAY_16: [&str; 2] = ["gray16.png", "gray16.tif"];

#[test]
fn other_formats_are_decoded_as_pillow_does_but_for_what_is_documented() {
    let mut files = 0;
    for line in include_str!("../golden/formats.txt").lines() {
        let mut words = line.split(' ');
        let name = words.next().unwrap();
        let [stored, turned]: [u32; 2] = std::array::from_fn(|_| words.next().unwrap().parse().unwrap());
        let file = file(name);
        files += 1;
        let (as_stored, upright) = (seen(&file, false), seen(&file, true));
        if REFUSED.contains(&name) {
            assert_eq!(as_stored.unwrap_err().reason(), CorruptReason::Unsupported, "{name}");
            continue;
        }
        let (as_stored, upright) = (as_stored.expect(name), upright.expect(name));
        match name {
            name if GRAY_16.contains(&name) => {
                let row = &as_stored[15 * SQUARE as usize * 3..][14 * 3..][..12 * 3];
                let expected: Vec<u8> =
                    (0..12u32).flat_map(|x| [((x + 1) * 4000 + 13) >> 8; 3].map(|v| v as u8)).collect();
                assert_eq!(row, expected, "{name}");
            }
            // Pillow turns a TIFF in any case.
            "turned.tif" => assert_eq!(crc32(&upright), turned, "{name}"),
            _ => assert_eq!((crc32(&as_stored), crc32(&upright)), (stored, turned), "{name}"),
        }
    }
    assert!(files > 43);
    assert_eq!(seen(&file("turned.tif"), false), seen(&file("rgb.tif"), false));
}

#[test]
fn a_png_may_end_behind_its_pixels_but_not_before() {
    let whole = file("no-end.png");
    let pixels = seen(&whole, false);
    assert_eq!(seen(&[&whole, &b"\0\0\0\x09tEXtcut"[..]].concat(), false), pixels);
    for length in whole.len() - 30..whole.len() {
        let error = seen(&whole[..length], false).unwrap_err();
        assert_eq!(error.reason(), CorruptReason::Truncated, "{length}");
    }
    let mut damaged = whole.clone();
    *damaged.last_mut().unwrap() ^= 1;
    assert!(seen(&damaged, false).is_err(), "the checksum of the pixels counts");
}

#[test]
fn an_orientation_is_told() {
    let mut preparer = Preparer::new(Limits::default());
    for name in ["turned.png", "turned.webp", "turned-lossy.webp", "turned.tif", "frame-turned.webp", "second-exif.jpg"]
    {
        let file = file(name);
        assert_eq!(preparer.info(&file).unwrap().orientation, 6, "{name}");
        let decoded = preparer.decode(Source::Encoded(&file), None, &mut Vec::new()).unwrap();
        assert_eq!(decoded.orientation, 6, "{name}: a pack of pixels keeps it");
    }
}

#[test]
fn a_file_tells_whether_it_is_lossless_and_how_many_bits_it_has() {
    let mut preparer = Preparer::new(Limits::default());
    let mut info = |name: &str| {
        let info = preparer.info(&file(name)).unwrap();
        (info.is_lossless, info.bits)
    };
    for name in ["frame-lossy-blended.webp", "frame-lossy-replaced.webp", "turned-lossy.webp"] {
        assert_eq!(info(name), (false, 8), "{name}");
    }
    for name in ["frame-lossless-blended.webp", "turned.webp", "turned.png", "rgb.tif"] {
        assert_eq!(info(name), (true, 8), "{name}");
    }
    assert_eq!((info("gray16.png"), info("rgb16.tif")), ((true, 16), (true, 16)));
}

#[test]
fn a_cut_or_damaged_file_is_an_answer_and_needs_no_memory() {
    let little = Limits { pixels: 1 << 16, memory_bytes: 1 << 20, ..Limits::default() };
    let mut preparer = Preparer::new(little);
    for name in [
        "lzw.tif",
        "planar.tif",
        "cmyk.tif",
        "group4.tif",
        "deflate.tif",
        "frame-lossy-blended.webp",
        "frame.gif",
        "rle8-skips.bmp",
        "os2.bmp",
        "maximum-plain.ppm",
        "wide.ppm",
    ] {
        let good = file(name);
        for at in 0..good.len() {
            let _ = preparer.inspect(&good[..at]);
            for byte in [0, 0x7F, 0xFF] {
                let mut bad = good.clone();
                bad[at] = byte;
                let _ = preparer.inspect(&bad);
                let _ = preparer.info(&bad);
            }
        }
    }
}
