//! The operations of a pipeline. Each one has a file of its own, with its parameters, their check, the size of its
//! result, and what it does to an image for given draws.
//!
//! Names, parameters and defaults are torchvision's. The arithmetic uses only integers, f64 with +, −, ×, ÷, √ and the
//! pinned `libm`, and for colours f32 with +, −, ×, ÷, so every machine gets the same result.
//!
//! # To add an operation
//!
//! 1. Write `shared/pixels/src/ops/NAME.rs`: a struct with torchvision's parameters, and its `Operate` (examples,
//!    check, size of the result, draw). A draw adds to `Effects` what the operation does to one image, one effect or
//!    several: an effect moves pixels (`Piece`), takes them from anywhere in the image (`Warp`), changes each pixel on
//!    its own (`ChangePoints`), or makes pixels from several (`MakeArea`, which names the rectangle that it needs: a
//!    margin for a blur, the whole image for a histogram). An operation whose draws take no random words says so
//!    (`DRAWS`). The digest of the operation's ability is made from the examples.
//! 2. In `ops.rs`, add the module, and the operation at the end of the list `operations!`: programs and states number
//!    the operations. If a draw changes values, add the type of the change to the list `changes!`. Every match is
//!    exhaustive.
//! 3. Add the operation to the proptest in `passes/tests.rs`, which compares fused passes with each operation alone, to
//!    `docs/pipelines.md`, and its digest to `ability/tests.rs`. The digests that are there must
//!    not change: drives of earlier versions serve runs without the new operation. If the operation changes values, add
//!    torchvision's results to `shared/pixels/tests/golden/values.py`, and the bound of the difference to
//!    `shared/pixels/tests/suite/values.rs`.
//! 4. Run `DDLP_UPDATE=1 cargo test -p ddlp-pixels python`, which writes the operation's class in Python
//!    (`python/ddlp/_operations.py`) from its name, its documentation in the list, and its parameters. `ddlp.Compose`
//!    then translates torchvision's transform of the same name, if the transform has the same parameters; otherwise
//!    write its translation in `_compose.py`.
//! 5. Describe it in `docs/operations.md`; `scripts/operation-pictures` makes its picture.
//!
//! So an operation is two product files, as `random_posterize` was: `ops/random_posterize.rs` and a line in `ops.rs`.
//! Everything else is made from them, or is tests and docs.
//!
//! `steps.rs` decides which operations share a step, `passes.rs` which steps share a pass over the pixels. Neither
//! knows an operation by name.

use crate::draw::Words;
use crate::error::PixelError;
use crate::function::Call;
use crate::geometry::{Border, Rect, Window};
use crate::limits::Scratch;
pub use crate::resize::Resampling;
use crate::warp::Warp;
use serde::{Deserialize, Serialize};

mod aug_mix;
mod augmentations;
mod auto_augment;
mod by_chance;
mod center_crop;
mod color_jitter;
mod elastic_transform;
mod first_form;
mod function;
mod gaussian_blur;
mod gaussian_noise;
mod grayscale;
mod jpeg;
mod nested;
mod numbers;
mod pad;
mod pad_to;
mod rand_augment;
mod random_adjust_sharpness;
mod random_affine;
mod random_apply;
mod random_autocontrast;
mod random_choice;
mod random_crop;
mod random_equalize;
mod random_erasing;
mod random_grayscale;
mod random_horizontal_flip;
mod random_invert;
mod random_order;
mod random_perspective;
mod random_photometric_distort;
mod random_posterize;
mod random_resized_crop;
mod random_rotation;
mod random_shortest_size;
mod random_solarize;
mod random_vertical_flip;
mod resize;
mod scale_jitter;
mod timm_rand_augment;
mod trivial_augment_wide;

