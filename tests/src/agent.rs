//! Runs `ddlp-device` as a child process.

use ddlp_csd::log::{COUNTERS_LOG, Counters, LOG_BYTES};
use ddlp_driver::{Target, logpage};
use ddlp_nvme::{Csi, LogId};
use ddlp_test_support::nested::without_package;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

/// Returns a program of this workspace, built with the profile of the tests. If the environment variable
/// `DDLP_PROGRAMS` names a folder, the program lies there.
pub fn program(name: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let folder = BUILT.get_or_init(|| {
        if let Some(folder) = std::env::var_os("DDLP_PROGRAMS") {
            return folder.into();
        }
        // Tests lie in PROFILE/deps, programs in PROFILE.
        let exe = std::env::current_exe().expect("the test has a path");
        let folder = exe.parent().and_then(Path::parent).expect("tests lie in deps").to_path_buf();
        let mut cargo = Command::new(env!("CARGO"));
        without_package(&mut cargo);
        // Builds the whole workspace, so that features, and with them builds, equal the tests'.
        cargo.args(["build", "--quiet", "--workspace", "--bins"]);
        if folder.ends_with("release") {
            cargo.arg("--release");
        }
        cargo.env("CARGO_TARGET_DIR", folder.parent().expect("profiles lie in the target folder"));
        assert!(cargo.status().expect("cargo runs").success(), "the programs build");
        folder
    });
    folder.join(name)
}

/// A running agent; killed when dropped.
pub struct Agent {
    args: Vec<String>,
    child: Child,
    address: String,
    discovery: Option<String>,
    nqn: String,
}

impl Agent {
    /// Serves a dataset with `slots` slots for batches of at most `batch` samples of 224 × 224, on a port that the
    /// agent chooses, with a lasting identity in `state`.
    pub fn start(dataset: &Path, state: &Path, extra: &[&str]) -> Self {
        let mut args: Vec<String> =
            ["serve", "--dataset", &dataset.display().to_string(), "--state"].map(String::from).into();
        args.push(state.display().to_string());
        args.extend(extra.iter().map(|arg| arg.to_string()));
        let (child, ready) = spawn(&args, "127.0.0.1:0");
        let Ready { listen: address, discovery, nqn } = ready;
        Self { args, child, address, discovery, nqn }
    }

    /// Returns the agent's address for the loader.
    pub fn url(&self) -> String {
        self.url_by(&self.address)
    }

    /// Returns the address of the same agent, reached through a relay at `address`.
    pub fn url_by(&self, address: &str) -> String {
        format!("tcp://{address}/{}", self.nqn)
    }

    /// Returns the `HOST:PORT` at which the agent listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the `HOST:PORT` at which the agent also listens for discovery, if it does.
    pub fn discovery(&self) -> Option<&str> {
        self.discovery.as_deref()
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends the agent a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("the agent can be signalled");
    }

    /// Kills the agent at once.
    pub fn kill(&mut self) {
        self.child.kill().expect("the agent can be killed");
        self.child.wait().expect("the agent is reaped");
    }

    /// Starts the agent again at the same address.
    pub fn restart(&mut self) {
        let (child, ready) = spawn(&self.args, &self.address);
        let same = (&ready.listen, &ready.nqn) == (&self.address, &self.nqn);
        assert!(same, "an agent keeps its identity over a restart");
        (self.child, self.discovery) = (child, ready.discovery);
    }

    /// Returns the agent's largest resident memory so far, in bytes, mapped slots included.
    pub fn peak_bytes(&self) -> u64 {
        self.memory_bytes("VmHWM:")
    }

    /// Returns the agent's own memory now, in bytes: without slots in memory and the program's file.
    pub fn own_bytes(&self) -> u64 {
        self.memory_bytes("RssAnon:")
    }

    /// Reads the agent's counters.
    pub fn counters(&self) -> Counters {
        let target = Target::parse(&self.url()).expect("its address");
        let controller = target.connect().expect("it serves");
        let mut page = [0; LOG_BYTES];
        let within = Duration::from_secs(10);
        logpage::read(&*controller, LogId(COUNTERS_LOG), Csi::NVM, &mut page, within).expect("a page");
        Counters::parse(&page).expect("counters")
    }

    fn memory_bytes(&self, what: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("a live process");
        let line = status.lines().find_map(|line| line.strip_prefix(what)).expect("Linux tells it");
        line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).expect("in KiB") * 1024
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Kills a stopped process as well. Both calls fail only if the process is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The line that an agent prints when it is ready.
struct Ready {
    listen: String,
    discovery: Option<String>,
    nqn: String,
}

fn spawn(args: &[String], listen: &str) -> (Child, Ready) {
    let mut child = Command::new(program("ddlp-device"))
        .args(args)
        .args(["--listen", listen])
        .env("RUST_LOG", "warn")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the agent starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("the agent says where it listens");
    let ready: serde_json::Value =
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("the agent printed {line:?} instead of its address"));
    let text = |key: &str| ready[key].as_str().map(String::from);
    let (listen, nqn) = (text("listen").expect("an address"), text("nqn").expect("a name"));
    (child, Ready { listen, discovery: text("discovery"), nqn })
}
