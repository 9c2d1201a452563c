use crate::job::{JobEvent, JobId};
use crate::test_support::loaded;
use crate::workers::tests::{PATIENCE, job, slots};
use crate::workers::{Pool, Throttle};
use ddlp_csd::program::CorruptPolicy;
use ddlp_dataset::{Dataset, ExtentRead, FetchDepth, Header, Identity, Location, ReadError, Reading};
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Instant;

/// A store of ten gray images, which answers once it is opened.
#[derive(Default)]
struct Store {
    gate: Mutex<(bool, Vec<Waker>)>,
    in_flight: AtomicUsize,
    most: AtomicUsize,
    is_read_by_worker: AtomicBool,
}

impl Store {
    fn open(&self) {
        let mut gate = self.gate.lock().unwrap();
        gate.0 = true;
        gate.1.drain(..).for_each(Waker::wake);
    }

    fn wait_for(&self, in_flight: usize) {
        let until = Instant::now() + PATIENCE;
        while self.in_flight.load(Ordering::Relaxed) != in_flight {
            assert!(Instant::now() < until, "{in_flight} in flight");
            std::thread::yield_now();
        }
    }
}

/// A read in flight.
struct Flying<'s>(&'s Store);

impl<'s> Flying<'s> {
    fn begin(store: &'s Store) -> Self {
        let now = store.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        store.most.fetch_max(now, Ordering::Relaxed);
        Self(store)
    }
}

impl Drop for Flying<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Dataset for Store {
    fn len(&self) -> u64 {
        10
    }

    fn classes(&self) -> &[String] {
        &[]
    }

    fn label(&self, _index: u64) -> u32 {
        0
    }

    fn name(&self, index: u64) -> String {
        index.to_string()
    }

    fn location(&self, _index: u64) -> Location {
        Location { file: "store".into(), offset: 0, length: 3072 }
    }

    fn header(&self, _index: u64) -> Result<Header, ReadError> {
        Ok(Header::planar((32, 32), 0..3072))
    }

    fn read(&self, _index: u64, _: &Header, _: u64, out: &mut [u8]) -> Result<(), ReadError> {
        self.is_read_by_worker.store(true, Ordering::Relaxed);
        out.fill(128);
        Ok(())
    }

    fn start_reads<'r>(&'r self, reads: Vec<ExtentRead<'r>>) -> Reading<'r, ReadError> {
        Box::pin(async move {
            let _flying = Flying::begin(self);
            poll_fn(|context| {
                let mut gate = self.gate.lock().unwrap();
                if gate.0 {
                    return Poll::Ready(());
                }
                gate.1.push(context.waker().clone());
                Poll::Pending
            })
            .await;
            reads.into_iter().for_each(|read| read.memory[read.place].fill(128));
            Ok(())
        })
    }

    fn fetch_depth(&self) -> FetchDepth {
        FetchDepth { threads: 1, samples: 1, join_gap: None, at_once: Some(64) }
    }

    fn identity(&self) -> Identity {
        Identity::from_bytes([0; 32])
    }

    fn kind(&self) -> &'static str {
        "store"
    }
}

#[test]
fn the_samples_of_all_queued_jobs_are_in_flight_together_and_no_worker_reads_one() {
    let (store, (events, received)) = (Arc::new(Store::default()), channel());
    let notify = Box::new(move |event| events.send(event).unwrap());
    let pool = Pool::start(store.clone(), slots(2), 1, Throttle::FULL, notify).unwrap();
    let program = loaded("cifar-train", CorruptPolicy::Fail);
    for (number, first) in [(0, 0), (1, 4)] {
        pool.submit(job(number, first, &program, program.program.pipeline.output()));
    }
    store.wait_for(8);
    store.open();
    for _ in 0..2 {
        assert!(matches!(received.recv_timeout(PATIENCE), Ok(JobEvent::Done { corrupt: 0, .. })));
    }
    assert_eq!(store.most.load(Ordering::Relaxed), 8);
    assert!(!store.is_read_by_worker.load(Ordering::Relaxed));
}

#[test]
fn what_is_in_flight_for_a_cancelled_job_is_given_up() {
    let (store, (events, received)) = (Arc::new(Store::default()), channel());
    let notify = Box::new(move |event| events.send(event).unwrap());
    let pool = Pool::start(store.clone(), slots(2), 2, Throttle::FULL, notify).unwrap();
    let program = loaded("cifar-train", CorruptPolicy::Fail);
    for number in 0..2 {
        pool.submit(job(number, 0, &program, program.program.pipeline.output()));
    }
    store.wait_for(8);
    pool.cancel(JobId(0));
    assert_eq!(received.recv_timeout(PATIENCE), Ok(JobEvent::Released { id: JobId(0) }));
    store.wait_for(4);
    drop(pool);
    store.wait_for(0);
}
