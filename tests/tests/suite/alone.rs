//! The dataset lies on the drive alone: the host has no file of it, and reads namespace 1 for what its CPU prepares.

use ddlp_dataset::pack::{IndexPart, Pack, PackFormat, PackOptions, StoredForm};
use ddlp_host::report::{FaultKind, FaultReport};
use ddlp_host::{CorruptPolicy, DriveSpec, Loader, LoaderBuilder, LoaderError, LoaderOptions, Strategy};
use ddlp_pixels::Pipeline;
use ddlp_tests::agent::{Agent, program};
use ddlp_tests::photos::{Photos, lossless};
use ddlp_tests::proxy::{Fate, Pdu, Proxy, Way};
use ddlp_tests::runs::{Run, chain, loader};
use nix::sys::signal::Signal;
use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

const SAMPLES: u32 = 96;

fn photos() -> Photos {
    Photos::with_sizes(SAMPLES, |index| (40 + index % 9, 36 + index % 7))
}

fn serve(photos: &Photos) -> Agent {
    Agent::start(&photos.pack(), &photos.scratch().join("state"), &["--slots", "8"])
}

/// Returns a loader of two epochs over the agent's dataset; the drive takes part if the strategy lets it.
fn alone(agent: &Agent, strategy: Strategy) -> LoaderBuilder {
    loader(Path::new(&agent.url())).with(|o| (o.epochs, o.strategy) = (2, strategy))
}

#[test]
fn every_strategy_delivers_what_it_delivers_from_the_file() {
    let photos = photos();
    let agent = serve(&photos);
    let file = Run::of(loader(&photos.pack()).with(|o| o.epochs = 2));
    let expected = file.digest;
    for strategy in [Strategy::Cpu, Strategy::Ordered, Strategy::Mte, Strategy::Wrr, Strategy::Csd] {
        let run = Run::of(alone(&agent, strategy));
        match strategy {
            Strategy::Cpu => assert_eq!(run.report.read_mb, file.report.read_mb, "the same reads"),
            Strategy::Csd => assert_eq!(run.report.read_mb, 0.0, "the host reads nothing"),
            _ => {}
        }
        run.assert_exactly_once(2, SAMPLES.into());
        assert_eq!(run.digest, expected, "{strategy}");
        let prongs: Vec<_> = run.report.prongs.iter().map(|prong| prong.name.clone()).collect();
        let alone = strategy == Strategy::Cpu;
        assert_eq!(prongs[1..], if alone { vec![] } else { vec![agent.url()] }, "the drive takes part by itself");
        assert!(run.report.read_blocks_mb.unwrap() >= run.report.read_mb);
        assert!(run.troubles().is_empty(), "{strategy}: {:?}", run.report.faults);
    }
}

#[test]
fn options_may_leave_the_drive_out_or_name_others() {
    let photos = photos();
    let agent = serve(&photos);
    let another = Agent::start(&photos.pack(), &photos.scratch().join("another"), &["--slots", "8"]);
    for drives in [vec![], vec![another.url()], vec![agent.url(), another.url()]] {
        let options = LoaderOptions {
            dataset: Some(agent.url().into()),
            batch_size: 8,
            host_nqn: Some("nqn.2024-01.org.example:tests".into()),
            drives: Some(drives.iter().cloned().map(DriveSpec::Remote).collect()),
            ..LoaderOptions::default()
        };
        let run = Run::of(Loader::builder().options(options));
        run.assert_exactly_once(1, SAMPLES.into());
        let prongs: Vec<_> = run.report.prongs.iter().skip(1).map(|prong| prong.name.clone()).collect();
        assert_eq!(prongs, drives);
    }
}

