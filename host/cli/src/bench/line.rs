//! A long line between a program and a server of this machine: a relay of TCP connections that delays their bytes and
//! limits their rate.
//!
//! As in TCP, bytes of a connection keep their order: a late piece holds up the pieces behind it. The line has no
//! losses and no slow start of TCP over the whole way. In front of a cluster of Redis servers, it also changes the
//! addresses that the servers announce, so that each of them is reached by the line.

mod names;

use super::remote::{parse_ms, parse_rate};
use crate::{Ending, output};
use anyhow::Context;
use clap::Args;
use names::{Name, Names};
use std::cell::Cell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep_until};

/// Longest piece that is delayed as a whole.
const PIECE: usize = 64 << 10;
/// Bytes of a direction of a connection that may be on the line.
const WINDOW: usize = 16 << 20;

/// What a line does to the bytes.
#[derive(Clone, Copy, Debug)]
pub struct LineSpec {
    /// Time from a request to its answer. Each direction takes half of it.
    pub round_trip: Duration,
    /// Longest additional delay of a piece of an answer, drawn anew for each.
    pub jitter: Duration,
    /// Bytes of answers per second of all connections together.
    pub bytes_per_s: Option<f64>,
    /// Seed of the draws.
    pub seed: u64,
}

/// Put a long line before a server, to measure other programs.
///
/// The line is that of `ddlp bench remote`: it delays the bytes and limits their rate. The command prints the address
/// at which the line begins, and runs until it is stopped.
#[derive(Args)]
pub struct LineArgs {
    /// The server
    #[arg(value_name = "HOST:PORT")]
    server: String,
    /// Round trip in milliseconds
    #[arg(long, value_name = "MS", default_value = "100", value_parser = parse_ms)]
    rtt: Duration,
    /// Longest additional delay of a piece of an answer in milliseconds, drawn anew for each piece
    #[arg(long, value_name = "MS", default_value = "0", value_parser = parse_ms)]
    jitter: Duration,
    /// Rate of the answers in 10⁶ bytes per second [default: no limit]
    #[arg(long, value_name = "MB/S", value_parser = parse_rate)]
    limit: Option<f64>,
    /// Seed of the draws
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

/// Runs the command.
pub fn line(args: &LineArgs) -> anyhow::Result<Ending> {
    let &LineArgs { rtt: round_trip, jitter, limit, seed, .. } = args;
    let spec = LineSpec { round_trip, jitter, bytes_per_s: limit.map(|mb| mb * 1e6), seed };
    let line = Line::start(std::slice::from_ref(&args.server), false, spec)?;
    output::print(&format!("{}\n", line.addresses()[0]))?;
    loop {
        // A signal ends the process.
        std::thread::park();
    }
}

/// A line to servers. Dropping it ends its connections.
pub struct Line {
    servers: Arc<[Server]>,
    addresses: Vec<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A server to which a line leads.
struct Server {
    /// Host and port.
    place: String,
    /// Whether a connection has been made to it.
    is_used: AtomicBool,
}

impl Line {
    /// Begins to relay connections to servers, each `HOST:PORT`. All of them share the rate. If they `are_cluster` of
    /// Redis, they are told to announce where their lines begin.
    pub fn start(servers: &[String], are_cluster: bool, spec: LineSpec) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listen = |_| runtime.block_on(TcpListener::bind("127.0.0.1:0")).context("no port for the line");
        let listeners = servers.iter().map(listen).collect::<anyhow::Result<Vec<_>>>()?;
        let addresses = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<Vec<_>>>()?;
        let names =
            Names(if are_cluster { servers.iter().zip(&addresses).map(Name::new).collect() } else { Vec::new() });
        let server = |place: &String| Server { place: place.clone(), is_used: AtomicBool::new(false) };
        let servers: Arc<[Server]> = servers.iter().map(server).collect();
        let (stop, stopped) = oneshot::channel();
        let relayed = servers.clone();
        let thread = std::thread::Builder::new().name("line".into()).spawn(move || {
            let local = LocalSet::new();
            local.block_on(&runtime, async {
                let way = Rc::new(Way { spec, free: Cell::new(Instant::now()), names, connections: Cell::new(0) });
                let accepting = listeners.into_iter().enumerate().map(|(number, listener)| {
                    tokio::task::spawn_local(accept(listener, relayed.clone(), number, way.clone()))
                });
                let _accepting: Vec<_> = accepting.collect();
                // An error is the end of the line, too.
                let _ = stopped.await;
            });
        })?;
        Ok(Self { servers, addresses, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the addresses at which the line begins, for each server.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns a server to which no connection has been made.
    pub fn unused(&self) -> Option<&str> {
        let unused = self.servers.iter().find(|server| !server.is_used.load(Ordering::Relaxed));
        unused.map(|server| &*server.place)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the connections of a line share.
struct Way {
    spec: LineSpec,
    /// The time from which on the line has room for the next bytes.
    free: Cell<Instant>,
    names: Names,
    /// Number of connections so far.
    connections: Cell<u64>,
}

async fn accept(listener: TcpListener, servers: Arc<[Server]>, number: usize, way: Rc<Way>) {
    loop {
        let Ok((client, _)) = listener.accept().await else { return };
        servers[number].is_used.store(true, Ordering::Relaxed);
        let connection = way.connections.get();
        way.connections.set(connection + 1);
        let (servers, way) = (servers.clone(), way.clone());
        // An error ends the connection at both ends: its streams are dropped.
        tokio::task::spawn_local(async move { relay(client, &servers[number].place, connection, &way).await.ok() });
    }
}

/// Relays both directions of a connection until both have ended.
async fn relay(client: TcpStream, server: &str, connection: u64, way: &Way) -> io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((client_in, client_out), (server_in, server_out)) = (client.into_split(), server.into_split());
    let Way { spec, free, names, .. } = way;
    let half = spec.round_trip / 2;
    let mut number = 0_u64;
    let answers = |piece: &mut Vec<u8>| {
        names.change(piece);
        number += 1;
        let now = Instant::now();
        let sent = spec.bytes_per_s.map_or(now, |rate| {
            let sent = free.get().max(now) + Duration::from_secs_f64(piece.len() as f64 / rate);
            free.set(sent);
            sent
        });
        sent + half + spec.jitter.mul_f64(draw((spec.seed, connection, number)))
    };
    let requests = |_: &mut Vec<u8>| Instant::now() + half;
    tokio::try_join!(delay(client_in, server_out, requests), delay(server_in, client_out, answers)).map(drop)
}

/// Returns a number from 0 to 1, equal for equal keys.
fn draw(key: (u64, u64, u64)) -> f64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish() as f64 / u64::MAX as f64
}

/// Passes bytes on. `due` gives the time of a piece, which it may change; pieces keep their order.
async fn delay(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut due: impl FnMut(&mut Vec<u8>) -> Instant,
) -> io::Result<()> {
    let window = Arc::new(Semaphore::new(WINDOW));
    let (pieces, mut arriving) = mpsc::unbounded_channel::<(Instant, u32, Vec<u8>)>();
    let reading = async {
        loop {
            let mut piece = Vec::with_capacity(PIECE);
            if from.read_buf(&mut piece).await? == 0 {
                // The channel's end is the end of the stream.
                drop(pieces);
                return Ok(());
            }
            let length = piece.len() as u32;
            window.acquire_many(length).await.expect("the window stays open").forget();
            let time = due(&mut piece);
            if pieces.send((time, length, piece)).is_err() {
                return Ok(());
            }
        }
    };
    let writing = async {
        while let Some((time, length, piece)) = arriving.recv().await {
            sleep_until(time).await;
            to.write_all(&piece).await?;
            window.add_permits(length as usize);
        }
        to.shutdown().await
    };
    tokio::try_join!(reading, writing).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener as StdListener, TcpStream as StdStream};

    const SPEC: LineSpec = LineSpec { round_trip: Duration::ZERO, jitter: Duration::ZERO, bytes_per_s: None, seed: 1 };

    /// Starts a server that sends back what it receives, inverted, and a line to it.
    fn echo(spec: LineSpec) -> Line {
        let listener = StdListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut bytes = Vec::new();
                    stream.read_to_end(&mut bytes).unwrap();
                    bytes.iter_mut().for_each(|byte| *byte = !*byte);
                    stream.write_all(&bytes).unwrap();
                });
            }
        });
        Line::start(&[address], false, spec).unwrap()
    }

    fn ask(line: &Line, bytes: &[u8]) -> Vec<u8> {
        let mut stream = StdStream::connect(line.addresses()[0]).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        answer
    }

    #[test]
    fn bytes_arrive_unchanged_and_in_order_on_many_connections() {
        let jitter = Duration::from_millis(3);
        let line = echo(LineSpec { jitter, bytes_per_s: Some(50e6), ..SPEC });
        std::thread::scope(|scope| {
            for number in 0..8_u32 {
                let line = &line;
                scope.spawn(move || {
                    let bytes: Vec<u8> = (0..400_000_u32).map(|at| (at * 7 + number) as u8).collect();
                    let inverted: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
                    assert!(ask(line, &bytes) == inverted, "connection {number}");
                });
            }
        });
    }

    #[test]
    fn an_answer_takes_at_least_the_round_trip_and_its_share_of_the_rate() {
        let round_trip = Duration::from_millis(40);
        let line = echo(LineSpec { round_trip, bytes_per_s: Some(1e6), ..SPEC });
        let begun = std::time::Instant::now();
        assert_eq!(ask(&line, &[0; 30_000]).len(), 30_000);
        assert!(begun.elapsed() >= round_trip + Duration::from_millis(30), "{:?}", begun.elapsed());
    }

    #[test]
    fn a_server_that_is_not_there_ends_the_connection() {
        let gone = StdListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let line = Line::start(&[gone], false, SPEC).unwrap();
        let mut stream = StdStream::connect(line.addresses()[0]).unwrap();
        assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
    }
}
