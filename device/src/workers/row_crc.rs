//! Checksum of a batch from the checksums of its rows.
//!
//! A worker computes the CRC32C of each row while the row is in the core's cache. Appending `n` bytes to a message maps
//! the message's CRC by a linear operator that depends only on `n`. All rows have one length, so the operator is
//! computed once, and each row then costs at most 32 exclusive-ors.

/// The operator for one row length.
#[derive(Clone, Debug)]
pub struct RowCrc {
    row_bytes: usize,
    columns: [u32; 32],
}

impl RowCrc {
    /// Computes the operator for rows of `row_bytes`.
    pub fn new(row_bytes: usize) -> Self {
        let columns = std::array::from_fn(|bit| crc32c::crc32c_combine(1 << bit, 0, row_bytes));
        Self { row_bytes, columns }
    }

    /// Returns the row length of this operator.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Returns the CRC32C of concatenated rows from the CRC32C of each row.
    pub fn of_rows(&self, rows: impl IntoIterator<Item = u32>) -> u32 {
        rows.into_iter().fold(0, |message, row| self.shifted(message) ^ row)
    }

    fn shifted(&self, mut crc: u32) -> u32 {
        let mut shifted = 0;
        while crc != 0 {
            shifted ^= self.columns[crc.trailing_zeros() as usize];
            crc &= crc - 1;
        }
        shifted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equals_the_checksum_of_the_whole(row_bytes in 1usize..400, rows in 0usize..20, seed in any::<u64>()) {
            let mut state = seed;
            let payload: Vec<u8> = std::iter::repeat_with(|| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            })
            .take(row_bytes * rows)
            .collect();
            let combined = RowCrc::new(row_bytes).of_rows(payload.chunks(row_bytes).map(crc32c::crc32c));
            prop_assert_eq!(combined, crc32c::crc32c(&payload));
        }
    }
}
