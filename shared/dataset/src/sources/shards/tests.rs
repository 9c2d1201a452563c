//! Grouping, long names and hostile archives.

use super::{ShardError, Shards};
use crate::samples::bytes;
use crate::samples::image;
use crate::{Corrupt, Dataset, ReadError, Unavailable};
use ddlp_test_support::unprivileged::Unprivileged;
use proptest::prelude::*;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tar::{Builder, EntryType, Header};

/// Path and content of a member.
type Entry<'a> = (&'a str, &'a [u8]);

fn archive(members: &[Entry<'_>]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (path, content) in members {
        append(&mut builder, path, content);
    }
    builder.into_inner().unwrap()
}

fn append(builder: &mut Builder<Vec<u8>>, path: &str, content: &[u8]) {
    let mut header = Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    builder.append_data(&mut header, path, content).unwrap();
}

fn write(directory: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, bytes).unwrap();
    path
}

fn open_bytes(bytes: &[u8]) -> Result<Shards, ShardError> {
    let directory = tempfile::tempdir().unwrap();
    Shards::open(&write(directory.path(), "s.tar", bytes))
}

fn refusal(bytes: &[u8]) -> String {
    let error = open_bytes(bytes).err().expect("such an archive is refused");
    error.to_string()
}

#[test]
fn samples_keep_the_order_of_shards_and_members() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (image(1), image(2));
    let members: [Entry<'_>; 5] =
        [("d/0.cls", b"3\n"), ("d/0.JPG", &first), ("d/0.json", b"{}"), ("d/README", b""), ("x.txt", b"no sample")];
    write(directory.path(), "b.tar", &archive(&members));
    write(directory.path(), "a.tar", &archive(&[("7.jpg", &second), ("7.seg.png", b"mask"), ("7.cls", b"0")]));
    write(directory.path(), "notes.txt", b"passed over");
    let shards = Shards::open(directory.path()).unwrap();
    assert_eq!((shards.len(), shards.classes()), (2, ["0", "1", "2", "3"].map(str::to_owned).as_slice()));
    assert_eq!((shards.name(0), shards.label(0)), ("a.tar:7.jpg".to_owned(), 0));
    assert_eq!((shards.name(1), shards.label(1)), ("b.tar:d/0.JPG".to_owned(), 3));
    let mut buf = Vec::new();
    for (index, expected) in [(0, &second), (1, &first)] {
        assert_eq!(bytes(shards.sample(index, &mut buf).unwrap()), ("encoded", expected.as_slice()));
        let location = shards.location(index);
        let file = fs::read(&location.file).unwrap();
        assert_eq!(&file[location.offset as usize..][..location.length as usize], expected.as_slice());
    }
    assert_eq!(Shards::open(&directory.path().join("a.tar")).unwrap().len(), 1);
}

#[test]
fn class_names_come_from_the_list_beside_the_shards() {
    let directory = tempfile::tempdir().unwrap();
    let path = write(directory.path(), "a.tar", &archive(&[("7.jpg", b"x"), ("7.cls", b"1")]));
    for text in ["cat\ndog\n", "\u{feff}cat\r\ndog\r\n\r\n"] {
        write(directory.path(), "classes.txt", text.as_bytes());
        assert_eq!(Shards::open(&path).unwrap().classes(), ["cat", "dog"]);
    }
    write(directory.path(), "classes.txt", b"\ncat\ndog\n");
    let error = Shards::open(&path).err().unwrap().to_string();
    assert!(error.starts_with("line 1 of ") && error.contains("classes.txt is blank"), "{error}");
    write(directory.path(), "classes.txt", b"cat\n");
    let error = Shards::open(&path).err().unwrap();
    assert!(matches!(&error, ShardError::Label { name, label: 1, classes: 1, .. } if name == "a.tar:7.jpg"), "{error}");
}

