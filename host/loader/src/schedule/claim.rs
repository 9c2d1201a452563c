//! Chooses the batch that a prong prepares next.
//!
//! The CPU claims from the head, drives from the tail. Under `ordered`, every finished batch waits for the batches
//! before it. So a drive does not claim from the tail, but claims the first batch that it can finish before the CPU
//! would reach it: results wait briefly and in few slots, and delivery is even. Near the end of an epoch a prong
//! declines a batch that another one would finish sooner. A prong with nothing to claim takes over the outstanding
//! batch of another prong that would take longest, if the takeover is likely to be faster.
//!
//! The rate of a prong that declines everything is no longer measured, so one bad measurement would keep the prong idle
//! for ever. After [`PROBE_EVERY`] claims of other prongs, the idle prong claims a probe, which measures its rate: a
//! batch that another prong has just begun. Nobody waits for a probe, since the first prong to finish delivers the
//! batch.
//!
//! A prong that fetches samples before it prepares them claims a batch when it begins to fetch, and begins the batch at
//! its first row. Times count from there: a slow network does not make a fast CPU look slow.

use super::epoch::{BatchState, Epoch, Order};
use super::prong::{ActiveWork, Prong};
use super::{BatchId, CPU, ProngId, Room, Schedule, Strategy};

/// Batches that others claim before a prong that declines everything claims a probe.
pub(super) const PROBE_EVERY: u64 = 64;

/// An open batch that a prong might take.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    batch: u32,
    /// Open batches of its epoch that another prong would prepare up to this one, this one included.
    reach: u32,
}

impl Schedule {
    /// Claims a batch for a prong, which begins it at once; `None` when it has nothing to do now. `now` in seconds.
    pub fn claim(&mut self, prong: ProngId, now: f64, room: Room) -> Option<BatchId> {
        let id = self.claim_ahead(prong, now, room)?;
        self.begin(prong, id, now);
        Some(id)
    }

    /// Records that a prong begins a batch that it has claimed ahead. The batch takes a place for its rows from now on.
    pub fn begin(&mut self, prong: ProngId, id: BatchId, now: f64) {
        self.prongs[prong].begin(id, now);
    }

    /// Claims a batch that the prong will [begin](Self::begin) later.
    pub fn claim_ahead(&mut self, prong: ProngId, now: f64, room: Room) -> Option<BatchId> {
        if !self.prongs[prong].up {
            return None;
        }
        let id = self.open_batch(prong, now, room).or_else(|| self.takeover(prong, now, room));
        let id = id.or_else(|| self.claim_probe(prong, room))?;
        assert!(!self.prongs[prong].works_on(id), "a prong works on a batch once");
        let epoch = self.epoch_mut(id.epoch).expect("candidates belong to active epochs");
        let by = match epoch.state(id.batch) {
            BatchState::Working(by) => by.iter().copied().chain([prong]).collect(),
            _ => vec![prong],
        };
        epoch.set(id.batch, BatchState::Working(by));
        self.claims += 1;
        self.prongs[prong].last_claim = self.claims;
        self.prongs[prong].claim_ahead(id, now);
        self.turn_round();
        Some(id)
    }

    fn open_batch(&mut self, prong: ProngId, now: f64, room: Room) -> Option<BatchId> {
        let mut look_ahead = self.config.window;
        let mut at = 0;
        while at < self.epochs.len() || self.open_ahead() {
            let epoch = &self.epochs[at];
            let suits = |candidate: &Candidate| {
                self.is_awaited(BatchId { epoch: epoch.number, batch: candidate.batch })
                    || !self.declines(epoch, *candidate, prong, now)
            };
            let found = if self.goes_ahead(epoch, prong, room) {
                self.window(epoch, prong, look_ahead).find(suits)
            } else {
                let candidate = self.candidate(epoch, prong, look_ahead, room);
                // Here no CPU prepares the awaited batch, so a drive that filled its slots with later batches would
                // stop the run.
                if self.config.strategy == Strategy::Csd && candidate.is_some_and(|candidate| !suits(&candidate)) {
                    return None;
                }
                candidate.filter(suits)
            };
            if let Some(Candidate { batch, .. }) = found {
                return Some(BatchId { epoch: epoch.number, batch });
            }
            look_ahead = look_ahead.saturating_sub(epoch.batches() - epoch.first());
            at += 1;
        }
        None
    }

