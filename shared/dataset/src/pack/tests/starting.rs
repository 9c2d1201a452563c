//! Reads that need no thread that waits: of samples, of records that do not stay in memory, and of bundles.

use super::{Bench, quietly};
use crate::pack::{Blocks, BlocksRead, Pack, PackFormat, PackOptions, StoredForm};
use crate::samples::write_folder;
use crate::{Ahead, Dataset, Drawn, FetchedSample, Reading, SampleReader, SampleToFetch, StoredAt, open};
use ddlp_pixels::ops::CenterCrop;
use ddlp_pixels::{CompiledPipeline, Draw, Fidelity, Limits, Pipeline, Preparer};
use std::future::poll_fn;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::{fs, io};

/// A store: its reads come when the test says so.
#[derive(Clone, Debug, Default)]
struct Store(Arc<Mutex<Contents>>);

#[derive(Debug, Default)]
struct Contents {
    bytes: Vec<u8>,
    /// Whether a read that a thread waits for is an error of the test.
    is_opened: bool,
    /// Reads that may come.
    may_come: u64,
    asked: u64,
}

impl Store {
    fn contents(&self) -> std::sync::MutexGuard<'_, Contents> {
        self.0.lock().unwrap()
    }
}

impl Blocks for Store {
    fn len_bytes(&self) -> u64 {
        self.contents().bytes.len() as u64
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let contents = self.contents();
        assert!(!contents.is_opened, "a thread waits for a read");
        out.copy_from_slice(&contents.bytes[offset as usize..][..out.len()]);
        Ok(())
    }

    fn start_reads<'r>(&'r self, reads: Vec<BlocksRead<'r>>) -> Reading<'r, io::Error> {
        let mut number = None;
        let mut reads = reads;
        Box::pin(poll_fn(move |_| {
            let mut contents = self.contents();
            let number = *number.get_or_insert_with(|| {
                contents.asked += 1;
                contents.asked
            });
            if number > contents.may_come {
                return Poll::Pending;
            }
            for BlocksRead { offset, memory, place } in &mut reads {
                memory[place.clone()].copy_from_slice(&contents.bytes[*offset as usize..][..place.len()]);
            }
            Poll::Ready(Ok(()))
        }))
    }

    fn session(&self) -> u64 {
        0
    }

    fn interrupt(&self) {}
}

const SAMPLES: u64 = 6;

/// Returns a pack of two classes in a store.
fn packed(bench: &Bench, form: StoredForm) -> (Store, Pack) {
    let source = bench.path("started");
    write_folder(&source, 2, SAMPLES as u32 / 2);
    packed_of(bench, &source, form)
}

fn packed_of(bench: &Bench, source: &Path, form: StoredForm) -> (Store, Pack) {
    let out = bench.path("started.ddlp");
    let options = PackOptions { format: PackFormat::of(form), bundle_samples: 3, ..PackOptions::default() };
    quietly(&*open(source).unwrap(), &out, &options).unwrap();
    let store = Store::default();
    store.contents().bytes = fs::read(out).unwrap();
    let pack = Pack::from_blocks(Box::new(store.clone()), Path::new("store")).unwrap();
    store.contents().is_opened = true;
    (store, pack)
}

fn pipeline() -> CompiledPipeline {
    CompiledPipeline::of(&Pipeline::of([CenterCrop::to(8).into()])).unwrap()
}

fn to_fetch(index: u64) -> SampleToFetch {
    let draw = Draw { seed: 0, epoch: 0, sample_id: index };
    SampleToFetch { index, draw, fidelity: Fidelity::WHOLE, fetched: FetchedSample::default() }
}

/// Fetches samples, and lets reads come one by one. Returns them, and the number of polls until they were there.
fn fetched(store: &Store, pack: &Pack, indices: impl Iterator<Item = u64>) -> (Vec<SampleToFetch>, u32) {
    let (pipeline, mut reader, mut samples) =
        (pipeline(), SampleReader::default(), indices.map(to_fetch).collect::<Vec<_>>());
    let mut polls = 1;
    {
        let mut fetching = pin!(reader.start_fetch(pack, Limits::default(), &pipeline, &mut samples));
        while fetching.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            store.contents().may_come += 1;
            polls += 1;
        }
    }
    (samples, polls)
}

/// Prepares a sample that was fetched, which reads nothing more.
fn prepared(pack: &Pack, sample: &mut SampleToFetch) -> Vec<u8> {
    let pipeline = pipeline();
    let (mut out, mut preparer) = (vec![0; pipeline.output().bytes()], Preparer::new(Limits::default()));
    let drawn = Drawn { pipeline: &pipeline, draw: sample.draw, fidelity: sample.fidelity };
    let stored = StoredAt::<dyn Dataset> { dataset: pack, index: sample.index };
    SampleReader::default().prepare(stored, Some(&mut sample.fetched), &mut preparer, drawn, &mut out).unwrap();
    out
}

