//! Random draws that are the same on every machine: words of ChaCha8 under keys that we define, and our own rules for
//! turning words into numbers. Words are u64; nothing depends on the width of `usize` or on another crate's sampling.

use crate::chacha::ChaCha8;
use serde::{Deserialize, Serialize};

/// Name of a sample's random draws.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Draw {
    /// Seed of the run.
    pub seed: u64,
    /// Epoch of the run, counted from 0.
    pub epoch: u32,
    /// Id of the sample in the epoch.
    pub sample_id: u64,
}

/// Last word of each key, which keeps the keys of samples, epochs, batches and effects apart.
const SAMPLE_DOMAIN: u64 = u64::from_le_bytes(*b"ddlp-smp");
const EPOCH_DOMAIN: u64 = u64::from_le_bytes(*b"ddlp-epo");
const BATCH_DOMAIN: u64 = u64::from_le_bytes(*b"ddlp-bat");
const EFFECT_DOMAIN: u64 = u64::from_le_bytes(*b"ddlp-eff");

/// A source of 64-bit words, and the rules that turn them into numbers.
pub trait Words {
    /// Returns the next word.
    fn word(&mut self) -> u64;

    /// Returns a multiple of 2⁻⁵³ in [0, 1), from the upper 53 bits of a word.
    fn uniform(&mut self) -> f64 {
        (self.word() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Returns an integer below `n`, each with the same probability: the upper half of word × n. Words whose product
    /// has a lower half below 2⁶⁴ mod n are drawn again (Lemire, "Fast random integer generation in an interval",
    /// 2019).
    ///
    /// # Panics
    /// When `n` is 0.
    fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "no integer lies below 0");
        loop {
            let product = u128::from(self.word()) * u128::from(n);
            // 2⁶⁴ mod n is below n, so most words need no division.
            if product as u64 >= n || product as u64 >= n.wrapping_neg() % n {
                return (product >> 64) as u64;
            }
        }
    }

    /// Returns a number of the standard normal distribution (Box and Muller, "A note on the generation of random normal
    /// deviates", 1958). Takes two words.
    fn normal(&mut self) -> f64 {
        // u is above 0, so its logarithm is finite.
        let (u, v) = (1.0 - self.uniform(), self.uniform());
        (-2.0 * libm::log(u)).sqrt() * libm::cos(2.0 * std::f64::consts::PI * v)
    }

    /// Returns the logarithm of a number of the distribution Gamma(α), for a positive α (Marsaglia and Tsang, "A simple
    /// method for generating gamma variables", 2000). For a small α the number itself would often round to 0.
    fn log_gamma(&mut self, alpha: f64) -> f64 {
        if alpha < 1.0 {
            // u is above 0, so its logarithm is finite. For a tiny α, the quotient may still be infinite.
            let u = 1.0 - self.uniform();
            return (self.log_gamma(alpha + 1.0) + libm::log(u) / alpha).max(f64::MIN);
        }
        let d = alpha - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let root = 1.0 + c * x;
            if root <= 0.0 {
                continue;
            }
            let (v, u) = (root * root * root, 1.0 - self.uniform());
            if libm::log(u) < 0.5 * x * x + d - d * v + d * libm::log(v) {
                return libm::log(d) + libm::log(v);
            }
        }
    }

    /// Fills `weights` with numbers of the symmetric Dirichlet distribution for a positive α: they add up to 1.
    fn dirichlet(&mut self, alpha: f64, weights: &mut [f64]) {
        weights.iter_mut().for_each(|weight| *weight = self.log_gamma(alpha));
        let most = weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        weights.iter_mut().for_each(|weight| *weight = libm::exp(*weight - most));
        let sum: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|weight| *weight /= sum);
    }

    /// Returns a number from 0 to 1 of the distribution Beta(α, α), for a positive α: 1/2 + T / (2 √(2α + T²)), where T
    /// has Student's distribution with 2α degrees of freedom (Devroye, "Random variate generation in one line of code",
    /// 1996). T² / 2α is (u^(−1/α) − 1) cos² 2πv (Bailey, 1994), and T has the sign of the cosine. Takes two words.
    fn beta(&mut self, alpha: f64) -> f64 {
        // u is above 0, so its power may be infinite, but is a number. No v has a cosine of 0.
        let (u, v) = (1.0 - self.uniform(), self.uniform());
        let cosine = libm::cos(2.0 * std::f64::consts::PI * v);
        let square = (libm::pow(u, -1.0 / alpha) - 1.0) * cosine * cosine;
        let half = 0.5 / (1.0 + 1.0 / square).sqrt();
        if cosine > 0.0 { 0.5 + half } else { 0.5 - half }
    }
}

