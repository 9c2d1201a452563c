//! Limits on hosts that fall silent or come in crowds. The tests stop the agent's clock and move it on, so that a
//! minute takes no time, and a limit is neither earlier nor later than documented (within [`BEFORE`] and [`AFTER`]).

use crate::host::agent::{TestAgent, settings};
use crate::host::images::Gated;
use crate::host::{Association, HOST_NQN, Line, Received, command, read};
use ddlp_csd::RESULTS_NSID;
use ddlp_device::agent::{Agent, Settings};
use ddlp_device::controller::{ENABLE_TIME, IO_QUEUES_MAX};
use ddlp_device::tcp::places::{CLOSING_MAX, CONNECTIONS_MAX, PROOF_TIME, STRANGERS_MAX};
use ddlp_device::tcp::{CLOSE_TIME, PDU_TIME};
use ddlp_nvme::fabrics::{CONTROLLER_ANY, ConnectCommand, ConnectData, PropertySet};
use ddlp_nvme::property::offset;
use ddlp_nvme::tcp::{CapsuleCommand, Digests, IcReq};
use ddlp_nvme::{AdminOpcode, Status};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, setsockopt, socket, sockopt};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::{pause, sleep};
use zerocopy::IntoBytes;

/// Time before its limit at which a connection has to be open.
const BEFORE: Duration = Duration::from_millis(100);
/// Time after its limit at which a connection has to be closed. The agent may receive the last bytes only after its
/// clock has stopped, and the clock moves by up to half a second whenever the agent polls a socket.
const AFTER: Duration = Duration::from_secs(2);

/// An agent whose clock can be stopped while it serves.
struct Clocked {
    address: SocketAddr,
    nqn: String,
    stop: Option<oneshot::Sender<()>>,
    steps: Sender<Duration>,
    stepped: Receiver<()>,
}

impl Clocked {
    fn start() -> Self {
        Self::start_with(settings())
    }

    fn start_with(settings: Settings) -> Self {
        let (ready, started) = channel();
        let (stop, stopped) = oneshot::channel();
        let (steps, wanted) = channel::<Duration>();
        let (done, stepped) = channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let agent = Agent::start_with(&settings, Arc::new(Gated::default())).await.unwrap();
                ready.send((agent.address(), agent.nqn().to_owned())).unwrap();
                if stopped.await.is_err() {
                    return;
                }
                pause();
                done.send(()).unwrap();
                // A stopped clock moves on when the runtime is idle, but not while a blocking task runs.
                let wanted = Arc::new(Mutex::new(wanted));
                loop {
                    let wanted = wanted.clone();
                    let Ok(step) = spawn_blocking(move || wanted.lock().unwrap().recv()).await.unwrap() else { return };
                    sleep(step).await;
                    done.send(()).unwrap();
                }
            });
        });
        let (address, nqn) = started.recv().expect("the agent starts");
        Self { address, nqn, stop: Some(stop), steps, stepped }
    }

    fn at(&self) -> (SocketAddr, &str) {
        (self.address, &self.nqn)
    }

    fn stop_clock(&mut self) {
        self.stop.take().expect("it is stopped once").send(()).unwrap();
        self.stepped.recv().unwrap();
    }

    /// Moves the stopped clock on. Meanwhile the agent does everything that falls due.
    fn advance(&self, time: Duration) {
        self.steps.send(time).unwrap();
        self.stepped.recv().unwrap();
    }
}