#[test]
fn long_names_of_both_kinds_are_read() {
    let long = format!("{}/{}", "directory".repeat(20), "0001.jpg");
    let label = long.replace(".jpg", ".cls");
    let shards = open_bytes(&archive(&[(&long, b"x"), (&label, b"5")])).unwrap();
    assert_eq!(shards.name(0), format!("s.tar:{long}"));
    let mut builder = Builder::new(Vec::new());
    builder.append_pax_extensions([("path", long.as_bytes()), ("size", b"3")]).unwrap();
    append(&mut builder, "short.jpg", b"abc");
    builder.append_pax_extensions([("path", label.as_bytes())]).unwrap();
    append(&mut builder, "short.cls", b"5");
    let shards = open_bytes(&builder.into_inner().unwrap()).unwrap();
    assert_eq!((shards.name(0), shards.label(0)), (format!("s.tar:{long}"), 5));
}

/// Appends a member without data. Some writers give the size of a link's target.
fn append_empty(builder: &mut Builder<Vec<u8>>, kind: EntryType, path: &str, target: &str) {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_path(path).unwrap();
    header.set_size(77_000);
    if !target.is_empty() {
        header.set_link_name(target).unwrap();
    }
    header.set_cksum();
    builder.append(&header, &b""[..]).unwrap();
}

#[test]
fn directories_hold_no_data() {
    let mut builder = Builder::new(Vec::new());
    append_empty(&mut builder, EntryType::Directory, "d/", "");
    append(&mut builder, "d/3.jpg", b"x");
    append_empty(&mut builder, EntryType::Directory, "d/3.jpg/", "");
    append(&mut builder, "d/3/", b"");
    append(&mut builder, "d/3.cls", b"1");
    let shards = open_bytes(&builder.into_inner().unwrap()).unwrap();
    assert_eq!((shards.name(0).as_str(), shards.label(0), shards.left_out()), ("s.tar:d/3.jpg", 1, 0));
}

#[test]
fn a_hard_link_has_the_content_of_an_earlier_member() {
    let long = format!("{}/7.jpg", "directory".repeat(20));
    let mut builder = Builder::new(Vec::new());
    append(&mut builder, "./0.jpg", b"old");
    append(&mut builder, "./0.cls", b"2");
    append(&mut builder, &long, b"long");
    append(&mut builder, &long.replace(".jpg", ".cls"), b"1");
    append_empty(&mut builder, EntryType::Link, "1.jpg", "0.jpg");
    append_empty(&mut builder, EntryType::Link, "1.cls", "./0.cls");
    append_empty(&mut builder, EntryType::Link, "2.jpg", "1.jpg");
    append(&mut builder, "2.cls", b"0");
    builder.append_pax_extensions([("linkpath", long.as_bytes())]).unwrap();
    append_empty(&mut builder, EntryType::Link, "3.jpg", "short");
    append(&mut builder, "3.cls", b"0");
    let mut gnu = Header::new_gnu();
    gnu.set_entry_type(EntryType::Link);
    gnu.set_size(0);
    builder.append_link(&mut gnu, "4.jpg", &long).unwrap();
    append(&mut builder, "4.cls", b"0");
    let shards = open_bytes(&builder.into_inner().unwrap()).unwrap();
    assert_eq!((0..shards.len()).map(|index| shards.label(index)).collect::<Vec<_>>(), [2, 1, 2, 0, 0, 0]);
    assert_eq!(shards.name(2), "s.tar:1.jpg");
    let places: Vec<_> = (0..6).map(|index| shards.location(index)).map(|place| (place.offset, place.length)).collect();
    assert!(places[2] == places[0] && places[3] == places[0] && places[0].1 == 3, "{places:?}");
    assert!(places[4] == places[1] && places[5] == places[1] && places[1].1 == 4, "{places:?}");
}

