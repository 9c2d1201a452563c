//! Packs: made, inspected, verified; the text about them, and what is refused.

use crate::{fail, json, names, photos, refuse, run, stderr, stdout, succeed};
use ddlp_pixels::encode::{JpegOptions, jpeg};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

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
fn given_classes_number_those_of_a_list_in_runs_packs_and_inspections() {
    let home = photos(0);
    let folder = home.path();
    let images =
        ["class_002/000002.jpg,class_002", "class_000/000000.jpg,class_000"].map(|line| format!("photos/{line}\n"));
    fs::write(folder.join("val.csv"), format!("path,label\n{}", images.concat())).unwrap();
    fs::write(folder.join("all.txt"), "\u{feff}class_000\r\nclass_001\r\nclass_002\r\n").unwrap();
    let label =
        |dataset: &str| json(&succeed(folder, &format!("inspect {dataset} --json --sample 0")))["label"].clone();
    assert_eq!((label("val.csv"), label("val.csv --classes all.txt")), (1.into(), 2.into()));
    succeed(folder, "pack val.csv val.ddlp --classes all.txt --quiet");
    assert_eq!(label("val.ddlp"), 2);
    let counts = &json(&succeed(folder, "inspect val.ddlp --json"))["classes"];
    assert_eq!((&counts[1]["name"], &counts[1]["samples"]), (&"class_001".into(), &0.into()));
    fs::write(folder.join("other.txt"), "class_002\nclass_000\nclass_001\n").unwrap();
    let counts = &json(&succeed(folder, "inspect val.ddlp --json --classes other.txt"))["classes"];
    assert_eq!((&counts[0]["name"], &counts[0]["samples"]), (&"class_002".into(), &1.into()));
    assert_eq!(counts[2]["samples"], 0);

    let run = "run val.csv --drive none --batch 1 --quiet";
    succeed(folder, &format!("{run} --classes all.txt --stop-after 1 --state-out at.json"));
    let said = refuse(folder, "run val.csv --drive none --quiet --resume at.json --classes other.txt");
    assert!(said.contains("had --classes class_000, class_001, class_002"), "{said}");
    // The state has the names.
    succeed(folder, "run val.csv --drive none --quiet --resume at.json");
    succeed(folder, &format!("{run} --stop-after 1 --state-out own.json"));
    let said = fail(folder, "run val.csv --drive none --quiet --resume own.json --classes all.txt");
    assert!(said.contains("classes the dataset's own, this run has class_000 = 0"), "{said}");

    fs::write(folder.join("few.txt"), "class_000\n").unwrap();
    for line in [&format!("{run} --classes few.txt")[..], "inspect val.csv --classes few.txt"] {
        let output = super::run(folder, line);
        let said = stderr(&output);
        assert!(!output.status.success() && said.contains("--classes") && said.contains("such as class_002"), "{said}");
    }
    let said = refuse(folder, "pack val.csv all.txt --classes all.txt --force");
    assert!(said.contains("which is read as --classes"), "{said}");
}

#[test]
fn kind_and_classes_decide_how_a_dataset_opens() {
    let home = photos(0);
    let folder = home.path();
    fs::write(folder.join("photos/0.tar"), [0; 1024]).unwrap();
    for command in ["inspect photos", "run photos --drive none", "pack photos p.ddlp", "show photos --out s.html"] {
        let said = fail(folder, command);
        assert!(said.contains("say by --kind which one it is (tar or folder)"), "{command}: {said}");
        let said = fail(folder, &format!("{command} --kind tar"));
        assert!(said.contains("photos holds no samples"), "{command}: {said}");
        assert!(refuse(folder, &format!("{command} --kind zip")).contains("folder, list, tar"), "{command}");
        succeed(folder, &format!("{command} --kind folder"));
    }
    succeed(folder, "run photos --kind folder --strategy csd --quiet");

    let images = ["class_002/000002.jpg,cat", "class_000/000000.jpg,7"].map(|line| format!("photos/{line}\n"));
    fs::write(folder.join("val.csv"), format!("path,label\n{}", images.concat())).unwrap();
    fs::write(folder.join("all.txt"), "dog\ncat\n7\n").unwrap();
    let commands = ["inspect val.csv", "run val.csv --quiet", "pack val.csv v.ddlp", "show val.csv --out v.html"];
    for command in commands {
        let said = fail(folder, command);
        assert!(said.contains("or name all classes (--classes)"), "{command}: {said}");
        succeed(folder, &format!("{command} --classes all.txt"));
    }
    assert_eq!(json(&succeed(folder, "inspect v.ddlp --json --sample 1"))["label"], 2);
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
    assert!(said.contains(name) && said.contains("1 place damaged"), "{said}");
    let quiet = run(folder, "verify p.ddlp --quiet");
    assert_eq!((quiet.status.code(), stdout(&quiet).as_str()), (Some(1), ""));
    let said = fail(folder, "run p.ddlp --drive none --quiet");
    assert!(
        said.contains("wrong checksum") && said.contains("`ddlp verify`") && said.contains("intact copy"),
        "{said}"
    );
}

