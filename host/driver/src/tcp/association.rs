//! One association: its admin queue with keep alive, its I/O queues, its end.

use super::Closer;
use super::admin::{ADMIN_COMMANDS, ADMIN_ENTRIES_Z, AdminQueue};
use super::bringup::{Facts, bring_up, connect_queue, shut_down};
use super::connection::Connection;
use super::deadline::Deadline;
use super::exchange::{Exchange, QueueRules};
use super::link::{Gate, TcpLink, look_up};
use super::pool::QueuePool;
use super::queue::TcpQueue;
use super::target::TcpTarget;
use crate::checks;
use crate::contract::{AdminData, Command, Completion, Controller, Queue};
use crate::error::DriverError;
use crate::namespace::Geometries;
use crate::reads::ReadWindow;
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};
use ddlp_nvme::fabrics::{CONTROLLER_ANY, ConnectCommand};
use ddlp_nvme::tcp::ADMIN_CAPSULE_BYTES;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest time that an orderly shutdown may delay the last owner.
const SHUTDOWN_BOUND: Duration = Duration::from_secs(1);
/// Reason of the end of an association that this side closed.
pub(super) const CLOSED: &str = "closed by this host";
/// Shortest interval between two turns of the keep alive thread.
const KEEP_ALIVE_INTERVAL_MIN: Duration = Duration::from_millis(5);

/// The admin queue, and what making I/O queues needs.
struct TcpAssociation {
    link: Arc<TcpLink>,
    admin: Gate<AdminQueue>,
    target: TcpTarget,
    addresses: Vec<SocketAddr>,
    facts: Facts,
    pool: Arc<QueuePool>,
    geometries: Arc<Geometries>,
}

/// Owner of an association; dropping it ends the association.
pub(super) struct TcpController {
    handle: TcpHandle,
    keeper: Option<(Sender<()>, JoinHandle<()>)>,
}

/// A reference to an association that implements `Controller`.
#[derive(Clone)]
struct TcpHandle(Arc<TcpAssociation>);

impl TcpController {
    pub(super) fn connect(
        target: &TcpTarget,
        within: Duration,
        watch: impl FnOnce(Closer),
    ) -> Result<Self, DriverError> {
        let deadline = Deadline::after(target.connect_timeout.min(within));
        let link = Arc::new(TcpLink::new(&format!("tcp://{}/{}", target.address, target.nqn)));
        watch(Closer(Arc::downgrade(&link)));
        let addresses = link.resolve(&target.address, deadline, look_up)?;
        let outcome = Self::establish(target, &link, addresses, deadline);
        // Close the sockets of an association that was not completed.
        outcome.inspect_err(|error| link.fail(error.cause()))
    }

    fn establish(
        target: &TcpTarget,
        link: &Arc<TcpLink>,
        addresses: Vec<SocketAddr>,
        deadline: Deadline,
    ) -> Result<Self, DriverError> {
        let connection = Connection::open(&addresses, target, link, None, deadline)?;
        let rules = QueueRules { capsule_bytes_max: ADMIN_CAPSULE_BYTES as usize, success_flag: false };
        let mut admin = AdminQueue::new(Exchange::new(connection, ADMIN_COMMANDS, rules));
        let command = ConnectCommand::new(0, ADMIN_ENTRIES_Z, target.keep_alive_ms(), false);
        let controller_id = connect_queue(admin.exchange(), target, &command, CONTROLLER_ANY, rules, deadline)?;
        let facts = bring_up(&mut admin, target, controller_id, deadline)?;
        if facts.keep_alive {
            admin.start_keep_alive(target.keep_alive);
        }
        let handle = TcpHandle(Arc::new(TcpAssociation {
            link: Arc::clone(link),
            admin: Gate::new(admin),
            target: target.clone(),
            addresses,
            facts,
            pool: Arc::default(),
            geometries: Arc::default(),
        }));
        let mut controller = Self { handle: handle.clone(), keeper: None };
        if facts.keep_alive {
            let (stop, stopped) = bounded(0);
            let interval = (target.keep_alive / 4).max(KEEP_ALIVE_INTERVAL_MIN);
            let keeper = std::thread::Builder::new().name("nvme-keepalive".into());
            let keeper = keeper.spawn(move || keep_alive(&handle, &stopped, interval));
            let keeper =
                keeper.map_err(|error| link.lost(format!("the keep alive thread cannot be started: {error}")))?;
            controller.keeper = Some((stop, keeper));
        }
        Ok(controller)
    }
}

impl Drop for TcpController {
    fn drop(&mut self) {
        let association = &self.handle.0;
        if association.link.is_alive()
            && let Err(error) = association.shut_down(Deadline::after(SHUTDOWN_BOUND))
        {
            tracing::debug!(error = &error as &dyn Error, "shutdown was not orderly");
        }
        association.link.fail(CLOSED);
        if let Some((stop, keeper)) = self.keeper.take() {
            drop(stop);
            // A keeper that panicked has nothing left to do.
            let _ = keeper.join();
        }
    }
}

