//! Doubt about damage: what comes over a network may have been damaged on its way.

/// Reads of a sample that come damaged in another way each time, before the sample counts as unavailable.
const READS_MAX: u32 = 4;

/// How a sample has come so far.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    /// Checksum of the bytes that the last read brought.
    last: Option<u32>,
    reads: u32,
}

impl Doubt {
    /// Returns whether a sample that came damaged, with these bytes, is read again: bytes that come twice in the same
    /// way lie so where they are stored.
    ///
    /// # Errors
    ///
    /// The problem, if the sample comes in another way each time.
    pub(super) fn reads_again(&mut self, bytes: &[u8]) -> Result<bool, String> {
        let came = crc32c::crc32c(bytes);
        self.reads += 1;
        if self.last.replace(came) == Some(came) {
            return Ok(false);
        }
        if self.reads < READS_MAX {
            return Ok(true);
        }
        Err(format!("whose bytes came over the network {READS_MAX} times, damaged in a new way each time"))
    }

    /// Returns whether an earlier read was damaged, of a sample that has come intact now.
    pub(super) fn is_healed(&self) -> bool {
        self.last.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_comes_twice_in_the_same_way_is_damaged() {
        let mut doubt = Doubt::default();
        assert!(!doubt.is_healed());
        assert_eq!(doubt.reads_again(b"1"), Ok(true));
        assert!(doubt.is_healed());
        assert_eq!(doubt.reads_again(b"2"), Ok(true));
        assert_eq!(doubt.reads_again(b"2"), Ok(false));
    }

    #[test]
    fn a_sample_that_always_comes_in_another_way_is_unavailable() {
        let mut doubt = Doubt::default();
        for way in 1..READS_MAX as u8 {
            assert_eq!(doubt.reads_again(&[way]), Ok(true));
        }
        assert!(doubt.reads_again(b"another").unwrap_err().contains("a new way each time"));
    }
}
