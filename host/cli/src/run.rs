//! `ddlp run`: the main job.
//!
//! - [`args`]: the command line; [`given`]: its flags for the loader's options; [`options`]: the loader's options;
//!   [`drives`]: the drives.
//! - [`failure`]: the advice for an error about a sample that ends the run.
//! - [`starting`]: what the command says while it waits for the drive that holds the dataset.
//! - [`live`]: the display during the run; [`summary`]: the text after it.
//! - [`products`]: the output files; [`saving`]: the state file, which is also written during the run.
//! - [`headspace`]: a measurement in place of a run.

mod args;
mod drives;
mod failure;
mod given;
mod headspace;
mod live;
mod options;
mod products;
mod saving;
mod starting;
mod summary;

pub use args::{RunArgs, parse_device, parse_positive, parse_seconds, parse_throttle};

use crate::cores::{self, CoreList};
use crate::interrupt::Interrupt;
use crate::wrong::wrong;
use crate::{Ending, output, text};
use anyhow::{Context, bail};
use ddlp_cuda::{CudaError, CudaTarget, Device, DeviceName, Output};
use ddlp_dataset::Dataset;
use ddlp_host::report::Report;
use ddlp_host::{Batch, Digest, Loader, LoaderError, LoaderOptions, LoaderState, PLAN_BYTES_MAX, Plan, Strategy};
use ddlp_pixels::Pipeline;
use failure::explained;
pub use given::flag_name;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid};
use options::Before;
use products::Written;
use saving::Saving;
use starting::Starting;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Largest size of a pipeline's description.
const PIPELINE_BYTES_MAX: usize = 1 << 20;
/// Largest size of a state, which names each batch of an epoch.
const STATE_BYTES_MAX: usize = 256 << 20;
/// Time for which a simulated step sleeps before it looks for Ctrl-C.
const STEP_PIECE: Duration = Duration::from_millis(50);

/// The way in which the epochs ended.
enum Delivered {
    All,
    /// `--stop-after` ended them.
    Stopped,
    Interrupted,
    Failed(anyhow::Error),
}

/// Runs the command.
pub fn run(args: &RunArgs, interrupt: &Interrupt) -> anyhow::Result<Ending> {
    if let Some(process) = args.on_behalf_of {
        end_with(Pid::from_raw(process))?;
    }
    headspace::check(args)?;
    products::check_writable(args)?;
    let available = cores::available()?;
    if let Some(list) = args.given.cores() {
        cores::check(&list, &available, "the host")?;
    }
    let of_drive = CoreList(args.given.drive.cores.clone());
    cores::check(&of_drive, &cores::online()?, "the drive")?;
    let mut device = args.device.map(Accelerator::open).transpose()?;
    let resumed = args.resume.as_deref().map(read_state).transpose()?;
    let plan = args.plan_in.as_deref().map(read_plan).transpose()?;
    let before = match (&resumed, &args.resume, &plan, &args.plan_in) {
        (Some(state), Some(path), ..) => Before::State(state, path),
        (_, _, Some(plan), Some(path)) => Before::Plan(plan, path),
        _ => Before::None,
    };
    let mut options = options::loader_options(args, before)?;
    drives::add_drives(args, &mut options)?;
    let finished = resumed.as_ref().map(|state| state.epoch).filter(|done| *done >= options.epochs);
    if finished.is_some() && options.strategy != Strategy::Csd {
        options.drives = Some(Vec::new());
    }
    let drive = ddlp_host::drive_address(&args.dataset).filter(|_| !args.quiet);
    let starting = drive.map(Starting::watch);
    let dataset =
        ddlp_host::open_dataset_with(&args.dataset, &options.host()?, &options.opening(), options.cache().as_ref())
            .map_err(plain)?;
    products::files(args).check(&*dataset, &args.dataset)?;
    let rejected = ddlp_host::note_of_rejected(&*dataset, options.policy).filter(|_| !args.quiet && finished.is_none());
    let mut loader = build(args, options, dataset, device.as_ref())?;
    drop(starting);
    if let Some(note) = rejected {
        eprintln!("note: {}", text::message(&note));
    }
    let stopper = loader.stopper();
    let handling = interrupt.handle(move || stopper.stop());
    if let Some(seconds) = args.headspace {
        return headspace::measure(args, seconds, loader, interrupt);
    }
    let live = (!args.quiet).then(|| live::Live::start(loader.progress()));
    if let (false, Some(path)) = (args.quiet, &args.resume) {
        eprint!("{}", resuming(path, &loader.state()));
    }
    let mut digest = args.digest.then(Digest::default);
    let mut saving = Saving::begin(args, &loader);
    let delivered = match deliver(&mut loader, device.as_mut(), args, &mut saving, interrupt, digest.as_mut()) {
        Ok(delivered) => delivered,
        Err(error) => Delivered::Failed(explained(error)),
    };
    drop(live);
    let (mut report, state, plan) = finish(loader, digest.as_ref());
    if args.step_ms > 0.0 && report.seconds > 0.0 {
        // All time that is not waiting is the accelerator's work: this process does nothing else between two batches.
        report.accelerator_utilisation = Some(1.0 - report.consumer_wait_s / report.seconds);
    }
    drop(handling);
    let written = products::write(args, &report, &state, &plan, ended_early(&delivered, interrupt).as_deref());
    conclude(args, &report, interrupt, finished, delivered, written)
}

