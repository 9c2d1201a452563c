//! A pack that several machines make. Each packs a part of the samples ([`PackOptions::part`]), and the index of the
//! whole pack is made of the indices of the parts. The bytes of the samples stay where they are.
//!
//! The whole is the pack that one machine would make of all samples, in the order of their ids: it has the same
//! identity, however the samples were divided.
//!
//! [`PackOptions::part`]: super::PackOptions::part

use super::format::{BLOCK_BYTES, FormatError, classes_to_bytes};
use super::plan::PackPlan;
use super::reader::Pack;
use super::record::{IndexRecord, StoredVerdict};
use super::sections::pack_identity;
use super::store::Blocks;
use super::superblock::{PackLayout, Section};
use crate::forms::StoredForm;
use crate::{Dataset, Identity, ReadError};
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// What the whole needs of a part.
#[derive(Clone, Debug)]
pub struct PartIndex {
    /// The part's bytes in front of its sample region.
    pub index: Vec<u8>,
    /// A number for each sample of the part, in its order. The whole has the samples of all parts in the order of these
    /// numbers.
    pub ids: Vec<u64>,
}

/// The index of the whole pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The whole pack's bytes in front of its sample region.
    pub index: Vec<u8>,
    /// For each part, the indices that its samples have in the whole, in the part's order.
    pub numbers: Vec<Vec<u64>>,
}

/// Reason why parts do not make a pack.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// There is no part.
    #[error("there are no samples")]
    Empty,
    /// What should be the index of a part, or of the whole, is not.
    #[error("the index of a part cannot be read")]
    Index(#[from] FormatError),
    /// A record of a part cannot be read.
    #[error("the index of a part cannot be read")]
    Record(#[from] ReadError),
    /// A part has another number of samples than it has ids.
    #[error("a part has {samples} samples, but {ids} ids")]
    Count {
        /// Number of samples.
        samples: u64,
        /// Number of ids.
        ids: usize,
    },
    /// Two samples have the same id.
    #[error("two samples have the id {id}: give each sample an id of its own")]
    Twice {
        /// The id.
        id: u64,
    },
    /// A part is not one of the source that is packed.
    #[error(
        "the source changed while it was packed, or a machine has another copy: the samples from {first} on are of a \
         source with the identity {found}, and all are to be of one with {expected}. See that every machine has the \
         same files under this name, add and remove none until the end, and begin again"
    )]
    Source {
        /// Id of the part's first sample.
        first: u64,
        /// Identity of the part's source.
        found: Identity,
        /// Identity of the source that is packed.
        expected: Identity,
    },
    /// Parts have different classes.
    #[error("the parts have different classes: give all of them the same names of classes")]
    Classes,
    /// The place of a sample depends on more than the samples before it.
    #[error(
        "sample {name} is stored as {form}, and only one machine can pack samples in that way: make a pack of all \
         samples first, and push that"
    )]
    Form {
        /// Name of the sample.
        name: String,
        /// The form.
        form: &'static str,
    },
    /// No sample decodes.
    #[error("none of the {samples} samples can be decoded")]
    NoneDecodes {
        /// Number of samples.
        samples: u64,
    },
    /// The whole would be larger than any file.
    #[error("the {samples} samples do not fit into a pack")]
    TooLarge {
        /// Number of samples.
        samples: u64,
    },
    /// A part is not the one whose index was joined.
    #[error("sample {name} differs from the one whose index was joined: did the source change? Begin again")]
    Changed {
        /// Name of the sample.
        name: String,
    },
}

