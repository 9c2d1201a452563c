//! Checks that all drivers behave alike: the contract of [`ddlp_driver::Controller`] and [`ddlp_driver::Queue`], with a
//! real agent.
//!
//! [`check`] panics if a driver violates the contract. The test `contract` checks the user-space driver, and in a guest
//! the program `ddlp-contract` checks passthrough through the kernel's driver.

use ddlp_csd::cancel::CancelBatch;
use ddlp_csd::log::{DriveIdentity, IDENTITY_LOG, LOG_BYTES};
use ddlp_csd::prepare::{EpochContext, SamplePreparer};
use ddlp_csd::program::{CorruptPolicy, DriveProgram, Program, program_id};
use ddlp_csd::request::BatchRequest;
use ddlp_csd::slot::{SlotLayout, Wanted};
use ddlp_csd::{BLOCK_BYTES, CANCEL_OPCODE, COMPUTE_NSID, DATASET_NSID, PROGRAM_TYPE, RESULTS_NSID};
use ddlp_dataset::Dataset;
use ddlp_driver::kernel::Passthrough;
use ddlp_driver::program::{self, ProgramSlot};
use ddlp_driver::reads::{READ_BYTES_IN_FLIGHT, READ_PIECE_BYTES};
use ddlp_driver::{
    AbortOutcome, AdminData, BlockRead, Command, Completion, Controller, DriverError, Queue, Target, Ticket, logpage,
    namespace,
};
use ddlp_nvme::{AdminOpcode, Csi, IoOpcode, LogId, Status};
use ddlp_pixels::{Fidelity, Limits, Pipeline};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait for an event; guests are slow.
const WITHIN: Duration = Duration::from_secs(60);
/// Most bytes of one read that are checked.
const LONG_READ_BYTES: usize = 16 << 20;
/// Longest time for repeating an attempt, each time with batches that take the drive longer.
const TRIED_FOR: Duration = Duration::from_secs(240);
/// Number of samples in a batch, and in the first batch of such an attempt.
const SAMPLES: u64 = 4;
/// Most samples of a batch that should keep the drive busy for a while.
const SAMPLES_MAX: u64 = 1000;
/// Number of Executes in flight.
const DEPTH: usize = 4;
const PROGRAM: ProgramSlot = ProgramSlot { nsid: COMPUTE_NSID, index: 0 };

struct Bench {
    controller: Arc<dyn Controller>,
    work: Work,
    pack: Vec<u8>,
    slot_bytes: u64,
}

/// Dataset and program for the drive.
struct Work {
    dataset: Box<dyn Dataset>,
    program: Program,
    /// Number of samples that a slot holds, at most [`SAMPLES_MAX`].
    samples_max: u64,
}

/// Checks the driver for `target`. The drive serves `pack`, with at least four slots for four samples of 32 × 32, of
/// more than 2 MiB together, and nobody else uses it.
pub fn check(target: &Target, pack: &Path) {
    let controller = target.connect().expect("the drive is there");
    let program = Program { pipeline: Pipeline::cifar_train(), limits: Limits::default(), policy: CorruptPolicy::Fail };
    let identity = identity(controller.as_ref());
    assert!(identity.slots as usize >= DEPTH);
    let fits = |&samples: &u64| {
        SlotLayout::new(samples as usize, program.pipeline.output())
            .is_some_and(|layout| layout.total_bytes as u64 <= identity.slot_bytes)
    };
    let samples_max = (SAMPLES..=SAMPLES_MAX).rev().find(fits).expect("room for a batch");
    let bench = Bench {
        controller,
        work: Work { dataset: ddlp_dataset::open(pack).expect("a dataset"), program, samples_max },
        pack: std::fs::read(pack).expect("a pack"),
        slot_bytes: identity.slot_bytes,
    };
    assert_eq!(&identity.dataset, bench.work.dataset.identity().as_bytes());
    bench.admin_commands();
    let mut queue = bench.controller.open_queue(DEPTH).expect("a queue");
    bench.blocks(queue.as_mut());
    bench.load();
    bench.batches(queue.as_mut(), target);
    bench.long_reads(queue.as_mut());
    bench.refusals(queue.as_mut());
    bench.giving_up(queue.as_mut(), matches!(target, Target::Kernel(_)));
    if let Target::Kernel(_) = target {
        let error =
            target.connect().and_then(|second| second.open_queue(1).map(drop)).expect_err("a second queue is refused");
        assert!(matches!(error, DriverError::InUse { .. }) && error.is_transient(), "{error}");
    }
    bench.closing(queue);
    let Bench { controller, work, .. } = bench;
    drop(controller);
    if let Target::Kernel(_) = target {
        work.what_is_left_keeps_others_away(target);
    }
}

