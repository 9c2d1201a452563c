//! Storage: how fast the dataset is read and the slots' file is written, past the page cache.
//!
//! One request at a time, in order: a lower bound for flash, which answers many at once; about the truth for SD cards and disks.

use super::finding::{Finding, bytes};
use ddlp_csd::BLOCK_BYTES;
use ddlp_dataset::Dataset;
use nix::fcntl::{FcntlArg, OFlag, PosixFadviseAdvice, fcntl, posix_fadvise};
use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const SUBJECT: &str = "storage";

/// How long each direction is measured.
const TIME: Duration = Duration::from_secs(1);
/// Bytes of one request.
const REQUEST_BYTES: usize = 1 << 20;
/// Most that is written, to be kind to flash.
const WRITE_BYTES_MAX: u64 = 256 << 20;

/// What was measured in one direction.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Speed {
    /// Bytes moved.
    pub bytes: u64,
    /// In this time.
    pub seconds: f64,
    /// Whether the page cache was bypassed; a file system in memory, for one, does not do that.
    pub is_direct: bool,
}

impl Speed {
    /// Bytes per second.
    pub fn bytes_per_s(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 / self.seconds } else { 0.0 }
    }

    fn describe(&self) -> String {
        let cached = if self.is_direct { "" } else { ", through the page cache (it cannot be bypassed here)" };
        format!("{}/s{cached}", bytes(self.bytes_per_s() as u64))
    }
}

/// Reads of the dataset and writes where the slots are to be.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Storage {
    /// Reading the dataset; `None` without one.
    pub read: Option<Speed>,
    /// Writing beside the slots' file; `None` for slots in memory.
    pub write: Option<Speed>,
    /// What kept either from being measured.
    pub obstacles: Vec<String>,
}

impl Storage {
    /// Measures, for about a second each.
    pub fn measure(dataset: Option<(&Path, &dyn Dataset)>, slots: Option<&Path>) -> Self {
        let mut obstacles = Vec::new();
        let mut keep = |what: &str, result: io::Result<Speed>| {
            result.inspect_err(|error| obstacles.push(format!("{what}: {error}"))).ok()
        };
        let read = dataset.and_then(|(path, dataset)| keep("reading the dataset", read(path, dataset)));
        let write = slots.and_then(|path| {
            let folder = folder_of(path);
            keep(&format!("writing in {}", folder.display()), write(folder))
        });
        Self { read, write, obstacles }
    }

    /// What there is to say.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        if let Some(read) = &self.read {
            findings.push(Finding::fine(SUBJECT, format!("the dataset is read in order at {}", read.describe())));
        }
        if let Some(write) = &self.write {
            let text = format!("result slots would be written at {}", write.describe());
            findings.push(Finding::fine(SUBJECT, format!("{text}; each image of 224 × 224 takes 150 kB")));
        }
        let advice =
            "look at the path's permissions: sudo -u ddlp-device ddlp-device doctor … sees what the service sees";
        findings.extend(self.obstacles.iter().map(|obstacle| Finding::failure(SUBJECT, obstacle, advice)));
        findings
    }
}

/// The folder that a file lies in, or would.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    }
}

/// Memory aligned as unbuffered requests need it.
struct Block {
    bytes: Vec<u8>,
    start: usize,
}

impl Block {
    fn new() -> Self {
        // Content that no drive can compress away, and the same each time.
        let mut state = 0x9E37_79B9u32;
        let mut byte = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let bytes: Vec<u8> = (0..REQUEST_BYTES + BLOCK_BYTES).map(|_| byte()).collect();
        let start = bytes.as_ptr().align_offset(BLOCK_BYTES);
        Self { bytes, start }
    }

    fn get(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + REQUEST_BYTES]
    }
}

fn read(path: &Path, dataset: &dyn Dataset) -> io::Result<Speed> {
    if path.is_file() {
        return read_files(|| std::iter::once(path.to_owned()), TIME);
    }
    let files = || (0..dataset.len()).map(|index| dataset.location(index).file);
    read_files(files, TIME)
}

/// Reads files one after the other, from the first again after the last, until the time is over. One that cannot be read is a
/// sample's matter, as long as there are others.
fn read_files<I: Iterator<Item = PathBuf>>(files: impl Fn() -> I, time: Duration) -> io::Result<Speed> {
    let mut block = Block::new();
    let mut speed = Speed { is_direct: true, ..Speed::default() };
    let start = Instant::now();
    loop {
        let before = speed.bytes;
        let mut last = PathBuf::new();
        let mut obstacle = None;
        for path in files() {
            if path != last {
                obstacle = read_file(&path, &mut block, &mut speed, start + time).err().or(obstacle);
                last = path;
            }
            if start.elapsed() >= time {
                break;
            }
        }
        speed.seconds = start.elapsed().as_secs_f64();
        if let Some(error) = obstacle.filter(|_| speed.bytes == 0) {
            return Err(error);
        }
        if start.elapsed() >= time || speed.bytes == before {
            return Ok(speed);
        }
    }
}

