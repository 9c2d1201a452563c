//! No output destroys an input or another output, by whatever name, and files are replaced whole.

use crate::{json, names, photos, refuse, run, succeed};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

const RUN: &str = "--drive none --batch 8 --quiet";

/// Returns every file below a folder with its bytes; follows links.
fn content(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for name in names(folder) {
        let path = folder.join(&name);
        if path.is_dir() {
            found.extend(content(&path).into_iter().map(|(below, bytes)| (format!("{name}/{below}"), bytes)));
        } else {
            found.push((name, fs::read(&path).unwrap_or_default()));
        }
    }
    found
}

#[test]
fn no_output_of_a_run_may_be_one_of_its_inputs() {
    let home = photos(0);
    let folder = home.path();
    succeed(folder, "pack photos p.ddlp --quiet");
    succeed(folder, &format!("run p.ddlp {RUN} --stop-after 1 --state-out at.json"));
    succeed(folder, &format!("run p.ddlp {RUN} --plan-out o.plan"));
    fs::write(folder.join("p.toml"), "operations = [{ random_resized_crop = { size = 32 } }]").unwrap();
    fs::write(folder.join("labels.txt"), "1\n").unwrap();
    fs::write(folder.join("table.csv"), "name,label\n").unwrap();
    symlink("table.csv", folder.join("to-table")).unwrap();
    fs::create_dir_all(folder.join("shards")).unwrap();
    fs::write(folder.join("shards/0.tar"), "a shard").unwrap();
    let truth = "ILSVRC2012_validation_ground_truth.txt";
    for name in [truth, "meta.mat"] {
        fs::write(folder.join(name), "").unwrap();
    }
    symlink("p.ddlp", folder.join("link.ddlp")).unwrap();
    fs::hard_link(folder.join("p.ddlp"), folder.join("hard.ddlp")).unwrap();
    symlink("photos/class_000/000000.jpg", folder.join("image")).unwrap();
    symlink(folder.join("photos"), folder.join("album")).unwrap();
    let before = content(folder);
    let agent = folder.join("agent");
    fs::write(&agent, "a program").unwrap();
    let rest = [
        ("p.ddlp", "", "p.ddlp"),
        ("p.ddlp", "", "link.ddlp"),
        ("link.ddlp", "", "p.ddlp"),
        ("p.ddlp", "", "hard.ddlp"),
        ("p.ddlp", "", "./photos/../p.ddlp"),
        ("photos", "", "photos/class_000/000000.jpg"),
        ("photos", "", "image"),
        ("album", "", "photos/class_001/000001.jpg"),
        ("photos", "", "album/class_001/new.jpg"),
        ("photos", "", "photos/new.tar"),
        ("photos", "--pipeline p.toml", "p.toml"),
        ("photos", "--fields labels.txt", "labels.txt"),
        ("photos", "--fields table.csv", "to-table"),
        ("p.ddlp", "--fields to-table", "table.csv"),
        ("p.ddlp", "--fields shards", "shards/0.tar"),
        ("p.ddlp", &format!("--fields {truth}"), "meta.mat"),
        ("p.ddlp", "--resume at.json", "at.json"),
        ("p.ddlp", "--plan-in o.plan", "o.plan"),
    ];
    for (dataset, options, output) in rest {
        for option in ["--json", "--report", "--state-out", "--plan-out", "--results"] {
            if (option, output) == ("--state-out", "at.json") {
                continue;
            }
            let place = if option == "--results" { folder.join(output).display().to_string() } else { output.into() };
            let run = if option == "--results" { "--batch 8 --quiet" } else { RUN };
            let line = format!("run {dataset} {run} {options} {option} {place}");
            let message = refuse(folder, &line);
            assert!(message.contains(option) && message.contains(output.trim_start_matches("./")), "{line}: {message}");
        }
    }
    let message = refuse(folder, "run p.ddlp --batch 8 --quiet --agent ./agent --json agent");
    assert!(message.contains("the agent"), "{message}");
    fs::remove_file(agent).unwrap();
    assert!(content(folder) == before, "nothing was touched: {:?}", names(folder));
}

