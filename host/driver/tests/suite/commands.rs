//! Runs the driver against a well-behaved peer, over real sockets.

use crate::peer::{BLOCK, BLOCKS, Config, Event, Handled, LONG, NSID, Peer, log_page, pattern};
use ddlp_cause::with_causes;
use ddlp_driver::program::{self, ProgramSlot};
use ddlp_driver::reads::READ_PIECE_BYTES;
use ddlp_driver::tcp;
use ddlp_driver::{AbortOutcome, AdminData, BlockRead, Command, Controller, DriverError, Queue, logpage, namespace};
use ddlp_nvme::admin::Abort;
use ddlp_nvme::io::BlockRange;
use ddlp_nvme::tcp::Alignment;
use ddlp_nvme::tcp::encode::DataPiece;
use ddlp_nvme::{AdminOpcode, Csi, LogId, Status};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SLOT: ProgramSlot = ProgramSlot { nsid: 3, index: 1 };

fn soon() -> Instant {
    Instant::now() + LONG
}

/// Returns every combination of digests.
fn digests() -> impl Iterator<Item = (bool, bool)> {
    [(false, false), (true, false), (false, true), (true, true)].into_iter()
}

#[test]
fn blocks_arrive_whole_under_every_digest_setting_and_flow_control() {
    for (header_digest, data_digest) in digests() {
        for flow_control_can_be_off in [false, true] {
            let peer = Peer::honest(Config { flow_control_can_be_off, ..Config::default() });
            let mut target = peer.target();
            (target.header_digest, target.data_digest) = (header_digest, data_digest);
            let controller = tcp::connect(&target).unwrap();
            let geometry = namespace::geometry(controller.as_ref(), NSID, LONG).unwrap();
            assert_eq!((geometry.block_bytes as usize, geometry.blocks), (BLOCK, BLOCKS));
            let mut queue = controller.open_queue(2).unwrap();
            for (lba, blocks) in [(0, 1), (5, 0), (3, 700), (BLOCKS - 1, 1)] {
                let mut buf = vec![0xEE; blocks * BLOCK];
                queue.read_blocks(NSID, lba, &mut buf, LONG).unwrap();
                assert!(buf == pattern(lba, blocks * BLOCK), "{blocks} blocks at {lba}");
            }
        }
    }
}

#[test]
fn reads_are_as_large_as_the_controller_allows() {
    for (mdts, expected) in [(0, READ_PIECE_BYTES), (6, 256 << 10), (3, 32 << 10)] {
        let peer = Peer::start(Config { mdts, ..Config::default() }, |wire, received| {
            if received.is_read() {
                wire.mark(received.entry.data.length.get().into());
            }
            Handled::No
        });
        let controller = tcp::connect(&peer.target()).unwrap();
        let mut queue = controller.open_queue(1).unwrap();
        let mut buf = vec![0; expected + BLOCK];
        queue.read_blocks(NSID, 0, &mut buf, LONG).unwrap();
        for bytes in [expected, BLOCK] {
            assert_eq!(
                peer.wait_for(|event| matches!(event, Event::Mark(_))),
                Event::Mark(bytes as u64),
                "mdts {mdts}"
            );
        }
    }
}

#[test]
fn reads_outside_the_namespace_are_not_sent() {
    let peer = Peer::honest(Config::default());
    let controller = tcp::connect(&peer.target()).unwrap();
    let mut queue = controller.open_queue(1).unwrap();
    for (lba, bytes) in [(BLOCKS, BLOCK), (u64::MAX, BLOCK), (0, 100)] {
        let outcome = queue.read_blocks(NSID, lba, &mut vec![0; bytes], LONG);
        assert!(matches!(outcome, Err(DriverError::Invalid(_))), "{outcome:?}");
    }
    assert!(controller.is_alive());
}

