//! How a pack lies in a key-value server: its keys, and what each value contains.
//!
//! | key | value |
//! |---|---|
//! | manifest | what is there, as JSON; it is written last, and its absence means that there is no dataset |
//! | pushing | the same of a push that has not ended |
//! | version, chunk of the index | a head, and a MiB of the pack in front of its sample region |
//! | version, sample | a head, and the bytes of the sample |
//! | version, share | a head: this share of the samples has been sent, and the others not all |
//!
//! The version is the beginning of the pack's identity, so no value ever changes: another pack has other keys. Each
//! kind of server has its own form of a key.

use super::super::push::Share;
use ddlp_dataset::pack::{Pack, StoredVerdict};
use ddlp_dataset::{Dataset, Identity, ReadError};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Version of the layout that is written and read.
const VERSION: u32 = 1;
const FORMAT: &str = "ddlp pack in values";
const MAGIC: [u8; 4] = *b"DDLV";
/// Bytes of the index in one value.
pub const CHUNK_BYTES: u64 = 1 << 20;
/// Bytes of a head.
pub const HEAD_BYTES: u64 = size_of::<DiskHead>() as u64;

/// What a value contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The sample with this number.
    Sample(u64),
    /// The chunk of the index with this number.
    Index(u64),
    /// The mark of the share with this number.
    Share(u64),
}

/// The beginning of a pack's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(pub [u8; 8]);

impl Version {
    /// Returns the version of the pack with this identity.
    pub fn of(identity: &Identity) -> Self {
        let mut beginning = [0; 8];
        beginning.copy_from_slice(&identity.as_bytes()[..8]);
        Self(beginning)
    }
}

/// Sixteen hexadecimal digits.
impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Names a value of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// What is there.
    Manifest,
    /// What is being pushed.
    Pushing,
    /// A part of the pack with this version.
    Content(Version, Content),
}

/// What lies under a name, or is being pushed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    format: String,
    version: u32,
    identity: String,
    /// Number of samples.
    pub samples: u64,
    /// Bytes of the pack in front of its sample region.
    pub index_bytes: u64,
    /// Bytes of the pack.
    pub pack_bytes: u64,
    /// Of a push that has not ended: most shares in which the pack is pushed, and so may have marks.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub shares: u64,
    /// Of a push that has not ended: a number that is drawn when the name is taken for the pack. Whoever takes it after
    /// another pack draws a new one, since values may have been removed in between.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub session: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Manifest {
    /// Describes a pack.
    pub fn of(pack: &Pack) -> Self {
        let layout = pack.layout();
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            identity: layout.identity.to_string(),
            samples: layout.samples,
            index_bytes: layout.data_offset,
            pack_bytes: layout.file_bytes,
            shares: 0,
            session: 0,
        }
    }

    /// Returns whether both describe the same pack.
    pub fn is_of(&self, other: &Self) -> bool {
        self.pushing(0, 0) == other.pushing(0, 0)
    }

    /// Returns this for a push that has not ended.
    pub fn pushing(&self, shares: u64, session: u64) -> Self {
        Self { shares, session, ..self.clone() }
    }

    /// Parses the value that messages call `key`. The error says what to do.
    pub fn parse(key: &str, bytes: &[u8]) -> Result<Self, String> {
        let foreign = || format!("the value of {key} was not written by `ddlp push`: choose another name");
        #[derive(Deserialize)]
        struct Head {
            format: String,
            version: u32,
        }
        let head: Head = serde_json::from_slice(bytes).map_err(|_| foreign())?;
        if head.format != FORMAT {
            return Err(foreign());
        }
        if head.version != VERSION {
            let found = head.version;
            return Err(format!(
                "the dataset has layout version {found}, this program reads version {VERSION}: push it again, under \
                 another name, by this program"
            ));
        }
        let manifest: Self = serde_json::from_slice(bytes).map_err(|_| foreign())?;
        manifest.identity().ok_or_else(foreign)?;
        Ok(manifest)
    }

    /// Returns the pack's identity; `None` if it is malformed.
    pub fn identity(&self) -> Option<Identity> {
        let mut bytes = [0; 32];
        if self.identity.len() != 64 || !self.identity.is_ascii() {
            return None;
        }
        for (byte, digits) in bytes.iter_mut().zip(self.identity.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Identity::from_bytes(bytes))
    }

    /// Returns the keys of all marks, samples and chunks of the index, in this order: a mark says that samples are
    /// there.
    pub fn keys(&self) -> impl Iterator<Item = Key> + use<> {
        let contents = (0..self.samples).map(Content::Sample).chain((0..self.chunks()).map(Content::Index));
        self.marks().chain(self.keys_of(contents))
    }

    /// Returns the keys of all marks.
    pub fn marks(&self) -> impl Iterator<Item = Key> + use<> {
        self.keys_of((0..self.shares).map(Content::Share))
    }

    fn keys_of<C: Iterator<Item = Content>>(&self, contents: C) -> impl Iterator<Item = Key> + use<C> {
        let version = self.identity().map(|identity| Version::of(&identity));
        contents.filter_map(move |content| Some(Key::Content(version?, content)))
    }

    /// Returns the number of chunks of the index.
    pub fn chunks(&self) -> u64 {
        self.index_bytes.div_ceil(CHUNK_BYTES)
    }

    /// Returns the bytes of the pack in a chunk of its index.
    pub fn chunk(&self, number: u64) -> Range<u64> {
        number * CHUNK_BYTES..((number + 1) * CHUNK_BYTES).min(self.index_bytes)
    }
}

