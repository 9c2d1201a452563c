//! The protocol of one connection, sans I/O: received bytes in; commands with their data, and PDUs to send, out.
//!
//! A command's data arrives in its capsule, or in H2CData after one R2T. A damaged header ends the connection; damaged
//! data only fails its command (status Transient Transport Error).

use super::{H2C_DATA_BYTES_MAX, TRANSFER_BYTES_MAX};
use crate::controller::IN_CAPSULE_BYTES_MAX;
use ddlp_nvme::tcp::{
    Alignment, ConnectionPhase, DIGEST_BYTES, DataDigest, DataHeader, Digests, Encoded, FatalError, FatalStatus,
    HeaderDecoder, IcResp, Incoming, Pdu, PduLimits, ReadyToTransfer, Role,
};
use ddlp_nvme::{Status, SubmissionEntry};
use std::collections::{BTreeMap, VecDeque};

// Offsets of fields in H2CData, for error information.
/// Offset of CCCID.
const OFFSET_COMMAND_ID: u32 = 8;
/// Offset of TTAG.
const OFFSET_TAG: u32 = 10;
/// Offset of DATAO.
const OFFSET_DATA: u32 = 12;

/// Agreement of host and controller, in force from the next PDU on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Digests in both directions.
    pub digests: Digests,
    /// Alignment of data that goes to the host.
    pub alignment: Alignment,
}

/// Receiver of the session's commands and outgoing PDUs.
pub trait CommandHandler {
    /// Takes a new command, and returns how many bytes of its data to collect. An inner error is the command's status;
    /// an outer error ends the connection.
    fn begin(&mut self, command: &SubmissionEntry) -> Result<Result<usize, Status>, FatalError>;
    /// Runs a command, whose data is complete.
    fn run(&mut self, command: &SubmissionEntry, data: &[u8]);
    /// Fails a command before it runs.
    fn reject(&mut self, command: &SubmissionEntry, status: Status);
    /// Takes note that the connection is set up.
    fn ready(&mut self, setup: Agreement);
    /// Sends a PDU to the host.
    fn send(&mut self, pdu: Encoded);
}

/// Reason why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// The host ended the connection (H2CTermReq).
    Host(FatalError),
    /// The host broke the protocol.
    Violation(FatalError),
}

/// A command whose data an R2T has asked for.
#[derive(Debug)]
struct AwaitedData {
    command: SubmissionEntry,
    wanted: usize,
    data: Vec<u8>,
    damaged: bool,
}

/// Data that is arriving after its header.
#[derive(Debug)]
struct Receiving {
    to: Destination,
    left: usize,
    computed: DataDigest,
    /// Bytes of the digest that have arrived; `None` without digests.
    digest: Option<Vec<u8>>,
}

#[derive(Debug)]
enum Destination {
    Capsule { command: SubmissionEntry, wanted: Result<usize, Status>, data: Vec<u8> },
    Transfer { tag: u16, last: bool },
}

/// One connection.
#[derive(Debug)]
pub struct Session {
    decoder: HeaderDecoder,
    digests: Digests,
    receiving: Option<Receiving>,
    transfers: BTreeMap<u16, AwaitedData>,
    waiting: VecDeque<(SubmissionEntry, usize)>,
    asked_bytes: usize,
    last_tag: u16,
    pdus: u64,
}

impl Default for Session {
    fn default() -> Self {
        let limits = PduLimits { capsule_bytes_max: IN_CAPSULE_BYTES_MAX as u32, data_bytes_max: H2C_DATA_BYTES_MAX };
        Self {
            decoder: HeaderDecoder::new(Role::Controller, limits),
            digests: Digests::NONE,
            receiving: None,
            transfers: BTreeMap::new(),
            waiting: VecDeque::new(),
            asked_bytes: 0,
            last_tag: 0,
            pdus: 0,
        }
    }
}

fn violation(status: FatalStatus, info: u32) -> SessionEnd {
    SessionEnd::Violation(FatalError { status, info })
}

