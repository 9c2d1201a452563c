//! An image folder: one folder per class, as torchvision's `ImageFolder` reads it.
//!
//! - Classes are the folders in the root, sorted by name; files in the root are ignored.
//! - A class's samples are the files below its folder at any depth whose names end in one of [`EXTENSIONS`],
//!   whatever the case: sorted by the path of their folder first, by name second, both byte by byte (torchvision's
//!   order).
//! - A class without samples is an error, as it is for torchvision, and so is a class folder whose name is not UTF-8.
//! - A root without folders whose files are images, such as ImageNet's validation images, is a *flat* folder: it has no
//!   classes, its samples are sorted by name, and every label is 0. Labels may come from a file beside it
//!   ([`SampleFields`](crate::SampleFields)).
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

use crate::pack::LISTED_MAX;
use crate::sample::IdentityHasher;
use crate::sources::files::{Files, is_no_file};
use crate::sources::left_out::LeftOut;
use crate::{Dataset, Decoders, Header, Identity, Location, ReadError};
use scan::ClassListing;
use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt;
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
    /// The root contains neither a folder nor an image.
    #[error(
        "{} has neither class folders nor images: an image folder has one folder per class, such as {}/cat/1.jpg, or \
         only images ({})",
        .root.display(), .root.display(), EXTENSIONS.join(" ")
    )]
    NoSamples {
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
    /// A class folder has a name that cannot be the name of a class: a program that looks classes up by name would take
    /// names that differ only in these bytes for one class.
    #[error(
        "the class folder {} of {} has a name that is not UTF-8: rename it, as by `convmv -f ENCODING -t UTF-8 \
         --notest FOLDER`",
        .name.as_bytes().escape_ascii(), .root.display()
    )]
    NotUtf8 {
        /// The root.
        root: PathBuf,
        /// The folder's name.
        name: OsString,
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
    files: Files,
    classes: Vec<String>,
    /// Index of the first sample after each class; empty in a flat folder.
    class_ends: Vec<u64>,
    left_out: LeftOut,
    identity: Identity,
}

impl Folder {
    /// Lists an image folder.
    pub fn open(root: &Path) -> Result<Self, FolderError> {
        let unreadable = |source| FolderError::Unreadable { path: root.to_owned(), source };
        let files = Files::below(root).map_err(unreadable)?;
        let (names, beside) = scan::class_names(root)?;
        let classes = names.iter().map(|name| class_of(root, name)).collect::<Result<_, _>>()?;
        let (listings, beside) = match names.is_empty() {
            true => (vec![scan::list_flat(root)?], LeftOut::new(LISTED_MAX)),
            false => (scan::list_classes(root, &names)?, beside),
        };
        let mut folder = Self {
            files,
            classes,
            class_ends: Vec::with_capacity(names.len()),
            left_out: beside,
            identity: Identity::from_bytes([0; 32]),
        };
        let path_bytes = listings.iter().map(ClassListing::path_bytes).sum();
        let samples = listings.iter().map(|listing| listing.files().count()).sum();
        let no_memory = |source| FolderError::NoMemory { path: root.to_owned(), source };
        folder.files.make_room(samples, path_bytes).map_err(no_memory)?;
        for listing in listings {
            listing.files().for_each(|(path, stamp)| folder.files.add(path, stamp));
            if !names.is_empty() {
                folder.class_ends.push(folder.files.len());
            }
            folder.left_out.append(listing.left_out);
        }
        folder.left_out.names.sort_unstable();
        folder.identity = folder.digest(&names);
        Ok(folder)
    }

    /// Returns an image in the root or below a class folder, if there are at least `least`. Passes over what is hidden,
    /// such as a file manager's previews, or cannot be read.
    pub(super) fn image_among(root: &Path, least: usize) -> Option<PathBuf> {
        scan::image_among(root, least)
    }

    fn digest(&self, names: &[OsString]) -> Identity {
        let mut hasher = IdentityHasher::new("ddlp folder 1");
        hasher.number(names.len() as u64);
        names.iter().for_each(|name| hasher.field(name.as_bytes()));
        hasher.number(self.len());
        for index in 0..self.len() {
            hasher.field(self.files.path(index));
            hasher.number(self.files.size(index).unwrap_or(0));
        }
        hasher.finish()
    }
}

/// Returns the name of the class of a folder in the root.
fn class_of(root: &Path, folder: &OsString) -> Result<String, FolderError> {
    let name = folder.to_str().map(str::to_owned);
    name.ok_or_else(|| FolderError::NotUtf8 { root: root.to_owned(), name: folder.clone() })
}

impl Dataset for Folder {
    fn len(&self) -> u64 {
        self.files.len()
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn label(&self, index: u64) -> u32 {
        assert!(index < self.len(), "sample {index} of {}", self.len());
        self.class_ends.partition_point(|&end| end <= index) as u32
    }

    fn name(&self, index: u64) -> String {
        self.files.name(index)
    }

    fn location(&self, index: u64) -> Location {
        self.files.location(index)
    }

    fn sample_in(&self, found: &Metadata) -> Option<u64> {
        self.files.sample_in(found)
    }

    fn header(&self, index: u64) -> Result<Header, ReadError> {
        self.files.header(index)
    }

    fn read(&self, index: u64, _: &Header, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        self.files.read(index, offset, out)
    }

    fn identity(&self) -> Identity {
        self.identity
    }

    fn decoders(&self) -> Decoders {
        self.files.decoders()
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
