//! Recognising compressed shards and batches. No source reads them: it would have to decompress all that lies before a
//! sample.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A program that compresses, the ending of its files, further endings of its tar archives, and the first bytes of its
/// files.
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
    "{} is compressed with {by}, and samples are read in place: decompress it, as by `{by} -dc FILE > NEW_FILE`, or \
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

/// Finds out by its name whether a file is a compressed tar archive. Returns the program that compressed it, and the
/// name without compression.
pub(super) fn compressed_archive(name: &OsStr) -> Option<(&'static str, String)> {
    let name = name.to_string_lossy();
    COMPRESSIONS.iter().find_map(|(by, ending, archives, _)| {
        let plain = without(&name, ending).filter(|plain| without(plain, ".tar").is_some()).map(str::to_owned);
        let short = || archives.iter().find_map(|ending| Some(format!("{}.tar", without(&name, ending)?)));
        Some((*by, plain.or_else(short)?))
    })
}

/// Finds out by its name whether a file is a compressed batch of CIFAR, as [`compressed_archive`] does.
pub(super) fn compressed_batch(name: &OsStr) -> Option<(&'static str, String)> {
    let name = name.to_string_lossy();
    COMPRESSIONS.iter().find_map(|(by, ending, ..)| {
        let plain = without(without(&name, ending)?, ".bin")?;
        (plain.starts_with("data_batch_") || plain == "train").then(|| (*by, format!("{plain}.bin")))
    })
}

/// Returns a name without its ending, in any case.
fn without<'n>(name: &'n str, ending: &str) -> Option<&'n str> {
    let at = name.len().checked_sub(ending.len())?;
    name.get(at..)?.eq_ignore_ascii_case(ending).then(|| &name[..at])
}

/// Returns the first file in a folder that is compressed according to its name and does not lie there decompressed.
pub(super) fn first_compressed(
    directory: &Path,
    by_name: fn(&OsStr) -> Option<(&'static str, String)>,
) -> io::Result<Option<CompressedFile>> {
    let mut first = None::<CompressedFile>;
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let Some((by, plain)) = by_name(&name) else { continue };
        let path = directory.join(name);
        if first.as_ref().is_none_or(|first| path < first.path) && !directory.join(plain).exists() {
            first = Some(CompressedFile { path, by });
        }
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_files_are_recognised_by_name_and_content() {
        let archive = |name: &str| compressed_archive(OsStr::new(name));
        for (name, by) in [("0.tar.gz", "gzip"), ("0.TAR.GZ", "gzip"), ("0.tar.zst", "zstd"), ("0.tar.lz4", "lz4")] {
            assert_eq!(archive(name), Some((by, name[..5].to_owned())));
        }
        assert_eq!(archive("0.tbz2"), Some(("bzip2", "0.tar".to_owned())));
        for name in ["0.tar", "tar.gz", "0.tar.idx", "0.gz", "gz", "", "é.gz"] {
            assert_eq!(archive(name), None, "{name}");
        }
        let batch = |name: &str| compressed_batch(OsStr::new(name));
        assert_eq!(batch("data_batch_2.bin.gz"), Some(("gzip", "data_batch_2.bin".to_owned())));
        assert_eq!(batch("test_batch.bin.gz"), None);
        assert_eq!(compression_of(&[0x1f, 0x8b, 8, 0]), Some("gzip"));
        assert_eq!(compression_of(b"BZ"), None);
    }
}
