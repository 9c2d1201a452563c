//! The loader's options: as the command line says, and otherwise as in the run that is resumed or replayed.

use super::args::RunArgs;
use super::given::flag_name;
use super::{headspace, pipeline};
use crate::wrong::wrong;
use anyhow::bail;
use ddlp_csd::program::CorruptPolicy;
use ddlp_host::options::{OptionDef, Values};
use ddlp_host::{LoaderOptions, LoaderState, Plan};
use ddlp_pixels::Pipeline;
use serde_json::{Map, Value, json};
use std::path::Path;

/// The earlier run that this one resumes or repeats, and its file.
#[derive(Clone, Copy)]
pub enum Before<'a> {
    None,
    State(&'a LoaderState, &'a Path),
    Plan(&'a Plan, &'a Path),
}

/// Returns the loader's options, except the drives: joins the command line with the options of the earlier run. Fails
/// if both give an option and disagree, and names each of these options.
pub fn loader_options(args: &RunArgs, before: Before<'_>) -> anyhow::Result<LoaderOptions> {
    let mut options = joined(given(args)?, before)?;
    if let Some(Value::Array(pipelines)) = options.get("buckets")
        && let [one] = &pipelines[..]
    {
        let one = one.clone();
        options.remove("buckets");
        options.insert("pipeline".into(), one);
    }
    let mut options = LoaderOptions::from_map(options)?;
    if args.given.has("max_corrupt") && options.policy == CorruptPolicy::Fail {
        wrong!(
            "--max-corrupt needs --policy skip or replace: under --policy fail{} the first corrupt sample ends the run",
            if args.given.has("policy") { "" } else { ", the default," }
        );
    }
    options.dataset = Some(args.dataset.clone());
    (options.resume, options.replay) = before.history();
    Ok(options)
}

/// Returns the options that the command line gives. All pipelines are `buckets`, even one.
fn given(args: &RunArgs) -> anyhow::Result<Map<String, Value>> {
    let mut options = args.given.loader.clone();
    let pipelines = args.given.texts("pipeline").map(pipeline).collect::<anyhow::Result<Vec<_>>>()?;
    if !pipelines.is_empty() {
        options.insert("buckets".into(), json!(pipelines));
    }
    if let Some(file) = args.given.texts("class_names").next() {
        options.insert("class_names".into(), json!(ddlp_dataset::read_class_list(Path::new(file))?));
    }
    if args.headspace.is_some() {
        options.insert("epochs".into(), json!(headspace::EPOCHS));
    }
    Ok(options)
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

    /// Returns the options of the earlier run, as far as its file records them. All pipelines are `buckets`, even one.
    fn options(self) -> anyhow::Result<Map<String, Value>> {
        let mut options = match self {
            Self::None => Map::new(),
            Self::State(state, _) => state.options(),
            Self::Plan(plan, path) if plan.epochs.is_empty() => {
                bail!("plan {} records no whole epoch, so there is nothing to repeat", path.display())
            }
            Self::Plan(plan, _) => plan.options(),
        };
        if let Some(pipeline) = options.remove("pipeline") {
            options.insert("buckets".into(), json!([pipeline]));
        }
        Ok(options)
    }

    /// Returns whether this run may have another value of an option than the earlier run.
    fn may_differ(self, option: &str, earlier: &Value, given: &Value) -> bool {
        match (self, option) {
            (Self::State(..), "epochs" | "strategy" | "fidelity") => true,
            (Self::Plan(..), "epochs") => given.as_u64() < earlier.as_u64(),
            _ => false,
        }
    }
}

/// Joins the given options with those of the earlier run.
fn joined(given: Map<String, Value>, before: Before<'_>) -> anyhow::Result<Map<String, Value>> {
    let mut options = before.options()?;
    let (mut earlier, mut changed) = (Vec::new(), Vec::new());
    let (long, short): (Vec<&OptionDef>, Vec<_>) =
        LoaderOptions::DEFINITIONS.iter().partition(|definition| matches!(definition.values, Values::Structure));
    for definition in short.into_iter().chain(long) {
        if let (Some(before_it), Some(now)) = (options.get(definition.name), given.get(definition.name))
            && before_it != now
            && !before.may_differ(definition.name, before_it, now)
        {
            earlier.push(shown(definition, before_it));
            changed.push(shown(definition, now));
        }
    }
    options.extend(given);
    let (file, goes) = match before {
        Before::State(_, path) => (path, "--resume continues"),
        Before::Plan(_, path) => (path, "--plan-in repeats"),
        Before::None => return Ok(options),
    };
    if earlier.is_empty() {
        return Ok(options);
    }
    let (earlier, changed) = (earlier.join(" "), changed.join(" "));
    wrong!("{goes} the run of {}, which had {earlier}, but {changed} is given: leave that out", file.display())
}

/// Returns an option as the command line has it.
fn shown(definition: &OptionDef, value: &Value) -> String {
    let value = match (definition.name, value) {
        ("buckets", Value::Array(pipelines)) => {
            return pipelines
                .iter()
                .map(|one| format!("--pipeline {}", pipeline_name(one)))
                .collect::<Vec<_>>()
                .join(" ");
        }
        ("shuffle", Value::Bool(true)) => return "a shuffled order".into(),
        (_, Value::Array(names)) => {
            let first: Vec<&str> = names.iter().filter_map(Value::as_str).take(3).collect();
            format!("{}, …", first.join(", "))
        }
        (_, Value::String(word)) => word.clone(),
        (_, value) => value.to_string(),
    };
    let Some(flag) = &definition.flag else { return format!("{} {value}", definition.name) };
    match flag_name(definition, flag) {
        switch if value == "true" || value == "false" => format!("--{switch}"),
        name => format!("--{name} {value}"),
    }
}

/// Returns a pipeline's name, or the pipeline itself if it has no name.
fn pipeline_name(pipeline: &Value) -> String {
    let name = Pipeline::NAMES.iter().find(|name| json!(Pipeline::named(name)) == *pipeline);
    name.map_or_else(|| pipeline.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests;
