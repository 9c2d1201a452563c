//! `ddlp bench dual`: both prongs together against each prong alone.

use super::cases::{self, Cores, SlotAccess};
use super::child::{DriveOptions, Setting};
use super::figures::{self, DualFigures, Measured, PUBLISHED_FACTOR, SlotFigures};
use super::table;
use crate::cores::{self, CoreList};
use crate::interrupt::Interrupt;
use crate::output::{self, Files};
use crate::run::{parse_positive, parse_throttle, pipeline, pipeline_file};
use crate::wrong::wrong;
use crate::{Ending, machine, text};
use anyhow::{Context, bail};
use clap::Args;
use ddlp_host::{Host, LocalDrive, drive_address, open_dataset};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::path::PathBuf;

/// Measure both prongs together against each prong alone.
///
/// Runs the CPU alone, the drive alone and each strategy in turn, round after round. Host and drive are pinned to
/// separate cores. Result slots are first shared by host and drive, then read by NVMe/TCP. Efficiency is the rate of
/// both together ÷ (rate of the CPU alone + rate of the drive alone), the end of the epoch included.
///
/// If the dataset lies on a drive alone (tcp://HOST:PORT/NQN or /dev/nvmeX), that drive takes part in place of a local
/// one. It works on cores of its own; the host reads its results, and the samples for the CPU, over NVMe.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ddlp bench dual photos.ddlp
  ddlp bench dual photos.ddlp --throttle 0.25 --results shared --json dual.json
  ddlp bench dual photos.ddlp --samples 2000 --rounds 3        a quick look
  ddlp bench dual tcp://10.0.0.7:4420/nqn.2024-01.example:drive")]
pub struct DualArgs {
    /// A pack; also an image folder, CIFAR-10's binary files, tar shards, or the drive that alone holds the dataset
    dataset: PathBuf,
    /// Pipeline for each sample: imagenet-train, imagenet-val, cifar-train, or a TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = "imagenet-train")]
    pipeline: String,
    /// Samples per batch
    #[arg(
        long, visible_alias = "batch", value_name = "N", default_value_t = 64,
        value_parser = clap::value_parser!(u32).range(1..=65_536)
    )]
    batch_size: u32,
    /// Samples per run; a smaller dataset is repeated
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = parse_positive)]
    samples: u64,
    /// Number of rounds; figures are medians over them
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Slow the drive down to this share of its speed
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, value_parser = parse_throttle)]
    throttle: f64,
    /// How the host gets the drive's results [default: both ways, one after the other]
    #[arg(long, value_enum)]
    results: Vec<SlotAccess>,
    /// Cores of the host, one thread each [default: one]
    #[arg(long, value_name = "LIST", value_parser = cores::parse)]
    host_cores: Option<CoreList>,
    /// Cores of the drive, one thread each [default: another one]
    #[arg(long, value_name = "LIST", value_parser = cores::parse)]
    drive_cores: Option<CoreList>,
    /// Result slots for mte [default: as many as the tail needs and memory allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    slots: Option<u32>,
    /// Seed for the order of samples and for all random draws
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Program of the drive's agent [default: ddlp-device beside this program, or in PATH]
    #[arg(long, value_name = "FILE")]
    agent: Option<PathBuf>,
    /// Write the figures as JSON (- for standard output)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the command.
