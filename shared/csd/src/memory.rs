//! How much memory there is. Result slots in memory are allocated before the first batch, and Linux ends processes, seldom the right
//! ones, when memory that was granted is not there; so both sides ask first.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Share of the available memory that is left to others.
const SPARE: u64 = 16;

/// Memory in bytes that this process can have without swapping: of the machine, and within the limits of its control groups. `None`
/// when the kernel does not say.
pub fn available_bytes() -> Option<u64> {
    let machine = from_meminfo(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let left = groups_of(&groups).iter().filter_map(|group| left_in(&Path::new("/sys/fs/cgroup").join(group))).min();
    Some(left.map_or(machine, |left| left.min(machine)))
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

fn from_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// The control group of a process (version 2) and those around it, innermost first, relative to where they are mounted.
fn groups_of(cgroup: &str) -> Vec<PathBuf> {
    let own = cgroup.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    Path::new(own).ancestors().map(Path::to_path_buf).collect()
}

/// What a control group's limit leaves; `None` without a limit.
fn left_in(group: &Path) -> Option<u64> {
    let number = |name: &str| -> Option<u64> { fs::read_to_string(group.join(name)).ok()?.trim().parse().ok() };
    // Pages of files that nobody has used lately make room when it is needed.
    let cached = fs::read_to_string(group.join("memory.stat"))
        .ok()
        .and_then(|text| text.lines().find_map(|line| line.strip_prefix("inactive_file ")?.trim().parse::<u64>().ok()));
    let used = number("memory.current")?.saturating_sub(cached.unwrap_or(0));
    Some(number("memory.max")?.saturating_sub(used))
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
        assert_eq!(groups_of("1:name=x:/z\n0::/a/b\n"), groups);
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("memory.current", "300\n");
        assert_eq!(left_in(folder.path()), None);
        write("memory.max", "max\n");
        assert_eq!(left_in(folder.path()), None);
        write("memory.max", "1000\n");
        assert_eq!(left_in(folder.path()), Some(700));
        write("memory.stat", "anon 100\ninactive_file 200\n");
        assert_eq!(left_in(folder.path()), Some(900));
    }

    #[test]
    fn more_than_there_is_is_an_error_that_says_how_much() {
        check_room(1 << 20).unwrap();
        let error = check_room(1 << 50).unwrap_err().to_string();
        assert!(error.contains("1125899907 MB are needed") && error.contains("MB are available"), "{error}");
    }
}
