//! Work that may take long, such as opening a dataset or ending threads: signals are handled meanwhile.

use crate::errors;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How often the thread that waits looks for signals.
const LOOK: Duration = Duration::from_millis(50);

/// Each work that goes on: the flag that asks it to end, and whether it may call Python.
pub type Work = Vec<(Arc<AtomicBool>, bool)>;

static WORK: Mutex<Work> = Mutex::new(Vec::new());

/// Locks the list of work, which a forked process has to empty: it has none of its parent's threads.
pub fn hold() -> MutexGuard<'static, Work> {
    WORK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes its work from the list when the work has ended.
struct Listed(Arc<AtomicBool>);

impl Listed {
    fn new(calls_python: bool) -> Self {
        let flag = Arc::new(AtomicBool::new(false));
        hold().push((flag.clone(), calls_python));
        Self(flag)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        hold().retain(|(flag, _)| !Arc::ptr_eq(flag, &self.0));
    }
}

/// Does work on another thread, without the interpreter's lock. If the handler of a signal raises, returns its
/// exception at once: that thread ends the work later, and drops its result.
pub fn elsewhere<T: Send + 'static>(py: Python<'_>, work: impl FnOnce() -> T + Send + 'static) -> PyResult<T> {
    until_given_up(py, true, |_| work())
}

/// Does work as [`elsewhere`] does. The work gets a flag, which is set when nobody waits for the result any more. If
/// the work calls no Python, the program may end before it.
pub fn until_given_up<T: Send + 'static>(
    py: Python<'_>,
    calls_python: bool,
    work: impl FnOnce(Arc<AtomicBool>) -> T + Send + 'static,
) -> PyResult<T> {
    let (sender, receiver) = mpsc::sync_channel(0);
    // Only this thread receives, but without the interpreter's lock, which asks for a value that threads can share.
    let receiver = Mutex::new(receiver);
    let listed = Listed::new(calls_python);
    let given_up = listed.0.clone();
    // Sending fails if nobody waits any more, and drops the result then.
    let open = move || {
        drop(sender.send(work(listed.0.clone())));
        drop(listed);
    };
    thread::Builder::new().name("ddlp-open".into()).spawn(open).map_err(errors::thread)?;
    loop {
        match py.detach(|| receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(LOOK)) {
            Ok(opened) => return Ok(opened),
            Err(RecvTimeoutError::Timeout) => {
                py.check_signals().inspect_err(|_| given_up.store(true, Ordering::Relaxed))?
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(errors::defect("the loader panicked; standard error has the message"));
            }
        }
    }
}

/// Asks all work to end. Waits for work that may call Python, which it must not do once the interpreter has ended.
pub fn end_all(py: Python<'_>) -> PyResult<()> {
    loop {
        let goes_on = {
            let work = hold();
            work.iter().for_each(|(given_up, _)| given_up.store(true, Ordering::Relaxed));
            work.iter().any(|(_, calls_python)| *calls_python)
        };
        if !goes_on {
            return Ok(());
        }
        py.detach(|| thread::sleep(LOOK));
        py.check_signals()?;
    }
}
