//! Where the bytes of a pack lie: in a file, or in blocks that something else reads, such as a drive's namespace.

use super::file::PackFile;
use crate::extent::resize;
use crate::held::HeldFile;
use crate::rereading::Rereading;
use crate::stamp::Stamp;
use crate::{CacheUse, FetchDepth, Reading, Requests, Silences};
use ddlp_cause::Cause;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Why [`Blocks`] could not read bytes: a kind for programs, and the cause. Travels inside an [`io::Error`]
/// ([`io::Error::other`]).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlocksError {
    /// The bytes are damaged where they are stored.
    #[error(transparent)]
    Damaged(Cause),
    /// The bytes cannot be read now, and may be readable soon.
    #[error(transparent)]
    Momentary(Cause),
    /// The bytes cannot be read, and trying again soon will not help.
    #[error(transparent)]
    Lasting(Cause),
}

/// The blocks of a pack that does not lie in a local file. Many threads may read at once.
pub trait Blocks: fmt::Debug + Send + Sync {
    /// Returns the number of bytes of all blocks.
    fn len_bytes(&self) -> u64;

    /// Fills `out` with the bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// A [`BlocksError`] or an error number says whether the bytes are damaged, or cannot be read.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Fills the bytes `place` of `memory` with the bytes from `offset` on. May also write behind `place`.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    fn read_within(&self, offset: u64, memory: &mut [u8], place: Range<usize>) -> io::Result<()> {
        self.read(offset, &mut memory[place])
    }

    /// Makes several reads as [`read_within`](Self::read_within) does, at the same time if that is possible.
    ///
    /// # Errors
    ///
    /// The error of one of the reads. What was read for the others is then undefined.
    fn read_many(&self, reads: &mut [BlocksRead<'_>]) -> io::Result<()> {
        reads.iter_mut().try_for_each(|read| self.read_within(read.offset, read.memory, read.place.clone()))
    }

    /// Begins the reads of [`read_many`](Self::read_many), as [`Dataset::start_reads`](crate::Dataset::start_reads)
    /// does.
    ///
    /// # Errors
    ///
    /// As [`read_many`](Self::read_many).
    fn start_reads<'r>(&'r self, mut reads: Vec<BlocksRead<'r>>) -> Reading<'r, io::Error> {
        Box::pin(async move { self.read_many(&mut reads) })
    }

    /// Returns the requests so far, as [`Dataset::requests`](crate::Dataset::requests) does.
    fn requests(&self) -> Option<Requests> {
        None
    }

    /// Forgets bytes that came damaged, if they are cached: the next read gets them from where they are stored.
    fn forget(&self, _extent: Range<u64>) {}

    /// Returns what a cache of the blocks did, as [`Dataset::cache_use`](crate::Dataset::cache_use) does.
    fn cache_use(&self) -> Option<CacheUse> {
        None
    }

    /// Returns how samples are fetched; [`FetchDepth::NONE`] if reads have no latency.
    fn fetch_depth(&self) -> FetchDepth {
        FetchDepth::NONE
    }

    /// Returns a number that changes when the path to the blocks was lost and found again: other blocks may lie there
    /// then.
    fn session(&self) -> u64;

    /// Fails all waiting reads.
    fn interrupt(&self);

    /// Returns how long reads have waited without an answer, as [`Dataset::silences`](crate::Dataset::silences) does.
    fn silences(&self) -> Silences {
        Silences::default()
    }
}

/// One of several reads of blocks at the same time.
#[derive(Debug)]
pub struct BlocksRead<'m> {
    /// First byte to read.
    pub offset: u64,
    /// The memory, behind whose `place` the read may write.
    pub memory: &'m mut [u8],
    /// The bytes of `memory` to fill.
    pub place: Range<usize>,
}

/// State of a pack's bytes.
pub(super) struct State {
    pub(super) bytes: u64,
    /// Whether the bytes are those that were opened, as far as that shows without reading them.
    pub(super) is_same: bool,
    /// How the bytes are known to have changed, as a phrase that follows the pack's name.
    pub(super) change: Option<String>,
    /// Session of the blocks; 0 for a file.
    session: u64,
}

/// The bytes of an open pack.
#[derive(Debug)]
pub(super) enum Store {
    /// In a file.
    File(PackFile),
    /// In blocks.
    Blocks {
        blocks: Box<dyn Blocks>,
        /// Where the blocks lie, for messages.
        place: PathBuf,
        /// Number of bytes when the pack was opened.
        len_bytes: u64,
        /// The last session in which the blocks were known to hold the pack.
        session: AtomicU64,
    },
}

impl Store {
    pub(super) fn of_file(file: File, path: &Path) -> io::Result<Self> {
        let stamp = Stamp::of(&file)?;
        Ok(Self::File(PackFile::new(HeldFile::new(file, path.to_owned(), stamp))))
    }

