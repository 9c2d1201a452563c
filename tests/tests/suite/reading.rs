//! What the loader asks of a dataset: it announces samples before it reads them, reads the samples of a small dataset
//! once in a run, and gets the same pixels from a raw pack that is much larger than memory.

use ddlp_dataset::pack::{PackFormat, StoredForm};
use ddlp_host::Strategy;
use ddlp_pixels::Pipeline;
use ddlp_tests::hooked::{Hooked, Hooks};
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::{Run, loader};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

const SAMPLES: u64 = 70;
const BATCH: usize = 8;
const EPOCHS: u32 = 3;

/// Records the calls to a dataset.
struct Watch {
    /// Says so, and so is not kept in memory.
    is_resident: bool,
    announced: Mutex<Vec<u64>>,
    reads: Vec<AtomicU32>,
    /// Reads of samples that were never announced.
    unannounced: AtomicU32,
}

impl Hooks for Watch {
    fn reads(&self, index: u64) {
        self.reads[index as usize].fetch_add(1, Ordering::Relaxed);
        let is_announced = self.announced.lock().expect("no panic").contains(&index);
        self.unannounced.fetch_add(u32::from(!is_announced), Ordering::Relaxed);
    }

    fn announces(&self, indices: &[u64]) {
        assert!(!indices.is_empty(), "nothing to announce is not announced");
        self.announced.lock().expect("no panic").extend(indices);
    }

    fn is_resident(&self) -> bool {
        self.is_resident
    }
}

type Watched = Hooked<Watch>;

fn cifar(folder: &Path, is_resident: bool) -> Arc<Watched> {
    let record = |number: u64| (0..3073u64).map(move |at| if at == 0 { 3 } else { (number * 31 + at * 7) as u8 });
    let records: Vec<u8> = (0..SAMPLES).flat_map(record).collect();
    fs::write(folder.join("data_batch_1.bin"), records).expect("the folder can be written");
    let reads = (0..SAMPLES).map(|_| AtomicU32::new(0)).collect();
    let hooks = Watch { is_resident, announced: Mutex::default(), reads, unannounced: AtomicU32::new(0) };
    Arc::new(Hooked { dataset: ddlp_dataset::open(folder).expect("the files open"), hooks })
}

fn run(dataset: &Arc<Watched>, folder: &Path, threads: usize) -> Run {
    let builder =
        loader(folder).dataset(dataset.clone()).with(|o| (o.pipeline, o.batch_size) = (Pipeline::cifar_train(), BATCH));
    Run::of(builder.with(|o| (o.strategy, o.threads, o.epochs) = (Strategy::Cpu, Some(threads), EPOCHS)))
}

#[test]
fn every_sample_is_announced_once_an_epoch_and_before_it_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    for threads in [1, 4] {
        let dataset = cifar(folder.path(), true);
        let run = run(&dataset, folder.path(), threads);
        run.assert_exactly_once(EPOCHS, SAMPLES);
        let mut announced = std::mem::take(&mut *dataset.hooks.announced.lock().expect("no panic"));
        // With several threads, one may read what another one is about to announce.
        if threads == 1 {
            assert_eq!(announced, run.batches.concat(), "in the order in which they are read");
            assert_eq!(dataset.hooks.unannounced.load(Ordering::Relaxed), 0);
        }
        announced.sort_unstable();
        let expected: Vec<u64> = (0..SAMPLES).flat_map(|index| [index; EPOCHS as usize]).collect();
        assert_eq!(announced, expected, "{threads} threads");
        assert!(dataset.hooks.reads.iter().all(|reads| reads.load(Ordering::Relaxed) == EPOCHS));
    }
}

