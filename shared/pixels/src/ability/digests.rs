//! The digests: hashes of the pixels that this machine makes from built-in images.
//!
//! Every digest covers one ability alone, as far as possible: a decoder's images go through the operations of the usual
//! recipes, and an operation whose result has an open size is followed by `CenterCrop`.

use super::examples::{self, IMAGES, JPEG};
use super::{Ability, AbilityNumber};
use crate::draw::Draw;
use crate::info::Format;
use crate::jpeg::exif;
use crate::limits::Limits;
use crate::ops::{
    AutoAugment, AutoAugmentPolicy, CenterCrop, CropInterpolation, Degrees, Fill, GaussianBlur, Kernel, Operation,
    Outside, RandAugment, RandomHorizontalFlip, RandomPerspective, RandomResizedCrop, RandomRotation, Resampling,
    Resize, TrivialAugmentWide,
};
use crate::orientation;
use crate::pipeline::{Pipeline, PipelineError};
use crate::preparer::Preparer;
use crate::source::Source;
use crate::warp::Interpolation;

/// Length to which validation resizes the shorter side.
const SHORT_SIDE: u32 = 37;
/// Side of the results.
const SIDE: u32 = 32;
/// Side of the image on which an operation works after a resize.
const BETWEEN: u32 = 40;
/// Number of draws of each image.
const DRAWS: u64 = 3;

/// The usual recipes: together they crop, resize, pad and mirror.
fn recipes() -> [Pipeline; 3] {
    let train = Pipeline::of([RandomResizedCrop::to(SIDE).into(), RandomHorizontalFlip { p: 0.5 }.into()]);
    let val = Pipeline::of([Resize::to(SHORT_SIDE).into(), CenterCrop::to(SIDE).into()]);
    [train, val, Pipeline::cifar_train()]
}

/// Adds up the results of one ability.
struct Digest {
    number: AbilityNumber,
    hasher: blake3::Hasher,
    preparer: Preparer,
    pixels: Vec<u8>,
}

impl Digest {
    fn of(number: AbilityNumber) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&number.0.to_le_bytes());
        Self { number, hasher, preparer: Preparer::new(Limits::default()), pixels: Vec::new() }
    }

    /// Prepares a sample with several draws. A sample that a machine cannot prepare changes the digest, without a
    /// panic.
    fn prepare(&mut self, source: Source<'_>, pipeline: &Pipeline) {
        self.pixels.resize(pipeline.output().bytes(), 0);
        for sample_id in 0..DRAWS {
            let draw = Draw { seed: 0xDD17, epoch: 1, sample_id };
            let outcome = self.preparer.prepare(source, pipeline, draw, &mut self.pixels);
            self.hasher.update(&[outcome.as_ref().err().map_or(0, |error| error.reason().code())]);
            if outcome.is_ok() {
                self.hasher.update(&self.pixels);
            }
        }
    }

    fn finish(self) -> Ability {
        let digest = self.hasher.finalize();
        let (first, _) = digest.as_bytes().split_first_chunk().expect("a digest has 32 bytes");
        Ability { number: self.number, digest: *first }
    }
}

