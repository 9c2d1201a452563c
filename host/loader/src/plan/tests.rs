use super::*;
use crate::schedule::Strategy;
use proptest::prelude::*;
use proptest::strategy::Strategy as _;

fn plan() -> impl proptest::strategy::Strategy<Value = Plan> {
    (any::<u64>(), any::<[u8; 32]>(), 1u32..20, 0usize..4).prop_flat_map(|(seed, dataset, batches, epochs)| {
        let order = Just((0..batches).map(|batch| (batch, batch as usize % 3)).collect::<Vec<_>>()).prop_shuffle();
        proptest::collection::vec(order, epochs).prop_map(move |epochs| Plan {
            seed,
            dataset,
            epoch_samples: u64::from(batches) * 8,
            batch_size: 8,
            batches,
            epochs: (0..).zip(epochs).map(|(epoch, deliveries)| PlanEpoch { epoch, deliveries }).collect(),
            run: Some(PlannedRun {
                strategy: Strategy::Mte,
                last: LastBatch::Pad,
                rank: 1,
                world: 2,
                pipelines: vec![Pipeline::imagenet_val()],
                policy: CorruptPolicy::Skip,
                shuffle: seed % 2 == 0,
                portions: vec![Portion { samples: seed % 100, taken: 8 }, Portion { samples: 3, taken: 8 }],
                choice: ChoiceRecord { repeats: 3, indices: Some("ab".into()), ..ChoiceRecord::default() },
                fidelity: "0:2,3:10".parse().unwrap(),
                shuffle_window: None,
            }),
        })
    })
}

