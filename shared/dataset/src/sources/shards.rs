//! WebDataset shards: tar archives in which consecutive members of the same key make a sample.
//!
//! - The key of a member is its path up to the first dot of its last component; the rest is its extension.
//! - A sample has one image ([`IMAGE_EXTENSIONS`]) and one label, `.cls`, a number in ASCII. Of other members,
//!   [`SampleFields`](crate::SampleFields) reads the numbers in `.json`; all others are ignored.
//!   Either all samples have a label or none has: every label is then 0.
//! - A group with neither is not a sample; a label without an image is an error that names the key. So is a name whose
//!   key should have ended at the last dot, such as `22.05.jpg`: its group has no other image, or a label of the same
//!   name.
//! - Members without a sample count as left out ([`Dataset::left_out`]). So do members beside a sample's image whose
//!   names end like an image's or a label's (`.seg.png`).
//! - A hard link has the content of an earlier member. A symbolic link as image or label is an error.
//! - Class names are the lines of `classes.txt` beside the shards; without that file, the numbers up to the largest
//!   label.
//! - Samples keep the order of the archives (sorted by name) and their members.
//!
//! Opening goes through all headers and remembers where the images lie; images are then read in place. An archive must
//! end with its end marker, with nothing after it, so that a truncated archive is noticed.

mod beside;
mod listing;
mod members;

use crate::extent::{is_file, make_room, persistently, read_exact};
use crate::folders::{check_folders, first_missing};
use crate::held::is_stale;
use crate::pack::LISTED_MAX;
use crate::sample::IdentityHasher;
use crate::sources::class_list::{ClassListError, read_class_list};
use crate::sources::compressed::{CompressedFile, compressed_archive, first_compressed};
use crate::sources::left_out::LeftOut;
use crate::stamp::Stamp;
use crate::{
    Corrupt, Dataset, Decoder, Decoders, Header, Identity, Location, ReadError, SAMPLE_BYTES_MAX, Unavailable, parallel,
};
use ddlp_pixels::Format;
use listing::{ListedSample, ShardListing, list_shard};
use members::MemberError;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

pub(crate) use beside::each_beside;
pub use listing::IMAGE_EXTENSIONS;

/// Reason why shards could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShardError {
    /// A file or folder cannot be read.
    #[error("cannot read {}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// An archive is malformed or was cut short.
    #[error("{}: {problem}", .path.display())]
    Tar {
        /// The shard.
        path: PathBuf,
        /// The problem, and the byte at which it is.
        problem: String,
    },
    /// A shard is compressed.
    #[error(transparent)]
    Compressed(#[from] CompressedFile),
    /// The members of a key do not make a sample.
    #[error("sample {key} in {} has {problem}", .path.display())]
    Sample {
        /// The shard.
        path: PathBuf,
        /// The key.
        key: String,
        /// What the sample has, or lacks.
        problem: String,
    },
    /// No shard holds a sample.
    #[error(
        "{} holds no samples: a sample is an image ({}), and maybe a .cls member of the same name{other}",
        .path.display(), IMAGE_EXTENSIONS.join(", ")
    )]
    Empty {
        /// The shard or folder.
        path: PathBuf,
        /// Names a member that is not part of a sample, if there is one.
        other: String,
    },
    /// `classes.txt` cannot be used.
    #[error(transparent)]
    Classes(#[from] ClassListError),
    /// `classes.txt` has no name for a label.
    #[error("sample {name} has label {label}, and {} names {classes} classes", .path.display())]
    Label {
        /// The sample.
        name: String,
        /// Its label.
        label: u32,
        /// The list of classes.
        path: PathBuf,
        /// Number of names in the list.
        classes: usize,
    },
}

impl ShardError {
    fn tar(path: &Path, error: MemberError) -> Self {
        match error {
            MemberError::Io(source) => ShardError::Io { path: path.to_owned(), source },
            MemberError::Compressed(by) => CompressedFile { path: path.to_owned(), by }.into(),
            other => ShardError::Tar { path: path.to_owned(), problem: other.to_string() },
        }
    }
}

/// WebDataset shards.
pub struct Shards {
    directory: PathBuf,
    handle: File,
    shards: Vec<Shard>,
    classes: Vec<String>,
    /// Paths of the members, shard by shard.
    paths: Vec<u8>,
    /// The samples; `path_end` counts over all shards.
    samples: Vec<ListedSample>,
    left_out: LeftOut,
    identity: Identity,
}

struct Shard {
    name: OsString,
    /// The file's state when it was listed.
    stamp: Stamp,
    /// Index of the first sample after this shard.
    end: u64,
}

impl Shards {
    /// Returns whether a folder holds shards.
    pub fn recognizes(directory: &Path) -> bool {
        directory.is_dir() && !matches!(Self::first_in(directory), Ok(None))
    }

