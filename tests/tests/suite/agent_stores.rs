//! Agents whose dataset lies in a store: they prepare beside the data, and hosts use them as any other drive.

use ddlp_dataset::open;
use ddlp_dataset::pack::{Pack, PackFormat, StoredForm};
use ddlp_host::report::FaultKind;
use ddlp_host::{CorruptPolicy, DriveSpec, LoaderBuilder, LoaderOptions, Strategy};
use ddlp_stores::{PushOptions, push};
use ddlp_tests::agent::{Agent, program};
use ddlp_tests::photos::Photos;
use ddlp_tests::redis::RedisServer;
use ddlp_tests::runs::{Run, faults, loader, troubles, wait_until};
use ddlp_tests::web::{Answer, Request, WebServer};
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SAMPLES: u32 = 48;

fn photos() -> Photos {
    Photos::new(SAMPLES)
}

/// Starts an agent for the pack at a URL.
fn serve(photos: &Photos, name: &str, url: &str) -> Agent {
    Agent::start(Path::new(url), &photos.scratch().join(name), &["--slots", "4"])
}

/// Starts a server of a pack that follows the plan, and an agent for it.
fn served(photos: &Photos, pack: &Path, plan: impl FnMut(&Request) -> Answer + Send + 'static) -> (WebServer, Agent) {
    let server = WebServer::start(fs::read(pack).unwrap(), plan);
    let agent = serve(photos, "state", &server.url());
    (server, agent)
}

/// Returns a loader of two epochs over the host's own dataset, with an agent as its drive.
fn beside(agent: &Agent, dataset: &Path, strategy: Strategy) -> LoaderBuilder {
    let builder = loader(dataset).with(|o| (o.strategy, o.epochs) = (strategy, 2));
    builder.drive(DriveSpec::Remote(agent.url()))
}

fn of_cpu(dataset: &Path) -> Run {
    Run::of(loader(dataset).with(|o| (o.strategy, o.epochs) = (Strategy::Cpu, 2)))
}

