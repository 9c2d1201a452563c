//! The changes from which RandAugment, TrivialAugmentWide, AutoAugment and AugMix choose, with torchvision's
//! magnitudes.

use super::{Autocontrast, Effects, Equalize, Invert, Jitter, JitterOfWhole, Posterize, Sharpen, Solarize};
use crate::warp::{Affine, Sampling, Warp};

/// A change of an image. Its magnitude says how strong it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Augmentation {
    Identity,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Color,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
    Invert,
}

impl Augmentation {
    /// The changes from which RandAugment and TrivialAugmentWide choose.
    pub const MOST: [Self; 14] = [
        Self::Identity,
        Self::ShearX,
        Self::ShearY,
        Self::TranslateX,
        Self::TranslateY,
        Self::Rotate,
        Self::Brightness,
        Self::Color,
        Self::Contrast,
        Self::Sharpness,
        Self::Posterize,
        Self::Solarize,
        Self::AutoContrast,
        Self::Equalize,
    ];

    /// Returns whether the magnitude has a sign.
    pub fn is_signed(self) -> bool {
        !matches!(
            self,
            Self::Identity | Self::Posterize | Self::Solarize | Self::AutoContrast | Self::Equalize | Self::Invert
        )
    }

    /// Returns whether the change has a magnitude.
    pub fn has_magnitude(self) -> bool {
        self.is_signed() || matches!(self, Self::Posterize | Self::Solarize)
    }

    /// Adds the effect of the change. The magnitude is the tangent of a shear's angle, a distance in pixels, an angle
    /// in degrees counterclockwise, the difference of a factor from 1, the number of bits that are kept, or the
    /// smallest value that is inverted.
    pub fn add(self, magnitude: f64, sampling: Sampling, effects: &mut impl Effects) {
        if self.is_signed() && magnitude == 0.0 {
            return;
        }
        let (size, factor, whole) = (effects.size(), 1.0 + magnitude, magnitude.trunc());
        let affine = |affine: Affine| Warp::affine(size, &affine, sampling);
        let angle = libm::atan(magnitude).to_degrees();
        let shear = |shear| affine(Affine { shear, center: Some((0.0, 0.0)), ..Affine::default() });
        let translation = |translate| affine(Affine { translate, ..Affine::default() });
        match self {
            Self::Identity => {}
            Self::ShearX => effects.add(shear((angle, 0.0))),
            Self::ShearY => effects.add(shear((0.0, angle))),
            Self::TranslateX => effects.add(translation((whole, 0.0))),
            Self::TranslateY => effects.add(translation((0.0, whole))),
            Self::Rotate => effects.add(Warp::rotation(size, magnitude, false, None, sampling)),
            Self::Brightness => effects.add(Jitter::brightness(factor)),
            Self::Color => effects.add(Jitter::saturation(factor)),
            Self::Contrast => effects.add(JitterOfWhole::contrast(factor)),
            Self::Sharpness => effects.add(Sharpen { factor }),
            Self::Posterize => effects.add(Posterize::keeping(magnitude as u8)),
            Self::Solarize => effects.add(Solarize::at(magnitude)),
            Self::AutoContrast => effects.add(Autocontrast),
            Self::Equalize => effects.add(Equalize),
            Self::Invert => effects.add(Invert),
        }
    }
}

/// The magnitudes of a policy's changes: the largest ones, between which and 0 the others lie evenly.
pub(super) struct Space {
    shear: f64,
    translation: Translation,
    rotation: f64,
    /// Of brightness, colour, contrast and sharpness.
    factor: f64,
    /// Bits that the weakest posterisation keeps, and how many fewer the strongest one keeps.
    posterization: (f64, f64),
}

/// The largest distance of a translation.
enum Translation {
    /// A share of the image's length in that direction.
    Share(f64),
    Pixels(f64),
}

impl Space {
    /// The space of RandAugment and AutoAugment.
    pub const USUAL: Self = Self {
        shear: 0.3,
        translation: Translation::Share(150.0 / 331.0),
        rotation: 30.0,
        factor: 0.9,
        posterization: (8.0, 4.0),
    };
    /// The space of AugMix.
    pub const OF_AUG_MIX: Self =
        Self { translation: Translation::Share(1.0 / 3.0), posterization: (4.0, 4.0), ..Self::USUAL };
    /// The space of TrivialAugmentWide.
    pub const WIDE: Self = Self {
        shear: 0.99,
        translation: Translation::Pixels(32.0),
        rotation: 135.0,
        factor: 0.99,
        posterization: (8.0, 6.0),
    };

