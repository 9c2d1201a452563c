//! Faults that the driver survives with a typed error: wrong identifiers, wrong ranges, wrong digests, wrong order,
//! broken-off PDUs, silence, and the end of the connection at any time. Each error comes at once, tells the peer the
//! reason if the protocol can express it, and ends the association unless it concerns one command only.

use crate::peer::{self, BLOCK, Config, Event, Handled, LONG, NSID, Peer, Received, Wire, pattern};
use ddlp_cause::with_causes;
use ddlp_driver::program::{self, ProgramSlot};
use ddlp_driver::tcp;
use ddlp_driver::{AdminData, Command, Controller, DriverError, Queue};
use ddlp_nvme::tcp::{Digests, FatalStatus, IcResp};
use ddlp_nvme::{AdminOpcode, CompletionEntry, Status};
use nix::sys::socket::Backlog;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Answers the command with this identifier.
type Answer = fn(&mut Wire, u16);

const SLOT: ProgramSlot = ProgramSlot { nsid: 3, index: 0 };
/// Time-out of waits that are meant to run out.
const SHORT: Duration = Duration::from_millis(50);

fn soon() -> Instant {
    Instant::now() + LONG
}

/// A connection to a scripted peer, with an open queue.
struct Bench {
    peer: Peer,
    controller: Arc<dyn Controller>,
    queue: Box<dyn Queue>,
}

fn bench(digests: Digests, script: impl Fn(&mut Wire, &Received) -> Handled + Send + Sync + 'static) -> Bench {
    bench_with(Config::default(), digests, script)
}

fn bench_with(
    config: Config,
    digests: Digests,
    script: impl Fn(&mut Wire, &Received) -> Handled + Send + Sync + 'static,
) -> Bench {
    let peer = Peer::start(config, script);
    let mut target = peer.target();
    (target.header_digest, target.data_digest) = (digests.header, digests.data);
    let controller = tcp::connect(&target).unwrap();
    let queue = controller.open_queue(4).unwrap();
    Bench { peer, controller, queue }
}

/// Starts a peer that answers a read by `answer`.
fn reading(digests: Digests, answer: impl Fn(&mut Wire, u16) + Send + Sync + 'static) -> Bench {
    bench(digests, move |wire, received| {
        if !received.is_read() {
            return Handled::No;
        }
        answer(wire, received.cid());
        Handled::Yes
    })
}

/// Starts a peer that answers Execute by `answer`.
fn executing(answer: impl Fn(&mut Wire, u16) + Send + Sync + 'static) -> Bench {
    bench(Digests::NONE, move |wire, received| {
        if !received.is_execute() {
            return Handled::No;
        }
        answer(wire, received.cid());
        Handled::Yes
    })
}

impl Bench {
    fn read(&mut self) -> Result<(), DriverError> {
        self.queue.read_blocks(NSID, 0, &mut vec![0; 2 * BLOCK], LONG)
    }

    /// Checks that the read breaks the protocol in the way that `what` describes, that the peer is told `fatal`, and
    /// that the association is over.
    fn read_breaks(mut self, what: &str, fatal: Option<FatalStatus>) {
        let outcome = self.read();
        self.broken(outcome, what, fatal);
    }

    fn execute_breaks(mut self, data: Vec<u8>, what: &str, fatal: Option<FatalStatus>) {
        let submitted = self.queue.submit(&program::execute(SLOT, 0, 0), data, LONG);
        let outcome = submitted.and_then(|_| self.queue.poll(soon())).map(drop);
        self.broken(outcome, what, fatal);
    }

    fn broken(mut self, outcome: Result<(), DriverError>, what: &str, fatal: Option<FatalStatus>) {
        let error = outcome.unwrap_err();
        assert!(matches!(error, DriverError::Protocol { .. }), "{error}");
        assert!(with_causes(&error).contains(what), "{error:?}");
        if let Some(fatal) = fatal {
            assert_eq!(self.peer.wait_for_termination().status, fatal);
        }
        assert!(!self.controller.is_alive());
        let again = self.queue.poll(soon()).unwrap_err();
        assert!(matches!(again, DriverError::Lost { .. }), "{again}");
        assert!(with_causes(&again).contains(what), "the reason stays: {again:?}");
        let admin = self.controller.admin(&Command { opcode: 0xC0, ..Command::default() }, AdminData::None, LONG);
        assert!(matches!(admin, Err(DriverError::Lost { .. })), "{admin:?}");
        assert!(self.controller.open_queue(1).is_err());
    }
}

