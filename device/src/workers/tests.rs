use super::*;
use crate::job::LoadedProgram;
use crate::slots::{Backing, Geometry, Slots};
use ddlp_csd::program::CorruptPolicy;
use ddlp_csd::request::BatchRequest;
use ddlp_csd::slot::SlotLayout;
use ddlp_dataset::{Ahead, Header, Identity, Location, ReadError};
use ddlp_pixels::{Fidelity, Shape};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Any wait longer than this is a failure, not slowness.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Dataset of ten gray images that records announced samples, and samples read without an announcement.
#[derive(Default)]
struct Grey {
    announced: Mutex<Vec<u64>>,
    unannounced: Mutex<Vec<u64>>,
    /// Channels by which a read reports its start, and by which it is released.
    gate: Option<Mutex<(Sender<()>, Receiver<()>)>>,
}

impl Dataset for Grey {
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
        Location { file: "memory".into(), offset: 0, length: 3072 }
    }

    fn header(&self, _index: u64) -> Result<Header, ReadError> {
        Ok(Header::planar((32, 32), 0..3072))
    }

    fn read(&self, index: u64, _: &Header, _: u64, out: &mut [u8]) -> Result<(), ReadError> {
        if !self.announced.lock().unwrap().contains(&index) {
            self.unannounced.lock().unwrap().push(index);
        }
        if let Some(gate) = &self.gate {
            let (begun, opened) = &*gate.lock().unwrap();
            begun.send(()).unwrap();
            opened.recv_timeout(PATIENCE).unwrap_or_default();
        }
        out.fill(128);
        Ok(())
    }

    fn announce(&self, indices: &[u64], _ahead: Ahead) {
        self.announced.lock().unwrap().extend(indices);
    }

    fn identity(&self) -> Identity {
        Identity::from_bytes([0; 32])
    }

    fn kind(&self) -> &'static str {
        "grey"
    }
}

/// Makes a job of four samples from `first` on, with rows of this shape.
pub fn job(number: u64, first: u64, program: &Arc<LoadedProgram>, shape: Shape) -> Job {
    job_of(number, first..first + 4, program, shape)
}

/// Makes a job of these samples, with rows of this shape.
pub fn job_of(number: u64, sample_ids: Range<u64>, program: &Arc<LoadedProgram>, shape: Shape) -> Job {
    let layout = SlotLayout::new((sample_ids.end - sample_ids.start) as usize, shape).unwrap();
    let request = BatchRequest {
        program: 7,
        seed: 1,
        epoch: 2,
        fidelity: Fidelity::WHOLE,
        batch: number as u32,
        slot: number as u32 % 2,
        generation: 4,
        id_limit: 100,
        sample_ids: sample_ids.collect(),
    };
    Job { id: JobId(number), program: program.clone(), host: crate::test_support::host(1), request, layout }
}

pub fn slots(count: u32) -> Arc<Slots> {
    Arc::new(Slots::open(&Backing::Memory, Geometry { slots: count, slot_bytes: 1 << 20 }).unwrap())
}

#[test]
fn samples_are_announced_before_they_are_read_and_once() {
    let dataset = Arc::new(Grey::default());
    let (events, received) = channel();
    let notify = Box::new(move |event| events.send(event).unwrap());
    let pool = Pool::start(dataset.clone(), slots(2), 1, Throttle::FULL, notify).unwrap();
    let program = crate::test_support::loaded("cifar-train", CorruptPolicy::Fail);
    // The epoch's samples 8 to 11 are the dataset's 8, 9, 0 and 1.
    for (number, first) in [(0, 2), (1, 8)] {
        pool.submit(job(number, first, &program, program.program.pipeline.output()));
    }
    for number in 0..2 {
        let expected = JobEvent::Done { id: JobId(number), corrupt: 0 };
        assert_eq!(received.recv_timeout(PATIENCE), Ok(expected));
    }
    assert_eq!(*dataset.announced.lock().unwrap(), [2, 3, 4, 5, 8, 9, 0, 1]);
    assert!(dataset.unannounced.lock().unwrap().is_empty());
}

#[test]
fn a_pool_is_dropped_while_a_read_does_not_end() {
    let ((begun, has_begun), (open, opened)) = (channel(), channel());
    let dataset = Arc::new(Grey { gate: Some(Mutex::new((begun, opened))), ..Grey::default() });
    let pool = Pool::start(dataset.clone(), slots(2), 1, Throttle::FULL, Box::new(|_| {})).unwrap();
    let program = crate::test_support::loaded("cifar-train", CorruptPolicy::Fail);
    pool.submit(job(0, 0, &program, program.program.pipeline.output()));
    has_begun.recv_timeout(PATIENCE).unwrap();
    drop(pool);
    assert!(dataset.gate.as_ref().unwrap().try_lock().is_err(), "the read goes on");
    open.send(()).unwrap();
}

/// Makes a worker panic by a job whose rows do not have its program's shape. The controller never makes such a job.
#[test]
fn a_worker_that_panics_releases_its_job_and_goes_on() {
    let (events, received) = channel();
    let notify = Box::new(move |event| events.send(event).unwrap());
    let pool = Pool::start(Arc::new(Grey::default()), slots(2), 1, Throttle::FULL, notify).unwrap();
    let program = crate::test_support::loaded("cifar-train", CorruptPolicy::Fail);
    let good = program.program.pipeline.output();
    let bad = Shape { height: 1, ..good };
    for (number, shape) in (0..).zip([bad, good, bad, good]) {
        let id = JobId(number);
        // The slot of the first job is free again for the third one.
        pool.submit(job(number, 0, &program, shape));
        let expected = if shape == good { JobEvent::Done { id, corrupt: 0 } } else { JobEvent::Released { id } };
        assert_eq!(received.recv_timeout(PATIENCE), Ok(expected));
    }
}