    /// Claims a probe for a prong that has claimed nothing for long: the batch that another prong began last.
    fn claim_probe(&mut self, prong: ProngId, room: Room) -> Option<BatchId> {
        let Prong { outstanding, last_claim, .. } = &self.prongs[prong];
        if room == Room::Critical || !outstanding.is_empty() || self.claims - last_claim < PROBE_EVERY {
            return None;
        }
        let numbered = self.prongs.iter().enumerate();
        let works = numbered.flat_map(|(number, other)| other.outstanding.iter().map(move |work| (number, work)));
        let suits = |&(other, work): &(ProngId, &ActiveWork)| {
            work.has_begun
                && self.is_alone_at(other, work.id)
                && self.shows_rate(work.id)
                && self
                    .epoch(work.id.epoch)
                    .is_some_and(|epoch| self.may_take(prong, epoch, work.id.batch) && !epoch.is_planned())
        };
        let (_, &ActiveWork { id, .. }) = works.filter(suits).max_by(|(_, a), (_, b)| a.since.total_cmp(&b.since))?;
        self.prongs[prong].probe = Some(id);
        Some(id)
    }

    /// Returns whether this prong alone works on the batch, and its result may still be used.
    fn is_alone_at(&self, prong: ProngId, id: BatchId) -> bool {
        let state = self.epoch(id.epoch).map(|epoch| epoch.state(id.batch));
        matches!(state, Some(BatchState::Working(by)) if by[..] == [prong])
    }

    /// Returns whether a drive looks for the first batch that it can finish in time: under `ordered`, once its rate is
    /// known. Until then it begins at the window's far end, which is safe.
    fn goes_ahead(&self, epoch: &Epoch, prong: ProngId, room: Room) -> bool {
        self.config.strategy == Strategy::Ordered
            && prong != CPU
            && self.prongs[prong].batch_s.is_some()
            && room == Room::Any
            && !epoch.is_planned()
    }

    /// Returns the open batches of the look-ahead window that the prong may take, upwards.
    fn window(&self, epoch: &Epoch, prong: ProngId, look_ahead: u32) -> impl Iterator<Item = Candidate> {
        (1..)
            .zip(epoch.open_up(epoch.first().saturating_add(look_ahead)))
            .filter(move |&(_, batch)| self.may_claim(prong, epoch, batch))
            .map(|(reach, batch)| Candidate { batch, reach })
    }

    /// Returns the open batch of an epoch that the prong would take.
    fn candidate(&self, epoch: &Epoch, prong: ProngId, look_ahead: u32, room: Room) -> Option<Candidate> {
        let reach = match self.config.strategy {
            Strategy::Mte | Strategy::Wrr => epoch.open_count(),
            // The candidate is the next batch in order. While a prong prepares it, a drive fills its slots with later
            // batches: with half of its share of the window filled, the drive still has room.
            _ => (self.config.window / (2 * self.config.drives as u32).max(1)).clamp(1, epoch.open_count().max(1)),
        };
        let whole = |batch| Candidate { batch, reach };
        if room == Room::Critical {
            return self.critical_candidate(epoch, prong).map(whole);
        }
        let end = match self.config.strategy {
            Strategy::Ordered => epoch.first().saturating_add(look_ahead),
            _ => u32::MAX,
        };
        self.in_turn(epoch, prong, end).next().map(whole)
    }

