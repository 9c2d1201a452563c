//! A drive that the loader starts itself: the agent as a child process on loopback, with result slots in memory that
//! the loader allocates and the agent inherits.

#![allow(unsafe_code)]

mod result_memory;

use super::spec::{LocalDrive, LocalResults};
use crate::delivery::SlotTable;
use ddlp_dataset::Kind;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time within which the agent must report that it serves; it opens the dataset first.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// Time that the agent has to end after its pipe was closed.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);
/// Time that the agent has to end after its pipe was closed, before it gets SIGTERM.
const PIPE_WITHIN: Duration = Duration::from_millis(200);
/// Most restarts of the agent without a finished batch in between.
pub(super) const RESTARTS_MAX: u32 = 10;
/// Interval at which a thread that waits for the agent checks whether the run was stopped.
const STOP_LOOK: Duration = Duration::from_millis(50);
/// Longest line of the agent's output.
const LINE_BYTES: u64 = 4096;
/// Last lines of the agent's log that are kept for messages.
const LOG_LINES: usize = 12;

/// The agent's process, and everything needed to restart it.
pub(crate) struct LocalAgent {
    program: PathBuf,
    args: Vec<String>,
    /// Result memory, or the file of slots once the first agent has made or checked it. Each later agent inherits it
    /// under the same file descriptor number: the file's path may lead to another run's file by then.
    memory: Option<OwnedFd>,
    /// The file with the results, if it did not exist before.
    made_file: Option<PathBuf>,
    child: Option<Child>,
    url: String,
    log: Arc<Mutex<Vec<String>>>,
    /// Whether the log has ended.
    log_ended: Arc<AtomicBool>,
}

/// Why an agent does not serve.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AgentError {
    #[error(
        "its program ddlp-device is neither beside this program nor on the PATH: build it (cargo build \
         --release -p ddlp-device), or name it as the drive's `agent`"
    )]
    NotFound,
    #[error("{} cannot be started ({})", program.display(), remedy(source))]
    Spawn { program: PathBuf, source: std::io::Error },
    #[error("no thread can be started to watch its agent")]
    Thread { source: std::io::Error },
    #[error("there is no memory for its result slots (use fewer slots, smaller batches, or a file)")]
    Memory { source: std::io::Error },
    #[error("its result slots cannot be opened ({})", remedy(source))]
    Files { source: std::io::Error },
    #[error("its result slots in {} cannot be mapped", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("its result slots in {} belong to another run: name another file", path.display())]
    InUse { path: PathBuf },
    #[error("{} ended before it served ({status}){log}", program.display())]
    Ended { program: PathBuf, status: String, log: String },
    #[error(
        "{} did not serve within {READY_WITHIN:?}: check that the dataset's storage answers, since an agent opens the \
         dataset first; or {}",
        program.display(), advice()
    )]
    NotReady { program: PathBuf },
    #[error("{} printed \"{line}\" in place of the address at which it listens: {}", program.display(), advice())]
    Ready { program: PathBuf, line: String },
}

/// Returns advice about a program that does not behave as an agent.
fn advice() -> &'static str {
    "name a ddlp-device of this version that this machine can execute as the drive's `agent`"
}

/// Returns advice about a program that the system does not start.
fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EMFILE | Errno::ENFILE) => "close files, or raise the limit (`ulimit -n`)",
        Some(Errno::EAGAIN) => "end other processes, or raise the limit (`ulimit -u`)",
        _ => advice(),
    }
}

