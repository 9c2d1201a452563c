//! Fabrics commands: Connect, Property Get and Set, Disconnect. Base 2.1, section "Fabrics Command Set".
//!
//! Each command struct is another view of the 64 bytes of a [`SubmissionEntry`]; `view` and `entry` convert.

use crate::bits;
use crate::code::FabricsType;
use crate::entry::{FLAGS_SGL, SglDescriptor, SubmissionEntry};
use crate::text::{NqnError, nqn_field, nqn_from_field};
use crate::{FABRICS_OPCODE, TooShort, view};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Controller identifier that asks for any controller (dynamic controller model).
pub const CONTROLLER_ANY: u16 = 0xFFFF;

/// Returns the Fabrics command type of an entry. It is meaningful if the entry's opcode is [`FABRICS_OPCODE`].
pub fn fabrics_type(entry: &SubmissionEntry) -> FabricsType {
    FabricsType(bits::get32(entry.nsid.get(), 0, 8) as u8)
}

macro_rules! entry_view {
    ($name:ident) => {
        const _: () = assert!(size_of::<$name>() == 64);

        impl $name {
            /// Views the bytes of an entry as this command.
            pub fn view(entry: &SubmissionEntry) -> &Self {
                zerocopy::transmute_ref!(entry)
            }

            /// Returns the same bytes as a common entry.
            pub fn entry(&self) -> SubmissionEntry {
                zerocopy::transmute!(*self)
            }
        }
    };
}

/// Common start of all Fabrics commands. Base 2.1, figure "Fabrics Command – Submission Queue Entry Format".
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct FabricsHead {
    /// [`FABRICS_OPCODE`].
    pub opcode: u8,
    /// As [`SubmissionEntry::flags`].
    pub flags: u8,
    /// Command identifier.
    pub command_id: U16,
    /// Fabrics command type, [`FabricsType`].
    pub fabrics_type: u8,
    /// Reserved.
    pub reserved: [u8; 19],
    /// Data pointer.
    pub data: SglDescriptor,
}
const _: () = assert!(size_of::<FabricsHead>() == 40);

impl FabricsHead {
    fn new(kind: FabricsType, data: SglDescriptor) -> Self {
        Self {
            opcode: FABRICS_OPCODE,
            flags: FLAGS_SGL,
            command_id: U16::ZERO,
            fabrics_type: kind.0,
            reserved: [0; 19],
            data,
        }
    }
}

/// Connect. Base 2.1, figure "Connect Command – Submission Queue Entry".
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ConnectCommand {
    /// Common part.
    pub head: FabricsHead,
    /// Record format, 0.
    pub record_format: U16,
    /// Queue: 0 is the admin queue.
    pub queue_id: U16,
    /// Entries of the submission queue, 0's based.
    pub sq_size_z: U16,
    /// Attributes: see [`ConnectCommand::no_flow_control`].
    pub attributes: u8,
    /// Reserved.
    pub reserved47: u8,
    /// Keep alive time-out in milliseconds, 0 for none; admin queue only.
    pub keep_alive_ms: U32,
    /// Reserved.
    pub reserved52: [u8; 12],
}
entry_view!(ConnectCommand);

impl ConnectCommand {
    /// Makes a Connect with its data in the capsule. The command identifier is 0.
    pub fn new(queue_id: u16, sq_size_z: u16, keep_alive_ms: u32, no_flow_control: bool) -> Self {
        Self {
            head: FabricsHead::new(FabricsType::CONNECT, SglDescriptor::in_capsule(size_of::<ConnectData>() as u32)),
            record_format: U16::ZERO,
            queue_id: queue_id.into(),
            sq_size_z: sq_size_z.into(),
            attributes: bits::with32(0, 2, 1, no_flow_control.into()) as u8,
            reserved47: 0,
            keep_alive_ms: keep_alive_ms.into(),
            reserved52: [0; 12],
        }
    }

    /// Returns whether the host wants submission queue flow control off.
    pub fn no_flow_control(&self) -> bool {
        bits::get32(self.attributes.into(), 2, 1) == 1
    }
}

/// Data of Connect. Base 2.1, figure "Connect Command – Data".
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ConnectData {
    /// Host identifier, the same on all queues of an association.
    pub host_id: [u8; 16],
    /// Controller: [`CONTROLLER_ANY`] on the admin queue, the association's on an I/O queue.
    pub controller_id: U16,
    /// Reserved.
    pub reserved18: [u8; 238],
    /// Subsystem NQN.
    pub subsystem_nqn: [u8; 256],
    /// Host NQN.
    pub host_nqn: [u8; 256],
    /// Reserved.
    pub reserved768: [u8; 256],
}
const _: () = assert!(size_of::<ConnectData>() == 1024);