#[test]
fn a_response_to_nobody() {
    executing(|wire, cid| wire.respond(cid ^ 1, Status::SUCCESS, 0)).execute_breaks(
        vec![],
        "not in flight",
        Some(FatalStatus::HEADER),
    );
    executing(|wire, _| wire.respond(0x0FFF, Status::SUCCESS, 0)).execute_breaks(vec![], "not in flight", None);
}

#[test]
fn a_response_to_an_earlier_command_of_the_slot() {
    executing(|wire, cid| wire.respond(cid ^ 0x1000, Status::SUCCESS, 0)).execute_breaks(vec![], "not in flight", None);
}

#[test]
fn a_response_to_an_earlier_command_while_another_has_its_slot() {
    let earlier = Mutex::new(None);
    let mut bench = executing(move |wire, cid| {
        let known = *earlier.lock().unwrap().get_or_insert(cid);
        wire.respond(known, Status::SUCCESS, 0);
    });
    bench.queue.submit(&program::execute(SLOT, 0, 0), vec![], LONG).unwrap();
    assert!(bench.queue.poll(soon()).unwrap().is_some());
    bench.queue.submit(&program::execute(SLOT, 0, 0), vec![], LONG).unwrap();
    let outcome = bench.queue.poll(soon()).map(drop);
    bench.broken(outcome, "not in flight", Some(FatalStatus::HEADER));
}

#[test]
fn a_second_response() {
    let mut bench = executing(|wire, cid| {
        wire.respond(cid, Status::SUCCESS, 0);
        wire.respond(cid, Status::SUCCESS, 0);
    });
    bench.queue.submit(&program::execute(SLOT, 0, 0), vec![], LONG).unwrap();
    assert!(bench.queue.poll(soon()).unwrap().is_some());
    let outcome = bench.queue.poll(soon()).map(drop);
    bench.broken(outcome, "not in flight", Some(FatalStatus::HEADER));
}

#[test]
fn more_data_than_asked_for() {
    reading(Digests::NONE, |wire, cid| wire.data(cid, 0, &vec![1; 2 * BLOCK + 4], true, false))
        .read_breaks("data at 0, 8196 bytes, where 0 of 8192 have come", Some(FatalStatus::DATA_RANGE));
}

#[test]
fn more_data_than_any_command_may_ask_for() {
    // The header alone suffices: its length is invalid.
    let header = |length: u32| {
        let mut pdu = vec![7u8, 4, 24, 24];
        pdu.extend((24 + length).to_le_bytes());
        pdu.extend([0; 8]);
        pdu.extend(length.to_le_bytes());
        pdu.extend([0; 4]);
        pdu
    };
    reading(Digests::NONE, move |wire, _| wire.raw(&header(u32::MAX - 24)))
        .read_breaks("at most", Some(FatalStatus::LIMIT));
}

#[test]
fn data_out_of_order_and_twice() {
    reading(Digests::NONE, |wire, cid| wire.data(cid, BLOCK, &[1; BLOCK], true, false))
        .read_breaks("data at 4096", Some(FatalStatus::DATA_RANGE));
    reading(Digests::NONE, |wire, cid| {
        wire.data(cid, 0, &[1; BLOCK], false, false);
        wire.data(cid, 0, &[1; BLOCK], false, false);
    })
    .read_breaks("data at 0", Some(FatalStatus::DATA_RANGE));
}

#[test]
fn data_for_a_command_that_reads_none() {
    executing(|wire, cid| wire.data(cid, 0, &[1; 64], true, false)).execute_breaks(
        vec![5; 64],
        "data for a command that reads none",
        Some(FatalStatus::DATA_RANGE),
    );
}