impl Session {
    /// Returns the number of the PDU that has arrived in part; `None` between two PDUs.
    pub fn partial(&self) -> Option<u64> {
        let is_idle = self.decoder.is_idle() && self.receiving.is_none();
        (!is_idle).then_some(self.pdus)
    }

    /// Returns the header that a TermReq quotes.
    pub fn header(&self) -> &[u8] {
        self.decoder.header()
    }

    /// Takes received bytes. After an error, the session must not be used again.
    pub fn feed(&mut self, mut bytes: &[u8], handler: &mut impl CommandHandler) -> Result<(), SessionEnd> {
        loop {
            if self.receiving.is_some() {
                if !self.receive(&mut bytes, handler)? {
                    return Ok(());
                }
                self.pdus += 1;
            } else {
                let incoming = self.decoder.feed(&mut bytes).map_err(|error| SessionEnd::Violation(error.fatal()))?;
                let Some(incoming) = incoming else { return Ok(()) };
                self.incoming(incoming, handler)?;
                self.pdus += u64::from(self.receiving.is_none());
            }
        }
    }

    fn incoming(&mut self, incoming: Incoming, handler: &mut impl CommandHandler) -> Result<(), SessionEnd> {
        match incoming.pdu {
            Pdu::IcReq(request) => {
                let alignment = request.check().map_err(SessionEnd::Violation)?;
                self.digests = request.digests();
                handler.ready(Agreement { digests: self.digests, alignment });
                handler.send(IcResp::new(self.digests, H2C_DATA_BYTES_MAX).encode());
                self.decoder.set_phase(ConnectionPhase::Ready(self.digests));
                Ok(())
            }
            Pdu::Terminate(reason) => Err(SessionEnd::Host(reason)),
            Pdu::Command(command) => {
                let wanted = handler.begin(&command).map_err(SessionEnd::Violation)?;
                if incoming.data_bytes == 0 {
                    self.without_capsule_data(command, wanted, handler);
                    return Ok(());
                }
                let data = Vec::with_capacity(incoming.data_bytes as usize);
                self.expect(&incoming, Destination::Capsule { command, wanted, data });
                Ok(())
            }
            Pdu::Data(header) => {
                let to = self.data_header(&header)?;
                self.expect(&incoming, to);
                Ok(())
            }
            // Unreachable: the decoder refuses PDUs that only a host receives.
            Pdu::IcResp(_) | Pdu::Response(_) | Pdu::ReadyToTransfer(_) => Err(violation(FatalStatus::HEADER, 0)),
        }
    }

    fn expect(&mut self, incoming: &Incoming, to: Destination) {
        let digest = incoming.data_digest.then(|| Vec::with_capacity(DIGEST_BYTES));
        let left = incoming.data_bytes as usize;
        self.receiving = Some(Receiving { to, left, computed: DataDigest::new(), digest });
    }

    fn without_capsule_data(
        &mut self,
        command: SubmissionEntry,
        wanted: Result<usize, Status>,
        handler: &mut impl CommandHandler,
    ) {
        match wanted {
            Err(status) => handler.reject(&command, status),
            Ok(0) => handler.run(&command, &[]),
            Ok(_) if !command.data.is_transport() => {
                handler.reject(&command, Status::SGL_DATA_LENGTH.do_not_retry());
            }
            Ok(wanted) => {
                self.waiting.push_back((command, wanted));
                self.ask(handler);
            }
        }
    }

    /// Sends R2Ts as long as the limit on outstanding data allows. One R2T covers all data of its command.
    fn ask(&mut self, handler: &mut impl CommandHandler) {
        while let Some(&(command, wanted)) = self.waiting.front() {
            if self.asked_bytes > 0 && self.asked_bytes + wanted > TRANSFER_BYTES_MAX {
                return;
            }
            self.waiting.pop_front();
            self.asked_bytes += wanted;
            let tag = self.free_tag();
            self.transfers.insert(tag, AwaitedData { command, wanted, data: Vec::new(), damaged: false });
            handler.send(ReadyToTransfer::encode(command.command_id.get(), tag, 0, wanted as u32, self.digests));
        }
    }

