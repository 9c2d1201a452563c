//! Drives under a virtual clock: the real state machine, slot table and schedule beside a simulated agent, CPU and
//! consumer. Everything that may go wrong with a drive goes wrong, alone and together: see [`Trouble`].
//!
//! - `trouble`: what goes wrong. `agent`: a drive's agent with its troubles. `thread`: performs the actions of the
//!   state machine. `host`: the schedule, the CPU and the consumer.
//! - `witness`: asserts what the state machine promises, from its actions alone: nothing is submitted while the drive
//!   is away, pauses or is given up; no slot is used by two batches, and none is lost; each command ends or is late; an
//!   attempt to connect, a restart, a pause comes for its reason alone, once, and at its time.
//!
//! Each batch is delivered once, and a drive whose troubles are over works again, unless it was given up.

mod agent;
mod host;
mod thread;
mod trouble;
mod witness;

use super::checks::Handover;
use crate::schedule::{HeldResults, Strategy};
use agent::AgentWorld;
use host::{Host, HostWorld};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::time::{Duration, Instant};
use thread::{Thread, ThreadWorld};
use trouble::{Planned, Trouble};
use witness::Counts;

/// Simulated runs of the test; the variable `DDLP_SIMULATED_RUNS` asks for more.
const RUNS: u64 = 2000;
/// A drive works again at most this long after its troubles: longer than any pause, and any rest with its delay.
const RECOVERED_AFTER: Duration = Duration::from_secs(50);

/// What happens often in the simulated runs.
const OFTEN: [&str; 19] = [
    "about to end",
    "away at first",
    "batches",
    "cancels",
    "given up for its agent",
    "given up for wrong results",
    "given up on return",
    "its program is gone",
    "late",
    "losses",
    "moves",
    "notes of another host",
    "notes of memory",
    "pauses",
    "restarts",
    "rests",
    "returns",
    "short of memory",
    "slow",
];

fn ms(ms: u32) -> Duration {
    Duration::from_millis(ms.into())
}

/// Options of a simulated run.
#[derive(Clone, Debug)]
struct World {
    host: HostWorld,
    thread: ThreadWorld,
    agents: Vec<AgentWorld>,
    /// When the run goes to another position.
    moves: Vec<Duration>,
    /// Whether the run lasts until every drive has recovered, instead of ending with its last batch.
    recovers: bool,
}

