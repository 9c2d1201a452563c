//! A pack in an object store or on a web server, read by ranges over HTTP.
//!
//! Each read asks for its bytes on the condition that the object is still the one that was opened. A failure that may
//! pass is tried again (`server_path`). `address`: what URLs are taken, and the client for each. `failure`: which
//! failures may pass. `push`: puts a pack into a store.

mod address;
mod failure;
pub(super) mod push;

use super::server_path::{ANSWER_WITHIN, Failure, ServerPath, allowed};
use address::StoreAddress;
pub(super) use address::is_url;
use ddlp_dataset::pack::{Blocks, BlocksRead};
use ddlp_dataset::{FetchDepth, Reading, Requests, Silences, wait_for};
use failure::{changed, judge, wrong};
use futures_util::future::try_join_all;
use futures_util::{Stream, StreamExt};
use nix::sys::resource::{Resource, getrlimit};
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, RetryConfig};
use std::fmt;
use std::io;
use std::ops::Range;
use std::pin::pin;
use tokio::time::timeout;

/// Threads that fetch, and the samples that each asks for at the same time, where other reads need a thread.
const FETCH: (usize, usize) = (4, 16);
/// Most samples in flight. Each one may need a connection of its own.
const AT_ONCE_MAX: usize = 2048;
/// Part of the files that this process may open which connections may take.
const CONNECTIONS_SHARE: usize = 2;
/// Bytes with at most this many others between them are asked for as one.
const JOIN_GAP: u64 = 4096;

/// An object that is read by ranges.
pub(super) struct RangeBlocks {
    path: ServerPath,
    store: Box<dyn ObjectStore>,
    address: StoreAddress,
    /// What was opened.
    meta: ObjectMeta,
}

impl RangeBlocks {
    /// Opens the object at a URL. The error says what to do.
    pub fn open(url: &str) -> Result<Self, String> {
        let address = StoreAddress::parse(url)?;
        let path = ServerPath::start("ddlp-ranges")?;
        let store = address.store(RetryConfig { max_retries: 0, ..RetryConfig::default() })?;
        let meta = path.first(|| open(&*store, &address))?;
        Ok(Self { path, store, address, meta })
    }

    /// Fills the parts, which are sorted, by one request. Tries again after failures that may pass.
    async fn read_parts(&self, mut parts: Vec<Part<'_>>) -> io::Result<()> {
        let (start, end) = (parts[0].offset, parts[parts.len() - 1].end());
        let bytes = (end - start) as usize;
        let mut attempts = self.path.request(&self.address, bytes);
        loop {
            let limit = attempts.begin()?.min(ANSWER_WITHIN + allowed(bytes));
            let attempt = timeout(limit, self.attempt(start..end, &mut parts)).await;
            if let Some(outcome) = attempts.end(attempt.unwrap_or_else(|_| Err(Failure::slow(limit)))).await {
                return outcome;
            }
        }
    }

    /// Asks once for the bytes in which the parts lie.
    async fn attempt(&self, range: Range<u64>, parts: &mut [Part<'_>]) -> Result<(), Failure> {
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            ..unchanged(&self.meta, GetOptions::default())
        };
        let answer = self
            .store
            .get_opts(&self.address.path, options)
            .await
            .map_err(|error| judge(&error, || self.address.help(&error)))?;
        let (was, is) = (&self.meta, &answer.meta);
        if is.size != was.size || (is.e_tag.is_some() && was.e_tag.is_some() && is.e_tag != was.e_tag) {
            return Err(changed());
        }
        fill(range, parts, answer.into_stream()).await
    }
}

impl Blocks for RangeBlocks {
    fn len_bytes(&self) -> u64 {
        self.meta.size
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        self.path.wait(out.len(), self.read_parts(vec![Part { offset, out }]))
    }

    fn read_many(&self, reads: &mut [BlocksRead<'_>]) -> io::Result<()> {
        let mut started = Vec::with_capacity(reads.len());
        for BlocksRead { offset, memory, place } in reads {
            started.push(BlocksRead { offset: *offset, memory, place: place.clone() });
        }
        wait_for(self.start_reads(started))
    }

    fn start_reads<'r>(&'r self, reads: Vec<BlocksRead<'r>>) -> Reading<'r, io::Error> {
        let bytes = reads.iter().map(|read| read.place.len()).sum();
        let asked = reads.into_iter().filter(|read| !read.place.is_empty());
        let parts = asked.map(|read| Part { offset: read.offset, out: &mut read.memory[read.place] });
        let all: Vec<_> = joined(parts.collect()).into_iter().map(|parts| self.read_parts(parts)).collect();
        Box::pin(self.path.make(bytes, async { try_join_all(all).await.map(drop) }))
    }

    fn requests(&self) -> Option<Requests> {
        Some(self.path.requests())
    }

    fn fetch_depth(&self) -> FetchDepth {
        let (threads, samples) = FETCH;
        let files =
            getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| usize::try_from(soft).unwrap_or(usize::MAX));
        let at_once = Some((files / CONNECTIONS_SHARE).clamp(threads * samples, AT_ONCE_MAX));
        FetchDepth { threads, samples, join_gap: Some(JOIN_GAP), at_once }
    }

    /// Each read names the object that was opened, so that no other one can be read.
    fn session(&self) -> u64 {
        0
    }

    fn interrupt(&self) {
        self.path.interrupt();
    }

    fn silences(&self) -> Silences {
        self.path.silences(&self.address)
    }
}

