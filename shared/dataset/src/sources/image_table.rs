//! A table in a database that others made: each row has an encoded image.
//!
//! - Samples come in the order in which the rows are listed. Labels are as in a list of files: whole numbers are class
//!   indices, and other texts are the names of the classes, sorted byte by byte.
//! - The database says when an image was written. An image that was written after the rows were listed, and a row that
//!   is gone, make the dataset another one. A row that was listed without an image stays in the dataset: its sample is
//!   unavailable when it is read.
//! - The length of an image is known when its row has come. So bytes count from the length, a number of four bytes in
//!   front of the image, as it stands in an answer of the database. Whoever reads the length gets the image soon
//!   afterwards: until then it is kept, so that a sample costs one request.
//!
//! The identity is a digest of the images' table and column and of the rows' keys, labels and times of writing.

use super::list::labels::{Labels, Numbered};
use crate::sample::IdentityHasher;
use crate::{
    CacheUse, Dataset, ExtentRead, FetchDepth, Header, Identity, Location, OpenOptions, ReadError, Reading, Requests,
    Silences, Unavailable, wait_for,
};
use ddlp_pixels::SMALL_BYTES;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Bytes of the length in front of an image.
const LENGTH_BYTES: usize = 4;
/// Most bytes of images that are kept until they are read.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// Threads that fetch, and the samples that each asks for at the same time.
const FETCH: (usize, usize) = (4, 16);
/// Most samples in flight.
const AT_ONCE_MAX: usize = 4096;

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRow {
    /// The key by which the row is asked for.
    pub key: Vec<u8>,
    /// The label; `None` if the row has none.
    pub label: Option<String>,
    /// When the image was written; `None` if the row has no image.
    pub version: Option<i64>,
}

/// What a database has in a row now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RowImage {
    /// The image that was listed.
    Image(Vec<u8>),
    /// No image.
    #[default]
    Gone,
    /// An image that was written at another time.
    Changed,
}

/// A request for an image.
#[derive(Debug)]
pub struct RowRead<'r> {
    /// Index of the sample.
    pub index: u64,
    /// The row's key.
    pub key: &'r [u8],
    /// When the image was written that is wanted.
    pub version: i64,
    /// What the database has.
    pub image: &'r mut RowImage,
}

/// The rows of a table in a database.
pub trait TableRows: Send + Sync {
    /// Returns the URL of the table.
    fn url(&self) -> &Path;

    /// Returns the table and the column of the images as text, the same whatever the database's address.
    fn images(&self) -> &str;

    /// Returns the key of a row as text.
    fn name(&self, key: &[u8]) -> String;

    /// Begins several requests, which no thread waits for.
    ///
    /// # Errors
    ///
    /// The error of one of the requests.
    fn start_reads<'r>(&'r self, reads: Vec<RowRead<'r>>) -> Reading<'r, io::Error>;

    /// Announces that the image of a sample came damaged: the next request shall go to the database, not to a cache.
    fn read_again(&self, index: u64);

    /// Announces that the list of the rows is out of date.
    fn list_is_old(&self);

    /// Returns the requests so far.
    fn requests(&self) -> Requests;

    /// Returns what the cache did, if there is one.
    fn cache_use(&self) -> Option<CacheUse>;

    /// Fails all waiting requests.
    fn interrupt(&self);

    /// Returns how long requests have waited for an answer.
    fn silences(&self) -> Silences;
}

/// Reason why a table is not a dataset.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageTableError {
    /// The table has no rows.
    #[error("the table has no rows")]
    Empty,
    /// A label cannot be used.
    #[error("row {row}: {what}")]
    Label {
        /// The row's key.
        row: String,
        /// What is wrong, and what to do.
        what: String,
    },
}

/// A table whose rows have images.
pub struct ImageTable {
    rows: Box<dyn TableRows>,
    /// The keys, one after the other.
    keys: Vec<u8>,
    /// End of each key in `keys`.
    key_ends: Vec<u64>,
    versions: Vec<Option<i64>>,
    /// Bytes of each image, 0 until it has come.
    lengths: Vec<AtomicU32>,
    labels: Vec<u32>,
    classes: Vec<String>,
    identity: Identity,
    kept: Mutex<Kept>,
}

/// Images whose length has been read, but not yet the image.
#[derive(Default)]
struct Kept {
    images: HashMap<u64, Vec<u8>>,
    bytes: usize,
}

impl Kept {
    fn add(&mut self, index: u64, image: Vec<u8>) {
        // Nobody came for these.
        if self.bytes + image.len() > KEPT_BYTES_MAX {
            *self = Self::default();
        }
        self.bytes += image.len();
        if let Some(before) = self.images.insert(index, image) {
            self.bytes -= before.len();
        }
    }

    fn take(&mut self, index: u64) -> Option<Vec<u8>> {
        let image = self.images.remove(&index)?;
        self.bytes -= image.len();
        Some(image)
    }
}

