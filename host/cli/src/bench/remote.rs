//! `ddlp bench remote`: how fast images come from a server behind a long line.
//!
//! [`line`](mod@super::line) is the line; [`place`] says where it leads; [`receiver`] receives without a loader;
//! [`figures`] has the results.

mod figures;
mod place;
mod receiver;

use super::cases;
use super::child::{DriveOptions, RunFigures, Setting};
use super::line::{Line, LineSpec};
use crate::interrupt::Interrupt;
use crate::output::{self, Files};
use crate::run::{parse_positive, parse_seconds};
use crate::{Ending, machine};
use anyhow::{bail, ensure};
use clap::Args;
use ddlp_host::{Host, open_dataset};
use figures::{FILE, RemoteFigures, Way};
use place::{Servers, Url};
use receiver::Receiver;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The ways of loading, and the options of `ddlp run` for them.
const WAYS: [(&str, &[&str]); 7] = [
    ("one", &["--fetch-depth", "1"]),
    ("64-in-order", &["--fetch-depth", "64"]),
    ("64-out-of-order", &["--fetch-depth", "64", "--fetch", "out-of-order"]),
    (AUTO, &[]),
    ("ramped", &["--ramp-up", "2"]),
    ("out-of-order", &["--fetch", "out-of-order"]),
    ("ramped-out-of-order", &["--fetch", "out-of-order", "--ramp-up", "2"]),
];
/// The way without options, in which a run also loads without the line.
const AUTO: &str = "auto";
/// Most seconds of the plain receiver, whose rate does not change.
const RECEIVER_S_MAX: f64 = 10.0;

/// Measure loading from a server behind a long line.
///
/// Puts a line of its own between loader and server, which delays the bytes and limits their rate. For each jitter and
/// round trip it measures each way of loading and then a plain receiver, which asks for as many bytes for an image and
/// drops them. With --file it first measures loading from that file, and loader and receiver without the line.
///
/// In front of a cluster of Redis servers, each master has a line, and all lines together have one rate. A cluster of
/// Cassandra has to have one node.
///
/// The ways: one sample at a time; 64 at a time, in order or out of order; auto, as many as latency and rate need; the
/// same with a slow start (ramped), and out of order.
///
/// The server should be near, since its own round trip is added. TLS does not go through the line.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ddlp bench remote http://127.0.0.1:8080/train.ddlp
  ddlp bench remote http://127.0.0.1:8080/train.ddlp --rtt 0,150 --limit 100 --jitter 0,20 --json remote.json
  ddlp bench remote http://127.0.0.1:8080/train.ddlp --file train.ddlp --rtt 0,150 --way ramped-out-of-order
  ddlp bench remote http://127.0.0.1:8080/train.ddlp --seconds 5 -- --threads 4     a quick look")]
pub struct RemoteArgs {
    /// URL of the dataset, beginning with http://, redis:// or cql://
    url: String,
    /// Round trips of the line in milliseconds
    #[arg(long, value_name = "MS,…", value_delimiter = ',', default_value = "0,10,100,150", value_parser = parse_ms)]
    rtt: Vec<Duration>,
    /// Longest additional delays of a piece of an answer in milliseconds, drawn anew for each piece
    #[arg(long, value_name = "MS,…", value_delimiter = ',', default_value = "0", value_parser = parse_ms)]
    jitter: Vec<Duration>,
    /// Ways of loading [default: all]
    #[arg(long, value_name = "WAY,…", value_delimiter = ',', value_parser = WAYS.map(|(name, _)| name))]
    way: Vec<String>,
    /// The same pack in a file, to compare with [default: no comparison]
    #[arg(long, value_name = "PACK")]
    file: Option<PathBuf>,
    /// Rate of the line in 10⁶ bytes per second [default: no limit]
    #[arg(long, value_name = "MB/S", value_parser = parse_rate)]
    limit: Option<f64>,
    /// Samples per batch
    #[arg(
        long, visible_alias = "batch", value_name = "N", default_value_t = 64,
        value_parser = clap::value_parser!(u32).range(1..=65_536)
    )]
    batch_size: u32,
    /// Seconds that a run takes, about
    #[arg(long, value_name = "S", default_value_t = 60.0, value_parser = parse_seconds)]
    seconds: f64,
    /// Images that the plain receiver asks for at once: at a web server over as many connections, at each server of
    /// Redis or Cassandra over four
    #[arg(long, value_name = "N", default_value = "64", value_parser = parse_positive)]
    connections: u64,
    /// Seed of the line's draws
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Write the figures as JSON (- for standard output)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Options of `ddlp run` for every run
    #[arg(last = true, value_name = "OPTIONS")]
    options: Vec<String>,
}

pub(super) fn parse_ms(text: &str) -> Result<Duration, String> {
    let ms: f64 = text.parse().map_err(|_| "give a number of milliseconds".to_owned())?;
    Duration::try_from_secs_f64(ms / 1000.0)
        .ok()
        .filter(|time| time.as_secs() < 60)
        .ok_or_else(|| "give a number from 0 to 60000".to_owned())
}

pub(super) fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| "give a number of megabytes per second above 0".to_owned())
}

/// Runs the command.
pub fn remote(args: &RemoteArgs, interrupt: &Interrupt) -> anyhow::Result<Ending> {
    let url = Url::of(&args.url)?;
    if let Some(path) = &args.json {
        output::check_writable(path, "the JSON report")?;
    }
    let dataset = open_dataset(Path::new(&args.url), &Host::system())?;
    files(args).check(&*dataset, Path::new(&args.url))?;
    let servers = url.servers()?;
    let mut bench = Bench { args, url, servers, samples: dataset.len(), interrupt, ways: Vec::new() };
    drop(dataset);
    let is_complete = bench.all()?;
    let figures = RemoteFigures {
        version: machine::revision(),
        machine: machine::describe(),
        url: args.url.clone(),
        limit_mb_per_s: args.limit,
        batch: args.batch_size,
        ways: bench.ways,
    };
    if !is_complete {
        eprintln!("\nstopped by {}; the figures so far:", interrupt.what());
    }
    output::report(&figures.describe(), args.json.as_deref(), &figures)?;
    Ok(if is_complete { Ending::Done } else { Ending::Interrupted })
}