/// Makes the index of a whole pack from those of its parts. `source` is the identity of the dataset that every machine
/// opens to pack a part of it; without one, each machine has samples of its own.
///
/// # Errors
///
/// [`JoinError`] says why the parts do not make a pack.
pub fn join(parts: &[PartIndex], source: Option<Identity>) -> Result<Joined, JoinError> {
    let packs = parts.iter().map(|part| index_alone(part.index.clone().into())).collect::<Result<Vec<_>, _>>()?;
    let first = packs.first().ok_or(JoinError::Empty)?;
    if let Some(expected) = source {
        check_source(parts, &packs, expected)?;
    }
    if packs.iter().any(|pack| pack.classes() != first.classes()) {
        return Err(JoinError::Classes);
    }
    let order = in_order(parts, &packs)?;
    let samples = order.len() as u64;
    let mut names_bytes = 0;
    for sample in &order {
        names_bytes += u64::from(packs[sample.part].record(sample.row)?.name_length);
    }
    let classes = classes_to_bytes(first.classes());
    let too_large = || JoinError::TooLarge { samples };
    let plan = PackPlan::place(samples, names_bytes, (classes, None), 0, 0).ok_or_else(too_large)?;

    let [mut records, mut labels, mut names] = [const { Vec::new() }; 3];
    let mut numbers: Vec<Vec<u64>> = parts.iter().map(|part| vec![0; part.ids.len()]).collect();
    let (mut data_end, mut rejected) = (plan.data_offset, 0);
    for (number, sample) in (0..).zip(&order) {
        let pack = &packs[sample.part];
        let record = pack.record(sample.row)?;
        let name = pack.name(sample.row);
        if record.form == StoredForm::Rows || record.form.is_in_pieces() {
            return Err(JoinError::Form { name, form: record.form.name() });
        }
        let begin = data_end.next_multiple_of(record.form.alignment());
        let offset = begin + (record.offset - record.extent().start);
        let record = IndexRecord { offset, name_offset: names.len() as u64, ..record };
        data_end = record.extent().end;
        rejected += u64::from(matches!(record.verdict, StoredVerdict::Rejected(_)));
        records.extend_from_slice(&record.to_bytes());
        labels.extend_from_slice(&pack.label(sample.row).to_le_bytes());
        names.extend_from_slice(name.as_bytes());
        numbers[sample.part][sample.row as usize] = number;
    }
    if rejected == samples {
        return Err(JoinError::NoneDecodes { samples });
    }
    let contents = [records, labels, names, plan.classes];
    let identity = pack_identity(contents.iter().map(|bytes| *blake3::hash(bytes).as_bytes()));
    let mut index = vec![0; plan.data_offset as usize];
    let mut sections = Vec::new();
    for (&(part, offset, length), bytes) in plan.sections.iter().zip(&contents) {
        index[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        sections.push(Section { part, offset, length, crc32c: crc32c::crc32c(bytes) });
    }
    let layout = PackLayout {
        file_bytes: data_end.next_multiple_of(BLOCK_BYTES),
        samples,
        classes: first.classes().len() as u32,
        data_offset: plan.data_offset,
        data_bytes: data_end - plan.data_offset,
        identity,
        // Those of parts that have no common source depend on how the samples were divided.
        source_identity: source.unwrap_or(identity),
        source_kind: first.layout().source_kind.clone(),
        sections,
    };
    index[..BLOCK_BYTES as usize].copy_from_slice(&layout.to_bytes());
    Ok(Joined { index, numbers })
}

/// Opens the whole pack where one of its parts is. `numbers` are the indices that the part's samples have in the whole.
/// Only these samples can be read.
///
/// # Errors
///
/// [`JoinError::Changed`] if the part is not the one whose index was joined; others if an index cannot be read.
pub fn pack_of_part(index: Arc<[u8]>, part: Pack, numbers: &[u64]) -> Result<Pack, JoinError> {
    let whole = index_alone(index.clone())?;
    if part.len() != numbers.len() as u64 {
        return Err(JoinError::Count { samples: part.len(), ids: numbers.len() });
    }
    let mut extents = Vec::with_capacity(numbers.len());
    for (row, &number) in (0..).zip(numbers) {
        let (own, joined) = (part.record(row)?, whole.record(number)?);
        let is_same = |a: &IndexRecord, b: &IndexRecord| (a.total_bytes(), a.crc32c) == (b.total_bytes(), b.crc32c);
        if !is_same(&own, &joined) || part.label(row) != whole.label(number) || part.name(row) != whole.name(number) {
            return Err(JoinError::Changed { name: part.name(row) });
        }
        // A sample without bytes begins where the next one does.
        if !joined.extent().is_empty() {
            extents.push((joined.extent(), own.extent().start));
        }
    }
    extents.sort_unstable_by_key(|(extent, _)| extent.start);
    Ok(Pack::from_blocks(Box::new(PartBlocks { index, extents, part: Some(part) }), Path::new("the pack"))?)
}

/// Opens the whole pack where none of its samples is.
///
/// # Errors
///
/// [`JoinError::Index`] if the index is not one.
pub fn pack_of_index(index: Arc<[u8]>) -> Result<Pack, JoinError> {
    Ok(index_alone(index)?)
}

/// Opens a pack whose index can be read, but not its samples.
fn index_alone(index: Arc<[u8]>) -> Result<Pack, FormatError> {
    Pack::from_blocks(Box::new(PartBlocks { index, extents: Vec::new(), part: None }), Path::new("the part"))
}

/// Checks that all parts are of the source that is packed. Parts of different lists of files would have some samples
/// twice, and others not at all.
fn check_source(parts: &[PartIndex], packs: &[Pack], expected: Identity) -> Result<(), JoinError> {
    for (part, pack) in parts.iter().zip(packs) {
        let found = pack.layout().source_identity;
        if found != expected {
            let first = part.ids.first().copied().unwrap_or_default();
            return Err(JoinError::Source { first, found, expected });
        }
    }
    Ok(())
}

/// Where a sample of the whole is.
struct Placed {
    id: u64,
    part: usize,
    row: u64,
}

/// Returns the samples of all parts in the order of their ids.
fn in_order(parts: &[PartIndex], packs: &[Pack]) -> Result<Vec<Placed>, JoinError> {
    let mut order = Vec::new();
    for (part, (PartIndex { ids, .. }, pack)) in parts.iter().zip(packs).enumerate() {
        if pack.len() != ids.len() as u64 {
            return Err(JoinError::Count { samples: pack.len(), ids: ids.len() });
        }
        order.extend((0..).zip(ids).map(|(row, &id)| Placed { id, part, row }));
    }
    order.sort_unstable_by_key(|placed| placed.id);
    match order.windows(2).find(|pair| pair[0].id == pair[1].id) {
        Some(pair) => Err(JoinError::Twice { id: pair[0].id }),
        None => Ok(order),
    }
}

/// The bytes of the whole pack that are here: its index, and the samples of a part.
struct PartBlocks {
    index: Arc<[u8]>,
    /// Where each sample of the part that has bytes lies in the whole, and where it begins in the part; in the order of
    /// the whole.
    extents: Vec<(Range<u64>, u64)>,
    part: Option<Pack>,
}

impl Blocks for PartBlocks {
    /// Returns the length of the file, as the superblock says it.
    fn len_bytes(&self) -> u64 {
        let bytes = self.index.get(16..24).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_le_bytes)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let end = offset + out.len() as u64;
        if out.is_empty() {
            return Ok(());
        }
        if let Some(found) = self.index.get(offset as usize..end as usize) {
            out.copy_from_slice(found);
            return Ok(());
        }
        let at = self.extents.partition_point(|(extent, _)| extent.end < end);
        match (self.extents.get(at), &self.part) {
            (Some((extent, start)), Some(part)) if extent.start <= offset && end <= extent.end => {
                part.read_bytes(start + (offset - extent.start), out)
            }
            _ => Err(io::Error::other(format!("the bytes {offset} to {end} of the pack are in another part"))),
        }
    }

    fn session(&self) -> u64 {
        0
    }

    fn interrupt(&self) {}
}

impl fmt::Debug for PartBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartBlocks").field("samples", &self.extents.len()).finish_non_exhaustive()
    }
}
