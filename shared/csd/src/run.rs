//! How many samples a worker takes at a time.
//!
//! Taking work costs locks that workers share and looks at the clock, which is nothing beside a photograph and much beside a small image.
//! So a worker takes a run of samples that lasts about 300 µs: one photograph, or dozens of small images.

use std::time::Duration;

/// How long a run is to take. Short enough that the end of a batch, a cancellation or a throttled drive's rest comes in time.
const RUN: Duration = Duration::from_micros(300);
/// Most samples of a run.
const RUN_SAMPLES_MAX: usize = 64;

/// One worker's length of runs, from what its last one took.
#[derive(Clone, Copy, Debug)]
pub struct RunLength {
    sample: Duration,
}

impl Default for RunLength {
    /// The first run is one sample.
    fn default() -> Self {
        Self { sample: RUN }
    }
}

impl RunLength {
    /// Samples of the next run, at least one.
    pub fn samples(&self) -> usize {
        let fitting = RUN.as_nanos() / self.sample.as_nanos().max(1);
        usize::try_from(fitting).unwrap_or(usize::MAX).clamp(1, RUN_SAMPLES_MAX)
    }

    /// Takes down what a run took.
    pub fn took(&mut self, samples: usize, time: Duration) {
        if samples > 0 {
            self.sample = time / samples.min(RUN_SAMPLES_MAX) as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_last_about_as_long_as_they_should() {
        let mut length = RunLength::default();
        assert_eq!(length.samples(), 1);
        length.took(1, RUN / 10);
        assert_eq!(length.samples(), 10);
        length.took(10, RUN);
        assert_eq!(length.samples(), 10, "a run that lasted as it should is as long the next time");
        length.took(10, RUN / 1000);
        assert_eq!(length.samples(), RUN_SAMPLES_MAX);
        length.took(0, Duration::MAX);
        assert_eq!(length.samples(), RUN_SAMPLES_MAX, "a run without samples says nothing");
        length.took(RUN_SAMPLES_MAX, Duration::ZERO);
        assert_eq!(length.samples(), RUN_SAMPLES_MAX);
        length.took(2, RUN * 100);
        assert_eq!(length.samples(), 1);
    }
}
