//! Faults that an epoch must survive in a local drive with shared slots: an agent that dies, dies again and again, or
//! is stopped, and memory that does not hold what was written.

use ddlp_csd::slot::SlotLayout;
use ddlp_host::report::FaultKind;
use ddlp_host::{DriveSpec, LoaderBuilder, LocalDrive, LocalResults, Strategy};
use ddlp_pixels::Shape;
use ddlp_tests::hooked::gated;
use ddlp_tests::photos::Photos;
use ddlp_tests::proxy::{CAPSULE_RESPONSE, Fate, Pdu};
use ddlp_tests::runs::{FloatRun, Run, drive_is_up, faults, loader, local, local_by, wait_until};
use ddlp_tests::stand_in;
use nix::sys::signal::{Signal, kill};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const SAMPLES: u32 = 200;
const TWO_ENDED: [Strategy; 3] = [Strategy::Mte, Strategy::Wrr, Strategy::Ordered];

/// Returns the digest of two epochs that the CPU prepares alone.
fn reference(photos: &Photos) -> String {
    Run::of(loader(&photos.pack()).with(|o| o.epochs = 2)).digest
}

#[test]
fn an_agent_that_dies_is_started_again() {
    let photos = Photos::new(SAMPLES);
    let reference = reference(&photos);
    for results in [LocalResults::Shared, LocalResults::Read] {
        let drive = local_by(stand_in::named(photos.scratch(), "ddlp-mortal"), results);
        let builder = loader(&photos.pack())
            .with(|o| (o.epochs, o.threads, o.strategy) = (2, Some(1), Strategy::Wrr))
            .drive(drive);
        let mut delivered = 0;
        let run = Run::with(builder, |_, loader| {
            delivered += 1;
            if delivered == 5 {
                kill(stand_in::process("ddlp-mortal"), Signal::SIGKILL).expect("it runs");
                wait_until("the agent is started again", || {
                    loader.report().faults.iter().any(|fault| fault.kind == FaultKind::Rejoined)
                });
            }
        });
        run.assert_exactly_once(2, SAMPLES.into());
        assert_eq!(run.digest, reference);
        assert_eq!(run.faults(FaultKind::Restart), 1, "{:?}", run.report.faults);
    }
}

#[test]
fn an_agent_that_dies_again_at_each_start_is_given_up_and_the_cpu_goes_on() {
    let photos = Photos::new(SAMPLES);
    let (photos, reference) = (&photos, &reference(&photos));
    std::thread::scope(|scope| {
        for strategy in [Strategy::Csd, Strategy::Mte] {
            scope.spawn(move || assert_is_given_up(photos, strategy, reference));
        }
    });
}

fn assert_is_given_up(photos: &Photos, strategy: Strategy, reference: &str) {
    let name = format!("ddlp-once-{strategy}");
    let agent = stand_in::named(photos.scratch(), &name);
    let starts = photos.scratch().join(format!("{name}.starts"));
    let body = format!(
        "echo start >> '{0}'; if [ $(wc -l < '{0}') = 1 ]; then exec '{1}' \"$@\"; fi; exit 3",
        starts.display(),
        agent.display()
    );
    let script = stand_in::script(photos.scratch(), &format!("{name}.sh"), &body);
    let drive = local_by(script, LocalResults::Shared);
    let builder =
        loader(&photos.pack()).with(|o| (o.epochs, o.threads, o.strategy) = (2, Some(1), strategy)).drive(drive);
    let (mut delivered, mut given_up_at) = (0, 0);
    let run = Run::with(builder, |_, loader| {
        delivered += 1;
        if delivered == 5 {
            kill(stand_in::process(&name), Signal::SIGKILL).expect("it runs");
            wait_until("the agent is given up", || {
                loader
                    .report()
                    .faults
                    .iter()
                    .any(|fault| fault.kind == FaultKind::Refused && fault.what.contains("times without success"))
            });
            given_up_at = loader.report().prongs[1].prepared;
        }
    });
    run.assert_exactly_once(2, SAMPLES.into());
    assert_eq!(run.digest, reference, "{strategy}");
    assert_eq!(run.report.prongs[1].prepared, given_up_at, "{strategy}: nothing comes of a drive that was given up");
    // Batches that the drive had finished before are still delivered.
    assert!(run.order[5..].iter().any(|&(_, _, prong)| prong == 0), "{strategy}: the CPU goes on");
    let starts_named = run.report.faults.iter().filter(|fault| fault.kind == FaultKind::Start);
    let said: Vec<&str> = starts_named.map(|fault| fault.what.as_str()).collect();
    assert!(said.iter().all(|what| what.contains("exit status: 3")), "{said:?}");
    let started = std::fs::read_to_string(&starts).expect("a file of starts").lines().count();
    assert_eq!((said.len(), started), (10, 11), "{strategy}: a bounded number of starts");
    let refused = run.report.faults.iter().find(|fault| fault.kind == FaultKind::Refused).expect("waited for");
    assert_eq!(refused.prong, "csd");
}

