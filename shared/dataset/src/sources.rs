//! The sources, and how a path is recognised as one of them.

pub mod cifar;
mod compressed;
mod files;
pub mod folder;
mod left_out;
pub mod list;
pub mod mix;
pub mod shards;

use crate::Dataset;
use crate::pack::{FormatError, Pack};
use cifar::{Cifar, CifarError};
use folder::{Folder, FolderError};
use list::{List, ListError};
use mix::{Mix, MixError};
use shards::{ShardError, Shards};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

pub use compressed::CompressedFile;
pub use left_out::left_out_reason;

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
///   alone.
pub fn open(path: &Path) -> Result<Box<dyn Dataset>, OpenError> {
    let failed = |source| OpenError::Io { path: path.to_owned(), source };
    let status = fs::metadata(path).map_err(failed)?;
    if status.is_dir() {
        return open_directory(path);
    }
    if !status.is_file() {
        return Err(OpenError::Unrecognized { path: path.to_owned(), hint: "it is neither a file nor a folder" });
    }
    let mut head = Vec::new();
    File::open(path).and_then(|file| file.take(8).read_to_end(&mut head)).map_err(failed)?;
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    match extension {
        _ if head == crate::pack::MAGIC => Ok(Box::new(Pack::open(path)?)),
        "ddlp" => Ok(Box::new(Pack::open(path)?)),
        "tar" => Ok(Box::new(Shards::open(path)?)),
        "csv" => Ok(Box::new(List::open(path)?)),
        "bin" => Ok(Box::new(Cifar::open(path)?)),
        "toml" => Ok(Box::new(Mix::open(path)?)),
        _ => Err(OpenError::Unrecognized {
            path: path.to_owned(),
            hint: "a dataset is a pack (.ddlp), an image folder, CIFAR's .bin files, .tar shards, a list of files \
                   (.csv) or a mix of datasets (.toml)",
        }),
    }
}

fn open_directory(path: &Path) -> Result<Box<dyn Dataset>, OpenError> {
    if Cifar::recognizes(path) {
        return Ok(Box::new(Cifar::open(path)?));
    }
    if Shards::recognizes(path) {
        return Ok(Box::new(Shards::open(path)?));
    }
    if path.join("data_batch_1").is_file() {
        let hint = "it holds CIFAR's Python pickles; use the binary version (data_batch_1.bin)";
        return Err(OpenError::Unrecognized { path: path.to_owned(), hint });
    }
    Ok(Box::new(Folder::open(path)?))
}
