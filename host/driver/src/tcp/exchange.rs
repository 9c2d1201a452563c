//! The commands in flight on one connection, and the rules for the peer's messages about them.
//!
//! A command's identifier is its slot (12 bits) and the slot's generation (4 bits), so that an answer to a completed
//! command is recognised as unexpected. Each byte of a command's data moves once, in order: every C2HData and R2T has
//! to continue where the last one ended, within the buffer. The exchange answers one R2T at a time, at once.

use super::connection::Connection;
use super::deadline::Deadline;
use super::link::TcpLink;
use crate::contract::{Completion, Ticket};
use crate::error::DriverError;
use crate::reads::Place;
use ddlp_nvme::entry::FLAGS_SGL;
use ddlp_nvme::tcp::encode::DataPiece;
use ddlp_nvme::tcp::{CapsuleCommand, DataDigest, DataHeader, FatalError, FatalStatus, Incoming, Pdu, ReadyToTransfer};
use ddlp_nvme::{CompletionEntry, SglDescriptor, Status, SubmissionEntry};
use std::time::Instant;

/// Bits of a command identifier that name the slot; the others are the slot's generation.
const SLOT_BITS: u32 = 12;
const _: () = assert!(super::QUEUE_COMMANDS_MAX == 1 << SLOT_BITS);

/// Data of a command.
#[derive(Debug)]
pub(super) enum CommandData {
    None,
    /// Data from host to controller.
    Write(Vec<u8>),
    /// Data from controller to host, into this place of the buffers given to [`Exchange::step`].
    Read(Place),
}

/// A command that completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) ticket: Ticket,
    pub(super) completion: Completion,
    /// Submission queue head, or FFFFh without flow control.
    pub(super) sq_head: u16,
}

/// Result of a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ExchangeStep {
    /// Nothing came before the time to wake.
    Idle,
    /// A PDU came, but no completion.
    Progress,
    Done(Done),
}

#[derive(Debug)]
struct Outstanding {
    ticket: Ticket,
    transfer: CommandData,
    /// Bytes of the data moved so far.
    moved: usize,
    /// Whether a piece of the data had a wrong digest.
    damaged: bool,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u16,
    outstanding: Option<Outstanding>,
}

/// Rules for the commands of a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueRules {
    /// Most data in a command's capsule, in bytes.
    pub(super) capsule_bytes_max: usize,
    /// Whether flow control is off, so that C2HData may replace the response.
    pub(super) success_flag: bool,
}

#[derive(Debug)]
pub(super) struct Exchange {
    connection: Connection,
    slots: Vec<Slot>,
    free: Vec<u16>,
    next_ticket: u64,
    rules: QueueRules,
}

impl Exchange {
    /// Makes an exchange for up to `commands` (at most [`super::QUEUE_COMMANDS_MAX`]) in flight.
    pub(super) fn new(connection: Connection, commands: usize, rules: QueueRules) -> Self {
        assert!((1..=super::QUEUE_COMMANDS_MAX).contains(&commands), "{commands} commands in flight");
        Self {
            connection,
            slots: (0..commands).map(|_| Slot::default()).collect(),
            free: (0..commands as u16).rev().collect(),
            next_ticket: 0,
            rules,
        }
    }

    pub(super) fn set_rules(&mut self, rules: QueueRules) {
        self.rules = rules;
    }

    pub(super) fn link(&self) -> &TcpLink {
        self.connection.link()
    }

    /// Returns the number of commands that can be submitted now.
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Returns the ticket of the next command; earlier tickets are smaller.
    pub(super) fn next_ticket(&self) -> Ticket {
        Ticket(self.next_ticket)
    }

    /// Returns the identifier of a command in flight.
    pub(super) fn command_id(&self, ticket: Ticket) -> Option<u16> {
        let found = |slot: &Slot| slot.outstanding.as_ref().is_some_and(|outstanding| outstanding.ticket == ticket);
        let index = self.slots.iter().position(found)?;
        Some(identifier(index as u16, self.slots[index].generation))
    }

    /// Sends a command, with its data if they fit the capsule. Fills in the identifier and the data pointer. A read
    /// leaves with the next command or, at the latest, with the next step.
    pub(super) fn submit(&mut self, mut entry: SubmissionEntry, transfer: CommandData) -> Result<Ticket, DriverError> {
        self.link().check()?;
        let Some(&index) = self.free.last() else {
            return Err(DriverError::Invalid(format!("{} commands are in flight already", self.slots.len())));
        };
        let length = match &transfer {
            CommandData::None => Some(0),
            CommandData::Write(data) => u32::try_from(data.len()).ok(),
            CommandData::Read(place) => u32::try_from(place.range.len()).ok(),
        };
        let Some(length) = length else { return Err(DriverError::Invalid("transfer of 4 GiB or more".into())) };
        let in_capsule =
            matches!(&transfer, CommandData::Write(data) if (1..=self.rules.capsule_bytes_max).contains(&data.len()));
        entry.flags = FLAGS_SGL;
        entry.command_id = identifier(index, self.slots[usize::from(index)].generation).into();
        entry.data = if in_capsule { SglDescriptor::in_capsule(length) } else { SglDescriptor::transport(length) };
        let sent = match &transfer {
            CommandData::Write(data) if in_capsule => self.send_capsule(&entry, data),
            CommandData::Read(_) => {
                self.connection.hold(&CapsuleCommand::encode(&entry, 0, self.connection.digests()));
                Ok(())
            }
            _ => self.send_capsule(&entry, &[]),
        };
        self.noted(sent)?;
        self.free.pop();
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let moved = if in_capsule { length as usize } else { 0 };
        self.slots[usize::from(index)].outstanding = Some(Outstanding { ticket, transfer, moved, damaged: false });
        Ok(ticket)
    }

