//! The options that the file of an earlier run records, as options are written.

use crate::plan::Plan;
use crate::state::LoaderState;
use serde_json::{Map, Value, json};
use std::fmt::Debug;

impl LoaderState {
    /// Returns the options that the state records, by name. A state of an earlier build lacks some.
    pub fn options(&self) -> Map<String, Value> {
        known(json!({
            "class_names": self.classes,
            "pipeline": self.pipeline,
            "buckets": self.buckets,
            "fidelity": self.fidelity,
            "batch_size": self.batch_size,
            "epochs": self.epochs,
            "strategy": word(self.strategy),
            "seed": self.seed,
            "shuffle": self.shuffle,
            "shuffle_window": self.shuffle_window,
            "policy": self.policy.map(word),
            "last": word(self.last),
            "epoch_samples": self.epoch_samples,
            "repeats": self.choice.repeats,
            "views": self.choice.views,
        }))
    }
}

impl Plan {
    /// Returns the options that the plan records, by name.
    pub fn options(&self) -> Map<String, Value> {
        let (pipeline, buckets) = match &self.pipelines[..] {
            [one] => (Some(one), &[][..]),
            several => (None, several),
        };
        known(json!({
            "pipeline": pipeline,
            "buckets": buckets,
            "fidelity": &self.fidelity,
            "batch_size": self.batch_size,
            "epochs": self.epochs.last().and_then(|epoch| epoch.epoch.checked_add(1)),
            "strategy": word(self.strategy),
            "seed": self.seed,
            "shuffle": self.shuffle,
            "shuffle_window": self.shuffle_window,
            "policy": word(self.policy),
            "last": word(self.last),
            "epoch_samples": self.epoch_samples,
            "repeats": self.choice.repeats,
            "views": self.choice.views,
            "rank": self.rank,
            "world_size": self.world,
        }))
    }
}

/// Returns a value as options are written.
fn word(value: impl Debug) -> String {
    format!("{value:?}").to_lowercase()
}

/// Returns the options that have a value.
fn known(options: Value) -> Map<String, Value> {
    let Value::Object(mut options) = options else { unreachable!("options by name") };
    options.retain(|_, value| !value.is_null() && value.as_array().is_none_or(|values| !values.is_empty()));
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fidelity::Fidelities;
    use crate::options::{LoaderOptions, OptionDef, Recorded};
    use crate::order::{ChoiceRecord, LastBatch};
    use crate::schedule::{PlanEpoch, Strategy};
    use ddlp_csd::program::CorruptPolicy;
    use ddlp_pixels::Pipeline;
    use std::collections::BTreeSet;

    /// Asserts that these options are those that the table says are recorded, and are as they are written.
    fn assert_recorded(options: [Map<String, Value>; 2], is_recorded: fn(Recorded) -> bool) {
        let names: BTreeSet<&str> = options.iter().flat_map(|options| options.keys().map(String::as_str)).collect();
        let is_recorded = |definition: &&OptionDef| is_recorded(definition.recorded);
        let expected = LoaderOptions::DEFINITIONS.iter().filter(is_recorded).map(|definition| definition.name);
        assert_eq!(names, expected.collect());
        for options in options {
            LoaderOptions::from_json(&Value::Object(options).to_string()).unwrap();
        }
    }

    #[test]
    fn states_and_plans_record_the_options_of_which_the_table_says_so() {
        let one = LoaderState {
            version: 2,
            seed: 7,
            shuffle: true,
            shuffle_window: Some(8),
            dataset: String::new(),
            program: String::new(),
            pipeline: Some(Pipeline::cifar_train()),
            buckets: Vec::new(),
            classes: vec!["cat".into()],
            policy: Some(CorruptPolicy::Skip),
            epochs: 3,
            epoch_samples: 100,
            portions: Vec::new(),
            choice: ChoiceRecord::default(),
            fidelity: Fidelities::default(),
            batch_size: 32,
            last: LastBatch::Drop,
            strategy: Strategy::Mte,
            world: 2,
            epoch: 1,
            delivered: Vec::new(),
            moved: None,
        };
        let several = vec![Pipeline::cifar_train(), Pipeline::imagenet_val()];
        let bucketed = LoaderState { pipeline: None, buckets: several.clone(), ..one.clone() };
        assert_recorded([one.options(), bucketed.options()], |recorded| recorded.state);
        let old = LoaderState { policy: None, pipeline: None, classes: Vec::new(), ..one }.options();
        assert!(["policy", "pipeline", "class_names"].iter().all(|name| !old.contains_key(*name)), "{old:?}");

        let plan = |pipelines| Plan {
            epochs: vec![PlanEpoch { epoch: 4, deliveries: Vec::new() }],
            batch_size: 4,
            epoch_samples: 9,
            strategy: Strategy::Wrr,
            last: LastBatch::Pad,
            rank: 1,
            world: 2,
            pipelines,
            policy: CorruptPolicy::Skip,
            shuffle_window: Some(8),
            ..Plan::default()
        };
        let options = [plan(vec![Pipeline::imagenet_val()]), plan(several)].map(|plan| plan.options());
        assert_eq!((&options[0]["epochs"], &options[0]["strategy"]), (&json!(5), &json!("wrr")));
        assert_recorded(options, |recorded| recorded.plan);
    }
}
