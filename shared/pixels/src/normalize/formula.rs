//! A formula in f32 that equals a table.

use super::Normalize;
use super::float::Float;

/// `(v × scale + offset) + (v × fine_scale + fine_offset)` for each channel; each product is rounded once, together
/// with its sum.
///
/// The first part is exact, since `scale` has at most 17 bits and `offset` is a multiple of the last of these bits. So
/// the result is rounded once, apart from the rounding of the second part, which is far smaller.
#[derive(Clone, Debug)]
pub struct Formula {
    pub scale: [f32; 3],
    pub offset: [f32; 3],
    /// Second part; `None` if the first part is enough.
    pub fine: Option<Fine>,
}

#[derive(Clone, Debug)]
pub struct Fine {
    pub scale: [f32; 3],
    pub offset: [f32; 3],
}

/// Bits of `scale`: its product with the 8 bits of a value fits an f32.
const SCALE_BITS: i32 = 16;

impl Formula {
    /// Returns a formula whose rounded values equal a table, if there is one.
    pub fn of<T: Float>(normalize: &Normalize, table: &[[T; 256]; 3]) -> Option<Self> {
        [Self::coarse(normalize), Self::fine(normalize)].into_iter().find(|formula| formula.equals(table))
    }

    fn coarse(Normalize { mean, std }: &Normalize) -> Self {
        let scale = std.map(|std| (1.0 / (255.0 * std)) as f32);
        Self { scale, offset: std::array::from_fn(|c| (-mean[c] / std[c]) as f32), fine: None }
    }

    fn fine(Normalize { mean, std }: &Normalize) -> Self {
        let scale = std.map(|std| 1.0 / (255.0 * std));
        let offset: [f64; 3] = std::array::from_fn(|c| -mean[c] / std[c]);
        let last_bit = scale.map(|scale| libm::exp2(f64::from(libm::ilogb(scale) + 1 - SCALE_BITS)));
        let coarse = |exact: [f64; 3]| std::array::from_fn(|c| ((exact[c] / last_bit[c]).round() * last_bit[c]) as f32);
        let rest =
            |exact: [f64; 3], coarse: [f32; 3]| std::array::from_fn(|c| (exact[c] - f64::from(coarse[c])) as f32);
        let (coarse_scale, coarse_offset) = (coarse(scale), coarse(offset));
        let fine = Fine { scale: rest(scale, coarse_scale), offset: rest(offset, coarse_offset) };
        Self { scale: coarse_scale, offset: coarse_offset, fine: Some(fine) }
    }

    fn value(&self, channel: usize, value: f32) -> f32 {
        let first = value.mul_add(self.scale[channel], self.offset[channel]);
        match &self.fine {
            Some(fine) => first + value.mul_add(fine.scale[channel], fine.offset[channel]),
            None => first,
        }
    }

    /// Returns whether every bit is the same.
    fn equals<T: Float>(&self, table: &[[T; 256]; 3]) -> bool {
        (0..3).all(|channel| {
            let found = |value| T::round_f32(self.value(channel, f32::from(value)));
            (0..=255)
                .zip(&table[channel])
                .all(|(value, expected): (u8, _)| found(value).as_bytes() == expected.as_bytes())
        })
    }
}
