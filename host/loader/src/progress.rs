//! The progress, position and figures of a run, seen from any thread.

use crate::delivery::SlotTable;
use crate::engine::{Engine, RunTask};
use crate::error::LoaderError;
use crate::moved::MovedSamples;
use crate::report::{CacheReport, Report};
use crate::state::LoaderState;
use ddlp_dataset::Silence;
use std::fmt;
use std::sync::Arc;

/// Handle that shows the progress, position and figures of a run, even while another thread waits for a batch.
#[derive(Clone)]
pub struct ProgressHandle {
    pub(crate) engine: Arc<Engine>,
    /// The state before the first batch.
    pub(crate) fresh: LoaderState,
    pub(crate) epochs: u32,
    pub(crate) batches: u32,
    /// Result slots of each drive.
    pub(crate) slots: Vec<Arc<SlotTable>>,
}

impl fmt::Debug for ProgressHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgressHandle").field("epochs", &self.epochs).finish_non_exhaustive()
    }
}

/// The progress of a run.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// The epoch that is being delivered.
    pub epoch: u32,
    /// Number of epochs.
    pub epochs: u32,
    /// Batches of an epoch.
    pub batches: u32,
    /// Delivered batches of this epoch.
    pub delivered: u32,
    /// Batches of this epoch that the CPU claimed.
    pub head: u32,
    /// Batches of this epoch that drives claimed.
    pub tail: u32,
    /// Images delivered in the run.
    pub images: u64,
    /// Seconds since the first batch was asked for.
    pub elapsed_s: f64,
    /// Part of `elapsed_s` in which the drive that holds the dataset did not answer.
    pub silent_s: f64,
    /// The drive that holds the dataset, and how long it has not answered, in words; `None` if it answers.
    pub silence: Option<String>,
    /// One entry per prong.
    pub prongs: Vec<ProngProgress>,
    /// Finished batches that wait for their delivery.
    pub ready: usize,
    /// Buffers in which no batch lies, and none is prepared.
    pub free_buffers: usize,
    /// Whether the consumer waits for a batch.
    pub waits: bool,
    /// Faults so far. A recovery does not count as one.
    pub faults: usize,
    /// Corrupt samples so far.
    pub corrupt: usize,
}

/// The progress of a prong.
#[derive(Clone, Debug, Default)]
pub struct ProngProgress {
    /// `cpu`, or the drive's name.
    pub name: String,
    /// Delivered images that the prong prepared.
    pub images: u64,
    /// Images that the prong prepared, delivered or not.
    pub prepared: u64,
    /// Images that the prong prepared per second of work.
    pub images_per_s: f64,
    /// Batches that the prong has in work.
    pub outstanding: usize,
    /// False while the drive is lost.
    pub is_up: bool,
}

impl ProgressHandle {
    /// Returns the position of the run after the batch that was delivered last: what
    /// [`Loader::state`](crate::Loader::state) returns.
    pub fn state(&self) -> LoaderState {
        let core = self.engine.lock();
        let fidelity = self.engine.task.fidelity.recorded();
        let state = LoaderState {
            epoch: core.schedule.current_epoch().unwrap_or(self.epochs),
            delivered: core.schedule.delivered(),
            ..self.fresh.clone()
        }
        .with_fidelity(fidelity);
        let (state, moved) = match core.taken_back {
            Some(id) => (state.without(id.epoch, id.batch, self.batches), &core.moved_before),
            None => (state, &core.moved),
        };
        let pairs = moved.pairs(state.epoch);
        let is_moved = !pairs.is_empty() || (self.engine.task.fetch.is_out_of_order() && !state.delivered.is_empty());
        state.with_moved(is_moved.then(|| MovedSamples { rank: self.engine.task.cut.rank as u32, pairs }))
    }

    /// Checks that the run can go on at a state, as [`Loader::go_to`](crate::Loader::go_to) does before it moves.
    ///
    /// # Errors
    ///
    /// [`LoaderError::State`] if the state is of another run.
    pub fn check(&self, state: &LoaderState) -> Result<(), LoaderError> {
        let RunTask { fidelity, cut, .. } = &self.engine.task;
        let fits = state.check_fits(&self.fresh, self.batches, fidelity);
        fits.and_then(|()| state.check_rank(&self.fresh, cut.rank as u32)).map_err(LoaderError::State)
    }

    /// Returns the figures of the run up to now.
    pub fn report(&self) -> Report {
        self.engine.memory.look();
        let mut report = self.engine.lock().recorder.report();
        report.peak_memory_mb = self.engine.memory.bytes() as f64 / 1e6;
        let read = self.engine.read.sum() + self.engine.task.dataset.bytes_read();
        let (mb, is_pack) = (|bytes: u64| bytes as f64 / 1e6, self.engine.task.dataset.kind() == "pack");
        (report.read_mb, report.read_samples_mb) = (mb(read.bytes), mb(read.sample_bytes));
        report.read_blocks_mb = is_pack.then(|| mb(read.block_bytes));
        report.requests = self.engine.requests();
        report.cache = self.engine.task.dataset.cache_use().map(CacheReport::from);
        report.slot_memory_mb = self.slots.iter().map(|slots| slots.shared_bytes()).sum::<usize>() as f64 / 1e6;
        report
    }

    /// Returns the progress of the run now.
    pub fn snapshot(&self) -> Progress {
        let silences = self.engine.task.dataset.silences();
        let core = self.engine.lock();
        let epoch = core.schedule.progress();
        let prongs = core.recorder.prongs().into_iter().enumerate().map(|(prong, report)| ProngProgress {
            name: report.name,
            images: report.images,
            prepared: report.prepared,
            images_per_s: report.images_per_s,
            outstanding: core.schedule.outstanding(prong),
            is_up: core.schedule.is_up(prong),
        });
        Progress {
            epoch: epoch.epoch,
            epochs: self.epochs,
            batches: self.batches,
            delivered: epoch.delivered,
            head: epoch.head,
            tail: epoch.tail,
            images: core.recorder.images(),
            elapsed_s: core.recorder.now(),
            silent_s: core.silence.of_run(silences.total).as_secs_f64(),
            silence: silences.now.as_ref().map(with_time_left),
            prongs: prongs.collect(),
            ready: core.ready.len(),
            free_buffers: self.engine.target.free(),
            waits: core.consumer_waits,
            faults: core.recorder.fault_count(),
            corrupt: core.recorder.corrupt_count(),
        }
    }
}

/// Says how long a silence has lasted, and how soon it ends the run.
fn with_time_left(silence: &Silence) -> String {
    let left_s = silence.remaining().as_secs_f64().ceil();
    format!("{silence}; the run ends in {left_s:.0} s unless the drive answers")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_time_of_a_silence_and_the_time_left_add_up_to_the_patience() {
        let patience = Duration::from_secs(60);
        let silence = |ms| {
            let lasts = Duration::from_millis(ms);
            with_time_left(&Silence { holder: "the drive tcp://x".into(), lasts, patience, failure: None })
        };
        let said = |lasts, left| {
            format!(
                "the drive tcp://x has not answered for {lasts} s; the run ends in {left} s unless the drive answers"
            )
        };
        assert_eq!(silence(1_003), said(1, 59));
        assert_eq!(silence(12_000), said(12, 48));
        assert_eq!(silence(61_000), said(61, 0));
    }
}
