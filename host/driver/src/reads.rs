//! Splits reads of blocks into commands.

use crate::contract::{BlockRead, Command};
use crate::error::DriverError;
use crate::namespace::BlockGeometry;
use ddlp_nvme::io::BlockRange;
use ddlp_nvme::{IoOpcode, Status};
use std::ops::Range;
use std::time::Duration;

/// Commands in flight for one [`crate::Queue::read_many`] to a near controller, if it allows as many on a queue.
pub const READS_IN_FLIGHT: usize = 16;
/// Bytes in flight for one [`crate::Queue::read_many`] to a near controller, unless a single command has more.
pub const READ_BYTES_IN_FLIGHT: usize = 4 * READ_PIECE_BYTES;
/// Bytes of one read, if the controller's largest transfer allows it.
pub const READ_PIECE_BYTES: usize = 512 << 10;
/// Rate of the path that reads can fill: 10 Gb/s.
const BYTES_A_SECOND: f64 = 1.25e9;

/// How much one [`crate::Queue::read_many`] may have in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadWindow {
    pub commands: usize,
    /// A single command may have more.
    pub bytes: usize,
}

impl ReadWindow {
    /// The window to a near controller.
    pub const NEAR: Self = Self { commands: READS_IN_FLIGHT, bytes: READ_BYTES_IN_FLIGHT };

    /// Returns the window to a controller at this round trip: as many bytes as 10 Gb/s bring in that time. At most
    /// `commands` commands are in flight.
    pub fn at(round_trip: Duration, commands: usize) -> Self {
        let times = (BYTES_A_SECOND * round_trip.as_secs_f64() / READ_BYTES_IN_FLIGHT as f64).max(1.0);
        let of = |near: usize| (near as f64 * times) as usize;
        Self { commands: of(READS_IN_FLIGHT).min(commands), bytes: of(READ_BYTES_IN_FLIGHT) }
    }

    /// Returns whether a near controller would have more in flight, or as much.
    pub fn is_near(self) -> bool {
        self.bytes <= READ_BYTES_IN_FLIGHT
    }
}

/// Where the data of a command go: a range of one of the caller's buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub buffer: usize,
    pub range: Range<usize>,
}

/// The commands of one [`crate::Queue::read_many`] in order, each with the place of its data.
pub(crate) struct ReadPlan {
    nsid: u32,
    block_bytes: usize,
    piece_bytes: usize,
    window: ReadWindow,
    /// First block and bytes of each read.
    reads: Vec<(u64, usize)>,
    /// The read that the next command belongs to, and the bytes of it that earlier commands read.
    at: usize,
    offset: usize,
}

impl ReadPlan {
    /// Plans commands for `reads`, each of at most `transfer_bytes_max` bytes, with as many in flight as `window`
    /// allows. Returns an error unless each read is of whole blocks within the namespace.
    pub(crate) fn new(
        nsid: u32,
        geometry: BlockGeometry,
        reads: &[BlockRead<'_>],
        transfer_bytes_max: usize,
        window: ReadWindow,
    ) -> Result<Self, DriverError> {
        for read in reads {
            geometry.blocks_of(read.lba, read.buf.len())?;
        }
        let block_bytes = geometry.block_bytes as usize;
        let piece_bytes = (transfer_bytes_max.min(READ_PIECE_BYTES) / block_bytes).max(1) * block_bytes;
        let reads = reads.iter().map(|read| (read.lba, read.buf.len())).collect();
        Ok(Self { nsid, block_bytes, piece_bytes, window, reads, at: 0, offset: 0 })
    }

    /// Returns the error of the read into a buffer, which `peer` answered with `status`.
    pub(crate) fn refused(&self, peer: &str, status: Status, buffer: usize) -> DriverError {
        let (lba, bytes) = self.reads[buffer];
        let what = format!("read of {bytes} bytes at block {lba} of namespace {}", self.nsid);
        DriverError::Status { peer: peer.to_owned(), what, status: status.to_string(), code: status.0 }
    }

    /// Returns the next command if it may be in flight beside these commands and bytes.
    pub(crate) fn next_beside(&mut self, commands: usize, bytes: usize) -> Option<(Command, Place)> {
        let has_room =
            commands < self.window.commands && (commands == 0 || bytes + self.piece_bytes <= self.window.bytes);
        has_room.then(|| self.next()).flatten()
    }
}

impl Iterator for ReadPlan {
    type Item = (Command, Place);

