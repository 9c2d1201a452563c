//! Images per second of one core, for generated images or those in the folder that DDLP_PHOTOS names.

use std::path::Path;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ddlp_pixels::encode::{self, JpegOptions, Layout};
use ddlp_pixels::{Decoded, Draw, FormImage, Limits, Pipeline, Preparer, RawRows, Source, synthetic};

/// Returns images of the sizes, layouts and qualities that are frequent in ImageNet's training set.
fn generated() -> Vec<Vec<u8>> {
    let sizes = [(500, 375), (500, 375), (375, 500), (500, 333), (500, 500)];
    let layouts = [Layout::Yuv444, Layout::Yuv444, Layout::Yuv420, Layout::Yuv444];
    let images = (0..20).map(|i| {
        let (width, height) = sizes[i % sizes.len()];
        let options = JpegOptions { quality: 96, layout: layouts[i % layouts.len()], ..JpegOptions::default() };
        encode::jpeg(&synthetic::photo(width, height, i as u32), width, height, &options).expect("a valid size")
    });
    images.collect()
}

fn folder(path: &Path) -> Vec<Vec<u8>> {
    let mut images = Vec::new();
    let entries = std::fs::read_dir(path).expect("a folder that can be read");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            images.extend(folder(&path));
        } else {
            images.push(std::fs::read(path).expect("a file that can be read"));
        }
    }
    images
}

fn images() -> Vec<Vec<u8>> {
    std::env::var_os("DDLP_PHOTOS").map_or_else(generated, |path| folder(Path::new(&path)))
}

fn prepare(criterion: &mut Criterion) {
    let images = images();
    let mut group = criterion.benchmark_group("prepare");
    group
        .throughput(Throughput::Elements(images.len() as u64))
        .sample_size(10)
        .measurement_time(Duration::from_secs(8));
    for name in ["imagenet-train", "imagenet-val"] {
        let pipeline = Pipeline::named(name).expect("a known name");
        let mut preparer = Preparer::new(Limits::default());
        let mut out = vec![0; pipeline.output().bytes()];
        let mut epoch = 0;
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                epoch += 1;
                for (sample_id, image) in (0..).zip(&images) {
                    let draw = Draw { seed: 1, epoch, sample_id };
                    preparer.prepare(Source::Encoded(image), &pipeline, draw, &mut out).expect("a good image");
                }
            });
        });
    }
    let mut preparer = Preparer::new(Limits::default());
    group.bench_function("inspect", |bencher| {
        bencher.iter(|| images.iter().map(|image| preparer.inspect(image)).collect::<Vec<_>>());
    });
    group.finish();
}

/// Measures crops of uncompressed images, which read and check the rows that they touch.
fn raw(criterion: &mut Criterion) {
    const GROUPS: RawRows = RawRows { group_rows: 16 };
    let mut preparer = Preparer::new(Limits::default());
    let images = images().into_iter().map(|image| {
        let mut pixels = Vec::new();
        let decoded = preparer.decode(Source::Encoded(&image), Some(500), &mut pixels).expect("a good image");
        (decoded, GROUPS.checksums_of(&pixels, decoded.width), pixels)
    });
    let images: Vec<_> = images.collect();
    let mut group = criterion.benchmark_group("raw");
    group
        .throughput(Throughput::Elements(images.len() as u64))
        .sample_size(10)
        .measurement_time(Duration::from_secs(5));
    let pipeline = Pipeline::imagenet_train();
    let mut out = vec![0; pipeline.output().bytes()];
    let mut epoch = 0;
    group.bench_function("imagenet-train", |bencher| {
        bencher.iter(|| {
            epoch += 1;
            for (sample_id, (decoded, detail, bytes)) in (0..).zip(&images) {
                let Decoded { width, height, orientation, was_shrunk } = *decoded;
                let (form, decoder, offset) = (3, &GROUPS, 0);
                let image = FormImage { form, decoder, width, height, orientation, was_shrunk, detail, offset, bytes };
                let draw = Draw { seed: 1, epoch, sample_id };
                preparer.prepare(Source::Image(image), &pipeline, draw, &mut out).expect("a good image");
            }
        });
    });
    group.finish();
}

fn small(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("small");
    group.throughput(Throughput::Elements(1));
    let pipeline = Pipeline::cifar_train();
    let planes: Vec<u8> = synthetic::photo(32, 32, 1);
    let mut preparer = Preparer::new(Limits::default());
    let mut out = vec![0; pipeline.output().bytes()];
    let mut sample_id = 0;
    group.bench_function("cifar-train", |bencher| {
        bencher.iter(|| {
            sample_id += 1;
            let draw = Draw { seed: 1, epoch: 0, sample_id };
            let source = Source::Planar { width: 32, height: 32, bytes: &planes };
            preparer.prepare(source, &pipeline, draw, &mut out)
        });
    });
    group.finish();
}

criterion_group!(benches, prepare, raw, small);
criterion_main!(benches);
