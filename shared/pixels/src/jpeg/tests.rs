//! A rectangle decoded alone has the same pixels as in the whole image, for every layout.

use proptest::prelude::*;

use super::*;
use crate::encode::{self, JpegOptions, Layout};
use crate::synthetic;

fn picture(layout: Layout, width: u32, height: u32, seed: u32) -> Vec<u8> {
    let rgb = synthetic::photo(width, height, seed);
    let pixels = rgb.chunks_exact(3);
    match layout.channels() {
        1 => pixels.map(|pixel| pixel[1]).collect(),
        4 => pixels.flat_map(|pixel| [pixel[0], pixel[1], pixel[2], pixel[0] ^ pixel[1]]).collect(),
        _ => rgb,
    }
}

struct Decoded {
    pixels: Vec<u8>,
    warnings: u32,
}

fn decode(file: &[u8], rect: Option<Rect>) -> Result<Decoded, PixelError> {
    let mut object = Object::new();
    let mut band = Vec::new();
    let opened = open(&mut object, file, Limits::default(), false)?;
    let mut rows = JpegRows::new(opened, &mut band);
    let (width, height) = rows.size();
    let rect = rect.unwrap_or(Rect { x: 0, y: 0, width, height });
    let mut pixels = Vec::new();
    let mut next = 0;
    rows.read(rect, &mut |band| {
        assert_eq!(band.y, next);
        next += band.rows;
        (0..band.rows).for_each(|y| pixels.extend_from_slice(band.row(y, rect.width)));
        Ok(())
    })?;
    assert_eq!(next, rect.height);
    Ok(Decoded { pixels, warnings: rows.warnings() })
}

fn cut(whole: &[u8], width: u32, rect: Rect) -> Vec<u8> {
    let row = |y: u32| &whole[((rect.y + y) * width + rect.x) as usize * 3..][..rect.width as usize * 3];
    (0..rect.height).flat_map(row).copied().collect()
}

#[derive(Clone, Debug)]
struct Sample {
    options: JpegOptions,
    size: (u32, u32),
    seed: u32,
}

impl Sample {
    fn file(&self) -> Vec<u8> {
        let (width, height) = self.size;
        let pixels = picture(self.options.layout, width, height, self.seed);
        encode::jpeg(&pixels, width, height, &self.options).unwrap()
    }
}

fn samples() -> impl Strategy<Value = Sample> {
    let side = || prop_oneof![1 => 1u32..4, 2 => 4u32..40, 4 => 40u32..200];
    let coding = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.1), 0u32..4);
    let layout = prop::sample::select(Layout::ALL.to_vec());
    (layout, coding, 20u8..100, (side(), side()), any::<u32>()).prop_map(|(layout, coding, quality, size, seed)| {
        let (progressive, optimize, arithmetic, restart_rows) = coding;
        let base = JpegOptions { layout, quality, restart_rows, ..JpegOptions::default() };
        Sample { options: JpegOptions { progressive, optimize, arithmetic, ..base }, size, seed }
    })
}

/// Returns a box within an image, from two corners in 65536ths.
pub(super) fn rect_of(corners: [u16; 4], (width, height): (u32, u32)) -> Rect {
    let span = |a: u16, b: u16, length: u32| {
        let at = |share: u16| ((u64::from(share) * u64::from(length)) >> 16) as u32;
        let (first, last) = (at(a.min(b)), at(a.max(b)));
        (first, last - first + 1)
    };
    let (x, across) = span(corners[0], corners[1], width);
    let (y, down) = span(corners[2], corners[3], height);
    Rect { x, y, width: across, height: down }
}

/// Returns a configuration with fixed cases; `PROPTEST_CASES` may reduce their number, as under emulation.
pub(super) fn config(cases: u32, seed: u64) -> ProptestConfig {
    let most = std::env::var("PROPTEST_CASES").ok().and_then(|most| most.parse().ok()).unwrap_or(cases);
    let rng_seed = proptest::test_runner::RngSeed::Fixed(seed);
    ProptestConfig { rng_seed, ..ProptestConfig::with_cases(cases.min(most)) }
}

