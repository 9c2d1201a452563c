//! From received bytes to validated PDU headers, without I/O and without allocation.
//!
//! [`HeaderDecoder`] takes header, header digest and padding, and returns an [`Incoming`]. Then the caller itself
//! receives `data_bytes` of data, straight into the right buffer, and [`super::DIGEST_BYTES`] more if `data_digest` is
//! set. After that, the decoder takes the next header.
//!
//! ```
//! use ddlp_nvme::tcp::{ConnectionPhase, Digests, HeaderDecoder, IcReq, IcResp, Pdu, PduLimits, Role};
//!
//! let limits = PduLimits { capsule_bytes_max: 8192, data_bytes_max: 1 << 20 };
//! let mut decoder = HeaderDecoder::new(Role::Controller, limits);
//! let sent = IcReq::new(Digests::NONE).encode();
//! let mut bytes: &[u8] = &sent;
//! let incoming = decoder.feed(&mut bytes)?.expect("a whole header was fed");
//! let Pdu::IcReq(request) = incoming.pdu else { panic!("not what was sent") };
//! decoder.set_phase(ConnectionPhase::Ready(request.digests()));
//! # Ok::<(), ddlp_nvme::tcp::PduError>(())
//! ```

use super::digest::header_digest;
use super::pdu::{
    CapsuleCommand, CapsuleResponse, CommonHeader, DataHeader, IcReq, IcResp, PduFlags, PduType, ReadyToTransfer,
    TermReq,
};
use super::term::{FatalError, FatalStatus};
use super::{COMMON_BYTES, DIGEST_BYTES, Digests, HEADER_BYTES_MAX, Role};
use crate::entry::{CompletionEntry, SubmissionEntry};
use zerocopy::FromBytes;

/// Phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionPhase {
    /// Before ICReq or ICResp.
    Setup,
    /// After the setup, with these digests in force.
    Ready(Digests),
}

/// Limits on the data of one PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PduLimits {
    /// Most in-capsule data of a command.
    pub capsule_bytes_max: u32,
    /// Most data in one H2CData or C2HData.
    pub data_bytes_max: u32,
}

/// A validated header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pdu {
    /// Initialize Connection Request; its parameters are for [`IcReq::check`].
    IcReq(IcReq),
    /// Initialize Connection Response; its parameters are for [`IcResp::check`].
    IcResp(IcResp),
    /// The peer ends the connection.
    Terminate(FatalError),
    /// A command.
    Command(SubmissionEntry),
    /// A completion.
    Response(CompletionEntry),
    /// A piece of data. Its length equals [`Incoming::data_bytes`]; the caller has to check command, tag and range.
    Data(DataHeader),
    /// A request for data.
    ReadyToTransfer(ReadyToTransfer),
}

/// A validated header and what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// The header.
    pub pdu: Pdu,
    /// Bytes of data that follow.
    pub data_bytes: u32,
    /// Whether a data digest follows the data.
    pub data_digest: bool,
}

/// Reason why received bytes are not a valid PDU. The connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PduError {
    /// This side does not receive PDUs of this type.
    Type(PduType),
    /// The PDU comes out of sequence: a second setup, or another PDU before the setup.
    Sequence(PduType),
    /// Digest flags differ from the agreed ones, or SUCCESS comes without LAST.
    Flags(PduType, u8),
    /// Wrong header length.
    HeaderLength(PduType, u8),
    /// The data would begin within the header, or after the end of the PDU.
    DataOffset(PduType, u8),
    /// Wrong total length.
    Length(PduType, u32),
    /// The data length in the header does not match the total length.
    DataLength {
        /// Length in the header.
        stated: u32,
        /// Length by the total length.
        carried: u32,
    },
    /// The header digest does not match.
    HeaderDigest {
        /// Digest in the PDU.
        received: u32,
        /// Digest of the header.
        computed: u32,
    },
    /// More data than allowed.
    Limit {
        /// Type of the PDU.
        kind: PduType,
        /// Bytes of its data.
        bytes: u32,
        /// Most bytes allowed.
        limit: u32,
    },
}

