//! Several hosts at the subsystem by itself: their work, and how they leave.

use crate::host::bench::{Bench, OTHER_HOST, activation, feature, log_page};
use crate::host::{HOST_NQN, cancel, command, execute, images, read};
use ddlp_csd::{BLOCK_BYTES, RESULTS_NSID};
use ddlp_device::controller::{
    ASSOCIATIONS_MAX, ConnId, ConnectRefusal, ENABLE_TIME, GIVES_WAY_MS, IO_QUEUES_MAX, QUEUES_MAX,
};
use ddlp_device::job::{JobEvent, JobId};
use ddlp_nvme::event::AsyncEvent;
use ddlp_nvme::fabrics::{CONTROLLER_ANY, ConnectCommand, ConnectData, PropertySet};
use ddlp_nvme::log::SmartLog;
use ddlp_nvme::property::offset;
use ddlp_nvme::{AdminOpcode, Csi, FeatureId, LogId, NSID_ALL, Status};
use std::sync::atomic::Ordering;
use std::time::Duration;
use zerocopy::IntoBytes;

/// Starts a batch. Returns its job.
fn start(bench: &mut Bench, queue: ConnId, batch: u32, slot: u32) -> JobId {
    let (entry, data) = execute(&images::request(batch, slot, vec![0]), 0);
    assert_eq!(bench.send(queue, entry, &data), None);
    *bench.started.last().unwrap()
}

#[test]
fn hosts_stay_apart() {
    let mut bench = Bench::new(&[]);
    let (admin_a, a) = bench.host(HOST_NQN, 1, 0);
    let (admin_b, b) = bench.host(OTHER_HOST, 2, 0);
    assert_ne!(a, b);
    bench.load(admin_a, 0);
    let (queue_a, queue_b) = (bench.io(a, HOST_NQN, 1, 1), bench.io(b, OTHER_HOST, 2, 1));
    let (entry, data) = execute(&images::request(5, 1, vec![0]), 0);
    assert!(bench.status(queue_b, entry, &data).same_code(Status::NO_PROGRAM), "programs are the host's own");
    bench.load(admin_b, 0);
    let job_a = start(&mut bench, queue_a, 5, 0);
    let job_b = start(&mut bench, queue_b, 5, 1);
    assert_eq!(bench.ok(admin_b, cancel(3, 5), &[]), 1, "only its own");
    assert_eq!(bench.cancelled, [job_b]);
    // One association ends; the other goes on.
    let outputs = bench.subsystem.disconnected(admin_b);
    bench.take(outputs);
    assert_eq!(bench.closed, [queue_b, admin_b]);
    bench.answers.clear();
    let outputs = bench.subsystem.job_event(JobEvent::Released { id: job_b });
    bench.take(outputs);
    assert!(bench.answers.is_empty(), "nobody waits for it");
    let outputs = bench.subsystem.job_event(JobEvent::Done { id: job_a, corrupt: 4 });
    bench.take(outputs);
    assert_eq!((bench.answers[0].0, bench.answers[0].2, bench.answers[0].3), (queue_a, Status::SUCCESS, 4));
    assert!(bench.subsystem.is_idle());
}

#[test]
fn a_slot_stays_with_its_host_until_the_host_is_gone() {
    let mut bench = Bench::new(&[]);
    let (admin_a, a) = bench.host(HOST_NQN, 1, 0);
    let (admin_b, b) = bench.host(OTHER_HOST, 2, 0);
    bench.load(admin_a, 0);
    bench.load(admin_b, 0);
    let (queue_a, queue_b) = (bench.io(a, HOST_NQN, 1, 1), bench.io(b, OTHER_HOST, 2, 1));
    let job = start(&mut bench, queue_a, 5, 0);
    let outputs = bench.subsystem.job_event(JobEvent::Done { id: job, corrupt: 0 });
    bench.take(outputs);
    let (entry, data) = execute(&images::request(6, 0, vec![0]), 0);
    assert_eq!(
        bench.status(queue_b, entry, &data),
        Status::INSUFFICIENT_RESOURCES,
        "the batch in it is not fetched yet"
    );
    let again = start(&mut bench, queue_a, 7, 0);
    let outputs = bench.subsystem.job_event(JobEvent::Done { id: again, corrupt: 0 });
    bench.take(outputs);
    let outputs = bench.subsystem.disconnected(admin_a);
    bench.take(outputs);
    start(&mut bench, queue_b, 6, 0);
}

