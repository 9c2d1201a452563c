//! Compares with Pillow. A port of Pillow's resampling stands in for it, after the golden digests have shown for every
//! box that the port equals Pillow to the bit; so pixels can be compared without storing them.
//!
//! Also compares, to the bit, with `fast_image_resize`, an independent implementation of the same arithmetic.

use std::sync::OnceLock;

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};
use proptest::prelude::*;

use super::*;
use crate::rows::{Interleaved, Sink};
use crate::synthetic::{self, crc32};

/// Computes Pillow's weights (libImaging/Resample.c): for each output its first input, and weights of 22 bits.
fn weights(length: u32, from: f64, to: f64, outputs: u32) -> Vec<(usize, Vec<i64>)> {
    let scale = (to - from) / f64::from(outputs);
    let stretch = scale.max(1.0);
    let one = |output: u32| {
        let center = from + (f64::from(output) + 0.5) * scale;
        let first = ((center - stretch + 0.5) as i64).max(0);
        let end = ((center + stretch + 0.5) as i64).min(i64::from(length));
        let shares = (first..end).map(|x| (1.0 - ((x as f64 - center + 0.5) * (1.0 / stretch)).abs()).max(0.0));
        let shares: Vec<f64> = shares.collect();
        let sum: f64 = shares.iter().sum();
        let fixed = shares.iter().map(|share| (share / sum * f64::from(1 << 22) + 0.5) as i64);
        (first as usize, fixed.collect())
    };
    (0..outputs).map(one).collect()
}

fn weigh(weights: &[i64], value: impl Fn(usize) -> u8) -> u8 {
    let sum: i64 = weights.iter().enumerate().map(|(i, weight)| weight * i64::from(value(i))).sum();
    ((sum + (1 << 21)) >> 22).clamp(0, 255) as u8
}

/// Does Pillow's pass over columns.
fn pass_columns(pixels: &[u8], width: u32, weights: &[(usize, Vec<i64>)]) -> Vec<u8> {
    let rows = pixels.chunks_exact(width as usize * 3);
    let value = |row: &[u8], (first, weights): &(usize, Vec<i64>), c| weigh(weights, |i| row[(first + i) * 3 + c]);
    rows.flat_map(|row| weights.iter().flat_map(move |weights| (0..3).map(move |c| value(row, weights, c)))).collect()
}

/// Does Pillow's pass over rows.
fn pass_rows(pixels: &[u8], width: u32, weights: &[(usize, Vec<i64>)]) -> Vec<u8> {
    let stride = width as usize * 3;
    let value = |(first, weights): &(usize, Vec<i64>), at| weigh(weights, |i| pixels[(first + i) * stride + at]);
    weights.iter().flat_map(|weights| (0..stride).map(move |at| value(weights, at))).collect()
}

/// Does Pillow's `resize((side, side), BILINEAR, box)`, with the box moved to the right by `shift`. Since version 13,
/// Pillow does the rows first if that saves more work.
fn pillow(pixels: &[u8], (width, height): (u32, u32), side: u32, shift: f64) -> Vec<u8> {
    let across = weights(width, shift, f64::from(width) + shift, side);
    let down = weights(height, 0.0, f64::from(height), side);
    let saved = |length: u32| i64::from(length) - i64::from(side);
    if saved(height) > 0 && saved(height) > 2 * saved(width) {
        return pass_columns(&pass_rows(pixels, width, &down), width, &across);
    }
    pass_rows(&pass_columns(pixels, width, &across), side, &down)
}

struct Case {
    /// The cut-out, and Pillow's result.
    pixels: Vec<u8>,
    rect: Rect,
    side: u32,
    expected: Vec<u8>,
}

const SOURCE: (u32, u32) = (500, 375);

/// Returns the golden boxes, which are checked once for all tests.
fn cases() -> &'static [Case] {
    static CASES: OnceLock<Vec<Case>> = OnceLock::new();
    CASES.get_or_init(golden_cases)
}

fn golden_cases() -> Vec<Case> {
    let source = synthetic::photo(SOURCE.0, SOURCE.1, 1);
    let mut lines = include_str!("../../tests/golden/pillow.txt").lines();
    assert_eq!(lines.next().unwrap(), format!("source 500 375 1 {}", crc32(&source)));
    lines.map(|line| case(&source, line)).collect()
}

