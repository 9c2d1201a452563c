//! MixUp and CutMix through the public interface.

use super::{SAMPLES, cifar, images, loader};
use ddlp_host::{
    Batch, CorruptPolicy, DType, Digest, Field, FieldError, FieldKind, Loader, LoaderBuilder, LoaderErrorKind,
};
use std::collections::BTreeMap;

/// Classes of the dataset.
const CLASSES: usize = 10;

fn batches(builder: LoaderBuilder) -> Vec<Batch> {
    let loader = builder.with(|o| o.buffers = 32).build().unwrap_or_else(|error| panic!("{error}"));
    loader.map(|batch| batch.unwrap_or_else(|error| panic!("{error}"))).collect()
}

/// Returns the label of each row.
fn labels(batch: &Batch) -> Vec<&[f32]> {
    batch.field("label").unwrap().as_slice::<f32>().unwrap().chunks_exact(CLASSES).collect()
}

#[test]
fn every_row_is_mixed_with_the_row_before_it() {
    let folder = cifar();
    // 64 samples in batches of 9: the last batch has one sample.
    let builder = loader(&folder).with(|o| (o.batch_size, o.seed) = (9, 3));
    for (unmixed, mixed) in batches(builder.clone()).iter().zip(batches(builder.with(|o| o.mixup = 1.0))) {
        assert_eq!(unmixed.sample_ids(), mixed.sample_ids());
        let rows = |batch| images(batch).chunks_exact(3072).map(<[u8]>::to_vec).collect::<Vec<_>>();
        let (before, after, classes) = (rows(unmixed), rows(&mixed), unmixed.labels().unwrap());
        let last = before.len() - 1;
        for (at, label) in labels(&mixed).into_iter().enumerate() {
            let other = if at == 0 { last } else { at - 1 };
            let (own_class, other_class) = (classes[at] as usize, classes[other] as usize);
            let weight = if own_class == other_class { None } else { Some(f64::from(label[own_class])) };
            assert_eq!(label.iter().sum::<f32>(), 1.0);
            assert!((0..CLASSES).all(|class| label[class] == 0.0 || [own_class, other_class].contains(&class)));
            for ((&own, &other), &found) in before[at].iter().zip(&before[other]).zip(&after[at]) {
                if let Some(weight) = weight {
                    let expected = weight * f64::from(own) + (1.0 - weight) * f64::from(other);
                    assert!((expected - f64::from(found)).abs() <= 0.5, "{own}, {other}, {weight}: {found}");
                }
            }
        }
        assert!(last > 0 || before == after, "a batch of one sample stays as it is");
    }
}

#[test]
fn labels_have_a_number_for_each_class() {
    let folder = cifar();
    for (builder, classes) in [
        (loader(&folder).with(|o| o.cutmix = 1.0), CLASSES),
        (loader(&folder).with(|o| (o.mixup, o.cutmix, o.classes) = (0.2, 1.0, Some(1000))), 1000),
    ] {
        for batch in batches(builder.with(|o| o.dtype = DType::F16)) {
            let label: &Field = batch.fields().nth(1).unwrap();
            let expected =
                Field { kind: FieldKind::Vector, dtype: DType::F32, shape: vec![classes as u32], ..Field::label() };
            assert_eq!(*label, expected);
            assert_eq!(batch.field("label").unwrap().shape(), [8, classes]);
            assert!(matches!(batch.labels(), Err(FieldError::DType { found: DType::F32, asked: DType::I64, .. })));
            let refused = Digest::default().update(&batch).unwrap_err();
            assert!(refused == FieldError::Mixed && refused.to_string().contains("`mixup`"), "{refused}");
        }
    }
    let unmixed = batches(loader(&folder).with(|o| (o.mixup, o.mix_probability) = (1.0, 0.0)));
    assert!(unmixed.iter().flat_map(labels).all(|label| label.iter().filter(|&&share| share == 1.0).count() == 1));
}

