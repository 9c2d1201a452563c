//! Compares the passes with every operation done alone, on the whole image.

use proptest::prelude::*;

use super::*;
use crate::compiled::CompiledPipeline;
use crate::draw::{Draw, Rng};
use crate::geometry::Rect;
use crate::ops::CropInterpolation;
use crate::ops::{
    AugMix, AutoAugment, AutoAugmentPolicy, CenterCrop, ColorJitter, Degrees, Effect, ElasticTransform, Fill, Filling,
    GaussianBlur, GaussianNoise, Grayscale, Jpeg, Kernel, Operation, Outside, Pad, PadTo, Padding, PaddingMode, Pair,
    Piece, Quality, RandAugment, RandomAdjustSharpness, RandomAffine, RandomAutocontrast, RandomCrop, RandomEqualize,
    RandomErasing, RandomGrayscale, RandomHorizontalFlip, RandomInvert, RandomPerspective, RandomPosterize,
    RandomResizedCrop, RandomRotation, RandomSolarize, RandomVerticalFlip, Resize, ResizeTo, Shear, Size,
    TrivialAugmentWide,
};
use crate::pipeline::Pipeline;
use crate::resize::{Resampling, Resizing};
use crate::rows::Band;
use crate::synthetic;
use crate::warp::{Interpolation, WarpMemory, Warped};

/// Size and pixels of an image between two steps.
type Image = ((u32, u32), Vec<u8>);

fn moved(((width, height), pixels): Image, piece: Piece) -> Image {
    let window = piece.window.unwrap_or(Window::whole(width, height));
    let at = |x: i64, y: i64| match (piece.border.pixel(x, width), piece.border.pixel(y, height), piece.border) {
        (Some(x), Some(y), _) => pixels.as_chunks::<3>().0[(y * width + x) as usize],
        (_, _, Border::Fill(color)) => color,
        other => panic!("no pixel: {other:?}"),
    };
    let rows = (0..i64::from(window.height)).map(|y| y + window.y);
    let row = |y: i64| (0..i64::from(window.width)).map(move |x| at(x + window.x, y));
    let mut size = (window.width, window.height);
    let mut pixels = rows.flat_map(row).collect::<Vec<_>>().into_flattened();
    if let Some(to) = piece.resize {
        let rect = Rect { x: 0, y: 0, width: size.0, height: size.1 };
        let part = Rect { x: 0, y: 0, width: to.0, height: to.1 };
        let mut out = vec![0; (to.0 * to.1 * 3) as usize];
        let mut image = Interleaved { width: size.0, height: size.1, pixels: &pixels };
        let resizing = Resizing { rect, size: to, interpolation: piece.interpolation, part, mirrored: false };
        Scaler::default().resize(&mut image, &resizing, Limits::default(), &mut out).unwrap();
        (size, pixels) = (to, out);
    }
    if piece.flip {
        pixels.chunks_exact_mut(size.0 as usize * 3).for_each(|row| row.as_chunks_mut::<3>().0.reverse());
    }
    (size, pixels)
}

/// Applies one operation to the whole image.
pub(crate) fn alone((size, mut pixels): Image, effect: Effect) -> Image {
    let whole = Rect { x: 0, y: 0, width: size.0, height: size.1 };
    match effect {
        Effect::Geometry(piece) => moved((size, pixels), piece),
        Effect::Warp(warp) => {
            let mut out = Vec::new();
            let mut image = Interleaved { width: size.0, height: size.1, pixels: &pixels };
            let mut memory = WarpMemory::default();
            let mut take = |band: Band<'_>| {
                (0..band.rows).for_each(|row| out.extend_from_slice(band.row(row, warp.size().0)));
                Ok(())
            };
            let whole = Rect { x: 0, y: 0, width: warp.size().0, height: warp.size().1 };
            Warped::new(&mut image, &warp, &mut memory, Limits::default()).read(whole, &mut take).unwrap();
            (warp.size(), out)
        }
        Effect::Call(_) => panic!("no drawn pipeline here has a function"),
        Effect::Point(point) => {
            point.change(&mut pixels);
            (size, pixels)
        }
        Effect::Area(area) => {
            let mut out = vec![0; pixels.len()];
            let (memory, branch) = (&mut Vec::new(), &mut Branch::default());
            let mut scratch = Scratch { limits: Limits::default(), memory, branch };
            area.make(&Cutout { size, rect: whole, pixels: &pixels }, whole, &mut scratch, &mut out).unwrap();
            (size, out)
        }
    }
}

