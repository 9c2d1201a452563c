//! Images to training samples, byte for byte the same on every machine. No other crate looks inside a JPEG.
//!
//! [`Preparer::prepare`] makes a sample's pixels a pure function of its bytes, a [`Pipeline`] and a [`Draw`]. Decoding,
//! cropping, resizing and mirroring are integer arithmetic; boxes come from f64 arithmetic that rounds alike everywhere
//! and from [`draw`]'s own rules. An [`Ability`] lets two machines compare their ways to pixels. [`Preparer::inspect`]
//! finds files whose pixels could differ between machines. [`Preparer::index`] makes checkpoints, at which decoding can
//! start in the middle of a JPEG. [`Preparer::index_rows`] makes a row index, with which [`SamplePlan`] finds the bytes
//! that a crop needs, and [`Preparer::render`] decodes the crop from these bytes. [`Preparer::cut`] makes pieces of a
//! progressive JPEG, whose first pieces give the image at a lower fidelity; [`similarity`] compares images.
//! [`Normalizer`] turns pixels into floats, and [`blend`] mixes images; only the host does that. A [`Field`] describes
//! what comes out: name, kind, type, layout and shape. The crate reads no files.
//!
//! Modules: `jpeg` (our decoder for the most frequent JPEGs, and libjpeg-turbo behind a C shim for the rest), `raster`
//! (other formats; `pnm` and `bmp` decode where Pillow and the `image` crate differ), `plan` (what is read of a
//! sample), `form_image` (images of forms that implement [`FormDecoder`]), `raw` (uncompressed pixels), `rows` (pixels
//! in bands), `planar` (images of three planes), `interleave` (planes to RGB pixels), `mirror` (rows of pixels),
//! [`ops`] (the operations of a pipeline), `compiled` (a pipeline that is ready for samples), `steps` (which operations
//! one pass does together), `passes` (which pixels each pass computes), `resize` (from bands to the output), [`warp`]
//! (rotations and the like) and `level` (which vector instructions the processor has).
//!
//! Limits: [`Limits`] bounds each decode. Damaged or hostile bytes give a [`PixelError`].
//!
//! Unsafe code calls libjpeg-turbo's shim, or functions with vector instructions that a `level` proves to be present.
//! Only the modules that make these calls allow it.
#![deny(unsafe_code)]

mod ability;
mod blend;
mod bmp;
mod chacha;
mod color;
mod compiled;
pub mod draw;
pub mod encode;
mod error;
pub mod field;
mod first_frame;
mod form_image;
mod function;
#[doc(hidden)]
pub mod fuzz;
mod geometry;
mod indexing;
mod info;
mod inspect;
mod interleave;
mod jpeg;
mod large;
mod level;
mod limits;
mod mirror;
mod normalize;
pub mod ops;
mod orient;
mod orientation;
mod panics;
mod partial;
mod passes;
pub mod pieces;
mod pipeline;
mod plan;
mod planar;
mod pnm;
mod prefetch;
mod preparer;
mod range;
mod raster;
mod raw;
mod rendered;
mod resize;
mod row_index;
mod rows;
pub mod similarity;
mod source;
#[doc(hidden)]
pub mod stages;
mod steps;
pub mod synthetic;
pub mod warp;

pub use ability::{Ability, AbilityNumber, abilities_without_forms, examples};
pub use blend::blend;
pub use compiled::CompiledPipeline;
pub use draw::Draw;
pub use error::{CorruptReason, PixelError};
pub use field::{DType, Element, Field, FieldKind, IMAGE, ImageLayout, LABEL, SIZE};
pub use form_image::{BandMemory, FormDecoder, FormImage};
pub use function::{Call, CallError, Functions, Given, SampleFunction};
pub use geometry::{Border, Rect, Window};
pub use indexing::{IndexedJpeg, IndexedRows, NotIndexed, checkpoint_bytes_max, row_index_bytes_max};
pub use info::{Format, ImageInfo, JpegColor, JpegInfo};
pub use inspect::Verdict;
pub use large::{
    HeldTurns, SMALL_BYTES, Turn as LargeTurn, hold_turns as hold_large_turns, is_large, map_large_blocks,
    turn as large_turn,
};
pub use limits::Limits;
pub use normalize::{Normalize, NormalizeError, Normalizer};
pub use panics::silence_decoder_panics;
pub use partial::PartialJpeg;
pub use pieces::{Fidelity, NotCut, Pieces, ScanGroups};
pub use pipeline::{Pipeline, PipelineError, Shape};
pub use plan::{PlanMemory, SamplePlan};
pub use prefetch::prefetch;
pub use preparer::{Decoded, Preparer};
pub use raw::RawRows;
pub use rendered::{Prepared, Rendered};
pub use row_index::{BadRowIndex, RowIndex};
pub use rows::{Band, Sink};
pub use source::Source;
