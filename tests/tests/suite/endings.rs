//! Forced ends of the command: Ctrl-C at any moment, and a full disk. No process, half-written file or temporary file
//! is left.

use ddlp_test_support::signals;
use ddlp_tests::agent::program;
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::wait_until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

/// Returns the processes that have the text in their command line.
fn processes(text: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc").expect("Linux has /proc").flatten();
    all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(text))
        .collect()
}

fn end_of(child: &mut Child) -> ExitStatus {
    wait_until("the end of the command", || child.try_wait().expect("a child").is_some());
    child.wait().expect("a child")
}

/// Starts the command in `folder`, presses Ctrl-C after `delay`, and returns how it ended.
fn interrupted(folder: &Path, line: &str, delay: Duration) -> ExitStatus {
    let mut command = Command::new(program("ddlp"));
    command.args(line.split_whitespace()).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = signals::heed(&mut command).spawn().expect("ddlp starts");
    // The moment of the signal is the fault: any moment of the run, so there is no event to wait for.
    std::thread::sleep(delay);
    // The signal fails only if the command has ended already.
    let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGINT);
    end_of(&mut child)
}

fn assert_was_interrupted(status: ExitStatus, what: &str) {
    // Before the handler is installed, the signal itself ends the command; the command may also have been done.
    let fine = matches!(status.code(), Some(0 | 130)) || status.signal() == Some(Signal::SIGINT as i32);
    assert!(fine, "{what}: {status}");
}

#[test]
fn ctrl_c_at_any_moment_of_a_run_leaves_whole_files_and_no_process() {
    let photos = Photos::new(60);
    let pack = photos.pack();
    let seed = 7;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for round in 0..16 {
        let folder = tempfile::tempdir().expect("a folder");
        let line = format!(
            "run {} --batch 8 --epochs 100000 --threads 1 --drive-threads 1 --digest --json o.json --report o.html \
             --plan-out o.plan --state-out o.state",
            pack.display()
        );
        let delay = Duration::from_micros(u64::from(rng.next_u32() % 700_000));
        let what = format!("seed {seed}, round {round}, Ctrl-C after {delay:?}");
        assert_was_interrupted(interrupted(folder.path(), &line, delay), &what);
        let dataset = pack.display().to_string();
        wait_until("the agent's end", || processes(&dataset).is_empty());
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect("a file of text");
        for name in names(folder.path()) {
            let is_whole = match name.as_str() {
                "o.json" | "o.state" => serde_json::from_str::<serde_json::Value>(&read(&name)).is_ok(),
                "o.html" => read(&name).trim_end().ends_with("</html>"),
                "o.plan" => std::fs::read(folder.path().join(&name))
                    .is_ok_and(|bytes| ddlp_host::Plan::from_bytes(&bytes).is_ok_and(|plan| plan.batches == 8)),
                _ => false,
            };
            assert!(is_whole, "{what}: {name}");
        }
    }
}

#[test]
fn ctrl_c_at_any_moment_of_packing_leaves_the_old_pack_or_a_whole_new_one() {
    let photos = Photos::new(300);
    let folder = tempfile::tempdir().expect("a folder");
    let seed = 8;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let line = format!("pack {} p.ddlp --force", photos.folder().display());
    std::fs::write(folder.path().join("p.ddlp"), "an older file").expect("a file");
    for round in 0..16 {
        let delay = Duration::from_micros(u64::from(rng.next_u32() % 300_000));
        let what = format!("seed {seed}, round {round}, Ctrl-C after {delay:?}");
        assert_was_interrupted(interrupted(folder.path(), &line, delay), &what);
        assert_eq!(names(folder.path()), ["p.ddlp"], "{what}");
        let path = folder.path().join("p.ddlp");
        if std::fs::read(&path).expect("a file") != b"an older file" {
            let verified = Command::new(program("ddlp")).arg("verify").arg(&path).output().expect("ddlp starts");
            assert!(verified.status.success(), "{what}: {}", String::from_utf8_lossy(&verified.stderr));
        }
    }
}

/// Runs a shell script with a file system of 1 MiB at `full`; returns `None` where that is not allowed.
fn with_small_disk(folder: &Path, script: &str) -> Option<(i32, String)> {
    let mount = "mkdir -p full && mount -t tmpfs -o size=1m tmpfs full";
    let unshare = |script: &str| {
        let mut shell = Command::new("unshare");
        shell.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]).current_dir(folder).output()
    };
    if !unshare(mount).is_ok_and(|output| output.status.success()) {
        // Not written by eprintln!, whose output the test harness hides when a test passes.
        let _ = writeln!(std::io::stderr(), "not tested: a full disk, as unshare --user --mount is not allowed");
        return None;
    }
    let output = unshare(&format!("{mount} && {{ {script}; }}")).expect("it worked a moment ago");
    let said = [output.stdout, output.stderr].concat();
    Some((output.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned()))
}

#[test]
fn a_full_disk_ends_a_pack_with_a_message_and_nothing_is_left() {
    let photos = Photos::with_sizes(40, |_| (400, 300));
    let script = format!(
        "{} pack {} full/p.ddlp; status=$?; echo \"left: $(ls -A full)\"; exit $status",
        program("ddlp").display(),
        photos.folder().display()
    );
    let Some((status, said)) = with_small_disk(photos.scratch(), &script) else { return };
    assert_eq!(status, 1, "{said}");
    assert!(said.contains("no space for full/p.ddlp") && said.contains("left: \n"), "{said}");
}

#[test]
fn a_full_disk_ends_a_run_with_a_message_and_no_half_report() {
    let photos = Photos::new(60);
    let script = format!(
        "head -c 1048576 /dev/zero > full/zeros; \
         {} run {} --strategy cpu --batch 8 --json full/o.json --report full/o.html; \
         status=$?; rm full/zeros; echo \"left: $(ls -A full)\"; exit $status",
        program("ddlp").display(),
        photos.pack().display()
    );
    let Some((status, said)) = with_small_disk(photos.scratch(), &script) else { return };
    assert_eq!(status, 1, "{said}");
    assert!(said.contains("No space left on device") && said.contains("left: \n"), "{said}");
}

#[test]
fn a_file_of_results_is_gone_after_the_run_and_a_foreign_file_is_left_alone() {
    let photos = Photos::new(40);
    let run = |results: &Path| {
        let mut run = Command::new(program("ddlp"));
        run.arg("run").arg(photos.pack()).args(["--batch", "8", "--strategy", "csd", "--results"]).arg(results);
        run.output().expect("ddlp starts")
    };
    let results = photos.scratch().join("results");
    let output = run(&results);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!results.exists());
    let precious = photos.scratch().join("precious");
    std::fs::write(&precious, [0; 5000]).expect("a file");
    let output = run(&precious);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("does not hold result slots"), "{said}");
    assert_eq!(std::fs::read(&precious).expect("a file"), [0; 5000]);
}
