//! `ddlp-device doctor`: looks at a board and says in plain words whether it can serve, how fast, and what would help.
//!
//! - `system`: the kernel's files, through a root. `finding`: what is said, and how it is shown.
//! - One file per subject: `identity`, `service` (what its sandbox hides), `cores`, `memory` (and the room for slots), `pixels` (vector
//!   instructions, fingerprint), `storage`, `network`, `clock`, `heat`, `rate` (images per second; `sample` makes the images).
//!
//! A failure is what keeps the agent from serving: it would end with an error. All else is a warning at most. Nothing is changed:
//! slots and identity of a running agent stay untouched. Limits: storage is read by one request at a time, cores are measured one by one.

mod clock;
mod cores;
mod finding;
mod heat;
mod identity;
mod memory;
mod network;
mod pixels;
mod rate;
mod sample;
mod service;
mod storage;
mod system;

use crate::agent::{ServeArgs, Settings};
use crate::slots::Backing;
use anyhow::{Context, Result};
use clap::Args;
use console::Term;
use ddlp_dataset::Dataset;
use finding::{Finding, Level, Lines};
use serde::Serialize;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Characters of a line that no terminal shows, and of any line at least.
const WIDTH: usize = 100;
const WIDTH_MIN: usize = 40;

const EXAMPLES: &str = "\
Examples:
  What this board can do, without a dataset:
    ddlp-device doctor
  Whether it can serve a pack, with its slots in a file on flash:
    ddlp-device doctor --dataset train.ddlp --results /var/lib/ddlp-device/slots
  What the installed service would find, with the service's rights:
    sudo -u ddlp-device ddlp-device doctor --config /etc/ddlp-device/drive.toml";

/// Options of `ddlp-device doctor`.
#[derive(Args, Clone, Debug, Default)]
#[command(after_long_help = EXAMPLES)]
pub struct DoctorArgs {
    /// Dataset that is to be served: it is opened, and read for some seconds.
    #[arg(long, value_name = "PATH")]
    pub dataset: Option<PathBuf>,
    /// Where the result slots are to be: `ram` or a file. Beside a file, up to 256 MiB are written and removed again.
    #[arg(long, value_name = "PATH|ram")]
    pub results: Option<String>,
    /// Configuration of the agent; options on the command line win over it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print everything that was found as JSON, at the end.
    #[arg(long)]
    pub json: bool,
}

/// The dataset.
#[derive(Clone, Debug, Serialize)]
struct Data {
    path: PathBuf,
    kind: &'static str,
    samples: u64,
    classes: usize,
    identity: String,
}

/// Everything that was found. Its JSON is what `--json` prints.
#[derive(Serialize)]
struct Examination {
    version: &'static str,
    architecture: &'static str,
    /// Whether nothing keeps the agent from serving.
    can_serve: bool,
    dataset: Option<Data>,
    /// `None` for an agent that keeps none.
    identity: Option<identity::Kept>,
    cores: cores::Cores,
    memory: memory::Memory,
    pixels: pixels::Pixels,
    storage: storage::Storage,
    network: network::Network,
    clock: clock::Clock,
    heat: heat::Heat,
    speed: rate::Rate,
    findings: Vec<Finding>,
}

/// Collects findings, and shows them as they come unless JSON is wanted.
struct Notes {
    findings: Vec<Finding>,
    is_shown: bool,
    /// Characters of a line.
    width: usize,
}

impl Notes {
    fn add(&mut self, findings: Vec<Finding>) -> Result<()> {
        if self.is_shown {
            print(&Lines { findings: &findings, width: self.width }.to_string())?;
        }
        self.findings.extend(findings);
        Ok(())
    }

    fn count(&self, level: Level) -> usize {
        self.findings.iter().filter(|finding| finding.level == level).count()
    }
}

