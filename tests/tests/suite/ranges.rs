//! Packs that are read by ranges over HTTP, from a server that follows a fault plan and from nginx.

use ddlp_dataset::Dataset;
use ddlp_dataset::pack::{Pack, PackFormat, StoredForm};
use ddlp_host::{
    FetchOrder, Fidelity, Host, LoaderBuilder, LoaderError, LoaderOptions, LoaderState, Strategy, open_dataset,
};
use ddlp_tests::agent::{Agent, program};
use ddlp_tests::nginx::Nginx;
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::{Run, chain, loader};
use ddlp_tests::web::{Answer, Request, TAG, WebServer};
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SAMPLES: u32 = 48;

fn photos() -> Photos {
    Photos::with_sizes(SAMPLES, |index| (320 + index % 9, 240 + index % 7))
}

pub fn over(place: &str) -> LoaderBuilder {
    loader(Path::new(place)).with(|o| (o.strategy, o.epochs) = (Strategy::Cpu, 2))
}

/// Runs two epochs over the pack, by a server that follows the plan.
fn served(photos: &Photos, plan: impl FnMut(&Request) -> Answer + Send + 'static) -> Run {
    let server = WebServer::start(fs::read(photos.pack()).unwrap(), plan);
    Run::of(over(&server.url()))
}

/// Returns the error of a run whose server follows the plan, from the opening or from a batch.
fn refused(photos: &Photos, plan: impl FnMut(&Request) -> Answer + Send + 'static) -> String {
    let server = WebServer::start(fs::read(photos.pack()).unwrap(), plan);
    let error = match over(&server.url()).build() {
        Err(error) => error,
        Ok(loader) => loader.filter_map(Result::err).next().expect("an error"),
    };
    chain(&error)
}

#[test]
fn a_window_of_bundles_is_read_in_sequence_and_up_to_its_fidelity() {
    let photos = photos();
    let pack = photos.pack_as("pcr.ddlp", PackFormat::of(StoredForm::Pcr));
    let opened = Pack::open(&pack).unwrap();
    let data = opened.layout().data_offset..opened.layout().data_offset + opened.layout().data_bytes;
    let sample_bytes = |fidelity: &str| {
        let of = |index| {
            let (header, mut pieces) = (opened.header(index).unwrap(), Vec::new());
            let fidelity = Fidelity::new(fidelity.parse().unwrap());
            opened.pieces(index, &header, fidelity, &mut pieces).unwrap();
            let bytes: u64 = pieces.iter().map(|piece| piece.extent.end - piece.extent.start).sum();
            if pieces.is_empty() { header.bytes.end - header.bytes.start } else { bytes }
        };
        (0..opened.len()).map(of).sum::<u64>()
    };
    for fidelity in ["1", "5", "10"] {
        let run = |window| {
            let asked = Arc::new(Mutex::new(Vec::new()));
            let ranges = asked.clone();
            let server = WebServer::start(fs::read(&pack).unwrap(), move |request| {
                ranges.lock().unwrap().push(request.range.clone());
                Answer::Range
            });
            let builder = over(&server.url()).with(|o| (o.epochs, o.shuffle_window) = (1, window));
            let run = Run::of(builder.with(|o| o.fidelity = fidelity.parse().unwrap()));
            let mut asked = std::mem::take(&mut *asked.lock().unwrap());
            // What lies elsewhere is the index.
            asked.retain(|range| data.contains(&range.start));
            (run.digest, asked.len(), asked.iter().map(|range| range.end - range.start).sum::<u64>())
        };
        let (expected, requests, _) = run(None);
        let (digest, requests_in_window, bytes) = run(Some(4));
        assert_eq!(digest, expected);
        assert_eq!(bytes, sample_bytes(fidelity), "fidelity {fidelity}: each byte once, and no other");
        assert!(4 * requests_in_window < requests, "{requests_in_window} requests, {requests} without a window");
    }
}

#[test]
fn a_pack_at_a_url_gives_the_images_of_its_file() {
    let photos = photos();
    let file = Run::of(over(photos.pack().to_str().unwrap()));
    let asked = Arc::new(AtomicU64::new(0));
    let count = asked.clone();
    let run = served(&photos, move |request| {
        // Only the request that opens the object does not know it yet.
        assert_eq!(request.if_match.as_deref(), (request.number > 0).then_some(TAG));
        count.fetch_add(request.range.end - request.range.start, Ordering::Relaxed);
        Answer::Range
    });
    assert_eq!(run.ordered_digest, file.ordered_digest);
    run.assert_exactly_once(2, SAMPLES.into());
    assert!(run.troubles().is_empty(), "{:?}", run.troubles());
    let (asked, read) = (asked.load(Ordering::Relaxed) as f64, run.report.read_mb * 1e6);
    assert!(asked >= read && read > 0.0, "{asked} bytes asked for, {read} read");
}