/// The beginning of a value.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct DiskHead {
    magic: [u8; 4],
    version: u8,
    /// 0: a sample, 1: a chunk of the index, 2: the mark of a share.
    kind: u8,
    /// The sample's form, as in the pack's index.
    form: u8,
    /// The verdict at packing: 0 intact, 1 repaired, 2 rejected.
    verdict: u8,
    number: U64,
    /// The sample's label; in the mark of a share the number of shares.
    label: U32,
    /// Number and CRC32C of the bytes after the head.
    length: U32,
    crc32c: U32,
    /// The beginning of the pack's identity.
    identity: [u8; 16],
    head_crc32c: U32,
}
const _: () = assert!(size_of::<DiskHead>() == 48);
const HEAD_CRC_AT: usize = size_of::<DiskHead>() - 4;

impl DiskHead {
    fn new(identity: &Identity, (kind, number): (u8, u64), bytes: &[u8]) -> Self {
        let mut beginning = [0; 16];
        beginning.copy_from_slice(&identity.as_bytes()[..16]);
        Self {
            magic: MAGIC,
            version: VERSION as u8,
            kind,
            form: 0,
            verdict: 0,
            number: number.into(),
            label: 0.into(),
            length: (bytes.len() as u32).into(),
            crc32c: crc32c::crc32c(bytes).into(),
            identity: beginning,
            head_crc32c: 0.into(),
        }
    }

    /// Returns the value: the head, and `bytes`.
    fn before(mut self, bytes: &[u8]) -> Vec<u8> {
        self.head_crc32c = crc32c::crc32c(&self.as_bytes()[..HEAD_CRC_AT]).into();
        [self.as_bytes(), bytes].concat()
    }
}

/// A value to be there.
pub struct Value {
    /// Its key.
    pub key: Key,
    /// Its bytes: a head and content, or a manifest.
    pub bytes: Vec<u8>,
    /// Bytes of the head.
    pub head_bytes: usize,
    /// The sample that it contains, if it contains one.
    pub sample: Option<SampleNotes>,
}

