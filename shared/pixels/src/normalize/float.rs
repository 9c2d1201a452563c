//! What the types of floats differ in: rounding.

use half::{bf16, f16};

use crate::field::Element;

/// A type of floats.
pub trait Float: Element {
    /// Rounds an exact value once.
    fn round(exact: f64) -> Self;

    /// Rounds an f32 as vector instructions do.
    fn round_f32(value: f32) -> Self;
}

impl Float for f32 {
    fn round(exact: f64) -> Self {
        exact as Self
    }

    fn round_f32(value: f32) -> Self {
        value
    }
}

impl Float for f16 {
    fn round(exact: f64) -> Self {
        Self::from_f32_const(cut_to_f32(exact))
    }

    fn round_f32(value: f32) -> Self {
        Self::from_f32_const(value)
    }
}

impl Float for bf16 {
    fn round(exact: f64) -> Self {
        Self::from_f32(cut_to_f32(exact))
    }

    fn round_f32(value: f32) -> Self {
        Self::from_f32(value)
    }
}

/// Cuts a value to the bits of an f32. If these are not all of its bits, the last one is set, so that the result
/// rounds to the same 16 bits as the value. (`from_f64` of the crate `half` drops bits, and takes a value next to a tie
/// for the tie.)
fn cut_to_f32(exact: f64) -> f32 {
    let nearest = exact as f32;
    if f64::from(nearest) == exact {
        return nearest;
    }
    let is_above = f64::from(nearest).abs() > exact.abs();
    f32::from_bits((nearest.to_bits() - u32::from(is_above)) | 1)
}
