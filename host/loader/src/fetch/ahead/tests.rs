use super::*;
use crate::schedule::{CPU, ProngId, ResultUse, ScheduleConfig, Strategy};
use proptest::prelude::*;

const DRIVE: ProngId = 1;
const SAMPLE_BYTES: u64 = 100;

fn id(batch: u32) -> BatchId {
    BatchId { epoch: 0, batch }
}

fn schedule(strategy: Strategy) -> Schedule {
    Schedule::new(ScheduleConfig {
        strategy,
        batches: 8,
        short_last: false,
        epochs: 0..1,
        window: 8,
        drives: 1,
        delivered: Vec::new(),
        replay: Vec::new(),
    })
}

/// Returns a stage whose first samples are expected to have [`SAMPLE_BYTES`].
fn stage(bytes: u64, batches: usize) -> FetchAhead<u64> {
    let mut stage = FetchAhead::new(AheadBounds { bytes, batches });
    stage.average_bytes = SAMPLE_BYTES;
    stage
}

/// Claims as much as there is room for, batches of four samples.
fn claim(stage: &mut FetchAhead<u64>, schedule: &mut Schedule) -> Vec<u32> {
    let mut claimed = Vec::new();
    while let Some(room) = stage.claim_room(schedule)
        && let Some(id) = schedule.claim_ahead(CPU, 0.0, room)
    {
        let first = u64::from(id.batch) * 4;
        stage.claimed(id, (first..first + 4).collect(), None);
        claimed.push(id.batch);
    }
    claimed
}

fn start(stage: &mut FetchAhead<u64>, schedule: &Schedule) -> Vec<FetchTicket> {
    std::iter::from_fn(|| stage.next(schedule)).collect()
}

fn sample_ids(tickets: &[FetchTicket]) -> Vec<u64> {
    tickets.iter().map(|ticket| ticket.sample_id).collect()
}

fn fetch(stage: &mut FetchAhead<u64>, ticket: FetchTicket) {
    assert_eq!(stage.fetched(ticket, SAMPLE_BYTES, ticket.sample_id), None);
}

#[test]
fn samples_are_fetched_in_the_order_of_the_claims_up_to_the_bound() {
    let (mut schedule, mut stage) = (schedule(Strategy::Cpu), stage(600, 3));
    assert_eq!(claim(&mut stage, &mut schedule), [0], "the next one only when all samples of this one are in flight");
    let first = start(&mut stage, &schedule);
    assert_eq!(sample_ids(&first), [0, 1, 2, 3]);
    assert_eq!(claim(&mut stage, &mut schedule), [1]);
    let second = start(&mut stage, &schedule);
    assert_eq!(sample_ids(&second), [4, 5], "six samples reach the bound");
    first.into_iter().chain(second).for_each(|ticket| fetch(&mut stage, ticket));
    assert_eq!((start(&mut stage, &schedule).len(), claim(&mut stage, &mut schedule).len()), (0, 0));
    assert_eq!(stage.take(9, &mut Vec::new()), None, "no batch has begun");
    assert_eq!(stage.to_begin(&schedule, true), Some(id(0)));
    schedule.begin(CPU, id(0), 0.0);
    stage.begin(id(0));
    let mut samples = Vec::new();
    assert_eq!(stage.take(3, &mut samples), Some((id(0), 0..3)));
    assert_eq!(samples, [0, 1, 2]);
    assert_eq!(sample_ids(&start(&mut stage, &schedule)), [6, 7], "what was taken makes room");
    assert_eq!(claim(&mut stage, &mut schedule), [2]);
}

#[test]
fn no_more_samples_are_in_flight_than_the_depth() {
    let (mut schedule, mut stage) = (schedule(Strategy::Cpu), stage(10_000, 3).with_depth(Depth::fixed(3)));
    claim(&mut stage, &mut schedule);
    let tickets = start(&mut stage, &schedule);
    assert_eq!(sample_ids(&tickets), [0, 1, 2]);
    fetch(&mut stage, tickets[1]);
    assert_eq!(sample_ids(&start(&mut stage, &schedule)), [3]);
    assert_eq!(claim(&mut stage, &mut schedule), [1]);
    assert_eq!(start(&mut stage, &schedule).len(), 0);
}

