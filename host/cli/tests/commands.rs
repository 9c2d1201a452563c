//! The command as a person meets it: packs, errors, exit statuses, Ctrl-C. Everything here runs without a drive.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest wait for anything.
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

/// The message of a command that must fail with status 1.
#[track_caller]
fn fail(folder: &Path, line: &str) -> String {
    let output = run(folder, line);
    assert_eq!(output.status.code(), Some(1), "{line}: {}{}", stdout(&output), stderr(&output));
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

/// A folder with `photos/` of 24 images, the last `bad` unreadable.
fn photos(bad: u32) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    succeed(folder.path(), &format!("sample-data photos --images 24 --classes 3 --bad {bad} --quiet"));
    folder
}

#[test]
fn sample_data_is_packed_inspected_and_verified() {
    let home = photos(0);
    let folder = home.path();
    assert_eq!(names(&folder.join("photos")), ["class_000", "class_001", "class_002"]);
    let said = succeed(folder, "pack photos p.ddlp --verify");
    assert!(said.contains("24 samples in 3 classes") && said.contains("read back and checked"), "{said}");
    assert!(succeed(folder, "verify p.ddlp").contains("intact"));

    let whole = json(&succeed(folder, "inspect p.ddlp --json"));
    assert_eq!((&whole["samples"], &whole["pack"]["intact"]), (&24.into(), &24.into()));
    assert_eq!(whole["classes"][2]["name"], "class_002");
    let by_number = json(&succeed(folder, "inspect p.ddlp --json --sample 8"));
    let by_name = json(&succeed(folder, "inspect p.ddlp --json --sample class_001/000001.jpg"));
    assert_eq!(by_number, by_name);
    assert_eq!(by_number["record"]["verdict"], "intact");
    let bytes = fs::read(folder.join("photos/class_001/000001.jpg")).unwrap();
    let (offset, length) = (by_name["offset"].as_u64().unwrap() as usize, by_name["length"].as_u64().unwrap() as usize);
    assert_eq!(fs::read(folder.join("p.ddlp")).unwrap()[offset..offset + length], bytes);
    assert!(succeed(folder, "inspect photos").contains("folder, 24 samples in 3 classes"));
}

#[test]
fn a_changed_byte_is_named_and_shows_in_the_exit_status() {
    let home = photos(0);
    let folder = home.path();
    succeed(folder, "pack photos p.ddlp --quiet");
    let sample = json(&succeed(folder, "inspect p.ddlp --json --sample 5"));
    let mut bytes = fs::read(folder.join("p.ddlp")).unwrap();
    bytes[sample["offset"].as_u64().unwrap() as usize + 100] ^= 4;
    fs::write(folder.join("p.ddlp"), bytes).unwrap();
    let output = run(folder, "verify p.ddlp");
    assert_eq!(output.status.code(), Some(1));
    let (said, name) = (stdout(&output), sample["name"].as_str().unwrap());
    assert!(said.contains(name) && said.contains("1 place broken"), "{said}");
    let quiet = run(folder, "verify p.ddlp --quiet");
    assert_eq!((quiet.status.code(), stdout(&quiet).as_str()), (Some(1), ""));
}

#[test]
fn bad_images_are_named_by_pack_and_inspect() {
    let home = photos(4);
    let said = succeed(home.path(), "pack photos p.ddlp");
    let rejected = said.lines().filter(|line| line.starts_with("rejected")).count();
    let repaired = said.lines().filter(|line| line.starts_with("repaired")).count();
    assert_eq!(rejected + repaired, 4, "{said}");
    let whole = json(&succeed(home.path(), "inspect p.ddlp --json"));
    assert_eq!(whole["pack"]["listed"].as_array().unwrap().len(), 4);
}

