use super::disk::faults::{self, Fault};
use super::*;
use proptest::prelude::*;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::PoisonError;

const KEY: Key = [7; 32];
/// Bytes of the dataset.
const BYTES: usize = 1 << 20;

/// The dataset's byte at a place.
fn byte(key: &Key, at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 ^ key[0]
}

fn stored(key: &Key, extent: Range<u64>) -> Vec<u8> {
    extent.map(|at| byte(key, at)).collect()
}

fn options(folder: &Path) -> CacheOptions {
    CacheOptions { folder: folder.to_owned(), limit: Some(64 << 20) }
}

fn open(folder: &Path) -> Cache {
    Cache::open(&options(folder), KEY).unwrap()
}

/// Reads bytes as `CachedBlocks` does. Returns the number of bytes that the store was asked for.
fn read(cache: &Cache, extent: Range<u64>) -> u64 {
    let mut out = vec![0; (extent.end - extent.start) as usize];
    let missing = cache.fill(extent.start, &mut out);
    let asked = extent.start + missing.start as u64..extent.start + missing.end as u64;
    out[missing.clone()].copy_from_slice(&stored(&cache.key, asked.clone()));
    cache.keep(asked.start, &out[missing]);
    assert!(out == stored(&cache.key, extent), "a wrong byte");
    asked.end - asked.start
}

fn segments(folder: &Path) -> Vec<PathBuf> {
    let datasets = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    let files = datasets.flat_map(|dataset| fs::read_dir(dataset).unwrap().map(|entry| entry.unwrap().path()));
    files.filter(|path| path.extension().is_some_and(|extension| extension == "segment")).collect()
}

/// Changes a file.
fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

#[test]
fn what_was_read_once_is_not_asked_for_again() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path());
    assert_eq!(read(&cache, 5000..9000), 4000);
    assert_eq!(read(&cache, 5000..9000), 0);
    assert_eq!(read(&cache, 6000..7000), 0);
    assert_eq!(read(&cache, 4000..6000), 1000, "from the first to the last byte that is missing");
    assert_eq!(read(&cache, 3000..10_000), 7000);
    let usage = cache.usage();
    assert_eq!((usage.bytes, usage.kept_bytes, usage.is_full, usage.off), (6000, 12_000, false, None));
    drop(cache);
    let again = open(folder.path());
    assert_eq!(read(&again, 3000..10_000), 0, "by a later process, too");
    assert_eq!(read(&again, 0..0), 0);
}

#[test]
fn processes_see_what_others_have_cached() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (open(folder.path()), open(folder.path()));
    read(&one, 0..4000);
    assert_eq!(read(&other, 0..4000), 0);
    read(&one, 4000..8000);
    other.known().looked = None;
    assert_eq!(read(&other, 0..8000), 0, "in a segment that is known and grows");
    assert_eq!(segments(folder.path()).len(), 1);
}

#[test]
fn segments_give_back_the_room_that_they_do_not_need() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path());
    read(&cache, 0..100);
    let [path] = &segments(folder.path())[..] else { panic!("one segment") };
    assert_eq!(fs::metadata(path).unwrap().len(), 1 << 20, "a 64th of the limit");
    let other = open(folder.path());
    assert_eq!(fs::metadata(path).unwrap().len(), 1 << 20, "it is in use");
    // As if the process was killed: the file is closed, and no more.
    drop(cache.writing().segment.take());
    let later = open(folder.path());
    assert!(fs::metadata(path).unwrap().len() < 16 << 10);
    assert_eq!((read(&other, 0..100), read(&later, 0..100)), (0, 0));
}

#[test]
fn each_changed_or_missing_byte_of_a_segment_costs_a_read_at_most() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path());
    for at in 0..8 {
        read(&cache, at * 1000..at * 1000 + 1000);
    }
    drop(cache);
    let [path] = &segments(folder.path())[..] else { panic!("one segment") };
    let intact = fs::read(path).unwrap();
    let journal = 4096..4096 + 9 * 32;
    let bytes = intact.len() - 8000..intact.len();
    for at in (0..64).chain(journal).chain(bytes.step_by(97)) {
        for length in [intact.len(), at] {
            fs::write(path, &intact[..length]).unwrap();
            if length > at {
                change(path, |bytes| bytes[at] ^= 0x10);
            }
            let cache = open(folder.path());
            let asked: u64 = (0..8).map(|at| read(&cache, at * 1000..at * 1000 + 1000)).sum();
            assert!(length < intact.len() || at < 60 || asked <= 1000, "byte {at}: {asked} bytes asked for");
            assert_eq!((0..8).map(|at| read(&cache, at * 1000..at * 1000 + 1000)).sum::<u64>(), 0);
            drop(cache);
            assert_eq!(read(&open(folder.path()), 0..8000), 0, "it is whole again");
            segments(folder.path())
                .iter()
                .filter(|other| *other != path)
                .for_each(|other| fs::remove_file(other).unwrap());
        }
    }
}

