//! The command line of `ddlp run`.

use super::given::{Given, flags_of};
use clap::Args;
use ddlp_cuda::{CudaError, DeviceName};
use ddlp_driver::tcp::TcpTarget;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Run epochs over a dataset: CPU and drive prepare its batches, and each batch is delivered exactly once.
///
/// DATASET is a pack (`ddlp pack`), an image folder, CIFAR-10's binary files, WebDataset tar shards, a list of files (a
/// .csv with the columns path and label), or a mix of several of these (a .toml with a table `[[dataset]]` for each,
/// with its path and maybe its weight and kind). Without further options, a local drive is started on this machine and
/// takes half of the cores. DATASET may also be a drive, tcp://HOST:PORT/NQN or /dev/nvmeX, which then takes part: this
/// machine needs no copy of the drive's pack, and reads over NVMe what its CPU prepares. The URL of a pack (s3://,
/// gs://, az://, https:// or http://) is read by ranges. Under the strategy `mte`, the CPU works from the head of an
/// epoch and the drive from its tail; under `ordered`, the default, the drive goes ahead of the CPU.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RunArgs {
    /// Pack, image folder, CIFAR-10's binary files, tar shards, a list of files, a mix of these, the URL of a pack, or
    /// the address of a drive that holds a pack
    pub dataset: PathBuf,
    /// Options of the loader and of its local drive
    #[command(flatten)]
    pub given: Given,
    /// Deliver batches to the memory of a GPU: cuda:N, or cuda for the one whose number is in LOCAL_RANK, else the
    /// first. Batches travel as bytes while the step before runs; --digest reads them back [default: they stay in host
    /// memory]
    #[arg(
        long, value_name = "DEVICE", value_parser = parse_device, conflicts_with = "headspace", help_heading = "Job"
    )]
    pub device: Option<DeviceName>,
    /// Simulate an accelerator that takes this many milliseconds for a batch
    #[arg(long, value_name = "MS", default_value_t = 0.0, value_parser = parse_milliseconds, help_heading = "Job")]
    pub step_ms: f64,
    /// Instead of a run, measure for about S seconds how much faster training would be if loading were free.
    /// Alternates steps of --step-ms with loaded batches and with batches from memory, then names the stage that
    /// bounds training and what to change. --json writes the figures [default: off; S is 10 if not given]
    #[arg(
        long, value_name = "S", num_args = 0..=1, require_equals = true, default_missing_value = "10",
        value_parser = parse_seconds, requires = "step_ms", help_heading = "Job",
        conflicts_with_all = [
            "epochs", "stop_after", "state_out", "resume", "plan_out", "plan_in", "report", "digest",
        ]
    )]
    pub headspace: Option<f64>,

    /// Stop after this many batches [default: never]
    #[arg(long, value_name = "N", value_parser = parse_positive, help_heading = "Ranks and resuming")]
    pub stop_after: Option<u64>,
    /// Write the state of the run, for --resume: at its end, and during the run as often as --state-every says
    #[arg(long, value_name = "FILE", help_heading = "Ranks and resuming")]
    pub state_out: Option<PathBuf>,
    /// How often to write --state-out during the run (500: every 500 batches; 30s: every 30 seconds) [default: 30s]
    #[arg(
        long, value_name = "N|Ns", value_parser = parse_state_every, requires = "state_out",
        help_heading = "Ranks and resuming"
    )]
    pub state_every: Option<StateEvery>,
    /// Resume the run that wrote this state
    #[arg(
        long, value_name = "FILE", conflicts_with = "plan_in", help_heading = "Ranks and resuming", help = resume_help()
    )]
    pub resume: Option<PathBuf>,
    /// Write a plan: which prong prepared which batch, and the order of delivery
    #[arg(long, value_name = "FILE", help_heading = "Ranks and resuming")]
    pub plan_out: Option<PathBuf>,
    /// Repeat a run exactly as this plan records it
    #[arg(long, value_name = "FILE", help_heading = "Ranks and resuming", help = replay_help())]
    pub plan_in: Option<PathBuf>,

    /// Write the figures as JSON (- for standard output)
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,
    /// Write a report as one HTML page
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub report: Option<PathBuf>,
    /// Print two digests over all delivered pixels: one independent of the order of delivery, and one in that order;
    /// and one digest of each other field
    #[arg(long, help_heading = "Output")]
    pub digest: bool,
    /// Print no progress and no summary
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
    /// Work for the process with this id, which started this one: end with it, and leave the summary to it
    #[arg(long, value_name = "PID", hide = true)]
    pub on_behalf_of: Option<i32>,
}