pub fn dual(args: &DualArgs, interrupt: &Interrupt) -> anyhow::Result<Ending> {
    if let Some(path) = &args.json {
        output::check_writable(path, "the JSON report")?;
    }
    // The machine is described before this process confines itself to the host's cores.
    let machine = machine::describe();
    let remote = drive_address(&args.dataset);
    if let Some(address) = remote {
        refuse_local_options(args, address)?;
    }
    let dataset = open_dataset(&args.dataset, &Host::system())?;
    files(args).check(&*dataset, &args.dataset)?;
    if remote.is_none() {
        check_agent(args)?;
    }
    let image_bytes = pipeline(&args.pipeline)?.output().bytes() as u64;
    let available = cores::available()?;
    let cores = match remote {
        Some(_) => Cores::of_host(&available, args.host_cores.clone()),
        None => Cores::choose(&available, args.host_cores.clone(), args.drive_cores.clone(), cases::siblings),
    };
    cores::check(&cores.host, &available, "the host")?;
    if let Some(drive) = &cores.drive {
        cores::check(drive, &cores::online()?, "the drive")?;
    }
    if let Some(warning) = &cores.warning {
        eprintln!("warning: {warning}");
    }
    pin_to(&cores.host)?;
    let setting = setting(args, &cores);
    let mut measured = measure(args, &cores, &setting, dataset.len(), interrupt)?;
    let corrupt = figures::corrupt_samples(&measured);
    let is_complete = measured.iter().all(|measured| measured.runs.len() as u64 == args.rounds);
    let rounds = figures::whole_rounds(&mut measured);
    let Some(cpu) = figures::cpu_figures(&measured) else {
        eprintln!("stopped by {}: no run was complete, so there are no figures", interrupt.what());
        return Ok(Ending::Interrupted);
    };
    let slots: Vec<SlotFigures> =
        kinds(args).iter().filter_map(|slots| figures::slot_figures(&measured, *slots)).collect();
    let strategies = slots.first().map(|slots| slots.cases.clone()).unwrap_or_default();
    let outcome = DualFigures {
        version: machine::revision(),
        machine,
        dataset: args.dataset.display().to_string(),
        dataset_samples: dataset.len(),
        pipeline: args.pipeline.clone(),
        image_bytes,
        batch: args.batch_size,
        samples: args.samples,
        rounds,
        is_complete,
        corrupt,
        throttle: args.throttle,
        host_cores: cores.host.to_string(),
        drive_cores: cores.drive.map_or("unknown".to_owned(), |drive| drive.to_string()),
        too_few_cores: cores.warning,
        published_factor: PUBLISHED_FACTOR,
        strategies: [cpu.clone()].into_iter().chain(strategies).collect(),
        cpu,
        slots,
    };
    if !is_complete {
        let asked = text::plural(args.rounds, "round");
        // A terminal has written ^C.
        eprintln!("\nstopped by {} before the end of {asked}; these runs were complete:", interrupt.what());
    }
    output::report(&table::describe(&outcome), args.json.as_deref(), &outcome)?;
    Ok(if is_complete { Ending::Done } else { Ending::Interrupted })
}

/// Returns the files that the command reads and writes, except for the dataset.
fn files(args: &DualArgs) -> Files<'_> {
    Files::default()
        .writes("--json", args.json.as_deref())
        .reads("--pipeline", pipeline_file(&args.pipeline))
        .reads("this program", std::env::current_exe().ok())
        .reads("the agent", drive(args).program())
}

/// Fails if the agent is missing, before anything is measured.
fn check_agent(args: &DualArgs) -> anyhow::Result<()> {
    match drive(args).program() {
        Some(program) if program.is_file() => Ok(()),
        Some(program) => bail!("the agent {} (--agent) is not a file", program.display()),
        None => bail!(
            "the agent, ddlp-device, is neither beside this program nor on the PATH: build it (cargo build \
             --release -p ddlp-device), or name it with --agent FILE"
        ),
    }
}

/// Fails if an option is given that applies only to a drive that this command starts.
fn refuse_local_options(args: &DualArgs, address: &str) -> anyhow::Result<()> {
    let given = [
        ("--agent", args.agent.is_some()),
        ("--drive-cores", args.drive_cores.is_some()),
        ("--slots", args.slots.is_some()),
        ("--throttle", args.throttle < 1.0),
        ("--results", !args.results.is_empty()),
    ];
    match given.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => {
            wrong!(
                "{option} applies only to a drive that this command starts, but {address} runs already: leave it out"
            )
        }
        None => Ok(()),
    }
}

fn drive(args: &DualArgs) -> LocalDrive {
    LocalDrive { agent: args.agent.clone(), ..LocalDrive::default() }
}

