//! The sources, and how a path is recognised as one of them.
//!
//! # To add a source
//!
//! 1. Write `shared/dataset/src/sources/NAME.rs`: a type with its `Dataset`. It knows the samples' names, labels and
//!    places, and its identity. `header` says what is known of a sample before a read: `Header::file` for an encoded
//!    file, `Header::planar` for planes, or any other form with its checksums. `read` reads a range of a sample's
//!    bytes; it tells unavailable from corrupt, and a changed file from the one that was opened. Everything else is
//!    common to all sources (`sample_reader.rs`, the forms): what to read for a crop, checksums, damage, decoding. A
//!    source that is no path is opened elsewhere: a drive's blocks by `host/loader/src/opening.rs`, Python's objects
//!    and tables in `python/src`.
//! 2. Add the module to `sources.rs`, and there also how the source is recognised, with its error.
//! 3. Add the source to `tests/steady_state.rs` and `tests/suite/detection.rs` of the crate.
//! 4. Name the source where help and docs list the kinds of datasets: `git grep -n 'tar shards'` finds the sentences.
//!
//! No other code changes: the list of files came as `sources/list.rs`, and 9 lines in `sources.rs`.

pub mod cifar;
mod class_list;
mod compressed;
mod files;
pub mod folder;
pub mod image_table;
mod left_out;
pub mod list;
pub mod mix;
mod options;
pub mod shards;