#[test]
fn success_without_all_the_data() {
    reading(Digests::NONE, |wire, cid| {
        wire.data(cid, 0, &[1; BLOCK], true, false);
        wire.respond(cid, Status::SUCCESS, 0);
    })
    .read_breaks("success after 4096 of 8192 bytes", None);
    reading(Digests::NONE, |wire, cid| wire.data(cid, 0, &[1; BLOCK], true, true))
        .read_breaks("success after 4096 of 8192 bytes", None);
    executing(|wire, cid| wire.respond(cid, Status::SUCCESS, 0)).execute_breaks(
        vec![5; 2000],
        "success after 0 of 2000 bytes",
        None,
    );
}

#[test]
fn the_success_flag_under_flow_control() {
    let config = Config { flow_control_can_be_off: false, ..Config::default() };
    bench_with(config, Digests::NONE, |wire, received| {
        if !received.is_read() {
            return Handled::No;
        }
        wire.data(received.cid(), 0, &[1; 2 * BLOCK], true, true);
        Handled::Yes
    })
    .read_breaks("flow control", Some(FatalStatus::HEADER));
}

#[test]
fn requests_for_data_that_break_the_rules() {
    let cases: [(Answer, &str); 5] = [
        (|wire, cid| wire.r2t(cid, 1, 0, 2001), "R2T at 0, 2001 bytes"),
        (|wire, cid| wire.r2t(cid, 1, 4, 100), "R2T at 4"),
        (|wire, cid| wire.r2t(cid, 1, 0, 0), "R2T at 0, 0 bytes"),
        (|wire, cid| wire.r2t(cid, 1, u32::MAX as usize, u32::MAX as usize), "R2T at 4294967295"),
        (
            |wire, cid| {
                wire.r2t(cid, 1, 0, 1000);
                wire.r2t(cid, 2, 0, 1000);
            },
            "R2T at 0, 1000 bytes, where 1000 of 2000 have gone",
        ),
    ];
    for (answer, what) in cases {
        executing(answer).execute_breaks(vec![5; 2000], what, None);
    }
    executing(|wire, cid| wire.r2t(cid, 1, 0, 1)).execute_breaks(
        vec![5; 20],
        "R2T at 0, 1 bytes, where 20 of 20",
        None,
    );
    reading(Digests::NONE, |wire, cid| wire.r2t(cid, 1, 0, 4))
        .read_breaks("writes nothing", Some(FatalStatus::DATA_RANGE));
}

#[test]
fn damaged_headers() {
    let digests = Digests { header: true, data: false };
    reading(digests, |wire, cid| {
        let entry = CompletionEntry::new(cid, Status::SUCCESS, 0);
        let mut pdu = ddlp_nvme::tcp::CapsuleResponse::encode(&entry, wire.digests).to_vec();
        pdu[10] ^= 1;
        wire.raw(&pdu);
    })
    .read_breaks("header digest", Some(FatalStatus::HEADER_DIGEST));
}

#[test]
fn damaged_data_fails_its_command_alone() {
    let digests = Digests { header: false, data: true };
    let mut bench = bench(digests, |wire, received| {
        // The second read, at block 1, is answered correctly.
        if !received.is_read() || received.entry.cdw(10) != 0 {
            return Handled::No;
        }
        wire.data_with(received.cid(), 0, &[1; BLOCK], false, false, 0x40);
        wire.data_with(received.cid(), BLOCK, &[1; BLOCK], true, false, 0);
        wire.respond(received.cid(), Status::SUCCESS, 0);
        Handled::Yes
    });
    let error = bench.read().unwrap_err();
    assert!(error.to_string().contains("transient transport error (sct 0 sc 22h)"), "{error}");
    assert!(error.is_transient());
    let mut buf = vec![0; BLOCK];
    bench.queue.read_blocks(NSID, 1, &mut buf, LONG).unwrap();
    assert_eq!(buf, pattern(1, BLOCK));
}

