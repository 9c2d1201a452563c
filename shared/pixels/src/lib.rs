//! Images to training samples, byte for byte the same on every machine: the one place that looks inside a JPEG.
//!
//! [`Preparer::prepare`] makes a sample's pixels a pure function of its bytes, a [`Pipeline`] and a [`Draw`]. Decoding,
//! cropping, resizing and mirroring are integer arithmetic; boxes come from f64 arithmetic that rounds alike everywhere
//! and from [`draw`]'s own rules. [`fingerprint()`] lets two machines compare their pixel paths,
//! [`Preparer::inspect`] finds the files whose pixels could differ between machines, [`Preparer::index`] makes one that can be entered
//! in between, [`Normalize`] is the last stage.
//!
//! Within: `jpeg` (a decoder for the most frequent JPEGs, and libjpeg-turbo behind a C shim for all), `raster` (other formats),
//! `raw` (uncompressed pixels in a file), `rows` (pixels in bands), `planar` (three planes), `interleave` (pixels of them),
//! `geometry` (boxes), `passes` (what is made of which step) and `resize` (from bands to the output). `level` says which vector
//! instructions there are for them.
//!
//! Limits: [`Limits`] bounds each decode. Damaged or hostile bytes are a [`PixelError`].
//!
//! Unsafe code calls libjpeg-turbo's shim, or code for vector instructions that a `level` proves to be there; the modules
//! that hold it allow it by name.
#![deny(unsafe_code)]

mod chacha;
pub mod draw;
pub mod encode;
mod error;
mod fingerprint;
#[doc(hidden)]
pub mod fuzz;
pub mod geometry;
mod indexing;
mod inspect;
mod interleave;
mod jpeg;
mod large;
mod level;
mod normalize;
mod orient;
mod panics;
mod passes;
mod pipeline;
mod planar;
mod prefetch;
mod preparer;
mod range;
mod raster;
mod raw;
mod resize;
mod rows;
mod source;
#[doc(hidden)]
pub mod stages;
pub mod synthetic;

pub use draw::Draw;
pub use error::{CorruptReason, PixelError};
pub use fingerprint::{Fingerprint, fingerprint};
pub use indexing::{Indexed, NotIndexed, checkpoint_bytes_max};
pub use inspect::Verdict;
pub use normalize::Normalize;
pub use pipeline::{Pipeline, PipelineError, Shape, Stage};
pub use prefetch::prefetch;
pub use preparer::{Decoded, Prepared, Preparer};
pub use raw::{CACHED_BYTES, RawImage, ReadAt};
pub use source::{Format, ImageInfo, JpegColor, JpegInfo, Limits, Source};

/// The version of libjpeg-turbo inside, such as 3001000 for 3.1.0.
pub fn libjpeg_turbo_version() -> u32 {
    jpeg::ffi::version()
}

/// Whether libjpeg-turbo uses the processor's vector instructions (SSE2, AVX2, NEON). The pixels of the JPEGs that are left to it, such
/// as progressive ones, are the same without them, but take several times as long. It leaves them out when `JSIMD_FORCENONE=1` is in the
/// environment.
pub fn libjpeg_turbo_uses_simd() -> bool {
    jpeg::ffi::uses_simd()
}

/// The vector instructions that everything else is made by, such as "AVX2" or "NEON".
pub fn vector_instructions() -> &'static str {
    level::Level::best().name()
}
