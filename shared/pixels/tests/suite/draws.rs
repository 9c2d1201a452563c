//! The draws have the distributions they claim: Kolmogorov–Smirnov and χ² on 10⁶ draws, p > 0.001, seeds fixed.

use ddlp_pixels::draw::{Rng, Words};
use ddlp_pixels::ops::{CenterCrop, Operation, RandomCrop, RandomHorizontalFlip, RandomResizedCrop};
use ddlp_pixels::{Draw, Limits, Pipeline, Preparer, Source, Window};

const DRAWS: usize = 1_000_000;
const SEED: u64 = 20_261_121;

/// Value of √n·D above which a Kolmogorov–Smirnov test rejects with p = 0.001: √(ln(2 / 0.001) / 2).
const KS_LIMIT: f64 = 1.949_5;

/// Returns whether the sample may come from the uniform distribution on [0, 1).
fn is_uniform(mut sample: Vec<f64>) -> bool {
    sample.sort_unstable_by(f64::total_cmp);
    let n = sample.len() as f64;
    let apart = |(i, &x): (usize, &f64)| (x - i as f64 / n).max((i + 1) as f64 / n - x);
    sample.iter().enumerate().map(apart).fold(0.0, f64::max) * n.sqrt() < KS_LIMIT
}

/// Returns whether the counts may come from equally likely classes, by Wilson and Hilferty's normal approximation of
/// χ², whose upper 0.001 quantile is 3.0902.
fn is_even(counts: &[u64]) -> bool {
    let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    let square: f64 = counts.iter().map(|&count| (count as f64 - expected).powi(2) / expected).sum();
    let freedom = (counts.len() - 1) as f64;
    let spread = 2.0 / (9.0 * freedom);
    ((square / freedom).cbrt() - (1.0 - spread)) / spread.sqrt() < 3.0902
}

fn samples(operation: u32) -> impl Iterator<Item = Rng> {
    (0..DRAWS as u64).map(move |sample_id| Rng::for_sample(Draw { seed: SEED, epoch: 3, sample_id }, operation))
}

/// Draws an operation that cuts a box out of a square image.
fn window(operation: impl Into<Operation>, side: u32, words: &mut impl Words) -> Window {
    operation.into().effects((side, side), words).unwrap()[0].geometry().unwrap().window.unwrap()
}

/// A source of words that records the uniforms it returned.
struct Noted {
    rng: Rng,
    uniforms: Vec<f64>,
}

impl Words for Noted {
    fn word(&mut self) -> u64 {
        self.rng.word()
    }

    fn uniform(&mut self) -> f64 {
        let value = self.rng.uniform();
        self.uniforms.push(value);
        value
    }
}

#[test]
fn area_and_ratio_are_uniform_over_samples() {
    let (mut areas, mut ratios) = (Vec::new(), Vec::new());
    for rng in samples(0) {
        let mut noted = Noted { rng, uniforms: Vec::new() };
        Operation::from(RandomResizedCrop::to(8)).effects((500, 375), &mut noted).unwrap();
        areas.push(noted.uniforms[0]);
        ratios.push(noted.uniforms[1]);
    }
    assert!(is_uniform(areas) && is_uniform(ratios));
}

/// No box far smaller than the image is refused, so the resulting boxes have the distribution of the draws.
#[test]
fn small_boxes_have_the_claimed_area_ratio_and_place() {
    let side = 60_000;
    let (mut areas, mut ratios, mut xs, mut ys) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for mut rng in samples(1) {
        let crop = RandomResizedCrop::within(8, [0.04, 0.25], [0.5, 2.0]);
        let found = window(crop, side, &mut rng);
        let (w, h) = (f64::from(found.width), f64::from(found.height));
        let whole = f64::from(side) * f64::from(side);
        areas.push((w * h / whole - 0.04) / (0.25 - 0.04));
        ratios.push(((w / h).ln() - 0.5f64.ln()) / (2f64.ln() - 0.5f64.ln()));
        xs.push((found.x as f64 + 0.5) / (f64::from(side) - w + 1.0));
        ys.push((found.y as f64 + 0.5) / (f64::from(side) - h + 1.0));
    }
    assert!(is_uniform(areas) && is_uniform(ratios) && is_uniform(xs) && is_uniform(ys));
}

