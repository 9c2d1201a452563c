//! The local cache of a dataset that comes over a network: bytes that were read once lie on a disk of this machine, for
//! all of its processes.
//!
//! Cached bytes may be lost at any time; a run then asks the store for them again. Bytes that are not intact are never
//! handed out. If the cache cannot be written, it is off for the rest of the run, and the run goes on.
//!
//! - `segment`: the files. `extents`: which bytes lie in which file. `folder`: room, and what dead processes left.
//!   `disk`: the changes of files.

mod disk;
mod extents;
mod folder;
mod segment;

use ddlp_dataset::CacheUse;
use extents::{Extents, Piece, Record};
use folder::Folder;
use segment::{Entry, Journal, Key, OwnSegment, read_bytes};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::iter;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

/// Time between two looks for what other processes have cached, and between two tries to get room.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Bytes of a record, at least, that stay in memory when a part of it is read: its next part may be read soon.
const LAST_BYTES_MIN: u32 = 64 << 10;

/// Where bytes of datasets are cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// The folder, which is made if it is missing.
    pub folder: PathBuf,
    /// Most bytes that the folder may take. `None`: all but a twentieth of the disk.
    pub limit: Option<u64>,
}

/// The cached bytes of a dataset. Many threads may use it at once.
#[derive(Debug)]
pub(crate) struct Cache {
    /// `None` if it could not be opened because the disk is full.
    folder: Option<Folder>,
    key: Key,
    /// The process that opened it. A forked one writes nothing.
    process: u32,
    known: Mutex<Known>,
    writing: Mutex<Writing>,
    /// The last record that was read in part, with its bytes.
    last: Mutex<Option<(Record, Arc<Vec<u8>>)>>,
    bytes: AtomicU64,
    kept_bytes: AtomicU64,
    /// Why nothing is written any more.
    off: OnceLock<String>,
}

/// What is cached, as far as this process knows.
#[derive(Debug, Default)]
struct Known {
    extents: Extents,
    /// The segments, by their number.
    journals: Vec<Journal>,
    /// Segments that may grow: their numbers.
    growing: Vec<u32>,
    /// Records that nobody shall use, by segment and position.
    void: HashSet<(u64, u32)>,
    /// Bytes that came damaged, and are not cached.
    doubted: Vec<Range<u64>>,
    looked: Option<Instant>,
}

/// The segment to which this process appends.
#[derive(Debug, Default)]
struct Writing {
    segment: Option<(OwnSegment, u32)>,
    /// When there was last no room for another segment, and its size.
    full: Option<(Instant, u64)>,
}

impl Cache {
    /// Opens the cache of the dataset `key`; if the disk is full, one that is off. The error says what is wrong with
    /// the folder.
    pub fn open(options: &CacheOptions, key: Key) -> io::Result<Self> {
        Self::in_folder(Folder::open(options, &key), key)
    }

