//! `ddlp push`: puts a dataset into Redis, Valkey, Cassandra or ScyllaDB, or a pack into an object store.

use crate::interrupt::Interrupt;
use crate::opening::OpeningArgs;
use crate::output::Files;
use crate::pack::{describe_damaged, describe_losses, hint_of, remark};
use crate::progress::SampleProgress;
use crate::run::plain;
use crate::storing::StoringArgs;
use crate::{Ending, files_only, output, text};
use anyhow::{Context, bail, ensure};
use clap::Args;
use ddlp_dataset::pack::{Pack, PackError, Packed, pack_aside};
use ddlp_host::{Host, open_pack};
use ddlp_stores::{PushError, PushOptions, PushPart, PushProgress, PushSummary, Share};
use std::fmt::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

/// Most shares that the summary names.
const NAMED_MAX: usize = 8;
/// Help of `--threads`, which here send as well.
const THREADS_HELP: &str = "Threads that read, decode and send [default: one per core to pack, four to send]";

/// Put a dataset into Redis, Valkey, Cassandra or ScyllaDB, or a pack into an object store, for runs on other machines.
///
/// A pack is sent as it is. Any other dataset is packed first, as `ddlp pack` does, into a file without a name in the
/// folder for temporary files (TMPDIR), which needs room for it; damaged images are repaired or named.
///
/// At redis://HOST:PORT/DB/NAME, each sample becomes one value, and at cql://HOST,HOST/KEYSPACE/NAME a row of the
/// table NAME_data. redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DB/NAME names Sentinels, which know the master. A push
/// that was stopped can be started again: it sends only what is missing. The dataset can be opened when everything is
/// there. Several machines can push a pack at the same time, each a share of it. At s3://, gs:// and az://, the pack
/// becomes one object, and a push that was stopped begins anew.
///
/// Passwords and keys come from the environment: REDISCLI_AUTH for Redis and Valkey, REDIS_SENTINEL_PASSWORD for
/// Sentinels, CASSANDRA_PASSWORD for Cassandra and ScyllaDB.
#[derive(Args)]
#[command(mut_arg("threads", |arg| arg.help(THREADS_HELP)))]
#[command(after_help = "\
Examples:
  ddlp push imagenet/train redis://10.0.0.7:6379/0/train    packs an image folder, and sends each sample as a value
  ddlp push train.ddlp rediss://10.0.0.7:6380/0/train       a pack, over TLS
  ddlp push train.ddlp cql://10.0.0.7,10.0.0.8/photos/train a pack, into the keyspace photos of Cassandra
  ddlp push train.ddlp cql://10.0.0.7/photos/train --share 0/4
                                                            the first of four shares; other machines push the others
  ddlp push train.ddlp s3://bucket/train.ddlp               a pack, as one object
  ddlp run redis://10.0.0.7:6379/0/train                    on another machine")]
pub struct PushArgs {
    /// A pack, or what `ddlp pack` takes: an image folder, CIFAR-10's binary files, WebDataset tar shards, a list of
    /// files (.csv), a mix of these (.toml)
    source: PathBuf,
    /// Where to put it: redis://HOST:PORT/DB/NAME, redis+sentinel://HOST:PORT/SERVICE/DB/NAME,
    /// cql://HOST/KEYSPACE/NAME (rediss://, rediss+sentinel:// and cqls:// for TLS), s3://BUCKET/PATH, gs://BUCKET/PATH
    /// or az://CONTAINER/PATH
    url: String,
    #[command(flatten)]
    opening: OpeningArgs,
    #[command(flatten)]
    storing: StoringArgs,
    /// Push only a share of a pack, such as 0/4 for the first of four, while other machines push the others. The
    /// dataset can be opened when all shares are there [default: all of the pack]
    #[arg(long, value_name = "NUMBER/SHARES")]
    share: Option<Share>,
    /// Replace another dataset of that name
    #[arg(long)]
    force: bool,
    /// Read everything back and compare it with what was sent
    #[arg(long)]
    verify: bool,
    /// Name every repaired and rejected sample, not only the first 20 of each
    #[arg(long)]
    all: bool,
    /// Print no progress and no summary, only errors
    #[arg(long, short)]
    quiet: bool,
}

/// Returns the files that the command reads, except for the dataset.
fn files(args: &PushArgs) -> Files<'_> {
    Files::default().reads("--classes", args.opening.classes.clone())
}

