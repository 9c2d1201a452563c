//! The schedule under a virtual clock: prongs of any speed, drives that die, answer late or fail, consumers of any
//! speed. Every batch must be delivered exactly once, in the strategy's order, without a deadlock.
//!
//! `fetching`: the CPU prong with a fetch stage, whose samples come late, in any order, or not for a while.

mod fetching;
mod recovery;

use super::*;
use fetching::{FetchStage, FetchWorld};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::{BTreeMap, VecDeque};

/// Options of a simulated run.
#[derive(Clone, Debug)]
struct World {
    strategy: Strategy,
    batches: u32,
    epochs: u32,
    buffers: usize,
    slots: usize,
    /// Whether results are read from the slots into buffers, instead of being delivered in place.
    read: bool,
    /// Whether finished batches that were not read yet outlive the drive.
    keeps: bool,
    /// Batches that the consumer keeps when it asks for another.
    kept: usize,
    /// Seconds per batch of every prong.
    batch_s: Vec<f64>,
    /// Samples of an epoch's last batch ÷ samples of a full batch.
    last_share: f64,
    step_s: f64,
    /// How often prongs look for work, in batches of the fastest one.
    look: f64,
    window: u32,
    /// Seconds until a prong has stopped work on a cancelled batch.
    abort_s: f64,
    /// One in `n` drive batches fails: by turns on the drive, and when the host checks the result.
    fail_one_in: Option<u32>,
    /// One in `n` claims of a drive is given back, as it has no place for the batch.
    return_one_in: Option<u32>,
    /// The first drive is down between these times.
    outage: Option<(f64, f64)>,
    /// The first drive does nothing between these times, and answers nobody.
    stall: Option<(f64, f64)>,
    /// The CPU prong's fetch stage, if it has one.
    fetch: Option<FetchWorld>,
    replay: Vec<PlanEpoch>,
    delivered: Vec<u32>,
}

struct SimulatedRun {
    order: Vec<(BatchId, ProngId)>,
    /// When each was delivered.
    times: Vec<f64>,
    /// Batches that the CPU prepared.
    by_cpu: u32,
    seconds: f64,
    met: Option<u32>,
    /// Most bytes of samples that were in flight or waited, with a fetch stage.
    fetched_bytes_max: u64,
    /// Seconds for a batch by which the CPU was measured at the end.
    cpu_batch_s: Option<f64>,
}

struct Simulation {
    world: World,
    schedule: Schedule,
    rng: ChaCha8Rng,
    now: f64,
    /// Per prong: batches in work with their time of completion.
    work: Vec<Vec<(BatchId, f64)>>,
    /// Per prong: cancelled batches with the time at which the prong is rid of them.
    aborts: Vec<Vec<(BatchId, f64)>>,
    /// Finished batches, each with the prong that made it.
    stored: BTreeMap<BatchId, ProngId>,
    /// Finished batches that lie in slots and wait to be read.
    held: BTreeMap<BatchId, ProngId>,
    /// Whether what the consumer keeps lies in buffers.
    kept: VecDeque<bool>,
    consumer_waits: bool,
    fetch: Option<FetchStage>,
    executed: u32,
    failed: u32,
    by_cpu: u32,
    claimed: u32,
}

impl Simulation {
    fn new(world: World, seed: u64) -> Self {
        let config = ScheduleConfig {
            strategy: world.strategy,
            batches: world.batches,
            short_last: world.last_share < 1.0,
            epochs: 0..world.epochs,
            window: world.window,
            drives: world.batch_s.len() - 1,
            delivered: world.delivered.clone(),
            replay: world.replay.clone(),
        };
        Self {
            schedule: Schedule::new(config),
            rng: ChaCha8Rng::seed_from_u64(seed),
            now: 0.0,
            work: vec![Vec::new(); world.batch_s.len()],
            aborts: vec![Vec::new(); world.batch_s.len()],
            stored: BTreeMap::new(),
            held: BTreeMap::new(),
            kept: VecDeque::new(),
            consumer_waits: false,
            fetch: world.fetch.as_ref().map(FetchStage::new),
            executed: 0,
            failed: 0,
            by_cpu: 0,
            claimed: 0,
            world,
        }
    }