#[test]
fn a_drive_with_the_same_pack_takes_part_beside_a_url() {
    let photos = photos();
    let agent = Agent::start(&photos.pack(), &photos.scratch().join("state"), &["--slots", "4"]);
    let server = WebServer::start(fs::read(photos.pack()).unwrap(), |_| Answer::Range);
    let builder = over(&server.url()).with(|o| o.strategy = Strategy::Ordered);
    let run = Run::of(builder.drive(ddlp_host::DriveSpec::Remote(agent.url())));
    assert_eq!(run.ordered_digest, Run::of(over(photos.pack().to_str().unwrap())).ordered_digest);
    run.assert_exactly_once(2, SAMPLES.into());
}

#[test]
fn what_may_pass_is_asked_for_again_and_changes_nothing() {
    let photos = photos();
    let expected = Run::of(over(photos.pack().to_str().unwrap())).ordered_digest;
    type Fault = fn(&Request) -> Answer;
    let plans: [(&str, Fault); 5] = [
        ("busy", |_| Answer::Status("503 Service Unavailable", "")),
        ("throttled", |_| Answer::Status("429 Too Many Requests", "Retry-After: 1\r\n")),
        ("cut", |request| Answer::Cut((request.range.end - request.range.start) as usize / 2)),
        // Another byte each time: what comes twice in the same way is taken for what is stored.
        ("damaged", |request| Answer::Damaged((request.number % (request.range.end - request.range.start)) as usize)),
        ("late", |_| Answer::Late(Duration::from_millis(300))),
    ];
    for (what, fault) in plans {
        let run = served(&photos, move |request| match request.number % 9 {
            4 => fault(request),
            _ => Answer::Range,
        });
        assert_eq!(run.ordered_digest, expected, "{what}");
        run.assert_exactly_once(2, SAMPLES.into());
    }
}

/// Requests that open the pack and look at its first samples, and at most a few more: the next one is for a sample of
/// the first batch.
const OPENING: u64 = 10;

#[test]
fn a_late_sample_keeps_no_other_one_from_being_asked_for() {
    let photos = photos();
    let mut is_held = false;
    // A sample of the first batch is answered when 30 others have been asked for, 7 at a time.
    let server = WebServer::start(fs::read(photos.pack()).unwrap(), move |request| {
        if is_held || request.number < OPENING {
            return Answer::Range;
        }
        is_held = true;
        Answer::After(request.number + 30)
    });
    let run = Run::of(over(&server.url()).with(|o| o.fetch_depth = Some(8)));
    assert_eq!(run.ordered_digest, Run::of(over(photos.pack().to_str().unwrap())).ordered_digest);
    let requests = run.report.requests.expect("requests to a store");
    assert_eq!((requests.retries, requests.in_flight, requests.depth), (0, 0, Some(8)), "{requests:?}");
    assert!(requests.answered >= 2 * u64::from(SAMPLES) && requests.most_within_ms >= requests.half_within_ms);
}

fn out_of_order(o: &mut LoaderOptions) {
    (o.fetch, o.fetch_depth) = (FetchOrder::OutOfOrder, Some(16));
}

#[test]
fn out_of_order_a_late_sample_goes_to_a_later_batch() {
    let photos = photos();
    let mut is_held = false;
    let server = WebServer::start(fs::read(photos.pack()).unwrap(), move |request| {
        if is_held || request.number < OPENING {
            return Answer::Range;
        }
        is_held = true;
        Answer::After(request.number + 36)
    });
    let (in_order, run) =
        (Run::of(over(photos.pack().to_str().unwrap())), Run::of(over(&server.url()).with(out_of_order)));
    run.assert_exactly_once(2, SAMPLES.into());
    assert_eq!(run.digest, in_order.digest);
    let held = in_order.batches[0].iter().find(|id| !run.batches[0].contains(id));
    assert!(held.is_some(), "the first batch does not wait for the held sample");
    assert_eq!(run.report.requests.expect("requests to a store").retries, 0);
    assert!(run.plan.epochs.is_empty(), "a plan does not name samples");
}

