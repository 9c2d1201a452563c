use super::*;
use crate::order::{EpochCut, EpochOrder, LastBatch, Walks};
use proptest::prelude::*;
use std::collections::HashSet;

const DATASET: u64 = 10;

/// A cut for one rank.
const CUT: EpochCut =
    EpochCut { samples: 0, batch: 0, last: LastBatch::Short, rank: 0, world: 1, repeats: 1, views: 1, buckets: None };

/// A choice, and how often its samples occur.
#[derive(Clone, Debug)]
struct Choice {
    indices: Option<Indices>,
    weights: Option<Weights>,
    repeats: u64,
    views: u64,
}

impl Default for Choice {
    fn default() -> Self {
        Self { indices: None, weights: None, repeats: 1, views: 1 }
    }
}

impl Choice {
    fn chosen(&self, label: fn(u64) -> i64) -> io::Result<Chosen> {
        let Self { indices, weights, repeats, views } = self.clone();
        Chosen::new(&super::Choice { indices, weights }, Copies { dataset: DATASET, repeats, views }, 0, label)
    }
}

fn fixed(indices: &[u64]) -> Choice {
    Choice { indices: Some(Indices::Fixed(indices.into())), ..Choice::default() }
}

fn weighted(weights: &[f64]) -> Choice {
    Choice { weights: Some(Weights::Given(weights.into())), ..Choice::default() }
}

/// Walks over a choice from a dataset of ten samples, whose labels are 0, 0, 0, 1, 1, 1, 2, 2, 2, 3.
fn walks(seed: Option<u64>, samples: Option<u64>, choice: &Choice) -> Walks {
    let chosen = choice.chosen(|index| (index / 3) as i64).unwrap();
    Walks::plain(seed, samples.unwrap_or(chosen.count), chosen)
}

fn ids(seed: Option<u64>, samples: Option<u64>, choice: &Choice) -> Vec<u64> {
    walks(seed, samples, choice).sample_ids(1).unwrap()
}

fn refused(choice: &Choice) -> String {
    let error = choice.chosen(|index| (index / 3) as i64).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    error.to_string()
}

#[test]
fn all_indices_are_the_order_of_the_whole_dataset() {
    let all: Vec<u64> = (0..DATASET).collect();
    for samples in [None, Some(4), Some(25)] {
        assert_eq!(ids(Some(7), samples, &fixed(&all)), ids(Some(7), samples, &Choice::default()));
    }
}

#[test]
fn an_epoch_has_the_chosen_samples_in_an_order_of_its_own() {
    let choice = fixed(&[8, 3, 5, 0]);
    assert_eq!(ids(None, None, &choice), [8, 3, 5, 0]);
    let mut shuffled = ids(Some(7), None, &choice);
    assert_ne!(shuffled, [8, 3, 5, 0]);
    shuffled.sort_unstable();
    assert_eq!(shuffled, [0, 3, 5, 8]);
    assert_eq!(ids(None, Some(6), &choice), [8, 3, 5, 0, 18, 13], "the list from its beginning, with new draws");
}

#[test]
fn each_occurrence_of_an_index_has_an_id_of_its_own() {
    let choice = fixed(&[2, 2, 9, 2]);
    assert_eq!(ids(None, None, &choice), [2, 12, 9, 22]);
    assert_eq!(ids(None, Some(6), &choice), [2, 12, 9, 22, 32, 42]);
    assert_eq!(walks(None, Some(6), &choice).id_limit(), 60);
}

