//! A pack in a key-value server, one value for each sample.
//!
//! Reads name places of the pack, as in a file; a map that is made from the pack's index finds the values. `server`:
//! what a server has to do. `redis`, `cassandra`: the servers. `lines`: their connections. `layout`: keys and values.
//! `push`: puts a pack there.
//! `client_certificate`: for servers that want one.

mod cassandra;
mod client_certificate;
mod layout;
mod lines;
pub(super) mod push;
mod redis;
mod server;

use self::redis::Redis;
use super::cached::{CacheError, open_cache};
use super::server_path::lasting;
use crate::cache::{Cache, CacheOptions};
use cassandra::Cassandra;
pub(super) use cassandra::{is_url as may_have_tables, open_table};
use ddlp_dataset::pack::{BLOCK_BYTES, Blocks, BlocksError, BlocksRead, FormatError, ValueMap};
use ddlp_dataset::{FetchDepth, Identity, Reading, Requests, Silences, wait_for};
use futures_util::StreamExt;
use futures_util::future::try_join_all;
use layout::{CHUNK_BYTES, Content, Key, Manifest, Version, chunk_of};
use server::{There, ValueServer};
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

/// Threads that fetch, and the samples that each asks for at the same time.
const FETCH: (usize, usize) = (4, 16);
/// Most samples in flight.
const AT_ONCE_MAX: usize = 4096;
/// Extents with at most this many bytes between them are asked for as one.
const JOIN_GAP: u64 = 4096;
/// Chunks of the index that are asked for at the same time.
const CHUNKS_IN_FLIGHT: usize = 8;
/// Attempts to get a chunk of the index that arrives damaged.
const CHUNK_ATTEMPTS: u32 = 2;

/// Returns whether a dataset's place is the URL of one in a key-value server.
pub(super) fn is_url(place: &str) -> bool {
    redis::is_url(place) || cassandra::is_url(place)
}

/// Cuts the user off what follows the scheme of a URL. A password there is refused: it belongs into the environment
/// variable `password`. `shape` says how a URL is written.
fn user_of<'u>(
    rest: &'u str,
    password: &str,
    shape: impl Fn() -> String,
) -> Result<(Option<&'u str>, &'u str), String> {
    let (user, rest) = rest.rsplit_once('@').map_or((None, rest), |(user, rest)| (Some(user), rest));
    if user.is_some_and(|user| user.contains(':')) {
        return Err(format!(
            "a URL has no password, because logs and reports show it: put it into the environment variable {password}"
        ));
    }
    if user.is_some_and(str::is_empty) { Err(shape()) } else { Ok((user, rest)) }
}

/// Opens the pack at a URL, and its cache if one is asked for.
pub(super) fn open(url: &str, cache: Option<&CacheOptions>) -> Result<(Box<dyn Blocks>, Option<Cache>), NotOpened> {
    fn open<S: ValueServer>(
        url: &str,
        cache: Option<&CacheOptions>,
    ) -> Result<(Box<dyn Blocks>, Option<Cache>), NotOpened> {
        let (blocks, cache) = ValueBlocks::<S>::open(url, cache)?;
        Ok((Box::new(blocks), cache))
    }
    if cassandra::is_url(url) { open::<Cassandra>(url, cache) } else { open::<Redis>(url, cache) }
}

/// Memory for parts of a value, and where each begins in the value.
type Places<'m> = Vec<(u64, &'m mut [u8])>;

/// A pack in values.
struct ValueBlocks<S> {
    server: S,
    manifest: Manifest,
    version: Version,
    map: ValueMap,
    index: Arc<HeldIndex>,
}

/// The index of a pack in memory: opening reads it twice. It is dropped when the first sample is read.
#[derive(Debug)]
struct HeldIndex {
    bytes: RwLock<Vec<u8>>,
    is_held: AtomicBool,
    pack_bytes: u64,
}

impl HeldIndex {
    /// Fills `out` if the index is in memory and has all of its bytes.
    fn read(&self, offset: u64, out: &mut [u8]) -> bool {
        let bytes = self.bytes.read().expect("no panic while the index is locked");
        let found = bytes.get(offset as usize..).and_then(|bytes| bytes.get(..out.len()));
        if let Some(found) = found {
            out.copy_from_slice(found);
        }
        found.is_some()
    }

    fn drop_bytes(&self) {
        if self.is_held.swap(false, Ordering::Relaxed) {
            *self.bytes.write().expect("no panic while the index is locked") = Vec::new();
        }
    }
}

/// Only the index, for the map.
#[derive(Debug)]
struct IndexBlocks(Arc<HeldIndex>);