fn read_file(path: &Path, block: &mut Block, speed: &mut Speed, until: Instant) -> io::Result<()> {
    let flags = if speed.is_direct { OFlag::O_DIRECT } else { OFlag::empty() };
    let mut file = match open(path, flags) {
        Err(error) if error.kind() == ErrorKind::InvalidInput => cached(path, speed)?,
        opened => opened?,
    };
    loop {
        let count = match file.read(block.get()) {
            Err(error) if speed.is_direct && error.kind() == ErrorKind::InvalidInput => {
                file = cached(path, speed)?;
                continue;
            }
            count => count?,
        };
        speed.bytes += count as u64;
        // The end of the file, after which unbuffered reading would not be aligned any more.
        if count < REQUEST_BYTES || Instant::now() >= until {
            return Ok(());
        }
    }
}

/// Opens a regular file or a disk. Of anything else, a pipe for example, opening or reading might wait for ever.
fn open(path: &Path, flags: OFlag) -> io::Result<File> {
    let file = File::options().read(true).custom_flags((flags | OFlag::O_NONBLOCK).bits()).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() || kind.is_block_device() {
        return Ok(file);
    }
    Err(io::Error::other(format!("{} is no regular file", path.display())))
}

/// Opens a file whose file system has no unbuffered requests, without what the page cache holds of it.
fn cached(path: &Path, speed: &mut Speed) -> io::Result<File> {
    speed.is_direct = false;
    let file = open(path, OFlag::empty())?;
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    Ok(file)
}

/// Writes a file of its own in the folder: the slots of a running agent stay untouched.
fn write(folder: &Path) -> io::Result<Speed> {
    let path = folder.join(format!(".ddlp-doctor-{}", std::process::id()));
    let open = |flags: OFlag| File::options().write(true).create_new(true).custom_flags(flags.bits()).open(&path);
    let (mut file, mut is_direct) = match open(OFlag::O_DIRECT) {
        // Some file systems make the file before they refuse the flag.
        Err(error) if error.kind() == ErrorKind::InvalidInput => {
            let _ = fs::remove_file(&path);
            (open(OFlag::empty())?, false)
        }
        opened => (opened?, true),
    };
    // From here on nothing is left of it, however this ends.
    fs::remove_file(&path)?;
    let room = nix::sys::statvfs::fstatvfs(&file)?;
    let most = (room.blocks_available() as u64).saturating_mul(room.fragment_size() as u64) / 4;
    let mut block = Block::new();
    let mut speed = Speed::default();
    let start = Instant::now();
    while start.elapsed() < TIME && speed.bytes + (REQUEST_BYTES as u64) <= most.min(WRITE_BYTES_MAX) {
        match file.write_all(block.get()) {
            Err(error) if is_direct && error.kind() == ErrorKind::InvalidInput => {
                is_direct = false;
                let flags = OFlag::from_bits_retain(fcntl(&file, FcntlArg::F_GETFL)?);
                fcntl(&file, FcntlArg::F_SETFL(flags - OFlag::O_DIRECT))?;
            }
            written => {
                written?;
                speed.bytes += REQUEST_BYTES as u64;
            }
        }
    }
    file.sync_data()?;
    Ok(Speed { seconds: start.elapsed().as_secs_f64(), is_direct, ..speed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_left_out_and_nothing_waits_for_a_pipe() {
        let folder = tempfile::tempdir().unwrap();
        let [pipe, missing, good] = ["pipe", "missing", "good"].map(|name| folder.path().join(name));
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        fs::write(&good, [7; 5000]).unwrap();
        let time = Duration::from_millis(5);
        let speed = read_files(|| [pipe.clone(), missing.clone(), good.clone()].into_iter(), time).unwrap();
        assert!(speed.bytes >= 5000);
        let error = read_files(|| [missing.clone(), pipe.clone()].into_iter(), time).unwrap_err();
        assert!(error.to_string().contains("no regular file"), "{error}");
    }

    #[test]
    fn files_are_read_whole_again_and_again() {
        let folder = tempfile::tempdir().unwrap();
        let files = [("a", REQUEST_BYTES + 5000), ("b", 300)].map(|(name, size)| {
            let path = folder.path().join(name);
            fs::write(&path, vec![7; size]).unwrap();
            path
        });
        let listed = [&files[0], &files[0], &files[1]];
        let once = read_files(|| listed.into_iter().cloned(), Duration::ZERO).unwrap();
        assert!(once.bytes > 0);
        let speed = read_files(|| listed.into_iter().cloned(), Duration::from_millis(30)).unwrap();
        assert!(speed.bytes >= (REQUEST_BYTES + 5300) as u64 && speed.bytes_per_s() > 0.0);
        let nothing = read_files(std::iter::empty, TIME).unwrap();
        assert_eq!(nothing.bytes, 0);
    }

    #[test]
    fn writing_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::measure(None, Some(&folder.path().join("slots")));
        assert!(storage.write.unwrap().bytes > 0);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let nowhere = Storage::measure(None, Some(&folder.path().join("none/slots")));
        assert!(nowhere.write.is_none() && nowhere.findings()[0].text.contains("none"));
        assert_eq!(folder_of(Path::new("slots")), Path::new("."));
    }
}