fn case(source: &[u8], line: &str) -> Case {
    let fields: Vec<u32> = line.split(' ').map(|field| field.parse().unwrap()).collect();
    let [x, y, width, height, side, crc] = fields[..] else { panic!("{line}") };
    let row = |y: u32| &source[(y * SOURCE.0 + x) as usize * 3..][..width as usize * 3];
    let pixels: Vec<u8> = (y..y + height).flat_map(row).copied().collect();
    let expected = pillow(&pixels, (width, height), side, 0.0);
    assert_eq!(crc32(&expected), crc, "the port is not Pillow on {line}");
    Case { pixels, rect: Rect { x, y, width, height }, side, expected }
}

/// Returns the largest and the mean difference over all cases.
fn difference(cases: &[Case], mut resized: impl FnMut(&Case) -> Vec<u8>) -> (u8, f64) {
    let (mut largest, mut sum, mut count) = (0, 0.0, 0);
    for case in cases {
        for (found, expected) in resized(case).into_iter().zip(&case.expected) {
            let apart = found.abs_diff(*expected);
            largest = largest.max(apart);
            sum += f64::from(apart);
            count += 1;
        }
    }
    (largest, sum / f64::from(count))
}

fn is_pillows((largest, mean): (u8, f64)) -> bool {
    largest <= 2 && mean <= 0.1
}

fn resized(scaler: &mut Scaler, image: &mut dyn ImageRows, resizing: &Resizing) -> Vec<u8> {
    let mut out = vec![0xA5; (resizing.part.width * resizing.part.height * 3) as usize];
    scaler.resize(image, resizing, Limits::default(), &mut out).unwrap();
    out
}

/// Describes resizing a whole rectangle to a size.
fn whole(rect: Rect, size: (u32, u32)) -> Resizing {
    let part = Rect { x: 0, y: 0, width: size.0, height: size.1 };
    Resizing { rect, size, interpolation: Resampling::Bilinear, part, mirrored: false }
}

#[test]
fn crop_and_resize_are_pillows() {
    let source = synthetic::photo(SOURCE.0, SOURCE.1, 1);
    let cases = cases();
    assert_eq!(cases.len(), 300);
    let mut scaler = Scaler::default();
    let mut image = Interleaved { width: SOURCE.0, height: SOURCE.1, pixels: &source };
    let ours = |case: &Case| resized(&mut scaler, &mut image, &whole(case.rect, (case.side, case.side)));
    let found = difference(cases, ours);
    println!("largest and mean difference from Pillow: {found:?}");
    assert!(is_pillows(found), "{found:?}");
}

/// torchvision resizes a tensor of bytes by the same arithmetic.
#[test]
fn resized_crops_are_torchvisions() {
    let source = synthetic::photo(SOURCE.0, SOURCE.1, 1);
    let mut lines = include_str!("../../tests/golden/resize.txt").lines();
    assert_eq!(lines.next().unwrap(), format!("source 500 375 1 {}", crc32(&source)));
    let mut scaler = Scaler::default();
    let mut count = 0;
    for line in lines {
        let (mode, numbers) = line.split_once(' ').unwrap();
        let interpolation = match mode {
            "bilinear" => Resampling::Bilinear,
            _ => Resampling::Bicubic,
        };
        let numbers: Vec<u32> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
        let [x, y, width, height, to_width, to_height, crc] = numbers[..] else { panic!("{line}") };
        let resizing = Resizing { interpolation, ..whole(Rect { x, y, width, height }, (to_width, to_height)) };
        let mut image = Interleaved { width: SOURCE.0, height: SOURCE.1, pixels: &source };
        assert_eq!(crc32(&resized(&mut scaler, &mut image, &resizing)), crc, "{line}");
        count += 1;
    }
    assert_eq!(count, 300);
}

#[test]
fn a_resizer_without_antialiasing_is_not_pillows() {
    let mut resizer = Resizer::new();
    let found = difference(cases(), |case| {
        let source = TypedImageRef::<U8x3>::from_buffer(case.rect.width, case.rect.height, &case.pixels).unwrap();
        let mut out = vec![0; (case.side * case.side * 3) as usize];
        let mut target = TypedImage::<U8x3>::from_buffer(case.side, case.side, &mut out).unwrap();
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Interpolation(FilterType::Bilinear));
        resizer.resize_typed(&source, &mut target, &options).unwrap();
        out
    });
    assert!(!is_pillows(found), "{found:?}");
}

