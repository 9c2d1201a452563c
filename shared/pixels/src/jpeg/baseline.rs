//! A decoder of our own for the JPEGs that training sets are made of, and for rectangles of them: sequential Huffman coding, 8 bits,
//! one scan, gray or three components with the usual sampling.
//!
//! What it decodes has libjpeg-turbo's pixels to the bit (islow, fancy upsampling), faster: codes are resolved together with their
//! values and in pairs, and only the blocks that a rectangle covers are transformed. With [`Checkpoints`] the rest is not even read,
//! and two rows of MCUs are read at once.
//! Everything else is [`NotMine`], and so is every irregularity of a stream that libjpeg would repair, guess about or warn of: the
//! caller decodes such a file by libjpeg, so that verdicts, errors and repaired pixels are always libjpeg's.
//!
//! In the order of a file's way: `header` (markers), `huffman` (tables), `bits` (bytes without stuffing), `scan` (MCUs), `block`
//! (coefficients), `idct`, `region` (which blocks, samples in planes), `upsample` and `color` (rows of pixels). `checkpoints` says
//! where a scan can be entered.

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
pub use decoder::{Decoder, Depth};

/// The file is for libjpeg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotMine;

#[cfg(test)]
mod tests;
