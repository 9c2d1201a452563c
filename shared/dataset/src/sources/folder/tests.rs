//! Order of image folders, what they tolerate, and what is refused.

use super::{Folder, FolderError};
use crate::samples::bytes;
use crate::{Corrupt, Dataset, Drawn, ReadError, SampleError, SampleReader, StoredAt, Unavailable};
use ddlp_pixels::ops::CenterCrop;
use ddlp_pixels::{CompiledPipeline, Draw, Fidelity, Limits, Pipeline, PixelError, Preparer};
use ddlp_test_support::unprivileged::Unprivileged;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

fn folder_of(files: &[&str]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for file in files {
        let path = root.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file).unwrap();
    }
    root
}

fn names(folder: &Folder) -> Vec<String> {
    (0..folder.len()).map(|index| folder.name(index)).collect()
}

fn open(root: &TempDir) -> Result<Folder, FolderError> {
    Folder::open(root.path())
}

#[test]
fn files_that_are_not_samples_are_counted() {
    let root = folder_of(&["a/1.jpg", "a/notes.txt", "a/b/noext", "a/b/2.png", "stray.jpg"]);
    let folder = open(&root).unwrap();
    assert_eq!((folder.len(), folder.left_out()), (2, 3));
}

#[test]
fn classes_and_files_come_in_torchvisions_order() {
    // Folders compare as whole paths, in which '-' comes before '/'; files compare by name within their folder.
    let root = folder_of(&[
        "zebra/1.jpg",
        "Zoo/1.jpg",
        "ant/b/2.jpg",
        "ant/b-c/1.jpg",
        "ant/b/10.jpg",
        "ant/b/d/0.jpg",
        "ant/z.png",
        "ant/a.jpg",
        "stray.jpg",
    ]);
    let folder = open(&root).unwrap();
    assert_eq!(folder.classes(), ["Zoo", "ant", "zebra"]);
    let expected = [
        "Zoo/1.jpg",
        "ant/a.jpg",
        "ant/z.png",
        "ant/b/10.jpg",
        "ant/b/2.jpg",
        "ant/b-c/1.jpg",
        "ant/b/d/0.jpg",
        "zebra/1.jpg",
    ];
    assert_eq!(names(&folder), expected.map(|name| name.to_owned()));
    let labels: Vec<u32> = (0..8).map(|index| folder.label(index)).collect();
    assert_eq!(labels, [0, 1, 1, 1, 1, 1, 1, 2]);
    let mut buf = Vec::new();
    for (index, name) in (0..).zip(expected) {
        assert_eq!(bytes(folder.sample(index, &mut buf).unwrap()), ("encoded", name.as_bytes()));
        let location = folder.location(index);
        assert_eq!((location.file, location.length), (root.path().join(name), name.len() as u64));
    }
}

#[test]
fn a_folder_of_images_alone_has_no_classes() {
    let root = folder_of(&["val_2.JPEG", "val_10.JPEG", "val_1.JPEG", "notes.txt"]);
    let folder = open(&root).unwrap();
    assert_eq!(names(&folder), ["val_1.JPEG", "val_10.JPEG", "val_2.JPEG"]);
    assert_eq!(
        (folder.classes().len(), folder.label(2), folder.left_out_names()),
        (0, 0, &["notes.txt".to_owned()][..])
    );
    assert_eq!(bytes(folder.sample(1, &mut Vec::new()).unwrap()), ("encoded", &b"val_10.JPEG"[..]));
    // With one folder beside them, the images are strays, as for torchvision.
    fs::create_dir(root.path().join("cat")).unwrap();
    assert!(matches!(open(&root), Err(FolderError::EmptyClasses { .. })));
}

