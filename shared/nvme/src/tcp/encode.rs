//! PDU headers ready to be sent, with their digest.

use super::digest::header_digest;
use super::pdu::{
    Alignment, CapsuleCommand, CapsuleResponse, CommonHeader, DataHeader, IcReq, IcResp, PduFlags, PduType,
    ReadyToTransfer, TermReq,
};
use super::term::FatalError;
use super::{Digests, HEADER_BYTES_MAX, Role};
use crate::entry::{CompletionEntry, SubmissionEntry};
use zerocopy::little_endian::U32;
use zerocopy::{Immutable, IntoBytes};

/// Longest content of [`Encoded`]: a TermReq that quotes a whole offending header.
const ENCODED_BYTES_MAX: usize = size_of::<TermReq>() + HEADER_BYTES_MAX;

/// A header as it is sent, with its digest and the padding up to its data; derefs to its bytes. Data and data digest,
/// if any, follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded {
    bytes: [u8; ENCODED_BYTES_MAX],
    length: usize,
}

impl Default for Encoded {
    fn default() -> Self {
        Self { bytes: [0; ENCODED_BYTES_MAX], length: 0 }
    }
}

impl core::ops::Deref for Encoded {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Encoded {
    fn push(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        assert!(end <= ENCODED_BYTES_MAX, "a header of {end} bytes is never made");
        self.bytes[self.length..end].copy_from_slice(bytes);
        self.length = end;
    }

    fn sealed<T: IntoBytes + Immutable>(header: &T, digests: Digests) -> Self {
        let mut encoded = Self::default();
        encoded.push(header.as_bytes());
        if digests.header {
            encoded.push(&header_digest(header.as_bytes()).to_le_bytes());
        }
        encoded
    }
}

/// Makes the common header of a PDU with `data_bytes` of data. The caller makes sure that header and data fit in 32
/// bits.
fn head(kind: PduType, flags: PduFlags, header_bytes: usize, data_bytes: u32, digests: Digests) -> CommonHeader {
    let with_digest = header_bytes + digests.header_bytes();
    let has_data = data_bytes > 0;
    let overhead = (with_digest + digests.data_bytes(data_bytes)) as u32;
    CommonHeader {
        kind: kind.0,
        flags: flags
            .with(PduFlags::HEADER_DIGEST, digests.header)
            .with(PduFlags::DATA_DIGEST, digests.data && has_data),
        header_bytes: header_bytes as u8,
        data_offset: if has_data { with_digest as u8 } else { 0 },
        total_bytes: data_bytes.saturating_add(overhead).into(),
    }
}

impl IcReq {
    /// Makes the PDU.
    pub fn encode(&self) -> Encoded {
        Encoded::sealed(self, Digests::NONE)
    }
}

impl IcResp {
    /// Makes the PDU. It must reach the socket in one write, as Linux 6.1 requires.
    pub fn encode(&self) -> Encoded {
        Encoded::sealed(self, Digests::NONE)
    }
}

impl CapsuleCommand {
    /// Makes the header of a command with `data_bytes` of in-capsule data.
    pub fn encode(entry: &SubmissionEntry, data_bytes: u32, digests: Digests) -> Encoded {
        let head = head(PduType::COMMAND, PduFlags::default(), size_of::<Self>(), data_bytes, digests);
        Encoded::sealed(&Self { head, entry: *entry }, digests)
    }
}

impl CapsuleResponse {
    /// Makes the PDU of a completion.
    pub fn encode(entry: &CompletionEntry, digests: Digests) -> Encoded {
        let head = head(PduType::RESPONSE, PduFlags::default(), size_of::<Self>(), 0, digests);
        Encoded::sealed(&Self { head, entry: *entry }, digests)
    }
}

/// A piece of a command's data, before it has a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataPiece {
    /// The command.
    pub command_id: u16,
    /// Offset in the command's buffer.
    pub offset: u32,
    /// Bytes, at least 1.
    pub length: u32,
    /// Whether this is the last piece of its command (C2HData) or R2T (H2CData).
    pub last: bool,
}

impl DataPiece {
    /// Makes the header of H2CData that answers the R2T with `tag`.
    pub fn encode_to_controller(self, tag: u16, digests: Digests) -> Encoded {
        Encoded::sealed(&self.header(PduType::HOST_DATA, PduFlags::default(), tag, digests), digests)
    }

    /// Makes the header of C2HData, padded up to the data. With `success`, it replaces the response. That is allowed
    /// only for the last piece, with flow control off, and for a command without a result.
    pub fn encode_to_host(self, success: bool, digests: Digests, alignment: Alignment) -> Encoded {
        debug_assert!(self.last || !success, "success goes with the last piece only");
        let flags = PduFlags::default().with(PduFlags::SUCCESS, success && self.last);
        let mut header = self.header(PduType::CONTROLLER_DATA, flags, 0, digests);
        let unpadded = usize::from(header.head.data_offset);
        let offset = unpadded.next_multiple_of(alignment.bytes());
        header.head.data_offset = offset as u8;
        header.head.total_bytes += U32::new((offset - unpadded) as u32);
        let mut encoded = Encoded::sealed(&header, digests);
        // The bytes after the pushed ones are zeros.
        encoded.length = offset;
        encoded
    }

    fn header(self, kind: PduType, flags: PduFlags, tag: u16, digests: Digests) -> DataHeader {
        let flags = flags.with(PduFlags::LAST, self.last);
        DataHeader {
            head: head(kind, flags, size_of::<DataHeader>(), self.length, digests),
            command_id: self.command_id.into(),
            tag: tag.into(),
            offset: self.offset.into(),
            length: self.length.into(),
            reserved20: [0; 4],
        }
    }
}

impl ReadyToTransfer {
    /// Makes an R2T for `length` bytes of a command's data from `offset` on.
    pub fn encode(command_id: u16, tag: u16, offset: u32, length: u32, digests: Digests) -> Encoded {
        let header = Self {
            head: head(PduType::READY_TO_TRANSFER, PduFlags::default(), size_of::<Self>(), 0, digests),
            command_id: command_id.into(),
            tag: tag.into(),
            offset: offset.into(),
            length: U32::new(length),
            reserved20: [0; 4],
        };
        Encoded::sealed(&header, digests)
    }
}

impl FatalError {
    /// Makes the TermReq of `from`. `offending` is the header that caused the error; only the part that fits is quoted.
    pub fn encode(self, from: Role, offending: &[u8]) -> Encoded {
        let kind = match from {
            Role::Host => PduType::HOST_TERM,
            Role::Controller => PduType::CONTROLLER_TERM,
        };
        let offending = &offending[..offending.len().min(HEADER_BYTES_MAX)];
        let head = CommonHeader {
            kind: kind.0,
            flags: PduFlags::default(),
            header_bytes: size_of::<TermReq>() as u8,
            data_offset: 0,
            total_bytes: ((size_of::<TermReq>() + offending.len()) as u32).into(),
        };
        let request = TermReq { head, status: self.status.0.into(), info: self.info.into(), reserved14: [0; 10] };
        let mut encoded = Encoded::default();
        encoded.push(request.as_bytes());
        encoded.push(offending);
        encoded
    }
}
