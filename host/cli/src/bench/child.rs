//! One run of a measurement: `ddlp run` as a process of its own, so that CPU time and memory are of that run alone.

use super::cases::{CPU, Case};
use crate::interrupt::Interrupt;
use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Figures of a run's JSON report that are needed here.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct RunFigures {
    pub images: u64,
    pub images_per_s: f64,
    pub setup_s: f64,
    pub first_batch_s: f64,
    pub host_cpu_s: f64,
    pub peak_memory_mb: f64,
    pub slot_memory_mb: f64,
    pub read_mb: f64,
    pub read_blocks_mb: Option<f64>,
    pub read_samples_mb: f64,
    pub meeting_point: Option<u32>,
    pub prongs: Vec<ProngFigures>,
    pub fault_count: usize,
    pub faults: Vec<FaultFigures>,
    pub corrupt: Vec<CorruptFigures>,
    pub notes: Vec<String>,
}

/// A fault or a recovery.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct FaultFigures {
    pub what: String,
}

/// A sample that was left out.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct CorruptFigures {
    pub sample: String,
}

/// Figures of one prong.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ProngFigures {
    pub images: u64,
    pub wasted_batches: u64,
    pub peak_memory_mb: Option<f64>,
}

/// Options of a run with a drive.
pub enum DriveOptions {
    /// Options of a drive that the run starts.
    Local(Vec<String>),
    /// None: the drive that holds the dataset takes part without an option.
    Remote,
}

/// Settings that all runs of a measurement share.
pub struct Setting<'a> {
    /// The dataset.
    pub dataset: &'a Path,
    /// Options of every run.
    pub common: Vec<String>,
    /// Options of a run with a drive.
    pub drive: DriveOptions,
    /// Number of result slots for `mte`, unless the loader is to choose it.
    pub tail_slots: Option<u32>,
}

impl Setting<'_> {
    /// Returns the options of one run.
    pub fn options(&self, case: Case, samples: u64) -> Vec<String> {
        let mut options = self.common.clone();
        let mut option = |name: &str, value: String| options.extend([format!("--{name}"), value]);
        option("strategy", case.strategy.to_string());
        option("epoch-samples", samples.to_string());
        if let (Some(slots), DriveOptions::Local(drive)) = (case.slots, &self.drive) {
            option("results", slots.name().to_string());
            if let Some(slots) = self.tail_slots.filter(|_| case.strategy == "mte") {
                option("slots", slots.to_string());
            }
            options.extend(drive.iter().cloned());
        }
        options
    }

    /// Does one run. Returns `None` if it was interrupted.
    pub fn run(&self, case: Case, samples: u64, interrupt: &Interrupt) -> anyhow::Result<Option<RunFigures>> {
        let mut options = self.options(case, samples);
        // A live display would cost the host CPU time.
        options.push("--quiet".into());
        self.start(case, &options, interrupt)
    }

    /// Does a run of the CPU alone that shows its progress. Returns `None` if it was interrupted.
    pub fn warm_up(&self, samples: u64, interrupt: &Interrupt) -> anyhow::Result<Option<RunFigures>> {
        self.start(CPU, &self.options(CPU, samples), interrupt)
    }

    fn start(&self, case: Case, options: &[String], interrupt: &Interrupt) -> anyhow::Result<Option<RunFigures>> {
        let program = std::env::current_exe().context("cannot find the file of this program")?;
        let child = Command::new(program)
            .arg("run")
            .arg(self.dataset)
            .args(options)
            .args(["--json", "-", "--on-behalf-of"])
            .arg(std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // Ctrl-C on the terminal reaches only this process, which passes it on once.
            .process_group(0)
            .spawn()
            .context("cannot start a run")?;
        let id = Pid::from_raw(child.id().cast_signed());
        let handling = interrupt.handle(move || {
            let _ = kill(id, Signal::SIGINT);
        });
        let Output { status, stdout, .. } = child.wait_with_output().context("cannot wait for a run")?;
        drop(handling);
        if interrupt.requested() {
            return Ok(None);
        }
        if !status.success() {
            bail!("the run with strategy {} failed ({status}); its message is above", case.strategy);
        }
        Ok(Some(serde_json::from_slice(&stdout).context("the figures of a run are not the expected JSON")?))
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::SlotAccess;
    use super::*;

    #[test]
    fn a_cpu_run_has_no_drive_and_mte_has_slots_for_its_tail() {
        let setting = Setting {
            dataset: Path::new("x.ddlp"),
            common: vec!["--batch-size".into(), "64".into()],
            drive: DriveOptions::Local(vec!["--throttle".into(), "0.25".into()]),
            tail_slots: Some(40),
        };
        assert_eq!(setting.options(CPU, 100).join(" "), "--batch-size 64 --strategy cpu --epoch-samples 100");
        let mte = Case { strategy: "mte", slots: Some(SlotAccess::Read) };
        assert_eq!(
            setting.options(mte, 100).join(" "),
            "--batch-size 64 --strategy mte --epoch-samples 100 --results read --slots 40 --throttle 0.25"
        );
        let remote = Setting { drive: DriveOptions::Remote, tail_slots: None, ..setting };
        assert_eq!(remote.options(mte, 100).join(" "), "--batch-size 64 --strategy mte --epoch-samples 100");
    }
}
