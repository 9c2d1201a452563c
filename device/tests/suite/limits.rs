//! What the agent does about hosts that fall silent or come in crowds. Its clock is stopped and moved on by hand, so that a minute
//! takes no time and a limit is known to fall neither earlier nor later than it says (to [`BEFORE`] and [`AFTER`]).

use crate::host::agent::{TestAgent, settings};
use crate::host::images::Gated;
use crate::host::{Association, HOST_NQN, Line};
use ddlp_device::agent::Agent;
use ddlp_device::tcp::{CONNECT_TIME, CONNECTIONS_MAX, PAUSE_TIME, SETUP_TIME};
use ddlp_nvme::fabrics::{CONTROLLER_ANY, ConnectCommand, ConnectData};
use ddlp_nvme::property::offset;
use ddlp_nvme::tcp::{CapsuleCommand, Digests, IcReq};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::time::{pause, sleep};
use zerocopy::IntoBytes;

/// So long before its limit a connection is open.
const BEFORE: Duration = Duration::from_millis(100);
/// So long after its limit it is closed. The agent may take what was sent last only once its clock is stopped, and the
/// clock goes on by up to half a second for each look at a socket.
const AFTER: Duration = Duration::from_secs(2);

/// An agent whose clock can be stopped.
struct Clocked {
    address: SocketAddr,
    nqn: String,
    stop: Option<oneshot::Sender<()>>,
    steps: Sender<Duration>,
    stepped: Receiver<()>,
}

impl Clocked {
    fn start() -> Self {
        let (ready, started) = channel();
        let (stop, stopped) = oneshot::channel();
        let (steps, wanted) = channel::<Duration>();
        let (done, stepped) = channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let agent = Agent::start_with(&settings(), Arc::new(Gated::default())).await.unwrap();
                ready.send((agent.address(), agent.nqn().to_owned())).unwrap();
                if stopped.await.is_err() {
                    return;
                }
                pause();
                done.send(()).unwrap();
                // A stopped clock goes on when the runtime has nothing to do. Waiting for the next step holds up the
                // runtime.
                while let Ok(step) = wanted.recv() {
                    sleep(step).await;
                    done.send(()).unwrap();
                }
            });
        });
        let (address, nqn) = started.recv().expect("the agent starts");
        Self { address, nqn, stop: Some(stop), steps, stepped }
    }

    fn stop_clock(&mut self) {
        self.stop.take().expect("it is stopped once").send(()).unwrap();
        self.stepped.recv().unwrap();
    }

    /// Moves the stopped clock on. The agent does what falls due meanwhile.
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

/// Brings a connection to the state that is to be left alone.
type Prepare = fn(&Clocked) -> Line;

#[test]
fn silent_hosts_are_cut_off_at_the_limit_of_their_state() {
    let cases: [(&str, Duration, Prepare); 5] = [
        ("nothing sent", SETUP_TIME, |agent| Line::raw(agent.address)),
        ("half an ICReq", SETUP_TIME, |agent| {
            let mut line = Line::raw(agent.address);
            line.stream.write_all(&IcReq::new(Digests::NONE).encode()[..64]).unwrap();
            line
        }),
        ("no Connect", CONNECT_TIME, |agent| Line::open(agent.address, Digests::NONE)),
        ("half a Connect", CONNECT_TIME, |agent| {
            let mut line = Line::open(agent.address, Digests::NONE);
            line.stream.write_all(&connect_capsule(&agent.nqn)[..500]).unwrap();
            line
        }),
        ("half a command", PAUSE_TIME, |agent| {
            let mut admin = Association::new((agent.address, &agent.nqn), 1, Digests::NONE).admin;
            let entry = ddlp_nvme::fabrics::PropertyGet::new(offset::CSTS).entry();
            let capsule = CapsuleCommand::encode(&entry, 0, Digests::NONE);
            admin.stream.write_all(&capsule.to_vec()[..40]).unwrap();
            admin
        }),
    ];
    for (what, limit, prepare) in cases {
        let mut agent = Clocked::start();
        let start = Instant::now();
        let mut line = prepare(&agent);
        agent.stop_clock();
        // The limit began to run somewhere within this time.
        let within = start.elapsed();
        agent.advance(limit - within - BEFORE);
        assert!(is_open(&mut line), "{what}: closed before its limit");
        agent.advance(within + BEFORE + AFTER);
        assert!(!is_open(&mut line), "{what}: still open after its limit");
    }
}

#[test]
fn an_idle_association_without_keep_alive_stays() {
    let mut agent = Clocked::start();
    let mut admin = Association::new((agent.address, &agent.nqn), 1, Digests::NONE).admin;
    agent.stop_clock();
    agent.advance(Duration::from_secs(3600));
    assert!(is_open(&mut admin));
}

/// True when a new connection is set up, false when it is closed before.
fn is_served(address: SocketAddr) -> bool {
    let mut line = Line::raw(address);
    line.stream.write_all(&IcReq::new(Digests::NONE).encode()).is_ok() && matches!(line.stream.read(&mut [0]), Ok(1))
}

#[test]
fn one_connection_too_many_is_closed_and_a_free_place_is_given_again() {
    let agent = TestAgent::start(settings(), Arc::new(Gated::default()));
    let mut lines: Vec<Line> = (0..CONNECTIONS_MAX).map(|_| Line::open(agent.address, Digests::NONE)).collect();
    assert!(!is_served(agent.address), "it is closed without an answer");
    drop(lines.pop());
    // The agent sees the end of a connection a little later than the host.
    assert!((0..1000).any(|_| is_served(agent.address)), "a place that was left is given again");
    drop(lines);
}
