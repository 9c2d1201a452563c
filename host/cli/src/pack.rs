//! `ddlp pack`: packs a dataset into one file.

use crate::interrupt::Interrupt;
use crate::opening::OpeningArgs;
use crate::output::Files;
use crate::progress::SampleProgress;
use crate::storing::StoringArgs;
use crate::{Ending, files_only, output, text};
use anyhow::Context;
use clap::Args;
use ddlp_dataset::left_out_reason;
use ddlp_dataset::pack::{
    ENCODED, PackError, PackOptions, PackProgress, PackSummary, Phase, RejectedSample, StoredForm, Tally, WhyKept,
};
use std::fmt::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;

/// Repaired and rejected samples named without `--all`.
const NAMED_MAX: usize = 20;

/// Pack a dataset into one file that host and drive read.
///
/// Every image is decoded once, as a whole. An image that decodes with warnings is stored repaired; an image that does
/// not decode is kept and marked as rejected. This command and `ddlp inspect` name both kinds. If an image cannot be
/// read at all, no pack is made: the image may be a dangling link, a file without read permission, or a file that
/// changes or disappears meanwhile. `--allow-unreadable` packs the other images all the same, unless a whole folder has
/// disappeared or cannot be read; `--strict` also refuses images that do not decode. If the system refuses memory or a
/// file server does not answer, the command tries again for 5 s. Classes, order and names stay as they are in the
/// source. The pack appears under its name only when it is complete.
///
/// JPEGs get checkpoints, which are places at which decoding can start, so that a crop decodes little more than the
/// pixels that it covers. For this, progressive JPEGs are rewritten without loss into a single scan. `--jpeg kept`
/// stores files as they are in the source. `--format raw` stores pixels, which take several times the space and need no
/// decoding. `--format pcr` cuts JPEGs into pieces without loss, so that `ddlp run --fidelity 5` reads only a part of
/// the bytes.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ddlp pack imagenet/train train.ddlp         an image folder, one folder per class
  ddlp pack cifar-10-batches-bin cifar.ddlp   CIFAR-10's binary files
  ddlp pack shards/ train.ddlp --verify       WebDataset tar shards; read back and checked before it gets its name
  ddlp pack imagenet/train raw.ddlp --format raw --max-side 500
                                              pixels instead of files, larger images shrunk
  ddlp pack imagenet/train pcr.ddlp --format pcr
                                              JPEGs in pieces, for runs with a lower --fidelity")]
pub struct PackArgs {
    /// Image folder, CIFAR-10's binary files, WebDataset tar shards, a list of files (.csv), a mix of these (.toml), or
    /// another pack
    source: PathBuf,
    /// The file to create, usually ending in .ddlp
    out: PathBuf,
    #[command(flatten)]
    opening: OpeningArgs,
    #[command(flatten)]
    storing: StoringArgs,
    /// Replace an existing regular file, but no link or device
    #[arg(long)]
    force: bool,
    /// Read the finished file back and check every byte before it gets its name
    #[arg(long)]
    verify: bool,
    /// Name every repaired and rejected sample, not only the first 20 of each, and all files that are left out
    #[arg(long)]
    all: bool,
    /// Print no progress and no summary, only errors
    #[arg(long, short)]
    quiet: bool,
}

/// Returns the files that the command reads and writes, except for the dataset.
fn files(args: &PackArgs) -> Files<'_> {
    Files::default().reads("--classes", args.opening.classes.clone()).writes("OUT", Some(&args.out))
}

/// Runs the command.
pub fn pack(args: &PackArgs, interrupt: &Interrupt) -> anyhow::Result<Ending> {
    let options = args.storing.options()?;
    files_only::check(&args.source)?;
    let source = args.opening.open(&args.source)?;
    files(args).check(&*source, &args.source)?;
    let options = PackOptions { overwrite: args.force, verify: args.verify, ..options };
    let mut progress = SampleProgress::new("packing", args.quiet);
    let begun = std::time::Instant::now();
    let handling = interrupt.handle(|| {});
    let mut show = |now: PackProgress| {
        progress.phase(phase_name(now.phase));
        progress.update(now.samples, now.samples_total, now.bytes, &remark(&now));
        if interrupt.requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let packed = ddlp_dataset::pack::pack(&*source, &args.out, &options, &mut show);
    drop(handling);
    progress.clear();
    match packed {
        Ok(summary) => {
            if !args.quiet {
                let seconds = begun.elapsed().as_secs_f64();
                output::print(&describe(args, &*source, &summary, seconds))?;
            }
            Ok(Ending::Done)
        }
        Err(PackError::Cancelled) => {
            eprintln!("stopped: {} was not written, nothing is left behind", args.out.display());
            Ok(Ending::Interrupted)
        }
        Err(error @ PackError::Exists { .. }) => Err(error).context("nothing was packed (--force overwrites)"),
        Err(error @ PackError::Lost { .. }) => {
            eprint!("{}", describe_losses(&error, args.all));
            Err(error).with_context(|| format!("{} was not packed{}", args.source.display(), hint_of(&args.storing)))
        }
        Err(error) => Err(error).with_context(|| format!("{} was not packed", args.source.display())),
    }
}

/// Returns what helps if samples would be lost.
pub fn hint_of(storing: &StoringArgs) -> &'static str {
    if storing.strict { "" } else { " (--allow-unreadable packs the others)" }
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Packing => "packing",
        Phase::Verifying => "verifying",
        _ => "syncing",
    }
}

/// Returns how many samples have been found damaged.
pub fn remark(now: &PackProgress) -> String {
    let counts =
        [(now.repaired, "repaired"), (now.rejected - now.unreadable, "rejected"), (now.unreadable, "unreadable")];
    let words = counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    words.collect::<Vec<_>>().join(", ")
}

