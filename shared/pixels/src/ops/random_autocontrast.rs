//! torchvision's `RandomAutocontrast`.

use super::{Cutout, MakeArea, Scratch, by_chance::by_chance};
use crate::error::PixelError;
use crate::geometry::Rect;

by_chance! {
    /// Stretches each channel to the whole range of values at random.
    ///
    /// A value v becomes ⌊255 (v − least) / (most − least)⌋, where least and most are the channel's smallest and
    /// largest values in the image. A channel with one value stays as it is.
    RandomAutocontrast {
        /// Probability of stretching.
        p = 0.5
    }
    adds Autocontrast
}

/// Stretches each channel to the whole range of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Autocontrast;

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
        let [least, most] = extremes(from.pixels);
        let tables: [[u8; 256]; 3] = std::array::from_fn(|channel| table(least[channel], most[channel]));
        from.look_up(made, &tables, out);
        Ok(())
    }
}

/// Returns the smallest and the largest value of each channel.
fn extremes(pixels: &[u8]) -> [[u8; 3]; 2] {
    /// Values that are compared together: a multiple of three.
    const VALUES: usize = 96;
    let (mut least, mut most) = ([u8::MAX; VALUES], [0; VALUES]);
    let (blocks, rest) = pixels.as_chunks::<VALUES>();
    for block in blocks {
        for at in 0..VALUES {
            least[at] = least[at].min(block[at]);
            most[at] = most[at].max(block[at]);
        }
    }
    for (at, &value) in rest.iter().enumerate() {
        least[at] = least[at].min(value);
        most[at] = most[at].max(value);
    }
    let every_third = |first: usize| (first..VALUES).step_by(3);
    let least = [0, 1, 2].map(|first| every_third(first).map(|at| least[at]).min().unwrap_or(u8::MAX));
    [least, [0, 1, 2].map(|first| every_third(first).map(|at| most[at]).max().unwrap_or(0))]
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
    use crate::synthetic;

    #[test]
    fn extremes_are_those_of_all_pixels() {
        for pixels in [1, 31, 32, 33, 200] {
            let image = synthetic::photo(pixels, 1, 9);
            let of_channel = |channel| image.iter().copied().skip(channel).step_by(3);
            let least = [0, 1, 2].map(|channel| of_channel(channel).min().unwrap());
            assert_eq!(extremes(&image), [least, [0, 1, 2].map(|channel| of_channel(channel).max().unwrap())]);
        }
    }

    #[test]
    fn a_channel_gets_the_whole_range() {
        assert_eq!([10, 11, 30, 110].map(|value| table(10, 110)[value]), [0, 2, 51, 255]);
        assert_eq!([0, 7, 255].map(|value| table(7, 7)[value]), [0, 7, 255], "one value");
        assert_eq!([0, 99, 255].map(|value| table(0, 255)[value]), [0, 99, 255]);
    }
}
