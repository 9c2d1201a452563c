//! The vendor admin command that cancels a batch ([`CANCEL_OPCODE`](crate::CANCEL_OPCODE)).
//!
//! NVMe Abort cannot serve here, because user space above a kernel driver does not know command identifiers. The drive
//! looks for the batch on all associations of the host. The drive answers with the number of Executes that it
//! cancelled, and completes each of them with Command Abort Requested. 0 is not an error: the batch may just have
//! finished.

/// The batch to cancel, in the command's dwords: CDW10 = batch, CDW11 = epoch, CDW12 to CDW15 reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CancelBatch {
    /// Epoch of the batch.
    pub epoch: u32,
    /// Batch number within the epoch.
    pub batch: u32,
}

impl CancelBatch {
    /// Encodes dwords 10 to 15.
    pub const fn dwords(self) -> [u32; 6] {
        [self.batch, self.epoch, 0, 0, 0, 0]
    }

    /// Decodes dwords 10 to 15. Returns `None` if a reserved one is not 0.
    pub const fn from_dwords(dwords: [u32; 6]) -> Option<Self> {
        match dwords {
            [batch, epoch, 0, 0, 0, 0] => Some(Self { epoch, batch }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_and_epoch_have_their_places_and_the_rest_is_reserved() {
        let cancel = CancelBatch { epoch: 3, batch: 9 };
        assert_eq!(cancel.dwords(), [9, 3, 0, 0, 0, 0]);
        assert_eq!(CancelBatch::from_dwords(cancel.dwords()), Some(cancel));
        for reserved in 2..6 {
            let mut dwords = cancel.dwords();
            dwords[reserved] = 1;
            assert_eq!(CancelBatch::from_dwords(dwords), None);
        }
    }
}