#[test]
fn neither_threads_nor_buffers_nor_a_consumer_that_keeps_batches_change_what_is_delivered() {
    let photos = photos();
    let agent = serve(&photos);
    let expected = Run::of(loader(&photos.pack()).with(|o| o.epochs = 2)).digest;
    for strategy in [Strategy::Cpu, Strategy::Ordered, Strategy::Mte, Strategy::Wrr] {
        for (threads, buffers, kept) in [(1, 2, 1), (3, 2, 0), (3, 6, 5)] {
            let mut held = VecDeque::new();
            let run = Run::with(
                alone(&agent, strategy).with(|o| (o.threads, o.buffers) = (Some(threads), buffers)),
                |batch, _| {
                    held.push_back(batch.field("image").expect("images").share());
                    held.truncate(kept);
                },
            );
            run.assert_exactly_once(2, SAMPLES.into());
            assert_eq!(run.digest, expected, "{strategy}, {threads} threads, {buffers} buffers, {kept} kept");
        }
    }
}

#[test]
fn a_consumer_may_stop_in_the_middle() {
    let photos = photos();
    let agent = serve(&photos);
    for strategy in [Strategy::Cpu, Strategy::Ordered] {
        for batches in [0, 1, 5] {
            let mut loader = alone(&agent, strategy).build().unwrap();
            let delivered = loader.by_ref().take(batches).filter(Result::is_ok).count();
            assert_eq!(delivered, batches);
            drop(loader);
        }
    }
}

/// A long pack with a damaged record keeps no records in memory.
#[test]
fn a_record_that_is_read_by_itself_counts() {
    let samples = (1 << 17) + 1;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("data_batch_1.bin"), vec![7; samples * 3073]).unwrap();
    let path = folder.path().join("many.ddlp");
    let source = ddlp_dataset::open(folder.path()).unwrap();
    ddlp_dataset::pack::pack(&*source, &path, &PackOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
    let records = Pack::open(&path).unwrap().layout().section(IndexPart::Records).offset;
    for (is_damaged, record_bytes) in [(false, 0), (true, 64)] {
        if is_damaged {
            let file = fs::File::options().write(true).open(&path).unwrap();
            file.write_all_at(&[0xFF], records + 70_000 * 64).unwrap();
        }
        let state = folder.path().join(format!("state {is_damaged}"));
        let agent = Agent::start(&path, &state, &["--slots", "8"]);
        let [file, drive] = [path.clone(), agent.url().into()].map(|place| {
            let builder = loader(&place).with(|o| {
                o.strategy = Strategy::Cpu;
                o.pipeline = Pipeline::cifar_train();
                o.epoch_samples = Some(100);
            });
            Run::of(builder)
        });
        assert_eq!(file.digest, drive.digest);
        assert_eq!(drive.report.read_mb, f64::from(100 * (3072 + record_bytes)) / 1e6);
        assert_eq!(file.report.read_mb, drive.report.read_mb);
    }
}

/// A fetched sample that cannot be rendered is read again, which would count.
#[test]
fn samples_of_every_form_are_read_once() {
    let size = |index| (320 + index % 9, 240 + index % 7);
    let (photos, scans) = (Photos::with_sizes(24, size), Photos::of(24, |index| lossless(index, size(index))));
    let jpegs = [StoredForm::Kept, StoredForm::Indexed, StoredForm::Raw, StoredForm::Rows].map(|form| (&photos, form));
    for (photos, form) in jpegs.into_iter().chain([(&scans, StoredForm::L3)]) {
        let pack = photos.pack_as(&format!("{}.ddlp", form.name()), PackFormat::of(form));
        let agent = Agent::start(&pack, &photos.scratch().join(form.name()), &["--slots", "8"]);
        let [file, drive] =
            [pack, agent.url().into()].map(|place| Run::of(loader(&place).with(|o| o.strategy = Strategy::Cpu)));
        assert_eq!(drive.digest, file.digest, "{form:?}");
        assert_eq!(drive.report.read_mb, file.report.read_mb, "{form:?}");
    }
}

