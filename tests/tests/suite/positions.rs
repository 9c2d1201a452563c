//! A run with a drive goes on at another position.

use ddlp_host::report::FaultKind;
use ddlp_host::{DriveSpec, Loader, LoaderState, Strategy};
use ddlp_tests::agent::Agent;
use ddlp_tests::hooked::{CpuGate, Hooked, Hooks};
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::{Run, drive_is_up, loader, wait_until};
use nix::sys::signal::Signal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const SAMPLES: u32 = 80;

/// Keeps the CPU from reading its first sample until the loader interrupts the dataset, which it does once a thread has
/// not ended in time.
#[derive(Default)]
struct UntilInterrupted {
    is_read: AtomicBool,
    is_interrupted: Mutex<bool>,
    interrupted: Condvar,
    gate: CpuGate,
}

impl Hooks for UntilInterrupted {
    fn reads(&self, index: u64) {
        self.gate.reads(index);
        self.is_read.store(true, Ordering::Release);
        let waiting = self.is_interrupted.lock().expect("no panic at the gate");
        let minute = Duration::from_secs(60);
        let waited = self.interrupted.wait_timeout_while(waiting, minute, |interrupted| !*interrupted);
        assert!(!waited.expect("no panic at the gate").1.timed_out(), "the loader interrupts the dataset");
    }

    fn interrupts(&self) {
        *self.is_interrupted.lock().expect("no panic at the gate") = true;
        self.interrupted.notify_all();
    }
}

fn serve(photos: &Photos) -> Agent {
    Agent::start(&photos.pack(), &photos.scratch().join("state"), &["--slots", "8"])
}

/// Returns the position at the beginning of a run.
fn beginning(loader: &Loader) -> LoaderState {
    LoaderState { epoch: 0, delivered: Vec::new(), ..loader.state() }
}

#[test]
fn a_slow_thread_of_the_cpu_costs_no_drive_its_connection() {
    let photos = Photos::new(SAMPLES);
    let agent = serve(&photos);
    let base = || loader(&photos.pack()).with(|o| (o.strategy, o.threads) = (Strategy::Wrr, Some(1)));
    let reference = Run::of(base().with(|o| o.strategy = Strategy::Cpu));
    let dataset = ddlp_dataset::open(&photos.pack()).expect("the pack opens");
    let gated = Arc::new(Hooked { dataset, hooks: UntilInterrupted::default() });
    let mut run = base().dataset(gated.clone()).drive(DriveSpec::Remote(agent.url())).build().expect("both are there");
    assert_eq!(run.next().expect("a batch").expect("it is prepared").prong(), 1, "the CPU is held");
    wait_until("the CPU reads a sample", || gated.hooks.is_read.load(Ordering::Acquire));
    run.go_to(&beginning(&run)).expect("the run goes on");
    gated.hooks.gate.hold_for_drive(&run);
    let run = Run::over(run, |_, _| ());
    run.assert_exactly_once(1, SAMPLES.into());
    assert_eq!(run.digest, reference.digest);
    assert!(run.drive_batches() > 0, "the drive takes part");
    assert!(run.troubles().is_empty(), "{:?}", run.report.faults);
}

#[test]
fn a_drive_that_does_not_answer_when_the_run_moves_is_dropped_with_a_reason_and_joins_again() {
    let photos = Photos::new(SAMPLES);
    let agent = serve(&photos);
    let reference = Run::of(loader(&photos.pack()));
    let builder = loader(&photos.pack())
        .with(|o| (o.strategy, o.threads) = (Strategy::Wrr, Some(1)))
        .drive(DriveSpec::Remote(agent.url()));
    let mut run = builder.build().expect("both are there");
    run.next().expect("a batch").expect("it is prepared");
    agent.signal(Signal::SIGSTOP);
    wait_until("the drive has work", || run.progress().snapshot().prongs[1].outstanding > 0);
    run.go_to(&beginning(&run)).expect("the run goes on");
    let said: Vec<_> = run.report().faults.into_iter().filter(|fault| fault.kind == FaultKind::Lost).collect();
    assert!(said.len() == 1 && said[0].what.contains("when the run went to another position"), "{said:?}");
    agent.signal(Signal::SIGCONT);
    let mut is_back = false;
    let run = Run::over(run, |_, loader| {
        if !std::mem::replace(&mut is_back, true) {
            wait_until("the drive joins again", || drive_is_up(loader));
        }
    });
    run.assert_exactly_once(1, SAMPLES.into());
    assert_eq!(run.digest, reference.digest);
    assert_eq!(run.faults(FaultKind::Rejoined), 1, "{:?}", run.report.faults);
}
