//! `ddlp bench remote`: how fast images come from a server behind a long line.
//!
//! [`line`](mod@super::line) is the line; [`receiver`] receives without a loader; [`figures`] has the results.

mod figures;
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
use figures::{RemoteFigures, Way};
use receiver::Receiver;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The ways of loading, and the options of `ddlp run` for them.
const WAYS: [(&str, &[&str]); 5] = [
    ("one at a time", &["--fetch-depth", "1"]),
    ("64 at a time", &["--fetch-depth", "64"]),
    ("as many as needed", &[]),
    ("the same, slow start", &["--ramp-up", "2"]),
    ("the same, unordered", &["--fetch", "out-of-order"]),
];

/// Measure loading from a server behind a long line.
///
/// Puts a line of its own between loader and server, which delays the bytes and limits their rate. For each round trip
/// it measures each way of loading and then, at a web server, a plain receiver, which asks for as many bytes for an
/// image and drops them.
///
/// The server should be near, since its own round trip is added. TLS does not go through the line.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ddlp bench remote http://127.0.0.1:8080/train.ddlp
  ddlp bench remote http://127.0.0.1:8080/train.ddlp --rtt 0,150 --limit 100 --jitter 20 --json remote.json
  ddlp bench remote http://127.0.0.1:8080/train.ddlp --seconds 5 -- --threads 4     a quick look")]
pub struct RemoteArgs {
    /// URL of the dataset, beginning with http://, redis:// or cql://
    url: String,
    /// Round trips of the line in milliseconds
    #[arg(long, value_name = "MS,…", value_delimiter = ',', default_value = "0,10,100,150", value_parser = parse_ms)]
    rtt: Vec<Duration>,
    /// Longest additional delay of a piece of an answer in milliseconds, drawn anew for each piece
    #[arg(long, value_name = "MS", default_value = "0", value_parser = parse_ms)]
    jitter: Duration,
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
    /// Connections of the plain receiver
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

fn parse_ms(text: &str) -> Result<Duration, String> {
    let ms: f64 = text.parse().map_err(|_| "give a number of milliseconds".to_owned())?;
    Duration::try_from_secs_f64(ms / 1000.0)
        .ok()
        .filter(|time| time.as_secs() < 60)
        .ok_or_else(|| "give a number from 0 to 60000".to_owned())
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| "give a number of megabytes per second above 0".to_owned())
}

/// The parts of a URL.
struct Url<'a> {
    scheme: &'a str,
    /// Host and port.
    server: String,
    path: &'a str,
}

impl<'a> Url<'a> {
    fn of(url: &'a str) -> anyhow::Result<Self> {
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let port = match scheme {
            "http" => 80,
            "redis" => 6379,
            "cql" => 9042,
            _ => bail!("give a URL that begins with http://, redis:// or cql://; what goes by TLS cannot be delayed"),
        };
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        // A message must not show a password.
        ensure!(!host.is_empty() && !host.contains('@'), "give a URL with a host, and without user and password");
        ensure!(!host.contains(','), "name one host: the line leads to one server, and a cluster has to have one node");
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let server = if has_port { host.to_owned() } else { format!("{host}:{port}") };
        Ok(Self { scheme, server, path })
    }
}

/// Runs the command.
pub fn remote(args: &RemoteArgs, interrupt: &Interrupt) -> anyhow::Result<Ending> {
    let url = Url::of(&args.url)?;
    if let Some(path) = &args.json {
        output::check_writable(path, "the JSON report")?;
    }
    let dataset = open_dataset(Path::new(&args.url), &Host::system())?;
    files(args).check(&*dataset, Path::new(&args.url))?;
    let samples = dataset.len();
    drop(dataset);
    let mut figures = RemoteFigures {
        version: machine::revision(),
        machine: machine::describe(),
        url: args.url.clone(),
        jitter_ms: args.jitter.as_secs_f64() * 1e3,
        limit_mb_per_s: args.limit,
        batch: args.batch_size,
        ways: Vec::new(),
    };
    let mut is_complete = true;
    'all: for &round_trip in &args.rtt {
        let bytes_per_s = args.limit.map(|mb| mb * 1e6);
        let spec = LineSpec { round_trip, jitter: args.jitter, bytes_per_s, seed: args.seed };
        let rtt_ms = round_trip.as_secs_f64() * 1e3;
        let mut bytes_an_image = 1;
        for (name, options) in WAYS {
            let line = Line::start(url.server.clone(), spec)?;
            let through = format!("{}://{}{}", url.scheme, line.address(), url.path);
            let Some(run) = measure(args, &through, options, samples, interrupt)? else {
                is_complete = false;
                break 'all;
            };
            let way = Way::of_run(name, rtt_ms, &run);
            eprintln!("{way}");
            bytes_an_image = ((run.read_mb * 1e6 / run.images as f64) as u64).max(1);
            figures.ways.push(way);
        }
        if url.scheme == "http" {
            let line = Line::start(url.server.clone(), spec)?;
            let receiver = Receiver { address: line.address(), path: url.path, bytes: bytes_an_image };
            let images_per_s = receiver.images_per_s(args.connections, Duration::from_secs_f64(args.seconds))?;
            let way = Way::of_receiver(rtt_ms, images_per_s, bytes_an_image);
            eprintln!("{way}");
            figures.ways.push(way);
        }
    }
    if !is_complete {
        eprintln!("\nstopped by {}; the figures so far:", interrupt.what());
    }
    // The table first, so that it is not lost if the JSON report cannot be written.
    if args.json.as_deref().is_some_and(|path| path.as_os_str() == output::STDOUT) {
        eprint!("{}", figures.describe());
    } else {
        output::print(&figures.describe())?;
    }
    if let Some(path) = &args.json {
        output::write(path, &serde_json::to_vec_pretty(&figures)?, "the JSON report")?;
    }
    Ok(if is_complete { Ending::Done } else { Ending::Interrupted })
}

/// Returns the files that the command reads and writes, except for the dataset.
fn files(args: &RemoteArgs) -> Files<'_> {
    Files::default().writes("--json", args.json.as_deref())
}

/// Measures a way of loading: runs with more and more samples, until one takes about the wanted time. Returns `None` if
/// it was interrupted.
fn measure(
    args: &RemoteArgs,
    url: &str,
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
        let setting = Setting { dataset: Path::new(url), common, drive: DriveOptions::Remote, tail_slots: None };
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

    #[test]
    fn urls_have_a_server_and_a_path() {
        let of = |url| Url::of(url).map(|url| (url.scheme.to_owned(), url.server, url.path.to_owned()));
        let parts = |scheme: &str, server: &str, path: &str| (scheme.into(), server.into(), path.into());
        assert_eq!(of("http://h/a/b.ddlp").unwrap(), parts("http", "h:80", "/a/b.ddlp"));
        assert_eq!(of("cql://h/k/x").unwrap(), parts("cql", "h:9042", "/k/x"));
        assert_eq!(of("redis://[::1]:7000/0/x").unwrap(), parts("redis", "[::1]:7000", "/0/x"));
        for wrong in ["https://h/a", "a.ddlp", "http:///a", "redis://me:secret@h/0/x", "cql://a,b/k/x"] {
            let error = of(wrong).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
