use half::{bf16, f16};
use proptest::prelude::*;

use super::*;

/// Numbers of recipes for CIFAR-10.
const CIFAR: Normalize = Normalize { mean: [0.4914, 0.4822, 0.4465], std: [0.2470, 0.2435, 0.2616] };

/// Returns samples as floats.
fn normalized<T: Float>(normalize: &Normalize, layout: ImageLayout, pixels: &[u8], shape: Shape) -> Vec<T> {
    let mut out = vec![T::round(0.0); pixels.len()];
    Normalizer::new(normalize, T::DTYPE, layout).write(pixels, shape, out.as_mut_bytes());
    out
}

/// Checks that every value in every channel is the exact value rounded once: `to_f64` is exact, and `neighbours` are
/// the floats next to a float.
fn check_rounding<T: Float>(normalize: &Normalize, to_f64: fn(T) -> f64, neighbours: fn(T) -> [T; 2]) {
    let table = Table::<T>::new(normalize);
    for (channel, value) in (0..3).flat_map(|channel| (0..256).map(move |value| (channel, value))) {
        let exact = normalize.exact(channel, value);
        let found = table.values[channel][value];
        // A neighbour may be as near, but not nearer.
        let apart = |float: T| (to_f64(float) - exact).abs();
        let is_nearest = neighbours(found).into_iter().all(|other| apart(found) <= apart(other));
        assert!(is_nearest, "{:?}: {found:?} for {exact}", T::DTYPE);
    }
}

#[test]
fn all_768_inputs_are_the_exact_value_rounded_once() {
    for normalize in [Normalize::IMAGENET, Normalize::UNIT, CIFAR] {
        check_rounding(&normalize, f64::from, |float: f32| {
            [f32::from_bits(float.to_bits() + 1), f32::from_bits(float.to_bits().saturating_sub(1))]
        });
        check_rounding(&normalize, f16::to_f64, |float| {
            [f16::from_bits(float.to_bits() + 1), f16::from_bits(float.to_bits().saturating_sub(1))]
        });
        check_rounding(&normalize, bf16::to_f64, |float| {
            [bf16::from_bits(float.to_bits() + 1), bf16::from_bits(float.to_bits().saturating_sub(1))]
        });
    }
}

#[test]
fn sixteen_bits_are_rounded_once_even_next_to_a_tie() {
    check_ties(7, |exact| bf16::round(exact).to_f64());
    check_ties(10, |exact| f16::round(exact).to_f64());
}

fn check_ties(bits: i32, round: fn(f64) -> f64) {
    // 1 and the next float are neighbours, the tie lies in the middle, and ties go to the even one: 1.
    let half = f64::exp2(f64::from(-bits - 1));
    let (tie, next) = (1.0 + half, 1.0 + 2.0 * half);
    for (exact, expected) in [
        (tie, 1.0),
        (tie + f64::exp2(-40.0), next),
        (tie - f64::exp2(-40.0), 1.0),
        (-tie - f64::exp2(-40.0), -next),
        (next + half - f64::exp2(-40.0), next),
        (1e39, f64::INFINITY),
        (-1e-60, 0.0),
    ] {
        assert_eq!(round(exact), expected, "{bits} bits: {exact:e}");
    }
}

/// Compares both ways for every value in every channel at every place of a register, and for pixels that do not fill a
/// register.
fn by_both_ways_as<T: Float>(normalize: &Normalize) {
    let table = Table::<T>::new(normalize);
    for pixels in [1, 7, 31, 32, 33, 47, 64, 256 * 17, 256 * 17 + 3] {
        let shape = Shape { height: 1, width: pixels, channels: 3 };
        let values = (0..pixels).flat_map(|i| [i, i + i / 16, 5 * i + i / 16].map(|value| (value % 256) as u8));
        let values: Vec<u8> = values.collect();
        // Buffers of any alignment.
        let from = pixels as usize % 5;
        let (mut planes, mut whole) =
            (vec![T::round(0.0); from + values.len()], vec![T::round(0.0); from + values.len()]);
        let (planes, whole) = (&mut planes[from..], &mut whole[from..]);
        table.write(&values, shape, ImageLayout::Nchw, planes.as_mut_bytes());
        table.write(&values, shape, ImageLayout::Nhwc, whole.as_mut_bytes());
        let pixels = pixels as usize;
        for (at, &value) in values.iter().enumerate() {
            let (channel, to) = (at % 3, at % 3 * pixels + at / 3);
            let expected = table.values[channel][usize::from(value)];
            assert_eq!(planes[to].as_bytes(), expected.as_bytes());
            assert_eq!(whole[at].as_bytes(), expected.as_bytes());
        }
    }
}

