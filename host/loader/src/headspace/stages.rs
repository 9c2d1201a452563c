//! What the stages of loading did while training took batches.

use super::measure::Window;
use crate::loader::Loader;
use crate::report::ProngReport;
use crate::schedule::CPU;
use crate::usage::CoreTimes;
use serde::Serialize;

/// What each stage of loading did. Shares are of the time of the windows with loading.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Stages {
    /// Share of the time in which training waited for a batch.
    pub waiting: f64,
    /// Threads of the CPU prong.
    pub threads: usize,
    /// Share of these threads' time in which they read samples.
    pub reading: f64,
    /// Share in which they decoded and transformed samples.
    pub decoding: f64,
    /// Share in which they had no work.
    pub idle: f64,
    /// Share in which they could have worked but another thread had their core, if the system tells.
    pub queued: Option<f64>,
    /// Share in which they waited for a disk or a network, if the system tells.
    pub blocked: Option<f64>,
    /// Share of the fetch threads' time in which they fetched samples, if the dataset has such threads.
    pub fetching: Option<f64>,
    /// Buffers without a batch when training asked for one, on average.
    pub free_buffers: f64,
    /// Images per second that the CPU prepared.
    pub cpu_images_per_s: f64,
    /// One entry for each drive.
    pub drives: Vec<DriveStage>,
}

/// What a drive did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DriveStage {
    /// Name of the drive.
    pub name: String,
    /// Share of the time in which the drive had a batch in work.
    pub busy: f64,
    /// Images per second that the drive prepared.
    pub images_per_s: f64,
}

/// The loader's counters at a moment.
pub(super) struct Counters {
    busy_s: f64,
    reading_s: f64,
    fetching_s: f64,
    /// Times of the CPU prong's threads, if the system tells.
    cores: Option<CoreTimes>,
    prongs: Vec<ProngReport>,
}

impl Counters {
    pub fn of(loader: &Loader) -> Self {
        let times = &loader.engine.work_times;
        Self {
            busy_s: times.busy_s(),
            reading_s: times.reading_s(),
            fetching_s: times.fetching_s(),
            cores: loader.cpu_desks().iter().try_fold(CoreTimes::default(), |sum, desk| Some(sum + desk.core_times()?)),
            prongs: loader.engine.lock().recorder.prongs(),
        }
    }
}

/// Sums over several windows.
#[derive(Default)]
pub(super) struct StageSums {
    seconds: f64,
    stepping_s: f64,
    busy_s: f64,
    reading_s: f64,
    fetching_s: f64,
    /// `None` once the system did not tell.
    cores: Option<CoreTimes>,
    windows: usize,
    asked: usize,
    free_buffers: usize,
    /// Busy seconds and prepared images of each prong.
    prongs: Vec<(String, f64, f64)>,
}

impl StageSums {
    /// Counts what is free when training asks for a batch.
    pub fn asked(&mut self, loader: &Loader) {
        self.asked += 1;
        self.free_buffers += loader.engine.target.free();
    }

    /// Adds a window, with the counters at its beginning and at its end.
    pub fn add(&mut self, before: &Counters, after: &Counters, window: &Window) {
        self.seconds += window.seconds;
        self.stepping_s += window.stepping_s;
        self.busy_s += after.busy_s - before.busy_s;
        self.reading_s += after.reading_s - before.reading_s;
        self.fetching_s += after.fetching_s - before.fetching_s;
        let passed = after.cores.zip(before.cores).map(|(after, before)| after.since(before));
        let earlier = if self.windows == 0 { Some(CoreTimes::default()) } else { self.cores };
        self.cores = earlier.zip(passed).map(|(earlier, passed)| earlier + passed);
        self.windows += 1;
        self.prongs.resize_with(after.prongs.len(), Default::default);
        for (sum, (before, after)) in self.prongs.iter_mut().zip(before.prongs.iter().zip(&after.prongs)) {
            let (_, busy_s, images) = &*sum;
            let prepared = after.prepared - before.prepared;
            *sum = (after.name.clone(), busy_s + after.busy_s - before.busy_s, images + prepared as f64);
        }
    }

    /// Returns the shares.
    pub fn stages(&self, loader: &Loader) -> Stages {
        let threads = loader.cpu_desks().len();
        // A chunk of samples counts when it is done, so the sums may exceed the time by a chunk.
        let share = |part: f64, whole: f64| if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 0.0 };
        let all_s = self.seconds * threads as f64;
        let (busy, reading) = (share(self.busy_s, all_s), share(self.reading_s, all_s));
        let idle = 1.0 - busy;
        let fetchers = loader.fetch_threads();
        Stages {
            waiting: share(self.seconds - self.stepping_s, self.seconds),
            threads,
            reading,
            decoding: (busy - reading).max(0.0),
            idle,
            queued: self.cores.map(|times| share(times.queued_s, all_s)),
            blocked: self.cores.map(|times| (busy - share(times.on_core_s + times.queued_s, all_s)).max(0.0)),
            fetching: (fetchers > 0).then(|| share(self.fetching_s, self.seconds * fetchers as f64)),
            free_buffers: self.free_buffers as f64 / self.asked.max(1) as f64,
            cpu_images_per_s: self.prongs.get(CPU).map_or(0.0, |(.., images)| images / self.seconds),
            drives: self
                .prongs
                .iter()
                .skip(CPU + 1)
                .map(|(name, busy_s, images)| DriveStage {
                    name: name.clone(),
                    busy: share(*busy_s, self.seconds),
                    images_per_s: images / self.seconds,
                })
                .collect(),
        }
    }
}
