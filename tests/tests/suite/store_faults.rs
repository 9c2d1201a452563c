//! Faults of stores and their servers while a run reads from them: each sample comes exactly once, or the run ends with
//! an error that says why.

use ddlp_dataset::Dataset;
use ddlp_dataset::pack::Pack;
use ddlp_host::{FetchOrder, LoaderBuilder, Strategy};
use ddlp_stores::{PushOptions, push};
use ddlp_tests::agent::program;
use ddlp_tests::nginx::Nginx;
use ddlp_tests::photos::Photos;
use ddlp_tests::redis::RedisServer;
use ddlp_tests::redis_relay::{Command, RedisRelay, Reply};
use ddlp_tests::runs::{Run, chain, loader};
use ddlp_tests::web::{Answer, WebServer};
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const SAMPLES: u32 = 48;
/// Most requests that a run makes to open a pack and look at its first samples.
const OPENING: u64 = 10;

fn photos() -> Photos {
    Photos::with_sizes(SAMPLES, |index| (320 + index % 9, 240 + index % 7))
}

fn over(place: &str) -> LoaderBuilder {
    loader(Path::new(place)).with(|o| (o.strategy, o.epochs) = (Strategy::Cpu, 2))
}

fn of_file(photos: &Photos) -> Run {
    Run::of(over(photos.pack().to_str().unwrap()))
}