#[test]
fn an_agent_stopped_for_longer_than_the_time_out_writes_nothing_late_into_shared_slots() {
    let photos = Photos::new(SAMPLES);
    let reference = reference(&photos);
    for strategy in TWO_ENDED {
        let drive = local_by(stand_in::named(photos.scratch(), "ddlp-stopped"), LocalResults::Shared);
        let builder = loader(&photos.pack())
            .with(|o| (o.epochs, o.threads, o.buffers, o.strategy) = (2, Some(1), 3, strategy))
            .drive(drive);
        let mut delivered = 0;
        let run = Run::with(builder.with(|o| o.drive_timeout = Duration::from_millis(300)), |_, loader| {
            delivered += 1;
            if delivered == 4 {
                let agent = stand_in::process("ddlp-stopped");
                kill(agent, Signal::SIGSTOP).expect("it runs");
                wait_until("the time-out", || !drive_is_up(loader));
                kill(agent, Signal::SIGCONT).expect("it is there");
                wait_until("the drive rejoins", || drive_is_up(loader));
            }
        });
        run.assert_exactly_once(2, SAMPLES.into());
        assert_eq!(run.digest, reference, "{strategy}");
        let faults = &run.report.faults;
        assert!(
            run.faults(FaultKind::Timeout) + run.faults(FaultKind::Lost) >= 1 && run.faults(FaultKind::Rejoined) >= 1,
            "{strategy}: {faults:?}"
        );
        assert_eq!((run.faults(FaultKind::Damaged), run.faults(FaultKind::Restart)), (0, 0), "{strategy}: {faults:?}");
    }
}

#[test]
fn a_damaged_shared_slot_is_found_and_prepared_again() {
    let photos = Photos::new(SAMPLES);
    let reference = reference(&photos);
    for strategy in [Strategy::Csd, Strategy::Mte, Strategy::Wrr, Strategy::Ordered] {
        let slots = photos.scratch().join(format!("slots-{strategy}"));
        let damaged = Arc::new(AtomicUsize::new(0));
        let (own_slots, own_damaged) = (slots.clone(), damaged.clone());
        let mut completions = 0;
        // The drive is done with the slot, and the loader has not heard of it yet: one bit of a row is flipped.
        let agent = stand_in::relayed(photos.scratch(), &format!("relayed-{strategy}"), move |pdu: &mut Pdu<'_>| {
            if pdu.kind() == CAPSULE_RESPONSE && pdu.is_execute() && pdu.is_success() {
                completions += 1;
                if completions % 3 == 2 {
                    turn_a_bit(&own_slots, pdu.slot().expect("an Execute names a slot"), completions);
                    own_damaged.fetch_add(1, Ordering::Relaxed);
                }
            }
            Fate::Pass
        });
        let drive = local_by(agent, LocalResults::File(slots));
        let gated = gated(&photos.pack());
        let builder = loader(&photos.pack())
            .with(|o| (o.epochs, o.threads, o.buffers, o.strategy) = (2, Some(1), 3, strategy))
            .drive(drive);
        let loader = builder.dataset(gated.clone()).build().expect("a loader");
        gated.hooks.hold_until(&loader, |progress| faults(progress, FaultKind::Damaged) > 0);
        let run = Run::over(loader, |_, _| ());
        run.assert_exactly_once(2, SAMPLES.into());
        assert_eq!(run.digest, reference, "{strategy}");
        let (found, injected) = (run.faults(FaultKind::Damaged), damaged.load(Ordering::Relaxed));
        // A result that came too late is discarded unread.
        assert!((1..=injected).contains(&found), "{strategy}: {injected} damaged, {:?}", run.report.faults);
        let named = run.report.faults.iter().filter(|fault| fault.kind == FaultKind::Damaged);
        for fault in named {
            assert!(fault.what.contains("payload crc32c") && fault.batch.is_some(), "{strategy}: {fault:?}");
        }
    }
}

