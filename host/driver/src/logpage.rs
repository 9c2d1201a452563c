//! Get Log Page, in pieces that fit a transfer.

use crate::contract::{AdminData, Command, Controller};
use crate::error::DriverError;
use ddlp_nvme::admin::GetLogPage;
use ddlp_nvme::{AdminOpcode, Csi, LogId, NSID_ALL};
use std::time::Duration;

/// Fills `page` with the first bytes of a controller's log page. The length of `page` must be a multiple of 4.
/// `timeout` applies to each piece. The event of the page, if any, is retained.
pub fn read(
    controller: &dyn Controller,
    log: LogId,
    csi: Csi,
    page: &mut [u8],
    timeout: Duration,
) -> Result<(), DriverError> {
    if !page.len().is_multiple_of(4) {
        return Err(DriverError::Invalid(format!("the log page length {} is not a multiple of 4", page.len())));
    }
    let piece_bytes = (controller.transfer_bytes_max() & !3).clamp(4, 1 << 30);
    let mut offset = 0;
    for piece in page.chunks_mut(piece_bytes) {
        let length = piece.len();
        let request = GetLogPage::new(log, csi, offset, length as u32);
        let command = Command {
            opcode: AdminOpcode::GET_LOG_PAGE.0,
            nsid: NSID_ALL,
            cdw10_15: request.dwords(),
            ..Command::default()
        };
        let completion = controller.admin(&command, AdminData::Read(piece), timeout)?;
        completion.success(controller.peer(), &format!("log page {:02X}h ({log})", log.0))?;
        offset += length as u64;
    }
    Ok(())
}