fn is_open(line: &mut Line) -> bool {
    line.stream.set_nonblocking(true).unwrap();
    let mut byte = [0];
    match line.stream.read(&mut byte) {
        Ok(0) => false,
        Ok(_) => panic!("nothing is to be received"),
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

fn connect_capsule(nqn: &str) -> Vec<u8> {
    let data = ConnectData::new([1; 16], CONTROLLER_ANY, nqn, HOST_NQN).unwrap();
    let entry = ConnectCommand::new(0, 31, 0, false).entry();
    let mut bytes = CapsuleCommand::encode(&entry, size_of::<ConnectData>() as u32, Digests::NONE).to_vec();
    bytes.extend_from_slice(data.as_bytes());
    bytes
}

fn property_get() -> Vec<u8> {
    let entry = ddlp_nvme::fabrics::PropertyGet::new(offset::CSTS).entry();
    CapsuleCommand::encode(&entry, 0, Digests::NONE).to_vec()
}

/// Brings a connection to the state that a test leaves alone.
type Prepare = fn(&Clocked) -> Line;

#[test]
fn silent_hosts_are_cut_off_at_the_limit_of_their_state() {
    let cases: [(&str, Duration, Prepare); 6] = [
        ("nothing sent", PROOF_TIME, |agent| Line::raw(agent.address)),
        ("half an ICReq", PROOF_TIME, |agent| {
            let mut line = Line::raw(agent.address);
            line.stream.write_all(&IcReq::new(Digests::NONE).encode()[..64]).unwrap();
            line
        }),
        ("no Connect", PROOF_TIME, |agent| Line::open(agent.address, Digests::NONE)),
        ("half a Connect", PROOF_TIME, |agent| {
            let mut line = Line::open(agent.address, Digests::NONE);
            line.stream.write_all(&connect_capsule(&agent.nqn)[..500]).unwrap();
            line
        }),
        ("a controller that is not enabled", ENABLE_TIME, |agent| {
            let mut line = Line::open(agent.address, Digests::NONE);
            line.stream.write_all(&connect_capsule(&agent.nqn)).unwrap();
            assert!(matches!(line.receive(), Received::Response(entry) if entry.status() == Status::SUCCESS));
            line
        }),
        ("half a command", PDU_TIME, |agent| {
            let mut admin = Association::new(agent.at(), 1, Digests::NONE).admin;
            admin.stream.write_all(&property_get()[..40]).unwrap();
            admin
        }),
    ];
    for (what, limit, prepare) in cases {
        let mut agent = Clocked::start();
        agent.stop_clock();
        let mut line = prepare(&agent);
        agent.advance(limit - BEFORE);
        assert!(is_open(&mut line), "{what}: closed before its limit");
        agent.advance(BEFORE + AFTER);
        assert!(!is_open(&mut line), "{what}: still open after its limit");
    }
}

#[test]
fn a_silent_association_is_ended() {
    let mut agent = Clocked::start();
    agent.stop_clock();
    let keep_alive = Duration::from_secs(30);
    let mut association = Association::with_keep_alive(agent.at(), 1, Digests::NONE, keep_alive.as_millis() as u32);
    let mut queue = association.open_queue(1, 8, true);
    agent.advance(keep_alive - BEFORE);
    assert!(is_open(&mut association.admin) && is_open(&mut queue));
    agent.advance(BEFORE + AFTER);
    assert!(!is_open(&mut association.admin) && !is_open(&mut queue));
}

#[test]
fn an_idle_association_without_keep_alive_stays() {
    let mut agent = Clocked::start();
    let mut admin = Association::new(agent.at(), 1, Digests::NONE).admin;
    agent.stop_clock();
    agent.advance(Duration::from_secs(3600));
    assert!(is_open(&mut admin));
}

/// Sends byte by byte: a host that keeps sending gains no time for a PDU or for its Connect.
#[test]
fn a_pdu_that_arrives_byte_by_byte_is_cut_off() {
    let pause = Duration::from_secs(5);
    for (what, limit, is_connected) in [("a command", PDU_TIME, true), ("an ICReq", PROOF_TIME, false)] {
        let mut agent = Clocked::start();
        let mut line = match is_connected {
            true => Association::new(agent.at(), 1, Digests::NONE).admin,
            false => Line::raw(agent.address),
        };
        let bytes = if is_connected { property_get() } else { IcReq::new(Digests::NONE).encode().to_vec() };
        agent.stop_clock();
        let mut sent = 0;
        while is_open(&mut line) {
            assert!(pause * sent < limit + AFTER + pause, "{what}: still open after {:?}", pause * sent);
            // The connection is closed, unless the agent has not noticed the limit yet.
            let _ = line.stream.write(&bytes[sent as usize..][..1]);
            agent.advance(pause);
            sent += 1;
        }
        assert!(pause * sent >= limit, "{what}: closed after {:?}", pause * sent);
    }
}

/// Connects from an address of loopback.
fn connect_from(from: [u8; 4], to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let [a, b, c, d] = from;
    bind(socket.as_raw_fd(), &SockaddrIn::new(a, b, c, d, 0))?;
    let SocketAddr::V4(to) = to else { panic!("the agent listens at an IPv4 address") };
    connect(socket.as_raw_fd(), &SockaddrIn::from(to))?;
    Ok(socket.into())
}

/// Connects allowed hosts while others hold every connection that they can get, and keep opening new ones. The clock
/// stands still, so no deadline ends one of those connections: a host that had to wait for one would wait for ever.
#[test]
fn a_flood_of_others_keeps_no_allowed_host_out() {
    let settings = Settings { allowed_hosts: vec![HOST_NQN.into()], ..settings() };
    let mut agent = Clocked::start_with(settings);
    agent.stop_clock();
    let (address, setup) = (agent.address, IcReq::new(Digests::NONE).encode());
    // Connections in three states: silent, in the middle of an ICReq, set up.
    let open = |number: u8| {
        let stream = connect_from([127, 0, 0, 2 + number % 4], address)?;
        (&stream).write_all(&setup[..[0, 64, setup.len()][usize::from(number % 3)]])?;
        Ok::<_, std::io::Error>(stream)
    };
    let held: Vec<TcpStream> = (0..200).map(|number| open(number).unwrap()).collect();
    let served = || {
        let mut association = Association::with_keep_alive(agent.at(), 1, Digests::NONE, 5000);
        let mut queues: Vec<Line> = (1..=4).map(|id| association.open_queue(id, 8, true)).collect();
        queues.iter_mut().for_each(|queue| drop(queue.ok(read(RESULTS_NSID, 0, 1), &[])));
        association.admin.ok(command(AdminOpcode::KEEP_ALIVE.0, 0, [0; 6], 0), &[]);
    };
    served();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Each new connection takes the place of an earlier one. The agent may already have reset that one.
            for number in (0..2000u16).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                let _ = open(number as u8);
            }
        });
        (0..3).for_each(|_| served());
        is_over.store(true, Ordering::Relaxed);
    });
    drop(held);
}

