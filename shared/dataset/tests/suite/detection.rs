//! The kinds of dataset that `open` recognises.

use ddlp_dataset::{OpenError, open};
use std::fs;
use std::path::Path;

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn shard() -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in [("1.jpg", "x"), ("1.cls", "0")] {
        let mut header = tar::Header::new_gnu();
        header.set_size(1);
        builder.append_data(&mut header, name, content.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap()
}

#[test]
fn directories_and_files_are_told_apart_by_what_they_hold() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    write(&root.join("folder/cat/1.jpg"), b"x");
    write(&root.join("flat/1.jpg"), b"x");
    write(&root.join("cifar/data_batch_1.bin"), &[0; 3073]);
    write(&root.join("cifar/test_batch.bin"), &[0; 2 * 3073]);
    write(&root.join("hundred/train.bin"), &[0; 3074]);
    write(&root.join("shards/000.tar"), &shard());
    write(&root.join("shards/001.tar"), &shard());
    write(&root.join("folder/list.csv"), b"path,label\ncat/1.jpg,cat\n");
    let cases = [
        ("folder", "folder", 1),
        ("flat", "folder", 1),
        ("cifar", "cifar", 1),
        ("cifar/test_batch.bin", "cifar", 2),
        ("hundred", "cifar", 1),
        ("folder/list.csv", "list", 1),
        ("shards", "tar", 2),
        ("shards/001.tar", "tar", 1),
    ];
    for (path, kind, samples) in cases {
        let dataset = open(&root.join(path)).unwrap();
        assert_eq!((dataset.kind(), dataset.len()), (kind, samples), "{path}");
        assert!(dataset.export().is_none());
    }
}

#[test]
fn a_path_of_no_kind_is_refused_with_the_known_kinds() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    write(&root.join("notes.txt"), b"hello");
    write(&root.join("short.ddlp"), b"hello");
    write(&root.join("pickles/data_batch_1"), b"pickle");
    let message = |name: &str| open(&root.join(name)).err().unwrap().to_string();
    assert!(message("notes.txt").contains("a pack (.ddlp), an image folder"), "{}", message("notes.txt"));
    assert!(message("short.ddlp").contains("is not a pack"), "{}", message("short.ddlp"));
    assert!(message("pickles").contains("binary version"), "{}", message("pickles"));
    assert!(matches!(open(&root.join("missing")), Err(OpenError::Io { .. })));
    assert!(matches!(open(Path::new("/dev/null")), Err(OpenError::Unrecognized { .. })));
}