impl core::fmt::Display for PduError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Type(kind) => write!(f, "unexpected pdu {kind}"),
            Self::Sequence(kind) => write!(f, "{kind} out of sequence"),
            Self::Flags(kind, flags) => write!(f, "{kind} with flags {flags:02x}h"),
            Self::HeaderLength(kind, bytes) => write!(f, "{kind} with a header of {bytes} bytes"),
            Self::DataOffset(kind, offset) => write!(f, "{kind} with data at offset {offset}"),
            Self::Length(kind, bytes) => write!(f, "{kind} of {bytes} bytes in all"),
            Self::DataLength { stated, carried } => {
                write!(f, "data length {stated} in a pdu that carries {carried} bytes")
            }
            Self::HeaderDigest { received, computed } => {
                write!(f, "header digest {received:#010x}, {computed:#010x} expected")
            }
            Self::Limit { kind, bytes, limit } => {
                write!(f, "{kind} with {bytes} bytes of data, at most {limit} allowed")
            }
        }
    }
}

impl core::error::Error for PduError {}

impl PduError {
    /// Returns the error that a TermReq reports.
    pub const fn fatal(self) -> FatalError {
        let (status, info) = match self {
            Self::Type(_) => (FatalStatus::HEADER, 0),
            Self::Sequence(_) => (FatalStatus::SEQUENCE, 0),
            Self::Flags(..) => (FatalStatus::HEADER, 1),
            Self::HeaderLength(..) => (FatalStatus::HEADER, 2),
            Self::DataOffset(..) => (FatalStatus::HEADER, 3),
            Self::Length(..) => (FatalStatus::HEADER, 4),
            Self::DataLength { .. } => (FatalStatus::HEADER, 16),
            Self::HeaderDigest { received, .. } => (FatalStatus::HEADER_DIGEST, received),
            Self::Limit { .. } => (FatalStatus::LIMIT, 0),
        };
        FatalError { status, info }
    }
}

/// Most bytes before the data, since PDO is one byte.
const HEAD_BYTES_MAX: usize = 256;
/// Bytes of the longest TermReq.
const TERM_BYTES_MAX: usize = size_of::<TermReq>() + HEADER_BYTES_MAX;
const _: () = assert!(TERM_BYTES_MAX <= HEAD_BYTES_MAX && HEADER_BYTES_MAX + DIGEST_BYTES <= HEAD_BYTES_MAX);

/// Layout of the rest of a PDU, from its common header.
#[derive(Clone, Copy, Debug)]
struct RestLayout {
    kind: PduType,
    header_bytes: usize,
    /// Bytes before the data: header, digest, padding; for a TermReq the whole PDU.
    head_bytes: usize,
    header_digest: bool,
    data_bytes: u32,
    data_digest: bool,
}

/// Decoder of one direction of a connection.
#[derive(Clone, Debug)]
pub struct HeaderDecoder {
    receiver: Role,
    phase: ConnectionPhase,
    limits: PduLimits,
    buffer: [u8; HEAD_BYTES_MAX],
    have: usize,
    plan: Option<RestLayout>,
    failed: Option<PduError>,
}

impl HeaderDecoder {
    /// Makes a decoder of what `receiver` receives, in [`ConnectionPhase::Setup`].
    pub fn new(receiver: Role, limits: PduLimits) -> Self {
        Self {
            receiver,
            phase: ConnectionPhase::Setup,
            limits,
            buffer: [0; HEAD_BYTES_MAX],
            have: 0,
            plan: None,
            failed: None,
        }
    }

    /// Sets the phase of the connection. To be called between two PDUs only.
    pub fn set_phase(&mut self, phase: ConnectionPhase) {
        self.phase = phase;
    }

    /// Sets the limits from the next PDU on.
    pub fn set_limits(&mut self, limits: PduLimits) {
        self.limits = limits;
    }

    /// Returns whether the decoder is between two headers, so that the end of the connection would cut off no header.
    pub fn is_idle(&self) -> bool {
        self.have == 0
    }

