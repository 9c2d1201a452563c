//! Gets a drive's results out of their slots: from shared memory, or by reading them over the association.

use super::DriveLink;
use super::checks::{Checks, Handover, ResultError, SlotBatch, Taken};
use super::machine::Fetched;
use super::results::Results;
use ddlp_csd::slot::Found;
use ddlp_driver::DriverError;
use memmap2::MmapMut;
use std::time::Duration;

impl Results {
    /// Gets a finished batch out of its slot, if there is a buffer for it.
    pub fn fetch_held(&mut self, link: &mut DriveLink, timeout: Duration) -> Result<Fetched, DriverError> {
        match self.checks.handover() {
            Handover::InPlace => Ok(Fetched::None),
            Handover::Convert | Handover::Pass => self.fetch(Checks::take_shared),
            Handover::Read => self.fetch(|checks, held, buffer| {
                let found = read(checks, link, held, buffer, timeout)?;
                Ok(Taken { records: found.records, slot: None })
            }),
            Handover::ReadAndConvert => {
                let mut scratch = self.pixels.take();
                let fetched = self.fetch(|checks, held, buffer| {
                    let pixels = match &mut scratch {
                        Some(pixels) => pixels,
                        None => scratch.insert(MmapMut::map_anon(checks.slots.slot_bytes())?),
                    };
                    let found = read(checks, link, held, pixels, timeout)?;
                    checks.handle.engine.task.bucket(held.id).images.write_rows(&pixels[..found.payload.len()], buffer);
                    Ok(Taken { records: found.records, slot: None })
                });
                self.pixels = scratch;
                fetched
            }
        }
    }
}

/// Reads a slot's rows.
fn read(
    checks: &Checks,
    link: &mut DriveLink,
    held: &SlotBatch,
    buffer: &mut [u8],
    timeout: Duration,
) -> Result<Found, ResultError> {
    let wanted = checks.wanted(held);
    let layout = wanted.layout();
    let mut head = vec![0; layout.payload_offset];
    // As many rows as were requested. If the drive left some out, the bytes behind the others mean nothing.
    let rows = buffer.get_mut(..layout.total_bytes - layout.payload_offset).expect("a buffer has room for a batch");
    link.read_slot(held.slot, &mut head, rows, timeout)?;
    let found = wanted.check(&head)?;
    found.check_payload(&rows[..found.payload.len()])?;
    Ok(found)
}
