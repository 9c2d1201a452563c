//! Lists that Identify returns: namespaces, identification descriptors, the I/O command set vector.

use crate::code::Csi;
use crate::{IDENTIFY_BYTES, TooShort};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

/// Makes a namespace list (CNS 02h, 07h): the identifiers above `after`, at most 1024, followed by zeros. `nsids` must
/// ascend.
pub fn namespace_list(nsids: &[u32], after: u32) -> [u8; IDENTIFY_BYTES] {
    let mut page = [0; IDENTIFY_BYTES];
    let listed = nsids.iter().filter(|&&nsid| nsid > after);
    for (to, nsid) in page.chunks_exact_mut(4).zip(listed) {
        to.copy_from_slice(&nsid.to_le_bytes());
    }
    page
}

/// Makes the I/O command set data structure (CNS 1Ch) with one combination: all of `sets`. Values above 63 do not fit.
pub fn command_set_vector(sets: &[Csi]) -> [u8; IDENTIFY_BYTES] {
    let mut page = [0; IDENTIFY_BYTES];
    let vector = sets.iter().fold(0u64, |vector, csi| vector | 1u64.checked_shl(csi.0.into()).unwrap_or(0));
    page[..8].copy_from_slice(U64::new(vector).as_bytes());
    page
}

/// One namespace identification descriptor. Base 2.1, figure "Namespace Identification Descriptor".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptor<'a> {
    /// IEEE extended unique identifier (type 1).
    Eui64([u8; 8]),
    /// Namespace globally unique identifier (type 2).
    Nguid([u8; 16]),
    /// UUID (type 3).
    Uuid([u8; 16]),
    /// Command set of the namespace (type 4).
    CommandSet(Csi),
    /// An unknown type, with its bytes.
    Other(u8, &'a [u8]),
}

/// Bytes before the identifier of a descriptor: type, length, two reserved.
const DESCRIPTOR_HEAD: usize = 4;

impl Descriptor<'_> {
    fn parts(&self) -> (u8, &[u8]) {
        match self {
            Self::Eui64(id) => (1, id),
            Self::Nguid(id) => (2, id),
            Self::Uuid(id) => (3, id),
            Self::CommandSet(csi) => (4, core::slice::from_ref(&csi.0)),
            Self::Other(kind, id) => (*kind, id),
        }
    }

    /// Writes descriptors one after the other at the start of `page`. An identifier above 255 bytes does not fit.
    pub fn encode(descriptors: &[Descriptor<'_>], page: &mut [u8]) -> Result<usize, TooShort> {
        let mut at = 0;
        for descriptor in descriptors {
            let (kind, id) = descriptor.parts();
            let given = page.len();
            let end = at + DESCRIPTOR_HEAD + id.len();
            let short = TooShort { what: "namespace descriptor list", needed: end, given };
            let length = u8::try_from(id.len()).map_err(|_| short)?;
            let slot = page.get_mut(at..end).ok_or(short)?;
            slot[..DESCRIPTOR_HEAD].copy_from_slice(&[kind, length, 0, 0]);
            slot[DESCRIPTOR_HEAD..].copy_from_slice(id);
            at = end;
        }
        Ok(at)
    }
}

/// Reason why a descriptor list cannot be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DescriptorError {
    /// The list ends within the descriptor at this offset.
    Truncated {
        /// Offset of the descriptor.
        offset: usize,
    },
    /// A descriptor of a known type has the wrong length.
    Length {
        /// Offset of the descriptor.
        offset: usize,
        /// Its type.
        kind: u8,
        /// Its length.
        length: u8,
    },
}

impl core::fmt::Display for DescriptorError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Truncated { offset } => write!(f, "namespace descriptor at byte {offset} is cut off"),
            Self::Length { offset, kind, length } => {
                write!(f, "namespace descriptor at byte {offset}: type {kind} with {length} bytes")
            }
        }
    }
}

impl core::error::Error for DescriptorError {}

/// Reader of a namespace identification descriptor list (CNS 03h). Ends at a zero type, at the end of the bytes, or
/// after an error.
#[derive(Clone, Debug)]
pub struct Descriptors<'a> {
    page: &'a [u8],
    at: usize,
}

impl<'a> Descriptors<'a> {
    /// Makes a reader of a list.
    pub fn new(page: &'a [u8]) -> Self {
        Self { page, at: 0 }
    }

