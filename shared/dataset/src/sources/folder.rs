//! An image folder: one folder per class, as torchvision's `ImageFolder` reads it.
//!
//! - Classes are the folders in the root, sorted by name; files in the root are ignored.
//! - A class's samples are the files below its folder at any depth whose names end in one of [`EXTENSIONS`],
//!   whatever the case: sorted by the path of their folder first, by name second, both byte by byte (torchvision's
//!   order).
//! - A class without samples is an error, as it is for torchvision.
//! - Symbolic links are followed. A folder that contains itself through a link is entered once.
//! - A dangling link, or anything else that is not a regular file, stays in the list, so that indices agree with
//!   torchvision's, and is unavailable when it is read: the disk to which the link leads may be absent. A file whose
//!   status the disk cannot read also stays in the list, as corrupt. Any other file that cannot be examined is an
//!   error.
//!
//! The identity is a digest of class names, relative paths and sizes; the files themselves are not read for it. If a
//! file is gone, or has been written to since it was listed, the dataset has changed, and the sample is unavailable. If
//! the root or a class's folder cannot be read, that is not damage of a file: every sample in it is unavailable.

mod scan;

use crate::extent::{make_room, persistently, read_exact};
use crate::folders::{check_folders, first_missing};
use crate::held::is_stale;
use crate::inputs::is_same_file;
use crate::sample::IdentityHasher;
use crate::stamp::Stamp;
use crate::{Corrupt, Dataset, Header, Identity, Location, ReadError, SAMPLE_BYTES_MAX, Unavailable};
use ddlp_pixels::{Decoder, Decoders, Format};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstat};
use scan::{ClassListing, LeftOut};
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Extensions of samples' file names: torchvision's list.
pub const EXTENSIONS: [&str; 9] = [".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"];

/// Largest number of folders below one class.
pub const DIRECTORIES_MAX: usize = 1 << 20;

/// Reason why a folder is not an image folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// The folder, or a file in it, cannot be examined.
    #[error("cannot list {}: check that it exists and that you may read it", .path.display())]
    Unreadable {
        /// The folder or file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The system refuses memory for the list of samples.
    #[error("no memory to list {}", .path.display())]
    NoMemory {
        /// The root or class.
        path: PathBuf,
        /// The refused memory.
        #[source]
        source: io::Error,
    },
    /// The root contains no folder.
    #[error(
        "{} has no class folders: an image folder has one folder per class, such as {}/cat/1.jpg",
        .root.display(), .root.display()
    )]
    NoClasses {
        /// The root.
        root: PathBuf,
    },
    /// Some classes have no images.
    #[error(
        "{} has no images for {count} of its classes ({}): put an image ({}) into each folder, or remove the folder",
        .root.display(), .classes.join(", "), EXTENSIONS.join(" ")
    )]
    EmptyClasses {
        /// The root.
        root: PathBuf,
        /// Number of these classes.
        count: usize,
        /// The first few of these classes.
        classes: Vec<String>,
    },
    /// There are more classes than a dataset may have.
    #[error("{} has {count} class folders, more than the limit of {}", .root.display(), crate::CLASSES_MAX)]
    TooManyClasses {
        /// The root.
        root: PathBuf,
        /// Number of classes.
        count: usize,
    },
    /// A class has more folders than [`DIRECTORIES_MAX`].
    #[error("more than {DIRECTORIES_MAX} folders below {}: check the symbolic links in it", .path.display())]
    TooManyDirectories {
        /// The class's folder.
        path: PathBuf,
    },
}

/// An image folder. It keeps only the list of its files in memory.
pub struct Folder {
    root: PathBuf,
    root_handle: File,
    root_inode: u64,
    classes: Vec<String>,
    /// Index of the first sample after each class.
    class_ends: Vec<u64>,
    /// Paths relative to the root, one after the other.
    paths: Vec<u8>,
    /// End of each path in `paths`.
    path_ends: Vec<u64>,
    /// Stamps that the files had when the folder was listed.
    stamps: Vec<Stamp>,
    left_out: LeftOut,
    identity: Identity,
}