    /// Takes the next PDU with all of its data, if one has begun by `wake`. Puts the data of reads into their places of
    /// `sinks`. Fails if the time runs out in the middle of the data.
    pub(super) fn step(
        &mut self,
        sinks: &mut [&mut [u8]],
        wake: Instant,
        deadline: Deadline,
    ) -> Result<ExchangeStep, DriverError> {
        self.link().check()?;
        let sent = self.connection.send(&[], self.connection.send_deadline());
        let outcome = sent.and_then(|()| self.connection.next_header(wake));
        let outcome = outcome.and_then(|incoming| match incoming {
            None => Ok(ExchangeStep::Idle),
            Some(incoming) => self.take(incoming, sinks, deadline),
        });
        self.noted(outcome)
    }

    /// Ends the association if the error does so.
    fn noted<T>(&self, outcome: Result<T, DriverError>) -> Result<T, DriverError> {
        outcome.inspect_err(|error| {
            if error.ends_association() {
                self.link().fail(error.cause());
            }
        })
    }

    fn send_capsule(&mut self, entry: &SubmissionEntry, data: &[u8]) -> Result<(), DriverError> {
        let header = CapsuleCommand::encode(entry, data.len() as u32, self.connection.digests());
        self.send_with_data(&header, data)
    }

    fn send_with_data(&mut self, header: &[u8], data: &[u8]) -> Result<(), DriverError> {
        let deadline = self.connection.send_deadline();
        if !self.connection.digests().data || data.is_empty() {
            return self.connection.send(&[header, data], deadline);
        }
        let mut digest = DataDigest::new();
        digest.update(data);
        self.connection.send(&[header, data, &digest.wire()], deadline)
    }

    fn take(
        &mut self,
        incoming: Incoming,
        sinks: &mut [&mut [u8]],
        deadline: Deadline,
    ) -> Result<ExchangeStep, DriverError> {
        match incoming.pdu {
            Pdu::Response(entry) => self.complete(&entry).map(ExchangeStep::Done),
            Pdu::Data(header) => self.take_data(&header, incoming.data_digest, sinks, deadline),
            Pdu::ReadyToTransfer(request) => self.answer(&request).map(|()| ExchangeStep::Progress),
            Pdu::Terminate(fatal) => Err(self.link().protocol(format!("the peer ended the connection: {fatal}"))),
            Pdu::IcReq(_) | Pdu::IcResp(_) | Pdu::Command(_) => {
                unreachable!("the decoder gives a host no such pdu after set-up")
            }
        }
    }

    /// Returns the slot of a command in flight.
    fn find(&mut self, command_id: u16, what: &str) -> Result<usize, DriverError> {
        let index = usize::from(command_id) % super::QUEUE_COMMANDS_MAX;
        let slot = self.slots.get(index);
        let matches = slot
            .is_some_and(|slot| slot.outstanding.is_some() && identifier(index as u16, slot.generation) == command_id);
        if matches {
            return Ok(index);
        }
        let fatal = FatalError { status: FatalStatus::HEADER, info: 8 };
        Err(self.connection.violation(fatal, format!("{what} for command {command_id:#06x}, which is not in flight")))
    }

    fn complete(&mut self, entry: &CompletionEntry) -> Result<Done, DriverError> {
        let index = self.find(entry.command_id.get(), "response")?;
        let completion = Completion { result: entry.result.get(), status: entry.status().0 };
        self.finish(index, completion, entry.sq_head.get())
    }

    /// Frees a slot. Checks that a successful command has moved all its data.
    fn finish(&mut self, index: usize, mut completion: Completion, sq_head: u16) -> Result<Done, DriverError> {
        let slot = &mut self.slots[index];
        let Some(outstanding) = slot.outstanding.take() else { unreachable!("only found slots are finished") };
        slot.generation = slot.generation.wrapping_add(1) & (u16::MAX >> SLOT_BITS);
        self.free.push(index as u16);
        let wanted = match &outstanding.transfer {
            CommandData::None => 0,
            CommandData::Write(data) => data.len(),
            CommandData::Read(place) => place.range.len(),
        };
        if completion.status().is_success() {
            if outstanding.moved != wanted {
                let what = format!("success after {} of {wanted} bytes of data", outstanding.moved);
                return Err(self.link().protocol(what));
            }
            if outstanding.damaged {
                // NVMe/TCP, section "Data Digest": the command fails, the connection continues.
                completion.status = Status::TRANSIENT_TRANSPORT.0;
            }
        }
        Ok(Done { ticket: outstanding.ticket, completion, sq_head })
    }

