//! How much memory there is. Result slots in memory are allocated before the first batch, and Linux ends processes, seldom the right
//! ones, when memory that was granted is not there; so both sides ask first.

use ddlp_dataset::Dataset;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Share of the available memory that is left to others.
const SPARE: u64 = 16;

/// What of a file's pages makes room when it is needed: those that nobody has used lately, and the others.
const UNUSED: &[&str] = &["inactive_file"];
const ALL: &[&str] = &["inactive_file", "active_file"];

/// Memory in bytes that this process can have without swapping: of the machine, and within the limits of its control groups. `None`
/// when the kernel does not say.
pub fn available_bytes() -> Option<u64> {
    available_beside(UNUSED)
}

/// Memory there is when these pages of files make room.
fn available_beside(pages: &[&str]) -> Option<u64> {
    // Here the kernel has counted all pages of files.
    let machine = from_meminfo(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let root = Path::new("/sys/fs/cgroup");
    let left = [&UNIFIED, &LEGACY].into_iter().flat_map(|files| {
        let groups = groups_of(&groups, files).into_iter();
        groups.filter_map(|group| left_in(&root.join(files.mount).join(group), files, pages))
    });
    Some(left.min().map_or(machine, |left| left.min(machine)))
}

/// Fails unless `bytes` more can be taken.
pub fn check_room(bytes: u64) -> io::Result<()> {
    let Some(available) = available_bytes() else { return Ok(()) };
    if bytes <= available - available / SPARE {
        return Ok(());
    }
    let megabytes = |bytes: u64| bytes.div_ceil(1_000_000);
    let message = format!("{} MB are needed, {} MB are available", megabytes(bytes), megabytes(available));
    Err(io::Error::new(io::ErrorKind::OutOfMemory, message))
}

/// Tells a dataset how much memory there is for a page cache, what is in it now included. An error where it would read in another way
/// for that, and cannot.
pub fn fit(dataset: &dyn Dataset) -> io::Result<()> {
    match available_beside(ALL) {
        Some(available) => dataset.fit_memory(available).map(|_| ()),
        None => Ok(()),
    }
}

/// Where control groups of a version say what they may have and what they have.
struct GroupFiles {
    /// What a line of `/proc/self/cgroup` begins with before the group's path; for version 1 behind the number.
    controller: &'static str,
    mount: &'static str,
    limit: &'static str,
    used: &'static str,
    /// What names in `memory.stat` begin with where groups within this one are counted.
    whole: &'static str,
}

/// Version 2.
const UNIFIED: GroupFiles =
    GroupFiles { controller: "", mount: "", limit: "memory.max", used: "memory.current", whole: "" };
/// Version 1.
const LEGACY: GroupFiles = GroupFiles {
    controller: "memory",
    mount: "memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    whole: "total_",
};

fn from_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// The control group of a process and those around it, innermost first, relative to where they are mounted. Those that cannot be seen
/// from here, in a container, have no files.
fn groups_of(cgroup: &str, files: &GroupFiles) -> Vec<PathBuf> {
    let own = cgroup.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(":/")?;
        controllers.split(',').any(|controller| controller == files.controller).then_some(path)
    });
    Path::new(own.unwrap_or_default()).ancestors().map(Path::to_path_buf).collect()
}

/// What a control group's limit leaves when these pages of files make room; `None` without a limit.
fn left_in(group: &Path, files: &GroupFiles, pages: &[&str]) -> Option<u64> {
    let number = |name: &str| -> Option<u64> { fs::read_to_string(group.join(name)).ok()?.trim().parse().ok() };
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let counts = |line: &str| -> Option<u64> {
        let (name, bytes) = line.strip_prefix(files.whole)?.split_once(' ')?;
        pages.contains(&name).then(|| bytes.trim().parse().ok())?
    };
    let cached: u64 = stat.lines().filter_map(counts).sum();
    let used = number(files.used)?.saturating_sub(cached);
    Some(number(files.limit)?.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_machine_has_is_read() {
        assert_eq!(from_meminfo("MemTotal: 9 kB\nMemAvailable:     2048 kB\n"), Some(2 << 20));
        assert_eq!(from_meminfo("MemTotal: 9 kB\n"), None);
        assert!(available_bytes().is_some());
    }

    #[test]
    fn groups_bound_what_is_available() {
        let groups: Vec<PathBuf> = ["a/b", "a", ""].map(PathBuf::from).into();
        let text = "4:cpu,memory:/m/n\n1:name=x:/z\n0::/a/b\n";
        assert_eq!(groups_of(text, &UNIFIED), groups);
        assert_eq!(groups_of(text, &LEGACY), ["m/n", "m", ""].map(PathBuf::from));
        assert_eq!(groups_of("", &LEGACY), [PathBuf::new()]);
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("memory.current", "300\n");
        assert_eq!(left_in(folder.path(), &UNIFIED, UNUSED), None);
        write("memory.max", "max\n");
        assert_eq!(left_in(folder.path(), &UNIFIED, UNUSED), None);
        write("memory.max", "1000\n");
        assert_eq!(left_in(folder.path(), &UNIFIED, UNUSED), Some(700));
        write("memory.stat", "anon 100\ninactive_file 200\nactive_file 50\ntotal_inactive_file 250\n");
        assert_eq!(left_in(folder.path(), &UNIFIED, UNUSED), Some(900));
        assert_eq!(left_in(folder.path(), &UNIFIED, ALL), Some(950));
        write("memory.usage_in_bytes", "300\n");
        write("memory.limit_in_bytes", "2000\n");
        assert_eq!(left_in(folder.path(), &LEGACY, UNUSED), Some(1950));
    }

    #[test]
    fn more_than_there_is_is_an_error_that_says_how_much() {
        check_room(1 << 20).unwrap();
        let error = check_room(1 << 50).unwrap_err().to_string();
        assert!(error.contains("1125899907 MB are needed") && error.contains("MB are available"), "{error}");
    }
}
