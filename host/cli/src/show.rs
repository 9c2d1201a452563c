//! `ddlp show`: what a pipeline makes of some samples, as a contact sheet.
//!
//! - `page`: the sheet as HTML. `picture`: the sheet as one picture, with `font` for its text.

mod font;
mod page;
mod picture;

use crate::opening::OpeningArgs;
use crate::output::{self, Files};
use crate::run::{pipeline, pipeline_file};
use crate::wrong::wrong;
use crate::{Ending, files_only, text};
use anyhow::Context;
use clap::Args;
use ddlp_csd::prepare::{EpochContext, SamplePreparer};
use ddlp_csd::program::{CorruptPolicy, Program};
use ddlp_csd::slot::Outcome;
use ddlp_dataset::Dataset;
use ddlp_pixels::encode::JpegOptions;
use ddlp_pixels::ops::{CenterCrop, Resize, Size};
use ddlp_pixels::{Fidelity, Limits, Pipeline, Shape, encode};
use std::path::{Path, PathBuf};

/// Most bytes of all images of a sheet.
const SHEET_BYTES_MAX: u64 = 1 << 28;
/// Least width of an image on a sheet, in pixels: smaller ones are enlarged.
const SHOWN_WIDTH_MIN: u32 = 128;
/// Quality of a JPEG's sheet.
const JPEG_QUALITY: u8 = 85;

/// Write a contact sheet of what a pipeline makes of some samples: each as it is, and as the first epochs of a run have
/// it.
///
/// A run with the same pipeline and seed prepares the same images in its epochs 0, 1, 2, … Samples come from the whole
/// dataset, at equal distances.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ddlp show photos --pipeline mine.toml --out sheet.html
  ddlp show train.ddlp --samples 8 --draws 3 --out sheet.png")]
pub struct ShowArgs {
    /// A pack, image folder, CIFAR-10's binary files, tar shards, a list of files or a mix of these
    dataset: PathBuf,
    #[command(flatten)]
    opening: OpeningArgs,
    /// Pipeline for each sample: imagenet-train, imagenet-val, cifar-train, or a TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = "imagenet-train")]
    pipeline: String,
    /// The sheet: its name ends in .html, .png, .jpg or .jpeg
    #[arg(long, value_name = "FILE", default_value = "sheet.html")]
    out: PathBuf,
    /// Number of samples
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1000))]
    samples: u16,
    /// Number of draws of each sample
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    draws: u16,
    /// Seed of the draws
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
}

/// The samples of a sheet, and the size of all images.
struct Sheet {
    width: u32,
    height: u32,
    rows: Vec<SheetRow>,
}

/// One sample, as it is and as it was drawn.
struct SheetRow {
    /// Index in the dataset.
    index: u64,
    name: String,
    label: String,
    images: Vec<SheetImage>,
}

/// An image, RGB, or why there is none.
type SheetImage = Result<Vec<u8>, String>;

/// Kind of a sheet's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SheetKind {
    Html,
    Png,
    Jpeg,
}

/// Runs the command.
pub fn show(args: &ShowArgs) -> anyhow::Result<Ending> {
    let kind = SheetKind::of(&args.out)?;
    files_only::check(&args.dataset)?;
    let pipeline = pipeline(&args.pipeline)?;
    let dataset = args.opening.open(&args.dataset)?;
    files(args).check(&*dataset, &args.dataset)?;
    output::check_writable(&args.out, "the sheet")?;
    let sheet = Sheet::of(&*dataset, pipeline, args)?;
    let bytes = match kind {
        SheetKind::Html => page::html(&sheet, args)?.into_bytes(),
        SheetKind::Png => picture::draw(&sheet)?.png()?,
        SheetKind::Jpeg => picture::draw(&sheet)?.jpeg()?,
    };
    output::write(&args.out, &bytes, "the sheet")?;
    let samples = text::plural(sheet.rows.len() as u64, "sample");
    let draws = text::plural(args.draws.into(), "draw");
    output::say_written(&args.out, &format!("{samples}, {draws} each"))?;
    Ok(Ending::Done)
}