    /// Returns a tag that no transfer has. There are far fewer transfers than tags.
    fn free_tag(&mut self) -> u16 {
        loop {
            self.last_tag = self.last_tag.wrapping_add(1);
            if !self.transfers.contains_key(&self.last_tag) {
                return self.last_tag;
            }
        }
    }

    fn data_header(&self, header: &DataHeader) -> Result<Destination, SessionEnd> {
        let tag = header.tag.get();
        let transfer = self.transfers.get(&tag).ok_or(violation(FatalStatus::HEADER, OFFSET_TAG))?;
        if transfer.command.command_id != header.command_id {
            return Err(violation(FatalStatus::HEADER, OFFSET_COMMAND_ID));
        }
        let (have, length) = (transfer.data.len(), header.length.get() as usize);
        if header.offset.get() as usize != have || length > transfer.wanted - have {
            return Err(violation(FatalStatus::DATA_RANGE, OFFSET_DATA));
        }
        let last = have + length == transfer.wanted;
        if header.is_last() != last {
            return Err(violation(FatalStatus::SEQUENCE, 1));
        }
        Ok(Destination::Transfer { tag, last })
    }

    /// Takes data and digest from the front of `bytes`. Returns whether both are complete.
    fn receive(&mut self, bytes: &mut &[u8], handler: &mut impl CommandHandler) -> Result<bool, SessionEnd> {
        let Some(receiving) = &mut self.receiving else { return Ok(true) };
        let (piece, rest) = bytes.split_at(bytes.len().min(receiving.left));
        let target = match &mut receiving.to {
            Destination::Capsule { data, .. } => Some(data),
            Destination::Transfer { tag, .. } => self.transfers.get_mut(tag).map(|transfer| &mut transfer.data),
        };
        if let Some(data) = target {
            data.extend_from_slice(piece);
        }
        receiving.left -= piece.len();
        *bytes = rest;
        let mut damaged = false;
        if let Some(digest) = &mut receiving.digest {
            receiving.computed.update(piece);
            if receiving.left == 0 {
                let (piece, rest) = bytes.split_at(bytes.len().min(DIGEST_BYTES - digest.len()));
                digest.extend_from_slice(piece);
                *bytes = rest;
                damaged = digest[..] != receiving.computed.wire();
                if digest.len() < DIGEST_BYTES {
                    return Ok(false);
                }
            }
        }
        if receiving.left > 0 {
            return Ok(false);
        }
        if let Some(Receiving { to, .. }) = self.receiving.take() {
            self.received(to, damaged, handler);
        }
        Ok(true)
    }

    fn received(&mut self, to: Destination, damaged: bool, handler: &mut impl CommandHandler) {
        match to {
            Destination::Capsule { command, wanted, .. } if damaged && wanted.is_ok() => {
                handler.reject(&command, Status::TRANSIENT_TRANSPORT);
            }
            Destination::Capsule { command, wanted: Ok(wanted), data }
                if wanted > 0 && command.data.is_in_capsule() =>
            {
                match data.get(..wanted) {
                    Some(data) => handler.run(&command, data),
                    None => handler.reject(&command, Status::SGL_DATA_LENGTH.do_not_retry()),
                }
            }
            Destination::Capsule { command, wanted, .. } => self.without_capsule_data(command, wanted, handler),
            Destination::Transfer { tag, last } => self.transferred(tag, last, damaged, handler),
        }
    }

    fn transferred(&mut self, tag: u16, last: bool, damaged: bool, handler: &mut impl CommandHandler) {
        if let Some(transfer) = self.transfers.get_mut(&tag) {
            transfer.damaged |= damaged;
        }
        if !last {
            return;
        }
        if let Some(transfer) = self.transfers.remove(&tag) {
            self.asked_bytes -= transfer.wanted;
            if transfer.damaged {
                handler.reject(&transfer.command, Status::TRANSIENT_TRANSPORT);
            } else {
                handler.run(&transfer.command, &transfer.data);
            }
        }
        self.ask(handler);
    }
}

#[cfg(test)]
mod tests;