    /// Returns the open batches of an epoch that the prong may take, in the order in which it takes them; without a
    /// plan, only those below `end`.
    fn in_turn<'s>(&'s self, epoch: &'s Epoch, prong: ProngId, end: u32) -> Box<dyn Iterator<Item = u32> + 's> {
        if let Order::Planned(deliveries) = &epoch.order {
            return Box::new(deliveries.iter().filter_map(move |&(batch, planned)| {
                let is_its = self.planned_for(planned, epoch, batch) == prong;
                let may = is_its && epoch.is_open(batch) && !self.still_works_on(prong, epoch, batch);
                may.then_some(batch)
            }));
        }
        let may_claim = move |&batch: &u32| self.may_claim(prong, epoch, batch);
        match (self.config.strategy, prong) {
            (Strategy::Csd, _) => Box::new(epoch.open_up(end).filter(may_claim)),
            (_, CPU) if epoch.meeting_point().is_none() => Box::new(epoch.open_up(end).filter(may_claim)),
            _ => Box::new(epoch.open_down(end).filter(may_claim)),
        }
    }

    /// Returns the open batches of an active epoch in the order in which the CPU claims them, unless a drive claims
    /// them first.
    pub fn ahead_of_cpu(&self, epoch: u32) -> impl Iterator<Item = BatchId> {
        let epochs = self.epoch(epoch).into_iter();
        epochs.flat_map(|epoch| self.in_turn(epoch, CPU, u32::MAX).map(|batch| BatchId { epoch: epoch.number, batch }))
    }

    /// Returns whether a critical batch is open to the CPU.
    pub fn awaits_cpu(&self) -> bool {
        self.epochs.front().is_some_and(|epoch| self.critical_candidate(epoch, CPU).is_some())
    }

    fn critical_candidate(&self, epoch: &Epoch, prong: ProngId) -> Option<u32> {
        if self.current_epoch() != Some(epoch.number) {
            return None;
        }
        let may_claim = |&batch: &u32| self.may_claim(prong, epoch, batch);
        match epoch.order {
            Order::Wrr => epoch.open_up(u32::MAX).find(may_claim),
            _ => epoch.critical().filter(|&batch| epoch.is_open(batch)).filter(may_claim),
        }
    }

    /// Returns whether the prong may claim an open batch.
    fn may_claim(&self, prong: ProngId, epoch: &Epoch, batch: u32) -> bool {
        self.may_take(prong, epoch, batch) && !self.still_works_on(prong, epoch, batch)
    }

    /// Returns whether the prong has not stopped its work on a batch that is open again: another prong finished the
    /// batch first, but its result was lost or could not be used.
    fn still_works_on(&self, prong: ProngId, epoch: &Epoch, batch: u32) -> bool {
        self.prongs[prong].works_on(BatchId { epoch: epoch.number, batch })
    }

    /// Returns whether the prong may prepare a batch, alone or beside another prong. No drive may if a prong failed at
    /// the batch: the drive's result may be as useless, and would end the CPU's work on the batch each time.
    fn may_take(&self, prong: ProngId, epoch: &Epoch, batch: u32) -> bool {
        match (self.config.strategy, prong) {
            (Strategy::Cpu, prong) => prong == CPU,
            (Strategy::Csd, CPU) => epoch.has_failed(batch) || !self.any_drive_up(),
            (_, CPU) => true,
            _ => !epoch.has_failed(batch),
        }
    }

    /// Returns the prong that prepares a batch which the plan gives to the prong `planned`.
    fn planned_for(&self, planned: ProngId, epoch: &Epoch, batch: u32) -> ProngId {
        let is_usable = self.prongs.get(planned).is_some_and(|prong| prong.up);
        if epoch.has_failed(batch) || !is_usable { CPU } else { planned }
    }

    fn any_drive_up(&self) -> bool {
        self.prongs[1..].iter().any(|prong| prong.up)
    }

