use super::*;
use crate::schedule::{CPU, HeldResults, PlanEpoch, ProngId, ResultUse, Room, ScheduleConfig, Strategy};

const BATCHES: u32 = 10;
const EPOCHS: u32 = 2;
const DRIVE: ProngId = 1;

fn schedule(strategy: Strategy, plan: &[(u32, ProngId)]) -> Schedule {
    let replay = (0..EPOCHS).map(|epoch| PlanEpoch { epoch, deliveries: plan.to_vec() });
    let replay = if plan.is_empty() { Vec::new() } else { replay.collect() };
    Schedule::new(ScheduleConfig {
        strategy,
        batches: BATCHES,
        short_last: false,
        epochs: 0..EPOCHS,
        window: 4,
        drives: usize::from(!plan.is_empty()),
        delivered: Vec::new(),
        replay,
    })
}

fn finish(schedule: &mut Schedule, prong: ProngId, id: BatchId) {
    assert_eq!(schedule.executed(prong, id, 0.0), ResultUse::Used);
    schedule.finished(prong, id);
    while let Some((id, prong)) = schedule.deliverable() {
        schedule.deliver(id, prong);
    }
}

/// Runs the schedule to its end. The CPU has `in_work` batches in work at once; the drive, if any, works one batch
/// ahead of it. Returns the CPU's claims, and the announcements at each claim.
fn run(mut schedule: Schedule, in_work: usize, has_drive: bool) -> (Vec<BatchId>, Vec<Vec<BatchId>>) {
    let (mut announced, mut working) = (Announced::default(), Vec::new());
    let (mut claims, mut announcements) = (Vec::new(), Vec::new());
    while !schedule.is_done() {
        if has_drive && let Some(id) = schedule.claim(DRIVE, 0.0, Room::Any) {
            finish(&mut schedule, DRIVE, id);
        }
        if working.len() < in_work
            && let Some(id) = schedule.claim(CPU, 0.0, Room::Any)
        {
            announcements.push(announced.ahead_of(id, &schedule));
            assert!(announced.0.len() <= ANNOUNCED_BATCHES, "{:?} are remembered at {id:?}", announced.0);
            claims.push(id);
            working.push(id);
        } else if !working.is_empty() {
            finish(&mut schedule, CPU, working.remove(0));
        }
    }
    (claims, announcements)
}

fn of_epochs(batches: &[u32]) -> Vec<BatchId> {
    (0..EPOCHS).flat_map(|epoch| batches.iter().map(move |&batch| BatchId { epoch, batch })).collect()
}

/// Checks that each claim announces the batches that the CPU claims next, and none past the epoch's end.
fn check(claims: &[BatchId], announcements: &[Vec<BatchId>], expected: &[u32]) {
    assert_eq!(claims, of_epochs(expected));
    assert_eq!(announcements.concat(), claims, "every claimed batch is announced once, in the order of the claims");
    let mut known = 0;
    for (at, (id, announced)) in claims.iter().zip(announcements).enumerate() {
        known += announced.len();
        let rest = claims[at..].iter().filter(|later| later.epoch == id.epoch).count();
        assert_eq!(known - at, rest.min(1 + ANNOUNCED_BATCHES), "at {id:?}");
    }
}

#[test]
fn the_announced_batches_are_those_that_the_cpu_claims_next() {
    let all: Vec<u32> = (0..BATCHES).collect();
    for in_work in [1, 2, 5] {
        for strategy in [Strategy::Cpu, Strategy::Ordered, Strategy::Mte, Strategy::Wrr] {
            let (claims, announcements) = run(schedule(strategy, &[]), in_work, false);
            check(&claims, &announcements, &all);
        }
    }
}

#[test]
fn a_replayed_plan_determines_the_announcements() {
    let plan = [5, 0, 9, 1, 7, 2, 8, 3, 6, 4].map(|batch| (batch, if batch % 3 == 0 { DRIVE } else { CPU }));
    for in_work in [1, 2, 5] {
        let (claims, announcements) = run(schedule(Strategy::Ordered, &plan), in_work, true);
        check(&claims, &announcements, &[5, 1, 7, 2, 8, 4]);
    }
}

#[test]
fn a_drives_batch_is_announced_when_the_cpu_takes_it_over() {
    let mut schedule = schedule(Strategy::Ordered, &[(0, CPU), (1, DRIVE), (2, CPU), (3, CPU), (4, CPU)]);
    let mut announced = Announced::default();
    let mut claim = |schedule: &mut Schedule| {
        let id = schedule.claim(CPU, 0.0, Room::Any).expect("a batch for the CPU");
        announced.ahead_of(id, schedule).iter().map(|id| id.batch).collect::<Vec<_>>()
    };
    assert_eq!(claim(&mut schedule), [0, 2, 3]);
    schedule.prong_down(DRIVE, HeldResults::Lost);
    assert_eq!(claim(&mut schedule), [1], "batches announced before are not announced again");
}