    /// Returns the first shard in a folder, if it holds one. Fails if one is out of reach, such as a link that leads
    /// nowhere.
    pub(super) fn first_in(directory: &Path) -> io::Result<Option<PathBuf>> {
        Ok(shard_names(directory)?.first().map(|name| directory.join(name)))
    }

    /// Opens a single shard or all shards of a folder.
    pub fn open(path: &Path) -> Result<Self, ShardError> {
        let failed = |source| ShardError::Io { path: path.to_owned(), source };
        let (directory, names) = shards_at(path)?;
        let listings = parallel::map(&names, |name| {
            let path = directory.join(name);
            let file = File::open(&path).map_err(|source| ShardError::Io { path: path.clone(), source })?;
            list_shard(&path, &file, LISTED_MAX.div_ceil(names.len()))
        });
        let mut shards = Self {
            directory: directory.to_owned(),
            handle: File::open(directory).map_err(failed)?,
            shards: Vec::with_capacity(names.len()),
            classes: Vec::new(),
            paths: Vec::new(),
            samples: Vec::new(),
            left_out: LeftOut::new(LISTED_MAX),
            identity: Identity::from_bytes([0; 32]),
        };
        if path.is_dir() {
            shards_below(path).into_iter().for_each(|name| shards.left_out.add(|| name));
        }
        let (mut unlabelled, mut lost, mut has_labels) = (None::<(PathBuf, String)>, None, false);
        for (name, listing) in names.into_iter().zip(listings) {
            let mut listing = listing?;
            has_labels |= listing.has_labels;
            lost = lost.or(listing.lost.take());
            unlabelled = unlabelled.or(listing.unlabelled.take().map(|key| (directory.join(&name), key)));
            shards.append(name, listing).map_err(failed)?;
        }
        if let Some((path, key)) = unlabelled.filter(|_| has_labels) {
            let problem = "no label: a member .cls must stand beside the image, as beside other ones".into();
            return Err(ShardError::Sample { path, key, problem });
        }
        if let Some(lost) = lost.filter(|_| !has_labels) {
            return Err(lost);
        }
        if shards.samples.is_empty() {
            let other = shards.left_out.names.first().map(|name| format!(", but {name} is neither"));
            return Err(ShardError::Empty { path: path.to_owned(), other: other.unwrap_or_default() });
        }
        shards.classes = if has_labels { shards.class_names()? } else { Vec::new() };
        shards.identity = shards.digest();
        Ok(shards)
    }

    fn append(&mut self, name: OsString, listing: ShardListing) -> io::Result<()> {
        let base = self.paths.len() as u64;
        make_room(&mut self.paths, listing.paths.len(), "the paths of the samples")?;
        make_room(&mut self.samples, listing.samples.len(), "the list of samples")?;
        self.paths.extend_from_slice(&listing.paths);
        self.samples.extend(listing.samples.iter().map(|s| ListedSample { path_end: base + s.path_end, ..*s }));
        self.left_out.append(listing.left_out);
        self.shards.push(Shard { name, stamp: listing.stamp, end: self.samples.len() as u64 });
        Ok(())
    }

    fn class_names(&self) -> Result<Vec<String>, ShardError> {
        let largest = self.samples.iter().map(|sample| sample.label).max().unwrap_or(0);
        let path = self.directory.join("classes.txt");
        if !path.is_file() {
            return Ok((0..=largest).map(|class| class.to_string()).collect());
        }
        let names = read_class_list(&path)?;
        let unnamed = self.samples.iter().position(|sample| sample.label as usize >= names.len());
        let Some(index) = unnamed else { return Ok(names) };
        let (name, label) = (self.name(index as u64), self.samples[index].label);
        Err(ShardError::Label { name, label, path, classes: names.len() })
    }

    fn digest(&self) -> Identity {
        let mut hasher = IdentityHasher::new("ddlp tar 1");
        hasher.number(self.classes.len() as u64);
        self.classes.iter().for_each(|name| hasher.field(name.as_bytes()));
        hasher.number(self.shards.len() as u64);
        for shard in &self.shards {
            hasher.field(shard.name.as_encoded_bytes());
            hasher.number(shard.stamp.bytes);
            hasher.number(shard.end);
        }
        for (index, sample) in (0..).zip(&self.samples) {
            hasher.field(self.path(index));
            hasher.number(sample.offset);
            hasher.number(sample.length);
            hasher.number(sample.label.into());
        }
        hasher.finish()
    }

    fn path(&self, index: u64) -> &[u8] {
        let index = index as usize;
        let start = if index == 0 { 0 } else { self.samples[index - 1].path_end };
        &self.paths[start as usize..self.samples[index].path_end as usize]
    }

    fn shard(&self, index: u64) -> &Shard {
        assert!(index < self.len(), "sample {index} of {}", self.len());
        &self.shards[self.shards.partition_point(|shard| shard.end <= index)]
    }
}

