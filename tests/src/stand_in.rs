//! Programs that a loader starts in place of its own agent: the agent under another name, behind a relay, or a script.

use crate::agent::program;
use crate::proxy::{Fate, Pdu, Proxy};
use nix::unistd::Pid;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes the agent available under another name (at most 15 bytes), so that a test finds its process and harms no other
/// test's.
pub fn named(folder: &Path, name: &str) -> PathBuf {
    assert!(name.len() <= 15, "the kernel cuts a longer name");
    let path = folder.join(name);
    match std::os::unix::fs::symlink(program("ddlp-device"), &path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => panic!("a link: {error}"),
        _ => path,
    }
}

/// Returns the newest child of this process that runs under this name.
pub fn process(name: &str) -> Pid {
    let own = std::process::id().to_string();
    let all = std::fs::read_dir("/proc").expect("Linux has /proc").flatten();
    let children = all.filter_map(|entry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let (head, tail) = stat.rsplit_once(')')?;
        let parent = tail.split_whitespace().nth(1)?;
        let id = entry.file_name().to_str()?.parse::<i32>().ok()?;
        (head.ends_with(&format!("({name}")) && parent == own).then_some(id)
    });
    Pid::from_raw(children.max().expect("the loader has started an agent"))
}

/// Writes a shell script.
pub fn script(folder: &Path, name: &str, body: &str) -> PathBuf {
    let path = folder.join(name);
    // Another process writes it: a file that this process, or a fork of it in another test, has open for writing cannot
    // be run.
    let written = Command::new("sh")
        .args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$2\" && chmod +x \"$2\"", "sh", body])
        .arg(&path)
        .status();
    assert!(written.expect("sh runs").success(), "a script at {}", path.display());
    path
}

/// Makes a program that runs the agent behind a relay, which follows a plan, and prints the relay's address in place of
/// the agent's.
pub fn relayed(folder: &Path, name: &str, plan: impl FnMut(&mut Pdu<'_>) -> Fate + Send + 'static) -> PathBuf {
    let ready = folder.join(format!("{name}.ready"));
    let own = ready.clone();
    let address = move || {
        let line = std::fs::read_to_string(&own).expect("an agent is ready before its address is known");
        let line: serde_json::Value = serde_json::from_str(&line).expect("the agent prints JSON");
        line["listen"].as_str().expect("a text").to_string()
    };
    let proxy = Proxy::start_to(address, plan);
    let (agent, ready) = (program("ddlp-device"), ready.display());
    let body = format!(
        "'{}' \"$@\" | while IFS= read -r line; do\n  printf '%s\\n' \"$line\" > '{ready}'\n  \
         printf '%s\\n' \"$line\" | sed 's/127[.]0[.]0[.]1:[0-9]*/{}/'\ndone",
        agent.display(),
        proxy.address()
    );
    script(folder, name, &body)
}
