//! Prongs that stall, are lost, or are measured wrongly, and the cost of measuring them again.

use super::*;

/// Deliveries after a stall by which a drive has its share again.
const RECOVERED_AFTER: usize = 2 * claim::PROBE_EVERY as usize;

/// Returns the first drive's share of the deliveries from number `from` on.
fn share_from(outcome: &SimulatedRun, from: usize) -> Option<f64> {
    let later = outcome.order.get(from..).filter(|later| later.len() >= 150)?;
    Some(later.iter().filter(|&&(_, prong)| prong == 1).count() as f64 / later.len() as f64)
}

/// The first drive is away or stalls for a while, or both: returns its share of the batches once it has recovered, and
/// its share of the same batches when nothing happens to it. `None` where the run is over before.
fn shares_after(world: &World, seed: u64) -> Option<(f64, f64)> {
    let (_, end) = world.outage.or(world.stall)?;
    let disturbed = Simulation::new(world.clone(), seed).run();
    assert_exactly_once(world, &disturbed);
    let from = disturbed.times.partition_point(|&at| at < end) + RECOVERED_AFTER;
    let undisturbed = Simulation::new(World { stall: None, outage: None, ..world.clone() }, seed).run();
    share_from(&disturbed, from).zip(share_from(&undisturbed, from))
}

#[test]
fn a_drive_that_stalled_or_was_lost_gets_its_share_again() {
    let (mut compared, mut meaningful) = (0, 0);
    for seed in 0..1500u64 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut below = |n: u32| rng.next_u32() % n;
        let (slots, buffers) = (2 + below(15) as usize, 3 + below(4) as usize);
        let from = f64::from(below(40)) / 4.0;
        let pause = Some((from, from + 5.0 + f64::from(below(60))));
        let batches = 20 + below(80);
        // The drive is lost, or stalls, or is lost at the end of a stall.
        let (is_lost, stalls) = [(true, false), (false, true), (true, true)][below(3) as usize];
        let world = World {
            strategy: [Strategy::Mte, Strategy::Wrr, Strategy::Ordered][below(3) as usize],
            batches,
            epochs: 600 / batches,
            slots,
            buffers,
            window: (slots + buffers) as u32,
            read: below(2) == 0,
            batch_s: vec![[0.2, 1.0, 1.5][below(3) as usize], [0.3, 1.0, 2.0][below(3) as usize]],
            step_s: [0.0, 0.3, 1.0, 2.0][below(4) as usize],
            look: 0.3,
            abort_s: [0.0, 0.5][below(2) as usize],
            outage: pause.filter(|_| is_lost).map(|(from, to)| (if stalls { to - 2.0 } else { from }, to)),
            stall: pause.filter(|_| stalls),
            ..world(Strategy::Cpu)
        };
        let Some((share, fair)) = shares_after(&world, seed) else { continue };
        compared += 1;
        // Below this, a drive that does nothing would pass.
        meaningful += u32::from(fair > 0.05);
        assert!(share > 0.6 * fair - 0.03, "seed {seed}: {share:.3} of the batches instead of {fair:.3}: {world:?}");
    }
    assert!(compared > 1000, "{compared} worlds run for long enough");
    assert!(meaningful > 900, "the drive has a share in {meaningful} of {compared} worlds");
}

#[test]
fn a_slow_drive_costs_at_most_its_probes() {
    for strategy in [Strategy::Mte, Strategy::Wrr, Strategy::Ordered] {
        for slow_s in [10.0, 30.0, 100.0, 1000.0] {
            for (slots, step_s) in [(4, 0.0), (16, 0.0), (4, 0.9), (4, 2.0)] {
                let window = slots as u32 + 6;
                let alone = World { batches: 80, epochs: 10, look: 0.2, slots, step_s, window, ..world(strategy) };
                let beside = World { batch_s: vec![1.0, slow_s], ..alone.clone() };
                let alone = Simulation::new(World { batch_s: vec![1.0], ..alone }, 1).run();
                let outcome = Simulation::new(beside.clone(), 1).run();
                let most = 1.0 + 1.0 / claim::PROBE_EVERY as f64;
                let (times, works) = (outcome.seconds / alone.seconds, f64::from(outcome.by_cpu) / 800.0);
                assert!(
                    times < most && works < most,
                    "{times:.4} of the time, {works:.4} of the CPU's work: {beside:?}"
                );
            }
        }
    }
}

/// Returns the seconds from delivery number `from` to the last one.
fn seconds_from(outcome: &SimulatedRun, from: usize) -> f64 {
    outcome.seconds - outcome.times[from]
}

