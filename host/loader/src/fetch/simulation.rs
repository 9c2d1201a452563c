//! Simulates a store: samples come after random times, some very late, in any order, and the store pushes back. The
//! code that decides is a run's own (`FetchAhead`, `Schedule`, `Moved`); a virtual clock goes from one event to the
//! next. The run gives up batches that it has claimed, ends in the middle of an epoch, and resumes from its state. A
//! failure prints its seed.

use super::*;
use crate::moved::{Moved, MovedSamples};
use crate::schedule::{BatchId, CPU, Schedule, ScheduleConfig, Strategy};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::{BTreeMap, HashMap};

#[derive(Clone, Debug)]
struct World {
    rows: u64,
    batches: u32,
    /// Rows of an epoch's last batch.
    last_rows: u64,
    epochs: u32,
    buffers: usize,
    bounds: AheadBounds,
    depth: Depth,
    ramp_up: u32,
    is_out_of_order: bool,
    latency_s: (f64, f64),
    /// One of this many samples comes much later.
    late_one_in: u32,
    push_back_one_in: u32,
    give_up_one_in: u32,
    /// Batches after which the run ends and resumes.
    resumes_after: u32,
}

/// A batch that has begun.
struct Begun {
    samples: Samples,
    left: usize,
}

struct Simulation {
    world: World,
    rng: ChaCha8Rng,
    now: f64,
    schedule: Schedule,
    ahead: FetchAhead<u64>,
    flying: Vec<(f64, f64, FetchTicket)>,
    begun: HashMap<BatchId, Begun>,
    ready: HashMap<BatchId, Vec<u64>>,
    exchanging: HashMap<BatchId, Samples>,
    moved: Moved,
    /// Deliveries of each sample in each epoch.
    counts: BTreeMap<(u32, u64), u32>,
    /// Samples that were delivered in another batch than the order says.
    in_other_batches: u64,
}

impl Simulation {
    fn new(world: &World, seed: u64) -> Self {
        let (schedule, ahead) = (Self::schedule(world, 0, Vec::new()), Self::ahead(world));
        Self {
            world: world.clone(),
            rng: ChaCha8Rng::seed_from_u64(seed),
            now: 0.0,
            schedule,
            ahead,
            flying: Vec::new(),
            begun: HashMap::new(),
            ready: HashMap::new(),
            exchanging: HashMap::new(),
            moved: Moved::default(),
            counts: BTreeMap::new(),
            in_other_batches: 0,
        }
    }

    fn schedule(world: &World, epoch: u32, delivered: Vec<u32>) -> Schedule {
        Schedule::new(ScheduleConfig {
            strategy: Strategy::Ordered,
            batches: world.batches,
            short_last: false,
            epochs: epoch..world.epochs,
            window: 64,
            drives: 0,
            delivered,
            replay: Vec::new(),
        })
    }

    fn ahead(world: &World) -> FetchAhead<u64> {
        FetchAhead::new(world.bounds).with_depth(world.depth.clone()).with_ramp(world.ramp_up)
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.rng.next_u32().is_multiple_of(n)
    }

    /// Returns the samples that the order names for a batch.
    fn ordered(&self, id: BatchId) -> Vec<u64> {
        let first = u64::from(id.batch) * self.world.rows;
        let rows = if id.batch + 1 == self.world.batches { self.world.last_rows } else { self.world.rows };
        (first..first + rows).collect()
    }

    fn claim(&mut self) -> bool {
        let Some(room) = self.ahead.claim_room(&self.schedule) else { return false };
        let Some(id) = self.schedule.claim_ahead(CPU, self.now, room) else { return false };
        let may_exchange = self.world.is_out_of_order && id.batch + 1 < self.world.batches;
        let mut ordered = self.ordered(id);
        self.moved.place(id, &mut ordered);
        let samples = self.exchanging.get(&id).cloned().unwrap_or_else(|| ordered.into_iter().collect());
        if may_exchange {
            self.exchanging.insert(id, samples.clone());
        }
        self.ahead.claimed(id, samples, may_exchange.then_some(0));
        true
    }