    /// Returns the space for the next received bytes; not empty unless an error has occurred. Report the bytes to
    /// [`HeaderDecoder::advance`].
    pub fn space(&mut self) -> &mut [u8] {
        let end = self.target();
        &mut self.buffer[self.have..end]
    }

    /// Records `count` bytes received into [`HeaderDecoder::space`]. A `count` that exceeds that space is taken as its
    /// length.
    pub fn advance(&mut self, count: usize) -> Result<Option<Incoming>, PduError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.have = self.have.saturating_add(count).min(self.target());
        let outcome = self.step();
        if let Err(error) = outcome {
            self.failed = Some(error);
        }
        outcome
    }

    /// Takes bytes from the front of `bytes` up to the end of one header.
    pub fn feed(&mut self, bytes: &mut &[u8]) -> Result<Option<Incoming>, PduError> {
        while self.failed.is_some() || !bytes.is_empty() {
            let space = self.space();
            let count = space.len().min(bytes.len());
            space[..count].copy_from_slice(&bytes[..count]);
            *bytes = &bytes[count..];
            if let Some(incoming) = self.advance(count)? {
                return Ok(Some(incoming));
            }
        }
        Ok(None)
    }

    /// Returns the bytes of the header that have arrived. After an error, a TermReq quotes them.
    pub fn header(&self) -> &[u8] {
        &self.buffer[..self.have.min(HEADER_BYTES_MAX)]
    }

    fn target(&self) -> usize {
        self.plan.map_or(COMMON_BYTES, |plan| plan.head_bytes)
    }

    fn step(&mut self) -> Result<Option<Incoming>, PduError> {
        if self.have < self.target() {
            return Ok(None);
        }
        let Some(plan) = self.plan else {
            self.plan = Some(self.plan_rest()?);
            return Ok(None);
        };
        self.check_digest(plan)?;
        let pdu = self.read(plan)?;
        self.plan = None;
        self.have = 0;
        Ok(Some(Incoming { pdu, data_bytes: plan.data_bytes, data_digest: plan.data_digest }))
    }

    /// Checks the common header and lays out the rest of the PDU.
    fn plan_rest(&self) -> Result<RestLayout, PduError> {
        let head = &self.buffer[..COMMON_BYTES];
        let Ok(head) = CommonHeader::read_from_bytes(head) else { unreachable!("the common header has 8 bytes") };
        let kind = PduType(head.kind);
        let header_bytes = kind.header_bytes().ok_or(PduError::Type(kind))?;
        if kind.receiver() != Some(self.receiver) {
            return Err(PduError::Type(kind));
        }
        if kind.is_setup() != (self.phase == ConnectionPhase::Setup) && !kind.is_termination() {
            return Err(PduError::Sequence(kind));
        }
        if usize::from(head.header_bytes) != header_bytes {
            return Err(PduError::HeaderLength(kind, head.header_bytes));
        }
        if kind.is_termination() {
            return plan_termination(kind, &head);
        }
        let digests = match self.phase {
            ConnectionPhase::Setup => Digests::NONE,
            ConnectionPhase::Ready(digests) => digests,
        };
        plan_data(kind, &head, digests, self.limits)
    }

    fn check_digest(&self, plan: RestLayout) -> Result<(), PduError> {
        if !plan.header_digest {
            return Ok(());
        }
        let (header, rest) = self.buffer.split_at(plan.header_bytes);
        let [a, b, c, d, ..] = *rest else { unreachable!("the buffer holds header and digest") };
        let received = u32::from_le_bytes([a, b, c, d]);
        let computed = header_digest(header);
        if received == computed { Ok(()) } else { Err(PduError::HeaderDigest { received, computed }) }
    }

    fn read(&self, plan: RestLayout) -> Result<Pdu, PduError> {
        let bytes = &self.buffer[..];
        Ok(match plan.kind {
            PduType::IC_REQ => Pdu::IcReq(prefix(bytes)),
            PduType::IC_RESP => Pdu::IcResp(prefix(bytes)),
            PduType::COMMAND => Pdu::Command(prefix::<CapsuleCommand>(bytes).entry),
            PduType::RESPONSE => Pdu::Response(prefix::<CapsuleResponse>(bytes).entry),
            PduType::READY_TO_TRANSFER => Pdu::ReadyToTransfer(prefix(bytes)),
            PduType::HOST_DATA | PduType::CONTROLLER_DATA => {
                let header: DataHeader = prefix(bytes);
                let stated = header.length.get();
                if stated != plan.data_bytes {
                    return Err(PduError::DataLength { stated, carried: plan.data_bytes });
                }
                Pdu::Data(header)
            }
            _ => {
                let request: TermReq = prefix(bytes);
                Pdu::Terminate(FatalError { status: FatalStatus(request.status.get()), info: request.info.get() })
            }
        })
    }
}

