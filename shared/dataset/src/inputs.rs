//! The files from which a dataset is read, so that a program never writes over one of them.

use crate::Dataset;
use crate::sources::folder;
use crate::sources::mix::paths_in;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Most links from a name to its file; Linux has the same limit.
const LINKS_MAX: u32 = 40;
/// Lists of class names that lie beside shards and batch files.
const LISTS: [&str; 4] = ["classes.txt", "batches.meta.txt", "fine_label_names.txt", "coarse_label_names.txt"];
/// Extensions of files that may change what kind of dataset a folder is taken for, beside the extensions of images.
const EXTENSIONS: [&str; 3] = [".bin", ".tar", ".txt"];

/// Returns whether a file written at `place` would change the dataset that was opened at `root`, because it is one of
/// the dataset's files, by whatever name, or would become one. `place` must not
/// contain a symbolic link ([`destination`] follows them). A new file in
/// a folder to which a link in the dataset leads is not recognised.
///
/// Costs no more than opening the dataset did, and next to nothing if there is no file at `place`.
///
/// # Errors
///
/// Fails if `root` cannot be examined.
pub fn is_input(dataset: &dyn Dataset, root: &Path, place: &Path) -> io::Result<bool> {
    Ok(belongs_to(root, place)? || fs::metadata(place).is_ok_and(|found| dataset.sample_in(&found).is_some()))
}

/// Follows symbolic links to the place where a file of this name is or would be.
///
/// # Errors
///
/// Fails if the folder of the place is missing or out of reach.
pub fn destination(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        match fs::read_link(&path) {
            Ok(target) => path = folder.join(target),
            Err(_) => {
                let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
                return Ok(fs::canonicalize(folder)?.join(name));
            }
        }
    }
    Err(io::Error::from_raw_os_error(nix::libc::ELOOP))
}

/// Returns whether `place` is, or would become, a file of the dataset at `root`, as far as names tell.
fn belongs_to(root: &Path, place: &Path) -> io::Result<bool> {
    let is_directory = fs::metadata(root)?.is_dir();
    let root = fs::canonicalize(root)?;
    if is_directory {
        if let Ok(below) = place.strip_prefix(&root) {
            let name = below.as_os_str().as_bytes();
            let ends = |extension: &&str| {
                let end = name.len().checked_sub(extension.len()).map(|at| &name[at..]);
                end.is_some_and(|end| end.eq_ignore_ascii_case(extension.as_bytes()))
            };
            // Each folder of an image folder is a class. Of the files beside them, none is read, but a folder of images
            // alone has all its images there.
            if below.components().count() != 1 || EXTENSIONS.iter().chain(&folder::EXTENSIONS).any(ends) {
                return Ok(true);
            }
        }
    } else if place == root || LISTS.iter().any(|list| root.with_file_name(list) == place) {
        return Ok(true);
    }
    if !is_directory && root.extension().is_some_and(|extension| extension == "toml") {
        for part in paths_in(&root).map_err(io::Error::other)? {
            if belongs_to(&part, place)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Returns whether the file at `path` is `found`.
pub(crate) fn is_same_file(path: &Path, found: &Metadata) -> bool {
    fs::metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open;
    use std::os::unix::fs::symlink;

    /// Makes `photos/a/1.jpg`, a link to `store/2.jpg` and a file beside the classes.
    fn folder() -> (tempfile::TempDir, PathBuf) {
        let home = tempfile::tempdir().unwrap();
        let here = fs::canonicalize(home.path()).unwrap();
        fs::create_dir_all(here.join("photos/a")).unwrap();
        fs::create_dir(here.join("store")).unwrap();
        fs::write(here.join("photos/a/1.jpg"), "one").unwrap();
        fs::write(here.join("store/2.jpg"), "two").unwrap();
        fs::write(here.join("store/3.jpg"), "two").unwrap();
        fs::write(here.join("photos/notes.json"), "{}").unwrap();
        symlink(here.join("store/2.jpg"), here.join("photos/a/2.jpg")).unwrap();
        fs::create_dir(here.join("linked")).unwrap();
        fs::write(here.join("linked/4.jpg"), "four").unwrap();
        symlink(here.join("linked"), here.join("photos/b")).unwrap();
        fs::hard_link(here.join("photos/a/1.jpg"), here.join("other-name")).unwrap();
        (home, here)
    }

    #[test]
    fn files_in_classes_and_files_that_they_link_to_are_inputs() {
        let (_home, here) = folder();
        let root = here.join("photos");
        let dataset = open(&root).unwrap();
        let is_input = |place: &str| is_input(&*dataset, &root, &here.join(place)).unwrap();
        for part in [
            "photos/a/1.jpg",
            "photos/a/new.json",
            "photos/x.tar",
            "photos/x.TAR",
            "photos/new.JPEG",
            "store/2.jpg",
            "linked/4.jpg",
            "other-name",
            "photos",
        ] {
            assert!(is_input(part), "{part}");
        }
        for other in ["photos/notes.json", "photos/new.json", "store/3.jpg", "store/new.json", "linked/new.jpg", "new"]
        {
            assert!(!is_input(other), "{other}");
        }
    }

    #[test]
    fn an_image_in_a_folder_of_images_alone_would_be_a_sample() {
        let home = tempfile::tempdir().unwrap();
        let here = fs::canonicalize(home.path()).unwrap();
        fs::write(here.join("1.jpg"), "x").unwrap();
        let dataset = open(&here).unwrap();
        for (place, expected) in [("report.jpg", true), ("report.Tiff", true), ("report.html", false), ("jpg", false)] {
            assert_eq!(is_input(&*dataset, &here, &here.join(place)).unwrap(), expected, "{place}");
        }
    }

    #[test]
    fn a_mix_and_the_files_of_its_datasets_are_inputs() {
        let (_home, here) = folder();
        fs::write(here.join("list.csv"), "path,label\nstore/3.jpg,cat\n").unwrap();
        fs::write(here.join("mix.toml"), "[[dataset]]\npath = \"photos\"\n[[dataset]]\npath = \"list.csv\"\n").unwrap();
        let root = here.join("mix.toml");
        let dataset = open(&root).unwrap();
        let is_input = |place: &str| is_input(&*dataset, &root, &here.join(place)).unwrap();
        for part in ["mix.toml", "list.csv", "photos/a/new.json", "photos/a/1.jpg", "store/3.jpg"] {
            assert!(is_input(part), "{part}");
        }
        assert!(!is_input("photos/notes.json") && !is_input("store/new.json"));
    }

    #[test]
    fn batches_and_their_list_of_names_are_inputs() {
        let home = tempfile::tempdir().unwrap();
        let here = fs::canonicalize(home.path()).unwrap();
        fs::write(here.join("test.bin"), [0; 3073]).unwrap();
        fs::hard_link(here.join("test.bin"), here.join("same")).unwrap();
        let root = here.join("test.bin");
        let dataset = open(&root).unwrap();
        for (place, expected) in [("test.bin", true), ("same", true), ("batches.meta.txt", true), ("x.json", false)] {
            assert_eq!(is_input(&*dataset, &root, &here.join(place)).unwrap(), expected, "{place}");
        }
    }
}
