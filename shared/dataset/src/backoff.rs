//! Delays between attempts to bring an association back: exponential with a cap, with jitter from a seeded generator.

use std::time::Duration;

/// Bounds of a [`Backoff`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffLimits {
    /// Longest first delay.
    pub first: Duration,
    /// Longest of all delays.
    pub cap: Duration,
    /// Number of delays until giving up.
    pub attempts_max: u32,
}

impl Default for BackoffLimits {
    /// Returns 100 ms, doubling up to 5 s, 30 times: about two minutes in all.
    fn default() -> Self {
        Self { first: Duration::from_millis(100), cap: Duration::from_secs(5), attempts_max: 30 }
    }
}

/// The delays before each new attempt. Equal seeds give equal delays.
///
/// Each delay is drawn evenly from the upper half of `first`·2ⁿ, capped, so that hosts that lost a drive at the same
/// moment do not come back at the same moment.
#[derive(Clone, Debug)]
pub struct Backoff {
    limits: BackoffLimits,
    attempt: u32,
    state: u64,
}

impl Backoff {
    /// Makes delays within `limits`, with jitter from `seed`.
    pub fn new(limits: BackoffLimits, seed: u64) -> Self {
        Self { limits, attempt: 0, state: seed }
    }

    /// Returns the next delay, or `None` after `attempts_max` delays.
    pub fn next_delay(&mut self) -> Option<Duration> {
        if self.attempt >= self.limits.attempts_max {
            return None;
        }
        let factor = 1u32.checked_shl(self.attempt).unwrap_or(u32::MAX);
        let full = self.limits.first.saturating_mul(factor).min(self.limits.cap);
        self.attempt += 1;
        let half = full / 2;
        let span = u64::try_from((full - half).as_nanos()).unwrap_or(u64::MAX);
        // The bias of the remainder is too small to matter in a delay.
        Some(half + Duration::from_nanos(self.draw() % span.saturating_add(1)))
    }

    /// Draws a number by SplitMix64.
    fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn delays_double_up_to_the_cap(seed: u64, first_ms in 0u64..1000, cap_ms in 0u64..10_000) {
            let limits = BackoffLimits {
                first: Duration::from_millis(first_ms),
                cap: Duration::from_millis(cap_ms),
                attempts_max: 80,
            };
            let mut backoff = Backoff::new(limits, seed);
            for attempt in 0..limits.attempts_max {
                let full = limits.first.saturating_mul(1u32.checked_shl(attempt).unwrap_or(u32::MAX)).min(limits.cap);
                let delay = backoff.next_delay().unwrap();
                prop_assert!(delay >= full / 2 && delay <= full, "attempt {}: {:?} of {:?}", attempt, delay, full);
            }
            prop_assert_eq!(backoff.next_delay(), None);
        }
    }

    #[test]
    fn seeds_decide_the_jitter() {
        let delays = |seed| {
            let mut backoff = Backoff::new(BackoffLimits::default(), seed);
            std::iter::from_fn(move || backoff.next_delay()).collect::<Vec<_>>()
        };
        assert_eq!(delays(1), delays(1));
        assert_ne!(delays(1), delays(2));
    }
}
