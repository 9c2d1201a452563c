//! Results of `ddlp bench remote`, and the text that shows them.

use super::receiver::Received;
use crate::bench::child::RunFigures;
use crate::bench::line::LineSpec;
use serde::Serialize;
use std::fmt::{self, Write};
use std::time::Duration;

/// Results, as in the JSON output.
#[derive(Debug, Serialize)]
pub struct RemoteFigures {
    pub version: String,
    pub machine: String,
    pub url: String,
    /// Rate of the line in 10⁶ bytes per second; `None` without a limit.
    pub limit_mb_per_s: Option<f64>,
    pub batch: u32,
    pub ways: Vec<Way>,
}

/// Results of one way of loading.
#[derive(Debug, Serialize)]
pub struct Way {
    pub name: String,
    /// Round trip and jitter of the line; `None` without a line.
    pub rtt_ms: Option<f64>,
    pub jitter_ms: Option<f64>,
    pub images_per_s: f64,
    /// Bytes received, in 10⁶ per second.
    pub mb_per_s: f64,
    /// Images of the run, and the host's CPU time for each in µs; `None` for the plain receiver, as the rest.
    pub images: Option<u64>,
    pub cpu_us_per_image: Option<f64>,
    pub peak_memory_mb: Option<f64>,
    pub first_batch_s: Option<f64>,
}

impl Way {
    /// Returns the results of a run.
    pub fn of_run(name: &str, line: Option<LineSpec>, run: &RunFigures) -> Self {
        let images = run.images as f64;
        Self {
            name: name.to_owned(),
            rtt_ms: line.map(|line| ms(line.round_trip)),
            jitter_ms: line.map(|line| ms(line.jitter)),
            images_per_s: run.images_per_s,
            mb_per_s: run.read_mb / images * run.images_per_s,
            images: Some(run.images),
            cpu_us_per_image: Some(run.host_cpu_s / images * 1e6),
            peak_memory_mb: Some(run.peak_memory_mb),
            first_batch_s: Some(run.first_batch_s),
        }
    }

    /// Returns the results of the plain receiver.
    pub fn of_receiver(line: Option<LineSpec>, received: &Received) -> Self {
        let images_per_s = received.images_per_s;
        Self {
            name: RECEIVER.to_owned(),
            rtt_ms: line.map(|line| ms(line.round_trip)),
            jitter_ms: line.map(|line| ms(line.jitter)),
            images_per_s,
            mb_per_s: images_per_s * received.bytes_per_image / 1e6,
            images: None,
            cpu_us_per_image: None,
            peak_memory_mb: None,
            first_batch_s: None,
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rtt_ms.zip(self.jitter_ms) {
            Some((rtt, jitter)) => write!(f, "{rtt} + {jitter} ms, ")?,
            None => write!(f, "no line, ")?,
        }
        write!(f, "{}: {:.0} images/s", self.name, self.images_per_s)
    }
}

impl RemoteFigures {
    /// Returns the table. A way's rate is compared with its own rate at the first round trip, and with that of the
    /// plain receiver over the same line.
    pub fn describe(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "remote: {}, batches of {}", self.url, self.batch);
        let limit = self.limit_mb_per_s.map_or("no limit".to_owned(), |mb| format!("{mb} MB/s"));
        let _ = writeln!(out, "line     {limit}");
        let _ = writeln!(out, "machine  {}", self.machine);
        let _ = writeln!(out, "version  {}\n", self.version);
        let rates = ["RTT ms", "jitter ms", "images/s", "÷ first", "÷ receiver", "MB/s"];
        let heads = [&rates[..], &["CPU µs/image", "peak MB", "first batch s"]].concat();
        row(&mut out, "way", &heads.into_iter().map(String::from).collect::<Vec<_>>());
        for way in &self.ways {
            let is_like = |other: &&Way| other.name == way.name && other.jitter_ms == way.jitter_ms;
            let first = self.ways.iter().find(is_like).map_or(0.0, |way| way.images_per_s);
            let is_receiver =
                |other: &&Way| other.name == RECEIVER && (other.rtt_ms, other.jitter_ms) == (way.rtt_ms, way.jitter_ms);
            let receiver = self.ways.iter().find(is_receiver).filter(|_| way.name != FILE);
            let receiver = receiver.map(|receiver| way.images_per_s / receiver.images_per_s);
            let some = |figure: Option<f64>, digits: usize| {
                figure.map_or("-".to_owned(), |figure| format!("{figure:.digits$}"))
            };
            let figures = [
                some(way.rtt_ms, 0),
                some(way.jitter_ms, 0),
                format!("{:.0}", way.images_per_s),
                format!("{:.3}", way.images_per_s / first),
                some(receiver, 3),
                format!("{:.1}", way.mb_per_s),
                some(way.cpu_us_per_image, 0),
                some(way.peak_memory_mb, 0),
                some(way.first_batch_s, 2),
            ];
            row(&mut out, &way.name, &figures);
        }
        let cpu = |name: &str| {
            let found = self.ways.iter().find(|way| way.name == name && way.rtt_ms.is_none());
            found.and_then(|way| way.cpu_us_per_image)
        };
        if let Some((here, file)) = cpu("auto").zip(cpu(FILE)) {
            let more = here - file;
            let _ = writeln!(out, "\nCPU time beyond that of the file, without the line: {more:.0} µs an image");
        }
        out.push_str(PUBLISHED);
        out
    }
}

/// The way that loads from a file.
pub const FILE: &str = "file";
/// The way that is the plain receiver.
const RECEIVER: &str = "plain receiver";
/// Figures of others, to compare with.
const PUBLISHED: &str = "published (arXiv 2503.22643): 20 000 images/s, 20 Gb/s, at 100 ms, one process\n";

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn row(out: &mut String, name: &str, columns: &[String]) {
    let _ = write!(out, "{name:22}");
    for column in columns {
        let _ = write!(out, "{column:>14}");
    }
    out.push('\n');
}