/// Under `mte`, the drive's finished batches wait for the head: here, as floats, for buffers. They lie in memory that
/// the loader itself has mapped, so the agent may die.
#[test]
fn what_a_dead_agent_had_finished_in_shared_slots_is_delivered_as_floats() {
    let photos = Photos::new(SAMPLES);
    let floats = |strategy| {
        loader(&photos.pack()).with(|o| (o.epochs, o.threads, o.buffers, o.strategy) = (2, Some(1), 2, strategy))
    };
    let expected = FloatRun::with(floats(Strategy::Cpu), |_| ()).values;
    for (results, comes_back) in [
        (LocalResults::Shared, false),
        (LocalResults::Shared, true),
        (LocalResults::File(photos.scratch().join("slots")), false),
        (LocalResults::File(photos.scratch().join("slots")), true),
    ] {
        let case = format!("{results:?}, comes back: {comes_back}");
        let name = "ddlp-floats";
        let agent = stand_in::named(photos.scratch(), name);
        let started = photos.scratch().join("floats.started");
        let _ = std::fs::remove_file(&started);
        let again = if comes_back { "exec" } else { "exit 3;" };
        let (agent, mark) = (agent.display(), started.display());
        let body =
            format!("if [ -e '{mark}' ]; then {again} '{agent}' \"$@\"; fi; touch '{mark}'; exec '{agent}' \"$@\"");
        let DriveSpec::Local(drive) = local_by(stand_in::script(photos.scratch(), "floats.sh", &body), results) else {
            unreachable!("a local drive")
        };
        let drive = DriveSpec::Local(LocalDrive { slots: Some(24), ..drive });
        let (mut delivered, mut finished) = (0, 0);
        let run = FloatRun::with(floats(Strategy::Mte).drive(drive), |loader| {
            delivered += 1;
            if delivered == 2 {
                // Nothing is delivered meanwhile: at most two batches are in buffers.
                wait_until("the drive has finished much of the tail", || {
                    let progress = loader.progress().snapshot();
                    finished = (progress.tail as usize).saturating_sub(progress.prongs[1].outstanding);
                    finished >= 8
                });
                kill(stand_in::process(name), Signal::SIGKILL).expect("it runs");
                wait_until("the loss is noticed", || {
                    loader.report().faults.iter().any(|fault| fault.kind == FaultKind::Lost)
                });
                if comes_back {
                    wait_until("the drive rejoins", || drive_is_up(loader));
                }
            }
        });
        assert!(run.values == expected, "{case}: each sample once, and its values");
        let by_drive = run.order.iter().filter(|&&(epoch, _, prong)| epoch == 0 && prong == 1).count();
        assert!(
            by_drive >= finished,
            "{case}: {by_drive} batches of the drive, which had finished {finished}: {:?}",
            run.report.faults
        );
        // Agents invalidate all slots when they start, so the contents are known by then.
        let found_damaged = run.report.faults.iter().any(|fault| fault.kind == FaultKind::Damaged);
        assert!(!found_damaged, "{case}: {:?}", run.report.faults);
    }
}

/// The file of slots is there before the first run, so it stays for the second one.
#[test]
fn a_field_in_a_file_of_slots_outlives_the_next_run_on_that_file() {
    let photos = Photos::new(SAMPLES);
    let slots = photos.scratch().join("slots");
    std::fs::File::create(&slots).expect("an empty file may hold slots");
    let inode = || std::fs::metadata(&slots).expect("the file stays").ino();
    let run = |seed| {
        let DriveSpec::Local(drive) = local(LocalResults::File(slots.clone())) else { unreachable!("a local drive") };
        let drive = DriveSpec::Local(LocalDrive { slots: Some(3), ..drive });
        loader(&photos.pack()).with(|o| (o.seed, o.strategy) = (seed, Strategy::Csd)).drive(drive)
    };
    let mut kept = None;
    Run::with(run(1), |batch, _| {
        let field = batch.field("image").expect("a field").share();
        kept.get_or_insert_with(|| (field.view().bytes().expect("they can be read").to_vec(), field));
    });
    let (bytes, field) = kept.expect("a batch");
    let first = inode();
    let second = Run::of(run(2));
    second.assert_exactly_once(1, SAMPLES.into());
    assert!(field.view().bytes() == Ok(&bytes[..]), "another run has written to the batch");
    assert_ne!(inode(), first, "the second run has a file of its own");
    drop(field);
    let own = inode();
    Run::of(run(3)).assert_exactly_once(1, SAMPLES.into());
    assert_eq!(inode(), own, "a file that nobody holds is used again");
}