/// Without contrast for the smaller strengths: the operation then needs no whole image.
fn color_jitter(strength: f64) -> ColorJitter {
    let contrast = if strength < 1.0 { Default::default() } else { strength.into() };
    ColorJitter { brightness: strength.into(), contrast, saturation: strength.into(), hue: (strength / 4.0).into() }
}

fn size() -> impl Strategy<Value = Size> {
    (1u32..40, 1u32..40).prop_map(|(height, width)| Size { height, width })
}

fn padding() -> impl Strategy<Value = Padding> {
    [0u32..20, 0..20, 0..20, 0..20].prop_map(Padding)
}

fn padding_mode() -> impl Strategy<Value = PaddingMode> {
    prop_oneof![
        Just(PaddingMode::Constant),
        Just(PaddingMode::Edge),
        Just(PaddingMode::Reflect),
        Just(PaddingMode::Symmetric),
    ]
}

fn interpolation() -> impl Strategy<Value = Interpolation> {
    prop_oneof![Just(Interpolation::Nearest), Just(Interpolation::Bilinear), Just(Interpolation::Bicubic)]
}

fn resampling() -> impl Strategy<Value = Resampling> {
    prop_oneof![Just(Resampling::Nearest), Just(Resampling::Bilinear), Just(Resampling::Bicubic)]
}

fn crop_interpolation() -> impl Strategy<Value = CropInterpolation> {
    prop_oneof![Just(CropInterpolation::Nearest), Just(CropInterpolation::Bilinear), Just(CropInterpolation::Random)]
}

fn affine((interpolation, most): (Interpolation, f64)) -> RandomAffine {
    RandomAffine {
        degrees: Degrees([-90.0, 90.0]),
        translate: Some([0.3, 0.2]),
        scale: Some([1.0 / most, most]),
        shear: Some(Shear([-20.0, 20.0, 0.0, 5.0])),
        interpolation,
        fill: Fill([1, 2, 3]),
        center: None,
    }
}

fn rotation((interpolation, expand): (Interpolation, bool)) -> RandomRotation {
    let (degrees, center, fill) = (Degrees([-180.0, 180.0]), Some([3.0, 4.0]), Fill([9; 3]));
    RandomRotation { degrees, interpolation, expand, center, fill }
}

