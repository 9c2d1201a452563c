//! Processors without vector instructions that normalise.

use std::ops::Range;

use super::float::Float;
use super::formula::Formula;
use crate::level::Level;

/// Makes no pixel.
pub fn make<T: Float>(_: Level, _: &Formula, _: &[[u8; 3]], _: [&mut [T]; 3]) -> Range<usize> {
    0..0
}