    fn in_folder(opened: io::Result<(Folder, Vec<Journal>)>, key: Key) -> io::Result<Self> {
        let (folder, journals, full) = match opened {
            Ok((folder, journals)) => (Some(folder), journals, None),
            Err(error) if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
                (None, Vec::new(), Some(error))
            }
            Err(error) => return Err(error),
        };
        let mut known = Known::default();
        for journal in journals {
            known.add(journal);
        }
        known.read_journals()?;
        let (bytes, kept_bytes) = Default::default();
        let cache = Self {
            folder,
            key,
            process: std::process::id(),
            known: known.into(),
            writing: Mutex::default(),
            last: Mutex::default(),
            bytes,
            kept_bytes,
            off: OnceLock::new(),
        };
        if let Some(error) = full {
            cache.turn_off(&mut cache.writing(), &error);
        }
        Ok(cache)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no panic while the extents are locked")
    }

    fn writing(&self) -> MutexGuard<'_, Writing> {
        self.writing.lock().expect("no panic while the segment is locked")
    }

    /// Fills `out` with the bytes of the dataset from `offset` on, as far as they are cached. Returns the part of `out`
    /// that the caller has to fill.
    pub fn fill(&self, offset: u64, out: &mut [u8]) -> Range<usize> {
        if out.is_empty() {
            return 0..0;
        }
        let wanted = offset..offset + out.len() as u64;
        let Found { pieces, extent: mut missing } = self.pieces_of(&wanted);
        for (extent, piece) in pieces {
            let part = extent.start.max(wanted.start)..extent.end.min(wanted.end);
            let is_needed = missing.is_empty() || part.start < missing.start || part.end > missing.end;
            let place = (part.start - offset) as usize..(part.end - offset) as usize;
            if is_needed && let Err(error) = self.read(&extent, piece, part.start, &mut out[place]) {
                self.lose(extent.start, piece, &error);
                missing =
                    if missing.is_empty() { part } else { missing.start.min(part.start)..missing.end.max(part.end) };
            }
        }
        let missing_bytes = missing.end - missing.start;
        self.bytes.fetch_add(out.len() as u64 - missing_bytes, Ordering::Relaxed);
        if missing_bytes == 0 { 0..0 } else { (missing.start - offset) as usize..(missing.end - offset) as usize }
    }

    /// Returns the pieces that have some of these bytes, and the bytes from the first to the last one that none has.
    fn pieces_of(&self, wanted: &Range<u64>) -> Found {
        let mut known = self.known();
        let found = known.find(wanted);
        if found.extent.is_empty() || known.looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY) {
            return found;
        }
        known.looked = Some(Instant::now());
        // What cannot be read is not cached.
        if let Err(error) = self.look(&mut known) {
            tracing::debug!(%error, "the cache cannot be looked through");
        }
        known.find(wanted)
    }

    /// Looks for what other processes have cached since.
    fn look(&self, known: &mut Known) -> io::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        for path in folder.segments()? {
            if known.journals.iter().all(|journal| journal.path != path)
                && let Some(journal) = Journal::open(&path, &self.key)?
            {
                known.add(journal);
            }
        }
        known.read_journals()
    }

    /// Reads the bytes from `from` on of a piece that has the bytes `extent`.
    fn read(&self, extent: &Range<u64>, piece: Piece, from: u64, out: &mut [u8]) -> io::Result<()> {
        let Piece { record, skip, .. } = piece;
        let path = self.known().journals[record.segment as usize].path.clone();
        if out.len() == record.length as usize {
            return read_bytes(&path, record, out);
        }
        let place = skip as usize + (from - extent.start) as usize;
        let place = place..place + out.len();
        let last = self.last.lock().expect("no panic while the record is locked").clone();
        let whole = match last {
            Some((last, bytes)) if last == record => bytes,
            _ => {
                let mut bytes = vec![0; record.length as usize];
                read_bytes(&path, record, &mut bytes)?;
                let bytes = Arc::new(bytes);
                if record.length >= LAST_BYTES_MIN {
                    *self.last.lock().expect("no panic while the record is locked") = Some((record, bytes.clone()));
                }
                bytes
            }
        };
        out.copy_from_slice(&whole[place]);
        Ok(())
    }

    /// Keeps bytes of the dataset that the store has sent.
    pub fn keep(&self, offset: u64, bytes: &[u8]) {
        let extent = offset..offset + bytes.len() as u64;
        if bytes.is_empty() || self.off.get().is_some() || self.process != std::process::id() {
            return;
        }
        let mut writing = self.writing();
        let known = self.known();
        let is_there = known.find(&extent).extent.is_empty();
        if is_there || known.is_doubted(&extent) {
            return;
        }
        drop(known);
        match self.append(&mut writing, offset, bytes) {
            Ok(true) => {
                self.kept_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
            Ok(false) => {}
            Err(error) => self.turn_off(&mut writing, &error),
        }
    }

    /// Appends bytes to this process's segment, or to a new one. Returns false if the cache is full.
    fn append(&self, writing: &mut Writing, offset: u64, bytes: &[u8]) -> io::Result<bool> {
        let Some((segment, number)) = self.segment_for(writing, bytes.len() as u64)? else { return Ok(false) };
        let record = segment.append(number, offset, bytes)?;
        self.known().extents.insert(offset, record);
        Ok(true)
    }

    /// Returns this process's segment with room for a record of `bytes` bytes; `None` if the cache is full.
    fn segment_for<'w>(&self, writing: &'w mut Writing, bytes: u64) -> io::Result<Option<(&'w mut OwnSegment, u32)>> {
        if writing.segment.as_ref().is_none_or(|(segment, _)| !segment.has_room(bytes)) {
            let Some(folder) = &self.folder else { return Ok(None) };
            let bytes = folder.segment_bytes(bytes);
            // A smaller segment may have room where a long record has none.
            if writing.full.is_some_and(|(full, size)| full.elapsed() < LOOK_EVERY && size <= bytes) {
                return Ok(None);
            }
            let Some(segment) = folder.create_segment(&self.key, bytes)? else {
                writing.full = Some((Instant::now(), bytes));
                return Ok(None);
            };
            writing.full = None;
            let journal = Journal::open(&segment.path, &self.key)?.ok_or(ErrorKind::InvalidData)?;
            let number = self.known().add_own(journal);
            if let Some((before, _)) = writing.segment.replace((segment, number)) {
                before.close()?;
            }
        }
        Ok(writing.segment.as_mut().map(|(segment, number)| (segment, *number)))
    }

    /// Forgets bytes that came damaged, wherever that happened, and does not keep them any more.
    pub fn forget(&self, extent: Range<u64>) {
        let mut known = self.known();
        let records = known.extents.remove(&extent);
        known.doubted.push(extent);
        drop(known);
        *self.last.lock().expect("no panic while the record is locked") = None;
        records.into_iter().for_each(|record| self.void(record));
    }

    /// Forgets the record of a piece, which begins at `start` in the dataset: it cannot be read.
    fn lose(&self, start: u64, piece: Piece, error: &io::Error) {
        tracing::debug!(%error, "cached bytes are lost, and are asked for again");
        self.known().extents.remove_record(start, piece);
        self.void(piece.record);
    }

    /// Tells all processes that a record is void.
    fn void(&self, record: Record) {
        let mut known = self.known();
        let segment = known.journals[record.segment as usize].id;
        known.void.insert((segment, record.position));
        drop(known);
        if self.off.get().is_some() || self.process != std::process::id() {
            return;
        }
        let mut writing = self.writing();
        let written = match self.segment_for(&mut writing, 0) {
            Ok(Some((own, _))) => own.void(segment, record.position),
            // Another process finds out by itself.
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            self.turn_off(&mut writing, &error);
        }
    }

    /// Writes nothing any more.
    fn turn_off(&self, writing: &mut Writing, error: &io::Error) {
        let problem = format!("the cache takes no more bytes, because it cannot be written: {error}");
        tracing::warn!("{problem}");
        let _ = self.off.set(problem);
        if let Some((segment, _)) = writing.segment.take() {
            let _ = segment.close();
        }
    }

    /// Returns what the cache did so far.
    pub fn usage(&self) -> CacheUse {
        let (bytes, kept_bytes) = (self.bytes.load(Ordering::Relaxed), self.kept_bytes.load(Ordering::Relaxed));
        let is_full = self.writing().full.is_some();
        CacheUse { bytes, kept_bytes, is_full, off: self.off.get().cloned() }
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        // A forked process has the parent's segment.
        if self.process == std::process::id()
            && let Ok(writing) = self.writing.get_mut()
            && let Some((segment, _)) = writing.segment.take()
        {
            let _ = segment.close();
        }
    }
}

