//! Microseconds of processor time per image for each way and stage of decoding the JPEGs of a folder.
//!
//! `cargo run --release -p ddlp-pixels --example jpeg_times -- FOLDER [ROUNDS]`: medians over the rounds, ways in turn in each.

use std::path::Path;

use ddlp_pixels::stages::{Box as Part, Depth, Stages};
use ddlp_pixels::{Draw, Limits, Pipeline, Preparer, Source};

fn folder(path: &Path, images: &mut Vec<Vec<u8>>) {
    let mut paths: Vec<_> =
        std::fs::read_dir(path).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() { folder(&path, images) } else { images.push(std::fs::read(path).expect("a file")) }
    }
}

/// Microseconds that this thread has run.
fn now() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    stat.split(' ').next().and_then(|time| time.parse::<f64>().ok()).expect("nanoseconds") / 1e3
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("a folder");
    let rounds: usize = arguments.next().map_or(5, |rounds| rounds.parse().expect("a number"));
    let only = arguments.next();
    let mut images = Vec::new();
    folder(Path::new(&path), &mut images);
    let mut stages = Stages::default();
    let all = images.len();
    images.retain(|image| stages.takes(image));
    println!("{} of {all} files", images.len());
    let pipeline = Pipeline::imagenet_train();
    let parts: Vec<Part> = (0..)
        .zip(&images)
        .map(|(sample_id, image)| stages.cut(image, &pipeline, Draw { seed: 1, epoch: 0, sample_id }))
        .collect();
    let wholes: Vec<Part> = images
        .iter()
        .map(|image| {
            let (width, height) = stages.size(image);
            (0, 0, width, height)
        })
        .collect();
    let points: Vec<_> =
        [4, 8, 16].map(|every| images.iter().map(|image| stages.checkpoints(image, every)).collect::<Vec<_>>()).into();
    for (points, every) in points.iter().zip([4, 8, 16]) {
        let (count, bytes) = points.iter().fold((0, 0), |(count, bytes), points: &ddlp_pixels::Checkpoints| {
            (count + points.len(), bytes + points.to_bytes().len())
        });
        let files: usize = images.iter().map(Vec::len).sum();
        println!(
            "every {every}: {:.2} bytes a checkpoint, {:.4} of the files",
            bytes as f64 / count as f64,
            bytes as f64 / files as f64
        );
    }
    let mut preparer = Preparer::new(Limits::default());
    let mut out = vec![0; pipeline.output().bytes()];

    let shared = std::cell::RefCell::new(stages);
    let stages = &shared;
    let mut ways: Vec<(String, Box<dyn FnMut(usize) + '_>)> = Vec::new();
    for (name, parts) in [("whole", &wholes), ("crop", &parts)] {
        let images = &images;
        ways.push((
            format!("{name} libjpeg"),
            Box::new(move |i| {
                stages.borrow_mut().libjpeg(&images[i], parts[i]);
            }),
        ));
        for depth in [Depth::Entropy, Depth::Samples, Depth::Pixels] {
            ways.push((
                format!("{name} ours {depth:?}"),
                Box::new(move |i| {
                    stages.borrow_mut().baseline(&images[i], parts[i], None, depth);
                }),
            ));
        }
    }
    for (points, every) in points.iter().zip([4, 8, 16]) {
        for depth in [Depth::Entropy, Depth::Pixels] {
            let (images, parts) = (&images, &parts);
            ways.push((
                format!("crop, checkpoints every {every} {depth:?}"),
                Box::new(move |i| {
                    stages.borrow_mut().baseline(&images[i], parts[i], Some(&points[i]), depth);
                }),
            ));
        }
    }
    ways.push((
        "prepare".into(),
        Box::new(|i| {
            let draw = Draw { seed: 1, epoch: 0, sample_id: i as u64 };
            preparer.prepare(Source::Encoded(&images[i]), &pipeline, draw, &mut out).expect("a good image");
        }),
    ));
    let mut preparer = Preparer::new(Limits::default());
    let mut out = vec![0; pipeline.output().bytes()];
    let (images_, points_, pipeline_) = (&images, &points[1], &pipeline);
    ways.push((
        "prepare, checkpoints every 8".into(),
        Box::new(move |i| {
            let draw = Draw { seed: 1, epoch: 0, sample_id: i as u64 };
            let source = Source::Indexed { file: &images_[i], checkpoints: &points_[i] };
            preparer.prepare(source, pipeline_, draw, &mut out).expect("a good image");
        }),
    ));
    if let Some(only) = only {
        ways.retain(|(name, _)| *name == only);
    }
    let mut times = vec![Vec::new(); ways.len()];
    for _ in 0..rounds {
        for ((_, way), times) in ways.iter_mut().zip(&mut times) {
            let start = now();
            (0..images.len()).for_each(&mut *way);
            times.push((now() - start) / images.len() as f64);
        }
    }
    for ((name, _), mut times) in ways.iter().zip(times) {
        times.sort_by(f64::total_cmp);
        println!("{name:40} {:8.1}  ({:.1} to {:.1})", times[times.len() / 2], times[0], times[times.len() - 1]);
    }
}
