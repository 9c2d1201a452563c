//! The life of an association, shared by all of its connections.

use super::deadline::Deadline;
use crate::error::DriverError;
use crossbeam::channel::{Receiver, RecvTimeoutError, bounded};
use ddlp_cause::Cause;
use nix::net::if_::if_nametoindex;
use std::error::Error;
use std::io;
use std::net::{Shutdown, SocketAddr, SocketAddrV6, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Interval at which a thread that waits for a name checks whether the link has failed.
const RESOLVE_LOOK: Duration = Duration::from_millis(20);

/// Answer of the system's resolver.
type Addresses = io::Result<Vec<SocketAddr>>;

/// Look-ups that outlived the attempt to connect that started them, by `HOST:PORT`.
static PENDING: Mutex<Vec<(String, Receiver<Addresses>)>> = Mutex::new(Vec::new());

/// Returns all addresses of `HOST:PORT` that the system's resolver knows.
pub(super) fn look_up(address: &str) -> Addresses {
    address.to_socket_addrs().map(Iterator::collect)
}

/// Reads `[ADDRESS%INTERFACE]:PORT`, as link-local IPv6 addresses are written. Returns `None` for anything else.
fn with_interface(address: &str) -> Option<io::Result<SocketAddr>> {
    let (host, port) = address.strip_prefix('[')?.split_once("]:")?;
    let (ip, interface) = host.split_once('%')?;
    let (ip, port) = (ip.parse().ok()?, port.parse().ok()?);
    let address = if_nametoindex(interface).map(|scope| SocketAddrV6::new(ip, port, 0, scope).into());
    Some(address.map_err(|_| io::Error::other(format!("this machine has no network interface {interface:?}"))))
}

/// Locks, even if a thread panicked while it held the lock: every state behind these locks is consistent at any time.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The life of one association. It fails once and for all: all sockets are shut, so that every thread that waits on one
/// wakes.
#[derive(Debug)]
pub(super) struct TcpLink {
    peer: String,
    alive: AtomicBool,
    state: Mutex<LinkState>,
}

#[derive(Debug, Default)]
struct LinkState {
    cause: Option<Cause>,
    /// The sockets, including those that are still connecting.
    streams: Vec<Weak<TcpStream>>,
}

impl TcpLink {
    pub(super) fn new(peer: &str) -> Self {
        Self { peer: peer.to_owned(), alive: AtomicBool::new(true), state: Mutex::default() }
    }

    pub(super) fn peer(&self) -> &str {
        &self.peer
    }

    pub(super) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// Resolves all addresses of `HOST:PORT` by `look_up`, until the link fails. A thread of its own looks a name up,
    /// since nothing interrupts the system's resolver. If that thread outlives this call, the next call for the same
    /// name takes its answer instead of starting another thread.
    pub(super) fn resolve(
        &self,
        address: &str,
        deadline: Deadline,
        look_up: impl FnOnce(&str) -> Addresses + Send + 'static,
    ) -> Result<Vec<SocketAddr>, DriverError> {
        if let Ok(address) = address.parse() {
            return Ok(vec![address]);
        }
        if let Some(address) = with_interface(address) {
            return address.map(|address| vec![address]).map_err(|error| self.unresolved(error));
        }
        let found = match take_pending(address) {
            Some(found) => found,
            None => start_look_up(address, look_up)
                .map_err(|error| self.lost(format!("{address} cannot be looked up: {error}")))?,
        };
        let unanswered = loop {
            match found.recv_timeout(RESOLVE_LOOK) {
                Ok(found) => return found.map_err(|error| self.unresolved(error)),
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline.at => {
                    if let Err(error) = self.check() {
                        break error;
                    }
                }
                Err(_) => break deadline.timed_out(&self.peer, "name resolution"),
            }
        };
        lock(&PENDING).push((address.to_owned(), found));
        Err(unanswered)
    }

    /// Returns `Lost` with the first cause, once the link has failed.
    pub(super) fn check(&self) -> Result<(), DriverError> {
        if self.is_alive() {
            return Ok(());
        }
        let cause = lock(&self.state).cause.clone();
        Err(self.lost(cause.expect("a link that has failed has a cause")))
    }

    /// Registers a connected or connecting socket, which is shut when the link fails.
    pub(super) fn register(&self, stream: &Arc<TcpStream>) {
        let mut state = lock(&self.state);
        if state.cause.is_some() {
            shut(stream);
        }
        state.streams.retain(|stream| stream.strong_count() > 0);
        state.streams.push(Arc::downgrade(stream));
    }

    /// Ends the association; only the first cause is kept.
    pub(super) fn fail(&self, cause: impl Into<Cause>) {
        let mut state = lock(&self.state);
        if state.cause.is_some() {
            return;
        }
        let cause = cause.into();
        tracing::debug!(peer = self.peer, error = &*cause as &dyn Error, "association ends");
        state.cause = Some(cause);
        self.alive.store(false, Ordering::Release);
        state.streams.drain(..).filter_map(|stream| stream.upgrade()).for_each(|stream| shut(&stream));
    }

    pub(super) fn lost(&self, cause: impl Into<Cause>) -> DriverError {
        DriverError::Lost { peer: self.peer.clone(), source: cause.into() }
    }

    fn unresolved(&self, error: io::Error) -> DriverError {
        match DriverError::not_opened(&self.peer, error) {
            DriverError::Lost { peer, source } => DriverError::Unresolved { peer, source },
            error => error,
        }
    }

    pub(super) fn protocol(&self, how: impl Into<Cause>) -> DriverError {
        DriverError::Protocol { peer: self.peer.clone(), source: how.into() }
    }
}

/// Takes a look-up of `HOST:PORT` that nobody waits for.
fn take_pending(address: &str) -> Option<Receiver<Addresses>> {
    let mut pending = lock(&PENDING);
    let at = pending.iter().position(|(name, _)| name == address)?;
    Some(pending.swap_remove(at).1)
}

/// Starts a thread that looks `HOST:PORT` up.
fn start_look_up(
    address: &str,
    look_up: impl FnOnce(&str) -> Addresses + Send + 'static,
) -> io::Result<Receiver<Addresses>> {
    let (sender, found) = bounded(1);
    let name = address.to_owned();
    let resolver = std::thread::Builder::new().name("nvme-resolve".into());
    resolver.spawn(move || {
        let _ = sender.send(look_up(&name));
    })?;
    Ok(found)
}

/// Shuts a socket. Fails only if it is shut already.
fn shut(stream: &TcpStream) {
    let _ = stream.shutdown(Shutdown::Both);
}

/// A thing that threads use in turns, with a bound on the wait for a turn.
#[derive(Debug)]
pub(super) struct Gate<T> {
    slot: Mutex<Option<T>>,
    freed: Condvar,
}

/// A turn at a [`Gate`].
#[derive(Debug)]
pub(super) struct GateTurn<'a, T> {
    gate: &'a Gate<T>,
    /// The thing; `Some` until the turn is dropped.
    thing: Option<T>,
}

