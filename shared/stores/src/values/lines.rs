//! Connections to a server, which are made again when they are lost.
//!
//! Many requests share a connection: each is sent at once.

use super::super::server_path::{ANSWER_WITHIN, Failure, allowed};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::time::timeout_at;

/// Connections to a server.
const CONNECTIONS: usize = 4;
/// Longest time to make a connection.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// Makes attempts at the same time, and returns the first good outcome. If all fail: the last failure, or one
/// that will not pass.
pub async fn first_good<T>(
    mut attempts: FuturesUnordered<impl Future<Output = Result<T, Failure>>>,
) -> Result<T, Failure> {
    let mut failure: Option<Failure> = None;
    while let Some(outcome) = attempts.next().await {
        match outcome {
            Ok(found) => return Ok(found),
            // What will not pass says what to do.
            Err(found) if found.may_pass && failure.as_ref().is_some_and(|failure| !failure.may_pass) => {}
            Err(found) => failure = Some(found),
        }
    }
    Err(failure.unwrap_or_else(|| Failure::passing("there is no node to ask".to_owned())))
}

/// The connections to a server.
pub struct Lines<C>([Line<C>; CONNECTIONS]);

impl<C> Default for Lines<C> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Line::default()))
    }
}

impl<C: Clone> Lines<C> {
    /// Makes a request with this number for about `bytes` bytes, or with as many, once.
    pub async fn attempt<T, F>(
        &self,
        number: u64,
        bytes: usize,
        connect: impl Future<Output = Result<C, Failure>>,
        send: impl FnOnce(C) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        self.0[(number % CONNECTIONS as u64) as usize].attempt(bytes, connect, send).await
    }
}

/// A connection, or the place for one.
struct Line<C> {
    /// The connection and its number.
    connection: tokio::sync::Mutex<(u64, Option<C>)>,
    /// When an answer came last.
    answered: Mutex<Option<Instant>>,
    /// Bytes that requests wait for or send.
    in_flight: AtomicUsize,
}

impl<C> Default for Line<C> {
    fn default() -> Self {
        Self { connection: Default::default(), answered: Mutex::default(), in_flight: AtomicUsize::default() }
    }
}

impl<C: Clone> Line<C> {
    /// Returns when a request that was begun at a time counts as unanswered, and after which time without an answer.
    fn deadline(&self, begun: Instant) -> (Instant, Duration) {
        let answered = *self.answered.lock().expect("no panic while the time is locked");
        let limit = ANSWER_WITHIN + allowed(self.in_flight.load(Ordering::Relaxed));
        (answered.map_or(begun, |answered| answered.max(begun)) + limit, limit)
    }

    async fn attempt<T, F>(
        &self,
        bytes: usize,
        connect: impl Future<Output = Result<C, Failure>>,
        send: impl FnOnce(C) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let (number, connection) = self.connect(connect).await?;
        let _in_flight = BytesInFlight::new(&self.in_flight, bytes);
        let begun = Instant::now();
        let mut asked = pin!(send(connection));
        let failure = loop {
            let (deadline, limit) = self.deadline(begun);
            match timeout_at(deadline.into(), &mut asked).await {
                Ok(answer) => {
                    *self.answered.lock().expect("no panic while the time is locked") = Some(Instant::now());
                    match answer {
                        Ok(answer) => return Ok(answer),
                        Err(failure) => break failure,
                    }
                }
                // Answers to others may have come since.
                Err(_) if self.deadline(begun).0 > Instant::now() => {}
                Err(_) => break Failure::slow(limit),
            }
        };
        if failure.is_lost {
            let mut held = self.connection.lock().await;
            if held.0 == number {
                held.1 = None;
            }
        }
        Err(failure)
    }

    /// Returns the connection and its number. If there is no connection, makes one.
    async fn connect(&self, connect: impl Future<Output = Result<C, Failure>>) -> Result<(u64, C), Failure> {
        let mut held = self.connection.lock().await;
        if let (number, Some(connection)) = &*held {
            return Ok((*number, connection.clone()));
        }
        let connection = connect.await?;
        *held = (held.0 + 1, Some(connection.clone()));
        Ok((held.0, connection))
    }
}

/// Bytes that a request adds to those in flight, until it ends.
struct BytesInFlight<'l>(&'l AtomicUsize, usize);

impl<'l> BytesInFlight<'l> {
    fn new(in_flight: &'l AtomicUsize, bytes: usize) -> Self {
        in_flight.fetch_add(bytes, Ordering::Relaxed);
        Self(in_flight, bytes)
    }
}

impl Drop for BytesInFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddlp_dataset::wait_for;
    use std::future::pending;

    #[test]
    fn a_node_that_does_not_answer_delays_no_other_one() {
        let first = |outcomes: &[Option<Result<u8, Failure>>]| {
            let attempt = |outcome: &Option<Result<u8, Failure>>| {
                let outcome = outcome.as_ref().map(|outcome| match outcome {
                    Ok(found) => Ok(*found),
                    Err(failure) => Err(Failure { what: failure.what.clone(), ..*failure }),
                });
                async move {
                    match outcome {
                        Some(outcome) => outcome,
                        None => pending().await,
                    }
                }
            };
            wait_for(first_good(outcomes.iter().map(attempt).collect())).map_err(|failure| failure.what)
        };
        let passing = || Some(Err(Failure::passing("lost".to_owned())));
        let lasting = || Some(Err(Failure::lasting("refused".to_owned())));
        assert_eq!(first(&[None, lasting(), passing(), Some(Ok(7)), None]), Ok(7));
        assert_eq!(first(&[lasting(), passing()]), Err("refused".to_owned()));
        assert_eq!(first(&[passing(), lasting()]), Err("refused".to_owned()));
        assert_eq!(first(&[passing()]), Err("lost".to_owned()));
        assert!(first(&[]).is_err());
    }
}
