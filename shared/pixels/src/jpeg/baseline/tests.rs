//! Compares the pixels, and the choice of the files left to libjpeg, with libjpeg itself. `coefficients` tests how
//! large a coefficient may be, `coverage` which part of a file a rectangle costs.

mod coefficients;
mod coverage;

use crate::jpeg::tests::{config, rect_of};
use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestRunner};
use std::cell::Cell;

use super::checkpoints::Checkpoints;
use super::*;
use crate::draw::Draw;
use crate::encode::{self, JpegOptions, Layout};
use crate::error::PixelError;
use crate::geometry::Rect;
use crate::jpeg::ffi::Object;
use crate::jpeg::{JpegRows, open};
use crate::level::Level;
use crate::limits::Limits;
use crate::ops::RandomResizedCrop;
use crate::pipeline::Pipeline;
use crate::preparer::Preparer;
use crate::rows::ImageRows;
use crate::source::Source;
use crate::synthetic;

/// Layouts that this decoder takes.
const LAYOUTS: [Layout; 6] =
    [Layout::Gray, Layout::Yuv444, Layout::Yuv422, Layout::Yuv420, Layout::Yuv440, Layout::Rgb];

fn collect(rows: &mut dyn ImageRows, rect: Rect) -> Result<Vec<u8>, PixelError> {
    let mut pixels = Vec::new();
    rows.read(rect, &mut |band| {
        (0..band.rows).for_each(|y| pixels.extend_from_slice(band.row(y, rect.width)));
        Ok(())
    })?;
    Ok(pixels)
}

fn by_libjpeg(file: &[u8], rect: Rect) -> Result<(Vec<u8>, u32), PixelError> {
    let (mut object, mut band) = (Object::new(), Vec::new());
    let mut rows = JpegRows::new(open(&mut object, file, Limits::default(), false)?, &mut band);
    let pixels = collect(&mut rows, rect)?;
    Ok((pixels, rows.warnings()))
}

fn by_us(
    decoder: &mut BaselineDecoder,
    file: &[u8],
    checkpoints: Option<&Checkpoints>,
    rect: Rect,
) -> Result<Vec<u8>, LeftToLibjpeg> {
    let mut band = Vec::new();
    let mut rows = decoder.open(file, checkpoints, &mut band)?;
    let outcome = collect(&mut rows, rect);
    assert_eq!(outcome.is_err(), rows.gave_up());
    outcome.map_err(|_| LeftToLibjpeg)
}

fn cut(whole: &[u8], width: u32, rect: Rect) -> Vec<u8> {
    let row = |y: u32| &whole[((rect.y + y) * width + rect.x) as usize * 3..][..rect.width as usize * 3];
    (0..rect.height).flat_map(row).copied().collect()
}

#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub options: JpegOptions,
    pub size: (u32, u32),
    pub seed: u32,
    /// Share of noise in the picture, in 256ths, or [`EXTREME`].
    pub noise: u32,
}

impl Sample {
    pub fn file(&self) -> Vec<u8> {
        let (width, height) = self.size;
        let mut state = u64::from(self.seed) | 1;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32
        };
        let noisy = |value: u8| match self.noise {
            // Black and white pixels: the largest coefficients that an encoder writes.
            EXTREME => 0u8.wrapping_sub((random() & 1) as u8),
            noise => ((u32::from(value) * (256 - noise) + (random() & 255) * noise) >> 8) as u8,
        };
        let rgb: Vec<u8> = synthetic::photo(width, height, self.seed).into_iter().map(noisy).collect();
        let pixels = if self.options.layout.channels() == 1 { rgb.into_iter().step_by(3).collect() } else { rgb };
        encode::jpeg(&pixels, width, height, &self.options).unwrap()
    }
}

const EXTREME: u32 = 257;