    fn ask(&mut self) {
        loop {
            let Some(ticket) = self.ahead.next(&self.schedule) else {
                if self.claim() {
                    continue;
                }
                return;
            };
            let (least, most) = self.world.latency_s;
            let latency = least + (most - least) * f64::from(self.rng.next_u32()) / f64::from(u32::MAX);
            let latency = if self.one_in(self.world.late_one_in) { 20.0 * latency } else { latency };
            self.flying.push((self.now + latency, self.now, ticket));
        }
    }

    /// Begins batches and takes rows, as far as there are buffers.
    fn prepare(&mut self) {
        loop {
            let free = self.world.buffers - self.begun.len() - self.ready.len();
            let only_critical = free == 0 || (free == 1 && self.schedule.must_reserve());
            if free > 0
                && let Some(id) = self.ahead.to_begin(&self.schedule, only_critical)
            {
                self.schedule.begin(CPU, id, self.now);
                let samples = self.ahead.begin(id);
                self.begun.insert(id, Begun { left: samples.len(), samples });
            }
            let mut came = Vec::new();
            let most = 1 + self.rng.next_u32() as usize % 4;
            let Some((id, rows)) = self.ahead.take(most, &mut came) else { return };
            let batch = self.begun.get_mut(&id).expect("only what has begun is taken");
            let named: Vec<u64> = rows.map(|row| batch.samples.of(row)).collect();
            assert_eq!(came, named, "a row has the sample that its batch names");
            batch.left -= came.len();
            if batch.left == 0 {
                let samples = self.begun.remove(&id).expect("found above").samples;
                self.schedule.executed(CPU, id, self.now);
                self.schedule.finished(CPU, id);
                self.ready.insert(id, (0..samples.len()).map(|row| samples.of(row)).collect());
            }
        }
    }

    /// Delivers what is ready. Returns whether the run is to resume.
    fn deliver(&mut self) -> bool {
        while let Some((id, prong)) = self.schedule.deliverable() {
            let samples = self.ready.remove(&id).expect("ready");
            let ordered = self.ordered(id);
            if self.exchanging.remove(&id).is_some() || !self.moved.pairs(id.epoch).is_empty() {
                self.moved.delivered(id, &ordered, samples.iter().copied());
            }
            self.in_other_batches += samples.iter().filter(|sample| !ordered.contains(sample)).count() as u64;
            samples.into_iter().for_each(|sample| *self.counts.entry((id.epoch, sample)).or_default() += 1);
            self.schedule.deliver(id, prong);
            self.ahead.consumed();
            if self.one_in(self.world.resumes_after) {
                return true;
            }
        }
        false
    }

    /// Forgets everything but what a state says.
    fn resume(&mut self) {
        let Some(epoch) = self.schedule.current_epoch() else { return };
        let state = MovedSamples { rank: 0, pairs: self.moved.pairs(epoch) };
        self.schedule = Self::schedule(&self.world, epoch, self.schedule.delivered());
        (self.ahead, self.moved) = (Self::ahead(&self.world), Moved::of(epoch, &state));
        self.flying.clear();
        self.begun.clear();
        self.ready.clear();
        self.exchanging.clear();
    }

    fn give_up(&mut self) {
        let claimed: Vec<BatchId> = self.flying.iter().map(|(_, _, ticket)| ticket.id).collect();
        if let Some(&id) = claimed.iter().find(|&&id| self.ahead.will_begin(id)) {
            self.ahead.remove(id);
            self.schedule.returned(CPU, id, self.now);
            let given_up = self.ahead.take_given_up(self.flying.iter().map(|(_, _, ticket)| *ticket));
            // Some end at once, and others come all the same.
            for ticket in given_up.into_iter().filter(|ticket| ticket.sample_id.is_multiple_of(2)) {
                self.flying.retain(|(_, _, flying)| *flying != ticket);
                assert!(self.ahead.fetched(ticket, 0, ticket.sample_id).is_some(), "nobody waits for it");
            }
        }
    }

