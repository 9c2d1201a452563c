//! Abilities: the parts of the way from bytes to pixels that a pipeline or a dataset may need, each with a digest.
//!
//! Two machines compare their digests of the abilities that a run needs, and no others. So an operation, a file format
//! or a stored form that one of them lacks, or for which it makes other pixels, matters only to runs that need it.

mod digests;
pub mod examples;

use crate::info::Format;
use crate::ops::{
    AugMix, AutoAugment, CropInterpolation, ElasticTransform, Operation, Outside, RandAugment, RandomAffine,
    RandomPerspective, RandomResizedCrop, RandomRotation, RandomShortestSize, Resampling, Resize, ScaleJitter,
    TrivialAugmentWide,
};
use crate::pipeline::Pipeline;
use crate::source::Source;
use crate::warp::Interpolation;

/// Number of the first operation; the others follow in their order.
const OPERATIONS: u16 = 0x0100;
/// Number of the first file format; the others follow in their order.
const FORMATS: u16 = 0x0200;
/// Number of the form 0 of a pack; the others follow by their numbers.
const FORMS: u16 = 0x0300;

/// Number of an ability. It never changes its meaning. A number that this version does not know belongs to another
/// version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AbilityNumber(pub u16);

impl AbilityNumber {
    /// Cropping, resizing and mirroring, which every pipeline needs.
    pub const RENDERING: Self = Self(0x0001);
    /// Finding an image's EXIF orientation and turning the image upright.
    pub const ORIENTATION: Self = Self(0x0002);
    /// Resizing and warping by another filter than the bilinear one.
    pub const FILTERS: Self = Self(0x0003);
    /// Blurring by a kernel that is not square.
    pub const KERNELS: Self = Self(0x0004);
    /// Warping without a colour for what lies outside the image, by operations that always had one at first.
    pub const EDGES: Self = Self(0x0005);

    /// Returns the number for the decoder of files of this format.
    pub const fn of_format(format: Format) -> Self {
        Self(FORMATS + format as u16)
    }

    /// Returns the number for the decoder of a pack's form, by the form's number in a record.
    pub const fn of_form(form: u8) -> Self {
        Self(FORMS + form as u16)
    }

    /// Returns whether this is the number of a file format's decoder, of this version or another one.
    pub const fn is_format(self) -> bool {
        FORMATS <= self.0 && self.0 < FORMS
    }

    /// Returns whether this is the number for the decoder of a pack's form, of this version or another one.
    pub const fn is_form(self) -> bool {
        Self::of_form(0).0 <= self.0 && self.0 <= Self::of_form(u8::MAX).0
    }

    /// Returns the ability in words, as it continues the sentence "the drive lacks …": `the operation Resize`, `the
    /// decoder of PNG files`. Returns `None` for a form's decoder and for an ability of another version.
    pub fn name(self) -> Option<String> {
        let operation = self.0.checked_sub(OPERATIONS).and_then(|at| Operation::NAMES.get(usize::from(at)));
        let format = Format::ALL.iter().find(|&&format| Self::of_format(format) == self);
        match (self, operation, format) {
            (Self::RENDERING, ..) => Some("cropping and resizing".to_owned()),
            (Self::ORIENTATION, ..) => Some("turning images upright".to_owned()),
            (Self::FILTERS, ..) => Some("resizing and warping by bicubic and other filters".to_owned()),
            (Self::KERNELS, ..) => Some("blurring by kernels that are not square".to_owned()),
            (Self::EDGES, ..) => Some("warping without a fill colour".to_owned()),
            (_, Some(name), _) => Some(format!("the operation {name}")),
            (_, _, Some(format)) => Some(format!("the decoder of {} files", format.title())),
            _ => None,
        }
    }
}

/// One ability of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ability {
    /// What the machine can do.
    pub number: AbilityNumber,
    /// Digest of its results for built-in images. Machines with the same digest make the same pixels.
    pub digest: [u8; 16],
}

impl Ability {
    /// Computes the ability to decode a form, by the form's number in a record. `examples` passes samples of the form
    /// to the function that it gets.
    pub fn of_form(form: u8, examples: impl FnOnce(&mut dyn FnMut(Source<'_>))) -> Self {
        digests::decoding(AbilityNumber::of_form(form), examples)
    }

    /// Returns this ability with a digest that also depends on the other ability's.
    pub fn and(self, other: Self) -> Self {
        digests::both(self, other)
    }
}

/// Computes this machine's abilities, in the order of their numbers, apart from those for the forms of a pack: the
/// crate that knows the forms adds these.
pub fn abilities_without_forms() -> Vec<Ability> {
    digests::compute()
}

impl Operation {
    /// Returns the number of the operation's ability.
    pub fn ability(&self) -> AbilityNumber {
        AbilityNumber(OPERATIONS + self.position())
    }

    /// Returns whether the operation may resize or warp by another filter than the bilinear one.
    fn needs_filters(&self) -> bool {
        match self {
            Self::Resize(Resize { interpolation, .. })
            | Self::RandomShortestSize(RandomShortestSize { interpolation, .. })
            | Self::ScaleJitter(ScaleJitter { interpolation, .. }) => {
                !matches!(interpolation, Resampling::Nearest | Resampling::Bilinear)
            }
            Self::RandomResizedCrop(RandomResizedCrop { interpolation, .. }) => {
                !matches!(interpolation, CropInterpolation::Nearest | CropInterpolation::Bilinear)
            }
            Self::RandomRotation(RandomRotation { interpolation, .. })
            | Self::RandomAffine(RandomAffine { interpolation, .. })
            | Self::RandomPerspective(RandomPerspective { interpolation, .. })
            | Self::RandAugment(RandAugment { interpolation, .. })
            | Self::TrivialAugmentWide(TrivialAugmentWide { interpolation, .. })
            | Self::AutoAugment(AutoAugment { interpolation, .. })
            | Self::AugMix(AugMix { interpolation, .. })
            | Self::ElasticTransform(ElasticTransform { interpolation, .. }) => {
                *interpolation == Interpolation::Bicubic
            }
            _ => false,
        }
    }
}

impl Pipeline {
    /// Returns the abilities that the pipeline needs of every machine, in the order of their numbers, each once. Those
    /// of its samples' decoders are not among them.
    pub fn needs(&self) -> Vec<AbilityNumber> {
        let orientation = self.exif_orientation.then_some(AbilityNumber::ORIENTATION);
        let operations: Vec<&Operation> = self.operations.iter().flat_map(Operation::with_all_within).collect();
        let filters = operations.iter().any(|operation| operation.needs_filters()).then_some(AbilityNumber::FILTERS);
        let is_oblong =
            |operation: &&Operation| matches!(operation, Operation::GaussianBlur(blur) if !blur.is_square());
        let kernels = operations.iter().any(is_oblong).then_some(AbilityNumber::KERNELS);
        let is_open = |operation: &&Operation| {
            matches!(
                operation,
                Operation::RandAugment(RandAugment { fill: Outside(None), .. })
                    | Operation::TrivialAugmentWide(TrivialAugmentWide { fill: Outside(None), .. })
                    | Operation::AutoAugment(AutoAugment { fill: Outside(None), .. })
            )
        };
        let edges = operations.iter().any(is_open).then_some(AbilityNumber::EDGES);
        let mut needs: Vec<AbilityNumber> = operations.into_iter().map(Operation::ability).collect();
        needs.extend(
            [AbilityNumber::RENDERING].into_iter().chain(orientation).chain(filters).chain(kernels).chain(edges),
        );
        needs.sort();
        needs.dedup();
        needs
    }
}

#[cfg(test)]
mod tests;
