//! The contents of a batch beside its pixels: labels of the dataset, and values that follow the formula, from every
//! prong.

use ddlp_host::{
    CorruptPolicy, DType, DriveSpec, Element, FieldError, ImageLayout, Loader, LoaderBuilder, LoaderError, LocalDrive,
    LocalResults, MaxCorrupt, Normalize, SharedField, Strategy, bf16, f16,
};
use ddlp_pixels::{Normalizer, Pipeline};
use ddlp_tests::hooked::{Hooked, Hooks};
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::{FloatRun, Run, chain, images, loader, local};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use zerocopy::IntoBytes;

const SAMPLES: u32 = 45;

/// Returns a run by the CPU alone, and a run by a drive alone for each kind of slots.
fn by_each_prong(photos: &Photos) -> Vec<(&'static str, LoaderBuilder)> {
    let csd = |results| loader(&photos.pack()).with(|o| o.strategy = Strategy::Csd).drive(local(results));
    vec![
        ("cpu", loader(&photos.pack()).with(|o| o.strategy = Strategy::Cpu)),
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
        let run = Run::with(builder.with(|o| o.epoch_samples = Some(2 * u64::from(SAMPLES))), |batch, _| {
            let of_batch = batch.labels().expect("class indices");
            assert_eq!(of_batch.len(), batch.len(), "{name}");
            for (&id, &label) in batch.sample_ids().iter().zip(of_batch) {
                let index = id % dataset.len();
                assert_eq!(label, i64::from(dataset.label(index)), "{name}: sample {id}");
                assert!(dataset.name(index).starts_with(&dataset.classes()[label as usize]), "{name}: sample {id}");
                labels.insert(label);
            }
        });
        run.assert_exactly_once(1, 2 * u64::from(SAMPLES));
        assert_eq!(labels.len(), 3, "{name}: every class came");
    }
}

/// Has no label for one sample.
struct NoLabel(u64);

impl Hooks for NoLabel {
    fn reads(&self, _index: u64) {}

    fn labels(&self, index: u64) {
        assert_ne!(index, self.0, "no label");
    }
}

