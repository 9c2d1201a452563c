//! The command as a person meets it: packs, errors, exit statuses, Ctrl-C. Everything here runs without a drive.

mod absence;
mod fidelity;
mod l3;
mod outputs;
mod packs;
mod show;
mod split;
mod states;

use ddlp_pixels::encode::{JpegOptions, jpeg};
use ddlp_test_support::signals;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest wait for any event.
const PATIENCE: Duration = Duration::from_secs(60);

fn ddlp(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ddlp"));
    command.current_dir(folder).stdin(Stdio::null()).env_remove("RUST_LOG");
    command
}

fn run(folder: &Path, line: &str) -> Output {
    ddlp(folder).args(line.split_whitespace()).output().expect("ddlp starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

#[track_caller]
fn succeed(folder: &Path, line: &str) -> String {
    let output = run(folder, line);
    assert!(output.status.success(), "{line}: {}\n{}", output.status, stderr(&output));
    stdout(&output)
}

/// Returns the message of a command that must fail with status 1.
#[track_caller]
fn fail(folder: &Path, line: &str) -> String {
    fail_with(folder, line, 1)
}

/// Returns the message of a command whose options are wrong.
#[track_caller]
fn refuse(folder: &Path, line: &str) -> String {
    fail_with(folder, line, 2)
}

#[track_caller]
fn fail_with(folder: &Path, line: &str, status: i32) -> String {
    let output = run(folder, line);
    assert_eq!(output.status.code(), Some(status), "{line}: {}{}", stdout(&output), stderr(&output));
    let message = stderr(&output);
    assert!(message.starts_with("error: "), "{line}: {message}");
    message
}

#[track_caller]
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Makes a folder with `photos/` of 24 images, of which the last `bad` are unreadable.
fn photos(bad: u32) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    succeed(folder.path(), &format!("sample-data photos --images 24 --classes 3 --bad {bad} --quiet"));
    folder
}

#[test]
fn a_run_without_a_drive_writes_the_requested_files() {
    let home = photos(0);
    let folder = home.path();
    succeed(folder, "pack photos p.ddlp --quiet");
    let said = succeed(
        folder,
        "run p.ddlp --drive none --batch 10 --epochs 2 --digest --json o.json --report o.html --plan-out o.plan \
         --state-out o.state",
    );
    assert!(said.contains("48 images in 6 batches") && said.contains("\ndigest "), "{said}");
    let figures = json(&fs::read_to_string(folder.join("o.json")).unwrap());
    assert_eq!((&figures["images"], &figures["batches"]), (&48.into(), &6.into()));
    assert_eq!(figures["ended_early"], Value::Null);
    let page = fs::read_to_string(folder.join("o.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));

    let from_folder =
        json(&succeed(folder, "run photos --strategy cpu --batch 7 --epochs 2 --digest --quiet --json -"));
    assert_eq!(from_folder["digest"], figures["digest"]);
    assert_ne!(from_folder["digest"], Value::Null);
}

#[test]
fn a_stopped_run_goes_on_where_it_stopped() {
    let home = photos(0);
    let folder = home.path();
    let run = "run photos --strategy cpu --batch 5 --threads 1 --quiet --json -";
    let first = json(&succeed(folder, &format!("{run} --stop-after 2 --state-out at.json")));
    assert_eq!((&first["images"], first["ended_early"].is_string()), (&10.into(), true));
    let second = json(&succeed(folder, &format!("{run} --resume at.json")));
    assert_eq!(second["images"], 14);
}

#[test]
fn a_resumed_run_needs_no_options() {
    let home = photos(0);
    let folder = home.path();
    let first =
        "run photos --strategy cpu --batch 5 --epochs 2 --seed 3 --stop-after 7 --state-out at.json --quiet --json -";
    assert_eq!(json(&succeed(folder, first))["batches"], 7);
    let rest = "run photos --resume at.json --state-out end.json --quiet --json -";
    let rest = json(&succeed(folder, rest));
    assert_eq!((&rest["batches"], &rest["strategy"], &rest["seed"]), (&3.into(), &"cpu".into(), &3.into()));
    let message = refuse(folder, "run photos --resume at.json --batch 6");
    assert!(message.contains("had --batch-size 5, but --batch-size 6 is given"), "{message}");
    succeed(folder, "pack photos p.ddlp --quiet");
    let message = fail(folder, "run p.ddlp --resume at.json");
    assert!(
        message.contains("at.json")
            && message.contains("was saved with another dataset")
            && message.contains("same form"),
        "{message}"
    );
}

#[test]
fn a_run_without_an_image_is_an_error() {
    let home = photos(24);
    let folder = home.path();
    let message = fail(folder, "pack photos p.ddlp");
    assert!(message.contains("none of its 24 samples"), "{message}");
    assert_eq!(names(folder), ["photos"]);
    let message = fail(folder, "run photos --strategy cpu --policy skip --max-corrupt 100% --quiet");
    assert!(message.contains("no image was delivered") && message.contains("24 corrupt samples"), "{message}");
}

#[test]
fn a_report_is_named_only_if_it_was_written() {
    let home = photos(0);
    let said = succeed(home.path(), "run photos --strategy cpu --report o.html");
    assert!(said.contains("report") && said.contains("o.html"), "{said}");
    let output = run(home.path(), "run photos --strategy cpu --report /dev/full");
    assert_eq!(output.status.code(), Some(1));
    assert!(!stdout(&output).contains("/dev/full") && stderr(&output).contains("/dev/full"), "{output:?}");
}

#[test]
fn a_corrupt_sample_ends_the_run_or_follows_the_policy() {
    let home = photos(2);
    let message = fail(home.path(), "run photos --strategy cpu --batch 8 --quiet --json o.json");
    assert!(
        message.contains("class_00") && message.contains("the run ended after") && message.contains("--policy skip"),
        "{message}"
    );
    let figures = json(&fs::read_to_string(home.path().join("o.json")).unwrap());
    assert!(figures["ended_early"].as_str().unwrap().contains("class_00"));
    let skipped = json(&succeed(home.path(), "run photos --strategy cpu --batch 8 --policy skip --quiet --json -"));
    assert_eq!(skipped["images"].as_u64().unwrap() + skipped["corrupt"].as_array().unwrap().len() as u64, 24);
}

#[test]
fn a_bad_sample_and_an_impossible_pipeline_give_different_errors() {
    let home = tempfile::tempdir().expect("a folder");
    let folder = home.path();
    fs::create_dir_all(folder.join("one/a")).unwrap();
    let tall = jpeg(&[90; 500 * 3], 1, 500, &JpegOptions::default()).unwrap();
    fs::write(folder.join("one/a/tall.jpg"), tall).unwrap();
    succeed(folder, "pack one raw.ddlp --format raw --quiet");
    for source in ["one", "raw.ddlp"] {
        for policy in ["fail", "skip", "replace"] {
            let line = format!("run {source} --pipeline cifar-train --policy {policy} --drive none --quiet");
            let message = fail(folder, &line);
            let expected = "a crop of 32x32 does not fit into an image of 1x500 pixels with a border of 4: set";
            assert!(message.contains("tall.jpg") && message.contains(expected), "{message}");
            assert!(!message.contains("corrupt samples"), "{message}");
        }
    }
    fs::write(folder.join("one/a/tall.jpg"), packs::twelve_bit()).unwrap();
    let message = fail(folder, "run one --drive none --quiet");
    assert!(
        message.contains("unsupported: 12 bits per component") && message.contains("finds all corrupt samples"),
        "{message}"
    );
}

#[test]
fn errors_say_what_and_where() {
    let home = photos(0);
    let folder = home.path();
    fs::write(folder.join("junk.ddlp"), "no pack").unwrap();
    fs::write(folder.join("text.txt"), "no dataset").unwrap();
    fs::write(folder.join("p.toml"), "[[operations]]\nresize = { size = 256 }\n").unwrap();
    for (line, expected) in [
        ("run missing.ddlp", "missing.ddlp"),
        ("run junk.ddlp", "junk.ddlp"),
        ("run text.txt", ".ddlp"),
        ("run photos --pipeline p.toml", "p.toml"),
        ("run photos --pipeline missing.toml", "missing.toml"),
        ("run photos --drive none --json no/such/o.json", "no/such/o.json"),
        ("run photos --drive none --resume text.txt", "--state-out"),
        ("run photos --drive none --plan-in text.txt", "--plan-out"),
        ("pack missing p.ddlp", "missing"),
        ("pack photos no/such/p.ddlp", "no/such/p.ddlp"),
        ("inspect missing.ddlp", "missing.ddlp"),
        ("inspect photos --sample 24", "24"),
        ("inspect photos --sample nobody.jpg", "nobody.jpg"),
        ("verify missing.ddlp", "missing.ddlp"),
        ("verify photos", "ddlp pack"),
        ("verify junk.ddlp", "is not a pack"),
        ("sample-data photos", "photos"),
        ("run photos --results no/such/f", "folder is missing"),
        ("bench dual missing.ddlp", "missing.ddlp"),
        ("run photos --pipeline /dev/zero", "it has more than"),
        ("run photos --plan-in /dev/zero", "it has more than"),
        ("run photos --resume /dev/zero", "it has more than"),
    ] {
        let message = fail(folder, line);
        assert!(message.contains(expected), "{line}: {message}");
    }
    for (line, expected) in [
        ("run photos --pipeline imagenet", "imagenet-train"),
        ("run photos --strategy cpu --drive local", "--drive"),
        ("run photos --strategy csd --drive none", "--drive none"),
        ("run photos --drive none --rank 2 --world-size 2", "rank"),
        ("run photos --drive none --cores 1023", "1023"),
        ("run photos --drive tcp://127.0.0.1:1/nqn.x --slots 4", "--slots"),
        ("run photos --drive tcp://127.0.0.1:1/nqn.x --drive tcp://127.0.0.1:1/nqn.x", "twice"),
        ("sample-data more --images 2 --bad 3", "--bad 3"),
        ("run photos --drive none --max-corrupt 5", "--policy"),
        ("run photos --drive none --strategy mte", "--strategy mte"),
        ("run photos --drive none --json - --state-out -", "standard output"),
        ("run /dev/nvme0n1", "/dev/nvmeX"),
        ("verify tcp://127.0.0.1:1/nqn.x", "is a drive"),
        ("bench dual tcp://127.0.0.1:1/nqn.x --slots 4", "--slots"),
    ] {
        let message = refuse(folder, line);
        assert!(message.contains(expected), "{line}: {message}");
    }
}

#[test]
fn a_headspace_is_printed_in_place_of_a_run() {
    let home = photos(0);
    let folder = home.path();
    let line = "run photos --drive none --batch 3 --headspace=0.1 --step-ms 1";
    let said = succeed(folder, &format!("{line} --json h.json"));
    for part in ["with loading", "batches from memory", "gain", "bound", "training waited"] {
        assert!(said.contains(part), "{said}");
    }
    assert!(!said.contains('`') || said.contains("`ddlp pack`"), "options are flags: {said}");
    let figures = json(&fs::read_to_string(folder.join("h.json")).unwrap());
    assert!(figures["steps"].as_u64() >= Some(40) && figures["bound"].is_string(), "{figures}");
    assert!(json(&succeed(folder, &format!("{line} --quiet --json -")))["changes"].is_array());
    for (line, expected) in [
        ("run photos --headspace", "--step-ms"),
        ("run photos --headspace --step-ms 0", "--step-ms above 0"),
        ("run photos --headspace --step-ms 1 --epochs 2", "--epochs"),
        ("run photos --headspace --step-ms 1 --report x.html", "--report"),
        ("run photos --headspace=0 --step-ms 1", "a number of seconds"),
    ] {
        let message = refuse(folder, line);
        assert!(message.contains(expected), "{line}: {message}");
    }
}

#[test]
fn a_wrong_command_line_has_status_2_and_help_has_examples() {
    let folder = tempfile::tempdir().unwrap();
    for line in
        ["", "unknown", "run", "run x --strategy fast", "run x --drive usb", "pack x", "run x --batch 0", "bench"]
    {
        assert_eq!(run(folder.path(), line).status.code(), Some(2), "{line}");
    }
    for (line, expected) in [
        ("run x --batch -1", "1..=65536"),
        ("run x --step-ms -3", "expected a number of milliseconds from 0 to"),
        ("run x --drive-timeout -1", "expected a number of seconds above 0"),
        ("bench dual x --samples -1", "-1"),
        ("run x --drive tcp://nohost.invalid:4420/x", "NQN"),
        ("run tcp://127.0.0.1:1/", "qualified name"),
    ] {
        let output = run(folder.path(), line);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(message.contains(expected) && !message.contains("-- -"), "{line}: {message}");
    }
    for command in ["pack", "inspect", "verify", "run", "bench dual", "sample-data"] {
        let help = succeed(folder.path(), &format!("{command} --help"));
        assert!(help.contains("Examples:") && help.contains(&format!("ddlp {command}")), "{help}");
    }
}

#[test]
fn completions_and_manuals_know_every_command() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    for shell in ["bash", "zsh", "fish"] {
        let script = succeed(folder, &format!("completions {shell}"));
        assert!(script.contains("sample-data") && script.contains("state-every"), "{shell}");
    }
    succeed(folder, "man here/man1");
    let pages = names(&folder.join("here/man1"));
    for page in ["ddlp.1", "ddlp-run.1", "ddlp-bench-dual.1", "ddlp-sample-data.1"] {
        assert!(pages.contains(&page.to_string()), "{pages:?}");
    }
    let page = fs::read_to_string(folder.join("here/man1/ddlp-run.1")).unwrap();
    assert!(page.contains("143") && page.contains("state\\-every"), "{page}");
    let line = format!("ulimit -f 0; exec {} man there", env!("CARGO_BIN_EXE_ddlp"));
    let output = Command::new("sh").args(["-c", &line]).current_dir(folder).output().expect("sh starts");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert_eq!(names(&folder.join("there")), [""; 0], "no empty page");
}

/// Starts the command as from a program that ignores the end of its children.
#[test]
fn an_agent_that_cannot_be_executed_is_named_although_sigchld_is_ignored() {
    let home = photos(0);
    let line = format!("trap '' CHLD; exec {} run photos --quiet --agent /no/such/agent", env!("CARGO_BIN_EXE_ddlp"));
    let output = Command::new("sh").args(["-c", &line]).current_dir(home.path()).output().expect("sh starts");
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.contains("/no/such/agent cannot be started (") && message.contains("because: No such file"),
        "{message}"
    );
}

#[test]
fn a_log_in_a_file_has_no_colours() {
    let home = photos(0);
    let line = "run photos --quiet --drive tcp://127.0.0.1:1/nqn.2024-01.example:away --drive-optional";
    let output = ddlp(home.path()).args(line.split(' ')).env("RUST_LOG", "trace").output().expect("ddlp starts");
    let log = stderr(&output);
    assert!(log.contains(" WARN ddlp_host") && !log.contains('\u{1b}'), "{log}");
}

/// A process that is killed when the test ends, whatever happens.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn start(folder: &Path, line: &str) -> Self {
        let mut command = ddlp(folder);
        command.args(line.split_whitespace()).stdout(Stdio::null()).stderr(Stdio::piped());
        Self(signals::heed(&mut command).spawn().expect("ddlp starts"))
    }

    fn press_ctrl_c(&self) {
        self.press(Signal::SIGINT);
    }

    fn press(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().cast_signed()), signal).expect("the process is there");
    }

    /// Returns the lines of the process's standard error.
    fn lines(&mut self) -> Lines<BufReader<ChildStderr>> {
        BufReader::new(self.0.stderr.take().expect("piped")).lines()
    }

    /// Returns the exit status; the wait is bounded.
    fn status(&mut self) -> Option<i32> {
        let status = wait_for("the end of the process", || self.0.try_wait().expect("a child"));
        status.code()
    }
}

