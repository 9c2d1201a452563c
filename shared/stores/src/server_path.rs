//! The path to a server that holds a dataset. A request that fails in a way that may pass is made again until nothing
//! has been answered for a minute.
//!
//! - `failure`: why a request failed. `thread`: the thread that moves the bytes.

mod failure;
mod thread;

use super::clock::PathClock;
use ddlp_dataset::pack::BlocksError;
use ddlp_dataset::{Backoff, BackoffLimits, Requests, Silence, Silences, wait_for};
pub(super) use failure::Failure;
use std::fmt::Display;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use thread::RequestThread;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// Longest time without an answer to a request for few bytes.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// More bytes may take a second more for each of these.
const BYTES_A_SECOND: u64 = 1 << 20;
/// Pauses between attempts.
const PAUSES: BackoffLimits =
    BackoffLimits { first: Duration::from_millis(100), cap: Duration::from_secs(5), attempts_max: u32::MAX };
/// Attempts of the first request: a mistaken address shall be told soon.
const FIRST_ATTEMPTS: u32 = 4;
/// Longest time for which the first request waits for a server that says that it is not ready yet.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Returns how long bytes may take on a slow path, beyond the time of a request for few.
pub(super) fn allowed(bytes: usize) -> Duration {
    Duration::from_secs(bytes as u64 / BYTES_A_SECOND)
}

/// Returns an error that will not pass.
pub(super) fn lasting(what: String) -> io::Error {
    io::Error::other(BlocksError::Lasting(what.into()))
}

/// A path to a server.
pub(super) struct ServerPath {
    thread: RequestThread,
    clock: Mutex<PathClock>,
    /// The last failure since an answer.
    failure: Mutex<Option<String>>,
    /// Number of times that all waits were interrupted.
    interrupts: watch::Sender<u64>,
    /// Number of requests so far.
    made: AtomicU64,
    requests: Mutex<Requests>,
}

impl ServerPath {
    /// Starts the thread that moves the bytes. The error says what to do.
    pub fn start(thread: &str) -> Result<Self, String> {
        let thread = RequestThread::start(thread).map_err(|error| format!("no thread for requests: {error}"))?;
        let (clock, (interrupts, _)) = (Mutex::new(PathClock::new(Instant::now())), watch::channel(0));
        let (failure, made, requests) = Default::default();
        Ok(Self { thread, clock, failure, interrupts, made, requests })
    }

    fn clock(&self) -> MutexGuard<'_, PathClock> {
        self.clock.lock().expect("no panic while the clock is locked")
    }

    fn last_failure(&self) -> MutexGuard<'_, Option<String>> {
        self.failure.lock().expect("no panic while the failure is locked")
    }

    fn count(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().expect("no panic while the counts are locked")
    }

    /// Makes requests whose bytes are `bytes` altogether, until they end or are interrupted. Any thread may poll them.
    pub fn make<'r, T>(
        &'r self,
        bytes: usize,
        requests: impl Future<Output = io::Result<T>> + Send + 'r,
    ) -> impl Future<Output = io::Result<T>> + Send + 'r {
        self.thread.serve(async move {
            let (mut interrupts, mut requests) = (self.interrupts.subscribe(), pin!(requests));
            let _waiting = Waiting::begin(&self.clock, allowed(bytes));
            tokio::select! {
                outcome = &mut requests => outcome,
                // Another run may read the same dataset: it tries again.
                _ = interrupts.changed() => Err(io::Error::from_raw_os_error(libc::EINTR)),
            }
        })
    }

    /// Makes requests as [`Self::make`] does, and waits for them.
    pub fn wait<T>(&self, bytes: usize, requests: impl Future<Output = io::Result<T>> + Send) -> io::Result<T> {
        wait_for(self.make(bytes, requests))
    }

    /// Makes the first request, with few attempts unless the server is not ready yet. The error says what to do.
    pub fn first<T: Send, F>(&self, attempt: impl Fn() -> F + Send + Sync) -> Result<T, String>
    where
        F: Future<Output = Result<T, Failure>> + Send,
    {
        wait_for(self.thread.serve(async {
            let (mut pauses, begun) = (Backoff::new(PAUSES, 0), Instant::now());
            for number in 1.. {
                let outcome = timeout(ANSWER_WITHIN, attempt()).await;
                match outcome.unwrap_or_else(|_| Err(Failure::slow(ANSWER_WITHIN))) {
                    Ok(answer) => return Ok(answer),
                    Err(failure) if !failure.may_pass => return Err(failure.to_string()),
                    Err(failure) if failure.is_not_ready && begun.elapsed() < READY_WITHIN => {
                        sleep(failure.pause_after(&mut pauses)).await;
                    }
                    Err(failure) if failure.is_not_ready => {
                        let seconds = READY_WITHIN.as_secs();
                        return Err(format!("{failure}; it has not been ready for {seconds} s: try again later"));
                    }
                    Err(failure) if number >= FIRST_ATTEMPTS => {
                        return Err(format!("{failure}; check the address, and that the server runs"));
                    }
                    Err(failure) => sleep(failure.pause_after(&mut pauses)).await,
                }
            }
            unreachable!("the last attempt returns")
        }))
    }

    /// Begins a request for about `bytes` bytes, or with as many, to `server`.
    pub fn request<'p>(&'p self, server: &'p (dyn Display + Sync), bytes: usize) -> Attempts<'p> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        Attempts { path: self, server, bytes, number, pauses: Backoff::new(PAUSES, number), flying: None }
    }

    /// Forgets the requests so far, which have ended.
    pub fn forget_requests(&self) {
        *self.count() = Requests::default();
    }

    /// Returns the requests so far.
    pub fn requests(&self) -> Requests {
        *self.count()
    }

    /// Fails all waiting requests.
    pub fn interrupt(&self) {
        self.clock().forget_giving_up();
        self.interrupts.send_modify(|count| *count += 1);
    }

    /// Returns how long requests to `server` have waited without an answer.
    pub fn silences(&self, server: &dyn Display) -> Silences {
        let (clock, now) = (self.clock(), Instant::now());
        let silence = |lasts| Silence {
            holder: server.to_string(),
            lasts,
            patience: clock.patience(),
            failure: self.last_failure().clone(),
        };
        Silences { total: clock.total(now), now: clock.lasts(now).map(silence) }
    }
}

