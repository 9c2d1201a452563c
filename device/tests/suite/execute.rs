//! Execute Program over sockets, in one process: real images end to end, cancelling, lost associations, reused slots.
//!
//! Faults that the agent has to survive here: a host that goes away in the middle of a batch, a batch that is cancelled
//! while it runs, a slot that is used again before its old work has released it, corrupt samples.

use crate::host::agent::{TestAgent, settings};
use crate::host::images::{Gated, check_slot, encoded, folder, of, program, request};
use crate::host::{self, Association, BOTH, Line, Received, cancel, command, execute, in_capsule, read};
use ddlp_csd::log::{COUNTERS_LOG, Counters, DriveIdentity, IDENTITY_LOG};
use ddlp_csd::program::CorruptPolicy;
use ddlp_csd::request::BatchRequest;
use ddlp_csd::slot::{MAGIC, MAGIC_FREE, SlotHeader};
use ddlp_csd::{DATASET_NSID, RESULTS_NSID};
use ddlp_device::agent::Settings;
use ddlp_device::slots::Backing;
use ddlp_device::workers::Throttle;
use ddlp_nvme::Status;
use ddlp_nvme::tcp::Digests;
use std::sync::Arc;
use std::time::Instant;

const SLOT_BLOCKS: u32 = 256;

fn slot_bytes(line: &mut Line, slot: u32) -> Vec<u8> {
    line.ok(read(RESULTS_NSID, u64::from(slot * SLOT_BLOCKS), SLOT_BLOCKS), &[]).1
}

fn batch_end_to_end(digests: Digests, flow_control: bool, results: Backing, policy: CorruptPolicy) {
    let root = tempfile::tempdir().unwrap();
    folder(root.path(), 30, &[3, 17]);
    let dataset: Arc<dyn ddlp_dataset::Dataset> = ddlp_dataset::open(root.path()).unwrap().into();
    let mut settings = settings();
    settings.results = results;
    let agent = TestAgent::start(settings, dataset.clone());
    let mut association = Association::new(agent.at(), 1, digests);
    let program = program(policy);
    association.load(2, &encoded(&program), 50);
    let mut queue = association.open_queue(1, 128, flow_control);
    for (slot, sample_ids) in [(1, (0..30).collect::<Vec<u64>>()), (3, (0..20).rev().collect()), (1, vec![29])] {
        let request = of(&*dataset, &program, request(slot + 10, slot, sample_ids));
        let (entry, data) = execute(&request, 2);
        let (corrupt, _) = queue.ok(in_capsule(entry), &data);
        let slot = slot_bytes(&mut queue, slot);
        check_slot(&slot, &*dataset, &program, &request);
        let header = SlotHeader::parse(&slot).unwrap();
        assert_eq!(
            corrupt,
            host::images::expected(&*dataset, &program, &request).0.iter().filter(|record| record.is_corrupt()).count()
                as u64
        );
        assert!(header.busy_us > 0);
    }
    let counters = Counters::parse(&association.log(COUNTERS_LOG, 4096)).unwrap();
    assert_eq!((counters.batches, counters.samples, counters.outstanding, counters.errors), (3, 51, 0, 0));
    assert!(counters.read_us > 0 && counters.prepare_us > 0 && counters.cpu_us > 0 && counters.peak_rss_bytes > 0);
    let drive = DriveIdentity::parse(&association.log(IDENTITY_LOG, 4096)).unwrap();
    assert_eq!(drive.dataset, *dataset.identity().as_bytes());
    assert_eq!((drive.dataset_samples, drive.slots, drive.slot_bytes, drive.workers), (30, 4, 1 << 20, 2));
    assert_eq!(drive.abilities, ddlp_dataset::abilities());
    assert_eq!(drive.agent_version(), env!("CARGO_PKG_VERSION"));
    // A folder has no bytes to export: namespace 1 is one block, the identity page.
    let (_, block) = queue.ok(read(DATASET_NSID, 0, 1), &[]);
    assert_eq!(DriveIdentity::parse(&block).unwrap(), drive);
}

