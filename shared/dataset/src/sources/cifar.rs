//! CIFAR's binary files: records of one or two label bytes and 3072 bytes of pixels, 32 × 32 in three planes.
//!
//! - A folder of CIFAR-10 holds `data_batch_1.bin` and so on: the training set, read in the order of the numbers.
//!   Class names come from `batches.meta.txt` if it exists. A folder of CIFAR-100 holds `train.bin`; the labels are
//!   its fine labels, with names from `fine_label_names.txt`.
//! - A single `.bin` file may be any of the batches, so `test_batch.bin` is opened by its own name.
//!
//! The files carry no checksum. Opening reads them once, for the labels and the identity, which is a digest of all
//! content. A file that is written to afterwards is refused.

use crate::extent::{is_file, read_extent};
use crate::forms::StoredForm;
use crate::held::HeldFile;
use crate::sample::IdentityHasher;
use crate::sources::class_list::{ClassListError, read_class_list};
use crate::sources::compressed::{CompressedFile, compressed_batch, first_compressed};
use crate::stamp::Stamp;
use crate::{Dataset, Decoders, Header, Identity, Location, ReadError, Unavailable};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

const SIDE: u32 = 32;
const PIXEL_BYTES: usize = 3 * (SIDE * SIDE) as usize;
/// Largest number of batch files in a folder.
pub const BATCHES_MAX: usize = 64;
/// Records that are read at a time when opening.
const RECORDS_AT_ONCE: usize = 256;

/// Reason why files are not CIFAR's.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CifarError {
    /// A file or folder cannot be read.
    #[error("cannot read {}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The folder holds no training batches.
    #[error(
        "{} holds neither data_batch_*.bin (CIFAR-10) nor train.bin (CIFAR-100); name a test batch by its file",
        .path.display()
    )]
    NoBatches {
        /// The folder.
        path: PathBuf,
    },
    /// A batch is compressed.
    #[error(transparent)]
    Compressed(#[from] CompressedFile),
    /// The folder holds more than [`BATCHES_MAX`] batches.
    #[error("{} holds {count} batches, more than the limit of {BATCHES_MAX}", .path.display())]
    TooManyBatches {
        /// The folder.
        path: PathBuf,
        /// Number of batches.
        count: usize,
    },
    /// The length is not a whole number of records.
    #[error(
        "{} has {bytes} bytes, which is not a positive multiple of {record} ({variant}): it was cut short, or is \
         something else",
        .path.display()
    )]
    Length {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
        /// Bytes of a record.
        record: u64,
        /// Variant of CIFAR that the file was taken for.
        variant: Variant,
    },
    /// A label is beyond the classes.
    #[error(
        "record {record} of {} has label {label}, and {variant} has {} classes",
        .path.display(), .variant.classes()
    )]
    Label {
        /// The file.
        path: PathBuf,
        /// The record.
        record: u64,
        /// Its label.
        label: u8,
        /// Variant of CIFAR that the file was taken for.
        variant: Variant,
    },
    /// The list of class names cannot be used.
    #[error(transparent)]
    Classes(#[from] ClassListError),
    /// The number of class names does not fit the variant.
    #[error("{} names {count} classes, and {variant} has {}", .path.display(), .variant.classes())]
    ClassNames {
        /// The file.
        path: PathBuf,
        /// Number of names.
        count: usize,
        /// Variant of CIFAR that the folder was taken for.
        variant: Variant,
    },
}

/// Variant of CIFAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Ten classes, one label byte.
    Cifar10,
    /// A hundred classes, a coarse and a fine label byte.
    Cifar100,
}

impl Variant {
    /// Returns the number of classes.
    pub fn classes(self) -> usize {
        match self {
            Variant::Cifar10 => 10,
            Variant::Cifar100 => 100,
        }
    }

    fn label_bytes(self) -> usize {
        match self {
            Variant::Cifar10 => 1,
            Variant::Cifar100 => 2,
        }
    }

    fn record_bytes(self) -> usize {
        self.label_bytes() + PIXEL_BYTES
    }

    fn names_file(self) -> &'static str {
        match self {
            Variant::Cifar10 => "batches.meta.txt",
            Variant::Cifar100 => "fine_label_names.txt",
        }
    }
}

impl std::fmt::Display for Variant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Variant::Cifar10 => "CIFAR-10",
            Variant::Cifar100 => "CIFAR-100",
        })
    }
}

