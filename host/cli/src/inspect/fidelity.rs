//! `ddlp inspect --fidelity`: what images lose, and how many bytes are saved, if only the first scan groups are read.
//!
//! - [`measure`]: cuts samples into pieces and compares images. `picture`: the figures as an SVG.

mod measure;
mod picture;

use super::{find, row, to_json};
use crate::wrong::wrong;
use crate::{output, text};
use anyhow::bail;
use clap::Args;
use ddlp_dataset::Dataset;
use ddlp_pixels::ScanGroups;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Options of a measurement of fidelity.
#[derive(Args)]
pub struct FidelityArgs {
    /// Measure what the images lose if only the first scan groups of progressive JPEGs are read: bytes, and similarity
    /// (SSIM) to the whole images. Other JPEGs are rewritten as progressive ones for this, without loss
    #[arg(long)]
    pub fidelity: bool,
    /// Number of samples to measure, at equal distances in the dataset
    #[arg(long, value_name = "N", default_value_t = 100, requires = "fidelity", conflicts_with = "sample")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    samples: u32,
    /// Scan groups: the last scan of each, as libjpeg numbers the ten scans of a YCbCr image
    #[arg(long, value_name = "N,…", default_value = "1,2,5,10", requires = "fidelity")]
    groups: ScanGroups,
    /// Write a picture of the figures, an SVG
    #[arg(long, value_name = "FILE.svg")]
    pub picture: Option<PathBuf>,
}

/// What was measured.
#[derive(Serialize)]
struct Fidelity {
    file: PathBuf,
    kind: &'static str,
    /// Samples of the dataset, and of them those that were measured.
    samples: u64,
    measured: u64,
    /// Measured samples that were cut into pieces, and of them those whose source is not progressive.
    cut: u64,
    rewritten: u64,
    /// Measured samples that cannot be cut and are read whole at every fidelity, by reason.
    whole: BTreeMap<String, u64>,
    /// Bytes of the measured samples.
    source_bytes: u64,
    groups: Vec<GroupFigures>,
    /// Bytes of the markers that no decoder needs.
    marker_bytes: u64,
}

/// Figures of the images at one fidelity.
#[derive(Serialize)]
struct GroupFigures {
    /// Number of the last group that is read.
    group: u8,
    /// Bytes of all groups up to this one, of all measured samples.
    bytes: u64,
    /// These bytes, divided by the sources' bytes.
    share: f64,
    /// SSIM of luma over all images that were cut.
    ssim: Option<Spread>,
    /// Mean MS-SSIM of luma, of images whose shorter side has at least 176 pixels.
    ms_ssim_mean: Option<f64>,
    /// Mean SSIM of the two colour differences.
    chroma_ssim_mean: Option<f64>,
}

/// A figure over many images.
#[derive(Serialize)]
struct Spread {
    mean: f64,
    percentile_5: f64,
    least: f64,
}

/// Measures, writes the picture, and returns what to print.
pub fn fidelity(
    (file, dataset): (&Path, &dyn Dataset),
    args: &FidelityArgs,
    sample: Option<&str>,
    as_json: bool,
) -> anyhow::Result<String> {
    if let Some(picture) = &args.picture {
        output::check_writable(picture, "the picture")?;
    }
    let indices = match sample {
        Some(sample) => vec![find(dataset, sample)?],
        None => {
            let count = u64::from(args.samples).min(dataset.len());
            (0..count).map(|number| number * dataset.len() / count).collect()
        }
    };
    let measured = measure::measure(dataset, &indices, &args.groups)?;
    let fidelity = Fidelity::of((file, dataset), &args.groups, &measured)?;
    if let Some(picture) = &args.picture {
        output::write(picture, picture::svg(&fidelity).as_bytes(), "the picture")?;
    }
    if as_json { to_json(&fidelity) } else { Ok(fidelity.to_text()) }
}

impl FidelityArgs {
    /// Fails if the options contradict each other.
    pub fn check(&self) -> anyhow::Result<()> {
        let Some(picture) = &self.picture else { return Ok(()) };
        if !self.fidelity {
            wrong!("--picture shows what --fidelity measures: give both");
        }
        if picture.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("svg")) {
            wrong!("--picture {}: a picture's name ends in .svg", picture.display());
        }
        Ok(())
    }
}

