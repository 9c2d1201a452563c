//! The memory that is available, and that this process uses. Result slots in memory are allocated before the first
//! batch. If memory that Linux has granted runs out, it kills processes, often the wrong ones; so both sides check
//! first.

use ddlp_dataset::Dataset;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Fraction of the available memory that is left to others.
const SPARE: u64 = 16;

/// Kinds of file pages that the kernel can drop: those not used lately, and those in use as well.
const UNUSED: &[&str] = &["inactive_file"];
const ALL: &[&str] = &["inactive_file", "active_file"];

/// Returns the bytes that this process can have without swapping, on the machine and within the limits of its control
/// groups. Returns `None` if the kernel does not tell.
pub fn available_bytes() -> Option<u64> {
    available_beside(UNUSED)
}

/// Returns the available memory if the kernel drops these kinds of file pages.
fn available_beside(pages: &[&str]) -> Option<u64> {
    // The kernel's number already includes all file pages.
    let machine = from_meminfo(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let root = Path::new("/sys/fs/cgroup");
    let left = [&UNIFIED, &LEGACY].into_iter().flat_map(|files| {
        let groups = groups_of(&groups, files).into_iter();
        groups.filter_map(|group| left_in(&root.join(files.mount).join(group), files, pages))
    });
    Some(left.min().map_or(machine, |left| left.min(machine)))
}

/// Returns a number of bytes about this process: the line of `/proc/self/status` that begins with `line` and is in kB.
/// Returns `None` if there is no such line.
pub fn of_this_process(line: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let value = status.lines().find_map(|candidate| candidate.strip_prefix(line))?;
    let kib: u64 = value.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
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

/// Tells a dataset how much memory there is for the page cache, including its present contents, beside the `taken`
/// bytes that this process is about to take. Logs if the dataset then reads past the page cache, or should but cannot.
pub fn fit(dataset: &dyn Dataset, taken: u64) {
    let Some(available) = available_beside(ALL) else { return };
    let left = available.saturating_sub(taken);
    let megabytes = |bytes: u64| bytes / 1_000_000;
    let (pack_mb, memory_mb) = (dataset.export().map(|pack| megabytes(pack.len_bytes())), megabytes(left));
    match dataset.fit_memory(left) {
        Ok(false) => {}
        Ok(true) => tracing::info!(
            pack_mb,
            memory_mb,
            "reading past the page cache: the dataset is much larger than memory, so each epoch reads all of it from the disk"
        ),
        Err(error) => tracing::warn!(
            pack_mb,
            memory_mb,
            %error,
            "no reading past the page cache, although the dataset is much larger than memory: it pushes out the files of others"
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
mod tests {
    use super::*;
    use ddlp_dataset::pack::{Pack, PackFormat, PackOptions, pack};
    use ddlp_dataset::{Identity, Location, PackFile, ReadError};
    use ddlp_pixels::Source;
    use std::ops::ControlFlow;
    use std::sync::{Arc, Mutex};

    /// A pack that records the memory it is told of, and answers as the test says.
    struct Told {
        pack: Pack,
        answer: fn() -> io::Result<bool>,
        memory: Mutex<Vec<u64>>,
    }

    impl Dataset for Told {
        fn fit_memory(&self, available_bytes: u64) -> io::Result<bool> {
            self.memory.lock().unwrap().push(available_bytes);
            (self.answer)()
        }

        fn export(&self) -> Option<&PackFile> {
            self.pack.export()
        }

        fn len(&self) -> u64 {
            self.pack.len()
        }

        fn classes(&self) -> &[String] {
            self.pack.classes()
        }

        fn label(&self, index: u64) -> u32 {
            self.pack.label(index)
        }

        fn name(&self, index: u64) -> String {
            self.pack.name(index)
        }

        fn location(&self, index: u64) -> Location {
            self.pack.location(index)
        }

        fn sample<'a>(&'a self, index: u64, buf: &'a mut Vec<u8>) -> Result<Source<'a>, ReadError> {
            self.pack.sample(index, buf)
        }

        fn identity(&self) -> Identity {
            self.pack.identity()
        }

        fn kind(&self) -> &'static str {
            self.pack.kind()
        }
    }

    /// Makes a pack of 3 MB.
    fn told(answer: fn() -> io::Result<bool>) -> Told {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("data_batch_1.bin"), vec![3; 1000 * 3073]).unwrap();
        let (source, out) = (ddlp_dataset::open(folder.path()).unwrap(), folder.path().join("out.ddlp"));
        let options = PackOptions { format: PackFormat::Raw { max_side: None }, ..PackOptions::default() };
        pack(&*source, &out, &options, &mut |_| ControlFlow::Continue(())).unwrap();
        Told { pack: Pack::open(&out).unwrap(), answer, memory: Mutex::default() }
    }

    /// Returns the log of `work`.
    fn logged(work: impl FnOnce()) -> String {
        #[derive(Clone, Default)]
        struct Log(Arc<Mutex<Vec<u8>>>);
        impl io::Write for Log {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().unwrap().write(bytes)
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, work);
        let bytes = log.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_dataset_is_told_of_the_memory_beside_what_is_taken() {
        let dataset = told(|| Ok(false));
        let all = available_beside(ALL).unwrap();
        assert_eq!(logged(|| [0, all / 2, u64::MAX].iter().for_each(|&taken| fit(&dataset, taken))), "");
        let memory = dataset.memory.lock().unwrap();
        assert!(memory[0] > all / 4 * 3 && memory[1] < all / 4 * 3 && memory[2] == 0, "{memory:?} of {all}");
    }

    #[test]
    fn reading_past_the_page_cache_is_in_the_log() {
        let log = logged(|| fit(&told(|| Ok(true)), 0));
        assert!(log.contains(" INFO ") && log.contains("reading past the page cache"), "{log}");
        assert!(log.contains("pack_mb=3 memory_mb="), "{log}");
        let log = logged(|| fit(&told(|| Err(io::Error::other("not here"))), 0));
        assert!(log.contains(" WARN ") && log.contains("error=not here"), "{log}");
        assert!(log.contains("pack_mb=3 memory_mb="), "{log}");
    }

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
