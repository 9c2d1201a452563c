//! `ddlp`: packs datasets, runs epochs from both ends, measures.
//!
//! - [`pack`], [`inspect`], [`verify`], [`push`]: packs. [`storing`]: options of commands that make packs.
//! - [`mod@run`]: the main job, its live display and its summary (`ddlp-report` makes its HTML page).
//! - [`show`]: contact sheets of what a pipeline makes. [`mod@split`]: parts of a dataset.
//! - [`devices`]: the drives that the kernel knows; [`kernel`]: what it offers.
//! - [`top`]: what loaders and agents do now.
//! - [`mod@bench`]: measurements, printed with machine and revision.
//! - [`mod@l3`]: images in L3.
//! - [`sample_data`]: a photographic dataset for trials.
//! - Completions and manual pages are made from the definitions of the commands.
//!
//! Exit status: 0 for success, 1 for an error (described on standard error), 2 for options that are unknown, invalid or
//! contradictory; after a signal, 128 plus its number: 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP.
#![forbid(unsafe_code)]

mod bench;
mod cores;
mod devices;
mod files_only;
mod inspect;
mod interrupt;
mod kernel;
mod l3;
mod machine;
mod opening;
mod output;
mod pack;
mod progress;
mod push;
mod run;
mod sample_data;
mod show;
mod split;
mod storing;
mod text;
mod top;
mod verify;
mod wrong;

use anyhow::Context;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use ddlp_csd::memory::allocator::{self, Allocator};
use interrupt::Interrupt;
use nix::sys::signal::{SigSet, Signal};
use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The way in which a command ended, if it did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// It did what was asked.
    Done,
    /// It found something wrong in what it examined, and has said so.
    Wrong,
    /// A signal ended it.
    Interrupted,
}

/// Prepare training images from both ends: on the host's CPU and inside a computational storage drive, at the same
/// time.
#[derive(Parser)]
#[command(version, after_help = EXAMPLES, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: DdlpCommand,
}

const EXAMPLES: &str = "\
Try it without any data of your own:
  ddlp sample-data photos --images 600
  ddlp pack photos photos.ddlp
  ddlp run photos.ddlp --strategy mte --batch-size 32 --report report.html

`ddlp COMMAND --help` explains each command with examples. RUST_LOG=ddlp=debug shows what happens inside.";

/// Ends the help of each command that has no list of its own.
const EXIT_STATUSES: &str = "\
Exit status:
  0    success
  1    an error, described on standard error
  2    options that are unknown, invalid or contradictory
  129  stopped by SIGHUP
  130  stopped by Ctrl-C (SIGINT)
  143  stopped by SIGTERM";

/// Exit status after a wrong command line, whether clap or this program rejects it.
const WRONG_COMMAND_LINE: u8 = 2;

#[derive(Subcommand)]
enum DdlpCommand {
    Pack(pack::PackArgs),
    Push(push::PushArgs),
    Inspect(inspect::InspectArgs),
    Verify(verify::VerifyArgs),
    Show(show::ShowArgs),
    Split(split::SplitArgs),
    Run(Box<run::RunArgs>),
    Devices(devices::DevicesArgs),
    Top(top::TopArgs),
    /// Measure this machine.
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    SampleData(sample_data::SampleDataArgs),
    /// Convert images to L3 and back: lossless, decoded in parallel and in part.
    #[command(subcommand)]
    L3(l3::L3Command),
    /// Print the completions for a shell: source them, or save them where the shell's manual says.
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages, one for each command.
    Man {
        /// Folder for the pages, such as ~/.local/share/man/man1; created if it is missing
        folder: PathBuf,
    },
}

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    allocator::set_up();
    ddlp_pixels::map_large_blocks();
    ddlp_pixels::silence_decoder_panics();
    let cli = match Cli::from_arg_matches(&with_negative_numbers(command_line()).get_matches()) {
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
            if wrong::is_of_command_line(&error) { ExitCode::from(WRONG_COMMAND_LINE) } else { ExitCode::FAILURE }
        }
    }
}

/// Returns the definitions of all commands, each with its exit statuses.
fn command_line() -> clap::Command {
    with_exit_statuses(Cli::command())
}

fn with_exit_statuses(command: clap::Command) -> clap::Command {
    let help = command.get_after_help().map(|help| format!("{help}\n\n")).unwrap_or_default();
    let has_own = help.contains("Exit status:") || command.has_subcommands();
    let command = if has_own { command } else { command.after_help(help + EXIT_STATUSES) };
    command.mut_subcommands(with_exit_statuses)
}

/// Makes options take a value below zero, so that the error says which values are possible, and not that an option is
/// unknown.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    command
        .mut_args(|arg| {
            let has_value = !arg.is_positional() && arg.get_action().takes_values();
            if has_value { arg.allow_negative_numbers(true) } else { arg }
        })
        .mut_subcommands(with_negative_numbers)
}

