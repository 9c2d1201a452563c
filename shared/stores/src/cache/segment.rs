//! A segment: a file of cached bytes. One process appends to it, and any process reads it.
//!
//! A head of 4 KiB is followed by the journal, which has room for a fixed number of entries, and by the bytes. An entry
//! is written after its bytes, so that a process that is killed leaves at most bytes without an entry. Each entry and
//! each record of bytes has a checksum, so damage by a crash of the machine, a failing disk or another program is found
//! when they are read.

use super::disk;
use super::extents::Record;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Version of the layout.
const VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"DDLPSEGM";
/// Bytes of the head.
const HEAD_BYTES: u64 = 4096;
/// Bytes of an entry of the journal.
const ENTRY_BYTES: u64 = size_of::<DiskEntry>() as u64;
/// Bytes of a segment for which its journal has an entry.
const BYTES_OF_ENTRY: u64 = 4096;
/// Largest segment in bytes: places in it have 32 bits.
pub const SEGMENT_BYTES_MAX: u64 = 2 << 30;

/// Digest of the dataset whose bytes a segment has.
pub type Key = [u8; 32];

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct DiskHead {
    magic: [u8; 8],
    version: U32,
    /// Entries for which the journal has room.
    entries: U32,
    id: U64,
    key: Key,
    crc32c: U32,
}
const _: () = assert!(size_of::<DiskHead>() == 60);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
struct DiskEntry {
    /// 1: a record of bytes; 2: a record that is void. 0: no entry.
    kind: U32,
    /// Number of bytes.
    length: U32,
    /// Place of the bytes in the dataset; of a void record, the id of its segment.
    offset: U64,
    /// Place of the bytes in the segment.
    position: U32,
    /// CRC32C of the bytes.
    crc32c: U32,
    reserved: U32,
    /// CRC32C of key, id, number of the entry, and the fields above.
    entry_crc32c: U32,
}
const _: () = assert!(size_of::<DiskEntry>() == 32);

const KIND_BYTES: u32 = 1;
const KIND_VOID: u32 = 2;

impl DiskEntry {
    fn sum(&self, key: &Key, id: u64, number: u32) -> U32 {
        let sum = crc32c::crc32c_append(crc32c::crc32c(key), &id.to_le_bytes());
        let sum = crc32c::crc32c_append(sum, &number.to_le_bytes());
        crc32c::crc32c_append(sum, &self.as_bytes()[..ENTRY_BYTES as usize - 4]).into()
    }

    fn is_empty(&self) -> bool {
        self.as_bytes().iter().all(|byte| *byte == 0)
    }
}

/// An entry of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Bytes of the dataset from `offset` on.
    Bytes {
        /// Place in the dataset.
        offset: u64,
        /// Place in the segment.
        record: Record,
    },
    /// A record of any segment that nobody shall use.
    Void {
        /// Id of the record's segment.
        segment: u64,
        /// Place of the record in its segment.
        position: u32,
    },
}

/// The journal of a segment, as far as it has been read.
#[derive(Debug)]
pub struct Journal {
    pub path: PathBuf,
    pub id: u64,
    key: Key,
    entries_max: u32,
    /// Number of the entry to read next.
    next: u32,
    /// End of the bytes of all entries so far.
    pub end: u64,
}

impl Journal {
    /// Opens the journal of a segment with bytes of the dataset `key`; `None` if the file is something else.
    pub fn open(path: &Path, key: &Key) -> io::Result<Option<Self>> {
        let (file, mut head) = (File::open(path)?, DiskHead::new_zeroed());
        match file.read_exact_at(head.as_mut_bytes(), 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            done => done?,
        }
        let sum = crc32c::crc32c(&head.as_bytes()[..size_of::<DiskHead>() - 4]);
        let is_ours = head.magic == MAGIC && head.version.get() == VERSION && head.key == *key;
        let (entries_max, id) = (head.entries.get(), head.id.get());
        let end = HEAD_BYTES + u64::from(entries_max) * ENTRY_BYTES;
        let is_segment = is_ours && head.crc32c.get() == sum && end <= SEGMENT_BYTES_MAX;
        Ok(is_segment.then(|| Self { path: path.to_owned(), id, key: *key, entries_max, next: 0, end }))
    }

