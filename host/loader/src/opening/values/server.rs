//! A key-value server, asked over a few connections that are made again when they are lost.
//!
//! A request that fails in a way that may pass is made again until nothing has been answered for a minute. Many
//! requests share a connection: each is sent at once, and the answers come in the same order.

use super::super::clock::PathClock;
use super::address::ServerAddress;
use super::failure::Failure;
use ddlp_dataset::pack::BlocksError;
use ddlp_dataset::{Silence, Silences};
use ddlp_driver::{Backoff, BackoffLimits};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult};
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Connections to a server.
const CONNECTIONS: usize = 4;
/// Longest time to make a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Longest time without an answer on a connection on which few bytes are asked for.
const READ_WITHIN: Duration = Duration::from_secs(10);
/// The bytes in flight on a connection may take a second more for each of these bytes.
const BYTES_A_SECOND: u64 = 1 << 20;
/// Pauses between attempts of a request.
const PAUSES: BackoffLimits =
    BackoffLimits { first: Duration::from_millis(100), cap: Duration::from_secs(5), attempts_max: u32::MAX };
/// Number of attempts of the first request: a mistaken address shall be told soon.
const OPENING_ATTEMPTS: u32 = 4;

/// A server with datasets.
pub struct Server {
    runtime: Runtime,
    client: Client,
    pub address: ServerAddress,
    lines: [Line; CONNECTIONS],
    clock: Mutex<PathClock>,
    /// The last failure since an answer.
    failure: Mutex<Option<String>>,
    /// Number of times that all waits were interrupted.
    interrupts: watch::Sender<u64>,
    /// Number of requests so far. Each uses the next connection, and has it as the seed of its pauses' jitter.
    requests: AtomicU64,
}

/// A connection, or the place for one.
#[derive(Default)]
struct Line {
    /// The connection and its number.
    connection: tokio::sync::Mutex<(u64, Option<MultiplexedConnection>)>,
    /// When an answer came last.
    answered: Mutex<Option<Instant>>,
    /// Bytes that requests wait for or send.
    in_flight: AtomicUsize,
}

impl Line {
    /// Returns when a request that was begun at a time counts as unanswered, and after which time without an answer.
    fn deadline(&self, begun: Instant) -> (Instant, Duration) {
        let answered = *self.answered.lock().expect("no panic while the time is locked");
        let limit = READ_WITHIN + allowed(self.in_flight.load(Ordering::Relaxed));
        (answered.map_or(begun, |answered| answered.max(begun)) + limit, limit)
    }
}

/// Bytes that a request adds to those in flight, until it ends.
struct InFlight<'l>(&'l Line, usize);

impl<'l> InFlight<'l> {
    fn new(line: &'l Line, bytes: usize) -> Self {
        line.in_flight.fetch_add(bytes, Ordering::Relaxed);
        Self(line, bytes)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl Server {
    /// Prepares to ask a server, without connecting yet. The error says what to do.
    pub fn new(address: ServerAddress) -> Result<Self, String> {
        let client = address.client()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("ddlp-values")
            .enable_all()
            .build()
            .map_err(|error| format!("no thread for requests: {error}"))?;
        let (clock, (interrupts, _)) = (Mutex::new(PathClock::new(Instant::now())), watch::channel(0));
        let (failure, requests, lines) = (Mutex::default(), AtomicU64::new(0), Default::default());
        Ok(Self { runtime, client, address, lines, clock, failure, interrupts, requests })
    }

    fn clock(&self) -> MutexGuard<'_, PathClock> {
        self.clock.lock().expect("no panic while the clock is locked")
    }

    fn last_failure(&self) -> MutexGuard<'_, Option<String>> {
        self.failure.lock().expect("no panic while the failure is locked")
    }

    /// Makes the first request, with few attempts. The error says what to do.
    pub fn first<T>(&self, request: impl AsyncFn(&mut MultiplexedConnection) -> RedisResult<T>) -> Result<T, String> {
        self.runtime.block_on(async {
            let mut pauses = Backoff::new(PAUSES, 0);
            for attempt in 1.. {
                match self.attempt(0, 0, &request).await {
                    Ok(answer) => return Ok(answer),
                    Err(failure) if !failure.may_pass => return Err(failure.to_string()),
                    Err(failure) if attempt == OPENING_ATTEMPTS => {
                        return Err(format!("{failure}; check the address, and that the server runs"));
                    }
                    Err(_) => tokio::time::sleep(pauses.next_delay().unwrap_or(PAUSES.cap)).await,
                }
            }
            unreachable!("the last attempt returns")
        })
    }

