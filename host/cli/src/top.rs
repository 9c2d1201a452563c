//! `ddlp top`: what the loaders and agents of this machine do now.
//!
//! - [`watch`]: finds the programs and reads their figures. [`now`]: what these say about the time since the last
//!   reading. [`screen`]: text for people.

mod now;
mod screen;
mod watch;

use crate::{Ending, output};
use anyhow::Context;
use clap::Args;
use screen::Screen;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;
use watch::Watch;

/// Time between two readings.
const EVERY: Duration = Duration::from_secs(1);

/// Show what the loaders and agents of this machine do now: rates, queues, stalls.
///
/// The command finds the runs, training programs and agents of the same user by itself, and draws anew each second. A
/// program of another user or on another machine is shown if it serves its figures at an address (--metrics).
#[derive(Args)]
#[command(after_help = "\
Examples:
  ddlp top
  ddlp top --metrics 127.0.0.1:9465        also the agent of a service, whose figures are there
  ddlp top --once --json | jq '.loaders[].images_per_s'

What the figures mean:
  waits      share of the time in which training waited for a batch; 100 % if it stalls
  ready      finished batches that wait for their delivery
  free       buffers without a batch; with none, training keeps the loader waiting
  in work    batches that a prong prepares, or a drive has queued")]
pub struct TopArgs {
    /// Show the figures once, after a second, and end
    #[arg(long)]
    once: bool,
    /// Print JSON, one line for each second
    #[arg(long)]
    json: bool,
    /// Also show the program that serves its figures at this address; may be given several times [default: only this
    /// user's programs on this machine]
    #[arg(long, value_name = "ADDR")]
    metrics: Vec<SocketAddr>,
}

/// Runs the command.
pub fn top(args: &TopArgs) -> anyhow::Result<Ending> {
    let mut watch = Watch::new(&args.metrics);
    let mut look = || watch.look().context("cannot find the programs of this user");
    look()?;
    let mut screen = Screen::new(args.once);
    loop {
        thread::sleep(EVERY);
        let programs = look()?;
        if args.json {
            output::print(&(serde_json::to_string(&programs)? + "\n"))?;
        } else {
            screen.show(&programs)?;
        }
        if args.once {
            return Ok(Ending::Done);
        }
    }
}
