//! The output files of a run: figures, page, plan, state.

use super::args::RunArgs;
use super::pipeline_file;
use crate::machine;
use crate::output::{self, Files};
use crate::text;
use anyhow::anyhow;
use ddlp_dataset::SampleFields;
use ddlp_host::report::Report;
use ddlp_host::splits::part_of;
use ddlp_host::{LoaderState, LocalResults, Plan};
use ddlp_report::Context;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Name of the figures in messages.
pub const JSON: &str = "the JSON report";
const PAGE: &str = "the report";
const PLAN: &str = "the plan";
/// Name of the state in messages.
pub const STATE: &str = "the state";

/// Fails if one of the files cannot be written, since that should be known before the run.
pub fn check_writable(args: &RunArgs) -> anyhow::Result<()> {
    outputs(args).try_for_each(|(_, what, path)| output::check_writable(path, what))
}

/// Returns the files that this module writes: the option, what it is in messages, and the file.
fn outputs(args: &RunArgs) -> impl Iterator<Item = (&'static str, &'static str, &Path)> {
    let all = [
        ("--json", JSON, &args.json),
        ("--report", PAGE, &args.report),
        ("--plan-out", PLAN, &args.plan_out),
        ("--state-out", STATE, &args.state_out),
    ];
    all.into_iter().filter_map(|(option, what, path)| Some((option, what, path.as_deref()?)))
}

/// Returns the files that the run reads and writes, except for the dataset.
pub fn files(args: &RunArgs) -> Files<'_> {
    let results = match &args.given.drive.results {
        LocalResults::File(path) => Some(path.as_path()),
        _ => None,
    };
    outputs(args)
        .fold(Files::default(), |files, (option, _, path)| files.writes(option, Some(path)))
        .writes("--results", results)
        .reads("--pipeline", args.given.texts("pipeline").filter_map(pipeline_file))
        .reads("--fields", args.given.file("fields").into_iter().flat_map(SampleFields::files))
        .reads("--indices", args.given.file("indices").map(PathBuf::from))
        .reads("--split", args.given.text("split").and_then(|text| Some(part_of(text).ok()?.0.to_owned())))
        .reads("--classes", args.given.texts("class_names").map(PathBuf::from))
        .reads("--resume", args.resume.clone())
        .reads("--plan-in", args.plan_in.clone())
        .reads("this program", std::env::current_exe().ok())
        .reads("the agent", args.given.drive.program())
}

/// The JSON report: the loader's figures, and how they were obtained.
#[derive(Serialize)]
struct Figures<'a> {
    version: String,
    command: String,
    machine: String,
    /// The reason why the run ended before its last batch.
    ended_early: Option<&'a str>,
    /// Number of faults that the run survived; the list of faults also has recoveries.
    fault_count: usize,
    #[serde(flatten)]
    report: &'a Report,
}

/// Result of writing the files.
pub struct Written {
    /// Whether the page was written.
    pub page: bool,
    /// All failures.
    pub all: anyhow::Result<()>,
}

/// Writes all files; a failure does not keep the other files from being written.
pub fn write(args: &RunArgs, report: &Report, state: &LoaderState, plan: &Plan, ended_early: Option<&str>) -> Written {
    let context = Context {
        command: command_line(std::env::args()),
        version: machine::revision(),
        machine: machine::describe(),
        ended_early: ended_early.map(str::to_string),
        spelled: text::flags,
    };
    let figures = Figures {
        version: context.version.clone(),
        command: context.command.clone(),
        machine: context.machine.clone(),
        ended_early,
        fault_count: ddlp_report::fault_count(report),
        report,
    };
    let page = one(&args.report, PAGE, || Ok(ddlp_report::render(report, &context).into_bytes()));
    let page_is_there = args.report.is_some() && page.is_ok();
    let results = [
        one(&args.json, JSON, || Ok(serde_json::to_vec_pretty(&figures)?)),
        page,
        one(&args.plan_out, PLAN, || Ok(plan.to_bytes()?)),
        one(&args.state_out, STATE, || state_bytes(state)),
    ];
    let failed: Vec<String> = results.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    let all = if failed.is_empty() { Ok(()) } else { Err(anyhow!(failed.join("\n"))) };
    Written { page: page_is_there, all }
}

/// Serialises a state for `--resume`.
pub fn state_bytes(state: &LoaderState) -> anyhow::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(state)?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn one(
    path: &Option<impl AsRef<Path>>,
    what: &str,
    bytes: impl FnOnce() -> anyhow::Result<Vec<u8>>,
) -> anyhow::Result<()> {
    match path {
        Some(path) => output::write(path.as_ref(), &bytes()?, what),
        None => Ok(()),
    }
}

/// Formats the command for a shell, without the program's folder.
fn command_line(words: impl Iterator<Item = String>) -> String {
    let quoted = words.enumerate().map(|(index, word)| {
        let word = if index == 0 { "ddlp".to_string() } else { word };
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
        if !word.is_empty() && word.chars().all(plain) { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddlp_host::report::{CorruptReport, FaultKind, FaultReport, ProngReport};

    #[test]
    fn every_option_that_names_a_file_is_an_input_or_an_output() {
        output::assert_complete(files, &["host_nqn"]);
    }

    #[test]
    fn a_command_can_be_pasted_into_a_shell() {
        let words = ["/x/y/ddlp", "run", "my photos", "--json", "it's.json", ""].map(str::to_string);
        assert_eq!(command_line(words.into_iter()), r"ddlp run 'my photos' --json 'it'\''s.json' ''");
    }

    #[test]
    fn the_json_report_has_the_promised_keys() {
        let report = Report {
            prongs: vec![ProngReport::default()],
            corrupt: vec![CorruptReport::default()],
            faults: vec![FaultReport {
                at_s: 0.0,
                prong: "cpu".to_owned(),
                batch: None,
                kind: FaultKind::Stall,
                what: String::new(),
            }],
            ..Report::default()
        };
        let figures = Figures {
            version: String::new(),
            command: String::new(),
            machine: String::new(),
            ended_early: None,
            fault_count: 0,
            report: &report,
        };
        let json = serde_json::to_value(&figures).unwrap();
        for key in [
            "images",
            "batches",
            "seconds",
            "images_per_s",
            "first_batch_s",
            "host_cpu_s",
            "peak_memory_mb",
            "strategy",
            "meeting_point",
            "prongs",
            "consumer_wait_s",
            "corrupt",
            "faults",
            "digest",
            "ordered_digest",
            "accelerator_utilisation",
            "ended_early",
            "fault_count",
            "slot_memory_mb",
            "read_mb",
            "read_blocks_mb",
            "read_samples_mb",
        ] {
            assert!(json.get(key).is_some(), "{key}");
        }
        assert_eq!(json["faults"][0]["kind"], "stall");
        for (list, keys) in [
            ("prongs", &["name", "batches", "images", "prepared", "busy_s", "images_per_s"][..]),
            ("corrupt", &["sample", "reason", "action"]),
            ("faults", &["at_s", "prong", "batch", "kind", "what"]),
        ] {
            for key in keys {
                assert!(json[list][0].get(key).is_some(), "{list}[].{key}");
            }
        }
    }
}