/// Returns the error for a dataset that cannot be opened without the loader's line above it: the cause says all.
pub fn plain(error: LoaderError) -> anyhow::Error {
    match error {
        LoaderError::Dataset(error) => error.into(),
        error => error.into(),
    }
}

/// Makes this process receive SIGTERM when `parent` ends, however `parent` ends.
fn end_with(parent: Pid) -> anyhow::Result<()> {
    prctl::set_pdeathsig(Signal::SIGTERM).context("cannot ask for a signal at the end of another process")?;
    if getppid() != parent {
        bail!("process {parent}, which asked for this run, has ended");
    }
    Ok(())
}

/// Returns a built-in pipeline or reads one from a file.
pub fn pipeline(name: &str) -> anyhow::Result<Pipeline> {
    if let Some(pipeline) = Pipeline::named(name) {
        return Ok(pipeline);
    }
    let path = Path::new(name);
    if !path.exists() && path.extension().is_none() {
        wrong!("there is no pipeline '{name}': the names are {}, or give a TOML file", Pipeline::NAMES.join(", "));
    }
    let description = read_file(path, PIPELINE_BYTES_MAX).with_context(|| format!("cannot read pipeline {name}"))?;
    let description = String::from_utf8(description).with_context(|| format!("{name} is not UTF-8 text"))?;
    Pipeline::from_toml(&description)
        .with_context(|| format!("{name} is not a valid pipeline (`ddlp run --help` shows one)"))
}

/// Returns the file that describes a pipeline, unless the pipeline is a built-in one.
pub fn pipeline_file(name: &str) -> Option<PathBuf> {
    Pipeline::named(name).is_none().then(|| PathBuf::from(name))
}

fn build(
    args: &RunArgs,
    options: LoaderOptions,
    dataset: Arc<dyn Dataset>,
    device: Option<&Accelerator>,
) -> anyhow::Result<Loader> {
    let builder = Loader::builder().options(options).dataset(dataset);
    let builder = match device {
        Some(accelerator) => builder.deliver_prepared_to(CudaTarget::on(&accelerator.device)),
        None => builder,
    };
    builder.build().map_err(|error| match error {
        LoaderError::State(_) => {
            let state = args.resume.as_deref().unwrap_or(Path::new("the state")).display().to_string();
            anyhow::Error::from(error).context(format!("the run cannot resume from {state} (--resume)"))
        }
        _ => anyhow::Error::from(error).context("the run could not start"),
    })
}

/// Reads a file of at most `most` bytes.
fn read_file(path: &Path, most: usize) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        bail!("it has more than {}", text::bytes(most as u64));
    }
    Ok(bytes)
}

