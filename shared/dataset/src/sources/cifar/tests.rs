//! Layouts of CIFAR's files, and files that are refused.

use super::{Cifar, CifarError, Variant};
use crate::{Dataset, ReadError, Unavailable};
use ddlp_pixels::Source;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Returns a batch whose records have these labels, each with pixels of a single value.
fn batch(variant: Variant, labels: &[u8]) -> Vec<u8> {
    let record = |&label: &u8| match variant {
        Variant::Cifar10 => [vec![label], vec![label ^ 0x55; 3072]].concat(),
        Variant::Cifar100 => [vec![99, label], vec![label ^ 0x55; 3072]].concat(),
    };
    labels.iter().flat_map(record).collect()
}

fn write(directory: &Path, name: &str, variant: Variant, labels: &[u8]) {
    fs::write(directory.join(name), batch(variant, labels)).unwrap();
}

#[test]
fn batches_come_by_number_and_the_test_batch_only_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    write(path, "data_batch_10.bin", Variant::Cifar10, &[9]);
    write(path, "data_batch_2.bin", Variant::Cifar10, &[3, 4]);
    write(path, "data_batch_1.bin", Variant::Cifar10, &[1, 2, 0]);
    write(path, "test_batch.bin", Variant::Cifar10, &[7]);
    fs::write(path.join("batches.meta.txt"), "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n").unwrap();
    let cifar = Cifar::open(path).unwrap();
    let labels: Vec<u32> = (0..cifar.len()).map(|index| cifar.label(index)).collect();
    assert_eq!(labels, [1, 2, 0, 3, 4, 9]);
    assert_eq!((cifar.name(2), cifar.name(4)), ("data_batch_1.bin#2".to_owned(), "data_batch_2.bin#1".to_owned()));
    assert_eq!((cifar.classes().len(), cifar.classes()[9].as_str()), (10, "j"));
    let location = cifar.location(4);
    assert_eq!((location.file, location.offset, location.length), (path.join("data_batch_2.bin"), 3074, 3072));
    let mut buf = Vec::new();
    for (index, label) in labels.iter().enumerate() {
        let Source::Planar { width: 32, height: 32, bytes } = cifar.sample(index as u64, &mut buf).unwrap() else {
            panic!("three planes of 32 x 32")
        };
        assert_eq!(bytes, vec![*label as u8 ^ 0x55; 3072]);
    }
    assert!(matches!(cifar.sample(6, &mut buf), Err(ReadError::Unavailable(Unavailable::OutOfRange { .. }))));
    let test = Cifar::open(&path.join("test_batch.bin")).unwrap();
    assert_eq!((test.len(), test.label(0), test.classes()[0].as_str()), (1, 7, "a"));
    assert_ne!(test.identity(), cifar.identity());
}

#[test]
fn the_second_of_two_label_bytes_counts_in_cifar_100() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "train.bin", Variant::Cifar100, &[42, 0]);
    assert!(Cifar::recognizes(directory.path()));
    let cifar = Cifar::open(directory.path()).unwrap();
    assert_eq!((cifar.len(), cifar.label(0), cifar.classes().len()), (2, 42, 100));
    assert_eq!(cifar.classes()[42], "42");
    let mut buf = Vec::new();
    cifar.sample(0, &mut buf).unwrap();
    assert_eq!(buf, vec![42 ^ 0x55; 3072]);
    // A single file is recognised by its length, or, if both lengths fit, by the list beside it.
    assert_eq!(Cifar::open(&directory.path().join("train.bin")).unwrap().label(0), 42);
}

#[test]
fn files_of_another_length_or_label_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data_batch_1.bin");
    let whole = batch(Variant::Cifar10, &[1, 2]);
    for length in [0, 1, 3072, 3074, 2 * 3073 - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        let error = Cifar::open(directory.path()).err().unwrap();
        assert!(matches!(error, CifarError::Length { .. }), "{length}: {error}");
    }
    write(directory.path(), "data_batch_1.bin", Variant::Cifar10, &[1, 10]);
    let error = Cifar::open(directory.path()).err().unwrap();
    assert!(matches!(error, CifarError::Label { record: 1, label: 10, .. }), "{error}");
    write(directory.path(), "data_batch_1.bin", Variant::Cifar10, &[1]);
    fs::write(directory.path().join("batches.meta.txt"), "one\ntwo\n").unwrap();
    let error = Cifar::open(directory.path()).err().unwrap();
    assert!(matches!(error, CifarError::ClassNames { count: 2, .. }), "{error}");
    let empty = tempfile::tempdir().unwrap();
    let error = Cifar::open(empty.path()).err().unwrap();
    assert!(error.to_string().contains("test batch by its file"), "{error}");
}

#[test]
fn a_batch_that_was_cut_or_written_to_after_opening_has_changed() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "data_batch_1.bin", Variant::Cifar10, &[1, 2]);
    let cifar = Cifar::open(directory.path()).unwrap();
    let file = fs::OpenOptions::new().write(true).open(directory.path().join("data_batch_1.bin")).unwrap();
    file.set_len(4000).unwrap();
    let mut buf = Vec::new();
    cifar.sample(0, &mut buf).unwrap();
    let error = cifar.sample(1, &mut buf).unwrap_err();
    assert!(matches!(error, ReadError::Unavailable(Unavailable::Changed { .. })), "{error}");
    assert!(error.to_string().contains("data_batch_1.bin had 6146 bytes, and has 4000 now"), "{error}");
    assert!(matches!(cifar.check(), Err(Unavailable::Changed { .. })));
    write(directory.path(), "data_batch_1.bin", Variant::Cifar10, &[1, 2]);
    let cifar = Cifar::open(directory.path()).unwrap();
    cifar.check().unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(1)).unwrap();
    let error = cifar.check().unwrap_err();
    assert!(error.to_string().contains("has been written to"), "{error}");
}

#[test]
fn the_identity_follows_the_pixels() {
    let identity = |labels: &[u8]| {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), "data_batch_1.bin", Variant::Cifar10, labels);
        Cifar::open(directory.path()).unwrap().identity()
    };
    assert_eq!(identity(&[1, 2]), identity(&[1, 2]));
    assert_ne!(identity(&[1, 2]), identity(&[2, 1]));
}
