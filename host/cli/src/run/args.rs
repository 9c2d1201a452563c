//! The command line of `ddlp run`.

use crate::cores::{self, CoreList};
use clap::{Args, ValueEnum};
use ddlp_csd::program::CorruptPolicy;
use ddlp_cuda::{CudaError, DeviceName};
use ddlp_driver::host::{Host, HostError};
use ddlp_driver::tcp::TcpTarget;
use ddlp_host::{BUFFERS_MAX, Kind, LastBatch, MaxCorrupt, Strategy};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Run epochs over a dataset: CPU and drive prepare its batches, and each batch is delivered exactly once.
///
/// DATASET is a pack (`ddlp pack`), an image folder, CIFAR-10's binary files, WebDataset tar shards, a list of files (a
/// .csv with the columns path and label), or a mix of several of these (a .toml with a table `[[dataset]]` for each,
/// with its path and maybe its weight and kind). Without further options, a local drive is started on this machine and
/// takes half of the cores. DATASET may also be a drive, tcp://HOST:PORT/NQN or /dev/nvmeX, which then takes part: this
/// machine needs no copy of the drive's pack, and reads over NVMe what its CPU prepares. Under the strategy `mte`, the
/// CPU works from the head of an epoch and the drive from its tail; under `ordered`, the default, the drive goes ahead
/// of the CPU.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RunArgs {
    /// Pack, image folder, CIFAR-10's binary files, tar shards, a list of files, a mix of these, or the address of a
    /// drive that holds a pack
    pub dataset: PathBuf,
    /// Kind of DATASET, for a folder that could be datasets of two kinds, such as one of tar shards and images: folder,
    /// list, tar, cifar, pack or mix [default: as the path and its contents say]
    #[arg(long, value_name = "KIND", help_heading = "Job")]
    pub kind: Option<Kind>,
    /// File of labels or other fields beside the dataset. A text (.txt) has the label of each sample, one a line, in
    /// the order of the dataset: numbers or names of classes, or ILSVRC2012_validation_ground_truth.txt beside the
    /// development kit's meta.mat. Tar shards, such as the dataset itself, have numbers in .json members beside the
    /// images. Any other file is a table of comma-separated values: its first line names the
    /// columns, its first column the sample (as ddlp inspect does, with or without the extension); each other column is
    /// a field of every batch. The labels are in the column label, or PredictionString of Kaggle's ImageNet; the column
    /// labels has any number of them, such as "cat dog" [default: none]
    #[arg(long, value_name = "FILE", help_heading = "Job")]
    pub fields: Option<PathBuf>,
    /// File with the names of all classes, one a line, that number the labels of DATASET and --fields: so a class has
    /// the same label in every dataset, also in one that lacks some of the classes. A class that is not in FILE is an
    /// error [default: each dataset numbers its own]
    #[arg(long, value_name = "FILE", help_heading = "Job")]
    pub classes: Option<PathBuf>,
    /// Pipeline for each sample: imagenet-train, imagenet-val, cifar-train, or a TOML file. If repeated, each batch has
    /// samples of one bucket: those that go through one of the pipelines, whose images have the nearest aspect ratio
    /// and size [default: imagenet-train]
    #[arg(long, value_name = "NAME|FILE", help_heading = "Job")]
    pub pipeline: Vec<String>,
    /// Samples per batch (with several ranks, per global batch) [default: 256]
    #[arg(
        long, visible_alias = "batch", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536),
        help_heading = "Job"
    )]
    pub batch_size: Option<u32>,
    /// Number of epochs, including those before --resume; they are numbered from 0 [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Job")]
    pub epochs: Option<u32>,
    /// Order of delivery: ordered = 0,1,2,…; mte = batches from the head, then from the tail; wrr = from any prong that
    /// is ready, weighted by rate; cpu or csd = from the CPU alone or from drives alone [default: ordered]
    #[arg(long, value_name = "NAME", value_parser = parse_strategy, help_heading = "Job")]
    pub strategy: Option<Strategy>,
    /// Seed for the order of samples and for all random draws [default: 0]
    #[arg(long, value_name = "S", help_heading = "Job")]
    pub seed: Option<u64>,
    /// Deliver the samples of each epoch in the order of the dataset instead of a shuffled one
    #[arg(long, help_heading = "Job")]
    pub no_shuffle: bool,
    /// What to do with a corrupt sample, which does not give an image or which the disk fails to read: end the run,
    /// leave the sample out, or take the next one instead. A sample whose file is missing, has changed or is out of
    /// reach is not corrupt: it always ends the run [default: fail]
    #[arg(long, value_enum, help_heading = "Job")]
    pub policy: Option<Policy>,
    /// With --policy skip or replace: end the run when more distinct samples of an epoch are corrupt than this number
    /// (of all ranks together) or percentage (of each rank's samples). A dataset that has disappeared or changed always
    /// ends the run [default: 16 or 1%, whichever is larger]
    #[arg(long, value_name = "N|PERCENT%", help_heading = "Job")]
    pub max_corrupt: Option<MaxCorrupt>,
    /// What to do with a last batch that the samples do not fill [default: short]
    #[arg(long, value_enum, help_heading = "Job")]
    pub last: Option<Last>,
    /// Samples per epoch: the dataset is repeated or cut to this number; of a mix, each epoch takes this many samples,
    /// from where the one before stopped [default: those of the dataset]
    #[arg(
        long, visible_alias = "samples", value_name = "N", value_parser = parse_positive,
        help_heading = "Job"
    )]
    pub epoch_samples: Option<u64>,
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

    /// A drive: local (started here), tcp://HOST:PORT/NQN, /dev/nvmeX (a drive that the kernel is connected to: see
    /// ddlp devices), auto (the only drive that the kernel is connected to), or none; repeatable [default: the
    /// drive that DATASET names, else local; none with --strategy cpu]
    #[arg(long, value_name = "DRIVE", value_parser = parse_drive, help_heading = "Drives")]
    pub drive: Vec<DriveChoice>,
    /// NQN by which this host is known to drives at tcp:// addresses, as in their lists of allowed hosts [default: that
    /// of /etc/nvme/hostnqn, else one that DDLP makes once and keeps; `ddlp devices` prints it]
    #[arg(long, value_name = "NQN", value_parser = parse_host, help_heading = "Drives")]
    pub host_nqn: Option<String>,
    /// Begin even if a drive's tcp:// address cannot be reached; the drive joins as soon as it can be reached. A drive
    /// that refuses this host or does not fit still ends the run [default: the run ends]
    #[arg(long, help_heading = "Drives")]
    pub drive_optional: bool,
    /// Seconds after which a drive that does not answer counts as lost; the run then tries to reconnect [default: 30]
    #[arg(long, value_name = "S", value_parser = parse_seconds, help_heading = "Drives")]
    pub drive_timeout: Option<f64>,
    /// Worker threads of the local drive [default: half of the cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), help_heading = "Drives")]
    pub drive_threads: Option<u16>,
    /// Cores to which the local drive is pinned, such as 2-3 [default: any]
    #[arg(long, value_name = "LIST", value_parser = cores::parse, help_heading = "Drives")]
    pub drive_cores: Option<CoreList>,
    /// Result slots of the local drive, each for one finished batch that the host has not taken yet [default: 16; for
    /// mte as many as the tail needs and memory allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536), help_heading = "Drives")]
    pub slots: Option<u32>,
    /// Place of the local drive's results: shared (memory that host and drive both map), read (the drive's own memory,
    /// which the host reads by NVMe/TCP), or a file that both map, and that no other program may shorten during the run
    /// [default: shared]
    #[arg(long, value_name = "shared|read|FILE", value_parser = parse_results, help_heading = "Drives")]
    pub results: Option<PathBuf>,
    /// Slow the local drive down to this share of its speed, for experiments [default: 1]
    #[arg(long, value_name = "SHARE", value_parser = parse_throttle, help_heading = "Drives")]
    pub throttle: Option<f64>,
    /// Program of the local drive's agent [default: ddlp-device beside this program, or in PATH]
    #[arg(long, value_name = "FILE", help_heading = "Drives")]
    pub agent: Option<PathBuf>,

    /// Threads of the CPU prong [default: the cores that the local drive leaves]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), help_heading = "Host")]
    pub threads: Option<u16>,
    /// Cores to which the CPU prong is pinned, such as 0-1 [default: any]
    #[arg(long, value_name = "LIST", value_parser = cores::parse, help_heading = "Host")]
    pub cores: Option<CoreList>,
    /// Largest number of batches in the host's memory [default: 6]
    #[arg(
        long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=BUFFERS_MAX.into()),
        help_heading = "Host"
    )]
    pub buffers: Option<u16>,
    /// Number of batches that `ordered` looks ahead [default: as many as buffers and slots hold]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Host")]
    pub window: Option<u32>,

    /// This process's rank, from 0; each rank takes its share of every global batch [default: 0]
    #[arg(long, value_name = "R", help_heading = "Ranks and resuming")]
    pub rank: Option<u32>,
    /// Number of ranks [default: 1]
    #[arg(
        long, value_name = "W", value_parser = clap::value_parser!(u32).range(1..),
        help_heading = "Ranks and resuming"
    )]
    pub world_size: Option<u32>,
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
    /// Resume the run that wrote this state, with its options --batch-size, --epochs, --strategy, --seed, --no-shuffle,
    /// --last, --epoch-samples, --policy and --pipeline. Only --epochs and --strategy may differ
    #[arg(long, value_name = "FILE", conflicts_with = "plan_in", help_heading = "Ranks and resuming")]
    pub resume: Option<PathBuf>,
    /// Write a plan: which prong prepared which batch, and the order of delivery
    #[arg(long, value_name = "FILE", help_heading = "Ranks and resuming")]
    pub plan_out: Option<PathBuf>,
    /// Repeat a run exactly as this plan records it, with its options --batch-size, --epochs, --strategy, --seed,
    /// --no-shuffle, --last, --epoch-samples, --policy, --pipeline, --rank and --world-size. Of these, only --epochs
    /// may differ, and only be smaller than in the plan
    #[arg(long, value_name = "FILE", help_heading = "Ranks and resuming")]
    pub plan_in: Option<PathBuf>,

    /// Write the figures as JSON (- for standard output)
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,
    /// Serve the figures over HTTP during the run, as Prometheus reads them: whoever can reach the address can read
    /// them [default: none]
    #[arg(long, value_name = "ADDR:PORT", help_heading = "Output")]
    pub metrics: Option<SocketAddr>,
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