fn read_plan(path: &Path) -> anyhow::Result<Plan> {
    let bytes = read_file(path, PLAN_BYTES_MAX).with_context(|| format!("cannot read plan {}", path.display()))?;
    Plan::from_bytes(&bytes).with_context(|| format!("{} is not a plan (--plan-out writes one)", path.display()))
}

fn read_state(path: &Path) -> anyhow::Result<LoaderState> {
    let bytes = read_file(path, STATE_BYTES_MAX).with_context(|| format!("cannot read state {}", path.display()))?;
    // Values have no lines and columns, which tell nothing about a file that is one line.
    serde_json::from_slice(&bytes)
        .and_then(serde_json::from_value::<LoaderState>)
        .with_context(|| format!("{} is not a state (--state-out writes one)", path.display()))
}

/// The GPU to which batches are delivered, and the memory there that takes them.
struct Accelerator {
    device: Device,
    output: Output,
}

impl Accelerator {
    fn open(name: DeviceName) -> Result<Self, CudaError> {
        let device = Device::open(name)?;
        Ok(Self { output: Output::new(&device)?, device })
    }

    /// Takes a batch, and reads it back for the digest, if there is one. Waits until the batch is finished: only then
    /// has it arrived.
    fn take(&mut self, batch: Batch, digest: Option<&mut Digest>) -> Result<(), LoaderError> {
        let failed = |error: CudaError| LoaderError::Delivery(error.into());
        match digest {
            Some(digest) => Ok(digest.update(&self.output.read(batch).map_err(failed)?)?),
            None => self.output.finish(&batch).and_then(|()| self.output.wait()).map_err(failed),
        }
    }
}

fn deliver(
    loader: &mut Loader,
    mut device: Option<&mut Accelerator>,
    args: &RunArgs,
    saving: &mut Saving<'_>,
    interrupt: &Interrupt,
    mut digest: Option<&mut Digest>,
) -> Result<Delivered, LoaderError> {
    let step = Duration::from_secs_f64(args.step_ms / 1000.0);
    let mut batches = 0;
    while let Some(batch) = loader.next() {
        let batch = batch?;
        match (&mut device, &mut digest) {
            (Some(device), digest) => {
                device.take(batch, digest.as_deref_mut()).inspect_err(|_| loader.take_back())?;
            }
            (None, Some(digest)) => digest.update(&batch)?,
            (None, None) => drop(batch),
        }
        batches += 1;
        if interrupt.requested() {
            return Ok(Delivered::Interrupted);
        }
        if args.stop_after == Some(batches) {
            return Ok(Delivered::Stopped);
        }
        pretend_to_train(step, interrupt);
        saving.batch_done(loader);
    }
    Ok(if interrupt.requested() { Delivered::Interrupted } else { Delivered::All })
}

/// Simulates the accelerator's work on a batch.
fn pretend_to_train(step: Duration, interrupt: &Interrupt) {
    let begun = Instant::now();
    while let Some(left) = step.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) {
        if interrupt.requested() {
            return;
        }
        thread::sleep(left.min(STEP_PIECE));
    }
}

/// Ends the loader; its threads and a local drive are gone when this function returns.
fn finish(loader: Loader, digest: Option<&Digest>) -> (Report, LoaderState, Plan) {
    let mut report = loader.report();
    report.digest = digest.map(Digest::unordered);
    report.ordered_digest = digest.map(Digest::ordered);
    report.field_digests = digest.map(Digest::fields).unwrap_or_default();
    (report, loader.state(), loader.plan())
}

fn ended_early(delivered: &Delivered, interrupt: &Interrupt) -> Option<String> {
    match delivered {
        Delivered::All => None,
        Delivered::Stopped => Some("--stop-after: the number of batches was reached".to_string()),
        Delivered::Interrupted => Some(interrupt.what().to_string()),
        Delivered::Failed(error) => Some(format!("{error:#}")),
    }
}

/// Says where a resumed run begins. Returns an empty text for a finished run.
fn resuming(path: &Path, state: &LoaderState) -> String {
    if state.epoch >= state.epochs {
        return String::new();
    }
    let done = text::plural(state.delivered.len() as u64, "batch");
    let epoch = text::epoch_of(state.epoch, state.epochs).map(|epoch| format!("in {epoch}, ")).unwrap_or_default();
    format!("resumes from {}: {epoch}after {done}\n", path.display())
}

