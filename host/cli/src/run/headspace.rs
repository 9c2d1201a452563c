//! `ddlp run --headspace`: what training would gain if loading were free.

use super::args::RunArgs;
use super::failure::explained;
use super::{pretend_to_train, products};
use crate::interrupt::Interrupt;
use crate::wrong::wrong;
use crate::{Ending, output, text};
use ddlp_host::{Headspace, Loader};
use ddlp_report::describe_headspace;
use std::time::Duration;

/// Epochs of the loader, so that the measurement does not end with an epoch.
pub const EPOCHS: u32 = u32::MAX;

/// Fails if the options fit no measurement.
pub fn check(args: &RunArgs) -> anyhow::Result<()> {
    if args.headspace.is_some() && args.step_ms <= 0.0 {
        wrong!("--headspace needs the time of a training step: give --step-ms above 0");
    }
    Ok(())
}

/// Measures for about this many seconds, and prints the result.
pub fn measure(args: &RunArgs, seconds: f64, mut loader: Loader, interrupt: &Interrupt) -> anyhow::Result<Ending> {
    if !args.quiet {
        eprintln!("measuring for about {}, alternately with and without loading", text::seconds(seconds));
    }
    let step = Duration::from_secs_f64(args.step_ms / 1000.0);
    let train = |_: &_| {
        pretend_to_train(step, interrupt);
        !interrupt.requested()
    };
    let measured = loader.headspace(Duration::from_secs_f64(seconds), train, |_| !interrupt.requested());
    drop(loader);
    let Some(headspace) = measured.map_err(explained)? else {
        if !args.quiet {
            eprintln!("stopped by {}", interrupt.what());
        }
        return Ok(Ending::Interrupted);
    };
    print(args, &headspace).map(|()| Ending::Done)
}

fn print(args: &RunArgs, headspace: &Headspace) -> anyhow::Result<()> {
    let summary = if args.quiet { String::new() } else { output::fitted(&text::flags(&describe_headspace(headspace))) };
    let json = args.json.as_deref();
    if let Some(path) = json {
        output::write(path, &serde_json::to_vec_pretty(headspace)?, products::JSON)?;
    }
    output::print_beside(json, &summary)
}
