//! The folder of a cache: a folder for each dataset, with its segments. Makes room, and removes what dead processes
//! left.
//!
//! All processes that use the folder decide under one lock who gets room. A dataset that no process has open makes room
//! for others, the one that was opened longest ago first. An open dataset keeps what it has: if an epoch has each
//! sample once, bytes that stay are found more often than bytes that give way to newer ones.

use super::segment::{Journal, Key, OwnSegment};
use super::{CacheOptions, disk, hex};
use nix::sys::statvfs::statvfs;
use std::ffi::OsStr;
use std::fs::{self, File, FileTimes, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Name of the file whose lock decides who gets room.
const LOCK: &str = "lock";
/// Name of the file in a dataset's folder that each process locks which has the dataset open.
const OPEN: &str = "open";
/// Beginning of the name of a dataset's folder.
const DATASET: &str = "dataset-";
/// Segments that the limit has room for, so that processes share it.
const SEGMENTS: u64 = 64;
/// Least and most bytes of a segment, unless one record is longer.
const SEGMENT_BYTES: (u64, u64) = (256 << 10, 256 << 20);
/// Part of the disk that stays free without a limit: one in this many bytes.
const FREE_SHARE: u64 = 20;

/// The folder of a dataset in the folder of a cache.
#[derive(Debug)]
pub struct Folder {
    root: PathBuf,
    own: PathBuf,
    limit: Option<u64>,
    /// Locked while the dataset is open.
    _open: File,
}

impl Folder {
    /// Opens the folder of the dataset `key`. Returns it with the journals of its segments.
    pub fn open(options: &CacheOptions, key: &Key) -> io::Result<(Self, Vec<Journal>)> {
        let root = options.folder.clone();
        let own = root.join(format!("{DATASET}{}", &hex(key)[..32]));
        fs::create_dir_all(&root)?;
        let _lock = lock(&root)?;
        fs::create_dir_all(&own)?;
        let open = File::options().create(true).append(true).open(own.join(OPEN))?;
        open.lock_shared()?;
        let now = FileTimes::new().set_modified(SystemTime::now());
        open.set_times(now)?;
        let mut journals = Vec::new();
        for path in files(&own)? {
            if let Some(journal) = tidied(&path, key)? {
                journals.push(journal);
            }
        }
        Ok((Self { root, own, limit: options.limit, _open: open }, journals))
    }

    /// Returns the paths of the dataset's segments now.
    pub fn segments(&self) -> io::Result<Vec<PathBuf>> {
        Ok(files(&self.own)?.into_iter().filter(|path| is_segment(path)).collect())
    }

    /// Returns the size of a new segment with room for a record of `bytes` bytes.
    pub fn segment_bytes(&self, bytes: u64) -> u64 {
        let (least, most) = SEGMENT_BYTES;
        let usual = self.limit.map_or(most, |limit| (limit / SEGMENTS).clamp(least, most));
        usual.max(OwnSegment::bytes_for(bytes))
    }

    /// Creates a segment of at most `bytes` bytes; `None` if the cache is full.
    pub fn create_segment(&self, key: &Key, bytes: u64) -> io::Result<Option<OwnSegment>> {
        if bytes > super::segment::SEGMENT_BYTES_MAX {
            return Ok(None);
        }
        let _lock = lock(&self.root)?;
        if !self.make_room(bytes)? {
            return Ok(None);
        }
        OwnSegment::create(&self.own, key, fresh_id(), bytes).map(Some)
    }

    /// Removes segments of other datasets until there is room for `bytes` bytes. Removes none if there would not be.
    /// Returns whether there is room.
    fn make_room(&self, bytes: u64) -> io::Result<bool> {
        if self.has_room(bytes, &Freed::default())? {
            return Ok(true);
        }
        let (unused, mut freed) = (self.unused()?, Freed::default());
        for (folder, _) in &unused {
            files(folder)?.iter().filter_map(|path| fs::metadata(path).ok()).for_each(|file| freed.add(&file));
        }
        if !self.has_room(bytes, &freed)? {
            return Ok(false);
        }
        for (folder, _open) in unused {
            for path in files(&folder)? {
                disk::remove_file(&path)?;
                if self.has_room(bytes, &Freed::default())? {
                    return Ok(true);
                }
            }
            let _ = disk::remove_file(&folder.join(OPEN));
            let _ = disk::remove_folder(&folder);
        }
        Ok(false)
    }

    /// Returns whether there would be room for `bytes` bytes without what is freed.
    fn has_room(&self, bytes: u64, freed: &Freed) -> io::Result<bool> {
        let disk = statvfs(&self.root)?;
        let of_disk = |blocks: u64| blocks * disk.fragment_size();
        let kept = if self.limit.is_some() { 0 } else { of_disk(disk.blocks()) / FREE_SHARE };
        if of_disk(disk.blocks_available()) + freed.of_disk < bytes + kept {
            return Ok(false);
        }
        let Some(limit) = self.limit else { return Ok(true) };
        let mut used = bytes;
        for folder in datasets(&self.root)? {
            for path in files(&folder)? {
                used += fs::metadata(path).map_or(0, |file| file.len());
            }
        }
        Ok(used.saturating_sub(freed.bytes) <= limit)
    }

    /// Returns the folders of the datasets that no process has open, and locks them. The first one was opened longest
    /// ago.
    fn unused(&self) -> io::Result<Vec<(PathBuf, Option<File>)>> {
        let mut unused = Vec::new();
        for folder in datasets(&self.root)?.into_iter().filter(|folder| *folder != self.own) {
            let open = match File::options().append(true).open(folder.join(OPEN)) {
                Ok(open) => match open.try_lock() {
                    Ok(()) => Some(open),
                    Err(TryLockError::WouldBlock) => continue,
                    Err(TryLockError::Error(error)) => return Err(error),
                },
                Err(_) => None,
            };
            let opened = open.as_ref().and_then(|open| open.metadata().ok()?.modified().ok());
            unused.push((opened, (folder, open)));
        }
        unused.sort_by_key(|(opened, _)| *opened);
        Ok(unused.into_iter().map(|(_, folder)| folder).collect())
    }
}

/// What files take that may be removed.
#[derive(Default)]
struct Freed {
    /// Bytes that count towards the limit.
    bytes: u64,
    /// Bytes on the disk: a file may have room that nothing has filled yet.
    of_disk: u64,
}

impl Freed {
    fn add(&mut self, file: &Metadata) {
        self.bytes += file.len();
        self.of_disk += file.blocks() * 512;
    }
}

/// Waits for the lock of a cache's folder.
fn lock(root: &Path) -> io::Result<File> {
    let lock = File::options().create(true).append(true).open(root.join(LOCK))?;
    lock.lock()?;
    Ok(lock)
}

fn datasets(root: &Path) -> io::Result<Vec<PathBuf>> {
    let is_dataset = |path: &PathBuf| path.file_name().and_then(OsStr::to_str).is_some_and(|n| n.starts_with(DATASET));
    let paths = fs::read_dir(root)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(is_dataset).collect())
}