impl World {
    /// Draws a world of the kinds of `troubles`.
    fn draw(seed: u64, troubles: &[Trouble]) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut below = |n: usize| rng.next_u32() as usize % n;
        let recovers = below(6) == 0;
        let drives = 1 + below(2);
        let handover = [Handover::InPlace, Handover::Convert, Handover::Read][below(3)];
        let mut agent = || {
            let is_local = handover != Handover::Read || below(3) == 0;
            let slots = 1 + below(10) as u32;
            let mut planned = Vec::new();
            let kinds: Vec<Trouble> = (0..1 + below(2)).map(|_| troubles[below(troubles.len())]).collect();
            for _ in 0..below(4) {
                let from = ms([0, below(1000), below(6000)][below(3)] as u32);
                let to = from + ms([20, 300, 1500, 6000, 14_000, 40_000][below(6)]);
                let trouble = kinds[below(kinds.len())];
                let extent = match trouble {
                    Trouble::Foreign if below(2) == 0 => slots,
                    Trouble::Foreign | Trouble::Short => 1 + below(slots as usize) as u32,
                    _ => 1 + below(3) as u32,
                };
                planned.push(Planned { trouble, from, to, extent });
            }
            let needs_agent = |planned: &Planned| matches!(planned.trouble, Trouble::Hang | Trouble::StartFails);
            AgentWorld {
                slots,
                batch: ms([5, 30, 100][below(3)]),
                is_local,
                is_linked: is_local || below(3) > 0,
                troubles: planned.into_iter().filter(|planned| is_local || !needs_agent(planned)).collect(),
                lag: ms([0, 20, 60, 150][below(4)]),
            }
        };
        let agents: Vec<AgentWorld> = (0..drives).map(|_| agent()).collect();
        let strategy = Strategy::ALL.into_iter().filter(|&strategy| strategy != Strategy::Cpu);
        Self {
            host: HostWorld {
                strategy: strategy.collect::<Vec<_>>()[below(4)],
                batches: 1 + below(80) as u32,
                epochs: if recovers { 1_000_000 } else { 1 + below(2) as u32 },
                drives,
                buffers: 2 + below(4),
                // The drives are faster, so that they have work once they work again.
                cpu_batch: ms(if recovers { 1000 } else { [20, 200, 1000][below(3)] }),
                step: ms([0, 10, 100][below(3)]),
            },
            thread: ThreadWorld { depth: 1 + below(3), timeout: ms([300, 2000][below(2)]), handover },
            agents,
            moves: (0..below(6).saturating_sub(3)).map(|_| ms(below(4000) as u32)).collect(),
            recovers,
        }
    }

    /// Returns when the last trouble is over.
    fn calm_at(&self) -> Duration {
        let ends = self.agents.iter().flat_map(|agent| &agent.troubles).map(|planned| planned.to);
        ends.max().unwrap_or_default()
    }

    /// Runs to the end, and checks what holds at the end. Returns what the drives did.
    fn run(&self, seed: u64) -> Vec<Counts> {
        let begun = Instant::now();
        let mut host = Host::new(self.host.clone(), begun);
        let mut threads: Vec<Thread> = self
            .agents
            .iter()
            .enumerate()
            .map(|(at, agent)| Thread::new(at + 1, self.thread, agent.clone(), begun, seed + at as u64))
            .collect();
        // As `Loader` does for a drive that has yet to be reached.
        for (at, _) in self.agents.iter().enumerate().filter(|(_, agent)| !agent.is_linked) {
            host.schedule.prong_down(at + 1, HeldResults::Kept);
        }
        let calm = begun + self.calm_at();
        let longest =
            calm + RECOVERED_AFTER + Duration::from_secs(u64::from(self.host.batches * self.host.epochs.min(2)) * 5);
        let (mut now, mut host_wakes) = (begun, begun);
        let mut moves: Vec<Instant> = self.moves.iter().map(|&at| begun + at).collect();
        while !host.schedule.is_done() && !host.is_refused {
            if self.recovers && now > calm + RECOVERED_AFTER {
                break;
            }
            assert!(
                now < longest,
                "stuck after {} deliveries: {}",
                host.delivered.len(),
                host.schedule.describe_outstanding()
            );
            if moves.extract_if(.., |at| *at <= now).count() > 0 {
                for (prong, slot) in host.go_to() {
                    threads[prong - 1].put(slot);
                }
                threads.iter_mut().for_each(|thread| thread.settle(&mut host, now));
                host_wakes = now;
            }
            if host_wakes <= now {
                for (prong, slot) in host.go_on(now) {
                    threads[prong - 1].put(slot);
                }
                threads.iter_mut().for_each(|thread| thread.hand_over_outliving(&mut host, now));
                host_wakes = host.wakes_at(now);
            }
            for thread in &mut threads {
                if thread.wakes_at.is_some_and(|at| at <= now) {
                    thread.wake(&mut host, now);
                }
            }
            let wakes = threads.iter().filter_map(|thread| thread.wakes_at);
            now = wakes.chain([host_wakes]).min().expect("the host wakes").max(now);
        }
        self.assert_end(&host, &threads, calm);
        threads.into_iter().map(|thread| thread.witness.counts).collect()
    }

    /// Returns a world of one drive beside a slow CPU, with these troubles, each from one millisecond to another.
    fn of_one(troubles: &[(Trouble, u32, u32)]) -> Self {
        let planned = |&(trouble, from, to)| Planned { trouble, from: ms(from), to: ms(to), extent: 1 };
        let agent = AgentWorld {
            slots: 4,
            batch: ms(30),
            is_local: false,
            is_linked: true,
            troubles: troubles.iter().map(planned).collect(),
            lag: Duration::ZERO,
        };
        let host = HostWorld {
            strategy: Strategy::Csd,
            batches: 40,
            epochs: 1_000_000,
            drives: 1,
            buffers: 3,
            cpu_batch: ms(200),
            step: ms(10),
        };
        let thread = ThreadWorld { depth: 2, timeout: ms(300), handover: Handover::Read };
        Self { host, thread, agents: vec![agent], moves: Vec::new(), recovers: true }
    }

    fn assert_end(&self, host: &Host, threads: &[Thread], calm: Instant) {
        let mut delivered = host.delivered.clone();
        delivered.sort();
        let count = delivered.len();
        delivered.dedup();
        assert_eq!(delivered.len(), count, "a batch was delivered twice");
        if host.schedule.is_done() {
            assert_eq!(count, (self.host.batches * self.host.epochs) as usize);
        }
        for thread in threads.iter().filter(|_| self.recovers && !host.is_refused) {
            // Under `mte` results may fill all slots until the CPU has come so far.
            let is_full = thread.witness.is_linked() && thread.slots.free() == 0;
            let has_worked = thread.last_work >= calm || is_full || thread.witness.is_given_up();
            assert!(has_worked, "drive {} does not work again: {:?}", thread.prong(), thread.witness.counts);
        }
    }
}

/// Runs a world, and names its seed if it fails.
fn run(seed: u64, troubles: &[Trouble]) -> Vec<Counts> {
    let world = World::draw(seed, troubles);
    std::panic::catch_unwind(|| world.run(seed)).unwrap_or_else(|_| panic!("seed {seed}: {world:?}"))
}