pub(crate) fn samples() -> impl Strategy<Value = Sample> {
    let side = || prop_oneof![3 => 1u32..40, 2 => 40u32..71, 1 => 71u32..300];
    let layout = prop::sample::select(LAYOUTS.to_vec());
    let noise = prop_oneof![Just(0u32), 0u32..100, Just(256u32), Just(EXTREME)];
    let restarts = prop_oneof![
        3 => Just((0, 0)),
        1 => (1u32..4).prop_map(|rows| (rows, 0)),
        2 => (1u32..30).prop_map(|mcus| (0, mcus)),
    ];
    (layout, any::<bool>(), restarts, 10u8..=100, (side(), side()), any::<u32>(), noise).prop_map(
        |(layout, optimize, (restart_rows, restart_mcus), quality, size, seed, noise)| {
            let options =
                JpegOptions { layout, quality, optimize, restart_rows, restart_mcus, ..JpegOptions::default() };
            Sample { options, size, seed, noise }
        },
    )
}

fn whole((width, height): (u32, u32)) -> Rect {
    Rect { x: 0, y: 0, width, height }
}

proptest! {
    #![proptest_config(config(1500, 41))]

    #[test]
    fn rectangles_have_the_pixels_of_libjpeg(sample in samples(), every in 1u32..20, corners: [[u16; 4]; 8]) {
        let file = sample.file();
        let (pixels, warnings) = by_libjpeg(&file, whole(sample.size)).unwrap();
        prop_assert_eq!(warnings, 0);
        for level in Level::tested() {
            let mut decoder = BaselineDecoder::new(level);
            let ours = by_us(&mut decoder, &file, None, whole(sample.size));
            prop_assert!(ours.as_ref() == Ok(&pixels), "{level:?} {:?}", ours.map(|_| "other pixels"));
            let checkpoints = Checkpoints::make(&mut decoder, &file, every).unwrap();
            for rect in corners.map(|corners| rect_of(corners, sample.size)) {
                let part = cut(&pixels, sample.size.0, rect);
                prop_assert!(by_us(&mut decoder, &file, None, rect).as_ref() == Ok(&part), "{level:?} {rect:?}");
                let ours = by_us(&mut decoder, &file, Some(&checkpoints), rect);
                prop_assert!(ours.as_ref() == Ok(&part), "{level:?} {rect:?} from checkpoints");
            }
        }
    }
}

/// Runs a property for `cases` cases, in a test that asserts something about all of them afterwards.
pub(crate) fn check<S: Strategy>(cases: u32, seed: u64, strategy: S, test: impl Fn(S::Value) -> TestCaseResult) {
    let config = ProptestConfig { cases, source_file: Some(file!()), ..config(cases, seed) };
    TestRunner::new(config).run(&strategy, test).unwrap_or_else(|error| panic!("{error}"));
}

pub(crate) fn add(count: &Cell<u32>, more: bool) {
    count.set(count.get() + u32::from(more));
}

/// Decodes a rectangle one row of MCUs at a time, for layouts whose rows of pixels need no neighbours.
fn by_single_rows(
    decoder: &mut BaselineDecoder,
    file: &[u8],
    checkpoints: &Checkpoints,
    rect: Rect,
) -> Result<Vec<u8>, LeftToLibjpeg> {
    let (mut pixels, mut y) = (Vec::new(), rect.y);
    while y < rect.y + rect.height {
        let height = (y / 8 * 8 + 8).min(rect.y + rect.height) - y;
        pixels.extend(by_us(decoder, file, Some(checkpoints), Rect { y, height, ..rect })?);
        y += height;
    }
    Ok(pixels)
}

