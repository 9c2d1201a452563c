//! torchvision's `AutoAugment`.

use super::augmentations::Augmentation::{
    self, AutoContrast, Brightness, Color, Contrast, Equalize, Invert, Posterize, Rotate, Sharpness, ShearX, ShearY,
    Solarize, TranslateX, TranslateY,
};
use super::augmentations::Space;
use super::first_form::{FirstForm, keep_first_form};
use super::{Effects, Fill, Operate, Outside};
use crate::draw::Words;
use crate::error::PixelError;
use crate::warp::{Interpolation, Sampling};
use serde::{Deserialize, Serialize};

/// Number of magnitudes.
const BINS: u32 = 10;

/// Draws one of 25 pairs of changes that were found to suit a dataset. Each change of a pair has a probability and a
/// magnitude of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct AutoAugment {
    /// The pairs of changes.
    #[serde(default)]
    pub policy: AutoAugmentPolicy,
    /// How a value is made from the pixels around a place.
    #[serde(default = "nearest")]
    pub interpolation: Interpolation,
    /// Colour of the pixels outside the image, or none.
    #[serde(default = "black")]
    pub fill: Outside,
}

fn nearest() -> Interpolation {
    Interpolation::Nearest
}

/// The pairs of changes that were found for one dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "each has the name of its dataset")]
pub enum AutoAugmentPolicy {
    #[default]
    ImageNet,
    Cifar10,
    Svhn,
}

/// A change, its probability and the number of its magnitude.
type PolicyPart = (Augmentation, f64, u32);

impl AutoAugmentPolicy {
    fn pairs(self) -> &'static [[PolicyPart; 2]; 25] {
        match self {
            Self::ImageNet => &IMAGENET,
            Self::Cifar10 => &CIFAR10,
            Self::Svhn => &SVHN,
        }
    }
}

fn black() -> Outside {
    Outside::BLACK
}

keep_first_form!(AutoAugment);

impl FirstForm for AutoAugment {
    type Rest = (Interpolation, Fill);

    fn first(&self) -> Option<(u32, Self::Rest)> {
        self.fill.0.map(|fill| (self.policy as u32, (self.interpolation, fill)))
    }

    fn of_first(first: u32, (interpolation, fill): Self::Rest) -> Option<Self> {
        let policies = [AutoAugmentPolicy::ImageNet, AutoAugmentPolicy::Cifar10, AutoAugmentPolicy::Svhn];
        let policy = policies.into_iter().find(|&policy| policy as u32 == first)?;
        Some(Self { policy, interpolation, fill: Outside(Some(fill)) })
    }
}

impl Operate for AutoAugment {
    const EXAMPLES: &'static [Self] = &[
        Self {
            policy: AutoAugmentPolicy::ImageNet,
            interpolation: Interpolation::Nearest,
            fill: Outside(Some(Fill([0; 3]))),
        },
        Self {
            policy: AutoAugmentPolicy::Cifar10,
            interpolation: Interpolation::Bilinear,
            fill: Outside(Some(Fill([255, 1, 77]))),
        },
        Self {
            policy: AutoAugmentPolicy::Svhn,
            interpolation: Interpolation::Nearest,
            fill: Outside(Some(Fill([3; 3]))),
        },
    ];

    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(before)
    }

    fn draw(&self, size: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        let sampling = Sampling { interpolation: self.interpolation, fill: self.fill.color() };
        for (change, magnitude) in self.choose(size, words).into_iter().flatten() {
            change.add(magnitude, sampling, effects);
        }
        Ok(())
    }
}

impl AutoAugment {
    /// Draws a pair, which of its changes are made, and their signs.
    fn choose(&self, size: (u32, u32), words: &mut impl Words) -> [Option<(Augmentation, f64)>; 2] {
        let pairs = self.policy.pairs();
        let pair = pairs[words.below(pairs.len() as u64) as usize];
        pair.map(|(change, probability, bin)| {
            let is_made = words.uniform() < probability;
            let is_negative = words.below(2) == 0 && change.is_signed();
            let magnitude = Space::USUAL.magnitude(change, size, bin, BINS);
            is_made.then_some((change, if is_negative { -magnitude } else { magnitude }))
        })
    }
}

