//! Reads samples ahead of their preparation.

use super::{BytesRead, compiled};
use crate::program::Program;
use ddlp_dataset::{Dataset, ReadError, SampleReader, SampleToFetch};
use ddlp_pixels::{CompiledPipeline, Limits};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// One thread's memory for planning and reading samples that [`SamplePreparer`](super::SamplePreparer)s render.
pub struct SampleFetcher {
    pipeline: CompiledPipeline,
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
        Self { pipeline: compiled(program), limits: program.limits, reader: SampleReader::default() }
    }

    /// Fetches for another program from now on.
    ///
    /// # Panics
    ///
    /// When the pipeline is invalid.
    pub fn change_program(&mut self, program: &Program) {
        (self.pipeline, self.limits) = (compiled(program), program.limits);
    }

    /// Reads what preparing these samples needs, with a read of each in flight. If that fails for any reason, even a
    /// panic, leaves the rest of the samples to the preparer, which judges the failure.
    ///
    /// # Errors
    ///
    /// If a read fails.
    pub fn fetch(&mut self, dataset: &dyn Dataset, samples: &mut [SampleToFetch]) -> Result<(), ReadError> {
        let Self { pipeline, limits, reader } = self;
        let read = || reader.fetch(dataset, *limits, pipeline, samples);
        catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| {
            self.reader.forget();
            samples.iter_mut().for_each(|sample| sample.fetched.clear());
            Ok(())
        })
    }

    /// Returns the bytes that were read from the dataset since the last call.
    pub fn take_read(&mut self) -> BytesRead {
        self.reader.take_read()
    }
}