#[test]
fn a_function_names_the_indices_of_each_epoch() {
    let function = |epoch| if epoch < 3 { Ok(vec![u64::from(epoch), 9]) } else { Ok(vec![1]) };
    let choice = Choice { indices: Some(Indices::ByEpoch(Arc::new(function))), ..Choice::default() };
    let by_epoch = walks(None, None, &choice);
    assert_eq!([0, 2].map(|epoch| by_epoch.sample_ids(epoch).unwrap()), [[0, 9], [2, 9]]);
    let said = by_epoch.sample_ids(3).unwrap_err().to_string();
    assert!(said.contains("`indices`(3) has 1 indices, but `indices`(0) had 2"), "{said}");
    let fails = Choice { indices: Some(Indices::ByEpoch(Arc::new(|_| Err("no list".into())))), ..Choice::default() };
    assert_eq!(refused(&fails), "`indices`(0): no list");
}

#[test]
fn samples_are_drawn_as_often_as_their_weights_say() {
    let weights = [1.0, 0.0, 2.0, 5.0, 0.5, 1.5, 0.0, 3.0, 4.0, 3.0];
    let samples = 200_000;
    let drawn = ids(Some(5), Some(samples), &weighted(&weights));
    assert_eq!(drawn.iter().collect::<HashSet<_>>().len(), samples as usize, "each draw has an id of its own");
    let mut counts = [0u64; DATASET as usize];
    drawn.iter().for_each(|id| counts[(id % DATASET) as usize] += 1);
    for (count, weight) in counts.iter().zip(weights) {
        let expected = weight / 20.0 * samples as f64;
        assert!((*count as f64 - expected).abs() <= 4.0 * expected.sqrt(), "{counts:?}");
    }
    assert_ne!(drawn, walks(Some(5), Some(samples), &weighted(&weights)).sample_ids(2).unwrap());
}

/// Pins the draws: others would silently change every run.
#[test]
fn the_draws_of_a_known_seed_stay() {
    let weights: Vec<f64> = (0..DATASET).map(|index| index as f64).collect();
    assert_eq!(ids(Some(7), None, &weighted(&weights)), [6, 5, 2, 9, 7, 8, 19, 29, 17, 12]);
}

#[test]
fn weights_of_classes_are_those_of_their_samples() {
    let counts = |weights| {
        let choice = Choice { weights: Some(weights), ..fixed(&[0, 1, 3, 9]) };
        let mut counts = [0u32; DATASET as usize];
        ids(Some(1), Some(40_000), &choice).iter().for_each(|id| counts[(id % DATASET) as usize] += 1);
        [0, 1, 3, 9].map(|index: usize| (f64::from(counts[index]) / 1000.0).round())
    };
    // Classes 0, 1 and 3 have two, one and one of the chosen samples.
    assert_eq!(counts(Weights::Balanced), [7.0, 7.0, 13.0, 13.0]);
    assert_eq!(counts(Weights::Given([1.0, 2.0, 5.0, 0.0].into())), [10.0, 10.0, 20.0, 0.0]);
}

#[test]
fn ranks_take_turns_at_repeated_samples() {
    let choice = Choice { repeats: 3, ..Choice::default() };
    let walks = walks(Some(4), Some(12), &choice);
    let all = walks.sample_ids(0).unwrap();
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), 12);
    let indices: Vec<u64> = all.iter().map(|id| id % DATASET).collect();
    assert!(indices.chunks(3).all(|same| same.iter().all(|index| *index == same[0])), "{indices:?}");
    assert_eq!(indices.iter().collect::<HashSet<_>>().len(), 4, "of all ten, not of the first four alone");
    for rank in 0..2 {
        let cut = EpochCut { samples: 12, batch: 6, rank, world: 2, repeats: 3, ..CUT };
        let order = EpochOrder::new(&walks, 0, cut).unwrap();
        let of_rank: Vec<u64> = (0..2).flat_map(|batch| order.sample_ids(batch)).collect();
        // As torchvision's RASampler: indices[rank:total:world].
        let expected: Vec<u64> = all.iter().skip(rank as usize).step_by(2).copied().collect();
        assert_eq!(of_rank, expected);
    }
}

