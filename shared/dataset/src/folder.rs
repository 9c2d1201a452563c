//! An image folder: one directory per class, as torchvision's `ImageFolder` reads it.
//!
//! - Classes are the directories in the root, sorted by name; files in the root are ignored.
//! - A class's samples are the files below its directory at any depth whose names end in one of [`EXTENSIONS`],
//!   whatever the case: sorted by the path of their directory first, by name second, both byte by byte (torchvision's
//!   order).
//! - A class without samples is an error, as it is for torchvision.
//! - Symbolic links are followed. A directory that contains itself through a link is entered once.
//! - A link that leads nowhere, or anything else that is not a regular file, stays in the list (so that indices agree
//!   with torchvision's) and is corrupt when it is read.
//!
//! The identity is a digest of class names, relative paths and sizes; the files themselves are not read for it. If a
//! file is gone or has another size when it is read, the dataset has changed, and the sample is unavailable.

mod scan;

use crate::error::first_missing;
use crate::extent::{persistently, read_extent};
use crate::inputs::is_same_file;
use crate::sample::IdentityHasher;
use crate::{Corrupt, Dataset, Identity, Location, ReadError, SAMPLE_BYTES_MAX, Unavailable};
use ddlp_pixels::Source;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstat};
use scan::LeftOut;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Extensions of samples' file names: torchvision's list.
pub const EXTENSIONS: [&str; 9] = [".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"];

/// Largest number of directories below one class.
pub const DIRECTORIES_MAX: usize = 1 << 20;

/// Stand-in for the size of a sample that had no file when the folder was listed.
const NO_FILE: u64 = u64::MAX;

/// Reason why a directory is not an image folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// The directory, or a file in it, cannot be examined.
    #[error("cannot list {}: check that it exists and that you may read it", .path.display())]
    Unreadable {
        /// The directory or file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The root contains no directory.
    #[error("{} has no class directories: an image folder has one directory per class, such as {}/cat/1.jpg", .root.display(), .root.display())]
    NoClasses {
        /// The root.
        root: PathBuf,
    },
    /// Some classes have no images.
    #[error("{} has no images for {count} of its classes ({}): give each directory an image ({}) or remove it", .root.display(), .classes.join(", "), EXTENSIONS.join(" "))]
    EmptyClasses {
        /// The root.
        root: PathBuf,
        /// Number of these classes.
        count: usize,
        /// The first few of these classes.
        classes: Vec<String>,
    },
    /// There are more classes than a dataset may have.
    #[error("{} has {count} class directories, more than the limit of {}", .root.display(), crate::CLASSES_MAX)]
    TooManyClasses {
        /// The root.
        root: PathBuf,
        /// Number of classes.
        count: usize,
    },
    /// A class has more directories than [`DIRECTORIES_MAX`].
    #[error("more than {DIRECTORIES_MAX} directories below {}: links that multiply?", .path.display())]
    TooManyDirectories {
        /// The class directory.
        path: PathBuf,
    },
}

/// An image folder. It keeps only the list of its files in memory.
pub struct Folder {
    root: PathBuf,
    root_handle: File,
    classes: Vec<String>,
    /// Index of the first sample after each class.
    class_ends: Vec<u64>,
    /// Paths relative to the root, one after the other.
    paths: Vec<u8>,
    /// End of each path in `paths`.
    path_ends: Vec<u64>,
    /// Sizes of the files, or [`NO_FILE`].
    sizes: Vec<u64>,
    left_out: LeftOut,
    identity: Identity,
}

impl Folder {
    /// Lists an image folder.
    pub fn open(root: &Path) -> Result<Self, FolderError> {
        let unreadable = |source| FolderError::Unreadable { path: root.to_owned(), source };
        let root_handle = File::open(root).map_err(unreadable)?;
        let (names, beside) = scan::class_names(root)?;
        let listings = scan::list_classes(root, &names)?;
        let mut folder = Self {
            root: root.to_owned(),
            root_handle,
            classes: names.iter().map(|name| name.to_string_lossy().into_owned()).collect(),
            class_ends: Vec::with_capacity(names.len()),
            paths: Vec::new(),
            path_ends: Vec::new(),
            sizes: Vec::new(),
            left_out: beside,
            identity: Identity::from_bytes([0; 32]),
        };
        for listing in listings {
            for (path, size) in listing.files() {
                folder.paths.extend_from_slice(path);
                folder.path_ends.push(folder.paths.len() as u64);
                folder.sizes.push(size.unwrap_or(NO_FILE));
            }
            folder.class_ends.push(folder.sizes.len() as u64);
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
        Some(self.sizes[index as usize]).filter(|&size| size != NO_FILE)
    }

    /// Opens a sample's file and returns its length. Never blocks, as opening a pipe otherwise would.
    fn open_sample(&self, index: u64) -> io::Result<(File, u64)> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let file = openat(&self.root_handle, self.path(index), flags, Mode::empty())?;
        let status = fstat(&file)?;
        if SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        Ok((File::from(file), status.st_size.unsigned_abs()))
    }

    /// Determines why a sample's file cannot be read: the file may be gone or damaged, or the whole folder out of
    /// reach.
    fn unread(&self, index: u64, source: io::Error) -> ReadError {
        let (name, location) = (self.name(index), self.location(index));
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                let path = first_missing(&self.root, Path::new(OsStr::from_bytes(self.path(index))));
                Unavailable::Gone { path, source }.into()
            }
            io::ErrorKind::UnexpectedEof => self.changed(index, "is shorter than it was".to_owned()).into(),
            _ => match fstat(&self.root_handle) {
                Err(root) => {
                    Unavailable::Io { what: format!("image folder {}", self.root.display()), source: root.into() }
                        .into()
                }
                Ok(_) => ReadError::of_sample(name, location, source),
            },
        }
    }

    /// Returns the error for a sample that had no file when the folder was listed.
    fn without_file(&self, index: u64) -> ReadError {
        match self.open_sample(index) {
            Ok((_, found)) => self.changed(index, format!("was no file, and has {found} bytes now")).into(),
            Err(_) => Corrupt::NoFile { name: self.name(index), location: self.location(index) }.into(),
        }
    }

    fn changed(&self, index: u64, change: String) -> Unavailable {
        Unavailable::Changed { kind: "image", file: self.location(index).file, change }
    }
}

impl Dataset for Folder {
    fn len(&self) -> u64 {
        self.sizes.len() as u64
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
        let mut same_size = (0..).zip(&self.sizes).filter(|(_, size)| **size == found.len()).map(|(index, _)| index);
        same_size.find(|&index| is_same_file(&self.location(index).file, found))
    }

    fn sample<'a>(&'a self, index: u64, buf: &'a mut Vec<u8>) -> Result<Source<'a>, ReadError> {
        let samples = self.len();
        if index >= samples {
            return Err(Unavailable::OutOfRange { index, samples }.into());
        }
        let Some(listed) = self.size(index) else { return Err(self.without_file(index)) };
        if listed > SAMPLE_BYTES_MAX {
            return Err(Corrupt::TooLarge { name: self.name(index), location: self.location(index) }.into());
        }
        let (file, found) = persistently(|| self.open_sample(index)).map_err(|source| self.unread(index, source))?;
        if found != listed {
            return Err(self.changed(index, format!("had {listed} bytes, and has {found} now")).into());
        }
        read_extent(&file, 0, listed as usize, buf).map_err(|source| self.unread(index, source))?;
        Ok(Source::Encoded(buf))
    }

    fn identity(&self) -> Identity {
        self.identity
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

#[cfg(test)]
mod tests;
