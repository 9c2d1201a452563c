//! The transport over real sockets: R2T, queue limits, violations and their TermReq, hosts that send nothing or too
//! much.

use crate::host::agent::{TestAgent, settings};
use crate::host::images::{Gated, check_slot, encoded, program, request};
use crate::host::{self, Association, BOTH, HOST_NQN, Line, Received, command, execute, read};
use ddlp_csd::program::CorruptPolicy;
use ddlp_csd::slot::SlotHeader;
use ddlp_csd::{DATASET_NSID, RESULTS_NSID};
use ddlp_device::slots::Backing;
use ddlp_nvme::fabrics::{CONTROLLER_ANY, ConnectCommand, ConnectData, ConnectResult};
use ddlp_nvme::tcp::{CapsuleCommand, Digests, FatalStatus, IcReq, ReadyToTransfer};
use ddlp_nvme::{AdminOpcode, LogId, Status};
use nix::sys::socket::{setsockopt, sockopt};
use std::io::Write;
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use zerocopy::IntoBytes;

fn start() -> (TestAgent, Arc<Gated>) {
    let dataset = Arc::new(Gated::default());
    dataset.open();
    let mut settings = settings();
    settings.geometry.slot_bytes = 16 << 20;
    (TestAgent::start(settings, dataset.clone()), dataset)
}

#[test]
fn the_dataset_is_told_once_how_much_memory_there_is() {
    let (_agent, dataset) = start();
    assert_eq!(dataset.told_of_memory.load(Ordering::Relaxed), 1);
}

#[test]
fn an_execute_larger_than_a_capsule_comes_by_r2t() {
    let (agent, dataset) = start();
    for digests in [Digests::NONE, BOTH] {
        let mut association = Association::new(agent.at(), 1, digests);
        association.load(0, &encoded(&program(CorruptPolicy::Fail)), 4096);
        let mut queue = association.open_queue(1, 32, false);
        // 24 KiB of sample ids.
        let request = request(1, 0, (0..3000).collect());
        let (entry, data) = execute(&request, 0);
        assert!(data.len() > 16 * 1024);
        queue.ok(entry, &data);
        let slot: Vec<u8> = (0..16).flat_map(|part| queue.ok(read(RESULTS_NSID, part * 256, 256), &[]).1).collect();
        SlotHeader::parse(&slot).unwrap();
        check_slot(&slot, &*dataset, &program(CorruptPolicy::Fail), &request);
    }
}

