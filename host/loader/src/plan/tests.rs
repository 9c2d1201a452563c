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
                pipeline: Pipeline::imagenet_val(),
                policy: CorruptPolicy::Skip,
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

/// Reads a plan as revision 77a8d6c wrote it: two batches of one epoch, the second one by a drive.
#[test]
fn a_plan_of_version_1_is_understood() {
    let body: FirstBody = (7, [3; 32], 20, 10, 2, vec![PlanEpoch { epoch: 0, deliveries: vec![(0, 0), (1, 1)] }]);
    let body = bincode::serde::encode_to_vec(&body, codec()).unwrap();
    let frame = [*b"DDPL", 1u32.to_le_bytes(), (body.len() as u32).to_le_bytes(), crc32c::crc32c(&body).to_le_bytes()];
    let plan = Plan::from_bytes(&[frame.concat(), body].concat()).unwrap();
    assert_eq!((plan.seed, plan.batch_size, plan.run, plan.epochs.len()), (7, 10, None, 1));
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
    let error = Plan { dataset: [1; 32], ..Plan::default() }.check_is_for(&run).unwrap_err();
    assert!(matches!(error, PlanError::OtherDataset { .. }) && error.to_string().contains("another form"), "{error}");
}
