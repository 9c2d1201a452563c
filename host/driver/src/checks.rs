//! Checks that both drivers make before they send anything.

use crate::contract::Command;
use crate::error::DriverError;
use ddlp_nvme::code::Direction;

/// Checks that the controller takes a transfer of `bytes`.
pub(crate) fn transfer(bytes: usize, most: usize) -> Result<(), DriverError> {
    if bytes > most {
        return Err(DriverError::Invalid(format!("a transfer of {bytes} bytes exceeds the limit of {most}")));
    }
    Ok(())
}

/// Checks that a queue can have this depth.
pub(crate) fn depth(depth: usize, most: usize, peer: &str) -> Result<(), DriverError> {
    if depth > most {
        return Err(DriverError::Invalid(format!(
            "queue depth {depth} is not possible at {peer}: it allows up to {most}"
        )));
    }
    Ok(())
}

/// Checks that a queue with `in_flight` of `depth` commands takes another one, with `bytes` of data from the host.
pub(crate) fn submission(
    command: &Command,
    bytes: usize,
    most: usize,
    (in_flight, depth): (usize, usize),
) -> Result<(), DriverError> {
    if in_flight >= depth {
        return Err(DriverError::Invalid(format!("{in_flight} commands are in flight already")));
    }
    transfer(bytes, most)?;
    if bytes > 0 && Direction::of(command.opcode) != Direction::Write {
        let opcode = command.opcode;
        return Err(DriverError::Invalid(format!("opcode {opcode:02X}h takes no data from the host")));
    }
    Ok(())
}
