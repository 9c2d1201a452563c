//! The contents of a batch beside its pixels: labels of the dataset, and values that follow the formula, from every
//! prong.

use ddlp_host::{CorruptPolicy, Float, Loader, LoaderBuilder, LocalResults, Strategy};
use ddlp_pixels::Normalize;
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::{FloatRun, Run, loader, local};
use std::collections::{BTreeMap, BTreeSet};

const SAMPLES: u32 = 45;

/// Returns a run by the CPU alone, and a run by a drive alone for each kind of slots.
fn by_each_prong(photos: &Photos) -> Vec<(&'static str, LoaderBuilder)> {
    let csd = |results| loader(&photos.pack()).strategy(Strategy::Csd).drive(local(results));
    vec![
        ("cpu", loader(&photos.pack()).strategy(Strategy::Cpu)),
        ("shared slots", csd(LocalResults::Shared)),
        ("read slots", csd(LocalResults::Read)),
    ]
}

#[test]
fn labels_are_those_of_the_dataset_on_every_prong() {
    let photos = Photos::new(SAMPLES);
    let dataset = ddlp_dataset::open(&photos.pack()).expect("the pack opens");
    for (name, builder) in by_each_prong(&photos) {
        let mut labels = BTreeSet::new();
        // With more samples than the dataset has, ids go on beyond its end.
        let run = Run::with(builder.epoch_samples(2 * u64::from(SAMPLES)), |batch, _| {
            assert_eq!(batch.labels().len(), batch.len(), "{name}");
            for (&id, &label) in batch.sample_ids().iter().zip(batch.labels()) {
                let index = id % dataset.len();
                assert_eq!(label, dataset.label(index), "{name}: sample {id}");
                assert!(dataset.name(index).starts_with(&dataset.classes()[label as usize]), "{name}: sample {id}");
                labels.insert(label);
            }
        });
        run.assert_exactly_once(1, 2 * u64::from(SAMPLES));
        assert_eq!(labels.len(), 3, "{name}: every class came");
    }
}

#[test]
fn normalised_values_follow_the_formula_on_every_prong() {
    let photos = Photos::new(SAMPLES);
    let (mean, std) = ([0.485, 0.4, 0.31], [0.229, 0.5, 0.125]);
    let normalize = Normalize::new(mean, std);
    for (name, builder) in by_each_prong(&photos) {
        let mut values = 0;
        Run::with(builder, |batch, _| {
            let mut out = vec![f32::NAN; batch.pixels().len()];
            normalize.f32_nchw(batch.pixels(), batch.shape(), &mut out);
            let shape = batch.shape();
            let (plane, channels) = ((shape.height * shape.width) as usize, shape.channels as usize);
            for (at, &value) in out.iter().enumerate() {
                let (row, channel, pixel) = (at / plane / channels, at / plane % channels, at % plane);
                let stored = batch.pixels()[(row * plane + pixel) * channels + channel];
                let expected = (f64::from(stored) / 255.0 - mean[channel]) / std[channel];
                assert!((f64::from(value) - expected).abs() < 1e-6, "{name}: {value} at {at}, {expected} expected");
            }
            values += out.len();
        });
        assert_eq!(values, SAMPLES as usize * 224 * 224 * 3, "{name}");
    }
}

/// Returns the values of each sample, row by row.
fn values<V: Float>(loader: Loader<V>) -> BTreeMap<u64, Vec<V>> {
    let mut found = BTreeMap::new();
    for batch in loader {
        let batch = batch.expect("every batch comes");
        assert_eq!(batch.values().len(), batch.len() * batch.shape().bytes());
        for (&id, row) in batch.sample_ids().iter().zip(batch.values().chunks_exact(batch.shape().bytes())) {
            assert!(found.insert(id, row.to_vec()).is_none(), "sample {id} came twice");
        }
    }
    found
}

#[test]
fn floats_that_the_loader_makes_are_those_of_its_pixels_on_every_prong() {
    let photos = Photos::new(SAMPLES);
    // A batch lacks a row, and rows follow it.
    photos.write(9, b"no image");
    let normalize = Normalize::new([0.485, 0.4, 0.31], [0.229, 0.5, 0.125]);
    let (mut single, mut half) = (BTreeMap::new(), BTreeMap::new());
    let skipping = |builder: LoaderBuilder| builder.policy(CorruptPolicy::Skip).batch_size(8);
    Run::with(skipping(loader(&photos.pack()).strategy(Strategy::Cpu)), |batch, _| {
        let bytes = batch.shape().bytes();
        for (&id, row) in batch.sample_ids().iter().zip(batch.pixels().chunks_exact(bytes)) {
            let (mut f32s, mut f16s) = (vec![f32::NAN; bytes], vec![half::f16::NAN; bytes]);
            normalize.f32_nchw(row, batch.shape(), &mut f32s);
            normalize.f16_nchw(row, batch.shape(), &mut f16s);
            single.insert(id, f32s);
            half.insert(id, f16s);
        }
    });
    assert_eq!(single.len(), SAMPLES as usize - 1);
    let both = |strategy, results| loader(&photos.pack()).strategy(strategy).drive(local(results)).buffers(2);
    let of_both = [
        ("both in order, shared slots", both(Strategy::Ordered, LocalResults::Shared)),
        ("both in order, read slots", both(Strategy::Ordered, LocalResults::Read)),
        ("both under mte, shared slots", both(Strategy::Mte, LocalResults::Shared)),
        ("both under mte, read slots", both(Strategy::Mte, LocalResults::Read)),
    ];
    for (name, builder) in by_each_prong(&photos).into_iter().chain(of_both) {
        let build = || skipping(builder.clone());
        assert!(values(build().build_f32(normalize.clone()).expect("it builds")) == single, "f32, {name}");
        assert!(values(build().build_f16(normalize.clone()).expect("it builds")) == half, "f16, {name}");
    }
}

#[test]
fn floats_of_two_ranks_are_those_of_one() {
    let photos = Photos::new(SAMPLES);
    let one = FloatRun::with(loader(&photos.pack()).strategy(Strategy::Cpu), |_| ()).values;
    assert_eq!(one.len(), SAMPLES as usize);
    for results in [LocalResults::Shared, LocalResults::Read] {
        let mut both = BTreeMap::new();
        for rank in 0..2 {
            let builder = loader(&photos.pack()).strategy(Strategy::Mte).drive(local(results.clone())).buffers(2);
            let own = FloatRun::with(builder.rank(rank, 2), |_| ()).values;
            assert!(own.len().abs_diff(one.len() / 2) < 8, "rank {rank} has {} of {} samples", own.len(), one.len());
            both.extend(own);
        }
        assert!(both == one, "{results:?}");
    }
}
