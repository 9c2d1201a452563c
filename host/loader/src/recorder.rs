//! Keeps the figures of a run, and makes its report.

use crate::report::{
    CorruptReport, Delivery, EpochReport, FaultKind, FaultReport, ProngReport, Report, Span, TIMELINE_ENTRIES_MAX,
    Timeline,
};
use crate::schedule::{BatchId, ProngId};
use crate::usage;
use std::collections::HashMap;
use std::time::Instant;

/// Largest number of corrupt samples, and of faults, that the report lists; all are counted.
pub const LISTED_MAX: usize = 10_000;

/// A batch that was delivered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivered {
    pub id: BatchId,
    pub prong: ProngId,
    /// Number of images.
    pub images: usize,
}

#[derive(Debug, Default)]
struct ProngRecord {
    report: ProngReport,
    working: HashMap<BatchId, f64>,
    busy_since: f64,
}

/// The figures of a run.
#[derive(Debug)]
pub(crate) struct Recorder {
    start: Option<Instant>,
    start_cpu_s: f64,
    energy: Option<usage::EnergyMeter>,
    prongs: Vec<ProngRecord>,
    report: Report,
    spans: Thinned<Span>,
    deliveries: Thinned<Delivery>,
    end_s: f64,
    /// Whether the next batch begins an entry of the report's epochs, whatever its epoch.
    begins_epoch: bool,
    /// Faults. A recovery does not count as one.
    faults: usize,
    /// Unlisted faults, recoveries included.
    unlisted_faults: usize,
    corrupt: usize,
}

impl Recorder {
    /// Creates a recorder; `report` has the fields that are known before the run.
    pub fn new(report: Report, prongs: Vec<String>) -> Self {
        let prongs = prongs
            .into_iter()
            .map(|name| ProngRecord {
                report: ProngReport { name, ..ProngReport::default() },
                ..ProngRecord::default()
            })
            .collect();
        Self {
            start: None,
            start_cpu_s: 0.0,
            energy: None,
            prongs,
            report,
            spans: Thinned::new(),
            deliveries: Thinned::new(),
            end_s: 0.0,
            begins_epoch: true,
            faults: 0,
            unlisted_faults: 0,
            corrupt: 0,
        }
    }

    /// Records the device to which batches are delivered.
    pub fn delivers_to(&mut self, device: Option<String>) {
        self.report.device = device;
    }

    /// Starts the clock, at the first call only.
    pub fn start(&mut self) {
        if self.start.is_none() {
            self.start = Some(Instant::now());
            self.start_cpu_s = usage::cpu_s();
            self.energy = usage::EnergyMeter::start();
        }
    }

    /// Records that the run goes on at another position: nobody works on its former batches.
    pub fn restart(&mut self) {
        let now = self.now();
        for record in &mut self.prongs {
            if !record.working.is_empty() {
                record.report.busy_s += now - record.busy_since;
            }
            record.report.wasted_batches += record.working.len() as u64;
            record.working.clear();
        }
        self.begins_epoch = true;
    }

    /// Returns the seconds since the start.
    pub fn now(&self) -> f64 {
        self.start.map_or(0.0, |start| start.elapsed().as_secs_f64())
    }

    pub fn claimed(&mut self, prong: ProngId, id: BatchId) {
        let now = self.now();
        let record = &mut self.prongs[prong];
        if record.working.is_empty() {
            record.busy_since = now;
        }
        record.working.insert(id, now);
    }

    /// Excludes the last `seconds` from the prong's busy time.
    pub fn exclude(&mut self, prong: ProngId, seconds: f64) {
        let now = self.now();
        let record = &mut self.prongs[prong];
        record.busy_since = (record.busy_since + seconds).min(now);
    }

    /// Records that the prong's processor is done with the batch, or gave it up.
    pub fn released(&mut self, prong: ProngId, id: BatchId, used: bool) {
        let now = self.now();
        let record = &mut self.prongs[prong];
        let Some(start_s) = record.working.remove(&id) else { return };
        if record.working.is_empty() {
            record.report.busy_s += now - record.busy_since;
        }
        record.report.wasted_batches += u64::from(!used);
        self.spans.push(Span { prong, epoch: id.epoch, batch: id.batch, start_s, end_s: now, used });
    }

    /// Records that a finished batch of the prong was given up.
    pub fn wasted(&mut self, prong: ProngId, id: BatchId) {
        self.prongs[prong].report.wasted_batches += 1;
        let is_its = |span: &&mut Span| (span.prong, span.epoch, span.batch) == (prong, id.epoch, id.batch);
        if let Some(span) = self.spans.kept.iter_mut().rev().find(is_its) {
            span.used = false;
        }
    }

