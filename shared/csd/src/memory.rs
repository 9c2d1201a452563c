//! The memory that is available, and that this process uses. If memory that Linux has granted runs out, Linux kills
//! processes, often the wrong ones; so both sides check before they take much.
//!
//! Four things bound the memory of a process: the machine, control groups, and two limits on what it maps, which
//! `ulimit -v` and `ulimit -d` set. An allocation beyond one of these two fails. Most code cannot handle that, so
//! the programs have an [`allocator`] that reports the refusal.

pub mod allocator;

use ddlp_dataset::Dataset;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Fraction of the available memory that is left to others.
const SPARE: u64 = 16;

/// Kinds of file pages that the kernel can drop: those not used lately, and those in use as well.
const UNUSED: &[&str] = &["inactive_file"];
const ALL: &[&str] = &["inactive_file", "active_file"];

/// Address space that is left to small allocations and to the stacks of a few threads, which nobody asks for.
const SMALL_BYTES: u64 = 24 << 20;
/// Address space of a thread that prepares samples: 2 MiB of stack, and scratch memory for photographs.
const THREAD_BYTES: u64 = 8 << 20;

/// What bounds the memory that a process can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Machine,
    Group,
    /// `RLIMIT_AS`.
    AddressSpace,
    /// `RLIMIT_DATA`.
    Data,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Machine => "on this machine",
            Self::Group => "within the limit of the control group",
            Self::AddressSpace => "within the limit on address space (ulimit -v)",
            Self::Data => "within the limit on data (ulimit -d)",
        })
    }
}

/// Bytes, and what bounds them.
type Left = (u64, Bound);

/// Returns the bytes that this process can have without swapping, on the machine and within the limits of its control
/// groups and of what it may map. Returns `None` if the kernel does not tell.
pub fn available_bytes() -> Option<u64> {
    available().map(|(bytes, _)| bytes)
}

fn available() -> Option<Left> {
    let left = available_beside(UNUSED)?;
    Some(left_to_map().into_iter().chain([left]).min_by_key(|&(bytes, _)| bytes).unwrap_or(left))
}

/// Returns what the limits on mapping leave to large allocations; empty without limits.
fn left_to_map() -> Vec<Left> {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let bounds = [("Max address space", "VmSize:", Bound::AddressSpace), ("Max data size", "VmData:", Bound::Data)];
    let left = bounds.into_iter().filter_map(|(limit, used, bound)| {
        let used = of_this_process(used)?.saturating_add(SMALL_BYTES);
        Some((soft_limit(&limits, limit)?.saturating_sub(used), bound))
    });
    left.collect()
}

/// Returns a limit that a line of `/proc/self/limits` states; `None` when there is none.
fn soft_limit(limits: &str, name: &str) -> Option<u64> {
    let values = limits.lines().find_map(|line| line.strip_prefix(name))?;
    values.split_whitespace().next()?.parse().ok()
}

/// Returns the address space that `threads` threads take, where that is limited. Elsewhere they take little memory.
pub fn threads_bytes(threads: usize) -> u64 {
    if left_to_map().is_empty() { 0 } else { THREAD_BYTES.saturating_mul(threads as u64) }
}

/// Returns the available memory if the kernel drops these kinds of file pages.
fn available_beside(pages: &[&str]) -> Option<Left> {
    // The kernel's number already includes all file pages.
    let machine = from_meminfo(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let root = Path::new("/sys/fs/cgroup");
    let left = [&UNIFIED, &LEGACY].into_iter().flat_map(|files| {
        let groups = groups_of(&groups, files).into_iter();
        groups.filter_map(|group| left_in(&root.join(files.mount).join(group), files, pages))
    });
    let group = left.min().filter(|&left| left < machine);
    Some(group.map_or((machine, Bound::Machine), |left| (left, Bound::Group)))
}

/// Returns a number of bytes about this process: the line of `/proc/self/status` that begins with `line` and is in kB.
/// Returns `None` if there is no such line.
pub fn of_this_process(line: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let value = status.lines().find_map(|candidate| candidate.strip_prefix(line))?;
    let kib: u64 = value.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// Fails unless `bytes` more can be mapped and used.
pub fn check_room(bytes: u64) -> io::Result<()> {
    check(bytes, available())
}

/// Fails unless `bytes` that are mapped already can be used.
pub fn check_pages(bytes: u64) -> io::Result<()> {
    check(bytes, available_beside(UNUSED))
}

fn check(bytes: u64, available: Option<Left>) -> io::Result<()> {
    match available {
        Some((left, bound)) if bytes > left - left / SPARE => Err(lacking(bytes, left - left / SPARE, bound)),
        _ => Ok(()),
    }
}

fn lacking(bytes: u64, left: u64, bound: Bound) -> io::Error {
    let megabytes = |bytes: u64| bytes.div_ceil(1_000_000);
    let message = format!("{} MB are needed, {} MB are available {bound}", megabytes(bytes), megabytes(left));
    io::Error::new(io::ErrorKind::OutOfMemory, message)
}

/// Turns the system's refusal of `bytes` into an error that says what is available, and within which bound.
pub fn refused(bytes: u64, error: io::Error) -> io::Error {
    match (error.kind(), available()) {
        // `WouldBlock` is how the system refuses a thread for lack of memory.
        (io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock, Some((left, bound))) => lacking(bytes, left, bound),
        _ => error,
    }
}

/// Turns the system's refusal of a thread into an error that says why.
pub fn thread_refused(error: io::Error) -> io::Error {
    let is_limited = left_to_map().iter().any(|&(left, _)| left < THREAD_BYTES);
    if is_limited { refused(THREAD_BYTES, error) } else { error }
}

/// Tells a dataset how much memory there is for the page cache, including its present contents, beside the `taken`
/// bytes that this process is about to take. Logs if the dataset then reads past the page cache, or should but cannot.
pub fn fit(dataset: &dyn Dataset, taken: u64) {
    let Some((available, _)) = available_beside(ALL) else { return };
    let left = available.saturating_sub(taken);
    let megabytes = |bytes: u64| bytes / 1_000_000;
    let (pack_mb, memory_mb) = (dataset.export().map(|pack| megabytes(pack.len_bytes())), megabytes(left));
    match dataset.fit_memory(left) {
        Ok(false) => {}
        Ok(true) => tracing::info!(
            pack_mb,
            memory_mb,
            "reading past the page cache: the dataset is much larger than memory, so each epoch reads all of it from \
             the disk"
        ),
        Err(error) => tracing::warn!(
            pack_mb,
            memory_mb,
            %error,
            "cannot read past the page cache, although the dataset is much larger than memory: it evicts the files of \
             other programs"
        ),
    }
}

/// Files in which one version of control groups shows limits and use.
struct GroupFiles {
    /// Controller in a line of `/proc/self/cgroup`, in front of the group's path (in version 1 behind the number).
    controller: &'static str,
    mount: &'static str,
    limit: &'static str,
    used: &'static str,
    /// Prefix of the names in `memory.stat` that include the groups inside a group.
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

/// Returns the control group of a process and the groups around it, innermost first, relative to their mount point.
/// Groups outside of a container cannot be seen from within, and have no files.
fn groups_of(cgroup: &str, files: &GroupFiles) -> Vec<PathBuf> {
    let own = cgroup.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(":/")?;
        controllers.split(',').any(|controller| controller == files.controller).then_some(path)
    });
    Path::new(own.unwrap_or_default()).ancestors().map(Path::to_path_buf).collect()
}

/// Returns the memory that a control group's limit leaves if these kinds of file pages are dropped, or `None` without a
/// limit.
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
mod tests;