/// Words of ChaCha8 under a key.
#[derive(Clone, Debug)]
pub struct Rng(ChaCha8);

impl Rng {
    /// Returns the stream of a 256-bit key (its words are little-endian in ChaCha's key).
    pub fn from_key(key: [u64; 4]) -> Self {
        Self(ChaCha8::new(key))
    }

    /// Returns the stream of one operation of a sample's pipeline. Each operation has a stream of its own, so the
    /// number of words that one draws does not affect the others.
    pub fn for_sample(draw: Draw, operation: u32) -> Self {
        Self::from_key(key_of_sample(draw, operation))
    }

    /// Returns the streams of an operation and of the next one, in the time that one stream takes.
    pub(crate) fn for_two_operations(draw: Draw, first: u32) -> [Self; 2] {
        ChaCha8::two([first, first + 1].map(|operation| key_of_sample(draw, operation))).map(Self)
    }

    /// Returns a stream of an epoch, or of a pass over a part of the dataset. No stream of a sample equals it.
    pub fn for_epoch(seed: u64, epoch: u64, stream: u32) -> Self {
        Self::from_key([seed, join(epoch as u32, stream), epoch >> 32, EPOCH_DOMAIN])
    }

    /// Returns the stream of a rank's share of a batch. No stream of a sample or an epoch equals it.
    pub fn for_batch(seed: u64, epoch: u32, batch: u32, rank: u32) -> Self {
        Self::from_key([seed, join(epoch, batch), rank.into(), BATCH_DOMAIN])
    }

    /// Returns the stream of an effect that draws while it is made, by the seed that its operation drew. No stream of a
    /// sample's pipeline equals it.
    pub(crate) fn for_effect(seed: u64) -> Self {
        Self::from_key([seed, 0, 0, EFFECT_DOMAIN])
    }

    /// See [`Words::below`].
    pub fn below(&mut self, n: u64) -> u64 {
        Words::below(self, n)
    }

    /// See [`Words::uniform`].
    pub fn uniform(&mut self) -> f64 {
        Words::uniform(self)
    }

    /// See [`Words::beta`].
    pub fn beta(&mut self, alpha: f64) -> f64 {
        Words::beta(self, alpha)
    }
}

impl Words for Rng {
    fn word(&mut self) -> u64 {
        self.0.word()
    }
}

fn key_of_sample(draw: Draw, operation: u32) -> [u64; 4] {
    [draw.seed, join(draw.epoch, operation), draw.sample_id, SAMPLE_DOMAIN]
}

