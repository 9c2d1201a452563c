//! Divides a dataset's samples into parts, such as those of training and validation.

use super::walks::{room, shuffle};
use ddlp_pixels::draw::Rng;
use std::collections::BTreeMap;
use std::io;

/// Stream of the draws that shuffle the samples of a group. The number of the group takes the place of the epoch.
const SPLIT_STREAM: u32 = 1 << 31;

/// Divides samples into parts of these sizes, which together are all samples. Sample `i` belongs to the group
/// `groups[i]`, such as its class, and each part has the same share of each group, to within a sample. Returns the
/// positions of each part's samples in ascending order. They depend on the seed alone, on every machine.
///
/// # Errors
///
/// The system refuses memory.
///
/// # Panics
///
/// If the sizes do not sum up to the number of samples.
pub fn split(groups: &[i64], sizes: &[u64], seed: u64) -> io::Result<Vec<Vec<u64>>> {
    assert_eq!(sizes.iter().sum::<u64>(), groups.len() as u64, "the parts are all samples");
    let mut of_groups: BTreeMap<i64, Vec<u64>> = BTreeMap::new();
    for (position, &group) in (0..).zip(groups) {
        of_groups.entry(group).or_default().push(position);
    }
    // Samples of a group lie equally far apart, so each piece of the whole has the group's share.
    let mut placed: Vec<(f64, u64)> = room(groups.len() as u64)?;
    for (number, positions) in (0u64..).zip(of_groups.values_mut()) {
        let mut rng = Rng::for_epoch(seed, number, SPLIT_STREAM);
        let (offset, count) = (rng.uniform(), positions.len() as f64);
        shuffle(positions, &mut rng);
        placed.extend((0u64..).zip(positions).map(|(at, position)| ((at as f64 + offset) / count, *position)));
    }
    placed.sort_unstable_by(|(one, a), (other, b)| one.total_cmp(other).then(a.cmp(b)));
    let mut left = &placed[..];
    let mut parts = Vec::with_capacity(sizes.len());
    for &size in sizes {
        let (part, rest) = left.split_at(size as usize);
        let mut positions: Vec<u64> = part.iter().map(|(_, position)| *position).collect();
        positions.sort_unstable();
        parts.push(positions);
        left = rest;
    }
    Ok(parts)
}

/// Divides samples into parts that have equally many samples of each group: `sizes` says how many each part has of a
/// group. The other samples of a group are left out. Otherwise as [`split`].
///
/// # Errors
///
/// The system refuses memory.
///
/// # Panics
///
/// If a group has fewer samples than all parts need.
pub fn split_evenly(groups: &[i64], sizes: &[u64], seed: u64) -> io::Result<Vec<Vec<u64>>> {
    let mut of_groups: BTreeMap<i64, Vec<u64>> = BTreeMap::new();
    for (position, &group) in (0..).zip(groups) {
        of_groups.entry(group).or_default().push(position);
    }
    let mut parts = sizes.iter().map(|size| room(size * of_groups.len() as u64)).collect::<io::Result<Vec<_>>>()?;
    for (number, positions) in (0u64..).zip(of_groups.values_mut()) {
        shuffle(positions, &mut Rng::for_epoch(seed, number, SPLIT_STREAM));
        let mut left = &positions[..];
        for (part, &size) in parts.iter_mut().zip(sizes) {
            let (own, rest) = left.split_at(size as usize);
            part.extend_from_slice(own);
            left = rest;
        }
    }
    parts.iter_mut().for_each(|part| part.sort_unstable());
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_are_disjoint_complete_and_stratified(
            groups in proptest::collection::vec(-1i64..4, 1..300),
            cuts in proptest::collection::vec(0.0f64..1.0, 0..5),
            seed: u64,
        ) {
            let samples = groups.len() as u64;
            let mut bounds: Vec<u64> = cuts.iter().map(|cut| (cut * samples as f64) as u64).collect();
            bounds.extend([0, samples]);
            bounds.sort_unstable();
            let sizes: Vec<u64> = bounds.windows(2).map(|pair| pair[1] - pair[0]).collect();
            let parts = split(&groups, &sizes, seed).unwrap();
            prop_assert_eq!(parts.iter().map(|part| part.len() as u64).collect::<Vec<_>>(), sizes);
            let mut all = parts.concat();
            all.sort_unstable();
            prop_assert_eq!(all, (0..samples).collect::<Vec<_>>());
            for group in -1..4 {
                let count = |positions: &[u64]| positions.iter().filter(|&&at| groups[at as usize] == group).count();
                let of_all = groups.iter().filter(|&&other| other == group).count() as f64;
                for part in &parts {
                    let share = part.len() as f64 * of_all / samples as f64;
                    // A sample at each end of the part, and one for the other groups' ends.
                    prop_assert!((count(part) as f64 - share).abs() <= 3.0, "{} of {share}", count(part));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn even_parts_have_equally_many_samples_of_each_group(
            groups in proptest::collection::vec(-1i64..4, 1..300),
            (first, second) in (1u64..9, 1u64..9),
            seed: u64,
        ) {
            let count = |positions: &[u64], group| positions.iter().filter(|&&at| groups[at as usize] == group).count();
            let all: Vec<u64> = (0..groups.len() as u64).collect();
            let there: Vec<i64> = (-1..4).filter(|&group| count(&all, group) > 0).collect();
            prop_assume!(there.iter().all(|&group| count(&all, group) as u64 >= first + second));
            let parts = split_evenly(&groups, &[first, second], seed).unwrap();
            for (part, size) in parts.iter().zip([first, second]) {
                prop_assert!(part.windows(2).all(|pair| pair[0] < pair[1]));
                for &group in &there {
                    prop_assert_eq!(count(part, group) as u64, size);
                }
            }
            prop_assert!(parts[0].iter().all(|at| !parts[1].contains(at)));
        }
    }

    /// Pins the parts: others would silently move samples from validation to training.
    #[test]
    fn the_parts_of_a_known_seed_stay() {
        let groups = [0, 0, 0, 0, 0, 0, 1, 1, 1, 1];
        assert_eq!(split(&groups, &[8, 2], 7).unwrap()[1], [1, 6]);
        assert_eq!(split_evenly(&groups, &[3, 1], 7).unwrap()[1], [4, 7]);
        assert_ne!(split(&groups, &[5, 5], 7).unwrap(), split(&groups, &[5, 5], 8).unwrap());
    }
}
