//! `ddlp inspect`: the contents of a dataset.

mod fidelity;
mod sample;

use crate::opening::OpeningArgs;
use crate::output::{self, Files};
use crate::run::plain;
use crate::{Ending, text};
use anyhow::{Context, anyhow, bail};
use clap::Args;
use ddlp_dataset::pack::{Pack, StoredForm, StoredVerdict, Survey};
use ddlp_dataset::{Dataset, OpenOptions, left_out_reason};
use ddlp_host::{Host, open_dataset_with, open_pack, remote_address};
use fidelity::FidelityArgs;
use sample::DescribedSample;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Classes and listed samples shown without `--all`.
const SHOWN_MAX: usize = 20;

/// Show what a pack, or any other dataset, contains: sizes, classes, verdicts, one sample's record, or what its images
/// lose at lower fidelities.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ddlp inspect train.ddlp
  ddlp inspect train.ddlp --sample 17
  ddlp inspect train.ddlp --sample n01440764/n01440764_10026.JPEG
  ddlp inspect train.ddlp --json | jq .classes
  ddlp inspect photos --fidelity --samples 200 --picture fidelity.svg")]
pub struct InspectArgs {
    /// A pack; also an image folder, CIFAR-10's binary files, tar shards, a list of files, a mix of these, or the
    /// address of a drive that holds a pack (tcp://HOST:PORT/NQN or /dev/nvmeX)
    file: PathBuf,
    #[command(flatten)]
    opening: OpeningArgs,
    /// Show one sample, given by its number or its name
    #[arg(long, value_name = "N|NAME")]
    sample: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show all classes, all repaired and rejected samples, and all files that are left out, not only the first 20 of
    /// each
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    fidelity: FidelityArgs,
}

/// Runs the command.
pub fn inspect(args: &InspectArgs) -> anyhow::Result<Ending> {
    args.fidelity.check()?;
    let mut pack = None;
    let dataset = args.opening.open_by(|options| {
        let opened = open(&args.file, options)?;
        pack = opened.pack;
        Ok(opened.dataset)
    })?;
    let (dataset, pack) = (&*dataset, pack.as_deref());
    files(args).check(dataset, &args.file)?;
    let shown = match &args.sample {
        sample if args.fidelity.fidelity => {
            fidelity::fidelity((&args.file, dataset), &args.fidelity, sample.as_deref(), args.json)?
        }
        Some(sample) => {
            let described = DescribedSample::new(dataset, pack, find(dataset, sample)?)?;
            if args.json { to_json(&described)? } else { described.to_text() }
        }
        None => {
            let described = Described::new(&args.file, dataset, pack)?;
            if args.json { to_json(&described)? } else { described.to_text(args.all) }
        }
    };
    output::print(&shown)?;
    Ok(Ending::Done)
}

/// Returns the files that the command reads and writes, except for the dataset.
fn files(args: &InspectArgs) -> Files<'_> {
    Files::default()
        .reads("--classes", args.opening.classes.clone())
        .writes("--picture", args.fidelity.picture.as_deref())
}

/// An open dataset.
struct Opened {
    dataset: Arc<dyn Dataset>,
    /// The same dataset if it is a pack, which has facts of its own.
    pack: Option<Arc<Pack>>,
}

fn open(place: &Path, options: &OpenOptions) -> anyhow::Result<Opened> {
    if options.table.is_given() {
        let dataset = open_dataset_with(place, &Host::system(), options, None).map_err(plain)?;
        return Ok(Opened { dataset, pack: None });
    }
    if remote_address(place).is_none() {
        let dataset = ddlp_dataset::open_with(place, options)?;
        if dataset.kind() != "pack" {
            return Ok(Opened { dataset: dataset.into(), pack: None });
        }
    }
    let pack = Arc::new(open_pack(place, &Host::system())?);
    Ok(Opened { dataset: pack.clone(), pack: Some(pack) })
}

