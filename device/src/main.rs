//! `ddlp-device`: the drive's agent as a program.
#![forbid(unsafe_code)]

use anyhow::Result;
use clap::{Parser, Subcommand};
use ddlp_device::agent::{ServeArgs, Settings, serve};
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

fn main() -> Result<()> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let Command::Serve(args) = Cli::parse().command;
    serve(&Settings::from_args(*args)?)
}
