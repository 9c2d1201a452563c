//! Reads samples ahead of their preparation.

use super::{BytesRead, EpochContext, compiled, stored_at};
use crate::program::Program;
use ddlp_dataset::{Dataset, Drawn, Fetch, FetchedSample, StoredAt};
use ddlp_pixels::{CompiledPipeline, Limits};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// One thread's memory for planning and reading samples that [`SamplePreparer`](super::SamplePreparer)s render.
pub struct SampleFetcher {
    pipeline: CompiledPipeline,
    limits: Limits,
    fetch: Fetch,
}

impl SampleFetcher {
    /// Creates a fetcher for a program, and compiles the program's pipeline.
    ///
    /// # Panics
    ///
    /// When the pipeline is invalid: validate a program that comes from outside first.
    pub fn new(program: &Program) -> Self {
        Self { pipeline: compiled(program), limits: program.limits, fetch: Fetch::default() }
    }

    /// Reads into `fetched` what preparing a sample of an epoch needs. Leaves `fetched` empty if that fails for any
    /// reason, even a panic: the preparer then reads the sample itself, and finds the reason.
    pub fn fetch(&mut self, dataset: &dyn Dataset, context: EpochContext, sample_id: u64, fetched: &mut FetchedSample) {
        let Self { pipeline, limits, fetch } = self;
        let sample = StoredAt { dataset, index: stored_at(dataset, sample_id) };
        let drawn = Drawn { pipeline, draw: context.draw(sample_id) };
        let read = || fetch.fetch(sample, *limits, drawn, fetched);
        if catch_unwind(AssertUnwindSafe(read)).is_err() {
            self.fetch.forget();
            *fetched = FetchedSample::default();
        }
    }

    /// Returns the bytes that were read from the dataset since the last call.
    pub fn take_read(&mut self) -> BytesRead {
        self.fetch.take_read()
    }
}
