use super::*;
use ddlp_dataset::pack::{Pack, PackFormat, PackOptions, StoredForm, pack};
use ddlp_dataset::{Header, Identity, Location, PackFile, ReadError};
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

    fn header(&self, index: u64) -> Result<Header, ReadError> {
        self.pack.header(index)
    }

    fn read(&self, index: u64, header: &Header, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        self.pack.read(index, header, offset, out)
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
    let options = PackOptions { format: PackFormat::of(StoredForm::Raw), ..PackOptions::default() };
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
    let (all, _) = available_beside(ALL).unwrap();
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

#[test]
fn limits_on_mapping_are_read() {
    let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                  Max data size             unlimited            unlimited            bytes     \n\
                  Max address space         409600000            unlimited            bytes     \n";
    assert_eq!(soft_limit(limits, "Max address space"), Some(409_600_000));
    assert_eq!(soft_limit(limits, "Max data size"), None);
    assert_eq!(soft_limit("", "Max data size"), None);
}

#[test]
fn an_error_names_the_bound() {
    let error = check(100 << 20, Some((64 << 20, Bound::AddressSpace))).unwrap_err().to_string();
    assert_eq!(error, "105 MB are needed, 63 MB are available within the limit on address space (ulimit -v)");
    // The error gives what is available less the reserve, so that this figure is never larger than what is needed.
    let error = check(62 << 20, Some((64 << 20, Bound::AddressSpace))).unwrap_err().to_string();
    assert!(error.starts_with("66 MB are needed, 63 MB are available"), "{error}");
    check(60 << 20, Some((64 << 20, Bound::Data))).unwrap();
    check(u64::MAX, None).unwrap();
}
