//! `ddlp`: packs datasets, runs epochs from both ends, measures.
//!
//! - [`pack`], [`inspect`], [`verify`]: packs.
//! - [`mod@run`]: the main job, its live display and its summary; [`report`]: its HTML page.
//! - [`devices`]: the drives that the kernel knows; [`kernel`]: what it offers.
//! - What [`mod@bench`] measures is printed with machine and revision.
//! - [`sample_data`]: a photographic dataset to try things on.
//!
//! Exit status: 0 done, 1 an error (said on standard error), 2 a wrong command line; after a signal 128 and its number, so 130 after
//! Ctrl-C, 143 after SIGTERM, 129 after SIGHUP.
#![forbid(unsafe_code)]

mod bench;
mod cores;
mod devices;
mod inspect;
mod interrupt;
mod kernel;
mod machine;
mod output;
mod pack;
mod progress;
mod report;
mod run;
mod sample_data;
mod text;
mod verify;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use interrupt::Interrupt;
use nix::sys::signal::{SigSet, Signal};
use std::process::ExitCode;

/// How a command ended, when it did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// As asked.
    Done,
    /// What was looked at is not as it should be; that has been said.
    Wrong,
    /// By a signal.
    Interrupted,
}

/// Prepare training images from both ends: on the host's CPU and inside a computational storage drive, at the same time.
#[derive(Parser)]
#[command(version, after_help = EXAMPLES, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Try it without any data of your own:
  ddlp sample-data photos --images 600
  ddlp pack photos photos.ddlp
  ddlp run photos.ddlp --strategy mte --batch 32 --report report.html

`ddlp COMMAND --help` explains each command with examples. RUST_LOG=ddlp=debug shows what happens inside.";

#[derive(Subcommand)]
enum Command {
    Pack(pack::PackArgs),
    Inspect(inspect::InspectArgs),
    Verify(verify::VerifyArgs),
    Run(Box<run::RunArgs>),
    Devices(devices::DevicesArgs),
    /// Measure this machine.
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    SampleData(sample_data::SampleDataArgs),
}

fn main() -> ExitCode {
    let cli = match Cli::from_arg_matches(&with_negative_numbers(Cli::command()).get_matches()) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    start_log();
    let ended = Interrupt::install().and_then(|interrupt| Ok((dispatch(cli.command, &interrupt)?, interrupt)));
    match ended {
        Ok((Ending::Done, _)) => ExitCode::SUCCESS,
        Ok((Ending::Wrong, _)) => ExitCode::FAILURE,
        Ok((Ending::Interrupted, interrupt)) => ExitCode::from(interrupt.exit_status()),
        Err(error) => {
            eprint!("{}", error_text(&error));
            ExitCode::FAILURE
        }
    }
}

/// A value below zero is a value, so that its option says what is possible, and no unknown option.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    command
        .mut_args(|arg| {
            let has_value = !arg.is_positional() && arg.get_action().takes_values();
            if has_value { arg.allow_negative_numbers(true) } else { arg }
        })
        .mut_subcommands(with_negative_numbers)
}

fn dispatch(command: Command, interrupt: &Interrupt) -> anyhow::Result<Ending> {
    // A file that meets `ulimit -f` is an error to be said, as on a full disk, and not the end of the process.
    SigSet::from(Signal::SIGXFSZ).thread_block()?;
    match command {
        Command::Pack(args) => pack::pack(&args, interrupt),
        Command::Inspect(args) => inspect::inspect(&args),
        Command::Verify(args) => verify::verify(&args, interrupt),
        Command::Run(args) => run::run(&args, interrupt),
        Command::Devices(args) => devices::devices(&args),
        Command::Bench(command) => bench::bench(&command, interrupt),
        Command::SampleData(args) => sample_data::sample_data(&args, interrupt),
    }
}

/// What the libraries report goes to standard error when RUST_LOG asks for it. The live display says itself what matters.
fn start_log() {
    let filter = tracing_subscriber::EnvFilter::builder()
        .with_default_directive(tracing_subscriber::filter::LevelFilter::OFF.into())
        .from_env_lossy();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}

/// An error and its causes, one per line. A cause that the line above already ends with is left out.
fn error_text(error: &anyhow::Error) -> String {
    let mut lines = Vec::<String>::new();
    for cause in error.chain() {
        let line = cause.to_string();
        if !lines.last().is_some_and(|above| above.ends_with(&line)) {
            lines.push(line);
        }
    }
    let mut text = String::new();
    for (depth, line) in lines.iter().enumerate() {
        let head = if depth == 0 { "error: " } else { "  because: " };
        let body = line.lines().map(text::printable).collect::<Vec<_>>().join("\n    ");
        text.push_str(&format!("{head}{body}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        with_negative_numbers(Cli::command()).debug_assert();
    }

    #[test]
    fn errors_name_their_causes_once_and_cannot_steer_the_terminal() {
        let error =
            anyhow::anyhow!("no such file").context("cannot open \u{1b}[2Jx: no such file").context("cannot run");
        assert_eq!(error_text(&error), "error: cannot run\n  because: cannot open \u{fffd}[2Jx: no such file\n");
    }
}
