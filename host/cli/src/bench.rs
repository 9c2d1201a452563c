//! `ddlp bench …`: measurements that print machine, revision, medians and spread.
//!
//! - [`dual`]: both prongs together against each alone; [`cases`]: the runs; [`child`]: one run; [`figures`]: results
//!   computed from the runs; [`table`]: their presentation.

mod cases;
mod child;
mod dual;
mod figures;
mod table;

use crate::Ending;
use crate::interrupt::Interrupt;
use clap::Subcommand;

/// Measurements.
#[derive(Subcommand)]
pub enum BenchCommand {
    Dual(dual::DualArgs),
}

/// Runs the command.
pub fn bench(command: &BenchCommand, interrupt: &Interrupt) -> anyhow::Result<Ending> {
    match command {
        BenchCommand::Dual(args) => dual::dual(args, interrupt),
    }
}
