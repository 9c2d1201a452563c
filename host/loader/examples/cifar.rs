//! Trains a softmax classifier on CIFAR-10's files: the loop of `python/examples/resnet_cifar.py`, in Rust.
//!
//! `cargo run --release -p ddlp-host --example cifar -- FOLDER --epochs 5`
//!
//! FOLDER holds CIFAR-10's binary files (`data_batch_1.bin` ...). The classifier sees the mean colour of each of 16
//! parts of an image.

use clap::Parser;
use ddlp_host::{Batch, DType, ImageLayout, LastBatch, Loader, LoaderOptions, Normalize, Pipeline};
use std::path::PathBuf;

const CIFAR: Normalize = Normalize { mean: [0.4914, 0.4822, 0.4465], std: [0.2470, 0.2435, 0.2616] };
const CLASSES: usize = 10;
/// Rows and columns of an image, and of one of its parts.
const SIDE: usize = 32;
const PART: usize = 8;
/// Mean colours of an image, and 1.
const FEATURES: usize = 3 * (SIDE / PART) * (SIDE / PART) + 1;
const LEARNING_RATE: f32 = 0.1;

/// Trains a softmax classifier on CIFAR-10's files
#[derive(Parser)]
struct Arguments {
    /// Folder with CIFAR-10's binary files
    folder: PathBuf,
    #[arg(long, default_value_t = 2)]
    epochs: u32,
}

/// Weights of each feature for each class.
struct Classifier([[f32; FEATURES]; CLASSES]);

impl Classifier {
    /// Makes a step of gradient descent. Returns the mean loss of the batch before it.
    fn step(&mut self, batch: &Batch) -> anyhow::Result<f32> {
        let images: &[f32] = batch.field("image")?.as_slice()?;
        let (mut loss, mut gradient) = (0.0, [[0.0; FEATURES]; CLASSES]);
        for (image, &label) in images.chunks_exact(3 * SIDE * SIDE).zip(batch.labels()?) {
            let features = features(image);
            let shares = self.shares(&features);
            loss -= shares[label as usize].ln();
            for (class, (share, row)) in shares.iter().zip(&mut gradient).enumerate() {
                let error = share - if class == label as usize { 1.0 } else { 0.0 };
                row.iter_mut().zip(&features).for_each(|(sum, feature)| *sum += error * feature);
            }
        }
        let count = batch.len() as f32;
        for (weight, slope) in self.0.iter_mut().flatten().zip(gradient.iter().flatten()) {
            *weight -= LEARNING_RATE * slope / count;
        }
        Ok(loss / count)
    }

    /// Returns how likely each class is.
    fn shares(&self, features: &[f32; FEATURES]) -> [f32; CLASSES] {
        let score = |row: &[f32; FEATURES]| row.iter().zip(features).map(|(weight, value)| weight * value).sum::<f32>();
        let scores = self.0.each_ref().map(score);
        let most = scores.iter().copied().fold(f32::MIN, f32::max);
        let powers = scores.map(|score| (score - most).exp());
        let sum: f32 = powers.iter().sum();
        powers.map(|power| power / sum)
    }
}

/// Returns the mean colour of each part of an image in NCHW, and 1.
fn features(image: &[f32]) -> [f32; FEATURES] {
    let mut features = [0.0; FEATURES];
    for (at, value) in image.iter().enumerate() {
        let (channel, row, column) = (at / (SIDE * SIDE), at / SIDE % SIDE, at % SIDE);
        let part = (channel * (SIDE / PART) + row / PART) * (SIDE / PART) + column / PART;
        features[part] += value / (PART * PART) as f32;
    }
    features[FEATURES - 1] = 1.0;
    features
}

fn main() -> anyhow::Result<()> {
    let Arguments { folder, epochs } = Arguments::parse();
    let loader = Loader::open(LoaderOptions {
        dataset: Some(folder),
        pipeline: Pipeline::cifar_train(),
        batch_size: 64,
        dtype: DType::F32,
        layout: ImageLayout::Nchw,
        normalize: Some(CIFAR),
        last: LastBatch::Drop,
        epochs,
        ..LoaderOptions::default()
    })?;
    let (batches, mut classifier, mut sum) = (loader.batches_per_epoch(), Classifier([[0.0; FEATURES]; CLASSES]), 0.0);
    for batch in loader {
        let batch = batch?;
        sum += classifier.step(&batch)?;
        if batch.index() + 1 == batches {
            println!("epoch {}: loss {:.3}", batch.epoch(), sum / batches as f32);
            sum = 0.0;
        }
    }
    Ok(())
}