#[test]
fn records_that_do_not_stay_in_memory_are_read_together_and_nobody_waits_for_them() {
    for form in [StoredForm::Kept, StoredForm::Rows, StoredForm::Pcr] {
        let bench = Bench::new(1, 0);
        let (store, mut pack) = packed(&bench, form);
        let (mut samples, _) = fetched(&store, &pack, 0..SAMPLES);
        let expected: Vec<_> = samples.iter_mut().map(|sample| prepared(&pack, sample)).collect();
        pack.records = None;
        let asked = store.contents().asked;
        let (mut samples, polls) = fetched(&store, &pack, 0..SAMPLES);
        assert!(polls > 2, "records first, and then samples");
        assert_eq!(store.contents().asked - asked, u64::from(polls) - 1);
        let found: Vec<_> = samples.iter_mut().map(|sample| prepared(&pack, sample)).collect();
        assert!(found == expected, "{form:?}");
    }
}

#[test]
fn a_sample_whose_record_is_damaged_is_left_to_who_prepares_it() {
    let bench = Bench::new(1, 0);
    let (store, mut pack) = packed(&bench, StoredForm::Kept);
    pack.records = None;
    let record = pack.header_extent(2).start;
    store.contents().bytes[record as usize + 5] ^= 1;
    let (mut samples, _) = fetched(&store, &pack, 0..SAMPLES);
    store.contents().bytes[record as usize + 5] ^= 1;
    store.contents().is_opened = false;
    assert_eq!(samples[2].fetched.memory_bytes(), 0, "nothing was read for it");
    samples.iter_mut().for_each(|sample| drop(prepared(&pack, sample)));
}

#[test]
fn nobody_waits_for_the_reason_of_a_rejected_sample_while_others_are_fetched() {
    let bench = Bench::new(1, 0);
    let source = bench.path("started");
    write_folder(&source, 2, SAMPLES as u32 / 2);
    let broken = fs::read_dir(source.join("class1")).unwrap().next().unwrap().unwrap().path();
    fs::write(broken, "no image").unwrap();
    let (store, pack) = packed_of(&bench, &source, StoredForm::Kept);
    let (mut samples, _) = fetched(&store, &pack, 0..SAMPLES);
    store.contents().is_opened = false;
    let unread = samples.iter().filter(|sample| sample.fetched.memory_bytes() == 0).count();
    assert_eq!(unread, 1, "the rejected one is left to who prepares it");
    let whole = samples.iter_mut().filter(|sample| sample.fetched.memory_bytes() > 0);
    whole.for_each(|sample| drop(prepared(&pack, sample)));
}

#[test]
fn in_a_window_one_read_brings_the_samples_of_a_bundle_and_a_read_that_is_given_up_is_made_by_another() {
    let bench = Bench::new(1, 0);
    let (store, pack) = packed(&bench, StoredForm::Pcr);
    let (mut alone, _) = fetched(&store, &pack, 0..SAMPLES);
    let expected: Vec<_> = alone.iter_mut().map(|sample| prepared(&pack, sample)).collect();
    let bundles = pack.bundles().unwrap().unwrap();
    let of_bundle: Vec<u64> = (0..bundles.samples).map(|position| bundles.index(position)).collect();
    pack.announce(&of_bundle, Ahead { fidelity: Fidelity::WHOLE, window: Some(1) });
    let before = store.contents().asked;
    let (pipeline, mut context) = (pipeline(), Context::from_waker(Waker::noop()));
    let mut samples: Vec<_> = of_bundle.iter().map(|&index| vec![to_fetch(index)]).collect();
    {
        let mut readers: Vec<_> = samples.iter().map(|_| SampleReader::default()).collect();
        let mut fetching: Vec<_> = samples
            .iter_mut()
            .zip(&mut readers)
            .map(|(sample, reader)| Box::pin(reader.start_fetch(&pack, Limits::default(), &pipeline, sample)))
            .collect();
        assert!(fetching.iter_mut().all(|fetching| fetching.as_mut().poll(&mut context).is_pending()));
        assert_eq!(store.contents().asked - before, 1, "the others wait for the first one");
        drop(fetching.remove(0));
        assert!(fetching.iter_mut().all(|fetching| fetching.as_mut().poll(&mut context).is_pending()));
        assert_eq!(store.contents().asked - before, 2, "another one has to read it");
        store.contents().may_come = u64::MAX;
        assert!(fetching.iter_mut().all(|fetching| fetching.as_mut().poll(&mut context).is_ready()));
    }
    assert_eq!(store.contents().asked - before, 2);
    for sample in samples[1..].iter_mut().flatten() {
        assert!(prepared(&pack, sample) == expected[sample.index as usize]);
    }
}