fn parse_drive(text: &str) -> Result<DriveChoice, String> {
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

/// Parses the name of a GPU.
pub fn parse_device(text: &str) -> Result<DeviceName, CudaError> {
    text.parse()
}

fn parse_host(nqn: &str) -> Result<String, HostError> {
    Host::named(nqn).map(|_| nqn.to_string())
}

fn parse_results(text: &str) -> Result<PathBuf, String> {
    match text {
        "shared" | "read" => Ok(text.into()),
        file if file.contains('/') => Ok(file.into()),
        _ => Err(format!("results are shared, read, or a file with a path such as ./{text}")),
    }
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

fn parse_strategy(text: &str) -> Result<Strategy, String> {
    text.parse().map_err(|_| "a strategy is cpu, csd, mte, wrr or ordered".to_string())
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

/// Policy for corrupt samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// End the run with an error that names the sample
    Fail,
    /// Leave the sample out and count it
    Skip,
    /// Replace the sample with the next one that is not corrupt
    Replace,
}

impl From<Policy> for CorruptPolicy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Fail => Self::Fail,
            Policy::Skip => Self::Skip,
            Policy::Replace => Self::Replace,
        }
    }
}

/// Treatment of the last batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Last {
    /// Deliver it with the samples that are left
    Short,
    /// Leave it out
    Drop,
    /// Fill it with samples from the beginning of the epoch
    Pad,
}

