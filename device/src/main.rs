//! `ddlp-device`: the drive's agent as a program.
#![forbid(unsafe_code)]

use clap::{Parser, Subcommand};
use ddlp_device::agent::{ServeArgs, Settings, serve};
use std::io::IsTerminal;
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
    /// much (error, warn, info, debug).
    Serve(Box<ServeArgs>),
}

fn main() -> ExitCode {
    let Command::Serve(args) = Cli::parse().command;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let has_colours =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(has_colours).with_writer(std::io::stderr).init();
    match Settings::from_args(*args).and_then(|settings| serve(&settings)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