#[test]
fn a_link_that_leads_to_no_earlier_member_is_an_error() {
    let cases = [
        (EntryType::Link, "0.jpg", "1.jpg", "a member 0.jpg that is a hard link to 1.jpg"),
        (EntryType::Link, "0.cls", "9.cls", "a member 0.cls that is a hard link to 9.cls"),
        (EntryType::Symlink, "0.jpg", "1.jpg", "a member 0.jpg that is a symbolic link to 1.jpg"),
        (EntryType::Fifo, "0.jpg", "", "a member 0.jpg that is not a file (type '6')"),
    ];
    for (kind, path, target, expected) in cases {
        let mut builder = Builder::new(Vec::new());
        append_empty(&mut builder, kind, path, target);
        append(&mut builder, "1.jpg", b"x");
        append(&mut builder, "1.cls", b"1");
        let message = refusal(&builder.into_inner().unwrap());
        assert!(message.contains(expected) && message.contains("sample 0 in"), "{message}");
    }
}

#[test]
fn samples_whose_names_have_dots_are_not_lost() {
    let cases: [(&[Entry<'_>], &str, &str); 4] = [
        (&[("0.jpg", b"x"), ("0.cls", b"0"), ("22.05.jpg", b"x"), ("22.05.cls", b"1")], "22.05.jpg", "22_05.jpg"),
        (&[("0.jpg", b"x"), ("a.b/f.0.1.PNG", b"x")], "a.b/f.0.1.PNG", "a.b/f_0_1.PNG"),
        (&[("22.cls", b"0"), ("22.5.cls", b"0"), ("22.5.jpg", b"x"), ("22.jpg", b"x")], "22.5.jpg", "22_5.jpg"),
        (&[("22.jpg", b"x"), ("22.1.cls", b"0"), ("22.5.cls", b"0"), ("22.1.jpg", b"x")], "22.1.jpg", "22_1.jpg"),
    ];
    for (members, lost, renamed) in cases {
        let message = refusal(&archive(members));
        assert!(message.contains(&format!("a member {lost} that makes no sample")), "{message}");
        assert!(message.ends_with(&format!("such as {renamed}")), "{message}");
    }
}

#[test]
fn members_that_make_no_sample_are_counted_and_named() {
    let members: [Entry<'_>; 10] = [
        ("README", b"x"),
        ("._7.jpg", b"x"),
        ("7.jpg", b"x"),
        ("7.cls", b"1"),
        ("7.json", b"{}"),
        ("7.seg.png", b"mask"),
        ("7.coarse.cls", b"0"),
        ("7.notes.txt", b"x"),
        ("8.gif", b"x"),
        ("d/9.txt", b"x"),
    ];
    let directory = tempfile::tempdir().unwrap();
    for name in ["a.tar", "b.tar"] {
        write(directory.path(), name, &archive(&members));
    }
    let shards = Shards::open(directory.path()).unwrap();
    let names = ["README", "._7.jpg", "7.seg.png", "7.coarse.cls", "8.gif", "d/9.txt"];
    let expected: Vec<String> =
        ["a.tar", "b.tar"].iter().flat_map(|shard| names.map(|name| format!("{shard}:{name}"))).collect();
    assert_eq!((shards.len(), shards.left_out(), shards.left_out_names()), (2, 12, expected.as_slice()));
}

#[test]
fn shards_may_have_no_labels_but_not_beside_shards_that_have_some() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "a.tar", &archive(&[("1.jpg", b"x"), ("1.json", b"{}"), ("2.jpg", b"y")]));
    let shards = Shards::open(directory.path()).unwrap();
    assert_eq!((shards.len(), shards.classes().len(), shards.label(1)), (2, 0, 0));
    write(directory.path(), "b.tar", &archive(&[("1.jpg", b"x"), ("1.cls", b"0")]));
    let error = Shards::open(directory.path()).err().unwrap().to_string();
    assert!(error.contains("sample 1 in") && error.contains("a.tar has no label"), "{error}");
}

#[test]
fn shards_in_folders_below_are_left_out_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let shard = archive(&[("1.jpg", b"x"), ("1.cls", b"0")]);
    fs::create_dir(directory.path().join("sub")).unwrap();
    write(directory.path(), "0.tar", &shard);
    write(&directory.path().join("sub"), "1.tar", &shard);
    write(&directory.path().join("sub"), "notes.txt", b"x");
    let shards = Shards::open(directory.path()).unwrap();
    assert_eq!((shards.len(), shards.left_out(), shards.left_out_names()), (1, 1, ["sub/1.tar".to_owned()].as_slice()));
}

