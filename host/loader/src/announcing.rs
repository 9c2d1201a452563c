//! Which samples the dataset is told that they will be read soon: those of the batches that the CPU prong comes to next.

use crate::schedule::{BatchId, Schedule};
use std::collections::BTreeSet;

/// Batches whose samples are announced to the dataset before the CPU comes to them: reading them takes less time than preparing one.
const ANNOUNCED_BATCHES: usize = 2;

/// Batches that were announced and that nobody has claimed yet.
#[derive(Default)]
pub(crate) struct Announced(BTreeSet<BatchId>);

impl Announced {
    /// Those to announce when the CPU has claimed a batch: itself and the next ones of its epoch, as far as they were not announced yet.
    pub fn ahead_of(&mut self, id: BatchId, schedule: &Schedule) -> Vec<BatchId> {
        let next = schedule.ahead_of_cpu(id.epoch).take(ANNOUNCED_BATCHES);
        let ahead = [id].into_iter().chain(next).filter(|&id| self.0.insert(id)).collect();
        // Nobody comes to the others again, unless a drive fails.
        self.0.retain(|&id| schedule.is_open(id));
        ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PlanEpoch;
    use crate::schedule::{CPU, Finished, HeldResults, ProngId, Room, ScheduleConfig, Strategy};

    const BATCHES: u32 = 10;
    const EPOCHS: u32 = 2;
    const DRIVE: ProngId = 1;

    fn schedule(strategy: Strategy, plan: &[(u32, ProngId)]) -> Schedule {
        let replay = (0..EPOCHS).map(|epoch| PlanEpoch { epoch, deliveries: plan.to_vec() });
        let replay = if plan.is_empty() { Vec::new() } else { replay.collect() };
        Schedule::new(ScheduleConfig {
            strategy,
            batches: BATCHES,
            epochs: 0..EPOCHS,
            window: 4,
            drives: usize::from(!plan.is_empty()),
            delivered: Vec::new(),
            replay,
        })
    }

    fn finish(schedule: &mut Schedule, prong: ProngId, id: BatchId) {
        assert_eq!(schedule.executed(prong, id, 0.0), Finished::Used);
        schedule.finished(prong, id);
        while let Some((id, prong)) = schedule.deliverable() {
            schedule.deliver(id, prong);
        }
    }

    /// Runs to the end with so many batches of the CPU in work at once, and the drive one ahead of it. Returns what the CPU claimed, and
    /// what was announced at each claim.
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
                assert!(announced.0.len() <= ANNOUNCED_BATCHES, "{:?} are kept in mind at {id:?}", announced.0);
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

    /// What is announced at each claim is what is claimed next, and never past the epoch's end.
    fn check(claims: &[BatchId], announcements: &[Vec<BatchId>], expected: &[u32]) {
        assert_eq!(claims, of_epochs(expected));
        assert_eq!(announcements.concat(), claims, "all that is claimed, in its order and once");
        let mut known = 0;
        for (at, (id, announced)) in claims.iter().zip(announcements).enumerate() {
            known += announced.len();
            let rest = claims[at..].iter().filter(|later| later.epoch == id.epoch).count();
            assert_eq!(known - at, rest.min(1 + ANNOUNCED_BATCHES), "at {id:?}");
        }
    }

    #[test]
    fn what_is_announced_is_what_the_cpu_claims_next() {
        let all: Vec<u32> = (0..BATCHES).collect();
        for in_work in [1, 2, 5] {
            for strategy in [Strategy::Cpu, Strategy::Ordered, Strategy::Mte, Strategy::Wrr] {
                let (claims, announcements) = run(schedule(strategy, &[]), in_work, false);
                check(&claims, &announcements, &all);
            }
        }
    }

    #[test]
    fn a_plan_says_what_the_cpu_claims_next() {
        let plan = [5, 0, 9, 1, 7, 2, 8, 3, 6, 4].map(|batch| (batch, if batch % 3 == 0 { DRIVE } else { CPU }));
        for in_work in [1, 2, 5] {
            let (claims, announcements) = run(schedule(Strategy::Ordered, &plan), in_work, true);
            check(&claims, &announcements, &[5, 1, 7, 2, 8, 4]);
        }
    }

    #[test]
    fn what_a_drive_has_is_announced_when_the_cpu_takes_it_over() {
        let mut schedule = schedule(Strategy::Ordered, &[(0, CPU), (1, DRIVE), (2, CPU), (3, CPU), (4, CPU)]);
        let mut announced = Announced::default();
        let mut claim = |schedule: &mut Schedule| {
            let id = schedule.claim(CPU, 0.0, Room::Any).expect("a batch for the CPU");
            announced.ahead_of(id, schedule).iter().map(|id| id.batch).collect::<Vec<_>>()
        };
        assert_eq!(claim(&mut schedule), [0, 2, 3]);
        schedule.prong_down(DRIVE, HeldResults::Lost);
        assert_eq!(claim(&mut schedule), [1], "what was announced before is not announced again");
    }
}
