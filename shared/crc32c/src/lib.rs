//! CRC-32C (RFC 3720, appendix B.4: polynomial 0x1EDC6F41, reflected, both ends inverted), the checksum of packs,
//! slots, requests and NVMe/TCP digests.
//!
//! Its speed matters: every byte that is read from a pack is checked, and both drive and host check every image that
//! the drive prepares. On x86-64 the checksum comes from `crc-fast`, which multiplies polynomials over 64 bytes at a
//! time: about twice as fast as three interleaved streams of the CRC instruction, both in the cache and in memory. The
//! aarch64 code of `crc-fast` needs the AES extension and, on boards that lack it (such as the Raspberry Pi 4), falls
//! back to a table. So on aarch64 the checksum comes from the crate `crc32c`, which needs only the CRC instruction.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod of_library {
    use crc_fast::{CrcAlgorithm::Crc32Iscsi, Digest};

    pub use crc_fast::crc32_iscsi as crc32c;

    pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
        // The state of a CRC is the checksum before its last step, which inverts it.
        let mut digest = Digest::new_with_init_state(Crc32Iscsi, u64::from(!crc));
        digest.update(bytes);
        digest.finalize() as u32
    }

    pub fn crc32c_combine(first: u32, second: u32, second_bytes: usize) -> u32 {
        crc_fast::checksum_combine(Crc32Iscsi, first.into(), second.into(), second_bytes as u64) as u32
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod of_library {
    pub use crc32c_instructions::{crc32c, crc32c_append, crc32c_combine};
}

/// Computes the checksum of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    of_library::crc32c(bytes)
}

/// Continues a checksum: returns the checksum of a message that begins with bytes of checksum `crc` and ends with
/// `bytes`. The checksum of an empty message is 0.
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    of_library::crc32c_append(crc, bytes)
}

/// Returns the checksum of two concatenated pieces from the checksum of each; the second piece has `second_bytes`
/// bytes.
pub fn crc32c_combine(first: u32, second: u32, second_bytes: usize) -> u32 {
    of_library::crc32c_combine(first, second, second_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Computes the checksum bit by bit, as it is defined.
    fn by_definition(bytes: &[u8]) -> u32 {
        let shift = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 };
        !bytes.iter().fold(u32::MAX, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), |crc, _| shift(crc)))
    }

    #[test]
    fn checksums_are_those_of_rfc_3720() {
        let ascending: [u8; 32] = core::array::from_fn(|n| n as u8);
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(&[0xFF; 32]), 0x62A8_AB43);
        assert_eq!(crc32c(&ascending), 0x46DD_794E);
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(&[]), 0);
    }

    proptest! {
        /// Libraries choose their code by the length, and by the alignment of the first byte.
        #[test]
        fn checksums_are_those_of_the_definition(
            bytes in proptest::collection::vec(any::<u8>(), 0..6000),
            begin in 0..64_usize,
            cut: prop::sample::Index,
        ) {
            let bytes = &bytes[begin.min(bytes.len())..];
            let (first, second) = bytes.split_at(cut.index(bytes.len() + 1));
            let expected = by_definition(bytes);
            prop_assert_eq!(crc32c(bytes), expected);
            prop_assert_eq!(crc32c_append(crc32c(first), second), expected);
            prop_assert_eq!(crc32c_combine(crc32c(first), crc32c(second), second.len()), expected);
        }
    }
}
