//! torchvision's `AugMix`.

#![allow(unsafe_code)]

use super::augmentations::Augmentation::{
    self, AutoContrast, Brightness, Color, Contrast, Equalize, Posterize, Rotate, Sharpness, ShearX, ShearY, Solarize,
    TranslateX, TranslateY,
};
use super::augmentations::Space;
use super::{Cutout, Effects, Fill, MakeArea, Operate, Outside, Scratch};
use crate::draw::{Rng, Words};
use crate::error::PixelError;
use crate::geometry::Rect;
use crate::level::{Level, for_levels};
use crate::warp::{Interpolation, Sampling};
use serde::{Deserialize, Serialize};
use zerocopy::IntoBytes;

/// Number of magnitudes.
const BINS: u32 = 10;
/// Most chains, and most changes of a chain.
const CHAINS_MAX: usize = 8;
/// Most changes of a chain whose length is drawn.
const DRAWN_DEPTH_MAX: u64 = 3;
/// Largest α.
const ALPHA_MAX: f64 = 1000.0;
/// Values that are blended at once.
const BLOCK: usize = 64;

/// Blends the image with several images that chains of random changes make of it. The weights are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AugMix {
    /// Strength of the changes, from 1 to 10: each magnitude is one of the first `severity` of ten.
    #[serde(default = "three")]
    pub severity: u32,
    /// Number of chains, from 1 to 8.
    #[serde(default = "three")]
    pub mixture_width: u32,
    /// Number of changes in each chain, at most 8. 0 and below: drawn for each chain, from 1 to 3.
    #[serde(default = "drawn")]
    pub chain_depth: i32,
    /// Parameter of the distributions of the weights, above 0 and at most 1000: Beta(α, α) for the image's own weight,
    /// and Dirichlet(α, …) for the shares of the chains in the rest.
    #[serde(default = "one")]
    pub alpha: f64,
    /// Whether brightness, colour, contrast and sharpness are among the changes.
    #[serde(default = "yes")]
    pub all_ops: bool,
    /// How a value is made from the pixels around a place.
    #[serde(default)]
    pub interpolation: Interpolation,
    /// Colour of the pixels outside the image, or none.
    #[serde(default = "no_color")]
    pub fill: Outside,
}

fn three() -> u32 {
    3
}

fn drawn() -> i32 {
    -1
}

fn one() -> f64 {
    1.0
}

fn yes() -> bool {
    true
}

fn no_color() -> Outside {
    Outside(None)
}

/// torchvision's list of changes. The last four need `all_ops`.
const CHANGES: [Augmentation; 13] = [
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
    Brightness,
    Color,
    Contrast,
    Sharpness,
];
const OF_GEOMETRY_AND_BITS: usize = 9;

/// Blends an image with those that chains of changes make of it. Draws the weights and the chains while it is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mixture {
    of: AugMix,
    seed: u64,
}

impl AugMix {
    /// Returns the operation with its default parameters.
    pub const fn usual() -> Self {
        Self {
            severity: 3,
            mixture_width: 3,
            chain_depth: -1,
            alpha: 1.0,
            all_ops: true,
            interpolation: Interpolation::Bilinear,
            fill: Outside(None),
        }
    }

    /// Adds the changes of a chain.
    fn add_chain(&self, words: &mut impl Words, effects: &mut impl Effects) {
        let drawn = || 1 + words.below(DRAWN_DEPTH_MAX) as u32;
        let depth = u32::try_from(self.chain_depth).ok().filter(|&depth| depth > 0).unwrap_or_else(drawn);
        let changes = if self.all_ops { &CHANGES[..] } else { &CHANGES[..OF_GEOMETRY_AND_BITS] };
        let sampling = Sampling { interpolation: self.interpolation, fill: self.fill.color() };
        for _ in 0..depth {
            let change = changes[words.below(changes.len() as u64) as usize];
            let bin = if change.has_magnitude() { words.below(self.severity.into()) as u32 } else { 0 };
            let magnitude = Space::OF_AUG_MIX.magnitude(change, effects.size(), bin, BINS);
            let is_negative = change.is_signed() && words.below(2) == 1;
            change.add(if is_negative { -magnitude } else { magnitude }, sampling, effects);
        }
    }
}

