//! Each operation on an image of 224 × 224 pixels in memory, which stays as it is: the result is another image. "copy"
//! is the pipeline without an operation. `bench/operations` shows the same beside torchvision and Pillow.

use criterion::{Criterion, criterion_group, criterion_main};
use ddlp_pixels::ops::{
    AugMix, ColorJitter, Degrees, ElasticTransform, Factor, Fill, GaussianBlur, GaussianNoise, Grayscale, HueTurn,
    Jpeg, Operation, Pair, Quality, RandomAdjustSharpness, RandomAutocontrast, RandomCrop, RandomEqualize,
    RandomErasing, RandomHorizontalFlip, RandomInvert, RandomPosterize, RandomRotation, RandomSolarize,
    RandomVerticalFlip, Resampling, Resize,
};
use ddlp_pixels::stages::SingleStages;
use ddlp_pixels::warp::Interpolation;
use ddlp_pixels::{CompiledPipeline, Draw, Pipeline, synthetic};
use std::time::Duration;

const SIDE: u32 = 224;
/// Side to which an image is resized.
const SMALL_SIDE: u32 = 160;

/// Returns the operations, each with the name that `bench/operations` knows it by.
fn operations() -> Vec<(&'static str, Vec<Operation>)> {
    let (p, still, factor) = (1.0, ColorJitter::default(), Factor([1.4, 1.4]));
    let erasing = RandomErasing { p, scale: [0.2, 0.2], ratio: [1.0, 1.0], value: Default::default() };
    vec![
        ("copy", vec![]),
        ("horizontal_flip", vec![RandomHorizontalFlip { p }.into()]),
        ("vertical_flip", vec![RandomVerticalFlip { p }.into()]),
        ("invert", vec![RandomInvert { p }.into()]),
        ("posterize", vec![RandomPosterize { bits: 4, p }.into()]),
        ("solarize", vec![RandomSolarize { threshold: 128.0, p }.into()]),
        ("erase", vec![erasing.into()]),
        ("grayscale", vec![Grayscale { num_output_channels: 3 }.into()]),
        ("brightness", vec![ColorJitter { brightness: factor, ..still.clone() }.into()]),
        ("contrast", vec![ColorJitter { contrast: factor, ..still.clone() }.into()]),
        ("saturation", vec![ColorJitter { saturation: factor, ..still.clone() }.into()]),
        ("hue", vec![ColorJitter { hue: HueTurn([0.1, 0.1]), ..still }.into()]),
        ("autocontrast", vec![RandomAutocontrast { p }.into()]),
        ("equalize", vec![RandomEqualize { p }.into()]),
        ("sharpness", vec![RandomAdjustSharpness { sharpness_factor: 1.9, p }.into()]),
        ("gaussian_blur", vec![GaussianBlur { kernel_size: 9.into(), sigma: [1.3, 1.3] }.into()]),
        ("resize_bilinear", vec![resize(Resampling::Bilinear)]),
        ("resize_bicubic", vec![resize(Resampling::Bicubic)]),
        ("rotate_nearest", vec![rotation(Interpolation::Nearest)]),
        ("rotate_bilinear", vec![rotation(Interpolation::Bilinear)]),
        ("gaussian_noise", vec![GaussianNoise { mean: 0.0, sigma: 0.1, clip: true }.into()]),
        ("jpeg", vec![Jpeg { quality: Quality([75; 2]) }.into()]),
        ("aug_mix", vec![AugMix::usual().into()]),
        ("elastic_transform", vec![elastic()]),
    ]
}

fn resize(interpolation: Resampling) -> Operation {
    Resize { interpolation, ..Resize::to(SMALL_SIDE) }.into()
}

fn elastic() -> Operation {
    let (alpha, sigma) = (Pair([50.0; 2]), Pair([5.0; 2]));
    ElasticTransform { alpha, sigma, interpolation: Interpolation::Bilinear, fill: Fill::default() }.into()
}

fn rotation(interpolation: Interpolation) -> Operation {
    let degrees = Degrees([20.0, 20.0]);
    RandomRotation { degrees, interpolation, expand: false, center: None, fill: Fill::default() }.into()
}

fn each(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("operations");
    group.sample_size(100).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    let image = synthetic::photo(SIDE, SIDE, 1);
    let (mut stages, mut out) = (SingleStages::default(), vec![0; image.len()]);
    for (name, mut operations) in operations() {
        let side = if name.starts_with("resize") { SMALL_SIDE } else { SIDE };
        operations.push(RandomCrop::to(side).into());
        let pipeline = CompiledPipeline::of(&Pipeline::of(operations)).expect("a valid pipeline");
        let mut sample_id = 0;
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                sample_id += 1;
                let draw = Draw { seed: 1, epoch: 0, sample_id };
                stages.apply(&image, (SIDE, SIDE), &pipeline, draw, &mut out[..pipeline.output().bytes()]);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, each);
criterion_main!(benches);