pub use aug_mix::{AugMix, Mixture};
pub use auto_augment::{AutoAugment, AutoAugmentPolicy};
pub use center_crop::CenterCrop;
pub use color_jitter::{ColorJitter, Factor, HueTurn, Jitter, JitterOfWhole};
pub use elastic_transform::{Displacement, ElasticTransform, Pair};
pub use function::Function;
pub use gaussian_blur::{Blur, GaussianBlur, Kernel};
pub use gaussian_noise::{GaussianNoise, Noise};
pub use grayscale::Grayscale;
pub use jpeg::{Jpeg, Quality, Recompress};
pub use nested::Transforms;
pub use numbers::{Degrees, Fill, Outside, Padding, PaddingMode, Shear, Size};
pub use pad::Pad;
pub use pad_to::PadTo;
pub use rand_augment::RandAugment;
pub use random_adjust_sharpness::{RandomAdjustSharpness, Sharpen};
pub use random_affine::RandomAffine;
pub use random_apply::RandomApply;
pub use random_autocontrast::{Autocontrast, RandomAutocontrast};
pub use random_choice::RandomChoice;
pub use random_crop::RandomCrop;
pub use random_equalize::{Equalize, RandomEqualize};
pub use random_erasing::{Erase, Filling, RandomErasing};
pub use random_grayscale::{Gray, RandomGrayscale};
pub use random_horizontal_flip::RandomHorizontalFlip;
pub use random_invert::{Invert, RandomInvert};
pub use random_order::RandomOrder;
pub use random_perspective::RandomPerspective;
pub use random_photometric_distort::{Permute, RandomPhotometricDistort};
pub use random_posterize::{Posterize, RandomPosterize};
pub use random_resized_crop::{CropInterpolation, RANDOM_RESIZED_CROP_TRIES, RandomResizedCrop};
pub use random_rotation::RandomRotation;
pub use random_shortest_size::{RandomShortestSize, Sides};
pub use random_solarize::{RandomSolarize, Solarize};
pub use random_vertical_flip::{RandomVerticalFlip, VerticalFlip};
pub use resize::{Resize, ResizeTo};
pub use scale_jitter::ScaleJitter;
pub use timm_rand_augment::{SolarizeAdd, TimmRandAugment};
pub use trivial_augment_wide::TrivialAugmentWide;

/// Longest side that an operation may ask for, in pixels: the limit of JPEG.
pub(crate) const SIDE_MAX: u32 = 65_535;
/// Largest factor of a colour or of the sharpness.
const FACTOR_MAX: f64 = 1000.0;

/// The interface of an operation.
pub(crate) trait Operate: Sized + 'static {
    /// Parameters with which the operation's digest is made: together they reach every part of its code. Empty if no
    /// machine has the ability.
    const EXAMPLES: &'static [Self];
    /// Whether the operation takes words for its draws. One that takes none saves the time to make them.
    const DRAWS: bool = true;

    /// Checks the parameters. The error says what is wrong.
    fn check(&self) -> Result<(), String>;

    /// Returns the result's width and height, or `None` if they depend on the image. `before` is the size of the
    /// operation's input, if known.
    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String>;

    /// Adds what the operation does to an image of this size to `effects`, in order. Takes the random numbers that it
    /// needs from `words`.
    fn draw(&self, size: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError>;
}

/// What is done to an image, effect by effect.
pub(crate) trait Effects {
    /// Returns the width and height of the image after the effects so far.
    fn size(&self) -> (u32, u32);

    /// Adds the next effect.
    fn add(&mut self, effect: impl Into<Effect>);
}

/// Effects in a list.
pub(crate) struct Listed {
    size: (u32, u32),
    pub effects: Vec<Effect>,
}

impl Listed {
    /// Returns an empty list for an image of this size.
    pub fn of(size: (u32, u32)) -> Self {
        Self { size, effects: Vec::new() }
    }
}

impl Effects for Listed {
    fn size(&self) -> (u32, u32) {
        self.size
    }

    fn add(&mut self, effect: impl Into<Effect>) {
        let effect = effect.into();
        self.size = effect.size_after(self.size);
        self.effects.push(effect);
    }
}

