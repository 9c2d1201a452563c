//! The drives of a run, as its options name them.

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

/// Options of an agent that the loader starts itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LocalDrive {
    /// The agent's program. Default: `ddlp-device` beside this program or on the PATH.
    pub agent: Option<PathBuf>,
    /// Worker threads. Default: as many as [`cores`](Self::cores) names, or else this drive's share of half of the
    /// machine's cores (of all of them where the CPU prepares nothing).
    pub threads: Option<usize>,
    /// Cores that the agent may run on; an empty list allows all.
    pub cores: Vec<usize>,
    /// Share of its full speed at which the agent works, above 0 and at most 1.
    pub throttle: f64,
    /// Result slots. Default: as many as the strategy can use and memory allows.
    pub slots: Option<u32>,
    /// Memory in which the results lie.
    pub results: LocalResults,
}

impl Default for LocalDrive {
    fn default() -> Self {
        Self {
            agent: None,
            threads: None,
            cores: Vec::new(),
            throttle: 1.0,
            slots: None,
            results: LocalResults::Shared,
        }
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
