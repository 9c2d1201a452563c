//! Datasets for tests: real images in a folder, and one whose reads wait for the test.

use ddlp_csd::prepare::{EpochContext, SamplePreparer, close_gaps};
use ddlp_csd::program::{CorruptPolicy, DriveProgram, Program, program_id};
use ddlp_csd::request::BatchRequest;
use ddlp_csd::slot::{SampleRecord, SlotHeader, SlotLayout};
use ddlp_dataset::Decoders;
use ddlp_dataset::{Dataset, Header, Identity, Location, ReadError};
use ddlp_pixels::encode::{JpegOptions, jpeg};
use ddlp_pixels::synthetic::photo;
use ddlp_pixels::{Fidelity, Limits, Pipeline};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex};

/// Identity of the dataset in requests by default.
pub const DATASET: [u8; 32] = [9; 32];

/// Writes `count` photographs in two classes below `root`, and other bytes in place of those in `broken`.
pub fn folder(root: &Path, count: u32, broken: &[u32]) {
    for number in 0..count {
        let class = root.join(if number % 2 == 0 { "even" } else { "odd" });
        std::fs::create_dir_all(&class).unwrap();
        let (width, height) = (40 + number % 7 * 9, 36 + number % 5 * 11);
        let bytes = jpeg(&photo(width, height, number), width, height, &JpegOptions::default()).unwrap();
        let bytes = if broken.contains(&number) { b"no image".to_vec() } else { bytes };
        std::fs::write(class.join(format!("{number:04}.jpg")), bytes).unwrap();
    }
}

pub fn program(policy: CorruptPolicy) -> Program {
    Program { pipeline: Pipeline::cifar_train(), limits: Limits::default(), policy }
}

/// Returns a program as a host loads it that knows nothing about the samples' decoders.
pub fn encoded(program: &Program) -> Vec<u8> {
    DriveProgram::new(program.clone(), Decoders::NONE).to_bytes().unwrap()
}

/// Makes a request for [`program`] with the policy to fail, and [`DATASET`].
pub fn request(batch: u32, slot: u32, sample_ids: Vec<u64>) -> BatchRequest {
    let id_limit = sample_ids.iter().max().unwrap() + 1;
    let generation = 1000 + u64::from(batch);
    let program = program_id(&DATASET, &encoded(&program(CorruptPolicy::Fail)));
    BatchRequest {
        program,
        seed: 7,
        epoch: 3,
        fidelity: Fidelity::WHOLE,
        batch,
        slot,
        generation,
        id_limit,
        sample_ids,
    }
}

/// Returns the request for a program that prepares this dataset.
pub fn of(dataset: &dyn Dataset, program: &Program, request: BatchRequest) -> BatchRequest {
    BatchRequest { program: program_id(dataset.identity().as_bytes(), &encoded(program)), ..request }
}

/// Returns the expected contents of a slot: records, and rows without gaps.
pub fn expected(dataset: &dyn Dataset, program: &Program, request: &BatchRequest) -> (Vec<SampleRecord>, Vec<u8>) {
    let row_bytes = program.pipeline.output().bytes();
    let context = EpochContext { seed: request.seed, epoch: request.epoch, fidelity: request.fidelity };
    let mut preparer = SamplePreparer::new(program);
    let mut rows = vec![0; request.sample_ids.len() * row_bytes];
    let ids = request.sample_ids.iter().zip(rows.chunks_exact_mut(row_bytes));
    let records: Vec<_> = ids.map(|(&id, row)| preparer.prepare(dataset, context, id, row).unwrap()).collect();
    let delivered = close_gaps(&records, &mut rows, row_bytes);
    rows.truncate(delivered * row_bytes);
    (records, rows)
}

/// Checks a slot's bytes against its expected contents.
pub fn check_slot(slot: &[u8], dataset: &dyn Dataset, program: &Program, request: &BatchRequest) {
    let header = SlotHeader::parse(slot).unwrap();
    assert_eq!((header.epoch, header.batch), (request.epoch, request.batch));
    assert_eq!((header.generation, header.shape), (request.generation, program.pipeline.output()));
    let layout = SlotLayout::new(request.sample_ids.len(), program.pipeline.output()).unwrap();
    let table = &slot[4096..4096 + layout.table_bytes()];
    let (records, rows) = expected(dataset, program, request);
    assert_eq!(header.parse_table(table, &request.sample_ids).unwrap(), records);
    let payload = &slot[layout.payload_offset..][..header.payload_bytes()];
    assert_eq!(header.payload_crc, crc32c::crc32c(payload));
    assert!(payload == rows, "pixels differ");
}

/// A dataset whose reads wait until the test lets them pass. Every sample is the same 32 × 32 image.
pub struct Gated {
    gate: Mutex<Gate>,
    changed: Condvar,
    classes: Vec<String>,
    /// Number of calls of `fit_memory`.
    pub told_of_memory: AtomicU32,
}

#[derive(Default)]
struct Gate {
    open: bool,
    waiting: usize,
    passes: usize,
    read: usize,
}

impl Default for Gated {
    fn default() -> Self {
        Self {
            gate: Mutex::default(),
            changed: Condvar::new(),
            classes: vec!["only".into()],
            told_of_memory: AtomicU32::new(0),
        }
    }
}

impl Gated {
    /// Waits until `count` reads are waiting.
    pub fn wait_for_readers(&self, count: usize) {
        let gate = self.gate.lock().unwrap();
        let limit = super::PATIENCE;
        let (_gate, late) = self.changed.wait_timeout_while(gate, limit, |gate| gate.waiting < count).unwrap();
        assert!(!late.timed_out(), "no reader came");
    }

    /// Lets `count` reads pass.
    pub fn pass(&self, count: usize) {
        self.gate.lock().unwrap().passes += count;
        self.changed.notify_all();
    }

    /// Lets every read pass from now on.
    pub fn open(&self) {
        self.gate.lock().unwrap().open = true;
        self.changed.notify_all();
    }

    /// Returns the number of reads that have passed.
    pub fn reads(&self) -> usize {
        self.gate.lock().unwrap().read
    }
}

impl Dataset for Gated {
    fn len(&self) -> u64 {
        1000
    }

    fn classes(&self) -> &[String] {
        &self.classes
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
        let mut gate = self.gate.lock().unwrap();
        gate.waiting += 1;
        self.changed.notify_all();
        // A test that fails does not open the gate, so the wait is bounded to let the agent end.
        let closed = |gate: &mut Gate| !gate.open && gate.passes == 0;
        gate = self.changed.wait_timeout_while(gate, super::PATIENCE, closed).unwrap().0;
        gate.passes = gate.passes.saturating_sub(1);
        gate.waiting -= 1;
        gate.read += 1;
        out.fill(index as u8);
        Ok(())
    }

    fn fit_memory(&self, available_bytes: u64) -> io::Result<bool> {
        assert!(available_bytes > 1 << 20);
        self.told_of_memory.fetch_add(1, Ordering::Relaxed);
        Err(io::Error::other("it cannot be read in another way, which is no reason not to serve it"))
    }

    fn identity(&self) -> Identity {
        Identity::from_bytes(DATASET)
    }

    fn kind(&self) -> &'static str {
        "gated"
    }
}