    fn is_out(&self, prong: ProngId) -> bool {
        prong == 1 && self.world.outage.is_some_and(|(from, to)| (from..to).contains(&self.now))
    }

    fn stalls(&self, prong: ProngId) -> bool {
        prong == 1 && self.world.stall.is_some_and(|(from, to)| (from..to).contains(&self.now))
    }

    /// Returns when a prong ends work of this length that it begins at `start`.
    fn end_of(&self, prong: ProngId, start: f64, seconds: f64) -> f64 {
        match self.world.stall {
            Some((from, to)) if prong == 1 && start < to && start + seconds > from => {
                start + seconds + (to - start.max(from))
            }
            _ => start + seconds,
        }
    }

    fn lies_in_buffer(&self, maker: ProngId) -> bool {
        self.world.read || maker == CPU
    }

    fn free(&self) -> usize {
        let finished = self.stored.values().filter(|&&maker| self.lies_in_buffer(maker)).count();
        let kept = self.kept.iter().filter(|&&lies_in_buffer| lies_in_buffer).count();
        self.world.buffers.saturating_sub(self.work[CPU].len() + finished + kept)
    }

    fn make_way(&mut self) {
        if !self.consumer_waits || self.schedule.deliverable().is_some() {
            return;
        }
        let Self { schedule, stored, world, .. } = self;
        let lies_in_buffer = |id| stored.get(&id).is_some_and(|&maker| world.read || maker == CPU);
        if let Some((id, maker)) = schedule.give_way(lies_in_buffer) {
            assert_eq!(self.stored.remove(&id), Some(maker));
        }
    }

    fn buffer_room(&self) -> Option<Room> {
        match self.free() {
            0 => None,
            1 if self.schedule.must_reserve() => Some(Room::Critical),
            _ => Some(Room::Any),
        }
    }

    fn room(&self, prong: ProngId) -> Option<Room> {
        if prong == CPU {
            return self.buffer_room();
        }
        let finished = if self.world.read { &self.held } else { &self.stored };
        let used = self.work[prong].len() + finished.values().filter(|&&maker| maker == prong).count();
        match self.world.slots.saturating_sub(used) {
            0 => None,
            1 if self.world.slots > 2 && self.schedule.must_reserve_slot(prong) => Some(Room::Critical),
            _ => Some(Room::Any),
        }
    }

    fn fetch(&mut self, prong: ProngId) {
        let held: Vec<BatchId> = self.held.iter().filter(|&(_, &maker)| maker == prong).map(|(&id, _)| id).collect();
        for id in held {
            if self.free() == 0 && self.schedule.is_critical(id) {
                self.make_way();
            }
            let room = self.buffer_room();
            if !self.schedule.is_wanted(prong, id) {
                self.held.remove(&id);
            } else if room == Some(Room::Any) || (room.is_some() && self.schedule.is_critical(id)) {
                self.held.remove(&id);
                assert!(self.schedule.finished(prong, id), "{id:?} was wanted");
                self.stored.insert(id, prong);
            }
        }
    }

    fn claim(&mut self, prong: ProngId) {
        if prong == CPU && self.fetch.is_some() {
            self.fetch_ahead();
            return;
        }
        let depth = if prong == CPU { 1 } else { 2 };
        if prong == CPU && self.free() == 0 && self.schedule.awaits_cpu() {
            self.make_way();
        }
        while self.work[prong].len() < depth
            && let Some(room) = self.room(prong)
            && let Some(id) = self.schedule.claim(prong, self.now, room)
        {
            self.claimed += 1;
            if prong != CPU && self.world.return_one_in.is_some_and(|n| self.claimed.is_multiple_of(n)) {
                self.schedule.returned(prong, id, self.now);
                return;
            }
            let start = self.work[prong].last().map_or(self.now, |&(_, end)| end);
            let jitter = 0.9 + 0.2 * f64::from(self.rng.next_u32()) / f64::from(u32::MAX);
            let is_last = id.batch + 1 == self.world.batches;
            let share = if is_last { self.world.last_share } else { 1.0 };
            let end = self.end_of(prong, start, self.world.batch_s[prong] * share * jitter);
            self.work[prong].push((id, end));
        }
    }