#[test]
fn nobody_waits_for_a_slow_prong_in_order() {
    for slow_s in [3.0, 10.0, 30.0, 100.0, 1000.0] {
        for (slots, step_s) in [(4, 0.0), (16, 0.0), (4, 0.9)] {
            let window = slots as u32 + 6;
            let base = World { batches: 80, epochs: 40, look: 0.2, slots, step_s, window, ..world(Strategy::Csd) };
            // A slow drive beside a fast one, and a slow CPU beside a fast drive.
            let beside = [
                World { batch_s: vec![1.0, 1.0, slow_s], ..base.clone() },
                World { batch_s: vec![slow_s, 1.0], strategy: Strategy::Ordered, ..base.clone() },
            ];
            let alone = Simulation::new(World { batch_s: vec![1.0, 1.0], ..base }, 1).run();
            for world in beside {
                let outcome = Simulation::new(world.clone(), 1).run();
                // Its rate is known by then.
                let from = outcome.times.partition_point(|&at| at < 3.0 * slow_s).max(100);
                let times = seconds_from(&outcome, from) / seconds_from(&alone, from);
                assert!(times < 1.06, "{times:.4} of the time: {world:?}");
            }
        }
    }
}

#[test]
fn a_short_last_batch_does_not_make_a_slow_drive_look_fast() {
    for strategy in [Strategy::Mte, Strategy::Wrr, Strategy::Ordered] {
        for (batches, slow_s) in [(5, 30.0), (5, 100.0), (20, 30.0), (20, 100.0)] {
            let whole =
                World { batches, epochs: 800 / batches, look: 0.2, batch_s: vec![1.0, slow_s], ..world(strategy) };
            let short = World { last_share: 0.01, ..whole.clone() };
            let alone = |world: &World| Simulation::new(World { batch_s: vec![1.0], ..world.clone() }, 1).run().seconds;
            let times = [&whole, &short].map(|world| Simulation::new(world.clone(), 1).run().seconds / alone(world));
            assert!(times[1] < times[0] + 0.02, "{times:.4?} of the time: {short:?}");
        }
    }
}

#[test]
fn one_bad_rate_of_the_cpu_does_not_starve_it() {
    for strategy in [Strategy::Mte, Strategy::Wrr, Strategy::Ordered] {
        // So few batches that the drive would do all of them before the CPU, as it was measured, would do one.
        let world = World { batches: 6, epochs: 100, ..world(strategy) };
        let mut simulation = Simulation::new(world, 1);
        simulation.schedule.prongs[CPU].batch_s = Some(1000.0);
        simulation.schedule.prongs[1].batch_s = Some(1.0);
        let outcome = simulation.run();
        assert!(outcome.seconds < 0.6 * 600.0, "{strategy}: {:.0} s", outcome.seconds);
    }
}

#[test]
fn a_rate_is_forgotten_when_the_drive_is_lost() {
    for strategy in [Strategy::Mte, Strategy::Wrr, Strategy::Ordered] {
        // So few batches that the drive would not be measured again.
        let batches = 50;
        assert!(u64::from(batches) < claim::PROBE_EVERY);
        let world = World { batches, outage: Some((5.0, 8.0)), ..world(strategy) };
        let mut simulation = Simulation::new(world, 1);
        simulation.schedule.prongs[1].batch_s = Some(1000.0);
        let outcome = simulation.run();
        let after = outcome.times.partition_point(|&at| at < 8.0);
        let by_drive = outcome.order[after..].iter().filter(|&&(_, prong)| prong == 1).count();
        assert!(by_drive >= 15, "{strategy}: {by_drive} of the last {} batches", outcome.order.len() - after);
    }
    let mut schedule = Simulation::new(world(Strategy::Mte), 1).schedule;
    schedule.prongs[1].batch_s = Some(1000.0);
    schedule.prong_down(1, HeldResults::Kept);
    schedule.prong_up(1);
    assert_eq!(schedule.batch_s(1), None);
}

#[test]
fn a_drive_may_claim_again_a_batch_that_it_had_no_place_for() {
    let world = World { return_one_in: Some(2), ..world(Strategy::Csd) };
    let outcome = Simulation::new(world, 1).run();
    assert!(outcome.order.iter().all(|&(_, prong)| prong == 1), "{:?}", outcome.order);
}

#[test]
fn a_drive_does_not_decline_a_batch_that_the_cpu_may_not_take() {
    // The first drive counts as slow, and both have one slot: what it passed over would never be delivered.
    for seed in 0..200 {
        let batch_s = vec![1.1, 4.0, [0.5, 4.0][seed as usize % 2]];
        let stall = Some((1.0, 10.0 + seed as f64 / 4.0));
        let world = World { batches: 5, epochs: 3, slots: 1, batch_s, stall, ..world(Strategy::Csd) };
        let outcome = Simulation::new(world.clone(), seed).run();
        assert_exactly_once(&world, &outcome);
    }
}