/// What is known of a sample beside its bytes.
pub struct SampleNotes {
    /// Its number in the pack.
    pub number: u64,
    /// Its label, and the name of that class.
    pub label: u32,
    /// The name of its class.
    pub class: String,
    /// Its name.
    pub name: String,
    /// The name of its stored form.
    pub form: &'static str,
    /// The verdict at packing.
    pub verdict: &'static str,
    /// Where its pieces begin in the content, in order; the first begins at 0.
    pub pieces: Vec<u64>,
}

impl Value {
    /// Returns the value of a manifest.
    pub fn manifest(key: Key, manifest: &Manifest) -> Self {
        let bytes = serde_json::to_vec(manifest).expect("numbers and texts");
        Self { key, bytes, head_bytes: 0, sample: None }
    }

    /// Reads a sample from a pack and returns its value.
    ///
    /// # Errors
    ///
    /// If the sample cannot be read.
    pub fn sample(pack: &Pack, number: u64, buffer: &mut Vec<u8>) -> Result<Self, ReadError> {
        let record = pack.record(number)?;
        pack.read_value(number, buffer)?;
        let identity = pack.identity();
        let mut head = DiskHead::new(&identity, (0, number), buffer);
        head.form = record.form as u8;
        let verdict;
        (head.verdict, verdict) = match record.verdict {
            StoredVerdict::Intact => (0, "intact"),
            StoredVerdict::Repaired => (1, "repaired"),
            StoredVerdict::Rejected(_) => (2, "rejected"),
        };
        let label = pack.label(number);
        head.label = label.into();
        let starts = |start: &mut u64, extent: Range<u64>| {
            let begins = *start;
            *start += extent.end - extent.start;
            Some(begins)
        };
        let sample = SampleNotes {
            number,
            label,
            class: pack.classes().get(label as usize).cloned().unwrap_or_default(),
            name: pack.name(number),
            form: record.form.name(),
            verdict,
            pieces: pack.value_extents(number)?.into_iter().scan(0, starts).collect(),
        };
        let key = Key::Content(Version::of(&identity), Content::Sample(number));
        Ok(Self { key, bytes: head.before(buffer), head_bytes: HEAD_BYTES as usize, sample: Some(sample) })
    }

    /// Returns the value of a chunk of the index.
    pub fn chunk(identity: &Identity, number: u64, bytes: &[u8]) -> Self {
        let key = Key::Content(Version::of(identity), Content::Index(number));
        let bytes = DiskHead::new(identity, (1, number), bytes).before(bytes);
        Self { key, bytes, head_bytes: HEAD_BYTES as usize, sample: None }
    }

    /// Returns the mark of a share: its head says of how many shares, and its content in which session it was pushed.
    pub fn share(identity: &Identity, share: Share, session: u64) -> Self {
        let (number, content) = (share.number.into(), session.to_le_bytes());
        let mut head = DiskHead::new(identity, (2, number), &content);
        head.label = share.of.into();
        let key = Key::Content(Version::of(identity), Content::Share(number));
        Self { key, bytes: head.before(&content), head_bytes: HEAD_BYTES as usize, sample: None }
    }

    /// Returns head and content.
    pub fn parts(&self) -> (&[u8], &[u8]) {
        self.bytes.split_at(self.head_bytes)
    }
}

/// Returns how many bytes of content a value has, as its head says; `None` if the head is damaged.
pub fn content_bytes(head: &[u8]) -> Option<u64> {
    let head = DiskHead::read_from_bytes(head).ok()?;
    let crc32c = crc32c::crc32c(&head.as_bytes()[..HEAD_CRC_AT]);
    (head.magic == MAGIC && head.head_crc32c.get() == crc32c).then(|| head.length.get().into())
}

/// Returns the bytes of the pack in the value of a chunk of its index; `None` if the value is damaged.
pub fn chunk_of<'v>(identity: &Identity, number: u64, value: &'v [u8]) -> Option<&'v [u8]> {
    let bytes = value.get(HEAD_BYTES as usize..)?;
    (Value::chunk(identity, number, bytes).bytes == value).then_some(bytes)
}

#[cfg(test)]
mod tests;