fn dispatch(command: DdlpCommand, interrupt: &Interrupt) -> anyhow::Result<Ending> {
    // A file that reaches `ulimit -f` gives an error, as a full disk does, instead of ending the process.
    SigSet::from(Signal::SIGXFSZ).thread_block()?;
    match command {
        DdlpCommand::Pack(args) => pack::pack(&args, interrupt),
        DdlpCommand::Push(args) => push::push(&args, interrupt),
        DdlpCommand::Inspect(args) => inspect::inspect(&args),
        DdlpCommand::Verify(args) => verify::verify(&args, interrupt),
        DdlpCommand::Show(args) => show::show(&args),
        DdlpCommand::Split(args) => split::split(&args),
        DdlpCommand::Run(args) => run::run(&args, interrupt),
        DdlpCommand::Devices(args) => devices::devices(&args),
        DdlpCommand::Top(args) => top::top(&args),
        DdlpCommand::Bench(command) => bench::bench(&command, interrupt),
        DdlpCommand::L3(command) => l3::l3(&command),
        DdlpCommand::SampleData(args) => sample_data::sample_data(&args, interrupt),
        DdlpCommand::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command_line(), "ddlp", &mut script);
            output::print(&String::from_utf8_lossy(&script)).map(|()| Ending::Done)
        }
        DdlpCommand::Man { folder } => {
            fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
            let mut command = command_line().disable_help_subcommand(true);
            command.build();
            write_pages(&command, &folder).map(|()| Ending::Done)
        }
    }
}

/// Writes the manual page of a command and those of its subcommands, each as a whole.
fn write_pages(command: &clap::Command, folder: &Path) -> anyhow::Result<()> {
    for subcommand in command.get_subcommands() {
        write_pages(subcommand, folder)?;
    }
    let (page, mut bytes) = (clap_mangen::Man::new(command.clone()), Vec::new());
    page.render(&mut bytes)?;
    output::write(&folder.join(page.get_filename()), &bytes, "a manual page")
}

/// Starts the libraries' log on standard error if RUST_LOG asks for it. The live display itself shows what matters.
fn start_log() {
    let filter = tracing_subscriber::EnvFilter::builder()
        .with_default_directive(tracing_subscriber::filter::LevelFilter::OFF.into())
        .from_env_lossy();
    let has_colours =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(has_colours).with_writer(std::io::stderr).init();
}

/// Formats an error and its causes, one per line.
fn error_text(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for (depth, line) in ddlp_cause::messages(error.as_ref()).iter().enumerate() {
        let head = if depth == 0 { "error: " } else { "  because: " };
        let body = line.lines().map(text::message).collect::<Vec<_>>().join("\n    ");
        text.push_str(&format!("{head}{body}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        with_negative_numbers(command_line()).debug_assert();
    }

    fn assert_statuses_are_listed(command: &clap::Command) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let is_listed = ["0", "1", "2", "129", "130", "143"]
            .iter()
            .all(|status| help.lines().any(|line| line.starts_with(&format!("  {status} "))));
        assert!(is_listed || command.has_subcommands(), "{}: {help}", command.get_name());
        command.get_subcommands().for_each(assert_statuses_are_listed);
    }

    #[test]
    fn help_lists_the_exit_statuses_of_every_command() {
        assert_statuses_are_listed(&command_line());
    }

    /// Options that need no default: without them nothing is read, written or done.
    const WITHOUT_DEFAULT: [&str; 10] = [
        "json",
        "report",
        "plan-out",
        "state-out",
        "plan-in",
        "resume",
        "max-side",
        "sample",
        "picture",
        "on-behalf-of",
    ];

    fn assert_defaults_are_named(command: &clap::Command) {
        for arg in command.get_arguments().filter(|arg| !arg.is_positional() && arg.get_action().takes_values()) {
            let name = arg.get_long().unwrap_or_default();
            let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
            let is_named = !arg.get_default_values().is_empty() || help.contains("[default: ");
            assert!(is_named || WITHOUT_DEFAULT.contains(&name), "{} --{name}: {help}", command.get_name());
        }
        command.get_subcommands().for_each(assert_defaults_are_named);
    }

    #[test]
    fn help_names_the_default_of_every_option() {
        assert_defaults_are_named(&Cli::command());
    }

    #[test]
    fn errors_name_their_causes_once_and_cannot_steer_the_terminal() {
        let error =
            anyhow::anyhow!("no such file").context("cannot open \u{1b}[2Jx: no such file").context("cannot run");
        assert_eq!(error_text(&error), "error: cannot run\n  because: cannot open \u{fffd}[2Jx: no such file\n");
    }
}