    /// Reads the entries that were added since the last call, and passes each intact one to `take`. An entry that is
    /// not intact is passed over, unless it is the last one: it may still be being written.
    pub fn read(&mut self, segment: u32, mut take: impl FnMut(Entry)) -> io::Result<()> {
        let file = File::open(&self.path)?;
        let first_bytes = HEAD_BYTES + u64::from(self.entries_max) * ENTRY_BYTES;
        while self.next < self.entries_max {
            let mut entries = [DiskEntry::new_zeroed(); 128];
            let at = HEAD_BYTES + u64::from(self.next) * ENTRY_BYTES;
            let count = (self.entries_max - self.next).min(128) as usize;
            let read = read_up_to(&file, entries[..count].as_mut_bytes(), at)? / ENTRY_BYTES as usize;
            let used = entries[..read].iter().rposition(|entry| !entry.is_empty()).map_or(0, |last| last + 1);
            for (at, entry) in entries[..used].iter().enumerate() {
                if entry.entry_crc32c != entry.sum(&self.key, self.id, self.next) {
                    if at + 1 == used && used < count {
                        return Ok(());
                    }
                    self.next += 1;
                    continue;
                }
                self.next += 1;
                let (position, length) = (entry.position.get(), entry.length.get());
                let (offset, end) = (entry.offset.get(), u64::from(position) + u64::from(length));
                match entry.kind.get() {
                    KIND_VOID => take(Entry::Void { segment: offset, position }),
                    KIND_BYTES if u64::from(position) >= first_bytes && length > 0 && end <= SEGMENT_BYTES_MAX => {
                        self.end = self.end.max(end);
                        let record = Record { segment, position, length, crc32c: entry.crc32c.get() };
                        take(Entry::Bytes { offset, record });
                    }
                    _ => {}
                }
            }
            if used < count {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns whether no entry has been read.
    pub fn is_empty(&self) -> bool {
        self.next == 0
    }
}

/// Reads bytes until `out` is full or the file ends. Returns their number.
fn read_up_to(file: &File, out: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < out.len() {
        match file.read_at(&mut out[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Reads a record's bytes into `out`, which is as long as the record. Fails if they are not intact.
pub fn read_bytes(path: &Path, record: Record, out: &mut [u8]) -> io::Result<()> {
    File::open(path)?.read_exact_at(out, record.position.into())?;
    if crc32c::crc32c(out) == record.crc32c { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// A segment to which this process appends. Its file is locked meanwhile.
#[derive(Debug)]
pub struct OwnSegment {
    file: File,
    pub path: PathBuf,
    pub id: u64,
    key: Key,
    entries_max: u32,
    entries: u32,
    /// Where the next bytes go.
    end: u64,
    bytes_max: u64,
}

impl OwnSegment {
    /// Creates a segment of at most `bytes_max` bytes, which its file has from the beginning, in a folder.
    pub fn create(folder: &Path, key: &Key, id: u64, bytes_max: u64) -> io::Result<Self> {
        // Nobody sees it under its own name before it is locked.
        let (new, path) = (folder.join(format!("{id:016x}.new")), folder.join(format!("{id:016x}.segment")));
        let file = disk::create(&new)?;
        let made = || -> io::Result<u32> {
            file.try_lock().map_err(io::Error::from)?;
            disk::set_len(&file, bytes_max)?;
            let entries_max = (bytes_max / BYTES_OF_ENTRY) as u32;
            let mut head = DiskHead {
                magic: MAGIC,
                version: VERSION.into(),
                entries: entries_max.into(),
                id: id.into(),
                key: *key,
                crc32c: 0.into(),
            };
            head.crc32c = crc32c::crc32c(&head.as_bytes()[..size_of::<DiskHead>() - 4]).into();
            disk::write(&file, head.as_bytes(), 0)?;
            disk::rename(&new, &path)?;
            Ok(entries_max)
        };
        match made() {
            Ok(entries_max) => {
                let end = HEAD_BYTES + u64::from(entries_max) * ENTRY_BYTES;
                Ok(Self { file, path, id, key: *key, entries_max, entries: 0, end, bytes_max })
            }
            Err(error) => {
                let _ = disk::remove_file(&new);
                Err(error)
            }
        }
    }

    /// Returns the size of a segment with room for a record of `bytes` bytes.
    pub fn bytes_for(bytes: u64) -> u64 {
        let journal = (bytes + HEAD_BYTES).div_ceil(BYTES_OF_ENTRY - ENTRY_BYTES) * ENTRY_BYTES + ENTRY_BYTES;
        (HEAD_BYTES + journal + bytes).next_multiple_of(BYTES_OF_ENTRY)
    }

    /// Returns whether a record of `bytes` bytes has room.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.entries < self.entries_max && self.end + bytes <= self.bytes_max
    }

    /// Appends bytes of the dataset from `offset` on; there must be room. `segment` is the number by which this process
    /// knows the segment.
    pub fn append(&mut self, segment: u32, offset: u64, bytes: &[u8]) -> io::Result<Record> {
        let (position, length) = (self.end as u32, bytes.len() as u32);
        let crc32c = crc32c::crc32c(bytes);
        disk::write(&self.file, bytes, self.end)?;
        self.enter(KIND_BYTES, length, offset, position, crc32c)?;
        self.end += bytes.len() as u64;
        Ok(Record { segment, position, length, crc32c })
    }

    /// Records that a record of any segment is void; there must be room for an entry.
    pub fn void(&mut self, segment: u64, position: u32) -> io::Result<()> {
        self.enter(KIND_VOID, 0, segment, position, 0)
    }

    fn enter(&mut self, kind: u32, length: u32, offset: u64, position: u32, crc32c: u32) -> io::Result<()> {
        let mut entry = DiskEntry {
            kind: kind.into(),
            length: length.into(),
            offset: offset.into(),
            position: position.into(),
            crc32c: crc32c.into(),
            reserved: 0.into(),
            entry_crc32c: 0.into(),
        };
        entry.entry_crc32c = entry.sum(&self.key, self.id, self.entries);
        disk::write(&self.file, entry.as_bytes(), HEAD_BYTES + u64::from(self.entries) * ENTRY_BYTES)?;
        self.entries += 1;
        Ok(())
    }

    /// Gives back the room that the segment does not need, and ends it.
    pub fn close(self) -> io::Result<()> {
        if self.entries == 0 {
            return disk::remove_file(&self.path);
        }
        disk::set_len(&self.file, self.end)
    }
}