impl ImageTable {
    /// Makes a dataset of rows. Without `has_labels`, every label is 0. Ignores the option `kind`.
    ///
    /// # Errors
    ///
    /// [`ImageTableError`] says which row is wrong. The list of the rows then counts as out of date: it is to be listed
    /// again once the row is mended.
    pub fn new(
        rows: Box<dyn TableRows>,
        listed: Vec<TableRow>,
        has_labels: bool,
        options: &OpenOptions,
    ) -> Result<Self, ImageTableError> {
        if listed.is_empty() {
            rows.list_is_old();
            return Err(ImageTableError::Empty);
        }
        let (mut keys, mut key_ends, mut versions) = (Vec::new(), Vec::new(), Vec::new());
        let mut labels = Labels::new(options);
        for (TableRow { key, label, version }, number) in listed.into_iter().zip(0..) {
            if has_labels {
                let null = || {
                    let what = "the label is null: give the row a label, or delete it".to_owned();
                    ImageTableError::Label { row: rows.name(&key), what }
                };
                let unused = options.labels_unused.then(String::new);
                labels.add(number, label.or(unused).ok_or_else(null).inspect_err(|_| rows.list_is_old())?);
            }
            keys.extend_from_slice(&key);
            key_ends.push(keys.len() as u64);
            versions.push(version);
        }
        let key = |index: u64| key_at(&keys, &key_ends, index);
        let wrong = |(number, what)| {
            rows.list_is_old();
            ImageTableError::Label { row: rows.name(key(number)), what }
        };
        let (own, named) = labels.numbered("sample").map_err(wrong)?;
        let mut hasher = IdentityHasher::new("ddlp table 1");
        hasher.field(rows.images().as_bytes());
        hasher.number(own.classes.len() as u64);
        own.classes.iter().for_each(|class| hasher.field(class.as_bytes()));
        hasher.number(versions.len() as u64);
        for (version, index) in versions.iter().zip(0..) {
            hasher.field(key(index));
            hasher.number(own.labels.get(index as usize).copied().unwrap_or(0).into());
            hasher.number(version.is_some().into());
            hasher.number(version.unwrap_or(0).cast_unsigned());
        }
        let identity = hasher.finish();
        let Numbered { labels, classes } = named.unwrap_or(own);
        let lengths = versions.iter().map(|_| AtomicU32::new(0)).collect();
        Ok(Self { rows, keys, key_ends, versions, lengths, labels, classes, identity, kept: Mutex::default() })
    }

    fn key(&self, index: u64) -> &[u8] {
        key_at(&self.keys, &self.key_ends, index)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("no panic while the images are locked")
    }

    /// Makes reads. An image whose length has just been read is there; the others are asked for at the same time.
    async fn read_all(&self, reads: Vec<ExtentRead<'_>>) -> Result<(), ReadError> {
        let mut asked = Vec::new();
        for mut read in reads {
            let kept = if read.offset == 0 { None } else { self.kept().take(read.index) };
            match kept {
                Some(image) => self.give(&mut read, image)?,
                None => asked.push(read),
            }
        }
        let Some(first) = asked.first().map(|read| read.index) else { return Ok(()) };
        let mut images = vec![RowImage::default(); asked.len()];
        let mut requests = Vec::with_capacity(asked.len());
        for (&ExtentRead { index, .. }, image) in asked.iter().zip(&mut images) {
            let version = self.version(index)?;
            requests.push(RowRead { index, key: self.key(index), version, image });
        }
        let unread = |source| ReadError::of_sample(self.name(first), self.location(first), source);
        self.rows.start_reads(requests).await.map_err(unread)?;
        for (mut read, image) in asked.into_iter().zip(images) {
            match image {
                RowImage::Image(image) => self.give(&mut read, image)?,
                RowImage::Gone => return Err(self.changed(read.index, "has no image any more")),
                RowImage::Changed => return Err(self.changed(read.index, "has been written again")),
            }
        }
        Ok(())
    }

    /// Returns the time at which a sample's image was written. Fails if the row was listed without an image.
    fn version(&self, index: u64) -> Result<i64, ReadError> {
        let samples = self.len();
        if index >= samples {
            return Err(Unavailable::OutOfRange { index, samples }.into());
        }
        let none = || {
            self.rows.list_is_old();
            Unavailable::NoImage { name: self.name(index), table: self.rows.url().to_owned() }
        };
        Ok(self.versions[index as usize].ok_or_else(none)?)
    }