#[test]
fn out_of_order_a_sample_goes_to_the_oldest_batch_that_waits() {
    let (mut schedule, mut stage) = (schedule(Strategy::Cpu), stage(10_000, 9));
    let mut all = Vec::new();
    for among in [Some(0), Some(0), Some(1), None] {
        let room = stage.claim_room(&schedule).unwrap();
        let id = schedule.claim_ahead(CPU, 0.0, room).unwrap();
        let samples: Samples = (0..2).map(|row| u64::from(id.batch) * 2 + row).collect();
        stage.claimed(id, samples.clone(), among);
        all.push((samples, start(&mut stage, &schedule)));
    }
    let of = |batch: usize| [0, 1].map(|row| all[batch].0.of(row));
    // Sample 3 comes first; its row then waits for sample 0, which comes last.
    fetch(&mut stage, all[1].1[1]);
    assert_eq!((of(0), of(1)), ([3, 1], [2, 0]));
    fetch(&mut stage, all[2].1[0]);
    fetch(&mut stage, all[3].1[0]);
    assert_eq!((of(2), of(3)), ([4, 5], [6, 7]), "of another bucket, and one that exchanges nothing");
    fetch(&mut stage, all[1].1[0]);
    assert_eq!((of(0), of(1)), ([3, 2], [1, 0]));
    stage.begin(id(0));
    let mut samples = Vec::new();
    assert_eq!(stage.take(9, &mut samples), Some((id(0), 0..2)));
    assert_eq!(samples, [3, 2]);
    fetch(&mut stage, all[0].1[0]);
    assert_eq!((of(1), stage.in_flight), ([1, 0], 3));
}

#[test]
fn the_ramp_up_adds_a_batch_for_each_few_that_the_consumer_gets() {
    let (mut schedule, mut stage) = (schedule(Strategy::Cpu), stage(10_000, 9).with_ramp(2));
    let mut claimed = |stage: &mut FetchAhead<u64>| {
        let mut all = Vec::new();
        while let [batch] = claim(stage, &mut schedule)[..] {
            all.push(batch);
            start(stage, &schedule);
        }
        all
    };
    assert_eq!(claimed(&mut stage), [0]);
    stage.consumed();
    assert!(claimed(&mut stage).is_empty());
    stage.consumed();
    assert_eq!(claimed(&mut stage), [1]);
    (0..4).for_each(|_| stage.consumed());
    assert_eq!(claimed(&mut stage), [2, 3]);
}

#[test]
fn a_sample_that_is_larger_than_the_bound_is_fetched_alone() {
    let (mut schedule, mut stage) = (schedule(Strategy::Cpu), stage(50, 1));
    claim(&mut stage, &mut schedule);
    for sample in 0..4 {
        let next = start(&mut stage, &schedule);
        assert_eq!(sample_ids(&next), [sample]);
        fetch(&mut stage, next[0]);
        assert_eq!((start(&mut stage, &schedule).len(), claim(&mut stage, &mut schedule).len()), (0, 0));
        if sample == 0 {
            schedule.begin(CPU, id(0), 0.0);
            stage.begin(id(0));
        }
        assert!(stage.take(1, &mut Vec::new()).is_some());
    }
    assert_eq!(claim(&mut stage, &mut schedule), [1]);
}

