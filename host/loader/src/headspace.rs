//! Headspace: what training would gain if loading were free, which stage bounds it, and what to change.
//!
//! A measurement runs real steps of training in two kinds of intervals, alternately: with batches as the loader
//! delivers them, and with a few copies of batches in memory, while the loader is paused. The difference between
//! neighbouring intervals is what loading costs; the spread over the intervals is the noise of the machine.
//!
//! - `measure`: runs the intervals. `stages`: what each stage of loading did meanwhile.
//! - `verdict`: from figures to the stage that bounds training, and to the sentences that say what to change.
//!
//! The crate `ddlp-report` puts the figures and the stage into words, and shows the sentences of `verdict` below them.

mod measure;
mod stages;
mod verdict;

pub use stages::{DriveStage, Stages};
pub use verdict::Bound;

use crate::batch::Batch;
use crate::error::LoaderError;
use crate::loader::{Loader, Waiting};
use measure::{Ended, Measurement, Round};
use serde::Serialize;
use std::time::Duration;
use verdict::Setting;

/// Least gain that counts, as a share of the rate with loading.
const GAIN_MIN: f64 = 0.01;

/// What training would gain if loading were free.
#[derive(Clone, Debug, Serialize)]
pub struct Headspace {
    /// Images per second of training with the loader.
    pub with_loading: Spread,
    /// Images per second of training with batches from memory.
    pub from_memory: Spread,
    /// Gain of batches from memory over loading, as a share: 0.5 is half as many images again.
    pub gain: Spread,
    /// Whether the gain is larger than the noise.
    pub is_significant: bool,
    /// Time of a step of training while the loader works, in seconds.
    pub step_s: f64,
    /// Time of a step of training while the loader is paused, in seconds.
    pub step_from_memory_s: f64,
    /// Steps that were measured.
    pub steps: usize,
    /// What the stages of loading did in the intervals with loading.
    pub stages: Stages,
    /// The stage that bounds training.
    pub bound: Bound,
    /// One or two changes, each with its option in backticks. Empty if loading does not bound training.
    pub changes: Vec<String>,
}

/// A figure over all intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Median.
    pub median: f64,
    /// Least value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (values.first(), values.last()) else { return Self::default() };
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Self { median, min, max }
    }
}

impl Loader {
    /// Measures what training would gain if loading were free.
    ///
    /// Runs steps with delivered batches and with copies in memory, alternately. Takes about `time`, longer if steps or
    /// batches are slow, since it runs at least forty steps.
    ///
    /// `step` is one step of training on a batch, and must return when its work is done, on an accelerator too. It
    /// returns `false` to give up. `go_on` is asked as in [`next_while`](Self::next_while). The result is `None` if
    /// either gives up, or a [`Stopper`](crate::Stopper) ends the run.
    ///
    /// The loader delivers the batches that come next, several times if the run is short, and goes back to its position
    /// at the end: the next batch is the one that was next before. [`report`](Self::report) counts the batches that
    /// were delivered here too, and the [`plan`](Self::plan) lacks an epoch in whose middle this was called.
    ///
    /// # Errors
    ///
    /// [`LoaderError::Options`] if the run has ended, or has too few batches left. Other errors as
    /// [`next`](Iterator::next) returns them.
    pub fn headspace(
        &mut self,
        time: Duration,
        step: impl FnMut(&Batch) -> bool,
        go_on: impl FnMut(Waiting) -> bool,
    ) -> Result<Option<Headspace>, LoaderError> {
        if self.is_over() {
            return Err(LoaderError::Options(
                "the run has ended: build a new loader, and measure with that one".into(),
            ));
        }
        let start = self.state();
        self.engine.work_times.measure(true);
        let measured = Measurement::run(self, time, step, go_on);
        self.engine.work_times.measure(false);
        if !self.is_over() {
            self.go_to(&start)?;
        }
        match measured {
            Ok((rounds, stages)) => Ok(Some(Headspace::of(&rounds, stages, &Setting::of(self)))),
            Err(Ended::GaveUp) => Ok(None),
            Err(Ended::Failed(error)) => Err(error),
        }
    }
}

impl Headspace {
    fn of(rounds: &[Round], stages: Stages, setting: &Setting) -> Self {
        let gain = Spread::of(rounds.iter().map(|round| round.memory.rate() / round.loading.rate() - 1.0));
        let mut headspace = Self {
            with_loading: Spread::of(rounds.iter().map(|round| round.loading.rate())),
            from_memory: Spread::of(rounds.iter().map(|round| round.memory.rate())),
            gain,
            is_significant: gain.min > 0.0 && gain.median >= GAIN_MIN.max((gain.max - gain.min) / 2.0),
            step_s: Spread::of(rounds.iter().map(|round| round.loading.step_s())).median,
            step_from_memory_s: Spread::of(rounds.iter().map(|round| round.memory.step_s())).median,
            steps: rounds.iter().map(|round| round.loading.steps + round.memory.steps).sum(),
            stages,
            bound: Bound::Step,
            changes: Vec::new(),
        };
        headspace.bound = Bound::of(&headspace, setting);
        headspace.changes = headspace.bound.changes(&headspace, setting);
        headspace
    }
}

#[cfg(test)]
mod tests {
    use super::measure::Interval;
    use super::*;

    /// Returns rounds with these images per second, each in intervals of a second.
    fn rounds(rates: &[(u64, u64)]) -> Vec<Round> {
        let interval = |images| Interval { images, steps: 10, seconds: 1.0, stepping_s: 0.5 };
        rates.iter().map(|&(loading, memory)| Round { loading: interval(loading), memory: interval(memory) }).collect()
    }

    #[test]
    fn a_gain_counts_only_above_the_noise() {
        let is_significant =
            |rates: &[(u64, u64)]| Headspace::of(&rounds(rates), Stages::default(), &Setting::default()).is_significant;
        assert!(is_significant(&[(100, 150), (101, 149), (99, 152), (100, 150), (100, 151)]));
        assert!(!is_significant(&[(100, 150), (100, 99), (99, 152), (100, 150), (100, 151)]), "one shows no gain");
        assert!(!is_significant(&[(1000, 1005), (1000, 1004), (1000, 1006)]), "below 1 %");
        assert!(!is_significant(&[(100, 101), (100, 200), (100, 105)]), "the rounds differ by more than the gain");
    }

    #[test]
    fn the_gain_is_that_of_neighbouring_intervals() {
        // The machine becomes slower by half; the gain stays.
        let slowing = rounds(&[(200, 300), (100, 150), (120, 180)]);
        let headspace = Headspace::of(&slowing, Stages::default(), &Setting::default());
        assert_eq!(headspace.gain, Spread { median: 0.5, min: 0.5, max: 0.5 });
        assert_eq!(headspace.with_loading, Spread { median: 120.0, min: 100.0, max: 200.0 });
        assert_eq!((headspace.steps, headspace.step_s), (60, 0.05));
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_ones() {
        assert_eq!(Spread::of([4.0, 1.0, 3.0, 2.0].into_iter()).median, 2.5);
        assert_eq!(Spread::of([].into_iter()), Spread::default());
    }
}
