//! Rereading of damaged samples: what arrives over a network may have been damaged on its way.

/// Damaged reads in a row, each with other bytes, after which a sample counts as unavailable.
const READS_MAX: u32 = 4;

/// The damaged reads of a sample so far.
#[derive(Debug, Default)]
pub(super) struct Rereading {
    /// Checksum of the bytes that the last read brought.
    last: Option<u32>,
    reads: u32,
}

impl Rereading {
    /// Returns whether to read a damaged sample again. The same bytes twice in a row are taken as what is stored.
    ///
    /// # Errors
    ///
    /// The problem, if the bytes differed from those of the read before each time.
    pub(super) fn reads_again(&mut self, bytes: &[u8]) -> Result<bool, String> {
        let checksum = crc32c::crc32c(bytes);
        self.reads += 1;
        if self.last.replace(checksum) == Some(checksum) {
            return Ok(false);
        }
        if self.reads < READS_MAX {
            return Ok(true);
        }
        Err(format!(
            "whose checksum was wrong in {READS_MAX} reads over the network, never twice in a row with the same bytes"
        ))
    }

    /// Returns whether an earlier read was damaged, for a sample that has arrived intact now.
    pub(super) fn is_healed(&self) -> bool {
        self.last.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_bytes_twice_in_a_row_are_damaged() {
        let mut rereading = Rereading::default();
        assert!(!rereading.is_healed());
        assert_eq!(rereading.reads_again(b"1"), Ok(true));
        assert!(rereading.is_healed());
        assert_eq!(rereading.reads_again(b"2"), Ok(true));
        assert_eq!(rereading.reads_again(b"2"), Ok(false));
    }

    #[test]
    fn a_sample_with_other_bytes_in_each_read_is_unavailable() {
        let mut rereading = Rereading::default();
        for byte in 1..READS_MAX as u8 {
            assert_eq!(rereading.reads_again(&[byte]), Ok(true));
        }
        assert!(rereading.reads_again(b"another").unwrap_err().contains("never twice in a row"));
    }
}
