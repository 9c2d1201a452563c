//! Runs intervals of training with loaded batches and with batches from memory, alternately.

use super::stages::{Counters, StageSums, Stages};
use crate::batch::Batch;
use crate::error::LoaderError;
use crate::loader::{Loader, Waiting};
use crate::state::LoaderState;
use std::time::{Duration, Instant};

/// Pairs of intervals.
const ROUNDS: usize = 5;
/// Least number of steps of an interval.
const STEPS_MIN: u64 = 4;
/// Most batches that are copied for the intervals without loading, and most bytes of their images.
const COPIES_MAX: usize = 4;
const COPIED_BYTES_MAX: usize = 256 << 20;

/// Why a measurement ended early.
pub(super) enum Ended {
    /// The consumer gave up, or a stopper ended the run.
    GaveUp,
    Failed(LoaderError),
}

impl From<LoaderError> for Ended {
    fn from(error: LoaderError) -> Self {
        Self::Failed(error)
    }
}

/// An interval with loading and its neighbour with batches from memory.
pub(super) struct Round {
    pub loading: Interval,
    pub memory: Interval,
}

/// What was done in an interval.
#[derive(Default)]
pub(super) struct Interval {
    pub images: u64,
    pub steps: usize,
    /// Length of the interval.
    pub seconds: f64,
    /// Time within steps.
    pub stepping_s: f64,
}

impl Interval {
    /// Returns the images per second.
    pub fn rate(&self) -> f64 {
        self.images as f64 / self.seconds
    }

    /// Returns the mean time of a step.
    pub fn step_s(&self) -> f64 {
        self.stepping_s / self.steps as f64
    }
}

/// A measurement in progress.
pub(super) struct Measurement<'l, S, G> {
    loader: &'l mut Loader,
    /// The position at the beginning.
    start: LoaderState,
    /// Batches from the loader's position to the end of the run. The last one is never taken, since the run would end.
    left: u64,
    step: S,
    go_on: G,
    /// Copies of batches.
    copies: Vec<Batch>,
    /// Steps before an interval with loading: as many as there are batches that were prepared before the loader
    /// was paused.
    settling: u64,
    sums: StageSums,
}

impl<'l, S: FnMut(&Batch) -> bool, G: FnMut(Waiting) -> bool> Measurement<'l, S, G> {
    /// Runs all intervals.
    pub fn run(loader: &'l mut Loader, time: Duration, step: S, go_on: G) -> Result<(Vec<Round>, Stages), Ended> {
        let (start, buffers) = (loader.state(), loader.engine.target.count() as u64);
        let mut measurement = Self {
            loader,
            start: start.clone(),
            left: 0,
            step,
            go_on,
            copies: Vec::new(),
            settling: buffers,
            sums: StageSums::default(),
        };
        measurement.go_to(&start)?;
        let (left, least) = (measurement.left, STEPS_MIN + 2);
        if left < least {
            return Err(Ended::Failed(LoaderError::Options(format!(
                "measuring the headspace takes at least {least} batches, but this run has {left} left: give the run \
                 more `epochs`, or a smaller `batch_size`"
            ))));
        }
        measurement.settling = buffers.min(left - STEPS_MIN - 1);
        measurement.copy_batches()?;
        let interval = time / (2 * ROUNDS as u32);
        let mut rounds = Vec::new();
        for number in 0..ROUNDS {
            // The order changes, so that a machine that becomes slower or faster favours neither.
            rounds.push(if number % 2 == 0 {
                let loading = measurement.with_loading(interval)?;
                Round { loading, memory: measurement.with_copies(interval)? }
            } else {
                let memory = measurement.with_copies(interval)?;
                Round { loading: measurement.with_loading(interval)?, memory }
            });
        }
        let stages = measurement.sums.stages(measurement.loader);
        Ok((rounds, stages))
    }