    fn next(&mut self) -> Option<Self::Item> {
        while self.reads.get(self.at).is_some_and(|&(_, bytes)| self.offset == bytes) {
            (self.at, self.offset) = (self.at + 1, 0);
        }
        let &(lba, bytes) = self.reads.get(self.at)?;
        let end = bytes.min(self.offset + self.piece_bytes);
        let blocks = (end - self.offset) / self.block_bytes;
        let range = BlockRange::new(lba + (self.offset / self.block_bytes) as u64, u32::try_from(blocks).ok()?)?;
        let command =
            Command { opcode: IoOpcode::READ.0, nsid: self.nsid, cdw10_15: range.dwords(), ..Command::default() };
        let place = Place { buffer: self.at, range: self.offset..end };
        self.offset = end;
        Some((command, place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: BlockGeometry = BlockGeometry { block_bytes: 4096, blocks: 1000 };

    #[test]
    fn pieces_cover_all_reads_once_and_in_order() {
        let (mut long, mut empty, mut short) = (vec![0; 10 * 4096], vec![], vec![0; 4096]);
        let reads = [(5, &mut long), (9, &mut empty), (700, &mut short)].map(|(lba, buf)| BlockRead { lba, buf });
        let plan = ReadPlan::new(2, GEOMETRY, &reads, 3 * 4096 + 1, ReadWindow::NEAR).unwrap();
        let error = plan.refused("drive", Status::UNRECOVERED_READ, 2).to_string();
        assert!(error.contains("drive") && error.contains("read of 4096 bytes at block 700 of namespace 2"), "{error}");
        let pieces: Vec<_> = plan
            .map(|(command, Place { buffer, range })| (command.cdw10_15[0], command.cdw10_15[2], buffer, range))
            .collect();
        let block = |from: usize, to: usize| from * 4096..to * 4096;
        let of_long =
            [(5, 2, 0, block(0, 3)), (8, 2, 0, block(3, 6)), (11, 2, 0, block(6, 9)), (14, 0, 0, block(9, 10))];
        assert_eq!(pieces[..4], of_long);
        assert_eq!(pieces[4..], [(700, 0, 2, block(0, 1))]);
        let behind = [BlockRead { lba: 0, buf: &mut short }, BlockRead { lba: 999, buf: &mut long }];
        assert!(ReadPlan::new(2, GEOMETRY, &behind, 4096, ReadWindow::NEAR).is_err(), "behind the end");
    }

    #[test]
    fn commands_and_bytes_in_flight_have_bounds_and_one_command_always_may_be() {
        let mut buffers = vec![vec![0; READ_PIECE_BYTES]; 3];
        let reads: Vec<_> = buffers.iter_mut().map(|buf| BlockRead { lba: 0, buf }).collect();
        let mut plan = ReadPlan::new(2, GEOMETRY, &reads, usize::MAX, ReadWindow::NEAR).unwrap();
        assert!(plan.next_beside(0, usize::MAX / 2).is_some());
        assert!(plan.next_beside(16, 0).is_none());
        assert!(plan.next_beside(1, READ_BYTES_IN_FLIGHT - READ_PIECE_BYTES + 1).is_none());
        assert!(plan.next_beside(15, READ_BYTES_IN_FLIGHT - READ_PIECE_BYTES).is_some());
        assert!(plan.next_beside(0, 0).is_some() && plan.next_beside(0, 0).is_none());
    }
    #[test]
    fn a_long_path_has_as_many_bytes_in_flight_as_fill_it() {
        let at = |ms| ReadWindow::at(Duration::from_millis(ms), 120);
        assert_eq!(at(0), ReadWindow::NEAR);
        assert_eq!(at(1), ReadWindow::NEAR, "10 Gb/s bring 1.25 MB");
        assert!(ReadWindow::NEAR.is_near());
        let far = at(100);
        assert_eq!((far.commands, far.bytes), (120, 125_000_000));
        assert!(!far.is_near());
        assert_eq!(ReadWindow::at(Duration::ZERO, 3).commands, 3, "the controller allows no more");
    }
}
