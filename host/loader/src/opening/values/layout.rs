//! How a pack lies in a key-value server: its keys, and what each value contains.
//!
//! | key | value |
//! |---|---|
//! | `NAME:index` | what is there, as JSON; it is written last, and its absence means that there is no dataset |
//! | `NAME:pushing` | the same of a push that has not ended |
//! | `NAME:VERSION:index:N` | a head, and MiB `N` of the pack in front of its sample region |
//! | `NAME:VERSION:N` | a head, and the bytes of sample `N` |
//!
//! `VERSION` is the beginning of the pack's identity, so no value ever changes: another pack has other keys.

use ddlp_dataset::pack::{Pack, StoredVerdict};
use ddlp_dataset::{Dataset, Identity, ReadError};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Version of the layout that is written and read.
const VERSION: u32 = 1;
const FORMAT: &str = "ddlp pack in values";
/// Bytes of the index in one value.
pub const CHUNK_BYTES: u64 = 1 << 20;
/// Bytes of a head.
pub const HEAD_BYTES: u64 = size_of::<DiskHead>() as u64;
/// Longest value that servers take, by default (`proto-max-bulk-len`).
pub const VALUE_BYTES_MAX: u64 = 512 << 20;

/// What a value contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The sample with this number.
    Sample(u64),
    /// The chunk of the index with this number.
    Index(u64),
}

/// The keys of a dataset.
#[derive(Clone, Debug)]
pub struct Keys {
    name: String,
    version: String,
}

impl Keys {
    /// Returns the keys of the pack with this identity under a name.
    pub fn new(name: &str, identity: &Identity) -> Self {
        let version = identity.to_string()[..16].to_owned();
        Self { name: name.to_owned(), version }
    }

    /// Returns the key of a value.
    pub fn of(&self, content: Content) -> String {
        let Self { name, version } = self;
        match content {
            Content::Sample(number) => format!("{name}:{version}:{number}"),
            Content::Index(number) => format!("{name}:{version}:index:{number}"),
        }
    }
}

/// Returns the key of the value that says what lies under a name.
pub fn index_key(name: &str) -> String {
    format!("{name}:index")
}

/// Returns the key of the value that says what is being pushed under a name.
pub fn pushing_key(name: &str) -> String {
    format!("{name}:pushing")
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
        }
    }

    /// Parses the value of `key`. The error says what to do.
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

    /// Returns the keys of the values.
    pub fn keys(&self, name: &str) -> Option<Keys> {
        Some(Keys::new(name, &self.identity()?))
    }

    /// Returns the number of chunks of the index.
    pub fn chunks(&self) -> u64 {
        self.index_bytes.div_ceil(CHUNK_BYTES)
    }

    /// Returns the bytes of the pack in a chunk of its index.
    pub fn chunk(&self, number: u64) -> Range<u64> {
        number * CHUNK_BYTES..((number + 1) * CHUNK_BYTES).min(self.index_bytes)
    }

    /// Returns the manifest as it is stored.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers and texts")
    }
}

/// The beginning of a value.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct DiskHead {
    magic: [u8; 4],
    version: u8,
    /// 0: a sample, 1: a chunk of the index.
    kind: u8,
    /// The sample's form, as in the pack's index.
    form: u8,
    /// The verdict at packing: 0 intact, 1 repaired, 2 rejected.
    verdict: u8,
    number: U64,
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
            magic: *b"DDLV",
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

/// Reads a sample from a pack and returns its value.
///
/// # Errors
///
/// If the sample cannot be read.
pub fn sample_value(pack: &Pack, number: u64, buffer: &mut Vec<u8>) -> Result<Vec<u8>, ReadError> {
    let record = pack.record(number)?;
    pack.read_value(number, buffer)?;
    let mut head = DiskHead::new(&pack.identity(), (0, number), buffer);
    head.form = record.form as u8;
    head.verdict = match record.verdict {
        StoredVerdict::Intact => 0,
        StoredVerdict::Repaired => 1,
        StoredVerdict::Rejected(_) => 2,
    };
    head.label = pack.label(number).into();
    Ok(head.before(buffer))
}

/// Returns the value of a chunk of the index.
pub fn index_value(identity: &Identity, number: u64, bytes: &[u8]) -> Vec<u8> {
    DiskHead::new(identity, (1, number), bytes).before(bytes)
}

/// Returns the bytes of the pack in the value of a chunk of its index; `None` if the value is damaged.
pub fn chunk_of<'v>(identity: &Identity, number: u64, value: &'v [u8]) -> Option<&'v [u8]> {
    let bytes = value.get(HEAD_BYTES as usize..)?;
    (index_value(identity, number, bytes) == value).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity::from_bytes(std::array::from_fn(|byte| byte as u8))
    }

    fn manifest() -> Manifest {
        let identity = identity().to_string();
        let (samples, index_bytes, pack_bytes) = (9, CHUNK_BYTES + 4096, CHUNK_BYTES + 8192);
        Manifest { format: FORMAT.into(), version: VERSION, identity, samples, index_bytes, pack_bytes }
    }

    #[test]
    fn keys_name_dataset_version_and_number() {
        let keys = manifest().keys("train").unwrap();
        assert_eq!(keys.of(Content::Sample(7)), "train:0001020304050607:7");
        assert_eq!(keys.of(Content::Index(0)), "train:0001020304050607:index:0");
    }

    #[test]
    fn manifests_come_back_and_others_are_refused_by_name() {
        let written = manifest();
        assert_eq!(Manifest::parse("k", &written.to_bytes()), Ok(written.clone()));
        assert_eq!((written.chunks(), written.chunk(1)), (2, CHUNK_BYTES..CHUNK_BYTES + 4096));
        let later = Manifest { version: 2, ..written.clone() };
        assert!(Manifest::parse("k", &later.to_bytes()).unwrap_err().contains("layout version 2"));
        let malformed = Manifest { identity: "é".repeat(32), ..written.clone() };
        let foreign = Manifest { format: "another".into(), ..written };
        for bytes in [&malformed.to_bytes()[..], &foreign.to_bytes(), b"7", b"{}", b""] {
            assert!(Manifest::parse("k", bytes).unwrap_err().contains("the value of k was not written"));
        }
    }

    #[test]
    fn each_changed_byte_of_a_chunk_is_found() {
        let value = index_value(&identity(), 3, b"index");
        assert_eq!(chunk_of(&identity(), 3, &value), Some(&b"index"[..]));
        assert_eq!(chunk_of(&identity(), 4, &value), None);
        for at in 0..value.len() {
            let mut changed = value.clone();
            changed[at] ^= 1;
            assert_eq!(chunk_of(&identity(), 3, &changed), None, "byte {at}");
            assert_eq!(chunk_of(&identity(), 3, &value[..at]), None, "{at} bytes");
        }
    }
}
