//! The agent's settings: the command line wins over the configuration file, and the file over the defaults.

use super::discovery::{DiscoveryChoice, DiscoveryPort};
use super::hosts::check_allowed;
use crate::slots::{Backing, Geometry};
use crate::workers::{THREADS_MAX, Throttle};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use ddlp_csd::BLOCK_BYTES;
use ddlp_csd::slot::SlotLayout;
use ddlp_dataset::{Kind, OpenOptions};
use ddlp_pixels::Shape;
use serde::Deserialize;
use std::fs::File;
use std::io::Read;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::RawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

/// Largest number of result slots.
pub const SLOTS_MAX: u32 = 4096;
/// Batch that a slot of the default size holds: samples, height and width.
const DEFAULT_BATCH: (usize, u32, u32) = (256, 224, 224);
const DEFAULT_SLOTS: u32 = 4;
const DEFAULT_LISTEN: &str = "127.0.0.1:4420";
const DEFAULT_NAME: &str = "default";
/// Largest configuration file.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

const EXAMPLES: &str = "\
Examples:
  Serve a pack on loopback, results in memory:
    ddlp-device serve --dataset train.ddlp
  Eight slots in a file on flash, four workers on cores 4 to 7:
    ddlp-device serve --dataset train.ddlp --results /var/lib/ddlp-device/slots --slots 8 --threads 4 --cores 4-7
  Serve a pack in a store that is near to this machine:
    ddlp-device serve --dataset s3://bucket/train.ddlp
  A drive at a quarter of its speed, for experiments:
    ddlp-device serve --dataset train.ddlp --throttle 0.25
  On the network; drive.toml has `allowed-hosts = [\"nqn.2014-08.org.nvmexpress:uuid:...\"]`:
    ddlp-device serve --config drive.toml --listen 192.0.2.7:4420
    nvme discover -t tcp -a 192.0.2.7                  # on that host

The configuration file is TOML. Its keys are the names of the options (slot-bytes = 38547456), and allowed-hosts.";

/// Options of `ddlp-device serve`.
#[derive(Args, Clone, Debug, Default)]
#[command(after_long_help = EXAMPLES)]
pub struct ServeArgs {
    /// Dataset to serve: a pack, an image folder, CIFAR's binary files, tar shards, a list of files, a mix of these, or
    /// the URL of a pack in a store.
    ///
    /// A URL is s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH, https://SERVER/PATH, http://SERVER/PATH,
    /// redis://HOST:PORT/DB/NAME, rediss://…, redis+sentinel://HOST:PORT/SERVICE/DB/NAME, rediss+sentinel://…,
    /// cql://HOST/KEYSPACE/NAME or cqls://… It has no credentials: the environment has them. The agent then prepares
    /// samples of a store that is near to it, and keeps no copy.
    ///
    /// Namespace 1 exports the bytes of a pack. For other sources, namespace 1 is a single block that holds the drive's
    /// identity page.
    #[arg(long, value_name = "PATH|URL")]
    pub dataset: Option<PathBuf>,
    /// Kind of the dataset: folder, list, tar, cifar, pack or mix. [default: as the path and its contents say]
    ///
    /// Needed for a folder that could be datasets of two kinds, such as one of tar shards and images.
    #[arg(long, value_name = "KIND")]
    pub kind: Option<Kind>,
    /// Address to listen at; port 0 takes a free one. [default: 127.0.0.1:4420]
    ///
    /// The agent refuses an address that other machines can reach, unless the configuration file names allowed hosts.
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<String>,
    /// Second port at the same address for discovery, or `off`; 0 takes a free one.
    ///
    /// `nvme discover` asks at port 8009, or at the one given with -s. The agent always serves discovery at the port of
    /// --listen too. [default: 8009 if the agent listens at port 4420 and 8009 is free, else off]
    #[arg(long, value_name = "PORT|off")]
    pub discovery: Option<DiscoveryChoice>,
    /// Place for the result slots: `ram`, a file, or `fd:N` for an inherited descriptor. [default: ram]
    #[arg(long, value_name = "PATH|ram|fd:N")]
    pub results: Option<String>,
    /// Number of result slots; each holds one finished batch. [default: 4]
    #[arg(long, value_name = "N")]
    pub slots: Option<u32>,
    /// Bytes of a slot: 12288 or more, rounded up to 4096. [default: enough for 256 samples of 224 × 224]
    ///
    /// A slot holds one batch, which needs at most samples × (height × width × 3 + 24) + 8192 bytes: 77090816 for 512
    /// samples of 224 × 224.
    #[arg(long, value_name = "N")]
    pub slot_bytes: Option<u64>,
    /// Number of worker threads, which prepare samples. [default: one per usable core]
    #[arg(long, value_name = "T")]
    pub threads: Option<usize>,
    /// Cores the agent may run on, for example `0,2-3`. [default: all]
    #[arg(long, value_name = "LIST")]
    pub cores: Option<String>,
    /// Address at which the agent's figures can be read over HTTP, as Prometheus reads them; port 0 takes a free one.
    /// [default: none]
    ///
    /// Whoever can reach the address can read them.
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics: Option<String>,
    /// Fraction of full speed, above 0 and at most 1: workers rest after each sample. [default: 1]
    #[arg(long, value_name = "X")]
    pub throttle: Option<f64>,
    /// Configuration file; options on the command line take precedence.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Folder of the agent's persistent identity (NQN, serial number, namespace identifiers).
    ///
    /// One agent at a time may use it. [default: $XDG_STATE_HOME/ddlp-device/NAME or ~/.local/state/ddlp-device/NAME]
    #[arg(long, value_name = "DIR", conflicts_with = "ephemeral")]
    pub state: Option<PathBuf>,
    /// Name of the identity in the default folder. [default: default]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["state", "ephemeral"])]
    pub name: Option<String>,
    /// Take a new identity for this run and store nothing.
    #[arg(long)]
    pub ephemeral: bool,
    /// End when the other end of this inherited pipe closes, because the process that started the agent is gone.
    #[arg(long, value_name = "FD")]
    pub parent_pipe: Option<RawFd>,
    /// Write the line with address and NQN to this inherited descriptor instead of standard output.
    #[arg(long, value_name = "FD")]
    pub ready_fd: Option<RawFd>,
}