/// Runs the command.
pub fn push(args: &PushArgs, interrupt: &Interrupt) -> anyhow::Result<Ending> {
    let begun = Instant::now();
    let handling = interrupt.handle(|| {});
    let goes_on = || if interrupt.requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let Some(pack) = pack_of(args, &goes_on)? else { return Ok(stopped("nothing was sent")) };
    let mut progress = SampleProgress::new("pushing", args.quiet);
    let threads = args.storing.threads.map_or(0, usize::from);
    let part = args.share.map_or(PushPart::All, PushPart::Share);
    let options = PushOptions { threads, force: args.force, verify: args.verify, part };
    let pushed = ddlp_stores::push(pack.pack(), &args.url, &options, &mut |now: PushProgress| {
        let there = now.samples - now.sent;
        let remark = if there > 0 { format!("{} were there", text::count(there)) } else { String::new() };
        progress.update(now.samples, now.samples_total, now.bytes, &remark);
        goes_on()
    });
    drop(handling);
    progress.clear();
    match pushed {
        Ok(summary) => {
            if !args.quiet {
                output::print(&describe(args, &summary, begun.elapsed().as_secs_f64()))?;
            }
            Ok(Ending::Done)
        }
        Err(PushError::Cancelled) if ["redis", "cql"].iter().any(|scheme| args.url.starts_with(scheme)) => {
            Ok(stopped("not everything was sent; the same command sends the rest"))
        }
        Err(PushError::Cancelled) => Ok(stopped("nothing can be read there; the same command begins anew")),
        Err(error @ PushError::Exists { .. }) => Err(error).context("nothing was pushed (--force replaces it)"),
        Err(error) => Err(error.into()),
    }
}

/// The pack to send: one that exists, or one that was made for this.
enum Sent {
    AsItIs(Box<Pack>),
    Made(Box<Packed>),
}

impl Sent {
    fn pack(&self) -> &Pack {
        match self {
            Self::AsItIs(pack) => pack,
            Self::Made(packed) => &packed.pack,
        }
    }
}

/// Opens the pack to send, or makes it; `None` if the user stops that.
fn pack_of(args: &PushArgs, goes_on: &dyn Fn() -> ControlFlow<()>) -> anyhow::Result<Option<Sent>> {
    let PushArgs { source: place, opening, storing, .. } = args;
    let options = storing.options()?;
    files_only::check(place)?;
    let source = opening.open(place)?;
    files(args).check(&*source, place)?;
    if source.kind() == "pack" && opening.classes.is_none() && !storing.asks_for_a_form() {
        let rejected = source.rejected();
        let what = text::plural(rejected, "rejected sample");
        ensure!(!storing.strict || rejected == 0, "{} has {what}, and --strict allows none", place.display());
        let pack = open_pack(place, &Host::system()).map_err(plain)?;
        return Ok(Some(Sent::AsItIs(Box::new(pack))));
    }
    if args.share.is_some() {
        bail!(
            "{} is no pack as it is to be pushed, and each machine would make one of all its images: make a pack once, \
             by `ddlp pack`, where all machines can read it, and push shares of that (in Python, ddlp.spark.push and \
             ddlp.ray.push share this work, too)",
            place.display()
        );
    }
    let mut progress = SampleProgress::new("packing", args.quiet);
    let packed = pack_aside(&*source, &std::env::temp_dir(), &options, &mut |now| {
        progress.update(now.samples, now.samples_total, now.bytes, &remark(&now));
        goes_on()
    });
    progress.clear();
    match packed {
        Ok(packed) => {
            if !args.quiet {
                output::print(&describe_damaged(&packed.summary, args.all))?;
            }
            Ok(Some(Sent::Made(Box::new(packed))))
        }
        Err(PackError::Cancelled) => Ok(None),
        Err(error) => {
            let hint = if matches!(error, PackError::Lost { .. }) { hint_of(storing) } else { "" };
            eprint!("{}", describe_losses(&error, args.all));
            Err(error).with_context(|| format!("{} was not pushed{hint}", place.display()))
        }
    }
}

fn stopped(what: &str) -> Ending {
    eprintln!("stopped: {what}");
    Ending::Interrupted
}

fn describe(args: &PushArgs, summary: &PushSummary, seconds: f64) -> String {
    let mut out = format!(
        "{}: {}, {}, in {}{}\n",
        text::printable(&args.url),
        text::plural(summary.samples, "sample"),
        text::bytes(summary.bytes),
        text::seconds(seconds),
        if args.verify { ", read back and compared" } else { "" },
    );
    let there = summary.samples.saturating_sub(summary.sent);
    if there > 0 {
        let (there, sent) = (text::plural(there, "sample"), text::plural(summary.sent, "sample"));
        let _ = writeln!(out, "{there} were there; {sent}, {}, sent.", text::bytes(summary.sent_bytes));
    }
    if let Some(share) = args.share {
        let missing: Vec<String> =
            summary.missing_shares.iter().map(|missing| format!("{missing}/{}", share.of)).collect();
        let _ = match missing.len() {
            0 => writeln!(out, "All shares are there: the dataset can be opened."),
            1..=NAMED_MAX => writeln!(
                out,
                "Share {share} is there. The dataset can be opened when {} is, too.",
                missing.join(" and ")
            ),
            count => writeln!(
                out,
                "Share {share} is there. The dataset can be opened when the other {count} are, too, such as {}.",
                missing[0]
            ),
        };
    }
    if let Some(policy) = &summary.evicts {
        let _ = writeln!(
            out,
            "When the server's memory is full, it evicts values (maxmemory-policy {policy}), and runs then end with an \
             error. The policy noeviction keeps them."
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_that_names_a_file_is_an_input_or_an_output() {
        output::assert_complete(files, &["url"]);
    }
}
