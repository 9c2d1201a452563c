//! Receivers without a loader: they ask for as many bytes for an image as a run does, over plain sockets, and drop
//! them.
//!
//! At a web server, each connection waits for one answer. Redis and Cassandra get as many connections from a receiver
//! as from a run, each with several requests at the same time.

mod cassandra;
mod redis;
mod web;

use super::place::Url;
use anyhow::Context;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Connections to each server of Redis and Cassandra, as of a run.
const CONNECTIONS: u64 = 4;
/// Samples of a server, at most, that are asked for again and again.
const SAMPLES_MAX: usize = 4096;

/// A connection that asks for images.
trait Asking: Send {
    /// Sends the request with this number, at the latest when an answer is waited for.
    fn send(&mut self, number: u64) -> anyhow::Result<()>;

    /// Receives an answer, and returns how many bytes it has.
    fn receive(&mut self) -> anyhow::Result<u64>;
}

/// What a receiver asks for.
pub struct Receiver<'a> {
    /// Where the dataset lies.
    pub url: &'a Url<'a>,
    /// Host and port of each server.
    pub servers: &'a [String],
    /// Bytes that a run reads for an image.
    pub bytes: u64,
}

/// What came.
pub struct Received {
    pub images_per_s: f64,
    pub bytes_per_image: f64,
}

impl Receiver<'_> {
    /// Asks for images for a time, this many at once.
    pub fn receive(&self, at_once: u64, time: Duration) -> anyhow::Result<Received> {
        let connections = self.connections(at_once).context("the plain receiver cannot begin")?;
        let of_each = (at_once / connections.len() as u64).max(1);
        let (next, begun) = (AtomicU64::new(0), Instant::now());
        let receive = |mut connection: Box<dyn Asking>| -> anyhow::Result<(u64, u64)> {
            let (mut images, mut bytes) = (0, 0);
            let send = |connection: &mut dyn Asking| connection.send(next.fetch_add(1, Ordering::Relaxed));
            for _ in 0..of_each {
                send(&mut *connection)?;
            }
            while begun.elapsed() < time {
                bytes += connection.receive()?;
                images += 1;
                send(&mut *connection)?;
            }
            Ok((images, bytes))
        };
        let receive = &receive;
        let (images, bytes) = std::thread::scope(|scope| {
            let all: Vec<_> =
                connections.into_iter().map(|connection| scope.spawn(move || receive(connection))).collect();
            all.into_iter().map(|thread| thread.join().expect("no panic")).try_fold(
                (0, 0),
                |(images, bytes), of_one| {
                    let (more, more_bytes) = of_one?;
                    anyhow::Ok((images + more, bytes + more_bytes))
                },
            )
        })
        .context("the plain receiver failed")?;
        let images_per_s = images as f64 / begun.elapsed().as_secs_f64();
        Ok(Received { images_per_s, bytes_per_image: bytes as f64 / images.max(1) as f64 })
    }

    fn connections(&self, at_once: u64) -> anyhow::Result<Vec<Box<dyn Asking>>> {
        match self.url.scheme {
            "redis" => redis::connect(self.servers, self.url.path, self.bytes),
            "cql" => cassandra::connect(&self.servers[0], self.url.path),
            _ => web::connect(&self.servers[0], self.url.path, self.bytes, at_once),
        }
    }
}

/// Returns numbers below `end` without an order that a server could foresee.
fn scattered(number: u64, end: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % end.max(1)
}