/// Pushes the photographs to a server, and returns the URL and the beginning of their keys.
fn pushed(photos: &Photos, server: &RedisServer) -> (String, String) {
    let (pack, url) = (Pack::open(&photos.pack()).unwrap(), server.url("photos"));
    let pushed = push(&pack, &url, &PushOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
    (url, format!("photos:{}:", &pushed.identity.to_string()[..16]))
}

/// Runs a loader, calls `first_batch` after the first batch, and returns the error that ends the run.
fn refused_after(builder: LoaderBuilder, first_batch: impl FnOnce()) -> String {
    let mut run = builder.with(|o| o.epochs = 100_000).build().unwrap();
    run.next().unwrap().unwrap();
    first_batch();
    chain(&run.filter_map(Result::err).next().expect("the run ends with an error"))
}

fn is_read(command: &Command) -> bool {
    command.words[0] == "GETRANGE"
}

#[test]
#[ignore = "takes more than half a minute: .ci/full runs it"]
fn answers_of_which_half_are_two_seconds_late_change_nothing() {
    const LATE: Duration = Duration::from_secs(2);
    let photos = photos();
    let file = of_file(&photos);
    let server = WebServer::start(fs::read(photos.pack()).unwrap(), |request| match request.number % 2 {
        1 if request.number >= OPENING => Answer::Late(LATE),
        _ => Answer::Range,
    });
    let mut urls = vec![server.url()];
    let redis = RedisServer::start(photos.scratch(), &[]);
    let relay = redis.as_ref().map(|redis| {
        let (url, _) = pushed(&photos, redis);
        let plan = |command: &Command| match command.number % 2 {
            1 if is_read(command) => Reply::Late(LATE),
            _ => Reply::Pass,
        };
        RedisRelay::start(&url, plan).url(&url)
    });
    urls.extend(relay);
    for url in urls {
        for order in [FetchOrder::InOrder, FetchOrder::OutOfOrder] {
            let run = Run::of(over(&url).with(|o| (o.fetch, o.fetch_depth) = (order, Some(24))));
            run.assert_exactly_once(2, SAMPLES.into());
            assert_eq!(run.digest, file.digest, "{url} {order:?}");
            if order == FetchOrder::InOrder {
                assert_eq!(run.ordered_digest, file.ordered_digest, "{url}");
            }
            let requests = run.report.requests.expect("requests to a store");
            assert_eq!(requests.retries, 0, "late answers are waited for: {requests:?}");
        }
    }
}

#[test]
fn a_sample_that_takes_long_is_asked_for_again_and_comes_from_the_second_request() {
    let photos = photos();
    let mut held = 0;
    // After enough answers the run knows how long an answer takes; then a few requests get none.
    let server = WebServer::start(fs::read(photos.pack()).unwrap(), move |request| match request.number % 40 {
        0 if request.number > 150 && held < 3 => {
            held += 1;
            Answer::After(u64::MAX)
        }
        _ => Answer::Range,
    });
    let hedged = |o: &mut ddlp_host::LoaderOptions| (o.epochs, o.fetch_hedge, o.fetch_depth) = (8, Some(95), Some(8));
    let run = Run::of(over(&server.url()).with(hedged));
    run.assert_exactly_once(8, SAMPLES.into());
    assert_eq!(run.ordered_digest, Run::of(over(photos.pack().to_str().unwrap()).with(hedged)).ordered_digest);
    let requests = run.report.requests.expect("requests to a store");
    assert!(requests.hedges_won >= 3 && requests.hedged >= requests.hedges_won, "{requests:?}");
    assert_eq!((requests.retries, requests.in_flight), (0, 0), "{requests:?}");
}

#[test]
fn a_web_server_that_is_killed_and_started_again_changes_nothing() {
    let photos = photos();
    let pack = photos.pack();
    let Some(mut nginx) = Nginx::start(pack.parent().unwrap()) else { return };
    let url = nginx.url(pack.file_name().unwrap().to_str().unwrap());
    let mut batches = 0;
    let run = Run::with(over(&url).with(|o| (o.batch_size, o.epochs, o.fetch_depth) = (4, 6, Some(4))), |_, _| {
        batches += 1;
        if batches % 16 == 4 {
            nginx.kill();
            nginx.restart();
        }
    });
    run.assert_exactly_once(6, SAMPLES.into());
    let file = Run::of(over(pack.to_str().unwrap()).with(|o| (o.batch_size, o.epochs) = (4, 6)));
    assert_eq!(run.ordered_digest, file.ordered_digest);
}

#[test]
fn a_pack_that_is_replaced_or_removed_at_a_web_server_ends_the_run() {
    let photos = photos();
    let pack = photos.pack();
    let Some(nginx) = Nginx::start(pack.parent().unwrap()) else { return };
    let url = nginx.url(pack.file_name().unwrap().to_str().unwrap());
    let (bytes, other) = (fs::read(&pack).unwrap(), pack.with_extension("other"));
    fs::write(&other, [&bytes[..], b"more"].concat()).unwrap();
    let said = refused_after(over(&url), || fs::rename(&other, &pack).unwrap());
    assert!(said.contains("the object was replaced after it was opened: start the run again"), "{said}");
    fs::write(&pack, bytes).unwrap();
    let said = refused_after(over(&url), || fs::remove_file(&pack).unwrap());
    assert!(said.contains("there is no such object; check the name"), "{said}");
}

/// Runs the command over an object of S3, whose server follows the plan after the opening. Returns what it says.
fn run_over_s3(photos: &Photos, status: &'static str, body: &'static str) -> String {
    let server = WebServer::start(fs::read(photos.pack()).unwrap(), move |request| {
        if request.number < 2 * OPENING { Answer::Range } else { Answer::Refused(status, body) }
    });
    let endpoint = server.url().replace("/data/photos.ddlp", "");
    let mut command = std::process::Command::new(program("ddlp"));
    command.args(["run", "s3://data/photos.ddlp", "--strategy", "cpu", "--batch", "8", "--quiet"]);
    command.envs([("AWS_ENDPOINT_URL", &*endpoint), ("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "sesame")]);
    let output = command.env("AWS_SESSION_TOKEN", "token-of-an-hour").output().unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn credentials_that_expire_end_the_run_with_what_the_store_says() {
    let photos = photos();
    for (status, body, part) in [
        (
            "400 Bad Request",
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>ExpiredToken</Code><Message>The provided token \
             has expired.</Message><Token-0>token-of-an-hour</Token-0></Error>",
            "ExpiredToken: The provided token has expired.",
        ),
        (
            "403 Forbidden",
            "<?xml version=\"1.0\"?>\n<Error><Code>RequestTimeTooSkewed</Code><Message>The difference is too \
             large.</Message></Error>",
            "the server denies access (RequestTimeTooSkewed: The difference is too large.)",
        ),
        ("401 Unauthorized", "", "the server wants other credentials"),
    ] {
        let said = run_over_s3(&photos, status, body);
        assert!(said.contains(part) && said.contains("credentials come from AWS_ACCESS_KEY_ID"), "{said}");
        assert!(!said.contains("sesame") && !said.contains("token-of-an-hour"), "{said}");
    }
}

#[test]
fn a_password_that_a_restarted_server_wants_ends_the_run() {
    let photos = photos();
    let Some(mut server) = RedisServer::start(photos.scratch(), &[]) else { return };
    let (url, _) = pushed(&photos, &server);
    server.command(&[b"SAVE"]);
    let said = refused_after(over(&url), || {
        server.kill();
        server.restart_with(&["--requirepass", "sesame"]);
    });
    assert!(said.contains("refuses the login") && said.contains("REDISCLI_AUTH"), "{said}");
}

#[test]
fn a_server_that_loads_its_data_is_waited_for() {
    let photos = photos();
    let Some(mut server) = RedisServer::start(photos.scratch(), &[]) else { return };
    let (url, _) = pushed(&photos, &server);
    server.command(&[b"SAVE"]);
    // Loading takes about two seconds, and commands are answered meanwhile.
    let slow = ["--key-load-delay", "40000", "--loading-process-events-interval-bytes", "1024"];
    let expected = of_file(&photos).ordered_digest;
    server.kill();
    server.restart_with(&slow);
    let mut batches = 0;
    let run = Run::with(over(&url), |_, _| {
        batches += 1;
        if batches == 3 {
            server.kill();
            server.restart_with(&slow);
        }
    });
    run.assert_exactly_once(2, SAMPLES.into());
    assert_eq!(run.ordered_digest, expected);
}

#[test]
fn values_that_are_removed_or_damaged_in_mid_epoch_end_the_run_by_name() {
    let photos = photos();
    let Some(server) = RedisServer::start(photos.scratch(), &[]) else { return };
    let (url, keys) = pushed(&photos, &server);
    let names: Vec<String> = {
        let pack = Pack::open(&photos.pack()).unwrap();
        (0..SAMPLES.into()).map(|index| pack.name(index)).collect()
    };
    let each = |act: &dyn Fn(&[u8])| (0..SAMPLES).for_each(|sample| act(format!("{keys}{sample}").as_bytes()));
    let said = refused_after(over(&url), || {
        each(&|key| drop(server.command(&[b"SETRANGE", key, b"2000", b"damaged bytes"])));
    });
    assert!(said.contains("wrong checksum") && names.iter().any(|name| said.contains(name)), "{said}");
    let said = refused_after(over(&url).with(|o| o.policy = ddlp_host::CorruptPolicy::Skip), || {
        each(&|key| drop(server.command(&[b"DEL", key])));
    });
    assert!(said.contains(&keys) && said.contains("evicted") && said.contains("`ddlp push`"), "{said}");
}

#[test]
fn what_may_pass_at_a_key_value_server_is_asked_for_again_and_changes_nothing() {
    let photos = photos();
    let Some(server) = RedisServer::start(photos.scratch(), &[]) else { return };
    let (url, _) = pushed(&photos, &server);
    let expected = of_file(&photos).ordered_digest;
    let faults = [
        ("loading", Reply::Error("LOADING Redis is loading the dataset in memory")),
        ("busy", Reply::Error("BUSY Redis is busy running a script")),
        ("cut", Reply::Cut(1000)),
        ("nothing", Reply::Cut(0)),
        ("damaged", Reply::Damaged),
    ];
    for (what, fault) in faults {
        let met = Arc::new(AtomicU64::new(0));
        let count = met.clone();
        let relay = RedisRelay::start(&url, move |command| match command.number % 29 {
            // The run takes a value that arrives damaged twice in the same way for what is stored.
            28 if is_read(command) => {
                count.fetch_add(1, Ordering::Relaxed);
                fault
            }
            _ => Reply::Pass,
        });
        let run = Run::of(over(&relay.url(&url)).with(|o| o.fetch_depth = Some(8)));
        assert_eq!(run.ordered_digest, expected, "{what}");
        run.assert_exactly_once(2, SAMPLES.into());
        assert!(met.load(Ordering::Relaxed) > 0, "{what}");
    }
}