#[test]
fn commands_bring_their_data_in_the_capsule_or_on_request() {
    for (header_digest, data_digest) in digests() {
        let peer = Peer::honest(Config::default());
        let mut target = peer.target();
        (target.header_digest, target.data_digest) = (header_digest, data_digest);
        let controller = tcp::connect(&target).unwrap();
        let mut queue = controller.open_queue(8).unwrap();
        // No data; data in the capsule, up to 1024 bytes; data by R2T, in one and in several H2CData.
        for bytes in [0usize, 1, 1024, 1025, 8193, 100_000] {
            let data: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
            let expected: u64 = data.iter().map(|&byte| u64::from(byte)).sum();
            let ticket = queue.submit(&program::execute(SLOT, 1, 2), data, LONG).unwrap();
            let (finished, completion) = queue.poll(soon()).unwrap().unwrap();
            assert_eq!((finished, completion.status, completion.result), (ticket, 0, expected), "{bytes} bytes");
        }
    }
}

#[test]
fn completions_that_arrive_during_a_read_are_kept() {
    let peer = Peer::honest(Config::default());
    let controller = tcp::connect(&peer.target()).unwrap();
    let mut queue = controller.open_queue(2).unwrap();
    let first = queue.submit(&program::execute(SLOT, 0, 0), vec![1], LONG).unwrap();
    let second = queue.submit(&program::execute(SLOT, 0, 0), vec![2; 2000], LONG).unwrap();
    let third = queue.submit(&program::execute(SLOT, 0, 0), vec![3], LONG);
    assert!(matches!(third, Err(DriverError::Invalid(_))), "two are in flight");
    let mut buf = vec![0; 10 * BLOCK];
    queue.read_blocks(NSID, 0, &mut buf, LONG).unwrap();
    assert_eq!(buf, pattern(0, 10 * BLOCK));
    let finished: Vec<_> = (0..2).map(|_| queue.poll(soon()).unwrap().unwrap()).collect();
    assert_eq!(finished.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), [first, second]);
    assert_eq!(queue.poll(Instant::now()).unwrap(), None);
}

#[test]
fn a_failed_read_leaves_the_queue_usable() {
    let failing = Arc::new(AtomicBool::new(true));
    let switch = Arc::clone(&failing);
    let peer = Peer::start(Config::default(), move |wire, received| {
        if received.is_read() && received.entry.cdw(10) == 64 && switch.load(Ordering::SeqCst) {
            wire.respond(received.cid(), Status::UNRECOVERED_READ, 0);
            return Handled::Yes;
        }
        Handled::No
    });
    let controller = tcp::connect(&peer.target()).unwrap();
    let mut queue = controller.open_queue(1).unwrap();
    let mut buf = vec![0; 512 * BLOCK];
    let error = queue.read_blocks(NSID, 0, &mut buf, LONG).unwrap_err();
    assert!(error.to_string().ends_with("unrecovered read error (sct 2 sc 81h)"), "{error}");
    let mut others = [vec![0; BLOCK], vec![0; BLOCK], vec![0; BLOCK]];
    let mut reads: Vec<_> = [3, 64, 9].into_iter().zip(&mut others).map(|(lba, buf)| BlockRead { lba, buf }).collect();
    let error = queue.read_many(NSID, &mut reads, LONG).unwrap_err().to_string();
    assert!(error.contains("at block 64"), "{error}");
    failing.store(false, Ordering::SeqCst);
    queue.read_blocks(NSID, 0, &mut buf, LONG).unwrap();
    assert!(buf == pattern(0, 512 * BLOCK));
}

#[test]
fn log_pages_come_in_pieces() {
    let peer = Peer::honest(Config { mdts: 1, ..Config::default() });
    let controller = tcp::connect(&peer.target()).unwrap();
    assert_eq!(controller.transfer_bytes_max(), 8192);
    let mut page = vec![0; 20_000];
    logpage::read(controller.as_ref(), LogId(0xC0), Csi::NVM, &mut page, LONG).unwrap();
    assert_eq!(page, log_page(0, 20_000));
    assert!(logpage::read(controller.as_ref(), LogId(0xC0), Csi::NVM, &mut page[..3], LONG).is_err());
}

