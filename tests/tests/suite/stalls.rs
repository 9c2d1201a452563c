//! A sample that takes long holds up only its own batch, and a run in which nothing arrives says what it waits for.

use ddlp_dataset::Silences;
use ddlp_host::report::{FaultKind, FaultReport};
use ddlp_host::{
    Batch, DType, Digest, DriveSpec, Loader, LoaderError, LocalDrive, LocalResults, ProgressHandle, Strategy,
};
use ddlp_tests::agent::{Agent, program};
use ddlp_tests::hooked::{Hooked, Hooks};
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::{Run, faults, loader, local, wait_until};
use nix::sys::signal::Signal;
use std::collections::VecDeque;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const SAMPLES: u32 = 40;
/// So short that every run stalls; the tests look only at messages that come while something is known to hang.
const STALL_AFTER: Duration = Duration::from_millis(50);

/// Keeps one sample from being read until it is released.
struct Gated {
    held: u64,
    gate: Mutex<Gate>,
    moved: Condvar,
}

#[derive(Clone, Copy, PartialEq)]
enum Gate {
    Closed,
    Waiting,
    Open,
}

impl Gated {
    fn step(&self, gate: Gate) {
        *self.gate.lock().expect("no panic at the gate") = gate;
        self.moved.notify_all();
    }

    fn wait_for(&self, wanted: Gate) {
        let gate = self.gate.lock().expect("no panic at the gate");
        let minute = Duration::from_secs(60);
        let (_gate, timeout) =
            self.moved.wait_timeout_while(gate, minute, |gate| *gate != wanted).expect("no panic at the gate");
        assert!(!timeout.timed_out(), "the gate moves within a minute");
    }
}

impl Hooks for Gated {
    fn reads(&self, index: u64) {
        if index == self.held && *self.gate.lock().expect("no panic at the gate") == Gate::Closed {
            self.step(Gate::Waiting);
            self.wait_for(Gate::Open);
        }
    }
}

/// Releases the sample when dropped, so that a hanging run goes on however the test ends.
struct Finally<F: FnMut()>(F);

impl<F: FnMut()> Drop for Finally<F> {
    fn drop(&mut self) {
        self.0();
    }
}

/// Runs to the end while another thread waits for `hangs`, then for one more stall, and then calls `let_go`.
fn stalled(
    loader: Loader,
    hangs: impl FnOnce(&ProgressHandle) + Send,
    let_go: impl FnMut() + Send,
) -> (FaultReport, Run) {
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    let progress = loader.progress();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _let_go = Finally(let_go);
            hangs(&progress);
            let before = faults(&progress, FaultKind::Stall);
            wait_until("the stall is named", || faults(&progress, FaultKind::Stall) > before);
            sender.send(before).expect("the test waits for it");
        });
        let run = Run::over(loader, |_, _| ());
        let before = receiver.recv().expect("the stall was named");
        let stall = run.report.faults.iter().filter(|fault| fault.kind == FaultKind::Stall).nth(before);
        (stall.expect("it was named").clone(), run)
    })
}

#[test]
fn a_sample_that_takes_long_holds_up_nothing_but_its_own_batch() {
    let photos = Photos::new(SAMPLES);
    let base = || loader(&photos.pack()).with(|o| (o.strategy, o.buffers) = (Strategy::Wrr, 4));
    let (batch, id) = (1, Run::of(base().with(|o| o.strategy = Strategy::Cpu)).batches[1][3]);
    let dataset = ddlp_dataset::open(&photos.pack()).expect("the pack opens");
    let hooks = Gated { held: id, gate: Mutex::new(Gate::Closed), moved: Condvar::new() };
    let gated = Arc::new(Hooked { dataset, hooks });
    let run = Run::with(base().dataset(gated.clone()), |delivered, _| {
        // The sample takes until a later batch has been delivered.
        if delivered.index() > batch {
            gated.hooks.step(Gate::Open);
        }
    });
    run.assert_exactly_once(1, SAMPLES.into());
    let at = run.order.iter().position(|&(_, delivered, _)| delivered == batch).expect("it came");
    assert!(run.order[..at].iter().any(|&(_, before, _)| before > batch), "{:?}", run.order);
}

