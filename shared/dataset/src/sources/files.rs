//! Files below a folder, in a fixed order, as samples: what an image folder and a list of files have in common.
//!
//! If a file is gone, or has been written to since it was listed, the dataset has changed, and the sample is
//! unavailable. If the root or a folder on the way to the file cannot be read, that is no damage of a file: every
//! sample in it is unavailable.

use crate::extent::{make_room, persistently, read_exact};
use crate::folders::{check_folders, first_missing};
use crate::held::is_stale;
use crate::inputs::is_same_file;
use crate::stamp::Stamp;
use crate::{Corrupt, Decoder, Decoders, Header, Location, ReadError, SAMPLE_BYTES_MAX, Unavailable};
use ddlp_pixels::Format;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstat};
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Files below a folder. Only the list is kept in memory.
pub(super) struct Files {
    root: PathBuf,
    pub(super) root_handle: File,
    root_inode: u64,
    /// Paths relative to the root, one after the other.
    paths: Vec<u8>,
    /// End of each path in `paths`.
    path_ends: Vec<u64>,
    /// Stamps that the files had when they were listed.
    pub(super) stamps: Vec<Stamp>,
}

impl Files {
    /// Begins a list of files below `root`.
    pub fn below(root: &Path) -> io::Result<Self> {
        let root_handle = File::open(root)?;
        let root_inode = root_handle.metadata()?.ino();
        let (paths, path_ends, stamps) = Default::default();
        Ok(Self { root: root.to_owned(), root_handle, root_inode, paths, path_ends, stamps })
    }

    /// Makes room for `files` more files, whose paths have `path_bytes` bytes in total.
    pub fn make_room(&mut self, files: usize, path_bytes: usize) -> io::Result<()> {
        make_room(&mut self.paths, path_bytes, "the paths of the samples")?;
        make_room(&mut self.path_ends, files, "the ends of the samples' paths")?;
        make_room(&mut self.stamps, files, "the stamps of the samples")
    }

    /// Adds a file; `stamp` is `None` if there is no regular file.
    pub fn add(&mut self, path: &[u8], stamp: Option<Stamp>) {
        self.paths.extend_from_slice(path);
        self.path_ends.push(self.paths.len() as u64);
        self.stamps.push(stamp.unwrap_or(Stamp::ABSENT));
    }

    /// Returns the number of files.
    pub fn len(&self) -> u64 {
        self.stamps.len() as u64
    }

    /// Returns the path of a file, relative to the root.
    pub fn path(&self, index: u64) -> &[u8] {
        let index = index as usize;
        let start = if index == 0 { 0 } else { self.path_ends[index - 1] };
        &self.paths[start as usize..self.path_ends[index] as usize]
    }

    /// Returns the size that a sample's file had when it was listed, if there was one.
    pub fn size(&self, index: u64) -> Option<u64> {
        self.stamps[index as usize].present().map(|stamp| stamp.bytes)
    }

    /// Opens a sample's file.
    fn open_sample(&self, index: u64) -> io::Result<File> {
        match persistently(|| self.open_below(&self.root_handle, index)) {
            Err(error) if is_stale(&error) => self.open_below_root(index, error),
            done => done,
        }
    }

    /// Opens a sample's file by the root's path after `error`, which says that the file server has forgotten the root's
    /// handle. Returns that error if the path no longer leads to the same root: in the empty folder that an unmounted
    /// file system leaves, every file would be gone for good.
    ///
    /// The inode's number tells roots apart: a server that forgets handles keeps these numbers. If a file system made
    /// up another number, the error would remain, and no other file would be read.
    #[cold]
    fn open_below_root(&self, index: u64, error: io::Error) -> io::Result<File> {
        match File::open(&self.root) {
            Ok(root) if root.metadata().is_ok_and(|now| now.ino() == self.root_inode) => self.open_below(&root, index),
            _ => Err(error),
        }
    }