/// Has one host fill a slot completely, and another host look at the slot: meanwhile, once the first host is gone, and
/// after a smaller batch of its own in the slot.
#[test]
fn no_byte_of_a_batch_reaches_another_host() {
    let dataset = Arc::new(Gated::default());
    dataset.open();
    let directory = tempfile::tempdir().unwrap();
    for (results, digests) in [
        (Backing::Memory, Digests::NONE),
        (Backing::Memory, BOTH),
        (Backing::File(directory.path().join("slots")), BOTH),
    ] {
        let agent = TestAgent::start(Settings { results, ..settings() }, dataset.clone());
        let program = encoded(&program(CorruptPolicy::Fail));
        let mut owner = Association::new(agent.at(), 1, digests);
        owner.load(0, &program, 4096);
        let mut queue = owner.open_queue(1, 8, true);
        let (entry, data) = execute(&request(1, 1, (0..300).collect()), 0);
        queue.ok(in_capsule(entry), &data);
        let filled = slot_bytes(&mut queue, 1);
        assert!(filled[900_000..920_000].iter().any(|&byte| byte != 0), "the batch reaches that far");
        let mut other = Association::new(agent.at(), 2, digests);
        other.load(0, &program, 4096);
        let mut others = other.open_queue(1, 8, true);
        let denied = Status::ACCESS_DENIED.do_not_retry();
        assert_eq!(others.run(read(RESULTS_NSID, SLOT_BLOCKS.into(), 1), &[]).0.status(), denied);
        drop((queue, owner));
        // The agent learns a moment later that the host is gone.
        let until = Instant::now() + host::PATIENCE;
        let (freed, bytes) = loop {
            let (answer, bytes) = others.run(read(RESULTS_NSID, SLOT_BLOCKS.into(), SLOT_BLOCKS), &[]);
            if answer.status() != denied || Instant::now() > until {
                break (answer.status(), bytes);
            }
        };
        assert_eq!(freed, Status::SUCCESS);
        assert!(bytes == vec![0; 1 << 20], "a free slot reads as zeros");
        let (entry, data) = execute(&request(2, 1, vec![0]), 0);
        others.ok(in_capsule(entry), &data);
        let after = slot_bytes(&mut others, 1);
        assert!(SlotHeader::parse(&after).is_ok() && after[900_000..].iter().all(|&byte| byte == 0));
    }
}

#[test]
fn a_batch_in_memory_without_digests() {
    batch_end_to_end(Digests::NONE, true, Backing::Memory, CorruptPolicy::Skip);
}

#[test]
fn a_batch_in_memory_with_success_in_the_data() {
    batch_end_to_end(Digests::NONE, false, Backing::Memory, CorruptPolicy::Fail);
}

#[test]
fn a_batch_with_digests() {
    batch_end_to_end(BOTH, true, Backing::Memory, CorruptPolicy::Replace);
    batch_end_to_end(Digests { header: true, data: false }, false, Backing::Memory, CorruptPolicy::Skip);
}

#[test]
fn a_batch_in_a_file() {
    let directory = tempfile::tempdir().unwrap();
    batch_end_to_end(BOTH, false, Backing::File(directory.path().join("a")), CorruptPolicy::Skip);
    batch_end_to_end(Digests::NONE, true, Backing::File(directory.path().join("b")), CorruptPolicy::Skip);
}

#[test]
fn a_pack_is_exported_block_by_block() {
    let root = tempfile::tempdir().unwrap();
    folder(root.path(), 12, &[]);
    let source = ddlp_dataset::open(root.path()).unwrap();
    let file = root.path().join("d.ddlp");
    let mut progress = |_| std::ops::ControlFlow::Continue(());
    ddlp_dataset::pack::pack(&*source, &file, &Default::default(), &mut progress).unwrap();
    let agent = TestAgent::start(settings(), ddlp_dataset::open(&file).unwrap().into());
    let association = Association::new(agent.at(), 1, Digests::NONE);
    let mut queue = association.open_queue(1, 32, true);
    let bytes = std::fs::read(&file).unwrap();
    let blocks = (bytes.len() / 4096) as u32;
    assert!(queue.ok(read(DATASET_NSID, 0, blocks), &[]).1 == bytes);
    let (entry, _) = queue.run(read(DATASET_NSID, 1, blocks), &[]);
    assert!(entry.status().same_code(Status::LBA_OUT_OF_RANGE));
}

/// Starts an agent whose reads wait for the test, and an association with its program at index 0.
fn gated(threads: usize) -> (TestAgent, Arc<Gated>, Association) {
    let dataset = Arc::new(Gated::default());
    let mut settings = settings();
    settings.threads = threads;
    let agent = TestAgent::start(settings, dataset.clone());
    let mut association = Association::new(agent.at(), 1, Digests::NONE);
    association.load(0, &encoded(&program(CorruptPolicy::Fail)), 4096);
    (agent, dataset, association)
}

fn submit(queue: &mut Line, request: &BatchRequest) -> u16 {
    let (mut entry, data) = execute(request, 0);
    let id = queue.fresh_id();
    entry.command_id = id.into();
    queue.submit(&in_capsule(entry), &data);
    id
}

fn completion(queue: &mut Line) -> (u16, Status) {
    match queue.receive() {
        Received::Response(entry) => (entry.command_id.get(), entry.status()),
        other => panic!("expected a completion, got {other:?}"),
    }
}

