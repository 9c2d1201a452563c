//! torchvision's `RandomAdjustSharpness`.

use super::{Cutout, Effects, FACTOR_MAX, MakeArea, Operate, Scratch, check_probability};
use crate::color;
use crate::draw::Words;
use crate::error::PixelError;
use crate::geometry::Rect;
use crate::level::Level;
use serde::{Deserialize, Serialize};

/// Changes, at random, every value's distance from that of a smoothed image by a factor.
///
/// A value of the smoothed image is a mean of three by three pixels, in which the one in the middle counts five times.
/// The outermost pixels, and images of fewer than three rows or columns, stay as they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomAdjustSharpness {
    /// Factor of the distance, from 0 to 1000: 0 gives the smoothed image, and 1 the image itself.
    pub sharpness_factor: f64,
    /// Probability of a change.
    #[serde(default = "default_probability")]
    pub p: f64,
}

fn default_probability() -> f64 {
    0.5
}

/// Changes every value's distance from that of a smoothed image by a factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sharpen {
    /// Factor of the distance.
    pub factor: f64,
}

impl Operate for RandomAdjustSharpness {
    const EXAMPLES: &'static [Self] = &[Self { sharpness_factor: 0.3, p: 0.5 }, Self { sharpness_factor: 2.0, p: 1.0 }];

    fn check(&self) -> Result<(), String> {
        // Comparisons with NaN are false.
        if !(0.0 <= self.sharpness_factor && self.sharpness_factor <= FACTOR_MAX) {
            return Err(format!("sharpness_factor {} is not within [0, {FACTOR_MAX}]", self.sharpness_factor));
        }
        check_probability(self.p)
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(before)
    }

    fn draw(&self, _size: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        if words.uniform() < self.p {
            effects.add(Sharpen { factor: self.sharpness_factor });
        }
        Ok(())
    }
}

impl MakeArea for Sharpen {
    fn needs(&self, made: Rect, size: (u32, u32)) -> Rect {
        made.with_margins([1, 1], size)
    }

    fn make(
        &self,
        from: &Cutout<'_>,
        made: Rect,
        _scratch: &mut Scratch<'_>,
        out: &mut [u8],
    ) -> Result<(), PixelError> {
        let (level, smoothed) = (Level::best(), (1.0 - self.factor) as f32);
        let (width, height) = from.size;
        // The columns that have neighbours on both sides.
        let first = made.x.max(1);
        let end = (made.x + made.width).min(width - 1).max(first);
        for (y, row) in (made.y..).zip(out.chunks_exact_mut(made.width as usize * 3)) {
            row.copy_from_slice(&from.row(y)[(made.x - from.rect.x) as usize * 3..][..row.len()]);
            if y == 0 || y + 1 == height || first == end {
                continue;
            }
            let inner = (first - made.x) as usize * 3..(end - made.x) as usize * 3;
            let around = |y: u32| {
                let start = (first - 1 - from.rect.x) as usize * 3;
                &from.row(y)[start..start + inner.len() + 6]
            };
            color::smooth(level, &mut row[inner.clone()], [around(y - 1), around(y), around(y + 1)], smoothed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::make_alone;
    use crate::synthetic;

    /// Returns a value of the sharpened image, computed from the definition.
    fn exact(pixels: &[u8], (width, height): (u32, u32), factor: f64, at: usize) -> f64 {
        let (pixel, channel) = (at as i64 / 3, at % 3);
        let (x, y) = (pixel % i64::from(width), pixel / i64::from(width));
        let value = |x: i64, y: i64| f64::from(pixels[(y * i64::from(width) + x) as usize * 3 + channel]);
        let own = value(x, y);
        if x == 0 || y == 0 || x + 1 == i64::from(width) || y + 1 == i64::from(height) {
            return own;
        }
        let nine: f64 = (-1..=1)
            .flat_map(|down| (-1..=1).map(move |across| (across, down)))
            .map(|(across, down)| value(x + across, y + down))
            .sum();
        let smoothed = ((nine + 4.0 * own) / 13.0).round();
        (factor * own + (1.0 - factor) * smoothed).clamp(0.0, 255.0)
    }

    #[test]
    fn values_are_those_of_the_definition_without_their_fraction() {
        for size in [(23, 17), (3, 3), (2, 40), (40, 2), (1, 1), (3, 2)] {
            let pixels = synthetic::photo(size.0, size.1, 5);
            let whole = Rect { x: 0, y: 0, width: size.0, height: size.1 };
            for factor in [0.0, 0.5, 1.0, 1.9, 50.0] {
                let mut out = vec![0; pixels.len()];
                make_alone(&Sharpen { factor }, &Cutout { size, rect: whole, pixels: &pixels }, whole, &mut out);
                for (at, &value) in out.iter().enumerate() {
                    let expected = exact(&pixels, size, factor, at);
                    // The sum is a 32-bit float.
                    let apart = expected - f64::from(value);
                    assert!((-0.001..1.001).contains(&apart), "{value} {expected}, {factor} of {size:?} at {at}");
                }
            }
        }
    }

    #[test]
    fn a_factor_of_one_changes_nothing() {
        let (size, pixels) = ((20, 20), synthetic::photo(20, 20, 1));
        let whole = Rect { x: 0, y: 0, width: 20, height: 20 };
        let mut out = vec![0; pixels.len()];
        make_alone(&Sharpen { factor: 1.0 }, &Cutout { size, rect: whole, pixels: &pixels }, whole, &mut out);
        assert_eq!(out, pixels);
    }

    #[test]
    fn wrong_factors_are_refused() {
        for sharpness_factor in [-0.1, 1000.1, f64::NAN] {
            let refused = RandomAdjustSharpness { sharpness_factor, p: 0.5 }.check().unwrap_err();
            assert!(refused.starts_with("sharpness_factor"), "{refused}");
        }
    }
}