fn identity(controller: &dyn Controller) -> DriveIdentity {
    let mut page = [0; LOG_BYTES];
    logpage::read(controller, LogId(IDENTITY_LOG), Csi::NVM, &mut page, WITHIN).expect("a page");
    DriveIdentity::parse(&page).expect("an identity")
}

impl Work {
    fn encoded(&self) -> Vec<u8> {
        DriveProgram::new(self.program.clone(), self.dataset.decoders()).to_bytes().expect("a program")
    }

    fn id(&self) -> u64 {
        program_id(self.dataset.identity().as_bytes(), &self.encoded())
    }

    fn request(&self, batch: u32, slot: u32, samples: u64) -> BatchRequest {
        let sample_ids = (0..samples).map(|sample| (u64::from(batch) * 3 + sample) % self.dataset.len()).collect();
        let generation = 1000 + u64::from(batch);
        let program = self.id();
        BatchRequest {
            program,
            seed: 7,
            epoch: 3,
            fidelity: Fidelity::WHOLE,
            batch,
            slot,
            generation,
            id_limit: self.dataset.len(),
            sample_ids,
        }
    }

    fn submit(&self, queue: &mut dyn Queue, request: &BatchRequest) -> Result<Ticket, DriverError> {
        let (batch, slot) = request.parameters();
        queue.submit(&program::execute(PROGRAM, batch, slot), request.to_bytes(), WITHIN)
    }

    /// Returns a number of samples for the next attempt: twice as many as before, within the limit.
    fn longer(&self, samples: u64) -> u64 {
        self.samples_max.min(2 * samples)
    }

    /// Checks that commands in flight go on in the kernel after their association is dropped, and that nobody else gets
    /// the nodes before they are over.
    fn what_is_left_keeps_others_away(&self, target: &Target) {
        let until = Instant::now() + TRIED_FOR;
        let (mut seen, mut samples) = (false, SAMPLES);
        loop {
            // Connect before the commands start, so that the second queue is opened as soon as possible after them.
            let next = target.connect().expect("the drive is there");
            match target.connect().and_then(|again| again.open_queue(DEPTH).map(|queue| (again, queue))) {
                Ok(_) if seen => return,
                Ok((controller, mut queue)) => {
                    for slot in 0..DEPTH as u32 {
                        self.submit(queue.as_mut(), &self.request(40 + slot, slot, samples)).expect("room");
                    }
                    controller.close();
                    drop((controller, queue));
                    seen = matches!(next.open_queue(DEPTH), Err(DriverError::InUse { .. }));
                    samples = self.longer(samples);
                }
                Err(DriverError::InUse { .. }) => {
                    seen = true;
                    std::thread::sleep(Duration::from_millis(50));
                }
                Err(error) => panic!("it cannot be used again: {error}"),
            }
            assert!(Instant::now() < until, "the next run was kept away: {seen}");
        }
    }
}

impl Bench {
    fn admin_commands(&self) {
        let controller = self.controller.as_ref();
        let mut page = [0; 512];
        let error = logpage::read(controller, LogId(0xEE), Csi::NVM, &mut page, WITHIN).expect_err("no such page");
        assert!(error.is_status(Status::INVALID_LOG_PAGE) && !error.ends_association(), "{error}");
        let unknown = Command { opcode: 0xFC, ..Command::default() };
        let completion = controller.admin(&unknown, AdminData::None, WITHIN).expect("a completion");
        assert!(completion.status().same_code(Status::INVALID_OPCODE), "{}", completion.status());
        let log_page = Command { opcode: AdminOpcode::GET_LOG_PAGE.0, ..Command::default() };
        let error = controller.admin(&log_page, AdminData::Write(&[0; 4]), WITHIN).expect_err("data the wrong way");
        assert!(matches!(error, DriverError::Invalid(_)), "{error}");
        let huge = vec![0; controller.transfer_bytes_max() + 1];
        let error = controller.admin(&unknown, AdminData::Write(&huge), WITHIN).expect_err("too large");
        assert!(matches!(error, DriverError::Invalid(_)), "{error}");
        assert!(controller.is_alive());
    }