proptest! {
    #![proptest_config(config(1500, 17))]

    #[test]
    fn a_rectangle_is_the_part_of_the_whole(sample in samples(), corners: [[u16; 4]; 8]) {
        let file = sample.file();
        let whole = decode(&file, None).unwrap();
        prop_assert_eq!(whole.warnings, 0);
        for rect in corners.map(|corners| rect_of(corners, sample.size)) {
            let part = decode(&file, Some(rect)).unwrap();
            prop_assert!(part.pixels == cut(&whole.pixels, sample.size.0, rect), "{:?}", rect);
        }
    }
}

proptest! {
    #![proptest_config(config(1500, 18))]

    #[test]
    fn damage_changes_nothing_about_that(sample in samples(), places: [u32; 3], bits: [u8; 3], corners: [u16; 4]) {
        let mut file = sample.file();
        let start = file.windows(2).position(|two| two == [0xFF, 0xDA]).unwrap() as u32 + 8;
        for (place, bit) in places.into_iter().zip(bits) {
            let at = start + place % (file.len() as u32 - start);
            file[at as usize] ^= 1 << (bit % 8);
        }
        let rect = rect_of(corners, sample.size);
        // A rectangle sees less of the damage, so it may decode although the whole does not.
        if let (Ok(whole), Ok(part)) = (decode(&file, None), decode(&file, Some(rect))) {
            prop_assert!(part.warnings <= whole.warnings);
            prop_assert!(part.pixels == cut(&whole.pixels, sample.size.0, rect), "{:?}", rect);
        }
    }
}

proptest! {
    #![proptest_config(config(150, 19))]

    #[test]
    fn a_file_cut_short_is_an_error(sample in samples(), places: [u16; 8]) {
        let file = sample.file();
        // The last byte of image data may hold only padding.
        for place in places {
            let length = (usize::from(place) * (file.len() - 3)) >> 16;
            match decode(&file[..length], None) {
                Err(PixelError::Truncated { .. }) => {}
                other => prop_assert!(false, "{} of {} bytes: {:?}", length, file.len(), other.map(|d| d.warnings)),
            }
        }
    }

    #[test]
    fn the_end_marker_alone_may_lack(sample in samples()) {
        let one_scan = !sample.options.progressive && !sample.options.arithmetic;
        let file = sample.file();
        let whole = decode(&file, None).unwrap();
        match decode(&file[..file.len() - 2], None) {
            Ok(decoded) => prop_assert!(one_scan && decoded.pixels == whole.pixels && decoded.warnings <= 1),
            Err(error) => prop_assert!(!one_scan, "{error}"),
        }
    }
}

/// Detects block smoothing, which guesses missing coefficients from neighbours that a rectangle does not decode.
#[test]
fn an_incomplete_progressive_file_has_the_same_pixels_for_any_rectangle() {
    let options = JpegOptions { progressive: true, quality: 40, ..JpegOptions::default() };
    let file = Sample { options, size: (150, 130), seed: 5 }.file();
    let scans: Vec<usize> = (0..file.len() - 1).filter(|&at| file[at..at + 2] == [0xFF, 0xDA]).collect();
    for end in [scans[1], scans[2], scans[5]] {
        let incomplete = [&file[..end], &[0xFF, 0xD9]].concat();
        let whole = decode(&incomplete, None).unwrap();
        for i in 0..100u16 {
            let corner = |factor: u16| factor.wrapping_mul(i.wrapping_add(77).wrapping_mul(251));
            let rect = rect_of([corner(3), corner(7), corner(11), corner(19)], (150, 130));
            let part = decode(&incomplete, Some(rect)).unwrap();
            assert!(part.pixels == cut(&whole.pixels, 150, rect), "{rect:?}");
        }
    }
}

#[test]
fn pillow_decodes_to_the_same_pixels() {
    let images: [(&str, &[u8]); 5] = [
        ("420.jpg", include_bytes!("../ability/images/420.jpg")),
        ("444-odd.jpg", include_bytes!("../ability/images/444-odd.jpg")),
        ("422-progressive.jpg", include_bytes!("../ability/images/422-progressive.jpg")),
        ("gray.jpg", include_bytes!("../ability/images/gray.jpg")),
        ("cmyk.jpg", include_bytes!("../ability/images/cmyk.jpg")),
    ];
    let golden = include_str!("../../tests/golden/decode.txt");
    for (name, file) in images {
        let line = golden.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        assert_eq!(line.trim(), synthetic::crc32(&decode(file, None).unwrap().pixels).to_string(), "{name}");
    }
}