#[test]
fn a_replayed_run_announces_what_its_plan_names_next() {
    let folder = tempfile::tempdir().expect("a folder");
    let dataset = cifar(folder.path(), true);
    let mut plan = run(&dataset, folder.path(), 1).plan;
    for epoch in &mut plan.epochs {
        epoch.deliveries.reverse();
        epoch.deliveries.rotate_left(3);
    }
    *dataset.hooks.announced.lock().expect("no panic") = Vec::new();
    let builder = loader(folder.path())
        .dataset(dataset.clone())
        .with(|o| (o.pipeline, o.batch_size) = (Pipeline::cifar_train(), BATCH));
    let replayed = Run::of(
        builder.with(|o| (o.strategy, o.threads, o.epochs, o.replay) = (Strategy::Cpu, Some(1), EPOCHS, Some(plan))),
    );
    replayed.assert_exactly_once(EPOCHS, SAMPLES);
    let announced = std::mem::take(&mut *dataset.hooks.announced.lock().expect("no panic"));
    assert_eq!(announced, replayed.batches.concat(), "in the order of the plan");
}

#[test]
fn a_small_dataset_is_read_once_in_a_run_and_its_pixels_are_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let expected = run(&cifar(folder.path(), true), folder.path(), 1);
    for threads in [1, 4] {
        let dataset = cifar(folder.path(), false);
        assert_eq!(run(&dataset, folder.path(), threads).digest, expected.digest);
        let reads = dataset.hooks.reads.iter().map(|reads| reads.load(Ordering::Relaxed));
        // The first sample is looked at twice more: for form and size of all samples, and for a checksum.
        assert_eq!(reads.collect::<Vec<_>>(), (0..SAMPLES).map(|at| if at == 0 { 3 } else { 1 }).collect::<Vec<_>>());
    }
}

/// Records how much memory the dataset is told of; passes on that amount, or 0.
#[derive(Default)]
struct Memory {
    has_none: bool,
    told: Mutex<Vec<u64>>,
    reads: AtomicU32,
}

impl Hooks for Memory {
    fn reads(&self, _index: u64) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    fn memory(&self, available_bytes: u64) -> u64 {
        assert!(available_bytes > 1 << 20 && self.reads.load(Ordering::Relaxed) == 0);
        self.told.lock().expect("no panic").push(available_bytes);
        if self.has_none { 0 } else { available_bytes }
    }
}

#[test]
fn pixels_of_a_dataset_larger_than_memory_are_the_same() {
    let photos = Photos::new(20);
    let out = photos.pack_as("raw.ddlp", PackFormat::of(StoredForm::Raw));
    let digests = [false, true].map(|has_none| {
        let hooks = Memory { has_none, ..Memory::default() };
        let dataset = Arc::new(Hooked { dataset: ddlp_dataset::open(&out).expect("the pack opens"), hooks });
        let run = Run::of(loader(&out).dataset(dataset.clone()).with(|o| (o.strategy, o.epochs) = (Strategy::Cpu, 2)));
        assert_eq!(dataset.hooks.told.lock().expect("no panic").len(), 1);
        run.digest
    });
    assert_eq!(digests[0], digests[1]);
}

#[test]
fn the_loaders_own_memory_does_not_count_for_the_page_cache() {
    let photos = Photos::new(4);
    let told = |buffers: u64| {
        let dataset = ddlp_dataset::open(&photos.pack()).expect("the pack opens");
        let dataset = Arc::new(Hooked { dataset, hooks: Memory::default() });
        let builder =
            loader(&photos.pack()).dataset(dataset.clone()).with(|o| (o.strategy, o.batch_size) = (Strategy::Cpu, 64));
        drop(builder.with(|o| o.buffers = buffers as usize).build().expect("it builds"));
        dataset.hooks.told.lock().expect("no panic")[0]
    };
    // A batch has as many rows as the dataset has samples.
    let (batch, available) = (4 * 224 * 224 * 3, ddlp_csd::memory::available_bytes().expect("Linux says it"));
    let buffers = (available / 2 / batch).clamp(2, 4096);
    let (few, many) = (told(2), told(buffers));
    assert!(many < few - (buffers - 2) * batch / 2, "{buffers} buffers: {many} are left, {few} beside two");
}
