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

/// Last word of each key, which keeps the keys of samples and of epochs apart.
const SAMPLE_DOMAIN: u64 = u64::from_le_bytes(*b"ddlp-smp");
const EPOCH_DOMAIN: u64 = u64::from_le_bytes(*b"ddlp-epo");

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

    /// Returns a stream of an epoch, such as the one that shuffles the epoch. No stream of a sample equals it.
    pub fn for_epoch(seed: u64, epoch: u32, stream: u32) -> Self {
        Self::from_key([seed, join(epoch, stream), 0, EPOCH_DOMAIN])
    }

    /// See [`Words::below`].
    pub fn below(&mut self, n: u64) -> u64 {
        Words::below(self, n)
    }

    /// See [`Words::uniform`].
    pub fn uniform(&mut self) -> f64 {
        Words::uniform(self)
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
        ];
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), 8);
    }
}
