//! A headspace: it runs steps, and leaves the loader where it was.

use super::{SAMPLES, cifar, loader};
use ddlp_host::{Headspace, Loader, LoaderError};
use std::time::Duration;

/// A short measurement: its intervals have the least number of steps.
const TIME: Duration = Duration::from_millis(10);

fn positions(loader: &mut Loader) -> Vec<(u32, u32)> {
    let batches = loader.map(|batch| batch.expect("every batch comes"));
    batches.map(|batch| (batch.epoch(), batch.index())).collect()
}

fn measured(loader: &mut Loader) -> Headspace {
    loader.headspace(TIME, |batch| !batch.is_empty(), |_| true).expect("a headspace").expect("nobody gives up")
}

#[test]
fn a_loader_goes_on_where_it_was() {
    let folder = cifar();
    // A run of 16 batches, through which a measurement goes several times.
    let mut run = loader(&folder).with(|o| o.epochs = 2).build().unwrap();
    let taken: Vec<_> = run.by_ref().take(3).map(|batch| batch.unwrap().index()).collect();
    assert_eq!(taken, [0, 1, 2]);
    let before = run.state();
    let headspace = measured(&mut run);
    assert_eq!(run.state(), before);
    assert!(headspace.steps >= 2 * 5 * 4, "{headspace:?}");
    let all: Vec<_> = (0..2).flat_map(|epoch| (0..8).map(move |index| (epoch, index))).collect();
    assert_eq!(positions(&mut run), all[3..]);
    let images = run.report().images;
    assert!(images > 2 * SAMPLES as u64, "the figures count the batches of the measurement: {images}");
}

#[test]
fn the_figures_are_those_of_the_run() {
    let folder = cifar();
    let headspace = measured(&mut loader(&folder).with(|o| (o.epochs, o.threads) = (50, Some(3))).build().unwrap());
    let Headspace { with_loading, from_memory, stages, .. } = &headspace;
    for rates in [with_loading, from_memory] {
        assert!(0.0 < rates.min && rates.min <= rates.median && rates.median <= rates.max, "{headspace:?}");
    }
    assert_eq!((stages.threads, stages.drives.len(), stages.fetching), (3, 0, None));
    let shares = [stages.waiting, stages.reading, stages.decoding, stages.idle];
    assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)), "{shares:?}");
    assert!((stages.reading + stages.decoding + stages.idle - 1.0).abs() < 1e-9, "{shares:?}");
    assert!(stages.decoding > 0.0 && stages.cpu_images_per_s > 0.0, "{stages:?}");
    let json = serde_json::to_value(&headspace).unwrap();
    assert!(json["gain"]["median"].is_number() && json["bound"].is_string(), "{json}");
}

#[test]
fn giving_up_leaves_the_loader_where_it_was() {
    let folder = cifar();
    let mut run = loader(&folder).with(|o| o.epochs = 2).build().unwrap();
    run.next().unwrap().unwrap();
    let before = run.state();
    for last in [1, 3, 20] {
        let mut steps = 0;
        let step = |_: &_| {
            steps += 1;
            steps < last
        };
        assert!(run.headspace(TIME, step, |_| true).unwrap().is_none());
        assert_eq!((steps, run.state()), (last, before.clone()));
    }
    assert_eq!(run.next().unwrap().unwrap().index(), 1);
}

#[test]
fn a_stopper_ends_a_measurement() {
    let folder = cifar();
    let mut run = loader(&folder).with(|o| o.epochs = 50).build().unwrap();
    let stopper = run.stopper();
    let stop = |_: &_| {
        stopper.stop();
        true
    };
    assert!(run.headspace(Duration::from_secs(3600), stop, |_| true).unwrap().is_none());
    assert!(run.is_over());
}

#[test]
fn too_few_batches_and_a_run_that_has_ended_are_errors() {
    let folder = cifar();
    let refused = |run: &mut Loader| match run.headspace(TIME, |_| true, |_| true) {
        Err(LoaderError::Options(message)) => message,
        other => panic!("{other:?}"),
    };
    let mut run = loader(&folder).with(|o| o.batch_size = 16).build().unwrap();
    let message = refused(&mut run);
    assert!(message.contains("4 left") && message.contains("`epochs`"), "{message}");
    assert_eq!(positions(&mut run).len(), 4, "the run goes on");
    let message = refused(&mut run);
    assert!(message.contains("ended"), "{message}");
}