impl LocalAgent {
    /// Starts an agent for a dataset, at a path and maybe of a given kind, with `threads` workers and `slots` slots of
    /// `slot_bytes` bytes. Returns the agent and the host's side of the slots.
    pub fn start(
        drive: &LocalDrive,
        (dataset, kind): (&Path, Option<Kind>),
        threads: usize,
        slots: u32,
        slot_bytes: usize,
    ) -> Result<(Self, SlotTable), AgentError> {
        let program = find_agent(drive.agent.as_deref())?;
        let total = u64::from(slots) * slot_bytes as u64;
        let memory_error = |source: io::Error| match source.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EMFILE | Errno::ENFILE) => AgentError::Files { source },
            _ => AgentError::Memory { source },
        };
        let memory = match drive.results {
            LocalResults::Shared => Some(result_memory::create(total).map_err(memory_error)?),
            LocalResults::Read | LocalResults::File(_) => None,
        };
        let made_file = match &drive.results {
            LocalResults::File(path) if !path.exists() => Some(path.clone()),
            _ => None,
        };
        if let LocalResults::File(path) = &drive.results {
            result_memory::spare(path).map_err(|source| AgentError::File { path: path.clone(), source })?;
        }
        let results = match (&memory, &drive.results) {
            (Some(memory), _) => inherited(memory),
            (None, LocalResults::File(path)) => path.display().to_string(),
            (None, _) => "ram".to_string(),
        };
        let mut args: Vec<String> =
            ["serve", "--listen", "127.0.0.1:0", "--ephemeral", "--parent-pipe", "0"].map(String::from).into();
        let mut option = |name: &str, value: String| args.extend([name.to_string(), value]);
        option("--dataset", dataset.display().to_string());
        if let Some(kind) = kind {
            option("--kind", kind.to_string());
        }
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
            // The agent has checked that the file holds slots and nothing else.
            let shared = || {
                let file = result_memory::open_locked(path)?;
                Ok((SlotTable::shared(slots, slot_bytes, &file)?, OwnedFd::from(file)))
            };
            let (slots, file) = shared().map_err(|source: io::Error| match source.kind() {
                // The other run's agent was dead when this one's began, and held no lock of its own.
                io::ErrorKind::WouldBlock => AgentError::InUse { path: path.clone() },
                _ => AgentError::File { path: path.clone(), source },
            })?;
            agent.use_from_now_on(file);
            table = Some(slots);
        }
        Ok((agent, table.unwrap_or_else(|| SlotTable::remote(slots, slot_bytes))))
    }

    /// Lets each later agent inherit this file of slots.
    fn use_from_now_on(&mut self, file: OwnedFd) {
        if let Some(at) = self.args.iter().position(|arg| arg == "--results") {
            self.args[at + 1] = inherited(&file);
        }
        self.memory = Some(file);
    }

    /// Returns the address at which the agent listens, `tcp://HOST:PORT/NQN`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the agent's process id, if it has a process.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Returns whether the agent's process exists; the process may be stopped or hang.
    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Kills the agent's process, if it still exists, and starts a new one on the same result memory.
    pub fn restart(&mut self, is_stopped: &dyn Fn() -> bool) -> Result<(), AgentError> {
        self.kill();
        self.spawn(is_stopped)
    }

    fn spawn(&mut self, is_stopped: &dyn Fn() -> bool) -> Result<(), AgentError> {
        let inherited = self.memory.as_ref().map(AsRawFd::as_raw_fd);
        let mut command = Command::new(&self.program);
        // Only this process may notify its service manager.
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
                // The pipe tells a running agent that the loader has gone; this signal reaches a stopped one too.
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let spawn_error = |source| AgentError::Spawn { program: self.program.clone(), source };
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        // What a former agent wrote, and its end, say nothing about this one.
        (self.log, self.log_ended) = Default::default();
        let (log, log_ends) = (self.log.clone(), self.log_ended.clone());
        // This thread starts the agent, and lives as long as the agent: PR_SET_PDEATHSIG sends its signal when the
        // thread that started the child ends. It leaves the exit status to `died` and `end`.
        let attend = move || {
            let spawned = with_exit_statuses(|| command.spawn());
            let started = spawned.map(|mut child| (child.stderr.take().expect("piped above"), child));
            match started {
                Ok((stderr, child)) => {
                    let process = Pid::from_raw(child.id() as i32);
                    if sender.send(Ok(child)).is_err() {
                        return;
                    }
                    keep_log(stderr, &log);
                    log_ends.store(true, Ordering::Release);
                    // Fails with another error when the exit status has been taken already.
                    while waitid(Id::Pid(process), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) == Err(Errno::EINTR) {}
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
        std::thread::Builder::new().name("ddlp-agent-ready".into()).spawn(read_line).map_err(thread_error)?;
        let until = Instant::now() + READY_WITHIN;
        let line = loop {
            match receiver.recv_timeout(STOP_LOOK) {
                Ok(line) => break line,
                Err(_) if is_stopped() || Instant::now() >= until => {
                    return Err(AgentError::NotReady { program: self.program.clone() });
                }
                Err(_) => {}
            }
        };
        if line.is_empty() {
            return Err(self.died(until.min(Instant::now() + LEAVE_WITHIN)));
        }
        let ready: ReadyLine = serde_json::from_str(&line).map_err(|_| self.unlike_an_agent(line.trim()))?;
        Ok(format!("tcp://{}/{}", ready.listen, ready.nqn))
    }

    /// Returns the error for a program that printed `line` in place of its address.
    pub fn unlike_an_agent(&self, line: &str) -> AgentError {
        AgentError::Ready { program: self.program.clone(), line: line.to_string() }
    }

    /// Explains why an agent closed its output without reporting an address: returns its exit status and the end of its
    /// log.
    fn died(&mut self, until: Instant) -> AgentError {
        let mut status = None;
        while Instant::now() < until && (status.is_none() || !self.log_ended.load(Ordering::Acquire)) {
            status = status.or_else(|| match self.child.as_mut()?.try_wait() {
                Ok(ended) => ended.map(|ended| (ended.to_string(), ended.signal().is_some())),
                // This process ignores SIGCHLD.
                Err(_) => Some(("exit status unknown".to_owned(), false)),
            });
            std::thread::sleep(Duration::from_millis(2));
        }
        let Some((status, is_killed)) = status else { return self.unlike_an_agent("") };
        let lines = self.log.lock().expect("no panic while the log is locked");
        let mut log: String = lines.iter().map(|line| format!("\n  {line}")).collect();
        // An agent says what is wrong; another program does not know. Neither can if a signal ends it.
        if !is_killed && !lines.iter().any(|line| line.starts_with("error: ")) {
            log = format!(": {}{log}", advice());
        }
        AgentError::Ended { program: self.program.clone(), status, log }
    }

    /// Ends the agent by closing its pipe, by SIGTERM if a fork of this process keeps the pipe open, or by SIGKILL if
    /// neither helps in time.
    pub fn end(&mut self) {
        let Some(child) = self.child.as_mut() else { return };
        drop(child.stdin.take());
        let begun = Instant::now();
        let mut terminated = false;
        while begun.elapsed() < LEAVE_WITHIN {
            if !matches!(child.try_wait(), Ok(None)) {
                self.child = None;
                return;
            }
            if !terminated && begun.elapsed() > PIPE_WITHIN {
                terminated = true;
                // Fails only when the process has ended already.
                let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.kill();
    }

    fn kill(&mut self) {
        let is_running = self.is_running();
        // If SIGCHLD is ignored, the identifier of an agent that has ended may be another process's by now.
        if let Some(mut child) = self.child.take().filter(|_| is_running) {
            // Both fail only when the process has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for LocalAgent {
    fn drop(&mut self) {
        self.end();
        let Some(path) = &self.made_file else { return };
        let is_left = match &self.memory {
            Some(file) => result_memory::is_at(file, path),
            // The agent ended before it served.
            None => result_memory::is_unused(path),
        };
        if is_left {
            // Batches that the consumer still keeps retain their mapping of the file.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Names a descriptor that the agent inherits, as its place for results.
fn inherited(memory: &impl AsRawFd) -> String {
    format!("fd:{}", memory.as_raw_fd())
}

/// Runs `step`, which starts a program, with the exit statuses of child processes kept. A process that ignores SIGCHLD
/// gets none, and the standard library then panics when the program cannot be executed.
fn with_exit_statuses<R>(step: impl FnOnce() -> R) -> R {
    /// Held while the signal's action differs from the process's own.
    static CHANGED: Mutex<()> = Mutex::new(());
    let _changed = CHANGED.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: all zeros are a valid action, the default one.
    let (default, mut own): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
    // SAFETY: without a new action, sigaction only writes the present one to `own`.
    unsafe { libc::sigaction(libc::SIGCHLD, std::ptr::null(), &mut own) };
    if own.sa_sigaction != libc::SIG_IGN && own.sa_flags & libc::SA_NOCLDWAIT == 0 {
        return step();
    }
    // SAFETY: both actions are valid: the default one, and the one that the process had before.
    unsafe { libc::sigaction(libc::SIGCHLD, &default, std::ptr::null_mut()) };
    let result = step();
    // SAFETY: as above.
    unsafe { libc::sigaction(libc::SIGCHLD, &own, std::ptr::null_mut()) };
    result
}

fn thread_error(error: std::io::Error) -> AgentError {
    AgentError::Thread { source: ddlp_csd::memory::thread_refused(error) }
}

/// Forwards the agent's log, and keeps its last lines for messages, until the agent closes it.
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

/// The line that the agent prints when it serves.
#[derive(serde::Deserialize)]
struct ReadyLine {
    listen: String,
    nqn: String,
}

impl LocalDrive {
    /// Returns the agent's program, if it is found.
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
    // Tests and examples lie one folder below the programs.
    let above = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.parent()?.join(name)));
    beside.into_iter().chain(above).chain(on_path).find(|path| path.is_file()).ok_or(AgentError::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddlp_cause::with_causes;

    /// Returns the message about a program that does not serve.
    fn refusal(agent: &Path) -> String {
        let drive = LocalDrive { agent: Some(agent.into()), results: LocalResults::Read, ..LocalDrive::default() };
        let dataset = (Path::new("x.ddlp"), None);
        let error = with_causes(&LocalAgent::start(&drive, dataset, 1, 1, 4096).err().expect("no agent"));
        assert!(error.contains(&agent.display().to_string()), "{error}");
        error
    }

    #[test]
    fn a_program_that_is_no_agent_is_named_with_a_remedy() {
        let text = tempfile::NamedTempFile::new().unwrap();
        for (agent, expected) in [
            (Path::new("/no/such/agent"), "): No such file"),
            (text.path(), "): Permission denied"),
            (Path::new("/bin/true"), "ended before it served (exit status: 0)"),
            (Path::new("/bin/ls"), "ended before it served (exit status: 2)"),
            (Path::new("/bin/echo"), "printed \"serve --listen"),
        ] {
            let error = refusal(agent);
            assert!(error.contains(expected) && error.contains("`agent`"), "{error}");
        }
    }

    #[test]
    fn an_agent_that_is_killed_at_its_start_leaves_no_file_and_is_no_wrong_program() {
        let folder = tempfile::tempdir().unwrap();
        let (agent, results) = (folder.path().join("agent"), folder.path().join("results"));
        let script = "#!/bin/sh\nwhile [ \"$1\" != --results ]; do shift; done\n: > \"$2\"\nkill -KILL $$\n";
        // Another process writes the program: a child of this one that has it open for writing would make it busy.
        let mut write = Command::new("sh");
        write.args(["-c", "printf %s \"$1\" > \"$0\" && chmod +x \"$0\""]).arg(&agent).arg(script);
        assert!(write.status().unwrap().success());
        let drive =
            LocalDrive { agent: Some(agent), results: LocalResults::File(results.clone()), ..LocalDrive::default() };
        let refusal = || LocalAgent::start(&drive, (Path::new("x.ddlp"), None), 1, 1, 4096).err().unwrap().to_string();
        let error = refusal();
        assert!(
            error.contains("ended before it served (signal: 9 (SIGKILL))") && !error.contains("`agent`"),
            "{error}"
        );
        assert!(!results.exists());
        // A file that was there before the run stays.
        std::fs::write(&results, "").unwrap();
        refusal();
        assert!(results.exists());
    }

    /// Ignores SIGCHLD in another process, since that applies to all threads of a process.
    #[test]
    fn a_process_that_ignores_its_children_gets_the_same_messages() {
        const CHILD: &str = "DDLP_TEST_IGNORES_CHILDREN";
        if std::env::var_os(CHILD).is_none() {
            let name = "drive::local::tests::a_process_that_ignores_its_children_gets_the_same_messages";
            let mut command = Command::new(std::env::current_exe().unwrap());
            let output = command.args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && !said.contains("panicked"), "{said}");
            return;
        }
        // SAFETY: an ignored signal has no handler.
        unsafe { nix::sys::signal::signal(Signal::SIGCHLD, nix::sys::signal::SigHandler::SigIgn) }.unwrap();
        let error = refusal(Path::new("/no/such/agent"));
        assert!(error.contains("cannot be started (") && error.contains("): No such file"), "{error}");
        let error = refusal(Path::new("/bin/true"));
        assert!(error.contains("ended before it served (exit status"), "{error}");
        let mut lost = Command::new("/bin/true").spawn().unwrap();
        assert_eq!(lost.wait().unwrap_err().raw_os_error(), Some(libc::ECHILD), "SIGCHLD is still ignored");
    }

    /// Starts this test program, which knows as little of an agent's options as an older agent may.
    #[test]
    fn a_program_that_says_what_is_wrong_needs_no_advice() {
        let error = refusal(&std::env::current_exe().unwrap());
        assert!(error.contains("\n  error: ") && !error.contains("`agent`"), "{error}");
    }
}
