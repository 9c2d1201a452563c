//! `ddlp bench gpu`: how fast batches reach a GPU.
//!
//! [`figures`] has the results and their presentation.

mod figures;

use super::child::{DriveOptions, RunFigures, Setting};
use super::{cases, figures as statistics};
use crate::interrupt::Interrupt;
use crate::output::{self, Files};
use crate::run::{parse_device, parse_positive, parse_seconds};
use crate::{Ending, cores, machine, text};
use anyhow::{Context, bail};
use clap::Args;
use ddlp_cuda::{Device, DeviceName, Meter, Work};
use ddlp_host::{DType, Host, open_dataset};
use ddlp_pixels::Pipeline;
use figures::{Compared, GpuFigures, Images, Moves, Rates};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Pipeline of the measured runs.
const PIPELINE: &str = "imagenet-train";
/// Share of a run's seconds for which a copy or a kernel is repeated.
const REPEATED: f64 = 0.1;
/// Batches of each thread in a run that finds out how many samples take the wanted time.
const BATCHES_FIRST: u64 = 4;

/// Measure how fast batches reach a GPU.
///
/// Measures copies to the device from plain and from locked memory, and through the delivery target; the kernels that
/// finish batches, beside copies within the device that move as many bytes; and images per second into the device from
/// a raw pack, from files and from an indexed pack, beside the same runs into host memory.
///
/// A ratio compares a measurement with the mean of the one before and the one after it; the control is the ratio of
/// these two, which differs from 1 by chance alone.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ddlp bench gpu photos
  ddlp bench gpu photos --device cuda:1 --rounds 5 --json gpu.json
  ddlp bench gpu photos --threads 1,8 --seconds 0.5        a quick look")]
pub struct GpuArgs {
    /// Image folder; packs of it are made in the folder for temporary files
    dataset: PathBuf,
    /// The GPU: cuda:N, or cuda for the one whose number is in LOCAL_RANK, else the first
    #[arg(long, value_name = "DEVICE", value_parser = parse_device, default_value = "cuda:0")]
    device: DeviceName,
    /// Samples per batch
    #[arg(
        long, visible_alias = "batch", value_name = "N", default_value_t = 256,
        value_parser = clap::value_parser!(u32).range(1..=65_536)
    )]
    batch_size: u32,
    /// Threads of the CPU prong, one run for each number; those beyond the cores of this machine are left out
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,4,16", value_parser = parse_positive)]
    threads: Vec<u64>,
    /// Number of rounds; figures are medians over them
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Seconds that a run of a loader takes, about
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = parse_seconds)]
    seconds: f64,
    /// Write the figures as JSON (- for standard output)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the command.
pub fn gpu(args: &GpuArgs, interrupt: &Interrupt) -> anyhow::Result<Ending> {
    let device = Device::open(args.device)?;
    if let Some(path) = &args.json {
        output::check_writable(path, "the JSON report")?;
    }
    let dataset = open_dataset(&args.dataset, &Host::system())?;
    files(args).check(&*dataset, &args.dataset)?;
    let shape = Pipeline::named(PIPELINE).expect("a built-in pipeline").output();
    let mut figures = GpuFigures {
        version: machine::revision(),
        machine: machine::describe(),
        device: device.name().to_owned(),
        batch: args.batch_size,
        shape: [shape.height, shape.width, shape.channels],
        rounds: args.rounds,
        copies: Vec::new(),
        kernels: Vec::new(),
        images: Vec::new(),
    };
    let handling = interrupt.handle(|| {});
    let mut meter = Meter::new(&device, args.batch_size, shape)?;
    let is_complete = measure_device(args, &mut meter, &mut figures, interrupt)?;
    drop(meter);
    drop(handling);
    let is_complete = is_complete && measure_images(args, &mut figures, interrupt)?;
    if !is_complete {
        eprintln!("\nstopped by {}; the figures so far:", interrupt.what());
    }
    output::report(&figures.describe(), args.json.as_deref(), &figures)?;
    Ok(if is_complete { Ending::Done } else { Ending::Interrupted })
}

/// Returns the files that the command reads and writes, except for the dataset.
fn files(args: &GpuArgs) -> Files<'_> {
    Files::default().writes("--json", args.json.as_deref()).reads("this program", std::env::current_exe().ok())
}

/// Measures something in each round: the base, the subject, and the base again. Returns `None` if it was interrupted.
fn compare(
    rounds: u64,
    interrupt: &Interrupt,
    mut rate: impl FnMut(bool) -> anyhow::Result<Option<f64>>,
) -> anyhow::Result<Option<Compared>> {
    let (mut subjects, mut ratios, mut controls) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let mut rates = [0.0; 3];
        for (rate_of, is_subject) in rates.iter_mut().zip([false, true, false]) {
            let Some(rate) = rate(is_subject)?.filter(|_| !interrupt.requested()) else { return Ok(None) };
            *rate_of = rate;
        }
        let [before, subject, after] = rates;
        subjects.push(subject);
        ratios.push(subject / ((before + after) / 2.0));
        controls.push(after / before);
    }
    Ok(Some(Compared { rate: Rates::of(subjects), ratio: Rates::of(ratios), control: Rates::of(controls) }))
}