fn to_json(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// Returns the index of a sample that is given by number or name.
fn find(dataset: &dyn Dataset, wanted: &str) -> anyhow::Result<u64> {
    let samples = dataset.len();
    if let Ok(index) = wanted.parse::<u64>() {
        if index < samples {
            return Ok(index);
        }
        bail!("there is no sample {index}: the last sample is {}", samples - 1);
    }
    let found = (0..samples).find(|index| dataset.name(*index) == wanted);
    found.ok_or_else(|| {
        let first = text::printable(&dataset.name(0));
        anyhow!("there is no sample named '{}': names look like '{first}'", text::printable(wanted))
    })
}

#[derive(Serialize)]
struct ClassCount {
    name: String,
    samples: u64,
}

#[derive(Serialize)]
struct Listed {
    sample: u64,
    name: String,
    verdict: String,
}

/// Facts that only a pack has.
#[derive(Serialize)]
struct PackPart {
    file_bytes: u64,
    sample_bytes: u64,
    smallest_sample_bytes: u64,
    largest_sample_bytes: u64,
    widest_pixels: u32,
    highest_pixels: u32,
    /// Samples of each form, under its name.
    #[serde(flatten, serialize_with = "by_name")]
    forms: BTreeMap<StoredForm, u64>,
    /// Only of a pack of pieces.
    #[serde(flatten)]
    bundles: Option<BundlesPart>,
    shrunk: u64,
    intact: u64,
    repaired: u64,
    rejected: u64,
    source_kind: String,
    source_identity: String,
    listed: Vec<Listed>,
}

/// How the samples of a pack of pieces lie.
#[derive(Serialize)]
struct BundlesPart {
    scan_groups: Vec<u8>,
    bundle_samples: u64,
}

/// A dataset.
#[derive(Serialize)]
struct Described {
    file: PathBuf,
    kind: &'static str,
    samples: u64,
    identity: String,
    /// Number of files in the folder that are not samples.
    left_out: u64,
    /// The first of these files.
    left_out_names: Vec<String>,
    classes: Vec<ClassCount>,
    pack: Option<PackPart>,
}

impl Described {
    fn new(file: &Path, dataset: &dyn Dataset, pack: Option<&Pack>) -> anyhow::Result<Self> {
        let survey = pack.map(Survey::of).transpose().context("the index is damaged: `ddlp verify` says where")?;
        let counts = match &survey {
            Some(survey) if dataset.classes() == pack.map_or(&[][..], Pack::classes) => survey.class_samples.clone(),
            _ => count_classes(dataset),
        };
        let classes = dataset.classes().iter().zip(counts);
        Ok(Self {
            file: file.to_owned(),
            kind: dataset.kind(),
            samples: dataset.len(),
            identity: dataset.identity().to_string(),
            left_out: dataset.left_out(),
            left_out_names: dataset.left_out_names().to_vec(),
            classes: classes.map(|(name, samples)| ClassCount { name: name.clone(), samples }).collect(),
            pack: pack.zip(survey).map(|(pack, survey)| PackPart::new(pack, survey)).transpose()?,
        })
    }

    fn to_text(&self, all: bool) -> String {
        let shown = if all { usize::MAX } else { SHOWN_MAX };
        let mut out = String::new();
        let samples = text::plural(self.samples, "sample");
        let classes = text::plural(self.classes.len() as u64, "class");
        let _ = writeln!(out, "{}: {}, {samples} in {classes}", self.file.display(), self.kind);
        row(&mut out, "identity", &self.identity);
        if let Some(pack) = &self.pack {
            pack.to_text(&mut out, self.samples, shown);
        }
        self.left_out_to_text(&mut out, shown);
        let _ = writeln!(out, "\nclasses");
        for (label, class) in self.classes.iter().enumerate().take(shown) {
            let _ =
                writeln!(out, "  {label:>5}  {:<32} {:>9}", text::printable(&class.name), text::count(class.samples));
        }
        rest(&mut out, self.classes.len(), shown, "classes");
        out
    }
}

impl Described {
    fn left_out_to_text(&self, out: &mut String, shown: usize) {
        if self.left_out == 0 {
            return;
        }
        let files = text::plural(self.left_out, "file");
        row(out, "left out", &format!("{files}: {}", left_out_reason(self.kind)));
        for name in self.left_out_names.iter().take(shown) {
            let _ = writeln!(out, "            {}", text::printable(name));
        }
        rest(out, self.left_out as usize, self.left_out_names.len().min(shown), "files");
    }
}

fn count_classes(dataset: &dyn Dataset) -> Vec<u64> {
    let mut counts = vec![0; dataset.classes().len()];
    for index in 0..dataset.len() {
        if let Some(count) = counts.get_mut(dataset.label(index) as usize) {
            *count += 1;
        }
    }
    counts
}

fn row(out: &mut String, name: &str, value: &str) {
    let _ = writeln!(out, "  {name:<18}{value}");
}

fn rest(out: &mut String, count: usize, shown: usize, what: &str) {
    if count > shown {
        let _ = writeln!(out, "  … and {} more {what} (--all shows them)", text::count((count - shown) as u64));
    }
}

impl PackPart {
    fn new(pack: &Pack, survey: Survey) -> anyhow::Result<Self> {
        let layout = pack.layout();
        let bundles = pack.scan_groups().zip(pack.bundles()?).map(|(groups, bundles)| BundlesPart {
            scan_groups: groups.numbers().to_vec(),
            bundle_samples: bundles.samples,
        });
        let listed = survey.listed.iter().map(|entry| Listed {
            sample: entry.index,
            name: entry.name.clone(),
            verdict: verdict_text(entry.verdict),
        });
        Ok(Self {
            file_bytes: layout.file_bytes,
            sample_bytes: survey.sample_bytes,
            smallest_sample_bytes: survey.smallest_bytes,
            largest_sample_bytes: survey.largest_bytes,
            widest_pixels: survey.width_max,
            highest_pixels: survey.height_max,
            forms: survey.forms,
            shrunk: survey.shrunk,
            intact: survey.intact,
            repaired: survey.repaired,
            rejected: survey.rejected,
            source_kind: layout.source_kind.clone(),
            source_identity: layout.source_identity.to_string(),
            listed: listed.collect(),
            bundles,
        })
    }

    fn to_text(&self, out: &mut String, samples: u64, shown: usize) {
        row(out, "packed from", &format!("{}, identity {}", text::printable(&self.source_kind), self.source_identity));
        let share = self.sample_bytes as f64 / (self.file_bytes.max(1)) as f64;
        row(out, "size", &format!("{}, {} of it samples", text::bytes(self.file_bytes), text::percent(share)));
        row(
            out,
            "per sample",
            &format!(
                "{} to {}, {} on average; the widest has {} pixels in a row, the tallest {} rows",
                text::bytes(self.smallest_sample_bytes),
                text::bytes(self.largest_sample_bytes),
                text::bytes(self.sample_bytes / samples.max(1)),
                self.widest_pixels,
                self.highest_pixels
            ),
        );
        let stored = StoredForm::ALL.iter().map(|form| format!("{} {}", text::count(self.forms[form]), form.name()));
        let stored = stored.collect::<Vec<_>>().join(", ");
        row(out, "stored", &format!("{stored}; {} shrunk when they were packed", text::count(self.shrunk)));
        if let Some(BundlesPart { scan_groups, bundle_samples }) = &self.bundles {
            let groups = scan_groups.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
            let samples = text::plural(*bundle_samples, "sample");
            row(out, "pieces", &format!("scan groups {groups}, in bundles of {samples}"));
        }
        row(
            out,
            "verdicts",
            &format!(
                "{} intact, {} repaired, {} rejected",
                text::count(self.intact),
                text::count(self.repaired),
                text::count(self.rejected)
            ),
        );
        for listed in self.listed.iter().take(shown) {
            let _ = writeln!(out, "  {:>8}  {}: {}", listed.sample, text::printable(&listed.name), listed.verdict);
        }
        rest(out, (self.repaired + self.rejected) as usize, shown, "repaired or rejected samples");
    }
}

fn by_name<S: Serializer>(forms: &BTreeMap<StoredForm, u64>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(forms.iter().map(|(form, count)| (form.name(), count)))
}

fn verdict_text(verdict: StoredVerdict) -> String {
    match verdict {
        StoredVerdict::Intact => "intact".to_string(),
        StoredVerdict::Repaired => "repaired".to_string(),
        StoredVerdict::Rejected(reason) => format!("rejected: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_option_that_names_a_file_is_an_input_or_an_output() {
        crate::output::assert_complete(super::files, &["file", "sample"]);
    }
}