/// One thing that is done to an image. An operation may have several effects, or none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// Moves pixels.
    Geometry(Piece),
    /// Makes an image whose pixels come from anywhere in this one.
    Warp(Warp),
    /// Has a function of the program make an image of this one.
    Call(Call),
    /// Changes the values of pixels, each on its own.
    Point(Point),
    /// Makes each pixel from several.
    Area(Area),
}

impl Effect {
    /// Returns the width and height of an image after the effect.
    pub(crate) fn size_after(&self, before: (u32, u32)) -> (u32, u32) {
        match self {
            Self::Geometry(Piece { window, resize, .. }) => {
                resize.or(window.map(|window| (window.width, window.height))).unwrap_or(before)
            }
            Self::Warp(warp) => warp.size(),
            Self::Call(call) => call.size,
            Self::Point(_) | Self::Area(_) => before,
        }
    }

    /// Returns how the effect moves pixels, or `None` if it is no such effect.
    pub fn geometry(self) -> Option<Piece> {
        match self {
            Self::Geometry(piece) => Some(piece),
            Self::Warp(_) | Self::Call(_) | Self::Point(_) | Self::Area(_) => None,
        }
    }
}

/// How one effect moves the pixels of an image, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Box that is cut out, or `None` for the whole image.
    pub window: Option<Window>,
    /// What the box shows where it reaches out of the image.
    pub border: Border,
    /// Width and height that the image is resized to, or `None` to keep its size.
    pub resize: Option<(u32, u32)>,
    /// How the image is resized.
    pub interpolation: Resampling,
    /// Whether the image is mirrored left to right.
    pub flip: bool,
}

impl Piece {
    pub(crate) fn cut(window: Window) -> Self {
        Self { window: Some(window), ..Self::default() }
    }
}

impl From<Warp> for Effect {
    fn from(warp: Warp) -> Self {
        Self::Warp(warp)
    }
}

impl From<Call> for Effect {
    fn from(call: Call) -> Self {
        Self::Call(call)
    }
}

impl From<Piece> for Effect {
    fn from(piece: Piece) -> Self {
        Self::Geometry(piece)
    }
}

/// A change of values that treats every pixel alike, wherever it lies.
pub(crate) trait ChangePoints {
    /// Changes RGB pixels in place.
    fn change(&self, pixels: &mut [u8]);
}

/// A change of values that needs other pixels than the one that it makes.
pub(crate) trait MakeArea {
    /// Returns the rectangle of an image of this size from which `made` is made. It contains `made`.
    fn needs(&self, made: Rect, size: (u32, u32)) -> Rect;

    /// Returns how many images the change has in memory at most: the one before, the one after, and what is between.
    fn images(&self) -> u64 {
        4
    }

    /// Makes the RGB pixels of the rectangle `made` of the image.
    fn make(&self, from: &Cutout<'_>, made: Rect, scratch: &mut Scratch<'_>, out: &mut [u8]) -> Result<(), PixelError>;
}

/// A rectangle of an image.
pub(crate) struct Cutout<'a> {
    /// Width and height of the image.
    pub size: (u32, u32),
    pub rect: Rect,
    /// RGB pixels of the rectangle.
    pub pixels: &'a [u8],
}

impl Cutout<'_> {
    /// Returns the part of a row of the image that lies in the rectangle.
    pub fn row(&self, y: u32) -> &[u8] {
        let bytes = self.rect.width as usize * 3;
        &self.pixels[(y - self.rect.y) as usize * bytes..][..bytes]
    }

    /// Makes the pixels of the rectangle `made` from those that lie there, by a table for each channel.
    fn look_up(&self, made: Rect, tables: &[[u8; 256]; 3], out: &mut [u8]) {
        for (y, row) in (made.y..).zip(out.chunks_exact_mut(made.width as usize * 3)) {
            let source = &self.row(y)[(made.x - self.rect.x) as usize * 3..];
            for (to, pixel) in row.as_chunks_mut::<3>().0.iter_mut().zip(source.as_chunks::<3>().0) {
                *to = std::array::from_fn(|channel| tables[channel][usize::from(pixel[channel])]);
            }
        }
    }
}

