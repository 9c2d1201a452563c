//! Several datasets in one run: a drive that opens the same mix prepares the same batches as the CPU.

use ddlp_host::{Batch, LoaderBuilder, LocalResults, Pipeline, Strategy};
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::{Run, images, loader, local};
use std::collections::BTreeMap;
use std::fs;

/// Samples of an epoch, of which 30 come from a pack of 40, and 20 from a folder of 6.
const EPOCH: u64 = 50;

/// Two epochs of a mix of a pack and a folder.
fn mix() -> (Photos, Photos, LoaderBuilder) {
    let (many, few) = (Photos::new(40), Photos::new(6));
    let file = many.scratch().join("mix.toml");
    let parts = [(many.pack(), 0.6), (few.folder(), 0.4)];
    let text = parts.map(|(path, weight)| format!("[[dataset]]\npath = {path:?}\nweight = {weight}\n"));
    fs::write(&file, text.concat()).expect("room for a small file");
    let builder =
        loader(&file).with(|o| (o.pipeline, o.epochs, o.epoch_samples) = (Pipeline::cifar_train(), 2, Some(EPOCH)));
    (many, few, builder)
}

/// Samples and pixels of batches, by epoch and number.
type Contents = BTreeMap<(u32, u32), (Vec<u64>, Vec<u8>)>;

fn contents(batches: impl Iterator<Item = Batch>) -> Contents {
    let content = |batch: &Batch| (batch.sample_ids().to_vec(), images::<u8>(batch).flatten().copied().collect());
    batches.map(|batch| ((batch.epoch(), batch.index()), content(&batch))).collect()
}

fn of_run(builder: LoaderBuilder) -> Contents {
    contents(builder.build().expect("a loader").map(|batch| batch.expect("a batch")))
}

#[test]
fn a_mix_is_the_same_under_every_strategy() {
    let (_many, _few, builder) = mix();
    let expected = Run::of(builder.clone().with(|o| o.strategy = Strategy::Cpu));
    expected.assert_exactly_once(2, EPOCH);
    // Some ids lie far above the samples of an epoch: the few samples come again and again.
    assert!(expected.counts.keys().any(|&(_, id)| id >= 3 * 46));
    for strategy in [Strategy::Csd, Strategy::Ordered, Strategy::Mte, Strategy::Wrr] {
        let run = Run::of(builder.clone().with(|o| o.strategy = strategy).drive(local(LocalResults::Shared)));
        assert_eq!((&run.digest, &run.counts), (&expected.digest, &expected.counts), "{strategy}");
        let of_drive = run.drive_batches();
        assert!(strategy != Strategy::Csd || of_drive == run.order.len(), "{of_drive} batches of the drive");
    }
}

#[test]
fn a_mix_with_a_drive_resumes_in_the_middle_of_an_epoch() {
    let (_many, _few, builder) = mix();
    let whole = of_run(builder.clone().with(|o| o.strategy = Strategy::Cpu));
    for strategy in [Strategy::Csd, Strategy::Mte] {
        let builder = builder.clone().with(|o| o.strategy = strategy).drive(local(LocalResults::Shared));
        let mut first = builder.clone().build().expect("a loader");
        let mut found = contents(first.by_ref().take(10).map(|batch| batch.expect("a batch")));
        let state = first.state();
        assert_eq!((state.epoch, state.delivered.len()), (1, 3));
        drop(first);
        let rest = of_run(builder.with(|o| o.resume = Some(state)));
        assert_eq!(found.len() + rest.len(), whole.len(), "{strategy}: no batch comes twice");
        found.extend(rest);
        assert!(found == whole, "{strategy}: the batches of a run without a break");
    }
}

#[test]
fn two_ranks_with_a_drive_each_share_the_batches_of_a_mix() {
    let (_many, _few, builder) = mix();
    let whole = of_run(builder.clone().with(|o| o.strategy = Strategy::Cpu));
    let builder = builder.with(|o| o.strategy = Strategy::Csd).drive(local(LocalResults::Shared));
    let [first, second] = [0, 1].map(|rank| of_run(builder.clone().with(|o| (o.rank, o.world_size) = (rank, 2))));
    let joined: Contents = first
        .into_iter()
        .zip(second.into_values())
        .map(|((at, (ids, pixels)), (more_ids, more_pixels))| {
            (at, ([ids, more_ids].concat(), [pixels, more_pixels].concat()))
        })
        .collect();
    assert!(joined == whole, "both shares together are the batches of one rank");
}
