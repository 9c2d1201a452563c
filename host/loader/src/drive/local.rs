//! A drive that the loader starts itself: the agent as a child process on loopback, with result slots in memory that the
//! loader makes and hands down.

#![allow(unsafe_code)]

use super::LocalDrive;
use super::slots::SlotTable;
use crate::LocalResults;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long the agent may take to say that it serves (it opens the dataset first).
const READY_WITHIN: Duration = Duration::from_secs(30);
/// How long it may take to leave after its pipe was closed.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);
/// How often it is started again without having finished a batch in between.
pub(super) const RESTARTS_MAX: u32 = 10;
/// How often a thread that waits for it looks whether the run was stopped.
const STOP_LOOK: Duration = Duration::from_millis(50);
/// Longest line that it is taken to print.
const LINE_BYTES: u64 = 4096;
/// Lines of its log that are kept for messages.
const LOG_LINES: usize = 12;

/// The agent's process, and what is needed to start it again.
pub(crate) struct LocalAgent {
    program: PathBuf,
    args: Vec<String>,
    /// Result memory, inherited by the child under this very number.
    memory: Option<OwnedFd>,
    /// The file with the results, if there was none before.
    made_file: Option<PathBuf>,
    child: Option<Child>,
    url: String,
    log: Arc<Mutex<Vec<String>>>,
    /// Nothing more will come.
    log_ended: Arc<AtomicBool>,
}

/// Why an agent does not serve.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AgentError {
    #[error(
        "its program ddlp-device is neither beside this program nor on the PATH: build it, or name it (LocalDrive::agent)"
    )]
    NotFound,
    #[error("{program} cannot be started: {source}")]
    Spawn { program: String, source: std::io::Error },
    #[error("there is no memory for its result slots ({source}): use fewer slots, smaller batches, or a file")]
    Memory { source: std::io::Error },
    #[error("its result slots in {} cannot be mapped: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("its agent ended before it was ready ({status}){log}")]
    Ended { status: String, log: String },
    #[error("its agent was not ready within {0:?}")]
    NotReady(Duration),
    #[error("its agent said \"{0}\" instead of where it listens")]
    Ready(String),
}

impl LocalAgent {
    /// Starts an agent for `dataset` with `threads` workers and `slots` slots of `slot_bytes` bytes, and returns it with the
    /// host's side of the slots.
    pub fn start(
        drive: &LocalDrive,
        dataset: &Path,
        threads: usize,
        slots: u32,
        slot_bytes: usize,
    ) -> Result<(Self, SlotTable), AgentError> {
        let program = find_agent(drive.agent.as_deref())?;
        let total = u64::from(slots) * slot_bytes as u64;
        let memory_error = |source| AgentError::Memory { source };
        let memory = match drive.results {
            LocalResults::Shared => Some(result_memory(total).map_err(memory_error)?),
            LocalResults::Read | LocalResults::File(_) => None,
        };
        let results = match (&memory, &drive.results) {
            (Some(memory), _) => format!("fd:{}", memory.as_raw_fd()),
            (None, LocalResults::File(path)) => path.display().to_string(),
            (None, _) => "ram".to_string(),
        };
        let mut args: Vec<String> =
            ["serve", "--listen", "127.0.0.1:0", "--ephemeral", "--parent-pipe", "0"].map(String::from).into();
        let mut option = |name: &str, value: String| args.extend([name.to_string(), value]);
        option("--dataset", dataset.display().to_string());
        option("--results", results);
        option("--slots", slots.to_string());
        option("--slot-bytes", slot_bytes.to_string());
        option("--threads", threads.to_string());
        option("--throttle", drive.throttle.to_string());
        if !drive.cores.is_empty() {
            option("--cores", drive.cores.iter().map(usize::to_string).collect::<Vec<_>>().join(","));
        }
        let table = memory.as_ref().map(|memory| SlotTable::shared(slots, slot_bytes, memory)).transpose();
        let mut table = table.map_err(memory_error)?;
        let memory = memory.map(OwnedFd::from);
        let made_file = match &drive.results {
            LocalResults::File(path) if !path.exists() => Some(path.clone()),
            _ => None,
        };
        let mut agent = Self {
            program,
            args,
            memory,
            made_file,
            child: None,
            url: String::new(),
            log: Arc::default(),
            log_ended: Arc::default(),
        };
        agent.spawn(&|| false)?;
        if let LocalResults::File(path) = &drive.results {
            // The agent has made sure that the file holds slots and nothing else.
            let file = File::open(path).and_then(|file| SlotTable::shared(slots, slot_bytes, &file));
            table = Some(file.map_err(|source| AgentError::File { path: path.clone(), source })?);
        }
        Ok((agent, table.unwrap_or_else(|| SlotTable::remote(slots, slot_bytes))))
    }

