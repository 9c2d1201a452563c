//! One socket: reads into the session, time limits, an orderly end.

use super::hub::{Hub, Line, Outgoing};
use super::session::{Agreement, CommandHandler, Session, SessionEnd};
use super::writer::{Buffers, PduWriter};
use super::{PDU_TIME, RECEIVE_BYTES};
use crate::controller::ConnId;
use crate::log_limit::LogLimit;
use ddlp_nvme::tcp::{Encoded, FatalError, Role};
use ddlp_nvme::{Status, SubmissionEntry};
use nix::sys::socket::{setsockopt, sockopt};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, timeout_at};

struct Port<'a> {
    hub: &'a Hub,
    conn: ConnId,
    line: &'a Line,
    setup: &'a OnceLock<Agreement>,
}

impl CommandHandler for Port<'_> {
    fn begin(&mut self, command: &SubmissionEntry) -> Result<Result<usize, Status>, FatalError> {
        self.hub.begin(self.conn, self.line, command)
    }

    fn run(&mut self, command: &SubmissionEntry, data: &[u8]) {
        self.hub.run(self.conn, command, data);
    }

    fn reject(&mut self, command: &SubmissionEntry, status: Status) {
        self.hub.reject(self.conn, command, status);
    }

    fn ready(&mut self, setup: Agreement) {
        self.setup.get_or_init(|| setup);
    }

    fn send(&mut self, pdu: Encoded) {
        self.line.send(Outgoing::Pdu(pdu));
    }
}

/// Reason why a connection ends.
enum Ended {
    /// The agent wants to end the connection.
    Agent,
    /// Sending failed.
    Unsent(io::Error),
    /// The peer closed, or the socket failed.
    Peer(Option<io::Error>),
    /// A PDU was not complete in time.
    Late,
    Session(SessionEnd, Encoded),
}

/// An open connection. Dropping it frees its place.
pub struct HostConnection {
    hub: Arc<Hub>,
    peer: SocketAddr,
    conn: ConnId,
    line: Arc<Line>,
    queue: UnboundedReceiver<Outgoing>,
}

impl Drop for HostConnection {
    fn drop(&mut self) {
        self.hub.remove(self.conn);
    }
}

impl HostConnection {
    /// Takes a place, from another connection if necessary. For `reached` see [`crate::controller::Subsystem::opened`].
    pub fn open(hub: Arc<Hub>, peer: SocketAddr, reached: SocketAddr) -> Self {
        let (conn, line, queue) = hub.open(peer, reached);
        Self { hub, peer, conn, line, queue }
    }

    /// Serves the connection until its end, or until it loses its place.
    pub async fn serve(mut self, stream: TcpStream, buffers: &Buffers) {
        let (line, peer) = (self.line.clone(), self.peer);
        tokio::select! {
            biased;
            () = line.gives_way() => {
                tracing::debug!(%peer, "connection reset: its time is up, or another one needs its place");
                reset(stream);
            }
            () = self.converse(&stream, buffers) => {}
        }
    }

    /// Serves the connection until its end. At the end, waits for the peer to close, as long as the connection has its
    /// place.
    async fn converse(&mut self, stream: &TcpStream, buffers: &Buffers) {
        let Self { hub, peer, conn, line, queue } = self;
        let (hub, setup): (&Hub, _) = (hub, OnceLock::new());
        let mut writer = PduWriter { stream, line, media: hub.media(), buffers, setup: &setup, staged: Vec::new() };
        let mut port = Port { hub, conn: *conn, line, setup: &setup };
        let sending = writer.run(queue);
        tokio::pin!(sending);
        let ended = tokio::select! {
            biased;
            () = line.closes() => Ended::Agent,
            Err(error) = &mut sending => Ended::Unsent(error),
            ended = receive(stream, &mut port) => ended,
        };
        hub.closed(*conn);
        report(*peer, &ended);
        if let Ended::Session(SessionEnd::Violation(_), term) = ended {
            line.send(Outgoing::Pdu(term));
        }
        if !matches!(ended, Ended::Unsent(_)) {
            line.send(Outgoing::Close);
            if let Err(error) = sending.await {
                tracing::debug!(%peer, %error, "cannot send the last answers");
            }
        }
        line.sent();
        linger(stream).await;
    }
}

/// Closes a socket without sending queued bytes, so that the kernel keeps none for a peer that does not read.
fn reset(stream: TcpStream) {
    // If this fails, the kernel goes on sending for a while.
    let _ = setsockopt(&stream, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 });
}

fn report(peer: SocketAddr, ended: &Ended) {
    match ended {
        Ended::Agent => tracing::debug!(%peer, "connection closed"),
        Ended::Unsent(error) => tracing::debug!(%peer, %error, "cannot send"),
        Ended::Peer(None) => tracing::debug!(%peer, "connection closed by the host"),
        Ended::Peer(Some(error)) => tracing::debug!(%peer, %error, "connection lost"),
        Ended::Late => tracing::debug!(%peer, "connection closed: a PDU was not complete in time"),
        Ended::Session(SessionEnd::Host(reason), _) => tracing::debug!(%peer, %reason, "host ended the connection"),
        Ended::Session(SessionEnd::Violation(reason), _) => {
            static LIMIT: LogLimit = LogLimit::new();
            if LIMIT.allows() {
                tracing::warn!(%peer, %reason, "host broke the protocol");
            }
        }
    }
}

async fn receive(stream: &TcpStream, port: &mut Port<'_>) -> Ended {
    let mut session = Session::default();
    let mut buffer = vec![0; RECEIVE_BYTES];
    let mut limit = PduLimit::default();
    loop {
        let ready = match limit.of(session.partial(), Instant::now) {
            Some(deadline) => match timeout_at(deadline, stream.readable()).await {
                Ok(ready) => ready,
                Err(_) => return Ended::Late,
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
                SessionEnd::Violation(reason) | SessionEnd::Host(reason) => {
                    reason.encode(Role::Controller, session.header())
                }
            };
            return Ended::Session(end, term);
        }
    }
}

/// Number and deadline of the PDU that is arriving.
#[derive(Default)]
struct PduLimit(Option<(u64, Instant)>);

impl PduLimit {
    /// Returns the deadline of a PDU by its number, counted from the first call for that PDU, however many pieces the
    /// PDU arrives in.
    fn of(&mut self, partial: Option<u64>, now: impl FnOnce() -> Instant) -> Option<Instant> {
        let number = partial?;
        match self.0 {
            Some((seen, deadline)) if seen == number => Some(deadline),
            _ => {
                let deadline = now() + PDU_TIME;
                self.0 = Some((number, deadline));
                Some(deadline)
            }
        }
    }
}

/// Reads and discards bytes until the peer closes. Closing with unread bytes would reset the connection, and might cut
/// off the last bytes sent.
async fn linger(stream: &TcpStream) {
    let mut waste = [0; 4096];
    while stream.readable().await.is_ok() {
        match stream.try_read(&mut waste) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_pdu_has_one_deadline_however_many_pieces_it_arrives_in() {
        let (mut limit, begun) = (PduLimit::default(), Instant::now());
        let after = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(limit.of(None, || panic!("no clock is needed between two PDUs")), None);
        assert_eq!(limit.of(Some(7), || after(0)), Some(begun + PDU_TIME));
        for seconds in (5..60).step_by(5) {
            assert_eq!(limit.of(Some(7), || after(seconds)), Some(begun + PDU_TIME), "a byte after {seconds} s");
        }
        assert_eq!(limit.of(Some(8), || after(60)), Some(after(60) + PDU_TIME));
        assert_eq!(limit.of(None, || after(61)), None);
    }
}