    fn read(&mut self) -> Result<Option<Descriptor<'a>>, DescriptorError> {
        let offset = self.at;
        let rest = self.page.get(offset..).unwrap_or_default();
        let (kind, length) = match *rest {
            [] | [0, ..] => return Ok(None),
            [kind, length, _, _, ..] => (kind, length),
            _ => return Err(DescriptorError::Truncated { offset }),
        };
        let end = DESCRIPTOR_HEAD + usize::from(length);
        let id = rest.get(DESCRIPTOR_HEAD..end).ok_or(DescriptorError::Truncated { offset })?;
        self.at = offset + end;
        let wrong = |_| DescriptorError::Length { offset, kind, length };
        Ok(Some(match kind {
            1 => Descriptor::Eui64(id.try_into().map_err(wrong)?),
            2 => Descriptor::Nguid(id.try_into().map_err(wrong)?),
            3 => Descriptor::Uuid(id.try_into().map_err(wrong)?),
            4 => {
                let [csi] = id.try_into().map_err(wrong)?;
                Descriptor::CommandSet(Csi(csi))
            }
            _ => Descriptor::Other(kind, id),
        }))
    }
}

impl<'a> Iterator for Descriptors<'a> {
    type Item = Result<Descriptor<'a>, DescriptorError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.read();
        if item.is_err() {
            self.at = self.page.len();
        }
        item.transpose()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn namespace_lists_start_after_an_identifier() {
        let listed = |nsids: &[u32], after| {
            let entries = namespace_list(nsids, after).map(u32::from);
            let nsids = entries.chunks_exact(4).map(|bytes| bytes.iter().rev().fold(0, |nsid, byte| nsid << 8 | byte));
            nsids.take_while(|&nsid| nsid != 0).collect::<Vec<_>>()
        };
        assert_eq!(listed(&[1, 2, 3], 0), [1, 2, 3]);
        assert_eq!(listed(&[1, 2, 3], 2), [3]);
        let many: Vec<u32> = (1..=2000).collect();
        assert_eq!(listed(&many, 10), many[10..1034]);
    }

    #[test]
    fn command_sets_are_bits() {
        assert_eq!(command_set_vector(&[Csi::NVM, Csi::COMPUTE])[..2], [0b1_0001, 0]);
        assert_eq!(command_set_vector(&[Csi(200)])[..8], [0; 8]);
    }

    #[test]
    fn descriptors_are_those_that_linux_reads() {
        let mut page = [0; IDENTIFY_BYTES];
        let list = [Descriptor::Nguid([3; 16]), Descriptor::CommandSet(Csi::COMPUTE)];
        let bytes = Descriptor::encode(&list, &mut page).unwrap();
        assert_eq!(bytes, 25);
        assert_eq!(page[..4], [2, 16, 0, 0]);
        assert_eq!(page[20..26], [4, 1, 0, 0, 4, 0]);
        assert_eq!(Descriptors::new(&page).collect::<Result<Vec<_>, _>>().unwrap(), list);
        assert!(Descriptor::encode(&list, &mut page[..24]).is_err());
    }

    #[test]
    fn wrong_lengths_and_truncated_descriptors_are_errors() {
        let first = |bytes: &'static [u8]| Descriptors::new(bytes).next();
        assert_eq!(first(&[4, 2, 0, 0, 0, 0]), Some(Err(DescriptorError::Length { offset: 0, kind: 4, length: 2 })));
        assert_eq!(first(&[2, 16, 0, 0, 1]), Some(Err(DescriptorError::Truncated { offset: 0 })));
        assert_eq!(first(&[2, 16]), Some(Err(DescriptorError::Truncated { offset: 0 })));
        assert_eq!(Descriptors::new(&[2, 16]).count(), 1, "nothing after an error");
    }

    proptest! {
        #[test]
        fn any_bytes_end(page in proptest::collection::vec(any::<u8>(), 0..5000)) {
            prop_assert!(Descriptors::new(&page).count() <= page.len());
        }

        #[test]
        fn descriptors_round_trip(uuid: [u8; 16], nguid: [u8; 16], eui: [u8; 8], csi: u8, other in 5u8.., id: Vec<u8>) {
            let id = &id[..id.len().min(255)];
            let list = [
                Descriptor::Uuid(uuid), Descriptor::Nguid(nguid), Descriptor::Eui64(eui),
                Descriptor::CommandSet(Csi(csi)), Descriptor::Other(other, id),
            ];
            let mut page = [0; IDENTIFY_BYTES];
            let bytes = Descriptor::encode(&list, &mut page).unwrap();
            prop_assert_eq!(Descriptors::new(&page).collect::<Result<Vec<_>, _>>(), Ok(list.to_vec()));
            for cut in 1..bytes {
                // A cut between two descriptors gives a shorter list, a cut anywhere else an error.
                let read: Result<Vec<_>, _> = Descriptors::new(&page[..cut]).collect();
                prop_assert!(read.is_err() || read.unwrap().len() < list.len());
            }
        }
    }
}
