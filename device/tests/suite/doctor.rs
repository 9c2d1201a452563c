//! The doctor of the real program: its output and its exit status.

use crate::host::images::folder;
use std::io::Write;
use std::net::TcpListener;
use std::process::{Command, Stdio};

fn dataset() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    folder(root.path(), 8, &[]);
    root
}

/// Writes a configuration file with this text.
fn config(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn doctor(arguments: &[&str]) -> (Option<i32>, String) {
    let output = doctor_command(&tempfile::tempdir().unwrap()).args(arguments).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

/// Makes the command of a doctor that looks for the agent's identity in this folder by default.
fn doctor_command(state: &tempfile::TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ddlp-device"));
    command.arg("doctor").env("XDG_STATE_HOME", state.path());
    command
}

#[test]
fn a_doctor_says_what_to_expect_and_what_is_wrong() {
    let dataset = dataset();
    let path = dataset.path().to_str().unwrap();
    let (code, said) = doctor(&["--dataset", path, "--json"]);
    assert_eq!(code, Some(0), "{said}");
    let found: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&found["can_serve"], &found["rate"]["unprepared"]), (&true.into(), &0.into()));
    assert!(found["rate"]["images_per_s"].as_f64() > Some(0.0), "{said}");
    assert!(said.contains("8 samples in 2 classes"), "{said}");
    let (code, said) = doctor(&["--dataset", "/nonexistent/train.ddlp"]);
    assert_eq!(code, Some(1));
    let line = said.lines().find(|line| line.contains("/nonexistent/train.ddlp")).unwrap();
    assert!(line.starts_with("dataset  FAILURE"), "{said}");
    assert!(said.contains("cannot serve: 1 failure above"), "{said}");
}

#[test]
fn a_doctor_fails_where_the_agent_would() {
    let (dataset, taken) = (dataset(), TcpListener::bind("127.0.0.1:0").unwrap());
    let port = taken.local_addr().unwrap().port();
    let text = format!("listen = \"127.0.0.1:0\"\nstate = \"/proc/nope/identity\"\ndiscovery = {port}");
    let config = config(&text);
    let arguments = ["--config", config.path().to_str().unwrap(), "--dataset", dataset.path().to_str().unwrap()];
    let (code, said) = doctor(&arguments);
    assert_eq!(code, Some(1), "{said}");
    for failure in ["identity FAILURE  the user ", "FAILURE  cannot listen at 127.0.0.1:", "2 failures above"] {
        assert!(said.contains(failure), "no {failure:?} in\n{said}");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_ddlp-device")).arg("serve").args(arguments).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot make or enter /proc/nope/identity") && said.contains("--state DIR"), "{said}");
}

#[test]
fn a_doctor_does_not_claim_that_a_wrong_configuration_names_no_dataset() {
    let config = config("dataset = \"/data/train.ddlp\"\nsurprise = 1");
    let (code, said) = doctor(&["--config", config.path().to_str().unwrap()]);
    assert_eq!(code, Some(1));
    assert!(said.contains("surprise") && said.contains("not checked, because the settings are wrong"), "{said}");
    assert!(!said.contains("give --dataset or --config"), "{said}");
}

#[test]
fn what_was_not_checked_is_not_ok() {
    let (code, said) = doctor(&[]);
    let line = said.lines().find(|line| line.starts_with("dataset")).unwrap();
    assert!(line.starts_with("dataset  -        not checked"), "{said}");
    assert!(code != Some(0) || said.contains("Nothing that was checked keeps the drive from serving"), "{said}");
}

#[test]
fn a_reader_that_has_gone_does_not_disturb_a_doctor() {
    let state = tempfile::tempdir().unwrap();
    let (read, write) = std::io::pipe().unwrap();
    drop(read);
    let output = doctor_command(&state).stdout(write).stderr(Stdio::piped()).output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap().as_str()), (Some(0), ""));
}