/// CIFAR's binary files.
pub struct Cifar {
    variant: Variant,
    batches: Vec<BatchFile>,
    classes: Vec<String>,
    labels: Vec<u8>,
    identity: Identity,
}

struct BatchFile {
    file: HeldFile,
    /// Index of the first sample after this batch.
    end: u64,
}

impl BatchFile {
    /// Checks that the file is unchanged since it was opened.
    fn check(&self) -> Result<(), Unavailable> {
        let path = self.file.path();
        let now = self.file.stamp_now();
        let now = now.map_err(|source| Unavailable::Io {
            what: format!("file {}", path.display()),
            path: path.to_owned(),
            source,
        })?;
        if now.is_of(&self.file.stamp()) {
            return Ok(());
        }
        Err(Unavailable::Changed { kind: "file", file: path.to_owned(), change: self.file.stamp().change(&now) })
    }
}

impl Cifar {
    /// Returns whether a folder holds training batches.
    pub fn recognizes(directory: &Path) -> bool {
        let holds = |variant| !matches!(Self::first_in(directory, variant), Ok(None));
        directory.is_dir() && (holds(Variant::Cifar10) || holds(Variant::Cifar100))
    }

    /// Returns the first training batch of a variant in a folder, if it holds one. Fails if one is out of reach, such
    /// as a link that leads nowhere.
    pub(super) fn first_in(directory: &Path, variant: Variant) -> io::Result<Option<PathBuf>> {
        match variant {
            Variant::Cifar10 => Ok(numbered_batches(directory)?.into_iter().next()),
            Variant::Cifar100 => {
                let train = directory.join("train.bin");
                Ok((train.symlink_metadata().is_ok() && is_file(&train)?).then_some(train))
            }
        }
    }

    /// Opens a folder or a single batch.
    pub fn open(path: &Path) -> Result<Self, CifarError> {
        let (variant, files) =
            if path.is_dir() { training_set(path)? } else { (variant_of(path)?, vec![path.to_owned()]) };
        let directory = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new("")) };
        let classes = class_names(directory, variant)?;
        let mut hasher = IdentityHasher::new("ddlp cifar 1");
        hasher.number(variant.classes() as u64);
        let (mut batches, mut labels) = (Vec::new(), Vec::new());
        for path in files {
            let failed = |source| CifarError::Io { path: path.clone(), source };
            let file = File::open(&path).map_err(failed)?;
            let stamp = Stamp::of(&file).map_err(failed)?;
            let bytes = stamp.bytes;
            let record = variant.record_bytes() as u64;
            if bytes == 0 || bytes % record != 0 {
                return Err(CifarError::Length { path, bytes, record, variant });
            }
            scan(&path, &file, bytes / record, variant, &mut labels, &mut hasher)?;
            batches.push(BatchFile { file: HeldFile::new(file, path, stamp), end: labels.len() as u64 });
        }
        Ok(Self { variant, batches, classes, labels, identity: hasher.finish() })
    }

    /// Returns the batch that holds a sample, and the number of its record there.
    fn batch(&self, index: u64) -> (&BatchFile, u64) {
        assert!(index < self.len(), "sample {index} of {}", self.len());
        let position = self.batches.partition_point(|batch| batch.end <= index);
        let start = if position == 0 { 0 } else { self.batches[position - 1].end };
        (&self.batches[position], index - start)
    }

    fn offset(&self, record: u64) -> u64 {
        record * self.variant.record_bytes() as u64 + self.variant.label_bytes() as u64
    }
}