/// Examines the board, prints what it found, and says whether the agent could serve.
pub fn doctor(args: &DoctorArgs) -> Result<bool> {
    let mut notes = Notes { findings: Vec::new(), is_shown: !args.json, width: width() };
    if !args.json {
        let (version, architecture) = (env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
        print(&format!("ddlp-device {version} on {architecture}: this takes some seconds\n\n"))?;
    }
    let examination = examine(args, &mut notes)?;
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&examination)?))?;
        return Ok(examination.can_serve);
    }
    let warnings = notes.count(Level::Warning);
    let warned = if warnings == 1 { "1 warning".into() } else { format!("{warnings} warnings") };
    let verdict = match notes.count(Level::Failure) {
        0 => "Nothing keeps the drive from serving".into(),
        1 => "The drive cannot serve: 1 failure above".into(),
        failures => format!("The drive cannot serve: {failures} failures above"),
    };
    print(&format!("\n{verdict}; {warned}.\n"))?;
    Ok(examination.can_serve)
}

/// Characters of a line: as many as the terminal has, if it is one that reads this.
fn width() -> usize {
    let terminal = Term::stdout();
    let columns = terminal.size_checked().filter(|_| terminal.is_term()).map(|(_, columns)| usize::from(columns));
    columns.unwrap_or(WIDTH).max(WIDTH_MIN)
}

/// A reader that has gone (`| head`) is no error: the status still tells the verdict.
fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        printed => printed.context("cannot write to standard output"),
    }
}

fn examine(args: &DoctorArgs, notes: &mut Notes) -> Result<Examination> {
    let system = system::System::running();
    let (settings, are_asked) = settings(args, notes)?;
    let dataset = open(&settings.dataset, are_asked, notes)?;
    let identity = identity::Kept::read(&settings.identity);
    notes.add(identity.iter().flat_map(identity::Kept::findings).collect())?;
    notes.add(service::findings(&system, args.config.as_deref(), &settings))?;
    let data = dataset.as_deref().map(|dataset| (settings.dataset.as_path(), dataset));
    let cores = cores::Cores::read(&system, &settings.cores, settings.threads);
    notes.add(cores.findings())?;
    let memory = memory::Memory::read(&system, &settings.results, settings.geometry);
    notes.add(memory.findings())?;
    let pixels = pixels::Pixels::read();
    notes.add(pixels.findings())?;
    let slots = match &settings.results {
        // Where there is no place for them, that has been said.
        Backing::File(path) if memory.slots_that_fit.is_some() => Some(path.as_path()),
        _ => None,
    };
    let storage = storage::Storage::measure(data, slots);
    notes.add(storage.findings())?;
    let network = network::Network::read(&system, settings.listen, settings.discovery);
    notes.add(network.findings())?;
    let clock = clock::Clock::read();
    notes.add(clock.findings())?;
    let heat = heat::Heat::read(&system);
    notes.add(heat.findings())?;
    let speed = rate::Rate::measure(&cores, dataset.as_deref(), settings.throttle.fraction());
    notes.add(speed.findings())?;
    notes.add(bottlenecks(&speed, &storage, &network))?;
    let describe = |(path, dataset): (&Path, &dyn Dataset)| Data {
        path: path.to_owned(),
        kind: dataset.kind(),
        samples: dataset.len(),
        classes: dataset.classes().len(),
        identity: dataset.identity().to_string(),
    };
    Ok(Examination {
        version: env!("CARGO_PKG_VERSION"),
        architecture: std::env::consts::ARCH,
        can_serve: notes.count(Level::Failure) == 0,
        dataset: data.map(describe),
        identity,
        cores,
        memory,
        pixels,
        storage,
        network,
        clock,
        heat,
        speed,
        findings: notes.findings.clone(),
    })
}

/// What `ddlp-device serve` would make of the same options. What it would refuse is a failure, and the rest is examined by defaults:
/// false.
fn settings(args: &DoctorArgs, notes: &mut Notes) -> Result<(Settings, bool)> {
    let needs_none = args.dataset.is_none() && args.config.is_none();
    let asked = ServeArgs {
        // An empty path stands for none: a board is examined before there is a dataset, too.
        dataset: if needs_none { Some(PathBuf::new()) } else { args.dataset.clone() },
        results: args.results.clone(),
        config: args.config.clone(),
        ..ServeArgs::default()
    };
    match Settings::from_args(asked) {
        Ok(settings) => Ok((settings, true)),
        Err(error) => {
            let advice = "`ddlp-device serve` would refuse it as well; what follows holds for defaults";
            notes.add(vec![Finding::failure("settings", format!("{error:#}"), advice)])?;
            let dataset = args.dataset.clone().or_else(|| Some(PathBuf::new()));
            Ok((Settings::from_args(ServeArgs { dataset, ephemeral: true, ..ServeArgs::default() })?, false))
        }
    }
}