    /// Opens a sample's file below an open root. Never blocks, as opening a pipe otherwise would.
    fn open_below(&self, root: impl AsFd, index: u64) -> io::Result<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        Ok(File::from(openat(root, self.path(index), flags, Mode::empty())?))
    }

    /// Reads a sample's file. Fails if the file is not as it was `listed`. That is checked after the read, since images
    /// in a folder have no checksum.
    pub(super) fn read_unchanged(
        &self,
        index: u64,
        listed: &Stamp,
        read: impl FnOnce(&File) -> io::Result<()>,
    ) -> Result<(), ReadError> {
        let opened = self.open_sample(index).and_then(|file| Ok((read(&file), stamp_of_regular(&file)?)));
        let (read, now) = opened.map_err(|source| self.unread(index, source))?;
        if !now.is_of(listed) {
            return Err(self.changed(index, listed.change(&now)).into());
        }
        read.map_err(|source| self.unread(index, source))
    }

    /// Determines why a sample's file cannot be read: the file may be gone or damaged, or the whole folder out of
    /// reach.
    pub(super) fn unread(&self, index: u64, source: io::Error) -> ReadError {
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                let path = first_missing(&self.root, Path::new(OsStr::from_bytes(self.path(index))));
                Unavailable::Gone { path, source }.into()
            }
            io::ErrorKind::UnexpectedEof => self.changed(index, "is shorter than it was".to_owned()).into(),
            _ => self.refused(index, source),
        }
    }

    /// Determines whether the system refuses a sample's file alone, or a folder on the way to the file.
    fn refused(&self, index: u64, source: io::Error) -> ReadError {
        let path = Path::new(OsStr::from_bytes(self.path(index)));
        match check_folders(&self.root_handle, &self.root, path, &source) {
            Err(unavailable) => unavailable.into(),
            Ok(()) => ReadError::of_sample(self.name(index), self.location(index), source),
        }
    }

    /// Returns the error for a sample that had no file when the files were listed.
    fn without_file(&self, index: u64) -> ReadError {
        match self.open_sample(index).and_then(|file| stamp_of_regular(&file)) {
            Ok(now) => self
                .changed(index, format!("could not be examined when it was listed, and has {} bytes now", now.bytes))
                .into(),
            Err(error) if is_no_file(&error) => {
                Unavailable::NoFile { name: self.name(index), file: self.location(index).file }.into()
            }
            Err(source) => self.refused(index, source),
        }
    }

    fn changed(&self, index: u64, change: String) -> Unavailable {
        Unavailable::Changed { kind: "image", file: self.location(index).file, change }
    }

    /// Returns a sample's name: its path relative to the root.
    pub fn name(&self, index: u64) -> String {
        String::from_utf8_lossy(self.path(index)).into_owned()
    }

    pub fn location(&self, index: u64) -> Location {
        let file = self.root.join(OsStr::from_bytes(self.path(index)));
        Location { file, offset: 0, length: self.size(index).unwrap_or(0) }
    }

    pub fn sample_in(&self, found: &Metadata) -> Option<u64> {
        let mut same_size = (0..self.len()).filter(|&index| self.size(index) == Some(found.len()));
        same_size.find(|&index| is_same_file(&self.location(index).file, found))
    }

    pub fn header(&self, index: u64) -> Result<Header, ReadError> {
        let samples = self.len();
        if index >= samples {
            return Err(Unavailable::OutOfRange { index, samples }.into());
        }
        let Some(listed) = self.stamps[index as usize].present() else { return Err(self.without_file(index)) };
        if listed.bytes > SAMPLE_BYTES_MAX {
            return Err(Corrupt::TooLarge { name: self.name(index), location: self.location(index) }.into());
        }
        Ok(Header::file(0..listed.bytes))
    }

    pub fn read(&self, index: u64, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        let Some(listed) = self.stamps[index as usize].present() else { return Err(self.without_file(index)) };
        self.read_unchanged(index, &listed, |file| read_exact(file, offset, out))
    }

    /// Returns the decoders of the files, by their names.
    pub fn decoders(&self) -> Decoders {
        let formats = (0..self.len()).filter_map(|index| Format::of_name(self.path(index)));
        formats.map(Decoder::File).collect()
    }
}

/// Returns the stamp of an open file. Fails if the file is not a regular one.
fn stamp_of_regular(file: &File) -> io::Result<Stamp> {
    let status = persistently(|| Ok(fstat(file)?))?;
    if SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(Stamp::from(&status))
}

/// Returns whether an error of opening says that there is no regular file, but nothing, a link that dangles or leads in
/// a circle, or something of another kind.
pub(super) fn is_no_file(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    let none = [Errno::ENOENT, Errno::ENOTDIR, Errno::ELOOP, Errno::ENXIO, Errno::ENAMETOOLONG];
    errno.is_some_and(|errno| none.contains(&errno)) || error.kind() == io::ErrorKind::InvalidInput
}