    fn complete(&mut self, prong: ProngId) {
        if prong == CPU && self.fetch.is_some() {
            self.advance_rows();
        }
        while let Some(at) = self.work[prong].iter().position(|&(_, end)| end <= self.now) {
            let (id, _) = self.work[prong].remove(at);
            self.executed += 1;
            self.by_cpu += u32::from(prong == CPU);
            let fails = prong != CPU && self.world.fail_one_in.is_some_and(|n| self.executed.is_multiple_of(n));
            self.failed += u32::from(fails);
            if fails && self.failed.is_multiple_of(2) {
                self.schedule.failed(prong, id, self.now);
            } else if self.schedule.executed(prong, id, self.now) == ResultUse::Used {
                if fails {
                    self.schedule.failed(prong, id, self.now);
                } else if self.world.read && prong != CPU {
                    self.held.insert(id, prong);
                } else {
                    assert!(self.schedule.finished(prong, id), "{id:?} was wanted");
                    self.stored.insert(id, prong);
                }
            }
        }
        for id in self.schedule.take_cancels(prong) {
            if prong == CPU && self.stop_fetching(id) {
                continue;
            }
            self.work[prong].retain(|&(other, _)| other != id);
            self.aborts[prong].push((id, self.now + self.world.abort_s));
        }
        assert!(self.schedule.prongs[prong].cancels.is_empty(), "cancels are taken when they are asked for");
        for (id, end) in std::mem::take(&mut self.aborts[prong]) {
            if end <= self.now {
                self.schedule.cancelled(prong, id, self.now);
            } else {
                self.aborts[prong].push((id, end));
            }
        }
    }

    /// Asserts that a prong is told when another one has finished its batch, unless the batch is a probe.
    fn assert_no_work_in_vain(&self) {
        for (prong, works) in self.schedule.prongs.iter().enumerate() {
            for &prong::ActiveWork { id, .. } in &works.outstanding {
                let is_told = works.cancels.contains(&id) || self.aborts[prong].iter().any(|&(abort, _)| abort == id);
                assert!(
                    self.schedule.is_wanted(prong, id) || is_told || works.probe == Some(id),
                    "prong {prong} works on {id:?} in vain"
                );
            }
        }
    }

    /// Returns when something ends next: a batch in work, or the consumer's step.
    fn next_event(&self, consumer_free: f64) -> f64 {
        let fetch_ends = self.fetch.iter().flat_map(FetchStage::ends);
        let ends = self.work.iter().flatten().map(|&(_, end)| end).chain([consumer_free]).chain(fetch_ends);
        ends.filter(|&end| end > self.now).fold(f64::INFINITY, f64::min)
    }