#[test]
fn incomplete_samples_are_named() {
    let cases: [(&[Entry<'_>], &str); 9] = [
        (&[("a/1.jpg", b"x"), ("a/2.jpg", b"x"), ("a/2.cls", b"1")], "sample a/1 in"),
        (&[("1.jpg", b"x"), ("2.cls", b"1"), ("2.jpg", b"x"), ("1.cls", b"1")], "sample 1 in"),
        (&[("1.cls", b"1"), ("1.txt", b"x")], "a label and no image"),
        (
            &[("1.gif", b"x"), ("1.cls", b"1")],
            "an image 1.gif and none with an extension of which images are read (jpg ",
        ),
        (&[("1.jpg", b"x"), ("2.JFIF", b"x")], "an image 2.JFIF and none"),
        (&[("1.jpg", b"x"), ("1.png", b"x"), ("1.cls", b"1")], "two images"),
        (&[("1.jpg", b"x"), ("1.cls", b"1"), ("1.CLS", b"1")], "two labels"),
        (&[("1.jpg", b"x"), ("1.cls", b"-1")], "\"-1\""),
        (&[("1.jpg", b"x"), ("1.cls", b"1048576")], "not a number below 1048576"),
    ];
    for (members, expected) in cases {
        let message = refusal(&archive(members));
        assert!(message.contains(expected) && message.contains("s.tar"), "{message}");
    }
    let message = refusal(&archive(&[("1.jpg", b"x"), ("1.cls", &[b'1'; 33])]));
    assert!(message.contains("a label of 33 bytes"), "{message}");
    let message = refusal(&archive(&[("README", b"x")]));
    assert!(message.contains("no samples") && message.ends_with("but s.tar:README is neither"), "{message}");
    let message = refusal(&archive(&[("1.gif", b"x"), ("2.gif", b"x")]));
    assert!(message.contains("sample 1 in") && message.contains("an image 1.gif and none with"), "{message}");
    assert!(refusal(&archive(&[])).contains("no samples"));
}

#[test]
fn an_image_with_a_second_dot_alone_is_left_out_beside_samples_with_labels() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "a.tar", &archive(&[("0.mask.png", b"mask"), ("0.json", b"{}"), ("1.v2.jpg", b"x")]));
    write(directory.path(), "b.tar", &archive(&[("7.jpg", b"x"), ("7.cls", b"0")]));
    let shards = Shards::open(directory.path()).unwrap();
    assert_eq!((shards.len(), shards.left_out()), (1, 3));
    assert!(shards.left_out_names().contains(&"a.tar:0.mask.png".to_owned()), "{:?}", shards.left_out_names());
    // Without labels it may be a sample.
    for other in [[("7.jpg", b"x")], [("7.txt", b"x")]] {
        write(directory.path(), "b.tar", &archive(&other.map(|(name, bytes)| (name, &bytes[..]))));
        let said = Shards::open(directory.path()).err().expect("lost").to_string();
        assert!(said.contains("a member 0.mask.png that makes no sample"), "{said}");
    }
    // With a label it is one.
    let labelled = archive(&[("7.jpg", b"x"), ("7.cls", b"0"), ("8.v2.jpg", b"x"), ("8.cls", b"1")]);
    assert!(refusal(&labelled).contains("a member 8.v2.jpg that makes no sample"));
}

#[test]
fn labels_are_written_as_in_a_list() {
    let members = [("1.jpg", b"x".as_slice()), ("1.cls", b"1.0\n"), ("2.jpg", b"x"), ("2.cls", b"+2")];
    let shards = open_bytes(&archive(&members)).unwrap();
    assert_eq!([0, 1].map(|index| shards.label(index)), [1, 2]);
}