#[test]
fn a_stall_on_the_cpu_names_the_sample_and_its_batch() {
    let photos = Photos::new(SAMPLES);
    let base = || {
        loader(&photos.pack()).with(|o| (o.strategy, o.threads, o.stall_after) = (Strategy::Cpu, Some(1), STALL_AFTER))
    };
    // The fourth sample of the third batch.
    let (batch, id) = (2, Run::of(base()).batches[2][3]);
    let dataset = ddlp_dataset::open(&photos.pack()).expect("the pack opens");
    let name = dataset.name(id);
    let hooks = Gated { held: id, gate: Mutex::new(Gate::Closed), moved: Condvar::new() };
    let gated = Arc::new(Hooked { dataset, hooks });
    let hangs = |_: &ProgressHandle| gated.hooks.wait_for(Gate::Waiting);
    let (stall, run) = stalled(base().dataset(gated.clone()).build().expect("the loader builds"), hangs, || {
        gated.hooks.step(Gate::Open)
    });
    run.assert_exactly_once(1, SAMPLES.into());
    assert_eq!(stall.prong, "cpu");
    for part in
        [format!("{name} (id {id})"), format!("epoch 0 batch {batch}"), format!("the CPU has epoch/batch 0/{batch}")]
    {
        assert!(stall.what.contains(&part), "{part}: {}", stall.what);
    }
}

#[test]
fn a_stall_on_a_drive_names_the_drive_and_its_batches() {
    let photos = Photos::new(SAMPLES);
    let agent = Agent::start(&photos.pack(), &photos.scratch().join("state"), &["--slots", "24"]);
    let builder = loader(&photos.pack()).with(|o| o.strategy = Strategy::Csd).drive(DriveSpec::Remote(agent.url()));
    let builder = builder.with(|o| o.stall_after = STALL_AFTER);
    let reference = Run::of(loader(&photos.pack())).digest;
    let agent = &agent;
    let hangs = |progress: &ProgressHandle| {
        wait_until("the drive has work", || progress.snapshot().prongs[1].outstanding > 0);
    };
    // The drive is stopped before it has been given anything.
    let built = builder.build().expect("the loader builds");
    agent.signal(Signal::SIGSTOP);
    let (stall, run) = stalled(built, hangs, || agent.signal(Signal::SIGCONT));
    run.assert_exactly_once(1, SAMPLES.into());
    assert_eq!(run.digest, reference);
    assert!(stall.what.contains("drive 1 has epoch/batch 0/"), "{}", stall.what);
}

#[test]
fn a_drive_that_stalled_once_is_used_again() {
    let photos = Photos::new(SAMPLES);
    let agent = Agent::start(&photos.pack(), &photos.scratch().join("state"), &[]);
    let epochs = 40;
    let base = || {
        loader(&photos.pack())
            .with(|o| (o.strategy, o.batch_size, o.threads, o.buffers) = (Strategy::Ordered, 4, Some(1), 3))
    };
    let built =
        base().with(|o| o.epochs = epochs).drive(DriveSpec::Remote(agent.url())).build().expect("the loader builds");
    // The drive is stopped before it has finished anything: its stall is all that is known of its speed.
    agent.signal(Signal::SIGSTOP);
    let mut is_stopped = true;
    let run = Run::over(built, |_, loader| {
        let progress = loader.progress();
        // The consumer is slow, so that the CPU alone would do: the CPU is ahead, and never leaves a batch for which
        // delivery waits.
        let mut idle = 0;
        wait_until("the CPU has filled its buffers", || {
            // The CPU is idle for a moment between two batches as well.
            idle = if progress.snapshot().prongs[0].outstanding == 0 { idle + 1 } else { 0 };
            idle == 4
        });
        if std::mem::take(&mut is_stopped) {
            wait_until("the drive has work", || progress.snapshot().prongs[1].outstanding > 0);
            // Lasts as long as the CPU alone takes for many more batches than the window has.
            Run::of(base().with(|o| (o.strategy, o.epochs) = (Strategy::Cpu, 10)));
            agent.signal(Signal::SIGCONT);
        }
    });
    run.assert_exactly_once(epochs, SAMPLES.into());
    let last = &run.order[run.order.len() - 160..];
    let by_drive = last.iter().filter(|&&(_, _, prong)| prong == 1).count();
    assert!(by_drive >= 8, "{by_drive} of the last {} batches are the drive's", last.len());
}