#[test]
fn bytes_that_are_no_pdu() {
    for (bytes, what, fatal) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "unexpected pdu", FatalStatus::HEADER),
        (&[1, 0, 128, 0, 128, 0, 0, 0], "out of sequence", FatalStatus::SEQUENCE),
        (&[4, 0, 72, 0, 72, 0, 0, 0], "unexpected pdu CapsuleCmd", FatalStatus::HEADER),
        (&[5, 0, 25, 0, 25, 0, 0, 0], "header of 25 bytes", FatalStatus::HEADER),
        (&[5, 0, 24, 0, 23, 0, 0, 0], "23 bytes in all", FatalStatus::HEADER),
        (&[5, 1, 24, 0, 28, 0, 0, 0], "flags 01h", FatalStatus::HEADER),
    ] {
        reading(Digests::NONE, move |wire, _| wire.raw(bytes)).read_breaks(what, Some(fatal));
    }
}

#[test]
fn the_peer_ends_the_connection_by_the_book() {
    let fatal = ddlp_nvme::tcp::FatalError { status: FatalStatus::SEQUENCE, info: 9 };
    reading(Digests::NONE, move |wire, _| {
        let pdu = fatal.encode(ddlp_nvme::tcp::Role::Controller, &[1, 2, 3]);
        wire.raw(&pdu);
    })
    .read_breaks("pdu sequence error (fes 02h, fei 0x9)", None);
}

#[test]
fn the_connection_ends_anywhere() {
    let mut whole = vec![7u8, 4, 24, 24];
    whole.extend((24 + 2 * BLOCK as u32).to_le_bytes());
    // The script fills in the identifier.
    whole.extend([0; 8]);
    whole.extend((2 * BLOCK as u32).to_le_bytes());
    whole.extend([0; 4]);
    whole.extend([1; BLOCK]);
    for cut in [0, 1, 7, 8, 23, 24, 25, 600, 24 + BLOCK] {
        let bytes = whole[..cut].to_vec();
        let mut bench = bench(Digests::NONE, move |wire, received| {
            if !received.is_read() {
                return Handled::No;
            }
            let mut bytes = bytes.clone();
            if let Some(field) = bytes.get_mut(8..10) {
                field.copy_from_slice(&received.cid().to_le_bytes());
            }
            wire.raw(&bytes);
            Handled::Close
        });
        let error = bench.read().unwrap_err();
        assert!(matches!(error, DriverError::Lost { .. }), "{cut} bytes: {error}");
        assert!(error.is_transient() && !bench.controller.is_alive());
    }
}

#[test]
fn silence_ends_in_a_time_out() {
    // The peer sends nothing; a part of a header; a part of the data.
    for cut in [0usize, 10, 100] {
        let mut bench = reading(Digests::NONE, move |wire, cid| {
            let mut pdu = vec![7u8, 4, 24, 24];
            pdu.extend((24 + 2 * BLOCK as u32).to_le_bytes());
            pdu.extend(cid.to_le_bytes());
            pdu.extend([0; 6]);
            pdu.extend((2 * BLOCK as u32).to_le_bytes());
            pdu.extend([0; 100]);
            wire.raw(&pdu[..cut]);
        });
        let error = bench.queue.read_blocks(NSID, 0, &mut vec![0; 2 * BLOCK], SHORT).unwrap_err();
        assert!(matches!(error, DriverError::TimedOut { .. }), "{cut} bytes: {error}");
        assert!(error.to_string().ends_with("within 50ms"), "{error}");
        assert!(!bench.controller.is_alive(), "late data must not reach a buffer that was given back");
    }
}

