//! Rows of a node of Cassandra, by version 4 of its protocol (`native_protocol_v4.spec`).

use super::{Asking, CONNECTIONS, SAMPLES_MAX, scattered};
use anyhow::{Context, bail, ensure};
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

/// Bytes of an identifier.
const ID_BYTES: usize = 16;
const LOCAL_ONE: u16 = 0x0a;
/// Codes of requests.
const STARTUP: u8 = 0x01;
const QUERY: u8 = 0x07;
const PREPARE: u8 = 0x09;
const EXECUTE: u8 = 0x0a;
/// The code of a result, and the kinds of results.
const RESULT: u8 = 0x08;
const ROWS: u32 = 2;
const PREPARED: u32 = 4;

struct Rows {
    stream: BufReader<TcpStream>,
    ids: Arc<Vec<[u8; ID_BYTES]>>,
    statement: Vec<u8>,
    /// Requests that are not sent yet.
    requests: Vec<u8>,
    /// Streams of the protocol that no request has.
    free: Vec<u16>,
    streams: u16,
    memory: Vec<u8>,
}

/// Makes connections to a node. Each asks for the rows of samples of the dataset with this path.
pub fn connect(server: &str, path: &str) -> anyhow::Result<Vec<Box<dyn Asking>>> {
    let (keyspace, name) = path.trim_start_matches('/').split_once('/').context("the URL has no name of a dataset")?;
    let ids = Arc::new(Rows::new(server)?.ids_of(&format!("\"{keyspace}\".\"{name}_metadata\""))?);
    ensure!(!ids.is_empty(), "{server} has no sample of {name}");
    let connection = |_| {
        let mut rows = Rows { ids: ids.clone(), ..Rows::new(server)? };
        let select = format!("SELECT start, head, data FROM \"{keyspace}\".\"{name}_data\" WHERE id = ?");
        rows.request(PREPARE, 0, &[&(select.len() as u32).to_be_bytes(), select.as_bytes()]);
        rows.result(PREPARED)?;
        let length = usize::from(rows.short(4)?);
        rows.statement = rows.memory.get(6..6 + length).context("a malformed answer")?.to_vec();
        Ok(Box::new(rows) as _)
    };
    (0..CONNECTIONS).map(connection).collect()
}

impl Rows {
    fn new(server: &str) -> anyhow::Result<Self> {
        let stream = BufReader::new(TcpStream::connect(server)?);
        stream.get_ref().set_nodelay(true)?;
        let (ids, statement, requests, free, memory) = Default::default();
        let mut rows = Self { stream, ids, statement, requests, free, streams: 0, memory };
        rows.request(STARTUP, 0, &[b"\0\x01\0\x0bCQL_VERSION\0\x053.0.0"]);
        let (opcode, ..) = rows.answer()?;
        ensure!(opcode == 0x02, "{server} does not let everybody in (code {opcode})");
        Ok(rows)
    }

    /// Returns identifiers that a table has.
    fn ids_of(mut self, table: &str) -> anyhow::Result<Vec<[u8; ID_BYTES]>> {
        let select = format!("SELECT id FROM {table} LIMIT {SAMPLES_MAX}");
        let (length, consistency) = ((select.len() as u32).to_be_bytes(), LOCAL_ONE.to_be_bytes());
        self.request(QUERY, 0, &[&length, select.as_bytes(), &consistency, &[0]]);
        self.result(ROWS)?;
        // The rows come last: each a length and an identifier.
        const CELL_BYTES: usize = 4 + ID_BYTES;
        let ids = self.memory.rchunks_exact(CELL_BYTES).map_while(|cell| cell.strip_prefix(&[0, 0, 0, ID_BYTES as u8]));
        Ok(ids.map(|id| id.try_into().expect("the rest of a cell")).collect())
    }

    fn request(&mut self, opcode: u8, stream: u16, parts: &[&[u8]]) {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.requests.extend_from_slice(&[4, 0]);
        self.requests.extend_from_slice(&stream.to_be_bytes());
        self.requests.push(opcode);
        self.requests.extend_from_slice(&(length as u32).to_be_bytes());
        parts.iter().for_each(|part| self.requests.extend_from_slice(part));
    }

    /// Receives an answer. Returns its code and its stream.
    fn answer(&mut self) -> anyhow::Result<(u8, u16)> {
        if self.stream.buffer().is_empty() {
            self.stream.get_mut().write_all(&self.requests)?;
            self.requests.clear();
        }
        let mut header = [0; 9];
        self.stream.read_exact(&mut header)?;
        let [_, _, s0, s1, opcode, length @ ..] = header;
        self.memory.resize(u32::from_be_bytes(length) as usize, 0);
        self.stream.read_exact(&mut self.memory)?;
        Ok((opcode, u16::from_be_bytes([s0, s1])))
    }

    /// Receives a result of this kind. Returns its stream.
    fn result(&mut self, wanted: u32) -> anyhow::Result<u16> {
        let (opcode, stream) = self.answer()?;
        let kind = self.memory.first_chunk().map(|kind| u32::from_be_bytes(*kind));
        if opcode != RESULT || kind != Some(wanted) {
            bail!("the node answers {}", String::from_utf8_lossy(&self.memory[..self.memory.len().min(200)]));
        }
        Ok(stream)
    }

    fn short(&self, at: usize) -> anyhow::Result<u16> {
        let bytes = self.memory.get(at..at + 2).context("a malformed answer")?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }
}

impl Asking for Rows {
    fn send(&mut self, number: u64) -> anyhow::Result<()> {
        const VALUES: u8 = 0x01;
        const NO_METADATA: u8 = 0x02;
        let stream = self.free.pop().unwrap_or_else(|| {
            self.streams += 1;
            self.streams - 1
        });
        let ids = self.ids.clone();
        let id = &ids[scattered(number, ids.len() as u64) as usize];
        let statement = std::mem::take(&mut self.statement);
        let length = (statement.len() as u16).to_be_bytes();
        let values = [VALUES | NO_METADATA, 0, 1, 0, 0, 0, ID_BYTES as u8];
        self.request(EXECUTE, stream, &[&length, &statement, &LOCAL_ONE.to_be_bytes(), &values, id]);
        self.statement = statement;
        Ok(())
    }

    fn receive(&mut self) -> anyhow::Result<u64> {
        let stream = self.result(ROWS)?;
        self.free.push(stream);
        Ok(self.memory.len() as u64)
    }
}
