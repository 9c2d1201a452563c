//! Faults that an epoch must survive: a drive that dies, hangs, lies or is another one. In each case every sample is
//! delivered exactly once, the bytes are unchanged, and the report names the fault.
//!
//! Agents are real processes; a relay between loader and agent injects faults of the link. Local drives are tested in
//! `local.rs`. What the loader counts and how long it waits, such as pauses, attempts to connect and wrong results in a
//! row, is tested under a virtual clock, in `drive/simulation.rs` of the loader.

use ddlp_host::report::FaultKind;
use ddlp_host::{DriveSpec, LoaderBuilder, Strategy};
use ddlp_tests::agent::Agent;
use ddlp_tests::hooked::{CpuGate, Hooked, gated};
use ddlp_tests::photos::Photos;
use ddlp_tests::proxy::{C2H_DATA, CAPSULE_COMMAND, CAPSULE_RESPONSE, Fate, IC_RESP, Pdu, Proxy, Way};
use ddlp_tests::runs::{Run, chain, drive_is_up, faults, loader, wait_for_work_of_the_drive, wait_until};
use nix::sys::signal::Signal;
use nix::sys::socket::Backlog;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SAMPLES: u32 = 200;
const TWO_ENDED: [Strategy; 3] = [Strategy::Mte, Strategy::Wrr, Strategy::Ordered];

struct Scene {
    photos: Photos,
    agent: Agent,
    digest: String,
}

impl Scene {
    fn new() -> Self {
        let photos = Photos::new(SAMPLES);
        let agent = Agent::start(&photos.pack(), &photos.scratch().join("state"), &["--slots", "24"]);
        let digest = Run::of(loader(&photos.pack()).with(|o| o.epochs = 2)).digest;
        Self { photos, agent, digest }
    }

    fn builder(&self, strategy: Strategy, url: String) -> LoaderBuilder {
        // One thread and few buffers make the drive's part large, and the run long enough to be disturbed.
        loader(&self.photos.pack())
            .with(|o| (o.epochs, o.threads, o.buffers, o.strategy) = (2, Some(1), 3, strategy))
            .drive(DriveSpec::Remote(url))
    }

    /// Returns such a loader whose CPU can be held, and the dataset with its gate.
    fn gated(&self, strategy: Strategy, url: String) -> (LoaderBuilder, Arc<Hooked<CpuGate>>) {
        let gated = gated(&self.photos.pack());
        (self.builder(strategy, url).dataset(gated.clone()), gated)
    }

    fn assert_unharmed(&self, run: &Run, strategy: Strategy) {
        run.assert_exactly_once(2, SAMPLES.into());
        assert_eq!(run.digest, self.digest, "{strategy}");
        if strategy == Strategy::Ordered {
            assert!(run.order.is_sorted_by_key(|&(epoch, batch, _)| (epoch, batch)));
        }
    }
}

#[test]
fn an_agent_killed_in_the_middle_is_survived_and_rejoins() {
    for strategy in TWO_ENDED {
        let mut scene = Scene::new();
        let (builder, gated) = scene.gated(strategy, scene.agent.url());
        let (mut delivered, agent) = (0, &mut scene.agent);
        let run = Run::with(builder, |_, loader| {
            delivered += 1;
            if delivered == 6 {
                agent.kill();
                wait_until("the loss is noticed", || !drive_is_up(loader));
                agent.restart();
                wait_for_work_of_the_drive(loader);
                gated.hooks.hold_for_drive(loader);
            }
        });
        scene.assert_unharmed(&run, strategy);
        assert_eq!((run.faults(FaultKind::Lost), run.faults(FaultKind::Rejoined)), (1, 1), "{:?}", run.report.faults);
        let after = run.order[6..].iter().filter(|&&(_, _, prong)| prong == 1).count();
        assert!(after > 0, "{strategy}: the drive works again");
    }
}

