//! Reads samples ahead of their preparation.

use super::{BytesRead, compiled};
use crate::program::Program;
use ddlp_dataset::{Dataset, ReadError, SampleReader, SampleToFetch, wait_for};
use ddlp_pixels::{CompiledPipeline, Limits};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Memory for planning and reading samples that [`SamplePreparer`](super::SamplePreparer)s render.
pub struct SampleFetcher {
    pipeline: Arc<CompiledPipeline>,
    limits: Limits,
    reader: SampleReader,
}

impl SampleFetcher {
    /// Creates a fetcher for a program, and compiles the program's pipeline.
    ///
    /// # Panics
    ///
    /// When the pipeline is invalid: validate a program that comes from outside first.
    pub fn new(program: &Program) -> Self {
        Self { pipeline: Arc::new(compiled(program)), limits: program.limits, reader: SampleReader::default() }
    }

    /// Fetches for another program from now on.
    ///
    /// # Panics
    ///
    /// When the pipeline is invalid.
    pub fn change_program(&mut self, program: &Program) {
        (self.pipeline, self.limits) = (Arc::new(compiled(program)), program.limits);
    }

    /// Reads what preparing these samples needs, with a read of each in flight. If that fails for any reason, even a
    /// panic, leaves the rest of the samples to the preparer, which judges the failure.
    ///
    /// # Errors
    ///
    /// If a read fails.
    pub fn fetch(&mut self, dataset: &dyn Dataset, samples: &mut [SampleToFetch]) -> Result<(), ReadError> {
        wait_for(self.start_fetch(dataset, samples))
    }

    /// Does what [`fetch`](Self::fetch) does, without a thread that waits if the dataset needs none
    /// ([`Dataset::start_reads`]).
    ///
    /// # Errors
    ///
    /// As [`fetch`](Self::fetch).
    pub async fn start_fetch(&mut self, dataset: &dyn Dataset, samples: &mut [SampleToFetch]) -> Result<(), ReadError> {
        let Self { pipeline, limits, reader } = self;
        let fetched = {
            let mut fetching = pin!(reader.start_fetch(dataset, *limits, pipeline, samples));
            let poll =
                |context: &mut Context<'_>| match catch_unwind(AssertUnwindSafe(|| fetching.as_mut().poll(context))) {
                    Ok(poll) => poll.map(Ok),
                    Err(panic) => Poll::Ready(Err(panic)),
                };
            poll_fn(poll).await
        };
        fetched.unwrap_or_else(|_| {
            self.reader.forget();
            samples.iter_mut().for_each(|sample| sample.fetched.clear());
            Ok(())
        })
    }

    /// Creates a fetcher for the same program.
    pub fn another(&self) -> Self {
        Self { pipeline: self.pipeline.clone(), limits: self.limits, reader: SampleReader::default() }
    }

    /// Returns the bytes that were read from the dataset since the last call.
    pub fn take_read(&mut self) -> BytesRead {
        self.reader.take_read()
    }
}
