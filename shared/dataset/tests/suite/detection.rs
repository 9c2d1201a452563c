//! The kinds of dataset that `open` recognises.

use ddlp_dataset::{Kind, OpenError, OpenOptions, open, open_with};
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
fn a_link_that_leads_nowhere_makes_a_folder_no_other_dataset() {
    for (name, other) in [
        ("0.tar", None),
        ("0.tar", Some("cat/1.jpg")),
        ("1.TAR", Some("0.tar")),
        ("data_batch_1.bin", Some("cat/1.jpg")),
        ("data_batch_2.bin", Some("data_batch_1.bin")),
        ("train.bin", Some("cat/1.jpg")),
    ] {
        let directory = tempfile::tempdir().unwrap();
        if let Some(other) = other {
            let bytes = if other.ends_with("tar") { shard() } else { vec![0; 3073] };
            write(&directory.path().join(other), &bytes);
        }
        std::os::unix::fs::symlink("nowhere", directory.path().join(name)).unwrap();
        let error = open(directory.path()).map(|dataset| dataset.kind()).unwrap_err();
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!(source.contains(name) || error.to_string().contains(name), "{name}: {error}: {source}");
    }
}

#[test]
fn a_folder_of_two_kinds_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let batch: (&str, &[u8]) = ("data_batch_1.bin", &[0; 3073]);
    let hundred: (&str, &[u8]) = ("train.bin", &[0; 3074]);
    let shard = shard();
    let shard: (&str, &[u8]) = ("x.tar", &shard);
    let image: (&str, &[u8]) = ("cat/deep/1.jpg", b"x");
    let hidden: (&str, &[u8]) = (".previews/1.jpg", b"x");
    let cases = [
        ([batch, image], Some(["could be CIFAR-10, because of", "data_batch_1.bin, or an image folder, because of"])),
        ([batch, shard], Some(["move one of the two out", "say by `kind` which one it is (cifar or tar)"])),
        ([hundred, image], Some(["could be CIFAR-100, because of", "cat/deep/1.jpg:"])),
        ([shard, image], Some(["could be tar shards, because of", "x.tar, or an image folder, because of"])),
        ([shard, ("1.jpg", b"x")], Some(["could be tar shards, because of", "1.jpg: move one of the two out of"])),
        ([hundred, batch], Some(["could be CIFAR-10, because of", "or CIFAR-100, because of"])),
        ([hundred, shard], Some(["could be CIFAR-100, because of", "or tar shards, because of"])),
        ([shard, ("notes/readme.txt", b"x")], None),
        ([batch, hidden], None),
    ];
    for (number, (files, expected)) in cases.into_iter().enumerate() {
        let folder = root.join(number.to_string());
        files.iter().for_each(|(name, bytes)| write(&folder.join(name), bytes));
        let message = open(&folder).err().map(|error| error.to_string());
        match (message, expected) {
            (None, None) => {}
            (Some(message), Some(parts)) => assert!(parts.iter().all(|part| message.contains(part)), "{message}"),
            (message, _) => panic!("case {number}: {message:?}"),
        }
    }
    // A picture beside more shards explains them.
    ["0.tar", "1.tar"].iter().for_each(|name| write(&root.join("explained").join(name), shard.1));
    write(&root.join("explained/docs/1.jpg"), b"x");
    assert_eq!(
        open(&root.join("explained")).map(|dataset| dataset.kind()).map_err(|error| error.to_string()),
        Ok("tar")
    );
    // The kind decides, or a file in place of the folder.
    let of_kind = |folder: &str, kind| {
        let options = OpenOptions { kind: Some(kind), ..OpenOptions::default() };
        open_with(&root.join(folder), &options).map(|dataset| dataset.kind()).map_err(|error| error.to_string())
    };
    assert_eq!((of_kind("3", Kind::Tar), of_kind("3", Kind::Folder)), (Ok("tar"), Ok("folder")));
    assert_eq!((of_kind("0", Kind::Cifar), of_kind("0", Kind::Folder)), (Ok("cifar"), Ok("folder")));
    let said = of_kind("5", Kind::Cifar).unwrap_err();
    assert!(said.contains("or CIFAR-100, because of") && !said.contains("`kind`"), "{said}");
    assert!(of_kind("2", Kind::Tar).unwrap_err().contains("holds no samples"));
    // Nor does a file need the name of its kind.
    write(&root.join("list.txt"), b"path,label\n0/cat/deep/1.jpg,cat\n");
    assert_eq!((of_kind("list.txt", Kind::List), of_kind("list.txt", Kind::Pack).is_err()), (Ok("list"), true));
    assert_eq!(open(&root.join("3/x.tar")).unwrap().kind(), "tar");
    assert_eq!(open(&root.join("0/cat")).unwrap().kind(), "folder");
}

#[test]
fn compressed_shards_and_batches_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let gzip: &[u8] = &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    write(&root.join("half/0.tar"), &shard());
    write(&root.join("half/1.tar.gz"), gzip);
    write(&root.join("all/0.tgz"), gzip);
    write(&root.join("misnamed/0.tar"), gzip);
    write(&root.join("long/0.tar"), &[gzip, &[7; 2000]].concat());
    write(&root.join("cifar/data_batch_1.bin"), &[0; 3073]);
    write(&root.join("cifar/data_batch_2.bin.gz"), gzip);
    for (path, named) in [
        ("half", "half/1.tar.gz"),
        ("half/1.tar.gz", "half/1.tar.gz"),
        ("all", "all/0.tgz"),
        ("misnamed", "misnamed/0.tar"),
        ("misnamed/0.tar", "misnamed/0.tar"),
        ("long", "long/0.tar"),
        ("cifar", "cifar/data_batch_2.bin.gz"),
    ] {
        let message = open(&root.join(path)).err().unwrap_or_else(|| panic!("{path} opens")).to_string();
        assert!(message.contains(&format!("{named} is compressed with gzip")), "{message}");
    }
    // Decompressed, the compressed file may stay.
    write(&root.join("half/1.TAR"), &shard());
    assert!(open(&root.join("half")).is_err());
    write(&root.join("half/1.tar"), &shard());
    assert_eq!(open(&root.join("half")).unwrap().len(), 3);
    // Beside class folders, a compressed archive is nothing but a file that is left out.
    write(&root.join("photos/cat/1.jpg"), b"x");
    write(&root.join("photos/x.tar.gz"), gzip);
    assert_eq!(open(&root.join("photos")).unwrap().left_out(), 1);
}

#[test]
fn a_file_that_is_no_archive_says_so_in_plain_letters() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.tar");
    write(&path, &[0xff, 0xd8, 0x80, 0x90].repeat(600));
    let message = open(&path).err().unwrap().to_string();
    assert!(message.contains("is this a tar file?") && message.is_ascii(), "{message}");
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