#[test]
fn programs_are_loaded_in_pieces() {
    let peer = Peer::honest(Config::default());
    let controller = tcp::connect(&peer.target()).unwrap();
    let program: Vec<u8> = (0..20_000u32).map(|at| (at / 7) as u8).collect();
    program::load(controller.as_ref(), SLOT, 0xC0, 77, &program, LONG).unwrap();
    program::activate(controller.as_ref(), SLOT, LONG).unwrap();
    assert_eq!(*peer.shared.program.lock().unwrap(), program);
    assert!(program::load(controller.as_ref(), SLOT, 0xC0, 77, &[], LONG).is_err());
}

#[test]
fn refusals_are_completions_of_admin_commands() {
    let peer = Peer::honest(Config::default());
    let controller = tcp::connect(&peer.target()).unwrap();
    let command = Command { opcode: 0xC0, ..Command::default() };
    let completion = controller.admin(&command, AdminData::None, LONG).unwrap();
    assert_eq!(completion.status(), Status::INVALID_OPCODE.do_not_retry());
    let error = completion.success(controller.peer(), "cancel").unwrap_err();
    assert!(!error.is_transient() && !error.ends_association());
    let outcome = controller.admin(&command, AdminData::Read(&mut [0; 4]), LONG);
    assert!(matches!(outcome, Err(DriverError::Invalid(_))), "c0h moves no data");
    assert!(controller.is_alive());
}

#[test]
fn a_command_in_flight_can_be_aborted() {
    let peer = Peer::start(Config::default(), |wire, received| {
        if received.is_execute() {
            wire.mark(received.cid().into());
            return Handled::Yes;
        }
        if received.is(AdminOpcode::ABORT) {
            let request = Abort::parse(&received.entry);
            assert_eq!(request.queue_id, 1);
            wire.mark(request.command_id.into());
            wire.respond(received.cid(), Status::SUCCESS, Abort::result(true));
            return Handled::Yes;
        }
        Handled::No
    });
    let controller = tcp::connect(&peer.target()).unwrap();
    let mut queue = controller.open_queue(1).unwrap();
    let ticket = queue.submit(&program::execute(SLOT, 0, 0), vec![], LONG).unwrap();
    assert_eq!(queue.abort(ticket, LONG).unwrap(), AbortOutcome::Aborted);
    let marks: Vec<Event> = (0..2).map(|_| peer.wait_for(|event| matches!(event, Event::Mark(_)))).collect();
    assert_eq!(marks[0], marks[1], "the identifier is that of the command");
    let other = ddlp_driver::Ticket(ticket.0 + 1);
    assert_eq!(queue.abort(other, LONG).unwrap(), AbortOutcome::NotInFlight);
}

#[test]
fn queues_are_bounded_and_used_again() {
    let peer = Peer::honest(Config { io_queues: 2, ..Config::default() });
    let controller = tcp::connect(&peer.target()).unwrap();
    let first = controller.open_queue(4).unwrap();
    let _second = controller.open_queue(4).unwrap();
    assert!(matches!(controller.open_queue(4), Err(DriverError::Invalid(_))));
    drop(first);
    let mut again = controller.open_queue(4).unwrap();
    let mut buf = vec![0; BLOCK];
    again.read_blocks(NSID, 9, &mut buf, LONG).unwrap();
    assert_eq!(buf, pattern(9, BLOCK));
    drop(again);
    let mut reader = controller.open_queue(0).unwrap();
    reader.read_blocks(NSID, 9, &mut buf, LONG).unwrap();
    let refused = reader.submit(&program::execute(SLOT, 1, 0), vec![], LONG);
    assert!(matches!(refused, Err(DriverError::Invalid(_))), "a queue of depth 0 only reads: {refused:?}");
    let refused = controller.open_queue(64).err().expect("64 commands, at least one of them for reads").to_string();
    assert!(refused.contains("allows up to 63"), "{refused}");
}

