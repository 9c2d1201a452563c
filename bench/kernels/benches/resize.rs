//! Resizing the crops of a training pipeline, by this crate and by `fast_image_resize`, and normalising. The pixels are
//! generated, as neither depends on their values.

use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ddlp_pixels::draw::{Draw, Rng};
use ddlp_pixels::ops::{Operation, RandomResizedCrop};
use ddlp_pixels::stages::{Cut, SingleStages};
use ddlp_pixels::{DType, ImageLayout, Normalize, Normalizer, Pipeline, Shape, synthetic};
use fast_image_resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};
use zerocopy::IntoBytes;

const SIDE: u32 = 224;

/// The other library, with columns first, as in this crate.
#[derive(Default)]
struct Other {
    resizer: Resizer,
    narrow: Vec<u8>,
}

impl Other {
    fn resize(&mut self, pixels: &[u8], size: (u32, u32), (x, y, width, height): Cut, out: &mut [u8]) {
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear)).use_alpha(false);
        self.narrow.resize((SIDE * height * 3) as usize, 0);
        let image = TypedImageRef::<U8x3>::from_buffer(size.0, size.1, pixels).expect("pixels of this size");
        let source = TypedCroppedImage::from_ref(&image, x, y, width, height).expect("a part of the image");
        let mut narrow = TypedImage::<U8x3>::from_buffer(SIDE, height, &mut self.narrow).expect("room");
        self.resizer.resize_typed(&source, &mut narrow, &options).expect("two images");
        let mut target = TypedImage::<U8x3>::from_buffer(SIDE, SIDE, out).expect("room");
        self.resizer.resize_typed(&narrow, &mut target, &options).expect("two images");
    }
}

fn resize(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("resize");
    let (crops, operation) = (200, Operation::from(RandomResizedCrop::to(SIDE)));
    group.throughput(Throughput::Elements(crops)).sample_size(20).measurement_time(Duration::from_secs(5));
    let mut stages = SingleStages::default();
    let mut other = Other::default();
    let mut out = vec![0; (SIDE * SIDE * 3) as usize];
    for (name, size) in [("500x375", (500, 375)), ("768x512", (768, 512)), ("2000x1500", (2000, 1500))] {
        let pixels = synthetic::photo(size.0, size.1, 1);
        let cut = |sample_id| {
            let mut rng = Rng::for_sample(Draw { seed: 1, epoch: 0, sample_id }, 0);
            let piece = operation.effects(size, &mut rng).expect("a box of any image")[0].geometry();
            let window = piece.and_then(|piece| piece.window).expect("a crop");
            (window.x as u32, window.y as u32, window.width, window.height)
        };
        let cuts: Vec<Cut> = (0..crops).map(cut).collect();
        group.bench_function(format!("crops of {name}"), |bencher| {
            bencher.iter(|| cuts.iter().for_each(|&cut| stages.resize(&pixels, size, cut, (SIDE, SIDE), &mut out)));
        });
        group.bench_function(format!("crops of {name}, fast_image_resize"), |bencher| {
            bencher.iter(|| cuts.iter().for_each(|&cut| other.resize(&pixels, size, cut, &mut out)));
        });
    }
    group.finish();
}

fn normalize(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("normalize");
    group.throughput(Throughput::Elements(1));
    for shape in [Pipeline::imagenet_train().output(), Pipeline::cifar_train().output()] {
        let Shape { height, width, .. } = shape;
        let pixels = synthetic::photo(width, height, 2);
        // Room for f32, aligned for every type.
        let mut out = vec![0.0f32; pixels.len()];
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            for layout in ImageLayout::ALL {
                let normalizer = Normalizer::new(&Normalize::IMAGENET, dtype, layout);
                let out = &mut out.as_mut_bytes()[..pixels.len() * dtype.bytes()];
                group.bench_function(format!("{width}x{height}, {dtype} {layout}"), |bencher| {
                    bencher.iter(|| normalizer.write(&pixels, shape, out));
                });
            }
        }
    }
    group.finish();
}

criterion_group!(benches, resize, normalize);
criterion_main!(benches);
