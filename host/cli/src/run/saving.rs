//! The state that is written while a run goes on, so that a run that is killed loses little.
//!
//! It is taken between two batches: what the consumer was handed before counts as done, what is prepared ahead does not. It is
//! written before the first batch too, so that no state of another run is taken for this one's.

use super::args::{RunArgs, StateEvery};
use super::products;
use crate::output;
use ddlp_host::Loader;
use std::path::Path;
use std::time::Instant;

/// Writes the state now and then.
pub struct Saving<'a> {
    path: Option<&'a Path>,
    every: StateEvery,
    /// Batches since the last time.
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

    /// Says that the consumer is done with a batch.
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

    /// A state that cannot be written does not end the run: it is tried again, and in the end it counts.
    fn save(&mut self, loader: &Loader) {
        let Some(path) = self.path else { return };
        let written =
            products::state_bytes(&loader.state()).and_then(|state| output::write(path, &state, products::STATE));
        if let Err(error) = written
            && !self.has_failed
        {
            self.has_failed = true;
            eprintln!("\nwarning: {error:#}; the run goes on, and it is tried again");
        }
        (self.batches, self.last) = (0, Instant::now());
    }
}
