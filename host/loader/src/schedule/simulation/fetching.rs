//! The CPU prong with a fetch stage: the stage's own decisions (`fetch::FetchAhead`), samples that come after any time,
//! and a thread that prepares rows.

use super::*;
use crate::fetch::{AheadBounds, BOUNDS_MAX, FetchAhead, FetchTicket};
use ddlp_csd::depth::Depth;

/// Options of a simulated fetch stage.
#[derive(Clone, Debug)]
pub(super) struct FetchWorld {
    /// Samples of a batch.
    pub rows: usize,
    /// Samples in flight at the same time.
    pub reads: usize,
    /// Seconds that fetching a sample takes, at least and at most.
    pub read_s: (f64, f64),
    /// Bytes of a sample, at least and at most.
    pub sample_bytes: (u64, u64),
    pub bounds: AheadBounds,
    pub depth: Depth,
    /// Batches by which the ramp-up grows by one; 0 for none.
    pub ramp_up: u32,
    /// The store pushes back at one of this many samples.
    pub pushes_back_one_in: Option<u32>,
    /// No sample comes between these times.
    pub lost: Option<(f64, f64)>,
}

impl FetchWorld {
    /// Returns a bound for the time that fetching adds to a run.
    pub fn seconds_max(&self, world: &World) -> f64 {
        let samples = f64::from(world.batches * world.epochs) * self.rows as f64;
        let lost = self.lost.map_or(0.0, |(from, to)| to - from);
        10.0 * samples * self.read_s.1 + lost
    }
}

/// A simulated fetch stage.
pub(super) struct FetchStage {
    world: FetchWorld,
    ahead: FetchAhead<u64>,
    /// Samples in flight, each with the times at which it was asked for and comes.
    reads: Vec<(FetchTicket, f64, f64)>,
    /// The row in work, with the time at which it is made.
    row: Option<(BatchId, f64)>,
    /// Rows that are not made yet, of each batch that has begun.
    left: BTreeMap<BatchId, usize>,
    /// Bytes of fetched samples that wait.
    bytes: u64,
    /// Most bytes in flight and waiting at a time.
    bytes_max: u64,
}

impl FetchStage {
    pub fn new(world: &FetchWorld) -> Self {
        let ahead = FetchAhead::new(world.bounds).with_depth(world.depth.clone()).with_ramp(world.ramp_up);
        let (reads, left) = (Vec::new(), BTreeMap::new());
        Self { world: world.clone(), ahead, reads, row: None, left, bytes: 0, bytes_max: 0 }
    }

    /// Returns when something ends.
    pub fn ends(&self) -> impl Iterator<Item = f64> {
        self.reads.iter().map(|&(_, _, end)| end).chain(self.row.map(|(_, end)| end))
    }

    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    fn sample_bytes(&self, sample_id: u64) -> u64 {
        let (least, most) = self.world.sample_bytes;
        least + sample_id.wrapping_mul(7919) % (most - least + 1)
    }
}

impl Simulation {
    /// Takes the samples that have come and the row that was made.
    pub(super) fn advance_rows(&mut self) {
        let (now, Some(stage)) = (self.now, &mut self.fetch) else { return };
        let (come, reads) = std::mem::take(&mut stage.reads).into_iter().partition(|&(_, _, end)| end <= now);
        stage.reads = reads;
        let mut come: Vec<(FetchTicket, f64, f64)> = come;
        come.sort_by(|(_, _, a), (_, _, b)| a.total_cmp(b));
        for (ticket, asked, end) in come {
            stage.ahead.depth_mut().came(end, end - asked);
            if stage.world.pushes_back_one_in.is_some_and(|n| self.rng.next_u32().is_multiple_of(n)) {
                stage.ahead.depth_mut().pushed_back(now);
            }
            let bytes = stage.sample_bytes(ticket.sample_id);
            if stage.ahead.fetched(ticket, bytes, bytes).is_none() {
                stage.bytes += bytes;
            }
        }
        if let Some((id, end)) = stage.row
            && end <= now
        {
            stage.row = None;
            if let Some(left) = stage.left.get_mut(&id) {
                *left -= 1;
                if *left == 0 {
                    stage.left.remove(&id);
                    let work = self.work[CPU].iter_mut().find(|(working, _)| *working == id);
                    work.expect("a batch that has begun is in work").1 = now;
                }
            }
        }
    }