fn kinds(args: &DualArgs) -> Vec<SlotAccess> {
    if drive_address(&args.dataset).is_some() {
        return vec![SlotAccess::Read];
    }
    if args.results.is_empty() { vec![SlotAccess::Shared, SlotAccess::Read] } else { args.results.clone() }
}

/// Pins this process and the runs that it starts to the host's cores; the drive moves itself to its own.
fn pin_to(list: &CoreList) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    for core in &list.0 {
        set.set(*core).with_context(|| format!("there is no core {core}"))?;
    }
    sched_setaffinity(Pid::from_raw(0), &set).with_context(|| format!("cannot move to cores {list}"))
}

fn setting<'a>(args: &'a DualArgs, cores: &Cores) -> Setting<'a> {
    let options = |pairs: &[(&str, String)]| -> Vec<String> {
        pairs.iter().flat_map(|(name, value)| [format!("--{name}"), value.clone()]).collect()
    };
    let common = options(&[
        ("pipeline", args.pipeline.clone()),
        ("batch-size", args.batch_size.to_string()),
        ("seed", args.seed.to_string()),
        ("policy", "skip".to_string()),
        ("max-corrupt", "100%".to_string()),
        ("threads", cores.host.0.len().to_string()),
        ("cores", cores.host.to_string()),
    ]);
    let drive = match &cores.drive {
        None => DriveOptions::Remote,
        Some(cores) => {
            let mut local = options(&[
                ("drive", "local".to_string()),
                ("drive-threads", cores.0.len().to_string()),
                ("drive-cores", cores.to_string()),
                ("throttle", args.throttle.to_string()),
            ]);
            if let Some(agent) = &args.agent {
                local.extend(["--agent".to_string(), agent.display().to_string()]);
            }
            DriveOptions::Local(local)
        }
    };
    Setting { dataset: &args.dataset, common, drive, tail_slots: args.slots }
}

/// Measures all rounds; returns what is complete if it is interrupted.
fn measure(
    args: &DualArgs,
    cores: &Cores,
    setting: &Setting<'_>,
    dataset_samples: u64,
    interrupt: &Interrupt,
) -> anyhow::Result<Vec<Measured>> {
    let cases = cases::round(&kinds(args));
    let mut measured: Vec<Measured> = cases.iter().map(|case| Measured { case: *case, runs: Vec::new() }).collect();
    eprintln!("warming up: every sample once, by the CPU");
    let Some(warm) = setting.warm_up(dataset_samples.min(args.samples), interrupt)? else { return Ok(measured) };
    if !warm.corrupt.is_empty() {
        eprintln!("note: every run leaves out {}", text::plural(warm.corrupt.len() as u64, "corrupt sample"));
    }
    // A drive elsewhere is expected to be as fast as the host.
    let drive_cores = cores.drive.as_ref().unwrap_or(&cores.host);
    let drive_share = args.throttle * drive_cores.0.len() as f64 / cores.host.0.len() as f64;
    let round_s = cases::round_s(&cases, args.samples, warm.images_per_s, drive_share);
    eprintln!(
        "measuring: {} of {} each; the CPU alone made {}, so the whole takes about {}",
        text::plural(args.rounds, "round"),
        text::plural(cases.len() as u64, "run"),
        text::rate(warm.images_per_s),
        about(round_s * args.rounds as f64)
    );
    for round in 1..=args.rounds {
        for (at, case) in cases.iter().enumerate() {
            let Some(run) = setting.run(*case, args.samples, interrupt)? else { return Ok(measured) };
            let slots = case.slots.map_or(String::new(), |slots| format!(", slots {}", slots.name()));
            eprintln!("round {round}/{}: {}{slots}: {}", args.rounds, case.strategy, text::rate(run.images_per_s));
            measured[at].runs.push(run);
        }
    }
    Ok(measured)
}

/// Formats an estimated time.
fn about(seconds: f64) -> String {
    if seconds < 100.0 { format!("{:.0} s", seconds.ceil()) } else { text::seconds(seconds) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_that_names_a_file_is_an_input_or_an_output() {
        output::assert_complete(files, &[]);
    }
}