#[test]
fn every_truncation_is_an_error() {
    let whole = archive(&[("1.jpg", &image(1)), ("1.cls", b"1"), ("2.jpg", &image(2)), ("2.cls", b"1")]);
    assert_eq!(open_bytes(&whole).unwrap().len(), 2);
    let marker = whole.len() - 1024;
    for length in (0..=marker).step_by(61).chain([marker, marker + 1, marker + 511]) {
        let message = refusal(&whole[..length]);
        assert!(message.contains("cut short"), "{length}: {message}");
    }
}

#[test]
fn concatenated_archives_are_noticed() {
    let one = archive(&[("1.jpg", b"x"), ("1.cls", b"1")]);
    let message = refusal(&[one.clone(), one.clone()].concat());
    assert!(message.contains(&format!("byte {}", one.len())), "{message}");
    assert_eq!(open_bytes(&[one, vec![0; 100_000]].concat()).unwrap().len(), 1);
}

/// Returns an archive with a single header that claims `size` bytes.
fn header_alone(kind: EntryType, size: u64) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_path("1.jpg").unwrap();
    header.set_size(size);
    header.set_cksum();
    [header.as_bytes().as_slice(), &[0; 4096]].concat()
}

#[test]
fn lengths_beyond_the_archive_are_refused() {
    for size in [4097, 1 << 40, u64::MAX - 600, u64::MAX] {
        let message = refusal(&header_alone(EntryType::Regular, size));
        assert!(message.contains("cut short"), "{size}: {message}");
    }
    let mut builder = Builder::new(Vec::new());
    builder.append_pax_extensions([("size", u64::MAX.to_string().as_bytes())]).unwrap();
    append(&mut builder, "1.jpg", b"x");
    assert!(refusal(&builder.into_inner().unwrap()).contains("cut short"));
}

#[test]
fn an_extended_header_beyond_its_limit_is_refused() {
    let size = super::members::EXTENDED_BYTES_MAX + 1;
    for kind in [EntryType::GNULongName, EntryType::XHeader] {
        let mut bytes = header_alone(kind, size);
        bytes.resize(3 << 20, 0);
        assert!(refusal(&bytes).contains("more than the limit"), "{kind:?}");
    }
}

#[test]
fn other_files_and_sparse_members_are_refused() {
    assert!(refusal(&[b'x'; 2048]).contains("header at byte 0"));
    assert!(refusal(&header_alone(EntryType::GNUSparse, 0)).contains("sparse"));
    let mut damaged = archive(&[("1.jpg", b"x"), ("1.cls", b"1")]);
    damaged[2] ^= 1;
    assert!(refusal(&damaged).contains("is this a tar file?"));
}

#[test]
fn a_shard_that_changed_its_size_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = write(directory.path(), "s.tar", &archive(&[("1.jpg", b"x"), ("1.cls", b"1")]));
    let shards = Shards::open(&path).unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(512).unwrap();
    let error = shards.sample(0, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("s.tar had 3072 bytes, and has 512 now"), "{error}");
    assert!(matches!(error, ReadError::Unavailable(Unavailable::Changed { .. })), "{error}");
    assert!(matches!(shards.sample(1, &mut Vec::new()), Err(ReadError::Unavailable(Unavailable::OutOfRange { .. }))));
}

#[test]
fn a_shard_that_was_written_to_or_is_gone_is_unavailable() {
    let directory = tempfile::tempdir().unwrap();
    let path = write(directory.path(), "s.tar", &archive(&[("1.jpg", b"x"), ("1.cls", b"1")]));
    let shards = Shards::open(&path).unwrap();
    shards.sample(0, &mut Vec::new()).unwrap();
    let later = SystemTime::now() + Duration::from_secs(1);
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_modified(later).unwrap();
    let error = shards.sample(0, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("s.tar has been written to"), "{error}");
    fs::remove_file(&path).unwrap();
    let error = shards.sample(0, &mut Vec::new()).unwrap_err();
    assert!(matches!(&error, ReadError::Unavailable(Unavailable::Gone { path: gone, .. }) if *gone == path), "{error}");
}

