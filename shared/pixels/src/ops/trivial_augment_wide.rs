//! torchvision's `TrivialAugmentWide`.

use super::augmentations::{Augmentation, Space, check_bins};
use super::first_form::{FirstForm, keep_first_form};
use super::{Effects, Fill, Operate, Outside};
use crate::draw::Words;
use crate::error::PixelError;
use crate::warp::{Interpolation, Sampling};
use serde::{Deserialize, Serialize};

/// Makes one change, chosen at random from fourteen, of random magnitude.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct TrivialAugmentWide {
    /// Number of magnitudes, from 2 to 1000.
    #[serde(default = "default_bins")]
    pub num_magnitude_bins: u32,
    /// How a value is made from the pixels around a place.
    #[serde(default = "nearest")]
    pub interpolation: Interpolation,
    /// Colour of the pixels outside the image, or none.
    #[serde(default = "black")]
    pub fill: Outside,
}

fn default_bins() -> u32 {
    31
}

fn nearest() -> Interpolation {
    Interpolation::Nearest
}

fn black() -> Outside {
    Outside::BLACK
}

keep_first_form!(TrivialAugmentWide);

impl FirstForm for TrivialAugmentWide {
    type Rest = (Interpolation, Fill);

    fn first(&self) -> Option<(u32, Self::Rest)> {
        self.fill.0.map(|fill| (self.num_magnitude_bins, (self.interpolation, fill)))
    }

    fn of_first(first: u32, (interpolation, fill): Self::Rest) -> Option<Self> {
        Some(Self { num_magnitude_bins: first, interpolation, fill: Outside(Some(fill)) })
    }
}

impl Operate for TrivialAugmentWide {
    const EXAMPLES: &'static [Self] = &[
        Self { num_magnitude_bins: 31, interpolation: Interpolation::Nearest, fill: Outside(Some(Fill([0; 3]))) },
        Self { num_magnitude_bins: 4, interpolation: Interpolation::Bilinear, fill: Outside(Some(Fill([9, 99, 199]))) },
    ];

    fn check(&self) -> Result<(), String> {
        check_bins(self.num_magnitude_bins)
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(before)
    }

    fn draw(&self, size: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        let (change, magnitude) = self.choose(size, words);
        change.add(magnitude, Sampling { interpolation: self.interpolation, fill: self.fill.color() }, effects);
        Ok(())
    }
}

impl TrivialAugmentWide {
    /// Draws a change, its magnitude and its sign.
    fn choose(&self, size: (u32, u32), words: &mut impl Words) -> (Augmentation, f64) {
        let bins = self.num_magnitude_bins;
        let change = Augmentation::MOST[words.below(Augmentation::MOST.len() as u64) as usize];
        let bin = if change.has_magnitude() { words.below(bins.into()) as u32 } else { 0 };
        let magnitude = Space::WIDE.magnitude(change, size, bin, bins);
        let is_negative = change.is_signed() && words.below(2) == 1;
        (change, if is_negative { -magnitude } else { magnitude })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Draw, Rng};
    use std::collections::HashMap;

    #[test]
    fn changes_magnitudes_and_signs_are_drawn_evenly() {
        let operation = TrivialAugmentWide { num_magnitude_bins: 5, ..toml::from_str("").unwrap() };
        let mut counts = HashMap::<_, HashMap<i64, u32>>::new();
        let words = &mut Rng::for_sample(Draw::default(), 0);
        for _ in 0..28_000 {
            let (change, magnitude) = operation.choose((50, 60), words);
            *counts.entry(change).or_default().entry((magnitude * 1000.0) as i64).or_default() += 1;
        }
        assert_eq!(counts.len(), 14);
        for (change, magnitudes) in counts {
            let count: u32 = magnitudes.values().sum();
            // 2000 on the average; the standard deviation is 43.
            assert!((1830..2170).contains(&count), "{count} of {change:?}");
            // With a sign, ±0 is one magnitude of nine.
            let expected = match (change.is_signed(), change.has_magnitude()) {
                (true, _) => 9,
                (false, true) => 5,
                _ => 1,
            };
            assert_eq!(magnitudes.len(), expected, "{change:?}: {magnitudes:?}");
            for (&magnitude, &found) in &magnitudes {
                let share = if expected == 9 && magnitude != 0 { 10 } else { expected.min(5) as u32 };
                let mean = f64::from(count) / f64::from(share);
                assert!((f64::from(found) - mean).abs() < 5.0 * mean.sqrt() + 1.0, "{change:?}: {magnitudes:?}");
            }
        }
    }
}