    /// Records that a batch of the prong is ready, with this many images.
    pub fn prepared(&mut self, prong: ProngId, images: usize) {
        self.prongs[prong].report.prepared += images as u64;
    }

    pub fn delivered(&mut self, Delivered { id, prong, images }: Delivered, asked_s: f64, met: Option<u32>) {
        let now = self.now();
        self.end_s = now;
        self.report.batches += 1;
        self.report.images += images as u64;
        self.report.consumer_wait_s += now - asked_s;
        if self.report.batches == 1 {
            self.report.first_batch_s = now;
        }
        let record = &mut self.prongs[prong].report;
        record.batches += 1;
        record.images += images as u64;
        self.deliveries.push(Delivery {
            prong,
            epoch: id.epoch,
            batch: id.batch,
            images: images as u32,
            asked_s,
            at_s: now,
        });
        self.count_in_epoch(prong, id, images, asked_s, met);
        self.tick();
    }

    /// Records that the batch which was delivered last did not reach the consumer.
    pub fn taken_back(&mut self, Delivered { id, prong, images }: Delivered) {
        self.report.batches -= 1;
        self.report.images -= images as u64;
        if self.report.batches == 0 {
            self.report.first_batch_s = 0.0;
        }
        let record = &mut self.prongs[prong].report;
        record.batches -= 1;
        record.images -= images as u64;
        self.deliveries.kept.pop_if(|last| (last.epoch, last.batch) == (id.epoch, id.batch));
        if let Some(epoch) = self.report.epochs.last_mut() {
            epoch.batches -= 1;
            epoch.images -= images as u64;
            epoch.batches_by_prong[prong] -= 1;
        }
        self.report.epochs.pop_if(|epoch| epoch.batches == 0);
    }

    /// Records that the run failed while the consumer waited for a batch.
    pub fn failed(&mut self, asked_s: f64) {
        self.end_s = self.now();
        self.report.consumer_wait_s += self.end_s - asked_s;
    }

    fn count_in_epoch(&mut self, prong: ProngId, id: BatchId, images: usize, asked_s: f64, met: Option<u32>) {
        let now = self.now();
        let begins = std::mem::take(&mut self.begins_epoch);
        if begins || self.report.epochs.last().is_none_or(|epoch| epoch.epoch != id.epoch) {
            self.report.epochs.push(EpochReport {
                epoch: id.epoch,
                start_s: asked_s,
                first_batch_s: now - asked_s,
                batches_by_prong: vec![0; self.prongs.len()],
                ..EpochReport::default()
            });
        }
        let epoch = self.report.epochs.last_mut().expect("pushed above");
        epoch.batches += 1;
        epoch.images += images as u64;
        epoch.end_s = now;
        epoch.meeting_point = met.or(epoch.meeting_point);
        epoch.batches_by_prong[prong] += 1;
    }

    /// Reads the energy counters when a reading is due. Call it often: the counters wrap.
    pub fn tick(&mut self) {
        if let Some(energy) = &mut self.energy {
            energy.tick();
        }
    }

    /// Returns a prong's name in messages.
    pub fn name(&self, prong: ProngId) -> String {
        self.prongs[prong].report.name.clone()
    }

    pub fn fault(&mut self, prong: ProngId, batch: Option<BatchId>, kind: FaultKind, what: String) {
        let name = self.name(prong);
        tracing::warn!(prong = name, kind = kind.name(), "{what}");
        let batch = batch.map(|id| (id.epoch, id.batch));
        let fault = FaultReport { at_s: self.now(), prong: name, batch, kind, what };
        self.faults += usize::from(!fault.is_recovery());
        if self.report.faults.len() < LISTED_MAX {
            self.report.faults.push(fault);
        } else {
            self.unlisted_faults += 1;
        }
    }

    pub fn corrupt(&mut self, sample: CorruptReport) {
        self.corrupt += 1;
        if self.report.corrupt.len() < LISTED_MAX {
            self.report.corrupt.push(sample);
        }
    }

    pub fn warned(&mut self, samples: usize) {
        self.report.warned += samples as u64;
    }

    /// Adds a note, unless the report has it already.
    pub fn note(&mut self, note: String) {
        if !self.report.notes.contains(&note) {
            self.report.notes.push(note);
        }
    }

    /// Records the figures that a drive reports of itself at the end.
    pub fn drive_usage(
        &mut self,
        prong: ProngId,
        cpu_s: Option<f64>,
        peak_memory_mb: Option<f64>,
        energy_j: Option<f64>,
    ) {
        let report = &mut self.prongs[prong].report;
        (report.cpu_s, report.peak_memory_mb, report.energy_j) = (cpu_s, peak_memory_mb, energy_j);
    }

