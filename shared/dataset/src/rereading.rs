//! Rereading of damaged bytes: what arrives over a network may have been damaged on its way.

/// Damaged reads in a row, each with other bytes, after which the bytes count as unavailable.
const READS_MAX: u32 = 4;

/// The damaged reads of the same bytes so far.
#[derive(Debug, Default)]
pub(crate) struct Rereading {
    /// Checksum of the bytes that the last read brought.
    last: Option<u32>,
    reads: u32,
}

impl Rereading {
    /// Returns whether to read again bytes that arrived damaged and have this checksum. The same bytes twice in a row
    /// are taken as what is stored.
    ///
    /// # Errors
    ///
    /// The problem, if no two reads in a row gave the same bytes.
    pub(crate) fn reads_again(&mut self, checksum: u32) -> Result<bool, String> {
        self.reads += 1;
        if self.last.replace(checksum) == Some(checksum) {
            return Ok(false);
        }
        if self.reads < READS_MAX {
            return Ok(true);
        }
        Err(format!(
            "arrived damaged in {READS_MAX} reads over the network, and no two reads in a row brought the same bytes; \
             check the network and this machine's memory"
        ))
    }

    /// Returns whether these bytes, which are intact, differ from the bytes of the read before.
    pub(crate) fn is_healed(&self, bytes: &[u8]) -> bool {
        self.last.is_some_and(|last| last != crc32c::crc32c(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_bytes_twice_in_a_row_are_damaged() {
        let mut rereading = Rereading::default();
        assert!(!rereading.is_healed(b"intact"));
        assert_eq!(rereading.reads_again(1), Ok(true));
        assert!(rereading.is_healed(b"intact"));
        assert_eq!(rereading.reads_again(2), Ok(true));
        assert_eq!(rereading.reads_again(2), Ok(false));
    }

    #[test]
    fn other_bytes_in_each_read_are_unavailable() {
        let mut rereading = Rereading::default();
        for checksum in 1..READS_MAX {
            assert_eq!(rereading.reads_again(checksum), Ok(true));
        }
        assert!(rereading.reads_again(READS_MAX).unwrap_err().contains("no two reads in a row"));
    }
}
