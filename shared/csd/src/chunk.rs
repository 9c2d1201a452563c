//! The number of samples that a worker takes at a time.
//!
//! To take work, a worker locks what other workers share and reads the clock: negligible beside a photograph, but
//! costly beside a small image. So a worker takes a chunk of samples that lasts about 300 µs: one photograph, or dozens
//! of small images.

use std::time::Duration;

/// Target duration of a chunk, short enough not to delay the end of a batch, a cancellation or the pause of a throttled
/// drive.
const CHUNK: Duration = Duration::from_micros(300);
/// Most samples of a chunk.
const CHUNK_SAMPLES_MAX: usize = 64;

/// Length of one worker's next chunk, derived from the duration of its last one.
#[derive(Clone, Copy, Debug)]
pub struct ChunkLength {
    sample: Duration,
}

impl Default for ChunkLength {
    /// Returns a length whose first chunk is one sample.
    fn default() -> Self {
        Self { sample: CHUNK }
    }
}

impl ChunkLength {
    /// Returns the number of samples of the next chunk, at least one.
    pub fn samples(&self) -> usize {
        let fitting = CHUNK.as_nanos() / self.sample.as_nanos().max(1);
        usize::try_from(fitting).unwrap_or(usize::MAX).clamp(1, CHUNK_SAMPLES_MAX)
    }

    /// Records how long a chunk took.
    pub fn took(&mut self, samples: usize, time: Duration) {
        if samples > 0 {
            self.sample = time / samples.min(CHUNK_SAMPLES_MAX) as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_approach_the_target_duration() {
        let mut length = ChunkLength::default();
        assert_eq!(length.samples(), 1);
        length.took(1, CHUNK / 10);
        assert_eq!(length.samples(), 10);
        length.took(10, CHUNK);
        assert_eq!(length.samples(), 10, "a chunk of the target duration keeps its length");
        length.took(10, CHUNK / 1000);
        assert_eq!(length.samples(), CHUNK_SAMPLES_MAX);
        length.took(0, Duration::MAX);
        assert_eq!(length.samples(), CHUNK_SAMPLES_MAX, "a chunk without samples changes nothing");
        length.took(CHUNK_SAMPLES_MAX, Duration::ZERO);
        assert_eq!(length.samples(), CHUNK_SAMPLES_MAX);
        length.took(2, CHUNK * 100);
        assert_eq!(length.samples(), 1);
    }
}
