//! What can be wrong with the bytes or the arguments.

use crate::Region;

/// Why bytes are no image in L3, or a request cannot be answered.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The bytes do not begin with the magic number.
    #[error("not an L3 image: its first bytes are {0:02x?}")]
    NotL3([u8; 4]),
    /// The format has another version.
    #[error("the L3 image has version {0}; this program reads version 1")]
    Version(u8),
    /// A field of the header has an impossible value.
    #[error("the header of the L3 image is invalid: {field} is {value}")]
    Header {
        /// The field's name.
        field: &'static str,
        /// What it says.
        value: u64,
    },
    /// Bytes are missing, or there are too many.
    #[error("{what}: expected {expected} bytes, found {found}")]
    Length {
        /// Which part of the image.
        what: &'static str,
        /// How many bytes it has.
        expected: u64,
        /// How many bytes were given.
        found: u64,
    },
    /// The header and the table have another checksum than the header says.
    #[error("the index of the L3 image is damaged: its checksum is {found:08x}, not {expected:08x}")]
    IndexChecksum {
        /// The checksum in the header.
        expected: u32,
        /// The checksum of the bytes.
        found: u32,
    },
    /// A patch has another checksum than the table says.
    #[error("patch {patch} of the L3 image is damaged: its checksum is {found:08x}, not {expected:08x}")]
    PatchChecksum {
        /// The patch's number, in rows from the top left.
        patch: usize,
        /// The checksum in the table.
        expected: u32,
        /// The checksum of the bytes.
        found: u32,
    },
    /// A patch is not as an encoder writes it, although its checksum is right.
    #[error("patch {patch} of the L3 image is invalid: {why}")]
    Patch {
        /// The patch's number, in rows from the top left.
        patch: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// The region is empty, or not inside the image.
    #[error("the region {region} is empty or extends beyond the image of {width}×{height}")]
    Outside {
        /// The region.
        region: Region,
        /// The image's width in pixels.
        width: usize,
        /// The image's height in pixels.
        height: usize,
    },
    /// An image to encode has another number of channels than 1 and 3.
    #[error("an L3 image has 1 or 3 channels, not {0}")]
    Channels(usize),
    /// An image to encode has no pixels, or more than the format's numbers can count.
    #[error("an L3 image has sides of 1 to 4294967295 pixels, not {width}×{height}")]
    Size {
        /// The width in pixels.
        width: usize,
        /// The height in pixels.
        height: usize,
    },
}