fn join(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Script(Vec<u64>);

    impl Words for Script {
        fn word(&mut self) -> u64 {
            self.0.remove(0)
        }
    }

    #[test]
    fn below_draws_again_where_the_product_would_favour_a_value() {
        // 2⁶⁴ mod 3 = 1: of all words only 0 has a low half below 1.
        let mut script = Script(vec![0, u64::MAX]);
        assert_eq!(script.below(3), 2);
        assert!(script.0.is_empty());
    }

    #[test]
    fn below_a_power_of_two_takes_the_upper_bits() {
        assert_eq!(Script(vec![0xABCD << 48]).below(1 << 16), 0xABCD);
        assert_eq!(Script(vec![12345]).below(1), 0);
    }

    #[test]
    fn uniform_spans_zero_to_one() {
        assert_eq!(Script(vec![0]).uniform(), 0.0);
        assert_eq!(Script(vec![u64::MAX]).uniform(), 1.0 - (2.0f64).powi(-53));
        assert_eq!(Script(vec![1 << 63]).uniform(), 0.5);
    }

    /// Compares the share of draws below a number with the distribution function, where it has a formula.
    #[test]
    fn beta_has_its_distribution() {
        let half = |x: f64| std::f64::consts::FRAC_2_PI * x.sqrt().asin();
        let functions: [(f64, &dyn Fn(f64) -> f64); 4] = [
            (0.5, &half),
            (1.0, &|x| x),
            (2.0, &|x| 3.0 * x.powi(2) - 2.0 * x.powi(3)),
            (3.0, &|x| 10.0 * x.powi(3) - 15.0 * x.powi(4) + 6.0 * x.powi(5)),
        ];
        let draws = 40_000;
        for (alpha, function) in functions {
            let mut rng = Rng::for_batch(7, 0, 0, 0);
            let found: Vec<f64> = (0..draws).map(|_| rng.beta(alpha)).collect();
            for x in [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99] {
                let share = found.iter().filter(|&&value| value < x).count() as f64 / f64::from(draws);
                // Four standard deviations of a share are at most 0.01.
                assert!((share - function(x)).abs() < 0.01, "{alpha}: {share} below {x}, expected {}", function(x));
            }
        }
        // The variance is 1 / (4 (2α + 1)).
        for alpha in [0.1, 0.2, 0.8, 8.0] {
            let mut rng = Rng::for_batch(8, 0, 0, 0);
            let squares: f64 = (0..draws).map(|_| (rng.beta(alpha) - 0.5).powi(2)).sum();
            let (found, expected) = (squares / f64::from(draws), 0.25 / (2.0 * alpha + 1.0));
            assert!((found / expected - 1.0).abs() < 0.03, "{alpha}: {found}, expected {expected}");
        }
    }

    /// Compares means, variances and covariances with those of the distribution.
    #[test]
    fn dirichlet_has_its_moments_and_adds_up_to_1() {
        let draws = 40_000;
        for (alpha, count) in [(0.1, 2), (1.0, 3), (1.0, 2), (0.4, 5), (7.5, 4)] {
            let mut rng = Rng::for_batch(9, 0, 0, 0);
            let mut weights = vec![0.0; count];
            let (mut sums, mut squares, mut products) = (vec![0.0; count], vec![0.0; count], 0.0);
            let mean = 1.0 / count as f64;
            for _ in 0..draws {
                Words::dirichlet(&mut rng, alpha, &mut weights);
                assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-12 && weights.iter().all(|&w| w >= 0.0));
                for (at, weight) in weights.iter().enumerate() {
                    sums[at] += weight;
                    squares[at] += (weight - mean).powi(2);
                }
                products += (weights[0] - mean) * (weights[1] - mean);
            }
            let draws = f64::from(draws);
            let whole = alpha * count as f64;
            let variance = mean * (1.0 - mean) / (whole + 1.0);
            for (sum, square) in sums.iter().zip(&squares) {
                // Five standard deviations.
                assert!((sum / draws - mean).abs() < 5.0 * (variance / draws).sqrt(), "{alpha} {count}: {sums:?}");
                assert!((square / draws / variance - 1.0).abs() < 0.05, "{alpha} {count}: {squares:?}");
            }
            let covariance = -mean * mean / (whole + 1.0);
            assert!((products / draws / covariance - 1.0).abs() < 0.08, "{alpha} {count}: {products}");
        }
        for alpha in [f64::MIN_POSITIVE, 1e-9, 1e9, f64::MAX] {
            let mut weights = [0.0; 3];
            Words::dirichlet(&mut Rng::for_batch(9, 0, 0, 0), alpha, &mut weights);
            assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{alpha}: {weights:?}");
        }
    }

    #[test]
    fn beta_is_a_number_from_0_to_1_for_every_word_and_every_alpha() {
        let words = [0, 1 << 62, 1 << 63, 3 << 62, u64::MAX, 0x1234_5678_9ABC_DEF0];
        for alpha in [f64::MIN_POSITIVE, 1e-9, 0.2, 1.0, 1e9, f64::MAX] {
            for (u, v) in words.iter().flat_map(|&u| words.map(|v| (u, v))) {
                let found = Script(vec![u, v]).beta(alpha);
                assert!((0.0..=1.0).contains(&found), "{alpha}, {u:#x}, {v:#x}: {found}");
            }
        }
        assert_eq!(Script(vec![0, 0]).beta(1.0), 0.5, "u is 1");
        assert_eq!(Script(vec![1 << 63, 0]).beta(1e-9), 1.0);
        assert_eq!(Script(vec![1 << 63, 1 << 63]).beta(1e-9), 0.0);
    }

    #[test]
    fn streams_differ_by_every_part_of_their_name() {
        let draw = Draw { seed: 1, epoch: 2, sample_id: 3 };
        let mut firsts = vec![
            Rng::for_sample(draw, 0).word(),
            Rng::for_sample(draw, 1).word(),
            Rng::for_sample(Draw { seed: 2, ..draw }, 0).word(),
            Rng::for_sample(Draw { epoch: 3, ..draw }, 0).word(),
            Rng::for_sample(Draw { sample_id: 4, ..draw }, 0).word(),
            Rng::for_sample(Draw { sample_id: 0, ..draw }, 0).word(),
            Rng::for_epoch(1, 2, 0).word(),
            Rng::for_epoch(1, 2, 1).word(),
            Rng::for_epoch(1, 2 + (1 << 32), 1).word(),
            Rng::for_batch(1, 2, 0, 0).word(),
            Rng::for_batch(1, 2, 0, 3).word(),
            Rng::for_batch(1, 2, 1, 0).word(),
        ];
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), 12);
    }
}