pub(crate) fn operation() -> impl Strategy<Value = Operation> {
    let side = 1u32..40;
    prop_oneof![
        side.clone().prop_map(|side| Resize::to(side).into()),
        (size(), resampling()).prop_map(|(size, interpolation)| {
            Resize { size: ResizeTo::Both(size), interpolation, max_size: None }.into()
        }),
        size().prop_map(|size| CenterCrop { size }.into()),
        (side, 0u32..8).prop_map(|(side, padding)| RandomCrop::padded(side, padding).into()),
        (size(), padding(), padding_mode()).prop_map(|(size, padding, padding_mode)| {
            RandomCrop { size, padding, pad_if_needed: true, fill: Fill([1, 2, 3]), padding_mode }.into()
        }),
        (padding(), padding_mode())
            .prop_map(|(padding, padding_mode)| { Pad { padding, fill: Fill([1, 2, 3]), padding_mode }.into() }),
        size().prop_map(|size| PadTo { size, fill: Fill([4, 0, 5]) }.into()),
        (size(), crop_interpolation()).prop_map(|(size, interpolation)| {
            RandomResizedCrop { size, interpolation, ..RandomResizedCrop::to(1) }.into()
        }),
        Just(RandomHorizontalFlip { p: 0.5 }.into()),
        Just(RandomInvert { p: 0.5 }.into()),
        Just(RandomAutocontrast { p: 0.5 }.into()),
        (0.0..2.0f64).prop_map(|most| color_jitter(most).into()),
        Just(RandomGrayscale { p: 0.5 }.into()),
        Just(Grayscale { num_output_channels: 3 }.into()),
        Just(RandomEqualize { p: 0.5 }.into()),
        (0u32..31, any::<[u8; 3]>(), interpolation()).prop_map(|(magnitude, fill, interpolation)| {
            RandAugment {
                num_ops: 3,
                magnitude,
                num_magnitude_bins: 31,
                interpolation,
                fill: Outside(Some(Fill(fill))),
            }
            .into()
        }),
        (1i32..4, any::<bool>(), interpolation()).prop_map(|(chain_depth, all_ops, interpolation)| {
            AugMix { chain_depth, all_ops, interpolation, ..AugMix::usual() }.into()
        }),
        Just(
            TrivialAugmentWide { num_magnitude_bins: 31, interpolation: Interpolation::Bilinear, fill: Outside(None) }
                .into()
        ),
        prop_oneof![Just(AutoAugmentPolicy::ImageNet), Just(AutoAugmentPolicy::Cifar10), Just(AutoAugmentPolicy::Svhn)]
            .prop_map(|policy| {
                AutoAugment { policy, interpolation: Interpolation::Nearest, fill: Outside(Some(Fill([0; 3]))) }.into()
            }),
        (0.0..3.0f64).prop_map(|sharpness_factor| RandomAdjustSharpness { sharpness_factor, p: 0.5 }.into()),
        prop_oneof![Just(Filling::Random), any::<[u8; 3]>().prop_map(|color| Filling::Color(Fill(color)))]
            .prop_map(|value| RandomErasing { p: 0.5, scale: [0.02, 0.33], ratio: [0.3, 3.3], value }.into()),
        Just(RandomVerticalFlip { p: 0.5 }.into()),
        (0u8..=8).prop_map(|bits| RandomPosterize { bits, p: 0.5 }.into()),
        (0.0..256.0f64).prop_map(|threshold| RandomSolarize { threshold, p: 0.5 }.into()),
        (interpolation(), any::<bool>()).prop_map(|values| rotation(values).into()),
        (interpolation(), 1.0..4.0f64).prop_map(|values| affine(values).into()),
        (interpolation(), 0.0..1.0f64).prop_map(|(interpolation, distortion_scale)| {
            RandomPerspective { distortion_scale, p: 0.7, interpolation, fill: Fill([7; 3]) }.into()
        }),
        any::<bool>().prop_map(|clip| GaussianNoise { mean: 0.1, sigma: 0.1, clip }.into()),
        (1u32..=100).prop_map(|quality| Jpeg { quality: Quality([quality; 2]) }.into()),
        (interpolation(), any::<bool>()).prop_map(|(interpolation, is_smooth)| {
            let sigma = Pair([if is_smooth { 0.2 } else { 0.0 }; 2]);
            ElasticTransform { alpha: Pair([20.0, 9.0]), sigma, interpolation, fill: Fill([3, 4, 5]) }.into()
        }),
        (0u32..4, 0u32..4).prop_map(|(x, y)| {
            GaussianBlur { kernel_size: Kernel([2 * x + 1, 2 * y + 1]), sigma: [0.3, 2.0] }.into()
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: proptest::test_runner::RngSeed::Fixed(43),
        ..ProptestConfig::with_cases(2000)
    })]

    #[test]
    fn all_operations_together_are_each_alone(
        operations in prop::collection::vec(operation(), 1..8),
        last in 1u32..40,
        size in (1u32..60, 1u32..60),
        seed: u64,
    ) {
        let mut pipeline = Pipeline::of(operations);
        if pipeline.validate().is_err() {
            pipeline.operations.push(CenterCrop::to(last).into());
        }
        prop_assume!(pipeline.validate().is_ok());
        let draw = Draw { seed, epoch: 0, sample_id: 1 };
        let pixels = synthetic::photo(size.0, size.1, seed as u32);
        let Ok(expected) = each_alone(&pipeline, (size, pixels.clone()), draw) else { return Ok(()) };
        prop_assert!(together(&pipeline, &(size, pixels), draw) == expected, "{pipeline:?}");
    }
}

