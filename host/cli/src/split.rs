//! `ddlp split`: divides the samples of a dataset into parts, such as those of training and validation.

use crate::opening::OpeningArgs;
use crate::output::{self, Files};
use crate::run::plain;
use crate::wrong::wrong;
use crate::{Ending, text};
use anyhow::Context;
use clap::Args;
use clap::builder::PossibleValuesParser;
use ddlp_dataset::{Dataset, SampleFields};
use ddlp_host::splits::{Balance, Split, SplitQuery, default_names};
use ddlp_host::{CacheOptions, Host, open_dataset_with};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

/// Divide the samples of a dataset into parts, such as those of training and validation.
///
/// No image is read: labels, classes, names and fields say what is divided, and how. A sample is in one part at most.
/// Equal options give the same file, byte by byte, on every machine. `ddlp run DATASET --split FILE:PART` and
/// ddlp.Loader(…, split="FILE:PART") take the samples of a part; a split of another dataset is refused.
#[derive(Args)]
#[command(after_help = "\
What --where asks:
  Columns are id (the number of a sample, from 0), label, class (the label's name), name (as `ddlp inspect` prints it),
  and the fields of --fields that have one number. Comparisons are = != < <= > >= in (…) and not in (…); `and`, `or`,
  `not` and parentheses combine them. Texts stand in quotes; a column whose name is not a word stands in backticks.

Examples:
  ddlp split train.ddlp --ratios 0.9,0.1 --balance original --out splits.json
  ddlp run train.ddlp --split splits.json:train
  ddlp split s3://bucket/train.ddlp --ratios 0.7,0.2,0.1 --where \"class in ('cat', 'dog')\" --out pets.json
  ddlp split train.ddlp --fields meta.csv --where 'age >= 18 and label != 3' --ratios 1 --names all --out adults.json")]
pub struct SplitArgs {
    /// Pack, image folder, CIFAR-10's binary files, tar shards, a list of files (.csv), the URL of a pack, or the
    /// address of a drive that holds a pack
    dataset: PathBuf,
    #[command(flatten)]
    opening: OpeningArgs,
    /// File of labels or other fields beside the dataset, as for `ddlp run`: --where can ask them [default: none]
    #[arg(long, value_name = "FILE")]
    fields: Option<PathBuf>,
    /// Share of each part, with commas; all together are 1
    #[arg(long, value_name = "SHARE,…", value_delimiter = ',', default_value = "0.8,0.2")]
    ratios: Vec<f64>,
    /// Name of each part, with commas [default: train and val; train, val and test; else numbers from 0]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    names: Vec<String>,
    /// What is done about classes. none: any samples come into a part. original: each part has the same share of each
    /// class, to within a sample. class: each part has equally many samples of each class, and the rest of classes with
    /// more samples than the rarest one is left out
    #[arg(
        long, value_name = "HOW", default_value = "none",
        value_parser = PossibleValuesParser::new(Balance::ALL.map(Balance::name))
    )]
    balance: String,
    /// Divide only the samples for which this is true, such as 'label in (1, 2)' [default: all]
    #[arg(long = "where", value_name = "QUESTION")]
    filter: Option<String>,
    /// Seed of the random choices
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Where to write the split, as JSON; - for standard output
    #[arg(long, value_name = "FILE", default_value = "splits.json")]
    out: PathBuf,
    /// Folder in which the index of a dataset over a network is cached, as for `ddlp run` [default: no cache]
    #[arg(long, value_name = "FOLDER")]
    cache: Option<PathBuf>,
    /// Most bytes that the folder of --cache may take, as for `ddlp run`: give each command that uses the folder the
    /// same limit [default: all but a twentieth of the disk]
    #[arg(
        long, value_name = "BYTES", requires = "cache",
        value_parser = clap::value_parser!(u64).range(16 << 20..=1 << 50)
    )]
    cache_limit: Option<u64>,
    /// Print no summary, only errors
    #[arg(long, short)]
    quiet: bool,
}

/// Returns the files that the command reads and writes, except for the dataset.
fn files(args: &SplitArgs) -> Files<'_> {
    Files::default()
        .reads("--classes", args.opening.classes.clone())
        .reads("--fields", args.fields.iter().flat_map(|path| SampleFields::files(path)))
        .writes("--out", Some(&args.out))
}

/// Runs the command.
pub fn split(args: &SplitArgs) -> anyhow::Result<Ending> {
    let cache = args.cache.clone().map(|folder| CacheOptions { folder, limit: args.cache_limit });
    let dataset = args
        .opening
        .open_by(|options| open_dataset_with(&args.dataset, &Host::system(), options, cache.as_ref()).map_err(plain))?;
    let dataset = &*dataset;
    files(args).check(dataset, &args.dataset)?;
    let beside = match &args.fields {
        Some(path) => SampleFields::read(path, dataset).context("--fields does not fit the dataset")?,
        None => SampleFields::default(),
    };
    let query = SplitQuery {
        filter: args.filter.clone(),
        ratios: args.ratios.clone(),
        balance: args.balance.parse().map_err(anyhow::Error::msg)?,
        seed: args.seed,
    };
    let names = if args.names.is_empty() { default_names(args.ratios.len()) } else { args.names.clone() };
    let split = match query.divide(dataset, &beside, &names) {
        Ok(split) => split,
        Err(error) => wrong!("{}", text::printable(&error.to_string()).replace("`where`", "--where")),
    };
    output::write(&args.out, &split.to_bytes(), "a split")?;
    if !args.quiet && output::is_file(&args.out) {
        output::print(&describe(args, &split, dataset, &beside))?;
    }
    Ok(Ending::Done)
}

fn describe(args: &SplitArgs, split: &Split, dataset: &dyn Dataset, beside: &SampleFields) -> String {
    let file = args.out.display();
    let mut out = format!("split {} of {}\n", split.identity(), text::plural(dataset.len(), "sample"));
    for part in split.parts() {
        let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
        part.indices.iter().for_each(|&index| *counts.entry(beside.label(dataset, index)).or_default() += 1);
        let (least, most) = (counts.values().min(), counts.values().max());
        let of_class = match (least, most) {
            (Some(least), Some(most)) if least == most => format!("{} of each", text::count(*least)),
            (Some(least), Some(most)) => format!("{} to {} of each", text::count(*least), text::count(*most)),
            _ => String::new(),
        };
        let (samples, classes) = (part.indices.len() as u64, counts.len() as u64);
        let classes = if classes == 1 { "1 class".into() } else { format!("{} classes", text::count(classes)) };
        let (name, samples) = (text::printable(&part.name), text::plural(samples, "sample"));
        let _ = writeln!(out, "  {file}:{name}  {samples}, {classes}, {of_class}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_that_names_a_file_is_an_input_or_an_output() {
        output::assert_complete(files, &["names", "filter", "cache"]);
    }
}
