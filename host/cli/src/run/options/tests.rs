use super::*;
use crate::run::args::parse;
use ddlp_host::{ChoiceRecord, Fidelities, LastBatch, MaxCorrupt, PlanEpoch, Strategy};
use std::time::Duration;

fn options(line: &str, before: Before<'_>) -> Result<LoaderOptions, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    loader_options(&parse(&words).unwrap(), before).map_err(|error| error.to_string())
}

fn state() -> LoaderState {
    LoaderState {
        version: 2,
        seed: 7,
        shuffle: true,
        shuffle_window: None,
        dataset: String::new(),
        program: String::new(),
        pipeline: Some(Pipeline::cifar_train()),
        buckets: Vec::new(),
        classes: Vec::new(),
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
        moved: None,
        delivered: Vec::new(),
    }
}

fn plan() -> Plan {
    let epoch = |epoch| PlanEpoch { epoch, deliveries: Vec::new() };
    Plan {
        seed: 7,
        epoch_samples: 100,
        batch_size: 32,
        batches: 4,
        epochs: vec![epoch(0), epoch(1)],
        strategy: Strategy::Wrr,
        last: LastBatch::Pad,
        rank: 1,
        world: 2,
        pipelines: vec![Pipeline::imagenet_val()],
        policy: CorruptPolicy::Skip,
        ..Plan::default()
    }
}

#[test]
fn a_resumed_run_goes_on_with_what_it_began_with() {
    let fresh = options("", Before::None).unwrap();
    let mut expected = LoaderOptions { dataset: Some("x.ddlp".into()), ..LoaderOptions::default() };
    assert_eq!(fresh, expected);
    let (state, path) = (state(), Path::new("at.json"));
    let resumed = options("", Before::State(&state, path)).unwrap();
    expected.batch_size = 32;
    expected.epochs = 3;
    expected.strategy = Strategy::Mte;
    expected.seed = 7;
    expected.last = LastBatch::Drop;
    expected.epoch_samples = Some(100);
    expected.policy = CorruptPolicy::Skip;
    expected.pipeline = Pipeline::cifar_train();
    expected.resume = Some(state.clone());
    assert_eq!(resumed, expected);
    let other = options("--epochs 5 --strategy wrr --batch 32", Before::State(&state, path)).unwrap();
    assert_eq!((other.epochs, other.strategy), (5, Strategy::Wrr));
}

#[test]
fn the_order_of_the_dataset_can_be_asked_for_unless_the_earlier_run_shuffles() {
    assert!(options("", Before::None).unwrap().shuffle && !options("--no-shuffle", Before::None).unwrap().shuffle);
    let (state, path) = (state(), Path::new("at.json"));
    assert_eq!(
        options("--no-shuffle", Before::State(&state, path)).unwrap_err(),
        "--resume continues the run of at.json, which had a shuffled order, but --no-shuffle is given: leave that out"
    );
    let in_order = LoaderState { shuffle: false, ..state };
    for line in ["", "--no-shuffle"] {
        assert!(!options(line, Before::State(&in_order, path)).unwrap().shuffle);
    }
    assert!(!options("--no-shuffle", Before::Plan(&plan(), Path::new("o.plan"))).unwrap().shuffle);
}

#[test]
fn a_limit_on_corrupt_samples_needs_a_policy_that_passes_over_them() {
    assert!(options("--max-corrupt 5", Before::None).unwrap_err().contains("--policy fail, the default,"));
    assert!(options("--max-corrupt 5 --policy fail", Before::None).is_err());
    assert!(options("--max-corrupt 5 --policy skip", Before::None).is_ok());
    let path = Path::new("at.json");
    assert!(options("--max-corrupt 5", Before::State(&state(), path)).is_ok(), "its policy is skip");
}

