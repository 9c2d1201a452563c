//! A loader that goes on at another position.

use super::{cifar, images, loader};
use ddlp_host::{Batch, Loader, LoaderError, LoaderState, Strategy};

fn next(loader: &mut Loader) -> Batch {
    loader.next().expect("the run goes on").expect("every batch comes")
}

fn places(batches: impl Iterator<Item = Result<Batch, LoaderError>>) -> Vec<(u32, u32, Vec<u64>)> {
    let batches = batches.map(|batch| batch.expect("every batch comes"));
    batches.map(|batch| (batch.epoch(), batch.index(), batch.sample_ids().to_vec())).collect()
}

/// Returns the position at the beginning of an epoch.
fn beginning_of(run: &Loader, epoch: u32) -> LoaderState {
    LoaderState { epoch, delivered: Vec::new(), ..run.state() }
}

#[test]
fn a_moved_run_delivers_what_a_resumed_one_does() {
    let folder = cifar();
    let builder = loader(&folder).with(|o| (o.epochs, o.strategy) = (4, Strategy::Ordered));
    let mut moved = builder.clone().build().unwrap();
    let kept = next(&mut moved);
    let pixels = images(&kept).to_vec();
    next(&mut moved);
    for (epoch, delivered) in [(2, vec![0, 1, 2]), (0, vec![]), (3, vec![])] {
        let state = LoaderState { epoch, delivered, ..moved.state() };
        moved.go_to(&state).unwrap();
        assert_eq!(moved.state(), state);
        let mut resumed = builder.clone().with(|o| o.resume = Some(state)).build().unwrap();
        assert_eq!(places(moved.by_ref().take(3)), places(resumed.by_ref().take(3)));
    }
    assert_eq!(images(&kept), pixels, "a batch that the consumer keeps stays as it is");
    assert_eq!(places(moved.by_ref()).len(), 5, "the last epoch ends");
    let report = moved.report();
    assert_eq!(report.images, 8 * (2 + 3 + 3 + 3 + 5), "the figures go on");
    let epochs: Vec<_> = report.epochs.iter().map(|epoch| (epoch.epoch, epoch.batches)).collect();
    assert_eq!(epochs, [(0, 2), (2, 3), (0, 3), (3, 8)]);
}

#[test]
fn the_plan_of_a_run_that_moved_has_the_latest_of_each_whole_epoch() {
    let folder = cifar();
    let mut run = loader(&folder).with(|o| (o.epochs, o.strategy) = (3, Strategy::Ordered)).build().unwrap();
    let planned = |run: &Loader| run.plan().epochs.iter().map(|epoch| epoch.epoch).collect::<Vec<_>>();
    let beginning = run.state();
    (0..8 + 3).for_each(|_| drop(next(&mut run)));
    assert_eq!(planned(&run), [0], "epoch 1 has begun");
    run.go_to(&LoaderState { epoch: 1, delivered: vec![0, 1, 2], ..beginning.clone() }).unwrap();
    (0..5 + 8).for_each(|_| drop(next(&mut run)));
    assert_eq!(planned(&run), [0, 2], "epoch 1 was entered in the middle");
    let mut run = loader(&folder).with(|o| o.epochs = 3).build().unwrap();
    (0..8 + 1).for_each(|_| drop(next(&mut run)));
    run.go_to(&beginning_of(&run, 0)).unwrap();
    (0..8 + 8).for_each(|_| drop(next(&mut run)));
    assert_eq!(planned(&run), [0, 1], "each epoch once");
    let replayed = loader(&folder).with(|o| (o.epochs, o.replay) = (2, Some(run.plan()))).build().unwrap();
    assert_eq!(places(replayed).len(), 16);
}

#[test]
fn a_plan_is_replayed_only_with_the_shuffle_that_it_was_recorded_with() {
    let folder = cifar();
    for shuffle in [true, false] {
        let build = || loader(&folder).with(|o| o.shuffle = shuffle);
        let mut recorded = build().build().unwrap();
        let order = places(recorded.by_ref());
        let plan = recorded.plan();
        assert_eq!(places(build().with(|o| o.replay = Some(plan.clone())).build().unwrap()), order);
        let refused = loader(&folder)
            .with(|o| (o.shuffle, o.replay) = (!shuffle, Some(plan)))
            .build()
            .expect_err("another order of samples");
        let said = match &refused {
            LoaderError::Plan(error) => error.to_string(),
            _ => panic!("{refused:?}"),
        };
        assert_eq!(said, format!("plan was recorded with shuffle {shuffle}, this run has {}", !shuffle));
    }
}

#[test]
fn a_position_of_another_run_changes_nothing() {
    let folder = cifar();
    let mut run = loader(&folder).with(|o| o.epochs = 2).build().unwrap();
    next(&mut run);
    let before = run.state();
    let other = LoaderState { seed: 9, ..before.clone() };
    assert!(matches!(run.go_to(&other), Err(LoaderError::State(_))));
    assert_eq!(run.state(), before);
    assert_eq!(next(&mut run).index(), 1);
}

#[test]
fn a_run_that_has_ended_does_not_move() {
    let folder = cifar();
    let build = || loader(&folder).with(|o| o.epochs = 2).build().unwrap();
    let stopped = |mut run: Loader| {
        next(&mut run);
        run.stopper().stop();
        run
    };
    let asked = |mut run: Loader| {
        assert!(run.next().is_none());
        run
    };
    let complete = |mut run: Loader| {
        (0..2 * 8).for_each(|_| drop(next(&mut run)));
        run
    };
    for mut run in [stopped(build()), asked(stopped(build())), complete(build()), asked(complete(build()))] {
        let before = run.state();
        assert!(run.is_over());
        let beginning = LoaderState { epoch: 0, delivered: Vec::new(), ..before.clone() };
        assert!(matches!(run.go_to(&beginning), Err(LoaderError::Options(_))));
        assert_eq!(run.state(), before);
        assert!(run.next().is_none());
    }
}
