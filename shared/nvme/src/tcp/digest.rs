//! Header and data digests: CRC32C as in iSCSI, little-endian on the wire.

use super::DIGEST_BYTES;

/// Returns the digest of a whole header.
pub fn header_digest(header: &[u8]) -> u32 {
    crc32c::crc32c(header)
}

/// Digest of data that arrives in pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataDigest(u32);

impl DataDigest {
    /// Starts a digest of no data.
    pub const fn new() -> Self {
        Self(0)
    }

    /// Adds the next piece of data.
    pub fn update(&mut self, piece: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, piece);
    }

    /// Returns the digest so far.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Returns the digest so far, as it is sent.
    pub const fn wire(self) -> [u8; DIGEST_BYTES] {
        self.0.to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_polynomial_is_that_of_iscsi() {
        // RFC 3720, appendix B.4: 32 bytes of zeros.
        assert_eq!(header_digest(&[0; 32]).to_le_bytes(), [0xAA, 0x36, 0x91, 0x8A]);
    }

    proptest! {
        #[test]
        fn pieces_make_the_whole(bytes in proptest::collection::vec(any::<u8>(), 0..300), cut: prop::sample::Index) {
            let cut = cut.index(bytes.len() + 1);
            let mut digest = DataDigest::new();
            digest.update(&bytes[..cut]);
            digest.update(&bytes[cut..]);
            prop_assert_eq!(digest.value(), header_digest(&bytes));
        }
    }
}
