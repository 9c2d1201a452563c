//! Digests of the delivered samples, to compare runs.

use crate::batch::Batch;
use crate::field_error::FieldError;

/// Two digests over (sample id, bytes of the image): one independent of the order of delivery, and one that depends on
/// it.
///
/// Each sample is hashed by BLAKE3 (id as u64 little-endian, then the bytes of its image as they lie in memory). The
/// order-free digest is the sum of the first 128 bits modulo 2¹²⁸, so a lost or duplicate sample changes it; the
/// ordered digest is BLAKE3 over the samples' hashes in the order of delivery.
#[derive(Clone, Debug, Default)]
pub struct Digest {
    sum: u128,
    chain: blake3::Hasher,
}

impl Digest {
    /// Adds the rows of a batch.
    ///
    /// # Errors
    ///
    /// [`FieldError::OnDevice`] if this process cannot read the images.
    pub fn update(&mut self, batch: &Batch) -> Result<(), FieldError> {
        let images = batch.images();
        self.update_rows(batch.sample_ids(), images.bytes()?, images.field().bytes());
        Ok(())
    }

    fn update_rows(&mut self, ids: &[u64], images: &[u8], row_bytes: usize) {
        for (id, row) in ids.iter().zip(images.chunks_exact(row_bytes)) {
            let hash = *blake3::Hasher::new().update(&id.to_le_bytes()).update(row).finalize().as_bytes();
            let (head, _) = hash.split_first_chunk::<16>().expect("a hash has 32 bytes");
            self.sum = self.sum.wrapping_add(u128::from_le_bytes(*head));
            self.chain.update(&hash);
        }
    }

    /// Returns the order-free digest, 32 hexadecimal digits.
    pub fn unordered(&self) -> String {
        format!("{:032x}", self.sum)
    }

    /// Returns the ordered digest, 64 hexadecimal digits.
    pub fn ordered(&self) -> String {
        self.chain.finalize().to_hex().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(rows: &[(u64, [u8; 3])]) -> Digest {
        let mut digest = Digest::default();
        for (id, row) in rows {
            digest.update_rows(&[*id], row, 3);
        }
        digest
    }

    #[test]
    fn order_matters_to_one_and_content_to_both() {
        let a = digest(&[(1, [1, 2, 3]), (2, [4, 5, 6])]);
        let swapped = digest(&[(2, [4, 5, 6]), (1, [1, 2, 3])]);
        assert_eq!(a.unordered(), swapped.unordered());
        assert_ne!(a.ordered(), swapped.ordered());
        for other in [
            vec![(1, [1, 2, 3])],
            vec![(1, [1, 2, 3]), (2, [4, 5, 6]), (2, [4, 5, 6])],
            vec![(2, [1, 2, 3]), (1, [4, 5, 6])],
            vec![(1, [1, 2, 3]), (2, [4, 5, 7])],
        ] {
            assert_ne!(a.unordered(), digest(&other).unordered());
        }
    }
}