/// Lets a host that has all slots go on as loaders do: into each slot again when its batch is done.
#[test]
fn a_host_with_all_slots_gives_back_those_beyond_its_share() {
    let mut bench = Bench::with_slots(&[], 4);
    let mut host = |nqn, id| {
        let (admin, controller) = bench.host(nqn, id, 0);
        bench.load(admin, 0);
        (admin, bench.io(controller, nqn, id, 1))
    };
    let ((admin_a, a), (_, b), (_, c)) = (host(HOST_NQN, 1), host(HOST_NQN, 2), host(OTHER_HOST, 3));
    let mut batch = 0;
    let mut takes = |bench: &mut Bench, queue, slot| {
        batch += 1;
        let before = bench.started.len();
        let (entry, data) = execute(&images::request(batch, slot, vec![0]), 0);
        if let Some((status, _)) = bench.send(queue, entry, &data) {
            assert_eq!(status, Status::INSUFFICIENT_RESOURCES);
            return false;
        }
        let outputs = bench.subsystem.job_event(JobEvent::Done { id: bench.started[before], corrupt: 0 });
        bench.take(outputs);
        true
    };
    let mut round = |bench: &mut Bench, queue| [0, 1, 2, 3].map(|slot| takes(bench, queue, slot));
    assert_eq!([round(&mut bench, a), round(&mut bench, a)], [[true; 4]; 2], "it is alone");
    assert_eq!(round(&mut bench, b), [false; 4], "all slots have an owner");
    assert_eq!(round(&mut bench, a), [false, false, true, true], "another host waits");
    assert_eq!(round(&mut bench, a), [false, false, true, true], "the slots are not its own any more");
    assert_eq!(round(&mut bench, b), [true, true, false, false]);
    assert_eq!([round(&mut bench, a), round(&mut bench, b)], [[false, false, true, true], [true, true, false, false]]);
    // A third host gets a share, and the remainder goes to whoever comes first.
    assert_eq!(round(&mut bench, c), [false; 4]);
    let shared = [round(&mut bench, a), round(&mut bench, b), round(&mut bench, c), round(&mut bench, a)];
    assert_eq!(shared.map(|got| got.iter().filter(|&&got| got).count()), [1, 1, 2, 1]);
    // Slots of a host that is gone are free.
    let outputs = bench.subsystem.disconnected(admin_a);
    bench.take(outputs);
    assert_eq!(round(&mut bench, b).iter().chain(&round(&mut bench, c)).filter(|&&got| got).count(), 4);
}

#[test]
fn no_host_reads_the_slots_of_another() {
    let mut bench = Bench::new(&[]);
    let slot_blocks = (1 << 20) / BLOCK_BYTES as u64;
    let (admin_a, a) = bench.host(HOST_NQN, 1, 0);
    let (_, b) = bench.host(HOST_NQN, 2, 0);
    bench.load(admin_a, 0);
    let (queue_a, queue_b) = (bench.io(a, HOST_NQN, 1, 1), bench.io(b, HOST_NQN, 2, 1));
    let first = |blocks| read(RESULTS_NSID, 0, blocks);
    let across = read(RESULTS_NSID, slot_blocks - 1, 2);
    for entry in [first(1), across] {
        assert_eq!(bench.status(queue_b, entry, &[]), Status::SUCCESS, "free slots");
    }
    let denied = Status::ACCESS_DENIED.do_not_retry();
    let job = start(&mut bench, queue_a, 5, 1);
    for is_done in [false, true] {
        assert_eq!(bench.status(queue_b, across, &[]), denied, "it reaches into the slot, done: {is_done}");
        assert_eq!(bench.status(queue_b, first(slot_blocks as u32), &[]), Status::SUCCESS, "the slot before");
        assert_eq!(bench.status(queue_a, across, &[]), Status::SUCCESS, "its own");
        if !is_done {
            let outputs = bench.subsystem.job_event(JobEvent::Done { id: job, corrupt: 0 });
            bench.take(outputs);
        }
    }
    // The host comes back on another path, and its former association ends.
    let (admin_again, again) = bench.host(HOST_NQN, 1, 0);
    let outputs = bench.subsystem.disconnected(admin_a);
    bench.take(outputs);
    let queue_again = bench.io(again, HOST_NQN, 1, 1);
    assert_eq!(bench.status(queue_again, across, &[]), Status::SUCCESS);
    assert_eq!(bench.status(queue_b, across, &[]), denied);
    let outputs = bench.subsystem.disconnected(admin_again);
    bench.take(outputs);
    assert_eq!(bench.status(queue_b, across, &[]), Status::SUCCESS, "free again: the slot reads as zeros");
}