#[test]
fn inks_become_the_colours_of_pillow() {
    let ink = |black: u32, ink: u32| [ink as u8, 255 - ink as u8, (ink ^ black) as u8, black as u8];
    let mut pixels: Vec<u8> = (0..256).flat_map(|black| (0..256).flat_map(move |value| ink(black, value))).collect();
    rgb_from_stored_cmyk(&mut pixels);
    let golden = include_str!("../../tests/golden/cmyk.txt").trim();
    assert_eq!(golden, synthetic::crc32(&pixels[..256 * 256 * 3]).to_string());
}

#[test]
fn limits_are_typed_errors() {
    let file =
        Sample { options: JpegOptions { progressive: true, ..JpegOptions::default() }, size: (64, 48), seed: 1 }.file();
    let within = |limits| decode_within(&file, limits);
    assert_eq!(within(Limits::default()), Ok(()));
    let pixels = Limits { pixels: 64 * 48 - 1, ..Limits::default() };
    assert_eq!(within(pixels), Err(PixelError::TooManyPixels { width: 64, height: 48, limit: 64 * 48 - 1 }));
    let memory_bytes = 64 * 48 * 3 - 1;
    let memory = Limits { memory_bytes, ..Limits::default() };
    assert_eq!(within(memory), Err(PixelError::TooMuchMemory { limit: memory_bytes }));
    // libjpeg's usual progression of a colour image has ten scans.
    assert_eq!(within(Limits { scans: 10, ..Limits::default() }), Ok(()));
    assert_eq!(within(Limits { scans: 9, ..Limits::default() }), Err(PixelError::TooManyScans { limit: 9 }));
}

fn decode_within(file: &[u8], limits: Limits) -> Result<(), PixelError> {
    let mut object = Object::new();
    let mut opened = open(&mut object, file, limits, false)?;
    let width = opened.header.width;
    opened.start(0, width, 0).map(|_| ())
}

#[test]
fn thousands_of_scans_are_refused() {
    let options = JpegOptions { progressive: true, layout: Layout::Gray, ..JpegOptions::default() };
    let file = Sample { options, size: (40, 40), seed: 1 }.file();
    let scan = file.windows(2).position(|two| two == [0xFF, 0xDA]).unwrap();
    let last = file.windows(2).rposition(|two| two == [0xFF, 0xDA]).unwrap();
    let mut many = file[..last].to_vec();
    for _ in 0..5000 {
        many.extend_from_slice(&file[last..file.len() - 2]);
    }
    many.extend_from_slice(&[0xFF, 0xD9]);
    assert!(scan < last);
    assert_eq!(decode_within(&many, Limits::default()), Err(PixelError::TooManyScans { limit: 100 }));
    let mut object = Object::new();
    let opened = open(&mut object, &many, Limits::default(), false).unwrap();
    assert_eq!(opened.into_coefficients(ffi::Extent::Whole).err(), Some(PixelError::TooManyScans { limit: 100 }));
}

#[test]
fn tables_of_another_file_are_not_used() {
    let sample = |quality| Sample {
        options: JpegOptions { quality, optimize: true, ..JpegOptions::default() },
        size: (64, 64),
        seed: 2,
    };
    let (coarse, fine) = (sample(20).file(), sample(95).file());
    // Without its quantisation tables the file is abbreviated.
    let tables = fine.windows(2).position(|two| two == [0xFF, 0xDB]).unwrap();
    let frame = fine.windows(2).position(|two| two == [0xFF, 0xC0]).unwrap();
    let abbreviated = [&fine[..tables], &fine[frame..]].concat();
    let mut object = Object::new();
    let mut outcome = |file: &[u8]| {
        let mut opened = open(&mut object, file, Limits::default(), false)?;
        opened.start(0, 64, 0)?;
        opened.rows(&mut [0; 64 * 3 * 8], 8)
    };
    assert_eq!(outcome(&coarse), Ok(()));
    assert!(matches!(outcome(&abbreviated), Err(PixelError::Malformed { .. })));
}