/// Reads the struct at the start of the buffer, which is longer than any header.
fn prefix<T: FromBytes>(buffer: &[u8]) -> T {
    let Ok((value, _)) = T::read_from_prefix(buffer) else { unreachable!("no header is longer than the buffer") };
    value
}

/// Plans a TermReq, which is received whole. The offending header that it quotes is dropped.
fn plan_termination(kind: PduType, head: &CommonHeader) -> Result<RestLayout, PduError> {
    let total = head.total_bytes.get();
    let head_bytes = usize::try_from(total).unwrap_or(usize::MAX);
    if !(size_of::<TermReq>()..=TERM_BYTES_MAX).contains(&head_bytes) {
        return Err(PduError::Length(kind, total));
    }
    let header_bytes = size_of::<TermReq>();
    Ok(RestLayout { kind, header_bytes, head_bytes, header_digest: false, data_bytes: 0, data_digest: false })
}

/// Lays out any other PDU: header, digest, padding up to PDO, data, data digest.
fn plan_data(kind: PduType, head: &CommonHeader, digests: Digests, limits: PduLimits) -> Result<RestLayout, PduError> {
    let flags_wrong = Err(PduError::Flags(kind, head.flags.0));
    if head.flags.has(PduFlags::HEADER_DIGEST) != digests.header {
        return flags_wrong;
    }
    if head.flags.has(PduFlags::SUCCESS) && kind == PduType::CONTROLLER_DATA && !head.flags.has(PduFlags::LAST) {
        return flags_wrong;
    }
    let header_bytes = usize::from(head.header_bytes);
    let with_digest = header_bytes + digests.header_bytes();
    let total = head.total_bytes.get();
    let bare = RestLayout {
        kind,
        header_bytes,
        head_bytes: with_digest,
        header_digest: digests.header,
        data_bytes: 0,
        data_digest: false,
    };
    let may_carry = kind.is_data() || kind == PduType::COMMAND;
    if total == with_digest as u32 && !kind.is_data() {
        return Ok(bare);
    }
    if !may_carry || total < with_digest as u32 {
        return Err(PduError::Length(kind, total));
    }
    let offset = usize::from(head.data_offset);
    let behind = total.checked_sub(offset as u32).filter(|_| offset >= with_digest);
    let behind = behind.ok_or(PduError::DataOffset(kind, head.data_offset))?;
    if head.flags.has(PduFlags::DATA_DIGEST) != digests.data {
        return flags_wrong;
    }
    let digest_bytes = if digests.data { DIGEST_BYTES as u32 } else { 0 };
    let data_bytes = behind.checked_sub(digest_bytes).filter(|&bytes| bytes > 0);
    let data_bytes = data_bytes.ok_or(PduError::Length(kind, total))?;
    let limit = if kind.is_data() { limits.data_bytes_max } else { limits.capsule_bytes_max };
    if data_bytes > limit {
        return Err(PduError::Limit { kind, bytes: data_bytes, limit });
    }
    Ok(RestLayout { head_bytes: offset, data_bytes, data_digest: digests.data, ..bare })
}

#[cfg(test)]
mod tests;