#[test]
fn an_agent_stopped_for_longer_than_the_time_out_leaves_no_late_work_anywhere() {
    for strategy in TWO_ENDED {
        let scene = Scene::new();
        let builder = scene.builder(strategy, scene.agent.url()).with(|o| o.drive_timeout = Duration::from_millis(300));
        let mut delivered = 0;
        let run = Run::with(builder, |_, loader| {
            delivered += 1;
            if delivered == 4 {
                scene.agent.signal(Signal::SIGSTOP);
                wait_until("the time-out", || !drive_is_up(loader));
                scene.agent.signal(Signal::SIGCONT);
                wait_until("the drive rejoins", || drive_is_up(loader));
            }
        });
        scene.assert_unharmed(&run, strategy);
        assert!(run.faults(FaultKind::Timeout) + run.faults(FaultKind::Lost) >= 1, "{:?}", run.report.faults);
        assert!(run.faults(FaultKind::Rejoined) >= 1, "{:?}", run.report.faults);
        assert_eq!(run.faults(FaultKind::Damaged), 0, "{:?}", run.report.faults);
    }
}

#[test]
fn a_connection_cut_in_the_middle_of_a_pdu_is_survived() {
    // The cut is in the middle of a command, of a completion, of data.
    for (kind, way, bytes) in
        [(CAPSULE_COMMAND, Way::ToAgent, 40), (CAPSULE_RESPONSE, Way::ToLoader, 11), (C2H_DATA, Way::ToLoader, 3000)]
    {
        let scene = Scene::new();
        let mut seen = 0;
        let proxy = Proxy::start(scene.agent.address(), move |pdu: &mut Pdu<'_>| {
            let is_work = pdu.is_execute() || pdu.is_result_read();
            if pdu.kind() == kind && pdu.way == way && is_work {
                seen += 1;
            }
            if seen == 4 {
                seen += 1;
                Fate::Cut(bytes)
            } else {
                Fate::Pass
            }
        });
        let url = scene.agent.url_by(&proxy.address());
        let run = Run::of(scene.builder(Strategy::Csd, url));
        scene.assert_unharmed(&run, Strategy::Csd);
        assert_eq!(run.faults(FaultKind::Lost), 1, "PDU type {kind}: {:?}", run.report.faults);
    }
}

#[test]
fn damage_while_the_loader_reconnects_is_survived() {
    // The answer to the first PDU of the new association is damaged, or a byte of the identity log.
    type IsDamaged = fn(&Pdu<'_>) -> bool;
    let damages: [(IsDamaged, usize); 2] =
        [(|pdu| pdu.kind() == IC_RESP, 0), (|pdu| pdu.kind() == C2H_DATA && pdu.bytes[24..].starts_with(b"DDID"), 50)];
    for (is_damaged, at) in damages {
        let scene = Scene::new();
        let (mut executed, mut damaged) = (0, false);
        let proxy = Proxy::start(scene.agent.address(), move |pdu: &mut Pdu<'_>| {
            executed += u32::from(pdu.kind() == CAPSULE_RESPONSE && pdu.is_execute());
            if executed == 4 {
                executed += 1;
                return Fate::Cut(11);
            }
            if executed > 4 && !damaged && is_damaged(pdu) {
                damaged = true;
                pdu.bytes[at] ^= 0x40;
            }
            Fate::Pass
        });
        let mut delivered = 0;
        let run = Run::with(scene.builder(Strategy::Csd, scene.agent.url_by(&proxy.address())), |_, loader| {
            delivered += 1;
            // Nobody but the CPU can have prepared this batch: the drive is lost.
            if delivered == 4 {
                wait_until("the drive rejoins", || drive_is_up(loader));
            }
        });
        scene.assert_unharmed(&run, Strategy::Csd);
        let kinds = [FaultKind::Lost, FaultKind::Rejoined, FaultKind::Refused].map(|kind| run.faults(kind));
        assert_eq!(kinds, [1, 1, 0], "{:?}", run.report.faults);
    }
}

#[test]
fn a_damaged_payload_is_found_and_prepared_again() {
    let scene = Scene::new();
    let mut reads = 0;
    let proxy = Proxy::start(scene.agent.address(), move |pdu: &mut Pdu<'_>| {
        if pdu.kind() == C2H_DATA && pdu.is_result_read() && pdu.bytes.len() > 100_000 {
            reads += 1;
            if reads % 5 == 2 {
                pdu.bytes[90_000] ^= 0x10;
            }
        }
        Fate::Pass
    });
    for strategy in TWO_ENDED {
        let run = Run::of(scene.builder(strategy, scene.agent.url_by(&proxy.address())));
        scene.assert_unharmed(&run, strategy);
    }
    // With two prongs, the CPU may be so far ahead that the drive delivers too few batches to damage.
    let run = Run::of(scene.builder(Strategy::Csd, scene.agent.url_by(&proxy.address())));
    scene.assert_unharmed(&run, Strategy::Csd);
    assert!(run.faults(FaultKind::Damaged) >= 1, "{:?}", run.report.faults);
}

