//! The requests to the store that holds a dataset: how many, how long they took, and how many were made again.

use std::time::Duration;

/// Classes of latency. The first class has requests of less than 1 ms. The bound of each further class is twice the
/// bound of the class before it; the last class has all other requests.
const CLASSES: usize = 18;

/// Requests to a store since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Requests in flight.
    pub in_flight: u64,
    /// Requests that were answered with their bytes, by latency.
    by_latency: [u64; CLASSES],
    /// Bytes of the answers.
    pub bytes: u64,
    /// Requests that failed and were made again.
    pub retries: u64,
    /// Part of `retries` that failed because the store could not keep up: it said so, or did not answer in time.
    pub pushed_back: u64,
}

impl Requests {
    /// Adds a request that was answered.
    pub fn answered(&mut self, latency: Duration, bytes: u64) {
        let milliseconds = u64::try_from(latency.as_millis()).unwrap_or(u64::MAX);
        let class = (u64::BITS - milliseconds.leading_zeros()) as usize;
        self.by_latency[class.min(CLASSES - 1)] += 1;
        self.bytes += bytes;
    }

    /// Adds a request that failed and is made again.
    pub fn retry(&mut self, is_pushed_back: bool) {
        self.retries += 1;
        self.pushed_back += u64::from(is_pushed_back);
    }

    /// Returns the number of requests that were answered with their bytes.
    pub fn count(&self) -> u64 {
        self.by_latency.iter().sum()
    }

    /// Returns the latency within which this share of the answers came, rounded up to a power of two of milliseconds;
    /// `None` without an answer.
    pub fn latency_ms(&self, share: f64) -> Option<f64> {
        let wanted = (self.count() as f64 * share).ceil().max(1.0);
        let mut below = 0;
        let class = self.by_latency.iter().position(|&count| {
            below += count;
            below as f64 >= wanted
        })?;
        Some((1u64 << class) as f64)
    }

    /// Returns the requests to this store and another one.
    pub fn and(self, other: Self) -> Self {
        let mut by_latency = self.by_latency;
        by_latency.iter_mut().zip(other.by_latency).for_each(|(count, other)| *count += other);
        Self {
            in_flight: self.in_flight + other.in_flight,
            by_latency,
            bytes: self.bytes + other.bytes,
            retries: self.retries + other.retries,
            pushed_back: self.pushed_back + other.pushed_back,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_rounded_up_to_powers_of_two() {
        let mut requests = Requests::default();
        assert_eq!(requests.latency_ms(0.5), None);
        for (milliseconds, times) in [(0, 1), (100, 8), (129, 1)] {
            (0..times).for_each(|_| requests.answered(Duration::from_millis(milliseconds), 10));
        }
        assert_eq!((requests.count(), requests.bytes), (10, 100));
        let shares = [0.0, 0.1, 0.5, 0.9, 0.99].map(|share| requests.latency_ms(share).unwrap());
        assert_eq!(shares, [1.0, 1.0, 128.0, 128.0, 256.0]);
        requests.answered(Duration::MAX, 0);
        assert_eq!(requests.latency_ms(1.0), Some(131_072.0));
        assert_eq!(requests.and(requests).count(), 22);
    }
}
