use super::*;
use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
use std::collections::{BTreeMap, BTreeSet};

const BUNDLE: u64 = 1024;

fn lanes(count: u64, samples: u64, batch: u64) -> Lanes {
    Lanes { count, samples, batch, last: LastBatch::Short }
}

fn neighbours(samples: u64) -> Bundles {
    Bundles { samples, indices: None, bytes: 0 }
}

/// Returns a permutation that deals samples to bundles.
fn dealt(count: u64, samples: u64) -> Bundles {
    let mut indices: Vec<u32> = (0..count as u32).collect();
    shuffle(&mut indices, &mut Rng::for_epoch(99, 0, 0));
    Bundles { samples, indices: Some(indices), bytes: 0 }
}

/// Returns for each bundle the places between which it is open: a bundle closes when none of its samples comes for
/// two batches.
fn intervals(order: &[u64], samples: u64, batch: usize) -> BTreeMap<u64, Vec<(usize, usize)>> {
    let mut found: BTreeMap<u64, Vec<(usize, usize)>> = BTreeMap::new();
    for (place, position) in order.iter().enumerate() {
        let of_bundle = found.entry(position / samples).or_default();
        match of_bundle.last_mut() {
            Some((_, end)) if place - *end <= 2 * batch => *end = place,
            _ => of_bundle.push((place, place)),
        }
    }
    found
}

#[test]
fn at_most_as_many_bundles_are_open_as_the_window_has() {
    for (bundles, count, batch) in [(160, 8, 256), (163, 8, 256), (101, 4, 100), (64, 16, 128), (50, 1, 64)] {
        let samples = bundles * BUNDLE - 300;
        let order = lanes(count, samples, batch).sample_ids(&neighbours(BUNDLE), 1, 2).unwrap();
        let found = intervals(&order, BUNDLE, batch as usize);
        let intervals: Vec<_> = found.values().flatten().copied().collect();
        let mut changes: Vec<(usize, i32)> =
            intervals.iter().flat_map(|&(begin, end)| [(begin, 1), (end + 1, -1)]).collect();
        changes.sort();
        let (mut open, mut most) = (0, 0);
        for (_, change) in changes {
            open += change;
            most = most.max(open);
        }
        assert!(most <= count as i32, "{most} bundles are open at a time with a window of {count}");
        // Each bundle is opened once, except bundles that lanes divide or begin with.
        assert!(intervals.len() as u64 <= bundles + 3 * count, "{} intervals of {bundles} bundles", intervals.len());
        assert!(intervals.len() as u64 >= bundles);
    }
}

#[test]
fn bundles_begin_evenly() {
    let (count, batch) = (8, 256);
    // If lanes began with whole bundles, they would all open their bundles at the same time.
    let samples = 160 * BUNDLE;
    let order = lanes(count, samples, batch).sample_ids(&neighbours(BUNDLE), 1, 2).unwrap();
    let mut begins: Vec<usize> =
        intervals(&order, BUNDLE, batch as usize).values().flatten().map(|&(begin, _)| begin).collect();
    begins.sort_unstable();
    // In the middle of the epoch, away from its ends.
    let middle: Vec<usize> = begins.into_iter().filter(|begin| (20_000..120_000).contains(begin)).collect();
    for pair in middle.windows(2) {
        let gap = pair[1] - pair[0];
        assert!((768..=1280).contains(&gap), "a bundle begins {gap} samples after the one before");
    }
    assert!(middle.len() > 90, "{}", middle.len());
}

#[test]
fn ranks_that_divide_the_window_divide_the_bundles() {
    let (count, samples, batch) = (8, 64 * BUNDLE + 77, 256);
    let order = lanes(count, samples, batch).sample_ids(&neighbours(BUNDLE), 3, 0).unwrap();
    for world in [1, 2, 4, 8] {
        let mut readers: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
        for batch in order.chunks(batch as usize) {
            for rank in 0..world {
                let part = |rank| batch.len() * rank / world;
                for position in &batch[part(rank)..part(rank + 1)] {
                    readers.entry(position / BUNDLE).or_default().insert(rank);
                }
            }
        }
        // A bundle that two lanes divide may have two readers, and so may the one in which the epoch begins and ends.
        let several = readers.values().filter(|ranks| ranks.len() > 1).count();
        assert!(several < world + usize::from(world > 1), "{several} bundles are read by several of {world} ranks");
        assert!(readers.values().all(|ranks| ranks.len() <= 2));
    }
}

#[test]
fn batches_have_as_many_classes_as_in_a_full_permutation() {
    let (classes, count, batch) = (500, 8, 256);
    let samples = 100 * BUNDLE;
    // As in a folder, the samples of a class are neighbours.
    let class = |index: u64| index * classes / samples;
    let mean = |order: &[u64]| {
        let batches = order.chunks_exact(batch);
        let number = batches.len() as f64;
        batches.map(|batch| batch.iter().map(|&at| class(at)).collect::<BTreeSet<_>>().len() as f64).sum::<f64>()
            / number
    };
    let windowed = lanes(count, samples, batch as u64).sample_ids(&dealt(samples, BUNDLE), 5, 1).unwrap();
    let mut full: Vec<u64> = (0..samples).collect();
    shuffle(&mut full, &mut Rng::for_epoch(5, 1, 0));
    let (windowed, full) = (mean(&windowed), mean(&full));
    assert!((windowed / full - 1.0).abs() < 0.05, "{windowed} classes in a batch, {full} in a full permutation");
    // Without dealing, a batch has the classes of a few bundles.
    let in_order = lanes(count, samples, batch as u64).sample_ids(&neighbours(BUNDLE), 5, 1).unwrap();
    assert!(mean(&in_order) < 0.5 * full);
}

#[test]
fn no_sample_is_always_left_out_and_each_rank_meets_all_samples() {
    for bundle in [1000, 40] {
        let lanes = Lanes { last: LastBatch::Drop, ..lanes(8, 200, 64) };
        let (mut seen, mut of_ranks) = (BTreeSet::new(), vec![BTreeSet::<u64>::new(); 8]);
        for epoch in 0..100 {
            let order = lanes.sample_ids(&neighbours(bundle), 3, epoch).unwrap();
            for batch in order.chunks(64) {
                batch.chunks(8).zip(&mut of_ranks).for_each(|(share, seen)| seen.extend(share));
            }
            seen.extend(order);
        }
        assert_eq!(seen.len(), 200, "bundles of {bundle}");
        assert!(of_ranks.iter().all(|seen| seen.len() == 200), "bundles of {bundle}");
    }
}

/// Pins the order: another one would silently change runs.
#[test]
fn the_order_of_a_known_seed_stays() {
    let ids = lanes(2, 12, 4).sample_ids(&neighbours(3), 7, 0).unwrap();
    assert_eq!(ids, [7, 8, 1, 2, 9, 10, 0, 4, 5, 6, 3, 11]);
}

proptest! {
    #[test]
    fn every_sample_comes_once(
        count in 1u64..9,
        samples in 1u64..600,
        extra in 0u64..40,
        bundle in 1u64..70,
        drops in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let last = if drops { LastBatch::Drop } else { LastBatch::Short };
        let lanes = Lanes { last, ..lanes(count, samples, count + extra) };
        let ids = lanes.sample_ids(&dealt(samples, bundle), seed, 3).unwrap();
        prop_assert_eq!(ids.len() as u64, lanes.taken());
        let distinct: BTreeSet<u64> = ids.iter().copied().collect();
        prop_assert!(distinct.len() == ids.len() && distinct.iter().all(|&id| id < samples));
    }
}