/// Announcing hangs until it is released, or panics.
enum Announcing {
    Hangs(Gated),
    Panics,
}

impl Hooks for Announcing {
    fn reads(&self, _index: u64) {}

    fn announces(&self, _indices: &[u64]) {
        match self {
            Self::Hangs(gated) => gated.reads(gated.held),
            Self::Panics => panic!("announced"),
        }
    }
}

#[test]
fn announcing_that_hangs_is_named_and_announcing_that_panics_does_no_harm() {
    let photos = Photos::new(SAMPLES);
    let base = || {
        loader(&photos.pack()).with(|o| (o.strategy, o.threads, o.stall_after) = (Strategy::Cpu, Some(1), STALL_AFTER))
    };
    let reference = Run::of(base()).digest;
    let hooked =
        |hooks| Arc::new(Hooked { dataset: ddlp_dataset::open(&photos.pack()).expect("the pack opens"), hooks });

    let hanging = hooked(Announcing::Hangs(Gated { held: 0, gate: Mutex::new(Gate::Closed), moved: Condvar::new() }));
    let Announcing::Hangs(gated) = &hanging.hooks else { unreachable!("made so") };
    let hangs = |_: &ProgressHandle| gated.wait_for(Gate::Waiting);
    let (stall, run) =
        stalled(base().dataset(hanging.clone()).build().expect("the loader builds"), hangs, || gated.step(Gate::Open));
    assert_eq!(run.digest, reference);
    assert!(
        stall.what.contains("the CPU has been sending read-ahead hints for the samples of epoch 0"),
        "{}",
        stall.what
    );

    assert_eq!(Run::of(base().dataset(hooked(Announcing::Panics))).digest, reference);
}

#[test]
fn a_consumer_may_keep_all_buffers_but_one() {
    let photos = Photos::new(SAMPLES);
    for strategy in [Strategy::Cpu, Strategy::Ordered, Strategy::Mte, Strategy::Wrr] {
        for (results, buffers) in [(LocalResults::Shared, 2), (LocalResults::Read, 2), (LocalResults::Read, 4)] {
            let case = format!("{strategy}, {results:?}, {buffers} buffers");
            let builder = loader(&photos.pack())
                .with(|o| (o.strategy, o.batch_size, o.epochs, o.buffers) = (strategy, 4, 2, buffers));
            let builder = if strategy == Strategy::Cpu { builder } else { builder.drive(local(results)) };
            let loader = builder.with(|o| o.dtype = DType::F32).build().expect("the loader builds");
            let (stopper, (done, is_done)) = (loader.stopper(), std::sync::mpsc::channel::<()>());
            let mut samples = 0;
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    // Nothing is ever sent: the channel ends with the run.
                    if is_done.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
                        stopper.stop();
                    }
                });
                let mut kept = VecDeque::new();
                for batch in loader {
                    let batch = batch.expect("every batch comes");
                    samples += batch.len() as u32;
                    kept.push_back(batch);
                    if kept.len() == buffers {
                        kept.pop_front();
                    }
                }
                drop(done);
            });
            assert_eq!(samples, 2 * SAMPLES, "{case}: the run hangs");
        }
    }
}

