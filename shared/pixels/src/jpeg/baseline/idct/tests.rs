//! Compares every build of the transform with the one in wide integers.

use proptest::prelude::*;

use super::*;
use crate::range;

/// Returns blocks with a few coefficients, some of them large, and quantisation steps.
fn blocks() -> impl Strategy<Value = (Vec<[i16; 64]>, [u8; 64])> {
    let value = prop_oneof![4 => -30i16..30, 1 => -300i16..300];
    let block = (prop::collection::vec((0usize..64, value), 0..40), 0usize..64).prop_map(|(values, last)| {
        let mut block = [0; 64];
        values.into_iter().filter(|&(at, _)| at <= last).for_each(|(at, value)| block[at] = value);
        block
    });
    let step = prop_oneof![Just(1u8), 1u8..20, 1u8..=255];
    let steps = step
        .prop_flat_map(|most| prop::array::uniform32(1..=most))
        .prop_map(|half| std::array::from_fn(|i| half[i % 32]));
    (prop::collection::vec(block, 1..9), steps)
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: proptest::test_runner::RngSeed::Fixed(61),
        ..ProptestConfig::with_cases(4000)
    })]

    #[test]
    fn all_builds_agree_with_wide_integers((streams, steps) in blocks(), across in 1usize..=2) {
        use crate::jpeg::baseline::header::ZIGZAG;
        let mut streams = streams;
        streams.truncate(streams.len() / across * across);
        // Within an encoder's range, as the scan checks.
        let quant: [i16; 64] = steps.map(i16::from);
        let mut coefficients = Vec::new();
        let mut lasts = Vec::new();
        for stream in &streams {
            let mut block = [0i16; 64];
            for (at, &value) in stream.iter().enumerate() {
                let natural = usize::from(ZIGZAG[at]);
                let most = if at == 0 { 2047 } else { 16383 } / quant[natural];
                block[natural] = value.clamp(-most, most);
            }
            coefficients.extend(block);
            let last = (0..64).rev().find(|&at| block[usize::from(ZIGZAG[at])] != 0).unwrap_or(0);
            lasts.push(last as u8);
        }
        let count = streams.len();
        prop_assume!(count > 0);
        let (coefficients, lasts, quant) = (&coefficients, &lasts, &quant);
        let strip = Strip { coefficients, lasts, first: 0, per_mcu: across, across, blocks: count, quant };
        let stride = 8 * count.next_multiple_of(2);
        let wide: Vec<Option<[u8; 64]>> = coefficients.as_chunks::<64>().0.iter().map(|block| {
            range::samples(block, &quant.map(|step| step as u16))
        }).collect();
        for level in Level::tested() {
            let mut out = vec![0; 8 * stride];
            let all = wide.iter().all(Option::is_some);
            prop_assert_eq!(transform(level, &strip, &mut out, stride), all, "{:?}", level);
            for (number, wide) in wide.iter().enumerate().filter(|_| all) {
                let ours: Vec<u8> = (0..8).flat_map(|y| out[y * stride + 8 * number..][..8].to_vec()).collect();
                prop_assert_eq!(Some(&ours[..]), wide.as_ref().map(|wide| &wide[..]), "{:?} block {}", level, number);
            }
        }
    }
}

/// Returns the DCT of samples, rounded: the coefficients that an encoder writes with steps of 1.
fn coefficients_of(sample: impl Fn(usize, usize) -> f64) -> [i16; 64] {
    let basis = |k: usize, x: usize| {
        let scale: f64 = if k == 0 { 0.5f64.sqrt() } else { 1.0 };
        scale / 2.0 * ((2 * x + 1) as f64 * k as f64 * std::f64::consts::PI / 16.0).cos()
    };
    std::array::from_fn(|at| {
        let (v, u) = (at / 8, at % 8);
        let all = (0..64).map(|i| (sample(i % 8, i / 8) - 128.0) * basis(u, i % 8) * basis(v, i / 8));
        all.sum::<f64>().round() as i16
    })
}

#[test]
fn the_wildest_samples_are_taken() {
    let extreme = |bit: bool| if bit { 255.0 } else { 0.0 };
    for pattern in 0..256usize {
        // Rows of any eight extremes; columns constant or alternating.
        for turned in [false, true] {
            let block = coefficients_of(|x, y| extreme((pattern >> x & 1 == 1) ^ (turned && y % 2 == 1)));
            let strip = Strip {
                coefficients: &block,
                lasts: &[63],
                first: 0,
                per_mcu: 1,
                across: 1,
                blocks: 1,
                quant: &[1; 64],
            };
            for level in Level::tested() {
                let mut out = [0; 128];
                assert!(transform(level, &strip, &mut out, 16), "{level:?} {pattern:08b} {turned}");
                let wide = range::samples(&block, &[1; 64]).unwrap();
                let ours: Vec<u8> = (0..8).flat_map(|y| out[16 * y..16 * y + 8].to_vec()).collect();
                assert_eq!(ours, wide);
            }
        }
    }
}
