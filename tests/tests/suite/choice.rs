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

/// A choice, and how often its samples occur.
#[derive(Clone, Debug)]
struct Wanted {
    indices: Option<Indices>,
    weights: Option<Weights>,
    repeats: u32,
    views: u32,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { indices: None, weights: None, repeats: 1, views: 1 }
    }
}

fn indices(indices: impl IntoIterator<Item = u64>) -> Wanted {
    Wanted { indices: Some(Indices::Fixed(indices.into_iter().collect())), ..Wanted::default() }
}

/// Choices of each kind, and the samples of their epochs.
fn choices() -> [(&'static str, Wanted, u64); 6] {
    let by_epoch = |epoch| Ok((0..20).map(|at| (at * 7 + u64::from(epoch)) % SAMPLES).collect());
    [
        ("indices", indices((0..SAMPLES).filter(|index| index % 3 > 0).chain([4, 4])), 28),
        ("by epoch", Wanted { indices: Some(Indices::ByEpoch(Arc::new(by_epoch))), ..Wanted::default() }, 20),
        ("weights", Wanted { weights: Some(Weights::Balanced), ..Wanted::default() }, SAMPLES),
        ("repeats", Wanted { repeats: 3, ..Wanted::default() }, SAMPLES),
        ("views", Wanted { views: 2, ..Wanted::default() }, 2 * SAMPLES),
        ("all", Wanted { weights: Some(Weights::Balanced), repeats: 2, views: 2, ..indices(5..30) }, 2 * 25),
    ]
}

fn builder(photos: &Photos, choice: &Wanted) -> LoaderBuilder {
    let Wanted { indices, weights, repeats, views } = choice.clone();
    loader(&photos.pack()).choose(Choice { indices, weights }).with(|o| {
        (o.pipeline, o.epochs, o.repeats, o.views) = (Pipeline::cifar_train(), 2, repeats, views);
    })
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
    let error = builder.build().expect_err("the loader cannot be built");
    chain(&error)
}

#[test]
fn a_choice_is_the_same_under_every_strategy() {
    let photos = Photos::new(SAMPLES as u32);
    for (name, choice, samples) in choices() {
        let builder = builder(&photos, &choice);
        let expected = Run::of(builder.clone().with(|o| o.strategy = Strategy::Cpu));
        expected.assert_exactly_once(2, samples);
        for strategy in [Strategy::Csd, Strategy::Mte] {
            let run = Run::of(builder.clone().with(|o| o.strategy = strategy).drive(local(LocalResults::Shared)));
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
    let rows = |choice: &Wanted| {
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
    let (some, mut all) = (rows(&indices([3, 17, 39, 8])), rows(&Wanted::default()));
    all.retain(|(_, id), _| [3, 8, 17, 39].contains(id));
    assert!(some == all);
}

#[test]
fn copies_of_a_sample_have_draws_of_their_own() {
    let photos = Photos::new(SAMPLES as u32);
    for choice in [Wanted { views: 2, ..indices([3]) }, Wanted { repeats: 2, ..indices([3]) }, indices([3, 3])] {
        let copies =
            of_run(builder(&photos, &choice).with(|o| o.epoch_samples = Some(if choice.views > 1 { 1 } else { 2 })));
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
        found.extend(of_run(builder.with(|o| o.resume = Some(read))));
        assert!(found == whole, "{name}: the batches of a run without a break");
        let other = Wanted { repeats: 5, ..indices([1, 2, 3]) };
        let refused = refusal(self::builder(&photos, &other).with(|o| o.resume = Some(state)));
        assert!(refused.contains("repeats") && refused.contains("indices"), "{name}: {refused}");
    }
    let state = builder(&photos, &Wanted::default()).build().unwrap().state();
    assert!(!serde_json::to_string(&state).unwrap().contains("choice"), "a state without a choice is as before");
}

#[test]
fn ranks_share_the_batches_of_a_choice() {
    let photos = Photos::new(SAMPLES as u32);
    for (name, choice, _) in choices() {
        let ids = |rank, world| {
            let of_batch = |(ids, _): (Vec<u64>, Vec<u8>)| -> Vec<u64> { ids };
            of_run(builder(&photos, &choice).with(|o| (o.rank, o.world_size) = (rank, world)))
                .into_values()
                .map(of_batch)
                .collect::<Vec<_>>()
        };
        let (whole, first, second) = (ids(0, 1), ids(0, 2), ids(1, 2));
        for ((mut whole, first), second) in whole.into_iter().zip(first).zip(second) {
            let mut joined = [first, second].concat();
            whole.sort_unstable();
            joined.sort_unstable();
            if whole.len() < 2 * choice.views as usize {
                // A short batch is filled until each rank has a sample.
                assert_eq!(joined.len(), 2 * choice.views as usize, "{name}");
                joined.retain(|id| whole.contains(id));
            }
            assert_eq!(joined, whole, "{name}");
        }
    }
}

#[test]
fn a_plan_replays_the_choice_that_it_was_recorded_with() {
    let photos = Photos::new(SAMPLES as u32);
    let [(_, choice, _), ..] = choices();
    let recorded = Run::of(builder(&photos, &choice));
    let replayed = Run::of(builder(&photos, &choice).with(|o| o.replay = Some(recorded.plan.clone())));
    assert_eq!(replayed.ordered_digest, recorded.ordered_digest);
    let swapped = indices((0..SAMPLES).filter(|index| index % 3 > 0).chain([4, 5]));
    let refused = refusal(builder(&photos, &swapped).with(|o| o.replay = Some(recorded.plan)));
    assert!(refused.contains("recorded with indices "), "{refused}");
}

#[test]
fn a_function_that_fails_ends_the_run_at_its_epoch() {
    let photos = Photos::new(SAMPLES as u32);
    let function = |epoch: u32| if epoch < 4 { Ok(vec![1, 2, u64::from(epoch)]) } else { Err("no list".to_owned()) };
    let choice = Wanted { indices: Some(Indices::ByEpoch(Arc::new(function))), ..Wanted::default() };
    let mut loader = builder(&photos, &choice).with(|o| o.epochs = 6).build().expect("a loader");
    let delivered = loader.by_ref().map_while(Result::ok).map(|batch| batch.epoch()).last();
    assert_eq!(delivered, Some(3));
    let mut loader = builder(&photos, &choice).with(|o| o.epochs = 6).build().expect("a loader");
    let error = loader.by_ref().find_map(Result::err).expect("an error");
    assert!(matches!(&error, LoaderError::Options(said) if said == "`indices`(4): no list"), "{error}");
}

#[test]
fn what_does_not_go_with_a_choice_is_refused() {
    let photos = Photos::new(6);
    let with = |choice: Wanted, change: fn(LoaderBuilder) -> LoaderBuilder| refusal(change(builder(&photos, &choice)));
    let views = Wanted { views: 2, ..Wanted::default() };
    let weights = Wanted { weights: Some(Weights::Balanced), ..Wanted::default() };
    for (said, part) in [
        (with(indices([1]), |builder| builder.with(|o| o.policy = CorruptPolicy::Replace)), "`indices` leaves out"),
        (with(indices([6]), |builder| builder), "`indices`[0] is 6, but the dataset has 6 samples"),
        (with(views.clone(), |builder| builder.with(|o| o.policy = CorruptPolicy::Skip)), "`policy` must be \"fail\""),
        (with(views, |builder| builder.with(|o| o.mixup = 0.2)), "`mixup` and `cutmix`"),
        (with(weights, |builder| builder.with(|o| o.shuffle = false)), "`shuffle` is false"),
    ] {
        assert!(said.contains(part), "{said}");
    }
}