    fn take_data(
        &mut self,
        header: &DataHeader,
        has_digest: bool,
        sinks: &mut [&mut [u8]],
        deadline: Deadline,
    ) -> Result<ExchangeStep, DriverError> {
        let index = self.find(header.command_id.get(), "data")?;
        let place = self.place_of(index, header)?;
        let sink = sinks.get_mut(place.buffer).and_then(|sink| sink.get_mut(place.range));
        let Some(into) = sink else { unreachable!("the buffers are those of the reads in flight") };
        let timed_out = |link: &TcpLink| deadline.timed_out(link.peer(), "the rest of its data");
        if !self.connection.receive(into, deadline.at)? {
            return Err(timed_out(self.link()));
        }
        let intact = match has_digest {
            false => true,
            true => self.connection.receive_digest(into, deadline.at)?.ok_or_else(|| timed_out(self.link()))?,
        };
        if let Some(outstanding) = &mut self.slots[index].outstanding {
            outstanding.moved += into.len();
            outstanding.damaged |= !intact;
        }
        if !header.is_success() {
            return Ok(ExchangeStep::Progress);
        }
        if !self.rules.success_flag {
            let fatal = FatalError { status: FatalStatus::HEADER, info: 1 };
            return Err(self.connection.violation(fatal, "success flag although flow control is on"));
        }
        self.finish(index, Completion::default(), u16::MAX).map(ExchangeStep::Done)
    }

    /// Returns the place for a piece of data.
    fn place_of(&mut self, index: usize, header: &DataHeader) -> Result<Place, DriverError> {
        let (offset, length) = (header.offset.get() as usize, header.length.get() as usize);
        let outstanding = self.slots[index].outstanding.as_ref();
        let what = match outstanding.map(|outstanding| (&outstanding.transfer, outstanding.moved)) {
            Some((CommandData::Read(place), moved)) if offset == moved && length <= place.range.len() - moved => {
                let from = place.range.start + moved;
                return Ok(Place { buffer: place.buffer, range: from..from + length });
            }
            Some((CommandData::Read(place), moved)) => {
                format!("data at {offset}, {length} bytes, where {moved} of {} have come", place.range.len())
            }
            _ => "data for a command that reads none".to_owned(),
        };
        let fatal = FatalError { status: FatalStatus::DATA_RANGE, info: 0 };
        Err(self.connection.violation(fatal, what))
    }

    /// Sends the data that an R2T requests.
    fn answer(&mut self, request: &ReadyToTransfer) -> Result<(), DriverError> {
        let command_id = request.command_id.get();
        let index = self.find(command_id, "R2T")?;
        let (offset, length) = (request.offset.get() as usize, request.length.get() as usize);
        let Some(mut outstanding) = self.slots[index].outstanding.take() else {
            unreachable!("only found slots are answered for")
        };
        let wrong = match &outstanding.transfer {
            CommandData::Write(data) if length > 0 && offset == outstanding.moved && length <= data.len() - offset => {
                None
            }
            CommandData::Write(data) => Some(format!(
                "R2T at {offset}, {length} bytes, where {} of {} have gone",
                outstanding.moved,
                data.len()
            )),
            _ => Some("R2T for a command that writes nothing".to_owned()),
        };
        if let Some(what) = wrong {
            let fatal = FatalError { status: FatalStatus::DATA_RANGE, info: 0 };
            return Err(self.connection.violation(fatal, what));
        }
        if let CommandData::Write(data) = &outstanding.transfer {
            self.send_pieces(command_id, request.tag.get(), &data[..offset + length], offset)?;
        }
        outstanding.moved += length;
        self.slots[index].outstanding = Some(outstanding);
        Ok(())
    }

    /// Sends `data` from `offset` on as H2CData, in pieces that the controller takes.
    fn send_pieces(&mut self, command_id: u16, tag: u16, data: &[u8], mut offset: usize) -> Result<(), DriverError> {
        let piece_max = self.connection.h2c_bytes_max() as usize;
        while offset < data.len() {
            let end = data.len().min(offset + piece_max);
            let piece =
                DataPiece { command_id, offset: offset as u32, length: (end - offset) as u32, last: end == data.len() };
            let header = piece.encode_to_controller(tag, self.connection.digests());
            self.send_with_data(&header, &data[offset..end])?;
            offset = end;
        }
        Ok(())
    }
}

fn identifier(slot: u16, generation: u16) -> u16 {
    slot | generation << SLOT_BITS
}
