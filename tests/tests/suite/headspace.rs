//! A headspace over datasets whose reads sleep, and with a drive. How busy a machine is decides whether a gain exceeds
//! the noise and which stage bounds, so the verdicts have unit tests of their own, from fixed figures.

use ddlp_dataset::FetchDepth;
use ddlp_host::{Headspace, Loader, LocalResults, Strategy};
use ddlp_tests::hooked::{Hooked, Hooks};
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::{loader, local, troubles};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

/// Time of a slow read. It is many times the time of preparing a small photograph.
const SLOW: Duration = Duration::from_millis(20);

/// A disk, or a drive with the dataset, that is slow to answer.
struct SlowReads(FetchDepth);

impl Hooks for SlowReads {
    fn reads(&self, _index: u64) {
        sleep(SLOW);
    }

    fn fetch_depth(&self) -> FetchDepth {
        self.0
    }
}

fn measured(loader: &mut Loader) -> Headspace {
    let headspace = loader.headspace(Duration::from_millis(100), |_| true, |_| true);
    headspace.expect("a headspace").expect("nobody gives up")
}

fn slow(photos: &Photos, depth: FetchDepth) -> Loader {
    let dataset = ddlp_dataset::open(&photos.folder()).expect("a folder");
    let hooked = Arc::new(Hooked { dataset, hooks: SlowReads(depth) });
    let loader = loader(&photos.folder())
        .dataset(hooked)
        .with(|o| (o.strategy, o.threads, o.batch_size) = (Strategy::Cpu, Some(2), 4));
    loader.with(|o| o.epochs = 1000).build().expect("a loader")
}

#[test]
fn slow_reads_are_measured_as_reading() {
    let photos = Photos::new(40);
    let headspace = measured(&mut slow(&photos, FetchDepth::NONE));
    assert!(headspace.stages.reading > 0.0 && headspace.stages.waiting > 0.0, "{headspace:?}");
    assert_eq!(headspace.stages.fetching, None, "{headspace:?}");
}

#[test]
fn slow_fetches_are_measured_as_fetching() {
    let photos = Photos::new(40);
    let headspace = measured(&mut slow(&photos, FetchDepth { threads: 1, samples: 1, ..FetchDepth::NONE }));
    assert!(headspace.stages.waiting > 0.0, "{headspace:?}");
    assert!(headspace.stages.fetching.is_some_and(|fetching| fetching > 0.0), "{headspace:?}");
    assert_eq!(headspace.stages.blocked.is_some(), headspace.stages.queued.is_some());
}

#[test]
fn a_run_of_a_drive_alone_is_measured_and_goes_on() {
    let photos = Photos::new(40);
    let mut run = loader(&photos.pack())
        .drive(local(LocalResults::Shared))
        .with(|o| (o.strategy, o.batch_size, o.epochs) = (Strategy::Csd, 4, 2))
        .build()
        .expect("a loader");
    let headspace = measured(&mut run);
    let drive = &headspace.stages.drives[0];
    assert!(drive.images_per_s > 0.0 && drive.busy > 0.0, "{headspace:?}");
    let report = run.report();
    assert!(troubles(&report).is_empty(), "{:?}", report.faults);
    let rest: Vec<_> = run.map(|batch| batch.expect("every batch comes")).map(|b| (b.epoch(), b.index())).collect();
    assert_eq!(rest, (0..2).flat_map(|epoch| (0..10).map(move |index| (epoch, index))).collect::<Vec<_>>());
}
