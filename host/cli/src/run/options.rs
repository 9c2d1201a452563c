//! The loader's options: as the command line says, and otherwise as in the run that is resumed or replayed.

use super::args::{Last, Policy, RunArgs};
use super::headspace;
use crate::wrong::wrong;
use anyhow::bail;
use ddlp_csd::program::CorruptPolicy;
use ddlp_host::{LastBatch, LoaderOptions, LoaderState, Plan, Strategy};
use ddlp_pixels::Pipeline;
use std::path::Path;
use std::time::Duration;

/// The earlier run that this one resumes or repeats, and its file.
#[derive(Clone, Copy)]
pub enum Before<'a> {
    None,
    State(&'a LoaderState, &'a Path),
    Plan(&'a Plan, &'a Path),
}

/// Options of an earlier run, as far as its file records them.
#[derive(Default)]
struct EarlierOptions {
    batch: Option<u64>,
    epochs: Option<u32>,
    strategy: Option<Strategy>,
    seed: Option<u64>,
    shuffle: Option<bool>,
    last: Option<LastBatch>,
    samples: Option<u64>,
    policy: Option<CorruptPolicy>,
    pipelines: Option<Vec<Pipeline>>,
    classes: Option<Vec<String>>,
    rank: Option<u32>,
    world: Option<u32>,
}

/// Returns the loader's options, except the drives: joins the command line (`pipelines` and `classes` are those that it
/// names) with the options of the earlier run. Fails if both give an option and disagree, and names each of these
/// options.
pub fn loader_options(
    args: &RunArgs,
    pipelines: Vec<Pipeline>,
    classes: Option<Vec<String>>,
    before: Before<'_>,
) -> anyhow::Result<LoaderOptions> {
    let told = before.told()?;
    let mut joined = Joined::default();
    let mut options = LoaderOptions::default();
    let batch = joined.join("--batch-size", args.batch_size.map(u64::from), told.batch, u64::to_string);
    set(&mut options.batch_size, batch.map(|batch| usize::try_from(batch).unwrap_or(usize::MAX)));
    set(&mut options.seed, joined.join("--seed", args.seed, told.seed, u64::to_string));
    options.epoch_samples = joined.join("--epoch-samples", args.epoch_samples, told.samples, u64::to_string);
    let last = |last: &LastBatch| Last::name(*last).to_string();
    set(&mut options.last, joined.join("--last", args.last.map(Last::into), told.last, last));
    let policy = |policy: &CorruptPolicy| Policy::name(*policy).to_string();
    set(&mut options.policy, joined.join("--policy", args.policy.map(Policy::into), told.policy, policy));
    let given = Some(pipelines).filter(|pipelines| !pipelines.is_empty());
    let mut pipelines =
        joined.join("--pipeline", given, told.pipelines, |pipelines| names(pipelines)).unwrap_or_default();
    match pipelines.len() {
        0 => {}
        1 => options.pipeline = pipelines.remove(0),
        _ => options.buckets = pipelines,
    }
    let first =
        |classes: &Vec<String>| format!("{}, …", classes.iter().take(3).cloned().collect::<Vec<_>>().join(", "));
    set(&mut options.class_names, joined.join("--classes", classes, told.classes, first));
    set(&mut options.rank, joined.join("--rank", args.rank, told.rank, u32::to_string));
    set(&mut options.world_size, joined.join("--world-size", args.world_size, told.world, u32::to_string));
    let strategy = match before {
        Before::Plan(..) => joined.join("--strategy", args.strategy, told.strategy, Strategy::to_string),
        _ => args.strategy.or(told.strategy),
    };
    set(&mut options.strategy, strategy);
    let epochs = if args.headspace.is_some() { Some(headspace::EPOCHS) } else { args.epochs };
    set(&mut options.epochs, epochs.or(told.epochs));
    if let (Before::Plan(..), Some(planned)) = (before, told.epochs)
        && planned < options.epochs
    {
        joined.differ("--epochs", planned.to_string(), options.epochs.to_string());
    }
    options.shuffle = joined.shuffles(!args.no_shuffle, told.shuffle);
    joined.check(before)?;
    if args.max_corrupt.is_some() && options.policy == CorruptPolicy::Fail {
        wrong!(
            "--max-corrupt needs --policy skip or replace: under --policy fail{} the first corrupt sample ends the run",
            if args.policy.is_some() { "" } else { ", the default," }
        );
    }
    set(&mut options.max_corrupt, args.max_corrupt);
    options.dataset = Some(args.dataset.clone());
    options.kind = args.kind;
    options.fields = args.fields.clone();
    options.host_nqn = args.host_nqn.clone();
    options.drive_optional = args.drive_optional;
    set(&mut options.drive_timeout, args.drive_timeout.map(Duration::from_secs_f64));
    options.threads = args.threads.map(usize::from);
    set(&mut options.cores, args.cores.clone().map(|list| list.0));
    set(&mut options.buffers, args.buffers.map(usize::from));
    options.window = args.window.map(|batches| batches as usize);
    options.metrics = args.metrics;
    (options.resume, options.replay) = before.history();
    Ok(options)
}

