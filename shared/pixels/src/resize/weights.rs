//! What each output of one direction is made of: an antialiased triangle over its inputs, in fixed point of 16 bits.
//!
//! Pillow's filter. The weights are computed in f64 by +, −, ×, ÷ and truncation alone, so they are the same everywhere. They have
//! as many bits after the point as the largest of all outputs leaves room for, which is why all of them are computed even where
//! only some are wanted.

use std::ops::Range;

use crate::error::PixelError;
use crate::source::Limits;

/// The most bits after the point: 8 bits of a sample and 2 to spare remain of 32.
const MOST_BITS: u32 = 32 - 8 - 2 - 1;

/// Weights of a range of outputs.
#[derive(Default)]
pub struct Weights {
    /// Bits after the point.
    pub bits: u32,
    /// Weights of an output, an even number: those at the end are zero where it has less.
    pub taps: usize,
    /// For each output its first input, and how many it has. `taps` inputs follow the first if there are as many in all.
    pub inputs: Vec<(u32, u32)>,
    /// `taps` for each output.
    values: Vec<i16>,
    /// As f64, for all inputs under the triangle and a few more.
    exact: Vec<f64>,
    /// What they were made for.
    made_for: Option<(u32, u32, Range<u32>)>,
}

/// Where the filter lies over the inputs.
#[derive(Clone, Copy)]
struct Triangle {
    inputs: u32,
    scale: f64,
    radius: f64,
}

impl Triangle {
    fn new(inputs: u32, outputs: u32) -> Self {
        let scale = f64::from(inputs) / f64::from(outputs);
        Self { inputs, scale, radius: scale.max(1.0) }
    }

    fn center(&self, output: u32) -> f64 {
        (f64::from(output) + 0.5) * self.scale
    }

    /// The most inputs that lie under it.
    fn widest(&self) -> usize {
        (2.0 * self.radius) as usize + 3
    }

    /// The inputs under the triangle; those at both ends may have no weight.
    fn span(&self, output: u32) -> Range<u32> {
        let center = self.center(output);
        let (low, high) = (center - self.radius, center + self.radius);
        // `as` truncates, and takes what is negative for 0.
        let end = high as u32;
        low as u32..(end + u32::from(f64::from(end) < high)).min(self.inputs)
    }
}

/// The inputs that a range of outputs is made of, perhaps some more.
pub fn span(inputs: u32, outputs: u32, part: &Range<u32>) -> Range<u32> {
    if inputs == outputs {
        return part.clone();
    }
    let triangle = Triangle::new(inputs, outputs);
    triangle.span(part.start).start..triangle.span(part.end - 1).end
}

impl Weights {
    /// Makes the weights of `part` of the outputs. Inputs are counted from the first one of its [`span`]. An error where they take
    /// more memory than the limit.
    pub fn make(&mut self, inputs: u32, outputs: u32, part: &Range<u32>, limits: Limits) -> Result<(), PixelError> {
        let made_for = Some((inputs, outputs, part.clone()));
        if self.made_for == made_for {
            return Ok(());
        }
        self.made_for = None;
        let triangle = Triangle::new(inputs, outputs);
        // One row more, for the outputs that are not wanted.
        let exact = (part.len() + 1).saturating_mul(triangle.widest());
        let values = part.len().saturating_mul(triangle.widest() + 1);
        limits.check_memory((exact as u64).saturating_mul(8).saturating_add((values as u64).saturating_mul(2)))?;
        limits.reserve(&mut self.exact, exact)?;
        limits.reserve(&mut self.values, values)?;
        // Most triangles are small, and loops of known length without branches fast.
        match triangle.widest() {
            5 => self.make_of::<5>(&triangle, outputs, part),
            6 => self.make_of::<6>(&triangle, outputs, part),
            7 | 8 => self.make_of::<8>(&triangle, outputs, part),
            _ => self.make_of::<0>(&triangle, outputs, part),
        }
        self.made_for = made_for;
        Ok(())
    }