#[test]
fn a_class_folder_whose_name_is_not_utf_8_is_refused_by_name() {
    let root = folder_of(&["tea/1.jpg"]);
    for name in [&b"caf\xe9"[..], b"caf\xe8"] {
        let class = root.path().join(OsStr::from_bytes(name));
        fs::create_dir(&class).unwrap();
        fs::write(class.join("1.jpg"), "x").unwrap();
        let error = open(&root).err().expect("the names are not told apart");
        assert!(error.to_string().contains(&format!("the class folder {} of ", name.escape_ascii())), "{error}");
        fs::remove_dir_all(class).unwrap();
    }
    // Names of files tell no classes apart.
    fs::write(root.path().join(OsStr::from_bytes(b"tea/\xe9.jpg")), "x").unwrap();
    assert_eq!(open(&root).unwrap().len(), 2);
}

#[test]
fn only_files_with_an_images_extension_in_any_case_are_samples() {
    let root = folder_of(&["a/1.JPG", "a/2.JpEg", "a/3.webp", "a/4.txt", "a/5.jpg.bak", "a/.tiff", "a/jpg", "a/6.gif"]);
    assert_eq!(names(&open(&root).unwrap()), ["a/.tiff", "a/1.JPG", "a/2.JpEg", "a/3.webp"]);
}

#[test]
fn links_are_followed_and_loops_entered_once() {
    let root = folder_of(&["a/1.jpg", "a/sub/2.jpg"]);
    let elsewhere = folder_of(&["x/3.jpg"]);
    symlink(root.path().join("a"), root.path().join("a/sub/up")).unwrap();
    symlink(".", root.path().join("a/here")).unwrap();
    symlink(elsewhere.path().join("x"), root.path().join("b")).unwrap();
    symlink(elsewhere.path().join("x/3.jpg"), root.path().join("a/4.jpg")).unwrap();
    let folder = open(&root).unwrap();
    assert_eq!(folder.classes(), ["a", "b"]);
    assert_eq!(names(&folder), ["a/1.jpg", "a/4.jpg", "a/sub/2.jpg", "b/3.jpg"]);
    let mut buf = Vec::new();
    folder.sample(1, &mut buf).unwrap();
    assert_eq!(buf, b"x/3.jpg");
}

#[test]
fn a_sample_without_a_file_keeps_its_place_and_is_unavailable() {
    let root = folder_of(&["a/2.jpg"]);
    symlink("nowhere", root.path().join("a/1.jpg")).unwrap();
    mkfifo(&root.path().join("a/3.jpg"), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    let folder = open(&root).unwrap();
    assert_eq!(names(&folder), ["a/1.jpg", "a/2.jpg", "a/3.jpg"]);
    let mut buf = Vec::new();
    for index in [0, 2] {
        let error = folder.sample(index, &mut buf).unwrap_err();
        assert!(matches!(error, ReadError::Unavailable(Unavailable::NoFile { .. })), "{error}");
        assert!(error.to_string().contains(&folder.name(index)), "{error}");
    }
    folder.sample(1, &mut buf).unwrap();
}

#[test]
fn a_file_that_changed_its_size_is_refused() {
    let root = folder_of(&["a/1.jpg"]);
    let folder = open(&root).unwrap();
    fs::write(root.path().join("a/1.jpg"), b"longer than before").unwrap();
    let error = folder.sample(0, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, ReadError::Unavailable(Unavailable::Changed { .. })), "{error}");
    assert!(error.to_string().ends_with("a/1.jpg had 7 bytes, and has 18 now"), "{error}");
    let error = folder.sample(1, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, ReadError::Unavailable(Unavailable::OutOfRange { index: 1, samples: 1 })), "{error}");
}