/// `are_asked`: the settings are those that were asked for.
fn open(path: &Path, are_asked: bool, notes: &mut Notes) -> Result<Option<Box<dyn Dataset>>> {
    const SUBJECT: &str = "dataset";
    if path.as_os_str().is_empty() {
        notes.add(vec![if are_asked {
            Finding::fine(SUBJECT, "none is named: give --dataset or --config to check one")
        } else {
            let advice = "mend them, or give --dataset to have one looked at all the same";
            Finding::warning(SUBJECT, "not looked at, as the settings are wrong", advice)
        }])?;
        return Ok(None);
    }
    match ddlp_dataset::open(path) {
        Ok(dataset) => {
            let (kind, samples, classes) = (dataset.kind(), dataset.len(), dataset.classes().len());
            let text = format!("{}: {kind}, {samples} samples in {classes} classes", path.display());
            notes.add(vec![Finding::fine(SUBJECT, text)])?;
            Ok(Some(dataset))
        }
        Err(error) => {
            let advice = "make one with `ddlp pack`, name it in `dataset`, and let the user ddlp-device read it";
            notes.add(vec![Finding::failure(SUBJECT, format!("{:#}", anyhow::Error::from(error)), advice)])?;
            Ok(None)
        }
    }
}

/// What is slower than the cores.
fn bottlenecks(speed: &rate::Rate, storage: &storage::Storage, network: &network::Network) -> Vec<Finding> {
    const SUBJECT: &str = "balance";
    let Some((images_per_s, image_bytes)) = speed.expected() else { return Vec::new() };
    let mut findings = Vec::new();
    let storage = storage.read.filter(|read| read.bytes > 0).map(|read| read.bytes_per_s() / image_bytes);
    if let Some(fed) = storage.filter(|fed| *fed < images_per_s) {
        let text = format!("reading in order feeds {} images/s, fewer than the cores prepare", rate::about(fed));
        findings.push(Finding::warning(SUBJECT, text, "put the dataset on faster storage"));
    }
    if let Some((link, carried)) = network.fastest().filter(|(_, carried)| *carried < images_per_s) {
        let text = format!("{link} carries {} images/s, fewer than the cores prepare", rate::about(carried));
        let advice = "use a faster link, or smaller images: results cross it as 3 bytes a pixel";
        findings.push(Finding::warning(SUBJECT, text, advice));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_slower_than_the_cores_is_named() {
        let speed = rate::Rate {
            built_in: vec![rate::CoreRate {
                core: 0,
                alike: 1,
                images: 1,
                samples: 1,
                unprepared: 0,
                images_per_s: 1000.0,
                image_bytes: 1e5,
            }],
            workers: 1,
            expected_images_per_s: Some(1000.0),
            ..rate::Rate::default()
        };
        let read = |bytes| Some(storage::Speed { bytes, seconds: 1.0, is_direct: true });
        let storage = |bytes| storage::Storage { read: read(bytes), ..storage::Storage::default() };
        let network = |listen: &str| network::Network {
            listen: listen.parse().unwrap(),
            listening: network::Listening::Free,
            discovery: None,
            interfaces: vec![network::Interface {
                name: "eth0".into(),
                is_physical: true,
                mbit_s: Some(1000),
                mtu: None,
                addresses: vec!["192.0.2.1".parse().unwrap()],
            }],
        };
        let texts = |storage, network| -> Vec<String> {
            bottlenecks(&speed, &storage, &network).into_iter().map(|finding| finding.text).collect()
        };
        let local = || network("127.0.0.1:4420");
        assert!(texts(storage(200_000_000), local()).is_empty());
        assert!(texts(storage(0), local()).is_empty(), "nothing was read, so nothing is known");
        assert!(texts(storage(50_000_000), local())[0].contains("feeds 500 images/s"));
        assert!(texts(storage(200_000_000), network("192.0.2.1:4420"))[0].contains("carries 780 images/s"));
    }
}
