//! Folders for sockets and disks of guests, removed when dropped and on Ctrl-C. A later process removes the folders of
//! a killed one.
//!
//! A lock on a file in the folder shows that its process lives, even if that runs in another container.

use anyhow::{Context, Result};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Mutex, Once, PoisonError};
use tempfile::TempDir;

const PREFIX: &str = "ddlp-qemu-";
/// The locked file.
const LOCK: &str = "lock";

/// Folders of this process.
static OURS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A folder of this process.
pub struct ScratchFolder {
    folder: TempDir,
    _lock: File,
}

impl ScratchFolder {
    /// Makes a new folder.
    pub fn new() -> Result<Self> {
        static FIRST: Once = Once::new();
        FIRST.call_once(|| {
            remove_left(&std::env::temp_dir());
            // The guests are killed with this process. This fails if the program has a handler of its own.
            let _ = ctrlc::set_handler(|| {
                for folder in ours().iter() {
                    let _ = fs::remove_dir_all(folder);
                }
                process::exit(130);
            });
        });
        let failed = "cannot make a temporary folder";
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir().context(failed)?;
        let lock = File::create(folder.path().join(LOCK)).context(failed)?;
        lock.lock().context(failed)?;
        ours().push(folder.path().to_owned());
        Ok(Self { folder, _lock: lock })
    }

    /// Returns the folder's path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns a path in the folder.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        ours().retain(|folder| folder != self.path());
    }
}

fn ours() -> std::sync::MutexGuard<'static, Vec<PathBuf>> {
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the folders whose processes are gone. A folder without the locked file is just being made. One that cannot
/// be removed is left for the next time.
fn remove_left(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    let named = |name: &std::ffi::OsStr| name.to_str().is_some_and(|name| name.starts_with(PREFIX));
    for entry in entries.flatten().filter(|entry| named(&entry.file_name())) {
        let lock = File::open(entry.path().join(LOCK));
        if lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_go_away_when_dropped_and_not_before() {
        let scratch = ScratchFolder::new().unwrap();
        let path = scratch.path().to_path_buf();
        fs::write(scratch.join("disk"), "x").unwrap();
        remove_left(path.parent().unwrap());
        assert!(path.join("disk").exists(), "its process lives");
        drop(scratch);
        assert!(!path.exists() && !ours().contains(&path));
    }

    #[test]
    fn the_folder_of_a_killed_process_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let (left, young) = (parent.path().join("ddlp-qemu-left"), parent.path().join("ddlp-qemu-young"));
        for folder in [&left, &young] {
            fs::create_dir(folder).unwrap();
        }
        fs::write(left.join(LOCK), "").unwrap();
        remove_left(parent.path());
        assert!(!left.exists() && young.exists());
    }
}