/// Sets an option, unless its default applies.
fn set<T>(option: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *option = value;
    }
}

impl Before<'_> {
    /// Returns the state to resume from and the plan to replay.
    fn history(self) -> (Option<LoaderState>, Option<Plan>) {
        match self {
            Self::None => (None, None),
            Self::State(state, _) => (Some(state.clone()), None),
            Self::Plan(plan, _) => (None, Some(plan.clone())),
        }
    }

    fn told(self) -> anyhow::Result<EarlierOptions> {
        Ok(match self {
            Self::None => EarlierOptions::default(),
            Self::State(state, _) => EarlierOptions {
                batch: Some(state.batch_size),
                epochs: Some(state.epochs),
                strategy: Some(state.strategy),
                seed: Some(state.seed),
                shuffle: Some(state.shuffle),
                last: Some(state.last),
                samples: Some(state.epoch_samples),
                policy: state.policy,
                pipelines: state.pipelines(),
                classes: Some(state.classes.clone()).filter(|classes| !classes.is_empty()),
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
                    shuffle: Some(plan.shuffles()),
                    last: run.map(|run| run.last),
                    samples: Some(plan.epoch_samples),
                    rank: run.map(|run| run.rank),
                    world: run.map(|run| run.world),
                    policy: run.map(|run| run.policy),
                    pipelines: run.map(|run| run.pipelines.clone()),
                    classes: None,
                }
            }
        })
    }
}

/// Joins given options with those of the earlier run, and collects the differences.
#[derive(Default)]
struct Joined {
    had: Vec<String>,
    given: Vec<String>,
}

impl Joined {
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

    /// Returns whether the run shuffles. The command line can only turn shuffling off.
    fn shuffles(&mut self, given: bool, had: Option<bool>) -> bool {
        if !given && had == Some(true) {
            self.had.push("a shuffled order".to_owned());
            self.given.push("--no-shuffle".to_owned());
        }
        given && had.unwrap_or(true)
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
        wrong!("{goes} the run of {}, which had {had}, but {given} is given: leave that out", file.display())
    }
}

/// Returns the pipelines' names as the command line has them.
fn names(pipelines: &[Pipeline]) -> String {
    pipelines.iter().map(pipeline_name).collect::<Vec<_>>().join(" --pipeline ")
}

/// Returns the pipeline's name, or the pipeline itself if it has no name.
fn pipeline_name(pipeline: &Pipeline) -> String {
    let name = Pipeline::NAMES.iter().find(|name| Pipeline::named(name).as_ref() == Some(pipeline));
    name.map_or_else(|| serde_json::to_string(pipeline).unwrap_or_default(), ToString::to_string)
}

#[cfg(test)]
mod tests;
