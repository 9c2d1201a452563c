//! L3: lossless 8-bit RGB and gray images, cut into patches that decode in parallel and by region.
//!
//! [`encode`] makes the bytes of an image; [`OpenImage`] gives back its pixels, or the pixels of a [`Region`].
//! [`Index`] is the part of the bytes that names the place of each patch: a reader that has it can fetch the patches of
//! a region, and decode the region from them. docs/l3.md describes the format bit by bit.
//!
//! Modules: `index` (header and table), `patch` (the bytes of one patch, and how its pixels come back), `predict`
//! (predictions from the row above), `bits` (fields of n bits), `color` (differences between channels), `encode`,
//! `decode`, `level` (which vector instructions the processor has), `avx2` and `avx512` (code for them).
//!
//! Limits: an index has six bytes for each patch, and a patch at least a thirty-second of the bytes of its pixels, so
//! the memory that decoding takes is bounded by the bytes that are given. Damaged or hostile bytes give an [`Error`].
//!
//! Every set of vector instructions gives the same bytes and pixels. Unsafe code calls code for such a set, which a
//! `level` proves to be present, and moves vectors; only `avx2` and `avx512` allow it.
#![deny(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod bits;
mod color;
mod decode;
mod encode;
mod error;
mod image;
mod index;
mod level;
mod patch;
mod planes;
mod predict;
mod region;

pub use decode::OpenImage;
pub use encode::{Options, PatchSize, encode, encode_at};
pub use error::Error;
pub use image::Image;
pub use index::{HEADER_BYTES, Index};
pub use level::Level;
pub use region::Region;
