//! Discovery log page (70h). Base 2.1, figure "Discovery Log Page".

use crate::text::{self, NqnError, nqn_field, nqn_from_field};
use crate::{TooShort, view};
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Head of the page; entries follow from byte 1024 on.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DiscoveryHeader {
    /// Generation counter: changes with the log (GENCTR).
    pub generation: U64,
    /// Number of entries (NUMREC).
    pub entries: U64,
    /// Record format, 0 (RECFMT).
    pub record_format: U16,
    /// Reserved.
    pub reserved18: [u8; 1006],
}
const _: () = assert!(size_of::<DiscoveryHeader>() == 1024);

impl DiscoveryHeader {
    /// Makes the head of a log.
    pub fn new(generation: u64, entries: u64) -> Self {
        let mut header = Self::new_zeroed();
        header.generation = generation.into();
        header.entries = entries.into();
        header
    }

    /// Reads the head at the start of log data.
    pub fn parse(bytes: &[u8]) -> Result<&Self, TooShort> {
        view(bytes, "discovery log header")
    }
}

/// One entry. Base 2.1, figure "Discovery Log Page Entry Data Structure".
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DiscoveryEntry {
    /// Transport (TRTYPE): 3 is TCP.
    pub transport: u8,
    /// Address family (ADRFAM): 1 IPv4, 2 IPv6.
    pub address_family: u8,
    /// Kind of subsystem (SUBTYPE): see [`DiscoveryEntry::SUBSYSTEM_NVM`].
    pub subsystem_type: u8,
    /// Transport requirements (TREQ): bits 1:0 secure channel (0 not specified), bit 2 see
    /// [`DiscoveryEntry::FLOW_CONTROL_OPTIONAL`].
    pub requirements: u8,
    /// Port (PORTID).
    pub port_id: U16,
    /// Controller: FFFFh for the dynamic controller model (CNTLID).
    pub controller_id: U16,
    /// Entries of the admin submission queue, at least 32 (ASQSZ).
    pub admin_queue_entries_max: U16,
    /// Entry flags (EFLAGS).
    pub flags: U16,
    /// Reserved.
    pub reserved12: [u8; 20],
    /// Port as text (TRSVCID), space padded.
    pub service: [u8; 32],
    /// Reserved.
    pub reserved64: [u8; 192],
    /// NQN of the subsystem.
    pub subsystem_nqn: [u8; 256],
    /// Address as text (TRADDR), space padded.
    pub address: [u8; 256],
    /// Transport-specific address subtype (TSAS); for TCP the security of the transport in the first byte, 0 for none.
    pub transport_specific: [u8; 256],
}
const _: () = assert!(size_of::<DiscoveryEntry>() == 1024);

impl DiscoveryEntry {
    /// Value of `transport`: TCP.
    pub const TRANSPORT_TCP: u8 = 3;
    /// Value of `address_family`: IPv4.
    pub const FAMILY_IPV4: u8 = 1;
    /// Value of `address_family`: IPv6.
    pub const FAMILY_IPV6: u8 = 2;
    /// Value of `subsystem_type`: an NVM subsystem.
    pub const SUBSYSTEM_NVM: u8 = 2;

    /// Bit of `requirements`: submission queue flow control may be off.
    pub const FLOW_CONTROL_OPTIONAL: u8 = 1 << 2;

    /// Makes the entry of an NVM subsystem that hosts reach by TCP without security.
    ///
    /// `address` is the one at which the host reached the controller, without port and brackets.
    pub fn tcp(nqn: &str, address: &str, ipv6: bool, port: &str) -> Result<Self, NqnError> {
        let mut entry = Self::new_zeroed();
        entry.transport = Self::TRANSPORT_TCP;
        entry.address_family = if ipv6 { Self::FAMILY_IPV6 } else { Self::FAMILY_IPV4 };
        entry.subsystem_type = Self::SUBSYSTEM_NVM;
        entry.controller_id = crate::fabrics::CONTROLLER_ANY.into();
        entry.admin_queue_entries_max = 32.into();
        entry.service = text::padded(port);
        entry.subsystem_nqn = nqn_field(nqn)?;
        entry.address = text::padded(address);
        Ok(entry)
    }

    /// Reads the entry at the start of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<&Self, TooShort> {
        view(bytes, "discovery log entry")
    }

    /// Returns the NQN of the subsystem.
    pub fn subsystem_nqn(&self) -> Result<&str, NqnError> {
        nqn_from_field(&self.subsystem_nqn)
    }

    /// Returns the address as text.
    pub fn address(&self) -> &str {
        text::trimmed(&self.address)
    }

    /// Returns the port as text.
    pub fn service(&self) -> &str {
        text::trimmed(&self.service)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use core::mem::offset_of;
    use proptest::prelude::*;
    use std::vec;

    #[test]
    fn fields_lie_where_the_figure_says() {
        type E = DiscoveryEntry;
        assert_eq!([offset_of!(E, controller_id), offset_of!(E, admin_queue_entries_max)], [6, 8]);
        assert_eq!([offset_of!(E, service), offset_of!(E, subsystem_nqn)], [32, 256]);
        assert_eq!([offset_of!(E, address), offset_of!(E, transport_specific)], [512, 768]);
        assert_eq!(offset_of!(DiscoveryHeader, entries), 8);
    }

    #[test]
    fn entries_round_trip() {
        let entry = DiscoveryEntry::tcp("nqn.x", "127.0.0.1", false, "4420").unwrap();
        let parsed = DiscoveryEntry::parse(entry.as_bytes()).unwrap();
        assert_eq!((parsed.address(), parsed.service()), ("127.0.0.1", "4420"));
        assert_eq!(parsed.subsystem_nqn(), Ok("nqn.x"));
        assert_eq!(DiscoveryHeader::new(3, 1).entries.get(), 1);
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_entry_or_too_short(bytes in proptest::collection::vec(any::<u8>(), 0..1100)) {
            match DiscoveryEntry::parse(&bytes) {
                Ok(entry) => {
                    prop_assert!(bytes.len() >= 1024);
                    let _ = (entry.address(), entry.service(), entry.subsystem_nqn());
                }
                Err(_) => prop_assert!(bytes.len() < 1024),
            }
        }

        #[test]
        fn short_headers_are_errors(length in 0usize..1024) {
            prop_assert!(DiscoveryHeader::parse(&vec![0; length]).is_err());
        }
    }
}