    /// Returns the prongs' figures as of now.
    pub fn prongs(&self) -> Vec<ProngReport> {
        let now = self.now();
        let as_of_now = |record: &ProngRecord| {
            let mut prong = record.report.clone();
            if !record.working.is_empty() {
                prong.busy_s += now - record.busy_since;
            }
            prong.images_per_s = if prong.busy_s > 0.0 { prong.prepared as f64 / prong.busy_s } else { 0.0 };
            prong
        };
        self.prongs.iter().map(as_of_now).collect()
    }

    pub fn images(&self) -> u64 {
        self.report.images
    }

    pub fn fault_count(&self) -> usize {
        self.faults
    }

    pub fn corrupt_count(&self) -> usize {
        self.corrupt
    }

    /// Returns the report as of now.
    pub fn report(&self) -> Report {
        let mut report = self.report.clone();
        report.seconds = self.end_s;
        report.images_per_s = if self.end_s > 0.0 { report.images as f64 / self.end_s } else { 0.0 };
        report.host_cpu_s = if self.start.is_some() { usage::cpu_s() - self.start_cpu_s } else { 0.0 };
        report.host_energy_j = self.energy.as_ref().and_then(usage::EnergyMeter::joules);
        report.meeting_point = report.epochs.last().and_then(|epoch| epoch.meeting_point);
        report.prongs = self.prongs();
        if self.unlisted_faults > 0 {
            report.notes.push(format!("{} more faults are not listed", self.unlisted_faults));
        }
        let unlisted = self.corrupt - report.corrupt.len();
        if unlisted > 0 {
            report.notes.push(format!("{unlisted} more corrupt samples are not listed"));
        }
        report.timeline = Timeline {
            kept_every: self.spans.every.max(self.deliveries.every),
            spans: self.spans.kept.clone(),
            deliveries: self.deliveries.kept.clone(),
        };
        report
    }
}

/// A list that, whenever it is full, drops every other entry and from then on records half as often.
#[derive(Debug)]
struct Thinned<T> {
    kept: Vec<T>,
    every: usize,
    seen: usize,
}

impl<T> Thinned<T> {
    fn new() -> Self {
        Self { kept: Vec::new(), every: 1, seen: 0 }
    }

    fn push(&mut self, entry: T) {
        if self.seen.is_multiple_of(self.every) {
            if self.kept.len() == TIMELINE_ENTRIES_MAX {
                let mut at = 0;
                self.kept.retain(|_| {
                    at += 1;
                    at % 2 == 1
                });
                self.every *= 2;
            }
            self.kept.push(entry);
        }
        self.seen += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_list_is_thinned_evenly() {
        let mut list = Thinned::new();
        for entry in 0..3 * TIMELINE_ENTRIES_MAX {
            list.push(entry);
        }
        assert!(list.kept.len() <= TIMELINE_ENTRIES_MAX);
        assert_eq!(list.every, 4);
        assert_eq!(list.kept[..3], [0, 4, 8]);
    }

    #[test]
    fn busy_time_is_the_union_of_overlapping_batches() {
        let mut recorder = Recorder::new(Report::default(), vec!["cpu".into()]);
        recorder.start();
        let id = |batch| BatchId { epoch: 0, batch };
        recorder.claimed(0, id(0));
        recorder.claimed(0, id(1));
        recorder.released(0, id(0), true);
        recorder.released(0, id(1), false);
        let report = recorder.report();
        let (first, second) = (report.timeline.spans[0], report.timeline.spans[1]);
        assert!((report.prongs[0].busy_s - (second.end_s - first.start_s)).abs() < 1e-9);
        assert_eq!(report.prongs[0].wasted_batches, 1);
    }

    #[test]
    fn a_time_without_work_is_no_busy_time_even_if_it_began_before_the_batch() {
        let mut recorder = Recorder::new(Report::default(), vec!["cpu".into()]);
        recorder.start();
        let id = BatchId { epoch: 0, batch: 0 };
        recorder.claimed(0, id);
        recorder.exclude(0, 3600.0);
        recorder.released(0, id, true);
        let busy_s = recorder.report().prongs[0].busy_s;
        assert!((0.0..3600.0).contains(&busy_s), "{busy_s}");
    }

    #[test]
    fn a_batch_given_up_after_preparation_counts_as_wasted() {
        let mut recorder = Recorder::new(Report::default(), vec!["cpu".into()]);
        recorder.start();
        for id in [0, 1].map(|batch| BatchId { epoch: 0, batch }) {
            recorder.claimed(0, id);
            recorder.released(0, id, true);
        }
        recorder.wasted(0, BatchId { epoch: 0, batch: 0 });
        let report = recorder.report();
        assert_eq!(report.prongs[0].wasted_batches, 1);
        assert_eq!(report.timeline.spans.iter().map(|span| span.used).collect::<Vec<_>>(), [false, true]);
    }
}
