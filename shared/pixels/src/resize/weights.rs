//! The weights of each output in one direction: an antialiased filter over its inputs, in fixed point of 16 bits.
//!
//! The weights are computed in f64 by +, −, ×, ÷, truncation and `libm` alone, so they are the same on every machine.
//! The largest weight of all outputs decides how many bits they have after the point; so all weights are computed, even
//! if only some are needed.

use std::ops::Range;

use super::filter::{Bicubic, Box, Filter, Hamming, Lanczos, Smooth, Triangle};
use crate::error::PixelError;
use crate::limits::Limits;

/// Most bits after the point: of 32 bits, 8 are a sample's, and 2 and the sign are spare.
const MOST_BITS: u32 = 32 - 8 - 2 - 1;

/// Weights of a range of outputs.
#[derive(Default)]
pub struct Weights {
    /// Bits after the point.
    pub bits: u32,
    /// Number of weights of an output. It is even; weights at the end are zero if an output has fewer.
    pub taps: usize,
    /// For each output, its first input and the number of its inputs. `taps` inputs can be read from the first on, if
    /// there are that many at all.
    pub inputs: Vec<(u32, u32)>,
    /// The weights, `taps` for each output.
    values: Vec<i16>,
    /// Weights as f64, for all inputs under the filter and a few more.
    exact: Vec<f64>,
    /// What the weights were made for.
    made_for: Option<(Lengths, Range<u32>)>,
}

/// A direction to resize: the numbers of inputs and outputs, and the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    pub inputs: u32,
    pub outputs: u32,
    pub filter: Smooth,
}

impl Lengths {
    /// Returns whether the inputs are the outputs.
    pub fn are_equal(&self) -> bool {
        self.inputs == self.outputs
    }

    /// Returns the inputs of a range of outputs, and perhaps a few more.
    pub fn span(&self, part: &Range<u32>) -> Range<u32> {
        if self.are_equal() {
            return part.clone();
        }
        let placed = Placed::new(self);
        placed.span(part.start).start..placed.span(part.end - 1).end
    }
}

/// Position of the filter over the inputs.
#[derive(Clone, Copy)]
struct Placed {
    inputs: u32,
    scale: f64,
    /// Inputs per unit of the filter's axis.
    stretch: f64,
    /// Inputs from the filter's centre to its end.
    radius: f64,
}

impl Placed {
    fn new(lengths: &Lengths) -> Self {
        let scale = f64::from(lengths.inputs) / f64::from(lengths.outputs);
        let stretch = scale.max(1.0);
        Self { inputs: lengths.inputs, scale, stretch, radius: stretch * lengths.filter.radius() }
    }

    fn center(&self, output: u32) -> f64 {
        (f64::from(output) + 0.5) * self.scale
    }

    /// Returns the largest number of inputs that lie under the filter.
    fn widest(&self) -> usize {
        (2.0 * self.radius) as usize + 3
    }

    /// Returns the inputs under the filter; those at both ends may have a weight of 0.
    fn span(&self, output: u32) -> Range<u32> {
        let center = self.center(output);
        let (low, high) = (center - self.radius, center + self.radius);
        // `as` truncates, and makes 0 of negative numbers.
        let end = high as u32;
        low as u32..(end + u32::from(f64::from(end) < high)).min(self.inputs)
    }
}

impl Weights {
    /// Makes the weights of `part` of the outputs. Inputs are counted from the first one of its
    /// [span](Lengths::span). Returns an error if the weights need more memory than the limit.
    pub fn make(&mut self, lengths: Lengths, part: &Range<u32>, limits: Limits) -> Result<(), PixelError> {
        let made_for = Some((lengths, part.clone()));
        if self.made_for == made_for {
            return Ok(());
        }
        self.made_for = None;
        let widest = Placed::new(&lengths).widest();
        // One row more, for the outputs outside `part`.
        let exact = (part.len() + 1).saturating_mul(widest);
        let values = part.len().saturating_mul(widest + 1);
        limits.check_memory((exact as u64).saturating_mul(8).saturating_add((values as u64).saturating_mul(2)))?;
        limits.reserve(&mut self.exact, exact)?;
        limits.reserve(&mut self.values, values)?;
        match lengths.filter {
            Smooth::Bilinear => self.make_by::<Triangle>(&lengths, part),
            Smooth::Bicubic => self.make_by::<Bicubic>(&lengths, part),
            Smooth::Box => self.make_by::<Box>(&lengths, part),
            Smooth::Hamming => self.make_by::<Hamming>(&lengths, part),
            Smooth::Lanczos => self.make_by::<Lanczos>(&lengths, part),
        }
        self.made_for = made_for;
        Ok(())
    }