impl ConnectData {
    /// Makes the data from its parts.
    pub fn new(host_id: [u8; 16], controller_id: u16, subsystem_nqn: &str, host_nqn: &str) -> Result<Self, NqnError> {
        Ok(Self {
            host_id,
            controller_id: controller_id.into(),
            reserved18: [0; 238],
            subsystem_nqn: nqn_field(subsystem_nqn)?,
            host_nqn: nqn_field(host_nqn)?,
            reserved768: [0; 256],
        })
    }

    /// Reads the data at the start of the capsule's data.
    pub fn parse(bytes: &[u8]) -> Result<&Self, TooShort> {
        view(bytes, "connect data")
    }

    /// Returns the subsystem NQN as text.
    pub fn subsystem_nqn(&self) -> Result<&str, NqnError> {
        nqn_from_field(&self.subsystem_nqn)
    }

    /// Returns the host NQN as text.
    pub fn host_nqn(&self) -> Result<&str, NqnError> {
        nqn_from_field(&self.host_nqn)
    }
}

/// Result of a Connect. Base 2.1, figure "Connect Response".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectResult {
    /// The controller.
    pub controller_id: u16,
    /// Whether the controller wants authentication before other commands (ATR).
    pub authentication_required: bool,
}

impl ConnectResult {
    /// Reads the result of a successful completion.
    pub const fn from_result(result: u64) -> Self {
        Self { controller_id: bits::get(result, 0, 16) as u16, authentication_required: bits::get(result, 17, 1) == 1 }
    }

    /// Returns DW0–1 of a successful completion.
    pub const fn result(self) -> u64 {
        bits::with(self.controller_id as u64, 17, 1, self.authentication_required as u64)
    }
}

/// Wrong field of a Connect that failed with [`crate::Status::CONNECT_PARAMETERS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectFault {
    /// Byte offset of the field.
    pub offset: u16,
    /// Whether the offset counts in the data, not in the command.
    pub in_data: bool,
}

impl ConnectFault {
    /// Reads DW0 of the completion.
    pub const fn from_result(result: u64) -> Self {
        Self { offset: bits::get(result, 0, 16) as u16, in_data: bits::get(result, 16, 1) == 1 }
    }

    /// Returns DW0–1 of the completion.
    pub const fn result(self) -> u64 {
        bits::with(self.offset as u64, 16, 1, self.in_data as u64)
    }
}

/// Property Get. Base 2.1, figure "Property Get Command – Submission Queue Entry". The value is the completion's
/// result.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct PropertyGet {
    /// Common part.
    pub head: FabricsHead,
    /// Bits 2:0: 0 for a 4-byte property, 1 for an 8-byte one.
    pub attributes: u8,
    /// Reserved.
    pub reserved41: [u8; 3],
    /// Offset of the property, see [`crate::property::offset`].
    pub offset: U32,
    /// Reserved.
    pub reserved48: [u8; 16],
}
entry_view!(PropertyGet);

impl PropertyGet {
    /// Makes the command for the property at `offset`, which also sets the size.
    pub fn new(offset: u32) -> Self {
        Self {
            head: FabricsHead::new(FabricsType::PROPERTY_GET, SglDescriptor::transport(0)),
            attributes: crate::property::is_wide(offset).into(),
            reserved41: [0; 3],
            offset: offset.into(),
            reserved48: [0; 16],
        }
    }

    /// Returns the number of bytes asked for: 4 or 8; `None` for a reserved size.
    pub fn bytes(&self) -> Option<usize> {
        property_bytes(self.attributes)
    }
}

/// Property Set. Base 2.1, figure "Property Set Command – Submission Queue Entry".
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct PropertySet {
    /// Common part.
    pub head: FabricsHead,
    /// Bits 2:0: 0 for a 4-byte property, 1 for an 8-byte one.
    pub attributes: u8,
    /// Reserved.
    pub reserved41: [u8; 3],
    /// Offset of the property.
    pub offset: U32,
    /// New value; a 4-byte property's in the low half.
    pub value: U64,
    /// Reserved.
    pub reserved56: [u8; 8],
}
entry_view!(PropertySet);

impl PropertySet {
    /// Makes the command for the property at `offset`.
    pub fn new(offset: u32, value: u64) -> Self {
        Self {
            head: FabricsHead::new(FabricsType::PROPERTY_SET, SglDescriptor::transport(0)),
            attributes: crate::property::is_wide(offset).into(),
            reserved41: [0; 3],
            offset: offset.into(),
            value: value.into(),
            reserved56: [0; 8],
        }
    }

