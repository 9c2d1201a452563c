//! Several datasets in one run, and epochs of any length.

use super::{SAMPLES, cifar, images, loader};
use ddlp_host::dataset::mix::Mix;
use ddlp_host::{Batch, Dataset, Loader, LoaderBuilder, LoaderState, open_dataset};
use std::collections::HashSet;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// Samples of a batch.
const BATCH: usize = 8;

/// Samples and pixels of a batch.
type Content = (u32, u32, Vec<u64>, Vec<i64>, Vec<u8>);

fn content(batch: &Batch) -> Content {
    let labels = batch.labels().expect("class indices").to_vec();
    (batch.epoch(), batch.index(), batch.sample_ids().to_vec(), labels, images(batch).to_vec())
}

fn contents(builder: LoaderBuilder) -> Vec<Content> {
    let loader = builder.build().unwrap_or_else(|error| panic!("{error}"));
    loader.map(|batch| content(&batch.unwrap_or_else(|error| panic!("{error}")))).collect()
}

/// Makes a mix of 64 samples, weighing 0.7, and one sample, weighing 0.3.
fn mix() -> (TempDir, TempDir, LoaderBuilder) {
    let (many, one) = (cifar(), tempfile::tempdir().expect("a temporary folder"));
    fs::write(one.path().join("data_batch_1.bin"), [9u8; 3073]).expect("room for a small file");
    let path = one.path().join("mix.toml");
    let text = format!(
        "[[dataset]]\npath = {:?}\nweight = 0.7\n[[dataset]]\npath = \"data_batch_1.bin\"\nweight = 0.3\n",
        many.path()
    );
    fs::write(&path, text).expect("room for a small file");
    let builder = loader(&many).with(|o| {
        o.dataset = Some(path);
        o.batch_size = BATCH;
        o.epoch_samples = Some(100);
        o.epochs = 3;
        o.seed = 4;
    });
    (many, one, builder)
}

#[test]
fn every_epoch_has_its_share_of_each_dataset() {
    let (_many, _one, builder) = mix();
    let batches = contents(builder.clone());
    let mut of_first = Vec::new();
    for epoch in 0..3 {
        let ids: Vec<u64> = batches.iter().filter(|batch| batch.0 == epoch).flat_map(|batch| batch.2.clone()).collect();
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 100, "each sample has an id of its own");
        let (first, second): (Vec<u64>, Vec<u64>) =
            ids.iter().map(|id| id % (SAMPLES as u64 + 1)).partition(|&index| index < SAMPLES as u64);
        assert_eq!((first.len(), second.len()), (70, 30));
        of_first.extend(first);
    }
    let mut counts = [0; SAMPLES];
    of_first.iter().for_each(|&index| counts[index as usize] += 1);
    assert!(counts.iter().all(|count| (3..=4).contains(count)), "210 samples are three passes and a part: {counts:?}");
    for (.., ids, labels, _) in &batches {
        let label = |id: &u64| match id % (SAMPLES as u64 + 1) {
            index if index < SAMPLES as u64 => (index % 10) as i64,
            _ => 9,
        };
        assert_eq!(&ids.iter().map(label).collect::<Vec<_>>(), labels);
    }
    // The one sample is cropped and mirrored in many ways.
    let row = |batch: &Content, at: usize| batch.4[at * 3072..(at + 1) * 3072].to_vec();
    let rows = batches.iter().flat_map(|batch| (0..batch.2.len()).map(move |at| (batch.2[at], row(batch, at))));
    let of_one: HashSet<Vec<u8>> = rows.filter(|(id, _)| id % 65 == 64).map(|(_, row)| row).collect();
    assert!(of_one.len() > 10, "{} different crops", of_one.len());
    let report = builder.build().unwrap().report();
    let note = "(70 of 64 samples), data_batch_1.bin (30 of 1 sample)";
    assert!(report.notes.iter().any(|found| found.contains(note)), "{:?}", report.notes);
}

