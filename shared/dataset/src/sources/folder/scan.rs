//! Listing the files of an image folder in torchvision's order.

use super::{DIRECTORIES_MAX, EXTENSIONS, FolderError, is_no_file};
use crate::errno::Class;
use crate::extent::{make_room, persistently};
use crate::pack::LISTED_MAX;
use crate::sources::left_out::LeftOut;
use crate::stamp::Stamp;
use crate::{CLASSES_MAX, parallel};
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Most empty classes that a message names.
const NAMED_MAX: usize = 8;

/// The samples of one class or of a flat folder, in order.
pub(super) struct ClassListing {
    /// Paths relative to the root, one after the other.
    paths: Vec<u8>,
    /// End of each path in `paths`, and the stamp of the file if there is one.
    files: Vec<(usize, Option<Stamp>)>,
    pub(super) left_out: LeftOut,
}

impl ClassListing {
    /// Returns the total length of all paths.
    pub(super) fn path_bytes(&self) -> usize {
        self.paths.len()
    }

    /// Returns relative path and stamp of each sample.
    pub(super) fn files(&self) -> impl Iterator<Item = (&[u8], Option<Stamp>)> {
        let mut start = 0;
        self.files.iter().map(move |&(end, stamp)| {
            let path = &self.paths[start..end];
            start = end;
            (path, stamp)
        })
    }
}

/// Returns the names of the class folders, sorted, and the files beside them. A flat folder has no class folders.
pub(super) fn class_names(root: &Path) -> Result<(Vec<OsString>, LeftOut), FolderError> {
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        move |source| FolderError::Unreadable { path, source }
    };
    let (mut names, mut beside) = (Vec::new(), LeftOut::new(LISTED_MAX));
    for entry in fs::read_dir(root).map_err(unreadable(root))? {
        let entry = entry.map_err(unreadable(root))?;
        if is_directory(&entry).map_err(unreadable(&entry.path()))? {
            names.push(entry.file_name());
        } else {
            beside.add(|| entry.file_name().to_string_lossy().into_owned());
        }
    }
    if names.len() > CLASSES_MAX {
        return Err(FolderError::TooManyClasses { root: root.to_owned(), count: names.len() });
    }
    names.sort_unstable_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    Ok((names, beside))
}

/// Lists all classes, several at a time. Returns the first error in the order of the classes, or else an error for
/// empty classes.
pub(super) fn list_classes(root: &Path, names: &[OsString]) -> Result<Vec<ClassListing>, FolderError> {
    let listings = parallel::map(names, |name| list_class(root, name)).into_iter().collect::<Result<Vec<_>, _>>()?;
    refuse_empty(root, names, &listings)?;
    Ok(listings)
}

/// Lists the images of a flat folder.
pub(super) fn list_flat(root: &Path) -> Result<ClassListing, FolderError> {
    let listing = list_class(root, &OsString::new())?;
    if listing.files.is_empty() {
        return Err(FolderError::NoSamples { root: root.to_owned() });
    }
    Ok(listing)
}

fn refuse_empty(root: &Path, names: &[OsString], listings: &[ClassListing]) -> Result<(), FolderError> {
    let mut empty = names.iter().zip(listings).filter(|(_, listing)| listing.files.is_empty()).map(|(name, _)| name);
    let classes: Vec<String> = empty.by_ref().take(NAMED_MAX).map(|name| name.to_string_lossy().into_owned()).collect();
    let count = classes.len() + empty.count();
    if count == 0 { Ok(()) } else { Err(FolderError::EmptyClasses { root: root.to_owned(), count, classes }) }
}

/// A folder with its samples, not sorted yet.
struct Directory {
    /// Path relative to the root.
    path: Vec<u8>,
    /// Name and stamp of each sample in it.
    files: Vec<(OsString, Option<Stamp>)>,
}

impl Directory {
    /// Returns the total length of the paths of all samples.
    fn path_bytes(&self) -> usize {
        self.files.iter().map(|(name, _)| self.path.len() + 1 + name.len()).sum()
    }
}

fn list_class(root: &Path, class: &OsString) -> Result<ClassListing, FolderError> {
    let (mut directories, left_out) = walk(root, class)?;
    directories.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    let mut listing = ClassListing { paths: Vec::new(), files: Vec::new(), left_out };
    let files = directories.iter().map(|directory| directory.files.len()).sum();
    let path_bytes = directories.iter().map(Directory::path_bytes).sum();
    let no_memory = |source| FolderError::NoMemory { path: root.join(class), source };
    make_room(&mut listing.files, files, "the files of a class").map_err(no_memory)?;
    make_room(&mut listing.paths, path_bytes, "the paths of a class").map_err(no_memory)?;
    for directory in &mut directories {
        directory.files.sort_unstable_by(|a, b| a.0.as_bytes().cmp(b.0.as_bytes()));
        for (name, stamp) in &directory.files {
            if !directory.path.is_empty() {
                listing.paths.extend_from_slice(&directory.path);
                listing.paths.push(b'/');
            }
            listing.paths.extend_from_slice(name.as_bytes());
            listing.files.push((listing.paths.len(), *stamp));
        }
    }
    Ok(listing)
}