impl Fidelity {
    fn of(
        (file, dataset): (&Path, &dyn Dataset),
        groups: &ScanGroups,
        samples: &[measure::SampleFidelity],
    ) -> anyhow::Result<Self> {
        let source_bytes = samples.iter().map(|sample| sample.source_bytes).sum::<u64>();
        let cut = samples.iter().filter_map(|sample| sample.cut.as_ref().ok());
        let mut whole = BTreeMap::new();
        for why in samples.iter().filter_map(|sample| sample.cut.as_ref().err()) {
            *whole.entry(why.clone()).or_insert(0) += 1;
        }
        if cut.clone().next().is_none() {
            let why = whole.keys().map(String::as_str).collect::<Vec<_>>().join("; ");
            bail!("none of the measured samples is a JPEG that can be cut into scan groups ({why})");
        }
        let whole_bytes =
            samples.iter().filter(|sample| sample.cut.is_err()).map(|sample| sample.source_bytes).sum::<u64>();
        let figures = groups.numbers().iter().enumerate().map(|(number, &group)| {
            let bytes = whole_bytes + cut.clone().map(|cut| cut.bytes[number]).sum::<u64>();
            let similar = cut.clone().filter_map(|cut| cut.similarity[number].as_ref());
            GroupFigures {
                group,
                bytes,
                share: bytes as f64 / source_bytes as f64,
                ssim: Spread::of(similar.clone().map(|similarity| similarity.luma).collect()),
                ms_ssim_mean: mean(&similar.clone().filter_map(|similarity| similarity.luma_ms).collect::<Vec<_>>()),
                chroma_ssim_mean: mean(&similar.map(|similarity| similarity.chroma).collect::<Vec<_>>()),
            }
        });
        Ok(Self {
            file: file.to_owned(),
            kind: dataset.kind(),
            samples: dataset.len(),
            measured: samples.len() as u64,
            cut: cut.clone().count() as u64,
            rewritten: cut.clone().filter(|cut| cut.is_rewritten).count() as u64,
            source_bytes,
            groups: figures.collect(),
            marker_bytes: cut.map(|cut| cut.marker_bytes).sum(),
            whole,
        })
    }

    fn to_text(&self) -> String {
        let mut out = String::new();
        let measured = format!("{} of {}", text::count(self.measured), text::plural(self.samples, "sample"));
        let _ = writeln!(out, "{}: {}, fidelity of {measured}", self.file.display(), self.kind);
        let mean_bytes = |bytes: u64| text::count((bytes as f64 / self.measured as f64).round() as u64);
        row(&mut out, "sources", &format!("{} B an image", mean_bytes(self.source_bytes)));
        let rewritten = format!("{}, {} of them rewritten as progressive ones", self.cut, self.rewritten);
        row(&mut out, "cut", &rewritten);
        for (why, count) in &self.whole {
            row(&mut out, "whole in group 1", &format!("{}: {}", text::count(*count), text::printable(why)));
        }
        let columns = ["group", "B an image", "÷ sources", "SSIM mean", "5th pct.", "least", "MS-SSIM", "chroma"];
        let _ = writeln!(out, "\n{}", line(&columns.map(String::from)));
        let figure = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.3}"));
        for group in &self.groups {
            let ssim = |part: fn(&Spread) -> f64| figure(group.ssim.as_ref().map(part));
            let cells = [
                group.group.to_string(),
                mean_bytes(group.bytes),
                format!("{:.3}", group.share),
                ssim(|ssim| ssim.mean),
                ssim(|ssim| ssim.percentile_5),
                ssim(|ssim| ssim.least),
                figure(group.ms_ssim_mean),
                figure(group.chroma_ssim_mean),
            ];
            let _ = writeln!(out, "{}", line(&cells));
        }
        let all = self.groups.last().map_or(0, |group| group.bytes) + self.marker_bytes;
        let share = format!("{:.3}", all as f64 / self.source_bytes as f64);
        let _ = writeln!(out, "{}", line(&["+ markers".to_owned(), mean_bytes(all), share]));
        out
    }
}

/// Formats the first cells of a row of the table.
fn line(cells: &[String]) -> String {
    const WIDTHS: [usize; 8] = [9, 12, 11, 11, 10, 8, 9, 8];
    let padded = cells.iter().zip(WIDTHS).map(|(cell, width)| format!("{cell:>width$}"));
    padded.collect::<String>()
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_unstable_by(f64::total_cmp);
        let least = *values.first()?;
        // Linear between neighbours, as numpy's percentile.
        let at = (values.len() - 1) as f64 * 0.05;
        let (low, high) = (values[at.floor() as usize], values[at.ceil() as usize]);
        Some(Self { mean: mean(&values)?, percentile_5: low + (high - low) * at.fract(), least })
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_lie_between_neighbours_as_in_numpy() {
        let spread = Spread::of((0..=10).rev().map(f64::from).collect()).unwrap();
        assert_eq!((spread.mean, spread.percentile_5, spread.least), (5.0, 0.5, 0.0));
        let one = Spread::of(vec![0.25]).unwrap();
        assert_eq!((one.mean, one.percentile_5, one.least), (0.25, 0.25, 0.25));
        assert!(Spread::of(Vec::new()).is_none());
    }
}
