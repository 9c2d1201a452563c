//! What the stages of loading did while training took batches.

use super::measure::Interval;
use crate::loader::Loader;
use crate::report::ProngReport;
use crate::schedule::CPU;
use crate::usage::CoreTimes;
use serde::Serialize;
use std::ops::Add;

/// What each stage of loading did. Shares are of the time of the intervals with loading.
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

/// The loader's counters at a moment, or what they counted between two moments.
pub(super) struct Counters {
    busy_s: f64,
    reading_s: f64,
    fetching_s: f64,
    /// Times of the CPU prong's threads, if the system tells.
    cores: Option<CoreTimes>,
    prongs: Vec<ProngCounters>,
}

/// The counters of a prong.
struct ProngCounters {
    name: String,
    busy_s: f64,
    images: u64,
}

impl Counters {
    pub fn of(loader: &Loader) -> Self {
        let times = &loader.engine.work_times;
        let prongs = loader.engine.lock().recorder.prongs().into_iter();
        Self {
            busy_s: times.busy_s(),
            reading_s: times.reading_s(),
            fetching_s: times.fetching_s(),
            cores: loader.cpu_desks().iter().try_fold(CoreTimes::default(), |sum, desk| Some(sum + desk.core_times()?)),
            prongs: prongs.map(ProngCounters::of).collect(),
        }
    }

    /// Returns what was counted after an `earlier` moment.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            busy_s: self.busy_s - earlier.busy_s,
            reading_s: self.reading_s - earlier.reading_s,
            fetching_s: self.fetching_s - earlier.fetching_s,
            cores: self.cores.zip(earlier.cores).map(|(now, earlier)| now.since(earlier)),
            prongs: self.prongs.into_iter().zip(earlier.prongs).map(|(now, earlier)| now.since(&earlier)).collect(),
        }
    }
}

impl Add for Counters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            busy_s: self.busy_s + other.busy_s,
            reading_s: self.reading_s + other.reading_s,
            fetching_s: self.fetching_s + other.fetching_s,
            cores: self.cores.zip(other.cores).map(|(own, other)| own + other),
            prongs: self.prongs.into_iter().zip(other.prongs).map(|(own, other)| own + other).collect(),
        }
    }
}

impl ProngCounters {
    fn of(report: ProngReport) -> Self {
        Self { name: report.name, busy_s: report.busy_s, images: report.prepared }
    }

    fn since(self, earlier: &Self) -> Self {
        Self { busy_s: self.busy_s - earlier.busy_s, images: self.images - earlier.images, ..self }
    }
}

impl Add for ProngCounters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { busy_s: self.busy_s + other.busy_s, images: self.images + other.images, ..self }
    }
}

/// Sums over several intervals.
#[derive(Default)]
pub(super) struct StageSums {
    seconds: f64,
    stepping_s: f64,
    asked: usize,
    free_buffers: usize,
    /// `None` before the first interval.
    counted: Option<Counters>,
}

impl StageSums {
    /// Counts the buffers that are free when training asks for a batch.
    pub fn asked(&mut self, loader: &Loader) {
        self.asked += 1;
        self.free_buffers += loader.engine.target.free();
    }

    /// Adds an interval, with what was `counted` in it.
    pub fn add(&mut self, counted: Counters, interval: &Interval) {
        self.seconds += interval.seconds;
        self.stepping_s += interval.stepping_s;
        self.counted = Some(match self.counted.take() {
            Some(earlier) => earlier + counted,
            None => counted,
        });
    }

    /// Returns the shares. All of them are 0 before the first interval.
    pub fn stages(&self, loader: &Loader) -> Stages {
        let Some(counted) = &self.counted else { return Stages::default() };
        let threads = loader.cpu_desks().len();
        // A chunk of samples counts when it is done, so the sums may exceed the time by a chunk.
        let share = |part: f64, whole: f64| if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 0.0 };
        let all_s = self.seconds * threads as f64;
        let (busy, reading) = (share(counted.busy_s, all_s), share(counted.reading_s, all_s));
        let idle = 1.0 - busy;
        let fetchers = loader.fetch_threads();
        let images_per_s = |prong: &ProngCounters| prong.images as f64 / self.seconds;
        let drive_stage = |drive: &ProngCounters| DriveStage {
            name: drive.name.clone(),
            busy: share(drive.busy_s, self.seconds),
            images_per_s: images_per_s(drive),
        };
        Stages {
            waiting: share(self.seconds - self.stepping_s, self.seconds),
            threads,
            reading,
            decoding: (busy - reading).max(0.0),
            idle,
            queued: counted.cores.map(|times| share(times.queued_s, all_s)),
            blocked: counted.cores.map(|times| (busy - share(times.on_core_s + times.queued_s, all_s)).max(0.0)),
            fetching: (fetchers > 0).then(|| share(counted.fetching_s, self.seconds * fetchers as f64)),
            free_buffers: self.free_buffers as f64 / self.asked.max(1) as f64,
            cpu_images_per_s: counted.prongs.get(CPU).map_or(0.0, images_per_s),
            drives: counted.prongs.iter().skip(CPU + 1).map(drive_stage).collect(),
        }
    }
}
