//! Folders for sockets and disks of guests, removed when dropped, on Ctrl-C, and when a killed process left them.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Once;
use tempfile::TempDir;

const PREFIX: &str = "ddlp-qemu-";

/// A folder of this process.
pub struct Scratch(TempDir);

impl Scratch {
    /// A new one.
    pub fn new() -> Result<Self> {
        static FIRST: Once = Once::new();
        FIRST.call_once(|| {
            remove(|owner| !Path::new(&format!("/proc/{owner}")).exists());
            // The guests are killed with this process. A second handler would be a program's own.
            let _ = ctrlc::set_handler(|| {
                remove(|owner| owner == process::id());
                process::exit(130);
            });
        });
        let prefix = format!("{PREFIX}{}-", process::id());
        Ok(Self(tempfile::Builder::new().prefix(&prefix).tempdir().context("cannot make a temporary folder")?))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A path in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// Removes the folders of these processes. One that cannot be removed is left for the next time.
fn remove(of: impl Fn(u32) -> bool) {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let owner = entry.file_name().to_str().and_then(owner);
        if owner.is_some_and(&of) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_name_their_process_and_go_away() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_path_buf();
        assert_eq!(path.file_name().and_then(|name| owner(name.to_str()?)), Some(process::id()));
        fs::write(scratch.join("disk"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
        assert_eq!(owner("ddlp-qemu-x-y"), None);
    }

    #[test]
    fn what_a_killed_process_left_is_removed() {
        let mut gone = process::Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        let left = std::env::temp_dir().join(format!("{PREFIX}{}-left", gone.id()));
        fs::create_dir(&left).unwrap();
        remove(|owner| owner == gone.id());
        assert!(!left.exists());
    }
}