fn by_both_ways(normalize: &Normalize) {
    by_both_ways_as::<f32>(normalize);
    by_both_ways_as::<f16>(normalize);
    by_both_ways_as::<bf16>(normalize);
}

#[test]
fn vectors_give_what_the_table_has() {
    for (mean, std) in [
        (Normalize::IMAGENET.mean, Normalize::IMAGENET.std),
        ([0.5; 3], [0.5; 3]),
        ([0.0; 3], [1.0; 3]),
        ([0.0; 3], [1.0 / 255.0; 3]),
        (CIFAR.mean, CIFAR.std),
        ([1e9, 0.0, -3.0], [1e-9, 1e12, -2.0]),
        ([0.5; 3], [1e-310, 1e300, 1e-40]),
    ] {
        by_both_ways(&Normalize { mean, std });
    }
}

#[test]
fn the_usual_numbers_have_a_formula() {
    for normalize in [Normalize::IMAGENET, Normalize::UNIT, CIFAR] {
        let found = [
            Table::<f32>::new(&normalize).formula.is_some(),
            Table::<f16>::new(&normalize).formula.is_some(),
            Table::<bf16>::new(&normalize).formula.is_some(),
        ];
        assert_eq!(found, [true; 3], "{normalize:?}");
    }
}

#[test]
fn vectors_make_most_of_a_sample_where_there_are_any() {
    let has_vectors = Level::tested().next().is_some_and(|level| ["AVX2", "NEON"].contains(&level.name()));
    fn made<T: Float>() -> usize {
        let mut planes = [[T::round(0.0); 1000]; 3];
        let table = Table::<T>::new(&Normalize::IMAGENET);
        table.write_by_vectors(&[[7; 3]; 1000], planes.each_mut().map(|plane| &mut plane[..])).len()
    }
    let made = [made::<f32>(), made::<f16>(), made::<bf16>()];
    assert!(made.iter().all(|&made| (made > 900) == has_vectors), "{made:?}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: proptest::test_runner::RngSeed::Fixed(47),
        ..ProptestConfig::with_cases(256)
    })]

    /// Some of these values lie so close to the middle between two floats that a second rounding would show.
    #[test]
    fn vectors_round_as_the_formula_does(
        mean in prop::array::uniform3(-1.0..1.0), std in prop::array::uniform3(0.05..1.0)
    ) {
        by_both_ways(&Normalize { mean, std });
    }
}

#[test]
fn a_batch_is_its_samples() {
    let shape = Shape { height: 1, width: 2, channels: 3 };
    let normalize = Normalize { mean: [0.0; 3], std: [1.0 / 255.0; 3] };
    let batch = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
    let planes: Vec<f32> = normalized(&normalize, ImageLayout::Nchw, &batch, shape);
    assert_eq!(planes, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0, 7.0, 10.0, 8.0, 11.0, 9.0, 12.0]);
    let pixels: Vec<f32> = normalized(&normalize, ImageLayout::Nhwc, &batch, shape);
    assert_eq!(pixels, batch.map(f32::from));
    assert!(normalized::<f32>(&normalize, ImageLayout::Nchw, &[], shape).is_empty());
}

#[test]
fn the_table_has_what_each_byte_of_each_channel_becomes() {
    let normalizer = Normalizer::new(&Normalize::IMAGENET, DType::F16, ImageLayout::Nhwc);
    let table = <[[f16; 256]; 3]>::ref_from_bytes(normalizer.table()).unwrap();
    let shape = Shape { height: 1, width: 256, channels: 3 };
    let pixels: Vec<u8> = (0..=255).flat_map(|value| [value; 3]).collect();
    let made: Vec<f16> = normalized(&Normalize::IMAGENET, ImageLayout::Nchw, &pixels, shape);
    assert_eq!(made, table.as_flattened());
}

#[test]
fn numbers_without_a_result_are_refused() {
    for (mean, std) in [([0.0; 3], [1.0, 0.0, 1.0]), ([f64::NAN; 3], [1.0; 3]), ([0.0; 3], [1.0, 1.0, f64::INFINITY])] {
        let error = Normalize { mean, std }.check().unwrap_err();
        assert!(error.to_string().contains("standard deviation"), "{error}");
    }
    assert_eq!(Normalize::IMAGENET.check(), Ok(()));
}

#[test]
#[should_panic(expected = "not whole samples")]
fn a_part_of_a_sample_is_refused() {
    let shape = Shape { height: 1, width: 2, channels: 3 };
    normalized::<f32>(&Normalize::IMAGENET, ImageLayout::Nchw, &[0; 9], shape);
}
