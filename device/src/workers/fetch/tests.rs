use super::*;
use crate::job::JobEvent;
use crate::test_support::loaded;
use crate::workers::queue::JobQueue;
use crate::workers::stats::Stats;
use crate::workers::tests::{PATIENCE, job, job_of, slots};
use crate::workers::{Pool, Throttle};
use ddlp_csd::program::CorruptPolicy;
use ddlp_dataset::{ExtentRead, FetchDepth, Header, Identity, Location, Reading, Silence, Silences};
use std::future::poll_fn;
use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::channel;
use std::sync::{Condvar, Mutex};
use std::task::{Context, Poll, Waker};

/// Bytes of a gray image.
const IMAGE: u64 = 3072;

/// A store of ten samples, gray images and files, which answers once it is opened.
#[derive(Default)]
struct Store {
    gate: Mutex<(bool, Vec<Waker>)>,
    in_flight: AtomicUsize,
    most: AtomicUsize,
    /// Reads by workers.
    reads: AtomicUsize,
    /// Samples that are files, and their bytes.
    files: (Range<u64>, u64),
    /// Whether a worker waits for a file. The store has been silent since then.
    is_silent: Mutex<bool>,
    interrupted: Condvar,
    interrupts: AtomicUsize,
    /// Reads in flight that are interrupted.
    interruptible: AtomicUsize,
}

impl Store {
    fn is_file(&self, index: u64) -> bool {
        self.files.0.contains(&index)
    }

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

fn interrupted() -> ReadError {
    let source = io::Error::from_raw_os_error(libc::EINTR);
    Unavailable::Io { what: "store".into(), path: "store".into(), source }.into()
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

    fn location(&self, index: u64) -> Location {
        Location { file: "store".into(), offset: 0, length: if self.is_file(index) { self.files.1 } else { IMAGE } }
    }

    fn header(&self, index: u64) -> Result<Header, ReadError> {
        let bytes = 0..self.location(index).length;
        Ok(if self.is_file(index) { Header::file(bytes) } else { Header::planar((32, 32), bytes) })
    }

    /// Waits until it is interrupted if the sample is a file.
    fn read(&self, index: u64, _: &Header, _: u64, out: &mut [u8]) -> Result<(), ReadError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        if self.is_file(index) {
            let mut is_silent = self.is_silent.lock().unwrap();
            *is_silent = true;
            drop(self.interrupted.wait_timeout_while(is_silent, PATIENCE, |is_silent| *is_silent).unwrap());
            return Err(interrupted());
        }
        out.fill(128);
        Ok(())
    }

    fn interrupt(&self) {
        self.interrupts.fetch_add(1, Ordering::Relaxed);
        *self.is_silent.lock().unwrap() = false;
        self.interrupted.notify_all();
    }

