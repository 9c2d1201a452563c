//! Preparing samples: formats, purity, padding, orientation, hostile bytes.

use std::io::Cursor;
use std::sync::LazyLock;

use ddlp_pixels::draw::Rng;
use ddlp_pixels::encode::{self, JpegOptions, Layout};
use ddlp_pixels::ops::{CenterCrop, GaussianBlur, Operation, RandomCrop, RandomResizedCrop, Resize};
use ddlp_pixels::{
    CorruptReason, Draw, Format, Limits, Pipeline, PixelError, Prepared, Preparer, Source, fuzz, synthetic,
};
use image::{DynamicImage, ImageFormat};
use proptest::prelude::*;

fn pipeline(operations: impl Into<Vec<Operation>>) -> Pipeline {
    Pipeline { exif_orientation: false, operations: operations.into() }
}

/// Returns a pipeline that keeps a square image of this side as it is.
fn as_it_is(side: u32) -> Pipeline {
    pipeline([CenterCrop::to(side).into()])
}

fn prepare(source: Source<'_>, pipeline: &Pipeline, draw: Draw) -> Result<Vec<u8>, PixelError> {
    let mut out = vec![0xA5; pipeline.output().bytes()];
    Preparer::new(Limits::default()).prepare(source, pipeline, draw, &mut out).map(|_| out)
}

fn whole(file: &[u8], side: u32) -> Result<Vec<u8>, PixelError> {
    prepare(Source::Encoded(file), &as_it_is(side), Draw::default())
}

fn written(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    image.write_to(&mut file, format).unwrap();
    file.into_inner()
}

fn planes(rgb: &[u8]) -> Vec<u8> {
    (0..3).flat_map(|channel| rgb.iter().skip(channel).step_by(3).copied()).collect()
}

const SIDE: u32 = 40;

fn rgb() -> DynamicImage {
    image::RgbImage::from_raw(SIDE, SIDE, synthetic::photo(SIDE, SIDE, 9)).unwrap().into()
}

#[test]
fn lossless_formats_keep_every_pixel() {
    let expected = rgb().into_bytes();
    let kinds = [
        (ImageFormat::Png, Format::Png),
        (ImageFormat::WebP, Format::WebP),
        (ImageFormat::Bmp, Format::Bmp),
        (ImageFormat::Pnm, Format::Pnm),
    ];
    for (written_as, format) in kinds {
        let file = written(&rgb(), written_as);
        assert_eq!(whole(&file, SIDE), Ok(expected.clone()), "{format:?}");
        let info = Preparer::new(Limits::default()).info(&file).unwrap();
        assert_eq!((info.format, info.width, info.height, info.components), (format, SIDE, SIDE, 3));
    }
    let gif = written(&rgb(), ImageFormat::Gif);
    let apart = whole(&gif, SIDE).unwrap().into_iter().zip(&expected).map(|(a, b)| u64::from(a.abs_diff(*b)));
    assert!(apart.sum::<u64>() / expected.len() as u64 <= 12, "256 colours come near");
}

#[test]
fn sixteen_bits_alpha_and_gray_become_rgb_as_pillow_does() {
    let wide = |value: u16| [value, value.wrapping_mul(7), 65535 - value];
    let values: Vec<u16> = (0..SIDE * SIDE).flat_map(|i| wide((i * 41) as u16)).collect();
    let upper: Vec<u8> = values.iter().map(|value| (value >> 8) as u8).collect();
    let rgb16: DynamicImage = DynamicImage::ImageRgb16(image::ImageBuffer::from_raw(SIDE, SIDE, values).unwrap());
    assert_eq!(whole(&written(&rgb16, ImageFormat::Png), SIDE), Ok(upper));

    let mut clear = rgb().to_rgba8();
    clear.pixels_mut().enumerate().for_each(|(i, pixel)| pixel[3] = i as u8);
    assert_eq!(whole(&written(&clear.into(), ImageFormat::Png), SIDE), Ok(rgb().into_bytes()));

    let gray = rgb().to_luma8();
    let repeated: Vec<u8> = gray.as_raw().iter().flat_map(|&value| [value; 3]).collect();
    assert_eq!(whole(&written(&gray.clone().into(), ImageFormat::Png), SIDE), Ok(repeated.clone()));
    assert_eq!(
        whole(&written(&DynamicImage::from(gray).to_luma_alpha8().into(), ImageFormat::Png), SIDE),
        Ok(repeated)
    );
}