#[test]
fn places_of_a_padded_crop_are_even() {
    let mut counts = [0; 81];
    for mut rng in samples(0) {
        let found = window(RandomCrop::padded(32, 4), 32, &mut rng);
        counts[((found.y + 4) * 9 + found.x + 4) as usize] += 1;
    }
    assert!(is_even(&counts), "{counts:?}");
}

#[test]
fn bounded_integers_are_even() {
    for n in [2, 3, 7, 100, 1000] {
        let mut counts = vec![0; n];
        let mut rng = Rng::for_epoch(SEED, 0, n as u32);
        (0..DRAWS).for_each(|_| counts[rng.below(n as u64) as usize] += 1);
        assert!(is_even(&counts), "below {n}");
    }
}

#[test]
fn flips_have_their_probability() {
    let operations = vec![CenterCrop::to(2).into(), RandomHorizontalFlip { p: 0.5 }.into()];
    let pipeline = Pipeline::of(operations);
    let image = [1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2];
    let mut preparer = Preparer::new(Limits::default());
    let mut out = vec![0; pipeline.output().bytes()];
    let mut counts = [0u64; 2];
    for sample_id in 0..DRAWS as u64 {
        let source = Source::Planar { width: 2, height: 2, bytes: &image };
        let draw = Draw { seed: SEED, epoch: 0, sample_id };
        preparer.prepare(source, &pipeline, draw, &mut out).unwrap();
        counts[usize::from(out[0] == 2)] += 1;
    }
    assert!(is_even(&counts), "{counts:?}");
}

/// Identifies the crops of several operations by an image whose pixels encode their position.
#[test]
fn each_operation_draws_from_its_own_stream() {
    let sides = [60, 44, 31, 17, 5];
    let operations = sides.map(|size| RandomCrop::to(size).into()).to_vec();
    let pipeline = Pipeline::of(operations);
    let side = 75u32;
    let rows = (0..side).flat_map(|y| [y as u8; 75]);
    let columns = (0..side).flat_map(|_| 0..side as u8);
    let image: Vec<u8> = rows.chain(columns).chain([0; 75 * 75]).collect();
    let mut preparer = Preparer::new(Limits::default());
    let mut out = vec![0; pipeline.output().bytes()];
    for sample_id in 0..100 {
        let draw = Draw { seed: SEED, epoch: 5, sample_id };
        let (mut x, mut y, mut left) = (0, 0, side);
        for (operation, &size) in (0..).zip(&sides) {
            let window = window(RandomCrop::to(size), left, &mut Rng::for_sample(draw, operation));
            (x, y, left) = (x + window.x, y + window.y, size);
        }
        let source = Source::Planar { width: side, height: side, bytes: &image };
        preparer.prepare(source, &pipeline, draw, &mut out).unwrap();
        assert_eq!((i64::from(out[1]), i64::from(out[0])), (x, y), "sample {sample_id}");
    }
}

#[test]
fn the_tests_reject_what_is_off_by_a_little() {
    let mut rng = Rng::for_epoch(SEED, 1, 0);
    assert!(is_uniform((0..DRAWS).map(|_| rng.uniform()).collect()));
    assert!(!is_uniform((0..DRAWS).map(|_| rng.uniform() * 0.997).collect()));
    assert!(!is_uniform((0..DRAWS).map(|_| rng.uniform().powf(1.01)).collect()));
    assert!(is_even(&[500_400, 499_600]));
    assert!(!is_even(&[502_000, 498_000]));
}

/// Other draws would change every pixel: the words of a stream are part of the promise.
#[test]
fn the_words_of_a_stream_stay_what_they_are() {
    let mut rng = Rng::for_sample(Draw { seed: 1, epoch: 2, sample_id: 3 }, 4);
    let words: Vec<u64> = (0..3).map(|_| rng.word()).collect();
    assert_eq!(words, [7_965_654_846_452_914_453, 7_620_659_930_408_004_408, 12_230_822_144_276_081_847]);
    // ECRYPT's test vector of ChaCha8 with a key and a nonce of zeros: 3e00ef2f895f40d6 7f5bb8e81f09a5a1 …
    assert_eq!(Rng::from_key([0; 4]).word().to_le_bytes(), [0x3E, 0x00, 0xEF, 0x2F, 0x89, 0x5F, 0x40, 0xD6]);
}