#[test]
fn every_option_that_differs_from_the_state_is_named_with_both_values() {
    let (state, path) = (state(), Path::new("at.json"));
    let line = "--batch 8 --seed 1 --samples 9 --last pad --policy fail --pipeline imagenet-val";
    assert_eq!(
        options(line, Before::State(&state, path)).unwrap_err(),
        "--resume continues the run of at.json, which had --batch-size 32 --seed 7 --policy skip --last drop \
         --epoch-samples 100 --pipeline cifar-train, but --batch-size 8 --seed 1 --policy fail --last pad \
         --epoch-samples 9 --pipeline imagenet-val is given: leave that out"
    );
    let old = LoaderState { policy: None, pipeline: None, ..state };
    let resumed = options("--policy replace", Before::State(&old, path)).unwrap();
    assert_eq!((resumed.policy, resumed.pipeline), (CorruptPolicy::Replace, Pipeline::imagenet_train()));
}

#[test]
fn a_plan_brings_what_it_determines() {
    let (plan, path) = (plan(), Path::new("o.plan"));
    let replayed = options("", Before::Plan(&plan, path)).unwrap();
    let expected = LoaderOptions {
        dataset: Some("x.ddlp".into()),
        batch_size: 32,
        epochs: 2,
        strategy: Strategy::Wrr,
        seed: 7,
        last: LastBatch::Pad,
        epoch_samples: Some(100),
        policy: CorruptPolicy::Skip,
        pipeline: Pipeline::imagenet_val(),
        rank: 1,
        world_size: 2,
        shuffle: false,
        replay: Some(plan.clone()),
        ..LoaderOptions::default()
    };
    assert_eq!(replayed, expected);
    assert_eq!(options("--epochs 1", Before::Plan(&plan, path)).unwrap().epochs, 1);
    let line = "--strategy mte --epochs 3 --world-size 4 --rank 1 --batch 32";
    assert_eq!(
        options(line, Before::Plan(&plan, path)).unwrap_err(),
        "--plan-in repeats the run of o.plan, which had --epochs 2 --strategy wrr --world-size 2, but --epochs 3 \
         --strategy mte --world-size 4 is given: leave that out"
    );
    let none = Plan { epochs: Vec::new(), ..plan };
    assert!(options("", Before::Plan(&none, path)).unwrap_err().contains("no whole epoch"));
}

#[test]
fn the_command_fills_every_option_of_the_loader_that_it_names() {
    let options = options(
        "--threads 3 --cores 0-1 --buffers 9 --window 5 --drive-timeout 2.5 --drive-optional --rank 1 --world-size 2 \
         --policy skip --max-corrupt 17 --host-nqn nqn.2024-01.example:host \
         --metrics 127.0.0.1:9464 --fields x.csv",
        Before::None,
    )
    .unwrap();
    let expected = LoaderOptions {
        dataset: Some("x.ddlp".into()),
        threads: Some(3),
        cores: vec![0, 1],
        buffers: 9,
        window: Some(5),
        drive_timeout: Duration::from_millis(2500),
        drive_optional: true,
        rank: 1,
        world_size: 2,
        policy: CorruptPolicy::Skip,
        max_corrupt: MaxCorrupt::Samples(17),
        host_nqn: Some("nqn.2024-01.example:host".into()),
        fields: Some("x.csv".into()),
        metrics: Some("127.0.0.1:9464".parse().unwrap()),
        ..LoaderOptions::default()
    };
    assert_eq!(options, expected);
}

#[test]
fn another_fidelity_may_follow_a_state_and_no_plan() {
    let state = LoaderState { version: 3, fidelity: "5".parse().unwrap(), ..state() };
    let (state_file, plan_file) = (Path::new("state.json"), Path::new("run.plan"));
    let of = |line: &str| options(line, Before::State(&state, state_file)).unwrap().fidelity.to_string();
    assert_eq!([of(""), of("--fidelity 0:5,2:10")], ["5", "0:5,2:10"]);
    let mut plan = plan();
    plan.fidelity = "0:1,1:5".parse().unwrap();
    let of = |line: &str| options(line, Before::Plan(&plan, plan_file)).map(|options| options.fidelity.to_string());
    assert_eq!(of(""), Ok("0:1,1:5".into()));
    let refused = of("--fidelity 10").unwrap_err();
    assert!(refused.contains("had --fidelity 0:1,1:5, but --fidelity 10 is given"), "{refused}");
}