impl Dataset for Cifar {
    fn len(&self) -> u64 {
        self.labels.len() as u64
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn label(&self, index: u64) -> u32 {
        self.labels[index as usize].into()
    }

    fn name(&self, index: u64) -> String {
        let (batch, record) = self.batch(index);
        format!("{}#{record}", batch.file.path().file_name().unwrap_or_default().display())
    }

    fn location(&self, index: u64) -> Location {
        let (batch, record) = self.batch(index);
        Location { file: batch.file.path().to_owned(), offset: self.offset(record), length: PIXEL_BYTES as u64 }
    }

    fn header(&self, index: u64) -> Result<Header, ReadError> {
        let samples = self.len();
        if index >= samples {
            return Err(Unavailable::OutOfRange { index, samples }.into());
        }
        let offset = self.offset(self.batch(index).1);
        Ok(Header::planar((SIDE, SIDE), offset..offset + PIXEL_BYTES as u64))
    }

    fn read(&self, index: u64, _: &Header, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        let batch = self.batch(index).0;
        batch.file.read_exact(offset, out).map_err(|source| match batch.check() {
            Err(unavailable) => unavailable.into(),
            Ok(()) => ReadError::of_sample(self.name(index), self.location(index), source),
        })
    }

    /// Checks that no file was written to, since pixels have no checksum.
    fn check(&self) -> Result<(), Unavailable> {
        self.batches.iter().try_for_each(BatchFile::check)
    }

    fn identity(&self) -> Identity {
        self.identity
    }

    fn decoders(&self) -> Decoders {
        StoredForm::Planar.decoder().into_iter().collect()
    }

    fn kind(&self) -> &'static str {
        "cifar"
    }
}

/// Reads a batch once: its labels, and its content for the identity.
fn scan(
    path: &Path,
    file: &File,
    records: u64,
    variant: Variant,
    labels: &mut Vec<u8>,
    hasher: &mut IdentityHasher,
) -> Result<(), CifarError> {
    let mut piece = Vec::new();
    let mut record = 0;
    while record < records {
        let count = (records - record).min(RECORDS_AT_ONCE as u64);
        let bytes = count as usize * variant.record_bytes();
        read_extent(file, record * variant.record_bytes() as u64, bytes, &mut piece)
            .map_err(|source| CifarError::Io { path: path.to_owned(), source })?;
        hasher.field(&piece);
        for (number, bytes) in (record..).zip(piece.chunks_exact(variant.record_bytes())) {
            let label = bytes[variant.label_bytes() - 1];
            if usize::from(label) >= variant.classes() {
                return Err(CifarError::Label { path: path.to_owned(), record: number, label, variant });
            }
            labels.push(label);
        }
        record += count;
    }
    Ok(())
}

fn training_set(directory: &Path) -> Result<(Variant, Vec<PathBuf>), CifarError> {
    let failed = |source| CifarError::Io { path: directory.to_owned(), source };
    if let Some(compressed) = first_compressed(directory, compressed_batch).map_err(failed)? {
        return Err(compressed.into());
    }
    let batches = numbered_batches(directory).map_err(failed)?;
    if batches.len() > BATCHES_MAX {
        return Err(CifarError::TooManyBatches { path: directory.to_owned(), count: batches.len() });
    }
    if !batches.is_empty() {
        return Ok((Variant::Cifar10, batches));
    }
    match Cifar::first_in(directory, Variant::Cifar100).map_err(failed)? {
        Some(train) => Ok((Variant::Cifar100, vec![train])),
        None => Err(CifarError::NoBatches { path: directory.to_owned() }),
    }
}

/// Lists `data_batch_*.bin` by number.
fn numbered_batches(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found: Vec<(u32, PathBuf)> = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let number =
            name.to_str().and_then(|name| name.strip_prefix("data_batch_")?.strip_suffix(".bin")?.parse().ok());
        let path = entry.path();
        if let Some(number) = number
            && is_file(&path)?
        {
            found.push((number, path));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// Returns the variant of a single file: by its length, and if both lengths fit, by the files beside it.
fn variant_of(path: &Path) -> Result<Variant, CifarError> {
    let bytes = fs::metadata(path).map_err(|source| CifarError::Io { path: path.to_owned(), source })?.len();
    let fits = |variant: Variant| bytes % variant.record_bytes() as u64 == 0;
    let beside = path.with_file_name(Variant::Cifar100.names_file()).is_file();
    let hundred = fits(Variant::Cifar100) && (beside || !fits(Variant::Cifar10));
    Ok(if hundred { Variant::Cifar100 } else { Variant::Cifar10 })
}

/// Returns the class names from the list beside the batches, or numbers if there is no list.
fn class_names(directory: &Path, variant: Variant) -> Result<Vec<String>, CifarError> {
    let path = directory.join(variant.names_file());
    if !path.is_file() {
        return Ok((0..variant.classes()).map(|class| class.to_string()).collect());
    }
    let names = read_class_list(&path)?;
    match names.len() {
        count if count == variant.classes() => Ok(names),
        count => Err(CifarError::ClassNames { path, count, variant }),
    }
}

#[cfg(test)]
mod tests;