const EXAMPLES: &str = "\
Examples:
  ddlp run photos.ddlp                                    both prongs on this machine
  ddlp run photos.ddlp --strategy mte --report out.html   from both ends until they meet, with a report
  ddlp run imagenet/train --drive none --threads 8        a plain CPU loader over an image folder
  ddlp run mix.toml --epoch-samples 100000                several datasets, each with a weight
  ddlp run photos.ddlp --throttle 0.25 --step-ms 20       a drive four times slower; 20 ms of accelerator per batch
  ddlp run photos.ddlp --drive tcp://10.0.0.7:4420/nqn.2024-01.example:drive
  ddlp run photos.ddlp --drive /dev/nvme0                 through the kernel's NVMe driver
  ddlp run photos.ddlp --headspace --step-ms 20           would faster loading help steps of 20 ms?
  ddlp run photos.ddlp --batch-size 32 --stop-after 10 --state-out at.json
  ddlp run photos.ddlp --resume at.json

A pipeline file lists its operations in order:
  [[operations]]
  random_resized_crop = { size = 224, scale = [0.25, 1.0] }
  [[operations]]
  random_horizontal_flip = { p = 0.5 }

Exit status:
  0    all batches were delivered, or as many as --stop-after allows, or --resume finds nothing left to do
  1    an error; the requested files are still written, with the results so far
  2    options that are unknown, invalid or contradictory
  129  stopped by SIGHUP; files are written as after an error
  130  stopped by Ctrl-C (SIGINT); files are written as after an error
  143  stopped by SIGTERM; files are written as after an error";

/// A drive as named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriveChoice {
    /// The local drive, started by this program.
    Local,
    /// No drive.
    None,
    /// The only drive that the kernel is connected to.
    Auto,
    /// An address: `tcp://HOST:PORT/NQN`, or a controller of the kernel's, `/dev/nvme0`.
    At(String),
}

impl FromStr for DriveChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "local" => Ok(DriveChoice::Local),
            "none" => Ok(DriveChoice::None),
            "auto" => Ok(DriveChoice::Auto),
            node if node.starts_with('/') => match ddlp_driver::Target::parse(node) {
                Ok(_) => Ok(DriveChoice::At(node.to_string())),
                Err(error) => Err(error.to_string()),
            },
            address if address.starts_with("tcp://") => {
                // The port is 4420 unless given, as in the kernel's `connect`.
                TcpTarget::parse(address).map(|_| DriveChoice::At(address.to_string())).map_err(|error| {
                format!(
                    "{error}; a drive looks like tcp://10.0.0.7:4420/nqn.2024-01.example:drive, with the NQN that the \
                     agent prints (ddlp-device serve)"
                )
            })
            }
            _ => Err("a drive is local, none, auto, /dev/nvmeX, or tcp://HOST:PORT/NQN".to_string()),
        }
    }
}

/// Parses the name of a GPU.
pub fn parse_device(text: &str) -> Result<DeviceName, CudaError> {
    text.parse()
}

/// Interval at which the state is written during a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StateEvery {
    /// After this many delivered batches.
    Batches(u64),
    /// After this time.
    Time(Duration),
}

impl Default for StateEvery {
    fn default() -> Self {
        Self::Time(Duration::from_secs(30))
    }
}

fn parse_state_every(text: &str) -> Result<StateEvery, String> {
    let Some(seconds) = text.strip_suffix('s') else {
        let batches = text.parse().ok().filter(|batches| *batches > 0);
        return batches
            .map(StateEvery::Batches)
            .ok_or_else(|| "expected a number of batches or of seconds, such as 500 or 30s".into());
    };
    parse_seconds(seconds).map(|seconds| StateEvery::Time(Duration::from_secs_f64(seconds)))
}

/// Parses a number that must not be 0.
pub fn parse_positive(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|number: &u64| *number > 0).ok_or_else(|| "expected 1 or more".into())
}

fn parse_milliseconds(text: &str) -> Result<f64, String> {
    parse_number(text, 0.0, 86_400_000.0, "a number of milliseconds")
}

/// Parses seconds.
pub fn parse_seconds(text: &str) -> Result<f64, String> {
    parse_number(text, 0.01, 86_400.0, "a number of seconds")
}

