//! Where samples live.
//!
//! A [`Dataset`] is a fixed list of labelled samples in a fixed order, readable by index from many threads at once.
//!
//! - [`folder`]: an image folder, one directory per class, in torchvision's order.
//! - [`cifar`]: CIFAR's binary files.
//! - [`shards`]: WebDataset tar shards.
//! - [`pack`]: the project's own file, which a drive exports and both sides read; how it is made, checked and described.
//!
//! [`open`] finds out which of them a path is. [`Resident`] keeps a small one in memory.
//!
//! This crate does not decode: it says what a sample's bytes are ([`Source`]), and only `ddlp-pixels` looks inside. Every
//! file is taken to be hostile: what does not add up is a typed error, and no allocation is larger than the file that asks
//! for it or the limit that is named for it.
#![forbid(unsafe_code)]

pub mod cifar;
pub mod folder;
pub mod pack;
pub mod shards;

mod error;
mod extent;
mod inputs;
mod open;
mod parallel;
mod resident;
mod sample;
#[cfg(test)]
mod samples;
mod stamp;

pub use error::{Corrupt, ReadError, Unavailable};
pub use inputs::is_input;
pub use open::{OpenError, open};
pub use pack::PackFile;
pub use resident::{RESIDENT_BYTES_MAX, Resident};
pub use sample::{Identity, Location, Stored};

use ddlp_pixels::Source;
use std::fs::Metadata;
use std::io;
use std::path::PathBuf;

/// Largest number of bytes that one sample may have. A larger one is refused before anything is allocated for it.
pub(crate) const SAMPLE_BYTES_MAX: u64 = 1 << 30;

/// Largest number of classes.
pub(crate) const CLASSES_MAX: usize = 1 << 20;

/// Half of a sample's bytes. A core keeps track of so many of them on their way, and waits when it is to bring more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// Those in front.
    First,
    /// The others.
    Second,
}

/// A fixed list of labelled samples. It has at least one sample, and its order never changes.
pub trait Dataset: Send + Sync {
    /// Number of samples, at least 1.
    fn len(&self) -> u64;

    /// Never true: a source without samples does not open.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Names of the classes; a label is an index into it.
    fn classes(&self) -> &[String];

    /// Label of a sample.
    ///
    /// # Panics
    /// When `index` is not below [`len`](Self::len).
    fn label(&self, index: u64) -> u32;

    /// What messages call a sample: `n01440764/x.JPEG`, `shard-000.tar:000017.jpg`, `data_batch_1.bin#17`.
    ///
    /// # Panics
    /// When `index` is not below [`len`](Self::len).
    fn name(&self, index: u64) -> String;

    /// Where a sample's bytes lie.
    ///
    /// # Panics
    /// When `index` is not below [`len`](Self::len).
    fn location(&self, index: u64) -> Location;

    /// Returns a sample that is read from the file `found`, whatever name led to that file.
    fn sample_in(&self, found: &Metadata) -> Option<u64> {
        if let Some(pack) = self.export() {
            return inputs::is_same_file(pack.path(), found).then_some(0);
        }
        let mut last = PathBuf::new();
        (0..self.len()).find(|&index| {
            let file = self.location(index).file;
            let is_other = file != last;
            last = file;
            is_other && inputs::is_same_file(&last, found)
        })
    }

    /// A sample as the pixel path takes it, its bytes checked against the checksum where the dataset has one. Those of an uncompressed
    /// image are read and checked later, as far as they are needed.
    ///
    /// They are in `buf` or in the dataset itself. What `buf` holds is replaced and of no meaning to the caller. Its capacity is
    /// reused, so a buffer that is handed in again and again stops allocating.
    fn sample<'a>(&'a self, index: u64, buf: &'a mut Vec<u8>) -> Result<Source<'a>, ReadError>;

    /// A sample as it is packed: of a rejected one what is kept of it, which [`sample`](Self::sample) does not hand out. What a pack made of
    /// it would repeat is checked, its name included.
    fn stored<'a>(&'a self, index: u64, buf: &'a mut Vec<u8>) -> Result<Stored<'a>, ReadError> {
        self.sample(index, buf).map(Stored::Source)
    }

    /// Says that these samples will be read soon, so that a disk can fetch them meanwhile. A hint: a dataset may do nothing, and does not
    /// wait.
    fn announce(&self, _indices: &[u64]) {}

    /// Says that this sample is likely the next one that the calling thread asks for: if it lies in memory, a half of its bytes comes
    /// nearer to the processor meanwhile. A hint, as [`announce`](Self::announce).
    fn prefetch(&self, _index: u64, _half: Half) {}

    /// Says how much memory there is to keep what is read. A dataset that is much larger may read past the page cache from then on, in
    /// which it would find little and leave no room for others: true when it does. An error when it would and cannot; it then reads as
    /// before.
    fn fit_memory(&self, _available_bytes: u64) -> io::Result<bool> {
        Ok(false)
    }

    /// Looks whether the files are still those that were opened, as far as reading a sample does not. Prongs ask once a batch, when all its
    /// samples have been read.
    fn check(&self) -> Result<(), Unavailable> {
        Ok(())
    }

    /// Looks again after a sample has turned out to be corrupt: damage in a file that was written to meanwhile is a change of the dataset.
    fn check_damage(&self) -> Result<(), Unavailable> {
        self.check()
    }

    /// Digest by which two sides find out whether they hold the same dataset.
    fn identity(&self) -> Identity;

    /// `"folder"`, `"pack"`, `"cifar"` or `"tar"`.
    fn kind(&self) -> &'static str;

    /// Files of the source that are no samples: in an image folder those in no class directory, and those that are not named as
    /// images are.
    fn left_out(&self) -> u64 {
        0
    }

    /// Names of the first [`LISTED_MAX`](pack::LISTED_MAX) of them.
    fn left_out_names(&self) -> &[String] {
        &[]
    }

    /// The file that a drive exports block by block. Only a pack has one.
    fn export(&self) -> Option<&PackFile> {
        None
    }

    /// Whether samples stay in memory once they have been read.
    fn is_resident(&self) -> bool {
        false
    }
}