#[test]
fn an_empty_member_of_a_shard_that_changed_is_unavailable() {
    let directory = tempfile::tempdir().unwrap();
    let path = write(directory.path(), "s.tar", &archive(&[("1.jpg", b""), ("1.cls", b"1")]));
    let shards = Shards::open(&path).unwrap();
    shards.sample(0, &mut Vec::new()).unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(512).unwrap();
    let error = shards.sample(0, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, ReadError::Unavailable(Unavailable::Changed { .. })), "{error}");
}

#[test]
fn a_directory_that_may_not_be_read_is_named_in_place_of_its_shards() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("shards");
    fs::create_dir(&directory).unwrap();
    write(&directory, "s.tar", &archive(&[("1.jpg", b"x"), ("1.cls", b"1")]));
    let shards = Shards::open(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o000)).unwrap();
    {
        let _unprivileged = Unprivileged::new(home.path());
        let error = shards.sample(0, &mut Vec::new()).unwrap_err();
        let ReadError::Unavailable(Unavailable::Io { path, .. }) = &error else { panic!("{error}") };
        assert_eq!(*path, directory);
    }
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_shard_behind_a_link_is_not_damaged_if_its_folder_cannot_be_read() {
    let home = tempfile::tempdir().unwrap();
    let [directory, elsewhere] = ["shards", "elsewhere"].map(|name| home.path().join(name));
    for folder in [&directory, &elsewhere] {
        fs::create_dir(folder).unwrap();
    }
    let target = write(&elsewhere, "s.tar", &archive(&[("1.jpg", b"x"), ("1.cls", b"1")]));
    symlink(target, directory.join("s.tar")).unwrap();
    let shards = Shards::open(&directory).unwrap();
    let refused = || shards.refused(0, io::Error::from_raw_os_error(libc::EIO));
    assert!(matches!(refused(), ReadError::Corrupt(Corrupt::Io { .. })));
    fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o000)).unwrap();
    {
        let _unprivileged = Unprivileged::new(home.path());
        let error = refused();
        let ReadError::Unavailable(Unavailable::Io { path, .. }) = &error else { panic!("{error}") };
        assert_eq!(*path, elsewhere);
    }
    fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn the_identity_follows_members_and_labels() {
    let identity = |members: &[Entry<'_>]| open_bytes(&archive(members)).unwrap().identity();
    let one = identity(&[("1.jpg", b"x"), ("1.cls", b"1")]);
    assert_eq!(one, identity(&[("1.jpg", b"x"), ("1.cls", b"1")]));
    assert_ne!(one, identity(&[("1.jpg", b"xy"), ("1.cls", b"1")]));
    assert_ne!(one, identity(&[("1.png", b"x"), ("1.cls", b"1")]));
    assert_ne!(one, identity(&[("1.jpg", b"x"), ("1.cls", b"0")]));
}

proptest! {
    /// Whatever is done to an archive, opening it ends, and every listed sample lies within the file.
    #[test]
    fn damaged_archives_never_list_samples_outside_of_the_file(
        changes in prop::collection::vec((0usize..4096, any::<u8>()), 1..8),
        fix_sums in any::<bool>(),
    ) {
        let mut bytes = archive(&[("1.jpg", b"picture"), ("1.cls", b"1"), ("2.jpg", b"picture"), ("2.cls", b"0")]);
        for (at, value) in changes {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        if fix_sums {
            for at in [0, 1024, 2048, 3072] {
                let mut header = Header::from_byte_slice(&bytes[at..at + 512]).clone();
                header.set_cksum();
                bytes[at..at + 512].copy_from_slice(header.as_bytes());
            }
        }
        if let Ok(shards) = open_bytes(&bytes) {
            for index in 0..shards.len() {
                let location = shards.location(index);
                prop_assert!(location.offset + location.length <= bytes.len() as u64);
            }
        }
    }
}