/// The configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct ConfigFile {
    dataset: Option<PathBuf>,
    kind: Option<Kind>,
    listen: Option<String>,
    discovery: Option<DiscoveryChoice>,
    results: Option<String>,
    slots: Option<u32>,
    slot_bytes: Option<u64>,
    threads: Option<usize>,
    cores: Option<String>,
    metrics: Option<String>,
    throttle: Option<f64>,
    state: Option<PathBuf>,
    name: Option<String>,
    ephemeral: bool,
    allowed_hosts: Vec<String>,
}

/// Where the identity comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentitySource {
    /// New for this run.
    Ephemeral,
    /// Kept in this folder.
    Directory(PathBuf),
}

/// All settings, checked and complete.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Dataset to serve.
    pub dataset: PathBuf,
    /// Kind of the dataset, if it is given.
    pub kind: Option<Kind>,
    /// Address to listen at.
    pub listen: SocketAddr,
    /// Separate port for discovery.
    pub discovery: Option<DiscoveryPort>,
    /// Address at which figures are served.
    pub metrics: Option<SocketAddr>,
    /// Where the slots live.
    pub results: Backing,
    /// Number and size of the slots.
    pub geometry: Geometry,
    /// Worker threads.
    pub threads: usize,
    /// Cores to run on; empty for all.
    pub cores: Vec<usize>,
    /// Fraction of full speed.
    pub throttle: Throttle,
    /// Where the identity comes from.
    pub identity: IdentitySource,
    /// Host NQNs that may connect; empty for any.
    pub allowed_hosts: Vec<String>,
    /// Pipe whose end of file makes the agent end.
    pub parent_pipe: Option<RawFd>,
    /// Where the ready line goes; standard output when `None`.
    pub ready_fd: Option<RawFd>,
}

impl Settings {
    /// Returns how the dataset is to be opened. Only the hosts need labels.
    pub fn opening(&self) -> OpenOptions {
        OpenOptions { kind: self.kind, labels_unused: true, ..OpenOptions::default() }
    }

    /// Reads the configuration file, if one is named, and checks and combines all settings.
    pub fn from_args(args: ServeArgs) -> Result<Self> {
        let file = args.config.as_deref().map(read_config).transpose()?.unwrap_or_default();
        let dataset = args
            .dataset
            .or(file.dataset)
            .context("no dataset: give --dataset PATH, or `dataset` in the configuration")?;
        let listen = address("--listen", args.listen.or(file.listen).as_deref().unwrap_or(DEFAULT_LISTEN))?;
        let metrics = args.metrics.or(file.metrics).map(|text| address("--metrics", &text)).transpose()?;
        check_allowed(&file.allowed_hosts)?;
        if !listen.ip().is_loopback() && file.allowed_hosts.is_empty() {
            bail!(
                "refusing to listen at {listen}: other machines can reach it. Name the hosts that may connect \
                 (allowed-hosts = [\"nqn...\"] in the file given to --config), or listen at 127.0.0.1"
            );
        }
        let results = args.results.or(file.results).as_deref().unwrap_or("ram").parse();
        let results: Backing = results.map_err(anyhow::Error::msg).context("--results")?;
        if let (Backing::File(results), Some(config)) = (&results, &args.config)
            && is_same_file(results, config)
        {
            bail!("--results {} is the configuration file: name another file", results.display());
        }
        let throttle = args.throttle.or(file.throttle).unwrap_or(1.0);
        let identity = identity((args.ephemeral, args.state, args.name), (file.ephemeral, file.state, file.name))?;
        Ok(Self {
            dataset,
            kind: args.kind.or(file.kind),
            listen,
            discovery: DiscoveryPort::decide(args.discovery.or(file.discovery), listen.port()),
            metrics,
            results,
            geometry: geometry(args.slots.or(file.slots), args.slot_bytes.or(file.slot_bytes))?,
            threads: threads(args.threads.or(file.threads))?,
            cores: args.cores.or(file.cores).as_deref().map(cores).transpose()?.unwrap_or_default(),
            throttle: Throttle::new(throttle)
                .with_context(|| format!("--throttle {throttle}: expected 0.001 to 1, for example 0.25"))?,
            identity,
            allowed_hosts: file.allowed_hosts,
            parent_pipe: args.parent_pipe,
            ready_fd: args.ready_fd,
        })
    }
}

