//! `ddlp-device doctor`: says whether the agent can serve on this machine, what keeps it from serving, and how many
//! images/s to expect.
//!
//! - `finding`: one finding, and how it is shown.
//! - One file per subject: `identity`, `memory` (and the room for slots), `reach` (whether hosts reach the agent),
//!   `rate` (images/s).
//!
//! A failure means that `serve` would end with an error; anything less is a warning at most. The doctor changes
//! nothing: it leaves the slots and the identity of a running agent alone.

mod finding;
mod identity;
mod memory;
mod rate;
mod reach;

use crate::agent::{ServeArgs, Settings, opening};
use anyhow::{Context, Result};
use clap::Args;
use ddlp_dataset::Dataset;
use finding::{Finding, Severity};
use serde::Serialize;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  Check whether this machine can serve a pack, with the slots in a file on flash:
    ddlp-device doctor --dataset train.ddlp --results /var/lib/ddlp-device/slots
  Check the installed service's configuration, with the service's rights:
    sudo -u ddlp-device ddlp-device doctor --config /etc/ddlp-device/drive.toml";

/// Options of `ddlp-device doctor`.
#[derive(Args, Clone, Debug, Default)]
#[command(after_long_help = EXAMPLES)]
pub struct DoctorArgs {
    /// Dataset to serve; the doctor opens it, and prepares its samples for some seconds unless it lies in a store.
    #[arg(long, value_name = "PATH|URL")]
    pub dataset: Option<PathBuf>,
    /// Place for the result slots: `ram` or a file. [default: ram]
    #[arg(long, value_name = "PATH|ram")]
    pub results: Option<String>,
    /// Configuration of the agent; options on the command line take precedence.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print all findings as JSON at the end.
    #[arg(long)]
    pub json: bool,
}

/// All findings, as `--json` prints them.
#[derive(Serialize)]
struct Examination {
    version: &'static str,
    architecture: &'static str,
    /// Whether nothing keeps the agent from serving.
    can_serve: bool,
    /// `None` without a dataset.
    rate: Option<rate::Rate>,
    findings: Vec<Finding>,
}

/// Findings so far; shown one by one, unless the user wants JSON.
struct Notes {
    findings: Vec<Finding>,
    is_shown: bool,
}

impl Notes {
    fn add(&mut self, findings: Vec<Finding>) -> Result<()> {
        if self.is_shown {
            print(&findings.iter().map(Finding::to_string).collect::<String>())?;
        }
        self.findings.extend(findings);
        Ok(())
    }

    fn count(&self, level: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.level == level).count()
    }
}

/// Examines the machine, prints the findings, and returns whether the agent can serve.
pub fn doctor(args: &DoctorArgs) -> Result<bool> {
    let mut notes = Notes { findings: Vec::new(), is_shown: !args.json };
    if !args.json {
        let (version, architecture) = (env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
        print(&format!("ddlp-device {version} on {architecture}: this takes some seconds\n\n"))?;
    }
    let examination = examine(args, &mut notes)?;
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&examination)?))?;
        return Ok(examination.can_serve);
    }
    let warnings = notes.count(Severity::Warning);
    let warned = if warnings == 1 { "1 warning".into() } else { format!("{warnings} warnings") };
    let verdict = match notes.count(Severity::Failure) {
        0 if notes.count(Severity::Unchecked) > 0 => "Nothing that was checked keeps the drive from serving".into(),
        0 => "Nothing keeps the drive from serving".into(),
        1 => "The drive cannot serve: 1 failure above".into(),
        failures => format!("The drive cannot serve: {failures} failures above"),
    };
    print(&format!("\n{verdict}; {warned}.\n"))?;
    Ok(examination.can_serve)
}

/// Prints `text`. A reader that has gone (`| head`) is not an error, since the exit status still gives the verdict.
fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        printed => printed.context("cannot write to standard output"),
    }
}

fn examine(args: &DoctorArgs, notes: &mut Notes) -> Result<Examination> {
    let (settings, are_asked) = settings(args, notes)?;
    let dataset = open(&settings, are_asked, notes)?;
    notes.add(identity::finding(&settings.identity).into_iter().collect())?;
    notes.add(memory::findings(&settings.results, settings.geometry))?;
    notes.add(reach::Reach::read(settings.listen, settings.discovery).findings())?;
    let is_in_store = dataset.as_ref().is_some_and(|dataset| dataset.fetch_depth().at_once.is_some());
    if is_in_store {
        notes.add(vec![rate::unmeasured()])?;
    }
    let measure = |dataset: &dyn Dataset| rate::Rate::measure(dataset, settings.threads, settings.throttle.fraction());
    let rate = dataset.as_deref().filter(|_| !is_in_store).and_then(measure);
    notes.add(rate.map_or(Vec::new(), |rate| rate.findings()))?;
    Ok(Examination {
        version: env!("CARGO_PKG_VERSION"),
        architecture: std::env::consts::ARCH,
        can_serve: notes.count(Severity::Failure) == 0,
        rate,
        findings: notes.findings.clone(),
    })
}

/// Returns the settings that `ddlp-device serve` would take from the same options, and true. If `serve` would refuse
/// the options, adds a failure, and returns default settings and false.
fn settings(args: &DoctorArgs, notes: &mut Notes) -> Result<(Settings, bool)> {
    let needs_none = args.dataset.is_none() && args.config.is_none();
    let asked = ServeArgs {
        // An empty path stands for no dataset: a user may examine a machine before there is one.
        dataset: if needs_none { Some(PathBuf::new()) } else { args.dataset.clone() },
        results: args.results.clone(),
        config: args.config.clone(),
        ..ServeArgs::default()
    };
    match Settings::from_args(asked) {
        Ok(settings) => Ok((settings, true)),
        Err(error) => {
            let advice = "`ddlp-device serve` would refuse this too; the findings below are for the defaults";
            notes.add(vec![Finding::failure("settings", format!("{error:#}"), advice)])?;
            let dataset = args.dataset.clone().or_else(|| Some(PathBuf::new()));
            Ok((Settings::from_args(ServeArgs { dataset, ephemeral: true, ..ServeArgs::default() })?, false))
        }
    }
}

/// Opens the dataset. `are_asked` is false if the settings are defaults, because the user's were wrong.
fn open(settings: &Settings, are_asked: bool, notes: &mut Notes) -> Result<Option<Box<dyn Dataset>>> {
    const SUBJECT: &str = "dataset";
    let path = &settings.dataset;
    if path.as_os_str().is_empty() {
        notes.add(vec![if are_asked {
            Finding::unchecked(SUBJECT, "not checked: give --dataset or --config to check one and measure its rate")
        } else {
            let advice = "correct the settings, or give --dataset to check a dataset anyway";
            Finding::warning(SUBJECT, "not checked, because the settings are wrong", advice)
        }])?;
        return Ok(None);
    }
    match opening::open(settings) {
        Ok(dataset) => {
            let (kind, samples, classes) = (dataset.kind(), dataset.len(), dataset.classes().len());
            let text = format!("{}: {kind}, {samples} samples in {classes} classes", path.display());
            notes.add(vec![Finding::fine(SUBJECT, text)])?;
            Ok(Some(dataset))
        }
        Err(error) => {
            let advice = "make one with `ddlp pack`, name it in `dataset`, and let the user ddlp-device read it";
            notes.add(vec![Finding::failure(SUBJECT, format!("{error:#}"), advice)])?;
            Ok(None)
        }
    }
}
