//! The pack: a dataset in one file, which a drive exports and which host and drive both read.
//!
//! - [`pack`](pack()) makes one from any [`Dataset`](crate::Dataset): it decodes each encoded sample once, as a whole,
//!   and stores the verdict in the index.
//! - [`join`](join()) makes the index of a pack whose samples several machines have packed, each a part.
//! - [`Pack`] reads samples from a file, or from [`Blocks`] that lie elsewhere; [`PackFile`] is a pack's file as
//!   blocks. [`ValueMap`] tells which sample's bytes lie at a place of a pack.
//! - [`verify`](verify()) checks every byte, [`verify_sample`] the bytes of one sample; [`Survey`] counts what the
//!   index lists.
//!
//! `docs/pack.md` describes the layout. The layout has room for further forms of samples and further sections: a reader
//! refuses an unknown section that is marked as required, and skips any other unknown section.

mod aside;
mod broken;
mod bundles;
mod bundling;
mod chunks;
mod contents;
mod dealt;
mod direct;
mod file;
mod format;
mod index;
mod joined;
mod names;
mod options;
mod plan;
mod read_ahead;
mod reader;
mod record;
mod records;
mod report;
mod sections;
mod space;
mod staging;
mod store;
pub(crate) mod storing;
mod superblock;
mod survey;
mod values;
mod verification;
mod writer;

pub use crate::forms::{PackOption, StoredForm};
pub use aside::{Packed, pack_aside};
pub use broken::Broken;
pub use file::PackFile;
pub use format::{BLOCK_BYTES, FormatError, IndexPart, MAGIC};
pub use joined::{JoinError, Joined, PartIndex, join, pack_of_index, pack_of_part};
pub use options::{BUNDLE_SAMPLES, ENCODED, PackFormat, PackOptionError, PackOptions};
pub use reader::Pack;
pub use record::{IndexRecord, StoredVerdict};
pub use report::{
    FormTally, LISTED_MAX, PackError, PackProgress, PackSummary, Phase, RejectedSample, RepairedSample, Tally, WhyKept,
};
pub use store::{Blocks, BlocksError, BlocksRead};
pub use superblock::{PackLayout, Section};
pub use survey::{Survey, VerdictEntry};
pub use values::{ValueMap, ValuePart};
pub use verification::{VerifyError, VerifyProgress, VerifyReport, verify, verify_blocks, verify_sample};
pub use writer::pack;

#[cfg(test)]
mod tests;
