//! MixUp and CutMix: the images of a batch are mixed in pairs, and their labels by the same weights.
//!
//! Each row is mixed with the row before it, and the first row with the last one, as torchvision rolls a batch by one.
//! A batch here is a rank's share of a global batch, after skipped samples have left no gaps. What is drawn depends on
//! seed, epoch, batch and rank alone, so neither prongs nor threads change it, but the number of ranks does.

use crate::error::LoaderError;
use crate::image_output::ImageOutput;
use crate::options::LoaderOptions;
use crate::schedule::BatchId;
use ddlp_pixels::draw::Rng;
use ddlp_pixels::{DType, Field, FieldKind, Shape, Window};
use std::collections::TryReserveError;
use zerocopy::IntoBytes;

/// Steps of a weight between 0 and 1. Bytes are mixed by such weights, so floats and labels are too.
const WEIGHT_STEPS: f64 = 32_768.0;

/// How the batches of a run are mixed.
#[derive(Clone, Debug)]
pub(crate) struct Mixing {
    /// Parameter of the weights' distribution; 0 if there is no MixUp or no CutMix.
    mixup: f64,
    cutmix: f64,
    /// Share of the batches that are mixed.
    probability: f64,
    classes: u32,
    seed: u64,
    rank: u32,
}

/// What is done to the images of one batch, by MixUp or CutMix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BatchMix {
    /// The images stay as they are.
    Unmixed,
    /// MixUp: an element becomes other × (1 − weight) + own × weight, as [`pixels::blend`](crate::pixels::blend)
    /// computes it.
    Blend {
        /// Weight of the image itself, in steps of 2⁻¹⁵.
        weight: f64,
    },
    /// CutMix: an element in the rectangle becomes the other image's.
    Paste {
        /// The rectangle, which lies in the image.
        window: Window,
        /// Weight of the image's own label.
        weight: f64,
    },
}

impl Mixing {
    /// Returns how batches are mixed under checked options; `None` if they are not. `names` are the names of the
    /// classes.
    pub fn new(options: &LoaderOptions, names: &[String]) -> Result<Option<Self>, LoaderError> {
        let LoaderOptions { mixup, cutmix, mix_probability, classes, seed, rank, .. } = *options;
        if mixup == 0.0 && cutmix == 0.0 {
            return Ok(None);
        }
        let named = u32::try_from(names.len()).ok().filter(|&named| named > 0);
        let Some(classes) = classes.or(named) else {
            return Err(LoaderError::Options(
                "`mixup` and `cutmix` make labels of one number for each class, but the dataset does not name its \
                 classes: give their number (`classes`)"
                    .into(),
            ));
        };
        Ok(Some(Self { mixup, cutmix, probability: mix_probability, classes, seed, rank }))
    }

    /// Returns the field of mixed labels.
    pub fn label(&self) -> Field {
        let shape = vec![self.classes];
        Field { kind: FieldKind::Vector, dtype: DType::F32, shape, ..Field::label() }
    }

    /// Draws what is done to a batch of this many rows, whose images have this shape.
    pub fn draw(&self, id: BatchId, rows: usize, shape: Shape) -> BatchMix {
        let mut rng = Rng::for_batch(self.seed, id.epoch, id.batch, self.rank);
        if rows < 2 || rng.uniform() >= self.probability {
            return BatchMix::Unmixed;
        }
        let has_both = self.mixup > 0.0 && self.cutmix > 0.0;
        let cuts = if has_both { rng.below(2) == 1 } else { self.cutmix > 0.0 };
        let drawn = rng.beta(if cuts { self.cutmix } else { self.mixup });
        let weight = (drawn * WEIGHT_STEPS).round() / WEIGHT_STEPS;
        if !cuts {
            return BatchMix::Blend { weight };
        }
        let center = [shape.width, shape.height].map(|size| rng.below(size.into()) as u32);
        BatchMix::paste(shape, weight, center)
    }

    /// Checks that a label is a class.
    pub fn class(&self, label: i64, name: impl FnOnce() -> String) -> Result<u32, LoaderError> {
        u32::try_from(label).ok().filter(|&class| class < self.classes).ok_or_else(|| {
            LoaderError::Options(format!(
                "sample {} has the label {label}, but with {} `classes` a label lies between 0 and {}: `mixup` and \
                 `cutmix` need a class for every label",
                name(),
                self.classes,
                self.classes - 1
            ))
        })
    }
}

impl BatchMix {
    /// Returns CutMix with a rectangle around this centre, x and y, whose share of the image is 1 − `weight`, as far as
    /// it lies in the image. The weight of the result is the share of the image that is left.
    fn paste(shape: Shape, weight: f64, [x, y]: [u32; 2]) -> Self {
        let Shape { width, height, .. } = shape;
        let half_side = 0.5 * (1.0 - weight).sqrt();
        let extent = |center: u32, size: u32| {
            let half = (half_side * f64::from(size)) as u32;
            (center.saturating_sub(half), (center + half).min(size))
        };
        let ((left, right), (top, bottom)) = (extent(x, width), extent(y, height));
        let window = Window { x: left.into(), y: top.into(), width: right - left, height: bottom - top };
        let covered = f64::from(window.width * window.height) / f64::from(width * height);
        Self::Paste { window, weight: 1.0 - covered }
    }

    /// Returns the weight of a row's own image and label.
    fn weight(&self) -> f64 {
        match *self {
            Self::Unmixed => 1.0,
            Self::Blend { weight } | Self::Paste { weight, .. } => weight,
        }
    }

    /// Makes the mixed label of a row: one float32 for each class. `out` is 0, and `classes` has the classes of all
    /// rows.
    pub(crate) fn mix_labels(&self, classes: &[u32], row: usize, out: &mut [u8]) {
        let (own, other) = (classes[row], classes[row.checked_sub(1).unwrap_or(classes.len() - 1)]);
        let (weight, rest) = (self.weight() as f32, (1.0 - self.weight()) as f32);
        let mut put = |class: u32, value: f32| {
            let at = class as usize * size_of::<f32>();
            out[at..][..size_of::<f32>()].copy_from_slice(&value.to_ne_bytes());
        };
        put(own, weight);
        put(other, if own == other { rest + weight } else { rest });
    }

    /// Mixes the rows of a batch, as they are delivered. Fails if the system refuses memory for one row.
    pub(crate) fn mix_images(&self, images: &ImageOutput, rows: &mut [u8]) -> Result<(), TryReserveError> {
        let row_bytes = images.row_bytes();
        if *self == Self::Unmixed || rows.len() <= row_bytes {
            return Ok(());
        }
        // The first row is mixed with the last one as it was. Words are aligned for every type of elements.
        let mut last = Vec::new();
        let words = row_bytes.div_ceil(size_of::<u64>());
        last.try_reserve_exact(words)?;
        last.resize(words, 0u64);
        let last = &mut last.as_mut_bytes()[..row_bytes];
        last.copy_from_slice(&rows[rows.len() - row_bytes..]);
        for at in (row_bytes..rows.len()).step_by(row_bytes).rev() {
            let (before, from) = rows.split_at_mut(at);
            self.mix(images, &mut from[..row_bytes], &before[at - row_bytes..]);
        }
        self.mix(images, &mut rows[..row_bytes], last);
        Ok(())
    }

    fn mix(&self, images: &ImageOutput, row: &mut [u8], other: &[u8]) {
        match *self {
            Self::Unmixed => {}
            Self::Blend { weight } => images.blend(weight, row, other),
            Self::Paste { window, .. } => images.paste(window, row, other),
        }
    }
}

#[cfg(test)]
mod tests;
