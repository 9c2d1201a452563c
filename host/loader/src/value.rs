//! The values of a batch: pixels as prepared, or floats that the loader's threads compute from them.

use ddlp_pixels::{Normalize, Shape};
use half::f16;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A value of a batch: u8, f32 or f16.
pub trait Value: sealed::Sealed + FromBytes + IntoBytes + Immutable + Copy {}

impl Value for u8 {}
impl Value for f32 {}
impl Value for f16 {}

/// A floating-point value: f32 or f16.
pub trait Float: Value {}

impl Float for f32 {}
impl Float for f16 {}

mod sealed {
    pub trait Sealed {}

    impl Sealed for u8 {}
    impl Sealed for f32 {}
    impl Sealed for half::f16 {}
}

/// The form in which prepared rows are delivered.
#[derive(Clone, Debug)]
pub(crate) enum BatchValues {
    /// Pixels as prepared: u8, N × H × W × C.
    Pixels,
    /// f32, N × C × H × W.
    F32(Box<Normalize>),
    /// f16, N × C × H × W.
    F16(Box<Normalize>),
}

impl BatchValues {
    /// Returns the bytes of a row.
    pub fn row_bytes(&self, shape: Shape) -> usize {
        let value = match self {
            Self::Pixels => size_of::<u8>(),
            Self::F32(_) => size_of::<f32>(),
            Self::F16(_) => size_of::<f16>(),
        };
        shape.bytes() * value
    }

    /// Returns whether rows are delivered as prepared.
    pub fn is_pixels(&self) -> bool {
        matches!(self, Self::Pixels)
    }

    /// Converts whole rows of pixels. `out` must be aligned for its values.
    pub fn write(&self, pixels: &[u8], shape: Shape, out: &mut [u8]) {
        match self {
            Self::Pixels => out.copy_from_slice(pixels),
            Self::F32(normalize) => normalize.f32_nchw(pixels, shape, values_mut(out)),
            Self::F16(normalize) => normalize.f16_nchw(pixels, shape, values_mut(out)),
        }
    }
}

/// Views the bytes of a batch as values.
pub(crate) fn values<V: Value>(bytes: &[u8]) -> &[V] {
    <[V]>::ref_from_bytes(bytes).expect("rows are whole values, and buffers begin at a page")
}

fn values_mut<V: Value>(bytes: &mut [u8]) -> &mut [V] {
    <[V]>::mut_from_bytes(bytes).expect("rows are whole values, and buffers begin at a page")
}