/// Returns whether two paths lead to one file that exists.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let inode = |path: &Path| std::fs::metadata(path).map(|there| (there.dev(), there.ino())).ok();
    inode(one).is_some_and(|one| inode(other) == Some(one))
}

fn read_config(path: &Path) -> Result<ConfigFile> {
    let what = || format!("cannot read the configuration {}", path.display());
    // Checked before opening, since opening a pipe would wait for its other end.
    let is_file = std::fs::metadata(path).with_context(what)?.is_file();
    ensure!(is_file, "the configuration {} is not a regular file", path.display());
    let mut text = String::new();
    // A file may give more bytes than its metadata says.
    let bytes = File::open(path).and_then(|file| file.take(CONFIG_BYTES_MAX + 1).read_to_string(&mut text));
    let is_small = bytes.with_context(what)? as u64 <= CONFIG_BYTES_MAX;
    ensure!(is_small, "{} has more than {CONFIG_BYTES_MAX} bytes: not a configuration", path.display());
    toml::from_str(&text).with_context(|| format!("{} is not a configuration", path.display()))
}

fn address(option: &str, text: &str) -> Result<SocketAddr> {
    let found = text.to_socket_addrs().with_context(|| format!("{option} {text}: expected ADDRESS:PORT"))?;
    found.into_iter().next().with_context(|| format!("{option} {text}: the name has no address"))
}

fn geometry(slots: Option<u32>, slot_bytes: Option<u64>) -> Result<Geometry> {
    let slots = slots.unwrap_or(DEFAULT_SLOTS);
    ensure!((1..=SLOTS_MAX).contains(&slots), "--slots {slots}: expected 1 to {SLOTS_MAX}");
    let (samples, height, width) = DEFAULT_BATCH;
    let bytes_of = |samples, height, width| {
        SlotLayout::new(samples, Shape { height, width, channels: 3 }).map_or(BLOCK_BYTES, |layout| layout.total_bytes)
    };
    let asked = slot_bytes.unwrap_or(bytes_of(samples, height, width) as u64);
    let (least, most) = (bytes_of(1, 1, 1) as u64, ddlp_csd::slot::SLOT_BYTES_MAX);
    // A slot consists of whole blocks.
    let slot_bytes = asked.min(most + 1).next_multiple_of(BLOCK_BYTES as u64);
    ensure!(slot_bytes >= least && asked <= most, "--slot-bytes {asked}: expected {least} to {most}");
    Ok(Geometry { slots, slot_bytes })
}

fn threads(asked: Option<usize>) -> Result<usize> {
    let threads = match asked {
        Some(threads) => threads,
        None => available_parallelism().map_or(1, |cores| cores.get().min(THREADS_MAX)),
    };
    ensure!((1..=THREADS_MAX).contains(&threads), "--threads {threads}: expected 1 to {THREADS_MAX}");
    Ok(threads)
}

/// Parses a list of cores and ranges: `0,2-3` gives 0, 2, 3.
fn cores(list: &str) -> Result<Vec<usize>> {
    let mut cores = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<usize>().ok().filter(|&core| core < libc::CPU_SETSIZE as usize);
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => cores.extend(first..=last),
            _ => bail!("--cores {list}: `{part}` is neither a core nor a range of cores such as 2-3"),
        }
    }
    cores.sort_unstable();
    cores.dedup();
    Ok(cores)
}

type IdentityChoice = (bool, Option<PathBuf>, Option<String>);

/// Returns where the identity comes from. If the command line says anything about it, the file's choice is ignored.
fn identity(line: IdentityChoice, file: IdentityChoice) -> Result<IdentitySource> {
    let (ephemeral, state, name) = if line == (false, None, None) { file } else { line };
    if ephemeral {
        return Ok(IdentitySource::Ephemeral);
    }
    if let Some(directory) = state {
        return Ok(IdentitySource::Directory(directory));
    }
    let name = name.unwrap_or_else(|| DEFAULT_NAME.into());
    let plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    ensure!(plain, "--name {name}: expected letters, digits, - and _");
    let set = |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")));
    let base = base.context("neither XDG_STATE_HOME nor HOME is set: give --state DIR or --ephemeral")?;
    Ok(IdentitySource::Directory(base.join("ddlp-device").join(name)))
}

#[cfg(test)]
mod tests;