    /// Returns the number of bytes written: 4 or 8; `None` for a reserved size.
    pub fn bytes(&self) -> Option<usize> {
        property_bytes(self.attributes)
    }
}

/// Disconnect: ends one I/O queue. Base 2.1, figure "Disconnect Command – Submission Queue Entry".
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Disconnect {
    /// Common part.
    pub head: FabricsHead,
    /// Record format, 0.
    pub record_format: U16,
    /// Reserved.
    pub reserved42: [u8; 22],
}
entry_view!(Disconnect);

impl Disconnect {
    /// Makes the command.
    pub fn new() -> Self {
        Self {
            head: FabricsHead::new(FabricsType::DISCONNECT, SglDescriptor::transport(0)),
            record_format: U16::ZERO,
            reserved42: [0; 22],
        }
    }
}

impl Default for Disconnect {
    fn default() -> Self {
        Self::new()
    }
}

fn property_bytes(attributes: u8) -> Option<usize> {
    match bits::get32(attributes.into(), 0, 3) {
        0 => Some(4),
        1 => Some(8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::property::offset;
    use core::mem::offset_of;
    use proptest::prelude::*;
    use std::vec;

    #[test]
    fn fields_lie_where_the_figures_say() {
        assert_eq!(offset_of!(ConnectCommand, queue_id), 42);
        assert_eq!(offset_of!(ConnectCommand, sq_size_z), 44);
        assert_eq!(offset_of!(ConnectCommand, attributes), 46);
        assert_eq!(offset_of!(ConnectCommand, keep_alive_ms), 48);
        assert_eq!(offset_of!(ConnectData, controller_id), 16);
        assert_eq!(offset_of!(ConnectData, subsystem_nqn), 256);
        assert_eq!(offset_of!(ConnectData, host_nqn), 512);
        assert_eq!(offset_of!(PropertySet, offset), 44);
        assert_eq!(offset_of!(PropertySet, value), 48);
    }

    #[test]
    fn property_get_is_the_one_of_linux() {
        let entry = PropertyGet::new(offset::CAP).entry();
        assert_eq!((entry.opcode, entry.flags, fabrics_type(&entry)), (0x7F, 0x40, FabricsType::PROPERTY_GET));
        assert_eq!(entry.as_bytes()[39..45], [0x5A, 1, 0, 0, 0, 0]);
        assert_eq!(PropertyGet::view(&entry).bytes(), Some(8));
        assert_eq!(PropertyGet::new(offset::CSTS).bytes(), Some(4));
    }

    #[test]
    fn connect_round_trips() {
        let entry = ConnectCommand::new(3, 127, 10_000, true).entry();
        let command = ConnectCommand::view(&entry);
        assert_eq!(fabrics_type(&entry), FabricsType::CONNECT);
        assert_eq!((command.queue_id.get(), command.sq_size_z.get(), command.keep_alive_ms.get()), (3, 127, 10_000));
        assert!(command.no_flow_control());
        let data = ConnectData::new([7; 16], CONTROLLER_ANY, "nqn.a", "nqn.b").unwrap();
        let parsed = ConnectData::parse(data.as_bytes()).unwrap();
        assert_eq!((parsed.subsystem_nqn(), parsed.host_nqn()), (Ok("nqn.a"), Ok("nqn.b")));
    }

    #[test]
    fn results_round_trip() {
        let result = ConnectResult { controller_id: 9, authentication_required: true };
        assert_eq!(result.result(), 0x2_0009);
        assert_eq!(ConnectResult::from_result(result.result()), result);
        let fault = ConnectFault { offset: 256, in_data: true };
        assert_eq!(ConnectFault::from_result(fault.result()), fault);
    }

    proptest! {
        #[test]
        fn short_connect_data_is_an_error(length in 0usize..1024) {
            prop_assert!(ConnectData::parse(&vec![0xA5; length]).is_err());
        }

        #[test]
        fn any_entry_can_be_viewed(bytes: [[u8; 32]; 2]) {
            let bytes = bytes.concat();
            let entry = crate::view::<SubmissionEntry>(&bytes, "submission entry").unwrap();
            prop_assert_eq!(ConnectCommand::view(entry).entry(), *entry);
            prop_assert_eq!(PropertySet::view(entry).entry(), *entry);
            let _ = (PropertyGet::view(entry).bytes(), PropertySet::view(entry).bytes(), fabrics_type(entry));
        }
    }
}