fn pushed(pack: &Path, server: &RedisServer) -> String {
    let url = server.url("photos");
    push(&Pack::open(pack).unwrap(), &url, &PushOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
    url
}

#[test]
fn an_agent_with_a_store_gives_the_images_of_the_folder() {
    let photos = photos();
    let folder = of_cpu(&photos.folder());
    let rows = photos.pack_as("rows.ddlp", PackFormat::of(StoredForm::Rows));
    let redis = RedisServer::start(photos.scratch(), &[]);
    let web = |pack: &Path| WebServer::start(fs::read(pack).unwrap(), |_| Answer::Range).url();
    let mut places = vec![(photos.pack(), web(&photos.pack())), (rows.clone(), web(&rows))];
    places.extend(redis.as_ref().map(|redis| (photos.pack(), pushed(&photos.pack(), redis))));
    for (number, (pack, url)) in places.iter().enumerate() {
        let agent = serve(&photos, &format!("state-{number}"), url);
        let expected = of_cpu(pack);
        if number != 1 {
            assert_eq!(expected.digest, folder.digest);
        }
        let strategies = [Strategy::Csd, Strategy::Mte, Strategy::Ordered];
        for strategy in strategies.into_iter().take(if number == 1 { 1 } else { 3 }) {
            let run = Run::of(beside(&agent, pack, strategy));
            run.assert_exactly_once(2, SAMPLES.into());
            assert_eq!(run.digest, expected.digest, "{url} {strategy}");
            assert!(run.drive_batches() > 0, "{url} {strategy}");
            if strategy == Strategy::Csd {
                assert_eq!(run.drive_batches(), run.order.len(), "{url}");
            }
            assert!(run.troubles().is_empty(), "{url} {strategy}: {:?}", run.troubles());
        }
        // The host has no file and no way to the store.
        for strategy in [Strategy::Cpu, Strategy::Ordered] {
            let run = Run::of(loader(Path::new(&agent.url())).with(|o| (o.strategy, o.epochs) = (strategy, 2)));
            run.assert_exactly_once(2, SAMPLES.into());
            assert_eq!(run.digest, expected.digest, "{url} {strategy}, from the drive alone");
        }
    }
}

#[test]
fn a_store_that_goes_away_and_returns_only_takes_time() {
    let photos = photos();
    // Connections break off for a while, in the middle of the first epoch.
    let (_server, agent) = served(&photos, &photos.pack(), |request| match request.number {
        60..90 => Answer::Cut(0),
        _ => Answer::Range,
    });
    let run = Run::of(beside(&agent, &photos.pack(), Strategy::Csd));
    run.assert_exactly_once(2, SAMPLES.into());
    assert_eq!(run.digest, of_cpu(&photos.pack()).digest);
    assert_eq!(run.drive_batches(), run.order.len());
    assert!(run.troubles().is_empty() && run.report.corrupt.is_empty(), "{:?}", run.troubles());
}

/// Runs over a store that gives these answers from the middle of an epoch on until the drive has said so, and then
/// works again.
fn out_of_order(answer: impl Fn() -> Answer + Send + 'static) {
    let photos = photos();
    let is_out = Arc::new(AtomicBool::new(false));
    let asked = is_out.clone();
    let (_server, agent) = served(&photos, &photos.pack(), move |_| match asked.load(Ordering::Relaxed) {
        true => answer(),
        false => Answer::Range,
    });
    let endless = |o: &mut LoaderOptions| (o.epochs, o.drive_timeout) = (1_000_000, Duration::from_secs(30));
    let mut loader = beside(&agent, &photos.pack(), Strategy::Csd).with(endless).build().unwrap();
    let progress = loader.progress();
    let mut is_by_drive = || loader.next().expect("more epochs").expect("no sample is lost").prong() == 1;
    assert!((0..4).all(|_| is_by_drive()));
    is_out.store(true, Ordering::Relaxed);
    wait_until("the drive reports that it cannot read its dataset", || {
        is_by_drive();
        faults(&progress, FaultKind::Unavailable) > 0
    });
    is_out.store(false, Ordering::Relaxed);
    wait_until("the drive works again", is_by_drive);
    let report = loader.report();
    let is_unavailable = troubles(&report).iter().all(|fault| fault.kind == FaultKind::Unavailable);
    assert!(is_unavailable && report.corrupt.is_empty(), "{:?}", report.faults);
}

#[test]
fn a_store_that_refuses_costs_no_sample_and_the_drive_works_again_afterwards() {
    out_of_order(|| Answer::Status("403 Forbidden", ""));
}

/// The agent says so before the host loses patience with the drive.
#[test]
#[ignore = "takes 20 s: .ci/full runs it"]
fn a_store_that_answers_nothing_costs_no_sample_and_no_association() {
    out_of_order(|| Answer::After(u64::MAX));
}

#[test]
fn damage_on_the_way_is_healed_and_damage_in_the_store_is_damage() {
    let photos = photos();
    let whole = of_cpu(&photos.pack());
    let place = open(&photos.pack()).unwrap().location(7);
    let at = place.offset + 9;
    // What comes damaged once is asked for again.
    let mut is_first = true;
    let (_server, agent) = served(&photos, &photos.pack(), move |request| match request.range.contains(&at) {
        true if request.range.start >= place.offset && std::mem::take(&mut is_first) => {
            Answer::Damaged((at - request.range.start) as usize)
        }
        _ => Answer::Range,
    });
    let run = Run::of(beside(&agent, &photos.pack(), Strategy::Csd));
    assert_eq!((&run.digest, run.drive_batches()), (&whole.digest, run.order.len()));
    assert!(run.troubles().is_empty(), "{:?}", run.troubles());
    drop(agent);

    // A copy in the store that is damaged is a fault of the drive, if the host's copy is intact.
    let mut bytes = fs::read(photos.pack()).unwrap();
    bytes[at as usize..][..8].fill(0x5A);
    let damaged = photos.scratch().join("damaged.ddlp");
    fs::write(&damaged, bytes).unwrap();
    let (_server, agent) = served(&photos, &damaged, |_| Answer::Range);
    let skip = |o: &mut LoaderOptions| o.policy = CorruptPolicy::Skip;
    let run = Run::of(beside(&agent, &photos.pack(), Strategy::Csd).with(skip));
    assert_eq!(run.digest, whole.digest);
    assert!(run.report.corrupt.is_empty() && run.faults(FaultKind::Damaged) > 0, "{:?}", run.report.faults);

    // If both have the damage, the sample is corrupt.
    let run = Run::of(beside(&agent, &damaged, Strategy::Csd).with(skip));
    let of_cpu = Run::of(loader(&damaged).with(skip).with(|o| (o.strategy, o.epochs) = (Strategy::Cpu, 2)));
    assert_eq!((run.digest, run.report.corrupt.len()), (of_cpu.digest, 2), "once in each epoch");
}

#[test]
fn an_agent_that_cannot_open_a_url_says_why_and_shows_no_secret() {
    for (url, part) in [
        ("redis://me:sesame@127.0.0.1/0/x", "REDISCLI_AUTH"),
        ("http://me:sesame@127.0.0.1/x.ddlp", "a URL has no credentials"),
        ("http://127.0.0.1/x.ddlp?token=sesame", "a URL has no ? and no #"),
        ("ftp://me:sesame@127.0.0.1/x.ddlp", "s3://, gs://, az://"),
    ] {
        let mut agent = Command::new(program("ddlp-device"));
        let output =
            agent.args(["serve", "--ephemeral", "--listen", "127.0.0.1:0", "--dataset", url]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(part) && !said.contains("sesame"), "{said}");
    }
}
