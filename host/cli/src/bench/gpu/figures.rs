//! Results of `ddlp bench gpu`, and the text that shows them.

use crate::bench::figures::{median, spread};
use crate::text;
use serde::{Serialize, Serializer};
use std::fmt::{self, Write};

/// Results, as in the JSON output. Each figure has a name.
#[derive(Debug, Serialize)]
pub struct GpuFigures {
    pub version: String,
    pub machine: String,
    pub device: String,
    pub batch: u32,
    /// Height, width and channels of an image.
    pub shape: [u32; 3],
    pub rounds: u64,
    /// Copies to the device, in 10⁹ bytes per second, compared with those from locked memory.
    #[serde(serialize_with = "named")]
    pub copies: Vec<(String, Moves)>,
    /// Kernels, in 10⁹ bytes read and written per second, compared with a copy that moves as many.
    #[serde(serialize_with = "named")]
    pub kernels: Vec<(String, Moves)>,
    /// Runs into the device, in images per second, compared with runs into host memory.
    #[serde(serialize_with = "named")]
    pub images: Vec<(String, Images)>,
}

/// A rate, and its ratio to another one that was measured before and after it.
#[derive(Debug, Serialize)]
pub struct Compared {
    pub rate: Rates,
    pub ratio: Rates,
    /// The other rate after ÷ the other rate before.
    pub control: Rates,
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rate, ratio, control } = self;
        write!(f, "{:.1}, ratio {:.3}, control {:.3}", rate.median, ratio.median, control.median)
    }
}

/// Work that moves bytes.
#[derive(Debug, Serialize)]
pub struct Moves {
    #[serde(flatten)]
    pub compared: Compared,
    /// Bytes that are moved for a batch.
    pub bytes: u64,
}

/// Runs of a loader into the device.
#[derive(Debug, Serialize)]
pub struct Images {
    #[serde(flatten)]
    pub compared: Compared,
    /// Samples of a run.
    pub samples: u64,
    pub host_cpu_s_per_1000_images: f64,
}

/// A figure of each round.
#[derive(Debug, Serialize)]
pub struct Rates {
    pub median: f64,
    /// Largest minus smallest, as a share of the median; `None` for one round.
    pub spread: Option<f64>,
    pub rounds: Vec<f64>,
}

impl Rates {
    /// Returns the figures of at least one round.
    pub fn of(rounds: Vec<f64>) -> Self {
        Self { median: median(&rounds).expect("a round"), spread: spread(&rounds), rounds }
    }

    fn spread(&self) -> String {
        self.spread.map_or("-".to_owned(), text::percent)
    }
}

impl GpuFigures {
    /// Returns the tables.
    pub fn describe(&self) -> String {
        let mut out = String::new();
        let Self { batch, shape: [height, width, channels], .. } = self;
        let rounds = text::plural(self.rounds, "round");
        let _ = writeln!(out, "gpu: batches of {batch} × {height} × {width} × {channels} bytes, medians of {rounds}");
        let _ = writeln!(out, "device   {}", self.device);
        let _ = writeln!(out, "machine  {}", self.machine);
        let _ = writeln!(out, "version  {}", self.version);
        for (title, base, all) in
            [("\ncopies to the device", "÷ locked", &self.copies), ("\nkernels", "÷ copy", &self.kernels)]
        {
            row(&mut out, title, &["GB/s", "spread", "µs/batch", base, "control"]);
            for (name, Moves { compared, bytes }) in all {
                let us = *bytes as f64 / compared.rate.median / 1e3;
                compared_row(&mut out, name, compared, format!("{us:.1}"), 1);
            }
        }
        row(&mut out, "\nruns into the device", &["images/s", "spread", "CPU ms/image", "÷ host", "control"]);
        for (name, images) in &self.images {
            compared_row(&mut out, name, &images.compared, format!("{:.3}", images.host_cpu_s_per_1000_images), 0);
        }
        out
    }
}

fn compared_row(out: &mut String, name: &str, compared: &Compared, third: String, digits: usize) {
    let Compared { rate, ratio, control } = compared;
    let [ratio, control] = [ratio, control].map(|rates| format!("{:.3}", rates.median));
    row(out, &format!("  {name}"), &[&format!("{:.digits$}", rate.median), &rate.spread(), &third, &ratio, &control]);
}

fn row(out: &mut String, name: &str, columns: &[&str]) {
    let _ = write!(out, "{name:26}");
    for column in columns {
        let _ = write!(out, "{column:>14}");
    }
    out.push('\n');
}

/// Writes named figures as one JSON object.
fn named<T: Serialize, S: Serializer>(figures: &[(String, T)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(figures.iter().map(|(name, figures)| (name, figures)))
}