    /// Returns whether the prong should leave the batch to others, because one of them would finish it sooner, even
    /// after all batches that it would prepare first. Not used for an awaited batch, since the others may lack room.
    fn declines(&self, epoch: &Epoch, candidate: Candidate, prong: ProngId, now: f64) -> bool {
        if epoch.is_planned() {
            return false;
        }
        let Some(own) = self.finish_s(prong, 1, now) else { return false };
        let earlier: u32 =
            self.epochs.iter().take_while(|active| active.number < epoch.number).map(Epoch::open_count).sum();
        (0..self.prongs.len())
            .filter(|&other| other != prong && self.prongs[other].up && self.may_take(other, epoch, candidate.batch))
            .filter_map(|other| self.finish_s(other, earlier + candidate.reach, now))
            .any(|others| others < own)
    }

    /// Returns the seconds until the prong has finished its outstanding batches and `more` batches.
    fn finish_s(&self, prong: ProngId, more: u32, now: f64) -> Option<f64> {
        let prong = &self.prongs[prong];
        Some(prong.backlog_s(now)? + f64::from(more) * prong.batch_s?)
    }

    /// Finds the outstanding batch of another prong that is worth preparing twice.
    fn takeover(&self, prong: ProngId, now: f64, room: Room) -> Option<BatchId> {
        let own = self.prongs[prong].batch_s?;
        // Keeping a drive's last slot free is worth more than getting a batch a little sooner.
        let least = if prong != CPU && room == Room::Critical { 2.0 * own } else { own };
        // The CPU asks only when one of its threads is idle; a drive is idle when it has nothing queued.
        if prong != CPU && !self.prongs[prong].outstanding.is_empty() {
            return None;
        }
        // While the CPU has batches that it has not begun, it is idle only because it waits for samples or buffers.
        let only_critical = room == Room::Critical || self.prongs[prong].outstanding.iter().any(|work| !work.has_begun);
        let mut slowest: Option<(f64, BatchId)> = None;
        for other in (0..self.prongs.len()).filter(|&other| other != prong) {
            for (position, work) in self.prongs[other].outstanding.iter().enumerate() {
                let waits = self.expected_wait_s(other, position, work, own, now);
                // Under `csd`, too, the CPU relieves a drive that is overdue.
                let may_take = |epoch: &Epoch| prong == CPU || self.may_take(prong, epoch, work.id.batch);
                if self.is_alone_at(other, work.id)
                    && self.epoch(work.id.epoch).is_some_and(may_take)
                    && (!only_critical || self.is_critical(work.id))
                    && waits > least
                    && slowest.is_none_or(|(longest, _)| waits > longest)
                {
                    slowest = Some((waits, work.id));
                }
            }
        }
        slowest.map(|(_, id)| id)
    }

