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
use std::pin::pin;
use tokio::time::timeout;

/// Threads that fetch, and the samples that each asks for at the same time, where other reads need a thread.
const FETCH: (usize, usize) = (4, 16);
/// Most samples in flight. Each one may need a connection of its own.
const AT_ONCE_MAX: usize = 1024;
/// Part of the files that this process may open which connections may take.
const CONNECTIONS_SHARE: usize = 2;
/// Extents with at most this many bytes between them are asked for as one.
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

    /// Fills `out` with the bytes from `offset` on. Tries again after failures that may pass.
    async fn read_range(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut attempts = self.path.request(&self.address, out.len());
        loop {
            let limit = attempts.begin()?.min(ANSWER_WITHIN + allowed(out.len()));
            let attempt = timeout(limit, self.attempt(offset, out)).await;
            if let Some(outcome) = attempts.end(attempt.unwrap_or_else(|_| Err(Failure::slow(limit)))).await {
                return outcome;
            }
        }
    }

    /// Asks once for the bytes from `offset` on.
    async fn attempt(&self, offset: u64, out: &mut [u8]) -> Result<(), Failure> {
        let options = GetOptions {
            range: Some(GetRange::Bounded(offset..offset + out.len() as u64)),
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
        fill(out, answer.into_stream()).await
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
        self.path.wait(out.len(), self.read_range(offset, out))
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
        let all = asked.map(|read| self.read_range(read.offset, &mut read.memory[read.place]));
        let all = all.collect::<Vec<_>>();
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

/// Fills `out` with an answer's bytes.
async fn fill<B: AsRef<[u8]>>(
    out: &mut [u8],
    bytes: impl Stream<Item = object_store::Result<B>>,
) -> Result<(), Failure> {
    let (mut bytes, mut filled) = (pin!(bytes), 0);
    while let Some(part) = bytes.next().await {
        let part = part.map_err(|error| judge(&error, || "the answer broke off".to_owned()))?;
        let part = part.as_ref();
        let place = out.get_mut(filled..filled + part.len()).ok_or_else(|| wrong("more bytes than asked for"))?;
        place.copy_from_slice(part);
        filled += part.len();
    }
    if filled < out.len() {
        return Err(wrong("fewer bytes than asked for"));
    }
    Ok(())
}
