//! The fields of a batch: descriptions, typed access, and memory that outlives the batch.

use super::{SAMPLES, cifar, images, loader, wait_until};
use ddlp_host::{
    Batch, DType, Digest, Field, FieldError, FieldKind, ImageLayout, LoaderBuilder, LoaderError, LoaderErrorKind,
    Normalize, SharedField,
};
use std::collections::BTreeMap;

fn first(builder: LoaderBuilder) -> Batch {
    builder.build().and_then(|mut loader| loader.next().expect("a batch")).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_field_says_what_it_is() {
    let folder = cifar();
    for (dtype, layout, shape, strides) in [
        (DType::U8, ImageLayout::Nhwc, [8, 32, 32, 3], [3072, 96, 3, 1]),
        (DType::U8, ImageLayout::Nchw, [8, 3, 32, 32], [3072, 1, 96, 3]),
        (DType::F16, ImageLayout::Nhwc, [8, 32, 32, 3], [3072, 96, 3, 1]),
        (DType::Bf16, ImageLayout::Nchw, [8, 3, 32, 32], [3072, 1024, 32, 1]),
        (DType::F32, ImageLayout::Nchw, [8, 3, 32, 32], [3072, 1024, 32, 1]),
    ] {
        let batch = first(loader(&folder).with(|o| (o.dtype, o.layout) = (dtype, layout)));
        let images = batch.field("image").expect("a field");
        assert_eq!((images.dtype(), images.layout()), (dtype, Some(layout)));
        assert_eq!((images.shape(), images.strides()), (shape.to_vec(), strides.to_vec()), "{dtype} {layout}");
        assert_eq!(images.bytes().unwrap().len(), 8 * 3072 * dtype.bytes());
        let labels = batch.field("label").expect("a field");
        assert_eq!((labels.dtype(), labels.layout()), (DType::I64, None));
        assert_eq!((labels.shape(), labels.strides()), (vec![8], vec![1]));
        assert_eq!(labels.as_slice::<i64>(), batch.labels());
    }
}

#[test]
fn fields_beside_the_dataset_follow_their_samples() {
    let folder = cifar();
    let table = folder.path().join("table.csv");
    let lines: String = (0..SAMPLES).map(|index| format!("data_batch_1.bin#{index},{index},0.5 {index}\n")).collect();
    std::fs::write(&table, format!("name,number,at\n{lines}")).unwrap();
    let squares: Vec<u8> = (0..SAMPLES as i64).flat_map(|index| (index * index).to_ne_bytes()).collect();
    let labels: Vec<u8> = (0..SAMPLES as i64).flat_map(|index| (-index).to_ne_bytes()).collect();
    let square = Field { name: "square".into(), kind: FieldKind::Vector, ..Field::label() };
    let built =
        loader(&folder).with(|o| o.fields = Some(table)).field(square, squares).field(Field::label(), labels).build();
    let mut seen = 0;
    for batch in built.unwrap_or_else(|error| panic!("{error}")) {
        let batch = batch.unwrap();
        let names: Vec<_> = batch.fields().map(|field| field.name.clone()).collect();
        assert_eq!(names, ["image", "label", "number", "at", "square"]);
        let whole = |name| batch.field(name).unwrap().as_slice::<i64>().unwrap();
        let at = batch.field("at").unwrap();
        assert_eq!((at.shape(), at.strides()), (vec![batch.len(), 2], vec![2, 1]));
        for (row, &id) in batch.sample_ids().iter().enumerate() {
            let id = id as i64;
            assert_eq!((whole("number")[row], whole("square")[row], whole("label")[row]), (id, id * id, -id));
            assert_eq!(at.as_slice::<f32>().unwrap()[row * 2..][..2], [0.5, id as f32]);
            seen += 1;
        }
        assert_eq!(batch.into_owned().unwrap().field("square").unwrap().bytes().unwrap().len() % 8, 0);
    }
    assert_eq!(seen, SAMPLES);
    let error = loader(&folder).field(Field::label(), vec![0; 7]).build().unwrap_err();
    assert_eq!(error.kind(), LoaderErrorKind::Configuration);
}

/// Digests of a whole run: of the images, and of each other field.
fn digests(builder: LoaderBuilder) -> (String, BTreeMap<String, String>) {
    let mut digest = Digest::default();
    for batch in builder.build().unwrap_or_else(|error| panic!("{error}")) {
        digest.update(&batch.unwrap()).unwrap();
    }
    (digest.unordered(), digest.fields())
}

#[test]
fn a_value_changes_the_digest_of_its_field_and_no_other() {
    let folder = cifar();
    let mut values: Vec<u8> = (0..SAMPLES as i64).flat_map(i64::to_ne_bytes).collect();
    let number = Field { name: "number".into(), kind: FieldKind::Vector, ..Field::label() };
    let of = |values: &[u8]| digests(loader(&folder).field(number.clone(), values.to_vec()));
    let (images, fields) = of(&values);
    assert_eq!(fields.keys().collect::<Vec<_>>(), ["label", "number"]);
    assert_eq!(of(&values), (images.clone(), fields.clone()));
    values[8] += 1;
    let (same_images, changed) = of(&values);
    assert_eq!((same_images, &changed["label"]), (images, &fields["label"]));
    assert_ne!(changed["number"], fields["number"]);
}

#[test]
fn wrong_names_and_types_are_refused_with_the_right_ones() {
    let folder = cifar();
    let batch = first(loader(&folder).with(|o| o.dtype = DType::F32));
    let message = |error: FieldError| LoaderError::from(error).to_string();
    let missing = message(batch.field("images").unwrap_err());
    assert!(missing.contains("\"images\"") && missing.contains("image, label"), "{missing}");
    let wrong = message(batch.field("image").unwrap().as_slice::<u8>().unwrap_err());
    assert!(wrong.contains("float32, not uint8") && wrong.contains("set the option dtype to uint8"), "{wrong}");
    let wrong = message(batch.field("label").unwrap().as_slice::<f32>().unwrap_err());
    assert!(wrong.contains("label") && wrong.contains("ask for int64"), "{wrong}");
}

#[test]
fn floats_lie_between_0_and_1_unless_they_are_normalised() {
    let folder = cifar();
    let pixels = first(loader(&folder));
    let unit = first(loader(&folder).with(|o| o.dtype = DType::F32));
    let normalize = Normalize { mean: [0.5; 3], std: [0.25; 3] };
    let normalised = first(loader(&folder).with(|o| (o.dtype, o.normalize) = (DType::F32, Some(normalize))));
    let floats = |batch: &Batch| batch.field("image").unwrap().as_slice::<f32>().unwrap().to_vec();
    for ((&pixel, unit), normalised) in images(&pixels).iter().zip(floats(&unit)).zip(floats(&normalised)) {
        assert_eq!(unit, f32::from(pixel) / 255.0);
        assert_eq!(normalised, ((f64::from(pixel) / 255.0 - 0.5) / 0.25) as f32);
    }
}

#[test]
fn a_shared_field_keeps_its_memory_while_other_batches_come() {
    let folder = cifar();
    let mut loader = loader(&folder).with(|o| (o.epochs, o.buffers) = (3, 2)).build().expect("it builds");
    let batch = loader.next().expect("a batch").expect("a good one");
    let expected = images(&batch).to_vec();
    let shared: SharedField = batch.field("image").expect("a field").share();
    let (address, copy) = (shared.as_ptr(), shared.clone());
    drop((batch, copy));
    assert_eq!(loader.by_ref().map(|batch| batch.expect("a batch").len()).sum::<usize>(), 3 * SAMPLES - 8);
    drop(loader);
    assert_eq!((shared.view().as_slice(), shared.as_ptr()), (Ok(&expected[..]), address));
}

#[test]
fn a_buffer_comes_back_when_its_last_share_is_gone() {
    let folder = cifar();
    // The loader has two buffers. Two shares take both, so nothing is delivered until one is gone.
    let builder = loader(&folder).with(|o| (o.buffers, o.stall_after) = (2, std::time::Duration::from_millis(50)));
    let mut loader = builder.build().expect("it builds");
    let share = |batch: Batch| batch.field("image").expect("a field").share();
    let first = share(loader.next().expect("a batch").expect("a good one"));
    let _second = share(loader.next().expect("a batch").expect("a good one"));
    let progress = loader.progress();
    let consumer = std::thread::spawn(move || loader.next().map(|batch| batch.expect("a good one").index()));
    wait_until("the stall is named", || progress.snapshot().faults > 0);
    assert!(!consumer.is_finished(), "both buffers are kept");
    drop(first);
    assert_eq!(consumer.join().expect("no panic"), Some(2));
}