    /// Copies the next batches, and makes a step with each: the first steps of a program take longer than later ones.
    fn copy_batches(&mut self) -> Result<(), Ended> {
        let mut bytes = 0;
        while self.copies.len() < COPIES_MAX {
            if self.left <= 1 {
                self.go_to(&self.start.clone())?;
            }
            let copy = self.take()?.into_owned()?;
            if copy.is_empty() && self.copies.is_empty() {
                return Err(Ended::Failed(LoaderError::Options(
                    "measuring the headspace takes batches with samples, but this rank's share of the next batch is \
                     empty: use a larger `batch_size` or fewer ranks"
                        .into(),
                )));
            }
            bytes += copy.images().bytes().map_err(LoaderError::from)?.len();
            if !(self.step)(&copy) {
                return Err(Ended::GaveUp);
            }
            self.copies.push(copy);
            if bytes * (self.copies.len() + 1) / self.copies.len() > COPIED_BYTES_MAX {
                break;
            }
        }
        Ok(())
    }

    /// Runs an interval with batches as the loader delivers them.
    fn with_loading(&mut self, time: Duration) -> Result<Interval, Ended> {
        if self.left <= self.settling + STEPS_MIN {
            self.go_to(&self.start.clone())?;
        }
        // The first of these batches come from an earlier interval's look-ahead, so their samples were read before.
        let mut settling = Interval::default();
        while (settling.steps as u64) < self.settling {
            self.load_and_step(&mut settling)?;
        }
        let before = Counters::of(self.loader);
        let (begun, mut interval) = (Instant::now(), Interval::default());
        while self.left > 1 && ((interval.steps as u64) < STEPS_MIN || begun.elapsed() < time) {
            self.sums.asked(self.loader);
            self.load_and_step(&mut interval)?;
        }
        interval.seconds = begun.elapsed().as_secs_f64();
        self.sums.add(Counters::of(self.loader).since(before), &interval);
        Ok(interval)
    }

    /// Runs an interval with copies of batches, while the loader is paused.
    fn with_copies(&mut self, time: Duration) -> Result<Interval, Ended> {
        // Its threads end, and begin again with the next request.
        self.go_to(&self.loader.state())?;
        let copies = std::mem::take(&mut self.copies);
        let mut cycled = copies.iter().cycle();
        let mut step = |interval: &mut Interval| self.step(cycled.next().expect("at least one"), interval);
        step(&mut Interval::default())?;
        let (begun, mut interval) = (Instant::now(), Interval::default());
        while (interval.steps as u64) < STEPS_MIN || begun.elapsed() < time {
            step(&mut interval)?;
        }
        interval.seconds = begun.elapsed().as_secs_f64();
        self.copies = copies;
        Ok(interval)
    }

    fn load_and_step(&mut self, interval: &mut Interval) -> Result<(), Ended> {
        let batch = self.take()?;
        self.step(&batch, interval)
    }

    fn step(&mut self, batch: &Batch, interval: &mut Interval) -> Result<(), Ended> {
        let begun = Instant::now();
        if !(self.step)(batch) {
            return Err(Ended::GaveUp);
        }
        interval.stepping_s += begun.elapsed().as_secs_f64();
        interval.steps += 1;
        interval.images += batch.len() as u64;
        Ok(())
    }

    /// Takes the next batch. The run has more than this one left.
    fn take(&mut self) -> Result<Batch, Ended> {
        let batch = self.loader.next_while(&mut self.go_on).ok_or(Ended::GaveUp)??;
        self.left -= 1;
        Ok(batch)
    }

    /// Moves the loader, whose threads then pause until the next request.
    fn go_to(&mut self, state: &LoaderState) -> Result<(), Ended> {
        if self.loader.engine.is_stopped() {
            return Err(Ended::GaveUp);
        }
        self.loader.go_to(state)?;
        let batches = u64::from(self.loader.batches_per_epoch());
        let epochs = u64::from(self.start.epochs.saturating_sub(state.epoch));
        self.left = (epochs * batches).saturating_sub(state.delivered.len() as u64);
        Ok(())
    }
}
