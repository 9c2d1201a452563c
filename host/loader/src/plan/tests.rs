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
            shuffle_window: (seed % 3 == 0).then_some(4),
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

#[test]
fn a_plan_of_another_version_is_refused_by_name() {
    let mut bytes = Plan::default().to_bytes().unwrap();
    bytes[4] -= 1;
    let refused = Plan::from_bytes(&bytes).unwrap_err();
    assert_eq!(refused.to_string(), "the plan has version 8, and this program reads version 9: record it again");
}

/// Two batches of one epoch, the second one by a drive.
fn two_batches() -> Vec<PlanEpoch> {
    vec![PlanEpoch { epoch: 0, deliveries: vec![(0, 0), (1, 1)] }]
}

#[test]
fn another_fidelity_matters_in_the_epochs_of_the_plan() {
    let of = |fidelity: &str| Plan { epochs: two_batches(), fidelity: fidelity.parse().unwrap(), ..Plan::default() };
    let planned = of("5");
    planned.check_is_for(&of("0:5,1:10")).unwrap();
    let refused = planned.check_is_for(&of("10"));
    let said = refused.unwrap_err().to_string();
    assert_eq!(said, "plan was recorded with fidelity 5, this run has 10");
    assert!(planned.check_is_for(&Plan::default()).is_err(), "whole images");
}

#[test]
fn a_plan_of_another_choice_is_named() {
    let of = |choice| Plan { choice, ..Plan::default() };
    let two = of(ChoiceRecord { views: 2, ..ChoiceRecord::default() });
    let refused = two.check_is_for(&of(ChoiceRecord::default())).unwrap_err().to_string();
    assert_eq!(refused, "plan was recorded with views 2, this run has 1");
    two.check_is_for(&two).unwrap();
}

#[test]
fn a_plan_of_other_weights_is_named() {
    let mix = |taken: [u64; 2]| Plan {
        portions: taken.map(|taken| Portion { samples: 80, taken }).to_vec(),
        ..Plan::default()
    };
    let refused = mix([70, 30]).check_is_for(&mix([60, 40])).unwrap_err().to_string();
    assert!(refused.contains("epochs of 70 of 80 samples and 30 of 80 samples, this run has 60 of 80"), "{refused}");
    mix([70, 30]).check_is_for(&mix([70, 30])).unwrap();
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
    let shuffled = Plan { shuffle: true, ..run.clone() };
    let error = shuffled.check_is_for(&run).unwrap_err();
    assert_eq!(error.to_string(), "plan was recorded with shuffle true, this run has false");
    shuffled.check_is_for(&shuffled).unwrap();
    let error = Plan { dataset: [1; 32], ..Plan::default() }.check_is_for(&run).unwrap_err();
    assert!(matches!(error, PlanError::OtherDataset { .. }) && error.to_string().contains("another form"), "{error}");
}
