//! Trees of `/sys` and `/dev` as Linux lays them out, planted below a temporary directory.
//!
//! A line of a tree is `PATH = CONTENT` (an attribute), `PATH -> TARGET` (a link) or `PATH` (an empty file in place of
//! a node).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// An ordinary PCIe disk, `nvme0`, and a drive, `nvme1`.
pub const DISK_AND_DRIVE: &str = include_str!("trees/disk-and-drive.txt");
/// A drive without native multipath, `nvme0`.
pub const NO_MULTIPATH: &str = include_str!("trees/no-multipath.txt");
/// Two drives, `nvme0` and `nvme3`.
pub const TWO_DRIVES: &str = include_str!("trees/two-drives.txt");
/// Two controllers of one drive, `nvme0` and `nvme1`.
pub const TWO_PATHS: &str = include_str!("trees/two-paths.txt");

/// Makes `tree` below `root`.
pub fn plant(root: &Path, tree: &str) {
    let below = |path: &str| {
        let path = root.join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().expect("below the root")).expect("a directory");
        path
    };
    for line in tree.lines().filter(|line| line.starts_with('/')) {
        if let Some((path, target)) = line.split_once(" -> ") {
            symlink(target, below(path)).expect("a link");
        } else {
            let (path, content) = line.split_once(" = ").map_or((line, ""), |(path, content)| (path, content));
            fs::write(below(path), if content.is_empty() { String::new() } else { format!("{content}\n") })
                .expect("a file");
        }
    }
}