#[test]
fn bytes_that_came_damaged_are_asked_for_again_by_all() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, other) = (open(folder.path()), open(folder.path()));
    cache.keep(0, &[0; 3000]);
    cache.forget(1000..1500);
    assert_eq!((read(&cache, 0..3000), read(&cache, 0..3000)), (3000, 3000), "they are not kept any more");
    assert_eq!(read(&other, 0..3000), 3000);
    drop((cache, other));
    assert_eq!(read(&open(folder.path()), 0..3000), 0, "what another process got intact stays");
}

#[test]
fn a_full_cache_keeps_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let small = CacheOptions { folder: folder.path().to_owned(), limit: Some(600 << 10) };
    let cache = Cache::open(&small, KEY).unwrap();
    let epoch = |cache: &Cache| (0..250).map(|at| read(cache, at * 4000..at * 4000 + 4000)).sum::<u64>();
    assert_eq!(epoch(&cache), 1_000_000);
    let used = || segments(folder.path()).iter().map(|path| fs::metadata(path).unwrap().len()).sum::<u64>();
    assert!(cache.usage().is_full && used() <= 600 << 10, "{} bytes", used());
    let asked = epoch(&cache);
    assert!((400_000..600_000).contains(&asked), "{asked} bytes asked for");
    assert_eq!(epoch(&cache), asked);
    // Another version of the dataset finds no room while this one is open, and then takes its room.
    let later = Cache::open(&small, [8; 32]).unwrap();
    assert_eq!((epoch(&later), epoch(&later)), (1_000_000, 1_000_000));
    drop(cache);
    later.writing().full = None;
    assert_eq!(epoch(&later), 1_000_000);
    assert!(epoch(&later) < 600_000 && used() <= 600 << 10);
}

#[test]
fn a_record_that_fits_nowhere_neither_clears_the_cache_nor_stops_others() {
    let folder = tempfile::tempdir().unwrap();
    let small = CacheOptions { folder: folder.path().to_owned(), limit: Some(600 << 10) };
    read(&Cache::open(&small, [8; 32]).unwrap(), 0..4000);
    let cache = Cache::open(&small, KEY).unwrap();
    assert_eq!((read(&cache, 0..700_000), cache.usage().is_full), (700_000, true));
    assert_eq!(segments(folder.path()).len(), 1, "what another dataset has stays");
    assert_eq!((read(&cache, 0..4000), read(&cache, 0..4000)), (4000, 0));
    assert!(!cache.usage().is_full, "there is room again");
    // This one has room once the other dataset has gone.
    assert_eq!((read(&cache, 0..342_000), read(&cache, 0..342_000)), (338_000, 0));
    assert_eq!(read(&Cache::open(&small, [8; 32]).unwrap(), 0..4000), 4000);
}

#[test]
fn a_disk_that_is_full_at_the_start_turns_the_cache_off() {
    let cache = |kind: ErrorKind| Cache::in_folder(Err(kind.into()), KEY);
    for kind in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded] {
        let cache = cache(kind).unwrap();
        let off = cache.usage().off.expect("the cache is off");
        assert!(off.contains("it cannot be written: "), "{off}");
        assert_eq!((read(&cache, 0..3000), read(&cache, 0..3000)), (3000, 3000));
        cache.forget(0..1000);
    }
    assert!(cache(ErrorKind::PermissionDenied).is_err());
}

#[test]
fn a_disk_that_takes_no_more_turns_the_cache_off() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path());
    for (number, extent) in (0..50).map(|at| (at, at * 5000..at * 5000 + 3000)) {
        assert_eq!(read(&cache, extent), 3000);
        if number == 20 {
            faults::set(Fault::Full, 0);
        }
    }
    faults::set(Fault::None, u64::MAX);
    let off = cache.usage().off.expect("the cache is off");
    assert!(off.contains("it cannot be written: Full"), "{off}");
    assert_eq!(read(&cache, 0..3000), 0, "what it has is used");
    drop(cache);
    let again = open(folder.path());
    let asked = (0..50).map(|at| read(&again, at * 5000..at * 5000 + 3000)).sum::<u64>();
    assert_eq!(asked, 29 * 3000);
}

#[test]
fn a_folder_that_cannot_be_used_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    assert!(Cache::open(&options(&file), KEY).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Two processes, each now and then a later one, read anything and lose anything.
    #[test]
    fn no_wrong_byte_is_ever_read(
        steps in proptest::collection::vec((0u8..8, 0u64..60_000, 1u64..9000, 0usize..2, 0usize..60_000), 1..60),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut caches = [open(folder.path()), open(folder.path())];
        for (kind, start, length, process, at) in steps {
            let cache = &caches[process];
            match kind {
                0 => caches[process] = open(folder.path()),
                1 => cache.forget(start..start + length),
                2 => cache.known().looked = None,
                3 => if let Some(path) = segments(folder.path()).first() {
                    let file = File::options().write(true).open(path).unwrap();
                    file.write_all_at(&[at as u8], (at as u64) % fs::metadata(path).unwrap().len()).unwrap();
                },
                _ => drop(read(cache, start..start + length)),
            }
        }
    }
}

