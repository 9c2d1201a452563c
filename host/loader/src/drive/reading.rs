//! Gets a drive's results out of their slots: from shared memory, or by reading them over the association.

use super::Link;
use super::prong::DriveProng;
use super::results::{Checks, Held, ResultError, Way};
use ddlp_csd::BLOCK_BYTES;
use ddlp_csd::slot::Found;
use ddlp_driver::DriverError;
use memmap2::MmapMut;
use std::time::Duration;

impl DriveProng {
    /// Gets a finished batch out of its slot, if there is a buffer for it. Returns whether it took a batch.
    pub(super) fn fetch_held(&mut self) -> Result<bool, DriverError> {
        let (timeout, slot_bytes) = (self.timeout, self.expected.slot_bytes);
        let Self { waiting, link, pixels, .. } = self;
        let link = link.as_mut().expect("served only with a link");
        match waiting.checks.way() {
            Way::InPlace => Ok(false),
            Way::Convert => waiting.fetch(Checks::convert_shared),
            Way::Read => waiting.fetch(|checks, held, buffer| Ok(read(checks, link, held, buffer, timeout)?.records)),
            Way::ReadAndConvert => waiting.fetch(|checks, held, buffer| {
                let pixels = match pixels {
                    Some(pixels) => pixels,
                    None => pixels.insert(MmapMut::map_anon(slot_bytes)?),
                };
                let found = read(checks, link, held, pixels, timeout)?;
                checks.engine.task.write_rows(&pixels[..found.payload.len()], buffer);
                Ok(found.records)
            }),
        }
    }
}

/// Reads a slot's rows.
fn read(
    checks: &Checks,
    link: &mut Link,
    held: &Held,
    buffer: &mut [u8],
    timeout: Duration,
) -> Result<Found, ResultError> {
    let wanted = checks.wanted(held);
    let mut head = vec![0; wanted.layout().payload_offset];
    link.read_slot(held.slot, 0, &mut head, timeout)?;
    let found = wanted.check(&head)?;
    checks.check_labels(&found.records)?;
    let bytes = found.payload.len();
    let target = buffer.get_mut(..bytes.next_multiple_of(BLOCK_BYTES)).expect("a buffer has room for a batch");
    link.read_slot(held.slot, found.payload.start, target, timeout)?;
    found.check_payload(&target[..bytes])?;
    Ok(found)
}