#[test]
fn a_dataset_that_panics_at_a_label_ends_the_run_on_every_prong() {
    let photos = Photos::new(SAMPLES);
    for (name, builder) in by_each_prong(&photos) {
        let dataset = ddlp_dataset::open(&photos.pack()).expect("the pack opens");
        let dataset = Arc::new(Hooked { dataset, hooks: NoLabel(2) });
        let mut loader = builder.dataset(dataset).build().expect("it builds");
        let error = loop {
            let next = loader.next_while(|waiting| waiting.time < Duration::from_secs(60));
            match next.unwrap_or_else(|| panic!("{name}: the run hangs or ends without the batch")) {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert!(matches!(error, LoaderError::DatasetPanic { epoch: 0, .. }), "{name}: {}", chain(&error));
        assert!(loader.next().is_none());
    }
}

#[test]
fn normalised_values_follow_the_formula_on_every_prong() {
    let photos = Photos::new(SAMPLES);
    let mut pixels: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    Run::with(loader(&photos.pack()).with(|o| o.strategy = Strategy::Cpu), |batch, _| {
        pixels.extend(batch.sample_ids().iter().copied().zip(images::<u8>(batch).map(<[u8]>::to_vec)));
    });
    let (plane, channels) = (224 * 224, 3);
    for (name, builder) in by_each_prong(&photos) {
        let mut values = 0;
        let built = builder
            .with(|o| (o.dtype, o.layout, o.normalize) = (DType::F32, ImageLayout::Nchw, Some(NORMALIZE)))
            .build();
        for (id, image) in floats::<f32>(built.expect("it builds")) {
            for (at, &value) in image.iter().enumerate() {
                let (channel, pixel) = (at / plane, at % plane);
                let stored = pixels[&id][pixel * channels + channel];
                let expected = (f64::from(stored) / 255.0 - NORMALIZE.mean[channel]) / NORMALIZE.std[channel];
                assert!((f64::from(value) - expected).abs() < 1e-6, "{name}: {value} at {at}, {expected} expected");
            }
            values += image.len();
        }
        assert_eq!(values, SAMPLES as usize * plane * channels, "{name}");
    }
}

/// Numbers that differ in every channel.
const NORMALIZE: Normalize = Normalize { mean: [0.485, 0.4, 0.31], std: [0.229, 0.5, 0.125] };

/// Returns the image of each sample.
fn floats<T: Element>(loader: Loader) -> BTreeMap<u64, Vec<T>> {
    let mut found = BTreeMap::new();
    for batch in loader {
        let batch = batch.expect("every batch comes");
        for (&id, image) in batch.sample_ids().iter().zip(images(&batch)) {
            assert!(found.insert(id, image.to_vec()).is_none(), "sample {id} came twice");
        }
    }
    found
}

/// Compares floats of every prong with those that are made of these pixels.
fn compare_floats<T: Element + PartialEq>(
    photos: &Photos,
    layout: ImageLayout,
    pixels: &BTreeMap<u64, Vec<u8>>,
    skipping: fn(LoaderBuilder) -> LoaderBuilder,
) {
    let (shape, normalizer) = (Pipeline::imagenet_train().output(), Normalizer::new(&NORMALIZE, T::DTYPE, layout));
    let float = |pixels: &Vec<u8>| {
        let mut image = vec![T::new_zeroed(); pixels.len()];
        normalizer.write(pixels, shape, image.as_mut_bytes());
        image
    };
    let expected: BTreeMap<u64, Vec<T>> = pixels.iter().map(|(&id, pixels)| (id, float(pixels))).collect();
    let both = |strategy, results| {
        loader(&photos.pack()).with(|o| o.strategy = strategy).drive(local(results)).with(|o| o.buffers = 2)
    };
    let of_both = [
        ("both in order, shared slots", both(Strategy::Ordered, LocalResults::Shared)),
        ("both in order, read slots", both(Strategy::Ordered, LocalResults::Read)),
        ("both under mte, shared slots", both(Strategy::Mte, LocalResults::Shared)),
        ("both under mte, read slots", both(Strategy::Mte, LocalResults::Read)),
    ];
    for (name, builder) in by_each_prong(photos).into_iter().chain(of_both) {
        let built =
            skipping(builder).with(|o| (o.dtype, o.layout, o.normalize) = (T::DTYPE, layout, Some(NORMALIZE))).build();
        assert!(floats::<T>(built.expect("it builds")) == expected, "{} {layout}, {name}", T::DTYPE);
    }
}

#[test]
fn floats_that_the_loader_makes_are_those_of_its_pixels_on_every_prong() {
    let photos = Photos::new(SAMPLES);
    // A batch lacks a row, and rows follow it.
    photos.write(9, b"no image");
    let skipping = |builder: LoaderBuilder| builder.with(|o| (o.policy, o.batch_size) = (CorruptPolicy::Skip, 8));
    let built = skipping(loader(&photos.pack()).with(|o| o.strategy = Strategy::Cpu)).build();
    let pixels = floats::<u8>(built.expect("it builds"));
    assert_eq!(pixels.len(), SAMPLES as usize - 1);
    compare_floats::<f32>(&photos, ImageLayout::Nchw, &pixels, skipping);
    compare_floats::<f16>(&photos, ImageLayout::Nchw, &pixels, skipping);
    compare_floats::<bf16>(&photos, ImageLayout::Nhwc, &pixels, skipping);
}

#[test]
fn pixels_in_planes_are_a_view_of_the_same_memory_on_every_prong() {
    let photos = Photos::new(SAMPLES);
    for (name, builder) in by_each_prong(&photos) {
        let rows = Run::of(builder.clone());
        let planes = Run::with(builder.with(|o| o.layout = ImageLayout::Nchw), |batch, _| {
            let images = batch.field("image").expect("a field");
            assert_eq!(images.shape(), [batch.len(), 3, 224, 224], "{name}");
            assert_eq!(images.strides(), [224 * 224 * 3, 1, 224 * 3, 3], "{name}");
            assert!(matches!(images.as_slice::<u8>(), Err(FieldError::Strided { .. })), "{name}");
        });
        assert_eq!(planes.digest, rows.digest, "{name}: a digest is over the bytes in memory");
    }
}

fn bytes_of(field: &SharedField) -> &[u8] {
    field.view().bytes().expect("memory that this process can read")
}

/// A batch's memory belongs to its consumer, even in slots that a drive shares: writing ends no process, and changes no
/// later batch.
#[test]
#[allow(unsafe_code)]
fn a_consumer_may_write_to_every_field_of_a_batch_on_every_prong() {
    let photos = Photos::new(SAMPLES);
    let few_slots = |results| {
        let DriveSpec::Local(drive) = local(results) else { unreachable!() };
        DriveSpec::Local(LocalDrive { slots: Some(3), ..drive })
    };
    let csd = |results| loader(&photos.pack()).with(|o| o.strategy = Strategy::Csd).drive(few_slots(results));
    let file = tempfile::tempdir().expect("a temporary folder");
    for (name, builder) in [
        ("cpu", loader(&photos.pack()).with(|o| o.strategy = Strategy::Cpu)),
        ("shared slots", csd(LocalResults::Shared)),
        ("slots in a file", csd(LocalResults::File(file.path().join("slots")))),
        ("read slots", csd(LocalResults::Read)),
    ] {
        let builder = builder.with(|o| (o.epochs, o.buffers) = (2, 2));
        let untouched = Run::of(builder.clone());
        let mut last: Option<SharedField> = None;
        let written = Run::with(builder, |batch, _| {
            if let Some(last) = &last {
                assert!(bytes_of(last).iter().all(|&byte| byte == 0xA5), "{name}: nobody else writes to it");
            }
            for field in ["label", "image"] {
                let shared = batch.field(field).expect("a field").share();
                let to = shared.writable().unwrap_or_else(|| panic!("{name}: {field} can only be read"));
                assert_eq!(to.as_ptr().cast_const(), shared.as_ptr());
                // SAFETY: the field has this many bytes, and no slice of it is in use.
                unsafe { to.write_bytes(0xA5, bytes_of(&shared).len()) };
                assert!(bytes_of(&shared).iter().all(|&byte| byte == 0xA5));
                last = Some(shared);
            }
        });
        assert_eq!(written.digest, untouched.digest, "{name}");
        assert!(written.troubles().is_empty(), "{name}: {:?}", written.troubles());
    }
}

#[test]
fn the_fields_of_a_batch_without_rows_are_writable_too() {
    // The only sample of one batch is corrupt.
    let photos = Photos::new(17);
    let folder = photos.folder();
    let class = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    std::fs::write(class.join("corrupt.jpg"), "no image").unwrap();
    let mut empty = 0;
    let builder = loader(&folder)
        .with(|o| (o.batch_size, o.policy, o.max_corrupt) = (1, CorruptPolicy::Skip, MaxCorrupt::Samples(1)));
    Run::with(builder, |batch, _| {
        if batch.is_empty() {
            empty += 1;
            for field in ["label", "image"].map(|name| batch.field(name).expect("a field").share()) {
                let to = field.writable().expect("it can be written to");
                assert!(to.addr().get().is_multiple_of(8) && to.as_ptr().cast_const() == field.as_ptr());
            }
        }
    });
    assert_eq!(empty, 1);
}

#[test]
fn floats_of_two_ranks_are_those_of_one() {
    let photos = Photos::new(SAMPLES);
    let one = FloatRun::with(loader(&photos.pack()).with(|o| o.strategy = Strategy::Cpu), |_| ()).values;
    assert_eq!(one.len(), SAMPLES as usize);
    for results in [LocalResults::Shared, LocalResults::Read] {
        let mut both = BTreeMap::new();
        for rank in 0..2 {
            let builder = loader(&photos.pack())
                .with(|o| o.strategy = Strategy::Mte)
                .drive(local(results.clone()))
                .with(|o| o.buffers = 2);
            let own = FloatRun::with(builder.with(|o| (o.rank, o.world_size) = (rank, 2)), |_| ()).values;
            assert!(own.len().abs_diff(one.len() / 2) < 8, "rank {rank} has {} of {} samples", own.len(), one.len());
            both.extend(own);
        }
        assert!(both == one, "{results:?}");
    }
}