/// The second run begins while the first one's agent is dead, and so nobody holds the agent's lock on the file.
#[test]
fn two_runs_on_one_file_of_slots_stay_apart_while_an_agent_is_restarted() {
    let photos = Photos::new(SAMPLES);
    let reference = reference(&photos);
    let slots = photos.scratch().join("slots");
    let in_slots = || LocalResults::File(slots.clone());
    let name = "ddlp-restarted";
    let agent = stand_in::named(photos.scratch(), name);
    let [started, again, go_on] = ["started", "again", "go on"].map(|mark| photos.scratch().join(mark));
    let body = format!(
        "if [ -e '{0}' ]; then touch '{1}'; while [ ! -e '{2}' ]; do sleep 0.01; done; fi; touch '{0}'; exec '{3}' \
         \"$@\"",
        started.display(),
        again.display(),
        go_on.display(),
        agent.display()
    );
    let drive = local_by(stand_in::script(photos.scratch(), "restarted.sh", &body), in_slots());
    let gated = gated(&photos.pack());
    let builder =
        loader(&photos.pack()).with(|o| (o.epochs, o.threads, o.strategy) = (2, Some(1), Strategy::Wrr)).drive(drive);
    let (mut delivered, mut second, mut made_before) = (0, None, 0);
    let run = Run::with(builder.dataset(gated.clone()), |_, loader| {
        delivered += 1;
        if delivered == 5 {
            kill(stand_in::process(name), Signal::SIGKILL).expect("it runs");
            wait_until("the loader starts it again", || again.exists());
            let mut kept = None;
            let other = Run::with(loader_of_second(&photos, local(in_slots())), |batch, _| {
                let field = batch.field("image").expect("a field").share();
                kept.get_or_insert_with(|| (field.view().bytes().expect("they can be read").to_vec(), field));
            });
            other.assert_exactly_once(1, SAMPLES.into());
            assert!(other.troubles().is_empty(), "{:?}", other.report.faults);
            second = kept;
            made_before = loader.report().prongs[1].prepared;
            std::fs::write(&go_on, "").expect("a mark");
            wait_until("the agent is started again", || drive_is_up(loader));
            gated.hooks.hold_for_drive(loader);
        }
    });
    run.assert_exactly_once(2, SAMPLES.into());
    assert_eq!(run.digest, reference);
    assert_eq!(run.faults(FaultKind::Damaged), 0, "{:?}", run.report.faults);
    assert!(run.report.prongs[1].prepared > made_before, "the drive works again: {:?}", run.report.faults);
    let (bytes, field) = second.expect("a batch");
    assert!(field.view().bytes() == Ok(&bytes[..]), "the first run has written to the second one's batch");
}

/// Returns the second run on a file of slots.
fn loader_of_second(photos: &Photos, drive: DriveSpec) -> LoaderBuilder {
    loader(&photos.pack()).with(|o| (o.seed, o.strategy) = (8, Strategy::Csd)).drive(drive)
}

/// Flips a bit of a pixel in a slot for eight samples of 224 × 224.
fn turn_a_bit(slots: &Path, slot: u64, salt: u64) {
    let layout = SlotLayout::new(8, Shape { height: 224, width: 224, channels: 3 }).expect("a small batch");
    let file = std::fs::File::options().read(true).write(true).open(slots).expect("the file of slots");
    let within = salt * 104_729 % (8 * layout.row_bytes as u64);
    let at = slot * layout.total_bytes as u64 + layout.payload_offset as u64 + within;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("within the file");
    byte[0] ^= 1 << (salt % 8);
    file.write_all_at(&byte, at).expect("within the file");
}
