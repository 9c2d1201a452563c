//! Ctrl-C: the first one asks the work to stop, a second one ends the process.
//!
//! A command that can stop cleanly says so for as long as it can ([`Interrupt::handle`]); at any other time there is nothing
//! to tidy up and the first Ctrl-C ends the process. SIGTERM and SIGHUP count as Ctrl-C.

use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Exit status after Ctrl-C.
pub const EXIT_STATUS: u8 = 130;
/// What stopped the work, for a person: which of the signals it was is not known.
pub const WHAT: &str = "Ctrl-C or another signal";

type Action = Box<dyn Fn() + Send>;

#[derive(Default)]
struct State {
    requested: AtomicBool,
    action: Mutex<Option<Action>>,
}

impl State {
    fn action(&self) -> MutexGuard<'_, Option<Action>> {
        self.action.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a signal does; true when the process is to end now.
    fn signal(&self) -> bool {
        let again = self.requested.swap(true, Ordering::SeqCst);
        match &*self.action() {
            Some(stop) if !again => {
                stop();
                false
            }
            _ => true,
        }
    }
}

/// Whether the person has asked to stop.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<State>);

impl Interrupt {
    /// Takes over the signals. Once per process.
    pub fn install() -> anyhow::Result<Self> {
        let interrupt = Self::default();
        let state = interrupt.0.clone();
        ctrlc::set_handler(move || {
            if state.signal() {
                process::exit(EXIT_STATUS.into());
            }
        })?;
        Ok(interrupt)
    }

    /// Whether Ctrl-C was pressed.
    pub fn requested(&self) -> bool {
        self.0.requested.load(Ordering::SeqCst)
    }

    /// What a signal does.
    #[cfg(test)]
    pub fn press(&self) {
        self.0.signal();
    }

    /// Until the guard is dropped, Ctrl-C calls `stop` instead of ending the process.
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

/// While this lives, Ctrl-C is handled.
pub struct Handling(Arc<State>);

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
        assert!(!interrupt.0.signal());
        assert!(interrupt.requested());
        assert_eq!(stops.load(Ordering::SeqCst), 1);
        assert!(interrupt.0.signal());
        assert_eq!(stops.load(Ordering::SeqCst), 1);
        drop(handling);
    }

    #[test]
    fn without_a_handler_the_first_signal_ends_the_process() {
        let interrupt = Interrupt::default();
        drop(interrupt.handle(|| {}));
        assert!(interrupt.0.signal());
    }

    #[test]
    fn a_handler_that_comes_late_is_called_at_once() {
        let interrupt = Interrupt::default();
        interrupt.0.signal();
        let stops = Arc::new(AtomicU32::new(0));
        let seen = stops.clone();
        let _handling = interrupt.handle(move || {
            seen.fetch_add(1, Ordering::SeqCst);
        });
        assert_eq!(stops.load(Ordering::SeqCst), 1);
    }
}
