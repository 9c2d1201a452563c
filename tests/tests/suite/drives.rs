//! Several drives in one run, and several ranks with a drive each.

use ddlp_host::report::FaultKind;
use ddlp_host::{DriveSpec, LocalDrive, LocalResults, Strategy};
use ddlp_nvme::Status;
use ddlp_tests::agent::Agent;
use ddlp_tests::hooked::gated;
use ddlp_tests::photos::Photos;
use ddlp_tests::proxy::{Fate, Pdu, Proxy};
use ddlp_tests::runs::{Run, loader, local, wait_for_every_prong, wait_until};

const SAMPLES: u32 = 160;

#[test]
fn two_drives_share_the_work_in_every_strategy() {
    let photos = Photos::new(SAMPLES);
    let reference = Run::of(loader(&photos.pack()).with(|o| o.epochs = 2));
    let mut made = [0, 0];
    for strategy in [Strategy::Csd, Strategy::Mte, Strategy::Wrr, Strategy::Ordered] {
        for results in [LocalResults::Shared, LocalResults::Read] {
            let name = format!("{strategy} {results:?}");
            let is_shared = results == LocalResults::Shared;
            let DriveSpec::Local(drive) = local(results) else { unreachable!("a local drive") };
            // Neither buffers nor the slots of one drive hold all twenty batches of an epoch.
            let drive = DriveSpec::Local(LocalDrive { slots: Some(4), ..drive });
            let builder = loader(&photos.pack()).with(|o| (o.epochs, o.threads, o.strategy) = (2, Some(1), strategy));
            let run = Run::with(builder.drive(drive.clone()).drive(drive), |_, loader| {
                if is_shared {
                    wait_for_every_prong(loader, strategy != Strategy::Csd);
                }
            });
            run.assert_exactly_once(2, SAMPLES.into());
            assert_eq!(run.digest, reference.digest, "{name}");
            if strategy.is_sequential() {
                assert_eq!(run.ordered_digest, reference.ordered_digest, "{name}");
            }
            assert!(run.troubles().is_empty(), "{name}: {:?}", run.report.faults);
            let names: Vec<&str> = run.report.prongs.iter().map(|prong| prong.name.as_str()).collect();
            assert_eq!(names, ["cpu", "csd 1", "csd 2"], "{name}");
            for (drive, made) in (1..).zip(&mut made) {
                let batches = run.order.iter().filter(|&&(_, _, prong)| prong == drive).count();
                assert_eq!(run.report.prongs[drive].batches, batches as u64, "{name}");
                *made += batches;
            }
        }
    }
    assert!(made.iter().all(|&batches| batches > 0), "each drive took part: {made:?}");
}

#[test]
fn a_drive_is_told_to_stop_work_that_another_finished_first() {
    let photos = Photos::new(SAMPLES);
    // The drive is so slow that the CPU takes over its batches at the end of an epoch.
    let state = photos.scratch().join("state");
    let agent = Agent::start(&photos.pack(), &state, &["--threads", "1", "--throttle", "0.01"]);
    let builder = loader(&photos.pack()).with(|o| (o.epochs, o.threads, o.strategy) = (3, Some(1), Strategy::Wrr));
    let mut delivered = 0;
    let run = Run::with(builder.drive(DriveSpec::Remote(agent.url())), |batch, _| {
        delivered += 1;
        if batch.epoch() == 2 && delivered % 20 == 1 {
            // Checked while the association lives, since its end would cancel as well.
            wait_until("a batch of the drive's is cancelled", || agent.counters().cancelled > 0);
        }
    });
    run.assert_exactly_once(3, SAMPLES.into());
}

#[test]
fn two_ranks_with_a_drive_each_give_the_global_batches_of_one() {
    let photos = Photos::new(SAMPLES);
    let one = Run::of(loader(&photos.pack()).with(|o| o.epochs = 2));
    for strategy in [Strategy::Csd, Strategy::Ordered] {
        let rank = |rank| {
            let builder = loader(&photos.pack()).with(|o| {
                (o.epochs, o.threads, o.strategy, (o.rank, o.world_size)) = (2, Some(1), strategy, (rank, 2))
            });
            let builder = builder.drive(local(LocalResults::Shared));
            Run::with(builder, |_, loader| wait_for_every_prong(loader, false))
        };
        let (rank, first) = std::thread::scope(|scope| {
            let first = scope.spawn(|| rank(0));
            (rank(1), first.join().expect("rank 0 ends well"))
        });
        let joined: Vec<Vec<u64>> =
            first.batches.iter().zip(&rank.batches).map(|(first, second)| [&first[..], second].concat()).collect();
        assert_eq!(joined, one.batches, "{strategy}");
        let sum = |digest: &str| u128::from_str_radix(digest, 16).expect("hexadecimal");
        let together = sum(&first.digest).wrapping_add(sum(&rank.digest));
        assert_eq!(together, sum(&one.digest), "{strategy}: the order-free digest is a sum over samples");
        assert!(first.drive_batches() > 0 && rank.drive_batches() > 0, "{strategy}: each has its drive");
    }
}

#[test]
fn a_drive_without_memory_for_all_of_its_slots_goes_on_with_fewer() {
    let photos = Photos::new(SAMPLES);
    let agent = Agent::start(&photos.pack(), &photos.scratch().join("state"), &["--slots", "12"]);
    let reference = Run::of(loader(&photos.pack()).with(|o| o.epochs = 2));
    // Two commands are in flight, so that a drive with one slot is asked for a second one.
    for (there, strategy) in [(1, Strategy::Ordered), (1, Strategy::Mte), (0, Strategy::Csd)] {
        let proxy = Proxy::start(agent.address(), move |pdu: &mut Pdu<'_>| {
            if pdu.is_success() && pdu.slot().is_some_and(|slot| slot >= there) {
                let status = Status::CAPACITY_EXCEEDED.to_wire().to_le_bytes();
                pdu.bytes[22..24].copy_from_slice(&status);
            }
            Fate::Pass
        });
        let drive = DriveSpec::Remote(agent.url_by(&proxy.address()));
        // The CPU alone would end the run before the drive has answered.
        let gated = gated(&photos.pack());
        let builder =
            loader(&photos.pack()).with(|o| (o.epochs, o.threads, o.strategy) = (2, Some(1), strategy)).drive(drive);
        let loader = builder.dataset(gated.clone()).build().expect("a loader");
        gated.hooks.hold_until(&loader, move |progress| {
            let has_worked = there == 0 || progress.snapshot().prongs[1].prepared > 0;
            has_worked && progress.report().notes.iter().any(|note| note.contains("no memory"))
        });
        let run = Run::over(loader, |_, _| ());
        run.assert_exactly_once(2, SAMPLES.into());
        assert_eq!(run.digest, reference.digest, "{strategy}");
        let notes = &run.report.notes;
        assert!(
            notes.iter().any(|note| note.contains("no memory for all of its result slots")),
            "{strategy}: {notes:?}"
        );
        assert_eq!(run.report.prongs[1].batches > 0, there > 0, "{strategy}");
        assert!(run.report.faults.iter().all(|fault| fault.kind != FaultKind::Status), "{:?}", run.report.faults);
    }
}