impl Folder {
    /// Lists an image folder.
    pub fn open(root: &Path) -> Result<Self, FolderError> {
        let unreadable = |source| FolderError::Unreadable { path: root.to_owned(), source };
        let root_handle = File::open(root).map_err(unreadable)?;
        let root_inode = root_handle.metadata().map_err(unreadable)?.ino();
        let (names, beside) = scan::class_names(root)?;
        let listings = scan::list_classes(root, &names)?;
        let mut folder = Self {
            root: root.to_owned(),
            root_handle,
            root_inode,
            classes: names.iter().map(|name| name.to_string_lossy().into_owned()).collect(),
            class_ends: Vec::with_capacity(names.len()),
            paths: Vec::new(),
            path_ends: Vec::new(),
            stamps: Vec::new(),
            left_out: beside,
            identity: Identity::from_bytes([0; 32]),
        };
        let no_memory = |source| FolderError::NoMemory { path: root.to_owned(), source };
        let path_bytes = listings.iter().map(ClassListing::path_bytes).sum();
        let samples = listings.iter().map(|listing| listing.files().count()).sum();
        make_room(&mut folder.paths, path_bytes, "the paths of the samples").map_err(no_memory)?;
        make_room(&mut folder.path_ends, samples, "the ends of the samples' paths").map_err(no_memory)?;
        make_room(&mut folder.stamps, samples, "the stamps of the samples").map_err(no_memory)?;
        for listing in listings {
            for (path, stamp) in listing.files() {
                folder.paths.extend_from_slice(path);
                folder.path_ends.push(folder.paths.len() as u64);
                folder.stamps.push(stamp.unwrap_or(Stamp::ABSENT));
            }
            folder.class_ends.push(folder.stamps.len() as u64);
            folder.left_out.append(listing.left_out);
        }
        folder.left_out.names.sort_unstable();
        folder.identity = folder.digest(&names);
        Ok(folder)
    }

    fn digest(&self, names: &[std::ffi::OsString]) -> Identity {
        let mut hasher = IdentityHasher::new("ddlp folder 1");
        hasher.number(names.len() as u64);
        names.iter().for_each(|name| hasher.field(name.as_bytes()));
        hasher.number(self.len());
        for index in 0..self.len() {
            hasher.field(self.path(index));
            hasher.number(self.size(index).unwrap_or(0));
        }
        hasher.finish()
    }

    fn path(&self, index: u64) -> &[u8] {
        let index = index as usize;
        let start = if index == 0 { 0 } else { self.path_ends[index - 1] };
        &self.paths[start as usize..self.path_ends[index] as usize]
    }

    /// Returns the size of a sample's file when the folder was listed, if it had one.
    fn size(&self, index: u64) -> Option<u64> {
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
    /// up another one, the error would remain, and no other file would be read.
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
    fn read_unchanged(
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
    fn unread(&self, index: u64, source: io::Error) -> ReadError {
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

    /// Returns the error for a sample that had no file when the folder was listed.
    fn without_file(&self, index: u64) -> ReadError {
        match self.open_sample(index).and_then(|file| stamp_of_regular(&file)) {
            Ok(now) => self
                .changed(
                    index,
                    format!("could not be examined when the folder was listed, and has {} bytes now", now.bytes),
                )
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
}

impl Dataset for Folder {
    fn len(&self) -> u64 {
        self.stamps.len() as u64
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn label(&self, index: u64) -> u32 {
        assert!(index < self.len(), "sample {index} of {}", self.len());
        self.class_ends.partition_point(|&end| end <= index) as u32
    }

    fn name(&self, index: u64) -> String {
        String::from_utf8_lossy(self.path(index)).into_owned()
    }

    fn location(&self, index: u64) -> Location {
        let file = self.root.join(OsStr::from_bytes(self.path(index)));
        Location { file, offset: 0, length: self.size(index).unwrap_or(0) }
    }

    fn sample_in(&self, found: &Metadata) -> Option<u64> {
        let mut same_size = (0..self.len()).filter(|&index| self.size(index) == Some(found.len()));
        same_size.find(|&index| is_same_file(&self.location(index).file, found))
    }

    fn header(&self, index: u64) -> Result<Header, ReadError> {
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

    fn read(&self, index: u64, _: &Header, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        let Some(listed) = self.stamps[index as usize].present() else { return Err(self.without_file(index)) };
        self.read_unchanged(index, &listed, |file| read_exact(file, offset, out))
    }

    fn identity(&self) -> Identity {
        self.identity
    }

    fn decoders(&self) -> Decoders {
        let formats = (0..self.len()).filter_map(|index| Format::of_name(self.path(index)));
        formats.map(Decoder::File).collect()
    }

    fn left_out(&self) -> u64 {
        self.left_out.count
    }

    fn left_out_names(&self) -> &[String] {
        &self.left_out.names
    }

    fn kind(&self) -> &'static str {
        "folder"
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
fn is_no_file(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    let none = [Errno::ENOENT, Errno::ENOTDIR, Errno::ELOOP, Errno::ENXIO, Errno::ENAMETOOLONG];
    errno.is_some_and(|errno| none.contains(&errno)) || error.kind() == io::ErrorKind::InvalidInput
}

#[cfg(test)]
mod tests;