#[test]
fn all_ways_in_lead_to_the_same_pixels() {
    let (width, height) = (210, 170);
    for (layout, progressive) in [(Layout::Yuv420, false), (Layout::Yuv444, true), (Layout::Ycck420, false)] {
        let options = JpegOptions { layout, progressive, ..JpegOptions::default() };
        let channels = layout.channels() as usize;
        let pixels = synthetic::photo(width, height * 2, 4)[..(width * height) as usize * channels].to_vec();
        let jpeg = encode::jpeg(&pixels, width, height, &options).unwrap();
        // A crop larger than the image contains all of it.
        let large = prepare(Source::Encoded(&jpeg), &as_it_is(210), Draw::default()).unwrap();
        let stored = &large[20 * 210 * 3..][..(width * height * 3) as usize];
        let png = image::RgbImage::from_raw(width, height, stored.to_vec()).unwrap();
        let png = written(&png.into(), ImageFormat::Png);
        let planar = planes(stored);
        for pipeline in [Pipeline::imagenet_train(), Pipeline::imagenet_val(), Pipeline::cifar_train()] {
            for sample_id in 0..12 {
                let draw = Draw { seed: 5, epoch: 1, sample_id };
                let direct = prepare(Source::Encoded(&jpeg), &pipeline, draw).unwrap();
                let source = Source::Planar { width, height, bytes: &planar };
                assert!(prepare(source, &pipeline, draw).unwrap() == direct);
                assert!(prepare(Source::Encoded(&png), &pipeline, draw).unwrap() == direct);
            }
        }
    }
}

#[test]
fn outputs_differ_by_every_part_of_the_draw() {
    let source = synthetic::photo(64, 64, 1);
    let source = Source::Planar { width: 64, height: 64, bytes: &source };
    let draw = Draw { seed: 1, epoch: 1, sample_id: 1 };
    let out = |draw| prepare(source, &Pipeline::imagenet_train(), draw).unwrap();
    assert!(out(draw) == out(draw));
    assert!(out(draw) != out(Draw { seed: 2, ..draw }));
    assert!(out(draw) != out(Draw { epoch: 2, ..draw }));
    assert!(out(draw) != out(Draw { sample_id: 2, ..draw }));
}

#[test]
fn crops_that_reach_out_of_the_image_are_surrounded_by_zeros() {
    let image = [255; 2 * 2 * 3];
    let source = Source::Planar { width: 2, height: 2, bytes: &image };
    let out = prepare(source, &as_it_is(5), Draw::default()).unwrap();
    let lit: Vec<usize> = (0..25).filter(|&at| out[at * 3] == 255).collect();
    assert_eq!(lit, [6, 7, 11, 12]);
    let far = pipeline([RandomCrop::padded(1, 60).into()]);
    assert_eq!(prepare(source, &far, Draw::default()), Ok(vec![0; 3]));
    // The following operations treat the zeros as pixels.
    let resized = pipeline([CenterCrop::to(6).into(), Resize::to(3).into()]);
    let out = prepare(source, &resized, Draw::default()).unwrap();
    assert!(out[0] < 64 && out[4 * 3] > 100);
}

