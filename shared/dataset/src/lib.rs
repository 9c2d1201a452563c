//! Sources of samples.
//!
//! A [`Dataset`] is a fixed list of labelled samples in a fixed order, readable by index from many threads at once.
//!
//! - [`folder`]: an image folder, one folder per class, in torchvision's order; or images alone.
//! - [`cifar`]: CIFAR's binary files.
//! - [`list`]: a list of image files with labels.
//! - [`shards`]: WebDataset tar shards.
//! - [`image_table`]: a table in a database that others made.
//! - [`mix`]: several datasets, each with a weight.
//! - [`pack`]: the project's own file, which a drive exports and which host and drive both read: its layout, making and
//!   checking.
//!
//! [`open`] recognises the kind of a path, unless [`OpenOptions`] name it. [`Classed`] gives the classes of a dataset
//! other numbers. [`SampleReader`] takes a sample from its source to its pixels. [`Resident`] keeps a small dataset in
//! memory.
//!
//! This crate decodes no image itself: it hands a sample's bytes ([`Source`]) to `ddlp-pixels`, which decodes them.
//! Every file is assumed to be hostile: inconsistencies are typed errors, and no allocation is larger than the file
//! that asks for it or the limit that is defined for it.
#![forbid(unsafe_code)]

pub mod pack;

mod backoff;
mod bundles;
mod cache_use;
mod classed;
mod decoder;
pub mod errno;
mod error;
mod extent;
mod fields;
mod folders;
mod forms;
mod forward;
mod header;
mod held;
mod image_sizes;
mod inputs;
mod label_text;
mod parallel;
mod patience;
mod reads;
mod requests;
mod rereading;
mod resident;
mod sample;
mod sample_reader;
#[cfg(test)]
mod samples;
mod silence;
mod sources;
mod stamp;
mod table;
mod text_file;
mod waiting;

pub use backoff::{Backoff, BackoffLimits};
pub use bundles::{Ahead, Bundles};
pub use cache_use::CacheUse;
pub use classed::{Classed, ClassesError};
pub use decoder::{Decoder, Decoders, abilities, ability, ability_name};
pub use error::{Corrupt, ReadError, Unavailable};
pub use fields::{FieldTable, FieldsError, SampleFields};
pub use header::{Header, Piece};
pub use image_sizes::{ImageSize, image_sizes};
pub use inputs::{destination, is_input};
pub use pack::PackFile;
pub use patience::Patience;
pub use reads::Reads;
pub use requests::Requests;
pub use resident::{RESIDENT_BYTES_MAX, Resident};
pub use sample::{Identity, Location, Stored, beginning_of, beginnings};
pub use sample_reader::{
    BytesRead, Drawn, ExtentRead, FetchedSample, SampleError, SampleReader, SampleToFetch, StageTimes, StoredAt,
};
pub use silence::{Silence, Silences};
pub use sources::*;
pub use waiting::wait_for;

use ddlp_pixels::{Fidelity, ScanGroups, Source};
use pack::Blocks;
use std::fs::Metadata;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::pin::Pin;

/// Largest number of bytes that one sample may have. A larger one is refused before anything is allocated for it.
pub(crate) const SAMPLE_BYTES_MAX: u64 = 1 << 30;

/// Largest number of classes.
pub(crate) const CLASSES_MAX: usize = 1 << 20;

/// Half of a sample's bytes. A core can have about that many in flight, and waits when it is to fetch more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// The first half.
    First,
    /// The second half.
    Second,
}

/// How samples of a dataset whose reads have latency are fetched, before other threads prepare them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchDepth {
    /// Threads that fetch.
    pub threads: usize,
    /// Samples that each thread fetches at the same time, by [`Dataset::read_many`].
    pub samples: usize,
    /// Most bytes between two extents that one read gets together, since a second read would cost more than these
    /// bytes. `None` if the extents of different samples do not count from one place, such as the beginning of a pack.
    pub join_gap: Option<u64>,
    /// Most samples that one thread can have in flight, if reads go on without a thread that waits for them
    /// ([`Dataset::start_reads`]). `None` if each read needs a thread.
    pub at_once: Option<usize>,
}