impl Dataset for Shards {
    fn len(&self) -> u64 {
        self.samples.len() as u64
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn label(&self, index: u64) -> u32 {
        self.samples[index as usize].label
    }

    fn name(&self, index: u64) -> String {
        format!("{}:{}", self.shard(index).name.display(), String::from_utf8_lossy(self.path(index)))
    }

    fn location(&self, index: u64) -> Location {
        let sample = &self.samples[index as usize];
        let file = self.directory.join(&self.shard(index).name);
        Location { file, offset: sample.offset, length: sample.length }
    }

    fn header(&self, index: u64) -> Result<Header, ReadError> {
        let samples = self.len();
        if index >= samples {
            return Err(Unavailable::OutOfRange { index, samples }.into());
        }
        let sample = self.samples[index as usize];
        if sample.length > SAMPLE_BYTES_MAX {
            return Err(Corrupt::TooLarge { name: self.name(index), location: self.location(index) }.into());
        }
        Ok(Header::file(sample.offset..sample.offset + sample.length))
    }

    fn read(&self, index: u64, _: &Header, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        let shard = self.shard(index);
        let (read, now) = self
            .open_shard(&shard.name)
            .and_then(|file| {
                let read = read_exact(&file, offset, out);
                // Checked after the read, since images in a shard have no checksum.
                Ok((read, Stamp::of(&file)?))
            })
            .map_err(|source| self.unopened(index, source))?;
        if !now.is_of(&shard.stamp) {
            let (file, change) = (self.directory.join(&shard.name), shard.stamp.change(&now));
            return Err(Unavailable::Changed { kind: "shard", file, change }.into());
        }
        read.map_err(|source| self.refused(index, source))
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
        "tar"
    }
}

impl Shards {
    /// Opens a shard. No shard stays open, since there may be more shards than a process may have open files.
    fn open_shard(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        match persistently(|| Ok(File::from(openat(&self.handle, name, flags, Mode::empty())?))) {
            // The file server has restarted and forgotten the folder's handle. The caller checks that the shard is
            // the same.
            Err(error) if is_stale(&error) => File::open(self.directory.join(name)),
            done => done,
        }
    }

    /// Determines why a sample's shard cannot be opened.
    fn unopened(&self, index: u64, source: io::Error) -> ReadError {
        match source.kind() {
            io::ErrorKind::NotFound => {
                let path = first_missing(&self.directory, Path::new(&self.shard(index).name));
                Unavailable::Gone { path, source }.into()
            }
            _ => self.refused(index, source),
        }
    }

    /// Determines whether the system refuses a sample's shard alone, or a folder on the way to the shard.
    fn refused(&self, index: u64, source: io::Error) -> ReadError {
        match check_folders(&self.handle, &self.directory, Path::new(&self.shard(index).name), &source) {
            Err(unavailable) => unavailable.into(),
            Ok(()) => ReadError::of_sample(self.name(index), self.location(index), source),
        }
    }
}

/// Returns a folder, and the names of the shards in it that a path means: the shard at the path, or all of the
/// folder's. Fails if others of the folder's shards are compressed.
fn shards_at(path: &Path) -> Result<(&Path, Vec<OsString>), ShardError> {
    let failed = |source| ShardError::Io { path: path.to_owned(), source };
    let (directory, names) = match (path.is_dir(), path.file_name()) {
        (false, Some(name)) => (path.parent().unwrap_or(Path::new("")), vec![name.to_owned()]),
        _ => match first_compressed(path, compressed_archive).map_err(failed)? {
            Some(compressed) => return Err(compressed.into()),
            None => (path, shard_names(path).map_err(failed)?),
        },
    };
    Ok((if directory == Path::new("") { Path::new(".") } else { directory }, names))
}

/// Returns the paths of the shards at a path.
pub(crate) fn shard_paths(path: &Path) -> Result<Vec<PathBuf>, ShardError> {
    let (directory, names) = shards_at(path)?;
    Ok(names.into_iter().map(|name| directory.join(name)).collect())
}

/// Returns whether a file's name names a shard: whether it ends in `.tar`, in any case.
pub(super) fn is_shard_name(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("tar"))
}

/// Lists the files in a folder whose names end in `.tar`, sorted.
fn shard_names(directory: &Path) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        if is_shard_name(&path) && is_file(&path)? {
            names.push(entry.file_name());
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Returns the names of shards in folders of a folder of shards, sorted. They do not belong to the dataset.
fn shards_below(directory: &Path) -> Vec<String> {
    let folders = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let files = folders.filter(|path| path.is_dir()).filter_map(|path| fs::read_dir(path).ok()).flatten().flatten();
    let shards = files.map(|entry| entry.path()).filter(|path| is_shard_name(path));
    let mut names: Vec<String> =
        shards.map(|path| path.strip_prefix(directory).unwrap_or(&path).display().to_string()).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests;