#[track_caller]
fn wait_for<T>(what: &str, mut event: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = event() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited too long for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn ctrl_c_in_a_run_writes_the_files_of_the_batches_so_far() {
    let home = photos(0);
    let mut running = Running::start(
        home.path(),
        "run photos --strategy cpu --batch 4 --step-ms 3600000 --json o.json --state-out o.state",
    );
    let mut lines = running.lines();
    let line = lines.next().expect("a line of progress").expect("text");
    assert!(line.contains("1 of 6 batches delivered"), "{line}");
    running.press_ctrl_c();
    assert_eq!(running.status(), Some(130));
    let figures = json(&fs::read_to_string(home.path().join("o.json")).unwrap());
    assert_eq!((&figures["batches"], &figures["ended_early"]), (&1.into(), &"Ctrl-C".into()));
    let rest = json(&succeed(home.path(), "run photos --strategy cpu --batch 4 --resume o.state --quiet --json -"));
    assert_eq!(rest["batches"], 5);
}

#[test]
fn a_bench_that_is_killed_leaves_no_run_behind() {
    let home = photos(0);
    // The first run is one of the CPU alone: the agent is looked for, and not yet started.
    let agent = env!("CARGO_BIN_EXE_ddlp");
    let mut bench =
        Running::start(home.path(), &format!("bench dual photos --samples 10000000 --batch 4096 --agent {agent}"));
    let mut said = bench.lines();
    assert!(said.by_ref().any(|line| line.is_ok_and(|line| line.contains("measuring"))), "no run starts");
    let children = format!("/proc/{0}/task/{0}/children", bench.0.id());
    let run = wait_for("a run", || fs::read_to_string(&children).ok()?.split_whitespace().next()?.parse().ok());
    bench.press(Signal::SIGKILL);
    assert_eq!(bench.status(), None);
    // Standard error ends with the last process that has it.
    let (ended, end) = mpsc::channel();
    thread::spawn(move || {
        said.for_each(drop);
        ended.send(())
    });
    if end.recv_timeout(PATIENCE).is_err() {
        let _ = kill(Pid::from_raw(run), Signal::SIGKILL);
        panic!("the run goes on");
    }
}

#[test]
fn ctrl_c_while_making_sample_data_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let mut running = Running::start(home.path(), "sample-data photos --images 1000000");
    wait_for("the first files", || (!names(home.path()).is_empty()).then_some(()));
    running.press_ctrl_c();
    assert_eq!(running.status(), Some(130));
    assert_eq!(names(home.path()), Vec::<String>::new());
    let mut said = String::new();
    running.0.stderr.take().expect("piped").read_to_string(&mut said).unwrap();
    assert!(said.contains("nothing is left behind"), "{said}");
}