/// Makes the types of all changes of values from their names.
macro_rules! changes {
    (points [$($point:ident),*] areas [$($area:ident),*]) => {
        /// A change of values that treats every pixel alike, with its drawn parameters.
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[allow(missing_docs, reason = "each has the documentation of its own type")]
        pub enum Point {
            $($point($point),)*
        }

        /// A change of values that makes each pixel from several, with its drawn parameters.
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[allow(missing_docs, reason = "each has the documentation of its own type")]
        pub enum Area {
            $($area($area),)*
        }

        $(impl From<$point> for Effect {
            fn from(change: $point) -> Self {
                Self::Point(Point::$point(change))
            }
        })*

        $(impl From<$area> for Effect {
            fn from(change: $area) -> Self {
                Self::Area(Area::$area(change))
            }
        })*

        impl Point {
            /// See [`ChangePoints::change`].
            pub(crate) fn change(&self, pixels: &mut [u8]) {
                match self {
                    $(Self::$point(change) => change.change(pixels),)*
                }
            }
        }

        impl Area {
            /// See [`MakeArea::needs`].
            pub(crate) fn needs(&self, made: Rect, size: (u32, u32)) -> Rect {
                match self {
                    $(Self::$area(change) => change.needs(made, size),)*
                }
            }

            /// See [`MakeArea::images`].
            pub(crate) fn images(&self) -> u64 {
                match self {
                    $(Self::$area(change) => change.images(),)*
                }
            }

            /// See [`MakeArea::make`].
            pub(crate) fn make(
                &self,
                from: &Cutout<'_>,
                made: Rect,
                scratch: &mut Scratch<'_>,
                out: &mut [u8],
            ) -> Result<(), PixelError> {
                match self {
                    $(Self::$area(change) => change.make(from, made, scratch, out),)*
                }
            }
        }
    };
}

changes! {
    points [Invert, Jitter, Gray, Solarize, SolarizeAdd, Posterize, Permute]
    areas [
        Blur, Autocontrast, JitterOfWhole, VerticalFlip, Equalize, Sharpen, Erase, Mixture, Noise, Recompress,
        Displacement
    ]
}

/// Makes the type of all operations from their names and documentation (one line each). Programs and states store an
/// operation as its position in this list, so add new ones at the end. The classes in Python follow from the list too.
macro_rules! operations {
    ($(#[doc = $documentation:literal] $name:ident,)*) => {
        /// One operation of a pipeline.
        ///
        /// In TOML an operation is a table with its name as the only key: `{ resize = { size = 256 } }`.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Operation {
            $(#[doc = $documentation] $name($name),)*
        }

        $(impl From<$name> for Operation {
            fn from(operation: $name) -> Self {
                Self::$name(operation)
            }
        })*

        /// Positions of the operations in the list.
        enum Position {
            $($name,)*
        }

        impl Operation {
            /// Names of the operations, in the order of the list.
            pub(crate) const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// What the operations do, in the order of the list.
            #[cfg(test)]
            const DOCUMENTATION: &[&str] = &[$($documentation),*];

            /// Returns the operation's position in the list.
            pub(crate) fn position(&self) -> u16 {
                match self {
                    $(Self::$name(_) => Position::$name as u16,)*
                }
            }

            /// Returns the operation's name as in descriptions.
            pub(crate) fn name(&self) -> String {
                let mut name = String::new();
                for (at, letter) in Self::NAMES[usize::from(self.position())].char_indices() {
                    name.extend((at > 0 && letter.is_uppercase()).then_some('_'));
                    name.extend(letter.to_lowercase());
                }
                name
            }

            /// Returns every operation with each of its examples, in the order of the list. See [`Operate::EXAMPLES`].
            pub(crate) fn examples() -> Vec<Vec<Self>> {
                vec![$($name::EXAMPLES.iter().cloned().map(Self::$name).collect()),*]
            }

            /// See [`Operate::check`].
            pub(crate) fn check(&self) -> Result<(), String> {
                match self {
                    $(Self::$name(operation) => operation.check(),)*
                }
            }

            /// See [`Operate::size_after`].
            pub(crate) fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
                match self {
                    $(Self::$name(operation) => operation.size_after(before),)*
                }
            }

            /// Returns whether the operation takes words for its draws.
            pub(crate) fn draws(&self) -> bool {
                match self {
                    $(Self::$name(_) => $name::DRAWS,)*
                }
            }

            /// See [`Operate::draw`].
            #[inline]
            pub(crate) fn draw(
                &self,
                size: (u32, u32),
                words: &mut impl Words,
                effects: &mut impl Effects,
            ) -> Result<(), PixelError> {
                match self {
                    $(Self::$name(operation) => operation.draw(size, words, effects),)*
                }
            }
        }
    };
}