/// Parses a share of a drive's speed.
pub fn parse_throttle(text: &str) -> Result<f64, String> {
    parse_number(text, 0.001, 1.0, "a share of the speed, such as 0.25")
}

fn parse_number(text: &str, least: f64, most: f64, what: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("expected {what}"))?;
    if (least..=most).contains(&number) { Ok(number) } else { Err(format!("expected {what} from {least} to {most}")) }
}

/// What a state and a plan do not contain.
const GIVEN_AGAIN: &str = "Give --indices, --split and --fields again if that run had them";

/// Returns the help of --resume.
fn resume_help() -> String {
    let recorded = flags_of(|option| option.recorded.state);
    format!(
        "Resume the run that wrote this state, with its options {recorded}. Only --epochs and --strategy may differ, \
         and --fidelity for epochs that have not begun. {GIVEN_AGAIN}"
    )
}

/// Returns the help of --plan-in.
fn replay_help() -> String {
    format!(
        "Repeat a run exactly as this plan records it, with its options {}. Of these, only --epochs may differ, and \
         only be smaller than in the plan. {GIVEN_AGAIN}",
        flags_of(|option| option.recorded.plan)
    )
}

/// Parses the options of `ddlp run x.ddlp` followed by these words.
#[cfg(test)]
pub fn parse(line: &[&str]) -> Result<RunArgs, String> {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        run: RunArgs,
    }
    let words = ["run", "x.ddlp"].into_iter().chain(line.iter().copied());
    <Line as clap::Parser>::try_parse_from(words).map(|line| line.run).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dataset_is_enough() {
        let args = parse(&[]).unwrap();
        assert!(args.given.loader.is_empty() && args.given.drives().is_empty() && !args.digest);
    }

    #[test]
    fn drives_are_local_none_or_an_address() {
        let args = parse(&["--drive", "local", "--drive", "tcp://[::1]:4420/nqn.2024-01.a:b"]).unwrap();
        assert_eq!(
            args.given.drives(),
            [DriveChoice::Local, DriveChoice::At("tcp://[::1]:4420/nqn.2024-01.a:b".into())]
        );
        for wrong in
            ["usb", "tcp://", "tcp://host", "tcp://host:4420", "tcp://host/", "tcp://host:99999/nqn.x", "tcp://h:1/x"]
        {
            let error = parse(&["--drive", wrong]).unwrap_err();
            assert!(error.contains("tcp://"), "{wrong}: {error}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for wrong in [
            ["--batch-size", "0"],
            ["--batch", "70000"],
            ["--epochs", "0"],
            ["--threads", "0"],
            ["--buffers", "1"],
            ["--buffers", "4097"],
            ["--throttle", "0"],
            ["--throttle", "1.5"],
            ["--throttle", "NaN"],
            ["--step-ms", "-1"],
            ["--step-ms", "inf"],
            ["--slots", "0"],
            ["--drive-timeout", "0"],
            ["--epoch-samples", "0"],
            ["--stop-after", "0"],
            ["--world-size", "0"],
            ["--cores", "3-1"],
            ["--policy", "ignore"],
            ["--last", "half"],
            ["--strategy", "fast"],
            ["--state-every", "5"],
            ["--results", "Shared"],
        ] {
            assert!(parse(&wrong).is_err(), "{wrong:?}");
        }
        assert!(parse(&["--epoch-samples", "0"]).unwrap_err().contains("0 is not in 1..=4294967295"));
    }

    #[test]
    fn a_plan_and_a_state_exclude_each_other() {
        assert!(parse(&["--resume", "a", "--plan-in", "b"]).is_err());
        assert!(parse(&["--rank", "1", "--world-size", "2"]).is_ok());
    }

    #[test]
    fn a_state_is_written_by_batches_or_by_time() {
        assert_eq!(StateEvery::default(), StateEvery::Time(Duration::from_secs(30)), "as the help says");
        let every = |text| parse(&["--state-out", "x", "--state-every", text]).map(|args| args.state_every.unwrap());
        assert_eq!(every("500"), Ok(StateEvery::Batches(500)));
        assert_eq!(every("2.5s"), Ok(StateEvery::Time(Duration::from_millis(2500))));
        for wrong in ["0", "s", "-1", "0s", "5m", "1e99s", ""] {
            assert!(every(wrong).is_err(), "{wrong}");
        }
    }
}
