//! Runs the loader, and keeps the results that tests compare.

use crate::agent::program;
pub use ddlp_cause::with_causes as chain;
use ddlp_host::report::{FaultKind, FaultReport};
use ddlp_host::{
    Batch, DType, Digest, DriveSpec, Element, Host, ImageLayout, Loader, LoaderBuilder, LocalDrive, LocalResults,
    Normalize, ProgressHandle, Report,
};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time that neither a batch of a drive nor a run exceeds, however busy the machine is.
const LENIENT: Duration = Duration::from_secs(300);

/// Result of a run.
pub struct Run {
    /// Digest over (sample id, pixels), regardless of the order.
    pub digest: String,
    /// Digest over (sample id, pixels) in the order of delivery.
    pub ordered_digest: String,
    /// Epoch, batch and prong of each batch, in the order of delivery.
    pub order: Vec<(u32, u32, usize)>,
    /// Requested sample ids of each batch, in the order of delivery.
    pub batches: Vec<Vec<u64>>,
    /// Number of times that each (epoch, requested sample id) was delivered.
    pub counts: BTreeMap<(u32, u64), u32>,
    /// Report of the loader.
    pub report: Report,
    /// Plan of the loader.
    pub plan: ddlp_host::Plan,
}

impl Run {
    /// Runs a loader to the end; `each` sees every batch.
    pub fn with(builder: LoaderBuilder, each: impl FnMut(&Batch, &Loader)) -> Self {
        Self::over(
            builder.build().unwrap_or_else(|error| panic!("the loader cannot be built: {}", chain(&error))),
            each,
        )
    }

    /// Runs an existing loader to the end.
    pub fn over(mut loader: Loader, mut each: impl FnMut(&Batch, &Loader)) -> Self {
        let mut digest = Digest::default();
        let (mut order, mut batches, mut counts) = (Vec::new(), Vec::new(), BTreeMap::new());
        while let Some(batch) = loader.next() {
            let batch = batch.unwrap_or_else(|error| panic!("a batch is missing: {}", chain(&error)));
            digest.update(&batch).expect("images that this process can read");
            order.push((batch.epoch(), batch.index(), batch.prong()));
            for &id in batch.requested_ids() {
                *counts.entry((batch.epoch(), id)).or_insert(0) += 1;
            }
            each(&batch, &loader);
            batches.push(batch.requested_ids().to_vec());
        }
        Self {
            digest: digest.unordered(),
            ordered_digest: digest.ordered(),
            order,
            batches,
            counts,
            report: loader.report(),
            plan: loader.plan(),
        }
    }

    /// Runs a loader to the end.
    pub fn of(builder: LoaderBuilder) -> Self {
        Self::with(builder, |_, _| ())
    }

    /// Runs a loader for as many epochs as it takes until a condition is true, five minutes at most. `is_over` is asked
    /// after each batch.
    pub fn until(what: &str, builder: LoaderBuilder, mut is_over: impl FnMut(&Batch, &Loader) -> bool) -> Self {
        let begun = Instant::now();
        Self::with(builder.with(|o| o.epochs = 1_000_000), |batch, loader| {
            assert!(begun.elapsed() < LENIENT, "{what} within five minutes");
            if is_over(batch, loader) {
                loader.stopper().stop();
            }
        })
    }

    /// Runs a loader until it has delivered this many batches.
    pub fn of_batches(batches: usize, builder: LoaderBuilder) -> Self {
        let mut left = batches;
        Self::until("the number of batches", builder, |_, _| {
            left -= 1;
            left == 0
        })
    }

    /// Asserts that each of `samples` samples came once in each of `epochs` epochs.
    pub fn assert_exactly_once(&self, epochs: u32, samples: u64) {
        assert_eq!(self.counts.len() as u64, u64::from(epochs) * samples, "samples are missing");
        let doubled: Vec<_> = self.counts.iter().filter(|&(_, &count)| count != 1).collect();
        assert!(doubled.is_empty(), "samples came twice: {doubled:?}");
    }

    /// Returns the number of faults of a kind.
    pub fn faults(&self, kind: FaultKind) -> usize {
        self.report.faults.iter().filter(|fault| fault.kind == kind).count()
    }

    /// Returns all faults except those that any run may have on a busy machine.
    pub fn troubles(&self) -> Vec<&FaultReport> {
        troubles(&self.report)
    }

    /// Returns the number of batches that drives made.
    pub fn drive_batches(&self) -> usize {
        self.order.iter().filter(|&&(_, _, prong)| prong > 0).count()
    }
}

/// Result of a run that delivers floats.
pub struct FloatRun {
    /// A hash of the values of each (epoch, sample id).
    pub values: BTreeMap<(u32, u64), u64>,
    /// Epoch, batch and prong of each batch, in the order of delivery.
    pub order: Vec<(u32, u32, usize)>,
    /// Report of the loader.
    pub report: Report,
}

