//! One socket: reads into the session, time limits, an orderly end.

use super::hub::{Hub, Line, Outgoing};
use super::session::{Above, End, Session, Setup};
use super::writer::{Buffers, Writer};
use super::{CONNECT_TIME, LINGER_TIME, PAUSE_TIME, RECEIVE_BYTES, SETUP_TIME};
use crate::controller::ConnId;
use ddlp_nvme::tcp::{Encoded, FatalError, Role};
use ddlp_nvme::{Status, SubmissionEntry};
use std::io;
use std::net::SocketAddr;
use std::sync::OnceLock;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

struct Port<'a> {
    hub: &'a Hub,
    conn: ConnId,
    line: &'a Line,
    setup: &'a OnceLock<Setup>,
}

impl Above for Port<'_> {
    fn begin(&mut self, command: &SubmissionEntry) -> Result<Result<usize, Status>, FatalError> {
        self.hub.begin(self.conn, self.line, command)
    }

    fn run(&mut self, command: &SubmissionEntry, data: &[u8]) {
        self.hub.run(self.conn, command, data);
    }

    fn reject(&mut self, command: &SubmissionEntry, status: Status) {
        self.hub.reject(self.conn, command, status);
    }

    fn ready(&mut self, setup: Setup) {
        self.setup.get_or_init(|| setup);
    }

    fn send(&mut self, pdu: Encoded) {
        self.line.send(Outgoing::Pdu(pdu));
    }
}

/// Why reading ended.
enum Ended {
    /// The peer closed, or the socket failed.
    Peer(Option<io::Error>),
    /// A time limit; which.
    Late(&'static str),
    Session(End, Encoded),
}

/// Serves one connection until its end. `reached`: see [`crate::controller::Subsystem::opened`].
pub async fn serve(stream: TcpStream, peer: SocketAddr, reached: SocketAddr, hub: &Hub, buffers: &Buffers) {
    let (conn, line, mut queue) = hub.open(peer, reached);
    let setup = OnceLock::new();
    let mut writer =
        Writer { stream: &stream, line: &line, media: hub.media(), buffers, setup: &setup, staged: Vec::new() };
    let mut port = Port { hub, conn, line: &line, setup: &setup };
    let ended = {
        let sending = writer.run(&mut queue);
        tokio::pin!(sending);
        let ended = tokio::select! {
            biased;
            sent = &mut sending => {
                if let Err(error) = sent {
                    tracing::debug!(%peer, %error, "cannot send");
                }
                None
            }
            ended = receive(&stream, &mut port) => Some(ended),
        };
        // From here on the host's work is given up; what is queued for it may still be sent.
        hub.closed(conn);
        if let Some(ended) = &ended {
            if let Ended::Session(End::Violation(_), term) = ended {
                line.send(Outgoing::Pdu(*term));
            }
            line.send(Outgoing::Close);
            let _ = timeout(LINGER_TIME, sending).await;
        }
        ended
    };
    report(peer, &ended);
    linger(&stream).await;
}

fn report(peer: SocketAddr, ended: &Option<Ended>) {
    match ended {
        None => tracing::debug!(%peer, "connection closed"),
        Some(Ended::Peer(None)) => tracing::debug!(%peer, "connection closed by the host"),
        Some(Ended::Peer(Some(error))) => tracing::debug!(%peer, %error, "connection lost"),
        Some(Ended::Late(what)) => tracing::debug!(%peer, what, "connection closed: host is late"),
        Some(Ended::Session(End::Host(reason), _)) => tracing::debug!(%peer, %reason, "host ended the connection"),
        Some(Ended::Session(End::Violation(reason), _)) => {
            if super::server::may_log() {
                tracing::warn!(%peer, %reason, "host broke the protocol");
            }
        }
    }
}

async fn receive(stream: &TcpStream, port: &mut Port<'_>) -> Ended {
    let mut session = Session::default();
    let mut buffer = vec![0; RECEIVE_BYTES];
    let mut limit = Limit::new();
    loop {
        let late = limit.next(&session, port);
        let ready = match late {
            Some((deadline, what)) => match timeout_at(deadline, stream.readable()).await {
                Ok(ready) => ready,
                Err(_) => return Ended::Late(what),
            },
            None => stream.readable().await,
        };
        if let Err(error) = ready {
            return Ended::Peer(Some(error));
        }
        let count = match stream.try_read(&mut buffer) {
            Ok(0) => return Ended::Peer(None),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Ended::Peer(Some(error)),
        };
        if let Err(end) = session.feed(&buffer[..count], port) {
            let term = match end {
                End::Violation(reason) | End::Host(reason) => reason.encode(Role::Controller, session.header()),
            };
            return Ended::Session(end, term);
        }
    }
}

/// Until when the next bytes have to come.
struct Limit {
    setup: Instant,
    connect: Option<Instant>,
}

impl Limit {
    fn new() -> Self {
        Self { setup: Instant::now() + SETUP_TIME, connect: None }
    }

    fn next(&mut self, session: &Session, port: &Port<'_>) -> Option<(Instant, &'static str)> {
        if port.setup.get().is_none() {
            return Some((self.setup, "initialize connection request"));
        }
        if !port.line.is_connected() {
            let deadline = *self.connect.get_or_insert_with(|| Instant::now() + CONNECT_TIME);
            return Some((deadline, "connect"));
        }
        (!session.is_idle()).then(|| (Instant::now() + PAUSE_TIME, "rest of a pdu"))
    }
}

/// Reads to the peer's end and drops it. Closing with unread bytes would reset the connection and might cut off what was sent last.
async fn linger(stream: &TcpStream) {
    let drain = async {
        let mut waste = [0; 4096];
        loop {
            if stream.readable().await.is_err() {
                return;
            }
            match stream.try_read(&mut waste) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    };
    let _ = timeout(LINGER_TIME, drain).await;
}