#[test]
fn a_consumer_that_keeps_all_buffers_is_warned() {
    let photos = Photos::new(SAMPLES);
    let builder = loader(&photos.pack())
        .with(|o| (o.strategy, o.batch_size, o.buffers, o.stall_after) = (Strategy::Cpu, 4, 2, STALL_AFTER));
    let mut loader = builder.build().expect("the loader builds");
    let kept: Vec<_> = loader.by_ref().take(2).collect();
    let (progress, stopper) = (loader.progress(), loader.stopper());
    let before = faults(&progress, FaultKind::Stall);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_until("the stall is named", || faults(&progress, FaultKind::Stall) > before);
            stopper.stop();
        });
        assert!(loader.next().is_none(), "there is no third buffer");
    });
    let report = loader.report();
    let stall = report.faults.iter().rfind(|fault| fault.kind == FaultKind::Stall).expect("a stall was named");
    assert!(stall.what.contains("no batch buffer is free"), "{}", stall.what);
    drop(kept);
}

#[test]
fn a_consumer_may_stop_waiting_and_gets_the_same_batch_later() {
    let photos = Photos::new(SAMPLES);
    let mut loader = loader(&photos.pack()).with(|o| (o.batch_size, o.buffers) = (4, 2)).build().expect("it builds");
    let kept: Vec<_> = loader.by_ref().take(2).collect();
    let mut asked = Vec::new();
    let none = loader.next_while(|waiting| {
        asked.push(waiting.time);
        !waiting.keeps_all
    });
    assert!(none.is_none() && asked.is_sorted() && !asked.is_empty(), "{asked:?}");
    drop(kept);
    let next = loader.next_while(|_| true).expect("the run goes on").expect("the batch comes");
    assert_eq!(next.index(), 2);
    drop(next);
    assert_eq!(loader.count(), 7, "all other batches of ten come");
}

#[test]
fn a_consumer_that_asks_again_and_again_is_warned_like_one_that_waits() {
    let photos = Photos::new(SAMPLES);
    // Longer than each of its calls waits.
    let stall_after = Duration::from_millis(400);
    let builder = loader(&photos.pack())
        .with(|o| (o.strategy, o.batch_size, o.buffers, o.stall_after) = (Strategy::Cpu, 4, 2, stall_after));
    let mut loader = builder.build().expect("the loader builds");
    let kept: Vec<_> = loader.by_ref().take(2).collect();
    let said = |loader: &Loader, kind| loader.report().faults.iter().filter(|fault| fault.kind == kind).count();
    let (stalls, waited_s) = (said(&loader, FaultKind::Stall), loader.report().consumer_wait_s);
    wait_until("two stalls are named", || {
        assert!(loader.next_while(|_| false).is_none(), "there is no third buffer");
        said(&loader, FaultKind::Stall) >= stalls + 2
    });
    assert_eq!(said(&loader, FaultKind::Kept), 1);
    drop(kept);
    loader.next().expect("the run goes on").expect("the batch comes");
    let waited_s = loader.report().consumer_wait_s - waited_s;
    assert!(waited_s >= 2.0 * stall_after.as_secs_f64() - 1e-6, "{waited_s} s: all calls waited for the batch");
    let kept: Vec<_> = loader.by_ref().take(2).collect();
    let stalls = said(&loader, FaultKind::Stall);
    wait_until("another stall is named", || {
        assert!(loader.next_while(|_| false).is_none(), "there is no third buffer");
        said(&loader, FaultKind::Stall) > stalls
    });
    assert_eq!(said(&loader, FaultKind::Kept), 1, "the consumer is told once");
    drop(kept);
}

