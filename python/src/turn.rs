//! The turn to take a batch: one thread at a time has it, from the wait until Python has the batch.

use crate::errors;
use pyo3::prelude::*;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// How often a thread that waits for its turn looks for signals.
const LOOK: Duration = Duration::from_millis(50);

/// A lock whose waiters handle signals. Its owner may run Python code.
#[derive(Default)]
pub struct Turn {
    owner: Mutex<Option<ThreadId>>,
    given_back: Condvar,
}

/// The turn of this thread, until it is dropped.
pub struct Owned<'a>(&'a Turn);

impl Turn {
    /// Waits for the turn. Fails if this thread has the turn already: then a signal's handler has interrupted it.
    pub fn take(&self, py: Python<'_>) -> PyResult<Owned<'_>> {
        let own = Some(thread::current().id());
        if *self.owner() == own {
            return Err(errors::usage(
                "a signal's handler cannot take a batch of a loader that it has interrupted, nor can a step of \
                 headspace"
                    .into(),
            ));
        }
        loop {
            let has_turn = py.detach(|| {
                let owner = self.owner();
                let waited = self.given_back.wait_timeout_while(owner, LOOK, |owner| owner.is_some());
                let (mut owner, _) = waited.unwrap_or_else(PoisonError::into_inner);
                let is_free = owner.is_none();
                if is_free {
                    *owner = own;
                }
                is_free
            });
            if has_turn {
                return Ok(Owned(self));
            }
            py.check_signals()?;
        }
    }

    fn owner(&self) -> MutexGuard<'_, Option<ThreadId>> {
        self.owner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        *self.0.owner() = None;
        self.0.given_back.notify_one();
    }
}
