//! The number of samples that a worker takes at a time.
//!
//! To take work, a worker locks what other workers share and reads the clock: negligible beside a photograph, but
//! costly beside a small image. So a worker takes a run of samples that lasts about 300 µs: one photograph, or dozens
//! of small images.

use std::time::Duration;

/// Target duration of a run, short enough not to delay the end of a batch, a cancellation or the pause of a throttled
/// drive.
const RUN: Duration = Duration::from_micros(300);
/// Most samples of a run.
const RUN_SAMPLES_MAX: usize = 64;

/// Length of one worker's next run, derived from the duration of its last one.
#[derive(Clone, Copy, Debug)]
pub struct RunLength {
    sample: Duration,
}

impl Default for RunLength {
    /// Returns a length whose first run is one sample.
    fn default() -> Self {
        Self { sample: RUN }
    }
}

impl RunLength {
    /// Returns the number of samples of the next run, at least one.
    pub fn samples(&self) -> usize {
        let fitting = RUN.as_nanos() / self.sample.as_nanos().max(1);
        usize::try_from(fitting).unwrap_or(usize::MAX).clamp(1, RUN_SAMPLES_MAX)
    }

    /// Records how long a run took.
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
    fn runs_approach_the_target_duration() {
        let mut length = RunLength::default();
        assert_eq!(length.samples(), 1);
        length.took(1, RUN / 10);
        assert_eq!(length.samples(), 10);
        length.took(10, RUN);
        assert_eq!(length.samples(), 10, "a run of the target duration keeps its length");
        length.took(10, RUN / 1000);
        assert_eq!(length.samples(), RUN_SAMPLES_MAX);
        length.took(0, Duration::MAX);
        assert_eq!(length.samples(), RUN_SAMPLES_MAX, "a run without samples changes nothing");
        length.took(RUN_SAMPLES_MAX, Duration::ZERO);
        assert_eq!(length.samples(), RUN_SAMPLES_MAX);
        length.took(2, RUN * 100);
        assert_eq!(length.samples(), 1);
    }
}
