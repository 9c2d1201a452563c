//! Times whole epochs as a training loop gets them, with every batch normalised to f32 NCHW. Prints one line of JSON.
//!
//! `cargo run --release -p ddlp-host --example epochs_f32 -- photos.ddlp --pipeline imagenet-train --threads 1`
//!
//! `bench/side-by-side` runs this program beside other loaders. One loader delivers all epochs, as in training. An
//! epoch's time runs from the last batch of the epoch before it to its own last batch. The loader prepares batches of
//! the next epoch meanwhile. So one more epoch follows the timed ones: each timed epoch then prepares as many images as
//! it delivers.

use anyhow::{Context, bail, ensure};
use clap::Parser;
use ddlp_host::{DType, Host, ImageLayout, Loader, LoaderError, Normalize, Pipeline, Strategy, open_dataset};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::path::PathBuf;
use std::time::Instant;

/// Mean and standard deviation of CIFAR-10's training set, as training recipes for it state them.
const CIFAR: Normalize = Normalize { mean: [0.4914, 0.4822, 0.4465], std: [0.2470, 0.2435, 0.2616] };

/// Times whole epochs that the CPU alone prepares, delivered as f32 NCHW
#[derive(Parser)]
struct Arguments {
    /// A pack, an image folder, CIFAR's binary files, tar shards, or the address of the drive that alone holds the
    /// dataset
    dataset: PathBuf,
    /// imagenet-train, imagenet-val, cifar-train, or a TOML file; also selects the mean and deviation for normalisation
    #[arg(long, default_value = "imagenet-train")]
    pipeline: String,
    /// Samples of an epoch; a smaller dataset is repeated [default: as many as the dataset has]
    #[arg(long)]
    samples: Option<u64>,
    /// Samples of a batch
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// Threads that prepare samples
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Epochs before the timed ones; with 0, the first epoch's time begins at the loader's start
    #[arg(long, default_value_t = 1)]
    warmup: u32,
    /// Timed epochs
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    reps: u32,
}

/// Time that one epoch took.
struct TimedEpoch {
    seconds: f64,
    cpu_seconds: f64,
}

fn main() -> anyhow::Result<()> {
    let options = Arguments::parse();
    let pipeline = pipeline(&options.pipeline)?;
    let (normalize, note) = match options.pipeline.as_str() {
        "cifar-train" => (CIFAR, "padded, cropped and flipped, not resized"),
        _ => (Normalize::IMAGENET, "decodes and reads only the pixels that a crop needs; antialiased bilinear"),
    };
    let dataset = open_dataset(&options.dataset, &Host::system())?;
    let samples = options.samples.unwrap_or(dataset.len());
    let epochs = options.warmup + options.reps;
    let start = || {
        Loader::builder()
            .dataset(dataset.clone())
            .with(|o| {
                o.pipeline = pipeline.clone();
                o.dtype = DType::F32;
                o.layout = ImageLayout::Nchw;
                o.normalize = Some(normalize);
                o.batch_size = options.batch;
                o.epoch_samples = Some(samples);
                o.epochs = epochs + 1;
                o.threads = Some(options.threads);
                o.strategy = Strategy::Cpu;
            })
            .build()
    };
    let mut timed = time(start, samples, epochs)?;
    timed.drain(..options.warmup as usize);
    println!("{}", described(&options, dataset.kind(), note, samples, &timed)?);
    Ok(())
}

/// Returns a built-in pipeline, or reads one from a file.
fn pipeline(name: &str) -> anyhow::Result<Pipeline> {
    if let Some(pipeline) = Pipeline::named(name) {
        return Ok(pipeline);
    }
    let text = std::fs::read_to_string(name)
        .with_context(|| format!("{name} is no pipeline of {:?}, and no file", Pipeline::NAMES))?;
    Pipeline::from_toml(&text).with_context(|| format!("{name} is not a valid pipeline"))
}

/// Times this many epochs, and returns when the last of them ends.
fn time(
    start: impl FnOnce() -> Result<Loader, LoaderError>,
    samples: u64,
    epochs: u32,
) -> anyhow::Result<Vec<TimedEpoch>> {
    let (mut begun, mut cpu_before) = (Instant::now(), cpu_seconds()?);
    let (mut timed, mut images) = (Vec::new(), 0);
    for batch in start()? {
        let batch = batch?;
        // Uses the values, so that the compiler cannot drop the work.
        std::hint::black_box(batch.field("image")?.as_slice::<f32>()?);
        ensure!(batch.epoch() as usize == timed.len(), "a batch of epoch {} in epoch {}", batch.epoch(), timed.len());
        images += batch.len() as u64;
        if images == samples {
            let cpu = cpu_seconds()?;
            timed.push(TimedEpoch { seconds: begun.elapsed().as_secs_f64(), cpu_seconds: cpu - cpu_before });
            (begun, cpu_before, images) = (Instant::now(), cpu, 0);
            if timed.len() == epochs as usize {
                return Ok(timed);
            }
        }
    }
    bail!("{} of {epochs} epochs were delivered, and {images} of {samples} images of one more", timed.len())
}

/// Returns the CPU time of this process in seconds: all threads, user and system.
fn cpu_seconds() -> anyhow::Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).context("the operating system does not report CPU time")?;
    Ok((usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e6)
}

fn described(
    options: &Arguments,
    kind: &str,
    note: &str,
    samples: u64,
    timed: &[TimedEpoch],
) -> anyhow::Result<String> {
    let rates = sorted(timed.iter().map(|epoch| samples as f64 / epoch.seconds));
    let per_cpu_second = sorted(timed.iter().map(|epoch| samples as f64 / epoch.cpu_seconds.max(1e-3)));
    Ok(serde_json::to_string(&serde_json::json!({
        "peer": "ddlp",
        "variant": kind,
        "workers": options.threads,
        "n": samples,
        "reps": timed.len(),
        "median": median(&rates),
        "min": rates[0],
        "max": rates[rates.len() - 1],
        "per_cpu_s": median(&per_cpu_second),
        "note": format!("{note}; f32 NCHW by the threads that prepare"),
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
