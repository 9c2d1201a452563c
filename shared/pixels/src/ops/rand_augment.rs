//! torchvision's `RandAugment`.

use super::augmentations::{Augmentation, Space, check_bins};
use super::first_form::{FirstForm, keep_first_form};
use super::{Effects, Fill, Operate, Outside};
use crate::draw::Words;
use crate::error::PixelError;
use crate::warp::{Interpolation, Sampling};
use serde::{Deserialize, Serialize};

/// Most changes of an image.
const OPS_MAX: u32 = 16;

/// Makes several changes, one after the other, each chosen at random from fourteen, all of the same magnitude.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct RandAugment {
    /// Number of changes, at most 16.
    #[serde(default = "default_ops")]
    pub num_ops: u32,
    /// Magnitude of all changes, from 0 to `num_magnitude_bins` − 1.
    #[serde(default = "default_magnitude")]
    pub magnitude: u32,
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

fn default_ops() -> u32 {
    2
}

fn default_magnitude() -> u32 {
    9
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

keep_first_form!(RandAugment);

impl FirstForm for RandAugment {
    type Rest = (u32, u32, Interpolation, Fill);

    fn first(&self) -> Option<(u32, Self::Rest)> {
        self.fill.0.map(|fill| (self.num_ops, (self.magnitude, self.num_magnitude_bins, self.interpolation, fill)))
    }

    fn of_first(first: u32, (magnitude, num_magnitude_bins, interpolation, fill): Self::Rest) -> Option<Self> {
        let fill = Outside(Some(fill));
        Some(Self { num_ops: first, magnitude, num_magnitude_bins, interpolation, fill })
    }
}

impl Operate for RandAugment {
    const EXAMPLES: &'static [Self] = &[
        Self {
            num_ops: 2,
            magnitude: 9,
            num_magnitude_bins: 31,
            interpolation: Interpolation::Nearest,
            fill: Outside(Some(Fill([0; 3]))),
        },
        Self {
            num_ops: 8,
            magnitude: 7,
            num_magnitude_bins: 10,
            interpolation: Interpolation::Bilinear,
            fill: Outside(Some(Fill([128, 0, 255]))),
        },
    ];

    fn check(&self) -> Result<(), String> {
        check_bins(self.num_magnitude_bins)?;
        if self.num_ops > OPS_MAX {
            return Err(format!("num_ops {} is more than {OPS_MAX}", self.num_ops));
        }
        if self.magnitude >= self.num_magnitude_bins {
            let Self { magnitude, num_magnitude_bins, .. } = self;
            return Err(format!("magnitude {magnitude} is not below num_magnitude_bins, {num_magnitude_bins}"));
        }
        Ok(())
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(before)
    }

    fn draw(&self, size: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        let sampling = Sampling { interpolation: self.interpolation, fill: self.fill.color() };
        for _ in 0..self.num_ops {
            let (change, magnitude) = self.choose(size, words);
            change.add(magnitude, sampling, effects);
        }
        Ok(())
    }
}

impl RandAugment {
    /// Draws a change and its sign.
    fn choose(&self, size: (u32, u32), words: &mut impl Words) -> (Augmentation, f64) {
        let change = Augmentation::MOST[words.below(Augmentation::MOST.len() as u64) as usize];
        let magnitude = Space::USUAL.magnitude(change, size, self.magnitude, self.num_magnitude_bins);
        let is_negative = change.is_signed() && words.below(2) == 1;
        (change, if is_negative { -magnitude } else { magnitude })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Draw, Rng};
    use crate::ops::Operation;
    use std::collections::HashMap;

    fn default() -> RandAugment {
        toml::from_str("").unwrap()
    }

    #[test]
    fn changes_and_signs_are_drawn_evenly() {
        let (operation, draws) = (default(), 28_000);
        let (mut counts, mut negative) = (HashMap::<_, u32>::new(), HashMap::<_, u32>::new());
        let words = &mut Rng::for_sample(Draw::default(), 0);
        for _ in 0..draws {
            let (change, magnitude) = operation.choose((331, 331), words);
            *counts.entry(change).or_default() += 1;
            *negative.entry(change).or_default() += u32::from(magnitude < 0.0);
        }
        assert_eq!(counts.len(), 14);
        for (change, count) in counts {
            // 2000 on the average; the standard deviation is 43, and that of the signs is 22.
            assert!((1830..2170).contains(&count), "{count} of {change:?}");
            let expected = if change.is_signed() { 900..1100 } else { 0..1 };
            assert!(expected.contains(&negative[&change]), "{} of {count} of {change:?}", negative[&change]);
        }
    }

    #[test]
    fn as_many_changes_are_made_as_were_asked_for() {
        let effects = |num_ops, sample_id| {
            let words = &mut Rng::for_sample(Draw { sample_id, ..Draw::default() }, 0);
            let operation = Operation::from(RandAugment { num_ops, ..default() });
            operation.effects((64, 48), words).unwrap().len() as u32
        };
        assert_eq!(effects(0, 0), 0);
        // One of fourteen changes does nothing.
        let several: Vec<u32> = (0..100).map(|sample_id| effects(16, sample_id)).collect();
        assert!(several.iter().all(|&count| (9..=16).contains(&count)), "{several:?}");
        assert!(several.iter().sum::<u32>() > 1430 && several.contains(&16), "{several:?}");
    }

    #[test]
    fn a_fill_is_a_colour_or_none_in_every_format() {
        let read = |text: &str| toml::from_str::<RandAugment>(text).map(|operation| operation.fill);
        assert_eq!(read("").unwrap(), Outside::BLACK);
        assert_eq!(read("fill = 7").unwrap(), Outside(Some(Fill([7; 3]))));
        assert_eq!(read("fill = [7, 8, 9]").unwrap(), Outside(Some(Fill([7, 8, 9]))));
        assert_eq!(read("fill = 'none'").unwrap(), Outside(None));
        assert!(read("fill = 'black'").unwrap_err().to_string().contains("three of them, or \"none\""));
        let open = RandAugment { fill: Outside(None), ..default() };
        assert_eq!(toml::from_str::<RandAugment>(&toml::to_string(&open).unwrap()).unwrap(), open);
        assert_eq!(serde_json::from_str::<RandAugment>("{\"fill\": null}").unwrap(), open);
        let codec = bincode::config::standard().with_little_endian().with_fixed_int_encoding();
        for (operation, first) in [(open, u32::MAX), (default(), 2)] {
            let bytes = Operation::from(operation.clone()).to_bytes();
            assert_eq!(bytes[4..8], first.to_le_bytes());
            let read = bincode::serde::decode_from_slice::<Operation, _>(&bytes, codec).unwrap();
            assert_eq!(read, (operation.into(), bytes.len()));
        }
    }

    #[test]
    fn wrong_parameters_are_refused() {
        for (wrong, name) in [
            (RandAugment { num_ops: 17, ..default() }, "num_ops 17"),
            (RandAugment { magnitude: 31, ..default() }, "magnitude 31"),
            (RandAugment { num_magnitude_bins: 1, magnitude: 0, ..default() }, "num_magnitude_bins 1"),
        ] {
            assert!(wrong.check().unwrap_err().starts_with(name));
        }
        assert_eq!(default().check(), Ok(()));
    }
}