use crate::Dataset;
use crate::pack::{FormatError, Pack};
use cifar::{Cifar, CifarError, Variant};
pub use class_list::{ClassListError, read_class_list};
pub use compressed::CompressedFile;
use compressed::{compressed_archive, compressed_batch, first_compressed};
use folder::{Folder, FolderError};
pub use left_out::left_out_reason;
use list::{List, ListError};
use mix::{Mix, MixError};
pub use options::{Kind, OpenOptions, TableOptions};
use shards::{ShardError, Shards};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Reason why a path could not be opened as a dataset.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The path cannot be examined.
    #[error("cannot open dataset {}", .path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The path is of no known kind.
    #[error("{} is not a dataset: {hint}", .path.display())]
    Unrecognized {
        /// The path.
        path: PathBuf,
        /// What would be a dataset.
        hint: &'static str,
    },
    /// The folder could be datasets of two kinds.
    #[error(
        "{} could be {}, because of {}, or {}, because of {}: move one of the two out of the folder{}",
        .path.display(), .kinds[0], .files[0].display(), .kinds[1], .files[1].display(), choice_in_words(*.choice)
    )]
    TwoKinds {
        /// The folder.
        path: PathBuf,
        /// The kinds.
        kinds: [&'static str; 2],
        /// A file of each kind.
        files: [PathBuf; 2],
        /// Values of the option `kind` for the two, if these differ.
        choice: Option<[Kind; 2]>,
    },
    /// A file in place of a shard or batch is compressed.
    #[error(transparent)]
    Compressed(#[from] CompressedFile),
    /// The path looks like an image folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The path looks like CIFAR's binary files.
    #[error(transparent)]
    Cifar(#[from] CifarError),
    /// The path looks like a list of files.
    #[error(transparent)]
    List(#[from] ListError),
    /// The path looks like a mix of datasets.
    #[error(transparent)]
    Mix(#[from] MixError),
    /// The path looks like tar shards.
    #[error(transparent)]
    Shards(#[from] ShardError),
    /// The path looks like a pack.
    #[error(transparent)]
    Pack(#[from] FormatError),
}

/// Opens a dataset of any kind. The kind is recognised as follows:
///
/// - A file: a pack by its first bytes or the extension `.ddlp`, a tar shard by `.tar`, a CIFAR batch by `.bin`,
///   a list of files by `.csv`, a mix of datasets by `.toml`.
/// - A folder: CIFAR if it holds `data_batch_*.bin` (CIFAR-10) or `train.bin` (CIFAR-100), and then only the training
///   files are read; tar shards if it holds `*.tar`; otherwise an image folder, which holds class folders, or images
///   alone. A folder of two kinds is an error.
///
/// # Errors
///
/// [`OpenError`] says why the path is not a dataset, or what is wrong with it.
pub fn open(path: &Path) -> Result<Box<dyn Dataset>, OpenError> {
    open_with(path, &OpenOptions::default())
}

/// Opens a dataset as [`open`] does, with these options.
///
/// # Errors
///
/// As [`open`].
pub fn open_with(path: &Path, options: &OpenOptions) -> Result<Box<dyn Dataset>, OpenError> {
    let failed = |source| OpenError::Io { path: path.to_owned(), source };
    let status = fs::metadata(path).map_err(failed)?;
    let kind = match options.kind {
        Some(kind) => kind,
        None if status.is_dir() => kind_of_directory(path)?,
        None if status.is_file() => kind_of_file(path)?,
        None => {
            return Err(OpenError::Unrecognized { path: path.to_owned(), hint: "it is neither a file nor a folder" });
        }
    };
    Ok(match kind {
        Kind::Pack => Box::new(Pack::open(path)?),
        Kind::Tar => Box::new(Shards::open(path)?),
        Kind::List => Box::new(List::open_with(path, options)?),
        Kind::Mix => Box::new(Mix::open_with(path, options)?),
        Kind::Cifar => {
            if status.is_dir() {
                refuse_two_kinds(path, &cifar_in(path)?)?;
            }
            Box::new(Cifar::open(path)?)
        }
        Kind::Folder => match Folder::open(path) {
            Err(error @ FolderError::NoSamples { .. }) => {
                return Err(compressed_in(path)?.map_or(error.into(), Into::into));
            }
            opened => Box::new(opened?),
        },
    })
}

fn kind_of_file(path: &Path) -> Result<Kind, OpenError> {
    let failed = |source| OpenError::Io { path: path.to_owned(), source };
    let mut head = Vec::new();
    File::open(path).and_then(|file| file.take(8).read_to_end(&mut head)).map_err(failed)?;
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    Ok(match extension {
        _ if head == crate::pack::MAGIC => Kind::Pack,
        "ddlp" => Kind::Pack,
        _ if shards::is_shard_name(path) => Kind::Tar,
        "csv" => Kind::List,
        "bin" => Kind::Cifar,
        "toml" => Kind::Mix,
        _ => {
            return Err(match path.file_name().and_then(|name| compressed_archive(name).or(compressed_batch(name))) {
                Some((by, _)) => CompressedFile { path: path.to_owned(), by }.into(),
                None => OpenError::Unrecognized {
                    path: path.to_owned(),
                    hint: "a dataset is a pack (.ddlp), an image folder, CIFAR's .bin files, .tar shards, a list of \
                           files (.csv) or a mix of datasets (.toml)",
                },
            });
        }
    })
}

/// Returns the kind of a folder. Only looks for images if there are files of another kind. Fewer images than such files
/// are no dataset: pictures may explain one.
fn kind_of_directory(path: &Path) -> Result<Kind, OpenError> {
    let mut found = cifar_in(path)?;
    let shard = Shards::first_in(path).map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
    found.extend(shard.map(|file| Found { kind: Kind::Tar, words: "tar shards", file }));
    if found.len() == 1 {
        let is_other = |name: &Path| name.extension().is_some_and(|end| end == "bin" || shards::is_shard_name(name));
        let names = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
        let others = names.filter(|name| is_other(name)).count();
        let image = Folder::image_among(path, others);
        found.extend(image.map(|file| Found { kind: Kind::Folder, words: "an image folder", file }));
    }
    refuse_two_kinds(path, &found)?;
    match found.first() {
        Some(found) => Ok(found.kind),
        None if path.join("data_batch_1").is_file() => {
            let hint = "it holds CIFAR's Python pickles; use the binary version (data_batch_1.bin)";
            Err(OpenError::Unrecognized { path: path.to_owned(), hint })
        }
        None => Ok(Kind::Folder),
    }
}

/// A dataset that a folder could be.
struct Found {
    kind: Kind,
    /// The dataset in words.
    words: &'static str,
    /// A file that is part of it.
    file: PathBuf,
}

/// Returns the datasets of CIFAR that a folder could be.
fn cifar_in(path: &Path) -> Result<Vec<Found>, OpenError> {
    let of = |(variant, words)| {
        let file = Cifar::first_in(path, variant).transpose()?;
        Some(file.map(|file| Found { kind: Kind::Cifar, words, file }))
    };
    let found = [(Variant::Cifar10, "CIFAR-10"), (Variant::Cifar100, "CIFAR-100")].into_iter().filter_map(of);
    found.collect::<io::Result<_>>().map_err(|source| OpenError::Io { path: path.to_owned(), source })
}

/// Refuses a folder that could be two datasets.
fn refuse_two_kinds(path: &Path, found: &[Found]) -> Result<(), OpenError> {
    let [first, other, ..] = found else { return Ok(()) };
    Err(OpenError::TwoKinds {
        path: path.to_owned(),
        kinds: [first.words, other.words],
        files: [first.file.clone(), other.file.clone()],
        choice: (first.kind != other.kind).then_some([first.kind, other.kind]),
    })
}

fn choice_in_words(choice: Option<[Kind; 2]>) -> String {
    choice.map_or(String::new(), |[first, other]| format!(", or say by `kind` which one it is ({first} or {other})"))
}

/// Returns a compressed shard or batch in a folder, if it holds one.
fn compressed_in(path: &Path) -> Result<Option<CompressedFile>, OpenError> {
    let found = first_compressed(path, |name| compressed_archive(name).or(compressed_batch(name)));
    found.map_err(|source| OpenError::Io { path: path.to_owned(), source })
}