/// Says how to resume a run that was stopped.
fn resumable(args: &RunArgs) -> String {
    match &args.state_out {
        Some(path) if output::is_file(path) => {
            let path = path.display();
            format!("; its state is in {path}: the same command with --resume {path} resumes it")
        }
        _ => "; with --state-out FILE, a stopped run can be resumed (--resume FILE)".to_string(),
    }
}

fn nothing_to_do(done: u32) -> String {
    let (epochs, more) = (text::plural(done.into(), "epoch"), u64::from(done) + 1);
    format!("nothing to do: this run finished after {epochs}; --epochs {more} continues it\n")
}

fn conclude(
    args: &RunArgs,
    report: &Report,
    interrupt: &Interrupt,
    finished: Option<u32>,
    delivered: Delivered,
    written: Written,
) -> anyhow::Result<Ending> {
    let mut printed = match finished {
        _ if args.quiet || args.on_behalf_of.is_some() => String::new(),
        Some(done) => nothing_to_do(done),
        None => output::fitted(&summary::describe(report, args.report.as_deref().filter(|_| written.page))),
    };
    let written = written.all;
    if let (Some(digest), Some(ordered)) = (&report.digest, &report.ordered_digest) {
        printed.push_str(&format!("digest {digest}\nordered_digest {ordered}\n"));
        for (name, digest) in &report.field_digests {
            printed.push_str(&format!("digest_of_{name} {digest}\n"));
        }
    }
    output::print_beside(args.json.as_deref(), &printed)?;
    match delivered {
        Delivered::Failed(error) => {
            if let Err(also) = written {
                eprintln!("error: {also:#}");
            }
            let done = text::plural(report.batches, "batch");
            Err(error.context(format!("the run ended after {done}")))
        }
        Delivered::Interrupted => {
            written?;
            if !args.quiet {
                let done = text::plural(report.batches, "batch");
                eprintln!("stopped by {} after {done}{}", interrupt.what(), resumable(args));
            }
            Ok(Ending::Interrupted)
        }
        Delivered::All if report.images == 0 && finished.is_none() => {
            written?;
            let batches = text::plural(report.batches, "batch");
            let corrupt = text::plural(report.corrupt.len() as u64, "corrupt sample");
            bail!(
                "no image was delivered: {batches} had {corrupt} and no intact one; `ddlp pack` says what is wrong \
                 with each"
            )
        }
        Delivered::All | Delivered::Stopped => written.map(|()| Ending::Done),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipelines_come_by_name_or_from_a_file() {
        for name in Pipeline::NAMES {
            assert!(pipeline(name).is_ok(), "{name}");
        }
        let error = format!("{:#}", pipeline("imagenet").unwrap_err());
        assert!(error.contains("imagenet-train") && error.contains("TOML"), "{error}");
        let error = format!("{:#}", pipeline("no/such.toml").unwrap_err());
        assert!(error.contains("no/such.toml"), "{error}");
    }

    #[test]
    fn the_pipeline_of_the_help_text_is_valid() {
        let example = "[[operations]]\nrandom_resized_crop = { size = 224, scale = [0.25, 1.0] }\n\
                       [[operations]]\nrandom_horizontal_flip = { p = 0.5 }\n";
        Pipeline::from_toml(example).unwrap();
    }

    #[test]
    fn a_wrong_pipeline_file_is_named_with_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.toml");
        fs::write(&path, "[[operations]]\nresize = { side = 3 }\n").unwrap();
        let error = format!("{:#}", pipeline(path.to_str().unwrap()).unwrap_err());
        assert!(error.contains("p.toml") && error.contains("side"), "{error}");
    }

    #[test]
    fn ctrl_c_ends_a_long_step() {
        let interrupt = Interrupt::default();
        let _handling = interrupt.handle(|| {});
        interrupt.press();
        let begun = Instant::now();
        pretend_to_train(Duration::from_secs(3600), &interrupt);
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
}
