//! Writing the state during a run, so that a run that is killed loses little.
//!
//! The state is taken between two batches: batches that the consumer was handed before count as done, batches that are
//! prepared ahead do not. It is also written before the first batch, so that no older state is taken for this run's.

use super::args::{RunArgs, StateEvery};
use super::products;
use crate::output;
use ddlp_host::Loader;
use std::path::Path;
use std::time::Instant;

/// Writer of the state, at intervals.
pub struct Saving<'a> {
    path: Option<&'a Path>,
    every: StateEvery,
    /// Number of batches since the state was last written.
    batches: u64,
    last: Instant,
    has_failed: bool,
}

impl<'a> Saving<'a> {
    /// Writes the state at the beginning of a run.
    pub fn begin(args: &'a RunArgs, loader: &Loader) -> Self {
        let mut saving = Self {
            path: args.state_out.as_deref().filter(|path| output::is_file(path)),
            every: args.state_every.unwrap_or_default(),
            batches: 0,
            last: Instant::now(),
            has_failed: false,
        };
        saving.save(loader);
        saving
    }

    /// Notes that the consumer is done with a batch, and writes the state if it is time.
    pub fn batch_done(&mut self, loader: &Loader) {
        self.batches += 1;
        let is_due = match self.every {
            StateEvery::Batches(batches) => self.batches >= batches,
            StateEvery::Time(time) => self.last.elapsed() >= time,
        };
        if is_due {
            self.save(loader);
        }
    }

    /// Writes the state. A failure does not end the run: writing is tried again, and only the last attempt counts.
    fn save(&mut self, loader: &Loader) {
        let Some(path) = self.path else { return };
        let written =
            products::state_bytes(&loader.state()).and_then(|state| output::write(path, &state, products::STATE));
        if let Err(error) = written
            && !self.has_failed
        {
            self.has_failed = true;
            eprintln!("\nwarning: {error:#}; the run continues, and tries again to write the state");
        }
        (self.batches, self.last) = (0, Instant::now());
    }
}