impl SheetKind {
    fn of(path: &Path) -> anyhow::Result<Self> {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        Ok(match extension.to_ascii_lowercase().as_str() {
            "html" | "htm" => Self::Html,
            "png" => Self::Png,
            "jpg" | "jpeg" => Self::Jpeg,
            _ => wrong!("--out {}: a sheet's name ends in .html, .png, .jpg or .jpeg", path.display()),
        })
    }
}

/// Returns the files that the command reads and writes, except for the dataset.
fn files(args: &ShowArgs) -> Files<'_> {
    Files::default()
        .reads("--classes", args.opening.classes.clone())
        .reads("--pipeline", pipeline_file(&args.pipeline))
        .writes("--out", Some(&args.out))
}

impl Sheet {
    fn of(dataset: &dyn Dataset, pipeline: Pipeline, args: &ShowArgs) -> anyhow::Result<Self> {
        let Shape { width, height, channels } = pipeline.validate().context("the pipeline cannot run")?;
        let samples = u64::from(args.samples).min(dataset.len());
        let image_bytes = u64::from(width) * u64::from(height) * u64::from(channels);
        let images = samples * (1 + u64::from(args.draws));
        if image_bytes.saturating_mul(images) > SHEET_BYTES_MAX {
            wrong!(
                "{images} images of {width} × {height} pixels take more than {} MiB: choose fewer --samples or --draws",
                SHEET_BYTES_MAX >> 20
            );
        }
        let mut whole = preparer(whole_image(&pipeline, width, height));
        let mut drawn = preparer(pipeline);
        let mut rows = Vec::new();
        for number in 0..samples {
            let index = number * dataset.len() / samples;
            let image = |preparer: &mut SamplePreparer, epoch| {
                let context = EpochContext { seed: args.seed, epoch, fidelity: Fidelity::WHOLE };
                prepare(preparer, dataset, context, index, image_bytes as usize)
            };
            let mut images = vec![image(&mut whole, 0)?];
            for epoch in 0..args.draws {
                images.push(image(&mut drawn, epoch.into())?);
            }
            let label = dataset.label(index);
            let label = dataset.classes().get(label as usize).cloned().unwrap_or_else(|| label.to_string());
            rows.push(SheetRow { index, name: dataset.name(index), label, images });
        }
        Ok(Self { width, height, rows })
    }

    /// Returns the factor by which images are enlarged.
    fn scale(&self) -> u32 {
        SHOWN_WIDTH_MIN.div_ceil(self.width)
    }

    /// Returns the number of images of each sample.
    fn columns(&self) -> usize {
        self.rows.first().map_or(0, |row| row.images.len())
    }

    /// Returns the heading of a column.
    fn heading(column: usize) -> String {
        column.checked_sub(1).map_or_else(|| "as it is".into(), |epoch| format!("epoch {epoch}"))
    }
}

/// Returns the pipeline that shows a whole image in a rectangle of this size, with black beside it.
fn whole_image(pipeline: &Pipeline, width: u32, height: u32) -> Pipeline {
    // The longer side becomes `side`: the shorter one may have any length below that.
    let side = width.min(height).max(2);
    let resize = Resize { max_size: Some(side), ..Resize::to(side - 1) };
    let operations = vec![resize.into(), CenterCrop { size: Size { height, width } }.into()];
    Pipeline { exif_orientation: pipeline.exif_orientation, ..Pipeline::of(operations) }
}

fn preparer(pipeline: Pipeline) -> SamplePreparer {
    SamplePreparer::new(&Program { pipeline, limits: Limits::default(), policy: CorruptPolicy::Fail })
}

/// Prepares an image. Fails only if the dataset is not available.
fn prepare(
    preparer: &mut SamplePreparer,
    dataset: &dyn Dataset,
    context: EpochContext,
    index: u64,
    bytes: usize,
) -> anyhow::Result<SheetImage> {
    let mut pixels = vec![0; bytes];
    let record = preparer.prepare(dataset, context, index, &mut pixels).context("the dataset is not available")?;
    Ok(match record.outcome {
        Outcome::Failed(reason) => Err(reason.to_string()),
        _ => Ok(pixels),
    })
}

#[cfg(test)]
mod tests;
