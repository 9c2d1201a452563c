//! Choices of samples: the CPU and drives prepare the same batches of them, on any number of ranks, and a run resumes
//! with its own choice alone.

use ddlp_host::{
    Batch, Choice, CorruptPolicy, Indices, LoaderBuilder, LoaderError, LocalResults, Pipeline, Strategy, Weights,
};
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::{Run, chain, images, loader, local};
use std::collections::BTreeMap;
use std::sync::Arc;

const SAMPLES: u64 = 40;

fn indices(indices: impl IntoIterator<Item = u64>) -> Choice {
    Choice { indices: Some(Indices::Fixed(indices.into_iter().collect())), ..Choice::default() }
}

/// Choices of each kind, and the samples of their epochs.
fn choices() -> [(&'static str, Choice, u64); 6] {
    let by_epoch = |epoch| Ok((0..20).map(|at| (at * 7 + u64::from(epoch)) % SAMPLES).collect());
    [
        ("indices", indices((0..SAMPLES).filter(|index| index % 3 > 0).chain([4, 4])), 28),
        ("by epoch", Choice { indices: Some(Indices::ByEpoch(Arc::new(by_epoch))), ..Choice::default() }, 20),
        ("weights", Choice { weights: Some(Weights::Balanced), ..Choice::default() }, SAMPLES),
        ("repeats", Choice { repeats: 3, ..Choice::default() }, SAMPLES),
        ("views", Choice { views: 2, ..Choice::default() }, 2 * SAMPLES),
        ("all", Choice { weights: Some(Weights::Balanced), repeats: 2, views: 2, ..indices(5..30) }, 2 * 25),
    ]
}

fn builder(photos: &Photos, choice: &Choice) -> LoaderBuilder {
    loader(&photos.pack()).pipeline(Pipeline::cifar_train()).epochs(2).choose(choice.clone())
}

type Contents = BTreeMap<(u32, u32), (Vec<u64>, Vec<u8>)>;

fn contents(batches: impl Iterator<Item = Batch>) -> Contents {
    let content = |batch: &Batch| (batch.sample_ids().to_vec(), images::<u8>(batch).flatten().copied().collect());
    batches.map(|batch| ((batch.epoch(), batch.index()), content(&batch))).collect()
}

fn of_run(builder: LoaderBuilder) -> Contents {
    contents(builder.build().expect("a loader").map(|batch| batch.expect("a batch")))
}

/// Returns why a loader cannot be built, with all causes.
fn refusal(builder: LoaderBuilder) -> String {
    let error = builder.build().err().expect("the loader cannot be built");
    chain(&error)
}

#[test]
fn a_choice_is_the_same_under_every_strategy() {
    let photos = Photos::new(SAMPLES as u32);
    for (name, choice, samples) in choices() {
        let builder = builder(&photos, &choice);
        let expected = Run::of(builder.clone().strategy(Strategy::Cpu));
        expected.assert_exactly_once(2, samples);
        for strategy in [Strategy::Csd, Strategy::Ordered, Strategy::Mte] {
            let run = Run::of(builder.clone().strategy(strategy).drive(local(LocalResults::Shared)));
            assert_eq!((&run.digest, &run.counts), (&expected.digest, &expected.counts), "{name}, {strategy}");
            let of_drive = run.drive_batches();
            assert!(
                strategy != Strategy::Csd || of_drive == run.order.len(),
                "{name}: {of_drive} batches of the drive"
            );
        }
    }
}

#[test]
fn indices_choose_samples_with_the_draws_and_labels_of_the_whole_dataset() {
    let photos = Photos::new(SAMPLES as u32);
    let rows = |choice: &Choice| {
        let mut rows = BTreeMap::new();
        Run::with(builder(&photos, choice), |batch, _| {
            for ((&id, image), &label) in
                batch.sample_ids().iter().zip(images::<u8>(batch)).zip(batch.labels().unwrap())
            {
                rows.insert((batch.epoch(), id), (label, image.to_vec()));
            }
        });
        rows
    };
    let (some, mut all) = (rows(&indices([3, 17, 39, 8])), rows(&Choice::default()));
    all.retain(|(_, id), _| [3, 8, 17, 39].contains(id));
    assert!(some == all);
}

#[test]
fn copies_of_a_sample_have_draws_of_their_own() {
    let photos = Photos::new(SAMPLES as u32);
    for choice in [Choice { views: 2, ..indices([3]) }, Choice { repeats: 2, ..indices([3]) }, indices([3, 3])] {
        let copies = of_run(builder(&photos, &choice).epoch_samples(if choice.views > 1 { 1 } else { 2 }));
        let (ids, pixels) = &copies[&(0, 0)];
        assert_eq!(ids.iter().map(|id| id % SAMPLES).collect::<Vec<_>>(), [3, 3], "{choice:?}");
        let (one, other) = pixels.split_at(pixels.len() / 2);
        assert_ne!(one, other, "{choice:?}");
    }
}

#[test]
fn a_choice_resumes_in_the_middle_of_an_epoch_and_refuses_another_one() {
    let photos = Photos::new(SAMPLES as u32);
    for (name, choice, _) in choices() {
        let builder = builder(&photos, &choice);
        let whole = of_run(builder.clone());
        let mut first = builder.clone().build().expect("a loader");
        let batches = first.batches_per_epoch() as usize + 2;
        let mut found = contents(first.by_ref().take(batches).map(|batch| batch.expect("a batch")));
        let state = first.state();
        drop(first);
        let read = serde_json::from_str(&serde_json::to_string(&state).unwrap()).unwrap();
        found.extend(of_run(builder.resume(read)));
        assert!(found == whole, "{name}: the batches of a run without a break");
        let other = Choice { repeats: 5, ..indices([1, 2, 3]) };
        let refused = refusal(self::builder(&photos, &other).resume(state));
        assert!(refused.contains("repeats") && refused.contains("indices"), "{name}: {refused}");
    }
    let state = builder(&photos, &Choice::default()).build().unwrap().state();
    assert!(!serde_json::to_string(&state).unwrap().contains("choice"), "a state without a choice is as before");
}

#[test]
fn ranks_share_the_batches_of_a_choice() {
    let photos = Photos::new(SAMPLES as u32);
    for (name, choice, _) in choices() {
        let ids = |rank, world| {
            let of_batch = |(ids, _): (Vec<u64>, Vec<u8>)| -> Vec<u64> { ids };
            of_run(builder(&photos, &choice).rank(rank, world)).into_values().map(of_batch).collect::<Vec<_>>()
        };
        let (whole, first, second) = (ids(0, 1), ids(0, 2), ids(1, 2));
        for ((mut whole, first), second) in whole.into_iter().zip(first).zip(second) {
            let mut joined = [first, second].concat();
            whole.sort_unstable();
            joined.sort_unstable();
            assert_eq!(joined, whole, "{name}");
        }
    }
}

#[test]
fn a_plan_replays_the_choice_that_it_was_recorded_with() {
    let photos = Photos::new(SAMPLES as u32);
    let [(_, choice, _), ..] = choices();
    let recorded = Run::of(builder(&photos, &choice));
    let replayed = Run::of(builder(&photos, &choice).replay(recorded.plan.clone()));
    assert_eq!(replayed.ordered_digest, recorded.ordered_digest);
    let swapped = indices((0..SAMPLES).filter(|index| index % 3 > 0).chain([4, 5]));
    let refused = refusal(builder(&photos, &swapped).replay(recorded.plan));
    assert!(refused.contains("recorded with indices with the digest"), "{refused}");
}

#[test]
fn a_function_that_fails_ends_the_run_at_its_epoch() {
    let photos = Photos::new(SAMPLES as u32);
    let function = |epoch: u32| if epoch < 4 { Ok(vec![1, 2, u64::from(epoch)]) } else { Err("no list".to_owned()) };
    let choice = Choice { indices: Some(Indices::ByEpoch(Arc::new(function))), ..Choice::default() };
    let mut loader = builder(&photos, &choice).epochs(6).build().expect("a loader");
    let delivered = loader.by_ref().map_while(Result::ok).map(|batch| batch.epoch()).last();
    assert_eq!(delivered, Some(3));
    let mut loader = builder(&photos, &choice).epochs(6).build().expect("a loader");
    let error = loader.by_ref().find_map(Result::err).expect("an error");
    assert!(matches!(&error, LoaderError::Options(said) if said == "`indices`(4): no list"), "{error}");
}

#[test]
fn what_does_not_go_with_a_choice_is_refused() {
    let photos = Photos::new(6);
    let with = |choice: Choice, change: fn(LoaderBuilder) -> LoaderBuilder| refusal(change(builder(&photos, &choice)));
    let views = Choice { views: 2, ..Choice::default() };
    let weights = Choice { weights: Some(Weights::Balanced), ..Choice::default() };
    for (said, part) in [
        (with(indices([1]), |builder| builder.policy(CorruptPolicy::Replace)), "`indices` leaves out"),
        (with(indices([6]), |builder| builder), "`indices`[0] is 6, but the dataset has 6 samples"),
        (with(views.clone(), |builder| builder.policy(CorruptPolicy::Skip)), "`policy` must be \"fail\""),
        (with(views, |builder| builder.mixup(0.2)), "`mixup` and `cutmix`"),
        (with(weights, |builder| builder.shuffle(false)), "`shuffle` is false"),
    ] {
        assert!(said.contains(part), "{said}");
    }
}
