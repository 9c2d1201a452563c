//! `ddlp verify`: checks every checksum of a pack.

use crate::interrupt::Interrupt;
use crate::progress::SampleProgress;
use crate::{Ending, files_only, output, text};
use anyhow::bail;
use clap::Args;
use ddlp_dataset::pack::{self, VerifyError, VerifyProgress};
use ddlp_host::remote_address;
use std::fmt::Write;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Most damaged places that are named without `--all`.
const NAMED_MAX: usize = 20;

/// Check every byte of a pack, and name each damaged place.
///
/// The exit status is 0 if the pack is intact, and 1 if it is damaged or cannot be read.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ddlp verify train.ddlp
  ddlp verify train.ddlp --quiet && echo intact")]
pub struct VerifyArgs {
    /// The pack
    file: PathBuf,
    /// Threads that read [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Name every damaged place, not only the first 20
    #[arg(long)]
    all: bool,
    /// Print no progress and no text; only set the exit status
    #[arg(long, short)]
    quiet: bool,
}

/// Runs the command.
pub fn verify(args: &VerifyArgs, interrupt: &Interrupt) -> anyhow::Result<Ending> {
    let url = remote_address(&args.file).filter(|place| files_only::check(Path::new(place)).is_ok());
    let blocks = url.map(|url| ddlp_stores::open(url, None)).transpose()?;
    if blocks.is_none() {
        check_kind(&args.file)?;
    }
    let mut progress = SampleProgress::new("verifying", args.quiet);
    let handling = interrupt.handle(|| {});
    let mut show = |now: VerifyProgress| {
        progress.update(now.samples, now.samples_total, now.bytes, "");
        if interrupt.requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let threads = args.threads.map_or(0, usize::from);
    let verified = match blocks {
        Some(blocks) => pack::verify_blocks(blocks, &args.file, threads, &mut show),
        None => pack::verify(&args.file, threads, &mut show),
    };
    drop(handling);
    let seconds = progress.elapsed().as_secs_f64();
    progress.clear();
    let report = match verified {
        Ok(report) => report,
        Err(VerifyError::Cancelled) => {
            eprintln!("stopped before the end: the rest of {} was not checked", args.file.display());
            return Ok(Ending::Interrupted);
        }
        Err(error) => return Err(error.into()),
    };
    if !args.quiet {
        output::print(&describe(args, &report, seconds))?;
    }
    Ok(if report.is_intact() { Ending::Done } else { Ending::Wrong })
}

/// Refuses what is not a pack, in which there is nothing to verify. A file that cannot be read is left to
/// [`pack::verify`].
fn check_kind(path: &Path) -> anyhow::Result<()> {
    files_only::check(path)?;
    if path.is_dir() {
        bail!("{} is a folder, not a pack: `ddlp pack` makes a pack of it, which you can verify", path.display());
    }
    // Opening a pipe would block.
    if path.metadata().is_ok_and(|status| !status.is_file()) {
        bail!("{} is not a regular file, so it cannot be a pack", path.display());
    }
    let mut head = [0; pack::MAGIC.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    let is_short = read.as_ref().is_err_and(|error| error.kind() == ErrorKind::UnexpectedEof);
    if is_short || (read.is_ok() && head != pack::MAGIC) {
        bail!("{} is not a pack: it does not begin with {}", path.display(), pack::MAGIC.escape_ascii());
    }
    Ok(())
}

fn describe(args: &VerifyArgs, report: &pack::VerifyReport, seconds: f64) -> String {
    let mut out = String::new();
    let shown = if args.all { usize::MAX } else { NAMED_MAX };
    for broken in report.broken.iter().take(shown) {
        let _ = writeln!(out, "damaged  {}", text::printable(&broken.to_string()));
    }
    let left = report.broken_count.saturating_sub(report.broken.len().min(shown) as u64);
    if left > 0 {
        let _ = writeln!(out, "… and {} more (--all names them)", text::count(left));
    }
    let checked = match report.samples {
        // The first block is damaged, or of another version, so the expected contents of the rest are unknown.
        0 => "its samples were not checked".to_string(),
        samples => {
            let (samples, bytes) = (text::plural(samples, "sample"), text::bytes(report.bytes));
            format!("{samples}, {bytes}, checked in {}", text::seconds(seconds))
        }
    };
    let found = match report.broken_count {
        0 => "intact".to_string(),
        count => format!("{} damaged: pack it again from its source", text::plural(count, "place")),
    };
    let _ = writeln!(out, "{}: {found} ({checked})", args.file.display());
    out
}