operations! {
    /// Cuts out a box of random area (`scale`) and aspect (`ratio`) and resizes it to `size`.
    RandomResizedCrop,
    /// Resizes the image so that its shorter side has `size` pixels, or to a height and a width.
    Resize,
    /// Cuts out the central rectangle of `size`: a side, or height and width.
    CenterCrop,
    /// Cuts out a random rectangle of `size` (a side, or height and width), after `padding` pixels were added.
    RandomCrop,
    /// Mirrors the image left to right with probability `p`.
    RandomHorizontalFlip,
    /// Inverts all values with probability `p`.
    RandomInvert,
    /// Blurs with a Gaussian kernel of `kernel_size` pixels, whose `sigma` is drawn between two bounds.
    GaussianBlur,
    /// Stretches the values of each channel to the whole range with probability `p`.
    RandomAutocontrast,
    /// Changes brightness, contrast and saturation by random factors and turns the hue, in random order.
    ColorJitter,
    /// Turns the image gray with probability `p`.
    RandomGrayscale,
    /// Inverts the values that reach `threshold` with probability `p`.
    RandomSolarize,
    /// Mirrors the image top to bottom with probability `p`.
    RandomVerticalFlip,
    /// Keeps only the upper `bits` of each value (0 to 8) with probability `p`.
    RandomPosterize,
    /// Equalises the histogram of each channel with probability `p`.
    RandomEqualize,
    /// Sharpens by `sharpness_factor` (0 smooths, 1 changes nothing, 2 sharpens) with probability `p`.
    RandomAdjustSharpness,
    /// Turns the image gray. `num_output_channels` must be 3.
    Grayscale,
    /// Fills a random box of random area (`scale`) and ratio of height to width (`ratio`) with probability `p`.
    RandomErasing,
    /// Rotates the image counterclockwise by an angle that is drawn between two bounds (`degrees`).
    RandomRotation,
    /// Rotates, translates, scales and shears the image, each by a random amount.
    RandomAffine,
    /// Moves the corners of the image inwards at random, with probability `p`.
    RandomPerspective,
    /// Makes `num_ops` random changes of one `magnitude`: colours, sharpness, shears, translations, rotations.
    RandAugment,
    /// Makes one random change of random magnitude: colours, sharpness, a shear, a translation, a rotation.
    TrivialAugmentWide,
    /// Makes one of 25 pairs of changes that suit a dataset: `policy` is "imagenet", "cifar10" or "svhn".
    AutoAugment,
    /// Surrounds the image with a border of `padding` pixels: left, top, right, bottom.
    Pad,
    /// Puts the image into the upper left corner of a canvas of `size`; a larger image is first scaled down to fit.
    PadTo,
    /// Makes `num_ops` random changes as timm's `rand_augment_transform` does, of a `magnitude` that may be drawn.
    TimmRandAugment,
    /// Blends the image with several chains of random changes of it.
    AugMix,
    /// Applies all of its operations with probability `p`, or none.
    RandomApply,
    /// Applies one of its operations, chosen at random.
    RandomChoice,
    /// Applies all of its operations, in random order.
    RandomOrder,
    /// Adds noise of a normal distribution to each value: `mean` and `sigma` are parts of the range of values.
    GaussianNoise,
    /// Encodes the image as a JPEG of a random `quality` between two bounds, and decodes it again.
    Jpeg,
    /// Changes brightness, contrast, saturation and hue and exchanges the channels, each with probability `p`.
    RandomPhotometricDistort,
    /// Resizes the image so that its shorter side has one of several lengths (`min_size`), chosen at random.
    RandomShortestSize,
    /// Resizes the image to a random multiple (`scale_range`) of the size in which it fits `target_size`.
    ScaleJitter,
    /// Moves each pixel by a random distance, much as its neighbours: `alpha` strengthens, `sigma` smooths that.
    ElasticTransform,
    /// Calls a function of one's own with the image; `output` is the height and the width of what it makes.
    Function,
}