/// Reads that are being made.
pub type Reading<'r, E> = Pin<Box<dyn Future<Output = Result<(), E>> + Send + 'r>>;

impl FetchDepth {
    /// The depth of a dataset whose reads have no latency: no threads.
    pub const NONE: Self = Self { threads: 0, samples: 0, join_gap: None, at_once: None };

    /// Returns the number of samples that threads fetch at the same time.
    pub fn in_flight(self) -> usize {
        self.threads * self.samples
    }
}

/// A dataset of a mix: neighbouring samples, over which epochs walk separately from other parts.
#[derive(Clone, Debug, PartialEq)]
pub struct MixPart {
    /// Name for messages.
    pub name: String,
    /// Number of samples.
    pub samples: u64,
    /// Weight beside the other parts: a finite number above 0.
    pub weight: f64,
}

/// A fixed list of labelled samples. It has at least one sample, and its order never changes.
///
/// A dataset around another dataset has to decide about each method: a method that it leaves out does what suits a
/// source, whatever the inner dataset does. `#[warn(clippy::missing_trait_methods)]` at its implementation names the
/// methods that are missing; [`forward!`] implements those that are the inner dataset's.
pub trait Dataset: Send + Sync {
    /// Returns the number of samples, at least 1.
    fn len(&self) -> u64;

    /// Returns `false`: a source without samples does not open.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the parts of a [`mix::Mix`], in the order of their samples. Each epoch walks them apart, and takes of
    /// each as many samples as its weight says. Any other dataset has no parts.
    fn parts(&self) -> Vec<MixPart> {
        Vec::new()
    }

    /// Returns the names of the classes; a label is an index into them.
    fn classes(&self) -> &[String];

    /// Returns the label of a sample.
    ///
    /// # Panics
    /// When `index` is not below [`len`](Self::len).
    fn label(&self, index: u64) -> u32;

    /// Returns the name of a sample for messages: `n01440764/x.JPEG`, `shard-000.tar:000017.jpg`,
    /// `data_batch_1.bin#17`.
    ///
    /// # Panics
    /// When `index` is not below [`len`](Self::len).
    fn name(&self, index: u64) -> String;

    /// Returns the names of neighbouring samples, in few reads. Unlike [`name`](Self::name), it returns no text that
    /// stands for a name that cannot be read now.
    ///
    /// # Errors
    ///
    /// If the names cannot be read.
    ///
    /// # Panics
    /// When a sample is not below [`len`](Self::len).
    fn names(&self, samples: Range<u64>) -> Result<Vec<String>, ReadError> {
        Ok(samples.map(|index| self.name(index)).collect())
    }

    /// Returns where a sample's bytes lie.
    ///
    /// # Panics
    /// When `index` is not below [`len`](Self::len).
    fn location(&self, index: u64) -> Location;

    /// Returns a sample that is read from the file `found`, by whatever name that file was reached.
    fn sample_in(&self, found: &Metadata) -> Option<u64> {
        let mut last = PathBuf::new();
        (0..self.len()).find(|&index| {
            let file = self.location(index).file;
            let is_other = file != last;
            last = file;
            is_other && inputs::is_same_file(&last, found)
        })
    }

    /// Returns what is known of a sample before any of its bytes are read. [`SampleReader`] plans by it what to read.
    fn header(&self, index: u64) -> Result<Header, ReadError>;

    /// Fills `out` with a sample's bytes from `offset` on, counted as `header` counts them, and waits for the bytes. If
    /// they have no checksum, checks that the file is the one that was opened, even if `out` is empty.
    fn read(&self, index: u64, header: &Header, offset: u64, out: &mut [u8]) -> Result<(), ReadError>;