#[test]
fn a_slot_without_memory_is_refused_and_free_again() {
    let mut bench = Bench::new(&[]);
    let (admin, controller) = bench.host(HOST_NQN, 1, 0);
    bench.load(admin, 0);
    let queue = bench.io(controller, HOST_NQN, 1, 1);
    let job = start(&mut bench, queue, 5, 0);
    let outputs = bench.subsystem.job_event(JobEvent::NoMemory { id: job });
    bench.take(outputs);
    assert_eq!((bench.answers[0].0, bench.answers[0].2), (queue, Status::CAPACITY_EXCEEDED));
    start(&mut bench, queue, 5, 0);
}

#[test]
fn a_reconnected_host_gets_its_slots_once_its_former_association_is_gone() {
    let mut bench = Bench::new(&[]);
    let (lost, a) = bench.host(HOST_NQN, 1, 0);
    bench.load(lost, 0);
    let queue = bench.io(a, HOST_NQN, 1, 1);
    let old = start(&mut bench, queue, 5, 0);
    // The program belongs to the host, and is still loaded.
    let (_, b) = bench.host(HOST_NQN, 1, 0);
    let queue = bench.io(b, HOST_NQN, 1, 1);
    let (entry, data) = execute(&images::request(6, 0, vec![0]), 0);
    assert_eq!(bench.status(queue, entry, &data), Status::NAMESPACE_NOT_READY, "to be tried again");
    let outputs = bench.subsystem.disconnected(lost);
    bench.take(outputs);
    assert_eq!((bench.send(queue, entry, &data), bench.cancelled.clone()), (None, vec![old]), "accepted, and waits");
    let outputs = bench.subsystem.job_event(JobEvent::Released { id: old });
    bench.take(outputs);
    assert_eq!(bench.started.len(), 2);
}

#[test]
fn a_multipath_host_has_one_set_of_programs_on_all_its_associations() {
    let mut bench = Bench::new(&[]);
    let (admin_a, a) = bench.host(HOST_NQN, 1, 0);
    let (admin_b, b) = bench.host(HOST_NQN, 1, 0);
    bench.load(admin_a, 0);
    let (queue_a, queue_b) = (bench.io(a, HOST_NQN, 1, 1), bench.io(b, HOST_NQN, 1, 1));
    let job = start(&mut bench, queue_b, 5, 0);
    assert!(bench.status(admin_a, activation(0, 0), &[]).same_code(Status::PROGRAM_IN_USE), "by the other one");
    assert_eq!(bench.ok(admin_a, cancel(3, 5), &[]), 1, "cancelled through the other one");
    assert_eq!(bench.cancelled, [job]);
    bench.ok(admin_b, activation(0, 0), &[]);
    let (entry, data) = execute(&images::request(6, 1, vec![0]), 0);
    let (status, _) = bench.send(queue_a, entry, &data).unwrap();
    assert!(status.same_code(Status::PROGRAM_NOT_ACTIVATED), "deactivated through the other one: {status}");
    bench.ok(admin_b, activation(0, 1), &[]);
    let outputs = bench.subsystem.disconnected(admin_a);
    bench.take(outputs);
    start(&mut bench, queue_b, 7, 1);
    let outputs = bench.subsystem.disconnected(admin_b);
    bench.take(outputs);
    let (admin, _) = bench.host(HOST_NQN, 1, 0);
    assert!(bench.status(admin, activation(0, 1), &[]).same_code(Status::NO_PROGRAM), "none outlives the last one");
}