impl Operation {
    /// Returns what the operation does to an image of this size, in order. Takes the random numbers that it needs from
    /// `words`.
    ///
    /// # Errors
    ///
    /// [`PixelError::Misfit`] if the operation cannot be applied to an image of this size.
    pub fn effects(&self, size: (u32, u32), words: &mut impl Words) -> Result<Vec<Effect>, PixelError> {
        let mut listed = Listed::of(size);
        self.draw(size, words, &mut listed)?;
        Ok(listed.effects)
    }

    /// Returns the operations that this one applies.
    fn within(&self) -> &[Self] {
        match self {
            Self::RandomApply(RandomApply { transforms, .. })
            | Self::RandomChoice(RandomChoice { transforms, .. })
            | Self::RandomOrder(RandomOrder { transforms }) => transforms,
            _ => &[],
        }
    }

    /// Returns this operation, those that it applies, and so on.
    pub(crate) fn with_all_within(&self) -> Vec<&Self> {
        let within = self.within().iter().flat_map(Self::with_all_within);
        std::iter::once(self).chain(within).collect()
    }

    /// Returns the operation as programs carry it.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let codec = bincode::config::standard().with_little_endian().with_fixed_int_encoding();
        bincode::serde::encode_to_vec(self, codec).expect("parameters are numbers and texts")
    }
}

pub(crate) fn check_side(size: u32) -> Result<(), String> {
    if (1..=SIDE_MAX).contains(&size) { Ok(()) } else { Err(format!("size {size} is not in 1..={SIDE_MAX}")) }
}

/// Checks bounds that lie above 0 and reach `limit` at most.
fn check_range(name: &str, [low, high]: [f64; 2], limit: f64) -> Result<(), String> {
    // Comparisons with NaN are false.
    if low > 0.0 && low <= high && high <= limit {
        return Ok(());
    }
    Err(format!("{name} [{low}, {high}] is not a range within (0, {limit}]"))
}

/// Returns the number between two bounds that a uniform number from 0 to 1 stands for.
fn between(uniform: f64, [low, high]: [f64; 2]) -> f64 {
    low + (high - low) * uniform
}

pub(crate) fn check_probability(p: f64) -> Result<(), String> {
    if (0.0..=1.0).contains(&p) { Ok(()) } else { Err(format!("p = {p} is not a probability")) }
}

/// Checks a point that a warp leaves in place.
pub(crate) fn check_center(center: Option<[f64; 2]>) -> Result<(), String> {
    match center {
        Some([x, y]) if x.abs().max(y.abs()) > f64::from(SIDE_MAX) || x.is_nan() || y.is_nan() => {
            Err(format!("center [{x}, {y}] is not within {SIDE_MAX} pixels of the image's corner"))
        }
        _ => Ok(()),
    }
}

/// Makes a rectangle of an image by one change of values.
#[cfg(test)]
fn make_alone(change: &impl MakeArea, from: &Cutout<'_>, made: Rect, out: &mut [u8]) {
    let (memory, branch) = (&mut Vec::new(), &mut Default::default());
    let mut scratch = Scratch { limits: crate::limits::Limits::default(), memory, branch };
    change.make(from, made, &mut scratch, out).expect("memory for a small image");
}

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;