#[test]
fn a_file_that_was_listed_as_empty_is_read_all_the_same() {
    let root = folder_of(&["a/1.jpg"]);
    let path = root.path().join("a/1.jpg");
    fs::write(&path, b"").unwrap();
    let folder = open(&root).unwrap();
    let fetch_error = || {
        let pipeline = CompiledPipeline::of(&Pipeline::of([CenterCrop::to(1).into()])).unwrap();
        let (mut reader, mut preparer) = (SampleReader::default(), Preparer::new(Limits::default()));
        reader
            .prepare(
                StoredAt { dataset: &folder, index: 0 },
                None,
                &mut preparer,
                Drawn { pipeline: &pipeline, draw: Draw::default(), fidelity: Fidelity::WHOLE },
                &mut [0; 3],
            )
            .unwrap_err()
    };
    assert!(matches!(fetch_error(), SampleError::Pixels(PixelError::Empty)), "{}", fetch_error());
    assert_eq!(bytes(folder.sample(0, &mut Vec::new()).unwrap()), ("encoded", &b""[..]));
    fs::write(&path, b"filled").unwrap();
    let error = fetch_error();
    assert!(matches!(error, SampleError::Read(ReadError::Unavailable(Unavailable::Changed { .. }))), "{error}");
    assert!(error.to_string().ends_with("a/1.jpg had 0 bytes, and has 6 now"), "{error}");
    let error = folder.sample(0, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, ReadError::Unavailable(Unavailable::Changed { .. })), "{error}");
    fs::remove_file(&path).unwrap();
    let error = fetch_error();
    assert!(matches!(error, SampleError::Read(ReadError::Unavailable(_))), "{error}");
}

#[test]
fn a_file_that_is_overwritten_with_as_many_bytes_has_changed() {
    let root = folder_of(&["a/1.jpg"]);
    let folder = open(&root).unwrap();
    folder.sample(0, &mut Vec::new()).unwrap();
    let file = File::options().write(true).open(root.path().join("a/1.jpg")).unwrap();
    file.write_all_at(b"A", 0).unwrap();
    // The clock of a file system is coarse.
    file.set_modified(SystemTime::now() + Duration::from_secs(1)).unwrap();
    let error = folder.sample(0, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, ReadError::Unavailable(Unavailable::Changed { .. })), "{error}");
    assert!(error.to_string().ends_with("a/1.jpg has been written to"), "{error}");
}

#[test]
fn a_file_that_is_overwritten_while_it_is_read_has_changed() {
    let root = folder_of(&["a/1.jpg"]);
    let folder = open(&root).unwrap();
    let overwrite = |_: &File| {
        let file = File::options().write(true).open(root.path().join("a/1.jpg"))?;
        file.write_all_at(b"A", 0)?;
        file.set_modified(SystemTime::now() + Duration::from_secs(1))
    };
    let error = folder.files.read_unchanged(0, &folder.files.stamps[0], overwrite).unwrap_err();
    assert!(matches!(error, ReadError::Unavailable(Unavailable::Changed { .. })), "{error}");
}

#[test]
fn a_time_that_the_file_system_kept_only_to_the_second_is_no_change() {
    let root = folder_of(&["a/1.jpg"]);
    let file = File::options().write(true).open(root.path().join("a/1.jpg")).unwrap();
    let second = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    file.set_modified(second + Duration::from_nanos(123_456_789)).unwrap();
    let folder = open(&root).unwrap();
    file.set_modified(second).unwrap();
    folder.sample(0, &mut Vec::new()).unwrap();
}

/// The message names the topmost missing part.
#[test]
fn a_file_that_disappears_is_unavailable_and_not_corrupt() {
    let root = folder_of(&["a/1.jpg", "a/2.jpg", "b/1.jpg"]);
    let folder = open(&root).unwrap();
    let gone = |index| match folder.sample(index, &mut Vec::new()).unwrap_err() {
        ReadError::Unavailable(Unavailable::Gone { path, .. }) => path,
        other => panic!("{other}"),
    };
    fs::remove_file(root.path().join("a/2.jpg")).unwrap();
    assert_eq!(gone(1), root.path().join("a/2.jpg"));
    folder.sample(0, &mut Vec::new()).unwrap();
    fs::remove_dir_all(root.path().join("a")).unwrap();
    assert_eq!(gone(0), root.path().join("a"));
    folder.sample(2, &mut Vec::new()).unwrap();
    fs::remove_dir_all(root.path()).unwrap();
    assert_eq!(gone(2), root.path());
}