impl Operate for AugMix {
    const EXAMPLES: &'static [Self] = &[
        Self::usual(),
        Self {
            severity: 10,
            mixture_width: 8,
            chain_depth: 4,
            alpha: 0.3,
            all_ops: false,
            interpolation: Interpolation::Nearest,
            fill: Outside(Some(Fill([9, 99, 199]))),
        },
    ];

    fn check(&self) -> Result<(), String> {
        let Self { severity, mixture_width, chain_depth, alpha, .. } = *self;
        if !(1..=BINS).contains(&severity) {
            return Err(format!("severity {severity} is not in 1..={BINS}"));
        }
        if !(1..=CHAINS_MAX as u32).contains(&mixture_width) {
            return Err(format!("mixture_width {mixture_width} is not in 1..={CHAINS_MAX}"));
        }
        if chain_depth > CHAINS_MAX as i32 {
            return Err(format!("chain_depth {chain_depth} is more than {CHAINS_MAX}"));
        }
        // Comparisons with NaN are false.
        if !(alpha > 0.0 && alpha <= ALPHA_MAX) {
            return Err(format!("alpha {alpha} is not above 0 and at most {ALPHA_MAX}"));
        }
        Ok(())
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(before)
    }

    fn draw(&self, _: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        effects.add(Mixture { of: *self, seed: words.word() });
        Ok(())
    }
}

impl MakeArea for Mixture {
    fn needs(&self, _made: Rect, (width, height): (u32, u32)) -> Rect {
        Rect { x: 0, y: 0, width, height }
    }

    fn images(&self) -> u64 {
        // The images before and after, those of the chains, and what the passes of one chain have in memory.
        2 + u64::from(self.of.mixture_width) + 7
    }

    fn make(&self, from: &Cutout<'_>, made: Rect, scratch: &mut Scratch<'_>, out: &mut [u8]) -> Result<(), PixelError> {
        self.of.mix(&mut Rng::for_effect(self.seed), from, made, scratch, out)
    }
}

impl AugMix {
    /// Draws weights and chains, and makes the rectangle `made` of the mixture.
    fn mix(
        &self,
        words: &mut impl Words,
        from: &Cutout<'_>,
        made: Rect,
        scratch: &mut Scratch<'_>,
        out: &mut [u8],
    ) -> Result<(), PixelError> {
        let count = self.mixture_width as usize;
        let own = words.beta(self.alpha);
        let mut shares = [0.0; CHAINS_MAX];
        words.dirichlet(self.alpha, &mut shares[..count]);
        let weights = shares.map(|share| share as f32 * (1.0 - own) as f32);
        let Scratch { limits, memory, branch } = scratch;
        let bytes = out.len();
        let chains = &mut limits.resize_allowed(memory, (count * bytes).div_ceil(2))?.as_mut_bytes()[..count * bytes];
        for image in chains.chunks_exact_mut(bytes) {
            branch.make(from, made, *limits, |effects| self.add_chain(words, effects), image)?;
        }
        let row_bytes = made.width as usize * 3;
        for (y, row) in (made.y..).zip(out.chunks_exact_mut(row_bytes)) {
            let image = &from.row(y)[(made.x - from.rect.x) as usize * 3..];
            let of_row = &chains[(y - made.y) as usize * row_bytes..];
            blend(Level::best(), row, (image, own as f32), (of_row, bytes), &weights[..count]);
        }
        Ok(())
    }
}

for_levels! {
    blend = blend_row(out: &mut [u8], own: (&[u8], f32), chains: (&[u8], usize), weights: &[f32])
}

/// Blends a row of an image, which has a weight, with the same row of other images, which follow each other at a
/// distance of `apart` bytes. Sums and roundings are torchvision's.
#[inline(always)]
fn blend_row(out: &mut [u8], (image, own): (&[u8], f32), (chains, apart): (&[u8], usize), weights: &[f32]) {
    for (first, out) in (0..).step_by(BLOCK).zip(out.chunks_mut(BLOCK)) {
        let mut sums = [0.0; BLOCK];
        let sums = &mut sums[..out.len()];
        for (sum, &value) in sums.iter_mut().zip(&image[first..]) {
            *sum = own * f32::from(value);
        }
        for (number, weight) in weights.iter().enumerate() {
            for (sum, &value) in sums.iter_mut().zip(&chains[number * apart + first..]) {
                *sum += weight * f32::from(value);
            }
        }
        for (to, &sum) in out.iter_mut().zip(&*sums) {
            *to = sum as u8;
        }
    }
}

#[cfg(test)]
mod tests;
