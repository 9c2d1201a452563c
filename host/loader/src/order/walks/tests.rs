use super::*;
use crate::order::Choice;
use proptest::prelude::*;
use std::collections::HashSet;

fn part(name: &str, samples: u64, weight: f64) -> MixPart {
    MixPart { name: name.into(), samples, weight }
}

fn taken(weights: &[f64], samples: u64) -> Vec<u64> {
    let parts: Vec<MixPart> = weights.iter().map(|&weight| part("a", 1, weight)).collect();
    portions_of(&parts, samples).unwrap().iter().map(|portion| portion.taken).collect()
}

fn walks(seed: Option<u64>, portions: &[(u64, u64)]) -> Walks {
    let copies = Copies { dataset: portions.iter().map(|(samples, _)| samples).sum(), repeats: 1, views: 1 };
    let samples = portions.iter().map(|(_, taken)| taken).sum();
    Walks::of_mix(seed, samples, portions.iter().map(|&(samples, taken)| Portion { samples, taken }).collect(), copies)
}

fn plain(seed: Option<u64>, samples: u64) -> Walks {
    let copies = Copies { dataset: samples, repeats: 1, views: 1 };
    Walks::plain(seed, samples, Chosen::new(&Choice::default(), copies, 0, |_| 0).unwrap())
}

#[test]
fn a_refused_order_says_how_much_memory_it_needs() {
    let text = no_memory(1 << 31, 1 << 34).to_string();
    assert!(text.contains("17179869184 bytes for the order of 2147483648 samples") && text.contains("`epoch_samples`"));
}

#[test]
fn portions_follow_the_weights() {
    assert_eq!(taken(&[0.7, 0.3], 100), [70, 30]);
    assert_eq!(taken(&[7.0, 3.0], 101), [71, 30]);
    assert_eq!(taken(&[1.0, 1.0, 1.0], 100), [34, 33, 33]);
    assert_eq!(taken(&[f64::MAX, f64::MAX], 10), [5, 5]);
    assert_eq!(taken(&[60.0, 7.0, 1.0], 68), [60, 7, 1]);
    let refused = portions_of(&[part("a", 5, 1.0), part("b/", 5, 1e-9)], 100).unwrap_err();
    assert!(refused.contains("100 samples has no sample of b/") && refused.contains("`epoch_samples`"), "{refused}");
    assert!(portions_of(&[part("a", 5, 1.0), part("b", 5, f64::MIN_POSITIVE)], 100).is_err());
}

/// Pins the order of a mix: another one would silently change every run.
#[test]
fn the_order_of_a_known_mix_stays() {
    let mix = walks(Some(7), &[(3, 4), (10, 2)]);
    let expected = [[13, 1, 0, 2, 5, 12], [13, 2, 7, 1, 15, 11], [1, 14, 13, 10, 15, 4]];
    assert_eq!([0, 1, 2].map(|epoch| mix.sample_ids(epoch).unwrap()), expected);
}

#[test]
fn an_epoch_of_a_plain_dataset_is_a_permutation_of_its_own_length() {
    let plain = plain(Some(7), 10);
    assert_eq!(plain.sample_ids(0).unwrap(), [2, 8, 6, 7, 1, 4, 5, 0, 9, 3]);
    assert_eq!((plain.id_limit(), plain.portions()), (10, &[][..]));
    let mut next = plain.sample_ids(1).unwrap();
    next.sort_unstable();
    assert_eq!(next, (0..10).collect::<Vec<_>>());
    let of_one = walks(Some(7), &[(10, 10)]);
    assert!((0..4).all(|epoch| plain.sample_ids(epoch).unwrap() == of_one.sample_ids(epoch).unwrap()));
}

#[test]
fn without_a_shuffle_each_epoch_goes_on_where_the_one_before_stopped() {
    let short = walks(None, &[(5, 3)]);
    assert_eq!([0, 1, 2].map(|epoch| short.sample_ids(epoch).unwrap()), [[0, 1, 2], [3, 4, 5], [1, 2, 3]]);
    assert_eq!(short.id_limit(), 10);
    let mix = walks(None, &[(2, 3), (3, 1)]);
    assert_eq!([0, 1].map(|epoch| mix.sample_ids(epoch).unwrap()), [[0, 1, 5, 2], [1, 5, 6, 3]]);
}

#[test]
fn a_sample_of_a_tiny_part_has_an_id_for_each_time_it_is_taken() {
    let mix = walks(Some(3), &[(1, 1000), (9, 1)]);
    let ids: HashSet<u64> = mix.sample_ids(u32::MAX - 1).unwrap().into_iter().collect();
    assert_eq!(ids.len(), 1001);
    assert_eq!(ids.iter().filter(|&id| id % 10 == 0).count(), 1000);
    assert!(ids.iter().all(|&id| id < mix.id_limit()));
}

#[test]
fn the_same_part_twice_is_walked_in_two_orders() {
    let ids = walks(Some(3), &[(50, 25), (50, 25)]).sample_ids(0).unwrap();
    let of = |part: u64| ids.iter().filter(|&&id| id / 50 == part).map(|id| id % 50).collect::<HashSet<_>>();
    assert_eq!((of(0).len(), of(1).len()), (25, 25));
    assert_ne!(of(0), of(1));
}

proptest! {
    #[test]
    fn shares_are_exact(weights in proptest::collection::vec(0.01f64..1.0, 1..20), samples in 10_000u64..1 << 32) {
        let taken = taken(&weights, samples);
        prop_assert_eq!(taken.iter().sum::<u64>(), samples);
        let sum: f64 = weights.iter().sum();
        for (taken, weight) in taken.iter().zip(&weights) {
            prop_assert!((*taken as f64 - weight / sum * samples as f64).abs() < 1.001);
        }
    }

    #[test]
    fn sizes_as_weights_take_each_sample_once(sizes in proptest::collection::vec(1u64..1 << 27, 1..20)) {
        let weights: Vec<f64> = sizes.iter().map(|&size| size as f64).collect();
        prop_assert_eq!(taken(&weights, sizes.iter().sum()), sizes);
    }

    /// Epochs take the samples of each part in passes: no sample comes again before all others have come.
    #[test]
    fn epochs_take_whole_passes(
        portions in proptest::collection::vec((1u64..30, 1u64..70), 1..4),
        seed in proptest::option::of(any::<u64>()),
    ) {
        let walks = walks(seed, &portions);
        let dataset: u64 = portions.iter().map(|(samples, _)| samples).sum();
        let mut counts = vec![0u64; dataset as usize];
        for epoch in 0..7u64 {
            let ids = walks.sample_ids(epoch as u32).unwrap();
            prop_assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
            prop_assert!(ids.iter().all(|&id| id < walks.id_limit()));
            ids.iter().for_each(|id| counts[(id % dataset) as usize] += 1);
            let mut first = 0;
            for &(samples, taken) in &portions {
                let of_part = &counts[first..first + samples as usize];
                let passes = (epoch + 1) * taken / samples;
                prop_assert_eq!(of_part.iter().sum::<u64>(), (epoch + 1) * taken);
                prop_assert!(of_part.iter().all(|&count| count == passes || count == passes + 1));
                first += samples as usize;
            }
        }
    }
}