#[test]
fn a_file_that_may_not_be_read_is_unavailable() {
    let root = folder_of(&["a/1.jpg"]);
    let folder = open(&root).unwrap();
    fs::set_permissions(root.path().join("a/1.jpg"), fs::Permissions::from_mode(0o000)).unwrap();
    let _unprivileged = Unprivileged::new(root.path());
    let error = folder.sample(0, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, ReadError::Unavailable(Unavailable::Io { .. })), "{error}");
}

/// The files of a class whose folder may not be read are not the ones at fault.
#[test]
fn a_folder_that_may_not_be_read_is_named_in_place_of_its_files() {
    let root = folder_of(&["a/b/1.jpg", "c/1.jpg"]);
    let folder = open(&root).unwrap();
    let closed = root.path().join("a");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    {
        let _unprivileged = Unprivileged::new(root.path());
        let error = folder.sample(0, &mut Vec::new()).unwrap_err();
        let ReadError::Unavailable(Unavailable::Io { path, .. }) = &error else { panic!("{error}") };
        assert_eq!(*path, closed);
        folder.sample(1, &mut Vec::new()).unwrap();
    }
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The sizes of files that cannot be examined are missing in the identity.
#[test]
fn a_folder_whose_files_cannot_be_examined_is_not_listed() {
    let root = folder_of(&["a/1.jpg", "b/1.jpg"]);
    fs::set_permissions(root.path().join("b"), fs::Permissions::from_mode(0o444)).unwrap();
    {
        let _unprivileged = Unprivileged::new(root.path());
        let error = open(&root).err().unwrap();
        let FolderError::Unreadable { path, .. } = &error else { panic!("{error}") };
        assert_eq!(*path, root.path().join("b/1.jpg"));
    }
    fs::set_permissions(root.path().join("b"), fs::Permissions::from_mode(0o755)).unwrap();
}

/// Returns a handle of a folder whose status can be read, but not its entries, as it is when a network file system was
/// remounted: the folder of a process that has ended.
fn handle_out_of_reach() -> File {
    let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let handle = File::open(format!("/proc/{}", child.id())).unwrap();
    drop(child.stdin.take());
    child.wait().unwrap();
    handle.metadata().unwrap();
    handle
}

#[test]
fn a_file_is_not_damaged_if_the_root_cannot_be_read_either() {
    let root = folder_of(&["a/1.jpg"]);
    let mut folder = open(&root).unwrap();
    let error = folder.files.unread(0, io::Error::from_raw_os_error(libc::EIO));
    assert!(matches!(error, ReadError::Corrupt(Corrupt::Io { .. })), "{error}");
    folder.files.root_handle = handle_out_of_reach();
    let error = folder.files.unread(0, io::Error::from_raw_os_error(libc::EIO));
    let ReadError::Unavailable(Unavailable::Io { path, .. }) = &error else { panic!("{error}") };
    assert_eq!(path, root.path());
}

/// The file at the end of the links may be intact.
#[test]
fn a_file_behind_links_is_not_damaged_if_a_folder_on_their_way_cannot_be_read() {
    let root = folder_of(&["a/1.jpg"]);
    let elsewhere = folder_of(&["near/x.jpg", "far/1.jpg"]);
    fs::remove_file(elsewhere.path().join("near/x.jpg")).unwrap();
    symlink("../far/1.jpg", elsewhere.path().join("near/x.jpg")).unwrap();
    symlink(elsewhere.path().join("near/x.jpg"), root.path().join("a/2.jpg")).unwrap();
    fs::set_permissions(elsewhere.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let folder = open(&root).unwrap();
    let unread = || folder.files.unread(1, io::Error::from_raw_os_error(libc::EIO));
    assert!(matches!(unread(), ReadError::Corrupt(Corrupt::Io { .. })));
    for name in ["near", "far"] {
        let closed = elsewhere.path().join(name);
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        {
            let _unprivileged = Unprivileged::new(root.path());
            let error = unread();
            let ReadError::Unavailable(Unavailable::Io { path, .. }) = &error else { panic!("{error}") };
            assert_eq!(path.canonicalize().unwrap(), closed.canonicalize().unwrap());
        }
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// Reads through a link into a folder that may not be searched. The file behind it may be intact.
#[test]
fn a_link_that_may_not_be_followed_is_unavailable_and_not_corrupt() {
    let root = folder_of(&["a/1.jpg", "a/2.jpg"]);
    let hidden = folder_of(&["x/1.jpg"]);
    fs::remove_file(root.path().join("a/1.jpg")).unwrap();
    symlink(hidden.path().join("x/1.jpg"), root.path().join("a/1.jpg")).unwrap();
    fs::set_permissions(hidden.path().join("x"), fs::Permissions::from_mode(0o000)).unwrap();
    let _unprivileged = Unprivileged::new(root.path());
    let folder = open(&root).unwrap();
    let error = folder.sample(0, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, ReadError::Unavailable(Unavailable::Io { .. })), "{error}");
    folder.sample(1, &mut Vec::new()).unwrap();
}

/// The open handle still leads to the folder.
#[test]
fn a_folder_that_is_renamed_is_still_there() {
    let root = folder_of(&["a/1.jpg"]);
    let folder = open(&root).unwrap();
    let elsewhere = root.path().with_extension("renamed");
    fs::rename(root.path(), &elsewhere).unwrap();
    let read = folder.sample(0, &mut Vec::new()).map(drop);
    fs::rename(&elsewhere, root.path()).unwrap();
    read.unwrap();
}

#[test]
fn a_file_beyond_the_limit_is_refused_before_anything_is_allocated() {
    let root = folder_of(&["a/1.jpg"]);
    let file = fs::OpenOptions::new().write(true).open(root.path().join("a/1.jpg")).unwrap();
    file.set_len(crate::SAMPLE_BYTES_MAX + 1).unwrap();
    let mut buf = Vec::new();
    let error = open(&root).unwrap().sample(0, &mut buf).map(drop).unwrap_err();
    assert!(matches!(error, ReadError::Corrupt(Corrupt::TooLarge { .. })), "{error}");
    assert_eq!(buf.capacity(), 0);
}

#[test]
fn empty_folders_and_classes_say_what_to_do() {
    let root = folder_of(&["stray.txt"]);
    let error = open(&root).err().unwrap();
    assert!(matches!(error, FolderError::NoSamples { .. }), "{error}");
    let root = folder_of(&["full/1.jpg", "notes/readme.txt", "void/x/y.md"]);
    let error = open(&root).err().unwrap();
    assert!(matches!(&error, FolderError::EmptyClasses { count: 2, classes, .. } if classes == &["notes", "void"]));
    let message = error.to_string();
    assert!(message.contains("notes, void") && message.contains(".jpeg") && message.contains("remove"), "{message}");
    let error = Folder::open(Path::new("/nowhere/at/all")).err().unwrap();
    assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
}

#[test]
fn the_identity_follows_names_and_sizes() {
    let identity = |files: &[&str]| open(&folder_of(files)).unwrap().identity();
    let one = identity(&["a/1.jpg", "b/1.jpg"]);
    assert_eq!(one, identity(&["b/1.jpg", "a/1.jpg"]));
    assert_ne!(one, identity(&["a/1.jpg", "b/2.jpg"]));
    assert_ne!(one, identity(&["a/1.jpg", "b/1.jpg", "b/2.jpg"]));
    let root = folder_of(&["a/1.jpg", "b/1.jpg"]);
    fs::write(root.path().join("b/1.jpg"), b"another size").unwrap();
    assert_ne!(one, open(&root).unwrap().identity());
    assert_eq!(one.to_string().len(), 64);
}
