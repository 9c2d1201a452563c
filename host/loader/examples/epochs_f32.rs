//! Whole epochs as a training loop gets them, timed: every batch normalised to f32 NCHW. Prints one line of JSON.
//!
//! `cargo run --release -p ddlp-host --example epochs_f32 -- photos.ddlp --pipeline imagenet-train --threads 1`
//!
//! `bench/side-by-side` starts it beside other loaders. Each repetition is one epoch from the start of the loader's threads to
//! the last value of the last batch: a loader that runs on into the next epoch would have batches of it ready before the clock
//! starts. The dataset is opened before, as other loaders list their files before; a small one of planar images stays in memory from the
//! first epoch on, as it does within one loader of several epochs.

use anyhow::{Context, bail, ensure};
use clap::Parser;
use ddlp_dataset::{Dataset, Resident};
use ddlp_host::{Loader, Strategy};
use ddlp_pixels::{Normalize, Pipeline};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Mean and standard deviation of CIFAR-10's training set, as its recipes have them.
const CIFAR_MEAN: [f64; 3] = [0.4914, 0.4822, 0.4465];
const CIFAR_STD: [f64; 3] = [0.2470, 0.2435, 0.2616];

/// Times whole epochs of the CPU alone, delivered as f32 NCHW.
#[derive(Parser)]
struct Options {
    /// A pack, an image folder, CIFAR's binary files or tar shards
    dataset: PathBuf,
    /// imagenet-train, imagenet-val or cifar-train; it also says which mean and deviation normalise
    #[arg(long, default_value = "imagenet-train")]
    pipeline: String,
    /// Samples of an epoch; a smaller dataset is repeated [default: those of the dataset]
    #[arg(long)]
    samples: Option<u64>,
    /// Samples of a batch
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// Threads that prepare
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Epochs before those that are timed
    #[arg(long, default_value_t = 1)]
    warmup: u32,
    /// Epochs that are timed
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    reps: u32,
}

/// What one epoch took.
struct Epoch {
    images: usize,
    seconds: f64,
    cpu_seconds: f64,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let pipeline = Pipeline::named(&options.pipeline)
        .with_context(|| format!("there is no pipeline {}: {:?} are known", options.pipeline, Pipeline::NAMES))?;
    let normalize = match options.pipeline.as_str() {
        "cifar-train" => Normalize::new(CIFAR_MEAN, CIFAR_STD),
        _ => Normalize::imagenet(),
    };
    let dataset: Arc<dyn Dataset> = Resident::of(ddlp_dataset::open(&options.dataset)?.into());
    let samples = options.samples.unwrap_or(dataset.len());
    let mut timed = Vec::new();
    for number in 0..options.warmup + options.reps {
        // Another seed for each: an order and crops of its own.
        let loader = Loader::builder()
            .dataset(dataset.clone())
            .pipeline(pipeline.clone())
            .batch_size(options.batch)
            .epoch_samples(samples)
            .threads(options.threads)
            .strategy(Strategy::Cpu)
            .seed(u64::from(number));
        let normalize = normalize.clone();
        let epoch = epoch(|| Ok(loader.build_f32(normalize)?))?;
        ensure!(epoch.images as u64 == samples, "{} of {samples} images were delivered", epoch.images);
        if number >= options.warmup {
            timed.push(epoch);
        }
    }
    println!("{}", described(&options, dataset.kind(), &timed)?);
    Ok(())
}

fn epoch(start: impl FnOnce() -> anyhow::Result<Loader<f32>>) -> anyhow::Result<Epoch> {
    let (begun, cpu_before) = (Instant::now(), cpu_seconds()?);
    let mut images = 0;
    for batch in start()? {
        let batch = batch?;
        // The values count as used, whatever the compiler finds out.
        std::hint::black_box(batch.values());
        images += batch.len();
    }
    let seconds = begun.elapsed().as_secs_f64();
    if images == 0 {
        bail!("the epoch had no images");
    }
    Ok(Epoch { images, seconds, cpu_seconds: cpu_seconds()? - cpu_before })
}

/// CPU time of this process, all threads, user and system.
fn cpu_seconds() -> anyhow::Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).context("the operating system does not say what CPU time was used")?;
    Ok((usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e6)
}

fn described(options: &Options, kind: &str, timed: &[Epoch]) -> anyhow::Result<String> {
    let rates = sorted(timed.iter().map(|epoch| epoch.images as f64 / epoch.seconds));
    let per_cpu_second = sorted(timed.iter().map(|epoch| epoch.images as f64 / epoch.cpu_seconds.max(1e-3)));
    Ok(serde_json::to_string(&serde_json::json!({
        "peer": "ddlp",
        "variant": kind,
        "workers": options.threads,
        "n": timed[0].images,
        "reps": timed.len(),
        "median": median(&rates),
        "min": rates[0],
        "max": rates[rates.len() - 1],
        "per_cpu_s": median(&per_cpu_second),
        "note": "only what a crop needs is decoded; antialiased bilinear; f32 NCHW by the threads that prepare",
    }))?)
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}
