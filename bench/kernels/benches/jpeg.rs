//! Stages of decoding JPEGs, in images per second of one core, for whole images and for the rectangles of a training
//! pipeline, by libjpeg-turbo and by our own decoder. The images are generated, or those in the folder that DDLP_PHOTOS
//! names.

use std::path::Path;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ddlp_pixels::encode::{self, JpegOptions, Layout};
use ddlp_pixels::stages::{Checkpoints, Cut, Depth, SingleStages};
use ddlp_pixels::{Draw, Limits, Pipeline, Preparer, Source, synthetic};

/// MCUs between checkpoints.
const EVERY: [u32; 3] = [4, 8, 16];

fn generated() -> Vec<Vec<u8>> {
    let layouts = [Layout::Yuv444, Layout::Yuv420, Layout::Yuv422, Layout::Gray];
    let images = (0..16).map(|i: usize| {
        let layout = layouts[i % layouts.len()];
        let rgb = synthetic::photo(500, 375, i as u32);
        let pixels = if layout == Layout::Gray { rgb.into_iter().step_by(3).collect() } else { rgb };
        let options = JpegOptions { quality: 94, layout, ..JpegOptions::default() };
        encode::jpeg(&pixels, 500, 375, &options).expect("a valid size")
    });
    images.collect()
}

fn folder(path: &Path) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(path).expect("a folder that can be read");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    let read = |path: std::path::PathBuf| {
        if path.is_dir() { folder(&path) } else { vec![std::fs::read(path).expect("a file that can be read")] }
    };
    paths.into_iter().flat_map(read).collect()
}

fn jpeg(criterion: &mut Criterion) {
    let mut stages = SingleStages::default();
    let mut images = std::env::var_os("DDLP_PHOTOS").map_or_else(generated, |path| folder(Path::new(&path)));
    images.retain(|image| stages.takes(image));
    let mut group = criterion.benchmark_group("jpeg");
    group
        .throughput(Throughput::Elements(images.len() as u64))
        .sample_size(10)
        .measurement_time(Duration::from_secs(5));
    let wholes: Vec<Cut> = images.iter().map(|image| stages.whole(image)).collect();
    let pipeline = Pipeline::imagenet_train();
    let draw = |sample_id| Draw { seed: 1, epoch: 0, sample_id };
    let crops: Vec<Cut> =
        (0..).zip(&images).map(|(sample_id, image)| stages.cut(image, &pipeline, draw(sample_id))).collect();
    for (name, cuts) in [("whole", &wholes), ("crop", &crops)] {
        group.bench_function(format!("{name}, libjpeg-turbo"), |bencher| {
            bencher.iter(|| images.iter().zip(cuts).map(|(image, &cut)| stages.libjpeg(image, cut)).sum::<u64>());
        });
        for depth in [Depth::Entropy, Depth::Samples, Depth::Pixels] {
            group.bench_function(format!("{name}, {depth:?}"), |bencher| {
                let all = images.iter().zip(cuts);
                bencher.iter(|| all.clone().map(|(image, &cut)| stages.baseline(image, cut, None, depth)).sum::<u64>());
            });
        }
    }
    for every in EVERY {
        let checkpoints = |image: &Vec<u8>| Checkpoints::of(image, every).expect("an intact file");
        let checkpoints: Vec<Checkpoints> = images.iter().map(checkpoints).collect();
        for depth in [Depth::Entropy, Depth::Samples, Depth::Pixels] {
            group.bench_function(format!("crop, checkpoints every {every} MCUs, {depth:?}"), |bencher| {
                let all = images.iter().zip(&crops).zip(&checkpoints);
                bencher.iter(|| {
                    all.clone()
                        .map(|((image, &cut), points)| stages.baseline(image, cut, Some(points), depth))
                        .sum::<u64>()
                });
            });
        }
    }
    let checkpoints = |image: &Vec<u8>| Checkpoints::of(image, 8).expect("an intact file").to_bytes();
    let checkpoints: Vec<_> = images.iter().map(checkpoints).collect();
    let mut preparer = Preparer::new(Limits::default());
    let mut out = vec![0; pipeline.output().bytes()];
    group.bench_function("prepared, checkpoints every 8 MCUs", |bencher| {
        bencher.iter(|| {
            for ((sample_id, file), checkpoints) in (0..).zip(&images).zip(&checkpoints) {
                let source = Source::Indexed { file, checkpoints };
                preparer.prepare(source, &pipeline, draw(sample_id), &mut out).expect("a good image");
            }
        });
    });
    group.bench_function("checkpoints", |bencher| {
        bencher.iter(|| {
            images.iter().map(|image| Checkpoints::of(image, 8).map_or(0, |points| points.len())).sum::<usize>()
        });
    });
    // Index a file as `ddlp pack` does: describe it, and make checkpoints as dense as their share of the file allows.
    group.bench_function("indexed", |bencher| {
        bencher.iter(|| {
            images.iter().map(|image| preparer.index(image).map_or(0, |made| made.checkpoints.len())).sum::<usize>()
        });
    });
    group.finish();
}

criterion_group!(benches, jpeg);
criterion_main!(benches);