    pub(super) fn of_blocks(blocks: Box<dyn Blocks>, place: PathBuf) -> Self {
        let (len_bytes, session) = (blocks.len_bytes(), AtomicU64::new(blocks.session()));
        Self::Blocks { blocks, place, len_bytes, session }
    }

    /// Returns where the pack was opened.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::File(file) => file.path(),
            Self::Blocks { place, .. } => place,
        }
    }

    /// Returns the file, unless the pack lies in blocks.
    pub(super) fn file(&self) -> Option<&PackFile> {
        match self {
            Self::File(file) => Some(file),
            Self::Blocks { .. } => None,
        }
    }

    /// Returns the number of bytes when the pack was opened.
    pub(super) fn len_bytes(&self) -> u64 {
        match self {
            Self::File(file) => file.len_bytes(),
            Self::Blocks { len_bytes, .. } => *len_bytes,
        }
    }

    /// Fills `out` with the bytes from `offset` on. Fails for bytes past the end.
    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self {
            Self::File(file) => file.read_cached(offset, out),
            Self::Blocks { blocks, .. } => blocks.read(offset, out),
        }
    }

    /// Fills the bytes `place` of `memory` with the bytes from `offset` on, pixels or others. May also write behind
    /// `place`.
    pub(super) fn read_within(
        &self,
        is_pixels: bool,
        offset: u64,
        memory: &mut [u8],
        place: Range<usize>,
    ) -> io::Result<()> {
        match self {
            Self::File(file) if is_pixels => file.read_pixels(offset, &mut memory[place]),
            Self::File(file) => file.read_cached(offset, &mut memory[place]),
            Self::Blocks { blocks, .. } => blocks.read_within(offset, memory, place),
        }
    }

    /// Returns the blocks, unless the pack lies in a file.
    pub(super) fn blocks(&self) -> Option<&dyn Blocks> {
        match self {
            Self::File(_) => None,
            Self::Blocks { blocks, .. } => Some(&**blocks),
        }
    }

    /// Returns whether bytes come over a network.
    pub(super) fn comes_over_network(&self) -> bool {
        self.blocks().is_some()
    }

    /// Calls `read`, which reads these bytes of the index and returns their checksum and what they say. Bytes that come
    /// over a network and are damaged are read again, until they come intact, or twice in the same way.
    pub(super) fn read_judged<T, E>(
        &self,
        extent: Range<u64>,
        mut read: impl FnMut() -> io::Result<(u32, Result<T, E>)>,
    ) -> io::Result<Result<T, E>> {
        let mut rereading = Rereading::default();
        loop {
            let (checksum, judged) = read()?;
            let Some(blocks) = self.blocks().filter(|_| judged.is_err()) else { return Ok(judged) };
            blocks.forget(extent.clone());
            match rereading.reads_again(checksum) {
                Ok(true) => {}
                Ok(false) => return Ok(judged),
                Err(problem) => {
                    return Err(io::Error::other(BlocksError::Momentary(format!("the index {problem}").into())));
                }
            }
        }
    }

    /// Replaces the content of `buf` by the `length` bytes from `offset` on.
    pub(super) fn read_extent(&self, offset: u64, length: usize, buf: &mut Vec<u8>) -> io::Result<()> {
        resize(buf, length)?;
        self.read(offset, buf)
    }

    /// Reads the state of the bytes now.
    pub(super) fn state(&self) -> io::Result<State> {
        Ok(match self {
            Self::File(file) => {
                let (opened, now) = (file.held().stamp(), file.held().stamp_now()?);
                let is_same = now.is_of(&opened);
                State { bytes: now.bytes, is_same, change: (!is_same).then(|| opened.change(&now)), session: 0 }
            }
            Self::Blocks { blocks, len_bytes, session, .. } => {
                // First the session: what is read afterwards is as new, or newer.
                let now = blocks.session();
                let bytes = blocks.len_bytes();
                let change = (bytes != *len_bytes).then(|| format!("had {len_bytes} bytes, and has {bytes} now"));
                State { bytes, is_same: now == session.load(Ordering::Relaxed), change, session: now }
            }
        })
    }

    /// Records that the bytes in this state are those that were opened, so that blocks need no further look in the same
    /// session.
    pub(super) fn confirm(&self, state: &State) {
        if let Self::Blocks { session, .. } = self {
            session.store(state.session, Ordering::Relaxed);
        }
    }

    /// Fails all waiting reads of blocks.
    pub(super) fn interrupt(&self) {
        if let Self::Blocks { blocks, .. } = self {
            blocks.interrupt();
        }
    }

    /// Tells the kernel that a file's reads are long and at random places.
    pub(super) fn expect_random(&self) {
        self.file().into_iter().for_each(PackFile::expect_random);
    }
}