#[test]
fn one_stranger_too_many_takes_the_place_of_the_oldest() {
    let agent = TestAgent::start(settings(), Arc::new(Gated::default()));
    let mut lines: Vec<Line> = (0..=STRANGERS_MAX).map(|_| Line::open(agent.address, Digests::NONE)).collect();
    assert!(lines[0].ends());
    // The others are served: a Connect on each of the last ones.
    for line in lines.iter_mut().rev().take(3) {
        line.stream.write_all(&connect_capsule(&agent.nqn)).unwrap();
        assert!(matches!(line.receive(), Received::Response(entry) if entry.status() == Status::SUCCESS));
    }
}

/// Disables the controller, which ends its I/O queues, and enables it again.
fn reset_controller(association: &mut Association) {
    for value in [0x0046_0060, 0x0046_0061] {
        association.admin.ok(PropertySet::new(offset::CC, value).entry(), &[]);
    }
}

/// Returns whether the agent has reset a connection, whether or not it has sent bytes before.
fn is_reset(line: &Line) -> bool {
    line.stream.take_error().unwrap().is_some()
}

#[test]
fn a_host_that_takes_nothing_does_not_keep_a_closed_connection_open() {
    let mut agent = Clocked::start();
    let mut association = Association::new(agent.at(), 1, Digests::NONE);
    let mut queue = association.open_queue(1, 64, true);
    setsockopt(&queue.stream, sockopt::RcvBuf, &4096).unwrap();
    for id in 0..32 {
        let mut entry = read(RESULTS_NSID, 0, 256);
        entry.command_id = id.into();
        queue.submit(&entry, &[]);
    }
    agent.stop_clock();
    reset_controller(&mut association);
    agent.advance(CLOSE_TIME - BEFORE);
    assert!(!is_reset(&queue), "the host has time to take its last answers");
    agent.advance(BEFORE + AFTER);
    assert!(is_reset(&queue));
    assert!(!is_reset(&association.admin));
}

/// Opens queues and makes the agent close them, again and again, without closing their connections. The clock stands
/// still, so no deadline ends one of these connections.
#[test]
fn a_host_cannot_pile_up_closed_connections() {
    let mut agent = Clocked::start();
    agent.stop_clock();
    let mut association = Association::new(agent.at(), 1, Digests::NONE);
    let mut lines: Vec<Line> = Vec::new();
    while lines.len() <= CLOSING_MAX {
        lines.extend((1..=IO_QUEUES_MAX).map(|id| association.open_queue(id, 8, true)));
        reset_controller(&mut association);
    }
    let mut served = association.open_queue(1, 8, true);
    served.ok(read(RESULTS_NSID, 0, 1), &[]);
    let (too_many, others) = lines.split_at(lines.len() - CLOSING_MAX);
    assert!(too_many.iter().all(is_reset));
    assert!(!others.iter().any(is_reset), "the other connections wait for the host");
}

/// Reads the limit on open files from the service's unit: a quarter of them is left for other files than connections.
#[test]
fn the_service_may_open_a_file_for_each_connection() {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/systemd/ddlp-device.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    let limit = unit.lines().find_map(|line| line.strip_prefix("LimitNOFILE=")).expect("the unit has a limit");
    assert!(limit.parse::<usize>().unwrap() * 3 / 4 >= CONNECTIONS_MAX, "{limit}");
}
