//! A receiver without a loader: it asks a web server for ranges and drops their bytes.

use anyhow::{Context, ensure};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A receiver of ranges of one object.
pub struct Receiver<'a> {
    /// Host and port of the server.
    pub server: &'a str,
    /// Path of the object.
    pub path: &'a str,
    /// Length of a range.
    pub bytes: u64,
}

impl Receiver<'_> {
    /// Returns the ranges per second that arrive over these connections. Each asks for one range after the other.
    pub fn images_per_s(&self, connections: u64, time: Duration) -> anyhow::Result<f64> {
        let object = self.object_bytes()?;
        let (next, begun) = (AtomicU64::new(0), Instant::now());
        let received: u64 = std::thread::scope(|scope| {
            let receive = || -> anyhow::Result<u64> {
                let (mut stream, mut count) = (BufReader::new(TcpStream::connect(self.server)?), 0);
                while begun.elapsed() < time {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    // Places without an order that a server could foresee.
                    let offset = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % object.saturating_sub(self.bytes).max(1);
                    self.ask(&mut stream, offset, self.bytes)?;
                    count += 1;
                }
                Ok(count)
            };
            let all: Vec<_> = (0..connections).map(|_| scope.spawn(receive)).collect();
            all.into_iter().map(|thread| thread.join().expect("no panic")).sum::<anyhow::Result<u64>>()
        })
        .context("the plain receiver failed")?;
        Ok(received as f64 / begun.elapsed().as_secs_f64())
    }

    /// Returns the length of the object.
    fn object_bytes(&self) -> anyhow::Result<u64> {
        let mut stream = BufReader::new(TcpStream::connect(self.server)?);
        let range = self.ask(&mut stream, 0, 1)?;
        range.rsplit('/').next().and_then(|bytes| bytes.parse().ok()).context("the server says no length")
    }

    /// Asks for a range, and drops it. Returns what the server says of the range.
    fn ask(&self, stream: &mut BufReader<TcpStream>, offset: u64, bytes: u64) -> anyhow::Result<String> {
        let Self { path, server, .. } = self;
        let last = offset + bytes - 1;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {server}\r\nRange: bytes={offset}-{last}\r\n\r\n");
        stream.get_mut().write_all(request.as_bytes())?;
        let (mut line, mut range) = (String::new(), String::new());
        stream.read_line(&mut line)?;
        ensure!(line.split(' ').nth(1) == Some("206"), "a server that answers a range with {line:?}");
        loop {
            line.clear();
            stream.read_line(&mut line)?;
            match line.trim_end().split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-range") => range = value.trim().to_owned(),
                Some(_) => {}
                None => break,
            }
        }
        let received = std::io::copy(&mut stream.take(bytes), &mut std::io::sink())?;
        ensure!(received == bytes, "{received} of {bytes} bytes of a range");
        Ok(range)
    }
}