#[test]
fn outputs_are_told_apart_before_anything_runs() {
    let home = photos(0);
    let folder = home.path();
    symlink("o.json", folder.join("link")).unwrap();
    fs::write(folder.join("one"), "old").unwrap();
    fs::hard_link(folder.join("one"), folder.join("two")).unwrap();
    for (one, other) in [("o.json", "o.json"), ("o.json", "./o.json"), ("link", "o.json"), ("one", "two")] {
        let message = refuse(folder, &format!("run photos {RUN} --json {one} --state-out {other}"));
        assert!(message.contains("--state-out and --json are the same file"), "{message}");
    }
    assert_eq!(names(folder), ["link", "one", "photos", "two"]);
    assert_eq!(fs::read(folder.join("one")).unwrap(), b"old");
}

#[test]
fn harmless_outputs_are_written() {
    let home = photos(0);
    let folder = home.path();
    succeed(folder, &format!("run photos {RUN} --stop-after 1 --state-out at.json"));
    let line = format!("run photos {RUN} --resume at.json --state-out at.json --json photos/o.json --report /dev/null");
    succeed(folder, &format!("{line} --plan-out /dev/null"));
    assert_eq!(json(&fs::read_to_string(folder.join("at.json")).unwrap())["epoch"], 1);
    assert_eq!(json(&fs::read_to_string(folder.join("photos/o.json")).unwrap())["images"], 16);
    assert_eq!(json(&succeed(folder, &format!("run photos {RUN} --json -")))["images"], 24);
}

#[test]
fn a_file_is_replaced_whole_with_its_permissions_and_a_link_stays_one() {
    let home = photos(0);
    let folder = home.path();
    fs::create_dir(folder.join("there")).unwrap();
    fs::write(folder.join("there/o.json"), "old").unwrap();
    fs::set_permissions(folder.join("there/o.json"), Permissions::from_mode(0o640)).unwrap();
    symlink("there/o.json", folder.join("o.json")).unwrap();
    symlink("there/new.json", folder.join("at.json")).unwrap();
    succeed(folder, &format!("run photos {RUN} --json o.json --state-out at.json"));
    assert!(["o.json", "at.json"].iter().all(|link| fs::symlink_metadata(folder.join(link)).unwrap().is_symlink()));
    assert_eq!(names(&folder.join("there")), ["new.json", "o.json"]);
    let mode = fs::metadata(folder.join("there/o.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
}

#[test]
fn a_pack_and_a_measurement_do_not_overwrite_what_they_read() {
    let home = photos(0);
    let folder = home.path();
    succeed(folder, "pack photos p.ddlp --quiet");
    fs::hard_link(folder.join("p.ddlp"), folder.join("same.ddlp")).unwrap();
    fs::write(folder.join("p.toml"), "operations = [{ random_resized_crop = { size = 32 } }]").unwrap();
    let before = content(folder);
    for line in [
        "pack photos photos/class_000/000000.jpg --force",
        "pack photos photos/class_000/all.ddlp",
        "pack p.ddlp p.ddlp --force --jpeg kept",
        "pack p.ddlp same.ddlp --force",
        "bench dual p.ddlp --json p.ddlp",
        "bench dual photos --json photos/class_000/000000.jpg",
    ] {
        let output = run(folder, line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        let message = crate::stderr(&output);
        assert!(message.contains("belongs to the dataset"), "{line}: {message}");
    }
    let message = refuse(folder, "bench dual p.ddlp --pipeline p.toml --json p.toml");
    assert!(message.contains("read as --pipeline"), "{message}");
    assert!(content(folder) == before);
}

#[test]
fn a_run_and_a_measurement_do_not_overwrite_the_program_that_makes_them() {
    let home = photos(0);
    let program = home.path().join("program");
    fs::copy(env!("CARGO_BIN_EXE_ddlp"), &program).unwrap();
    for line in ["run photos --drive none --batch 8 --quiet --json program", "bench dual photos --json program"] {
        let output = Command::new(&program).args(line.split_whitespace()).current_dir(home.path()).output().unwrap();
        let message = crate::stderr(&output);
        assert!(output.status.code() == Some(2) && message.contains("read as this program"), "{line}: {message}");
    }
    assert!(fs::read(&program).unwrap() == fs::read(env!("CARGO_BIN_EXE_ddlp")).unwrap());
}