#[test]
fn commands_that_read_files_say_so_when_they_are_given_a_drive() {
    let home = tempfile::tempdir().unwrap();
    for command in ["verify tcp://h:1/nqn.x", "verify /dev/nvme0", "pack /dev/nvme0 p.ddlp"] {
        let said = refuse(home.path(), command);
        assert!(said.contains("is a drive") && said.contains("where the pack lies"), "{command}: {said}");
    }
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

#[test]
fn a_run_that_will_fail_at_a_rejected_sample_says_so_at_the_start() {
    let home = photos(6);
    let said = succeed(home.path(), "pack photos p.ddlp");
    let rejected = said.lines().filter(|line| line.starts_with("rejected")).count();
    let note = format!("note: {rejected} samples were rejected when the dataset was packed: ");
    let failed = stderr(&run(home.path(), "run p.ddlp --drive none --batch-size 4"));
    assert!(failed.starts_with(&note) && failed.contains("unless --policy is skip or replace"), "{failed}");
    for quiet in ["--policy skip --max-corrupt 100%", "--quiet"] {
        let said = stderr(&run(home.path(), &format!("run p.ddlp --drive none --batch-size 4 {quiet}")));
        assert!(!said.contains("when the dataset was packed"), "{said}");
    }
}

/// Returns a JPEG of a depth that cannot be decoded.
pub fn twelve_bit() -> Vec<u8> {
    let mut bytes = jpeg(&[128; 16 * 16 * 3], 16, 16, &JpegOptions::default()).unwrap();
    let frame = bytes.windows(2).position(|two| two == [0xff, 0xc0]).unwrap();
    bytes[frame + 4] = 12;
    bytes
}

/// Adds up the first numbers of the lines that say how samples were stored.
fn stored(said: &str) -> u64 {
    let is_tally = |line: &&str| !line.contains("of them shrunk") && !line.contains("index and padding");
    let lines = said.lines().filter(|line| line.starts_with("  ")).filter(is_tally);
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
        assert!(said.contains("20  planar: ") && said.contains("Planes of RGB stay as they are: "), "{said}");
        assert_eq!(stored(&said), 20, "{said}");
    }
    let said = succeed(folder, "pack cifar c.ddlp --force");
    assert!(said.contains("20  planar: ") && !said.contains("do not apply"), "{said}");

    let said = succeed(folder, "pack photos raw.ddlp --format raw --max-side 64");
    assert!(!said.contains("do not apply"), "{said}");
    let said = succeed(folder, "pack raw.ddlp again.ddlp --jpeg kept");
    assert!(said.contains("24  raw: ") && said.contains("Pixels of the source stay pixels: "), "{said}");
    assert!(!said.contains("of them shrunk"), "that was done before: {said}");
    let said = succeed(folder, "pack raw.ddlp again.ddlp --force --format raw --max-side 32");
    assert!(said.contains("24  of them shrunk: ") && !said.contains("do not apply"), "{said}");
}

#[test]
fn options_that_do_not_fit_together_are_a_wrong_command_line() {
    let home = photos(0);
    for options in ["--max-side 9", "--format raw --jpeg kept", "--format raw --max-side 70000"] {
        let output = run(home.path(), &format!("pack photos p.ddlp {options}"));
        assert_eq!(output.status.code(), Some(2), "{options}");
    }
}

