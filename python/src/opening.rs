//! Opening a loader: dataset and drives may take long to answer, and signals are handled meanwhile.

use crate::errors;
use ddlp_host::{Loader, LoaderBuilder};
use pyo3::prelude::*;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How often the thread that waits looks for signals.
const LOOK: Duration = Duration::from_millis(50);

/// Opens a loader on another thread. If the handler of a signal raises, returns its exception at once: that thread ends
/// what it has opened when the system lets it.
pub fn open(py: Python<'_>, builder: LoaderBuilder) -> PyResult<Loader> {
    let (sender, receiver) = mpsc::sync_channel(0);
    // Only this thread receives, but without the interpreter's lock, which asks for a value that threads can share.
    let receiver = Mutex::new(receiver);
    // Fails if nobody waits any more, and drops the loader then.
    let open = move || drop(sender.send(builder.build()));
    thread::Builder::new().name("ddlp-open".into()).spawn(open).map_err(errors::thread)?;
    loop {
        match py.detach(|| receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(LOOK)) {
            Ok(opened) => return opened.map_err(|error| errors::exception(&error)),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(errors::defect("the loader panicked while it opened; standard error has the message"));
            }
        }
    }
}
