//! Recognising compressed shards and batches. No source reads them: it would have to decompress all that lies before a
//! sample.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// A program that compresses, the endings of its files and of its tar archives, and the first bytes of its files.
type Compression = (&'static str, &'static str, &'static [&'static str], &'static [u8]);

const COMPRESSIONS: [Compression; 5] = [
    ("gzip", ".gz", &[".tgz"], &[0x1f, 0x8b]),
    ("bzip2", ".bz2", &[".tbz2", ".tbz"], b"BZh"),
    ("xz", ".xz", &[".txz"], &[0xfd, b'7', b'z', b'X', b'Z', 0]),
    ("zstd", ".zst", &[".tzst"], &[0x28, 0xb5, 0x2f, 0xfd]),
    ("lz4", ".lz4", &[], &[0x04, 0x22, 0x4d, 0x18]),
];

/// A file that must not be compressed is compressed.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} is compressed with {by}, and samples are read in place: decompress it, as by `{by} -dc FILE > NEW_FILE`, and \
     move it away",
    .path.display()
)]
pub struct CompressedFile {
    /// The file.
    pub path: PathBuf,
    /// The program that compressed it.
    pub by: &'static str,
}

/// Returns the program that compressed a file with these first bytes, if the file is compressed.
pub(super) fn compression_of(head: &[u8]) -> Option<&'static str> {
    COMPRESSIONS.iter().find(|(.., magic)| head.starts_with(magic)).map(|(by, ..)| *by)
}

/// Fails if the file's name says that it is a compressed tar archive.
pub(super) fn refuse_archive(path: &Path) -> Result<(), CompressedFile> {
    refuse(path, |name, ending, archives| {
        name.strip_suffix(ending).is_some_and(|name| name.ends_with(".tar"))
            || archives.iter().any(|ending| name.ends_with(ending))
    })
}

/// Fails if the file's name says that it is a compressed batch of CIFAR.
pub(super) fn refuse_batch(path: &Path) -> Result<(), CompressedFile> {
    refuse(path, |name, ending, _| {
        let name = name.strip_suffix(ending).and_then(|name| name.strip_suffix(".bin"));
        name.is_some_and(|name| name.starts_with("data_batch_"))
    })
}

fn refuse(path: &Path, is_compressed: impl Fn(&str, &str, &[&str]) -> bool) -> Result<(), CompressedFile> {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default().to_ascii_lowercase();
    match COMPRESSIONS.iter().find(|(_, ending, archives, _)| is_compressed(&name, ending, archives)) {
        Some((by, ..)) => Err(CompressedFile { path: path.to_owned(), by }),
        None => Ok(()),
    }
}