#[test]
fn every_third_execute_answered_with_an_error_is_survived() {
    for strategy in [Strategy::Csd, Strategy::Mte] {
        let scene = Scene::new();
        let mut executes = 0;
        let proxy = Proxy::start(scene.agent.address(), move |pdu: &mut Pdu<'_>| {
            if pdu.kind() == CAPSULE_RESPONSE && pdu.is_execute() {
                if executes % 3 == 0 {
                    pdu.set_status(0x006);
                }
                executes += 1;
            }
            Fate::Pass
        });
        let (builder, gated) = scene.gated(strategy, scene.agent.url_by(&proxy.address()));
        let loader = builder.build().expect("a loader");
        gated.hooks.hold_until(&loader, |progress| faults(progress, FaultKind::Status) > 0);
        let run = Run::over(loader, |_, _| ());
        scene.assert_unharmed(&run, strategy);
        let named = run.report.faults.iter().find(|fault| fault.kind == FaultKind::Status).unwrap();
        assert!(named.what.contains("internal error"), "the status has its name: {}", named.what);
    }
}

#[test]
fn a_drive_with_another_dataset_is_refused_with_both_identities() {
    let scene = Scene::new();
    let other = Photos::new(20);
    let other_agent = Agent::start(&other.pack(), &other.scratch().join("state"), &[]);
    let error = scene.builder(Strategy::Mte, other_agent.url()).build().expect_err("refused");
    let identity = |photos: &Photos| {
        let dataset = ddlp_dataset::open(&photos.pack()).unwrap();
        ddlp_dataset::beginning_of(dataset.identity().as_bytes())
    };
    let text = chain(&error);
    assert!(text.contains(&identity(&scene.photos)) && text.contains(&identity(&other)), "{text}");
}

#[test]
fn an_address_without_an_agent_is_an_error_at_once() {
    let photos = Photos::new(9);
    let drive = DriveSpec::Remote("tcp://127.0.0.1:1/nqn.2024-01.org.example:none".into());
    let error = loader(&photos.pack()).with(|o| o.strategy = Strategy::Mte).drive(drive).build().expect_err("refused");
    assert!(chain(&error).contains("is the agent running there?"), "{}", chain(&error));
}

#[test]
fn an_optional_drive_that_is_down_at_the_start_joins_later() {
    for strategy in [Strategy::Csd, Strategy::Mte] {
        let mut scene = Scene::new();
        scene.agent.kill();
        let (builder, gated) = scene.gated(strategy, scene.agent.url());
        let error = builder.clone().build().expect_err("a drive that is needed");
        assert!(chain(&error).contains("`drive_optional`"), "{}", chain(&error));
        let (mut delivered, agent) = (0, &mut scene.agent);
        let run = Run::with(builder.with(|o| o.drive_optional = true), |_, loader| {
            delivered += 1;
            if delivered == 4 {
                assert!(!drive_is_up(loader));
                agent.restart();
                wait_for_work_of_the_drive(loader);
                gated.hooks.hold_for_drive(loader);
            }
        });
        scene.assert_unharmed(&run, strategy);
        let kinds: Vec<FaultKind> = run.troubles().iter().map(|fault| fault.kind).collect();
        assert_eq!(kinds, [FaultKind::Lost, FaultKind::Rejoined], "{:?}", run.report.faults);
        assert!(run.report.faults[0].what.contains("begins without the drive"), "{:?}", run.report.faults);
        assert!(run.drive_batches() > 0, "{strategy}: the drive takes part");
    }
}

#[test]
fn an_optional_drive_that_does_not_fit_is_an_error_all_the_same() {
    let scene = Scene::new();
    let refused = |url: String| {
        let builder = scene.builder(Strategy::Mte, url).with(|o| (o.epochs, o.drive_optional) = (1_000_000, true));
        let error = builder.build().map_or_else(Some, |mut loader| loader.find_map(Result::err));
        chain(&error.expect("refused"))
    };
    let other = Photos::new(20);
    let other_agent = Agent::start(&other.pack(), &other.scratch().join("state"), &[]);
    assert!(refused(other_agent.url()).contains("another dataset"));
    let url = format!("tcp://{}/nqn.2024-01.org.example:none", scene.agent.address());
    assert!(refused(url).contains("no drive with that NQN"));
    assert!(refused("tcp://nowhere".into()).contains("is not tcp://HOST[:PORT]/NQN"));
}

