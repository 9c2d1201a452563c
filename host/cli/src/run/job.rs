//! The batches to deliver: as the command line says, and otherwise as in the run that is resumed or replayed.

use super::args::{Last, Policy, RunArgs};
use anyhow::bail;
use ddlp_csd::program::CorruptPolicy;
use ddlp_host::{LastBatch, LoaderState, Plan, Strategy};
use ddlp_pixels::Pipeline;
use std::path::Path;

/// Default for the samples of a batch.
const BATCH: u64 = 256;

/// The earlier run that this one resumes or repeats, and its file.
#[derive(Clone, Copy)]
pub enum Before<'a> {
    None,
    State(&'a LoaderState, &'a Path),
    Plan(&'a Plan, &'a Path),
}

/// The batches of a run, their order, and the pipeline for their samples.
#[derive(Clone, Debug, PartialEq)]
pub struct RunJob {
    /// Samples of a global batch.
    pub batch: u64,
    /// Number of epochs, including those of the resumed run.
    pub epochs: u32,
    /// Order of delivery.
    pub strategy: Strategy,
    /// Seed for the order of samples and for random draws.
    pub seed: u64,
    /// Treatment of the last batch.
    pub last: LastBatch,
    /// Samples of an epoch, if not those of the dataset.
    pub samples: Option<u64>,
    /// Policy for corrupt samples.
    pub policy: CorruptPolicy,
    /// Pipeline for each sample.
    pub pipeline: Pipeline,
    /// This process's rank.
    pub rank: u32,
    /// Number of ranks.
    pub world: u32,
}

/// Options of an earlier run, as far as its file records them.
#[derive(Default)]
struct EarlierOptions {
    batch: Option<u64>,
    epochs: Option<u32>,
    strategy: Option<Strategy>,
    seed: Option<u64>,
    last: Option<LastBatch>,
    samples: Option<u64>,
    policy: Option<CorruptPolicy>,
    pipeline: Option<Pipeline>,
    rank: Option<u32>,
    world: Option<u32>,
}

impl RunJob {
    /// Joins the command line (`pipeline` is the pipeline that it names) with the options of the earlier run. Fails if
    /// both give an option and disagree, and names each of these options.
    pub fn new(args: &RunArgs, pipeline: Option<Pipeline>, before: Before<'_>) -> anyhow::Result<Self> {
        let told = before.told()?;
        let mut options = Options::default();
        let policy = args.policy.map(CorruptPolicy::from);
        let job = Self {
            batch: options.join("--batch", args.batch.map(u64::from), told.batch, u64::to_string).unwrap_or(BATCH),
            seed: options.join("--seed", args.seed, told.seed, u64::to_string).unwrap_or(0),
            samples: options.join("--samples", args.samples, told.samples, u64::to_string),
            last: options
                .join("--last", args.last.map(Last::into), told.last, |last| Last::name(*last).into())
                .unwrap_or_default(),
            policy: options
                .join("--policy", policy, told.policy, |policy| Policy::name(*policy).into())
                .unwrap_or(CorruptPolicy::Fail),
            pipeline: options
                .join("--pipeline", pipeline, told.pipeline, pipeline_name)
                .unwrap_or_else(Pipeline::imagenet_train),
            rank: options.join("--rank", args.rank, told.rank, u32::to_string).unwrap_or(0),
            world: options.join("--world-size", args.world_size, told.world, u32::to_string).unwrap_or(1),
            strategy: match before {
                Before::Plan(..) => options.join("--strategy", args.strategy, told.strategy, Strategy::to_string),
                _ => args.strategy.or(told.strategy),
            }
            .unwrap_or_default(),
            epochs: args.epochs.or(told.epochs).unwrap_or(1),
        };
        if let (Before::Plan(..), Some(planned)) = (before, told.epochs)
            && planned < job.epochs
        {
            options.differ("--epochs", planned.to_string(), job.epochs.to_string());
        }
        options.check(before)?;
        if args.max_corrupt.is_some() && job.policy == CorruptPolicy::Fail {
            bail!(
                "--max-corrupt needs --policy skip or replace: under --policy fail{} the first corrupt sample \
                 ends the run",
                if args.policy.is_some() { "" } else { ", the default," }
            );
        }
        Ok(job)
    }
}

impl Before<'_> {
    fn told(self) -> anyhow::Result<EarlierOptions> {
        Ok(match self {
            Self::None => EarlierOptions::default(),
            Self::State(state, _) => EarlierOptions {
                batch: Some(state.batch_size),
                epochs: Some(state.epochs),
                strategy: Some(state.strategy),
                seed: Some(state.seed),
                last: Some(state.last),
                samples: Some(state.epoch_samples),
                policy: state.policy,
                pipeline: state.pipeline.clone(),
                ..EarlierOptions::default()
            },
            Self::Plan(plan, path) => {
                let Some(epoch) = plan.epochs.last() else {
                    bail!("plan {} records no whole epoch, so there is nothing to repeat", path.display());
                };
                let run = plan.run.as_ref();
                EarlierOptions {
                    batch: Some(plan.batch_size),
                    epochs: epoch.epoch.checked_add(1),
                    strategy: run.map(|run| run.strategy),
                    seed: Some(plan.seed),
                    last: run.map(|run| run.last),
                    samples: Some(plan.epoch_samples),
                    rank: run.map(|run| run.rank),
                    world: run.map(|run| run.world),
                    policy: run.map(|run| run.policy),
                    pipeline: run.map(|run| run.pipeline.clone()),
                }
            }
        })
    }
}

/// Joins given options with those of the earlier run, and collects the differences.
#[derive(Default)]
struct Options {
    had: Vec<String>,
    given: Vec<String>,
}

impl Options {
    /// Returns the given value, or else the earlier run's.
    fn join<T: PartialEq>(
        &mut self,
        option: &str,
        given: Option<T>,
        had: Option<T>,
        shown: impl Fn(&T) -> String,
    ) -> Option<T> {
        if let (Some(given), Some(had)) = (&given, &had)
            && given != had
        {
            self.differ(option, shown(had), shown(given));
        }
        given.or(had)
    }

    fn differ(&mut self, option: &str, had: String, given: String) {
        self.had.push(format!("{option} {had}"));
        self.given.push(format!("{option} {given}"));
    }

    fn check(self, before: Before<'_>) -> anyhow::Result<()> {
        let (file, goes) = match before {
            Before::State(_, path) => (path, "--resume continues"),
            Before::Plan(_, path) => (path, "--plan-in repeats"),
            Before::None => return Ok(()),
        };
        if self.had.is_empty() {
            return Ok(());
        }
        let (had, given) = (self.had.join(" "), self.given.join(" "));
        bail!("{goes} the run of {}, which had {had}, but {given} is given: leave that out", file.display())
    }
}

/// Returns the pipeline's name, or the pipeline itself if it has no name.
fn pipeline_name(pipeline: &Pipeline) -> String {
    let name = Pipeline::NAMES.iter().find(|name| Pipeline::named(name).as_ref() == Some(pipeline));
    name.map_or_else(|| serde_json::to_string(pipeline).unwrap_or_default(), ToString::to_string)
}

#[cfg(test)]
mod tests;