#[test]
fn the_order_is_the_same_for_any_number_of_ranks() {
    let (_many, _one, builder) = mix();
    let alone = contents(builder.clone());
    for world in [2, 4] {
        let ranks: Vec<_> =
            (0..world).map(|rank| contents(builder.clone().with(|o| (o.rank, o.world_size) = (rank, world)))).collect();
        for (at, (_, _, ids, labels, pixels)) in alone.iter().enumerate() {
            let of_ranks = || ranks.iter().map(|rank| &rank[at]);
            assert_eq!(&of_ranks().flat_map(|batch| batch.2.clone()).collect::<Vec<_>>(), ids);
            assert_eq!(&of_ranks().flat_map(|batch| batch.3.clone()).collect::<Vec<_>>(), labels);
            assert_eq!(&of_ranks().flat_map(|batch| batch.4.clone()).collect::<Vec<_>>(), pixels);
        }
    }
}

#[test]
fn a_mix_resumes_in_the_middle_of_an_epoch() {
    let (_many, one, builder) = mix();
    let whole = contents(builder.clone());
    let mut first = builder.clone().build().unwrap();
    let begun: Vec<Content> = first.by_ref().take(17).map(|batch| content(&batch.unwrap())).collect();
    let state: LoaderState = serde_json::from_str(&serde_json::to_string(&first.state()).unwrap()).unwrap();
    drop(first);
    assert_eq!((state.epoch, state.delivered.len()), (1, 4));
    let rest = contents(builder.clone().with(|o| o.resume = Some(state.clone())));
    assert_eq!([begun, rest].concat(), whole);
    let text = fs::read_to_string(one.path().join("mix.toml")).unwrap();
    fs::write(one.path().join("mix.toml"), text.replace("0.3", "0.31")).unwrap();
    let refused = builder.with(|o| o.resume = Some(state)).build().unwrap_err();
    let refused = refused.source().expect("a reason").to_string();
    assert!(refused.contains("epochs of 70 of 64 samples and 30 of 1 samples, this run has 69 of 64"), "{refused}");
}

#[test]
fn an_epoch_of_a_mix_of_one_goes_on_where_the_one_before_stopped() {
    let folder = cifar();
    let passes = contents(loader(&folder).with(|o| o.epochs = 3));
    let path = folder.path().join("mix.toml");
    fs::write(&path, "[[dataset]]\npath = \"data_batch_1.bin\"\n").expect("room for a small file");
    for epoch_samples in [10, 24, 100] {
        let epochs = 3 * SAMPLES as u32 / epoch_samples as u32;
        let batches = contents(
            loader(&folder)
                .with(|o| (o.dataset, o.epoch_samples, o.epochs) = (Some(path.clone()), Some(epoch_samples), epochs)),
        );
        let indices: Vec<u64> =
            batches.iter().flat_map(|batch| batch.2.clone()).map(|id| id % SAMPLES as u64).collect();
        let walk: Vec<u64> = passes.iter().flat_map(|batch| batch.2.clone()).collect();
        assert_eq!(indices, walk[..indices.len()], "epochs of {epoch_samples} samples");
    }
}

#[test]
fn a_mix_that_cannot_be_is_refused() {
    let (many, _one, builder) = mix();
    let refused = builder.with(|o| o.epoch_samples = Some(1)).build().unwrap_err().to_string();
    assert!(refused.contains("an epoch of 1 samples has no sample of data_batch_1.bin"), "{refused}");
    let dataset = |path: &Path| -> Arc<dyn Dataset> { open_dataset(path, &ddlp_host::Host::system()).unwrap() };
    let twice = vec![("a".to_owned(), dataset(many.path())), ("b".to_owned(), dataset(many.path()))];
    let twice = Arc::new(Mix::new(twice, None).unwrap());
    let ids = |batches: Vec<Content>| batches.into_iter().flat_map(|batch| batch.2).collect::<HashSet<_>>();
    let builder = Loader::builder()
        .dataset(twice)
        .with(|o| (o.batch_size, o.pipeline) = (BATCH, ddlp_host::Pipeline::cifar_train()));
    assert_eq!(ids(contents(builder)).len(), 2 * SAMPLES, "without weights, an epoch has each sample once");
}