#[test]
fn a_consumer_that_keeps_all_result_slots_is_warned() {
    let photos = Photos::new(SAMPLES);
    let drive = LocalDrive { agent: Some(program("ddlp-device")), slots: Some(4), ..LocalDrive::default() };
    let builder =
        loader(&photos.pack()).with(|o| (o.strategy, o.batch_size) = (Strategy::Csd, 4)).drive(DriveSpec::Local(drive));
    let mut loader = builder.with(|o| o.stall_after = STALL_AFTER).build().expect("the loader builds");
    let kept: Vec<_> = loader.by_ref().take(4).collect();
    let (progress, stopper) = (loader.progress(), loader.stopper());
    let before = faults(&progress, FaultKind::Stall);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_until("it is said, and the stall named", || {
                faults(&progress, FaultKind::Kept) > 0 && faults(&progress, FaultKind::Stall) > before
            });
            stopper.stop();
        });
        assert!(loader.next().is_none(), "there is no fifth slot");
    });
    let report = loader.report();
    let said = |kind| report.faults.iter().rev().find(|fault| fault.kind == kind).map_or("", |fault| &fault.what);
    assert!(
        said(FaultKind::Kept).contains("all 4 result slots") && said(FaultKind::Kept).contains("more `slots`"),
        "{report:?}"
    );
    assert!(said(FaultKind::Stall).contains("no free result slot"), "{}", said(FaultKind::Stall));
    drop(kept);
}

/// Runs as the program that keeps all batches, for the test below.
const COLLECTS: &str = "DDLP_TEST_COLLECTS";

#[test]
fn a_consumer_that_keeps_all_batches_is_warned_on_standard_error() {
    if let Some(pack) = std::env::var_os(COLLECTS) {
        let builder = loader(std::path::Path::new(&pack)).with(|o| (o.strategy, o.batch_size) = (Strategy::Cpu, 4));
        let loader = builder.build().expect("the loader builds");
        let (progress, stopper) = (loader.progress(), loader.stopper());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                wait_until("it is said", || progress.snapshot().faults > 0);
                stopper.stop();
            });
            assert_eq!(loader.collect::<Vec<_>>().len(), 6, "as many as there are buffers by default");
        });
        return;
    }
    let photos = Photos::new(SAMPLES);
    let name = "stalls::a_consumer_that_keeps_all_batches_is_warned_on_standard_error";
    let mut this = std::process::Command::new(std::env::current_exe().expect("this program"));
    let output = this.args(["--exact", name, "--nocapture"]).env(COLLECTS, photos.pack()).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let sentence = "the consumer keeps batches in all 6 buffers";
    assert_eq!(said.matches(sentence).count(), 1, "{said}");
    for remedy in ["drop batches", "copy them", "more `buffers`"] {
        assert!(said.contains(remedy), "{said}");
    }
}

#[test]
fn copies_of_all_batches_can_be_kept() {
    let photos = Photos::new(SAMPLES);
    let reference = Run::of(loader(&photos.pack()));
    for strategy in [Strategy::Cpu, Strategy::Csd] {
        let builder =
            loader(&photos.pack()).with(|o| (o.strategy, o.buffers) = (strategy, 2)).drive(local(LocalResults::Shared));
        let loader = builder.build().expect("the loader builds");
        let kept: Result<Vec<Batch>, LoaderError> = loader.map(|batch| batch?.into_owned()).collect();
        let mut digest = Digest::default();
        kept.expect("every batch comes").iter().for_each(|batch| digest.update(batch).expect("a copy"));
        assert_eq!(digest.unordered(), reference.digest, "{strategy}");
    }
}

/// A dataset whose drive was silent for an hour before the run.
struct OnceSilent;

impl Hooks for OnceSilent {
    fn reads(&self, _index: u64) {}

    fn silences(&self) -> Silences {
        Silences { total: Duration::from_secs(3600), now: None }
    }
}

#[test]
fn a_silence_before_the_run_is_not_the_runs() {
    let photos = Photos::new(SAMPLES);
    let dataset = ddlp_dataset::open(&photos.pack()).unwrap();
    let dataset = Arc::new(Hooked { dataset, hooks: OnceSilent });
    let builder = loader(&photos.pack()).dataset(dataset).with(|o| o.strategy = Strategy::Cpu);
    let run = Run::with(builder, |_, loader| assert_eq!(loader.progress().snapshot().silent_s, 0.0));
    assert!(run.troubles().is_empty(), "{:?}", run.report.faults);
    assert!(run.report.prongs[0].images_per_s > 0.0, "the hour is not left out of the CPU's work");
}
