//! A relay between loader and Redis server that follows a fault plan, command by command.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// A command of the loader.
pub struct Command {
    /// Number of the command, from 0.
    pub number: u64,
    /// The words, lossily.
    pub words: Vec<String>,
}

/// The plan's decision about a command.
#[derive(Clone, Copy)]
pub enum Reply {
    /// The server's answer.
    Pass,
    /// The server's answer, this long after the command at the earliest. Those behind it on the connection wait.
    Late(Duration),
    /// The server's answer, with its last byte inverted.
    Damaged,
    /// This error instead of the server's answer.
    Error(&'static str),
    /// The first bytes of the server's answer, then the end of the connection.
    Cut(usize),
}

/// A running relay. Its threads end with the process.
pub struct RedisRelay {
    port: u16,
}

type Plan = Mutex<Box<dyn FnMut(&Command) -> Reply + Send>>;

impl RedisRelay {
    /// Relays to the server with this URL.
    pub fn start(server: &str, plan: impl FnMut(&Command) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let address = host(server).to_owned();
        let (plan, count): (Arc<Plan>, _) = (Arc::new(Mutex::new(Box::new(plan))), Arc::new(AtomicU64::new(0)));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // A server that is not there ends the connection.
                let Ok(server) = TcpStream::connect(&address) else { continue };
                let (plan, count) = (plan.clone(), count.clone());
                thread::spawn(move || relay(&client, &server, &plan, &count));
            }
        });
        Self { port }
    }

    /// Returns the URL that leads through the relay to the dataset at this URL of the server.
    pub fn url(&self, at_server: &str) -> String {
        at_server.replace(host(at_server), &format!("127.0.0.1:{}", self.port))
    }
}

/// Returns host and port of a URL.
fn host(url: &str) -> &str {
    url.split('/').nth(2).expect("a URL with a server")
}

/// Relays a connection until either side ends it or the plan cuts it.
fn relay(client: &TcpStream, server: &TcpStream, plan: &Plan, count: &AtomicU64) {
    let (decided, decisions) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            // An error ends the connection: a side went away.
            let _ = answers(client, server, &decisions);
            let _ = [client, server].map(|side| side.shutdown(Shutdown::Both));
        });
        let (mut commands, mut to_server) = (BufReader::new(client), server);
        while let Some((bytes, words)) = command(&mut commands) {
            let number = count.fetch_add(1, Ordering::Relaxed);
            let reply = plan.lock().expect("a plan does not panic")(&Command { number, words });
            if decided.send((Instant::now(), reply)).is_err() || to_server.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = server.shutdown(Shutdown::Both);
    });
}

/// Passes the answers on as decided.
fn answers(mut client: &TcpStream, server: &TcpStream, decisions: &mpsc::Receiver<(Instant, Reply)>) -> Option<()> {
    let mut server = BufReader::new(server);
    loop {
        let mut answer = Vec::new();
        value(&mut server, &mut answer)?;
        let (asked, reply) = decisions.recv().ok()?;
        match reply {
            Reply::Pass => {}
            // The sleep is the fault.
            Reply::Late(by) => thread::sleep((asked + by).saturating_duration_since(Instant::now())),
            // Behind the last byte is the end of the line.
            Reply::Damaged => answer.iter_mut().rev().skip(2).take(1).for_each(|byte| *byte = !*byte),
            Reply::Error(error) => answer = format!("-{error}\r\n").into_bytes(),
            Reply::Cut(first) => {
                client.write_all(&answer[..first.min(answer.len())]).ok()?;
                return None;
            }
        }
        client.write_all(&answer).ok()?;
    }
}

/// Reads a command. Returns its bytes and its words.
fn command(stream: &mut impl BufRead) -> Option<(Vec<u8>, Vec<String>)> {
    let mut bytes = Vec::new();
    let count: usize = line(stream, &mut bytes)?.strip_prefix('*')?.parse().ok()?;
    let mut words = Vec::new();
    for _ in 0..count {
        let length: usize = line(stream, &mut bytes)?.strip_prefix('$')?.parse().ok()?;
        let start = bytes.len();
        exactly(stream, length + 2, &mut bytes)?;
        words.push(String::from_utf8_lossy(&bytes[start..start + length]).into_owned());
    }
    Some((bytes, words))
}

/// Appends a value that the server sends.
fn value(stream: &mut impl BufRead, bytes: &mut Vec<u8>) -> Option<()> {
    let head = line(stream, bytes)?;
    let (kind, rest) = head.split_at_checked(1)?;
    match (kind, rest.parse::<usize>()) {
        ("$", Ok(length)) => exactly(stream, length + 2, bytes),
        ("*", Ok(count)) => (0..count).try_for_each(|_| value(stream, bytes)),
        ("%", Ok(count)) => (0..2 * count).try_for_each(|_| value(stream, bytes)),
        // Nothing (a length of -1), a number, a text, an error.
        _ => Some(()),
    }
}

/// Appends a line, and returns it without its end.
fn line(stream: &mut impl BufRead, bytes: &mut Vec<u8>) -> Option<String> {
    let start = bytes.len();
    stream.read_until(b'\n', bytes).ok()?;
    Some(std::str::from_utf8(&bytes[start..]).ok()?.strip_suffix("\r\n")?.to_owned())
}

/// Appends as many bytes.
fn exactly(stream: &mut impl BufRead, length: usize, bytes: &mut Vec<u8>) -> Option<()> {
    let start = bytes.len();
    bytes.resize(start + length, 0);
    stream.read_exact(&mut bytes[start..]).ok()
}
