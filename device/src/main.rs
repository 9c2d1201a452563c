//! `ddlp-device`: the drive's agent as a program.
#![forbid(unsafe_code)]

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use ddlp_csd::memory::allocator::{self, Allocator};
use ddlp_device::agent::{ServeArgs, Settings, serve};
use ddlp_device::doctor::{DoctorArgs, doctor};
use nix::sys::signal::{SigSet, Signal};
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// A computational storage drive in software: holds a dataset and preprocesses its batches for hosts that reach it by NVMe/TCP.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a dataset until SIGTERM or SIGINT; running batches are finished first, a second signal leaves at once.
    ///
    /// Prints one JSON line with the address and the NQN when it is ready. Logs go to standard error; RUST_LOG sets how
    /// much (error, warn, info, debug). A service manager that waits for it (sd_notify) is told. Leaves with 78 when the options or the
    /// configuration are wrong, with 1 when it fails otherwise.
    Serve(Box<ServeArgs>),
    /// Check this machine: cores, memory, storage, network, clock, heat, and the images per second to expect.
    ///
    /// Leaves with 0 when nothing keeps the agent from serving (warnings included), with 1 when something does.
    Doctor(DoctorArgs),
    /// Print the completions for a shell: put them where it looks, as its manual says, or source them.
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages, one for each command.
    Man {
        /// The folder for them, such as ~/.local/share/man/man1; it is made if it is not there
        folder: PathBuf,
    },
}

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// The configuration is wrong (sysexits.h): starting again would not help, and the systemd unit does not.
const EX_CONFIG: u8 = 78;

fn main() -> ExitCode {
    allocator::spare_address_space();
    let command = Cli::parse().command;
    // A file that meets `ulimit -f` is an error to be said, as on a full disk, and not the end of the process.
    if let Err(error) = SigSet::from(Signal::SIGXFSZ).thread_block() {
        return failed(&error.into(), ExitCode::FAILURE);
    }
    match command {
        Command::Serve(args) => {
            log();
            let settings = match Settings::from_args(*args) {
                Ok(settings) => settings,
                Err(error) => return failed(&error, ExitCode::from(EX_CONFIG)),
            };
            match serve(&settings) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => failed(&error, ExitCode::FAILURE),
            }
        }
        Command::Doctor(args) => match doctor(&args) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => failed(&error, ExitCode::FAILURE),
        },
        Command::Completions { shell } => finished(print_completions(shell)),
        Command::Man { folder } => finished(write_manual(&folder)),
    }
}

fn print_completions(shell: Shell) -> io::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ddlp-device", &mut script);
    io::stdout().write_all(&script)
}

fn write_manual(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    clap_mangen::generate_to(Cli::command(), folder)
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

/// Logs go to standard error.
fn log() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let has_colours =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(has_colours).with_writer(std::io::stderr).init();
}
