//! The layout of a pack on disk: constants, sections and errors. Parsing only; nothing here reads a file.
//!
//! `docs/pack.md` describes the same in prose. All numbers are little endian.

use std::io;
use std::ops::Range;
use std::path::PathBuf;

/// First bytes of a pack.
pub const MAGIC: [u8; 8] = *b"DDLPPACK";
/// Version of the layout that is written and read.
pub const VERSION: u32 = 1;
/// Sections, the sample region and the file's length are multiples of this: a logical block of the exported namespace.
pub const BLOCK_BYTES: u64 = 4096;
/// Bytes of one index record. A block holds a whole number of them.
pub const RECORD_BYTES: usize = 64;
/// Largest number of bytes in the name of a sample.
pub const NAME_BYTES_MAX: u32 = 1 << 16;
/// Largest number of samples: 4 GiB of labels and 64 GiB of records.
pub const SAMPLES_MAX: u64 = 1 << 30;
/// Largest number of bytes in the name of a class: four times the limit of a folder's name.
pub const CLASS_NAME_BYTES_MAX: u32 = 1 << 10;
/// Bytes of a section or of padding that are read at a time; a multiple of a block.
pub const PIECE_BYTES: u64 = 1 << 20;
const _: () = assert!(PIECE_BYTES.is_multiple_of(BLOCK_BYTES));

/// Reason why a file is not a valid pack.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The file cannot be read.
    #[error("cannot read pack {}", .path.display())]
    Io {
        /// The pack.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The file does not begin with the magic bytes of a pack.
    #[error("{} is not a pack: it does not begin with {}", .path.display(), MAGIC.escape_ascii())]
    NotAPack {
        /// The file.
        path: PathBuf,
    },
    /// The pack was made by a program with another layout version.
    #[error(
        "pack {} has layout version {found}, this program reads version {VERSION}: pack the source again",
        .path.display()
    )]
    Version {
        /// The pack.
        path: PathBuf,
        /// Version in the superblock.
        found: u32,
    },
    /// The file is shorter or longer than its superblock says.
    #[error("pack {} should have {expected} bytes but has {found}: it was cut short or extended", .path.display())]
    Length {
        /// The pack.
        path: PathBuf,
        /// Bytes according to the superblock.
        expected: u64,
        /// Bytes that the file has.
        found: u64,
    },
    /// A checksum of the index is wrong.
    #[error(
        "checksum of the {part} of pack {} differs: {stored:08x} is stored, {computed:08x} computed; copy the pack \
         again, or make it anew",
        .path.display()
    )]
    Checksum {
        /// The pack.
        path: PathBuf,
        /// The part concerned.
        part: IndexPart,
        /// The CRC32C in the file.
        stored: u32,
        /// The CRC32C of the bytes.
        computed: u32,
    },
    /// The pack was made by a program that knows more forms of samples.
    #[error(
        "sample {sample} of pack {} is stored in form {form}, which this program does not know: update it, or pack the \
         source again with `jpeg=\"kept\"`",
        .path.display()
    )]
    UnknownForm {
        /// The pack.
        path: PathBuf,
        /// The sample.
        sample: u64,
        /// The code of its form.
        form: u8,
    },
    /// The checksums are right, but the contents make no sense.
    #[error("the {part} of pack {} is malformed: {problem}", .path.display())]
    Malformed {
        /// The pack.
        path: PathBuf,
        /// The part concerned.
        part: IndexPart,
        /// The problem.
        problem: String,
    },
}

/// A part of a pack beside its samples, as messages name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IndexPart {
    /// The first block.
    Superblock,
    /// The index records.
    Records,
    /// The labels.
    Labels,
    /// The names of the samples.
    Names,
    /// The names of the classes.
    Classes,
    /// The bundles of a pack whose samples are in pieces.
    Bundles,
    /// The places and checksums of pieces.
    Pieces,
    /// The positions of samples in bundles.
    Positions,
    /// A section that this program does not know, by its number.
    Unknown(u32),
}

impl IndexPart {
    /// The sections of every pack.
    pub(super) const OF_ALL: [IndexPart; 4] =
        [IndexPart::Records, IndexPart::Labels, IndexPart::Names, IndexPart::Classes];
    /// The sections of a pack whose samples are in pieces.
    pub(super) const OF_PIECES: [IndexPart; 3] = [IndexPart::Bundles, IndexPart::Pieces, IndexPart::Positions];

    pub(super) fn code(self) -> u32 {
        match self {
            IndexPart::Superblock => 0,
            IndexPart::Records => 1,
            IndexPart::Labels => 2,
            IndexPart::Names => 3,
            IndexPart::Classes => 4,
            IndexPart::Bundles => 5,
            IndexPart::Pieces => 6,
            IndexPart::Positions => 7,
            IndexPart::Unknown(code) => code,
        }
    }

    pub(super) fn from_code(code: u32) -> Self {
        let mut known = IndexPart::OF_ALL.into_iter().chain(IndexPart::OF_PIECES);
        known.find(|part| part.code() == code).unwrap_or(IndexPart::Unknown(code))
    }
}

impl std::fmt::Display for IndexPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            IndexPart::Superblock => f.write_str("superblock"),
            IndexPart::Records => f.write_str("records section"),
            IndexPart::Labels => f.write_str("labels section"),
            IndexPart::Names => f.write_str("names section"),
            IndexPart::Classes => f.write_str("classes section"),
            IndexPart::Bundles => f.write_str("bundles section"),
            IndexPart::Pieces => f.write_str("pieces section"),
            IndexPart::Positions => f.write_str("positions section"),
            IndexPart::Unknown(code) => write!(f, "section {code}"),
        }
    }
}

/// Serialises the classes section: each name preceded by its length.
pub(super) fn classes_to_bytes(classes: &[String]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for name in classes {
        bytes.extend_from_slice(&(name.len() as u32).to_le_bytes());
        bytes.extend_from_slice(name.as_bytes());
    }
    bytes
}

/// Writes the checksum of the bytes before `at` into the last four bytes, which begin at `at`.
pub(super) fn seal(bytes: &mut [u8], at: usize) {
    let (body, crc) = bytes.split_at_mut(at);
    crc.copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
}

/// Cuts an extent into pieces that are read at a time; returns offset and length of each.
pub(super) fn pieces(extent: Range<u64>) -> impl Iterator<Item = (u64, usize)> {
    let end = extent.end;
    extent.step_by(PIECE_BYTES as usize).map(move |at| (at, (end - at).min(PIECE_BYTES) as usize))
}

/// Rounds `bytes` up to whole blocks; returns `None` if the result exceeds a `u64`.
pub(super) fn round_up(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(BLOCK_BYTES)
}
