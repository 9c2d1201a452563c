//! Against Pillow: a port of its resampling stands in for it here, after the golden digests have shown for every box that
//! the port is Pillow to the bit. Then pixels can be compared without storing them.

use std::sync::OnceLock;

use fast_image_resize::CpuExtensions;
use proptest::prelude::*;

use super::*;
use crate::rows::Interleaved;
use crate::synthetic::{self, crc32};

/// Pillow's weights (libImaging/Resample.c): for each output its first input and 22-bit weights.
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

/// Pillow's pass over columns.
fn pass_columns(pixels: &[u8], width: u32, weights: &[(usize, Vec<i64>)]) -> Vec<u8> {
    let rows = pixels.chunks_exact(width as usize * 3);
    let value = |row: &[u8], (first, weights): &(usize, Vec<i64>), c| weigh(weights, |i| row[(first + i) * 3 + c]);
    rows.flat_map(|row| weights.iter().flat_map(move |weights| (0..3).map(move |c| value(row, weights, c)))).collect()
}

/// Pillow's pass over rows.
fn pass_rows(pixels: &[u8], width: u32, weights: &[(usize, Vec<i64>)]) -> Vec<u8> {
    let stride = width as usize * 3;
    let value = |(first, weights): &(usize, Vec<i64>), at| weigh(weights, |i| pixels[(first + i) * stride + at]);
    weights.iter().flat_map(|weights| (0..stride).map(move |at| value(weights, at))).collect()
}

/// Pillow's `resize((side, side), BILINEAR, box)` where `shift` moves the box to the right. Since version 13 it takes rows
/// first where that saves more.
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
    /// The cut-out and what Pillow makes of it.
    pixels: Vec<u8>,
    rect: Rect,
    side: u32,
    expected: Vec<u8>,
}

const SOURCE: (u32, u32) = (500, 375);

/// The golden boxes. Checked once for all tests.
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

/// Largest and mean difference over all cases.
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

fn resized(scaler: &mut Scaler, image: (u32, u32, &[u8]), rect: Rect, size: (u32, u32)) -> Vec<u8> {
    let mut out = vec![0; (size.0 * size.1 * 3) as usize];
    let mut image = Interleaved { width: image.0, height: image.1, pixels: image.2 };
    scaler.resize(&mut image, rect, size, &mut out).unwrap();
    out
}

#[test]
fn crop_and_resize_are_pillows() {
    let source = synthetic::photo(SOURCE.0, SOURCE.1, 1);
    let cases = cases();
    assert_eq!(cases.len(), 300);
    let mut scaler = Scaler::default();
    let ours = |case: &Case| resized(&mut scaler, (SOURCE.0, SOURCE.1, &source), case.rect, (case.side, case.side));
    let found = difference(cases, ours);
    println!("largest and mean difference from Pillow: {found:?}");
    assert!(is_pillows(found), "{found:?}");
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

/// What this machine can do, the portable code first.
fn extensions() -> Vec<CpuExtensions> {
    let mut found = vec![CpuExtensions::None];
    #[cfg(target_arch = "x86_64")]
    found.extend([CpuExtensions::Sse4_1, CpuExtensions::Avx2].into_iter().filter(CpuExtensions::is_supported));
    #[cfg(target_arch = "aarch64")]
    found.extend([CpuExtensions::Neon].into_iter().filter(CpuExtensions::is_supported));
    found
}

fn scaler_with(extensions: CpuExtensions) -> Scaler {
    let mut scaler = Scaler::default();
    // SAFETY: `extensions` names only what this CPU supports.
    unsafe { scaler.resizer.set_cpu_extensions(extensions) };
    scaler
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: proptest::test_runner::RngSeed::Fixed(41), ..ProptestConfig::with_cases(200) })]

    #[test]
    fn every_simd_level_gives_the_same_bytes(
        (width, height) in (1u32..400, 1u32..300),
        target in (1u32..260, 1u32..260),
        seed: u32,
    ) {
        let source = synthetic::photo(width, height, seed);
        let rect = Rect { x: 0, y: 0, width, height };
        let all = extensions().into_iter();
        let results: Vec<_> =
            all.map(|level| resized(&mut scaler_with(level), (width, height, &source), rect, target)).collect();
        prop_assert!(results.iter().all(|result| *result == results[0]));
    }

    #[test]
    fn pixels_around_the_rectangle_do_not_matter(
        (x, y) in (0u32..60, 0u32..50),
        (width, height) in (1u32..100, 1u32..100),
        target in (1u32..80, 1u32..80),
    ) {
        let size = (160, 150);
        let mut scaler = Scaler::default();
        let rect = Rect { x, y, width, height };
        let mut source = synthetic::photo(size.0, size.1, 3);
        let before = resized(&mut scaler, (size.0, size.1, &source), rect, target);
        for (at, pixel) in source.chunks_exact_mut(3).enumerate() {
            let (column, row) = (at as u32 % size.0, at as u32 / size.0);
            if !(x..x + width).contains(&column) || !(y..y + height).contains(&row) {
                pixel.fill(255 - pixel[0]);
            }
        }
        prop_assert_eq!(before, resized(&mut scaler, (size.0, size.1, &source), rect, target));
    }
}