/// Queues a batch behind one that keeps the only worker busy. The network thread leaves the slow allocation of the
/// batch's slot to the worker.
#[test]
fn a_queued_batch_takes_its_slot_when_a_worker_comes_to_it() {
    let (_agent, dataset, association) = gated(1);
    let mut queue = association.open_queue(1, 16, true);
    submit(&mut queue, &request(1, 0, vec![0]));
    dataset.wait_for_readers(1);
    submit(&mut queue, &request(2, 3, vec![0]));
    // The agent takes a queue's commands in order, so once it answers this read, it has queued the batch.
    assert_eq!(slot_bytes(&mut queue, 0)[..8], MAGIC_FREE);
    assert_eq!(slot_bytes(&mut queue, 3)[..8], [0; 8]);
    dataset.open();
    for _ in 0..2 {
        assert!(matches!(queue.receive(), Received::Response(entry) if entry.status() == Status::SUCCESS));
    }
    assert_eq!(slot_bytes(&mut queue, 3)[..8], MAGIC);
}

#[test]
fn a_cancelled_batch_is_answered_at_once_and_its_slot_waits_for_the_worker() {
    let (_agent, dataset, mut association) = gated(1);
    let mut queue = association.open_queue(1, 32, true);
    let (old, next) = (request(1, 0, (0..8).collect()), request(2, 0, (8..10).collect()));
    let old_id = submit(&mut queue, &old);
    dataset.wait_for_readers(1);
    assert_eq!(association.admin.ok(cancel(3, 99), &[]).0, 0, "no such batch");
    assert_eq!(association.admin.ok(cancel(3, 1), &[]).0, 1);
    assert_eq!(completion(&mut queue), (old_id, Status::ABORT_REQUESTED));
    // The worker still holds a row of the slot: the next batch waits, a third one is refused.
    let next_id = submit(&mut queue, &next);
    let third = submit(&mut queue, &request(3, 0, vec![0]));
    assert_eq!(completion(&mut queue), (third, Status::NAMESPACE_NOT_READY));
    dataset.open();
    assert_eq!(completion(&mut queue), (next_id, Status::SUCCESS));
    assert_eq!(dataset.reads(), 1 + 2, "the cancelled batch stops at its sample boundary");
    check_slot(&slot_bytes(&mut queue, 0), &*dataset, &program(CorruptPolicy::Fail), &next);
    let counters = Counters::parse(&association.log(COUNTERS_LOG, 4096)).unwrap();
    assert_eq!((counters.cancelled, counters.batches, counters.errors), (1, 1, 1));
}

#[test]
fn a_parked_batch_can_be_cancelled() {
    let (_agent, dataset, mut association) = gated(1);
    let mut queue = association.open_queue(1, 32, true);
    submit(&mut queue, &request(1, 0, vec![0, 1]));
    dataset.wait_for_readers(1);
    association.admin.ok(cancel(3, 1), &[]);
    completion(&mut queue);
    let parked = submit(&mut queue, &request(2, 0, vec![2]));
    assert_eq!(association.admin.ok(cancel(3, 2), &[]).0, 1);
    assert_eq!(completion(&mut queue), (parked, Status::ABORT_REQUESTED));
    let again = submit(&mut queue, &request(2, 0, vec![3]));
    dataset.open();
    assert_eq!(completion(&mut queue), (again, Status::SUCCESS));
}

#[test]
fn a_slot_with_live_work_is_refused() {
    let (_agent, dataset, association) = gated(1);
    let mut queue = association.open_queue(1, 32, true);
    let first = submit(&mut queue, &request(1, 2, vec![0]));
    dataset.wait_for_readers(1);
    let second = submit(&mut queue, &request(2, 2, vec![1]));
    assert_eq!(completion(&mut queue), (second, Status::NAMESPACE_NOT_READY));
    dataset.open();
    assert_eq!(completion(&mut queue), (first, Status::SUCCESS));
}