#[test]
fn a_reset_gives_up_work_and_programs() {
    let mut bench = Bench::new(&[]);
    let (admin, id) = bench.host(HOST_NQN, 1, 0);
    bench.load(admin, 0);
    let queue = bench.io(id, HOST_NQN, 1, 1);
    let job = start(&mut bench, queue, 1, 0);
    assert!(bench.status(admin, activation(0, 0), &[]).same_code(Status::PROGRAM_IN_USE));
    bench.ok(admin, PropertySet::new(offset::CC, 0x0046_0060).entry(), &[]);
    assert_eq!(bench.cancelled, [job]);
    assert!(bench.status(queue, read(1, 0, 1), &[]).same_code(Status::COMMAND_SEQUENCE), "disabled");
    bench.ok(admin, PropertySet::new(offset::CC, 0x0046_0061).entry(), &[]);
    assert!(bench.status(admin, activation(0, 1), &[]).same_code(Status::NO_PROGRAM));
}

#[test]
fn keep_alive_ends_silent_associations_only() {
    let mut bench = Bench::new(&[]);
    let (silent, silent_id) = bench.host(HOST_NQN, 1, 1500);
    let (talking, talking_id) = bench.host(OTHER_HOST, 2, 1500);
    let (patient, _) = bench.host(OTHER_HOST, 3, 0);
    let (queue, busy) = (bench.io(silent_id, HOST_NQN, 1, 1), bench.io(talking_id, OTHER_HOST, 2, 1));
    bench.now += Duration::from_millis(1900);
    bench.ok(busy, command(0x00, NSID_ALL, [0; 6], 0), &[]);
    let outputs = bench.subsystem.tick(bench.now);
    assert!(outputs.is_empty(), "the time-out is rounded up to whole seconds");
    bench.now += Duration::from_millis(200);
    let outputs = bench.subsystem.tick(bench.now);
    bench.take(outputs);
    assert_eq!(bench.closed, [queue, silent]);
    bench.now += Duration::from_secs(3600);
    let outputs = bench.subsystem.tick(bench.now);
    bench.take(outputs);
    assert_eq!(bench.closed[2..], [busy, talking]);
    bench.ok(patient, command(0x18, 0, [0; 6], 0), &[]);
}

#[test]
fn a_hot_drive_reports_one_event_until_its_log_is_read() {
    let mut bench = Bench::new(&[]);
    let (admin, _) = bench.host(HOST_NQN, 1, 0);
    bench.ok(admin, feature(AdminOpcode::SET_FEATURES, FeatureId::ASYNC_EVENT_CONFIGURATION, 2), &[]);
    for _ in 0..4 {
        assert_eq!(bench.send(admin, command(0x0C, 0, [0; 6], 0), &[]), None);
    }
    let fifth = bench.status(admin, command(0x0C, 0, [0; 6], 0), &[]);
    assert!(fifth.same_code(Status::ASYNC_EVENT_LIMIT));
    bench.answers.clear();
    bench.thermometer.0.store(901, Ordering::Relaxed);
    for _ in 0..2 {
        let outputs = bench.subsystem.tick(bench.now);
        bench.take(outputs);
    }
    assert_eq!(bench.answers.len(), 1);
    let event = AsyncEvent::from_result(bench.answers[0].3);
    assert_eq!((event.kind, event.info, event.log), (AsyncEvent::SMART, 1, LogId::SMART));
    bench.ok(admin, log_page(LogId::SMART.0, Csi::NVM, 512, true), &[]);
    let smart = *SmartLog::parse(&bench.data).unwrap();
    assert_eq!((smart.temperature_k.get(), smart.critical_warning), (363, 2));
    let outputs = bench.subsystem.tick(bench.now);
    assert!(outputs.is_empty(), "read with the event retained");
    bench.ok(admin, log_page(LogId::SMART.0, Csi::NVM, 512, false), &[]);
    bench.answers.clear();
    let outputs = bench.subsystem.tick(bench.now);
    bench.take(outputs);
    assert_eq!(bench.answers.len(), 1, "armed again");
}