    /// Returns magnitude number `bin` of `bins`, without a sign, for an image of this size. 0 if the change has none.
    pub fn magnitude(&self, of: Augmentation, (width, height): (u32, u32), bin: u32, bins: u32) -> f64 {
        let share = |most: f64| evenly(0.0, most, bin, bins);
        let distance = |length: u32| match self.translation {
            Translation::Share(of_length) => of_length * f64::from(length),
            Translation::Pixels(pixels) => pixels,
        };
        match of {
            Augmentation::ShearX | Augmentation::ShearY => share(self.shear),
            Augmentation::TranslateX => share(distance(width)),
            Augmentation::TranslateY => share(distance(height)),
            Augmentation::Rotate => share(self.rotation),
            Augmentation::Brightness | Augmentation::Color | Augmentation::Contrast | Augmentation::Sharpness => {
                share(self.factor)
            }
            Augmentation::Posterize => {
                let (most, fewer) = self.posterization;
                most - (fewer * f64::from(bin) / f64::from(bins - 1)).round_ties_even()
            }
            Augmentation::Solarize => evenly(255.0, 0.0, bin, bins),
            Augmentation::Identity | Augmentation::AutoContrast | Augmentation::Equalize | Augmentation::Invert => 0.0,
        }
    }
}

/// Returns number `bin` of `bins` numbers between two bounds, in 32-bit floats: as torch's `linspace`, up
/// to the last bit.
fn evenly(start: f64, end: f64, bin: u32, bins: u32) -> f64 {
    let (start, end, last) = (start as f32, end as f32, bins - 1);
    let step = (end - start) / last as f32;
    f64::from(if bin < bins / 2 { start + step * bin as f32 } else { end - step * (last - bin) as f32 })
}

/// Most magnitudes that a change may have.
const BINS_MAX: u32 = 1000;

pub(super) fn check_bins(bins: u32) -> Result<(), String> {
    if (2..=BINS_MAX).contains(&bins) {
        return Ok(());
    }
    Err(format!("num_magnitude_bins {bins} is not in 2..={BINS_MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Listed;
    use crate::ops::golden::{image, pixels};
    use crate::passes::tests::alone;
    use crate::warp::Interpolation;

    const SIDE: u32 = 20;

    fn named(name: &str) -> Augmentation {
        let all = Augmentation::MOST.into_iter().chain([Augmentation::Invert]);
        all.into_iter().find(|augmentation| format!("{augmentation:?}") == name).unwrap()
    }

    /// Compares with torchvision's `_apply_op` (golden/values.py).
    #[test]
    fn every_change_is_torchvisions() {
        let lines = include_str!("../../tests/golden/values.txt").lines().map(|line| line.split_once(' ').unwrap());
        let image = image();
        let (mut count, mut apart) = (0, 0);
        for (parameters, expected) in lines {
            let Some((name, magnitude)) = parameters.strip_prefix("apply:").and_then(|rest| rest.split_once(':'))
            else {
                continue;
            };
            let sampling = Sampling { interpolation: Interpolation::Nearest, fill: None };
            let mut listed = Listed::of((SIDE, SIDE));
            named(name).add(magnitude.parse().unwrap(), sampling, &mut listed);
            let (_, found) = listed.effects.into_iter().fold(((SIDE, SIDE), image.clone()), alone);
            let expected = pixels(expected);
            let differences = found.iter().zip(&expected).map(|(found, expected)| found.abs_diff(*expected));
            let is_warp = matches!(&name[..4], "Shea" | "Tran" | "Rota");
            if is_warp {
                // torchvision's places are 32-bit floats: a place between two pixels may be nearer to the other one.
                apart += differences.filter(|&difference| difference > 0).count() / 3;
            } else {
                assert!(differences.max().unwrap() <= 1, "{parameters}");
            }
            count += 1;
        }
        assert_eq!(count, 32);
        assert!(apart <= 20, "{apart} pixels");
    }

    /// Compares with torchvision's spaces (golden/values.py).
    #[test]
    fn magnitudes_are_torchvisions() {
        let mut count = 0;
        for line in include_str!("../../tests/golden/values.txt").lines() {
            let Some(rest) = line.strip_prefix("magnitudes:") else { continue };
            let (parameters, expected) = rest.split_once(' ').unwrap();
            let [space, name, bins] = *parameters.split(':').collect::<Vec<_>>() else { panic!("{line}") };
            let space = if space == "wide" { Space::WIDE } else { Space::USUAL };
            let bins = bins.parse().unwrap();
            for (bin, expected) in (0..).zip(expected.split(',')) {
                let found = space.magnitude(named(name), (500, 224), bin, bins);
                let expected: f64 = expected.parse().unwrap();
                // The last bit of a 32-bit float.
                assert!((found - expected).abs() <= 2e-7 * expected.abs(), "{line}: {found} at {bin}");
                count += 1;
            }
        }
        assert_eq!(count, 11 * (31 + 10 + 31));
    }
}
