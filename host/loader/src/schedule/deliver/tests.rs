use super::super::{Room, ScheduleConfig, Strategy};
use super::*;

fn schedule(strategy: Strategy) -> Schedule {
    let config = ScheduleConfig {
        strategy,
        batches: 10,
        short_last: false,
        epochs: 0..1,
        window: 10,
        drives: 1,
        delivered: vec![],
        replay: vec![],
    };
    Schedule::new(config)
}

/// Lets each prong in `claims` claim a batch, and makes all batches ready but the first.
fn make(schedule: &mut Schedule, claims: &[ProngId]) {
    for (number, &prong) in claims.iter().enumerate() {
        let id = schedule.claim(prong, 0.0, Room::Any).expect("something is open");
        if number > 0 {
            assert_eq!(schedule.executed(prong, id, 1.0), super::super::ResultUse::Used);
            assert!(schedule.finished(prong, id));
        }
    }
}

fn given(schedule: &mut Schedule) -> Option<(u32, ProngId)> {
    schedule.give_way(|_| true).map(|(id, maker)| (id.batch, maker))
}

#[test]
fn the_batch_that_is_delivered_last_gives_way() {
    let mut in_order = schedule(Strategy::Ordered);
    make(&mut in_order, &[CPU; 4]);
    assert_eq!(in_order.give_way(|id| id.batch != 3), Some((BatchId { epoch: 0, batch: 2 }, CPU)));
    assert_eq!(
        [given(&mut in_order), given(&mut in_order), given(&mut in_order)],
        [Some((3, CPU)), Some((1, CPU)), None]
    );

    let mut from_both_ends = schedule(Strategy::Mte);
    make(&mut from_both_ends, &[CPU, CPU, 1, 1]);
    let mut give = || given(&mut from_both_ends);
    assert_eq!([give(), give(), give(), give()], [Some((8, 1)), Some((9, 1)), Some((1, CPU)), None]);

    let mut downwards = schedule(Strategy::Mte);
    make(&mut downwards, &[CPU, CPU, CPU]);
    downwards.epochs[0].order = Order::Mte { met: Some(0) };
    assert_eq!([given(&mut downwards), given(&mut downwards)], [Some((1, CPU)), Some((2, CPU))]);

    let mut planned = schedule(Strategy::Ordered);
    make(&mut planned, &[CPU; 4]);
    planned.epochs[0].order = Order::Planned(vec![(0, CPU), (3, CPU), (1, CPU), (2, CPU)]);
    assert_eq!([given(&mut planned), given(&mut planned)], [Some((2, CPU)), Some((1, CPU))]);
}

#[test]
fn a_batch_that_gave_way_is_the_cpus_alone_only_if_a_prong_failed_at_it() {
    let mut schedule = schedule(Strategy::Mte);
    make(&mut schedule, &[CPU, CPU, 1]);
    assert_eq!([given(&mut schedule), given(&mut schedule)], [Some((9, 1)), Some((1, CPU))]);
    let id = schedule.claim(1, 2.0, Room::Any).expect("its batch is open again");
    assert_eq!(id.batch, 9);
    schedule.failed(1, id, 3.0);
    let epoch = &schedule.epochs[0];
    assert!(epoch.is_open(9) && epoch.is_open(1));
    assert_eq!([epoch.has_failed(9), epoch.has_failed(1)], [true, false]);
}

#[test]
fn a_batch_given_up_meanwhile_does_not_become_ready() {
    let mut schedule = schedule(Strategy::Mte);
    let id = schedule.claim(1, 0.0, Room::Any).expect("the tail is open");
    assert_eq!(schedule.executed(1, id, 1.0), super::super::ResultUse::Used);
    schedule.prong_down(1, super::super::HeldResults::Lost);
    assert!(!schedule.is_wanted(1, id) && !schedule.finished(1, id) && schedule.is_open(id));
}

#[test]
fn a_batch_that_gave_way_is_not_claimed_by_a_prong_that_still_works_on_it() {
    let mut schedule = schedule(Strategy::Ordered);
    make(&mut schedule, &[CPU; 10]);
    schedule.epochs[0].order = Order::Planned((0..10).map(|batch| (batch, 1)).collect());
    // As after a takeover, before the drive's command has ended.
    let id = BatchId { epoch: 0, batch: 9 };
    schedule.prongs[1].claim_ahead(id, 0.0);
    assert_eq!(given(&mut schedule), Some((9, CPU)));
    assert_eq!(schedule.claim(1, 1.0, Room::Any), None);
    schedule.cancelled(1, id, 1.0);
    assert_eq!(schedule.claim(1, 1.0, Room::Any), Some(id));
}
