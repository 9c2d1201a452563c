//! Ranges of an object of a web server.

use super::{Asking, scattered};
use anyhow::{Context, ensure};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

struct Ranges {
    stream: BufReader<TcpStream>,
    server: String,
    path: String,
    object_bytes: u64,
    bytes: u64,
    memory: Vec<u8>,
}

/// Makes connections. Each asks for ranges of `bytes` bytes.
pub fn connect(server: &str, path: &str, bytes: u64, connections: u64) -> anyhow::Result<Vec<Box<dyn Asking>>> {
    let make = |object_bytes| -> anyhow::Result<Ranges> {
        let (server, path) = (server.to_owned(), path.to_owned());
        let stream = BufReader::new(TcpStream::connect(&server)?);
        Ok(Ranges { stream, server, path, object_bytes, bytes, memory: vec![0; bytes as usize] })
    };
    let mut first = make(0)?;
    first.ask(0, 1)?;
    let (range, _) = first.answer()?;
    let object_bytes = range.rsplit('/').next().and_then(|bytes| bytes.parse().ok());
    let object_bytes = object_bytes.context("the server says no length")?;
    (0..connections).map(|_| Ok(Box::new(make(object_bytes)?) as _)).collect()
}

impl Ranges {
    fn ask(&mut self, offset: u64, bytes: u64) -> anyhow::Result<()> {
        let Self { path, server, .. } = self;
        let last = offset + bytes - 1;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {server}\r\nRange: bytes={offset}-{last}\r\n\r\n");
        Ok(self.stream.get_mut().write_all(request.as_bytes())?)
    }

    /// Returns what the server says of the range, and how many bytes it has.
    fn answer(&mut self) -> anyhow::Result<(String, u64)> {
        let (mut line, mut range, mut bytes) = (String::new(), String::new(), 0);
        self.stream.read_line(&mut line)?;
        ensure!(line.split(' ').nth(1) == Some("206"), "a server that answers a range with {line:?}");
        loop {
            line.clear();
            self.stream.read_line(&mut line)?;
            match line.trim_end().split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-range") => range = value.trim().to_owned(),
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => bytes = value.trim().parse()?,
                Some(_) => {}
                None => break,
            }
        }
        ensure!(bytes <= self.memory.len(), "{bytes} bytes for a range of {}", self.memory.len());
        self.stream.read_exact(&mut self.memory[..bytes])?;
        Ok((range, bytes as u64))
    }
}

impl Asking for Ranges {
    fn send(&mut self, number: u64) -> anyhow::Result<()> {
        self.ask(scattered(number, self.object_bytes.saturating_sub(self.bytes)), self.bytes)
    }

    fn receive(&mut self) -> anyhow::Result<u64> {
        let (_, bytes) = self.answer()?;
        ensure!(bytes == self.bytes, "{bytes} of {} bytes of a range", self.bytes);
        Ok(bytes)
    }
}