#[test]
fn a_batch_has_the_first_views_of_all_samples_and_then_the_second_ones() {
    let choice = Choice { views: 2, ..fixed(&[1, 4, 4]) };
    let walks = walks(None, None, &choice);
    let order = EpochOrder::new(&walks, 0, EpochCut { samples: 3, batch: 2, views: 2, ..CUT }).unwrap();
    assert_eq!([0, 1].map(|batch| order.sample_ids(batch)), [vec![1, 4, 11, 14], vec![24, 34]]);
    assert_eq!(walks.id_limit(), 40);
}

#[test]
fn what_no_epoch_can_have_is_named() {
    for (choice, part) in [
        (fixed(&[]), "`indices` has no index"),
        (fixed(&[3, 10]), "`indices`[1] is 10, but the dataset has 10 samples"),
        (weighted(&[1.0]), "`weights` has 1 weights, but the dataset has 10 samples and 4 classes"),
        (weighted(&[0.0; 10]), "every weight in `weights` is 0"),
        (weighted(&[1.0, 1.0, -1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]), "`weights`[2] is -1"),
        (weighted(&[f64::NAN; 10]), "`weights`[0] is NaN"),
        (Choice { weights: Some(Weights::Given([0.0, 1.0].repeat(5).into())), ..fixed(&[0, 2]) }, "every weight"),
    ] {
        let said = refused(&choice);
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn records_tell_choices_apart() {
    let record = |choice: &Choice| choice.chosen(|index| index as i64).unwrap().record;
    let by_epoch = Choice { indices: Some(Indices::ByEpoch(Arc::new(|_| Ok(vec![1, 2])))), ..Choice::default() };
    let records: Vec<ChoiceRecord> = [
        Choice::default(),
        fixed(&[1, 2]),
        fixed(&[2, 1]),
        by_epoch,
        weighted(&[1.0; 10]),
        Choice { weights: Some(Weights::Balanced), ..fixed(&[1, 2]) },
        Choice { repeats: 2, ..Choice::default() },
        Choice { views: 2, ..Choice::default() },
    ]
    .iter()
    .map(record)
    .collect();
    for (at, one) in records.iter().enumerate() {
        assert_eq!(one.is_default(), at == 0);
        for (other_at, other) in records.iter().enumerate() {
            let differs = one.compared(other).iter().any(|(_, one, other)| one != other);
            assert_eq!(differs, at != other_at, "{one:?} {other:?}");
        }
    }
    let text = serde_json::to_string(&records[5]).unwrap();
    assert_eq!(serde_json::from_str::<ChoiceRecord>(&text).unwrap(), records[5]);
}

proptest! {
    /// Ids are different, below the limit, and their remainders are the chosen samples.
    #[test]
    fn ids_of_any_choice_are_those_of_its_samples(
        indices in proptest::collection::vec(0..DATASET, 1..30),
        samples in 1u64..90,
        (repeats, views) in (1u64..5, 1u64..4),
        is_weighted: bool,
        seed: u64,
    ) {
        let weights = is_weighted.then_some(Weights::Balanced);
        let choice = Choice { repeats, views, weights, ..fixed(&indices) };
        let walks = walks(Some(seed), Some(samples), &choice);
        let cut = EpochCut { samples, batch: 7, repeats, views, ..CUT };
        let order = EpochOrder::new(&walks, 3, cut.clone()).unwrap();
        let ids: Vec<u64> = (0..cut.batches()).flat_map(|batch| order.sample_ids(batch as u32)).collect();
        prop_assert_eq!(ids.len() as u64, samples * views);
        prop_assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
        prop_assert!(ids.iter().all(|id| *id < walks.id_limit() && indices.contains(&(id % DATASET))));
        if !is_weighted && repeats == 1 {
            for index in 0..DATASET {
                let count = |indices: &[u64]| indices.iter().filter(|&&other| other % DATASET == index).count();
                let from_list: Vec<u64> = indices.iter().cycle().take(samples as usize).copied().collect();
                prop_assert_eq!(count(&ids), count(&from_list) * views as usize);
            }
        }
    }
}