/// Runs the keep alive thread, which takes a turn several times per keep alive time-out. A caller that holds the queue
/// for longer sends keep alives itself.
fn keep_alive(handle: &TcpHandle, stopped: &Receiver<()>, interval: Duration) {
    while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(interval) {
        let Some(mut turn) = handle.0.admin.take(Instant::now()) else { continue };
        if let Err(error) = turn.get().tick() {
            tracing::debug!(error = &error as &dyn Error, "keep alive ends");
            return;
        }
    }
}

impl TcpAssociation {
    fn shut_down(&self, deadline: Deadline) -> Result<(), DriverError> {
        match self.admin.take(deadline.at) {
            Some(mut turn) => shut_down(turn.get(), deadline),
            None => Err(deadline.timed_out(self.link.peer(), "a turn at the admin queue")),
        }
    }

    /// Connects a new I/O queue. A failure ends the association, because the controller's view of the queue is then
    /// unknown.
    fn make_queue(&self, commands: usize) -> Result<(u16, Exchange), DriverError> {
        let most = self.facts.io_queues_max;
        let Some(queue_id) = self.pool.next_queue_id(most) else {
            return Err(DriverError::Invalid(format!("{} grants {most} i/o queues, all in use", self.link.peer())));
        };
        let deadline = Deadline::after(self.target.connect_timeout);
        // A fixed buffer would bound the bytes on a long path; the system makes its own one as large as the path needs.
        let is_near = ReadWindow::at(self.facts.round_trip, commands).is_near();
        let buffer = is_near.then_some(self.target.receive_buffer_bytes);
        let made =
            Connection::open(&self.addresses, &self.target, &self.link, buffer, deadline).and_then(|connection| {
                // Fabrics commands carry their data in the capsule, whatever the limit for other commands is.
                let rules = QueueRules { capsule_bytes_max: ADMIN_CAPSULE_BYTES as usize, success_flag: false };
                let mut exchange = Exchange::new(connection, commands, rules);
                let rules = QueueRules { capsule_bytes_max: self.facts.capsule_bytes_max, ..rules };
                let command = ConnectCommand::new(queue_id, commands as u16, 0, true);
                let controller_id = self.facts.controller_id;
                let connected = connect_queue(&mut exchange, &self.target, &command, controller_id, rules, deadline)?;
                if connected != controller_id {
                    return Err(self.link.protocol(format!("queue {queue_id} joined controller {connected}")));
                }
                Ok((queue_id, exchange))
            });
        made.inspect_err(|error| self.link.fail(error.cause()))
    }
}

impl Controller for TcpHandle {
    fn peer(&self) -> &str {
        self.0.link.peer()
    }

    fn transfer_bytes_max(&self) -> usize {
        self.0.facts.transfer_bytes_max
    }

    fn admin(&self, command: &Command, data: AdminData<'_>, timeout: Duration) -> Result<Completion, DriverError> {
        checks::transfer(data.len(), self.transfer_bytes_max())?;
        self.0.link.check()?;
        let deadline = Deadline::after(timeout);
        let Some(mut turn) = self.0.admin.take(deadline.at) else {
            let what = command.admin_name();
            return Err(DriverError::Busy { peer: self.peer().to_owned(), what, after: timeout });
        };
        turn.get().run(command, data, deadline)
    }

    fn open_queue(&self, depth: usize) -> Result<Box<dyn Queue>, DriverError> {
        self.0.link.check()?;
        // One command more, so that the queue can read.
        let commands_max = self.0.facts.commands_max;
        checks::depth(depth, commands_max - 1, self.peer())?;
        let window = ReadWindow::at(self.0.facts.round_trip, commands_max - depth);
        let commands = depth + window.commands;
        let (queue_id, exchange) = match self.0.pool.unpark(commands) {
            Some(parked) => parked,
            None => self.0.make_queue(commands)?,
        };
        let (pool, geometries) = (Arc::clone(&self.0.pool), Arc::clone(&self.0.geometries));
        Ok(Box::new(TcpQueue::new(Box::new(self.clone()), pool, geometries, (queue_id, exchange), (depth, window))))
    }

    fn is_alive(&self) -> bool {
        self.0.link.is_alive()
    }

    fn close(&self) {
        self.0.link.fail(CLOSED);
    }
}

impl Controller for TcpController {
    fn peer(&self) -> &str {
        self.handle.peer()
    }

    fn transfer_bytes_max(&self) -> usize {
        self.handle.transfer_bytes_max()
    }

    fn admin(&self, command: &Command, data: AdminData<'_>, timeout: Duration) -> Result<Completion, DriverError> {
        self.handle.admin(command, data, timeout)
    }

    fn open_queue(&self, depth: usize) -> Result<Box<dyn Queue>, DriverError> {
        self.handle.open_queue(depth)
    }

    fn is_alive(&self) -> bool {
        self.handle.is_alive()
    }

    fn close(&self) {
        self.handle.close();
    }
}