/// A child process has its parent's locks for a moment when it begins: then a file that nobody uses looks used.
static BEGINS: Mutex<()> = Mutex::new(());

/// Processes that are killed, or find the disk full, at any byte that they write: one after the other in the same
/// folder, with two datasets that take each other's room.
#[test]
fn an_end_at_any_byte_leaves_a_cache_that_is_right_and_small() {
    let _alone = BEGINS.lock().unwrap_or_else(PoisonError::into_inner);
    const LIMIT: u64 = 320 << 10;
    let small = |folder: &Path| CacheOptions { folder: folder.to_owned(), limit: Some(LIMIT) };
    let keys = [KEY, [8; 32]];
    let draw = |state: &mut u64| {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *state >> 33
    };
    let work = |folder: &Path, key: Key, state: &mut u64| {
        // One that is killed here has done nothing wrong.
        let Ok(cache) = Cache::open(&small(folder), key) else { return };
        for step in 0..60 {
            let start = draw(state) % 60_000;
            read(&cache, start..start + 1 + draw(state) % 200);
            if step % 16 == 5 {
                cache.forget(start..start + 1);
            }
        }
    };
    let all = keys.map(|key| stored(&key, 0..60_000));
    let check = |folder: &Path, number: usize| {
        let cache = Cache::open(&small(folder), keys[number]).unwrap();
        for start in (0..60_000).step_by(500) {
            let mut out = vec![0; 500];
            let missing = cache.fill(start as u64, &mut out);
            let stored = &all[number][start..start + 500];
            assert!(out[..missing.start] == stored[..missing.start] && out[missing.end..] == stored[missing.end..]);
        }
        for journal in &cache.known().journals {
            assert_eq!(fs::metadata(&journal.path).unwrap().len(), journal.end, "room that no entry has");
        }
    };
    for (fault, rounds) in [(Fault::Killed, 200), (Fault::Full, 50)] {
        let (folder, mut state, mut ended) = (tempfile::tempdir().unwrap(), 1, 0);
        for round in 0..rounds {
            faults::set(fault, draw(&mut state) % 9000);
            work(folder.path(), keys[round % 2], &mut state);
            ended += u32::from(faults::remaining() == 0);
            faults::set(Fault::None, u64::MAX);
            (0..keys.len()).for_each(|number| check(folder.path(), number));
            let files = || fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
            let of_datasets = files().filter(|path| path.is_dir()).flat_map(|path| fs::read_dir(path).unwrap());
            let left: Vec<_> = of_datasets.map(|entry| entry.unwrap()).collect();
            let bytes: u64 = left.iter().map(|entry| entry.metadata().unwrap().len()).sum();
            assert!(bytes <= LIMIT, "{fault:?}, round {round}: {bytes} bytes");
            assert!(left.iter().all(|entry| !entry.file_name().to_string_lossy().ends_with(".new")));
        }
        assert!(ended > rounds as u32 / 2, "{fault:?}: {ended} of {rounds}");
        let cache = Cache::open(&small(folder.path()), KEY).unwrap();
        read(&cache, 0..60_000);
        assert_eq!(cache.usage().off, None);
    }
}

/// A child process reads until it is killed, and so does the one after it.
#[test]
fn a_process_that_is_killed_leaves_a_cache_that_others_can_use() {
    const FOLDER: &str = "DDLP_TEST_CACHE";
    const BEGUN: &str = "the first bytes are read";
    if let Some(folder) = std::env::var_os(FOLDER) {
        let cache = open(Path::new(&folder));
        let mut at = u64::from(std::process::id());
        read(&cache, 0..1000);
        println!("{BEGUN}");
        loop {
            at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let start = (at >> 33) % BYTES as u64;
            read(&cache, start..start + 1 + (at >> 20) % 3000);
        }
    }
    let name = std::thread::current().name().unwrap().to_owned();
    let child = |folder: &Path| -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let command = command.args([&name, "--exact", "--nocapture"]).env(FOLDER, folder);
        let begins = BEGINS.lock().unwrap_or_else(PoisonError::into_inner);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(begins);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains(BEGUN)));
        child
    };
    for round in 0..8u64 {
        let folder = tempfile::tempdir().unwrap();
        let mut children = [child(folder.path()), child(folder.path())];
        // So that they are killed at any place.
        std::thread::sleep(Duration::from_micros(round * 3777 % 9000));
        for child in &mut children {
            let ended = child.try_wait().unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            let mut said = String::new();
            child.stderr.as_mut().unwrap().read_to_string(&mut said).unwrap();
            assert!(ended.is_none(), "round {round}: {said}");
        }
        assert!(!segments(folder.path()).is_empty());
        let cache = open(folder.path());
        assert_eq!(read(&cache, 0..1000), 0);
        for start in (0..BYTES as u64).step_by(64 << 10) {
            read(&cache, start..start + (64 << 10));
        }
        assert_eq!(read(&cache, 0..BYTES as u64), 0);
    }
}