proptest! {
    #[test]
    fn round_trip(plan in plan()) {
        prop_assert_eq!(Plan::from_bytes(&plan.to_bytes().unwrap()).unwrap(), plan);
    }

    #[test]
    fn truncation_and_damage_are_errors(plan in plan(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let bytes = plan.to_bytes().unwrap();
        let at = at.index(bytes.len());
        prop_assert!(Plan::from_bytes(&bytes[..at]).is_err());
        let mut damaged = bytes;
        damaged[at] ^= 1 << bit;
        prop_assert!(Plan::from_bytes(&damaged).is_err());
    }
}

/// Reads the plan of a body as an earlier version wrote it.
fn of_version(version: u32, body: impl Serialize) -> Plan {
    read_version(version, body).unwrap()
}

fn read_version(version: u32, body: impl Serialize) -> Result<Plan, PlanError> {
    let body = bincode::serde::encode_to_vec(body, codec()).unwrap();
    let length = (body.len() as u32).to_le_bytes();
    let frame = [*b"DDPL", version.to_le_bytes(), length, crc32c::crc32c(&body).to_le_bytes()];
    Plan::from_bytes(&[frame.concat(), body].concat())
}

#[test]
fn a_window_of_version_7_is_refused() {
    let of = |shuffle_window| Plan { run: Some(PlannedRun { shuffle_window, ..in_order() }), ..Plan::default() };
    assert_eq!(of_version(7, of(None)), of(None));
    assert!(matches!(read_version(7, of(Some(4))), Err(PlanError::EarlierWindow)));
    assert_eq!(of_version(8, of(Some(4))), of(Some(4)));
}

/// Two batches of one epoch, the second one by a drive.
fn two_batches() -> Vec<PlanEpoch> {
    vec![PlanEpoch { epoch: 0, deliveries: vec![(0, 0), (1, 1)] }]
}

/// Reads a plan as revision 77a8d6c wrote it.
#[test]
fn a_plan_of_version_1_is_understood() {
    let plan = of_version(1, (7u64, [3u8; 32], 20u64, 10u64, 2u32, two_batches()));
    assert!(plan.shuffles());
    assert_eq!((plan.seed, plan.batch_size, plan.run, plan.epochs), (7, 10, None, two_batches()));
}

#[test]
fn a_plan_of_version_2_is_of_a_run_that_shuffles() {
    let run = (Strategy::Wrr, LastBatch::Drop, 1u32, 2u32, Pipeline::imagenet_val(), CorruptPolicy::Skip);
    let plan = of_version(2, (7u64, [3u8; 32], 20u64, 10u64, 2u32, two_batches(), Some(run)));
    let run = plan.run.expect("it names its options");
    assert!(run.shuffle);
    assert_eq!((run.strategy, run.last, run.rank, run.world), (Strategy::Wrr, LastBatch::Drop, 1, 2));
    assert_eq!(
        (run.pipelines, run.policy, plan.epochs),
        (vec![Pipeline::imagenet_val()], CorruptPolicy::Skip, two_batches())
    );
}

#[test]
fn a_plan_of_version_3_is_of_no_mix() {
    let run = (Strategy::Cpu, LastBatch::Drop, 0u32, 1u32, Pipeline::imagenet_val(), CorruptPolicy::Skip, false);
    let plan = of_version(3, (7u64, [3u8; 32], 20u64, 10u64, 2u32, two_batches(), Some(run)));
    let recorded = plan.run.clone().expect("it names its options");
    assert!(!recorded.shuffle && recorded.portions.is_empty());
    plan.check_is_for(&plan).unwrap();
}

/// Reads a plan as the version before buckets wrote it.
#[test]
fn a_plan_of_version_4_has_one_pipeline() {
    let portions = vec![Portion { samples: 80, taken: 70 }];
    let run = (Strategy::Mte, LastBatch::Pad, 1u32, 2u32, Pipeline::imagenet_val(), CorruptPolicy::Skip);
    let body = ((7u64, [3u8; 32], 16u64, 8u64, 2u32, two_batches()), Some((run, false, portions.clone())));
    let read = of_version(4, body).run.unwrap();
    assert_eq!((read.pipelines, read.portions, read.shuffle), (vec![Pipeline::imagenet_val()], portions, false));
}

/// Reads a plan as the version before choices of samples wrote it.
#[test]
fn a_plan_of_version_5_has_all_samples() {
    let pipelines = vec![Pipeline::imagenet_val(), Pipeline::imagenet_train()];
    let run =
        (Strategy::Mte, LastBatch::Pad, 1u32, 2u32, &pipelines, CorruptPolicy::Skip, false, Vec::<Portion>::new());
    let read = of_version(5, ((7u64, [3u8; 32], 16u64, 8u64, 2u32, two_batches()), Some(run))).run.unwrap();
    assert_eq!((read.pipelines, read.choice, read.world), (pipelines, ChoiceRecord::default(), 2));
}

/// Reads a plan as the version before fidelities wrote it.
#[test]
fn a_plan_of_version_6_is_of_whole_images() {
    let choice = ChoiceRecord { views: 2, ..ChoiceRecord::default() };
    let portions = Vec::<Portion>::new();
    let pipelines = vec![Pipeline::imagenet_val()];
    let run = (Strategy::Mte, LastBatch::Pad, 1u32, 2u32, &pipelines, CorruptPolicy::Skip, false, portions, &choice);
    let read = of_version(6, ((7u64, [3u8; 32], 16u64, 8u64, 2u32, two_batches()), Some(run))).run.unwrap();
    assert_eq!((read.choice, read.fidelity, read.world), (choice, Fidelities::default(), 2));
}

#[test]
fn another_fidelity_matters_in_the_epochs_of_the_plan() {
    let of = |fidelity: &str| Plan {
        epochs: two_batches(),
        run: Some(PlannedRun { fidelity: fidelity.parse().unwrap(), ..in_order() }),
        ..Plan::default()
    };
    let planned = of("5");
    planned.check_is_for(&of("0:5,1:10")).unwrap();
    let refused = planned.check_is_for(&of("10"));
    let said = refused.unwrap_err().to_string();
    assert_eq!(said, "plan was recorded with fidelity 5, this run has 10");
    assert!(planned.check_is_for(&Plan { run: None, ..of("10") }).is_err(), "a plan of version 1 has whole images");
}

#[test]
fn a_plan_of_another_choice_is_named() {
    let of = |choice| Plan { run: Some(PlannedRun { choice, ..in_order() }), ..Plan::default() };
    let two = of(ChoiceRecord { views: 2, ..ChoiceRecord::default() });
    let refused = two.check_is_for(&of(ChoiceRecord::default())).unwrap_err().to_string();
    assert_eq!(refused, "plan was recorded with views 2, this run has 1");
    assert!(Plan::default().check_is_for(&two).is_err(), "a plan of version 1 has all samples once");
    two.check_is_for(&two).unwrap();
}

#[test]
fn a_plan_of_other_weights_is_named() {
    let mix = |taken: [u64; 2]| {
        let run = PlannedRun { portions: taken.map(|taken| Portion { samples: 80, taken }).to_vec(), ..in_order() };
        Plan { run: Some(run), ..Plan::default() }
    };
    let refused = mix([70, 30]).check_is_for(&mix([60, 40])).unwrap_err().to_string();
    assert!(refused.contains("epochs of 70 of 80 samples and 30 of 80 samples, this run has 60 of 80"), "{refused}");
    mix([70, 30]).check_is_for(&mix([70, 30])).unwrap();
}

/// Returns the options of a run that does not shuffle.
fn in_order() -> PlannedRun {
    PlannedRun {
        strategy: Strategy::Cpu,
        last: LastBatch::Short,
        rank: 0,
        world: 1,
        pipelines: vec![Pipeline::imagenet_val()],
        policy: CorruptPolicy::Fail,
        shuffle: false,
        portions: Vec::new(),
        choice: ChoiceRecord::default(),
        fidelity: Fidelities::default(),
        shuffle_window: None,
    }
}

#[test]
fn a_batch_named_twice_is_refused() {
    let plan =
        Plan { batches: 2, epochs: vec![PlanEpoch { epoch: 0, deliveries: vec![(0, 0), (0, 1)] }], ..Plan::default() };
    let refused = Plan::from_bytes(&plan.to_bytes().unwrap());
    assert!(matches!(refused, Err(PlanError::NotAPermutation { epoch: 0, batches: 2 })));
}

#[test]
fn a_plan_of_another_run_is_named() {
    let run = Plan { seed: 1, ..Plan::default() };
    let error = Plan { seed: 2, ..Plan::default() }.check_is_for(&run).unwrap_err();
    assert_eq!(error.to_string(), "plan was recorded with seed 2, this run has 1");
    let in_order = Plan { run: Some(in_order()), ..run.clone() };
    // A plan of version 1 names no options, but its run shuffles.
    let error = run.check_is_for(&in_order).unwrap_err();
    assert_eq!(error.to_string(), "plan was recorded with shuffle true, this run has false");
    assert!(in_order.check_is_for(&run).is_err());
    in_order.check_is_for(&in_order).unwrap();
    let error = Plan { dataset: [1; 32], ..Plan::default() }.check_is_for(&run).unwrap_err();
    assert!(matches!(error, PlanError::OtherDataset { .. }) && error.to_string().contains("another form"), "{error}");
}
