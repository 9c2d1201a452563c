//! What the board prepares: images per second of one core of each kind, by the very path that the workers take.

use super::cores::Cores;
use super::finding::Finding;
use super::sample::{SIZE, Samples};
use ddlp_csd::prepare::{EpochContext, SamplePreparer};
use ddlp_csd::program::{CorruptPolicy, Program};
use ddlp_csd::slot::SampleRecord;
use ddlp_dataset::Dataset;
use ddlp_pixels::{Limits, Pipeline};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use serde::Serialize;
use std::time::{Duration, Instant};

const SUBJECT: &str = "speed";

/// How long the built-in images are measured in all, and how long those of the dataset.
const TIME: Duration = Duration::from_secs(2);
/// Takes another sample of a dataset each time, from all over it, for datasets of any length that is no multiple of it.
const STRIDE: u64 = 1_000_003;

/// What one core did.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CoreRate {
    /// The core.
    pub core: usize,
    /// Cores like it that may be used, itself included.
    pub alike: usize,
    /// Images that it prepared.
    pub images: u64,
    /// Different ones among them.
    pub samples: u64,
    /// Of those, the ones that could not be prepared.
    pub unprepared: u64,
    /// Images per second.
    pub images_per_s: f64,
    /// Encoded bytes of an image, on average.
    pub image_bytes: f64,
}

/// What the board prepares.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Rate {
    /// Built-in images, one core of each kind.
    pub built_in: Vec<CoreRate>,
    /// Images of the dataset, reading included, on a core of the fastest kind.
    pub dataset: Option<CoreRate>,
    /// Workers that work at a time.
    pub workers: usize,
    /// Images per second of all of them, if each keeps its pace, for the built-in images.
    pub expected_images_per_s: Option<f64>,
    /// The same for images of the dataset.
    pub expected_of_dataset_images_per_s: Option<f64>,
    /// Why there is no figure.
    pub obstacle: Option<String>,
}

impl Rate {
    /// Measures, for about two seconds, and as long again with a dataset. `throttle` is the fraction of full speed that is configured.
    pub fn measure(cores: &Cores, dataset: Option<&dyn Dataset>, throttle: f64) -> Self {
        let mut rate = Self { workers: cores.parallel(), ..Self::default() };
        if let Err(obstacle) = rate.fill(cores, dataset, throttle) {
            rate.obstacle = Some(obstacle);
        }
        rate
    }

    fn fill(&mut self, cores: &Cores, dataset: Option<&dyn Dataset>, throttle: f64) -> Result<(), String> {
        let samples = Samples::make().map_err(|error| error.to_string())?;
        let kinds = cores.samples();
        for &kind in &kinds {
            self.built_in.push(on_core(kind, &samples, TIME / kinds.len() as u32)?);
        }
        self.expected_images_per_s = Some(total(&self.built_in, self.workers) * throttle);
        if let (Some(dataset), Some(&kind)) = (dataset, kinds.first()) {
            let measured = on_core(kind, dataset, TIME)?;
            // The other kinds were not measured with it: they are taken to be slower by as much as with built-in images.
            let pace = measured.images_per_s / self.built_in[0].images_per_s;
            self.expected_of_dataset_images_per_s = self.expected_images_per_s.map(|expected| expected * pace);
            self.dataset = Some(measured);
        }
        Ok(())
    }

    /// Images per second to reckon with, and the encoded bytes of one.
    pub fn expected(&self) -> Option<(f64, f64)> {
        match (&self.dataset, self.expected_of_dataset_images_per_s) {
            (Some(measured), Some(expected)) => Some((expected, measured.image_bytes)),
            _ => Some((self.expected_images_per_s?, self.built_in.first()?.image_bytes)),
        }
    }

    /// What there is to say.
    pub fn findings(&self) -> Vec<Finding> {
        if let Some(obstacle) = &self.obstacle {
            let advice = "without a figure, measure with `ddlp run` against the drive";
            return vec![Finding::warning(SUBJECT, format!("not measured: {obstacle}"), advice)];
        }
        let mut findings = Vec::new();
        let each = |rate: &CoreRate| format!("core {} prepares {} images/s", rate.core, about(rate.images_per_s));
        let cores: Vec<String> = self.built_in.iter().map(each).collect();
        if let Some(expected) = self.expected_images_per_s {
            let (width, height) = SIZE;
            let text = format!("imagenet-train, photographs of {width} × {height}: {}", cores.join(", "));
            findings.push(Finding::fine(SUBJECT, format!("{text}; {}", self.together(expected))));
        }
        if let (Some(rate), Some(expected)) = (&self.dataset, self.expected_of_dataset_images_per_s) {
            let text = format!("imagenet-train, this dataset, reading included: {}", each(rate));
            findings.push(Finding::fine(SUBJECT, format!("{text}; {}", self.together(expected))));
            if rate.unprepared > 0 {
                let text = format!("{} of {} samples could not be prepared", rate.unprepared, rate.samples);
                let advice = "`ddlp inspect` names the damaged ones; `ddlp run --policy` says what becomes of them";
                findings.push(Finding::warning(SUBJECT, text, advice));
            }
        }
        let caution = "one core at a time was measured: together they share memory, heat and the network's work, so take the \
                       sum as an upper bound";
        findings.push(Finding::fine(SUBJECT, caution));
        findings
    }

    fn together(&self, expected: f64) -> String {
        let workers = if self.workers == 1 { "worker" } else { "workers" };
        format!("{} {workers}: at most {} images/s", self.workers, about(expected))
    }
}