#[test]
fn sample_data_that_is_killed_leaves_nothing_for_long() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    for (signal, status, left) in [(Signal::SIGTERM, Some(143), &[][..]), (Signal::SIGKILL, None, &[".photos.partial"])]
    {
        let mut running = Running::start(folder, "sample-data photos --images 1000000 --quiet");
        wait_for("the first files", || folder.join(".photos.partial/class_000/000000.jpg").exists().then_some(()));
        running.press(signal);
        assert_eq!(running.status(), status);
        assert_eq!(names(folder), left);
    }
    succeed(folder, "sample-data photos --images 6 --classes 2 --quiet");
    assert_eq!(names(folder), ["photos"]);
    assert_eq!(names(&folder.join("photos")), ["class_000", "class_001"]);
}

#[test]
fn ctrl_c_while_packing_leaves_nothing() {
    let home = photos(0);
    let folder = home.path();
    // Many names for the same images make enough work to be interrupted.
    for copy in 0..400 {
        let class = folder.join(format!("photos/copy_{copy:03}"));
        fs::create_dir(&class).unwrap();
        for name in names(&folder.join("photos/class_000")) {
            fs::hard_link(folder.join("photos/class_000").join(&name), class.join(name)).unwrap();
        }
    }
    let mut running = Running::start(folder, "pack photos p.ddlp --threads 1");
    // The handler is installed before the first sample is read, and reading a sample moves the position of a file.
    let opened: PathBuf = format!("/proc/{}/task", running.0.id()).into();
    wait_for("the worker", || fs::read_dir(&opened).is_ok_and(|tasks| tasks.count() >= 3).then_some(()));
    running.press_ctrl_c();
    assert_eq!(running.status(), Some(130));
    assert_eq!(names(folder), ["photos"]);
}

#[test]
fn devices_are_listed_on_any_machine() {
    let home = tempfile::tempdir().expect("a folder");
    let found = json(&succeed(home.path(), "devices --json"));
    assert!(found["drives"].is_array() && found["others"].is_array(), "{found}");
    assert!(!found["kernel"]["release"].as_str().unwrap().is_empty());
    let said = succeed(home.path(), "devices --all");
    assert!(said.contains("DDLP drive") || said.contains("DDLP computational storage"), "{said}");
}
