//! The link between connections, the subsystem and the workers.
//!
//! One lock covers the subsystem and the list of connections, so that the hub carries out the subsystem's outputs in
//! their order. Nothing waits while the lock is held.

use super::media::Media;
use super::places::Places;
use crate::controller::{ConnId, Payload, Subsystem, SubsystemOutput};
use crate::job::JobEvent;
use crate::log_limit::LogLimit;
use crate::workers::Pool;
use ddlp_csd::log::Counters;
use ddlp_nvme::tcp::{Encoded, FatalError, FatalStatus};
use ddlp_nvme::{CompletionEntry, Status, SubmissionEntry};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Something to send. The limit on outstanding commands also bounds the queue of these.
#[derive(Debug)]
pub enum Outgoing {
    /// A PDU without data.
    Pdu(Encoded),
    /// A completion and its data.
    Response(CompletionEntry, Payload),
    /// The end: close the connection.
    Close,
}

/// A connection as the hub sees it.
#[derive(Debug)]
pub struct Line {
    peer: SocketAddr,
    sender: UnboundedSender<Outgoing>,
    in_flight: Mutex<InFlight>,
    flow_control: AtomicBool,
    /// Whether everything for the host has been sent; the socket may stay open for a moment.
    is_sent: AtomicBool,
    closes: Notify,
    gives_way: Notify,
}

#[derive(Debug)]
struct InFlight {
    commands: usize,
    limit: usize,
    /// Number of commands under each identifier. If there are several, all but the first are being refused, and the
    /// identifier is free only when the last of them is answered.
    ids: BTreeMap<u16, usize>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Line {
    fn new(peer: SocketAddr, sender: UnboundedSender<Outgoing>) -> Self {
        // Until Connect makes it a queue, a connection may have one command: Connect.
        let in_flight = InFlight { commands: 0, limit: 1, ids: BTreeMap::new() };
        Self {
            peer,
            sender,
            in_flight: Mutex::new(in_flight),
            flow_control: AtomicBool::new(true),
            is_sent: AtomicBool::new(false),
            closes: Notify::new(),
            gives_way: Notify::new(),
        }
    }

    /// Waits until the agent wants to end the connection in good order.
    pub async fn closes(&self) {
        self.closes.notified().await;
    }

    /// Records that everything for the host has been sent.
    pub fn sent(&self) {
        self.is_sent.store(true, Ordering::Relaxed);
    }

    /// Waits until the connection has lost its place and has to be dropped at once.
    pub async fn gives_way(&self) {
        self.gives_way.notified().await;
    }

    /// Returns whether submission queue flow control is on.
    pub fn flow_control(&self) -> bool {
        self.flow_control.load(Ordering::Relaxed)
    }

    /// Queues something to send; drops it if the connection has ended.
    pub fn send(&self, item: Outgoing) {
        let _ = self.sender.send(item);
    }

    /// Counts a new command. An inner error is the command's status; an outer error means that the host sent more
    /// commands than the queue holds.
    fn begin(&self, command_id: u16) -> Result<Result<(), Status>, FatalError> {
        let mut in_flight = lock(&self.in_flight);
        if in_flight.commands >= in_flight.limit {
            return Err(FatalError { status: FatalStatus::SEQUENCE, info: 0 });
        }
        in_flight.commands += 1;
        let under_id = in_flight.ids.entry(command_id).or_default();
        *under_id += 1;
        Ok(if *under_id == 1 { Ok(()) } else { Err(Status::COMMAND_ID_CONFLICT.do_not_retry()) })
    }

    /// Frees the place of a command that is about to be answered.
    pub fn end(&self, command_id: u16) {
        let mut in_flight = lock(&self.in_flight);
        in_flight.commands = in_flight.commands.saturating_sub(1);
        if let Entry::Occupied(mut under_id) = in_flight.ids.entry(command_id) {
            *under_id.get_mut() -= 1;
            if *under_id.get() == 0 {
                under_id.remove();
            }
        }
    }
}

struct HubState {
    subsystem: Subsystem,
    places: Places,
    lines: BTreeMap<ConnId, Arc<Line>>,
    last_conn: u64,
}

impl HubState {
    fn dismiss(&self, conn: ConnId) {
        if let Some(line) = self.lines.get(&conn) {
            line.gives_way.notify_one();
        }
    }

    /// Ends a connection in good order, within [`super::CLOSE_TIME`].
    fn close(&mut self, conn: ConnId) {
        if let Some(other) = self.places.close(conn, now()) {
            self.dismiss(other);
        }
        if let Some(line) = self.lines.get(&conn) {
            line.closes.notify_one();
        }
    }
}

/// Returns the time on the runtime's clock.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The hub of the agent.
pub struct Hub {
    inner: Mutex<HubState>,
    pool: Arc<Pool>,
    media: Arc<Media>,
}

impl Hub {
    /// Makes a hub.
    pub fn new(subsystem: Subsystem, pool: Arc<Pool>, media: Arc<Media>) -> Self {
        let inner = HubState { subsystem, places: Places::default(), lines: BTreeMap::new(), last_conn: 0 };
        Self { inner: Mutex::new(inner), pool, media }
    }

    /// Returns the bytes of the block namespaces.
    pub fn media(&self) -> &Arc<Media> {
        &self.media
    }

    /// Adds a new connection from `peer`. For `reached` see [`Subsystem::opened`].
    pub fn open(&self, peer: SocketAddr, reached: SocketAddr) -> (ConnId, Arc<Line>, UnboundedReceiver<Outgoing>) {
        let (sender, receiver) = unbounded_channel();
        let mut inner = lock(&self.inner);
        inner.last_conn += 1;
        let (conn, line) = (ConnId(inner.last_conn), Arc::new(Line::new(peer, sender)));
        inner.subsystem.opened(conn, reached);
        inner.lines.insert(conn, line.clone());
        if let Some(other) = inner.places.enter(conn, peer.ip(), now()) {
            static LIMIT: LogLimit = LogLimit::new();
            if LIMIT.allows() {
                tracing::warn!(%peer, "many connections without Connect: the oldest ones give way");
            }
            inner.dismiss(other);
        }
        (conn, line, receiver)
    }

