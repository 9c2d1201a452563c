//! Facts about one sample and about a dataset: where bytes lie, what is stored, which dataset it is.

use ddlp_pixels::{CorruptReason, Source};
use std::fmt;
use std::path::PathBuf;

/// Place of a sample's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The file, or the address of the drive that holds the bytes.
    pub file: PathBuf,
    /// Offset of the first byte there.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}, {} bytes", self.file.display(), self.offset, self.length)
    }
}

/// What a dataset has stored for a sample.
#[derive(Clone, Copy, Debug)]
pub enum Stored<'a> {
    /// The sample.
    Source(Source<'a>),
    /// The sample was rejected when it was packed.
    Rejected {
        /// Bytes that were kept; empty if the sample could not be read.
        bytes: &'a [u8],
        /// The verdict.
        reason: CorruptReason,
    },
}

/// Number of a digest's first hexadecimal digits that messages show. In practice they tell any two digests apart.
const BEGINNING_DIGITS: usize = 12;

/// Returns the first twelve hexadecimal digits of a digest.
pub fn beginning_of(digest: &[u8]) -> String {
    digest[..BEGINNING_DIGITS / 2].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns two digests as messages show them for people to compare: the first twelve hexadecimal digits, or more if the
/// digests differ only later.
pub fn beginnings(digests: [&dyn fmt::Display; 2]) -> [String; 2] {
    let mut digits = digests.map(ToString::to_string);
    let same = digits[0].bytes().zip(digits[1].bytes()).take_while(|(one, other)| one == other).count();
    let shown = BEGINNING_DIGITS.max(same + 1);
    digits.iter_mut().for_each(|digits| digits.truncate(digits.floor_char_boundary(shown)));
    digits
}

/// Digest of a dataset's content, shown in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity([u8; 32]);

impl Identity {
    /// Wraps a digest that was stored or received.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the digest.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({self})")
    }
}

/// A digest of fields that cannot run into each other, since each is preceded by its length.
pub(crate) struct IdentityHasher(blake3::Hasher);

impl IdentityHasher {
    /// Begins a digest; `domain` differs for each kind of source.
    pub(crate) fn new(domain: &str) -> Self {
        let mut hasher = Self(blake3::Hasher::new());
        hasher.field(domain.as_bytes());
        hasher
    }

    pub(crate) fn field(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.update(bytes);
    }

    pub(crate) fn number(&mut self, value: u64) {
        self.0.update(&value.to_le_bytes());
    }

    pub(crate) fn finish(&self) -> Identity {
        Identity(*self.0.finalize().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_digests_are_shown_up_to_where_they_differ() {
        let mut other = [7; 32];
        let shown = |other| beginnings([&Identity::from_bytes([7; 32]), &Identity::from_bytes(other)]);
        other[0] = 8;
        assert_eq!(shown(other), ["070707070707", "080707070707"]);
        (other[0], other[9]) = (7, 8);
        assert_eq!(shown(other), ["07070707070707070707", "07070707070707070708"]);
        assert_eq!(shown([7; 32]), ["07".repeat(32), "07".repeat(32)]);
        assert_eq!(beginnings([&"ab", &"ä"]), ["ab", "ä"], "texts that are no digests");
    }
}