/// The first numbers of the lines that say how samples were stored.
fn stored(said: &str) -> u64 {
    let lines = said.lines().filter(|line| line.starts_with("  ") && !line.contains("of them shrunk"));
    lines.map(|line| line.split_whitespace().next().unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn every_sample_is_in_one_line_of_the_summary() {
    let home = photos(6);
    for options in ["", "--jpeg kept", "--format raw", "--format raw --max-side 64"] {
        let said = succeed(home.path(), &format!("pack photos p.ddlp --force {options}"));
        let rejected = said.lines().filter(|line| line.starts_with("rejected")).count();
        assert!(rejected > 0 && said.contains(&format!("{rejected}  rejected: ")), "{said}");
        assert_eq!(stored(&said), 24, "{options}: {said}");
    }
}

#[test]
fn options_that_do_not_apply_are_named() {
    let home = photos(0);
    let folder = home.path();
    fs::create_dir(folder.join("cifar")).unwrap();
    fs::write(folder.join("cifar/data_batch_1.bin"), [5; 20 * 3073]).unwrap();
    for options in ["--format raw --max-side 16", "--jpeg kept"] {
        let said = succeed(folder, &format!("pack cifar c.ddlp --force {options}"));
        assert!(said.contains("20  as planes: ") && said.contains("Planes of RGB stay as they are: "), "{said}");
        assert_eq!(stored(&said), 20, "{said}");
    }
    let said = succeed(folder, "pack cifar c.ddlp --force");
    assert!(said.contains("20  as planes: ") && !said.contains("do not apply"), "{said}");

    let said = succeed(folder, "pack photos raw.ddlp --format raw --max-side 64");
    assert!(!said.contains("do not apply"), "{said}");
    let said = succeed(folder, "pack raw.ddlp again.ddlp --jpeg kept");
    assert!(said.contains("24  uncompressed: ") && said.contains("Pixels of the source stay pixels: "), "{said}");
    assert!(!said.contains("of them shrunk"), "that was done before: {said}");
    let said = succeed(folder, "pack raw.ddlp again.ddlp --force --format raw --max-side 32");
    assert!(said.contains("24  of them shrunk: ") && !said.contains("do not apply"), "{said}");
}

/// Changes a byte of a pack.
fn damage(path: &Path, at: u64) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at as usize] ^= 4;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_damaged_sample_is_shown_as_such() {
    let home = photos(0);
    let folder = home.path();
    for (options, what) in [("--jpeg kept", "checksum"), ("", "checkpoints"), ("--format raw", "checksum")] {
        succeed(folder, &format!("pack photos p.ddlp --force --quiet {options}"));
        let sample = || json(&succeed(folder, "inspect p.ddlp --sample 5 --json"));
        let sound = sample();
        assert_eq!(sound["problem"], Value::Null, "{options}");
        let within = |key: &str| sound[key].as_u64().unwrap();
        // Of an indexed sample the checkpoints, which lie behind its bytes.
        let at = if what == "checkpoints" { within("offset") + within("length") + 1 } else { within("offset") + 40 };
        damage(&folder.join("p.ddlp"), at);
        let problem = sample()["problem"].to_string();
        assert!(problem.contains(what) && problem.contains(sound["name"].as_str().unwrap()), "{options}: {problem}");
        assert!(succeed(folder, "inspect p.ddlp --sample 5").contains("problem"), "{options}");
        assert!(!succeed(folder, "inspect p.ddlp --sample 6").contains("problem"), "{options}");
    }
}

#[test]
fn a_repaired_sample_is_said_to_be_rewritten() {
    let home = photos(0);
    let folder = home.path();
    let path = folder.join("photos/class_001/000001.jpg");
    let mut bytes = fs::read(&path).unwrap();
    // A decoder passes over bytes between two markers with a warning.
    let scan = bytes.windows(2).position(|two| two == [0xff, 0xda]).unwrap();
    bytes.splice(scan..scan, [0; 4]);
    fs::write(&path, bytes).unwrap();
    let said = succeed(folder, "pack photos p.ddlp");
    assert!(said.contains("repaired  class_001/000001.jpg"), "{said}");
    let said = succeed(folder, "inspect p.ddlp");
    assert!(said.contains("1 whole, 23 indexed") && said.contains("1 repaired"), "{said}");
    let said = succeed(folder, "inspect p.ddlp --sample class_001/000001.jpg");
    assert!(said.contains("kept") && said.contains("repaired when it was packed"), "{said}");
    let was_repaired = |sample| {
        json(&succeed(folder, &format!("inspect p.ddlp --json --sample {sample}")))["record"]["was_repaired"].clone()
    };
    assert_eq!((was_repaired("class_001/000001.jpg"), was_repaired("0")), (true.into(), false.into()));
    let said = succeed(folder, "inspect p.ddlp --sample 0");
    assert!(said.contains("indexed") && said.contains("of checkpoints") && !said.contains("when it was"), "{said}");
}

#[test]
fn the_form_of_samples_is_chosen_and_said() {
    let home = photos(0);
    let folder = home.path();
    let said = succeed(folder, "pack photos p.ddlp");
    assert!(said.contains("23  indexed: ") && said.contains("1  rewritten into one scan and indexed: "), "{said}");
    let said = succeed(folder, "pack photos p.ddlp --jpeg kept --force");
    assert!(!said.contains("indexed"), "{said}");
    assert!(succeed(folder, "inspect p.ddlp").contains("24 whole, 0 indexed"));
    let said = succeed(folder, "pack photos p.ddlp --format raw --max-side 64 --force --verify");
    assert!(said.contains("24  uncompressed: ") && said.contains("24  of them shrunk: "), "{said}");
    let sample = json(&succeed(folder, "inspect p.ddlp --json --sample 3"));
    let sides = ["width", "height"].map(|side| sample["record"][side].as_u64().unwrap());
    assert_eq!((sides[0].max(sides[1]), &sample["record"]["form"]), (64, &"raw".into()));
    let said = succeed(folder, "inspect p.ddlp --sample 3");
    assert!(said.contains("shrunk when it was packed"), "{said}");
    let message = fail(folder, "pack photos p.ddlp --force --max-side 64");
    assert!(message.contains("--format raw"), "{message}");
    let message = fail(folder, "pack photos p.ddlp --force --format raw --jpeg kept");
    assert!(message.contains("--jpeg"), "{message}");
}

#[test]
fn a_pack_is_not_overwritten_unasked() {
    let home = photos(0);
    let folder = home.path();
    fs::write(folder.join("p.ddlp"), "mine").unwrap();
    let message = fail(folder, "pack photos p.ddlp");
    assert!(message.contains("p.ddlp exists") && message.contains("--force"), "{message}");
    assert_eq!(fs::read(folder.join("p.ddlp")).unwrap(), b"mine");
    succeed(folder, "pack photos p.ddlp --force --quiet");
    assert_eq!(names(folder), ["p.ddlp", "photos"]);
    std::os::unix::fs::symlink("p.ddlp", folder.join("link.ddlp")).unwrap();
    let message = fail(folder, "pack photos link.ddlp --force");
    assert!(message.contains("link.ddlp is a symbolic link, which is not overwritten"), "{message}");
    assert!(folder.join("link.ddlp").is_symlink());
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_like_a_full_disk() {
    let home = photos(0);
    let program = env!("CARGO_BIN_EXE_ddlp");
    let line = format!("ulimit -f 200; exec {program} pack photos p.ddlp --format raw --quiet");
    let mut shell = Command::new("sh");
    let output = shell.args(["-c", &line]).current_dir(home.path()).stdin(Stdio::null()).output().unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{}: {message}", output.status);
    assert!(message.contains("no space for p.ddlp after") && message.contains("of 24 samples"), "{message}");
    assert_eq!(names(home.path()), ["photos"]);
}

#[test]
fn a_run_without_a_drive_writes_what_was_asked_for() {
    let home = photos(0);
    let folder = home.path();
    succeed(folder, "pack photos p.ddlp --quiet");
    let said = succeed(
        folder,
        "run p.ddlp --drive none --batch 10 --epochs 2 --digest --json o.json --report o.html --plan-out o.plan --state-out o.state",
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
fn a_resumed_run_needs_no_options_and_a_finished_one_says_so() {
    let home = photos(0);
    let folder = home.path();
    let first =
        "run photos --strategy cpu --batch 5 --epochs 2 --seed 3 --stop-after 7 --state-out at.json --quiet --json -";
    assert_eq!(json(&succeed(folder, first))["batches"], 7);
    let rest = "run photos --resume at.json --state-out end.json --quiet --json -";
    let rest = json(&succeed(folder, rest));
    assert_eq!((&rest["batches"], &rest["strategy"], &rest["seed"]), (&3.into(), &"cpu".into(), &3.into()));
    let message = fail(folder, "run photos --resume end.json");
    assert!(message.contains("this run was finished: 2 of 2 epochs; --epochs 3 goes on"), "{message}");
    let third = json(&succeed(folder, "run photos --resume end.json --epochs 3 --quiet --json -"));
    assert_eq!((&third["batches"], &third["images"]), (&5.into(), &24.into()));
    let message = fail(folder, "run photos --resume at.json --batch 6");
    assert!(message.contains("batch size 5, this run has 6"), "{message}");
    succeed(folder, "pack photos p.ddlp --quiet");
    let message = fail(folder, "run p.ddlp --resume at.json");
    assert!(message.contains("loader state was taken with dataset") && message.contains("same form"), "{message}");
}

#[test]
fn a_run_without_an_image_is_an_error() {
    let home = photos(24);
    let folder = home.path();
    let message = fail(folder, "pack photos p.ddlp");
    assert!(message.contains("not one of its 24 samples"), "{message}");
    assert_eq!(names(folder), ["photos"]);
    let message = fail(folder, "run photos --strategy cpu --policy skip --quiet");
    assert!(message.contains("not one image was delivered") && message.contains("24 corrupt samples"), "{message}");
}

#[test]
fn a_report_is_named_only_when_it_is_there() {
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
fn errors_say_what_and_where() {
    let home = photos(0);
    let folder = home.path();
    fs::write(folder.join("junk.ddlp"), "no pack").unwrap();
    fs::write(folder.join("text.txt"), "no dataset").unwrap();
    fs::write(folder.join("p.toml"), "[[stages]]\nresize = { size = 256 }\n").unwrap();
    for (line, expected) in [
        ("run missing.ddlp", "missing.ddlp"),
        ("run junk.ddlp", "junk.ddlp"),
        ("run text.txt", ".ddlp"),
        ("run photos --pipeline imagenet", "imagenet-train"),
        ("run photos --pipeline p.toml", "p.toml"),
        ("run photos --pipeline missing.toml", "missing.toml"),
        ("run photos --strategy cpu --drive local", "--drive"),
        ("run photos --strategy csd --drive none", "--drive none"),
        ("run photos --drive none --json no/such/o.json", "no/such/o.json"),
        ("run photos --drive none --resume text.txt", "--state-out"),
        ("run photos --drive none --plan-in text.txt", "--plan-out"),
        ("run photos --drive none --rank 2 --world-size 2", "rank"),
        ("run photos --drive none --cores 1023", "1023"),
        ("pack missing p.ddlp", "missing"),
        ("pack photos no/such/p.ddlp", "no/such/p.ddlp"),
        ("inspect missing.ddlp", "missing.ddlp"),
        ("inspect photos --sample 24", "24"),
        ("inspect photos --sample nobody.jpg", "nobody.jpg"),
        ("verify missing.ddlp", "missing.ddlp"),
        ("verify photos", "ddlp pack"),
        ("verify junk.ddlp", "is no pack"),
        ("run photos --drive tcp://127.0.0.1:1/nqn.x --slots 4", "--slots"),
        ("run photos --drive tcp://127.0.0.1:1/nqn.x --drive tcp://127.0.0.1:1/nqn.x", "twice"),
        ("sample-data photos", "photos"),
        ("sample-data more --images 2 --bad 3", "3"),
        ("bench dual missing.ddlp", "missing.ddlp"),
        ("run photos --pipeline /dev/zero", "it has more than"),
        ("run photos --plan-in /dev/zero", "it has more than"),
        ("run photos --resume /dev/zero", "it has more than"),
    ] {
        let message = fail(folder, line);
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
        ("run x --step-ms -3", "is possible"),
        ("run x --drive-timeout -1", "is possible"),
        ("bench dual x --samples -1", "-1"),
        ("run x --drive tcp://nohost.invalid:4420/x", "NQN"),
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

/// A process that is gone when the test is, however it ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn start(folder: &Path, line: &str) -> Self {
        let child = ddlp(folder).args(line.split_whitespace()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        Self(child.expect("ddlp starts"))
    }

    fn press_ctrl_c(&self) {
        kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGINT).expect("the process is there");
    }

    /// Its exit status; the wait is bounded.
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
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn ctrl_c_in_a_run_writes_what_there_is() {
    let home = photos(0);
    let mut running = Running::start(
        home.path(),
        "run photos --strategy cpu --batch 4 --step-ms 3600000 --json o.json --state-out o.state",
    );
    let mut lines = BufReader::new(running.0.stderr.take().expect("piped")).lines();
    let line = lines.next().expect("a line of progress").expect("text");
    assert!(line.contains("1 of 6 batches delivered"), "{line}");
    running.press_ctrl_c();
    assert_eq!(running.status(), Some(130));
    let figures = json(&fs::read_to_string(home.path().join("o.json")).unwrap());
    assert_eq!((&figures["batches"], &figures["ended_early"]), (&1.into(), &"Ctrl-C or another signal".into()));
    let rest = json(&succeed(home.path(), "run photos --strategy cpu --batch 4 --resume o.state --quiet --json -"));
    assert_eq!(rest["batches"], 5);
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
fn ctrl_c_while_packing_leaves_nothing() {
    let home = photos(0);
    let folder = home.path();
    // Many names for the same images: enough work to be interrupted.
    for copy in 0..400 {
        let class = folder.join(format!("photos/copy_{copy:03}"));
        fs::create_dir(&class).unwrap();
        for name in names(&folder.join("photos/class_000")) {
            fs::hard_link(folder.join("photos/class_000").join(&name), class.join(name)).unwrap();
        }
    }
    let mut running = Running::start(folder, "pack photos p.ddlp --threads 1");
    // The handler is in place before the first sample is read, and a read sample moves the position of some file.
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

#[test]
fn drives_that_cannot_be_meant_are_refused_before_anything_happens() {
    let home = tempfile::tempdir().expect("a folder");
    assert!(fail(home.path(), "connect 10.0.0.7:4420x").contains("looks like tcp://"));
    assert!(fail(home.path(), "connect --list tcp://10.0.0.7:4420/nqn.x").contains("leave the NQN out"));
    assert!(fail(home.path(), "connect tcp://10.0.0.7:0/nqn.x").contains("port"));
    assert!(fail(home.path(), "connect 10.0.0.7 --nqn nqn.x --ctrl-loss 1").contains("--fast-io-fail"));
    assert!(fail(home.path(), "disconnect /dev/nvme999999").contains("there is no drive /dev/nvme999999"));
}
