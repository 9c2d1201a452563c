//! The drives of a run, as its options name them.

use crate::options::THREADS_MAX;
use crate::options::definition::options;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A drive for a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DriveSpec {
    /// An agent that the loader starts itself.
    Local(LocalDrive),
    /// An agent that is already running: `tcp://HOST:PORT/NQN`, or `/dev/nvme0` where the kernel is connected to it.
    Remote(String),
    /// The one drive that the kernel is connected to.
    Auto,
}

options! {
    /// Options of an agent that the loader starts itself.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct LocalDrive

    Drives {
        /// Worker threads of the local drive.
        threads: Option<usize> = None,
            "as many as `cores` names, or else the drive's share of half of the machine's cores, or of all of them \
             where the CPU prepares nothing" =>
            whole(1, THREADS_MAX).flag("N").flag_name("drive-threads").flag_default("half of the cores");
        /// Cores that the local drive may run on; an empty list allows all.
        cores: Vec<usize> = Vec::new(), "any core" => values(Cores)
            .flag("LIST").flag_name("drive-cores").flag_default("any")
            .flag_doc("Cores to which the local drive is pinned, such as 2-3.");
        /// Result slots of the local drive, each for one finished batch that the host has not taken yet.
        slots: Option<u32> = None, "as many as the strategy can use and memory allows" =>
            whole(1, u32::MAX as u64).flag("N")
            .flag_default("16; for mte as many as the tail needs and memory allows");
        /// Memory in which the results lie.
        results: LocalResults = LocalResults::Shared, "shared" => values(Structure)
            .flag("shared|read|FILE").flag_doc("\
                Place of the local drive's results: shared (memory that host and drive both map), read (the drive's \
                own memory, which the host reads by NVMe/TCP), or a file that both map, and that no other program may \
                shorten during the run.");
        /// Share of its full speed at which the local drive works, above 0 and at most 1, for experiments.
        throttle: f64 = 1.0 => values(Number("a number above 0 and at most 1", |share| share > 0.0 && share <= 1.0))
            .flag("SHARE").flag_default("1");
        /// Program of the local drive's agent.
        agent: Option<PathBuf> = None, "`ddlp-device` beside this program, or in PATH" =>
            values(Path("the path of a program")).flag("FILE");
    }
}

/// Memory in which the results of a local drive lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LocalResults {
    /// In memory that the loader allocates and shares with the agent. Batches of pixels are delivered from it without a
    /// copy.
    Shared,
    /// In a file that is shared in the same way. The loader removes the file afterwards if it did not exist before. If
    /// a batch of an earlier run still lies in the file, a new file replaces it, and the batch keeps the earlier one.
    /// Host and drive map the file: truncating it during the run kills both by SIGBUS.
    File(PathBuf),
    /// In the agent's own memory, read over NVMe/TCP.
    Read,
}