    /// `WIDEST` is 0 where it is known at run time alone.
    fn make_of<const WIDEST: usize>(&mut self, triangle: &Triangle, outputs: u32, part: &Range<u32>) {
        let widest = if WIDEST == 0 { triangle.widest() } else { WIDEST };
        let wanted = span(triangle.inputs, outputs, part);
        self.inputs.clear();
        self.exact.clear();
        self.exact.resize((part.len() + 1) * widest, 0.0);
        let mut largest = 0.0;
        for output in 0..outputs {
            let row = if part.contains(&output) { output - part.start } else { part.len() as u32 } as usize;
            let weights = &mut self.exact[row * widest..][..widest];
            let (start, count, most) = weigh(triangle, output, weights);
            largest = if most > largest { most } else { largest };
            if row < part.len() {
                self.inputs.push((start - wanted.start, count));
            }
        }
        self.round(triangle, part.start, wanted, largest, widest);
    }

    /// From f64 to fixed point.
    #[inline(always)]
    fn round(&mut self, triangle: &Triangle, first_output: u32, wanted: Range<u32>, largest: f64, widest: usize) {
        let overflows = |bits: &u32| nearest(largest * f64::from(1u32 << (bits + 1))) > i32::from(i16::MAX);
        self.bits = (0..MOST_BITS).find(overflows).unwrap_or(MOST_BITS);
        let one = f64::from(1u32 << self.bits);
        let most = self.inputs.iter().map(|&(_, count)| count).max().unwrap_or(0);
        self.taps = most.next_multiple_of(2) as usize;
        self.values.clear();
        self.values.resize(self.inputs.len() * self.taps, 0);
        let taps = self.taps as u32;
        let rows = self.exact.chunks_exact(widest).zip(self.values.chunks_exact_mut(self.taps));
        for ((output, (first, count)), (exact, values)) in (first_output..).zip(&mut self.inputs).zip(rows) {
            let zeros = (*first + wanted.start - triangle.span(output).start) as usize;
            let mut place = 0;
            if *first + taps > wanted.end - wanted.start && taps <= wanted.end - wanted.start {
                // The last ones get zeros in front instead of behind.
                let moved = wanted.end - wanted.start - taps;
                place = (*first - moved) as usize;
                (*first, *count) = (moved, taps);
            }
            for (value, weight) in values[place..].iter_mut().zip(&exact[zeros..]) {
                *value = nearest(weight * one) as i16;
            }
        }
    }

    /// The weights of an output of the part.
    pub fn of(&self, output: usize) -> &[i16] {
        &self.values[output * self.taps..][..self.taps]
    }

    /// Bytes that it holds.
    pub fn bytes(&self) -> usize {
        self.exact.capacity() * 8 + self.inputs.capacity() * 8 + self.values.capacity() * 2
    }
}

/// Writes the weights of the inputs under the triangle. Returns the first that is not zero, how many there are from it to the last
/// that is not, and the largest weight.
#[inline(always)]
fn weigh(triangle: &Triangle, output: u32, weights: &mut [f64]) -> (u32, u32, f64) {
    let center = triangle.center(output) - 0.5;
    let per_radius = 1.0 / triangle.radius;
    let span = triangle.span(output);
    let (mut sum, mut highest, mut start, mut end) = (0.0, 0.0, span.end, span.start);
    for (x, weight) in (span.start..).zip(weights.iter_mut()) {
        let height = 1.0 - ((f64::from(x) - center) * per_radius).abs();
        let is_above = height > 0.0 && x < span.end;
        *weight = if is_above { height } else { 0.0 };
        sum += *weight;
        highest = if *weight > highest { *weight } else { highest };
        start = if is_above { start.min(x) } else { start };
        end = if is_above { x + 1 } else { end };
    }
    for weight in weights {
        *weight /= sum;
    }
    // Division keeps the order, whatever it rounds.
    (start, end - start, highest / sum)
}

/// The nearest integer of what is neither negative nor above 2^31, halves up.
#[inline(always)]
fn nearest(value: f64) -> i32 {
    /// What has no bits after the point when it is added: the sum is rounded to the nearest integer, halves to an even one.
    const WHOLE: f64 = (1u64 << 52) as f64;
    let sum = value + WHOLE;
    let is_half_down = value - (sum - WHOLE) >= 0.5;
    // The integer is in the lower bits.
    sum.to_bits() as i32 + i32::from(is_half_down)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn halves_are_rounded_up() {
        for whole in [0, 1, 2, 3, 4, 1000, 32_767, 65_535] {
            let value = f64::from(whole);
            assert_eq!(
                [value, value + 0.25, value + 0.5, value + 0.75].map(nearest),
                [0, 0, 1, 1].map(|up| whole + up)
            );
            assert_eq!(nearest((value + 0.5).next_down()), whole);
        }
    }
}
