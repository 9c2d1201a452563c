//! Tells a file that is missing or cannot be read from a folder on the way to the file.

use crate::Unavailable;
use crate::errno::Class;
use nix::dir::Dir;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

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
/// the way to the file can be read. `root` is the root's handle, `path` its path, `relative` the way to the file's
/// folder.
///
/// A momentary error says nothing about a file, so it is not examined.
#[cold]
pub(crate) fn check_folders(root: &File, path: &Path, relative: &Path, error: &io::Error) -> Result<(), Unavailable> {
    if Class::of(error) == Class::Momentary {
        return Ok(());
    }
    let mut ways: Vec<&Path> = relative.ancestors().collect();
    ways.reverse();
    ways.into_iter().try_for_each(|way| {
        let folder = if way.as_os_str().is_empty() { path.to_owned() } else { path.join(way) };
        check_folder(root, &Path::new(".").join(way)).map_err(|source| Unavailable::Io {
            what: format!("folder {}", folder.display()),
            path: folder,
            source,
        })
    })
}

/// Reads the first entry of a folder, since the system may know the status of a folder that is out of reach.
fn check_folder(root: &File, way: &Path) -> io::Result<()> {
    let mut folder = Dir::openat(root, way, OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    folder.iter().next().transpose()?;
    Ok(())
}