/// Lists the samples that would be lost.
pub fn describe_losses(error: &PackError, all: bool) -> String {
    let PackError::Lost { unreadable_count, damaged_count, listed, .. } = error else { return String::new() };
    let mut out = String::new();
    let shown = if all { listed.len() } else { listed.len().min(NAMED_MAX) };
    listed.iter().take(shown).for_each(|sample| describe_rejected(&mut out, sample));
    rest(&mut out, unreadable_count + damaged_count, shown, "");
    out
}

fn describe_rejected(out: &mut String, sample: &RejectedSample) {
    let what = if sample.is_unreadable { "unreadable" } else { "rejected " };
    let _ = writeln!(out, "{what} {}: {}", text::printable(&sample.name), text::printable(&sample.message));
}

/// Says why a sample was repaired: warnings, coefficients out of range, or both.
fn damage(warnings: u64, clamped: u64) -> String {
    let warned = (warnings > 0).then(|| {
        let warnings = text::plural(warnings, "warning");
        format!("libjpeg gave {warnings} (the file is cut short or has damaged data)")
    });
    let clamped = (clamped > 0).then(|| format!("{} out of range", text::plural(clamped, "coefficient")));
    warned.into_iter().chain(clamped).collect::<Vec<_>>().join(", ")
}

/// Lists the samples that were repaired or rejected.
pub fn describe_damaged(summary: &PackSummary, all: bool) -> String {
    let mut out = String::new();
    let shown = if all { usize::MAX } else { NAMED_MAX };
    for sample in summary.repaired.iter().take(shown) {
        let name = text::printable(&sample.name);
        let _ = writeln!(out, "repaired  {name}: {}", damage(sample.warnings.into(), sample.clamped.into()));
    }
    rest(&mut out, summary.repaired_count, summary.repaired.len().min(shown), " repaired");
    summary.rejected.iter().take(shown).for_each(|sample| describe_rejected(&mut out, sample));
    rest(&mut out, summary.rejected_count, summary.rejected.len().min(shown), " rejected");
    out
}

fn describe(args: &PackArgs, source: &dyn ddlp_dataset::Dataset, summary: &PackSummary, seconds: f64) -> String {
    let (kind, classes, left_out) = (source.kind(), source.classes().len(), source.left_out());
    let mut out = describe_damaged(summary, args.all);
    let _ = writeln!(
        out,
        "{}: {} in {}, {}{} ({kind}, {}), in {}{}",
        args.out.display(),
        text::plural(summary.samples, "sample"),
        text::plural(classes as u64, "class"),
        text::bytes(summary.file_bytes),
        ratio(summary.file_bytes, summary.source_bytes),
        text::bytes(summary.source_bytes),
        text::seconds(seconds),
        if args.verify { ", read back and checked" } else { "" },
    );
    describe_forms(&mut out, args, summary);
    if left_out > 0 {
        for name in source.left_out_names().iter().filter(|_| args.all) {
            let _ = writeln!(out, "left out  {}", text::printable(name));
        }
        let files = text::plural(left_out, "file");
        let hint = if args.all { "" } else { " (--all names them)" };
        let _ = writeln!(out, "{files} left out: {}{hint}.", left_out_reason(kind));
    }
    if summary.rejected_count > 0 {
        let _ = writeln!(out, "`ddlp run` treats rejected samples as its --policy says: fail, skip or replace.");
    }
    out
}

/// Describes how samples were stored, and which options did not apply.
fn describe_forms(out: &mut String, args: &PackArgs, summary: &PackSummary) {
    let mut line = |what: &str, tally: Tally| {
        if tally.samples > 0 {
            let (count, bytes) = (text::count(tally.samples), text::bytes(tally.stored_bytes));
            let _ = writeln!(out, "  {count:>9}  {what}: {bytes}{}", ratio(tally.stored_bytes, tally.source_bytes));
        }
    };
    for &form in StoredForm::ALL {
        let tally = summary.form(form);
        let plain = if form == StoredForm::Pcr { "progressive, cut as they are" } else { form.name() };
        line(plain, tally.plain);
        line(form.rewritten(), tally.rewritten);
        line("of them shrunk", tally.shrunk);
    }
    for (why, tally) in &summary.kept {
        match why {
            WhyKept::AskedFor => line("kept", *tally),
            why => line(&format!("kept ({why})"), *tally),
        }
    }
    line("rejected", summary.undecodable);
    let rest = summary.file_bytes - summary.stored_bytes();
    let ratio = ratio(rest, summary.source_bytes);
    let _ = writeln!(out, "  {:>9}  index and padding: {}{ratio}", "", text::bytes(rest));
    let has = |form| summary.form(form).plain.samples > 0;
    if has(StoredForm::Planar) && args.storing.asks_for_a_form() {
        let _ = writeln!(out, "Planes of RGB stay as they are: --format, --jpeg and --max-side do not apply to them.");
    }
    if StoredForm::ALL.iter().any(|&form| form.is_decoded() && has(form)) && args.storing.format == ENCODED {
        let _ = writeln!(out, "Pixels of the source stay pixels: --format encoded and --jpeg do not apply to them.");
    }
}

/// Formats the size relative to the source; empty if nothing could be read.
fn ratio(bytes: u64, source_bytes: u64) -> String {
    match source_bytes {
        0 => String::new(),
        source => format!(", {:.3} × the source's bytes", bytes as f64 / source as f64),
    }
}

fn rest(out: &mut String, count: u64, shown: usize, what: &str) {
    let left = count.saturating_sub(shown as u64);
    if left > 0 {
        let _ = writeln!(out, "… and {} more{what} (--all names them)", text::count(left));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_that_names_a_file_is_an_input_or_an_output() {
        output::assert_complete(files, &[]);
    }
}
