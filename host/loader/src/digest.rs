//! Digests of the delivered samples, to compare runs.

use crate::batch::Batch;
use crate::field_error::FieldError;
use std::collections::BTreeMap;

/// Two digests over (sample id as requested, bytes of the image): one independent of the order of delivery, and one
/// that depends on it. Each other field has digests of its own.
///
/// Each sample is hashed by BLAKE3 (id as u64 little-endian, then the bytes of its image as they lie in memory). The
/// order-free digest is the sum of the first 128 bits modulo 2¹²⁸, so a lost or duplicate sample changes it; the
/// ordered digest is BLAKE3 over the samples' hashes in the order of delivery.
#[derive(Clone, Debug, Default)]
pub struct Digest {
    images: FieldDigest,
    others: BTreeMap<String, FieldDigest>,
}

/// The digests of one field.
#[derive(Clone, Debug, Default)]
struct FieldDigest {
    sum: u128,
    chain: blake3::Hasher,
}

impl Digest {
    /// Adds the rows of a batch.
    ///
    /// # Errors
    ///
    /// [`FieldError::OnDevice`] if this process cannot read the images; [`FieldError::Mixed`] under MixUp or CutMix: a
    /// digest is one of samples as they were prepared.
    pub fn update(&mut self, batch: &Batch) -> Result<(), FieldError> {
        if batch.is_mixed() {
            return Err(FieldError::Mixed);
        }
        let images = batch.images();
        self.images.update(batch.requested_ids(), images.bytes()?, images.field().bytes());
        for field in batch.fields().skip(1) {
            let values = batch.field(&field.name)?.bytes()?;
            let digest = match self.others.get_mut(&field.name) {
                Some(digest) => digest,
                None => self.others.entry(field.name.clone()).or_default(),
            };
            digest.update(batch.requested_ids(), values, field.bytes());
        }
        Ok(())
    }

    /// Returns the order-free digest of the images, 32 hexadecimal digits.
    pub fn unordered(&self) -> String {
        self.images.unordered()
    }

    /// Returns the ordered digest of the images, 64 hexadecimal digits.
    pub fn ordered(&self) -> String {
        self.images.chain.finalize().to_hex().to_string()
    }

    /// Returns the order-free digest of each other field, by the field's name.
    pub fn fields(&self) -> BTreeMap<String, String> {
        self.others.iter().map(|(name, digest)| (name.clone(), digest.unordered())).collect()
    }
}

impl FieldDigest {
    fn update(&mut self, ids: &[u64], values: &[u8], value_bytes: usize) {
        for (id, value) in ids.iter().zip(values.chunks_exact(value_bytes)) {
            let hash = *blake3::Hasher::new().update(&id.to_le_bytes()).update(value).finalize().as_bytes();
            let (head, _) = hash.split_first_chunk::<16>().expect("a hash has 32 bytes");
            self.sum = self.sum.wrapping_add(u128::from_le_bytes(*head));
            self.chain.update(&hash);
        }
    }

    fn unordered(&self) -> String {
        format!("{:032x}", self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(rows: &[(u64, [u8; 3])]) -> Digest {
        let mut digest = Digest::default();
        for (id, row) in rows {
            digest.images.update(&[*id], row, 3);
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
