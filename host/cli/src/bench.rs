//! `ddlp bench …`: measurements that print machine, revision, medians and spread.
//!
//! - [`dual`]: both prongs together against each alone; [`cases`]: the runs; [`child`]: one run; [`figures`]: results
//!   computed from the runs; [`table`]: their presentation.
//! - [`mod@gpu`]: copies to a GPU, kernels, and runs into it.
//! - [`mod@remote`]: loading from a server behind a long line; [`mod@line`]: that line.

mod cases;
mod child;
mod dual;
mod figures;
mod gpu;
mod line;
mod remote;
mod table;

use crate::Ending;
use crate::interrupt::Interrupt;
use clap::Subcommand;

/// Measurements.
#[derive(Subcommand)]
pub enum BenchCommand {
    Dual(dual::DualArgs),
    Gpu(gpu::GpuArgs),
    Line(line::LineArgs),
    Remote(remote::RemoteArgs),
}

/// Runs the command.
pub fn bench(command: &BenchCommand, interrupt: &Interrupt) -> anyhow::Result<Ending> {
    match command {
        BenchCommand::Dual(args) => dual::dual(args, interrupt),
        BenchCommand::Gpu(args) => gpu::gpu(args, interrupt),
        BenchCommand::Line(args) => line::line(args),
        BenchCommand::Remote(args) => remote::remote(args, interrupt),
    }
}