    fn run(mut self) -> SimulatedRun {
        let (mut order, mut times) = (Vec::new(), Vec::new());
        let mut consumer_free = 0.0;
        let mut was_out = false;
        let mut met = None;
        let look = self.world.batch_s.iter().fold(f64::INFINITY, |least, &s| least.min(s)) * self.world.look;
        let bound =
            40.0 * self.world.batch_s[CPU].max(self.world.step_s) * f64::from(self.world.batches * self.world.epochs)
                + 100.0;
        let bound = bound + self.world.fetch.as_ref().map_or(0.0, |fetch| fetch.seconds_max(&self.world));
        while !self.schedule.is_done() {
            assert!(self.now < bound, "stuck after {} deliveries: {:?}", order.len(), self.schedule);
            self.schedule.assert_all_in_work();
            self.assert_no_work_in_vain();
            let is_out = self.is_out(1);
            if is_out && !was_out {
                let held = if self.world.keeps { HeldResults::Kept } else { HeldResults::Lost };
                self.schedule.prong_down(1, held);
                self.work[1].clear();
                self.aborts[1].clear();
                self.held.retain(|_, &mut maker| maker != 1 || held == HeldResults::Kept);
            } else if was_out && !is_out {
                self.schedule.prong_up(1);
            }
            was_out = is_out;
            for prong in 0..self.work.len() {
                if !self.is_out(prong) {
                    if !self.stalls(prong) {
                        self.complete(prong);
                        self.fetch(prong);
                    }
                    self.claim(prong);
                } else if self.world.keeps {
                    self.fetch(prong);
                }
            }
            while self.now >= consumer_free
                && let Some((id, prong)) = self.schedule.deliverable()
            {
                met = self.schedule.meeting_point().or(met);
                self.schedule.deliver(id, prong);
                self.consumed();
                assert_eq!(self.stored.remove(&id), Some(prong));
                self.kept.push_back(self.lies_in_buffer(prong));
                if self.kept.len() > self.world.kept {
                    self.kept.pop_front();
                }
                order.push((id, prong));
                times.push(self.now);
                consumer_free = self.now + self.world.step_s;
            }
            self.consumer_waits = self.now >= consumer_free;
            self.now = self.next_event(consumer_free).min(self.now + look);
        }
        let fetched_bytes_max = self.fetch.map_or(0, |stage| stage.bytes_max());
        let cpu_batch_s = self.schedule.batch_s(CPU);
        SimulatedRun { order, times, by_cpu: self.by_cpu, seconds: self.now, met, fetched_bytes_max, cpu_batch_s }
    }
}

fn world(strategy: Strategy) -> World {
    World {
        strategy,
        batches: 40,
        epochs: 1,
        buffers: 6,
        slots: 64,
        read: false,
        keeps: false,
        kept: 0,
        batch_s: vec![1.0, 1.0],
        last_share: 1.0,
        step_s: 0.0,
        look: 0.05,
        window: 24,
        abort_s: 0.0,
        fail_one_in: None,
        return_one_in: None,
        outage: None,
        stall: None,
        fetch: None,
        replay: Vec::new(),
        delivered: Vec::new(),
    }
}

fn assert_exactly_once(world: &World, outcome: &SimulatedRun) {
    let mut ids: Vec<BatchId> = outcome.order.iter().map(|&(id, _)| id).collect();
    if world.strategy.is_sequential() && world.replay.is_empty() {
        assert!(ids.is_sorted(), "delivered in order");
    }
    let epochs: Vec<u32> = ids.iter().map(|id| id.epoch).collect();
    assert!(epochs.is_sorted(), "an epoch ends before the next is delivered");
    ids.sort();
    let all: Vec<BatchId> = (0..world.epochs)
        .flat_map(|epoch| (0..world.batches).map(move |batch| BatchId { epoch, batch }))
        .filter(|id| id.epoch > 0 || !world.delivered.contains(&id.batch))
        .collect();
    assert_eq!(ids, all);
}

