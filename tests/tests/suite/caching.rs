//! The cache on a disk of this machine, in front of packs at URLs and in drives.

use crate::ranges::over;
use ddlp_dataset::pack::{Pack, PackFormat, StoredForm};
use ddlp_host::{FetchOrder, LoaderBuilder, Strategy};
use ddlp_stores::{PushOptions, push};
use ddlp_tests::agent::Agent;
use ddlp_tests::photos::Photos;
use ddlp_tests::redis::RedisServer;
use ddlp_tests::runs::{Run, loader};
use ddlp_tests::web::{Answer, Request, WebServer};
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const SAMPLES: u32 = 48;

fn photos() -> Photos {
    Photos::with_sizes(SAMPLES, |index| (320 + index % 9, 240 + index % 7))
}

fn cached(builder: LoaderBuilder, folder: &Path) -> LoaderBuilder {
    builder.with(|o| o.cache = Some(folder.to_owned()))
}

/// Serves a pack, and counts the bytes that are asked for.
fn counting(pack: &Path) -> (WebServer, Arc<AtomicU64>) {
    let asked = Arc::new(AtomicU64::new(0));
    let count = asked.clone();
    let server = WebServer::start(fs::read(pack).unwrap(), move |request| {
        count.fetch_add(request.range.end - request.range.start, Ordering::Relaxed);
        Answer::Range
    });
    (server, asked)
}

fn digest_of_file(pack: &Path) -> String {
    Run::of(over(pack.to_str().unwrap())).ordered_digest
}

#[test]
fn a_second_run_asks_for_the_superblock_alone() {
    let photos = photos();
    let folder = tempfile::tempdir().unwrap();
    type Change = fn(LoaderBuilder) -> LoaderBuilder;
    let ways: [(StoredForm, Change); 4] = [
        (StoredForm::Kept, |builder| builder),
        (StoredForm::Pcr, |builder| builder.with(|o| (o.shuffle_window, o.batch_size) = (Some(4), 8))),
        (StoredForm::Pcr, |builder| builder.with(|o| o.fidelity = "2".parse().unwrap())),
        (StoredForm::Kept, |builder| builder.with(|o| o.fetch = FetchOrder::OutOfOrder)),
    ];
    for (number, (form, change)) in ways.into_iter().enumerate() {
        let folder = folder.path().join(number.to_string());
        let pack = photos.pack_as(&format!("{number}.ddlp"), PackFormat::of(form));
        let of_file = change(over(pack.to_str().unwrap())).with(|o| o.fetch = FetchOrder::InOrder);
        let expected = Run::of(of_file).digest;
        let (server, asked) = counting(&pack);
        let first = Run::of(cached(change(over(&server.url())), &folder));
        first.assert_exactly_once(2, SAMPLES.into());
        let of_first = asked.swap(0, Ordering::Relaxed);
        let again = Run::of(cached(change(over(&server.url())), &folder));
        again.assert_exactly_once(2, SAMPLES.into());
        assert_eq!([&first.digest, &again.digest], [&expected; 2], "way {number}");
        let cache = again.report.cache.unwrap();
        assert!(cache.mb > 0.0 && cache.kept_mb == 0.0 && cache.off.is_none(), "{cache:?}");
        assert!(first.report.cache.unwrap().kept_mb > 0.0);
        let of_second = asked.load(Ordering::Relaxed);
        assert!(of_second <= 3 * 4096, "way {number}: {of_second} bytes asked for, at first {of_first}");
    }
}

