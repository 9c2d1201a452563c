//! `ddlp-device`: the drive's agent as a program.
#![forbid(unsafe_code)]

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use ddlp_csd::memory::allocator::{self, Allocator};
use ddlp_dataset::{ability_name, beginning_of};
use ddlp_device::agent::{ServeArgs, Settings, serve};
use ddlp_device::doctor::{DoctorArgs, doctor};
use ddlp_device::replace;
use ddlp_pixels::Ability;
use nix::sys::signal::{SigSet, Signal};
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// A computational storage drive in software: holds a dataset, and prepares its batches for hosts over NVMe/TCP.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct AgentCli {
    #[command(subcommand)]
    command: AgentCommand,
}

/// Exit statuses of a command that says no others.
const EXIT_STATUSES: &str = "\
Exit status:
  0    success
  1    an error, described on standard error
  2    a wrong command line";

#[derive(Subcommand)]
enum AgentCommand {
    /// Serve a dataset until SIGTERM or SIGINT. The agent then finishes running batches; a second signal ends it at
    /// once.
    ///
    /// When the agent is ready, it prints one JSON line with its address and NQN, and tells the service manager
    /// (sd_notify). Logs go to standard error; RUST_LOG sets their level (error, warn, info, debug).
    #[command(after_help = "\
Exit status:
  0    ended by SIGTERM or SIGINT
  1    a failure, described on standard error
  2    an unknown option, or a value that cannot be read
  78   options or a configuration that cannot be served; starting again does not help")]
    Serve(Box<ServeArgs>),
    /// Check whether this machine can serve: dataset, identity, memory, slots, network, and the images per second.
    #[command(after_help = "\
Exit status:
  0    the agent can serve, even with warnings
  1    the agent cannot serve
  2    a wrong command line")]
    Doctor(DoctorArgs),
    /// List what this agent can do, with the digests by which a host tells whether it makes the same pixels.
    ///
    /// Each line has the number of an ability, the beginning of its digest, and what it is. A host compares the digests
    /// that its run needs.
    #[command(after_help = EXIT_STATUSES)]
    Abilities,
    /// Print the completions for a shell: source them, or save them where the shell's manual says.
    #[command(after_help = EXIT_STATUSES)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages, one for each command.
    #[command(after_help = EXIT_STATUSES)]
    Man {
        /// Folder for the pages, such as ~/.local/share/man/man1; created if it is missing
        folder: PathBuf,
    },
}

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Exit status for a wrong configuration (sysexits.h). Starting again would not help, and the systemd unit does not.
const EX_CONFIG: u8 = 78;

fn main() -> ExitCode {
    allocator::set_up();
    ddlp_pixels::map_large_blocks();
    ddlp_pixels::silence_decoder_panics();
    let command = AgentCli::parse().command;
    // A file that reaches `ulimit -f` is then an error to report, like a full disk; it does not kill the process.
    if let Err(error) = SigSet::from(Signal::SIGXFSZ).thread_block() {
        return failed(&error.into(), ExitCode::FAILURE);
    }
    match command {
        AgentCommand::Serve(args) => {
            log(args.parent_pipe.is_some());
            let settings = match Settings::from_args(*args) {
                Ok(settings) => settings,
                Err(error) => return failed(&error, ExitCode::from(EX_CONFIG)),
            };
            match serve(&settings) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => failed(&error, ExitCode::FAILURE),
            }
        }
        AgentCommand::Doctor(args) => match doctor(&args) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => failed(&error, ExitCode::FAILURE),
        },
        AgentCommand::Abilities => finished(print_abilities()),
        AgentCommand::Completions { shell } => finished(print_completions(shell)),
        AgentCommand::Man { folder } => finished(write_manual(&folder)),
    }
}

fn print_abilities() -> io::Result<()> {
    let mut out = io::stdout().lock();
    ddlp_dataset::abilities().iter().try_for_each(|Ability { number, digest }| {
        writeln!(out, "{:04x}  {}  {}", number.0, beginning_of(digest), ability_name(*number))
    })?;
    out.flush()
}

fn print_completions(shell: Shell) -> io::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut AgentCli::command(), "ddlp-device", &mut script);
    io::stdout().write_all(&script)
}

fn write_manual(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut command = AgentCli::command().disable_help_subcommand(true);
    command.build();
    write_pages(&command, folder)
}

/// Writes the manual page of a command and those of its subcommands, each as a whole.
fn write_pages(command: &clap::Command, folder: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands() {
        write_pages(subcommand, folder)?;
    }
    let (page, mut bytes) = (clap_mangen::Man::new(command.clone()), Vec::new());
    page.render(&mut bytes)?;
    replace::file(&folder.join(page.get_filename()), &bytes, 0o644)
}

fn finished(result: io::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error.into(), ExitCode::FAILURE),
    }
}

fn failed(error: &anyhow::Error, code: ExitCode) -> ExitCode {
    eprintln!("error: {error:#}");
    code
}

/// Sends logs to standard error. For a loader that started the agent, lines carry no time, since the loader logs them
/// with its own.
fn log(is_of_loader: bool) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let has_colours =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(has_colours).with_writer(std::io::stderr);
    if is_of_loader { log.without_time().init() } else { log.init() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_lists_the_exit_statuses_of_every_command() {
        for command in AgentCli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let is_listed = |status: &str| help.lines().any(|line| line.starts_with(&format!("  {status} ")));
            assert!(["0", "1", "2"].into_iter().all(is_listed), "{}: {help}", command.get_name());
        }
    }

    /// Options that need no default: without them nothing is read or done. Serving needs a dataset.
    const WITHOUT_DEFAULT: [&str; 4] = ["config", "dataset", "parent-pipe", "ready-fd"];

    #[test]
    fn help_names_the_default_of_every_option() {
        for command in AgentCli::command().get_subcommands() {
            for arg in command.get_arguments().filter(|arg| !arg.is_positional() && arg.get_action().takes_values()) {
                let name = arg.get_long().unwrap_or_default();
                let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
                let is_named = !arg.get_default_values().is_empty() || help.contains("[default: ");
                assert!(is_named || WITHOUT_DEFAULT.contains(&name), "{} --{name}: {help}", command.get_name());
            }
        }
    }
}
