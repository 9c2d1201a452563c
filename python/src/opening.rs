//! Work that may take long, such as opening a dataset: signals are handled meanwhile.

use crate::errors;
use pyo3::prelude::*;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How often the thread that waits looks for signals.
const LOOK: Duration = Duration::from_millis(50);

/// Does work on another thread, without the interpreter's lock. If the handler of a signal raises, returns its
/// exception at once: that thread drops what it has opened when the system lets it.
pub fn elsewhere<T: Send + 'static>(py: Python<'_>, work: impl FnOnce() -> T + Send + 'static) -> PyResult<T> {
    let (sender, receiver) = mpsc::sync_channel(0);
    // Only this thread receives, but without the interpreter's lock, which asks for a value that threads can share.
    let receiver = Mutex::new(receiver);
    // Fails if nobody waits any more, and drops the result then.
    let open = move || drop(sender.send(work()));
    thread::Builder::new().name("ddlp-open".into()).spawn(open).map_err(errors::thread)?;
    loop {
        match py.detach(|| receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(LOOK)) {
            Ok(opened) => return Ok(opened),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(errors::defect("the loader panicked while it opened; standard error has the message"));
            }
        }
    }
}