#[test]
fn every_batch_once_for_thousands_of_worlds() {
    for seed in 0..3000u64 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut below = |n: u32| rng.next_u32() % n;
        let drives = 1 + below(2) as usize;
        let mut world = World {
            strategy: Strategy::ALL[below(5) as usize],
            batches: below(30),
            epochs: 1 + below(3),
            buffers: 2 + below(6) as usize,
            slots: 1 + below(12) as usize,
            read: below(2) == 0,
            keeps: below(2) == 0,
            kept: [0, 0, 1, 2, 6][below(5) as usize],
            batch_s: (0..=drives).map(|_| [0.2, 1.0, 1.1, 4.0][below(4) as usize]).collect(),
            step_s: [0.0, 0.3, 2.0][below(3) as usize],
            window: 1 + below(20),
            abort_s: [0.0, 0.5, 5.0][below(3) as usize],
            fail_one_in: [None, Some(1), Some(3)][below(3) as usize],
            return_one_in: [None, None, Some(2)][below(3) as usize],
            outage: [None, Some((3.0, 9.0)), Some((2.0, 1e9))][below(3) as usize],
            stall: [None, Some((1.0, 20.0))][below(2) as usize],
            ..world(Strategy::Cpu)
        };
        world.kept = world.kept.min(world.buffers - 1);
        if below(4) == 0 && world.strategy.is_sequential() && world.batches > 0 {
            world.delivered = (0..below(world.batches)).collect();
        }
        let outcome = std::panic::catch_unwind(|| Simulation::new(world.clone(), seed).run());
        let outcome = outcome.unwrap_or_else(|_| panic!("seed {seed}: {world:?}"));
        assert_exactly_once(&world, &outcome);
    }
}

#[test]
fn mte_delivers_the_head_then_the_tail_from_the_end() {
    let outcome = Simulation::new(world(Strategy::Mte), 1).run();
    let met = outcome.met.expect("the prongs met");
    assert!((17..=23).contains(&met), "equal prongs meet in the middle, not at {met}");
    let batches: Vec<u32> = outcome.order.iter().map(|&(id, _)| id.batch).collect();
    let expected: Vec<u32> = (0..met).chain((met..40).rev()).collect();
    assert_eq!(batches, expected);
}

#[test]
fn finished_batches_of_a_lost_drive_are_delivered_if_they_are_kept() {
    // It has fifteen batches when it is lost for good, all but one of them without a buffer: none can be delivered
    // before the head.
    let lost = World { read: true, outage: Some((15.5, 1e9)), buffers: 2, ..world(Strategy::Mte) };
    let by_drive = |keeps| {
        let outcome = Simulation::new(World { keeps, ..lost.clone() }, 1).run();
        outcome.order.iter().filter(|&&(_, prong)| prong == 1).count()
    };
    let [lost, kept] = [false, true].map(by_drive);
    assert!(lost <= 2 && (13..=17).contains(&kept), "{lost} of it are delivered, {kept} where they are kept");
}

#[test]
fn few_slots_bound_the_tail_of_mte() {
    let outcome = Simulation::new(World { slots: 4, ..world(Strategy::Mte) }, 1).run();
    assert_eq!(outcome.met, Some(36));
}

#[test]
fn equal_prongs_nearly_double_the_rate() {
    for strategy in [Strategy::Mte, Strategy::Wrr, Strategy::Ordered] {
        let outcome = Simulation::new(world(strategy), 1).run();
        let efficiency = 40.0 / outcome.seconds / 2.0;
        assert!(efficiency > 0.95, "{strategy}: {efficiency:.3}");
    }
}

#[test]
fn a_slow_drive_adds_what_it_can() {
    for strategy in [Strategy::Mte, Strategy::Wrr, Strategy::Ordered] {
        let world = World { batches: 100, batch_s: vec![1.0, 4.0], ..world(strategy) };
        let outcome = Simulation::new(world, 1).run();
        let factor = 100.0 / outcome.seconds;
        assert!(factor > 1.25 * 0.96, "{strategy}: {factor:.3}");
    }
}

#[test]
fn a_drive_ten_times_slower_than_it_was_costs_at_most_its_share() {
    for strategy in [Strategy::Mte, Strategy::Wrr, Strategy::Ordered] {
        let slow = World { batch_s: vec![1.0, 10.0], ..world(strategy) };
        let outcome = Simulation::new(slow, 1).run();
        assert!(outcome.seconds < 41.0, "{strategy}: {}", outcome.seconds);
    }
}