    /// Reads a sample's bytes from `offset` on into the bytes `place` of `memory`, as [`read`](Self::read) does. May
    /// also write after `place`, so that a source of whole blocks needs no copy if there is room.
    fn read_within(
        &self,
        index: u64,
        header: &Header,
        offset: u64,
        memory: &mut [u8],
        place: Range<usize>,
    ) -> Result<(), ReadError> {
        self.read(index, header, offset, &mut memory[place])
    }

    /// Fills `pieces`, which is empty, with the pieces to read of a sample in pieces: the scan groups up to a fidelity,
    /// or all groups and, last, the markers. Returns the number of bytes of all pieces. Any other sample has no pieces
    /// ([`StoredForm::is_in_pieces`](pack::StoredForm::is_in_pieces)).
    fn pieces(
        &self,
        _index: u64,
        _header: &Header,
        _fidelity: Option<Fidelity>,
        _pieces: &mut Vec<Piece>,
    ) -> Result<u64, ReadError> {
        Ok(0)
    }

    /// Returns the bytes that [`header`](Self::header) reads for a sample; an empty range if it reads nothing.
    fn header_extent(&self, _index: u64) -> Range<u64> {
        0..0
    }

    /// Returns what [`header`](Self::header) returns, from the bytes of the [`header_extent`](Self::header_extent).
    /// `None` if that has to find out more.
    fn header_in(&self, _index: u64, _bytes: &[u8]) -> Option<Header> {
        None
    }

    /// Makes several reads as [`read_within`](Self::read_within) does, at the same time if the source can do that.
    ///
    /// # Errors
    ///
    /// The error of one of the reads; what was read for the others is then undefined. If the reads are made at the same
    /// time, the error may name the sample of another read.
    fn read_many(&self, reads: &mut [ExtentRead<'_>]) -> Result<(), ReadError> {
        reads.iter_mut().try_for_each(|read| {
            self.read_within(read.index, read.header, read.offset, read.memory, read.place.clone())
        })
    }

    /// Begins the reads of [`read_many`](Self::read_many). A source whose reads need no thread that waits makes them
    /// while the future is pending; any other source makes them when the future is polled for the first time.
    ///
    /// # Errors
    ///
    /// As [`read_many`](Self::read_many). The error may name no sample.
    fn start_reads<'r>(&'r self, mut reads: Vec<ExtentRead<'r>>) -> Reading<'r, ReadError> {
        Box::pin(async move { self.read_many(&mut reads) })
    }

    /// Returns the requests to a store so far; `None` if the dataset lies in no store.
    fn requests(&self) -> Option<Requests> {
        None
    }

    /// Returns what the cache did that this machine has for the dataset, if there is one.
    fn cache_use(&self) -> Option<CacheUse> {
        None
    }

    /// Returns how a run should fetch samples, if reads have latency; [`FetchDepth::NONE`] if the threads that prepare
    /// samples should read them.
    fn fetch_depth(&self) -> FetchDepth {
        FetchDepth::NONE
    }

    /// Returns whether bytes come over a network. Bytes that arrive damaged are then read again before they are judged.
    fn comes_over_network(&self) -> bool {
        false
    }

    /// Returns a whole sample of a dataset that keeps its samples in memory; the first call may read the sample and its
    /// neighbours. `None` if the caller has to read the sample.
    fn in_memory(&self, _index: u64) -> Option<Source<'_>> {
        None
    }

    /// Reads and checks all of a sample: an encoded file as a file, without anything that helps to decode a part of
    /// it. The bytes lie in `buf`, whose memory is reused and whose content means nothing to the caller.
    fn sample<'a>(&'a self, index: u64, buf: &'a mut Vec<u8>) -> Result<Source<'a>, ReadError> {
        sample_reader::whole(self, index, buf)
    }

    /// Reads a sample for packing: of a rejected sample the bytes that were kept, which [`sample`](Self::sample) does
    /// not return. Everything that a new pack would repeat is checked, including the name.
    fn stored<'a>(&'a self, index: u64, buf: &'a mut Vec<u8>) -> Result<Stored<'a>, ReadError> {
        self.sample(index, buf).map(Stored::Source)
    }