    /// Records that the consumer got a batch.
    pub(super) fn consumed(&mut self) {
        self.fetch.iter_mut().for_each(|stage| stage.ahead.consumed());
    }

    /// Stops the CPU's work on a batch. Returns whether it had not begun.
    pub(super) fn stop_fetching(&mut self, id: BatchId) -> bool {
        let Some(stage) = &mut self.fetch else { return false };
        let will_begin = stage.ahead.will_begin(id);
        stage.ahead.remove(id);
        stage.left.remove(&id);
        stage.bytes = stage.ahead.waiting_bytes();
        if will_begin {
            self.schedule.cancelled(CPU, id, self.now);
        }
        will_begin
    }

    /// Fetches, begins and prepares as much as is possible now, as `Engine` does.
    pub(super) fn fetch_ahead(&mut self) {
        while let Some(stage) = &mut self.fetch
            && stage.reads.len() < stage.world.reads
        {
            if let Some(ticket) = stage.ahead.next(&self.schedule) {
                let (least, most) = stage.world.read_s;
                let took = least + (most - least) * f64::from(self.rng.next_u32()) / f64::from(u32::MAX);
                let end = match stage.world.lost {
                    Some((from, to)) if self.now < to && self.now + took > from => to + took,
                    _ => self.now + took,
                };
                stage.reads.push((ticket, self.now, end));
                let in_flight: u64 = stage.reads.iter().map(|(read, _, _)| stage.sample_bytes(read.sample_id)).sum();
                stage.bytes_max = stage.bytes_max.max(stage.bytes + in_flight);
                continue;
            }
            let Some(room) = stage.ahead.claim_room(&self.schedule) else { break };
            let Some(id) = self.schedule.claim_ahead(CPU, self.now, room) else { break };
            self.claimed += 1;
            let first = u64::from(id.batch) * stage.world.rows as u64;
            stage.ahead.claimed(id, (first..first + stage.world.rows as u64).collect(), None);
        }
        while let Some(stage) = &mut self.fetch
            && stage.row.is_none()
        {
            let mut samples = Vec::new();
            if let Some((id, rows)) = stage.ahead.take(1, &mut samples) {
                assert_eq!(rows.len(), samples.len());
                stage.bytes -= samples.iter().sum::<u64>();
                let jitter = 0.9 + 0.2 * f64::from(self.rng.next_u32()) / f64::from(u32::MAX);
                let share = if id.batch + 1 == self.world.batches { self.world.last_share } else { 1.0 };
                let row_s = self.world.batch_s[CPU] * share / stage.world.rows as f64 * jitter;
                stage.row = Some((id, self.now + row_s));
            } else if !self.begin_fetched() {
                break;
            }
        }
    }

    fn begin_fetched(&mut self) -> bool {
        let room = self.buffer_room();
        let Some(stage) = &self.fetch else { return false };
        let Some(id) = stage.ahead.to_begin(&self.schedule, room != Some(Room::Any)) else { return false };
        if room.is_none() {
            self.make_way();
        }
        if self.free() == 0 {
            return false;
        }
        let Some(stage) = &mut self.fetch else { return false };
        self.schedule.begin(CPU, id, self.now);
        stage.left.insert(id, stage.ahead.begin(id).len());
        self.work[CPU].push((id, f64::INFINITY));
        true
    }
}

/// A fetch stage that is as fast as a prong which takes a second for a batch.
fn steady() -> FetchWorld {
    let bounds = AheadBounds { bytes: 1_000_000, batches: 2 };
    FetchWorld {
        rows: 8,
        reads: 4,
        read_s: (0.1, 0.5),
        sample_bytes: (50_000, 150_000),
        bounds,
        depth: Depth::fixed(usize::MAX),
        ramp_up: 0,
        pushes_back_one_in: None,
        lost: None,
    }
}

