//! torchvision's `RandomEqualize`.

use super::{Cutout, MakeArea, Scratch, by_chance::by_chance};
use crate::error::PixelError;
use crate::geometry::Rect;

by_chance! {
    /// Equalises the histogram of each channel at random.
    ///
    /// The step of a channel is the number of its values that are smaller than the largest one, divided by 255 and
    /// rounded down. A value becomes ⌊(n + ⌊step / 2⌋) / step⌋, at most 255, where n of the channel's values are
    /// smaller. A channel whose step is 0 stays as it is.
    RandomEqualize {
        /// Probability of equalising.
        p = 0.5
    }
    adds Equalize
}

/// Equalises the histogram of each channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Equalize;

impl MakeArea for Equalize {
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
        let tables = histograms(from.pixels).map(|histogram| table(&histogram));
        from.look_up(made, &tables, out);
        Ok(())
    }
}

type Histogram = [u64; 256];

/// Counts the values of each channel.
fn histograms(pixels: &[u8]) -> [Histogram; 3] {
    // Two counts of each channel, so that a count need not wait for the one before if neighbours are equal.
    let mut counts = [[[0u64; 256]; 3]; 2];
    let (pairs, rest) = pixels.as_chunks::<6>();
    for pair in pairs {
        for (at, &value) in pair.iter().enumerate() {
            counts[at / 3][at % 3][usize::from(value)] += 1;
        }
    }
    for (channel, &value) in rest.iter().enumerate() {
        counts[0][channel][usize::from(value)] += 1;
    }
    let [mut first, second] = counts;
    for (sums, others) in first.iter_mut().flatten().zip(second.iter().flatten()) {
        *sums += others;
    }
    first
}

fn table(histogram: &Histogram) -> [u8; 256] {
    let largest = histogram.iter().rposition(|&count| count > 0).unwrap_or(0);
    let step = histogram[..largest].iter().sum::<u64>() / 255;
    if step == 0 {
        return std::array::from_fn(|value| value as u8);
    }
    let mut smaller = 0;
    histogram.map(|count| {
        let equalized = (smaller + step / 2) / step;
        smaller += count;
        equalized.min(255) as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn every_value_is_counted_once() {
        for pixels in [0, 1, 2, 7] {
            let image = synthetic::photo(pixels.max(1), 1, 3);
            let image = &image[..pixels as usize * 3];
            let counted = histograms(image);
            for (channel, histogram) in counted.iter().enumerate() {
                let mut expected = [0; 256];
                image.iter().skip(channel).step_by(3).for_each(|&value| expected[usize::from(value)] += 1);
                assert_eq!(*histogram, expected, "{pixels} pixels");
            }
        }
    }

    #[test]
    fn a_channel_with_few_values_below_its_largest_stays_as_it_is() {
        let with = |small: u64, large: u64| {
            let mut histogram = [0; 256];
            (histogram[10], histogram[90]) = (small, large);
            table(&histogram)
        };
        let unchanged: [u8; 256] = std::array::from_fn(|value| value as u8);
        assert_eq!(with(254, 1000), unchanged);
        assert_eq!(with(0, 1000), unchanged, "one value");
        // torchvision's table for these counts.
        let mut histogram = [0; 256];
        for (value, count) in [(0, 100), (3, 700), (9, 1300), (200, 500), (255, 400)] {
            histogram[value] = count;
        }
        assert_eq!([0, 3, 9, 200, 255].map(|value| table(&histogram)[value]), [0, 10, 80, 210, 255]);
        let changed = with(255, 1);
        assert_eq!((changed[10], changed[11], changed[90], changed[91]), (0, 255, 255, 255));
    }
}