#[test]
fn the_lines_of_the_summary_explain_the_whole() {
    let home = photos(0);
    let said = succeed(home.path(), "pack photos p.ddlp --jpeg kept");
    let times = |line: &str| -> f64 {
        let (before, _) = line.split_once(" × the source's bytes").unwrap_or_else(|| panic!("{line}"));
        before.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let of = |what: &str| times(said.lines().find(|line| line.contains(what)).unwrap());
    assert_eq!(of("  kept: "), 1.0, "{said}");
    // Each figure is rounded to a thousandth.
    assert!((of("p.ddlp: ") - of("  kept: ") - of("  index and padding: ")).abs() < 0.002, "{said}");
}

#[test]
fn a_source_that_has_no_image_is_refused_with_a_reason() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    fs::create_dir_all(folder.join("deep/a")).unwrap();
    fs::write(folder.join("deep/a/scan.tif"), b"II*\0\x08\0\0\0").unwrap();
    for name in ["twelve.jpg", "twenty.jpg"] {
        fs::write(folder.join("deep/a").join(name), twelve_bit()).unwrap();
    }
    let message = fail(folder, "pack deep p.ddlp");
    assert!(
        message.contains("none of its 3 samples") && message.contains("scan.tif: the file ends before its image does"),
        "{message}"
    );
    fs::remove_file(folder.join("deep/a/scan.tif")).unwrap();
    let message = fail(folder, "pack deep p.ddlp");
    assert!(message.contains("twelve.jpg: unsupported: 12 bits per component"), "{message}");
    assert_eq!(names(folder), ["deep"]);
}

#[test]
fn unreadable_images_are_named_and_no_pack_is_made() {
    let home = photos(1);
    let before = names(home.path());
    for number in 0..25 {
        std::os::unix::fs::symlink("nowhere", home.path().join(format!("photos/class_000/z{number:02}.jpg"))).unwrap();
    }
    let refused = |line: &str| {
        let output = run(home.path(), line);
        assert_eq!(output.status.code(), Some(1), "{line}");
        stderr(&output)
    };
    let said = refused("pack photos p.ddlp --quiet");
    assert!(said.contains("25 of ") && said.contains("samples cannot be read"), "{said}");
    assert!(said.contains("(--allow-unreadable packs the others)"), "{said}");
    assert_eq!(said.lines().filter(|line| line.starts_with("unreadable class_000/z")).count(), 20, "{said}");
    assert!(said.contains("… and 5 more (--all names them)"), "{said}");
    assert_eq!(names(home.path()), before, "nothing is left");
    let said = refused("pack photos p.ddlp --strict --all");
    assert_eq!(said.lines().filter(|line| line.starts_with("unreadable class_000/z")).count(), 25, "{said}");
    let said = succeed(home.path(), "pack photos p.ddlp --allow-unreadable --all");
    assert_eq!(said.lines().filter(|line| line.starts_with("unreadable class_000/z")).count(), 25, "{said}");
    assert_eq!(run(home.path(), "pack photos q.ddlp --allow-unreadable --strict").status.code(), Some(2));
}

#[test]
fn files_that_are_left_out_are_listed_when_asked() {
    let home = photos(0);
    let folder = home.path();
    fs::write(folder.join("photos/notes.txt"), "").unwrap();
    fs::write(folder.join("photos/class_001/x.raw"), "").unwrap();
    let said = succeed(folder, "pack photos p.ddlp");
    assert!(said.contains("2 files left out") && said.contains("(--all names them)"), "{said}");
    assert!(!said.contains("notes.txt"), "{said}");
    let said = succeed(folder, "pack photos p.ddlp --force --all");
    assert!(said.contains("left out  class_001/x.raw\nleft out  notes.txt\n2 files left out"), "{said}");
    assert!(!said.contains("--all"), "{said}");
}