#[test]
fn what_is_decoded_of_a_damaged_file_is_libjpegs() {
    // Counts of damaged files: decoded from the beginning; decoded from checkpoints of the damaged file; decoded from
    // checkpoints of the intact file; refused by two rows at once as by each row alone; cut short
    // and decoded.
    let (plain, entered, paired, refused, shorter) =
        (Cell::new(0), Cell::new(0), Cell::new(0), Cell::new(0), Cell::new(0));
    let cases = (samples(), 1u32..9, any::<[u32; 2]>(), any::<[u8; 2]>(), any::<[u16; 4]>());
    check(3000, 42, cases, |(sample, every, places, bits, corners)| {
        let mut file = sample.file();
        let rect = rect_of(corners, sample.size);
        let mut decoder = BaselineDecoder::new(Level::best());
        let of_the_whole = Checkpoints::make(&mut decoder, &file, every).unwrap();
        for (place, bit) in places.into_iter().zip(bits) {
            let at = place as usize % file.len();
            file[at] ^= 1 << (bit % 8);
            let mut band = Vec::new();
            let Ok(rows) = decoder.open(&file, None, &mut band) else { continue };
            if rows.size() != sample.size {
                continue;
            }
            if let Ok(pixels) = by_us(&mut decoder, &file, None, rect) {
                prop_assert!(by_libjpeg(&file, rect) == Ok((pixels, 0)), "{:?} {} {}", rect, at, bit);
                add(&plain, true);
            }
            if let Ok(checkpoints) = Checkpoints::make(&mut decoder, &file, every)
                && let Ok(pixels) = by_us(&mut decoder, &file, Some(&checkpoints), rect)
            {
                let libjpegs = by_libjpeg(&file, rect);
                prop_assert!(libjpegs == Ok((pixels, 0)), "{:?} {} {} from checkpoints", rect, at, bit);
                add(&entered, true);
            }
            let needs_no_neighbours = !matches!(sample.options.layout, Layout::Yuv420 | Layout::Yuv440);
            if needs_no_neighbours && rect.height > 8 {
                let ours = by_us(&mut decoder, &file, Some(&of_the_whole), rect);
                let singly = by_single_rows(&mut decoder, &file, &of_the_whole, rect);
                prop_assert!(ours == singly, "{:?} {} {} by two rows", rect, at, bit);
                add(&paired, ours.is_ok());
                add(&refused, ours.is_err());
            }
        }
        let length = (places[0] as usize) % file.len();
        if let Ok(pixels) = by_us(&mut decoder, &file[..length], None, rect) {
            prop_assert!(by_libjpeg(&file[..length], rect) == Ok((pixels, 0)), "{:?} cut at {}", rect, length);
            add(&shorter, true);
        }
        Ok(())
    });
    let counts = [plain, entered, paired, refused, shorter].map(Cell::into_inner);
    let least = [2500, 2500, 1200, 120, 120];
    assert!(counts.iter().zip(least).all(|(&count, least)| count >= least), "{counts:?} of at least {least:?}");
}

#[test]
fn large_images_have_the_pixels_of_libjpeg() {
    let mut decoder = BaselineDecoder::new(Level::best());
    for (number, layout) in (0..).zip(LAYOUTS) {
        let size = (1203 - 64 * number, 801 + 33 * number);
        let options = JpegOptions { layout, quality: 92, optimize: number % 2 == 1, ..JpegOptions::default() };
        let file = Sample { options, size, seed: number, noise: 40 * number }.file();
        let (pixels, _) = by_libjpeg(&file, whole(size)).unwrap();
        assert!(by_us(&mut decoder, &file, None, whole(size)).as_ref() == Ok(&pixels), "{layout:?}");
        let checkpoints = [1, 7, 16].map(|every| Checkpoints::make(&mut decoder, &file, every).unwrap());
        for i in 0..200u16 {
            let corner = |factor: u16| factor.wrapping_mul(i.wrapping_add(77).wrapping_mul(251));
            let rect = rect_of([corner(3), corner(7), corner(11), corner(19)], size);
            let checkpoints = checkpoints.get(usize::from(i % 4));
            let part = by_us(&mut decoder, &file, checkpoints, rect);
            assert!(part.as_ref() == Ok(&cut(&pixels, size.0, rect)), "{layout:?} {rect:?}");
        }
    }
}

#[test]
fn fill_bytes_behind_a_scan_are_left_to_libjpeg() {
    let options = JpegOptions { layout: Layout::Gray, ..JpegOptions::default() };
    let mut file = Sample { options, size: (16, 16), seed: 1, noise: 0 }.file();
    *file.last_mut().unwrap() = 0xFF;
    let (_, warnings) = by_libjpeg(&file, whole((16, 16))).unwrap();
    assert_eq!(warnings, 1);
    assert_eq!(by_us(&mut BaselineDecoder::new(Level::best()), &file, None, whole((16, 16))), Err(LeftToLibjpeg));
}