/// What is cached of bytes that are wanted.
struct Found {
    pieces: Vec<(Range<u64>, Piece)>,
    /// From the first to the last byte that is not cached.
    extent: Range<u64>,
}

impl Known {
    fn find(&self, wanted: &Range<u64>) -> Found {
        let pieces: Vec<_> = self.extents.overlapping(wanted).collect();
        let (mut at, mut missing) = (wanted.start, None::<Range<u64>>);
        let ends = pieces.iter().map(|(extent, _)| extent.clone()).chain(iter::once(wanted.end..wanted.end));
        for extent in ends {
            if at < extent.start {
                missing = Some(missing.map_or(at, |missing| missing.start)..extent.start);
            }
            at = at.max(extent.end);
        }
        Found { pieces, extent: missing.unwrap_or(wanted.start..wanted.start) }
    }

    fn is_doubted(&self, extent: &Range<u64>) -> bool {
        self.doubted.iter().any(|doubted| doubted.start < extent.end && extent.start < doubted.end)
    }

    /// Adds a segment of another process, or of an earlier one.
    fn add(&mut self, journal: Journal) {
        self.growing.push(self.journals.len() as u32);
        self.journals.push(journal);
    }

    /// Adds a segment of this process, and returns its number.
    fn add_own(&mut self, journal: Journal) -> u32 {
        self.journals.push(journal);
        self.journals.len() as u32 - 1
    }

    /// Reads what was added to the journals of other processes.
    fn read_journals(&mut self) -> io::Result<()> {
        let mut entries = Vec::new();
        let Self { journals, growing, .. } = self;
        growing.retain(|&number| {
            let journal = &mut journals[number as usize];
            // First whether it can still grow: what is read afterwards is all of it.
            let is_growing = File::open(&journal.path).is_ok_and(|file| file.try_lock_shared().is_err());
            // A segment that was removed has nothing more to say.
            let _ = journal.read(number, |entry| entries.push(entry));
            is_growing
        });
        let known = self.void.len();
        self.void.extend(entries.iter().filter_map(|entry| match *entry {
            Entry::Void { segment, position } => Some((segment, position)),
            Entry::Bytes { .. } => None,
        }));
        let Self { journals, void, extents, .. } = self;
        let id = |record: Record| journals[record.segment as usize].id;
        if void.len() > known {
            extents.retain(|record| !void.contains(&(id(record), record.position)));
        }
        for entry in entries {
            if let Entry::Bytes { offset, record } = entry {
                let segment = self.journals[record.segment as usize].id;
                let extent = offset..offset.saturating_add(record.length.into());
                if !self.void.contains(&(segment, record.position)) && !self.is_doubted(&extent) {
                    self.extents.insert(offset, record);
                }
            }
        }
        Ok(())
    }
}

/// Returns a digest in hexadecimal digits.
fn hex(key: &Key) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