#[test]
fn a_plan_is_replayed_in_its_order_at_other_speeds() {
    for strategy in [Strategy::Mte, Strategy::Wrr] {
        let recorded = Simulation::new(world(strategy), 1).run();
        let deliveries = recorded.order.iter().map(|&(id, prong)| (id.batch, prong)).collect();
        let other_speeds =
            World { batch_s: vec![0.5, 2.0], replay: vec![PlanEpoch { epoch: 0, deliveries }], ..world(strategy) };
        let replayed = Simulation::new(other_speeds, 2).run();
        let batches = |outcome: &SimulatedRun| outcome.order.iter().map(|&(id, _)| id).collect::<Vec<_>>();
        assert_eq!(batches(&replayed), batches(&recorded));
    }
}

#[test]
fn a_plan_gives_each_prong_its_batches() {
    let deliveries: Vec<(u32, ProngId)> = (0..40).map(|batch| (batch, (batch % 2) as usize)).collect();
    let replay = vec![PlanEpoch { epoch: 0, deliveries: deliveries.clone() }];
    let outcome = Simulation::new(World { replay, ..world(Strategy::Mte) }, 2).run();
    let order: Vec<(u32, ProngId)> = outcome.order.iter().map(|&(id, prong)| (id.batch, prong)).collect();
    assert_eq!(order[..36], deliveries[..36], "the last ones may be taken over");
}

#[test]
fn the_next_epoch_begins_while_this_one_drains() {
    // An odd number of batches: one prong is idle for half of every epoch that ends before the next one begins.
    for (strategy, batches) in [(Strategy::Wrr, 3), (Strategy::Ordered, 3), (Strategy::Wrr, 5), (Strategy::Ordered, 5)]
    {
        let short = World { batches, epochs: 40, ..world(strategy) };
        let outcome = Simulation::new(short, 1).run();
        let efficiency = f64::from(batches * 40) / outcome.seconds / 2.0;
        assert!(efficiency > 0.97, "{strategy}, epochs of {batches}: {efficiency:.3}");
    }
}

#[test]
fn wrr_delivers_by_the_rates_when_the_consumer_is_the_bottleneck() {
    // Both prongs are so far ahead that each always has something ready: the order is the weights' alone.
    for (batch_s, share) in [([1.0, 3.0], 0.75), ([3.0, 1.0], 0.25), ([1.0, 1.0], 0.5)] {
        let world = World { batches: 200, slots: 6, batch_s: batch_s.into(), step_s: 4.0, ..world(Strategy::Wrr) };
        let outcome = Simulation::new(world, 1).run();
        let by_cpu = outcome.order[40..160].iter().filter(|&&(_, prong)| prong == CPU).count() as f64 / 120.0;
        assert!((by_cpu - share).abs() < 0.04, "{batch_s:?}: {by_cpu:.3} of the batches are the CPU's, not {share}");
    }
}

#[test]
fn in_order_both_prongs_stay_busy_with_few_slots_and_a_steady_consumer() {
    for (slots, batch_s) in
        [(16, [1.0, 1.0]), (5, [1.0, 1.0]), (6, [1.0, 4.0]), (8, [4.0, 1.0]), (16, [1.0, 1.3]), (16, [1.3, 1.0])]
    {
        let together_s = 1.0 / (1.0 / batch_s[0] + 1.0 / batch_s[1]);
        for (seed, read, step_s) in [(1, false, 0.0), (2, true, 0.0), (3, false, 0.95 * together_s)] {
            let world = World {
                batches: 157,
                slots,
                read,
                window: slots as u32 + 6,
                batch_s: batch_s.into(),
                step_s,
                ..world(Strategy::Ordered)
            };
            let outcome = Simulation::new(world.clone(), seed).run();
            let efficiency = 157.0 * together_s / outcome.seconds;
            assert!(efficiency > 0.98, "{efficiency:.3}: {world:?}");
        }
    }
}
