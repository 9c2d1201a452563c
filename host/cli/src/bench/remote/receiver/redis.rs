//! Parts of values of Redis servers.

use super::{Asking, CONNECTIONS, SAMPLES_MAX, scattered};
use anyhow::{Context, ensure};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

/// Bytes of a value in front of the image.
const HEAD_BYTES: u64 = 48;

struct Values {
    stream: BufReader<TcpStream>,
    keys: Arc<Vec<String>>,
    /// Bytes of an image.
    bytes: u64,
    /// Requests that are not sent yet.
    requests: Vec<u8>,
    memory: Vec<u8>,
}

/// Makes connections to servers. Each asks for `bytes` bytes of the images that its server has of the dataset with this
/// path.
pub fn connect(servers: &[String], path: &str, bytes: u64) -> anyhow::Result<Vec<Box<dyn Asking>>> {
    let (db, name) = path.trim_start_matches('/').split_once('/').context("the URL has no name of a dataset")?;
    let mut all: Vec<Box<dyn Asking>> = Vec::new();
    for server in servers {
        let keys = Arc::new(keys(server, db, name)?);
        for _ in 0..CONNECTIONS {
            let stream = BufReader::new(TcpStream::connect(server)?);
            stream.get_ref().set_nodelay(true)?;
            let (keys, requests, memory) = (keys.clone(), Vec::new(), Vec::new());
            let mut values = Values { stream, keys, bytes, requests, memory };
            values.request(&["SELECT", db]);
            values.flush()?;
            let answer = values.line()?;
            ensure!(answer == "+OK", "{server} answers {answer:?}");
            all.push(Box::new(values));
        }
    }
    Ok(all)
}

/// Returns keys of samples that a server has.
fn keys(server: &str, db: &str, name: &str) -> anyhow::Result<Vec<String>> {
    let mut connection = redis::Client::open(format!("redis://{server}/{db}"))?.get_connection()?;
    let (mut keys, mut cursor) = (Vec::new(), 0_u64);
    loop {
        // A version has 16 digits, and the chunks of the index have another part in front of their number.
        let pattern = format!("{name}:????????????????:*");
        let mut scan = redis::cmd("SCAN");
        let scan = scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(1000);
        let (next, found): (u64, Vec<String>) = scan.query(&mut connection)?;
        keys.extend(found.into_iter().filter(|key| !key.contains(":index:")));
        cursor = next;
        if cursor == 0 || keys.len() >= SAMPLES_MAX {
            break;
        }
    }
    ensure!(!keys.is_empty(), "{server} has no sample of {name}");
    Ok(keys)
}

impl Values {
    fn request(&mut self, words: &[&str]) {
        let mut add = |text: String| self.requests.extend_from_slice(text.as_bytes());
        add(format!("*{}\r\n", words.len()));
        words.iter().for_each(|word| add(format!("${}\r\n{word}\r\n", word.len())));
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        self.stream.get_mut().write_all(&self.requests)?;
        self.requests.clear();
        Ok(())
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

impl Asking for Values {
    fn send(&mut self, number: u64) -> anyhow::Result<()> {
        let keys = self.keys.clone();
        let key = &keys[scattered(number, keys.len() as u64) as usize];
        let [first, last] = [HEAD_BYTES, HEAD_BYTES + self.bytes - 1].map(|at| at.to_string());
        self.request(&["GETRANGE", key, &first, &last]);
        Ok(())
    }

    fn receive(&mut self) -> anyhow::Result<u64> {
        if self.stream.buffer().is_empty() {
            self.flush()?;
        }
        let line = self.line()?;
        let bytes: Option<usize> = line.strip_prefix('$').and_then(|bytes| bytes.parse().ok());
        let bytes = bytes.filter(|bytes| *bytes as u64 <= self.bytes);
        let bytes = bytes.with_context(|| format!("a server that answers {line:?}"))?;
        self.memory.resize(bytes + 2, 0);
        self.stream.read_exact(&mut self.memory)?;
        Ok(bytes as u64)
    }
}