/// The peer holds reads back until as many have come as the queue may have in flight. One more would be an error of the
/// driver, and one less would leave the reader waiting.
#[test]
fn a_short_queue_reads_with_fewer_commands_in_flight() {
    for (commands, depth, reads_max) in [(1, 0, 1), (4, 0, 4), (4, 2, 2), (16, 2, 14), (17, 0, 16), (64, 2, 16)] {
        let held = Mutex::new(Vec::new());
        let peer = Peer::start(Config { commands, ..Config::default() }, move |wire, received| {
            if !received.is_read() {
                return Handled::No;
            }
            let mut held = held.lock().unwrap();
            held.push((received.cid(), BlockRange::parse(&received.entry).lba));
            if held.len() == reads_max {
                for (cid, lba) in held.drain(..) {
                    wire.data(cid, 0, &pattern(lba, BLOCK), true, true);
                }
            }
            Handled::Yes
        });
        let controller = tcp::connect(&peer.target()).unwrap();
        let mut queue = controller.open_queue(depth).unwrap();
        let mut buffers = vec![vec![0; BLOCK]; 3 * reads_max];
        let mut reads: Vec<_> = (5..).zip(&mut buffers).map(|(lba, buf)| BlockRead { lba, buf }).collect();
        queue.read_many(NSID, &mut reads, LONG).unwrap();
        for (lba, read) in (5..).zip(&buffers) {
            assert_eq!(*read, pattern(lba, BLOCK), "{commands} commands, block {lba}");
        }
        let too_deep = usize::from(commands);
        assert!(matches!(controller.open_queue(too_deep), Err(DriverError::Invalid(_))), "{commands} commands");
    }
}

#[test]
fn a_queue_used_again_does_not_show_older_completions() {
    let held = Mutex::new(None);
    let peer = Peer::start(Config { io_queues: 1, ..Config::default() }, move |wire, received| {
        if received.is_execute() && received.entry.cdw(10) == 1 {
            *held.lock().unwrap() = Some(received.cid());
            return Handled::Yes;
        }
        if let Some(cid) = held.lock().unwrap().take_if(|_| received.is_execute()) {
            wire.respond(cid, Status::SUCCESS, 1);
        }
        Handled::No
    });
    let controller = tcp::connect(&peer.target()).unwrap();
    let mut first = controller.open_queue(4).unwrap();
    let older = first.submit(&program::execute(SLOT, 1, 0), vec![], LONG).unwrap();
    drop(first);
    assert!(matches!(controller.open_queue(4), Err(DriverError::Invalid(_))), "one of its slots is taken");
    let mut second = controller.open_queue(3).unwrap();
    assert_eq!(second.abort(older, LONG).unwrap(), AbortOutcome::NotInFlight, "not this user's");
    let newer = second.submit(&program::execute(SLOT, 2, 0), vec![7], LONG).unwrap();
    assert_ne!(older, newer);
    let (finished, completion) = second.poll(soon()).unwrap().unwrap();
    assert_eq!((finished, completion.result), (newer, 7));
}

#[test]
fn dropping_the_controller_shuts_it_down_and_wakes_its_queues() {
    let peer = Peer::honest(Config::default());
    let controller = tcp::connect(&peer.target()).unwrap();
    let mut queue = controller.open_queue(1).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(move || queue.poll(soon()));
        drop(controller);
        let error = waiter.join().unwrap().unwrap_err();
        assert!(with_causes(&error).ends_with("closed by this host"), "{error:?}");
    });
    peer.wait_for(|event| *event == Event::ShutdownAsked);
    peer.wait_for(|event| *event == Event::Closed(0));
}