impl Policy {
    /// Returns the policy's name on the command line.
    pub fn name(policy: CorruptPolicy) -> &'static str {
        match policy {
            CorruptPolicy::Fail => "fail",
            CorruptPolicy::Skip => "skip",
            CorruptPolicy::Replace => "replace",
        }
    }
}

impl Last {
    /// Returns the name of the last batch's treatment on the command line.
    pub fn name(last: LastBatch) -> &'static str {
        match last {
            LastBatch::Short => "short",
            LastBatch::Drop => "drop",
            LastBatch::Pad => "pad",
        }
    }
}

impl From<Last> for LastBatch {
    fn from(last: Last) -> Self {
        match last {
            Last::Short => Self::Short,
            Last::Drop => Self::Drop,
            Last::Pad => Self::Pad,
        }
    }
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
        assert_eq!((args.batch_size, args.epochs, args.strategy), (None, None, None));
        assert!(args.drive.is_empty() && !args.digest);
    }

    #[test]
    fn drives_are_local_none_or_an_address() {
        let args = parse(&["--drive", "local", "--drive", "tcp://[::1]:4420/nqn.2024-01.a:b"]).unwrap();
        assert_eq!(args.drive, [DriveChoice::Local, DriveChoice::At("tcp://[::1]:4420/nqn.2024-01.a:b".into())]);
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
        assert!(parse(&["--epoch-samples", "0"]).unwrap_err().contains("expected 1 or more"));
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