/// Images per second of the `workers` fastest cores.
fn total(kinds: &[CoreRate], workers: usize) -> f64 {
    let mut cores: Vec<f64> =
        kinds.iter().flat_map(|kind| std::iter::repeat_n(kind.images_per_s, kind.alike)).collect();
    cores.sort_by(|a, b| b.total_cmp(a));
    cores.iter().take(workers).sum()
}

/// A figure with the two digits that count.
pub fn about(value: f64) -> String {
    if value < 10.0 {
        return format!("{value:.1}");
    }
    let unit = 10f64.powi(value.log10().floor() as i32 - 1);
    format!("{:.0}", (value / unit).round() * unit)
}

/// Prepares samples on one core until the time is over.
fn on_core((core, alike): (usize, usize), dataset: &dyn Dataset, time: Duration) -> Result<CoreRate, String> {
    let measure = || -> Result<CoreRate, String> {
        let mut set = CpuSet::new();
        let pinned = set.set(core).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
        pinned.map_err(|errno| format!("this process may not choose core {core}: {}", errno.desc()))?;
        Ok(prepare(dataset, time, core, alike))
    };
    // A thread of its own is pinned, not the one that goes on afterwards.
    std::thread::scope(|scope| scope.spawn(measure).join()).unwrap_or_else(|_| Err("the measurement panicked".into()))
}

fn prepare(dataset: &dyn Dataset, time: Duration, core: usize, alike: usize) -> CoreRate {
    let program =
        Program { pipeline: Pipeline::imagenet_train(), limits: Limits::default(), policy: CorruptPolicy::Skip };
    let context = EpochContext { seed: 1, epoch: 0 };
    let mut preparer = SamplePreparer::new(&program);
    let mut row = vec![0; program.pipeline.output().bytes()];
    let id = |number: u64| number.wrapping_mul(STRIDE) % dataset.len();
    // The first one finds memory and frequency cold.
    let _ = preparer.prepare(dataset, &program, context, id(0), &mut row);
    let (mut images, mut unprepared, mut encoded) = (0, 0, 0);
    let start = Instant::now();
    while images == 0 || start.elapsed() < time {
        images += 1;
        let prepared = preparer.prepare(dataset, &program, context, id(images), &mut row);
        let record = prepared.ok().filter(SampleRecord::has_row);
        // After that many the same ones come again.
        unprepared += u64::from(images <= dataset.len() && record.is_none());
        encoded += record.map_or(0, |record| dataset.location(record.index).length);
    }
    let images_per_s = images as f64 / start.elapsed().as_secs_f64();
    let samples = images.min(dataset.len());
    CoreRate { core, alike, images, samples, unprepared, images_per_s, image_bytes: encoded as f64 / images as f64 }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;
    use ddlp_dataset::{Identity, Location, ReadError};
    use ddlp_pixels::Source;

    fn kind(alike: usize, images_per_s: f64) -> CoreRate {
        CoreRate { core: 0, alike, images: 20, samples: 10, unprepared: 0, images_per_s, image_bytes: 1e5 }
    }

    #[test]
    fn the_fastest_cores_are_taken_first() {
        let kinds = [kind(4, 100.0), kind(4, 300.0)];
        assert_eq!([1, 5, 8, 20].map(|workers| total(&kinds, workers)), [300.0, 1300.0, 1600.0, 1600.0]);
    }

    /// One sample that is no image.
    struct Damaged;

    impl Dataset for Damaged {
        fn len(&self) -> u64 {
            1
        }

        fn classes(&self) -> &[String] {
            &[]
        }

        fn label(&self, _index: u64) -> u32 {
            0
        }

        fn name(&self, _index: u64) -> String {
            "damaged".into()
        }

        fn location(&self, _index: u64) -> Location {
            Location { file: "memory".into(), offset: 0, length: 0 }
        }

        fn sample<'a>(&'a self, _index: u64, buf: &'a mut Vec<u8>) -> Result<Source<'a>, ReadError> {
            buf.clear();
            Ok(Source::Encoded(buf))
        }

        fn identity(&self) -> Identity {
            Identity::from_bytes([0; 32])
        }

        fn kind(&self) -> &'static str {
            "damaged"
        }
    }

    #[test]
    fn a_sample_that_comes_again_counts_once() {
        let measured = prepare(&Damaged, Duration::from_millis(20), 0, 1);
        assert!(measured.images > 1, "there is time for it again and again");
        assert_eq!((measured.samples, measured.unprepared), (1, 1));
    }

    #[test]
    fn figures_are_rounded() {
        assert_eq!([0.0, 7.63, 123.0, 1951.0].map(about), ["0.0", "7.6", "120", "2000"].map(str::to_owned));
    }

    #[test]
    fn samples_are_images_and_the_unprepared_are_told() {
        let samples = Samples::make().unwrap();
        let measured = prepare(&samples, Duration::ZERO, 3, 2);
        assert_eq!((measured.core, measured.alike, measured.images, measured.unprepared), (3, 2, 1, 0));
        assert!((20_000.0..400_000.0).contains(&measured.image_bytes), "{}", measured.image_bytes);
        let mut rate = Rate {
            built_in: vec![kind(4, 100.0)],
            dataset: Some(CoreRate { unprepared: 2, ..kind(4, 50.0) }),
            workers: 4,
            expected_images_per_s: Some(400.0),
            expected_of_dataset_images_per_s: Some(200.0),
            obstacle: None,
        };
        assert_eq!(rate.expected(), Some((200.0, 1e5)));
        let findings = rate.findings();
        assert!(findings[1].text.ends_with("core 0 prepares 50 images/s; 4 workers: at most 200 images/s"));
        assert_eq!(
            (findings[2].level, findings[2].text.as_str()),
            (Level::Warning, "2 of 10 samples could not be prepared")
        );
        rate.dataset = None;
        assert_eq!(rate.expected(), Some((400.0, 1e5)));
    }
}