#[test]
fn a_batch_that_has_begun_and_the_awaited_one_are_fetched_up_to_the_bound_beyond_all_others() {
    let (mut schedule, mut stage) = (schedule(Strategy::Ordered), stage(200, 3));
    let taken: Vec<BatchId> = std::iter::from_fn(|| schedule.claim(DRIVE, 0.0, Room::Any)).collect();
    taken.iter().filter(|id| id.batch > 0).for_each(|&id| schedule.returned(DRIVE, id, 0.0));
    assert_eq!(claim(&mut stage, &mut schedule), [1]);
    let tickets = start(&mut stage, &schedule);
    assert_eq!(sample_ids(&tickets), [4, 5], "two samples reach the bound");
    tickets.into_iter().for_each(|ticket| fetch(&mut stage, ticket));
    schedule.begin(CPU, id(1), 0.0);
    stage.begin(id(1));
    assert_eq!(start(&mut stage, &schedule).len(), 0, "the rows that wait make room when they are taken");
    schedule.failed(DRIVE, id(0), 1.0);
    assert_eq!(claim(&mut stage, &mut schedule), [0]);
    let tickets = start(&mut stage, &schedule);
    assert_eq!(sample_ids(&tickets), [0, 1], "the awaited batch up to the bound");
    assert!(stage.take(1, &mut Vec::new()).is_some());
    assert_eq!(sample_ids(&start(&mut stage, &schedule)), [6], "the batch that has begun up to the bound");
    assert!(!stage.has_work(&schedule));
}

#[test]
fn rows_are_prepared_in_runs_of_what_has_come() {
    let (mut schedule, mut stage) = (schedule(Strategy::Cpu), stage(10_000, 1));
    claim(&mut stage, &mut schedule);
    let tickets = start(&mut stage, &schedule);
    assert_eq!(stage.to_begin(&schedule, false), None, "no row has come");
    [0, 2, 3].into_iter().for_each(|at| fetch(&mut stage, tickets[at]));
    schedule.begin(CPU, id(0), 0.0);
    let samples = stage.begin(id(0));
    assert_eq!([0, 1, 2, 3].map(|row| samples.of(row)), [0, 1, 2, 3]);
    let mut samples = Vec::new();
    assert_eq!(stage.take(9, &mut samples), Some((id(0), 0..1)));
    assert_eq!(stage.take(9, &mut samples), Some((id(0), 2..4)));
    assert_eq!(stage.take(9, &mut samples), None);
    fetch(&mut stage, tickets[1]);
    assert_eq!(stage.take(9, &mut samples), Some((id(0), 1..2)));
    assert_eq!((samples, stage.batches.len()), (vec![0, 2, 3, 1], 0));
}

#[test]
fn the_batch_for_which_delivery_waits_is_claimed_fetched_and_begun_before_all_others() {
    let (mut schedule, mut stage) = (schedule(Strategy::Ordered), stage(800, 2));
    // The drive has the first batch.
    let taken: Vec<BatchId> = std::iter::from_fn(|| schedule.claim(DRIVE, 0.0, Room::Any)).collect();
    taken.iter().filter(|id| id.batch > 0).for_each(|&id| schedule.returned(DRIVE, id, 0.0));
    assert!(taken.contains(&id(0)) && schedule.is_critical(id(0)));
    let mut tickets = Vec::new();
    for batch in [1, 2] {
        assert_eq!(claim(&mut stage, &mut schedule), [batch]);
        tickets.extend(start(&mut stage, &schedule));
    }
    assert_eq!(sample_ids(&tickets), [4, 5, 6, 7, 8, 9, 10, 11]);
    tickets.into_iter().for_each(|ticket| fetch(&mut stage, ticket));
    assert_eq!(stage.to_begin(&schedule, true), None, "nothing that is here may take the last buffer");
    assert_eq!(claim(&mut stage, &mut schedule).len(), 0);
    schedule.failed(DRIVE, id(0), 1.0);
    assert_eq!(claim(&mut stage, &mut schedule), [0]);
    assert!(schedule.must_reserve(), "it has no buffer yet");
    let tickets = start(&mut stage, &schedule);
    assert_eq!(sample_ids(&tickets), [0, 1, 2, 3]);
    fetch(&mut stage, tickets[1]);
    assert_eq!(stage.to_begin(&schedule, true), Some(id(0)));
    assert_eq!(stage.to_begin(&schedule, false), Some(id(0)), "before the batches that were claimed first");
    schedule.begin(CPU, id(0), 1.0);
    stage.begin(id(0));
    assert!(!schedule.must_reserve());
    assert_eq!(stage.to_begin(&schedule, false), Some(id(1)));
}

