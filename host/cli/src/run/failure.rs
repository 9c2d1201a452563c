//! The message about a sample that ends a run: the problem in words, and what can be done about it.
//!
//! A batch carries only the code of the reason. So the sample is prepared once more, in the same way; if its file is
//! intact and it still cannot be prepared, the pipeline is the cause.

use anyhow::anyhow;
use ddlp_csd::prepare::stored_at;
use ddlp_dataset::{Corrupt, Dataset, Drawn, ReadError, SampleError, SampleReader, StoredAt, Unavailable};
use ddlp_host::LoaderError;
use ddlp_pixels::{CompiledPipeline, CorruptReason, Draw, Limits, Pipeline, Preparer, Source, Verdict};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Everything from which samples are prepared.
pub struct Given {
    pub dataset: Arc<dyn Dataset>,
    /// Pipelines of the buckets.
    pub pipelines: Vec<Pipeline>,
    pub seed: u64,
}

/// The cause, in words.
enum Cause {
    Sample(String),
    /// The sample's bytes are not those that were packed.
    Damage,
    Pipeline(String),
}

impl Given {
    /// Adds advice to an error that ends a run.
    pub fn explain(&self, error: LoaderError) -> anyhow::Error {
        if let LoaderError::Unavailable(why) = error {
            let remedy = remedy(&why);
            let problem = anyhow::Error::from(why);
            return anyhow!("{problem:#}\n{remedy}; --resume continues from the last state that --state-out wrote");
        }
        let LoaderError::CorruptSample { sample, sample_id, location, epoch, reason } = &error else {
            return error.into();
        };
        // If the decoder panicked at this sample, it does so again.
        let causes = || self.pipelines.iter().find_map(|pipeline| self.cause(pipeline, *sample_id, *epoch));
        let cause = catch_unwind(AssertUnwindSafe(causes)).ok().flatten();
        let cause = cause.unwrap_or_else(|| Cause::Sample(reason.clone()));
        let (problem, further) = match cause {
            Cause::Sample(problem) => {
                (problem, "`ddlp pack` finds all corrupt samples, and `ddlp inspect PACK` lists them".to_string())
            }
            Cause::Damage => (
                reason.clone(),
                "`ddlp verify` finds all damage in a pack (call it where the pack lies): put an intact copy in the \
                 pack's place, or pack the source again"
                    .to_string(),
            ),
            Cause::Pipeline(problem) => {
                (format!("the pipeline cannot prepare it: {problem}"), "the image itself is not damaged".to_string())
            }
        };
        anyhow!(
            "sample {sample} (id {sample_id}, {location}) cannot be used: {problem}\n\
             --policy skip leaves corrupt samples out, --policy replace replaces each by the next intact one; {further}"
        )
    }

    /// Returns `None` if the reason says everything, or does not occur again.
    fn cause(&self, pipeline: &Pipeline, sample_id: u64, epoch: u32) -> Option<Cause> {
        let (mut preparer, mut buf) = (Preparer::new(Limits::default()), Vec::new());
        let index = stored_at(&*self.dataset, sample_id);
        let draw = Draw { seed: self.seed, epoch, sample_id };
        let pipeline = CompiledPipeline::of(pipeline).ok()?;
        let mut row = vec![0; pipeline.output().bytes()];
        let prepared = SampleReader::default().prepare(
            StoredAt { dataset: &*self.dataset, index },
            &mut preparer,
            Drawn { pipeline: &pipeline, draw },
            &mut row,
        );
        let error = match prepared {
            Err(SampleError::Pixels(error)) if error.reason() == CorruptReason::Checksum => return Some(Cause::Damage),
            Err(SampleError::Read(ReadError::Corrupt(Corrupt::Checksum { .. }))) => return Some(Cause::Damage),
            Err(SampleError::Pixels(error)) => error,
            _ => return None,
        };
        let is_whole = match self.dataset.sample(index, &mut buf).ok()? {
            Source::Encoded(file) => !matches!(preparer.inspect(file), Verdict::Rejected { .. }),
            _ => true,
        };
        let problem = error.to_string();
        let is_pipeline = is_whole && error.reason() == CorruptReason::Unsupported;
        Some(if is_pipeline { Cause::Pipeline(problem) } else { Cause::Sample(problem) })
    }
}

/// Returns the advice for a dataset that cannot be read.
fn remedy(why: &Unavailable) -> &'static str {
    match why {
        Unavailable::Gone { .. } | Unavailable::Changed { .. } => {
            "the dataset is not as it was when the run began, and no --policy applies: restore it"
        }
        Unavailable::NoFile { .. } => {
            "a sample has no file, and no --policy applies: restore the file, or remove what is in its place"
        }
        Unavailable::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            "you may not read the dataset, and no --policy applies: ask for permission"
        }
        Unavailable::Io { source, .. } if source.kind() == io::ErrorKind::TimedOut => {
            "the dataset is out of reach, and no --policy applies"
        }
        Unavailable::NoMemory { .. } => "the system refused memory; the sample itself may be intact",
        _ => "the dataset cannot be read now, and no --policy applies: check its storage",
    }
}
