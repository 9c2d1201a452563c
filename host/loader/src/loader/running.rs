//! The threads of a run: they are started together, and waited for together.

use crate::cpu::{self, Desk};
use crate::drive::DriveProng;
use crate::engine::Engine;
use crate::error::LoaderError;
use crate::schedule::ProngId;
use ddlp_csd::memory;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time that the threads have for an orderly end before the loader interrupts reads of the dataset and, at the end of a
/// run, cuts the associations with drives.
const LEAVE_WITHIN: Duration = Duration::from_millis(500);
/// Time that the thread of a drive has for its end if the run goes on at another position. Covers the end of cancelled
/// batches, and the admin commands before and after it.
const KEEP_WITHIN: Duration = Duration::from_secs(8);
/// How often the loader checks whether the threads have ended.
const LEAVE_LOOK: Duration = Duration::from_millis(1);

/// The threads of a run.
#[derive(Default)]
pub(super) struct RunThreads(Vec<RunThread>);

struct RunThread {
    /// The drive that the thread serves.
    prong: Option<ProngId>,
    /// Returns the drive if it is kept.
    thread: JoinHandle<Option<DriveProng>>,
}

impl RunThreads {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Starts a thread for each drive, each desk of the CPU prong and each desk of the fetch stage. They may run on
    /// these cores only; an empty list allows all.
    pub fn start(
        &mut self,
        engine: &Arc<Engine>,
        drives: impl Iterator<Item = DriveProng>,
        desks: &Arc<[Desk]>,
        threads: usize,
        cores: &[usize],
    ) -> Result<(), LoaderError> {
        for drive in drives {
            self.spawn(Some(drive.number()), "ddlp-drive".into(), cores, move || drive.run())?;
        }
        for desk in 0..desks.len() {
            let (engine, desks) = (engine.clone(), desks.clone());
            let (name, work): (_, fn(&Arc<Engine>, &Desk)) = match desk.checked_sub(threads) {
                None => (format!("ddlp-cpu-{desk}"), cpu::work),
                Some(number) => (format!("ddlp-fetch-{number}"), |engine, desk| cpu::fetching::run(engine, desk)),
            };
            let body = move || {
                work(&engine, &desks[desk]);
                None
            };
            self.spawn(None, name, cores, body)?;
        }
        Ok(())
    }

    fn spawn(
        &mut self,
        prong: Option<ProngId>,
        name: String,
        cores: &[usize],
        body: impl FnOnce() -> Option<DriveProng> + Send + 'static,
    ) -> Result<(), LoaderError> {
        let cores = cores.to_vec();
        let pinned = move || {
            if let Err(error) = pin(&cores) {
                tracing::warn!("threads cannot be restricted to cores {cores:?}: {error}");
            }
            body()
        };
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(pinned)
            .map_err(|error| LoaderError::System { what: "a thread", source: memory::thread_refused(error) })?;
        self.0.push(RunThread { prong, thread });
        Ok(())
    }

    /// Waits for all threads of a run that was stopped. Returns the drives that the run keeps. A thread that does not
    /// end in time costs a drive its association only if the thread is the drive's own.
    pub fn end(&mut self, engine: &Engine) -> Vec<DriveProng> {
        let begun = Instant::now();
        while self.0.iter().any(|running| !running.thread.is_finished()) {
            let waited = begun.elapsed();
            let reads = |running: &RunThread| running.prong.is_none() && !running.thread.is_finished();
            if waited >= LEAVE_WITHIN && self.0.iter().any(reads) {
                // Again and again: a thread may begin to wait for the dataset after an interrupt.
                engine.task.dataset.interrupt();
            }
            if waited >= if engine.keeps_drives() { KEEP_WITHIN } else { LEAVE_WITHIN } {
                let late = self.0.iter().filter(|running| !running.thread.is_finished());
                late.filter_map(|running| running.prong).for_each(|prong| engine.close_link(prong));
            }
            std::thread::sleep(LEAVE_LOOK);
        }
        let mut kept = Vec::new();
        for running in self.0.drain(..) {
            match running.thread.join() {
                Ok(drive) => kept.extend(drive),
                Err(_) => tracing::error!("a thread of the loader panicked"),
            }
        }
        kept
    }
}

/// Restricts the calling thread to these cores; an empty list allows all.
fn pin(cores: &[usize]) -> nix::Result<()> {
    if cores.is_empty() {
        return Ok(());
    }
    let mut set = nix::sched::CpuSet::new();
    for &core in cores {
        set.set(core)?;
    }
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set)
}
