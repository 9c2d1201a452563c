//! Our own decoder for the JPEGs that training sets are made of, and for rectangles of them: sequential Huffman coding,
//! 8 bits, one scan, gray or three components with the usual sampling.
//!
//! It gives the same pixels as libjpeg-turbo to the bit (islow, fancy upsampling), but faster: one look-up resolves a
//! code together with its value, often two of them, and only the blocks that a rectangle covers are transformed.
//! [`Checkpoints`] let it skip the rest of the scan and read two rows of MCUs at once.
//!
//! It returns [`LeftToLibjpeg`] for every other file, and for every irregularity that libjpeg would repair, guess about
//! or warn about. The caller then decodes the file by libjpeg, so that verdicts, errors and repaired pixels are always
//! libjpeg's.
//!
//! Modules, in the order in which a file passes through them: `header` (markers), `huffman` (tables), `region` (which
//! MCUs, and planes for their samples), `bits` (bytes without stuffing), `scan` (MCUs), `block` (coefficients), `idct`
//! (samples), `upsample`, `color` and `pixels` (rows of pixels), `output` (bands of rows). `decoder` calls them.
//! `checkpoints` holds the places at which decoding a scan can start, in the code of `rice`.

mod bits;
mod block;
mod checkpoints;
mod color;
mod decoder;
mod header;
mod huffman;
mod idct;
mod output;
mod pixels;
mod region;
mod rice;
mod scan;
mod upsample;

pub use checkpoints::Checkpoints;
pub use decoder::{BaselineDecoder, BaselineRows, Depth};
pub use header::Subsampling;
pub use region::Region;
pub use scan::Coded;

/// Error: this decoder does not take the file, so libjpeg has to decode it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftToLibjpeg;

#[cfg(test)]
pub(crate) mod tests;
