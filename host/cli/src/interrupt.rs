//! Ctrl-C: the first one asks the work to stop, the second one ends the process.
//!
//! A command that can stop cleanly registers a handler for as long as it can ([`Interrupt::handle`]). At any other time
//! there is nothing to tidy up, and the first Ctrl-C ends the process. SIGTERM and SIGHUP count as Ctrl-C. The exit
//! status is 128 plus the number of the signal, as a shell reports a program that a signal ended. A signal that was
//! ignored when the process began (`nohup`) stays ignored. SIGCHLD does not: a process that ignores it learns nothing
//! about the end of the programs that it starts.

use anyhow::Context;
use ddlp_csd::memory;
use nix::sys::signal::Signal;
use signal_hook::flag;
use signal_hook::iterator::Signals;
use std::fs;
use std::process;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Signals that end the work.
const SIGNALS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

type Action = Box<dyn Fn() + Send>;

#[derive(Default)]
struct InterruptState {
    /// The first signal that came, or 0.
    first: AtomicI32,
    action: Mutex<Option<Action>>,
}

impl InterruptState {
    fn action(&self) -> MutexGuard<'_, Option<Action>> {
        self.action.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles a signal; returns whether the process is to end now.
    fn signal(&self, number: i32) -> bool {
        let again = self.first.compare_exchange(0, number, Ordering::SeqCst, Ordering::SeqCst).is_err();
        match &*self.action() {
            Some(stop) if !again => {
                stop();
                false
            }
            _ => true,
        }
    }
}

/// Tells whether the user has asked to stop.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<InterruptState>);

impl Interrupt {
    /// Installs the handler of the signals. To be called once per process.
    pub fn install() -> anyhow::Result<Self> {
        let interrupt = Self::default();
        let state = interrupt.0.clone();
        let ignored = ignored_signals();
        let is_ignored = |number: i32| ignored >> (number - 1) & 1 == 1;
        if is_ignored(Signal::SIGCHLD as i32) {
            // A handler that does nothing keeps exit statuses as well as the default action does.
            flag::register(Signal::SIGCHLD as i32, Arc::default()).context("cannot take over SIGCHLD")?;
        }
        let wanted = SIGNALS.map(|signal| signal as i32).into_iter().filter(|&number| !is_ignored(number));
        let mut signals = Signals::new(wanted).context("cannot take over signals")?;
        let attend = move || {
            for number in signals.forever() {
                if state.signal(number) {
                    process::exit(exit_status(number).into());
                }
            }
        };
        let started = thread::Builder::new().name("signals".into()).spawn(attend);
        started.map_err(memory::thread_refused).context("cannot start a thread")?;
        Ok(interrupt)
    }

    /// Returns whether a signal came.
    pub fn requested(&self) -> bool {
        self.signal().is_some()
    }

    /// Returns the first signal that came.
    pub fn signal(&self) -> Option<Signal> {
        Signal::try_from(self.0.first.load(Ordering::SeqCst)).ok()
    }

    /// Returns, for people, what stopped the work.
    pub fn what(&self) -> &'static str {
        match self.signal() {
            Some(Signal::SIGINT) | None => "Ctrl-C",
            Some(signal) => signal.as_str(),
        }
    }

    /// Returns the exit status of a process that was stopped.
    pub fn exit_status(&self) -> u8 {
        exit_status(self.signal().unwrap_or(Signal::SIGINT) as i32)
    }

    /// Does the same as Ctrl-C.
    #[cfg(test)]
    pub fn press(&self) {
        self.0.signal(Signal::SIGINT as i32);
    }

    /// Makes Ctrl-C call `stop` instead of ending the process, until the guard is dropped.
    #[must_use]
    pub fn handle(&self, stop: impl Fn() + Send + 'static) -> Handling {
        let mut action = self.0.action();
        if self.requested() {
            stop();
        }
        *action = Some(Box::new(stop));
        Handling(self.0.clone())
    }
}

/// Returns the exit status that a shell reports for a program that this signal ended.
fn exit_status(signal: i32) -> u8 {
    128 + signal as u8
}

/// Returns the signals that this process ignores, one bit each, the lowest for signal 1.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Guard: while it lives, Ctrl-C calls the handler.
pub struct Handling(Arc<InterruptState>);

impl Drop for Handling {
    fn drop(&mut self) {
        *self.0.action() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn the_first_signal_stops_the_work_and_the_second_ends_the_process() {
        let interrupt = Interrupt::default();
        let stops = Arc::new(AtomicU32::new(0));
        let seen = stops.clone();
        let handling = interrupt.handle(move || {
            seen.fetch_add(1, Ordering::SeqCst);
        });
        assert!(!interrupt.requested());
        assert!(!interrupt.0.signal(2));
        assert!(interrupt.requested());
        assert_eq!(stops.load(Ordering::SeqCst), 1);
        assert!(interrupt.0.signal(15));
        assert_eq!((interrupt.what(), interrupt.exit_status()), ("Ctrl-C", 130));
        assert_eq!(stops.load(Ordering::SeqCst), 1);
        drop(handling);
    }

    #[test]
    fn without_a_handler_the_first_signal_ends_the_process() {
        let interrupt = Interrupt::default();
        drop(interrupt.handle(|| {}));
        assert!(interrupt.0.signal(2));
    }

    #[test]
    fn the_exit_status_contains_the_signal() {
        let interrupt = Interrupt::default();
        let _handling = interrupt.handle(|| {});
        interrupt.0.signal(Signal::SIGTERM as i32);
        assert_eq!((interrupt.what(), interrupt.exit_status()), ("SIGTERM", 143));
    }

    #[test]
    fn a_handler_that_comes_late_is_called_at_once() {
        let interrupt = Interrupt::default();
        interrupt.0.signal(2);
        let stops = Arc::new(AtomicU32::new(0));
        let seen = stops.clone();
        let _handling = interrupt.handle(move || {
            seen.fetch_add(1, Ordering::SeqCst);
        });
        assert_eq!(stops.load(Ordering::SeqCst), 1);
    }
}