/// Measures copies and kernels. Returns false if it was interrupted.
fn measure_device(
    args: &GpuArgs,
    meter: &mut Meter,
    figures: &mut GpuFigures,
    interrupt: &Interrupt,
) -> anyhow::Result<bool> {
    let copies = [("plain memory", Work::CopyPlain), ("locked memory", Work::CopyLocked), ("target", Work::Deliver)];
    for (name, copy) in copies {
        let Some(moves) = moves(args, meter, copy, Work::CopyLocked, interrupt)? else { return Ok(false) };
        eprintln!("{name}: GB/s {}", moves.compared);
        figures.copies.push((name.to_owned(), moves));
    }
    for dtype in [DType::U8, DType::F16, DType::Bf16, DType::F32] {
        for (order, planar) in [("NHWC", false), ("NCHW", true)] {
            let (kernel, copy) = (Work::Finish(dtype, planar), Work::CopyWithin(dtype));
            let Some(moves) = moves(args, meter, kernel, copy, interrupt)? else { return Ok(false) };
            eprintln!("{dtype} {order}: GB/s {}", moves.compared);
            figures.kernels.push((format!("{dtype} {order}"), moves));
        }
    }
    Ok(true)
}

/// Measures work that moves bytes, beside other work. Returns `None` if it was interrupted.
fn moves(
    args: &GpuArgs,
    meter: &mut Meter,
    subject: Work,
    base: Work,
    interrupt: &Interrupt,
) -> anyhow::Result<Option<Moves>> {
    let seconds = args.seconds * REPEATED;
    let times = [repetitions(meter, base, seconds)?, repetitions(meter, subject, seconds)?];
    let compared = compare(args.rounds, interrupt, |is_subject| {
        let work = if is_subject { subject } else { base };
        let seconds = meter.seconds(work, times[usize::from(is_subject)])?;
        Ok(Some(meter.bytes(work) as f64 / seconds / 1e9))
    })?;
    Ok(compared.map(|compared| Moves { compared, bytes: meter.bytes(subject) }))
}

/// Returns how often a piece of work is to be done so that all of it takes about this time.
fn repetitions(meter: &mut Meter, work: Work, seconds: f64) -> anyhow::Result<u32> {
    let mut times = 1;
    while meter.seconds(work, times)? * f64::from(times) < seconds {
        times *= 2;
    }
    Ok(times)
}

/// Measures runs of a loader. Returns false if it was interrupted.
fn measure_images(args: &GpuArgs, figures: &mut GpuFigures, interrupt: &Interrupt) -> anyhow::Result<bool> {
    let cores = cores::available()?.len() as u64;
    let packs = tempfile::tempdir().context("cannot make a folder for packs")?;
    let (raw, indexed) = (packs.path().join("raw.ddlp"), packs.path().join("indexed.ddlp"));
    pack(&args.dataset, &raw, &["--format", "raw"])?;
    pack(&args.dataset, &indexed, &[])?;
    for (name, dataset) in [("raw pack", raw.as_path()), ("files", &args.dataset), ("indexed pack", &indexed)] {
        for &threads in args.threads.iter().filter(|threads| **threads <= cores) {
            let Some(images) = images(args, dataset, threads, interrupt)? else { return Ok(false) };
            let name = format!("{name}, {}", text::plural(threads, "thread"));
            eprintln!("{name}: images/s {}", images.compared);
            figures.images.push((name, images));
        }
    }
    Ok(true)
}

/// Measures runs from one dataset. Returns `None` if it was interrupted.
fn images(args: &GpuArgs, dataset: &Path, threads: u64, interrupt: &Interrupt) -> anyhow::Result<Option<Images>> {
    let run = |on_device: bool, samples: u64| -> anyhow::Result<Option<RunFigures>> {
        let mut common = vec!["--batch-size".into(), args.batch_size.to_string()];
        common.extend(["--threads".into(), threads.to_string()]);
        if on_device {
            common.extend(["--device".into(), args.device.to_string()]);
        }
        let setting = Setting { dataset, common, drive: DriveOptions::Remote, tail_slots: None };
        setting.run(cases::CPU, samples, interrupt)
    };
    let batch = u64::from(args.batch_size);
    let Some(first) = run(false, batch * threads * BATCHES_FIRST)? else { return Ok(None) };
    let samples = ((first.images_per_s * args.seconds) as u64).max(1).next_multiple_of(batch);
    let mut cpu_s = Vec::new();
    let compared = compare(args.rounds, interrupt, |on_device| {
        let Some(figures) = run(on_device, samples)? else { return Ok(None) };
        if on_device {
            cpu_s.push(figures.host_cpu_s / figures.images as f64 * 1000.0);
        }
        Ok(Some(figures.images_per_s))
    })?;
    let host_cpu_s_per_1000_images = statistics::median(&cpu_s).unwrap_or_default();
    Ok(compared.map(|compared| Images { compared, samples, host_cpu_s_per_1000_images }))
}

/// Makes a pack of the dataset, by a process of its own.
fn pack(from: &Path, to: &Path, options: &[&str]) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("cannot find the file of this program")?;
    let mut command = Command::new(program);
    command.arg("pack").args([from, to]).arg("--quiet").args(options);
    let status = command.status().context("cannot start ddlp pack")?;
    if !status.success() {
        bail!("ddlp pack failed ({status}); its message is above");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_that_names_a_file_is_an_input_or_an_output() {
        output::assert_complete(files, &[]);
    }
}