    /// Announces that these samples will be read soon, and how, so that a disk can fetch them meanwhile. This is a
    /// hint: a dataset may do nothing, and does not wait.
    fn announce(&self, _indices: &[u64], _ahead: Ahead) {}

    /// Announces that this sample is likely the next one that the calling thread reads: if it lies in memory, a half of
    /// its bytes is fetched into the core's cache meanwhile. A hint like [`announce`](Self::announce).
    fn prefetch(&self, _index: u64, _half: Half) {}

    /// Tells the dataset how much memory there is to keep what is read. A dataset that is much larger may from then on
    /// read past the page cache, which would hold little of the dataset and no longer the files of other programs.
    /// Returns whether the dataset does so. Fails if it should but cannot; the dataset then reads as before.
    fn fit_memory(&self, _available_bytes: u64) -> io::Result<bool> {
        Ok(false)
    }

    /// Checks whether the files are still those that were opened, as far as reading a sample does not check that.
    /// Prongs call this once per batch, when all its samples have been read.
    fn check(&self) -> Result<(), Unavailable> {
        Ok(())
    }

    /// Checks again after a sample has turned out to be corrupt: damage in a file that was written to meanwhile is a
    /// change of the dataset.
    fn check_damage(&self) -> Result<(), Unavailable> {
        self.check()
    }

    /// Announces that a sample is read again, because its bytes came damaged: they shall come from where they are
    /// stored, and not from a cache.
    fn read_again(&self, _index: u64) {}

    /// Fails all reads that wait for a drive, so that their threads can end.
    fn interrupt(&self) {}

    /// Returns how long reads have waited for a drive that did not answer. Does not wait itself.
    fn silences(&self) -> Silences {
        Silences::default()
    }

    /// Returns the digest by which host and drive find out whether they have the same dataset.
    fn identity(&self) -> Identity;

    /// Returns the kind of the source: `"folder"`, `"list"`, `"files"`, `"pack"`, `"cifar"` or `"tar"`; a source of
    /// another crate has a word of its own.
    fn kind(&self) -> &'static str;

    /// Returns the decoders that the samples need, as far as names and records tell. Reads no sample; samples may need
    /// other decoders too.
    fn decoders(&self) -> Decoders {
        Decoders::NONE
    }

    /// Returns how the samples lie in bundles, for an order that reads a few bundles at a time; `None` if the order in
    /// which samples lie is not known. May read no sample. Fails if the system refuses memory.
    fn bundles(&self) -> io::Result<Option<Bundles>> {
        Ok(None)
    }

    /// Returns the scan groups of samples that are stored in pieces; `None` if all samples are stored whole. A run may
    /// have the fidelity of each of these groups.
    fn scan_groups(&self) -> Option<&ScanGroups> {
        None
    }

    /// Returns the number of files of the source that are not samples: in an image folder, files outside of class
    /// folders, and files without an extension of images; in tar shards, members without a sample, and members beside a
    /// sample's image that are named as images or labels are ([`left_out_reason`]).
    fn left_out(&self) -> u64 {
        0
    }

    /// Returns the number of samples that were rejected when they were packed, as far as is known without a read.
    fn rejected(&self) -> u64 {
        0
    }

    /// Returns names of files that [`left_out`](Self::left_out) counts, at most [`LISTED_MAX`](pack::LISTED_MAX).
    fn left_out_names(&self) -> &[String] {
        &[]
    }

    /// Returns the file that a drive exports block by block. Only a pack has one.
    fn export(&self) -> Option<&PackFile> {
        None
    }

    /// Returns the blocks that a drive exports of a pack that lies in no file. Any other dataset has none.
    fn export_blocks(&self) -> Option<&dyn Blocks> {
        None
    }

    /// Returns the bytes that the dataset has read to keep samples in memory. A [`SampleReader`] counts all others.
    fn bytes_read(&self) -> BytesRead {
        BytesRead::default()
    }

    /// Returns whether samples stay in memory once they have been read.
    fn is_resident(&self) -> bool {
        false
    }
}