    fn blocks(&self, queue: &mut dyn Queue) {
        let geometry = namespace::geometry(self.controller.as_ref(), DATASET_NSID, WITHIN).expect("a geometry");
        assert_eq!(geometry.block_bytes as usize, BLOCK_BYTES);
        assert_eq!(geometry.blocks as usize, self.pack.len().div_ceil(BLOCK_BYTES));
        let all = geometry.blocks as usize;
        for (first, count) in [(0, 1), (all - 1, 1), (1, (all - 1).min(300)), (0, 0)] {
            let mut buffer = vec![0xEE; count * BLOCK_BYTES];
            queue.read_blocks(DATASET_NSID, first as u64, &mut buffer, WITHIN).expect("blocks");
            let there = &self.pack[first * BLOCK_BYTES..self.pack.len().min((first + count) * BLOCK_BYTES)];
            assert_eq!(&buffer[..there.len()], there, "{count} blocks from {first} on");
            assert!(buffer[there.len()..].iter().all(|&byte| byte == 0), "behind the pack");
        }
        for (first, bytes) in [(all, BLOCK_BYTES), (0, BLOCK_BYTES - 1), (usize::MAX, BLOCK_BYTES)] {
            let error =
                queue.read_blocks(DATASET_NSID, first as u64, &mut vec![0; bytes], WITHIN).expect_err("refused");
            assert!(matches!(error, DriverError::Invalid(_)), "{error}");
        }
        let error = queue.read_blocks(9, 0, &mut [0; BLOCK_BYTES], WITHIN).expect_err("no such namespace");
        assert!(!error.ends_association(), "{error}");
    }

    fn load(&self) {
        let (bytes, id) = (self.work.encoded(), self.work.id());
        // The second load replaces an active program.
        for _ in 0..2 {
            program::replace(self.controller.as_ref(), PROGRAM, PROGRAM_TYPE, id, &bytes, WITHIN).expect("a program");
        }
    }

    /// Runs as many batches as possible at once, with reads meanwhile.
    fn batches(&self, queue: &mut dyn Queue, target: &Target) {
        let requests: Vec<BatchRequest> =
            (0..DEPTH as u32).map(|slot| self.work.request(slot, slot, SAMPLES)).collect();
        let mut flights = HashMap::new();
        for request in &requests {
            let ticket = self.work.submit(queue, request).expect("room");
            assert!(flights.insert(ticket, request).is_none(), "tickets are unique");
        }
        assert_travels_as_asked(target);
        let error = self.work.submit(queue, &requests[0]).expect_err("more than the queue's depth");
        assert!(matches!(error, DriverError::Invalid(_)), "{error}");
        let mut block = [0; BLOCK_BYTES];
        queue.read_blocks(DATASET_NSID, 0, &mut block, WITHIN).expect("a read beside the batches");
        assert_eq!(block[..], self.pack[..BLOCK_BYTES]);
        while !flights.is_empty() {
            let (ticket, completion) = next(queue);
            let request = flights.remove(&ticket).expect("a ticket of ours, once");
            assert!(completion.status().is_success(), "{}", completion.status());
            assert_eq!(completion.result, 0, "no corrupt samples");
            self.assert_slot_holds(queue, request);
        }
        assert_eq!(queue.poll(Instant::now()).expect("a live queue"), None);
    }

    /// Reads more blocks than fit in flight at once: in one read, in many, and in many at once.
    fn long_reads(&self, queue: &mut dyn Queue) {
        let geometry = namespace::geometry(self.controller.as_ref(), RESULTS_NSID, WITHIN).expect("a geometry");
        let bytes = (geometry.blocks as usize * BLOCK_BYTES).min(LONG_READ_BYTES);
        assert!(bytes > READ_BYTES_IN_FLIGHT, "the slots are too small for this check: {bytes} bytes");
        let mut whole = vec![0xEE; bytes];
        queue.read_blocks(RESULTS_NSID, 0, &mut whole, WITHIN).expect("blocks");
        for (index, piece) in whole.chunks(READ_PIECE_BYTES / 2).enumerate() {
            let mut alone = vec![0x11; piece.len()];
            let first = index * (READ_PIECE_BYTES / 2 / BLOCK_BYTES);
            queue.read_blocks(RESULTS_NSID, first as u64, &mut alone, WITHIN).expect("blocks");
            assert!(piece == alone, "{} bytes from block {first} on", piece.len());
        }
        // More buffers than commands may be in flight, backwards, the last one empty.
        let mut few: Vec<Vec<u8>> = (0..40).map(|blocks| vec![0x22; blocks % 3 * BLOCK_BYTES]).rev().collect();
        let numbered = (0..).zip(&mut few);
        let mut reads: Vec<_> = numbered.map(|(number, buf)| BlockRead { lba: 200 - number * 5, buf }).collect();
        queue.read_many(RESULTS_NSID, &mut reads, WITHIN).expect("blocks");
        for BlockRead { lba, buf } in reads {
            assert!(*buf == whole[lba as usize * BLOCK_BYTES..][..buf.len()], "{} bytes at block {lba}", buf.len());
        }
    }

