//! Kernels for tests: trees of `/sys` and `/dev`, with other files that a kernel provides.

use super::RunningKernel;
use ddlp_test_support::trees;
use nix::sys::stat::{major, minor};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tempfile::TempDir;

/// A kernel in a folder, which is removed with this value.
pub struct Planted {
    pub root: TempDir,
    pub kernel: RunningKernel,
}

/// Plants a kernel of this release with the devices of `tree`, as root sees it.
pub fn kernel(tree: &str, release: &str) -> Planted {
    let root = tempfile::tempdir().unwrap();
    trees::plant(root.path(), tree);
    let planted = Planted { kernel: RunningKernel::at(root.path()), root };
    planted.write("proc/sys/kernel/osrelease", release);
    planted.write("proc/self/status", "Name:\tddlp\nCapEff:\t000001ffffffffff\n");
    planted
}

/// Returns the kernel's line for a process that locked a file.
pub fn locked(file: &Path, process: u32) -> String {
    let found = fs::metadata(file).unwrap();
    let (major, minor) = (major(found.dev()), minor(found.dev()));
    format!("1: FLOCK  ADVISORY  WRITE {process} {major:02x}:{minor:02x}:{} 0 EOF\n", found.ino())
}

impl Planted {
    /// Writes a file of the tree.
    pub fn write(&self, path: &str, content: &str) {
        let path = self.kernel.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Replaces the tree's root in a text by the root.
    pub fn rooted(&self, text: &str) -> String {
        text.replace(&*self.root.path().to_string_lossy(), "")
    }
}