#[test]
fn work_of_a_lost_association_never_becomes_visible() {
    let (agent, dataset, association) = gated(1);
    let mut queue = association.open_queue(1, 32, true);
    submit(&mut queue, &request(1, 0, (0..4).collect()));
    submit(&mut queue, &request(2, 1, (4..8).collect()));
    dataset.wait_for_readers(1);
    drop((queue, association));
    // A new host uses both slots: one waits for the running work, in the other the queued work is gone.
    let mut association = Association::new(agent.at(), 2, Digests::NONE);
    association.load(0, &encoded(&program(CorruptPolicy::Fail)), 4096);
    let mut queue = association.open_queue(1, 32, true);
    assert!(SlotHeader::parse(&slot_bytes(&mut queue, 0)).is_err(), "an accepted Execute invalidates its slot");
    wait_until_abandoned(&mut association);
    let requests = [request(7, 0, vec![50]), request(8, 1, vec![60])];
    let ids = requests.each_ref().map(|request| submit(&mut queue, request));
    dataset.open();
    let mut done = [completion(&mut queue), completion(&mut queue)];
    done.sort_by_key(|(id, _)| *id);
    assert_eq!(done, ids.map(|id| (id, Status::SUCCESS)));
    assert_eq!(dataset.reads(), 3, "one sample was running, two are new");
    for request in &requests {
        check_slot(&slot_bytes(&mut queue, request.slot), &*dataset, &program(CorruptPolicy::Fail), request);
    }
}

/// Waits until the agent has seen that the other association is gone.
fn wait_until_abandoned(association: &mut Association) {
    let start = std::time::Instant::now();
    while Counters::parse(&association.log(COUNTERS_LOG, 4096)).unwrap().outstanding > 0 {
        assert!(start.elapsed() < host::PATIENCE, "the lost association keeps its work");
        std::thread::yield_now();
    }
}

#[test]
fn one_slow_sample_holds_up_its_own_batch_only() {
    let (_agent, dataset, association) = gated(2);
    let mut queue = association.open_queue(1, 32, true);
    let slow = submit(&mut queue, &request(1, 0, vec![0]));
    dataset.wait_for_readers(1);
    let other = submit(&mut queue, &request(2, 1, vec![1, 2, 3]));
    dataset.wait_for_readers(2);
    // Either of the two waiting reads may pass. After four passes, at least one of the two batches is complete.
    dataset.pass(3);
    let (first, status) = completion(&mut queue);
    assert_eq!(status, Status::SUCCESS);
    assert!([slow, other].contains(&first));
    dataset.open();
    assert_eq!(completion(&mut queue).1, Status::SUCCESS);
}

#[test]
fn an_abort_names_a_command() {
    let (_agent, dataset, mut association) = gated(1);
    let mut queue = association.open_queue(4, 32, true);
    let id = submit(&mut queue, &request(1, 0, vec![0, 1]));
    dataset.wait_for_readers(1);
    let abort = |id: u16, queue: u16| command(0x08, 0, [u32::from(id) << 16 | u32::from(queue), 0, 0, 0, 0, 0], 0);
    assert_eq!(association.admin.ok(abort(id + 1, 4), &[]).0, 1, "nothing to abort");
    assert_eq!(association.admin.ok(abort(id, 5), &[]).0, 1, "another queue");
    assert_eq!(association.admin.ok(abort(id, 4), &[]).0, 0);
    assert_eq!(completion(&mut queue), (id, Status::ABORT_REQUESTED));
    dataset.open();
}

#[test]
fn draining_finishes_what_runs_and_refuses_what_is_new() {
    let (mut agent, dataset, association) = gated(1);
    let mut queue = association.open_queue(1, 32, true);
    let running = submit(&mut queue, &request(1, 0, vec![0, 1]));
    dataset.wait_for_readers(1);
    agent.drain(host::PATIENCE);
    // An Execute without a program is always refused, but with another status once the drain has begun.
    let (probe, data) = execute(&request(2, 1, vec![5]), 7);
    let start = std::time::Instant::now();
    let refused = loop {
        let (entry, _) = queue.run(in_capsule(probe), &data);
        if !entry.status().same_code(Status::NO_PROGRAM) {
            break entry.status();
        }
        assert!(start.elapsed() < host::PATIENCE, "the agent does not drain");
    };
    assert!(refused.same_code(Status::NAMESPACE_NOT_READY));
    dataset.open();
    assert_eq!(completion(&mut queue), (running, Status::SUCCESS));
    assert!(queue.ends());
    agent.join();
}

#[test]
fn a_throttled_agent_still_delivers_the_same_pixels() {
    let dataset = Arc::new(Gated::default());
    dataset.open();
    let mut settings = settings();
    settings.throttle = Throttle::new(0.25).unwrap();
    let agent = TestAgent::start(settings, dataset.clone());
    let mut association = Association::new(agent.at(), 1, Digests::NONE);
    association.load(0, &encoded(&program(CorruptPolicy::Fail)), 4096);
    let mut queue = association.open_queue(1, 32, true);
    let request = request(1, 0, (0..16).collect());
    submit(&mut queue, &request);
    assert_eq!(completion(&mut queue).1, Status::SUCCESS);
    check_slot(&slot_bytes(&mut queue, 0), &*dataset, &program(CorruptPolicy::Fail), &request);
}