    fn make_by<F: Filter>(&mut self, lengths: &Lengths, part: &Range<u32>) {
        // Most filters are narrow, and loops of constant length without branches are fast.
        match Placed::new(lengths).widest() {
            5 => self.make_of::<F, 5>(lengths, part),
            6 => self.make_of::<F, 6>(lengths, part),
            7 | 8 => self.make_of::<F, 8>(lengths, part),
            _ => self.make_of::<F, 0>(lengths, part),
        }
    }

    /// Makes the weights. `WIDEST` is 0 if the width is known only at run time.
    fn make_of<F: Filter, const WIDEST: usize>(&mut self, lengths: &Lengths, part: &Range<u32>) {
        let placed = Placed::new(lengths);
        let widest = if WIDEST == 0 { placed.widest() } else { WIDEST };
        let wanted = lengths.span(part);
        self.inputs.clear();
        self.exact.clear();
        self.exact.resize((part.len() + 1) * widest, 0.0);
        let mut largest = 0.0;
        for output in 0..lengths.outputs {
            let row = if part.contains(&output) { output - part.start } else { part.len() as u32 } as usize;
            let weights = &mut self.exact[row * widest..][..widest];
            let (start, count, most) = weigh::<F>(&placed, output, weights);
            largest = if most > largest { most } else { largest };
            if row < part.len() {
                self.inputs.push((start - wanted.start, count));
            }
        }
        self.round::<F>(&placed, part.start, wanted, largest, widest);
    }

    /// Rounds the weights from f64 to fixed point.
    #[inline(always)]
    fn round<F: Filter>(
        &mut self,
        placed: &Placed,
        first_output: u32,
        wanted: Range<u32>,
        largest: f64,
        widest: usize,
    ) {
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
            let zeros = (*first + wanted.start - placed.span(output).start) as usize;
            let mut place = 0;
            if *first + taps > wanted.end - wanted.start && taps <= wanted.end - wanted.start {
                // The last outputs get zeros in front of their weights instead of behind.
                let moved = wanted.end - wanted.start - taps;
                place = (*first - moved) as usize;
                (*first, *count) = (moved, taps);
            }
            for (value, weight) in values[place..].iter_mut().zip(&exact[zeros..]) {
                *value = match F::IS_SIGNED {
                    true => (nearest(weight.abs() * one) as i16) * weight.signum() as i16,
                    false => nearest(weight * one) as i16,
                };
            }
        }
    }

    /// Returns the weights of an output of the part.
    pub fn of(&self, output: usize) -> &[i16] {
        &self.values[output * self.taps..][..self.taps]
    }

    /// Returns the bytes of memory in use.
    pub fn bytes(&self) -> usize {
        self.exact.capacity() * 8 + self.inputs.capacity() * 8 + self.values.capacity() * 2
    }
}

/// Writes the weights of the inputs under the filter. Returns the index of the first weight that is not zero, the
/// number of weights from there to the last one that is not zero, and the largest weight.
#[inline(always)]
fn weigh<F: Filter>(placed: &Placed, output: u32, weights: &mut [f64]) -> (u32, u32, f64) {
    let center = placed.center(output) - 0.5;
    let per_input = 1.0 / placed.stretch;
    let span = placed.span(output);
    let (mut sum, mut highest, mut start, mut end) = (0.0, 0.0, span.end, span.start);
    for (x, weight) in (span.start..).zip(weights.iter_mut()) {
        let height = F::height((f64::from(x) - center) * per_input);
        let counts = height != 0.0 && x < span.end;
        *weight = if counts { height } else { 0.0 };
        sum += *weight;
        highest = if *weight > highest { *weight } else { highest };
        start = if counts { start.min(x) } else { start };
        end = if counts { x + 1 } else { end };
    }
    for weight in weights {
        *weight /= sum;
    }
    // Division is monotonic, however it rounds, so the largest stays the largest.
    (start, end - start, highest / sum)
}

/// Rounds a number from 0 to 2^31 to the nearest integer, halves up.
#[inline(always)]
fn nearest(value: f64) -> i32 {
    /// Adding this leaves no bits after the point: the sum is rounded to the nearest integer, halves to even.
    const WHOLE: f64 = (1u64 << 52) as f64;
    let sum = value + WHOLE;
    let is_half_down = value - (sum - WHOLE) >= 0.5;
    // The lower bits hold the integer.
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
