//! torchvision's `RandomAutocontrast`.

use super::{Cutout, Effects, MakeArea, Operate, Scratch, check_probability};
use crate::draw::Words;
use crate::error::PixelError;
use crate::geometry::Rect;
use serde::{Deserialize, Serialize};

/// Stretches each channel to the whole range of values at random.
///
/// A value v becomes ⌊255 (v − least) / (most − least)⌋, where least and most are the channel's smallest and largest
/// values in the image. A channel with one value stays as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomAutocontrast {
    /// Probability of stretching.
    #[serde(default = "default_probability")]
    pub p: f64,
}

fn default_probability() -> f64 {
    0.5
}

/// Stretches each channel to the whole range of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Autocontrast;

impl Operate for RandomAutocontrast {
    const EXAMPLES: &'static [Self] = &[Self { p: 0.5 }, Self { p: 1.0 }];

    fn check(&self) -> Result<(), String> {
        check_probability(self.p)
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(before)
    }

    fn draw(&self, _size: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        if words.uniform() < self.p {
            effects.add(Autocontrast);
        }
        Ok(())
    }
}

impl MakeArea for Autocontrast {
    fn needs(&self, _made: Rect, (width, height): (u32, u32)) -> Rect {
        Rect { x: 0, y: 0, width, height }
    }

    fn make(
        &self,
        from: &Cutout<'_>,
        made: Rect,
        _scratch: &mut Scratch<'_>,
        out: &mut [u8],
    ) -> Result<(), PixelError> {
        let (mut least, mut most) = ([u8::MAX; 3], [0; 3]);
        for pixel in from.pixels.as_chunks::<3>().0 {
            for channel in 0..3 {
                least[channel] = least[channel].min(pixel[channel]);
                most[channel] = most[channel].max(pixel[channel]);
            }
        }
        let tables: [[u8; 256]; 3] = std::array::from_fn(|channel| table(least[channel], most[channel]));
        from.look_up(made, &tables, out);
        Ok(())
    }
}

fn table(least: u8, most: u8) -> [u8; 256] {
    let span = u32::from(most.saturating_sub(least));
    std::array::from_fn(|value| match span {
        0 => value as u8,
        _ => ((value as u32).saturating_sub(least.into()) * 255 / span).min(255) as u8,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_gets_the_whole_range() {
        assert_eq!([10, 11, 30, 110].map(|value| table(10, 110)[value]), [0, 2, 51, 255]);
        assert_eq!([0, 7, 255].map(|value| table(7, 7)[value]), [0, 7, 255], "one value");
        assert_eq!([0, 99, 255].map(|value| table(0, 255)[value]), [0, 99, 255]);
    }
}