    /// Records that a connection is about to end. Cancels the host's work; answers that are queued may still be sent.
    pub fn closed(&self, conn: ConnId) {
        let mut inner = lock(&self.inner);
        inner.close(conn);
        let outputs = inner.subsystem.disconnected(conn);
        self.carry_out(&mut inner, outputs);
    }

    /// Removes a connection whose socket is gone too.
    pub fn remove(&self, conn: ConnId) {
        self.closed(conn);
        let mut inner = lock(&self.inner);
        inner.lines.remove(&conn);
        inner.places.leave(conn);
    }

    /// Takes a new command; see [`super::session::CommandHandler::begin`].
    pub fn begin(
        &self,
        conn: ConnId,
        line: &Line,
        command: &SubmissionEntry,
    ) -> Result<Result<usize, Status>, FatalError> {
        let admitted = line.begin(command.command_id.get())?;
        Ok(admitted.and_then(|()| lock(&self.inner).subsystem.data_wanted(conn, command)))
    }

    /// Runs a command.
    pub fn run(&self, conn: ConnId, command: &SubmissionEntry, data: &[u8]) {
        self.drive(|subsystem| subsystem.command(conn, command, data, now()));
    }

    /// Fails a command before it runs.
    pub fn reject(&self, conn: ConnId, command: &SubmissionEntry, status: Status) {
        self.drive(|subsystem| subsystem.reject(conn, command, status));
    }

    /// Passes a job's end to the subsystem.
    pub fn job_event(&self, event: JobEvent) {
        self.drive(|subsystem| subsystem.job_event(event));
    }

    /// Ends connections and associations whose time is up. To be called periodically.
    pub fn tick(&self) {
        let mut inner = lock(&self.inner);
        for conn in inner.places.late(now()) {
            inner.dismiss(conn);
        }
        let outputs = inner.subsystem.tick(now());
        self.carry_out(&mut inner, outputs);
    }

    /// Refuses new Executes and associations from now on.
    pub fn drain(&self) {
        lock(&self.inner).subsystem.drain();
    }

    /// Returns whether no Execute is queued or running.
    pub fn is_idle(&self) -> bool {
        lock(&self.inner).subsystem.is_idle()
    }

    /// Returns the counters of log page C0h.
    pub fn counters(&self) -> Counters {
        lock(&self.inner).subsystem.counters()
    }

    /// Ends every connection after sending everything queued for it.
    pub fn close_all(&self) {
        let mut inner = lock(&self.inner);
        let all: Vec<ConnId> = inner.lines.keys().copied().collect();
        all.into_iter().for_each(|conn| inner.close(conn));
    }

    /// Returns the number of connections that still have something to send, or have not been told to end.
    pub fn connections(&self) -> usize {
        lock(&self.inner).lines.values().filter(|line| !line.is_sent.load(Ordering::Relaxed)).count()
    }

    fn drive(&self, step: impl FnOnce(&mut Subsystem) -> Vec<SubsystemOutput>) {
        let mut inner = lock(&self.inner);
        let outputs = step(&mut inner.subsystem);
        self.carry_out(&mut inner, outputs);
    }

    fn carry_out(&self, inner: &mut HubState, outputs: Vec<SubsystemOutput>) {
        for output in outputs {
            match output {
                SubsystemOutput::Accepted { conn, entries, flow_control } => {
                    inner.places.prove(conn);
                    if let Some(line) = inner.lines.get(&conn) {
                        lock(&line.in_flight).limit = usize::from(entries);
                        line.flow_control.store(flow_control, Ordering::Relaxed);
                    }
                }
                SubsystemOutput::Refused { conn, host_nqn, reason } => {
                    static LIMIT: LogLimit = LogLimit::new();
                    if let Some(line) = inner.lines.get(&conn).filter(|_| LIMIT.allows()) {
                        // Quoted, since the name that a host sends may contain anything.
                        tracing::warn!(peer = %line.peer, host_nqn = ?host_nqn, %reason, "host refused");
                    }
                }
                SubsystemOutput::Complete { conn, completion, payload } => {
                    if let Some(line) = inner.lines.get(&conn) {
                        line.send(Outgoing::Response(completion, payload));
                    }
                }
                SubsystemOutput::Start(job) => self.pool.submit(*job),
                SubsystemOutput::Cancel(id) => self.pool.cancel(id),
                SubsystemOutput::Forget { conn, command_id } => {
                    if let Some(line) = inner.lines.get(&conn) {
                        line.end(command_id);
                    }
                }
                SubsystemOutput::Close(conn) => inner.close(conn),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_refused_for_its_identifier_does_not_free_that_identifier() {
        let line = Line::new(([192, 0, 2, 1], 9).into(), unbounded_channel().0);
        lock(&line.in_flight).limit = 4;
        assert_eq!(line.begin(7), Ok(Ok(())));
        for _ in 0..3 {
            assert_eq!(line.begin(7), Ok(Err(Status::COMMAND_ID_CONFLICT.do_not_retry())));
            line.end(7);
        }
        line.end(7);
        assert_eq!(line.begin(7), Ok(Ok(())), "free again");
        for id in 8..11 {
            assert_eq!(line.begin(id), Ok(Ok(())), "the refused ones take no place");
        }
        assert!(line.begin(11).is_err());
    }
}