    fn silences(&self) -> Silences {
        let silence = || Silence { holder: "store".into(), lasts: SILENCE_MAX, patience: PATIENCE, failure: None };
        Silences { total: Duration::ZERO, now: self.is_silent.lock().unwrap().then(silence) }
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
            let left = self.interruptible.load(Ordering::Relaxed);
            if left > 0 {
                self.interruptible.store(left - 1, Ordering::Relaxed);
                return Err(interrupted());
            }
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
    assert_eq!(store.reads.load(Ordering::Relaxed), 0);
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

/// Workers read large samples themselves, while the thread that fetches may have nothing in flight.
#[test]
fn a_silent_store_is_noticed_while_only_a_worker_waits_and_its_job_is_given_up() {
    for is_other_in_flight in [false, true] {
        let store = Arc::new(Store { files: (4..8, 5 << 20), ..Store::default() });
        let (events, received) = channel();
        let notify = Box::new(move |event| events.send(event).unwrap());
        let pool = Pool::start(store.clone(), slots(2), 1, Throttle::FULL, notify).unwrap();
        let program = loaded("cifar-train", CorruptPolicy::Fail);
        let submit = |number, first| pool.submit(job(number, first, &program, program.program.pipeline.output()));
        if is_other_in_flight {
            submit(0, 0);
            store.wait_for(4);
        }
        submit(1, 4);
        for _ in 0..1 + usize::from(is_other_in_flight) {
            assert!(matches!(received.recv_timeout(PATIENCE), Ok(JobEvent::Done { corrupt: 0, .. })));
        }
        assert_eq!(store.reads.load(Ordering::Relaxed), 1, "a job that is given up reads nothing again");
    }
}

fn shared(store: impl Into<Arc<Store>>) -> Shared {
    let dataset: Arc<Store> = store.into();
    Shared {
        dataset,
        slots: slots(2),
        queue: JobQueue::new(true),
        stats: Stats::default(),
        throttle: Throttle::FULL,
        notify: Box::new(|_| {}),
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

/// A worker looks whether its job is given up, and then reads. The interrupt may come in between.
#[test]
fn a_worker_that_missed_the_interrupt_gets_another_one() {
    let store = Arc::new(Store::default());
    let (shared, program) = (shared(store.clone()), loaded("cifar-train", CorruptPolicy::Fail));
    shared.queue.push(job(0, 0, &program, program.program.pipeline.output()));
    shared.queue.came(JobId(0), 0, FetchedSample::default());
    let (task, mut stage) = (shared.queue.next(1).unwrap(), Stage::new(&shared, 64));
    let mut look = |is_silent| {
        *store.is_silent.lock().unwrap() = is_silent;
        stage.look();
        store.interrupts.load(Ordering::Relaxed)
    };
    assert_eq!(look(false), 0);
    assert_eq!(look(true), 1);
    assert_eq!(look(false), 2, "the worker still has a sample of the job");
    drop(task);
    assert_eq!(look(false), 2);
}

#[test]
fn an_interrupt_that_is_meant_for_workers_costs_no_sample() {
    let store = Store { interruptible: 3.into(), ..Store::default() };
    store.open();
    let (shared, program) = (shared(store), loaded("cifar-train", CorruptPolicy::Fail));
    shared.queue.push(job(0, 0, &program, program.program.pipeline.output()));
    runtime().block_on(async {
        let (mut stage, mut asks) = (Stage::new(&shared, 64), Vec::new());
        assert_eq!(stage.next_asks(&mut asks), Some(false));
        asks.drain(..).for_each(|ask| stage.ask(ask));
        while let Some(came) = stage.flying.join_next().await {
            stage.came(came.unwrap());
        }
    });
    assert!(shared.queue.wants(JobId(0)));
    assert_eq!(shared.queue.next(9).unwrap().positions, 0..4);
}

#[test]
fn bytes_are_reserved_for_a_sample_until_it_has_come_or_is_given_up() {
    for is_cancelled in [false, true] {
        let store = Store::default();
        if !is_cancelled {
            store.open();
        }
        let shared = shared(store);
        let program = loaded("cifar-train", CorruptPolicy::Fail);
        shared.queue.push(job(0, 0, &program, program.program.pipeline.output()));
        runtime().block_on(async {
            let (mut stage, mut asks) = (Stage::new(&shared, 64), Vec::new());
            assert_eq!(stage.next_asks(&mut asks), Some(false));
            asks.drain(..).for_each(|ask| stage.ask(ask));
            let reserved = stage.reserved.load(Ordering::Relaxed);
            assert_eq!(Some(reserved / 4), FetchedSample::memory_needed(&*shared.dataset, 0));
            assert!(reserved >= 4 * IMAGE);
            if is_cancelled {
                assert!(shared.queue.cancel(JobId(0)));
                stage.abort_unwanted();
            }
            while let Some(came) = stage.flying.join_next().await {
                assert_eq!(came.is_err(), is_cancelled);
                came.into_iter().for_each(|came| stage.came(came));
            }
            assert_eq!(stage.reserved.load(Ordering::Relaxed), 0);
        });
    }
}

#[test]
fn a_job_that_is_given_up_leaves_its_memory_to_others() {
    for is_cancelled in [true, false] {
        let store = Store { files: (0..10, 3 << 20), ..Store::default() };
        store.open();
        let (shared, program) = (shared(store), loaded("cifar-train", CorruptPolicy::Fail));
        let (queue, dataset) = (&shared.queue, &shared.dataset);
        let asked = || {
            let (mut asks, bytes_of) = (Vec::new(), |id| FetchedSample::memory_needed(&**dataset, id % 10));
            assert_eq!(queue.asks(1000, 0, bytes_of, &mut asks), Some(false));
            asks
        };
        let fetch_all = || {
            let asks = asked();
            for ask in asks {
                let reservation = Reservation::new(ask.bytes, Arc::default());
                let fetcher = SampleFetcher::new(&ask.program.program);
                let came = runtime().block_on(fetch(fetcher, dataset.clone(), ask, reservation));
                queue.came(came.id, came.position, came.fetched);
            }
            assert!(asked().is_empty(), "the memory is full");
        };
        let is_woken = || {
            let mut context = Context::from_waker(Waker::noop());
            pin!(queue.asked.notified()).poll(&mut context).is_ready()
        };
        queue.push(job_of(0, 0..64, &program, program.program.pipeline.output()));
        queue.push(job(1, 0, &program, program.program.pipeline.output()));
        fetch_all();
        let task = queue.next(1).unwrap();
        assert_eq!(task.id(), JobId(0));
        fetch_all();
        assert!(is_woken() && !is_woken());
        if is_cancelled {
            assert!(!queue.cancel(JobId(0)), "a worker holds a sample");
        } else {
            queue.remove(task);
        }
        assert!(is_woken());
        assert_eq!(asked().iter().map(|ask| ask.id).collect::<Vec<_>>(), [JobId(1); 4]);
    }
}