#[test]
fn a_box_moved_by_a_quarter_pixel_is_not_pillows() {
    let moved = |case: &Case| pillow(&case.pixels, (case.rect.width, case.rect.height), case.side, 0.25);
    let found = difference(cases(), moved);
    assert!(!is_pillows(found), "{found:?}");
}

/// An image that is read in bands of some rows, with columns on both sides that do not belong to the rectangle.
struct Banded<'a> {
    image: Interleaved<'a>,
    rows: u32,
}

impl ImageRows for Banded<'_> {
    fn size(&self) -> (u32, u32) {
        self.image.size()
    }

    fn read(&mut self, rect: Rect, sink: Sink<'_>) -> Result<(), PixelError> {
        for y in (0..rect.height).step_by(self.rows as usize) {
            let part = Rect { y: rect.y + y, height: self.rows.min(rect.height - y), ..rect };
            self.image.read(part, &mut |band| sink(Band { y, ..band }))?;
        }
        Ok(())
    }
}

/// Resizes columns, then rows, both by the other library.
fn by_the_other(pixels: &[u8], (width, height): (u32, u32), size: (u32, u32), filter: Resampling) -> Vec<u8> {
    let mut resizer = Resizer::new();
    let filter = match filter {
        Resampling::Nearest => panic!("not a filter"),
        Resampling::Bilinear => FilterType::Bilinear,
        Resampling::Bicubic => FilterType::CatmullRom,
        Resampling::Box => FilterType::Box,
        Resampling::Hamming => FilterType::Hamming,
        Resampling::Lanczos => FilterType::Lanczos3,
    };
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(filter)).use_alpha(false);
    let mut pass = |pixels: &[u8], from: (u32, u32), to: (u32, u32)| {
        let source = TypedImageRef::<U8x3>::from_buffer(from.0, from.1, pixels).unwrap();
        let mut out = vec![0; (to.0 * to.1 * 3) as usize];
        let mut target = TypedImage::<U8x3>::from_buffer(to.0, to.1, &mut out).unwrap();
        resizer.resize_typed(&source, &mut target, &options).unwrap();
        out
    };
    let narrow = pass(pixels, (width, height), (size.0, height));
    pass(&narrow, (size.0, height), size)
}

/// Returns a rectangle of an image, mirrored if `mirrored` is set.
fn cut(pixels: &[u8], width: u32, part: Rect, mirrored: bool) -> Vec<u8> {
    let mut out = Vec::new();
    for y in part.y..part.y + part.height {
        let row = &pixels[((y * width + part.x) * 3) as usize..][..part.width as usize * 3];
        let mut row = row.as_chunks::<3>().0.to_vec();
        if mirrored {
            row.reverse();
        }
        out.extend(row.into_flattened());
    }
    out
}

/// Returns two lengths, either of which may be longer, by much or by little.
fn lengths() -> impl Strategy<Value = (u32, u32)> {
    prop_oneof![
        (1u32..=700, 1u32..=700),
        (1u32..=40, 1u32..=40),
        (1u32..=350, 1u32..5).prop_map(|(length, more)| (length, length * more)),
        (200u32..=700, -3i32..=3).prop_map(|(length, more)| (length, length.saturating_add_signed(more))),
    ]
}

/// Returns a part of a length.
fn span(length: u32) -> impl Strategy<Value = (u32, u32)> {
    prop_oneof![Just((0, length)), (0..length).prop_flat_map(move |start| (Just(start), 1..=length - start))]
}