#[test]
fn a_megabyte_comes_in_large_pieces() {
    let (agent, _dataset) = start();
    let association = Association::new(agent.at(), 1, Digests::NONE);
    let mut queue = association.open_queue(1, 32, true);
    let mut entry = read(RESULTS_NSID, 0, 256);
    entry.command_id = 9.into();
    queue.submit(&entry, &[]);
    let mut bytes = 0;
    loop {
        match queue.receive() {
            Received::Data(header, piece) => {
                assert!(piece.len() >= 128 * 1024, "{} bytes in one piece", piece.len());
                bytes += piece.len();
                assert_eq!(header.is_last(), bytes == 1 << 20);
                assert!(!header.is_success(), "flow control is on: a response follows");
            }
            Received::Response(entry) => {
                assert_eq!((entry.status(), bytes), (Status::SUCCESS, 1 << 20));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn many_reads_in_flight_on_several_queues() {
    let (agent, _dataset) = start();
    for digests in [Digests::NONE, BOTH] {
        let association = Association::new(agent.at(), 1, digests);
        let mut queues: Vec<Line> = (1..=4).map(|id| association.open_queue(id, 64, id % 2 == 0)).collect();
        for queue in &mut queues {
            for id in 0..60 {
                let nsid = if id % 3 == 0 { DATASET_NSID } else { RESULTS_NSID };
                let mut entry = read(nsid, 0, if nsid == DATASET_NSID { 1 } else { 16 });
                entry.command_id = id.into();
                queue.submit(&entry, &[]);
            }
        }
        for queue in &mut queues {
            let mut ended = 0;
            while ended < 60 {
                match queue.receive() {
                    Received::Data(header, _) => ended += usize::from(header.is_success()),
                    Received::Response(entry) => {
                        assert_eq!(entry.status(), Status::SUCCESS);
                        ended += 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

#[test]
fn more_commands_than_the_queue_holds_end_the_connection() {
    let dataset = Arc::new(Gated::default());
    let agent = TestAgent::start(settings(), dataset.clone());
    let mut association = Association::new(agent.at(), 1, Digests::NONE);
    association.load(0, &encoded(&program(CorruptPolicy::Fail)), 4096);
    let mut queue = association.open_queue(1, 2, true);
    for (id, slot) in [(1, 0), (2, 1), (3, 2)] {
        let (mut entry, data) = execute(&request(id, slot, vec![0]), 0);
        entry.command_id = (id as u16).into();
        queue.submit(&host::in_capsule(entry), &data);
    }
    match queue.receive() {
        Received::Terminate(error) => assert_eq!(error.status, FatalStatus::SEQUENCE),
        other => panic!("{other:?}"),
    }
    assert!(queue.ends());
    association.admin.ok(command(AdminOpcode::KEEP_ALIVE.0, 0, [0; 6], 0), &[]);
    dataset.open();
}

#[test]
fn a_command_identifier_in_use_is_refused() {
    let dataset = Arc::new(Gated::default());
    let agent = TestAgent::start(settings(), dataset.clone());
    let mut association = Association::new(agent.at(), 1, Digests::NONE);
    association.load(0, &encoded(&program(CorruptPolicy::Fail)), 4096);
    let mut queue = association.open_queue(1, 8, true);
    let submit = |queue: &mut Line, slot| {
        let (mut entry, data) = execute(&request(slot, slot, vec![0]), 0);
        entry.command_id = 5.into();
        queue.submit(&host::in_capsule(entry), &data);
    };
    submit(&mut queue, 0);
    // Refusing one command does not free the identifier for the next one.
    for slot in 1..4 {
        submit(&mut queue, slot);
        match queue.receive() {
            Received::Response(entry) => assert!(entry.status().same_code(Status::COMMAND_ID_CONFLICT)),
            other => panic!("{other:?}"),
        }
    }
    dataset.open();
    match queue.receive() {
        Received::Response(entry) => assert_eq!(entry.status(), Status::SUCCESS),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_page_is_filled_up_by_zeros() {
    let (agent, _dataset) = start();
    for digests in [Digests::NONE, BOTH, Digests { header: false, data: true }] {
        let mut association = Association::new(agent.at(), 1, digests);
        let page = association.log(LogId::FIRMWARE_SLOT.0, 512);
        assert!(page.iter().any(|&byte| byte != 0));
        for bytes in [4, 516, 70_000, 600_000, 1 << 20] {
            let filled = association.log(LogId::FIRMWARE_SLOT.0, bytes);
            let (said, zeros) = filled.split_at(page.len().min(filled.len()));
            assert_eq!(filled.len(), bytes as usize);
            assert!(page.starts_with(said) && zeros.iter().all(|&byte| byte == 0), "{bytes} bytes");
        }
    }
}

/// Asks for blocks on many connections and takes none of them.
#[test]
fn a_host_that_takes_no_blocks_holds_up_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = Arc::new(Gated::default());
    let mut settings = settings();
    settings.results = Backing::File(directory.path().join("slots"));
    let agent = TestAgent::start(settings, dataset);
    let association = Association::new(agent.at(), 1, Digests::NONE);
    let other = Association::new(agent.at(), 2, Digests::NONE);
    let of = |association: &Association, id| association.open_queue(id, 64, true);
    let mut stalled: Vec<Line> = (1..=16).map(|id| of(&association, id)).chain([of(&other, 1)]).collect();
    for line in &mut stalled {
        setsockopt(&line.stream, sockopt::RcvBuf, &4096).unwrap();
        for id in 0..32 {
            let mut entry = read(RESULTS_NSID, 0, 256);
            entry.command_id = id.into();
            line.submit(&entry, &[]);
        }
    }
    let third = Association::new(agent.at(), 3, Digests::NONE);
    let mut queue = of(&third, 1);
    // Within less than SEND_TIME, after which the agent closes the other connections.
    queue.stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    for _ in 0..64 {
        assert_eq!(queue.ok(read(RESULTS_NSID, 0, 256), &[]).1.len(), 1 << 20);
    }
}

/// Makes the medium fail in the middle of a read: a status follows the data that was sent before.
#[test]
fn blocks_that_cannot_be_read_fail_their_command_only() {
    let directory = tempfile::tempdir().unwrap();
    let mut settings = settings();
    let file = directory.path().join("slots");
    settings.results = Backing::File(file.clone());
    let dataset = Arc::new(Gated::default());
    dataset.open();
    let agent = TestAgent::start(settings, dataset);
    let mut association = Association::new(agent.at(), 1, Digests::NONE);
    association.load(0, &encoded(&program(CorruptPolicy::Fail)), 4096);
    let (entry, data) = execute(&request(1, 0, vec![0]), 0);
    association.open_queue(3, 8, true).ok(host::in_capsule(entry), &data);
    // Without flow control, data may report success, which it must not do here.
    for (number, flow_control) in [(1, true), (2, false)] {
        let mut queue = association.open_queue(number, 8, flow_control);
        std::fs::File::options().write(true).open(&file).unwrap().set_len(600 << 10).unwrap();
        let (entry, data) = queue.run(read(RESULTS_NSID, 0, 256), &[]);
        assert_eq!((entry.status(), data.len()), (Status::UNRECOVERED_READ, 512 << 10));
        assert_eq!(queue.ok(read(RESULTS_NSID, 0, 128), &[]).1.len(), 512 << 10);
    }
}

/// Asks for data aligned to up to 128 bytes from the start of a PDU, as hosts may.
#[test]
fn data_is_aligned_as_the_host_wants_it() {
    let (agent, _dataset) = start();
    for (digests, alignment_z) in [(Digests::NONE, 1), (BOTH, 7), (Digests::NONE, 31), (BOTH, 31)] {
        let mut association = Association::aligned(agent.at(), 1, digests, alignment_z);
        assert!(association.log(LogId::FIRMWARE_SLOT.0, 512).iter().any(|&byte| byte != 0));
        let mut queue = association.open_queue(1, 8, false);
        // The data comes from the mapping or, with data digests, from a buffer.
        assert_eq!(queue.ok(read(RESULTS_NSID, 0, 256), &[]).1.len(), 1 << 20);
        let alignment = (usize::from(alignment_z) + 1) * 4;
        for line in [&association.admin, &queue] {
            assert!(!line.data_offsets.is_empty());
            assert!(line.data_offsets.iter().all(|offset| offset % alignment == 0), "{:?}", line.data_offsets);
        }
    }
}

#[test]
fn violations_are_answered_by_a_term_req() {
    let (agent, _dataset) = start();
    let setup = IcReq::new(Digests::NONE).encode().to_vec();
    let aligned = IcReq { data_alignment_z: 32, ..IcReq::new(Digests::NONE) }.encode().to_vec();
    let early = CapsuleCommand::encode(&read(1, 0, 1), 0, Digests::NONE).to_vec();
    let to_host = ReadyToTransfer::encode(1, 1, 0, 4, Digests::NONE).to_vec();
    let raw: fn(SocketAddr) -> Line = Line::raw;
    let set_up: fn(SocketAddr) -> Line = |address| Line::open(address, Digests::NONE);
    let cases = [
        (raw, vec![0xFF; 8], FatalStatus::HEADER),
        (raw, aligned, FatalStatus::PARAMETER),
        (raw, early, FatalStatus::SEQUENCE),
        (set_up, setup, FatalStatus::SEQUENCE),
        (set_up, to_host, FatalStatus::HEADER),
    ];
    for (number, (open, bytes, status)) in cases.into_iter().enumerate() {
        let mut line = open(agent.address);
        line.stream.write_all(&bytes).unwrap();
        match line.receive() {
            Received::Terminate(error) => assert_eq!(error.status, status, "case {number}"),
            other => panic!("case {number}: {other:?}"),
        }
        assert!(line.ends());
    }
}

#[test]
fn a_damaged_header_digest_is_a_fatal_error() {
    let (agent, _dataset) = start();
    let mut line = Line::open(agent.address, BOTH);
    let mut bytes = CapsuleCommand::encode(&read(1, 0, 1), 0, BOTH).to_vec();
    bytes[30] ^= 1;
    line.stream.write_all(&bytes).unwrap();
    match line.receive() {
        Received::Terminate(error) => assert_eq!(error.status, FatalStatus::HEADER_DIGEST),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_connection_that_ends_within_a_pdu_harms_nobody() {
    let (agent, _dataset) = start();
    for cut in [1, 7, 8, 60, 127] {
        let line = Line::raw(agent.address);
        (&line.stream).write_all(&IcReq::new(Digests::NONE).encode()[..cut]).unwrap();
        line.stream.shutdown(Shutdown::Both).unwrap();
    }
    let mut association = Association::new(agent.at(), 1, Digests::NONE);
    let queue = association.open_queue(1, 8, true);
    let (entry, _) = execute(&request(1, 0, (0..100).collect()), 0);
    let bytes = CapsuleCommand::encode(&host::in_capsule(entry), 864, Digests::NONE);
    (&queue.stream).write_all(&bytes).unwrap();
    (&queue.stream).write_all(&[0; 100]).unwrap();
    drop(queue);
    association.admin.ok(command(AdminOpcode::KEEP_ALIVE.0, 0, [0; 6], 0), &[]);
}

#[test]
fn an_io_queue_that_ends_leaves_the_association_alone() {
    let (agent, _dataset) = start();
    let mut association = Association::new(agent.at(), 1, Digests::NONE);
    drop(association.open_queue(1, 8, true));
    association.admin.ok(command(AdminOpcode::KEEP_ALIVE.0, 0, [0; 6], 0), &[]);
    let start = std::time::Instant::now();
    while association.try_open_queue(1, 8, true).1.status() != Status::SUCCESS {
        assert!(start.elapsed() < host::PATIENCE, "the queue's number stays in use");
    }
}

#[test]
fn only_allowed_hosts_connect() {
    let dataset = Arc::new(Gated::default());
    dataset.open();
    let mut settings = settings();
    settings.allowed_hosts = vec!["nqn.2014-08.org.example:friend".into()];
    let agent = TestAgent::start(settings, dataset);
    for (host, status) in
        [(HOST_NQN, Status::CONNECT_INVALID_HOST), ("nqn.2014-08.org.example:friend", Status::SUCCESS)]
    {
        let mut line = Line::open(agent.address, Digests::NONE);
        let data = ConnectData::new([1; 16], CONTROLLER_ANY, &agent.nqn, host).unwrap();
        let (entry, _) = line.run(ConnectCommand::new(0, 31, 0, false).entry(), data.as_bytes());
        assert!(entry.status().same_code(status), "{host}: {}", entry.status());
        assert!(status != Status::SUCCESS || ConnectResult::from_result(entry.result.get()).controller_id > 0);
    }
}
