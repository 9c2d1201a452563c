//! `ddlp-qemu`: a shell on a guest.
#![forbid(unsafe_code)]

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use ddlp_qemu::board::{Board, PACKAGE};
use ddlp_qemu::drive::{DriveGuest, Serve};
use ddlp_qemu::guest::{Bus, Guest};
use ddlp_qemu::host::{HostGuest, HostKernel};
use std::io::{BufRead, stdin, stdout};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest time that a command may run.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Boot the tests' guests, and run commands in them.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct QemuCli {
    #[command(subcommand)]
    command: QemuCommand,
}

#[derive(Subcommand)]
enum QemuCommand {
    /// Boot a guest and run the commands from standard input there, until the end of input.
    Boot {
        #[command(subcommand)]
        guest: Which,
    },
}

#[derive(Subcommand)]
enum Which {
    /// The ARM drive, with an agent that serves a dataset.
    Drive {
        /// Pack to serve.
        dataset: PathBuf,
        /// Samples of the largest batch.
        #[arg(long, default_value_t = 256)]
        batch: u64,
    },
    /// An x86-64 host, which reaches this machine at 10.0.2.2.
    Host {
        /// Boot Linux 6.12 in place of 6.1.
        #[arg(long)]
        newer: bool,
        /// Add an ordinary NVMe disk, emulated by QEMU.
        #[arg(long)]
        ordinary: bool,
        /// Files for the folder /data.
        data: Vec<PathBuf>,
    },
    /// Debian 12 for arm64 with systemd, and the agent's package on a second disk.
    Board {
        /// Files to put beside the package.
        data: Vec<PathBuf>,
    },
}

fn main() -> Result<()> {
    let QemuCommand::Boot { guest } = QemuCli::parse().command;
    match guest {
        Which::Drive { dataset, batch } => {
            present(&[&dataset])?;
            let drive = DriveGuest::start("boot-drive", Bus::Virtio, &[("dataset", &dataset)])?;
            drive.ready()?;
            let agent = drive.serve(&Serve::new("dataset", batch))?;
            eprintln!(
                "The drive serves {data}. Here:\n  ddlp run {data} --host-nqn {} --drive {}\n\
                 In a host guest (another terminal: cargo run -p ddlp-qemu -- boot host {data}), where the dataset is \
                 in /data:\n  \
                 nvme connect -t tcp -a 10.0.2.2 -s {} -n {} && ddlp devices\n  \
                 ddlp run /data/{name} --drive auto --batch {batch}",
                ddlp_qemu::HOST_NQN,
                agent.url_here(),
                agent.port,
                agent.nqn,
                data = dataset.display(),
                name = dataset.file_name().unwrap_or_default().display(),
            );
            converse(drive.guest())
        }
        Which::Host { newer, ordinary, data } => {
            present(&data)?;
            let kernel = if newer { HostKernel::Linux6_12 } else { HostKernel::Linux6_1 };
            let host = HostGuest::start("boot-host", kernel, ordinary, &named(&data)?)?;
            host.guest().ready()?;
            converse(host.guest())
        }
        Which::Board { data } => {
            present(&data)?;
            let board = Board::start("boot-board", &named(&data)?)?;
            board.ready()?;
            eprintln!(
                "mount /dev/nvme0n1 /mnt && dpkg -i /mnt/{PACKAGE} installs the agent. The guest's port 4420 is port \
                 {} of this machine.",
                board.port()
            );
            converse(board.guest())
        }
    }
}

/// Fails if a file is missing, before everything is built.
fn present(files: &[impl AsRef<Path>]) -> Result<()> {
    for file in files {
        let file = file.as_ref();
        file.metadata().with_context(|| format!("there is no {}", file.display()))?;
    }
    Ok(())
}

/// Returns files with their names.
fn named(data: &[PathBuf]) -> Result<Vec<(&str, &Path)>> {
    let named = data.iter().map(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        Ok((name.with_context(|| format!("{} has no name", path.display()))?, path.as_path()))
    });
    named.collect()
}

/// Runs the lines of standard input in the guest.
fn converse(guest: &Guest) -> Result<()> {
    eprintln!("The console is in {}. Ctrl-D ends the guest.", guest.machine().log().display());
    let mut lines = stdin().lock().lines();
    loop {
        eprint!("{}# ", guest.machine().name);
        let Some(line) = lines.next() else { return Ok(()) };
        let output = guest.start_command(&line?)?.follow(PATIENCE, &mut stdout().lock())?;
        if output.status != 0 {
            eprintln!("[status {}]", output.status);
        }
    }
}