impl FloatRun {
    /// Runs a loader to the end, normalised as for ImageNet; `each` sees the loader after every batch. No sample may
    /// come twice.
    pub fn with(builder: LoaderBuilder, mut each: impl FnMut(&Loader)) -> Self {
        let built = builder
            .with(|o| (o.dtype, o.layout, o.normalize) = (DType::F32, ImageLayout::Nchw, Some(Normalize::IMAGENET)))
            .build();
        let mut loader = built.unwrap_or_else(|error| panic!("the loader cannot be built: {}", chain(&error)));
        let (mut values, mut order) = (BTreeMap::new(), Vec::new());
        while let Some(batch) = loader.next() {
            let batch = batch.unwrap_or_else(|error| panic!("a batch is missing: {}", chain(&error)));
            order.push((batch.epoch(), batch.index(), batch.prong()));
            for (&id, row) in batch.requested_ids().iter().zip(images::<f32>(&batch)) {
                let mut hasher = DefaultHasher::new();
                row.iter().for_each(|value| value.to_bits().hash(&mut hasher));
                let known = values.insert((batch.epoch(), id), hasher.finish());
                assert!(known.is_none(), "sample {id} came twice");
            }
            drop(batch);
            each(&loader);
        }
        Self { values, order, report: loader.report() }
    }
}

/// Returns all faults except those that any run may have on a busy machine: a slow drive, a stall, and a drive with the
/// dataset that takes more than a second to answer a read.
pub fn troubles(report: &Report) -> Vec<&FaultReport> {
    let is_of_load = |fault: &FaultReport| match fault.kind {
        FaultKind::Slow | FaultKind::Stall => true,
        FaultKind::Lost => {
            fault.what.contains("holds the dataset and does not answer") || fault.what.contains("did not answer for")
        }
        FaultKind::Rejoined => fault.what.contains("answered again after"),
        _ => false,
    };
    report.faults.iter().filter(|fault| !is_of_load(fault)).collect()
}

/// Returns the image of each row of a batch.
pub fn images<T: Element>(batch: &Batch) -> std::slice::ChunksExact<'_, T> {
    let field = batch.field("image").unwrap_or_else(|error| panic!("{error}"));
    field.as_slice().unwrap_or_else(|error| panic!("{error}")).chunks_exact(field.field().elements())
}

/// Waits until a condition is true, a minute at most.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < until, "{what} within a minute");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the number of faults of a kind up to now.
pub fn faults(progress: &ProgressHandle, kind: FaultKind) -> usize {
    progress.report().faults.iter().filter(|fault| fault.kind == kind).count()
}

/// Returns false while the first drive is lost.
pub fn drive_is_up(loader: &Loader) -> bool {
    loader.progress().snapshot().prongs[1].is_up
}

/// Waits until the first drive is up and has a batch in work. Buffers of the host need not be free for that.
pub fn wait_for_work_of_the_drive(loader: &Loader) {
    wait_until("the drive works", || {
        let drive = &loader.progress().snapshot().prongs[1];
        drive.is_up && drive.outstanding > 0
    });
}

/// Waits until each drive has prepared a batch, and the CPU too if it `takes_part`. Only for drives with shared slots:
/// results that are read need buffers, which the CPU may have filled. Nothing is delivered meanwhile, so a prong ends
/// with its slots or buffers; the batches must be more than these, so that each prong gets one.
pub fn wait_for_every_prong(loader: &Loader, takes_part: bool) {
    wait_until("each prong has prepared a batch", || {
        loader.progress().snapshot().prongs[usize::from(!takes_part)..].iter().all(|prong| prong.prepared > 0)
    });
}

/// Waits while the first drive is lost, unless the loader has given it up.
pub fn wait_for_drive(loader: &Loader) {
    wait_until("the drive is back or given up", || {
        drive_is_up(loader) || faults(&loader.progress(), FaultKind::Refused) > 0
    });
}

/// Returns a loader over a dataset, with small batches and a fixed host NQN, which leaves no file behind. Drives have
/// more time than the loader gives them by default: a test that needs a time-out sets its own.
pub fn loader(dataset: &Path) -> LoaderBuilder {
    let host = Host::named("nqn.2024-01.org.example:tests").expect("an nqn");
    Loader::builder()
        .with(|o| (o.dataset, o.batch_size, o.threads, o.seed) = (Some(dataset.into()), 8, Some(2), 7))
        .host(host)
        .with(|o| o.drive_timeout = LENIENT)
}

/// Returns a local drive with shared or read slots.
pub fn local(results: LocalResults) -> DriveSpec {
    local_by(program("ddlp-device"), results)
}

/// Returns a local drive whose agent is this program.
pub fn local_by(agent: PathBuf, results: LocalResults) -> DriveSpec {
    DriveSpec::Local(LocalDrive { agent: Some(agent), results, ..LocalDrive::default() })
}