/// Returns the bytes of every batch's fields, by the batch's number.
fn contents(builder: LoaderBuilder) -> BTreeMap<u32, Vec<u8>> {
    let fields = |batch: &Batch| {
        batch.fields().flat_map(|field| batch.field(&field.name).unwrap().bytes().unwrap().to_vec()).collect()
    };
    batches(builder).iter().map(|batch| (batch.index(), fields(batch))).collect()
}

#[test]
fn threads_and_positions_change_nothing() {
    let folder = cifar();
    let builder = loader(&folder).with(|o| (o.mixup, o.cutmix, o.dtype) = (0.3, 1.0, DType::F32));
    let one = contents(builder.clone().with(|o| o.threads = Some(1)));
    assert_eq!(one.len(), SAMPLES / 8);
    assert!(one == contents(builder.clone().with(|o| o.threads = Some(3))));
    let mut begun = builder.clone().build().unwrap();
    let delivered: Vec<u32> = begun.by_ref().take(3).map(|batch| batch.unwrap().index()).collect();
    let rest = contents(builder.with(|o| o.resume = Some(begun.state())));
    assert_eq!((delivered.len(), rest.len()), (3, SAMPLES / 8 - 3));
    assert!(rest.iter().all(|(batch, bytes)| one[batch] == *bytes));
}

/// A label that no class has ends the run, and names its sample.
#[test]
fn a_label_outside_the_classes_is_an_error() {
    let folder = cifar();
    let mut few: Loader = loader(&folder).with(|o| (o.mixup, o.classes) = (1.0, Some(9))).build().unwrap();
    let error = few.find_map(Result::err).expect("a label of 9");
    assert_eq!(error.kind(), LoaderErrorKind::Configuration);
    let message = error.to_string();
    assert!(message.contains("data_batch_1.bin#") && message.contains("has the label 9, but with 9"), "{message}");
    let labels: Vec<u8> = (0..SAMPLES as i64).flat_map(|index| (-index).to_ne_bytes()).collect();
    let mut negative = loader(&folder).with(|o| o.mixup = 1.0).field(Field::label(), labels).build().unwrap();
    assert!(negative.find_map(Result::err).is_some_and(|error| error.to_string().contains("has the label -")));
}

/// Skipped samples leave no gap: their neighbours form a pair.
#[test]
fn rows_beside_a_skipped_sample_are_mixed_with_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let class = folder.path().join("a");
    std::fs::create_dir(&class).unwrap();
    for number in 0..6u8 {
        // A PPM of one colour; the third is cut short.
        let values = if number == 2 { 10 } else { 32 * 32 * 3 };
        let file = [b"P6 32 32 255\n".to_vec(), vec![40 * number; values]].concat();
        std::fs::write(class.join(format!("{number}.ppm")), file).unwrap();
    }
    let builder = loader(&folder).with(|o| (o.batch_size, o.shuffle, o.policy) = (6, false, CorruptPolicy::Skip));
    let builder = builder.with(|o| o.pipeline = ddlp_host::pixels::Pipeline::named("cifar-train").unwrap());
    let [unmixed, mixed] =
        [builder.clone(), builder.with(|o| (o.cutmix, o.seed) = (1.0, 2))].map(|builder| batches(builder).remove(0));
    assert_eq!((unmixed.len(), mixed.len()), (5, 5));
    let colours = |batch: &Batch, row: usize| {
        let mut found: Vec<u8> = images(batch)[row * 3072..][..3072].to_vec();
        found.sort_unstable();
        found.dedup();
        found
    };
    // The border of a random crop is black.
    let own: Vec<Vec<u8>> = (0..5).map(|row| colours(&mixed, row)).collect();
    assert!(own[2].contains(&120) && own[2].contains(&40), "row 2 has sample 3, and is mixed with sample 1: {own:?}");
    assert!(own[0].contains(&200), "the first row is mixed with the last one: {own:?}");
}
