//! The simulated host: the real schedule, a CPU prong with one thread, buffers and a consumer.

use crate::engine::GivenUp;
use crate::schedule::{BatchId, CPU, ProngId, ResultUse, Room, Schedule, ScheduleConfig, Strategy};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Options of a simulated host.
#[derive(Clone, Debug)]
pub(super) struct HostWorld {
    pub strategy: Strategy,
    pub batches: u32,
    pub epochs: u32,
    pub drives: usize,
    pub buffers: usize,
    pub cpu_batch: Duration,
    pub step: Duration,
}

/// A finished batch: the prong that made it, and the slot in which it lies, if it lies in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stored {
    maker: ProngId,
    slot: Option<u32>,
}

pub(super) struct Host {
    pub schedule: Schedule,
    world: HostWorld,
    begun: Instant,
    stored: BTreeMap<BatchId, Stored>,
    /// Verdicts of drives that the CPU has to confirm, each with the drive.
    doubts: BTreeMap<BatchId, ProngId>,
    /// For each prong, refuted verdicts that its thread has not taken yet.
    pub refuted: Vec<u32>,
    /// Whether a drive ended the run.
    pub is_refused: bool,
    cpu: Option<(BatchId, Instant)>,
    consumer_free: Instant,
    pub delivered: Vec<BatchId>,
}

impl Host {
    pub fn new(world: HostWorld, begun: Instant) -> Self {
        let config = ScheduleConfig {
            strategy: world.strategy,
            batches: world.batches,
            short_last: false,
            epochs: 0..world.epochs,
            window: 12,
            drives: world.drives,
            delivered: Vec::new(),
            replay: Vec::new(),
        };
        Self {
            schedule: Schedule::new(config),
            refuted: vec![0; world.drives + 1],
            world,
            begun,
            stored: BTreeMap::new(),
            doubts: BTreeMap::new(),
            is_refused: false,
            cpu: None,
            consumer_free: begun,
            delivered: Vec::new(),
        }
    }

    pub fn seconds(&self, now: Instant) -> f64 {
        (now - self.begun).as_secs_f64()
    }

    fn consumer_waits(&self, now: Instant) -> bool {
        now >= self.consumer_free
    }

    fn free(&self) -> usize {
        let finished = self.stored.values().filter(|stored| stored.slot.is_none()).count();
        self.world.buffers.saturating_sub(finished + usize::from(self.cpu.is_some()))
    }

    fn room(&self) -> Option<Room> {
        match self.free() {
            0 => None,
            1 if self.schedule.must_reserve() => Some(Room::Critical),
            _ => Some(Room::Any),
        }
    }

    /// Returns whether a drive's finished batch can be fetched now.
    pub fn has_place(&self, prong: ProngId, id: BatchId) -> bool {
        !self.schedule.is_wanted(prong, id)
            || match self.room() {
                None => false,
                Some(Room::Critical) => self.schedule.is_critical(id),
                Some(Room::Any) => true,
            }
    }

    /// Makes a drive's batch ready, which lies in this slot or in a buffer.
    pub fn finish(&mut self, prong: ProngId, id: BatchId, slot: Option<u32>) {
        assert!(self.schedule.finished(prong, id), "{id:?} was wanted");
        assert_eq!(self.stored.insert(id, Stored { maker: prong, slot }), None, "{id:?} is made once");
    }

    /// Gives up a drive's batch, as `Engine::give_up` does.
    pub fn give_up(&mut self, prong: ProngId, id: BatchId, why: &GivenUp, now: Instant) {
        let now = self.seconds(now);
        match why {
            GivenUp::Failed { .. } | GivenUp::LeftToHost { .. } => self.schedule.failed(prong, id, now),
            GivenUp::Doubted { .. } => {
                self.schedule.failed(prong, id, now);
                self.doubts.insert(id, prong);
            }
            GivenUp::Returned => self.schedule.returned(prong, id, now),
            GivenUp::Cancelled => self.schedule.cancelled(prong, id, now),
        }
    }

    /// Returns the number of a drive's slots that hold finished batches.
    pub fn slots_of(&self, prong: ProngId) -> usize {
        self.stored.values().filter(|stored| stored.maker == prong && stored.slot.is_some()).count()
    }

    /// Begins again with another schedule at the same position, as `Loader::go_to` does. Returns the drives' slots that
    /// are free now.
    pub fn go_to(&mut self) -> Vec<(ProngId, u32)> {
        let epoch = self.schedule.current_epoch().expect("the run is not over");
        self.schedule = self.schedule.beginning_at(epoch, self.schedule.delivered());
        self.cpu = None;
        self.doubts.clear();
        self.refuted.fill(0);
        let stored = std::mem::take(&mut self.stored).into_values();
        stored.filter_map(|stored| Some((stored.maker, stored.slot?))).collect()
    }

    /// Lets CPU and consumer do what they can. Returns the drives' slots that are free now.
    pub fn go_on(&mut self, now: Instant) -> Vec<(ProngId, u32)> {
        self.work(now);
        let mut freed = Vec::new();
        while self.consumer_waits(now)
            && let Some((id, prong)) = self.schedule.deliverable()
        {
            self.schedule.deliver(id, prong);
            let stored = self.stored.remove(&id).expect("what is ready is stored");
            assert_eq!(stored.maker, prong);
            freed.extend(stored.slot.map(|slot| (prong, slot)));
            self.delivered.push(id);
            self.consumer_free = now + self.world.step;
        }
        self.claim(now);
        freed
    }

    fn work(&mut self, now: Instant) {
        for id in self.schedule.take_cancels(CPU) {
            if self.cpu.take_if(|(at_work, _)| *at_work == id).is_some() {
                self.schedule.cancelled(CPU, id, self.seconds(now));
            }
        }
        let Some((id, _)) = self.cpu.take_if(|(_, ends)| *ends <= now) else { return };
        if self.schedule.executed(CPU, id, self.seconds(now)) == ResultUse::Used {
            self.finish(CPU, id, None);
            if let Some(prong) = self.doubts.remove(&id) {
                self.refuted[prong] += 1;
            }
        }
    }

    fn claim(&mut self, now: Instant) {
        if self.cpu.is_some() {
            return;
        }
        if self.consumer_waits(now) && self.free() == 0 && self.schedule.awaits_cpu() {
            let Self { schedule, stored, .. } = self;
            let has_buffer = |id| stored.get(&id).is_some_and(|stored: &Stored| stored.slot.is_none());
            if schedule.deliverable().is_none()
                && let Some((id, _)) = schedule.give_way(has_buffer)
            {
                stored.remove(&id);
            }
        }
        let Some(room) = self.room() else { return };
        if let Some(id) = self.schedule.claim(CPU, self.seconds(now), room) {
            self.cpu = Some((id, now + self.world.cpu_batch));
        }
    }

    /// Returns when CPU or consumer have something to do again; the CPU looks for work from time to time.
    pub fn wakes_at(&self, now: Instant) -> Instant {
        let look = now + Duration::from_millis(40);
        let cpu = self.cpu.map_or(look, |(_, ends)| ends);
        if self.consumer_free > now { cpu.min(self.consumer_free) } else { cpu.min(look) }
    }
}