    /// Estimates how long an outstanding batch will still take. An overdue batch is expected to take as long again as
    /// it is overdue. A batch of a prong without a measured rate counts as overdue after four batches of the asking
    /// prong, and so does one that has not begun: its samples may never come.
    fn expected_wait_s(&self, prong: ProngId, position: usize, work: &ActiveWork, own: f64, now: f64) -> f64 {
        let overdue = now - work.since - 4.0 * own;
        match self.prongs[prong].remaining_s(position, now) {
            Some(remaining) if !work.has_begun => remaining.max(overdue),
            Some(remaining) if remaining >= 0.0 => remaining,
            Some(late) => -late,
            None => overdue,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ResultUse, ScheduleConfig};
    use super::*;

    /// Returns a schedule of two batches, whose prongs were all measured at one second a batch.
    fn measured(drives: usize) -> Schedule {
        let mut schedule = Schedule::new(ScheduleConfig {
            strategy: Strategy::Mte,
            batches: 2,
            short_last: false,
            epochs: 0..1,
            window: 2,
            drives,
            delivered: vec![],
            replay: vec![],
        });
        schedule.prongs.iter_mut().for_each(|prong| prong.batch_s = Some(1.0));
        schedule
    }

    #[test]
    fn an_epoch_begins_ahead_only_if_it_may() {
        let mut schedule = Schedule::new(ScheduleConfig { epochs: 0..3, ..measured(0).config });
        let claim = |schedule: &mut Schedule| schedule.claim(CPU, 0.0, Room::Any);
        assert!(schedule.let_begin(0) && !schedule.let_begin(0));
        assert_eq!([claim(&mut schedule), claim(&mut schedule)], [Some(HEAD), Some(TAIL)]);
        assert_eq!(claim(&mut schedule), None);
        assert!(schedule.let_begin(1));
        let claimed = claim(&mut schedule);
        assert_eq!(claimed, Some(BatchId { epoch: 1, batch: 0 }));
        // Delivery goes on with the next epoch in any case.
        for id in [HEAD, TAIL] {
            schedule.executed(CPU, id, 1.0);
            schedule.finished(CPU, id);
            schedule.deliver(id, CPU);
        }
        assert_eq!(schedule.current_epoch(), Some(1));
    }

    const HEAD: BatchId = BatchId { epoch: 0, batch: 0 };
    const TAIL: BatchId = BatchId { epoch: 0, batch: 1 };

    #[test]
    fn a_prong_does_not_claim_a_batch_that_it_still_works_on() {
        let mut schedule = measured(1);
        assert_eq!(schedule.claim(1, 0.0, Room::Any), Some(TAIL));
        assert_eq!(schedule.claim(CPU, 0.0, Room::Any), Some(HEAD));
        assert_eq!(schedule.claim(CPU, 3.0, Room::Any), Some(TAIL), "the drive is overdue");
        // The drive finishes first after all, with a result that cannot be used.
        assert_eq!(schedule.executed(1, TAIL, 3.5), ResultUse::Used);
        schedule.failed(1, TAIL, 3.5);
        assert!(schedule.is_open(TAIL));
        assert_eq!(schedule.claim(CPU, 3.5, Room::Any), None);
        assert_eq!(schedule.take_cancels(CPU), [TAIL]);
        schedule.cancelled(CPU, TAIL, 3.6);
        assert_eq!(schedule.claim(CPU, 3.6, Room::Any), Some(TAIL));
        schedule.assert_all_in_work();
    }

    #[test]
    fn a_prong_does_not_take_over_its_own_batch_from_one_that_works_on_it_in_vain() {
        let mut schedule = measured(2);
        assert_eq!(schedule.claim(CPU, 0.0, Room::Any), Some(HEAD));
        assert_eq!(schedule.claim(1, 0.0, Room::Any), Some(TAIL));
        assert_eq!(schedule.executed(CPU, HEAD, 1.0), ResultUse::Used);
        assert_eq!(schedule.claim(2, 3.0, Room::Any), Some(TAIL), "the first drive is overdue");
        assert_eq!(schedule.executed(1, TAIL, 3.5), ResultUse::Used);
        schedule.failed(1, TAIL, 3.5);
        assert_eq!(schedule.claim(CPU, 3.5, Room::Any), Some(TAIL));
        assert_eq!(schedule.claim(CPU, 99.0, Room::Any), None, "the second drive has not stopped yet");
        schedule.assert_all_in_work();
    }

    #[test]
    fn a_drive_that_failed_beside_the_cpu_does_not_take_the_batch_again() {
        let mut schedule = measured(1);
        assert_eq!(schedule.claim(1, 0.0, Room::Any), Some(TAIL));
        assert_eq!(schedule.claim(CPU, 0.0, Room::Any), Some(HEAD));
        assert_eq!(schedule.claim(CPU, 3.0, Room::Any), Some(TAIL), "the drive is overdue");
        schedule.failed(1, TAIL, 3.5);
        assert_eq!(schedule.claim(1, 99.0, Room::Any), Some(HEAD), "the CPU is overdue at both");
        assert_eq!(schedule.executed(1, HEAD, 100.0), ResultUse::Used);
        assert_eq!(schedule.claim(1, 999.0, Room::Any), None);
        schedule.assert_all_in_work();
    }
}
