//! The loader through its public interface.

mod delivery;
mod facade;
mod fidelity;
mod fields;
mod headspace;
mod mixes;
mod mixing;
mod positions;

use ddlp_host::pixels::Pipeline;
use ddlp_host::{Batch, Loader, LoaderBuilder, Strategy};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Samples of [`cifar`].
const SAMPLES: usize = 64;

/// Makes a dataset of small images, each of one colour.
fn cifar() -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let records = (0..SAMPLES as u8).flat_map(|number| [number % 10].into_iter().chain([number; 3072]));
    let file = folder.path().join("data_batch_1.bin");
    std::fs::write(file, records.collect::<Vec<u8>>()).expect("room for a small file");
    folder
}

/// Returns a loader of that dataset, in batches of 8.
fn loader(folder: &TempDir) -> LoaderBuilder {
    let loader =
        Loader::builder().with(|o| (o.dataset, o.pipeline) = (Some(folder.path().into()), Pipeline::cifar_train()));
    loader.with(|o| (o.batch_size, o.threads, o.strategy) = (8, Some(2), Strategy::Cpu))
}

/// Waits until a condition is true, a minute at most.
fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < until, "{what} within a minute");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the images of a batch of uint8.
fn images(batch: &Batch) -> &[u8] {
    batch.field("image").and_then(|field| field.as_slice()).unwrap_or_else(|error| panic!("{error}"))
}