/// Returns a pipeline of random crops at a small size.
fn pipeline() -> Pipeline {
    let operations = vec![RandomResizedCrop::within(24, [0.08, 1.0], [0.75, 4.0 / 3.0]).into()];
    Pipeline { exif_orientation: true, operations }
}

proptest! {
    #![proptest_config(config(6000, 43))]

    #[test]
    fn a_preparer_says_of_any_file_what_libjpeg_says(
        sample in samples(), places: [u32; 3], bits: [u8; 3], cut in any::<u32>(), draw in any::<u64>()
    ) {
        let mut file = sample.file();
        for (place, bit) in places.into_iter().zip(bits) {
            let at = place as usize % file.len();
            // One in four of these bits is not flipped, so that files with fewer than three flipped bits occur as well.
            if bit & 0xC0 != 0xC0 {
                file[at] ^= 1 << (bit % 8);
            }
        }
        if cut.is_multiple_of(4) {
            file.truncate(cut as usize % file.len());
        }
        let pipeline = pipeline();
        let draw = Draw { seed: draw, epoch: 0, sample_id: 0 };
        let limits = Limits { pixels: 1 << 22, ..Limits::default() };
        let run = |mut preparer: Preparer| {
            let mut out = vec![0; pipeline.output().bytes()];
            let outcome = preparer.prepare(Source::Encoded(&file), &pipeline, draw, &mut out);
            outcome.map(|prepared| (prepared, out))
        };
        let (ours, libjpegs) = (run(Preparer::new(limits)), run(Preparer::by_libjpeg(limits)));
        let is_same = ours == libjpegs;
        let [ours, libjpegs] = [ours, libjpegs].map(|made| made.map(|(prepared, _)| prepared));
        prop_assert!(is_same, "{ours:?} instead of {libjpegs:?}");
    }
}

#[test]
fn foreign_checkpoints_do_no_harm() {
    let (accepted, decoded) = (Cell::new(0), Cell::new(0));
    let cases = (samples(), any::<[u32; 3]>(), any::<[u8; 3]>(), 1u32..9, any::<[u16; 4]>());
    check(1500, 44, cases, |(sample, places, values, every, corners)| {
        let file = sample.file();
        let mut decoder = BaselineDecoder::new(Level::best());
        let mut bytes = Checkpoints::make(&mut decoder, &file, every).unwrap().to_bytes();
        for (place, value) in places.into_iter().zip(values) {
            let at = place as usize % bytes.len();
            bytes[at] ^= value;
        }
        let Ok(checkpoints) = Checkpoints::from_bytes(&bytes) else { return Ok(()) };
        add(&accepted, true);
        let rect = rect_of(corners, sample.size);
        if let Ok(pixels) = by_us(&mut decoder, &file, Some(&checkpoints), rect) {
            prop_assert_eq!(pixels.len(), rect.width as usize * rect.height as usize * 3);
            add(&decoded, true);
        }
        Ok(())
    });
    let (accepted, decoded) = (accepted.get(), decoded.get());
    assert!(accepted >= 150 && decoded >= 75, "{accepted} accepted, {decoded} decoded");
}

#[test]
fn what_other_decoders_are_for_is_left_to_libjpeg() {
    let rgb = synthetic::photo(40, 40, 3);
    let mut decoder = BaselineDecoder::new(Level::best());
    let mut takes = |file: &[u8]| decoder.open(file, None, &mut Vec::new()).is_ok();
    let base = JpegOptions::default();
    let file = |options: &JpegOptions| encode::jpeg(&rgb, 40, 40, options).unwrap();
    for layout in LAYOUTS.into_iter().filter(|layout| layout.channels() == 3) {
        assert!(takes(&file(&JpegOptions { layout, ..base.clone() })), "{layout:?}");
    }
    for other in [
        JpegOptions { progressive: true, ..base.clone() },
        JpegOptions { arithmetic: true, ..base.clone() },
        JpegOptions { layout: Layout::Yuv411, ..base.clone() },
        JpegOptions { layout: Layout::Yuv410, ..base.clone() },
    ] {
        assert!(!takes(&file(&other)), "{other:?}");
    }
    assert!(!takes(&rgb) && !takes(b"") && !takes(&file(&base)[..30]));
}