impl<T> Gate<T> {
    pub(super) fn new(thing: T) -> Self {
        Self { slot: Mutex::new(Some(thing)), freed: Condvar::new() }
    }

    /// Waits for a turn, or returns `None` if there is none by `at`.
    pub(super) fn take(&self, at: Instant) -> Option<GateTurn<'_, T>> {
        let mut slot = lock(&self.slot);
        loop {
            if let Some(thing) = slot.take() {
                return Some(GateTurn { gate: self, thing: Some(thing) });
            }
            let left = at.checked_duration_since(Instant::now())?;
            slot = self.freed.wait_timeout(slot, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl<T> GateTurn<'_, T> {
    pub(super) fn get(&mut self) -> &mut T {
        let Some(thing) = self.thing.as_mut() else { unreachable!("a turn has its thing until it is dropped") };
        thing
    }
}

impl<T> Drop for GateTurn<'_, T> {
    fn drop(&mut self) {
        *lock(&self.gate.slot) = self.thing.take();
        self.gate.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddlp_cause::with_causes;

    #[test]
    fn the_first_reason_counts() {
        let link = TcpLink::new("peer");
        assert!(link.check().is_ok());
        link.fail("one");
        link.fail("two");
        assert_eq!(with_causes(&link.check().unwrap_err()), "no connection to peer: one");
    }

    #[test]
    fn a_link_that_fails_does_not_wait_for_a_name() {
        let link = Arc::new(TcpLink::new("peer"));
        let (closer, (_never, answer)) = (Arc::clone(&link), bounded::<()>(0));
        let look_up = move |_: &str| {
            closer.fail("closed");
            let _ = answer.recv_timeout(Duration::from_secs(60));
            Ok(Vec::new())
        };
        let error = link.resolve("closed.example:4420", Deadline::after(Duration::from_secs(3600)), look_up);
        assert_eq!(with_causes(&error.unwrap_err()), "no connection to peer: closed");
    }

    #[test]
    fn names_have_until_the_deadline_and_numbers_need_no_look_up() {
        let link = TcpLink::new("peer");
        let (_never, answer) = bounded::<()>(0);
        let look_up = move |_: &str| {
            let _ = answer.recv_timeout(Duration::from_secs(60));
            Ok(Vec::new())
        };
        let error = link.resolve("slow.example:4420", Deadline::after(Duration::ZERO), look_up).unwrap_err();
        assert!(matches!(error, DriverError::TimedOut { .. }), "{error}");
        let later = Deadline::after(Duration::from_secs(60));
        let found = link.resolve("[::1]:9", later, |_| panic!("this is an address")).unwrap();
        assert_eq!(found, ["[::1]:9".parse().unwrap()]);
        let refused = link.resolve("drive.example:4420", later, |_| Err(io::ErrorKind::NotFound.into())).unwrap_err();
        assert!(matches!(refused, DriverError::Unresolved { .. }), "{refused}");
    }

    #[test]
    fn a_link_local_address_names_its_interface() {
        let link = TcpLink::new("peer");
        let resolve =
            |address| link.resolve(address, Deadline::after(Duration::from_secs(60)), |_| panic!("this is an address"));
        let found = resolve("[fe80::1%lo]:9").unwrap();
        assert_eq!(found, [SocketAddrV6::new("fe80::1".parse().unwrap(), 9, 0, if_nametoindex("lo").unwrap()).into()]);
        assert_eq!(resolve("[fe80::1%7]:9").unwrap(), ["[fe80::1%7]:9".parse().unwrap()]);
        let error = resolve("[fe80::1%nowhere0]:9").unwrap_err();
        assert!(matches!(&error, DriverError::Unresolved { .. }), "{error}");
        assert!(with_causes(&error).contains("no network interface \"nowhere0\""), "{error:?}");
    }

    #[test]
    fn the_next_attempt_takes_a_late_answer() {
        let (answer, answered) = bounded::<()>(0);
        let look_up = move |_: &str| {
            let _ = answered.recv_timeout(Duration::from_secs(60));
            Ok(vec!["[::1]:7".parse().unwrap()])
        };
        let resolve = |within, look_up: Box<dyn FnOnce(&str) -> Addresses + Send>| {
            TcpLink::new("peer").resolve("late.example:4420", Deadline::after(within), look_up)
        };
        assert!(resolve(Duration::ZERO, Box::new(look_up)).is_err());
        for _ in 0..3 {
            assert!(resolve(Duration::ZERO, Box::new(|_| panic!("one look-up is enough"))).is_err());
        }
        answer.send_timeout((), Duration::from_secs(60)).unwrap();
        let minute = Duration::from_secs(60);
        let found = resolve(minute, Box::new(|_| panic!("the answer is there"))).unwrap();
        assert_eq!(found, ["[::1]:7".parse().unwrap()]);
        let again = resolve(minute, Box::new(|_| Ok(vec!["[::1]:8".parse().unwrap()]))).unwrap();
        assert_eq!(again, ["[::1]:8".parse().unwrap()], "an answer counts once");
    }

    #[test]
    fn turns_are_exclusive_and_bounded() {
        let gate = Gate::new(1);
        let mut turn = gate.take(Instant::now()).unwrap();
        *turn.get() += 1;
        assert!(gate.take(Instant::now()).is_none());
        std::thread::scope(|scope| {
            let waiter =
                scope.spawn(|| gate.take(Instant::now() + Duration::from_secs(60)).map(|mut turn| *turn.get()));
            drop(turn);
            assert_eq!(waiter.join().unwrap(), Some(2));
        });
    }
}