/// Applies the operations of a pipeline one after the other, and returns the pixels.
fn each_alone(pipeline: &Pipeline, mut image: Image, draw: Draw) -> Result<Vec<u8>, PixelError> {
    for (number, operation) in (0..).zip(&pipeline.operations) {
        let effects = operation.effects(image.0, &mut Rng::for_sample(draw, number))?;
        image = effects.into_iter().fold(image, alone);
    }
    Ok(image.1)
}

/// Applies the operations of a pipeline as samples get them, and returns the pixels.
fn together(pipeline: &Pipeline, ((width, height), pixels): &Image, draw: Draw) -> Vec<u8> {
    let mut out = vec![0xA5; pipeline.output().bytes()];
    let mut image = Interleaved { width: *width, height: *height, pixels };
    let mut plan = PassPlan::default();
    plan.draw(&CompiledPipeline::of(pipeline).unwrap(), (*width, *height), draw).unwrap();
    Passes::default().run(&mut image, &plan, Limits::default(), &mut out).unwrap();
    out
}

#[test]
fn a_border_around_a_crop_shows_nothing_of_the_image_beyond_the_crop() {
    let image = ((8, 8), synthetic::photo(8, 8, 3));
    let pad = Pad { padding: Padding::all(2), fill: Fill([1, 2, 3]), padding_mode: PaddingMode::Constant };
    let pipeline = Pipeline::of([RandomCrop::to(6).into(), pad.into()]);
    for sample_id in 0..40 {
        let draw = Draw { sample_id, ..Draw::default() };
        let expected = each_alone(&pipeline, image.clone(), draw).unwrap();
        assert!(together(&pipeline, &image, draw) == expected, "draw {sample_id}");
    }
}

/// An image that records what is read.
struct Watched {
    size: (u32, u32),
    read: Vec<Rect>,
}

impl ImageRows for Watched {
    fn size(&self) -> (u32, u32) {
        self.size
    }

    fn read(&mut self, rect: Rect, sink: crate::rows::Sink<'_>) -> Result<(), PixelError> {
        self.read.push(rect);
        let pixels = vec![7; (rect.width * rect.height * 3) as usize];
        Interleaved { width: rect.width, height: rect.height, pixels: &pixels }.read(Rect { x: 0, y: 0, ..rect }, sink)
    }
}

#[test]
fn validation_reads_no_more_than_the_central_crop_is_made_of() {
    let mut image = Watched { size: (500, 375), read: Vec::new() };
    let pipeline = Pipeline::imagenet_val();
    let mut out = vec![0; pipeline.output().bytes()];
    let mut plan = PassPlan::default();
    plan.draw(&CompiledPipeline::of(&pipeline).unwrap(), image.size, Draw::default()).unwrap();
    Passes::default().run(&mut image, &plan, Limits::default(), &mut out).unwrap();
    assert!(out.iter().all(|&value| value == 7));
    // 500 x 375 becomes 341 x 256; the crop keeps 224 columns from 58 on and 224 rows from 16 on. Each of them is made
    // of 1.466 inputs, and the filter's radius adds to both sides.
    assert_eq!(image.read, [Rect { x: 84, y: 22, width: 331, height: 331 }]);
}
