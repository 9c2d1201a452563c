//! A function of the program that changes the image of each sample, between the pipeline and the floats.

use crate::engine::RunTask;
use crate::error::LoaderError;
use ddlp_csd::slot::SampleRecord;
use ddlp_pixels::Shape;
use ddlp_pixels::draw::Rng;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What [`LoaderBuilder::per_sample`](crate::LoaderBuilder::per_sample) takes.
pub(crate) type Change = dyn Fn(&mut [u8], Shape, u64) -> Result<(), Box<dyn Error + Send + Sync>> + Send + Sync;

/// A function that changes the image of each sample.
#[derive(Clone)]
pub(crate) struct PerSample(pub Arc<Change>);

impl PerSample {
    /// Changes the image of a sample of an epoch.
    pub fn change(
        &self,
        task: &RunTask,
        (epoch, record): (u32, &SampleRecord),
        image: &mut [u8],
        shape: Shape,
    ) -> Result<(), LoaderError> {
        let seed = Rng::for_function(task.epoch_context(epoch).draw(record.sample_id)).below(1 << 63);
        let changed = catch_unwind(AssertUnwindSafe(|| (self.0)(image, shape, seed)));
        changed.unwrap_or_else(|_| Err("it panicked; standard error has the panic's message".into())).map_err(
            |source| {
                let sample = task.dataset.name(record.index);
                LoaderError::PerSample { sample, sample_id: record.sample_id, epoch, source }
            },
        )
    }
}