#[test]
fn a_run_out_of_order_goes_on_from_its_state_in_any_order() {
    let photos = photos();
    let late = |request: &Request| match request.number % 5 {
        0 => Answer::Late(Duration::from_millis(40)),
        _ => Answer::Range,
    };
    let server = WebServer::start(fs::read(photos.pack()).unwrap(), late);
    for goes_on in [out_of_order, |_: &mut LoaderOptions| ()] {
        let mut loader = over(&server.url()).with(out_of_order).build().unwrap();
        let mut counts = std::collections::BTreeMap::<(u32, u64), u32>::new();
        let mut count = |batch: &ddlp_host::Batch| {
            for &id in batch.requested_ids() {
                *counts.entry((batch.epoch(), id)).or_default() += 1;
            }
        };
        (0..3).for_each(|_| count(&loader.next().unwrap().unwrap()));
        let state = loader.state();
        assert_eq!((state.version, state.moved.as_ref().map(|moved| moved.rank)), (4, Some(0)));
        drop(loader);
        let other = LoaderState { world: 2, ..state.clone() };
        let resumed = |state| over(&server.url()).with(goes_on).with(|o| o.resume = Some(state)).build();
        let error = chain(&resumed(other).map(drop).unwrap_err());
        assert!(error.contains("from its own state"), "{error}");
        for batch in resumed(state).unwrap() {
            count(&batch.unwrap());
        }
        assert!(counts.len() == 2 * SAMPLES as usize && counts.values().all(|&count| count == 1), "{counts:?}");
    }
}

#[test]
fn out_of_order_does_not_go_with_what_names_batches() {
    let photos = photos();
    let refused = |change: fn(&mut LoaderOptions)| {
        let builder = loader(&photos.pack()).with(out_of_order).with(change);
        chain(&builder.build().map(drop).unwrap_err())
    };
    for (change, part) in [
        ((|o| o.drives = Some(vec![ddlp_host::DriveSpec::Auto])) as fn(&mut LoaderOptions), "drives"),
        (|o| o.views = 2, "`views`"),
        (|o| o.replay = Some(ddlp_host::Plan::default()), "`replay`"),
        (|_| (), "not the URL of a pack in a store"),
    ] {
        let said = refused(change);
        assert!(said.contains("`fetch`") && said.contains(part), "{said}");
    }
}

#[test]
fn small_neighbours_are_asked_for_together_and_little_memory_is_enough() {
    let photos = Photos::with_sizes(SAMPLES, |_| (64, 64));
    let place = |o: &mut LoaderOptions| (o.shuffle, o.fetch_memory, o.ramp_up) = (false, 1 << 20, 2);
    let file = Run::of(over(photos.pack().to_str().unwrap()).with(place));
    let server = WebServer::start(fs::read(photos.pack()).unwrap(), |_| Answer::Range);
    let run = Run::of(over(&server.url()).with(place));
    assert_eq!(run.ordered_digest, file.ordered_digest);
    let requests = run.report.requests.expect("requests to a store");
    assert!(requests.answered < 2 * u64::from(SAMPLES), "{requests:?}");
}

#[test]
fn a_busy_store_is_asked_for_less_at_a_time() {
    let photos = photos();
    let run = served(&photos, |request| match request.number % 2 {
        1 => Answer::Status("503 Slow Down", ""),
        _ => Answer::Range,
    });
    run.assert_exactly_once(2, SAMPLES.into());
    let requests = run.report.requests.expect("requests to a store");
    assert!(requests.pushed_back > 0 && requests.pushed_back == requests.retries, "{requests:?}");
    assert!(requests.depth.is_some_and(|depth| depth < 16), "{requests:?}");
}

#[test]
fn tasks_of_tokio_open_read_and_drop_a_dataset() {
    let photos = photos();
    let expected = Run::of(over(photos.pack().to_str().unwrap())).ordered_digest;
    let builders = [tokio::runtime::Builder::new_current_thread(), tokio::runtime::Builder::new_multi_thread()];
    for mut builder in builders {
        let server = WebServer::start(fs::read(photos.pack()).unwrap(), |_| Answer::Range);
        let digest = builder.enable_all().build().unwrap().block_on(async {
            // More reads than a task of tokio may make before it has to wait.
            let dataset = open_dataset(Path::new(&server.url()), &Host::system()).unwrap();
            let (mut buf, mut read) = (Vec::new(), 0);
            for index in (0..SAMPLES.into()).cycle().take(300) {
                dataset.sample(index, &mut buf).unwrap();
                read += 1;
            }
            drop(dataset);
            assert_eq!(read, 300);
            Run::of(over(&server.url())).ordered_digest
        });
        assert_eq!(digest, expected);
    }
}

