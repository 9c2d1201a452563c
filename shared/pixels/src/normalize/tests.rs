use proptest::prelude::*;

use super::*;

/// Returns every value in every channel, as 256 × 1 pixels of gray.
fn every_value() -> (Shape, Vec<u8>) {
    let shape = Shape { height: 2, width: 128, channels: 3 };
    (shape, (0..=255).flat_map(|value| [value; 3]).collect())
}

#[test]
fn all_768_inputs_are_the_exact_value_rounded_once() {
    let (shape, pixels) = every_value();
    let normalize = Normalize::imagenet();
    let (mut single, mut half) = (vec![0.0; 768], vec![f16::ZERO; 768]);
    normalize.f32_nchw(&pixels, shape, &mut single);
    normalize.f16_nchw(&pixels, shape, &mut half);
    for channel in 0..3 {
        for value in 0..256 {
            let exact = (value as f64 / 255.0 - IMAGENET_MEAN[channel]) / IMAGENET_STD[channel];
            let at = channel * 256 + value;
            assert_eq!(single[at].to_bits(), (exact as f32).to_bits());
            // Neither neighbour of an f16 is nearer to the exact value.
            let apart = |bits: u16| (f16::from_bits(bits).to_f64() - exact).abs();
            let bits = half[at].to_bits();
            assert!(apart(bits) <= apart(bits + 1) && apart(bits) <= apart(bits - 1));
            assert_eq!(normalize.single[channel][value], single[at]);
            assert_eq!(normalize.half[channel][value], half[at]);
        }
    }
}

/// Compares both ways for every value in every channel at every place of a register, and for pixels that do not
/// fill a register.
fn by_both_ways(mean: [f64; 3], std: [f64; 3]) -> Normalize {
    let normalize = Normalize::new(mean, std);
    for pixels in [1, 7, 31, 32, 33, 47, 64, 256 * 17, 256 * 17 + 3] {
        let shape = Shape { height: 1, width: pixels, channels: 3 };
        let values = (0..pixels).flat_map(|i| [i, i + i / 16, 5 * i + i / 16].map(|value| (value % 256) as u8));
        let values: Vec<u8> = values.collect();
        // Buffers of any alignment.
        let from = pixels as usize % 5;
        let (mut single, mut half) = (vec![0.0; from + values.len()], vec![f16::ZERO; from + values.len()]);
        let (single, half) = (&mut single[from..], &mut half[from..]);
        normalize.f32_nchw(&values, shape, single);
        normalize.f16_nchw(&values, shape, half);
        let pixels = pixels as usize;
        for (at, &value) in values.iter().enumerate() {
            let (channel, to) = (at % 3, at % 3 * pixels + at / 3);
            assert_eq!(single[to].to_bits(), normalize.single[channel][usize::from(value)].to_bits());
            assert_eq!(half[to].to_bits(), normalize.half[channel][usize::from(value)].to_bits());
        }
    }
    normalize
}

#[test]
fn vectors_give_what_the_table_has() {
    let normalize = by_both_ways(IMAGENET_MEAN, IMAGENET_STD);
    assert!(normalize.formulas.0.is_some() && normalize.formulas.1.is_some(), "there is a formula for ImageNet");
    for (mean, std) in [
        ([0.5; 3], [0.5; 3]),
        ([0.0; 3], [1.0; 3]),
        ([0.0; 3], [1.0 / 255.0; 3]),
        ([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]),
        ([1e9, 0.0, -3.0], [1e-9, 1e12, -2.0]),
        ([0.5; 3], [1e-310, 1e300, 1e-40]),
    ] {
        by_both_ways(mean, std);
    }
}

#[test]
fn vectors_make_most_of_a_sample_where_there_are_any() {
    let has_vectors = Level::tested().next().is_some_and(|level| ["AVX2", "NEON"].contains(&level.name()));
    let (normalize, pixels) = (Normalize::imagenet(), [[7; 3]; 1000]);
    let mut single = [[0.0; 1000]; 3];
    let mut half = [[f16::ZERO; 1000]; 3];
    let made = [
        normalize.f32_vectors(&pixels, single.each_mut().map(|plane| &mut plane[..])),
        normalize.f16_vectors(&pixels, half.each_mut().map(|plane| &mut plane[..])),
    ];
    assert!(made.iter().all(|made| (made.len() > 900) == has_vectors), "{made:?}");
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
        by_both_ways(mean, std);
    }
}

#[test]
fn a_batch_is_its_samples() {
    let shape = Shape { height: 1, width: 2, channels: 3 };
    let normalize = Normalize::new([0.0; 3], [1.0 / 255.0; 3]);
    let batch = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
    let mut out = [0.0; 12];
    normalize.f32_nchw(&batch, shape, &mut out);
    assert_eq!(out, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0, 7.0, 10.0, 8.0, 11.0, 9.0, 12.0]);
    normalize.f32_nchw(&[], shape, &mut []);
}

#[test]
#[should_panic(expected = "not whole samples")]
fn a_part_of_a_sample_is_refused() {
    let shape = Shape { height: 1, width: 2, channels: 3 };
    Normalize::imagenet().f32_nchw(&[0; 9], shape, &mut [0.0; 9]);
}