#[test]
fn the_number_of_associations_is_bounded() {
    let mut bench = Bench::new(&[]);
    for _ in 0..ASSOCIATIONS_MAX {
        bench.host(HOST_NQN, 1, GIVES_WAY_MS);
    }
    let conn = bench.conn();
    let data = ConnectData::new([1; 16], CONTROLLER_ANY, &bench.nqn, HOST_NQN).unwrap();
    let status = bench.status(conn, ConnectCommand::new(0, 31, 0, false).entry(), data.as_bytes());
    assert_eq!(status, Status::CONTROLLER_BUSY, "to be tried again");
    let reason = ConnectRefusal::TooManyAssociations(ASSOCIATIONS_MAX);
    assert_eq!(bench.refused, [(conn, HOST_NQN.to_owned(), reason)]);
}

/// Connects hosts without keep alive until all places are taken: they keep no other host out.
#[test]
fn associations_without_keep_alive_give_way_the_longest_silent_first() {
    for keep_alive_ms in [0, GIVES_WAY_MS + 1, u32::MAX] {
        let mut bench = Bench::new(&[]);
        let (alive, _) = bench.host(HOST_NQN, 1, GIVES_WAY_MS);
        let mut held = Vec::new();
        for _ in 1..ASSOCIATIONS_MAX {
            bench.now += Duration::from_secs(1);
            held.push(bench.host(OTHER_HOST, 2, keep_alive_ms).0);
        }
        // The first of them sends a command, so that the second has been silent longest.
        bench.ok(held[0], command(AdminOpcode::KEEP_ALIVE.0, 0, [0; 6], 0), &[]);
        let (newcomer, _) = bench.host(HOST_NQN, 3, 5000);
        assert_eq!(bench.closed, [held[1]], "time-out of {keep_alive_ms} ms");
        bench.ok(newcomer, command(AdminOpcode::KEEP_ALIVE.0, 0, [0; 6], 0), &[]);
        for _ in 2..ASSOCIATIONS_MAX {
            bench.host(HOST_NQN, 3, 5000);
        }
        assert_eq!(bench.closed.len(), ASSOCIATIONS_MAX - 1);
        assert!(!bench.closed.contains(&alive), "it has a keep alive");
    }
}

#[test]
fn an_association_at_work_does_not_give_way() {
    let mut bench = Bench::new(&[]);
    let (admin, id) = bench.host(HOST_NQN, 1, 0);
    bench.load(admin, 0);
    let queue = bench.io(id, HOST_NQN, 1, 1);
    let job = start(&mut bench, queue, 1, 0);
    let others: Vec<ConnId> = (1..ASSOCIATIONS_MAX).map(|_| bench.host(OTHER_HOST, 2, 0).0).collect();
    bench.host(OTHER_HOST, 3, 0);
    assert_eq!(bench.closed, others[..1]);
    let outputs = bench.subsystem.job_event(JobEvent::Done { id: job, corrupt: 0 });
    bench.take(outputs);
    assert_eq!(bench.answers.last().map(|answer| answer.0), Some(queue));
}

#[test]
fn the_number_of_queues_is_bounded_and_a_queue_does_not_take_its_own_association_away() {
    let mut bench = Bench::new(&[]);
    let mut queues = 0;
    let (mut full, mut first) = (Vec::new(), None);
    while queues + 1 + usize::from(IO_QUEUES_MAX) <= QUEUES_MAX {
        let (admin, id) = bench.host(HOST_NQN, 1, 5000);
        full.extend((1..=IO_QUEUES_MAX).map(|number| bench.io(id, HOST_NQN, 1, number)));
        (first, queues) = (first.or(Some(admin)), queues + 1 + usize::from(IO_QUEUES_MAX));
    }
    let (admin, id) = bench.host(HOST_NQN, 2, 0);
    for number in 1..(QUEUES_MAX - queues) as u16 {
        bench.io(id, HOST_NQN, 2, number);
    }
    let (conn, (status, _)) = bench.queue(id, HOST_NQN, 2, IO_QUEUES_MAX);
    assert_eq!(status, Status::CONTROLLER_BUSY, "to be tried again");
    let refused = (conn, HOST_NQN.to_owned(), ConnectRefusal::TooManyQueues(QUEUES_MAX));
    assert_eq!((bench.refused.pop(), bench.closed.len()), (Some(refused), 0));
    bench.host(HOST_NQN, 1, 5000);
    assert!(bench.closed.contains(&admin), "a newcomer takes the place of the one without keep alive");
}

