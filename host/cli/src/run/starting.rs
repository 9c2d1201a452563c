//! Says that the start waits for the drive that holds the dataset.

use crate::text;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// Wait before the first line.
const SAID_AFTER: Duration = Duration::from_secs(1);
/// Pause between two lines.
const SAID_EVERY: Duration = Duration::from_secs(10);

/// Writes lines to standard error while a start takes long, until it is dropped.
pub struct Starting(#[expect(dead_code, reason = "its drop ends the thread")] Sender<()>);

impl Starting {
    /// Watches a start that has to reach the drive with this address.
    pub fn watch(drive: &str) -> Self {
        let (drive, begun) = (text::prong_name(drive), Instant::now());
        let (stop, stopped) = mpsc::channel();
        let watch = move || {
            let mut pause = SAID_AFTER;
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(pause) {
                pause = SAID_EVERY;
                eprintln!("{}", line(&drive, begun.elapsed()));
            }
        };
        // If there is no thread, the run starts in silence.
        let _ = thread::Builder::new().name("starting".into()).spawn(watch);
        Self(stop)
    }
}

fn line(drive: &str, waited: Duration) -> String {
    format!(
        "waiting for the drive {drive} to answer, for {} s so far; if the drive stays silent, the run ends",
        waited.as_secs()
    )
}
