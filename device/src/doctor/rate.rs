//! The agent's rate: images per second of all workers together, prepared by the workers' own path.

use super::finding::Finding;
use ddlp_csd::prepare::{EpochContext, SamplePreparer};
use ddlp_csd::program::{CorruptPolicy, Program};
use ddlp_dataset::Dataset;
use ddlp_pixels::{Fidelity, Limits, Pipeline};
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SUBJECT: &str = "rate";

/// Time of the measurement.
const TIME: Duration = Duration::from_secs(3);
/// Step from one sample to the next: a prime, so that the steps reach every sample of a dataset whose length is not a
/// multiple of it.
const STRIDE: u64 = 1_000_003;

/// Result of the measurement.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Rate {
    /// Workers that prepared images at the same time.
    pub workers: usize,
    /// Images that the workers took.
    pub images: u64,
    /// Images among these that could not be prepared.
    pub unprepared: u64,
    /// Images per second of all workers together.
    pub images_per_s: f64,
}

impl Rate {
    /// Measures for some seconds, and scales the rate by `fraction`, the configured fraction of full speed. Returns
    /// `None` for a dataset without samples.
    pub fn measure(dataset: &dyn Dataset, workers: usize, fraction: f64) -> Option<Self> {
        (!dataset.is_empty()).then(|| prepare_for(dataset, workers, fraction, TIME))
    }

    /// Returns the findings about the rate.
    pub fn findings(&self) -> Vec<Finding> {
        let workers = if self.workers == 1 { "worker prepares" } else { "workers prepare" };
        let text =
            format!("{} {workers} {:.0} images/s of the dataset (imagenet-train)", self.workers, self.images_per_s);
        let mut findings = vec![Finding::fine(SUBJECT, text)];
        if self.unprepared > 0 {
            let text = format!("{} of {} samples could not be prepared", self.unprepared, self.images);
            let advice = "`ddlp inspect` names the damaged ones; `ddlp run --policy` sets how a run treats them";
            findings.push(Finding::warning(SUBJECT, text, advice));
        }
        findings
    }
}

/// Returns the finding about a dataset in a store: its samples come at the rate of the store and of the path to it.
pub fn unmeasured() -> Finding {
    let text = "not measured, because the dataset lies in a store; `doctor` with a local pack measures the workers, \
                and `ddlp run URL --strategy cpu` the store";
    Finding::unchecked(SUBJECT, text)
}

/// Lets workers prepare samples until the time is over; each takes at least one.
fn prepare_for(dataset: &dyn Dataset, workers: usize, fraction: f64, time: Duration) -> Rate {
    let program =
        Program { pipeline: Pipeline::imagenet_train(), limits: Limits::default(), policy: CorruptPolicy::Skip };
    let (taken, unprepared) = (AtomicU64::new(0), AtomicU64::new(0));
    let start = Instant::now();
    let work = || {
        let mut preparer = SamplePreparer::new(&program);
        let mut row = vec![0; program.pipeline.output().bytes()];
        loop {
            let id = taken.fetch_add(1, Ordering::Relaxed).wrapping_mul(STRIDE) % dataset.len();
            let prepared =
                preparer.prepare(dataset, EpochContext { seed: 1, epoch: 0, fidelity: Fidelity::WHOLE }, id, &mut row);
            let has_row = prepared.is_ok_and(|record| record.has_row());
            unprepared.fetch_add(u64::from(!has_row), Ordering::Relaxed);
            if start.elapsed() >= time {
                return;
            }
        }
    };
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    let images = taken.load(Ordering::Relaxed);
    let images_per_s = images as f64 / start.elapsed().as_secs_f64() * fraction;
    Rate { workers, images, unprepared: unprepared.load(Ordering::Relaxed), images_per_s }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;
    use ddlp_pixels::encode::{JpegOptions, jpeg};

    #[test]
    fn each_worker_prepares_samples_and_the_finding_counts_the_failed_ones() {
        let folder = tempfile::tempdir().unwrap();
        let class = folder.path().join("class");
        std::fs::create_dir(&class).unwrap();
        std::fs::write(class.join("good.jpg"), jpeg(&[7; 48 * 40 * 3], 48, 40, &JpegOptions::default()).unwrap())
            .unwrap();
        std::fs::write(class.join("no.jpg"), "no image").unwrap();
        let dataset = ddlp_dataset::open(folder.path()).unwrap();
        let rate = prepare_for(&*dataset, 2, 0.5, Duration::ZERO);
        assert_eq!((rate.workers, rate.images, rate.unprepared), (2, 2, 1));
        assert!(rate.images_per_s > 0.0);
        let findings = Rate { images_per_s: 123.4, ..rate }.findings();
        assert_eq!(findings[0].text, "2 workers prepare 123 images/s of the dataset (imagenet-train)");
        assert_eq!(
            (findings[1].level, &*findings[1].text),
            (Severity::Warning, "1 of 2 samples could not be prepared")
        );
    }
}