impl fmt::Debug for RangeBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeBlocks").field("address", &self.address.to_string()).finish_non_exhaustive()
    }
}

/// Asks what the object is, and whether the server answers for ranges.
async fn open(store: &dyn ObjectStore, address: &StoreAddress) -> Result<ObjectMeta, Failure> {
    let options = GetOptions { range: Some(GetRange::Bounded(0..1)), ..GetOptions::default() };
    let answer = store.get_opts(&address.path, options).await;
    answer.map(|answer| answer.meta).map_err(|error| judge(&error, || address.help(&error)))
}

/// Returns `options` on the condition that the object is still the one with this `meta`.
fn unchanged(meta: &ObjectMeta, options: GetOptions) -> GetOptions {
    match &meta.e_tag {
        // A weak tag never matches as a condition (RFC 9110, section 13.1.1); the answer's tag is compared instead.
        Some(tag) if !tag.starts_with("W/") => GetOptions { if_match: Some(tag.clone()), ..options },
        _ => GetOptions { if_unmodified_since: Some(meta.last_modified), ..options },
    }
}

/// Bytes to read.
struct Part<'m> {
    offset: u64,
    out: &'m mut [u8],
}

impl Part<'_> {
    fn end(&self) -> u64 {
        self.offset + self.out.len() as u64
    }
}

/// Sorts the parts. Returns those together that one request is made for: a sample's checksums, for example, lie behind
/// its pixels.
fn joined(mut parts: Vec<Part<'_>>) -> Vec<Vec<Part<'_>>> {
    parts.sort_unstable_by_key(|part| part.offset);
    let mut requests: Vec<Vec<Part<'_>>> = Vec::with_capacity(parts.len());
    for part in parts {
        let is_near = |last: &Part<'_>| (last.end()..=last.end() + JOIN_GAP).contains(&part.offset);
        match requests.last_mut() {
            Some(request) if request.last().is_some_and(is_near) => request.push(part),
            _ => requests.push(vec![part]),
        }
    }
    requests
}

/// Fills the parts of a range with an answer's bytes.
async fn fill<B: AsRef<[u8]>>(
    range: Range<u64>,
    parts: &mut [Part<'_>],
    bytes: impl Stream<Item = object_store::Result<B>>,
) -> Result<(), Failure> {
    let (mut bytes, mut at) = (pin!(bytes), range.start);
    while let Some(piece) = bytes.next().await {
        let piece = piece.map_err(|error| judge(&error, || "the answer broke off".to_owned()))?;
        let piece = piece.as_ref();
        let end = at + piece.len() as u64;
        if end > range.end {
            return Err(wrong("more bytes than asked for"));
        }
        for part in &mut *parts {
            let common = part.offset.max(at)..part.end().min(end);
            if !common.is_empty() {
                let to = (common.start - part.offset) as usize..(common.end - part.offset) as usize;
                part.out[to].copy_from_slice(&piece[(common.start - at) as usize..(common.end - at) as usize]);
            }
        }
        at = end;
    }
    if at < range.end {
        return Err(wrong("fewer bytes than asked for"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;

    /// Reads parts of these lengths at these offsets by the requests that [`joined`] makes of them, whose answers come
    /// in pieces of `piece` bytes, each with the low byte of its offset. Returns the ranges of the requests.
    fn read(places: &[(u64, usize)], piece: u64) -> Vec<Range<u64>> {
        let mut memory: Vec<Vec<u8>> = places.iter().map(|&(_, bytes)| vec![0xff; bytes]).collect();
        let parts = places.iter().zip(&mut memory).map(|(&(offset, _), out)| Part { offset, out });
        let mut ranges = Vec::new();
        for mut parts in joined(parts.collect()) {
            let range = parts[0].offset..parts[parts.len() - 1].end();
            let pieces = range.clone().step_by(piece as usize);
            let pieces = pieces.map(|at| Ok((at..range.end.min(at + piece)).map(|at| at as u8).collect::<Vec<u8>>()));
            wait_for(fill(range.clone(), &mut parts, stream::iter(pieces))).unwrap();
            ranges.push(range);
        }
        for (&(offset, bytes), memory) in places.iter().zip(memory) {
            assert!((offset..offset + bytes as u64).map(|at| at as u8).eq(memory), "{bytes} bytes from {offset}");
        }
        ranges
    }

    #[test]
    fn near_bytes_come_by_one_request() {
        for piece in [1, 7, 4096, 1 << 20] {
            let sample = [(50_100, 60), (100, 50_000), (50_160 + JOIN_GAP, 3), (90_000, 8)];
            assert_eq!(read(&sample, piece), [100..50_163 + JOIN_GAP, 90_000..90_008]);
            assert_eq!(read(&[(161 + JOIN_GAP, 3), (100, 60)], piece), [100..160, 161 + JOIN_GAP..164 + JOIN_GAP]);
            // What overlaps is asked for by itself.
            assert_eq!(read(&[(10, 20), (15, 20)], piece), [10..30, 15..35]);
        }
    }

    #[test]
    fn an_answer_of_another_length_is_wrong() {
        for length in [9, 11] {
            let (mut out, answer) = ([0; 10], stream::iter([Ok(vec![1; length])]));
            let failure = wait_for(fill(5..15, &mut [Part { offset: 5, out: &mut out }], answer)).unwrap_err();
            assert!(failure.to_string().contains("bytes than asked for"), "{failure}");
        }
    }
}