/// Visits every folder of a class (the root itself, if the class's name is empty), parents before children. The folders
/// that are being visited are remembered, so that a link back to one of them is recognised. Also notes the files that
/// are not samples.
fn walk(root: &Path, class: &OsString) -> Result<(Vec<Directory>, LeftOut), FolderError> {
    let (mut found, mut left_out) = (Vec::new(), LeftOut::new(LISTED_MAX));
    let mut ancestors: Vec<(u64, u64)> = Vec::new();
    let mut pending: Vec<(PathBuf, usize)> = vec![(PathBuf::from(class), 0)];
    let mut visited = 0;
    while let Some((relative, depth)) = pending.pop() {
        let path = root.join(&relative);
        let unreadable = |source| FolderError::Unreadable { path: path.clone(), source };
        visited += 1;
        if visited > DIRECTORIES_MAX {
            return Err(FolderError::TooManyDirectories { path: root.join(class) });
        }
        let status = fs::metadata(&path).map_err(unreadable)?;
        let own = (status.dev(), status.ino());
        ancestors.truncate(depth);
        if ancestors.contains(&own) {
            continue;
        }
        ancestors.push(own);
        let mut files = Vec::new();
        for entry in fs::read_dir(&path).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            if is_directory(&entry).map_err(unreadable)? {
                pending.push((relative.join(entry.file_name()), depth + 1));
            } else if is_image(entry.file_name().as_bytes()) {
                make_room(&mut files, 1, "the files of a folder")
                    .map_err(|source| FolderError::NoMemory { path: path.clone(), source })?;
                let stamp = stamp(&entry).map_err(|source| FolderError::Unreadable { path: entry.path(), source })?;
                files.push((entry.file_name(), stamp));
            } else {
                left_out.add(|| relative.join(entry.file_name()).to_string_lossy().into_owned());
            }
        }
        if !files.is_empty() {
            found.push(Directory { path: relative.into_os_string().into_vec(), files });
        }
    }
    Ok((found, left_out))
}

/// Returns an image in a folder or below it, if there are at least `least` images. Passes over what is hidden or cannot
/// be read.
pub(super) fn image_among(root: &Path, least: usize) -> Option<PathBuf> {
    let (mut pending, mut visited) = (vec![root.to_owned()], HashSet::new());
    let mut images = 0;
    while let Some(directory) = pending.pop() {
        let Ok(status) = fs::metadata(&directory) else { continue };
        if !visited.insert((status.dev(), status.ino())) {
            continue;
        }
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.as_bytes().starts_with(b".") {
                continue;
            }
            if is_directory(&entry).unwrap_or(false) {
                pending.push(entry.path());
            } else if is_image(name.as_bytes()) {
                images += 1;
                if images >= least {
                    return Some(entry.path());
                }
            }
        }
    }
    None
}

/// Returns whether an entry is a folder or leads to one. A dangling link does not. A link that cannot be
/// followed now is an error, unless it is named as an image is: it could lead to a class.
fn is_directory(entry: &DirEntry) -> io::Result<bool> {
    let kind = entry.file_type()?;
    if !kind.is_symlink() {
        return Ok(kind.is_dir());
    }
    match fs::metadata(entry.path()) {
        Ok(target) => Ok(target.is_dir()),
        Err(error) if is_no_file(&error) || is_image(entry.file_name().as_bytes()) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the stamp of the regular file behind an entry, if there is one.
fn stamp(entry: &DirEntry) -> io::Result<Option<Stamp>> {
    match persistently(|| entry.metadata()) {
        Ok(status) if status.file_type().is_symlink() => stamp_of(persistently(|| fs::metadata(entry.path())), true),
        status => stamp_of(status, false),
    }
}

/// Returns the stamp by the status of a file, or of the file to which a link leads (`is_link`). The sizes of all files
/// are part of the identity, so a file that cannot be examined is an error, with two exceptions: the disk fails at this
/// file, which then counts as corrupt, or a link cannot be followed, since its disk may be absent for long.
fn stamp_of(status: io::Result<Metadata>, is_link: bool) -> io::Result<Option<Stamp>> {
    match status {
        Ok(status) => Ok(Some(status).filter(Metadata::is_file).map(|status| Stamp::from(&status))),
        Err(error) if is_no_file(&error) => Ok(None),
        Err(error) => match Class::of(&error) {
            Class::Medium => Ok(None),
            Class::Lasting if is_link => Ok(None),
            Class::Lasting | Class::Momentary => Err(error),
        },
    }
}

fn is_image(name: &[u8]) -> bool {
    EXTENSIONS.iter().any(|extension| {
        name.len().checked_sub(extension.len()).is_some_and(|at| name[at..].eq_ignore_ascii_case(extension.as_bytes()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_examined_is_an_error_unless_that_stays_so() {
        let examined = |errno: i32| {
            [false, true].map(|is_link| {
                let stamp = stamp_of(Err(io::Error::from_raw_os_error(errno)), is_link);
                stamp.map_err(|error| error.raw_os_error())
            })
        };
        for errno in [libc::ENOENT, libc::ELOOP, libc::EIO, libc::EUCLEAN] {
            assert_eq!(examined(errno), [Ok(None), Ok(None)], "{errno}");
        }
        assert_eq!(examined(libc::EACCES), [Err(Some(libc::EACCES)), Ok(None)]);
        for errno in [libc::ESTALE, libc::ETIMEDOUT, libc::ENOMEM] {
            assert_eq!(examined(errno), [Err(Some(errno)), Err(Some(errno))]);
        }
    }
}
