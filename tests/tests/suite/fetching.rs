//! The fetch stage: samples of a dataset whose reads have latency are read by threads of their own.

use ddlp_dataset::{Corrupt, FetchDepth, ReadError, Unavailable};
use ddlp_host::{CorruptPolicy, LoaderBuilder, LoaderError, Strategy};
use ddlp_tests::hooked::{Hooked, Hooks};
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::{Run, chain, loader};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const SAMPLES: u32 = 48;
const READS: usize = 5;

/// What happens when a sample is read.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    Panic,
    Unavailable,
    Corrupt,
}

/// Gathers reads: the first ones wait until as many as are to be in flight have come.
struct Store {
    depth: FetchDepth,
    /// Reads of each sample.
    reads: Mutex<BTreeMap<u64, u32>>,
    /// Reads in flight, and the most at a time.
    in_flight: Mutex<(usize, usize)>,
    came: Condvar,
    gathers: bool,
    fault: Option<(u64, Fault)>,
    announced: Mutex<bool>,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            depth: FetchDepth { threads: READS, samples: 1, join_gap: None, at_once: None },
            reads: Mutex::default(),
            in_flight: Mutex::default(),
            came: Condvar::default(),
            gathers: false,
            fault: None,
            announced: Mutex::default(),
        }
    }
}

impl Hooks for Store {
    fn reads(&self, index: u64) {
        *self.reads.lock().unwrap().entry(index).or_default() += 1;
        if self.gathers {
            let mut in_flight = self.in_flight.lock().unwrap();
            let (now, most) = *in_flight;
            *in_flight = (now + 1, most.max(now + 1));
            self.came.notify_all();
            let few = |(_, most): &mut (usize, usize)| *most < READS;
            let (mut in_flight, _) = self.came.wait_timeout_while(in_flight, Duration::from_secs(60), few).unwrap();
            in_flight.0 -= 1;
        }
    }

    fn fails(&self, index: u64) -> Result<(), ReadError> {
        match self.fault {
            Some((at, fault)) if at == index => match fault {
                Fault::Panic => panic!("the dataset panics, as the test asks"),
                Fault::Unavailable => {
                    let source = io::Error::from_raw_os_error(nix::libc::EACCES);
                    Err(Unavailable::Io { what: "the store".into(), path: "store".into(), source }.into())
                }
                Fault::Corrupt => {
                    Err(Corrupt::Record { index, file: "store".into(), problem: "it is damaged".into() }.into())
                }
            },
            _ => Ok(()),
        }
    }

    fn announces(&self, _: &[u64]) {
        *self.announced.lock().unwrap() = true;
    }

    fn fetch_depth(&self) -> FetchDepth {
        self.depth
    }
}

fn store(photos: &Photos, hooks: Store) -> Arc<Hooked<Store>> {
    Arc::new(Hooked { dataset: ddlp_dataset::open(&photos.pack()).expect("the pack opens"), hooks })
}

fn run_of(photos: &Photos, store: &Arc<Hooked<Store>>) -> LoaderBuilder {
    loader(&photos.pack()).dataset(store.clone()).with(|o| o.strategy = Strategy::Cpu)
}

#[test]
fn each_sample_is_read_once_and_more_are_in_flight_than_there_are_threads() {
    let photos = Photos::new(SAMPLES);
    let expected = Run::of(loader(&photos.pack())).ordered_digest;
    let store = store(&photos, Store { gathers: true, ..Store::default() });
    let run = Run::of(run_of(&photos, &store).with(|o| o.threads = Some(1)));
    assert_eq!(run.ordered_digest, expected);
    let reads = store.hooks.reads.lock().unwrap();
    assert!(reads.len() == SAMPLES as usize && reads.values().all(|&reads| reads == 1), "{reads:?}");
    assert_eq!(*store.hooks.in_flight.lock().unwrap(), (0, READS));
    assert!(!*store.hooks.announced.lock().unwrap(), "samples that are fetched ahead are not announced");
}

#[test]
fn a_sample_that_cannot_be_fetched_is_judged_as_in_a_file() {
    let photos = Photos::new(SAMPLES);
    for (fault, policy) in [
        (Fault::Panic, CorruptPolicy::Skip),
        (Fault::Panic, CorruptPolicy::Replace),
        (Fault::Corrupt, CorruptPolicy::Skip),
        (Fault::Corrupt, CorruptPolicy::Replace),
    ] {
        for (threads, samples, join_gap) in [(3, 1, None), (2, 4, None), (2, 4, Some(4095))] {
            let depth = FetchDepth { threads, samples, join_gap, at_once: None };
            let store = store(&photos, Store { fault: Some((7, fault)), depth, ..Store::default() });
            let run = Run::of(run_of(&photos, &store).with(|o| o.policy = policy));
            let skipped = u64::from(policy == CorruptPolicy::Skip);
            assert_eq!((run.report.corrupt.len(), run.report.images), (1, u64::from(SAMPLES) - skipped));
        }
    }
    let store = store(&photos, Store { fault: Some((7, Fault::Unavailable)), ..Store::default() });
    let mut loader = run_of(&photos, &store).with(|o| o.policy = CorruptPolicy::Skip).build().unwrap();
    let error = loader.by_ref().find_map(Result::err).expect("the run ends with an error");
    assert!(matches!(error, LoaderError::Unavailable(_)), "{}", chain(&error));
    assert!(chain(&error).contains("the store") && loader.next().is_none());
}
