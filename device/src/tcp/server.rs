//! Accepting connections, and a task that passes events and time to the hub.

use super::SEND_TIME;
use super::connection::HostConnection;
use super::hub::Hub;
use super::writer::Buffers;
use crate::job::JobEvent;
use crate::log_limit::LogLimit;
use nix::sys::socket::{setsockopt, sockopt};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::yield_now;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// Time between two checks of deadlines, keep alives and the temperature.
const TICK: Duration = Duration::from_millis(500);
/// Pause after a failed accept (no descriptors left, for example).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Idle time after which the kernel probes a silent peer.
const PROBE_IDLE_S: u32 = 30;
/// Pause between two probes.
const PROBE_PAUSE_S: u32 = 10;
/// Number of unanswered probes after which the peer is gone.
const PROBES: u32 = 3;

/// State that all listeners of an agent share.
pub struct Server {
    hub: Arc<Hub>,
    /// Port of the I/O service.
    port: u16,
    buffers: Buffers,
}

impl Server {
    /// Makes a server of connections for `hub`. Hosts find the namespaces at `port`.
    pub fn new(hub: Arc<Hub>, port: u16) -> Self {
        Self { hub, port, buffers: Buffers::default() }
    }

    /// Accepts connections until the future is dropped.
    pub async fn accept(self: Arc<Self>, listener: TcpListener) {
        loop {
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    static LIMIT: LogLimit = LogLimit::new();
                    if LIMIT.allows() {
                        tracing::warn!(%error, "cannot accept a connection");
                    }
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let reached = match configure(&stream).and_then(|()| stream.local_addr()) {
                Ok(local) => SocketAddr::new(local.ip(), self.port),
                Err(error) => {
                    tracing::debug!(%peer, %error, "connection closed before it began");
                    continue;
                }
            };
            let (server, connection) = (self.clone(), HostConnection::open(self.hub.clone(), peer, reached));
            tokio::spawn(async move { connection.serve(stream, &server.buffers).await });
            // The connection that gave way for this one closes its socket before the next one is accepted.
            yield_now().await;
        }
    }
}

/// Sets the options of a socket. The sizes of its buffers stay with the kernel's autotuning, which goes higher than an
/// unprivileged process may.
fn configure(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &PROBE_IDLE_S)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &PROBE_PAUSE_S)?;
    setsockopt(stream, sockopt::TcpKeepCount, &PROBES)?;
    setsockopt(stream, sockopt::TcpUserTimeout, &(SEND_TIME.as_millis() as u32))?;
    Ok(())
}

/// Passes job events and ticks to the hub, until the future is dropped.
pub async fn clockwork(hub: Arc<Hub>, mut events: UnboundedReceiver<JobEvent>) {
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            Some(event) = events.recv() => hub.job_event(event),
            _ = tick.tick() => hub.tick(),
        }
    }
}