#[test]
fn what_will_not_pass_is_an_error_that_says_what_to_do() {
    let photos = photos();
    let late = |number, answer: fn() -> Answer| {
        move |request: &Request| if request.number < number { Answer::Range } else { answer() }
    };
    for number in [0, 20] {
        let said = refused(&photos, late(number, || Answer::Status("404 Not Found", "")));
        assert!(said.contains("there is no such object; check the name"), "{said}");
        let said = refused(&photos, late(number, || Answer::Status("403 Forbidden", "")));
        assert!(said.contains("denies access; a web server has to serve it without credentials"), "{said}");
        let said = refused(&photos, late(number, || Answer::Whole));
        assert!(said.contains("does not serve ranges"), "{said}");
    }
    for replaced in [|| Answer::Status("412 Precondition Failed", ""), || Answer::Replaced("\"second\"")] {
        let said = refused(&photos, late(20, replaced));
        assert!(said.contains("the object was replaced after it was opened: start the run again"), "{said}");
    }
}

#[test]
fn a_sample_that_always_comes_damaged_is_corrupt_by_name() {
    let photos = photos();
    let pack = ddlp_dataset::pack::Pack::open(&photos.pack()).unwrap();
    let bytes = pack.record(7).unwrap().bytes();
    let said = refused(&photos, move |request| {
        let place = bytes.start + (bytes.end - bytes.start) / 2;
        if request.range.contains(&place) {
            Answer::Damaged((place - request.range.start) as usize)
        } else {
            Answer::Range
        }
    });
    let name = ddlp_dataset::Dataset::name(&pack, 7);
    assert!(said.contains(&name) && said.contains("wrong checksum"), "{said}");
}

#[test]
fn a_url_without_a_server_is_an_error_at_once() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = open_dataset(Path::new(&format!("http://{free}/x.ddlp")), &Host::system()).map(drop).unwrap_err();
    assert!(matches!(error, LoaderError::Store { .. }), "{error}");
    assert!(error.to_string().contains("check the address, and that the server runs"), "{error}");
}

#[test]
fn a_pause_in_which_the_server_is_gone_is_waited_for() {
    let photos = photos();
    let (bytes, gone) = (fs::read(photos.pack()).unwrap(), Arc::new(AtomicU64::new(0)));
    let refusals = gone.clone();
    let server = WebServer::start(bytes, move |request| match request.number {
        20..26 => {
            refusals.fetch_add(1, Ordering::Relaxed);
            Answer::Cut(0)
        }
        _ => Answer::Range,
    });
    let run = Run::of(over(&server.url()));
    assert_eq!(run.ordered_digest, Run::of(over(photos.pack().to_str().unwrap())).ordered_digest);
    assert_eq!(gone.load(Ordering::Relaxed), 6);
}

/// Runs the command over a place, and returns the digest that it prints, or what it says otherwise.
fn command(place: &str, trusted: Option<&Path>) -> Result<String, String> {
    let mut command = Command::new(program("ddlp"));
    command.args(["run", place, "--strategy", "cpu", "--batch", "8", "--epochs", "2", "--quiet", "--digest"]);
    if let Some(file) = trusted {
        command.env("SSL_CERT_FILE", file);
    }
    let output = command.output().unwrap();
    let [said, wrong] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    if output.status.success() { Ok(said) } else { Err(wrong) }
}

#[test]
fn nginx_serves_ranges_with_and_without_tls() {
    let photos = photos();
    let pack = photos.pack();
    let folder = pack.parent().unwrap();
    let Some(nginx) = Nginx::start(folder) else { return };
    let name = pack.file_name().unwrap().to_str().unwrap();
    let expected = command(pack.to_str().unwrap(), None).unwrap();
    assert_eq!(command(&nginx.url(name), None).as_ref(), Ok(&expected));
    let (url, authority) = (nginx.tls_url(name), nginx.authority());
    assert_eq!(command(&url, Some(&authority)).as_ref(), Ok(&expected));
    let said = command(&url, None).unwrap_err();
    assert!(said.contains("certificate") && said.contains("SSL_CERT_FILE"), "{said}");
    let said = command(&url.replace("localhost", "127.0.0.1"), Some(&authority)).unwrap_err();
    assert!(said.contains("certificate"), "{said}");
}
