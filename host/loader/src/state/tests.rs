use super::*;

fn state() -> LoaderState {
    LoaderState {
        version: STATE_VERSION,
        seed: 1,
        shuffle: true,
        shuffle_window: None,
        dataset: "ab".into(),
        program: "12".into(),
        pipeline: Some(Pipeline::imagenet_train()),
        buckets: Vec::new(),
        classes: Vec::new(),
        policy: Some(CorruptPolicy::Skip),
        epochs: 3,
        fidelity: Fidelities::default(),
        epoch_samples: 100,
        portions: Vec::new(),
        choice: ChoiceRecord::default(),
        batch_size: 10,
        last: LastBatch::Short,
        strategy: Strategy::Ordered,
        world: 2,
        epoch: 1,
        moved: None,
        delivered: vec![0, 1, 2],
    }
}

fn whole() -> RunFidelity {
    RunFidelity::Given(Fidelities::default())
}

#[test]
fn another_number_of_ranks_may_go_on_from_a_prefix_only() {
    let fresh = LoaderState { world: 1, delivered: vec![], ..state() };
    assert_eq!(state().check_fits(&fresh, 10, &whole()), Ok(()));
    let scattered = LoaderState { delivered: vec![0, 9], strategy: Strategy::Mte, ..state() };
    assert!(matches!(scattered.check_fits(&fresh, 10, &whole()), Err(StateError::Ranks { saved: 2, actual: 1, .. })));
    for strategy in [Strategy::Mte, Strategy::Wrr, Strategy::Csd] {
        let of_one_rank = LoaderState { strategy, ..state() };
        assert!(matches!(of_one_rank.check_fits(&fresh, 10, &whole()), Err(StateError::Ranks { .. })), "{strategy}");
        let of_all = LoaderState { world: 1, ..of_one_rank.clone() };
        let two = LoaderState { world: 2, ..fresh.clone() };
        assert_eq!(of_all.check_fits(&two, 10, &whole()), Ok(()), "{strategy}");
        let at_the_end = LoaderState { delivered: vec![], ..of_one_rank };
        assert_eq!(at_the_end.check_fits(&fresh, 10, &whole()), Ok(()), "{strategy}");
    }
    assert_eq!(scattered.check_fits(&LoaderState { world: 2, ..fresh }, 10, &whole()), Ok(()));
}

#[test]
fn other_runs_and_impossible_batches_are_refused() {
    let fresh = state();
    let others = [
        LoaderState { version: 9, ..state() },
        LoaderState { seed: 2, ..state() },
        LoaderState { shuffle: false, ..state() },
        LoaderState { dataset: "cd".into(), ..state() },
        LoaderState { program: "34".into(), ..state() },
        LoaderState { pipeline: Some(Pipeline::imagenet_val()), ..state() },
        LoaderState { policy: Some(CorruptPolicy::Fail), ..state() },
        LoaderState { epoch_samples: 99, ..state() },
        LoaderState { portions: vec![Portion { samples: 200, taken: 100 }], ..state() },
        LoaderState { batch_size: 9, ..state() },
        LoaderState { last: LastBatch::Drop, ..state() },
        LoaderState { delivered: vec![10], ..state() },
        LoaderState { delivered: vec![1, 1], ..state() },
    ];
    for other in others {
        assert!(other.check_fits(&fresh, 10, &whole()).is_err(), "{other:?}");
    }
}

#[test]
fn a_window_of_an_earlier_build_is_refused() {
    let windowed = LoaderState { shuffle_window: Some(4), ..state() };
    let now = windowed.clone().with_fidelity(Fidelities::default());
    assert_eq!(now.check_fits(&windowed, 10, &whole()), Ok(()));
    let earlier = LoaderState { version: LATER_STATE_VERSION, ..windowed.clone() };
    assert_eq!(earlier.check_fits(&windowed, 10, &whole()), Err(StateError::EarlierWindow));
}

#[test]
fn every_difference_is_named() {
    let other = LoaderState { batch_size: 9, policy: Some(CorruptPolicy::Fail), ..state() };
    let message = other.check_fits(&state(), 10, &whole()).unwrap_err().to_string();
    let expected =
        "with batch size 9, this run has 10; corrupt-sample policy fail, this run has skip: a run resumes only";
    assert!(message.contains(expected), "{message}");
}

/// As revision 77a8d6c wrote it.
#[test]
fn a_state_without_pipeline_and_policy_is_understood() {
    let text = r#"{"version":2,"seed":1,"dataset":"ab","program":"12","epoch_samples":100,"batch_size":10,
        "last":"Short","strategy":"Ordered","world":2,"epochs":3,"epoch":1,"delivered":[0,1,2]}"#;
    let old: LoaderState = serde_json::from_str(text).unwrap();
    assert_eq!(old, LoaderState { pipeline: None, policy: None, ..state() });
    assert_eq!(old.check_fits(&state(), 10, &whole()), Ok(()));
    let other = LoaderState { program: "34".into(), ..state() };
    assert_eq!(old.check_fits(&other, 10, &whole()), Err(StateError::OtherProgram));
}

#[test]
fn other_weights_of_a_mix_are_named() {
    let mix = |taken: [u64; 2]| {
        let portions = taken.map(|taken| Portion { samples: 80, taken }).to_vec();
        LoaderState { portions, ..state() }
    };
    let refused = mix([70, 30]).check_fits(&mix([60, 40]), 10, &whole()).unwrap_err().to_string();
    let expected =
        "with epochs of 70 of 80 samples and 30 of 80 samples, this run has 60 of 80 samples and 40 of 80 samples:";
    assert!(refused.contains(expected), "{refused}");
}

#[test]
fn a_fidelity_may_change_between_two_epochs_alone() {
    let of = |text: &str| RunFidelity::Given(text.parse().unwrap());
    let saved = state().with_fidelity("0:2,1:5".parse().unwrap());
    assert_eq!((state().version, saved.version), (STATE_VERSION, LATER_STATE_VERSION));
    assert_eq!(saved.check_fits(&state(), 10, &of("5")), Ok(()));
    let refused = saved.check_fits(&state(), 10, &whole()).unwrap_err().to_string();
    assert!(refused.contains("with fidelity 5, this run has 10"), "{refused}");
    let between = LoaderState { delivered: Vec::new(), ..saved.clone() };
    assert_eq!(between.check_fits(&state(), 10, &whole()), Ok(()));
    // A state of an earlier build is one of whole images.
    assert!(state().check_fits(&state(), 10, &of("5")).is_err());
    let text = serde_json::to_string(&saved).unwrap();
    assert_eq!(serde_json::from_str::<LoaderState>(&text).unwrap(), saved);
}