#[test]
fn the_association_is_kept_alive_while_nothing_happens_and_during_a_long_command() {
    let release = Arc::new(AtomicBool::new(false));
    let released = Arc::clone(&release);
    let held = Mutex::new(None);
    // The long command is answered after a keep alive that came while it ran.
    let peer = Peer::start(Config::default(), move |wire, received| {
        if received.is(AdminOpcode(0xC0)) {
            *held.lock().unwrap() = Some(received.cid());
            wire.mark(0);
            return Handled::Yes;
        }
        if received.is(AdminOpcode::KEEP_ALIVE)
            && let Some(cid) = held.lock().unwrap().take_if(|_| released.load(Ordering::SeqCst))
        {
            wire.respond(cid, Status::SUCCESS, 5);
        }
        Handled::No
    });
    let mut target = peer.target();
    // Long enough for a machine that stalls. Keep alives come in half of it.
    target.keep_alive = Duration::from_secs(4);
    let controller = tcp::connect(&target).unwrap();
    peer.wait_for(|event| *event == Event::KeepAlive);
    let command = Command { opcode: 0xC0, ..Command::default() };
    std::thread::scope(|scope| {
        let caller = Arc::clone(&controller);
        let long = scope.spawn(move || caller.admin(&command, AdminData::None, LONG));
        peer.wait_for(|event| *event == Event::Mark(0));
        let busy = controller.admin(&command, AdminData::None, Duration::from_millis(1));
        let Err(DriverError::Busy { what, .. }) = busy else { panic!("{busy:?}") };
        assert_eq!(what, "vendor-specific admin command C0h", "the caller gave no name");
        release.store(true, Ordering::SeqCst);
        assert_eq!(long.join().unwrap().unwrap().result, 5);
    });
    assert!(controller.is_alive());
}

#[test]
fn data_that_straddles_a_keep_alive_has_the_time_of_its_command() {
    let peer = Peer::start(Config::default(), move |wire, received| {
        if received.is(AdminOpcode::GET_LOG_PAGE) {
            let piece = DataPiece { command_id: received.cid(), offset: 0, length: 4096, last: true };
            let pdu = [&piece.encode_to_host(false, wire.digests, Alignment::NONE)[..], &log_page(0, 4096)].concat();
            let (first, rest) = pdu.split_at(1000);
            wire.raw(first);
            // The sleep is the fault: a pause longer than the interval of the keep alive.
            std::thread::sleep(Duration::from_millis(2500));
            wire.raw(rest);
            wire.respond(received.cid(), Status::SUCCESS, 0);
            return Handled::Yes;
        }
        Handled::No
    });
    let mut target = peer.target();
    target.keep_alive = Duration::from_secs(4);
    let controller = tcp::connect(&target).unwrap();
    let mut page = vec![0; 4096];
    logpage::read(controller.as_ref(), LogId(0xC0), Csi::NVM, &mut page, LONG).unwrap();
    assert_eq!(page, log_page(0, 4096));
}

#[test]
fn closing_wakes_whoever_waits_for_the_controller() {
    let peer =
        Peer::start(Config::default(), |_, received| if received.is_read() { Handled::Yes } else { Handled::No });
    let controller = tcp::connect(&peer.target()).unwrap();
    let mut queue = controller.open_queue(1).unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || queue.read_blocks(NSID, 0, &mut vec![0; BLOCK], LONG));
        let waiter =
            scope.spawn(|| controller.admin(&Command { opcode: 0xC0, ..Command::default() }, AdminData::None, LONG));
        controller.close();
        assert!(matches!(reader.join().unwrap(), Err(DriverError::Lost { .. })));
        // The command may have been answered before the end.
        if let Err(error) = waiter.join().unwrap() {
            assert!(matches!(error, DriverError::Lost { .. }), "{error}");
        }
    });
    assert!(!controller.is_alive());
}

fn assert_send<T: Send + ?Sized>() {}

#[test]
fn queues_and_controllers_travel_between_threads() {
    assert_send::<Arc<dyn Controller>>();
    assert_send::<Box<dyn Queue>>();
}