#[test]
fn a_batch_that_was_given_up_leaves_nothing_behind() {
    let (mut schedule, mut stage) = (schedule(Strategy::Mte), stage(10_000, 1));
    claim(&mut stage, &mut schedule);
    let tickets = start(&mut stage, &schedule);
    fetch(&mut stage, tickets[0]);
    assert!(stage.will_begin(id(0)));
    let given_up = |stage: &mut FetchAhead<u64>| stage.take_given_up(tickets[1..].iter().copied());
    assert!(given_up(&mut stage).is_empty());
    stage.remove(id(0));
    assert_eq!(given_up(&mut stage), tickets[1..]);
    assert!(given_up(&mut stage).is_empty(), "they are told once");
    schedule.returned(CPU, id(0), 0.0);
    assert_eq!(stage.waiting_bytes(), 0);
    assert_eq!(claim(&mut stage, &mut schedule), [0], "it may be claimed again");
    assert_eq!(stage.fetched(tickets[1], SAMPLE_BYTES, 77), Some(77), "a sample of the first claim comes too late");
    assert_eq!(stage.waiting_bytes(), 0);
    let again = start(&mut stage, &schedule);
    assert_eq!(sample_ids(&again), [0, 1, 2, 3]);
    again.into_iter().for_each(|ticket| fetch(&mut stage, ticket));
    tickets[2..].iter().for_each(|&ticket| assert_eq!(stage.fetched(ticket, SAMPLE_BYTES, 0), Some(0)));
    assert_eq!((stage.in_flight, stage.waiting_bytes()), (0, 400));
}

proptest! {
    /// Every row is taken once, whatever order the samples come in, with any bound and any chunks.
    #[test]
    fn every_row_once(
        bytes in 1u64..2000,
        batches in 1usize..4,
        reads in 1usize..6,
        steps in prop::collection::vec((any::<prop::sample::Index>(), 1usize..6), 1..40),
    ) {
        let (mut schedule, mut stage) = (schedule(Strategy::Cpu), stage(bytes, batches));
        let (mut flying, mut taken, mut steps) = (Vec::new(), Vec::new(), steps.into_iter().cycle());
        let (mut left, mut working) = (std::collections::BTreeMap::new(), 0);
        while !schedule.is_done() {
            let (choice, most) = steps.next().unwrap();
            while flying.len() < reads {
                match stage.next(&schedule) {
                    Some(ticket) => flying.push(ticket),
                    None => match claim(&mut stage, &mut schedule)[..] {
                        [] => break,
                        _ => continue,
                    },
                }
            }
            if !flying.is_empty() {
                fetch(&mut stage, flying.swap_remove(choice.index(flying.len())));
            }
            // One buffer.
            if working == 0 && let Some(id) = stage.to_begin(&schedule, true) {
                schedule.begin(CPU, id, 0.0);
                left.insert(id, stage.begin(id).len());
                working += 1;
            }
            let mut samples = Vec::new();
            if let Some((id, rows)) = stage.take(most, &mut samples) {
                let first = u64::from(id.batch) * 4;
                let expected: Vec<u64> = rows.clone().map(|row| first + row as u64).collect();
                prop_assert_eq!(&samples, &expected);
                taken.extend(samples);
                let left = left.get_mut(&id).unwrap();
                *left -= rows.len();
                if *left == 0 {
                    prop_assert_eq!(schedule.executed(CPU, id, 0.0), ResultUse::Used);
                    schedule.finished(CPU, id);
                    let (id, prong) = schedule.deliverable().unwrap();
                    schedule.deliver(id, prong);
                    working -= 1;
                }
            }
            prop_assert!(stage.waiting_bytes() <= bytes + 5 * SAMPLE_BYTES, "{} bytes", stage.waiting_bytes());
        }
        taken.sort_unstable();
        prop_assert_eq!(taken, (0..32).collect::<Vec<u64>>());
        prop_assert_eq!((stage.in_flight, stage.waiting_bytes(), stage.batches.len()), (0, 0, 0));
    }
}