#[test]
fn polling_past_the_deadline_loses_nothing() {
    let gate = Arc::new(std::sync::Barrier::new(2));
    let late = Arc::clone(&gate);
    let mut bench = executing(move |wire, cid| {
        let entry = CompletionEntry::new(cid, Status::SUCCESS, 99);
        let pdu = ddlp_nvme::tcp::CapsuleResponse::encode(&entry, wire.digests);
        wire.raw(&pdu[..13]);
        late.wait();
        late.wait();
        wire.raw(&pdu[13..]);
    });
    let ticket = bench.queue.submit(&program::execute(SLOT, 0, 0), vec![], LONG).unwrap();
    gate.wait();
    assert_eq!(bench.queue.poll(Instant::now() + SHORT).unwrap(), None);
    assert_eq!(bench.queue.poll(Instant::now()).unwrap(), None, "a part of a header is no completion");
    gate.wait();
    let (finished, completion) = bench.queue.poll(soon()).unwrap().unwrap();
    assert_eq!((finished, completion.result), (ticket, 99));
    assert!(bench.controller.is_alive());
}

#[test]
fn an_admin_command_without_an_answer_ends_the_association() {
    let mut bench =
        bench(Digests::NONE, |_, received| if received.is(AdminOpcode(0xC0)) { Handled::Yes } else { Handled::No });
    let command = Command { opcode: 0xC0, name: Some("do something"), ..Command::default() };
    let error = bench.controller.admin(&command, AdminData::None, SHORT).unwrap_err();
    assert!(matches!(error, DriverError::TimedOut { .. }), "{error}");
    assert!(error.to_string().contains(" to do something within "), "{error}");
    let error = bench.queue.poll(soon()).unwrap_err();
    assert!(with_causes(&error).contains("do something timed out after"), "the queue wakes and says why: {error:?}");
}

/// Returns the error of an idle queue after the peer has answered keep alives otherwise than the specification says.
/// The peer answers correctly until the queue is open.
fn error_after_keep_alives(answer: Handled) -> DriverError {
    let is_open = Arc::new(AtomicBool::new(false));
    let opened = Arc::clone(&is_open);
    let peer = Peer::start(Config::default(), move |_, received| {
        let is_fault = received.is(AdminOpcode::KEEP_ALIVE) && opened.load(Ordering::SeqCst);
        if is_fault { answer } else { Handled::No }
    });
    let mut target = peer.target();
    // A peer that answers has this time, and a queue has to open meanwhile.
    target.keep_alive = Duration::from_secs(2);
    let controller = tcp::connect(&target).unwrap();
    let mut queue = controller.open_queue(1).unwrap();
    is_open.store(true, Ordering::SeqCst);
    let error = queue.poll(soon()).unwrap_err();
    assert!(!controller.is_alive());
    error
}

#[test]
fn keep_alives_without_an_answer_end_the_association() {
    let error = error_after_keep_alives(Handled::Yes);
    assert!(with_causes(&error).contains("keep alive"), "{error:?}");
}

#[test]
fn an_idle_association_notices_the_end_of_its_admin_connection() {
    let error = error_after_keep_alives(Handled::Close);
    assert!(matches!(error, DriverError::Lost { .. }), "{error}");
}

#[test]
fn set_up_that_cannot_be_used() {
    let good = IcResp::new(Digests::NONE, 8192);
    for (ic_resp, what) in [
        (IcResp { version: 1.into(), ..good }, "fei 0x8"),
        (IcResp { data_alignment_z: 3, ..good }, "fei 0xa"),
        (IcResp { digests: 1, ..good }, "fei 0xb"),
        (IcResp { data_bytes_max: 100.into(), ..good }, "fei 0xc"),
    ] {
        let peer = Peer::honest(Config { ic_resp: Some(ic_resp), ..Config::default() });
        let error = tcp::connect(&peer.target()).map(drop).unwrap_err();
        assert!(matches!(error, DriverError::Protocol { .. }), "{error}");
        assert!(with_causes(&error).contains(what), "{error:?}");
    }
}

#[test]
fn refused_connections_name_the_reason() {
    let config = Config { connect_status: Status::CONNECT_INVALID_HOST.do_not_retry(), ..Config::default() };
    let error = tcp::connect(&Peer::honest(config).target()).map(drop).unwrap_err();
    assert!(error.to_string().contains("connect invalid host (sct 1 sc 84h dnr)"), "{error}");
    assert!(!error.is_transient());
    let config = Config { connect_status: Status::CONNECT_PARAMETERS.do_not_retry(), ..Config::default() };
    let error = tcp::connect(&Peer::honest(config).target()).map(drop).unwrap_err();
    assert!(error.to_string().contains("objects to byte 7 of the command"), "{error}");
    let config = Config { connect_status: Status::CONTROLLER_BUSY, ..Config::default() };
    let error = tcp::connect(&Peer::honest(config).target()).map(drop).unwrap_err();
    assert!(error.to_string().contains("too many hosts, associations or queues are connected"), "{error}");
    assert!(error.is_transient());
}