#[test]
fn neighbouring_samples_of_the_drive_share_reads() {
    let photos = photos();
    let agent = serve(&photos);
    let run = |place: &Path, is_shuffled| {
        Run::of(loader(place).with(|o| (o.strategy, o.shuffle) = (Strategy::Cpu, is_shuffled)))
    };
    let [file, drive] = [photos.pack(), agent.url().into()].map(|place| run(&place, false));
    assert_eq!((drive.digest, drive.report.read_mb), (file.digest, file.report.read_mb));
    let shuffled = run(agent.url().as_ref(), true);
    assert_eq!(drive.report.read_mb, shuffled.report.read_mb);
    let (in_order, shuffled) = (drive.report.read_blocks_mb.unwrap(), shuffled.report.read_blocks_mb.unwrap());
    assert!(in_order * 1.5 < shuffled, "{in_order} MB in blocks, and {shuffled} MB shuffled");
}

#[test]
fn the_command_needs_the_address_alone() {
    let photos = photos();
    let agent = serve(&photos);
    let run = |dataset: &str, more: &[&str]| {
        let mut command = Command::new(program("ddlp"));
        let nqn = "nqn.2024-01.org.example:tests";
        command.args(["run", dataset, "--batch", "8", "--quiet", "--digest", "--host-nqn", nqn]).args(more);
        command.output().expect("the program starts")
    };
    let file = Command::new(program("ddlp"))
        .args(["run", photos.pack().to_str().unwrap(), "--batch", "8", "--quiet", "--digest", "--strategy", "cpu"])
        .output()
        .unwrap();
    let digest = |out: &[u8]| String::from_utf8_lossy(out).lines().next().unwrap_or_default().to_owned();
    for strategy in ["cpu", "ordered", "mte"] {
        let report = photos.scratch().join("run.json");
        let done = run(&agent.url(), &["--strategy", strategy, "--json", report.to_str().unwrap()]);
        assert!(done.status.success(), "{strategy}: {}", String::from_utf8_lossy(&done.stderr));
        assert_eq!(digest(&done.stdout), digest(&file.stdout), "{strategy}");
        let report = fs::read_to_string(report).unwrap();
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        let prongs = report["prongs"].as_array().unwrap().len();
        assert_eq!(prongs, if strategy == "cpu" { 1 } else { 2 }, "the drive takes part by itself");
    }
    let refused = run(&agent.url(), &["--drive", "local"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("leave --drive out"), "{said}");
    let absent = run("tcp://127.0.0.1:1/nqn.2024-01.org.example:none", &["--strategy", "cpu"]);
    let said = String::from_utf8_lossy(&absent.stderr).into_owned();
    assert!(said.contains("127.0.0.1:1") && said.contains("is the agent running there?"), "{said}");
    let folder = Agent::start(&photos.folder(), &photos.scratch().join("state of another"), &["--slots", "8"]);
    let said = String::from_utf8_lossy(&run(&folder.url(), &["--strategy", "cpu"]).stderr).into_owned();
    assert!(said.contains("it serves no pack"), "{said}");
}

#[test]
fn a_pack_in_a_drive_can_be_inspected_as_in_its_file() {
    let photos = photos();
    let agent = serve(&photos);
    let inspect = |place: &str, more: &[&str]| {
        let output = Command::new(program("ddlp")).args(["inspect", place, "--json"]).args(more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(json["file"].take().as_str().unwrap().starts_with(place), "the place");
        json
    };
    for more in [&[][..], &["--sample", "17"]] {
        let [file, drive] = [photos.pack().to_str().unwrap(), &*agent.url()].map(|place| inspect(place, more));
        assert_eq!(file, drive);
    }
}

/// Accepts connections at an address for at least this time and until one has come, and closes each at once. Each must
/// come after a pause: two threads connect, the drive's and one of those that read.
fn assert_attempts_pause(time: Duration, address: &str) {
    let listener = TcpListener::bind(address).expect("the agent has gone");
    listener.set_nonblocking(true).expect("a socket");
    let (begun, mut attempts) = (Instant::now(), 0);
    while begun.elapsed() < time || attempts == 0 {
        assert!(begun.elapsed() < time + Duration::from_secs(60), "nobody connects");
        match listener.accept() {
            Ok(_) => attempts += 1,
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
    // The pauses double from at least 25 ms to at least half a second.
    let most = 2 * (7 + begun.elapsed().as_millis() / 500);
    assert!(attempts <= most, "{attempts} attempts to connect in {:?}", begun.elapsed());
}

#[test]
fn a_path_that_is_lost_for_a_while_is_waited_for() {
    assert_a_lost_path_is_waited_for(Duration::from_millis(1500));
}

#[test]
fn while_the_drive_does_not_answer_report_and_progress_name_it() {
    let photos = photos();
    let agent = serve(&photos);
    let builder = alone(&agent, Strategy::Cpu).with(|o| (o.buffers, o.stall_after) = (2, Duration::from_millis(200)));
    let mut loader = builder.build().unwrap();
    loader.next().expect("a batch").unwrap();
    agent.signal(Signal::SIGSTOP);
    let progress = loader.progress();
    let names_it = |text: &str, what| text.contains(&agent.url()) && text.contains(what);
    let is_named = || {
        let faults = progress.report().faults;
        faults.iter().any(|fault| fault.kind == FaultKind::Lost && names_it(&fault.what, "does not answer"))
    };
    let begun = Instant::now();
    while !is_named() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", progress.report().faults);
        // Batches that were prepared before come first.
        loader.next_while(|_| !is_named()).transpose().unwrap();
    }
    let now = progress.snapshot();
    let is_shown = now.silence.as_deref().is_some_and(|silence| names_it(silence, "has not answered"));
    assert!(is_shown && now.silent_s >= 1.0, "{now:?}");
    agent.signal(Signal::SIGCONT);
    loader.by_ref().for_each(|batch| drop(batch.unwrap()));
    let now = progress.snapshot();
    assert!(now.silence.is_none() && now.silent_s >= 1.0, "{now:?}");
}

#[test]
fn the_command_says_that_its_start_waits_for_the_drive() {
    // Nobody accepts, so no answer comes.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = format!("tcp://{}/nqn.2024-01.org.example:silent", silent.local_addr().unwrap());
    let mut command = Command::new(program("ddlp"));
    command.args(["run", &place, "--strategy", "cpu"]).stderr(Stdio::piped());
    let mut run = command.spawn().expect("the program starts");
    let mut said = String::new();
    BufReader::new(run.stderr.take().expect("piped")).read_line(&mut said).unwrap();
    run.kill().unwrap();
    run.wait().unwrap();
    let expected = format!("waiting for the drive {} to answer, for 1 s so far", silent.local_addr().unwrap());
    assert!(said.starts_with(&expected) && said.contains("the run ends"), "{said}");
}

#[test]
#[ignore = "takes more than half a minute: .ci/full runs it"]
fn a_path_that_is_lost_for_ten_seconds_is_waited_for() {
    assert_a_lost_path_is_waited_for(Duration::from_secs(10));
}

/// Runs with a drive whose agent is away for this time, which must be longer than any pause between two attempts.
fn assert_a_lost_path_is_waited_for(time: Duration) {
    let photos = photos();
    let expected = Run::of(loader(&photos.pack()).with(|o| o.epochs = 2)).digest;
    for strategy in [Strategy::Cpu, Strategy::Ordered, Strategy::Mte] {
        let mut agent = serve(&photos);
        let (builder, lose) = (alone(&agent, strategy).with(|o| o.buffers = 2), mpsc::sync_channel(1));
        thread::scope(|scope| {
            scope.spawn(move || {
                lose.1.recv().expect("the run comes so far");
                agent.kill();
                assert_attempts_pause(time, agent.address());
                agent.restart();
                // Serves until the run ends.
                assert!(lose.1.recv().is_err());
            });
            let (lost, mut delivered) = (lose.0, 0);
            let run = Run::with(builder, |_, _| {
                delivered += 1;
                if delivered == 4 {
                    lost.send(()).expect("the agent serves");
                }
            });
            run.assert_exactly_once(2, SAMPLES.into());
            assert_eq!(run.digest, expected, "{strategy}");
            assert!(run.report.corrupt.is_empty(), "{:?}", run.report.corrupt);
            // Reads and the drive's own thread notice the same loss, which is named once. A drive that a busy machine
            // keeps from answering for a second is named too.
            let of_load = |fault: &&FaultReport| matches!(fault.kind, FaultKind::Stall | FaultKind::Slow);
            let named = run.report.faults.iter().filter(|fault| !of_load(fault));
            let is_late = |fault: &&FaultReport| fault.what.contains("did not answer for");
            let said: Vec<_> = named.filter(|fault| !is_late(fault)).map(|fault| (fault.kind, &*fault.what)).collect();
            assert!(!said.is_empty(), "{strategy}: the loss is named");
            for pair in said.chunks(2) {
                let [(FaultKind::Lost, lost), (FaultKind::Rejoined, regained)] = pair else { panic!("{said:?}") };
                assert!(lost.contains("the CPU prepares nothing"), "{lost}");
                let by_reads = regained.contains("answered again after");
                assert!(by_reads || (strategy != Strategy::Cpu && regained.contains("works again")), "{regained}");
            }
        });
    }
}

/// The drive answers each attempt to connect, and breaks off at each read. All reads together get one minute.
#[test]
#[ignore = "takes more than a minute: .ci/full runs it"]
fn a_drive_that_breaks_off_at_every_read_ends_the_run() {
    let photos = photos();
    let agent = serve(&photos);
    let breaks_off = Arc::new(AtomicBool::new(false));
    let (own, is_broken) = (breaks_off.clone(), move |pdu: &Pdu<'_>| {
        pdu.way == Way::ToAgent && pdu.command().is_some_and(|entry| entry[0] == 2 && entry[4..8] == [1, 0, 0, 0])
    });
    let proxy =
        Proxy::start(agent.address(), move |pdu: &mut Pdu<'_>| match own.load(Ordering::Relaxed) && is_broken(pdu) {
            true => Fate::Cut(0),
            false => Fate::Pass,
        });
    let url = agent.url_by(&proxy.address());
    let mut loader = loader(Path::new(&url)).with(|o| (o.strategy, o.buffers) = (Strategy::Cpu, 2)).build().unwrap();
    loader.next().expect("a batch").unwrap();
    breaks_off.store(true, Ordering::Relaxed);
    let (stopper, done) = (loader.stopper(), mpsc::sync_channel::<()>(1));
    let watch = thread::spawn(move || {
        // A run that does not end by itself is stopped, and then has no error.
        if done.1.recv_timeout(Duration::from_secs(150)).is_err() {
            stopper.stop();
        }
    });
    let error = loader.by_ref().find_map(Result::err).expect("the run ends by itself");
    let _ = done.0.send(());
    watch.join().unwrap();
    let said = chain(&error);
    assert!(
        matches!(error, LoaderError::Unavailable(_)) && said.contains("the drive has not answered for 60 s"),
        "{said}"
    );
    let report = loader.report();
    assert!(report.corrupt.is_empty());
    // The report of a failed run has the wait.
    assert!(report.consumer_wait_s > 50.0 && report.seconds > 50.0, "{} s", report.consumer_wait_s);
    let said: Vec<_> = report.faults.iter().filter(|fault| fault.kind == FaultKind::Lost).collect();
    assert!(said.len() == 1 && said[0].what.contains("does not answer"), "{:?}", report.faults);
}

#[test]
fn another_pack_on_the_drive_ends_the_run_with_what_changed() {
    let photos = photos();
    let mut agent = serve(&photos);
    let another = Photos::with_sizes(SAMPLES, |index| (50 + index % 9, 36 + index % 7));
    let builder = alone(&agent, Strategy::Cpu).with(|o| (o.policy, o.buffers) = (CorruptPolicy::Skip, 2));
    let mut loader = builder.build().unwrap_or_else(|error| panic!("{}", chain(&error)));
    for batch in loader.by_ref().take(2) {
        batch.unwrap_or_else(|error| panic!("{}", chain(&error)));
    }
    agent.kill();
    fs::copy(another.pack(), photos.pack()).unwrap();
    agent.restart();
    let error = loader.by_ref().find_map(Result::err).expect("the run ends with an error");
    assert!(matches!(error, LoaderError::Unavailable(_)), "{}", chain(&error));
    let said = chain(&error);
    assert!(said.contains("the pack has changed") && said.contains(&agent.url()), "{said}");
    assert!(said.contains(" bytes, and has "), "the lengths differ: {said}");
    assert!(loader.report().corrupt.is_empty());
}

#[test]
fn a_pack_that_is_cut_short_under_the_agent_is_not_called_damaged() {
    let photos = photos();
    let agent = serve(&photos);
    let mut loader =
        alone(&agent, Strategy::Cpu).with(|o| (o.policy, o.buffers) = (CorruptPolicy::Skip, 2)).build().unwrap();
    loader.next().expect("a batch").unwrap();
    let pack = fs::File::options().write(true).open(photos.pack()).unwrap();
    pack.set_len(pack.metadata().unwrap().len() * 2 / 3).unwrap();
    let error = loader.by_ref().find_map(Result::err).expect("the run ends with an error");
    let said = chain(&error);
    assert!(matches!(error, LoaderError::Unavailable(_)) && loader.report().corrupt.is_empty(), "{said}");
    assert!(said.contains("namespace not ready") && said.contains("restart the agent"), "{said}");
}

#[test]
fn a_run_that_is_stopped_does_not_wait_for_the_drive() {
    let photos = photos();
    for is_killed in [true, false] {
        let mut agent = serve(&photos);
        let mut loader = alone(&agent, Strategy::Cpu).with(|o| o.buffers = 2).build().unwrap();
        loader.next().expect("a batch").unwrap();
        if is_killed {
            agent.kill();
        } else {
            agent.signal(Signal::SIGSTOP);
        }
        let (stopper, begun) = (loader.stopper(), Instant::now());
        let stopping = thread::spawn(move || {
            // By then the threads wait for the drive.
            thread::sleep(Duration::from_millis(300));
            stopper.stop();
        });
        let rest = loader.by_ref().filter(Result::is_err).count();
        drop(loader);
        assert_eq!(rest, 0, "a stopped run has no error");
        // A read gives up after a minute without a path to the drive.
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        stopping.join().unwrap();
    }
}

#[test]
fn damage_on_the_drive_follows_the_policy_as_in_a_file() {
    let photos = photos();
    let pack = ddlp_dataset::pack::Pack::open(&photos.pack()).unwrap();
    let damaged = pack.record(11).unwrap().offset;
    let file = fs::File::options().write(true).open(photos.pack()).unwrap();
    file.write_all_at(b"damaged", damaged + 100).unwrap();
    let agent = serve(&photos);
    for policy in [CorruptPolicy::Skip, CorruptPolicy::Replace] {
        let expected = Run::of(loader(&photos.pack()).with(|o| (o.epochs, o.policy) = (2, policy)));
        assert_eq!(expected.report.corrupt.len(), 2, "once an epoch");
        for strategy in [Strategy::Cpu, Strategy::Ordered] {
            for threads in [1, 3] {
                let run = Run::of(alone(&agent, strategy).with(|o| (o.policy, o.threads) = (policy, Some(threads))));
                assert_eq!((run.digest, run.report.corrupt.len()), (expected.digest.clone(), 2), "{strategy}");
            }
        }
    }
}