    /// Runs requests, whose bytes are `bytes` altogether, until they end or are interrupted.
    pub fn wait<T>(&self, bytes: usize, requests: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let mut interrupts = self.interrupts.subscribe();
        self.clock().begin(Instant::now(), allowed(bytes));
        let outcome = self.runtime.block_on(async {
            let mut requests = pin!(requests);
            tokio::select! {
                outcome = &mut requests => outcome,
                // Another run may read the same dataset: it tries again.
                _ = interrupts.changed() => Err(io::Error::from_raw_os_error(libc::EINTR)),
            }
        });
        self.clock().end(Instant::now());
        outcome
    }

    /// Makes a request for about `bytes` bytes, or with as many. Makes it again after failures that may pass.
    pub async fn ask<T>(
        &self,
        bytes: usize,
        request: impl AsyncFn(&mut MultiplexedConnection) -> RedisResult<T>,
    ) -> io::Result<T> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let mut pauses = Backoff::new(PAUSES, number);
        loop {
            let left = self.clock().left(Instant::now());
            if left.is_zero() {
                self.clock().give_up(Instant::now());
                return Err(self.no_answer());
            }
            let attempt = self.attempt((number % CONNECTIONS as u64) as usize, bytes, &request);
            let attempt = tokio::time::timeout(left, attempt).await;
            let failure = match attempt.unwrap_or_else(|_| Err(Failure::slow(left))) {
                Ok(answer) => {
                    self.clock().answered(Instant::now());
                    *self.last_failure() = None;
                    return Ok(answer);
                }
                Err(failure) if failure.may_pass => failure,
                Err(failure) => return Err(lasting(failure.to_string())),
            };
            tracing::debug!(%failure, "a request failed, and is made again");
            *self.last_failure() = Some(failure.to_string());
            tokio::time::sleep(pauses.next_delay().unwrap_or(PAUSES.cap).min(left)).await;
        }
    }

    /// Makes a request once.
    async fn attempt<T>(
        &self,
        line: usize,
        bytes: usize,
        request: &impl AsyncFn(&mut MultiplexedConnection) -> RedisResult<T>,
    ) -> Result<T, Failure> {
        let line = &self.lines[line];
        let (number, mut connection) = self.connect(line).await?;
        let _in_flight = InFlight::new(line, bytes);
        let begun = Instant::now();
        let mut asked = pin!(request(&mut connection));
        let failure = loop {
            let (deadline, limit) = line.deadline(begun);
            match tokio::time::timeout_at(deadline.into(), &mut asked).await {
                Ok(answer) => {
                    *line.answered.lock().expect("no panic while the time is locked") = Some(Instant::now());
                    match answer {
                        Ok(answer) => return Ok(answer),
                        Err(error) => break Failure::of(&error, &self.address),
                    }
                }
                // Answers to others may have come since.
                Err(_) if line.deadline(begun).0 > Instant::now() => {}
                Err(_) => break Failure::slow(limit),
            }
        };
        if failure.is_lost {
            let mut held = line.connection.lock().await;
            if held.0 == number {
                held.1 = None;
            }
        }
        Err(failure)
    }

    /// Returns a connection and its number. Makes one if there is none.
    async fn connect(&self, line: &Line) -> Result<(u64, MultiplexedConnection), Failure> {
        let mut held = line.connection.lock().await;
        if let (number, Some(connection)) = &*held {
            return Ok((*number, connection.clone()));
        }
        // Requests have limits of their own, by which answers that wait behind others are not cut off.
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT_WITHIN)).set_response_timeout(None);
        let made = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let connection = made.map_err(|error| Failure::of(&error, &self.address))?;
        *held = (held.0 + 1, Some(connection.clone()));
        Ok((held.0, connection))
    }

    /// Returns the error of a request when nothing has been answered for too long.
    fn no_answer(&self) -> io::Error {
        let failure = self.last_failure().as_ref().map(|last| format!(" (last failure: {last})")).unwrap_or_default();
        let seconds = self.clock().patience().as_secs();
        let what = format!(
            "{} has not answered for {seconds} s{failure}; check that the server runs and that the network is up",
            self.address
        );
        io::Error::new(io::ErrorKind::TimedOut, what)
    }

    /// Fails all waiting requests.
    pub fn interrupt(&self) {
        self.clock().forget_giving_up();
        self.interrupts.send_modify(|count| *count += 1);
    }

    /// Returns how long requests have waited without an answer.
    pub fn silences(&self) -> Silences {
        let (clock, now) = (self.clock(), Instant::now());
        let silence = |lasts| Silence {
            holder: self.address.to_string(),
            lasts,
            patience: clock.patience(),
            failure: self.last_failure().clone(),
        };
        Silences { total: clock.total(now), now: clock.lasts(now).map(silence) }
    }
}

/// Returns an error that will not pass.
pub fn lasting(what: String) -> io::Error {
    io::Error::other(BlocksError::Lasting(what))
}

/// Returns how long bytes may take on a slow path, beyond the time of a small request.
fn allowed(bytes: usize) -> Duration {
    Duration::from_secs(bytes as u64 / BYTES_A_SECOND)
}