#[test]
fn every_batch_once_for_thousands_of_worlds_with_a_fetch_stage() {
    for seed in 0..2000u64 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut below = |n: u32| rng.next_u32() % n;
        let drives = below(3) as usize;
        let slow_s = [0.01, 0.5, 3.0][below(3) as usize];
        let fetch = FetchWorld {
            rows: 1 + below(9) as usize,
            reads: 1 + below(8) as usize,
            read_s: (0.001, slow_s),
            sample_bytes: [(0, 0), (1, 300), (100, 100), (900, 5000)][below(4) as usize],
            bounds: AheadBounds { bytes: [1, 500, 2000][below(3) as usize], batches: 1 + below(4) as usize },
            depth: [Depth::fixed(usize::MAX), Depth::fixed(1), Depth::auto(8)][below(3) as usize].clone(),
            ramp_up: [0, 0, 1, 3][below(4) as usize],
            pushes_back_one_in: [None, Some(2), Some(20)][below(3) as usize],
            lost: [None, Some((2.0, 30.0))][below(2) as usize],
        };
        let strategies = if drives > 0 { &Strategy::ALL[..] } else { &[Strategy::Cpu][..] };
        let mut world = World {
            strategy: strategies[below(strategies.len() as u32) as usize],
            batches: below(24),
            epochs: 1 + below(3),
            buffers: 1 + below(6) as usize,
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
            outage: [None, Some((3.0, 9.0)), Some((2.0, 1e9))][below(3) as usize].filter(|_| drives > 0),
            stall: [None, Some((1.0, 20.0))][below(2) as usize].filter(|_| drives > 0),
            fetch: Some(fetch.clone()),
            ..world(Strategy::Cpu)
        };
        world.kept = world.kept.min(world.buffers - 1);
        let outcome = std::panic::catch_unwind(|| Simulation::new(world.clone(), seed).run());
        let outcome = outcome.unwrap_or_else(|_| panic!("seed {seed}: {world:?}"));
        assert_exactly_once(&world, &outcome);
        // All batches, one that has begun and the awaited one, each with a single sample that is larger; and what is in
        // flight beyond the expected bytes.
        let (_, most) = fetch.sample_bytes;
        let beyond = (2 * fetch.reads) as u64 * most;
        assert!(
            outcome.fetched_bytes_max <= BOUNDS_MAX * (fetch.bounds.bytes + most) + beyond,
            "seed {seed}: {} bytes",
            outcome.fetched_bytes_max
        );
    }
}

#[test]
fn fetching_ahead_keeps_both_prongs_busy() {
    for strategy in [Strategy::Mte, Strategy::Wrr, Strategy::Ordered] {
        let world = World { batches: 100, look: 0.02, window: 22, fetch: Some(steady()), ..world(strategy) };
        let outcome = Simulation::new(world, 1).run();
        let efficiency = 100.0 / outcome.seconds / 2.0;
        assert!(efficiency > 0.96, "{strategy}: {efficiency:.3}");
    }
}

#[test]
fn a_batch_is_not_slower_because_it_was_fetched_long_before() {
    // The consumer is slow, so that batches wait for buffers after they were fetched.
    for (reads, step_s) in [(4, 0.0), (4, 3.0), (8, 3.0)] {
        let fetch = FetchWorld { reads, ..steady() };
        let world = World { step_s, look: 0.02, fetch: Some(fetch), batch_s: vec![1.0], ..world(Strategy::Cpu) };
        let outcome = Simulation::new(world, 1).run();
        let batch_s = outcome.cpu_batch_s.expect("measured");
        assert!((0.8..1.25).contains(&batch_s), "{batch_s} s for a batch of 1 s: {reads} reads, {step_s}");
    }
}
