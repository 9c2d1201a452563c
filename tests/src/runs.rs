//! A run of the loader, reduced to what tests compare.

use crate::agent::program;
use ddlp_host::report::FaultReport;
use ddlp_host::{Batch, Digest, DriveSpec, Host, Loader, LoaderBuilder, LocalDrive, LocalResults, Normalize, Report};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What a run delivered.
pub struct Run {
    /// Order-free digest over (sample id, pixels).
    pub digest: String,
    /// The same in the order of delivery.
    pub ordered_digest: String,
    /// Batches as delivered: epoch, batch, prong.
    pub order: Vec<(u32, u32, usize)>,
    /// Sample ids of each batch as delivered.
    pub batches: Vec<Vec<u64>>,
    /// How often each (epoch, sample id) came.
    pub counts: BTreeMap<(u32, u64), u32>,
    /// The loader's report.
    pub report: Report,
    /// Its plan.
    pub plan: ddlp_host::Plan,
}

impl Run {
    /// Runs to the end; `each` sees every batch.
    pub fn with(builder: LoaderBuilder, each: impl FnMut(&Batch, &Loader)) -> Self {
        Self::over(builder.build().unwrap_or_else(|error| panic!("the loader builds: {}", chain(&error))), each)
    }

    /// Runs a loader that is built to the end.
    pub fn over(mut loader: Loader, mut each: impl FnMut(&Batch, &Loader)) -> Self {
        let mut digest = Digest::default();
        let (mut order, mut batches, mut counts) = (Vec::new(), Vec::new(), BTreeMap::new());
        while let Some(batch) = loader.next() {
            let batch = batch.unwrap_or_else(|error| panic!("every batch comes: {}", chain(&error)));
            digest.update(&batch);
            order.push((batch.epoch(), batch.index(), batch.prong()));
            for &id in batch.sample_ids() {
                *counts.entry((batch.epoch(), id)).or_insert(0) += 1;
            }
            each(&batch, &loader);
            batches.push(batch.sample_ids().to_vec());
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

    /// Runs to the end.
    pub fn of(builder: LoaderBuilder) -> Self {
        Self::with(builder, |_, _| ())
    }

    /// Asserts that each of `samples` samples came once in each of `epochs` epochs.
    pub fn assert_exactly_once(&self, epochs: u32, samples: u64) {
        assert_eq!(self.counts.len() as u64, u64::from(epochs) * samples, "every sample came");
        let doubled: Vec<_> = self.counts.iter().filter(|&(_, &count)| count != 1).collect();
        assert!(doubled.is_empty(), "no sample came twice: {doubled:?}");
    }

    /// Number of faults of a kind.
    pub fn faults(&self, kind: &str) -> usize {
        self.report.faults.iter().filter(|fault| fault.kind == kind).count()
    }

    /// Faults, but for a drive that took its time: on a busy machine any may.
    pub fn troubles(&self) -> Vec<&FaultReport> {
        self.report.faults.iter().filter(|fault| fault.kind != "slow").collect()
    }

    /// Batches that drives made.
    pub fn drive_batches(&self) -> usize {
        self.order.iter().filter(|&&(_, _, prong)| prong > 0).count()
    }
}

/// What a run of floats delivered.
pub struct FloatRun {
    /// A hash of the values of each (epoch, sample id).
    pub values: BTreeMap<(u32, u64), u64>,
    /// Batches as delivered: epoch, batch, prong.
    pub order: Vec<(u32, u32, usize)>,
    /// The loader's report.
    pub report: Report,
}

impl FloatRun {
    /// Runs to the end, normalised as for ImageNet; `each` sees the loader after every batch. No sample may come twice.
    pub fn with(builder: LoaderBuilder, mut each: impl FnMut(&Loader<f32>)) -> Self {
        let built = builder.build_f32(Normalize::imagenet());
        let mut loader = built.unwrap_or_else(|error| panic!("the loader builds: {}", chain(&error)));
        let (mut values, mut order) = (BTreeMap::new(), Vec::new());
        while let Some(batch) = loader.next() {
            let batch = batch.unwrap_or_else(|error| panic!("every batch comes: {}", chain(&error)));
            order.push((batch.epoch(), batch.index(), batch.prong()));
            for (&id, row) in batch.sample_ids().iter().zip(batch.values().chunks_exact(batch.shape().bytes())) {
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

/// Waits for a condition that must come true, a minute at most.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < until, "{what} within a minute");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// False while the first drive is lost.
pub fn drive_is_up<V>(loader: &Loader<V>) -> bool {
    loader.progress().snapshot().prongs[1].is_up
}

/// An error with its causes.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

/// A loader over a dataset with small batches, on a machine whose NQN nobody has to keep.
pub fn loader(dataset: &Path) -> LoaderBuilder {
    let host = Host::named("nqn.2024-01.org.example:tests").expect("an nqn");
    Loader::builder().dataset_path(dataset).batch_size(8).threads(2).seed(7).host(host)
}

/// A local drive with shared or read slots.
pub fn local(results: LocalResults) -> DriveSpec {
    local_by(program("ddlp-device"), results)
}

/// A local drive whose agent is this program.
pub fn local_by(agent: PathBuf, results: LocalResults) -> DriveSpec {
    DriveSpec::Local(LocalDrive { agent: Some(agent), results, ..LocalDrive::default() })
}