    fn assert_slot_holds(&self, queue: &mut dyn Queue, request: &BatchRequest) {
        let mut slot = vec![0; self.slot_bytes as usize];
        let lba = u64::from(request.slot) * self.slot_bytes / BLOCK_BYTES as u64;
        queue.read_blocks(RESULTS_NSID, lba, &mut slot, WITHIN).expect("a slot");
        let shape = self.work.program.pipeline.output();
        let wanted = Wanted {
            epoch: request.epoch,
            batch: request.batch,
            generation: request.generation,
            sample_ids: &request.sample_ids,
            shape,
            dataset_samples: self.work.dataset.len(),
            policy: self.work.program.policy,
        };
        let found = wanted.check(&slot).expect("the batch that was asked for");
        let payload = &slot[found.payload.clone()];
        found.check_payload(payload).expect("an intact one");
        let mut preparer = SamplePreparer::new(&self.work.program);
        let context = EpochContext { seed: request.seed, epoch: request.epoch, fidelity: request.fidelity };
        let mut row = vec![0; shape.bytes()];
        for (&id, there) in request.sample_ids.iter().zip(payload.chunks_exact(shape.bytes())) {
            preparer.prepare(self.work.dataset.as_ref(), context, id, &mut row).unwrap();
            assert_eq!(there, row, "sample {id}");
        }
    }

    /// Checks that refused commands complete with a status, and that the queue goes on.
    fn refusals(&self, queue: &mut dyn Queue) {
        let request = self.work.request(9, 0, SAMPLES);
        let (batch, slot) = request.parameters();
        let unloaded = ProgramSlot { index: 5, ..PROGRAM };
        let foreign = BatchRequest { program: request.program ^ 1, ..request.clone() };
        let slotless = BatchRequest { slot: u32::MAX, ..request.clone() };
        let (far_batch, far_slot) = slotless.parameters();
        for (command, data, status) in [
            (program::execute(PROGRAM, batch, slot), vec![0xAB; 100], Status::INVALID_PROGRAM_DATA),
            (program::execute(PROGRAM, batch, slot), Vec::new(), Status::INVALID_PROGRAM_DATA),
            (program::execute(unloaded, batch, slot), request.to_bytes(), Status::NO_PROGRAM),
            (program::execute(PROGRAM, far_batch, far_slot), slotless.to_bytes(), Status::INVALID_FIELD),
            (program::execute(PROGRAM, batch, slot), foreign.to_bytes(), Status::PROGRAM_NOT_ACTIVATED),
            // More data than fits a capsule.
            (program::execute(PROGRAM, batch, slot), vec![0xAB; 64 << 10], Status::INVALID_PROGRAM_DATA),
        ] {
            let ticket = queue.submit(&command, data, WITHIN).expect("room");
            let (completed, completion) = next(queue);
            assert_eq!(completed, ticket);
            assert!(completion.status().same_code(status), "{} for {status}", completion.status());
        }
        let read = Command { opcode: IoOpcode::READ.0, nsid: DATASET_NSID, ..Command::default() };
        let error = queue.submit(&read, vec![0; BLOCK_BYTES], WITHIN).expect_err("data the wrong way");
        assert!(matches!(error, DriverError::Invalid(_)), "{error}");
        assert!(self.controller.is_alive());
    }

