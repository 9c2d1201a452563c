//! Faults while packing. Nothing is left behind after cancellation, panic, a full disk, or SIGKILL.
//!
//! Three of the tests start this test program again, as the process that meets the fault.

use super::{Bench, Pixels, quietly};
use crate::pack::chunks::{Event, store_all};
use crate::pack::storing::{Fault, Storing};
use crate::pack::{Pack, PackError, PackFormat, PackOptions, PackProgress, Phase, StoredForm, pack};
use crate::{Dataset, Unavailable};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use std::collections::HashSet;
use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};

/// Names the file that a child process is to pack into.
const CHILD_OUT: &str = "DDLP_TEST_PACK_OUT";

#[test]
fn cancelling_leaves_nothing_at_any_time() {
    let bench = Bench::new(2, 300);
    for (threads, calls) in [(1, 0), (1, 1), (3, 1), (3, 2)] {
        let mut seen = 0;
        let options = PackOptions { threads, ..PackOptions::default() };
        let error = pack(&bench.source(), &bench.path("out.ddlp"), &options, &mut |_| {
            seen += 1;
            if seen > calls { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap_err();
        assert!(matches!(error, PackError::Cancelled), "{error}");
        assert_eq!(seen, calls + 1, "it stops at once");
        assert_eq!(bench.names(), ["source"], "{threads} threads, {calls} calls");
    }
    for last in [Phase::Verifying, Phase::Syncing] {
        let options = PackOptions { verify: true, ..PackOptions::default() };
        let error = pack(&bench.source(), &bench.path("out.ddlp"), &options, &mut |progress| {
            if progress.phase == last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap_err();
        assert!(matches!(error, PackError::Cancelled), "{error}");
        assert_eq!(bench.names(), ["source"], "{last:?}");
    }
}

#[test]
fn a_source_that_panics_stalls_nothing_and_leaves_nothing() {
    let bench = Bench::new(1, 1);
    let mut source = Pixels::new(100_000);
    source.before_read = Box::new(|index| assert_ne!(index, 50_000, "as planned"));
    let options = PackOptions { threads: 3, ..PackOptions::default() };
    let out = bench.path("out.ddlp");
    // The callback comes every 100 ms even if nothing happens: a minute of that is a stall.
    let (mut last, mut idle) = (0, 0);
    let mut watch = |progress: PackProgress| {
        idle = if progress.samples == last { idle + 1 } else { 0 };
        last = progress.samples;
        if idle > 600 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let packing = std::panic::AssertUnwindSafe(|| pack(&source, &out, &options, &mut watch));
    let result = std::panic::catch_unwind(packing);
    assert!(result.is_err(), "{result:?}");
    assert_eq!(bench.names(), ["source"]);
}

#[test]
fn a_pack_that_cannot_fit_is_refused_before_anything_is_read() {
    let bench = Bench::new(1, 1);
    let mut source = Pixels::new(1 << 20);
    source.listed_bytes = 1 << 30;
    source.before_read = Box::new(|index| panic!("sample {index} is read"));
    let error = quietly(&source, &bench.path("out.ddlp"), &PackOptions::default()).unwrap_err();
    let PackError::NoSpace { needed, available, .. } = &error else { panic!("{error}") };
    assert!(*needed > 1 << 50 && available < needed, "{error}");
    let message = error.to_string();
    assert!(message.contains("out.ddlp") && message.contains("free some space"), "{message}");
    assert_eq!(bench.names(), ["source"]);
}

#[test]
fn no_space_is_demanded_for_images_that_are_shrunk() {
    let bench = Bench::new(1, 1);
    // The source claims 8 TiB.
    let mut source = Pixels::new(1 << 13);
    source.listed_bytes = 1 << 30;
    let options =
        PackOptions { format: PackFormat { form: StoredForm::Raw, max_side: Some(1) }, ..PackOptions::default() };
    let summary = quietly(&source, &bench.path("out.ddlp"), &options).unwrap();
    assert!(summary.file_bytes < 1 << 20, "{}", summary.file_bytes);
}

#[test]
fn unneeded_reserved_space_is_given_back() {
    let bench = Bench::new(1, 1);
    let mut source = Pixels::new(64);
    source.listed_bytes = 1 << 20;
    let out = bench.path("out.ddlp");
    let summary = quietly(&source, &out, &PackOptions { verify: true, ..PackOptions::default() }).unwrap();
    let metadata = std::fs::metadata(&out).unwrap();
    assert_eq!(metadata.len(), summary.file_bytes);
    assert!(metadata.blocks() * 512 < 1 << 20, "{} bytes are taken", metadata.blocks() * 512);
}

#[test]
fn a_target_that_is_not_a_file_is_refused_before_anything_is_read() {
    let bench = Bench::new(1, 1);
    let pipe = bench.path("pipe");
    mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    let mut source = Pixels::new(3);
    source.before_read = Box::new(|index| panic!("sample {index} is read"));
    let options = PackOptions { overwrite: true, ..PackOptions::default() };
    let error = quietly(&source, &pipe, &options).unwrap_err();
    assert!(matches!(error, PackError::NoFile { what: "a pipe or a socket", .. }), "{error}");
    assert_eq!(bench.names(), ["pipe", "source"]);
}

#[test]
fn a_directory_that_does_not_exist_is_named() {
    let bench = Bench::new(1, 1);
    let error = quietly(&bench.source(), &bench.path("none/out.ddlp"), &PackOptions::default()).unwrap_err();
    assert!(matches!(error, PackError::Create { .. }), "{error}");
    assert!(error.to_string().contains("none/out.ddlp"), "{error}");
}

/// Samples in work, counted in units of 1 MiB.
#[derive(Default)]
struct UnderWay {
    read: HashSet<u64>,
    consumed: u64,
    most: u64,
}

#[test]
fn a_slow_sample_does_not_let_the_others_run_away() {
    let threads = 4;
    // The first sample waits until as many others have been read as may be in flight beside it.
    let bound = 8 * threads as u64;
    let state = Arc::new((Mutex::new(UnderWay::default()), Condvar::new()));
    let mut source = Pixels::new(500);
    source.listed_bytes = 1 << 20;
    let shared = Arc::clone(&state);
    source.before_read = Box::new(move |index| {
        let (under_way, changed) = &*shared;
        let mut guard = under_way.lock().unwrap();
        guard.read.insert(index);
        guard.most = guard.most.max(guard.read.len() as u64 - guard.consumed);
        changed.notify_all();
        if index == 0 {
            drop(changed.wait_while(guard, |under_way| (under_way.read.len() as u64) < bound).unwrap());
        }
    });
    let mut order = Vec::new();
    let result: std::io::Result<()> = store_all(&source, threads, &PackOptions::default(), |event| {
        if let Event::Chunk(run) = event {
            state.0.lock().unwrap().consumed += run.samples.len() as u64;
            order.extend(run.first..run.first + run.samples.len() as u64);
        }
        Ok(())
    });
    result.unwrap();
    assert_eq!(order, (0..500).collect::<Vec<u64>>());
    assert_eq!(state.0.lock().unwrap().most, bound);
}

/// Returns the command that runs one test of this program in another process.
fn child(test: &str, out: &PathBuf) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads", "1"]).env(CHILD_OUT, out);
    command
}

#[test]
fn sigkill_leaves_no_file_under_the_final_name() {
    if let Ok(out) = env::var(CHILD_OUT) {
        pack_until_killed(out.into());
    }
    for name in ["out.ddlp", PIECES] {
        let bench = Bench::new(1, 1);
        let out = bench.path(name);
        let mut command = child("pack::tests::faults::sigkill_leaves_no_file_under_the_final_name", &out);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("half way")), "the child packs");
        process.kill().unwrap();
        process.wait().unwrap();
        // Nothing is left if files without a name exist; otherwise the next process takes over what is left.
        let names = bench.names();
        assert!(names.iter().all(|left| left == "source" || *left == format!(".{name}.partial")), "{names:?}");
        quietly(&Pixels::new(10), &out, &options_for(&out)).unwrap();
        assert_eq!(bench.names(), [name, "source"]);
        assert_eq!(Pack::open(&out).unwrap().scan_groups().is_some(), name == PIECES);
    }
}

/// Name of a pack of pieces.
const PIECES: &str = "pcr.ddlp";

/// Returns options for the pack that has this path.
fn options_for(out: &Path) -> PackOptions {
    let form = if out.ends_with(PIECES) { StoredForm::Pcr } else { StoredForm::Kept };
    PackOptions { format: PackFormat::of(form), bundle_samples: 300, ..PackOptions::default() }
}

/// Packs, prints a line when samples have been written, and waits to be killed.
fn pack_until_killed(out: PathBuf) -> ! {
    let result = pack(&Pixels::new(100_000), &out, &options_for(&out), &mut |progress| {
        if progress.samples > 1000 {
            println!("half way");
            std::io::stdout().flush().unwrap();
            // Nobody writes to the pipe: reading ends with this process or with its parent.
            let _ = std::io::stdin().read(&mut [0]);
            std::process::exit(1);
        }
        ControlFlow::Continue(())
    });
    panic!("packing ended: {result:?}");
}

#[test]
fn memory_that_is_refused_for_what_is_packed_makes_the_sample_unavailable() {
    if env::var(CHILD_OUT).is_ok() {
        store_without_memory();
    }
    let test = "pack::tests::faults::memory_that_is_refused_for_what_is_packed_makes_the_sample_unavailable";
    let output = child(test, &PathBuf::new()).output().unwrap();
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    assert!(output.status.success() && said.contains("was refused twice"), "{said}");
}

/// Stores a sample after enough bytes that the run reaches its limit on memory: once at the detail of an indexed
/// sample, whose file still fits, and once at the bytes that align a raw sample.
fn store_without_memory() -> ! {
    const BEFORE: usize = 1 << 30;
    let bench = Bench::new(1, 1);
    let source = bench.source();
    let store = |format, out: &mut Vec<u8>| {
        let options = PackOptions { format, ..PackOptions::default() };
        Storing::new(&options, false).store((&source, 0), &mut Vec::new(), &mut |_| {}, out)
    };
    let mut alone = Vec::new();
    let stored = store(PackFormat::default(), &mut alone).expect("there is memory");
    assert!(stored.record.detail_length > 0);
    let mut out = vec![0; BEFORE + 1];
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let taken = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.strip_suffix("kB")).unwrap();
    let limit = taken.trim().parse::<u64>().unwrap() * 1024 + (BEFORE / 2) as u64;
    setrlimit(Resource::RLIMIT_AS, limit, limit).unwrap();
    for (format, spare) in [(PackFormat::default(), stored.record.length), (PackFormat::of(StoredForm::Raw), 0)] {
        out.truncate(BEFORE + 1 - spare as usize);
        let refused = store(format, &mut out).err();
        assert!(matches!(refused, Some(Fault::Unavailable(Unavailable::NoMemory { .. }))), "{refused:?}");
        out.resize(BEFORE + 1, 0);
    }
    println!("it was refused twice");
    std::process::exit(0);
}

#[test]
fn a_full_disk_says_how_far_it_came_and_leaves_nothing() {
    if let Ok(out) = env::var(CHILD_OUT) {
        fill_the_disk(out.into());
    }
    let bench = Bench::new(1, 1);
    let test = "pack::tests::faults::a_full_disk_says_how_far_it_came_and_leaves_nothing";
    let output = child(test, &bench.path("out.ddlp")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("refused: no space for"), "{said}");
    assert_eq!(bench.names(), ["source"]);
}

/// Packs with a limit on file size of a third of the samples. The limit stands in for a full disk: beyond it, writing
/// fails in the same place.
fn fill_the_disk(out: PathBuf) -> ! {
    let source = Pixels::new(1000);
    quietly(&source, &out, &PackOptions::default()).unwrap();
    let data_offset = Pack::open(&out).unwrap().layout().data_offset;
    std::fs::remove_file(&out).unwrap();
    SigSet::from(Signal::SIGXFSZ).thread_block().unwrap();
    setrlimit(Resource::RLIMIT_FSIZE, data_offset + 1000, data_offset + 1000).unwrap();
    let error = quietly(&source, &out, &PackOptions::default()).unwrap_err();
    // Runs have 256 samples of 3 bytes.
    let PackError::Full { samples, samples_total, written, needed, .. } = &error else { panic!("{error:?}") };
    assert_eq!((*samples, *samples_total), (256, 1000));
    assert_eq!((*written, *needed), (data_offset + 768, Some(data_offset + 3000)));
    println!("refused: {error}");
    std::process::exit(0);
}
