use super::*;
use proptest::prelude::*;

fn cut(samples: u64, batch: u64, last: LastBatch) -> EpochCut {
    EpochCut { samples, batch, last, rank: 0, world: 1, repeats: 1, views: 1, buckets: None }
}

/// Walks over a dataset of this many samples.
fn all(seed: Option<u64>, samples: u64) -> Walks {
    let copies = Copies { dataset: samples, repeats: 1, views: 1 };
    Walks::plain(seed, samples, Chosen::new(&Choice::default(), copies, 0, |_| 0).unwrap())
}

fn order(seed: u64, epoch: u32, cut: EpochCut) -> EpochOrder {
    EpochOrder::new(&all(Some(seed), cut.samples), epoch, cut).expect("memory for a short epoch")
}

#[test]
fn epochs_and_seeds_differ_and_repeat() {
    let ids = |seed, epoch| order(seed, epoch, cut(100, 100, LastBatch::Short)).sample_ids(0);
    assert_eq!(ids(1, 2), ids(1, 2));
    assert_ne!(ids(1, 2), ids(1, 3));
    assert_ne!(ids(1, 2), ids(2, 2));
}

/// Pins the shuffle: another one would silently change every run.
#[test]
fn the_order_of_a_known_seed_stays() {
    let ids = order(7, 0, cut(10, 10, LastBatch::Short)).sample_ids(0);
    assert_eq!(ids, [2, 8, 6, 7, 1, 4, 5, 0, 9, 3]);
}

#[test]
fn without_a_shuffle_samples_come_in_the_order_of_the_dataset() {
    let cut = EpochCut { world: 2, rank: 1, ..cut(10, 4, LastBatch::Pad) };
    let order = EpochOrder::new(&all(None, cut.samples), 5, cut).unwrap();
    assert_eq!((0..3).map(|batch| order.sample_ids(batch)).collect::<Vec<_>>(), [[2, 3], [6, 7], [0, 1]]);
}

#[test]
fn rows_are_the_share_of_the_largest_batch() {
    let rows = |samples, batch, last, world| EpochCut { world, ..cut(samples, batch, last) }.rows();
    assert_eq!(rows(60, 4096, LastBatch::Short, 1), 60);
    assert_eq!(rows(60, 4096, LastBatch::Short, 7), 9);
    assert_eq!(rows(60, 4096, LastBatch::Pad, 1), 4096);
    assert_eq!(rows(60, 32, LastBatch::Short, 3), 11);
}

proptest! {
    #[test]
    fn short_covers_every_sample_once_and_gives_each_rank_one(
        samples in 1u64..400,
        batch in 6u64..90,
        world in 1u64..6,
        seed: u64,
    ) {
        let mut seen = vec![0; samples as usize];
        for rank in 0..world {
            let cut = EpochCut { rank, world, ..cut(samples, batch, LastBatch::Short) };
            let order = order(seed, 3, cut.clone());
            for index in 0..cut.batches() {
                let share = order.sample_ids(index as u32).len();
                prop_assert!((1..=cut.rows()).contains(&share));
                for id in order.sample_ids(index as u32) {
                    seen[id as usize] += 1;
                }
            }
        }
        let added = match samples % batch {
            0 => 0,
            left => world.saturating_sub(left),
        };
        prop_assert!(seen.iter().all(|&count| count >= 1));
        prop_assert_eq!(seen.iter().sum::<u64>(), samples + added);
    }

    #[test]
    fn ranks_together_give_the_global_batches(samples in 1u64..300, batch in 1u64..64, world in 1u64..6, pad: bool) {
        let last = if pad { LastBatch::Pad } else { LastBatch::Drop };
        let one = order(5, 1, cut(samples, batch, last));
        for index in 0..cut(samples, batch, last).batches() as u32 {
            let joined: Vec<u64> = (0..world)
                .flat_map(|rank| {
                    let cut = EpochCut { rank, world, ..cut(samples, batch, last) };
                    order(5, 1, cut).sample_ids(index)
                })
                .collect();
            prop_assert_eq!(joined.len() as u64, batch);
            prop_assert_eq!(joined, one.sample_ids(index));
        }
    }
}