#[test]
fn a_controller_that_never_gets_ready() {
    let peer = Peer::honest(Config { never_ready: true, ..Config::default() });
    let mut target = peer.target();
    target.connect_timeout = Duration::from_secs(1);
    let error = tcp::connect(&target).map(drop).unwrap_err();
    assert!(matches!(error, DriverError::TimedOut { .. }), "{error}");
    peer.wait_for(|event| *event == Event::Closed(0));
}

#[test]
fn nobody_there() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let target = tcp::TcpTarget::new(&address.to_string(), peer::NQN).unwrap();
    let error = tcp::connect(&target).map(drop).unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    let DriverError::Lost { source, .. } = error else { panic!("{error:?}") };
    let refused = source.downcast_ref::<std::io::Error>().expect("the system's error is kept");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn an_attempt_to_connect_ends_when_another_thread_closes_it() {
    // The kernel drops a request to connect while the listener's queue is full.
    let full = TcpListener::bind("127.0.0.1:0").unwrap();
    nix::sys::socket::listen(&full, Backlog::new(0).unwrap()).unwrap();
    let _in_the_queue = TcpStream::connect(full.local_addr().unwrap()).unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for listener in [full, silent] {
        let mut target = tcp::TcpTarget::new(&listener.local_addr().unwrap().to_string(), peer::NQN).unwrap();
        target.connect_timeout = LONG;
        for delay in [Duration::ZERO, SHORT] {
            let (sender, receiver) = std::sync::mpsc::channel();
            let error = std::thread::scope(|scope| {
                let watch = move |closer| sender.send(closer).unwrap();
                let attempt = scope.spawn(|| tcp::connect_watched(&target, LONG, watch).map(drop).unwrap_err());
                let closer = receiver.recv().unwrap();
                // No event tells how far the attempt has come. The delay lets the second attempt reach its wait; an
                // attempt that is closed earlier has to end too.
                std::thread::sleep(delay);
                closer.close();
                attempt.join().unwrap()
            });
            assert!(matches!(error, DriverError::Lost { .. }), "{error}");
            assert!(with_causes(&error).contains("closed by this host"), "{error:?}");
        }
    }
}

#[test]
fn a_peer_that_takes_nothing() {
    const COMMANDS: usize = 6;
    let (sender, gate) = std::sync::mpsc::channel::<()>();
    let (gate, asking) = (Mutex::new(gate), Mutex::new(Vec::new()));
    let peer = Peer::start(Config { h2c_bytes_max: 4 << 20, mdts: 10, ..Config::default() }, move |wire, received| {
        if !received.is_execute() {
            return Handled::No;
        }
        let mut asking = asking.lock().unwrap();
        asking.push((received.cid(), received.entry.data.length.get() as usize));
        if asking.len() < COMMANDS {
            return Handled::Yes;
        }
        // From now on the peer reads nothing.
        asking.iter().for_each(|&(cid, length)| wire.r2t(cid, 0, 0, length));
        let _ = gate.lock().unwrap().recv();
        Handled::Close
    });
    let mut target = peer.target();
    target.io_timeout = Duration::from_millis(200);
    let controller = tcp::connect(&target).unwrap();
    let mut queue = controller.open_queue(8).unwrap();
    // All data together are more than the sockets of both sides hold.
    for _ in 0..COMMANDS {
        queue.submit(&program::execute(SLOT, 0, 0), vec![1; 4 << 20], LONG).unwrap();
    }
    let error = queue.poll(soon()).unwrap_err();
    assert!(matches!(error, DriverError::TimedOut { .. }), "{error}");
    drop(sender);
}