/// Returns whether a host gets one more association with keep alive.
fn gets_in(bench: &mut Bench, nqn: &str, id: u8) -> bool {
    let conn = bench.conn();
    let data = ConnectData::new([id; 16], CONTROLLER_ANY, &bench.nqn, nqn).unwrap();
    let status = bench.status(conn, ConnectCommand::new(0, 31, 5000, false).entry(), data.as_bytes());
    if status == Status::SUCCESS {
        bench.ok(conn, PropertySet::new(offset::CC, 0x0046_0061).entry(), &[]);
    }
    status == Status::SUCCESS
}

/// Lets one host take all places under many identifiers, before others come.
#[test]
fn a_host_that_holds_all_associations_keeps_no_other_host_out() {
    let mut bench = Bench::new(&[]);
    let (busy, id) = bench.host(HOST_NQN, 1, 5000);
    bench.load(busy, 0);
    let queue = bench.io(id, HOST_NQN, 1, 1);
    start(&mut bench, queue, 1, 0);
    let mut idle = Vec::new();
    while idle.len() + 1 < ASSOCIATIONS_MAX {
        bench.now += Duration::from_millis(1);
        idle.push(bench.host(HOST_NQN, idle.len() as u8 + 2, 5000).0);
    }
    bench.ok(idle[0], command(AdminOpcode::KEEP_ALIVE.0, 0, [0; 6], 0), &[]);
    assert!(gets_in(&mut bench, OTHER_HOST, 1));
    assert_eq!(bench.closed, [idle[1]], "the one without work that was silent longest");
    assert!(!gets_in(&mut bench, HOST_NQN, 1), "it holds most");
    let others = (1..ASSOCIATIONS_MAX).take_while(|_| gets_in(&mut bench, OTHER_HOST, 1)).count() + 1;
    assert_eq!(others, ASSOCIATIONS_MAX / 2, "two hosts have equal shares");
    assert!(!bench.closed.contains(&busy), "the one at work is the last to go");
    let third = "nqn.2014-08.org.example:third";
    let thirds = (0..ASSOCIATIONS_MAX).take_while(|_| gets_in(&mut bench, third, 1)).count();
    assert_eq!(thirds, ASSOCIATIONS_MAX / 3);
    assert!(![HOST_NQN, OTHER_HOST].iter().any(|nqn| gets_in(&mut bench, nqn, 1)), "nobody takes a place back");
}

#[test]
fn a_host_that_holds_all_queues_keeps_no_other_host_out() {
    let mut bench = Bench::new(&[]);
    let mut held = Vec::new();
    loop {
        let (admin, id) = bench.host(HOST_NQN, 1, 5000);
        held.push(admin);
        let got = (1..=IO_QUEUES_MAX).take_while(|&number| bench.queue(id, HOST_NQN, 1, number).1.0.is_success());
        if got.count() < IO_QUEUES_MAX.into() {
            break;
        }
    }
    let (admin, id) = bench.host(OTHER_HOST, 2, 5000);
    for number in 1..=IO_QUEUES_MAX {
        bench.io(id, OTHER_HOST, 2, number);
    }
    assert!(bench.closed.contains(&held[0]) && !bench.closed.contains(&admin));
}

#[test]
fn a_controller_that_is_never_enabled_is_ended_and_one_after_a_reset_is_not() {
    let mut bench = Bench::new(&[]);
    let conn = bench.conn();
    let data = ConnectData::new([1; 16], CONTROLLER_ANY, &bench.nqn, HOST_NQN).unwrap();
    bench.ok(conn, ConnectCommand::new(0, 31, 0, false).entry(), data.as_bytes());
    let (reset, _) = bench.host(HOST_NQN, 1, 0);
    bench.ok(reset, PropertySet::new(offset::CC, 0x0046_0060).entry(), &[]);
    bench.now += ENABLE_TIME;
    let outputs = bench.subsystem.tick(bench.now);
    assert!(outputs.is_empty());
    bench.now += Duration::from_millis(1);
    let outputs = bench.subsystem.tick(bench.now);
    bench.take(outputs);
    assert_eq!(bench.closed, [conn]);
    bench.now += Duration::from_secs(3600);
    let outputs = bench.subsystem.tick(bench.now);
    assert!(outputs.is_empty());
}