impl Blocks for IndexBlocks {
    fn len_bytes(&self) -> u64 {
        self.0.pack_bytes
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if self.0.read(offset, out) { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn session(&self) -> u64 {
        0
    }

    fn interrupt(&self) {}
}

/// Why a pack cannot be opened.
pub(super) enum NotOpened {
    /// The server, or what it has. The text says what to do.
    Server(String),
    /// The pack's index.
    Format(FormatError),
    /// The cache.
    Cache(CacheError),
}

impl<S: ValueServer> ValueBlocks<S> {
    /// Opens the pack at a URL, and its cache if one is asked for.
    fn open(url: &str, cache: Option<&CacheOptions>) -> Result<(Self, Option<Cache>), NotOpened> {
        let server = S::new(url).map_err(NotOpened::Server)?;
        let manifest = manifest(&server).map_err(NotOpened::Server)?;
        let identity = manifest.identity().expect("a manifest is refused without one");
        let version = Version::of(&identity);
        let read = |chunks: Range<u64>, cache: Option<&Cache>| {
            let bytes = manifest.chunk(chunks.end - 1).end - manifest.chunk(chunks.start).start;
            let reading = read_index(&server, &manifest, &identity, chunks, cache);
            server.path().wait(bytes as usize, reading).map_err(|error| NotOpened::Server(error.to_string()))
        };
        // The server says which pack that is, and not the cache.
        let begin = if cache.is_some() { read(0..1, None)? } else { Vec::new() };
        let superblock = &begin[..begin.len().min(BLOCK_BYTES as usize)];
        let cache = cache.map(|options| open_cache(options, superblock)).transpose().map_err(NotOpened::Cache)?;
        let bytes = RwLock::new(read(0..manifest.chunks(), cache.as_ref())?);
        let index = Arc::new(HeldIndex { bytes, is_held: true.into(), pack_bytes: manifest.pack_bytes });
        let map = ValueMap::read(Box::new(IndexBlocks(index.clone())), Path::new(url)).map_err(NotOpened::Format)?;
        Ok((Self { server, manifest, version, map, index }, cache))
    }

    /// Cuts reads at the borders of values, and fills with zeros what lies in no value.
    fn cut<'m>(&self, reads: impl Iterator<Item = (u64, &'m mut [u8])>) -> Vec<Part<'m>> {
        let mut parts = Vec::new();
        for (offset, out) in reads {
            let end = offset + out.len() as u64;
            let (mut rest, mut at) = (out, offset);
            let mut take = |content, start, extent: Range<u64>| {
                let (gap, behind) = std::mem::take(&mut rest).split_at_mut((extent.start - at) as usize);
                gap.fill(0);
                let (memory, behind) = behind.split_at_mut((extent.end - extent.start) as usize);
                parts.push(Part { content, start, memory });
                (rest, at) = (behind, extent.end);
            };
            let index_bytes = self.manifest.index_bytes;
            let chunks = offset / CHUNK_BYTES..end.min(index_bytes).div_ceil(CHUNK_BYTES);
            for (number, whole) in chunks.map(|number| (number, self.manifest.chunk(number))) {
                let part = whole.start.max(offset)..whole.end.min(end);
                if !part.is_empty() {
                    take(Content::Index(number), part.start - whole.start, part);
                }
            }
            let of_samples = self.map.parts(offset.max(index_bytes)..end, |part| {
                take(Content::Sample(part.sample), part.start, part.extent);
                Ok::<_, std::convert::Infallible>(())
            });
            let Ok(()) = of_samples;
            rest.fill(0);
        }
        parts
    }

    /// Fills the memory of parts of one value.
    async fn fetch(&self, content: Content, parts: Places<'_>) -> io::Result<()> {
        let key = Key::Content(self.version, content);
        if self.server.fill(key, parts).await? { Ok(()) } else { Err(self.missing(content).await?) }
    }

    /// Returns the error for a value that does not have the bytes that it should have.
    async fn missing(&self, content: Content) -> io::Result<io::Error> {
        let (name, key) = (self.server.name(), Key::Content(self.version, content));
        let now = self.server.get(Key::Manifest, 0).await?;
        let there = self.server.there(key, |bytes| self.pieces(content, bytes)).await?;
        let now = now.and_then(|bytes| Manifest::parse(name, &bytes).ok());
        Ok(match now {
            None => lasting(format!("{name} was removed from the server after it was opened: push it again")),
            Some(now) if now != self.manifest => {
                lasting(format!("{name} was replaced after it was opened: start the run again"))
            }
            Some(_) => match (there, self.server.describe(key)) {
                (There::Nothing, _) => {
                    lasting(format!("{}; `ddlp push` sends what is missing", self.server.missing(key)))
                }
                (There::Part, value) => {
                    lasting(format!("a row of the value {value} is missing; `ddlp push` sends it again"))
                }
                (There::All, value) => {
                    io::Error::other(BlocksError::Damaged(format!("the value {value} is cut short").into()))
                }
            },
        })
    }

    /// Returns where the pieces of a value of `bytes` bytes begin in it. Goes through the map: only for a value that is
    /// too short.
    fn pieces(&self, content: Content, bytes: u64) -> Vec<u64> {
        let Content::Sample(number) = content else { return Vec::new() };
        let (mut starts, mut left) = (Vec::new(), bytes);
        let all = self.manifest.index_bytes..self.manifest.pack_bytes;
        // An error ends the search.
        let _ = self.map.parts(all, |part| {
            if part.sample == number {
                starts.push(part.start);
                left = left.saturating_sub(part.extent.end - part.extent.start);
            }
            if left == 0 { Err(()) } else { Ok(()) }
        });
        starts.sort_unstable();
        starts
    }

    fn read_parts<'m>(&'m self, reads: impl Iterator<Item = (u64, &'m mut [u8])>) -> Reading<'m, io::Error> {
        let parts = self.cut(reads);
        if parts.iter().any(|part| matches!(part.content, Content::Sample(_))) {
            self.index.drop_bytes();
        }
        let bytes = parts.iter().map(|part| part.memory.len()).sum();
        let mut values: Vec<(Content, Places<'_>)> = Vec::new();
        for Part { content, start, memory } in parts {
            match values.last_mut() {
                Some((last, parts))
                    if *last == content
                        && parts.last().is_some_and(|(at, memory)| at + memory.len() as u64 <= start) =>
                {
                    parts.push((start, memory));
                }
                _ => values.push((content, vec![(start, memory)])),
            }
        }
        let all = try_join_all(values.into_iter().map(|(content, parts)| self.fetch(content, parts)));
        Box::pin(self.server.path().make(bytes, async { all.await.map(drop) }))
    }
}

/// A part of a read that lies in one value.
struct Part<'m> {
    content: Content,
    /// Where in the value the part begins, without the head.
    start: u64,
    memory: &'m mut [u8],
}