    /// Fills the memory of a read. Keeps the image if more of it is to be read. A large image is not kept, since there
    /// may be no memory for many: it is asked for again.
    fn give(&self, read: &mut ExtentRead<'_>, image: Vec<u8>) -> Result<(), ReadError> {
        let &mut ExtentRead { index, offset, ref place, .. } = read;
        let length = u32::try_from(image.len()).expect("an answer is shorter");
        self.lengths[index as usize].store(length, Ordering::Relaxed);
        let (end, whole) = (offset + place.len() as u64, LENGTH_BYTES as u64 + image.len() as u64);
        if end > whole || (offset > 0 && read.header.bytes.end != whole) {
            return Err(self.changed(index, "has an image of another length now"));
        }
        fill(offset, &mut read.memory[place.clone()], &image);
        if end < whole && whole <= SMALL_BYTES {
            self.kept().add(index, image);
        }
        Ok(())
    }

    /// Returns the error for a row that is not as it was listed.
    #[cold]
    fn changed(&self, index: u64, change: &str) -> ReadError {
        self.rows.list_is_old();
        let change = format!(
            "row {} {change}: start again, so that the rows are listed again (if \
                              that does not help, name another folder for the cache)",
            self.name(index)
        );
        Unavailable::Changed { kind: "table", file: self.rows.url().to_owned(), change }.into()
    }
}

fn key_at<'k>(keys: &'k [u8], ends: &[u64], index: u64) -> &'k [u8] {
    let index = index as usize;
    let start = if index == 0 { 0 } else { ends[index - 1] };
    &keys[start as usize..ends[index] as usize]
}

/// Fills `out` with the length of an image and the image, from `offset` on.
fn fill(offset: u64, out: &mut [u8], image: &[u8]) {
    let length = (image.len() as u32).to_be_bytes();
    let of_length = length.get(offset as usize..).unwrap_or_default();
    let (first, rest) = out.split_at_mut(of_length.len().min(out.len()));
    first.copy_from_slice(&of_length[..first.len()]);
    let start = (offset as usize).saturating_sub(LENGTH_BYTES);
    rest.copy_from_slice(&image[start..start + rest.len()]);
}

impl Dataset for ImageTable {
    fn len(&self) -> u64 {
        self.versions.len() as u64
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn label(&self, index: u64) -> u32 {
        assert!(index < self.len(), "sample {index} of {}", self.len());
        self.labels.get(index as usize).copied().unwrap_or(0)
    }

    fn name(&self, index: u64) -> String {
        self.rows.name(self.key(index))
    }

    fn location(&self, index: u64) -> Location {
        let length = self.lengths[index as usize].load(Ordering::Relaxed);
        Location { file: self.rows.url().to_owned(), offset: 0, length: length.into() }
    }

    fn header(&self, index: u64) -> Result<Header, ReadError> {
        self.version(index)?;
        let (mut length, extent) = ([0; LENGTH_BYTES], self.header_extent(index));
        self.read(index, &Header::file(extent), 0, &mut length)?;
        Ok(header_of(length))
    }

    fn header_extent(&self, _: u64) -> Range<u64> {
        0..LENGTH_BYTES as u64
    }

    fn header_in(&self, _: u64, bytes: &[u8]) -> Option<Header> {
        bytes.try_into().ok().map(header_of)
    }

    fn read(&self, index: u64, header: &Header, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        let place = 0..out.len();
        wait_for(self.read_all(vec![ExtentRead { index, header, offset, memory: out, place }]))
    }

    fn read_many(&self, reads: &mut [ExtentRead<'_>]) -> Result<(), ReadError> {
        let again = reads.iter_mut().map(|&mut ExtentRead { index, header, offset, ref mut memory, ref place }| {
            ExtentRead { index, header, offset, memory, place: place.clone() }
        });
        wait_for(self.read_all(again.collect()))
    }

    fn start_reads<'r>(&'r self, reads: Vec<ExtentRead<'r>>) -> Reading<'r, ReadError> {
        Box::pin(self.read_all(reads))
    }

    fn requests(&self) -> Option<Requests> {
        Some(self.rows.requests())
    }

    fn cache_use(&self) -> Option<CacheUse> {
        self.rows.cache_use()
    }

    fn fetch_depth(&self) -> FetchDepth {
        let (threads, samples) = FETCH;
        FetchDepth { threads, samples, join_gap: None, at_once: Some(AT_ONCE_MAX) }
    }

    fn comes_over_network(&self) -> bool {
        true
    }

    fn read_again(&self, index: u64) {
        self.kept().take(index);
        self.rows.read_again(index);
    }

    fn interrupt(&self) {
        self.rows.interrupt();
    }

    fn silences(&self) -> Silences {
        self.rows.silences()
    }

    fn identity(&self) -> Identity {
        self.identity
    }

    fn kind(&self) -> &'static str {
        "table"
    }
}

fn header_of(length: [u8; LENGTH_BYTES]) -> Header {
    let start = LENGTH_BYTES as u64;
    Header::file(start..start + u64::from(u32::from_be_bytes(length)))
}

#[cfg(test)]
mod tests;