/// torchvision's tables.
const IMAGENET: [[PolicyPart; 2]; 25] = [
    [(Posterize, 0.4, 8), (Rotate, 0.6, 9)],
    [(Solarize, 0.6, 5), (AutoContrast, 0.6, 0)],
    [(Equalize, 0.8, 0), (Equalize, 0.6, 0)],
    [(Posterize, 0.6, 7), (Posterize, 0.6, 6)],
    [(Equalize, 0.4, 0), (Solarize, 0.2, 4)],
    [(Equalize, 0.4, 0), (Rotate, 0.8, 8)],
    [(Solarize, 0.6, 3), (Equalize, 0.6, 0)],
    [(Posterize, 0.8, 5), (Equalize, 1.0, 0)],
    [(Rotate, 0.2, 3), (Solarize, 0.6, 8)],
    [(Equalize, 0.6, 0), (Posterize, 0.4, 6)],
    [(Rotate, 0.8, 8), (Color, 0.4, 0)],
    [(Rotate, 0.4, 9), (Equalize, 0.6, 0)],
    [(Equalize, 0.0, 0), (Equalize, 0.8, 0)],
    [(Invert, 0.6, 0), (Equalize, 1.0, 0)],
    [(Color, 0.6, 4), (Contrast, 1.0, 8)],
    [(Rotate, 0.8, 8), (Color, 1.0, 2)],
    [(Color, 0.8, 8), (Solarize, 0.8, 7)],
    [(Sharpness, 0.4, 7), (Invert, 0.6, 0)],
    [(ShearX, 0.6, 5), (Equalize, 1.0, 0)],
    [(Color, 0.4, 0), (Equalize, 0.6, 0)],
    [(Equalize, 0.4, 0), (Solarize, 0.2, 4)],
    [(Solarize, 0.6, 5), (AutoContrast, 0.6, 0)],
    [(Invert, 0.6, 0), (Equalize, 1.0, 0)],
    [(Color, 0.6, 4), (Contrast, 1.0, 8)],
    [(Equalize, 0.8, 0), (Equalize, 0.6, 0)],
];

const CIFAR10: [[PolicyPart; 2]; 25] = [
    [(Invert, 0.1, 0), (Contrast, 0.2, 6)],
    [(Rotate, 0.7, 2), (TranslateX, 0.3, 9)],
    [(Sharpness, 0.8, 1), (Sharpness, 0.9, 3)],
    [(ShearY, 0.5, 8), (TranslateY, 0.7, 9)],
    [(AutoContrast, 0.5, 0), (Equalize, 0.9, 0)],
    [(ShearY, 0.2, 7), (Posterize, 0.3, 7)],
    [(Color, 0.4, 3), (Brightness, 0.6, 7)],
    [(Sharpness, 0.3, 9), (Brightness, 0.7, 9)],
    [(Equalize, 0.6, 0), (Equalize, 0.5, 0)],
    [(Contrast, 0.6, 7), (Sharpness, 0.6, 5)],
    [(Color, 0.7, 7), (TranslateX, 0.5, 8)],
    [(Equalize, 0.3, 0), (AutoContrast, 0.4, 0)],
    [(TranslateY, 0.4, 3), (Sharpness, 0.2, 6)],
    [(Brightness, 0.9, 6), (Color, 0.2, 8)],
    [(Solarize, 0.5, 2), (Invert, 0.0, 0)],
    [(Equalize, 0.2, 0), (AutoContrast, 0.6, 0)],
    [(Equalize, 0.2, 0), (Equalize, 0.6, 0)],
    [(Color, 0.9, 9), (Equalize, 0.6, 0)],
    [(AutoContrast, 0.8, 0), (Solarize, 0.2, 8)],
    [(Brightness, 0.1, 3), (Color, 0.7, 0)],
    [(Solarize, 0.4, 5), (AutoContrast, 0.9, 0)],
    [(TranslateY, 0.9, 9), (TranslateY, 0.7, 9)],
    [(AutoContrast, 0.9, 0), (Solarize, 0.8, 3)],
    [(Equalize, 0.8, 0), (Invert, 0.1, 0)],
    [(TranslateY, 0.7, 9), (AutoContrast, 0.9, 0)],
];