    fn run(mut self) -> Self {
        let mut idle = 0;
        while !self.schedule.is_done() {
            let delivered = self.counts.len();
            self.ask();
            self.prepare();
            if self.deliver() {
                self.resume();
                continue;
            }
            let Some(next) = (0..self.flying.len()).min_by(|&a, &b| self.flying[a].0.total_cmp(&self.flying[b].0))
            else {
                // A row that was taken makes room for the next sample.
                idle = if self.counts.len() > delivered { 0 } else { idle + 1 };
                assert!(idle < 3, "the run stands still");
                continue;
            };
            idle = 0;
            let (at, asked, ticket) = self.flying.swap_remove(next);
            self.now = at;
            self.ahead.depth_mut().came(at, at - asked);
            self.ahead.fetched(ticket, 100, ticket.sample_id);
            if self.one_in(self.world.push_back_one_in) {
                self.ahead.depth_mut().pushed_back(at);
            }
            if self.one_in(self.world.give_up_one_in) {
                self.give_up();
            }
        }
        self
    }
}

fn world(is_out_of_order: bool) -> World {
    World {
        rows: 8,
        batches: 40,
        last_rows: 8,
        epochs: 1,
        buffers: 3,
        bounds: AheadBounds { bytes: 100_000_000, batches: 16 },
        depth: Depth::fixed(64),
        ramp_up: 0,
        is_out_of_order,
        latency_s: (0.1, 0.15),
        late_one_in: 20,
        push_back_one_in: u32::MAX,
        give_up_one_in: u32::MAX,
        resumes_after: u32::MAX,
    }
}

#[test]
fn every_sample_once_for_thousands_of_stores() {
    let mut moved = 0;
    for seed in 0..4000u64 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut below = |n: u32| rng.next_u32() % n;
        let rows = 1 + u64::from(below(9));
        let world = World {
            rows,
            batches: 1 + below(12),
            last_rows: 1 + u64::from(below(rows as u32)),
            epochs: 1 + below(3),
            buffers: 2 + below(4) as usize,
            bounds: AheadBounds { bytes: [1, 500, 100_000_000][below(3) as usize], batches: 1 + below(9) as usize },
            depth: [Depth::fixed(1), Depth::fixed(7), Depth::auto(64)][below(3) as usize].clone(),
            ramp_up: [0, 1, 3][below(3) as usize],
            is_out_of_order: below(4) > 0,
            latency_s: [(0.0, 0.0), (0.1, 0.1), (0.01, 0.3)][below(3) as usize],
            late_one_in: [2, 20, u32::MAX][below(3) as usize],
            push_back_one_in: [2, 50, u32::MAX][below(3) as usize],
            give_up_one_in: [5, 50, u32::MAX][below(3) as usize],
            resumes_after: [2, 9, u32::MAX][below(3) as usize],
        };
        let run = std::panic::catch_unwind(|| Simulation::new(&world, seed).run());
        let run = run.unwrap_or_else(|_| panic!("seed {seed}: {world:?}"));
        let samples = u64::from(world.batches - 1) * world.rows + world.last_rows;
        let is_once =
            run.counts.len() as u64 == samples * u64::from(world.epochs) && run.counts.values().all(|&n| n == 1);
        assert!(is_once, "seed {seed}: {world:?}: {:?}", run.counts);
        assert!(world.is_out_of_order || run.in_other_batches == 0, "seed {seed}: {world:?}");
        moved += run.in_other_batches;
    }
    assert!(moved > 10_000, "{moved} samples moved");
}

#[test]
fn late_samples_delay_a_run_in_order_more_than_one_out_of_order() {
    let seconds = |is_out_of_order| Simulation::new(&world(is_out_of_order), 1).run().now;
    let (in_order, out_of_order) = (seconds(false), seconds(true));
    assert!(out_of_order < 0.8 * in_order, "{out_of_order} and {in_order} virtual seconds");
}