#[test]
fn verify_waits_for_no_pipe_and_says_what_it_checked() {
    let home = photos(0);
    let folder = home.path();
    mkfifo(&folder.join("pipe"), Mode::S_IRWXU).unwrap();
    let message = fail(folder, "verify pipe");
    assert!(message.contains("pipe is not a regular file"), "{message}");
    succeed(folder, "pack photos p.ddlp --quiet");
    let whole = fs::read(folder.join("p.ddlp")).unwrap();
    fs::write(folder.join("p.ddlp"), &whole[..whole.len() - 4096]).unwrap();
    let output = run(folder, "verify p.ddlp");
    let said = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("it was cut short") && said.contains("its samples were not checked"), "{said}");
    assert!(!said.contains("0 samples"), "{said}");
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
        // An indexed sample's checkpoints lie behind its bytes.
        let at = if what == "checkpoints" { within("offset") + within("length") + 1 } else { within("offset") + 40 };
        damage(&folder.join("p.ddlp"), at);
        let problem = sample()["problem"].to_string();
        assert!(problem.contains(what) && problem.contains(sound["name"].as_str().unwrap()), "{options}: {problem}");
        assert!(succeed(folder, "inspect p.ddlp --sample 5").contains("problem"), "{options}");
        assert!(!succeed(folder, "inspect p.ddlp --sample 6").contains("problem"), "{options}");
    }
}

#[test]
fn a_repaired_sample_is_reported_as_rewritten() {
    let home = photos(0);
    let folder = home.path();
    let path = folder.join("photos/class_001/000001.jpg");
    let mut bytes = fs::read(&path).unwrap();
    // A decoder skips bytes between two markers with a warning.
    let scan = bytes.windows(2).position(|two| two == [0xff, 0xda]).unwrap();
    bytes.splice(scan..scan, [0; 4]);
    fs::write(&path, bytes).unwrap();
    let said = succeed(folder, "pack photos p.ddlp");
    assert!(said.contains("repaired  class_001/000001.jpg"), "{said}");
    let said = succeed(folder, "inspect p.ddlp");
    assert!(said.contains("1 kept, 0 rows, 23 indexed") && said.contains("1 repaired"), "{said}");
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
fn the_form_of_samples_is_chosen_and_reported() {
    let home = photos(0);
    let folder = home.path();
    let said = succeed(folder, "pack photos p.ddlp");
    assert!(said.contains("23  indexed: ") && said.contains("1  rewritten into one scan and indexed: "), "{said}");
    let said = succeed(folder, "pack photos p.ddlp --jpeg kept --force");
    assert!(!said.contains("indexed"), "{said}");
    assert!(succeed(folder, "inspect p.ddlp").contains("24 kept, 0 rows, 0 indexed"));
    let said = succeed(folder, "pack photos p.ddlp --format raw --max-side 64 --force --verify");
    assert!(said.contains("24  raw: ") && said.contains("24  of them shrunk: "), "{said}");
    let sample = json(&succeed(folder, "inspect p.ddlp --json --sample 3"));
    let sides = ["width", "height"].map(|side| sample["record"][side].as_u64().unwrap());
    assert_eq!((sides[0].max(sides[1]), &sample["record"]["form"]), (64, &"raw".into()));
    let said = succeed(folder, "inspect p.ddlp --sample 3");
    assert!(said.contains("shrunk when it was packed"), "{said}");
    let message = refuse(folder, "pack photos p.ddlp --force --max-side 64");
    assert!(message.contains("--format raw"), "{message}");
    let message = refuse(folder, "pack photos p.ddlp --force --format raw --jpeg kept");
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
    assert!(message.contains("link.ddlp is a symbolic link, and only regular files are overwritten"), "{message}");
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
fn inspect_names_the_files_that_are_no_samples() {
    let home = photos(0);
    let folder = home.path();
    fs::write(folder.join("photos/class_000/moving.gif"), "GIF89a").unwrap();
    let said = succeed(folder, "inspect photos");
    assert!(said.contains("1 file: outside the class folders") && said.contains("moving.gif"), "{said}");
    assert!(said.contains(".jpg .jpeg"), "which names count: {said}");
    let figures = json(&succeed(folder, "inspect photos --json"));
    assert_eq!(figures["left_out"], 1);
    succeed(folder, "pack photos p.ddlp --quiet");
    let said = succeed(folder, "inspect p.ddlp");
    assert!(said.contains("the widest has ") && said.contains("the tallest "), "{said}");
}