const SVHN: [[PolicyPart; 2]; 25] = [
    [(ShearX, 0.9, 4), (Invert, 0.2, 0)],
    [(ShearY, 0.9, 8), (Invert, 0.7, 0)],
    [(Equalize, 0.6, 0), (Solarize, 0.6, 6)],
    [(Invert, 0.9, 0), (Equalize, 0.6, 0)],
    [(Equalize, 0.6, 0), (Rotate, 0.9, 3)],
    [(ShearX, 0.9, 4), (AutoContrast, 0.8, 0)],
    [(ShearY, 0.9, 8), (Invert, 0.4, 0)],
    [(ShearY, 0.9, 5), (Solarize, 0.2, 6)],
    [(Invert, 0.9, 0), (AutoContrast, 0.8, 0)],
    [(Equalize, 0.6, 0), (Rotate, 0.9, 3)],
    [(ShearX, 0.9, 4), (Solarize, 0.3, 3)],
    [(ShearY, 0.8, 8), (Invert, 0.7, 0)],
    [(Equalize, 0.9, 0), (TranslateY, 0.6, 6)],
    [(Invert, 0.9, 0), (Equalize, 0.6, 0)],
    [(Contrast, 0.3, 3), (Rotate, 0.8, 4)],
    [(Invert, 0.8, 0), (TranslateY, 0.0, 2)],
    [(ShearY, 0.7, 6), (Solarize, 0.4, 8)],
    [(Invert, 0.6, 0), (Rotate, 0.8, 4)],
    [(ShearY, 0.3, 7), (TranslateX, 0.9, 3)],
    [(ShearX, 0.1, 6), (Invert, 0.6, 0)],
    [(Solarize, 0.7, 2), (TranslateY, 0.6, 7)],
    [(ShearY, 0.8, 4), (Invert, 0.8, 0)],
    [(ShearX, 0.7, 9), (TranslateY, 0.8, 3)],
    [(ShearY, 0.8, 5), (AutoContrast, 0.7, 0)],
    [(ShearX, 0.7, 2), (Invert, 0.1, 0)],
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Draw, Rng};
    use std::collections::HashMap;

    /// Returns how often each change of a policy is made on the average.
    fn expected(policy: AutoAugmentPolicy) -> HashMap<Augmentation, f64> {
        let mut expected = HashMap::new();
        for (change, probability, _) in policy.pairs().iter().flatten() {
            *expected.entry(*change).or_default() += probability / 25.0;
        }
        expected
    }

    #[test]
    fn changes_are_made_with_their_probabilities_and_signs() {
        for policy in [AutoAugmentPolicy::ImageNet, AutoAugmentPolicy::Cifar10, AutoAugmentPolicy::Svhn] {
            let operation = AutoAugment { policy, ..toml::from_str("").unwrap() };
            let (mut counts, mut negative) = (HashMap::<_, u32>::new(), HashMap::<_, u32>::new());
            let (words, draws) = (&mut Rng::for_sample(Draw::default(), 0), 25_000);
            for _ in 0..draws {
                for (change, magnitude) in operation.choose((100, 100), words).into_iter().flatten() {
                    *counts.entry(change).or_default() += 1;
                    *negative.entry(change).or_default() += u32::from(magnitude < 0.0);
                }
            }
            for (change, probability) in expected(policy) {
                let (count, mean) = (f64::from(counts[&change]), f64::from(draws) * probability);
                assert!((count - mean).abs() < 5.0 * mean.sqrt(), "{count} of {change:?} for {mean}");
                let half = count / 2.0;
                let signs = f64::from(negative[&change]);
                // A magnitude of 0 has no sign.
                let has_zero = policy.pairs().iter().flatten().any(|&(other, _, bin)| other == change && bin == 0);
                if change.is_signed() && !has_zero {
                    assert!((signs - half).abs() < 4.0 * half.sqrt(), "{signs} of {count} of {change:?}");
                } else {
                    assert!(signs <= half, "{signs} of {count} of {change:?}");
                }
            }
        }
    }

    /// The sums are those of torchvision 0.14's tables.
    #[test]
    fn the_tables_are_torchvisions() {
        for (policy, sums) in [
            (AutoAugmentPolicy::ImageNet, (310.0, 159.0)),
            (AutoAugmentPolicy::Cifar10, (265.0, 187.0)),
            (AutoAugmentPolicy::Svhn, (329.0, 143.0)),
        ] {
            let parts = policy.pairs().iter().flatten();
            let sum = |of: fn(&PolicyPart) -> f64| parts.clone().map(of).sum::<f64>();
            assert_eq!((sum(|part| (part.1 * 10.0).round()), sum(|part| part.2.into())), sums, "{policy:?}");
        }
    }
}
