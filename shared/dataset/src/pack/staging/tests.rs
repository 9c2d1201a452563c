use super::*;
use nix::unistd::mkfifo;
use std::io::Write;
use std::os::unix::fs::symlink;

fn entries(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn staged(target: &Path, unnamed: Unnamed, content: &[u8]) -> Staging {
    let staging = Staging::create(target, unnamed).unwrap();
    staging.file().write_all(content).unwrap();
    staging
}

#[test]
fn the_name_appears_only_at_the_end() {
    for unnamed in [Unnamed::WherePossible, Unnamed::Never] {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("a.ddlp");
        drop(staged(&target, unnamed, b"half"));
        assert_eq!(entries(directory.path()), Vec::<String>::new(), "{unnamed:?}");
        let staging = staged(&target, unnamed, b"whole");
        assert!(!target.exists());
        staging.commit(false).unwrap();
        assert_eq!(entries(directory.path()), ["a.ddlp"], "{unnamed:?}");
        assert_eq!(fs::read(&target).unwrap(), b"whole");
    }
}

#[test]
fn an_existing_file_is_replaced_only_when_asked() {
    for unnamed in [Unnamed::WherePossible, Unnamed::Never] {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("a.ddlp");
        fs::write(&target, b"old").unwrap();
        let error = staged(&target, unnamed, b"new").commit(false).unwrap_err();
        assert!(matches!(error, NotNamed::Exists), "{error:?}");
        assert_eq!(fs::read(&target).unwrap(), b"old");
        staged(&target, unnamed, b"new").commit(true).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"new");
        assert_eq!(entries(directory.path()), ["a.ddlp"], "{unnamed:?}");
    }
}

#[test]
fn only_a_regular_file_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let [pipe, link, folder] = ["pipe", "link", "folder"].map(|name| directory.path().join(name));
    fs::write(directory.path().join("file"), b"old").unwrap();
    mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    symlink("file", &link).unwrap();
    fs::create_dir(&folder).unwrap();
    let before = entries(directory.path());
    for unnamed in [Unnamed::WherePossible, Unnamed::Never] {
        for (target, is) in [(&pipe, "a pipe or a socket"), (&link, "a symbolic link"), (&folder, "a folder")] {
            for overwrite in [false, true] {
                let error = staged(target, unnamed, b"new").commit(overwrite).unwrap_err();
                assert!(matches!(error, NotNamed::NoFile(what) if what == is), "{error:?}");
            }
        }
        assert_eq!(entries(directory.path()), before, "{unnamed:?}");
    }
    assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read(&link).unwrap(), b"old");
    let device = check_name(Path::new("/dev/null"), true).unwrap_err();
    assert!(matches!(device, NotNamed::NoFile("a device")), "{device:?}");
}

#[test]
fn a_partial_file_left_behind_is_taken_over_and_one_in_use_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("a.ddlp");
    fs::write(directory.path().join(".a.ddlp.partial"), b"left by a killed process").unwrap();
    let first = staged(&target, Unnamed::Never, b"first");
    let error = Staging::create(&target, Unnamed::Never).err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    first.commit(false).unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"first");
}