/// Passes an image of raw pixels to `take`. No digest depends on the number of its form.
fn raw(orientation: u8, mut take: impl FnMut(Source<'_>)) {
    examples::raw(0, orientation, &mut take);
}

fn rendering() -> Ability {
    let mut digest = Digest::of(AbilityNumber::RENDERING);
    let recipes = recipes().into_iter().chain([bordered_crop()]);
    raw(1, |source| recipes.clone().for_each(|recipe| digest.prepare(source, &recipe)));
    digest.finish()
}

/// Returns a pipeline that cuts a crop at the image's corner, and then adds a border to the crop: the border must show
/// nothing of the image beyond the crop.
fn bordered_crop() -> Pipeline {
    let to = |side| CenterCrop::to(side).into();
    Pipeline::of([RandomResizedCrop::to(BETWEEN).into(), to(BETWEEN - 1), to(BETWEEN + 3)])
}

fn orienting() -> Ability {
    let mut digest = Digest::of(AbilityNumber::ORIENTATION);
    let exif = exif::app1_of_orientation(6);
    let segment = |exif: &[u8]| [&[0xFF, 0xE1], &(exif.len() as u16 + 2).to_be_bytes()[..], exif].concat();
    let turned = [&JPEG[..2], &segment(&exif), &JPEG[2..]].concat();
    // The first EXIF segment is empty.
    let late = [&JPEG[..2], &segment(&exif[..6]), &segment(&exif), &JPEG[2..]].concat();
    let found: Vec<u8> = IMAGES.into_iter().chain([&turned[..], &late]).map(orientation::of).collect();
    digest.hasher.update(&found);
    let [_, val, _] = recipes();
    let upright = Pipeline { exif_orientation: true, ..val };
    (1..=8).for_each(|orientation| raw(orientation, |source| digest.prepare(source, &upright)));
    digest.finish()
}

fn filtering() -> Ability {
    use CropInterpolation::{Bicubic, Box, Hamming, Lanczos, Random};
    let mut digest = Digest::of(AbilityNumber::FILTERS);
    for side in [SIDE, 3 * SIDE] {
        for interpolation in [Bicubic, Box, Hamming, Lanczos, Random] {
            let crop = RandomResizedCrop { interpolation, ..RandomResizedCrop::to(side) };
            raw(1, |source| digest.prepare(source, &Pipeline::of([crop.clone().into()])));
        }
        let resize = Resize { interpolation: Resampling::Bicubic, ..Resize::to(side) };
        raw(1, |source| digest.prepare(source, &closed(vec![resize.clone().into()])));
    }
    let interpolation = Interpolation::Bicubic;
    let rotation = RandomRotation {
        degrees: Degrees([-70.0, 70.0]),
        interpolation,
        expand: true,
        center: None,
        fill: Fill([5, 90, 255]),
    };
    let perspective = RandomPerspective { distortion_scale: 0.5, p: 1.0, interpolation, fill: Fill([0; 3]) };
    for warp in [Operation::from(rotation), perspective.into()] {
        raw(1, |source| digest.prepare(source, &closed(vec![warp.clone()])));
    }
    digest.finish()
}

fn blurring() -> Ability {
    let mut digest = Digest::of(AbilityNumber::KERNELS);
    for kernel_size in [[3, 9], [23, 1]].map(Kernel) {
        let blur = GaussianBlur { kernel_size, sigma: [0.5, 4.0] };
        digest.hasher.update(&Operation::from(blur.clone()).to_bytes());
        raw(1, |source| digest.prepare(source, &closed(vec![blur.clone().into()])));
    }
    digest.finish()
}

fn warping_without_color() -> Ability {
    let mut digest = Digest::of(AbilityNumber::EDGES);
    let (interpolation, fill) = (Interpolation::Bilinear, Outside(None));
    let of = |policy| Operation::from(AutoAugment { policy, interpolation, fill });
    let mut operations =
        [AutoAugmentPolicy::ImageNet, AutoAugmentPolicy::Cifar10, AutoAugmentPolicy::Svhn].map(of).to_vec();
    operations.push(TrivialAugmentWide { num_magnitude_bins: 31, interpolation, fill }.into());
    operations.push(RandAugment { num_ops: 4, magnitude: 9, num_magnitude_bins: 31, interpolation, fill }.into());
    for operation in operations {
        digest.hasher.update(&operation.to_bytes());
        raw(1, |source| digest.prepare(source, &closed(vec![operation.clone()])));
    }
    digest.finish()
}

/// Returns a pipeline of these operations, whose result has a fixed size.
fn closed(mut operations: Vec<Operation>) -> Pipeline {
    let pipeline = Pipeline::of(operations.clone());
    if pipeline.validate() != Err(PipelineError::OpenSize) {
        return pipeline;
    }
    operations.push(CenterCrop::to(SIDE).into());
    Pipeline::of(operations)
}

/// Covers the parameters as programs carry them, and the operation on a whole image, after a resize and after itself.
fn operation(examples: &[Operation], images: [Source<'_>; 2]) -> Ability {
    let mut digest = Digest::of(examples.first().expect("an operation has an example").ability());
    for example in examples {
        digest.hasher.update(&example.to_bytes());
        let resized = RandomResizedCrop::to(BETWEEN).into();
        for pipeline in [vec![example.clone()], vec![resized, example.clone(), example.clone()]].map(closed) {
            images.iter().for_each(|&image| digest.prepare(image, &pipeline));
        }
    }
    digest.finish()
}

/// Returns the ability to decode the samples that `examples` passes on.
pub(super) fn decoding(number: AbilityNumber, examples: impl FnOnce(&mut dyn FnMut(Source<'_>))) -> Ability {
    let mut digest = Digest::of(number);
    examples(&mut |source| recipes().iter().for_each(|recipe| digest.prepare(source, recipe)));
    digest.finish()
}

/// Returns an ability whose digest depends on both of these.
pub(super) fn both(ability: Ability, other: Ability) -> Ability {
    let mut both = Digest::of(ability.number);
    both.hasher.update(&ability.digest).update(&other.digest);
    both.finish()
}

pub(super) fn compute() -> Vec<Ability> {
    let mut abilities = vec![rendering(), orienting(), filtering(), blurring(), warping_without_color()];
    examples::planar(&mut |planar| {
        raw(1, |raw| {
            let all = Operation::examples();
            let known = all.iter().filter(|examples| !examples.is_empty());
            abilities.extend(known.map(|examples| operation(examples, [planar, raw])));
        });
    });
    abilities.extend(Format::ALL.iter().map(|&format| {
        let files = |take: &mut dyn FnMut(Source<'_>)| {
            examples::files(format).into_iter().for_each(|file| take(Source::Encoded(file)));
        };
        decoding(AbilityNumber::of_format(format), files)
    }));
    abilities
}
