//! What every way to a controller refuses before anything is sent.

use crate::contract::Command;
use crate::error::DriverError;
use ddlp_nvme::code::Direction;

/// A transfer of this many bytes is one that the controller takes.
pub(crate) fn transfer(bytes: usize, most: usize) -> Result<(), DriverError> {
    if bytes > most {
        return Err(DriverError::Invalid(format!("transfer of {bytes} bytes, at most {most} allowed")));
    }
    Ok(())
}

/// A queue can have this depth.
pub(crate) fn depth(depth: usize, most: usize, peer: &str) -> Result<(), DriverError> {
    if !(1..=most).contains(&depth) {
        return Err(DriverError::Invalid(format!("queue depth {depth}, 1 to {most} possible at {peer}")));
    }
    Ok(())
}

/// A queue with `in_flight` of `depth` commands takes another one, with this much data of the host's.
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