    /// Checks that a batch in flight can be cancelled by the drive's own command, and by Abort if the driver can name a
    /// command. Repeats it, as the drive may finish first.
    fn giving_up(&self, queue: &mut dyn Queue, abort_is_impossible: bool) {
        let until = Instant::now() + TRIED_FOR;
        let (mut by_batch, mut by_ticket, mut samples) = (false, abort_is_impossible, SAMPLES);
        while !(by_batch && by_ticket) {
            assert!(Instant::now() < until, "cancelled: {by_batch}, aborted: {by_ticket}");
            let (cancelled, outcome) = self.cancel_and_abort(queue, samples);
            assert_eq!(outcome == AbortOutcome::Impossible, abort_is_impossible);
            by_batch |= cancelled;
            by_ticket |= outcome == AbortOutcome::Aborted;
            samples = self.work.longer(samples);
        }
    }

    /// Cancels the last of several batches in flight, and aborts the second one.
    fn cancel_and_abort(&self, queue: &mut dyn Queue, samples: u64) -> (bool, AbortOutcome) {
        let tickets: Vec<Ticket> = (0..DEPTH as u32)
            .map(|slot| self.work.submit(queue, &self.work.request(20 + slot, slot, samples)).expect("room"))
            .collect();
        let last = CancelBatch { epoch: 3, batch: 20 + DEPTH as u32 - 1 };
        let command = Command { opcode: CANCEL_OPCODE, cdw10_15: last.dwords(), ..Command::default() };
        let completion = self.controller.admin(&command, AdminData::None, WITHIN).expect("a completion");
        let cancelled = completion.success("drive", "cancel").expect("a number");
        let outcome = queue.abort(tickets[1], WITHIN).expect("an outcome");
        let finished: HashMap<Ticket, Completion> = (0..DEPTH).map(|_| next(queue)).collect();
        let status = |index: usize| finished[&tickets[index]].status();
        let expected = |given_up: bool| if given_up { Status::ABORT_REQUESTED } else { Status::SUCCESS };
        assert!(status(DEPTH - 1).same_code(expected(cancelled == 1)), "{} of {cancelled}", status(DEPTH - 1));
        assert!(status(1).same_code(expected(outcome == AbortOutcome::Aborted)), "{} after {outcome:?}", status(1));
        assert!(status(0).is_success() && status(2).is_success());
        (cancelled == 1, outcome)
    }

    /// Checks that closing wakes a thread that waits for the drive.
    fn closing(&self, mut queue: Box<dyn Queue>) {
        let controller = self.controller.clone();
        let closer = std::thread::spawn(move || {
            // No event tells that the other thread waits. If it did not wait yet, the check would hold all the same.
            std::thread::sleep(Duration::from_millis(200));
            controller.close();
        });
        let error = queue.poll(Instant::now() + 2 * WITHIN).expect_err("closed");
        assert!(matches!(error, DriverError::Lost { .. }), "{error}");
        closer.join().expect("no panic");
        assert!(!self.controller.is_alive());
        let error = self.work.submit(queue.as_mut(), &self.work.request(30, 0, 1)).expect_err("closed");
        assert!(error.ends_association(), "{error}");
        let mut page = [0; LOG_BYTES];
        let error = logpage::read(&*self.controller, LogId(IDENTITY_LOG), Csi::NVM, &mut page, WITHIN);
        assert!(error.expect_err("closed").ends_association());
    }
}

/// Checks that passthrough uses the way in the address: by ioctl, a thread waits for each command in flight; by
/// io_uring, no thread does.
fn assert_travels_as_asked(target: &Target) {
    let Target::Kernel(kernel) = target else { return };
    match kernel.passthrough {
        Passthrough::Ioctl => {
            let until = Instant::now() + WITHIN;
            // A thread gets its name when it starts to run, and stays as long as the queue.
            while waiting_threads() < DEPTH {
                assert!(Instant::now() < until, "{} threads for {DEPTH} commands", waiting_threads());
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Passthrough::IoUring => assert_eq!(waiting_threads(), 0, "no thread waits"),
        Passthrough::Auto => {}
    }
}

/// Returns the number of this process's threads that wait for a command in the kernel.
fn waiting_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("this process has threads").flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    // The kernel keeps fifteen characters of a name.
    names.filter(|name| "nvme-passthrough".starts_with(name.trim())).count()
}

/// Waits for the next completion.
fn next(queue: &mut dyn Queue) -> (Ticket, Completion) {
    queue.poll(Instant::now() + WITHIN).expect("a live queue").expect("a completion in time")
}