#[test]
fn optional_drives_that_do_not_answer_hold_up_neither_the_first_batch_nor_the_end() {
    let photos = Photos::new(SAMPLES);
    // The kernel drops requests to connect while the listener's queue is full.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    nix::sys::socket::listen(&listener, Backlog::new(0).unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let _in_the_queue = TcpStream::connect(address).unwrap();
    let drive = |number: u32| DriveSpec::Remote(format!("tcp://{address}/nqn.2024-01.org.example:silent{number}"));
    for strategy in [Strategy::Csd, Strategy::Mte, Strategy::Wrr, Strategy::Ordered] {
        let builder = loader(&photos.pack()).with(|o| (o.strategy, o.drive_optional) = (strategy, true));
        let run = Run::of((0..3).fold(builder, |builder, number| builder.drive(drive(number))));
        run.assert_exactly_once(1, SAMPLES.into());
        // An attempt that ran out of time would be reported as a fault.
        assert!(run.troubles().is_empty(), "{strategy}: {:?}", run.report.faults);
    }
}

#[test]
fn two_hosts_at_one_agent_do_not_disturb_each_other() {
    let scene = Scene::new();
    let scene = &scene;
    let runs: Vec<Run> = std::thread::scope(|scope| {
        let hosts: Vec<_> = TWO_ENDED
            .iter()
            .map(|&strategy| scope.spawn(move || Run::of(scene.builder(strategy, scene.agent.url()))))
            .collect();
        hosts.into_iter().map(|host| host.join().unwrap()).collect()
    });
    for (run, strategy) in runs.iter().zip(TWO_ENDED) {
        scene.assert_unharmed(run, strategy);
        assert!(run.troubles().is_empty(), "slots of one host are not given to another: {:?}", run.report.faults);
    }
}

#[test]
fn a_drive_whose_slots_another_host_keeps_does_not_hold_up_a_run_for_ever() {
    let photos = Photos::new(SAMPLES);
    // With more hosts than slots, a host need not give back its only one.
    let agent = Agent::start(&photos.pack(), &photos.scratch().join("state"), &["--slots", "1"]);
    let drive = || DriveSpec::Remote(agent.url());
    let csd = || loader(&photos.pack()).with(|o| (o.strategy, o.buffers) = (Strategy::Csd, 2)).drive(drive());
    // The other host takes one batch and keeps it: buffers and the slot stay full.
    let mut keeper = csd().build().expect("builds");
    let _kept: Vec<_> = keeper.by_ref().take(1).collect();
    let run = Run::of(csd());
    run.assert_exactly_once(1, SAMPLES.into());
    assert_eq!(run.digest, Run::of(loader(&photos.pack())).digest);
    let faults = &run.report.faults;
    assert!(
        faults.iter().any(|fault| fault.kind == FaultKind::Lost && fault.what.contains("refused every result slot")),
        "{faults:?}"
    );
}

#[test]
fn a_run_that_uses_all_slots_lets_another_host_in() {
    let photos = Photos::new(SAMPLES);
    let agent = Agent::start(&photos.pack(), &photos.scratch().join("state"), &["--slots", "2"]);
    let csd = || loader(&photos.pack()).with(|o| o.strategy = Strategy::Csd).drive(DriveSpec::Remote(agent.url()));
    let mut first = csd().with(|o| o.epochs = 1_000_000).build().expect("builds");
    let has_ended = AtomicBool::new(false);
    let run = std::thread::scope(|scope| {
        // After these batches it has used both slots.
        assert_eq!(first.by_ref().take(4).filter(Result::is_ok).count(), 4);
        let goes_on = |_: &_| !has_ended.load(Ordering::Relaxed);
        scope.spawn(move || first.take_while(goes_on).for_each(drop));
        let run = Run::of(csd());
        has_ended.store(true, Ordering::Relaxed);
        run
    });
    run.assert_exactly_once(1, SAMPLES.into());
    assert!(run.report.prongs[1].images > 0, "{:?}", run.report.faults);
}