fn smooth() -> impl Strategy<Value = Resampling> {
    use Resampling::{Bicubic, Bilinear, Box, Hamming, Lanczos};
    prop_oneof![Just(Bilinear), Just(Bicubic), Just(Box), Just(Hamming), Just(Lanczos)]
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: proptest::test_runner::RngSeed::Fixed(41),
        ..ProptestConfig::with_cases(250)
    })]

    #[test]
    fn parts_are_those_of_the_other_librarys_images(
        ((width, to_width), (height, to_height), across, down) in (lengths(), lengths())
            .prop_flat_map(|(across, down)| (Just(across), Just(down), span(across.1), span(down.1))),
        mirrored: bool,
        rows in 1u32..20,
        seed: u32,
        interpolation in smooth(),
    ) {
        let pixels = synthetic::photo(width, height, seed);
        let part = Rect { x: across.0, y: down.0, width: across.1, height: down.1 };
        let expected = by_the_other(&pixels, (width, height), (to_width, to_height), interpolation);
        let expected = cut(&expected, to_width, part, mirrored);
        let rect = Rect { x: 0, y: 0, width, height };
        let resizing = Resizing { rect, size: (to_width, to_height), interpolation, part, mirrored };
        for level in Level::tested() {
            let mut image = Banded { image: Interleaved { width, height, pixels: &pixels }, rows };
            prop_assert!(resized(&mut Scaler::new(level), &mut image, &resizing) == expected, "{:?}", level);
        }
    }

    #[test]
    fn pixels_around_what_is_read_do_not_matter(
        (x, y) in (0u32..60, 0u32..50),
        (width, height) in (1u32..100, 1u32..100),
        (across, down) in (1u32..80, 1u32..80).prop_flat_map(|(width, height)| {
            (span(width).prop_map(move |part| (width, part)), span(height).prop_map(move |part| (height, part)))
        }),
        interpolation in smooth(),
    ) {
        let size = (160, 150);
        let mut scaler = Scaler::default();
        let rect = Rect { x, y, width, height };
        let part = Rect { x: across.1.0, y: down.1.0, width: across.1.1, height: down.1.1 };
        let resizing = Resizing { rect, size: (across.0, down.0), interpolation, part, mirrored: false };
        let mut source = synthetic::photo(size.0, size.1, 3);
        let mut ours = |pixels: &[u8]| {
            let mut image = Interleaved { width: size.0, height: size.1, pixels };
            resized(&mut scaler, &mut image, &resizing)
        };
        let before = ours(&source);
        let read = resizing.source();
        for (at, pixel) in source.chunks_exact_mut(3).enumerate() {
            let (column, row) = (at as u32 % size.0, at as u32 / size.0);
            let (columns, rows) = (read.x..read.x + read.width, read.y..read.y + read.height);
            let inside = columns.contains(&column) && rows.contains(&row);
            if !inside {
                pixel.fill(255 - pixel[0]);
            }
        }
        prop_assert!(before == ours(&source));
    }
}

/// White and black under every place of the filter: sums that reach both ends of the range.
#[test]
fn nothing_wraps_around() {
    for value in [0, 255] {
        let pixels = vec![value; 700 * 3];
        for to in [1, 3, 223, 224, 699] {
            let rect = Rect { x: 0, y: 0, width: 700, height: 1 };
            for level in Level::tested() {
                for interpolation in [Resampling::Bilinear, Resampling::Bicubic, Resampling::Lanczos] {
                    let mut image = Interleaved { width: 700, height: 1, pixels: &pixels };
                    let resizing = Resizing { interpolation, ..whole(rect, (to, 5)) };
                    assert!(resized(&mut Scaler::new(level), &mut image, &resizing).iter().all(|&out| out == value));
                }
            }
        }
    }
}

#[test]
fn a_scaler_that_was_used_before_gives_the_same_pixels() {
    let pixels = synthetic::photo(300, 200, 5);
    let mut used = Scaler::default();
    let rect = |width, height| Rect { x: 0, y: 0, width, height };
    for (width, height, to) in [(300, 200, 64), (120, 200, 64), (300, 90, 224), (5, 4, 8), (300, 200, 3), (64, 64, 64)]
    {
        for mirrored in [false, true] {
            let resizing = Resizing { mirrored, ..whole(rect(width, height), (to, to)) };
            let mut image = Interleaved { width: 300, height: 200, pixels: &pixels };
            let new = resized(&mut Scaler::default(), &mut image, &resizing);
            assert!(resized(&mut used, &mut image, &resizing) == new);
            used.trim(1000);
            assert!(resized(&mut used, &mut image, &resizing) == new);
        }
    }
}