/// Asks what lies under the name of the address. The error says what to do.
fn manifest<S: ValueServer>(server: &S) -> Result<Manifest, String> {
    let name = server.name();
    match server.look()? {
        [Some(bytes), _] => Manifest::parse(&server.describe(Key::Manifest), &bytes),
        [None, Some(_)] => Err(format!(
            "the push of {name} has not ended, was stopped, or lacks shares: the same `ddlp push` sends what is \
                 missing"
        )),
        [None, None] => Err(server.look_beside()?.unwrap_or_else(|| {
            let (space, url) = (S::SPACE, server.url());
            format!(
                "the server has no dataset {name} in this {space}: check the URL; `ddlp push SOURCE {url}` puts one \
                     there"
            )
        })),
    }
}

/// Reads chunks of the index of a pack, which begins with the superblock, from the cache as far as that has them.
async fn read_index(
    server: &impl ValueServer,
    manifest: &Manifest,
    identity: &Identity,
    chunks: Range<u64>,
    cache: Option<&Cache>,
) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(manifest.index_bytes as usize).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let chunk = async |number: u64| {
        let key = Key::Content(Version::of(identity), Content::Index(number));
        let range = manifest.chunk(number);
        let length = (range.end - range.start) as usize;
        let mut chunk = vec![0; length];
        if cache.is_some_and(|cache| cache.fill(range.start, &mut chunk).is_empty()) {
            return Ok(chunk);
        }
        for _ in 0..CHUNK_ATTEMPTS {
            let value = server.get(key, length).await?;
            let missing =
                || lasting(format!("the server has no value {}; `ddlp push` sends it again", server.describe(key)));
            let value = value.ok_or_else(missing)?;
            if let Some(came) = chunk_of(identity, number, &value).filter(|came| came.len() == length) {
                cache.into_iter().for_each(|cache| cache.keep(range.start, came));
                return Ok(came.to_vec());
            }
        }
        let what = server.describe(key);
        Err(lasting(format!("the value {what} is damaged; `ddlp push --verify` sends it again")))
    };
    let mut chunks = futures_util::stream::iter(chunks.map(chunk)).buffered(CHUNKS_IN_FLIGHT);
    while let Some(chunk) = chunks.next().await {
        bytes.extend_from_slice(&chunk?);
    }
    Ok(bytes)
}

impl<S: ValueServer> Blocks for ValueBlocks<S> {
    fn len_bytes(&self) -> u64 {
        self.manifest.pack_bytes
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if out.is_empty() || self.index.read(offset, out) {
            return Ok(());
        }
        wait_for(self.read_parts([(offset, out)].into_iter()))
    }

    fn read_many(&self, reads: &mut [BlocksRead<'_>]) -> io::Result<()> {
        wait_for(self.read_parts(reads.iter_mut().map(|read| (read.offset, &mut read.memory[read.place.clone()]))))
    }

    fn start_reads<'r>(&'r self, reads: Vec<BlocksRead<'r>>) -> Reading<'r, io::Error> {
        self.read_parts(reads.into_iter().map(|read| (read.offset, &mut read.memory[read.place])))
    }

    fn requests(&self) -> Option<Requests> {
        Some(self.server.path().requests())
    }

    fn fetch_depth(&self) -> FetchDepth {
        let (threads, samples) = FETCH;
        FetchDepth { threads, samples, join_gap: Some(JOIN_GAP), at_once: Some(AT_ONCE_MAX) }
    }

    /// Keys name the pack that was opened, so that no other one can be read.
    fn session(&self) -> u64 {
        0
    }

    fn interrupt(&self) {
        self.server.path().interrupt();
    }

    fn silences(&self) -> Silences {
        self.server.path().silences(self.server.url())
    }
}

impl<S: ValueServer> fmt::Debug for ValueBlocks<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueBlocks").field("address", &self.server.url().to_string()).finish_non_exhaustive()
    }
}