#[test]
fn an_image_that_an_operation_cannot_take_is_no_fault_of_the_image() {
    let image = [1; 2 * 3 * 3];
    for (operation, expected) in [
        (Operation::from(RandomCrop::to(3)), "a crop of 3x3 does not fit into an image of 2x3 pixels: set"),
        (
            RandomCrop::padded(9, 1).into(),
            "a crop of 9x9 does not fit into an image of 2x3 pixels with a border of 1: set",
        ),
        (
            GaussianBlur { kernel_size: 5.into(), sigma: [1.0, 1.0] }.into(),
            "an image of 2x3 pixels is too small to be blurred",
        ),
    ] {
        let pipeline = pipeline([operation, CenterCrop::to(4).into()]);
        let source = Source::Planar { width: 2, height: 3, bytes: &image };
        let error = prepare(source, &pipeline, Draw::default()).unwrap_err();
        assert!(matches!(error, PixelError::Misfit { .. }) && !error.is_of_the_image(), "{error:?}");
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}

#[test]
fn planes_of_another_length_are_refused() {
    let reason = |width, height, length: usize| {
        let bytes = vec![0; length];
        prepare(Source::Planar { width, height, bytes: &bytes }, &as_it_is(4), Draw::default()).unwrap_err().reason()
    };
    assert_eq!(reason(4, 4, 47), CorruptReason::Truncated);
    assert_eq!(reason(4, 4, 49), CorruptReason::Malformed);
    assert_eq!(reason(4, 4, 0), CorruptReason::Empty);
    assert_eq!(reason(0, 4, 3), CorruptReason::Malformed);
    assert_eq!(reason(u32::MAX, u32::MAX, 3), CorruptReason::TooManyPixels);
}

#[test]
fn orientation_is_applied_only_when_asked_for() {
    let pixels = synthetic::photo(48, 32, 2);
    let options = JpegOptions { orientation: Some(6), layout: Layout::Yuv444, ..JpegOptions::default() };
    let turned = encode::jpeg(&pixels, 48, 32, &options).unwrap();
    let plain = encode::jpeg(&pixels, 48, 32, &JpegOptions { orientation: None, ..options }).unwrap();
    let stored = as_it_is(48);
    let upright = Pipeline { exif_orientation: true, ..stored.clone() };
    let out = |file: &[u8], pipeline| prepare(Source::Encoded(file), pipeline, Draw::default()).unwrap();
    assert!(out(&turned, &stored) == out(&plain, &stored));
    assert!(out(&plain, &upright) == out(&plain, &stored));
    let (before, after) = (out(&plain, &stored), out(&turned, &upright));
    let at = |image: &[u8], x: usize, y: usize| image[(y * 48 + x) * 3..][..3].to_vec();
    for y in 0..48 {
        for x in 0..48 {
            // Orientation 6 turns the stored image a quarter clockwise.
            assert_eq!(at(&after, 47 - y, x), at(&before, x, y));
        }
    }
}

#[test]
fn a_preparer_has_no_memory() {
    let mut used = Preparer::new(Limits::default());
    let mut rng = Rng::from_key([8, 8, 8, 8]);
    let good = encode::jpeg(&synthetic::photo(90, 70, 1), 90, 70, &JpegOptions::default()).unwrap();
    let png = written(&rgb(), ImageFormat::Png);
    for sample_id in 0..300 {
        let mut file = if sample_id % 3 == 0 { png.clone() } else { good.clone() };
        for _ in 0..rng.below(3) {
            let at = rng.below(file.len() as u64) as usize;
            file[at] ^= rng.below(256) as u8;
        }
        let named = Pipeline::NAMES[sample_id as usize % 3];
        let pipeline = Pipeline::named(named).unwrap();
        let draw = Draw { seed: 0, epoch: 0, sample_id };
        let (mut first, mut second) = (vec![1; pipeline.output().bytes()], vec![2; pipeline.output().bytes()]);
        let found = used.prepare(Source::Encoded(&file), &pipeline, draw, &mut first);
        let fresh = Preparer::new(Limits::default()).prepare(Source::Encoded(&file), &pipeline, draw, &mut second);
        assert_eq!(found, fresh, "sample {sample_id}");
        assert!(found.is_err() || first == second, "sample {sample_id}");
    }
}

#[test]
fn limits_hold_for_every_format() {
    let few = Limits { pixels: u64::from(SIDE * SIDE) - 1, ..Limits::default() };
    let little = Limits { memory_bytes: 1000, ..Limits::default() };
    for format in [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Bmp, ImageFormat::Pnm, ImageFormat::Gif] {
        let file = written(&rgb(), format);
        let reason = |limits| {
            let mut out = vec![0; (SIDE * SIDE * 3) as usize];
            let outcome =
                Preparer::new(limits).prepare(Source::Encoded(&file), &as_it_is(SIDE), Draw::default(), &mut out);
            outcome.unwrap_err().reason()
        };
        assert_eq!(reason(few), CorruptReason::TooManyPixels, "{format:?}");
        assert_eq!(reason(little), CorruptReason::TooMuchMemory, "{format:?}");
    }
}

#[test]
fn the_images_between_the_stages_count_together() {
    // Images of 200 x 200, 100 x 100 and 300 x 300 pixels. Before the first and the third come the rows between the
    // passes. The window of the second operation lies within its image; the window of the third reaches out of its
    // image.
    let crop = |size| CenterCrop::to(size).into();
    let grown = RandomResizedCrop::within(200, [1.0, 1.0], [1.0, 1.0]).into();
    let operations = vec![grown, crop(100), crop(150), Resize::to(300).into(), crop(8)];
    let pipeline = pipeline(operations);
    let side = u64::from(SIDE);
    let needed = 3 * (200 * side + 200 * 200 + 100 * 100 + 300 * 150 + 150 * 150 + 300 * 300);
    let pixels = synthetic::photo(SIDE, SIDE, 9);
    let planar = Source::Planar { width: SIDE, height: SIDE, bytes: &pixels };
    let within = |memory_bytes| {
        let limits = Limits { memory_bytes, ..Limits::default() };
        let mut out = vec![0; pipeline.output().bytes()];
        Preparer::new(limits).prepare(planar, &pipeline, Draw::default(), &mut out).map(|_| out)
    };
    assert_eq!(within(needed - 1), Err(PixelError::TooMuchMemory { limit: needed - 1 }));
    assert_eq!(within(needed), within(u64::MAX), "the limit changes no pixel");
    assert!(within(needed).is_ok());
}

/// The weights of an image of one row take more memory than its pixels.
#[test]
fn weights_count_as_memory() {
    let pipeline = pipeline(vec![RandomResizedCrop::within(2, [1.0, 1.0], [65_535.0, 65_535.0]).into()]);
    let pixels = vec![7; 3 * 100_000];
    let row = Source::Planar { width: 100_000, height: 1, bytes: &pixels };
    let within = |memory_bytes| {
        let limits = Limits { memory_bytes, ..Limits::default() };
        Preparer::new(limits).prepare(row, &pipeline, Draw::default(), &mut [0; 2 * 2 * 3])
    };
    assert_eq!(within(1 << 20).unwrap_err(), PixelError::TooMuchMemory { limit: 1 << 20 });
    assert!(within(16 << 20).is_ok());
}

/// Sixteen passes over a gigabyte each would keep a worker busy for half a minute.
#[test]
fn many_large_stages_are_refused_before_any_work() {
    let grown = |size| RandomResizedCrop::within(size, [1.0, 1.0], [1.0, 1.0]).into();
    let mut operations: Vec<Operation> = (0..15).map(|number| grown(18_000 - number)).collect();
    operations.push(CenterCrop::to(32).into());
    let pipeline = pipeline(operations);
    let pixels = synthetic::photo(SIDE, SIDE, 9);
    let planar = Source::Planar { width: SIDE, height: SIDE, bytes: &pixels };
    let start_ns = cpu_ns();
    let outcome = Preparer::new(Limits::default()).prepare(planar, &pipeline, Draw::default(), &mut [0; 32 * 32 * 3]);
    assert_eq!(outcome.unwrap_err().reason(), CorruptReason::TooMuchMemory);
    assert!(cpu_ns() - start_ns < 1_000_000_000);
}

/// Returns the time for which this thread has been on a core, which does not depend on other processes.
fn cpu_ns() -> u64 {
    let counted = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    counted.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn a_header_that_claims_gigapixels_costs_nothing() {
    let mut bmp = written(&rgb(), ImageFormat::Bmp);
    bmp[18..22].copy_from_slice(&60_000i32.to_le_bytes());
    bmp[22..26].copy_from_slice(&60_000i32.to_le_bytes());
    assert_eq!(whole(&bmp, SIDE).unwrap_err().reason(), CorruptReason::TooManyPixels);
    let mut jpeg = encode::jpeg(&synthetic::photo(16, 16, 1), 16, 16, &JpegOptions::default()).unwrap();
    let frame = jpeg.windows(2).position(|two| two == [0xFF, 0xC0]).unwrap();
    jpeg[frame + 5..frame + 9].copy_from_slice(&[0xFF, 0xDC, 0xFF, 0xDC]);
    assert_eq!(whole(&jpeg, SIDE).unwrap_err().reason(), CorruptReason::TooManyPixels);
}

#[test]
fn files_cut_short_are_errors() {
    for format in [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Bmp, ImageFormat::Pnm, ImageFormat::Gif] {
        let file = written(&rgb(), format);
        for length in 0..file.len() * 9 / 10 {
            assert!(whole(&file[..length], SIDE).is_err(), "{format:?}: {length} of {} bytes", file.len());
        }
    }
}

#[test]
fn warnings_are_counted() {
    let good = encode::jpeg(&synthetic::photo(64, 64, 1), 64, 64, &JpegOptions::default()).unwrap();
    let scan = good.windows(2).position(|two| two == [0xFF, 0xDA]).unwrap();
    let odd = [&good[..scan], &[0; 5], &good[scan..]].concat();
    let mut out = vec![0; as_it_is(64).output().bytes()];
    let mut preparer = Preparer::new(Limits::default());
    let mut warnings = |file: &[u8]| preparer.prepare(Source::Encoded(file), &as_it_is(64), Draw::default(), &mut out);
    assert_eq!(warnings(&good), Ok(Prepared { warnings: 0 }));
    assert_eq!(warnings(&odd), Ok(Prepared { warnings: 1 }));
}

/// A file of each kind.
static SEEDS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(seeds);

fn seeds() -> Vec<Vec<u8>> {
    let small = synthetic::photo(33, 21, 3);
    let jpeg = |options| encode::jpeg(&small, 33, 21, &options).unwrap();
    let formats = [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Bmp, ImageFormat::Pnm, ImageFormat::Gif];
    let image: DynamicImage = image::RgbImage::from_raw(33, 21, small.clone()).unwrap().into();
    let mut files: Vec<_> = formats.map(|format| written(&image, format)).into();
    files.push(jpeg(JpegOptions { orientation: Some(7), ..JpegOptions::default() }));
    files.push(jpeg(JpegOptions { progressive: true, ..JpegOptions::default() }));
    files.push(jpeg(JpegOptions { arithmetic: true, restart_rows: 1, ..JpegOptions::default() }));
    files
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: proptest::test_runner::RngSeed::Fixed(23),
        failure_persistence: None,
        ..ProptestConfig::with_cases(4000)
    })]

    #[test]
    fn hostile_bytes_break_no_promise(
        seed in 0usize..8,
        edits in prop::collection::vec((any::<u32>(), any::<u8>()), 0..6),
        cut: u16,
    ) {
        let mut file = SEEDS[seed].clone();
        for (place, byte) in edits {
            let at = place as usize % file.len();
            file[at] = byte;
        }
        if cut % 4 == 0 {
            file.truncate((file.len() * usize::from(cut)) >> 16);
        }
        fuzz::decode(&file);
    }
}