/// Returns the segments in a dataset's folder, and those that were being made.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let paths = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|path| is_segment(path) || path.extension() == Some(OsStr::new("new"))).collect())
}

fn is_segment(path: &Path) -> bool {
    path.extension() == Some(OsStr::new("segment"))
}

/// Returns the journal of a segment. If the process that made the segment has ended, gives back room that the segment
/// does not need, and removes a file without any entry.
fn tidied(path: &Path, key: &Key) -> io::Result<Option<Journal>> {
    let file = match File::options().read(true).write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let journal = if is_segment(path) { Journal::open(path, key)? } else { None };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(journal),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let Some(mut journal) = journal else { return disk::remove_file(path).map(|()| None) };
    journal.read(0, |_| ())?;
    if journal.is_empty() {
        return disk::remove_file(path).map(|()| None);
    }
    if file.metadata()?.len() > journal.end {
        disk::set_len(&file, journal.end)?;
    }
    Journal::open(path, key)
}

/// Returns an id that no other segment has: from the clock, which stands still for no two calls, and the process.
fn fresh_id() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let mut hasher = blake3::Hasher::new();
    hasher.update(&now.to_le_bytes()).update(&std::process::id().to_le_bytes());
    u64::from_le_bytes(hasher.finalize().as_bytes()[..8].try_into().expect("eight bytes"))
}
