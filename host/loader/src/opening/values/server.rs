//! A key-value server, asked over a few connections that are made again when they are lost.
//!
//! Many requests share a connection: each is sent at once, and the answers come in the same order.

use super::super::server_path::{ANSWER_WITHIN, Failure, ServerPath, allowed};
use super::address::ServerAddress;
use super::failure::judge;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, Pipeline, RedisResult, Value};
use std::io;
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::time::{timeout, timeout_at};

/// Connections to a server.
const CONNECTIONS: usize = 4;
/// Longest time to make a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// One command or several, which a connection sends at once.
pub trait Query: Sync {
    /// Sends the commands, and returns the answers.
    fn send(&self, connection: &mut MultiplexedConnection) -> impl Future<Output = RedisResult<Value>> + Send;
}

impl Query for Cmd {
    async fn send(&self, connection: &mut MultiplexedConnection) -> RedisResult<Value> {
        self.query_async(connection).await
    }
}

impl Query for Pipeline {
    async fn send(&self, connection: &mut MultiplexedConnection) -> RedisResult<Value> {
        self.query_async(connection).await
    }
}

/// A server with datasets.
pub struct Server {
    pub path: ServerPath,
    client: Client,
    pub address: ServerAddress,
    lines: [Line; CONNECTIONS],
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
        let limit = ANSWER_WITHIN + allowed(self.in_flight.load(Ordering::Relaxed));
        (answered.map_or(begun, |answered| answered.max(begun)) + limit, limit)
    }
}

/// Bytes that a request adds to those in flight, until it ends.
struct BytesInFlight<'l>(&'l Line, usize);

impl<'l> BytesInFlight<'l> {
    fn new(line: &'l Line, bytes: usize) -> Self {
        line.in_flight.fetch_add(bytes, Ordering::Relaxed);
        Self(line, bytes)
    }
}

impl Drop for BytesInFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl Server {
    /// Prepares to ask a server, without connecting yet. The error says what to do.
    pub fn new(address: ServerAddress) -> Result<Self, String> {
        let client = address.client()?;
        Ok(Self { path: ServerPath::start("ddlp-values")?, client, address, lines: Default::default() })
    }

    /// Makes the first request, with few attempts. The error says what to do.
    pub fn first<T: FromRedisValue>(&self, query: &impl Query) -> Result<T, String> {
        self.path.first(|| self.attempt(0, 0, query)).and_then(|value| {
            T::from_redis_value(value).map_err(|error| judge(&error.into(), &self.address).to_string())
        })
    }

    /// Makes a request for about `bytes` bytes, or with as many. Makes it again after failures that may pass.
    pub async fn ask<T: FromRedisValue>(&self, bytes: usize, query: &impl Query) -> io::Result<T> {
        let mut attempts = self.path.request(&self.address, bytes);
        loop {
            let left = attempts.begin()?;
            let line = (attempts.number() % CONNECTIONS as u64) as usize;
            let attempt = timeout(left, self.attempt(line, bytes, query)).await;
            let outcome = attempt
                .unwrap_or_else(|_| Err(Failure::slow(left)))
                .and_then(|value| T::from_redis_value(value).map_err(|error| judge(&error.into(), &self.address)));
            if let Some(outcome) = attempts.end(outcome).await {
                return outcome;
            }
        }
    }

    /// Makes a request once.
    async fn attempt(&self, line: usize, bytes: usize, query: &impl Query) -> Result<Value, Failure> {
        let line = &self.lines[line];
        let (number, mut connection) = self.connect(line).await?;
        let _in_flight = BytesInFlight::new(line, bytes);
        let begun = Instant::now();
        let mut asked = pin!(query.send(&mut connection));
        let failure = loop {
            let (deadline, limit) = line.deadline(begun);
            match timeout_at(deadline.into(), &mut asked).await {
                Ok(answer) => {
                    *line.answered.lock().expect("no panic while the time is locked") = Some(Instant::now());
                    match answer {
                        Ok(answer) => return Ok(answer),
                        Err(error) => break judge(&error, &self.address),
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
        let connection = made.map_err(|error| judge(&error, &self.address))?;
        *held = (held.0 + 1, Some(connection.clone()));
        Ok((held.0, connection))
    }
}