#[test]
fn the_second_epoch_asks_for_nothing_and_ranks_share_a_cache() {
    let photos = photos();
    let (pack, folder) = (photos.pack_as("kept.ddlp", PackFormat::of(StoredForm::Kept)), tempfile::tempdir().unwrap());
    let (server, asked) = counting(&pack);
    let after_first = Mutex::new(None);
    Run::with(cached(over(&server.url()), folder.path()).with(|o| o.epochs = 3), |batch, _| {
        if batch.epoch() == 2 {
            after_first.lock().unwrap().get_or_insert(asked.load(Ordering::Relaxed));
        }
    });
    assert_eq!(*after_first.lock().unwrap(), Some(asked.load(Ordering::Relaxed)));
    asked.store(0, Ordering::Relaxed);
    let rank = |rank| cached(over(&server.url()), folder.path()).with(|o| (o.rank, o.world_size) = (rank, 2));
    std::thread::scope(|scope| {
        let ranks = [0, 1].map(|number| scope.spawn(move || Run::of(rank(number)).digest));
        let cached = ranks.map(|rank| rank.join().unwrap());
        let plain = [0, 1]
            .map(|number| Run::of(over(pack.to_str().unwrap()).with(|o| (o.rank, o.world_size) = (number, 2))).digest);
        assert_eq!(cached, plain);
    });
    assert!(asked.load(Ordering::Relaxed) <= 6 * 4096);
}

#[test]
fn bytes_that_arrive_damaged_are_not_served_from_the_cache() {
    let photos = photos();
    let (expected, folder) = (digest_of_file(&photos.pack()), tempfile::tempdir().unwrap());
    let begins_with = Mutex::new(std::collections::HashSet::new());
    let plan = move |request: &Request| match begins_with.lock().unwrap().insert(request.range.start) {
        // Each range once, the index included.
        true if request.range.start > 0 => Answer::Damaged(0),
        _ => Answer::Range,
    };
    let server = WebServer::start(fs::read(photos.pack()).unwrap(), plan);
    for _ in 0..3 {
        let run = Run::of(cached(over(&server.url()), folder.path()));
        assert_eq!(run.ordered_digest, expected);
    }
}

#[test]
fn another_pack_is_another_dataset() {
    let (photos, other, folder) = (photos(), Photos::new(SAMPLES), tempfile::tempdir().unwrap());
    for pack in [photos.pack(), other.pack(), photos.pack()] {
        let server = WebServer::start(fs::read(&pack).unwrap(), |_| Answer::Range);
        assert_eq!(Run::of(cached(over(&server.url()), folder.path())).ordered_digest, digest_of_file(&pack));
    }
}

#[test]
fn the_pack_of_a_drive_is_cached_too() {
    let photos = photos();
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&photos.pack(), &photos.scratch().join("state"), &["--slots", "4"]);
    for is_cached in [false, true] {
        let builder = loader(Path::new(&agent.url())).with(|o| (o.strategy, o.epochs) = (Strategy::Cpu, 2));
        let run = Run::of(cached(builder, folder.path()));
        assert_eq!(run.ordered_digest, digest_of_file(&photos.pack()));
        let cache = run.report.cache.unwrap();
        assert_eq!(cache.kept_mb == 0.0, is_cached, "{cache:?}");
    }
}

#[test]
fn a_second_run_over_values_asks_for_their_beginning_alone() {
    let photos = photos();
    let Some(server) = RedisServer::start(photos.scratch(), &[]) else { return };
    let (pack, url, folder) = (photos.pack(), server.url("cached"), tempfile::tempdir().unwrap());
    push(&Pack::open(&pack).unwrap(), &url, &PushOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
    for is_cached in [false, true] {
        let run = Run::of(cached(over(&url), folder.path()));
        assert_eq!(run.ordered_digest, digest_of_file(&pack));
        assert_eq!(run.report.cache.unwrap().kept_mb == 0.0, is_cached);
        if is_cached {
            // The manifest, and the first chunk of the index.
            assert!(run.report.requests.unwrap().answered <= 2);
        }
    }
}

#[test]
fn a_folder_that_cannot_be_used_is_named() {
    let photos = photos();
    let server = WebServer::start(fs::read(photos.pack()).unwrap(), |_| Answer::Range);
    let error = cached(over(&server.url()), &photos.pack()).build().map(drop).unwrap_err().to_string();
    assert!(error.contains("`cache`: ") && error.contains("cannot be used"), "{error}");
    let error = over(&server.url()).with(|o| o.cache_limit = Some(16 << 20)).build().map(drop).unwrap_err().to_string();
    assert!(error.contains("`cache_limit` needs `cache`"), "{error}");
}