    /// Where it listens, `tcp://HOST:PORT/NQN`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// True while its process exists (it may be stopped or hang).
    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Kills what is left of it and starts it again on the same result memory.
    pub fn restart(&mut self, is_stopped: &dyn Fn() -> bool) -> Result<(), AgentError> {
        self.kill();
        self.spawn(is_stopped)
    }

    fn spawn(&mut self, is_stopped: &dyn Fn() -> bool) -> Result<(), AgentError> {
        let inherited = self.memory.as_ref().map(AsRawFd::as_raw_fd);
        let mut command = Command::new(&self.program);
        // What is to be told to the service manager of this process is this process's to tell.
        command.env_remove("NOTIFY_SOCKET");
        command.args(&self.args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        // SAFETY: between fork and exec only fcntl and prctl are called, which are async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                if let Some(fd) = inherited
                    && libc::fcntl(fd, libc::F_SETFD, 0) < 0
                {
                    return Err(std::io::Error::last_os_error());
                }
                // The pipe tells a working agent that the loader is gone; this reaches a stopped one too.
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let spawn_error = |source| AgentError::Spawn { program: self.program.display().to_string(), source };
        let thread_error = |error| spawn_error(ddlp_csd::memory::thread_refused(error));
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let (log, log_ends) = (self.log.clone(), self.log_ended.clone());
        // The agent is a child of this thread, which lives as long as its log does: the kernel takes the end of the thread that
        // started a process for the end of its parent.
        let attend = move || {
            let started = command.spawn().map(|mut child| (child.stderr.take().expect("piped above"), child));
            match started {
                Ok((stderr, child)) => {
                    log_ends.store(false, Ordering::Release);
                    if sender.send(Ok(child)).is_ok() {
                        keep_log(stderr, &log);
                    }
                    log_ends.store(true, Ordering::Release);
                }
                Err(error) => drop(sender.send(Err(error))),
            }
        };
        std::thread::Builder::new().name("ddlp-agent".into()).spawn(attend).map_err(thread_error)?;
        let mut child = receiver.recv().expect("the thread sends before it ends").map_err(spawn_error)?;
        let stdout = child.stdout.take().expect("piped above");
        self.child = Some(child);
        self.url = self.wait_ready(stdout, is_stopped)?;
        Ok(())
    }

    /// Waits for the line that says where the agent listens.
    fn wait_ready(&mut self, stdout: ChildStdout, is_stopped: &dyn Fn() -> bool) -> Result<String, AgentError> {
        let (sender, receiver) = std::sync::mpsc::channel();
        let read_line = move || {
            let mut line = String::new();
            let _ = BufReader::new(stdout.take(LINE_BYTES)).read_line(&mut line);
            let _ = sender.send(line);
        };
        let spawn_error = |error| AgentError::Spawn {
            program: self.program.display().to_string(),
            source: ddlp_csd::memory::thread_refused(error),
        };
        std::thread::Builder::new().name("ddlp-agent-ready".into()).spawn(read_line).map_err(spawn_error)?;
        let until = Instant::now() + READY_WITHIN;
        let line = loop {
            match receiver.recv_timeout(STOP_LOOK) {
                Ok(line) => break line,
                Err(_) if is_stopped() || Instant::now() >= until => return Err(AgentError::NotReady(READY_WITHIN)),
                Err(_) => {}
            }
        };
        if line.is_empty() {
            return Err(self.died(until.min(Instant::now() + LEAVE_WITHIN)));
        }
        let ready: Ready = serde_json::from_str(&line).map_err(|_| AgentError::Ready(line.trim().to_string()))?;
        Ok(format!("tcp://{}/{}", ready.listen, ready.nqn))
    }

    /// Why an agent closed its output without having said anything: its status, and the end of its log.
    fn died(&mut self, until: Instant) -> AgentError {
        let mut status = None;
        while Instant::now() < until && (status.is_none() || !self.log_ended.load(Ordering::Acquire)) {
            status = status.or_else(|| self.child.as_mut().and_then(|child| child.try_wait().ok().flatten()));
            std::thread::sleep(Duration::from_millis(2));
        }
        let Some(status) = status else { return AgentError::Ready(String::new()) };
        let log = self.log.lock().expect("no panic while the log is locked");
        let log = log.iter().map(|line| format!("\n  {line}")).collect();
        AgentError::Ended { status: status.to_string(), log }
    }

    /// Ends the agent: by closing its pipe, and after a while by force.
    pub fn end(&mut self) {
        let Some(child) = self.child.as_mut() else { return };
        drop(child.stdin.take());
        let until = Instant::now() + LEAVE_WITHIN;
        while Instant::now() < until {
            if !matches!(child.try_wait(), Ok(None)) {
                self.child = None;
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.kill();
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Both fail only when the process is gone already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for LocalAgent {
    fn drop(&mut self) {
        self.end();
        if let Some(path) = &self.made_file {
            // Batches that the consumer keeps have it mapped still, and go on to.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Passes the agent's log on, and keeps its last lines for messages, until the agent closes it.
fn keep_log(stderr: ChildStderr, log: &Mutex<Vec<String>>) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    while let Ok(1..) = stderr.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line) {
        let text = String::from_utf8_lossy(&line).trim_end().to_string();
        line.clear();
        tracing::info!(target: "ddlp_device", "{text}");
        let mut log = log.lock().expect("no panic while the log is locked");
        if log.len() == LOG_LINES {
            log.remove(0);
        }
        log.push(text);
    }
}

/// What the agent prints when it serves.
#[derive(serde::Deserialize)]
struct Ready {
    listen: String,
    nqn: String,
}

impl LocalDrive {
    /// Returns the agent's program, if there is one.
    pub fn program(&self) -> Option<PathBuf> {
        find_agent(self.agent.as_deref()).ok()
    }
}

fn find_agent(named: Option<&Path>) -> Result<PathBuf, AgentError> {
    if let Some(path) = named {
        return Ok(path.to_path_buf());
    }
    let name = "ddlp-device";
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join(name)));
    let on_path = std::env::var_os("PATH")
        .into_iter()
        .flat_map(|path| std::env::split_paths(&path).map(|dir| dir.join(name)).collect::<Vec<_>>());
    // Tests and examples lie one folder below the programs they belong to.
    let above = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.parent()?.join(name)));
    beside.into_iter().chain(above).chain(on_path).find(|path| path.is_file()).ok_or(AgentError::NotFound)
}

/// Makes the memory that host and agent share. It has no pages yet: the agent allocates each slot before it uses it. Nobody can
/// shrink it under the mappings.
fn result_memory(bytes: u64) -> std::io::Result<File> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file = File::from(memfd_create(c"ddlp-results", flags)?);
    file.set_len(bytes)?;
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK))?;
    Ok(file)
}
