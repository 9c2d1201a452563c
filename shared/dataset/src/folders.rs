//! Tells a file that is missing or cannot be read from a folder on the way to the file.

use crate::Unavailable;
use crate::errno::Class;
use crate::held::is_stale;
use nix::dir::Dir;
use nix::fcntl::{OFlag, readlinkat};
use nix::sys::stat::Mode;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Most links on the way from a link to its file: Linux follows no more.
const LINKS_MAX: usize = 40;

/// Returns the topmost missing part of the path from a dataset's `root` to `file`; returns `file` itself if nothing on
/// the way is missing, for example because another folder has taken the root's place.
pub(crate) fn first_missing(root: &Path, file: &Path) -> PathBuf {
    let mut path = root.to_owned();
    for component in file.components() {
        if path.metadata().is_err() {
            return path;
        }
        path.push(component);
    }
    path
}

/// Checks, after a file below a dataset's root could not be read because of `error`, that the root and the folders on
/// the way to the file can be read; if the file is a link, also the folders to which it leads. `root` is the root's
/// handle, `path` its path, `file` the way from the root to the file.
///
/// A momentary error says nothing about a file, so it is not examined. Links are followed only after an error that
/// would make the file corrupt: other errors make it unavailable, whichever folder is at fault.
#[cold]
pub(crate) fn check_folders(root: &File, path: &Path, file: &Path, error: &io::Error) -> Result<(), Unavailable> {
    let class = Class::of(error);
    if class == Class::Momentary {
        return Ok(());
    }
    let check = |way: &Path| {
        with_folder(root, path, |root| read_first(root, &Path::new(".").join(way))).map_err(|source| {
            let folder = if way.as_os_str().is_empty() { path.to_owned() } else { path.join(way) };
            Unavailable::Io { what: format!("folder {}", folder.display()), path: folder, source }
        })
    };
    let mut ways: Vec<&Path> = file.ancestors().skip(1).collect();
    ways.reverse();
    ways.into_iter().try_for_each(check)?;
    if class != Class::Medium {
        return Ok(());
    }
    let mut file = file.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = with_folder(root, path, |root| Ok(readlinkat(root, &file)?)) else { break };
        file = file.parent().unwrap_or(Path::new("")).join(target);
        check(file.parent().unwrap_or(&file))?;
    }
    Ok(())
}

/// Acts on a folder's handle or, if the file server has forgotten the handle, on the folder at `path`. Returns the
/// handle's error if there is none.
fn with_folder<T>(handle: &File, path: &Path, mut act: impl FnMut(&File) -> io::Result<T>) -> io::Result<T> {
    match act(handle) {
        Err(error) if is_stale(&error) => File::open(path).map_or(Err(error), |folder| act(&folder)),
        done => done,
    }
}

/// Reads the first entry of a folder, since the system may know the status of a folder that is out of reach.
fn read_first(root: &File, way: &Path) -> io::Result<()> {
    let mut folder = Dir::openat(root, way, OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    folder.iter().next().transpose()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_a_stale_handle_is_opened_again() {
        let home = tempfile::tempdir().unwrap();
        let handle = File::open(home.path()).unwrap();
        let read = |path: &Path, errno: i32| {
            let mut calls = 0;
            let read = with_folder(&handle, path, |folder| {
                calls += 1;
                if calls == 1 { Err(io::Error::from_raw_os_error(errno)) } else { read_first(folder, Path::new(".")) }
            });
            (read.map_err(|error| error.raw_os_error()), calls)
        };
        assert_eq!(read(home.path(), libc::ESTALE), (Ok(()), 2));
        assert_eq!(read(home.path(), libc::EIO), (Err(Some(libc::EIO)), 1));
        assert_eq!(read(&home.path().join("gone"), libc::ESTALE), (Err(Some(libc::ESTALE)), 1));
    }
}