/// The attempts of a request.
pub(super) struct Attempts<'p> {
    path: &'p ServerPath,
    server: &'p (dyn Display + Sync),
    bytes: usize,
    number: u64,
    pauses: Backoff,
    flying: Option<Flying<'p>>,
}

impl Attempts<'_> {
    /// Returns the request's number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Begins an attempt. Returns the time after which it has to fail, or an error if nothing has been answered for
    /// too long.
    pub fn begin(&mut self) -> io::Result<Duration> {
        let left = self.path.clock().remaining(Instant::now());
        if left.is_zero() {
            self.path.clock().give_up(Instant::now());
            return Err(self.no_answer());
        }
        self.flying = Some(Flying::begin(&self.path.requests));
        Ok(left)
    }

    /// Ends an attempt. Returns the request's outcome, or `None` after a pause if it is to be made again.
    pub async fn end<T>(&mut self, outcome: Result<T, Failure>) -> Option<io::Result<T>> {
        let bytes = self.bytes;
        self.end_with(outcome, bytes).await
    }

    /// Ends an attempt as [`end`](Self::end) does, whose answer has this many bytes.
    pub async fn end_with<T>(&mut self, outcome: Result<T, Failure>, bytes: usize) -> Option<io::Result<T>> {
        let took = self.flying.take().map(|flying| flying.since.elapsed()).unwrap_or_default();
        let failure = match outcome {
            Ok(answer) => {
                self.path.clock().answered(Instant::now());
                self.path.count().answered(took, bytes as u64);
                *self.path.last_failure() = None;
                return Some(Ok(answer));
            }
            Err(failure) if failure.may_pass => failure,
            Err(failure) => return Some(Err(lasting(failure.to_string()))),
        };
        tracing::debug!(%failure, "a request failed, and is made again");
        self.path.count().retry(failure.pushes_back);
        let pause = failure.pause_after(&mut self.pauses);
        *self.path.last_failure() = Some(failure.to_string());
        let left = self.path.clock().remaining(Instant::now());
        sleep(pause.min(left)).await;
        None
    }

    /// Returns the error of a request when nothing has been answered for too long.
    fn no_answer(&self) -> io::Error {
        // The clock is asked afterwards: `silences` locks it first.
        let failure = self.path.last_failure().clone();
        let failure = failure.map(|last| format!(" (last failure: {last})")).unwrap_or_default();
        let what = format!(
            "{} has not answered for {} s{failure}; check that the server runs and that the network is up",
            self.server,
            self.path.clock().patience().as_secs()
        );
        io::Error::new(io::ErrorKind::TimedOut, what)
    }
}

/// Requests that wait, on the clock of their path. Their end, even by being dropped, is recorded.
struct Waiting<'c>(&'c Mutex<PathClock>);

impl<'c> Waiting<'c> {
    fn begin(clock: &'c Mutex<PathClock>, allowed: Duration) -> Self {
        clock.lock().expect("no panic while the clock is locked").begin(Instant::now(), allowed);
        Self(clock)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.lock().expect("no panic while the clock is locked").end(Instant::now());
    }
}

/// An attempt that counts as in flight until it is dropped.
struct Flying<'c> {
    requests: &'c Mutex<Requests>,
    since: Instant,
}

impl<'c> Flying<'c> {
    fn begin(requests: &'c Mutex<Requests>) -> Self {
        requests.lock().expect("no panic while the counts are locked").in_flight += 1;
        Self { requests, since: Instant::now() }
    }
}

impl Drop for Flying<'_> {
    fn drop(&mut self) {
        self.requests.lock().expect("no panic while the counts are locked").in_flight -= 1;
    }
}