fn runs() -> u64 {
    std::env::var("DDLP_SIMULATED_RUNS").map_or(RUNS, |runs| runs.parse().expect("a number"))
}

/// Returns how often each of these things happened to the drive of a world.
fn counts<const N: usize>(world: &World, what: [&str; N]) -> [u32; N] {
    let counts = world.run(1).remove(0);
    what.map(|what| counts.get(what).copied().unwrap_or_default())
}

#[test]
fn drives_keep_their_promises_whatever_goes_wrong() {
    let mut sum = Counts::new();
    for (what, times) in (0..runs()).flat_map(|seed| run(seed, &Trouble::ALL)).flatten() {
        *sum.entry(what).or_default() += times;
    }
    println!("{sum:?}");
    for what in OFTEN.iter().filter(|_| runs() >= RUNS) {
        assert!(sum.get(what).is_some_and(|&times| times >= 10), "{what}: {sum:?}");
    }
}

#[test]
fn a_drive_whose_results_are_never_right_is_given_up() {
    for trouble in [Trouble::Damage, Trouble::Refuted] {
        let world = World::of_one(&[(trouble, 0, 60_000)]);
        let counts = counts(&world, ["losses", "returns", "given up for wrong results"]);
        assert_eq!(counts, [3, 2, 1], "{trouble:?}");
    }
}

#[test]
fn bursts_of_damage_with_good_results_between_them_do_not_cost_a_drive_its_place() {
    let bursts: Vec<(Trouble, u32, u32)> =
        (0..8).map(|burst| (Trouble::Damage, 3000 * burst, 3000 * burst + 350)).collect();
    let [losses, returns, given_up] =
        counts(&World::of_one(&bursts), ["losses", "returns", "given up for wrong results"]);
    assert!(losses >= 5 && losses == returns && given_up == 0, "{losses} losses, {returns} returns");
}

#[test]
fn a_drive_whose_dataset_is_away_pauses_for_longer_each_time_and_is_used_again() {
    let world = World::of_one(&[(Trouble::Unavailable, 1000, 100_000)]);
    let [pauses, losses] = counts(&world, ["pauses", "losses"]);
    // Pauses double from at least 50 ms to at least 15 s.
    assert!((8..=9 + 100 / 15).contains(&pauses) && losses == 0, "{pauses} pauses");
}

#[test]
fn a_drive_that_leaves_samples_to_the_host_now_and_then_does_not_pause() {
    let world = |extent| {
        let mut world = World::of_one(&[(Trouble::LeftToHost, 0, 5000)]);
        world.agents[0].troubles[0].extent = extent;
        world
    };
    assert_eq!(counts(&world(2), ["pauses"]), [0]);
    assert!(counts(&world(1), ["pauses"])[0] > 0);
}

#[test]
fn a_drive_whose_slots_another_host_keeps_is_left_alone_and_tried_again() {
    let mut world = World::of_one(&[(Trouble::Foreign, 1000, 40_000)]);
    world.agents[0].troubles[0].extent = 4;
    // Ten seconds of refusals, ten of rest.
    let [losses, returns, rests, pauses] = counts(&world, ["losses", "returns", "rests", "pauses"]);
    assert_eq!((losses, returns, pauses), (rests, rests, 0));
    assert!((2..=3).contains(&rests), "{rests} rests");
}

#[test]
fn an_agent_that_ends_is_restarted_until_it_has_ended_ten_times_without_a_batch() {
    let local = |troubles: &[_]| {
        let mut world = World::of_one(troubles);
        world.agents[0].is_local = true;
        counts(&world, ["losses", "restarts", "returns", "given up for its agent"])
    };
    assert_eq!(local(&[(Trouble::Death, 1000, 1001), (Trouble::Death, 4000, 4001)]), [2, 2, 2, 0]);
    assert_eq!(local(&[(Trouble::Hang, 1000, 1001)]), [1, 1, 1, 0], "out of reach for ten seconds");
    assert_eq!(local(&[(Trouble::StartFails, 1000, 100_000)]), [1, 10, 0, 1]);
    // Two times nine, with batches between them: attempts come every one to two seconds in the end.
    let [_, restarts, _, given_up] = local(&[(Trouble::StartFails, 1000, 8000), (Trouble::StartFails, 30_000, 37_000)]);
    assert!((12..=20).contains(&restarts) && given_up == 0, "{restarts} restarts");
}

#[test]
fn a_drive_that_is_away_at_first_joins_and_one_that_does_not_fit_ends_the_run() {
    let first = |trouble| {
        let mut world = World::of_one(&[(trouble, 0, 5000)]);
        world.agents[0].is_linked = false;
        counts(&world, ["away at first", "refused at first", "returns"])
    };
    assert_eq!(first(Trouble::Cut), [1, 0, 1]);
    assert_eq!(first(Trouble::Stranger), [0, 1, 0]);
}
