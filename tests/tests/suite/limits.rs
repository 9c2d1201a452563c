//! Limits on address space (`ulimit -v`): whatever the limit, a program does its work or says why it cannot.

use ddlp_tests::agent::program;
use ddlp_tests::photos::Photos;
use std::path::Path;
use std::process::{Command, Output};

const SAMPLES: u32 = 96;

/// Runs a program with a limit on its address space.
fn within(megabytes: u64, name: &str, args: &[&str]) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -c 0; ulimit -v \"$0\"; exec \"$@\""]).arg((megabytes * 1000).to_string());
    shell.arg(program(name)).args(args).output().expect("a shell")
}

/// Checks that a program succeeded, or that it or the system's loader of programs, whose status is 127, ended with a
/// message about memory. Returns whether the program succeeded.
fn is_done(megabytes: u64, args: &[&str]) -> bool {
    let output = within(megabytes, "ddlp", args);
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => true,
        Some(1 | 127) => {
            let is_said = ["ulimit -v", "shared libraries"].iter().any(|reason| said.contains(reason));
            assert!(is_said, "{megabytes} MB, {args:?}: {said}");
            false
        }
        _ => panic!("{megabytes} MB, {args:?}: {}, {said}", output.status),
    }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

#[test]
fn programs_do_their_work_or_say_that_memory_is_limited() {
    let photos = Photos::new(SAMPLES);
    let (pack, folder, out) = (photos.pack(), photos.folder(), photos.scratch().join("out.ddlp"));
    let run = ["run", path(&pack), "--batch", "16", "--quiet"];
    let commands = [
        [&run[..], &["--drive", "none", "--threads", "6"]].concat(),
        [&run[..], &["--strategy", "mte", "--threads", "3", "--drive-threads", "3"]].concat(),
        [&run[..], &["--strategy", "csd", "--results", "read"]].concat(),
        vec!["pack", path(&folder), path(&out), "--force", "--threads", "6"],
        vec!["verify", path(&pack), "--threads", "6"],
        vec!["inspect", path(&pack)],
    ];
    for command in &commands {
        // A program that is larger than the limit, as one for debugging may be at 20 MB, the kernel ends by a signal.
        for megabytes in [40, 70, 100, 150, 250, 400] {
            is_done(megabytes, command);
        }
        assert!(is_done(1000, command), "{command:?} within 1000 MB");
    }
}

#[test]
fn an_agent_says_that_memory_is_limited() {
    let photos = Photos::new(SAMPLES);
    let output = within(
        200,
        "ddlp-device",
        &["serve", "--dataset", path(&photos.pack()), "--listen", "127.0.0.1:0", "--ephemeral", "--slots", "1000"],
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("MB are needed") && said.contains("ulimit -v"), "{said}");
}
