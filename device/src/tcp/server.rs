//! Accepting connections, and the clockwork beside them.

use super::SEND_TIME;
use super::connection::Connection;
use super::hub::Hub;
use super::writer::Buffers;
use crate::job::JobEvent;
use nix::sys::socket::{setsockopt, sockopt};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// How often keep alives and the temperature are looked at.
const TICK: Duration = Duration::from_millis(500);
/// Pause after accepting failed (no descriptors left, for example).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Idle time after which the kernel asks a silent peer whether it is there, the pause between tries and their number.
const PROBE_IDLE_S: u32 = 30;
const PROBE_PAUSE_S: u32 = 10;
const PROBES: u32 = 3;

/// What the listeners of an agent have in common.
pub struct Server {
    hub: Arc<Hub>,
    /// Port of the I/O service.
    port: u16,
    buffers: Buffers,
}

impl Server {
    /// Connections for `hub`, whose namespaces hosts find at `port`.
    pub fn new(hub: Arc<Hub>, port: u16) -> Self {
        Self { hub, port, buffers: Buffers::default() }
    }

    /// Accepts connections until it is dropped.
    pub async fn accept(self: Arc<Self>, listener: TcpListener) {
        loop {
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    static RATION: Ration = Ration::new();
                    if RATION.allows() {
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
            let (server, connection) = (self.clone(), Connection::open(self.hub.clone(), peer, reached));
            tokio::spawn(async move { connection.serve(stream, &server.buffers).await });
        }
    }
}

/// Socket buffers stay with the kernel's autotuning: it goes further than what may be set without privilege.
fn configure(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &PROBE_IDLE_S)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &PROBE_PAUSE_S)?;
    setsockopt(stream, sockopt::TcpKeepCount, &PROBES)?;
    setsockopt(stream, sockopt::TcpUserTimeout, &(SEND_TIME.as_millis() as u32))?;
    Ok(())
}

/// Hands job events to the hub, and the passing of time. Runs until it is dropped.
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

/// One message a second of a kind that a peer can cause.
pub(crate) struct Ration(AtomicU64);

impl Ration {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(crate) fn allows(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.0.swap(now, Ordering::Relaxed) != now
    }
}