/// Returns the files that the command reads and writes, except for the dataset.
fn files(args: &RemoteArgs) -> Files<'_> {
    Files::default().reads("--file", args.file.clone()).writes("--json", args.json.as_deref())
}

/// A measurement, and its results so far.
struct Bench<'a> {
    args: &'a RemoteArgs,
    url: Url<'a>,
    servers: Servers,
    samples: u64,
    interrupt: &'a Interrupt,
    ways: Vec<Way>,
}

impl Bench<'_> {
    /// Measures everything. Returns false if it was interrupted.
    fn all(&mut self) -> anyhow::Result<bool> {
        let args = self.args;
        let mut bytes_an_image = 1;
        if let Some(file) = &args.file {
            let here = [(FILE, file.as_path()), (AUTO, Path::new(&args.url))];
            for (name, dataset) in here {
                let Some(bytes) = self.run(name, None, dataset, &[])? else { return Ok(false) };
                bytes_an_image = bytes;
            }
            self.receive(None, bytes_an_image)?;
        }
        let bytes_per_s = args.limit.map(|mb| mb * 1e6);
        let spec = |jitter, round_trip| LineSpec { round_trip, jitter, bytes_per_s, seed: args.seed };
        for spec in args.jitter.iter().flat_map(|&jitter| args.rtt.iter().map(move |&rtt| spec(jitter, rtt))) {
            let is_wanted = |name: &str| args.way.is_empty() || args.way.iter().any(|way| way == name);
            for (name, options) in WAYS.into_iter().filter(|(name, _)| is_wanted(name)) {
                let line = self.line(spec)?;
                let through = format!("{}://{}{}", self.url.scheme, line.addresses()[0], self.url.path);
                let Some(bytes) = self.run(name, Some(spec), Path::new(&through), options)? else { return Ok(false) };
                if let Some(server) = line.unused() {
                    bail!(
                        "the run has not reached {server} by the line: is it the address that the cluster announces?"
                    );
                }
                bytes_an_image = bytes;
            }
            self.receive(Some(spec), bytes_an_image)?;
        }
        Ok(true)
    }

    /// Measures a way of loading. Returns the bytes read for an image, or `None` if it was interrupted.
    fn run(
        &mut self,
        name: &str,
        line: Option<LineSpec>,
        dataset: &Path,
        options: &[&str],
    ) -> anyhow::Result<Option<u64>> {
        let Some(run) = measure(self.args, dataset, options, self.samples, self.interrupt)? else { return Ok(None) };
        self.show(Way::of_run(name, line, &run));
        Ok(Some(((run.read_mb * 1e6 / run.images as f64) as u64).max(1)))
    }

    /// Measures the plain receiver.
    fn receive(&mut self, spec: Option<LineSpec>, bytes: u64) -> anyhow::Result<()> {
        let line = spec.map(|spec| self.line(spec)).transpose()?;
        let through = line.as_ref().map(|line| line.addresses().iter().map(ToString::to_string).collect());
        let servers: Vec<String> = through.unwrap_or_else(|| self.servers.all.clone());
        let receiver = Receiver { url: &self.url, servers: &servers, bytes };
        let seconds = Duration::from_secs_f64(self.args.seconds.min(RECEIVER_S_MAX));
        let received = receiver.receive(self.args.connections, seconds)?;
        self.show(Way::of_receiver(spec, &received));
        Ok(())
    }

    /// Begins a line to the servers.
    fn line(&self, spec: LineSpec) -> anyhow::Result<Line> {
        Line::start(&self.servers.all, self.servers.are_cluster, spec)
    }

    fn show(&mut self, way: Way) {
        eprintln!("{way}");
        self.ways.push(way);
    }
}

/// Measures a way of loading: runs with more and more samples, until one takes about the wanted time. Returns `None` if
/// it was interrupted.
fn measure(
    args: &RemoteArgs,
    dataset: &Path,
    options: &[&str],
    samples: u64,
    interrupt: &Interrupt,
) -> anyhow::Result<Option<RunFigures>> {
    let batch = u64::from(args.batch_size);
    let mut wanted = batch;
    loop {
        let epochs = wanted.div_ceil(samples);
        let mut common = vec!["--batch-size".into(), batch.to_string(), "--epochs".into(), epochs.to_string()];
        common.extend(args.options.iter().cloned().chain(options.iter().map(ToString::to_string)));
        let setting = Setting { dataset, common, drive: DriveOptions::Remote, tail_slots: None };
        let Some(run) = setting.run(cases::CPU, wanted.min(samples), interrupt)? else { return Ok(None) };
        ensure!(run.images > 0, "a run delivered no image");
        let seconds = run.images as f64 / run.images_per_s;
        // The next run is to be long enough, or longer by a factor that an estimate from a short run can bear.
        if seconds >= args.seconds * 0.9 {
            return Ok(Some(run));
        }
        let factor = (args.seconds / seconds.max(1e-3)).min(16.0);
        wanted = ((run.images as f64 * factor * 1.05) as u64).next_multiple_of(batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_that_names_a_file_is_an_input_or_an_output() {
        output::assert_complete(files, &["url", "options"]);
    }
}
