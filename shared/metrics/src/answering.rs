//! The server's side of a connection.

use crate::{CLIENT_WITHIN, Collected, Figures, PREFIX};
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Largest size of a request.
pub(crate) const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Pause after the system refused a connection, for example because of too many open files.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);

/// Stack of a thread that answers.
const STACK_BYTES: usize = 256 << 10;

/// Type of the page.
const PAGE_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A connection whose reads and writes end after some time.
pub(crate) trait Client: Read + Write {
    fn read_within(&self, time: Duration) -> io::Result<()>;
    fn write_within(&self, time: Duration) -> io::Result<()>;
}

impl Client for TcpStream {
    fn read_within(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))
    }

    fn write_within(&self, time: Duration) -> io::Result<()> {
        self.set_write_timeout(Some(time))
    }
}

impl Client for UnixStream {
    fn read_within(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))
    }

    fn write_within(&self, time: Duration) -> io::Result<()> {
        self.set_write_timeout(Some(time))
    }
}

/// A thread that answers requests at a socket. Dropping it ends the thread, and the socket even where a forked process
/// has inherited it. In a forked process itself, nothing ends.
#[derive(Debug)]
pub(crate) struct Answering {
    /// The socket at which the thread listens.
    socket: OwnedFd,
    process: u32,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Answering {
    /// Starts the thread. `accept` waits for the next client at the socket.
    pub fn start<C: Client>(
        socket: OwnedFd,
        accept: impl Fn() -> io::Result<C> + Send + 'static,
        figures: impl Figures,
    ) -> io::Result<Self> {
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register_collector(Box::new(Collected(figures)));
        let ends = Arc::new(AtomicBool::new(false));
        let ended = ends.clone();
        let answer_all = move || {
            loop {
                let client = accept();
                // The end of the socket is an error.
                if ended.load(Ordering::Acquire) {
                    return;
                }
                match client {
                    // A client that goes away gets no answer.
                    Ok(client) => drop(answer(client, &registry)),
                    Err(_) => thread::sleep(REFUSED_PAUSE),
                }
            }
        };
        let thread = thread::Builder::new().name("metrics".into()).stack_size(STACK_BYTES).spawn(answer_all)?;
        Ok(Self { socket, process: process::id(), ends, thread: Some(thread) })
    }

    /// Returns another descriptor of the socket, as a forked process has one.
    #[cfg(test)]
    pub fn socket(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone()
    }

    /// Returns whether this process is not the one that started the thread, but forked from it.
    pub fn is_forked(&self) -> bool {
        self.process != process::id()
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        if self.is_forked() {
            return;
        }
        self.ends.store(true, Ordering::Release);
        // Closing the descriptor would neither wake the thread nor end what a forked process has inherited. The
        // standard library has this system call for streams only.
        let ended = self.socket.try_clone().and_then(|socket| TcpStream::from(socket).shutdown(Shutdown::Both));
        if ended.is_ok()
            && let Some(thread) = self.thread.take()
        {
            drop(thread.join());
        }
    }
}

/// Answers one request.
fn answer(mut client: impl Client, registry: &Registry) -> io::Result<()> {
    client.write_within(CLIENT_WITHIN)?;
    let (status, kind, body) = match read_request(&mut client)? {
        request if request.starts_with(b"GET ") => {
            let mut page = String::new();
            text::encode(&mut page, registry).map_err(io::Error::other)?;
            ("200 OK", PAGE_TYPE, page)
        }
        _ => ("405 Method Not Allowed", "text/plain", "only GET is possible\n".to_owned()),
    };
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    client.write_all((head + &body).as_bytes())
}

/// Reads a request up to the empty line after its headers.
fn read_request(client: &mut impl Client) -> io::Result<Vec<u8>> {
    let until = Instant::now() + CLIENT_WITHIN;
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || request.len() > REQUEST_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        client.read_within(left)?;
        let mut piece = [0; 1024];
        match client.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => request.extend_from_slice(&piece[..length]),
        }
    }
    Ok(request)
}
