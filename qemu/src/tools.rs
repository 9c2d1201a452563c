//! Programs of this machine: where they are, and running them to their end.

use anyhow::{Context, Result, bail, ensure};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// Longest run of a program, in seconds: one that fetches packages, or builds everything.
const PROGRAM_PATIENCE: &str = "3600";

/// Finds a program in the PATH, or in Debian's folders for programs of root.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Finds a program, or fails with the package to install.
pub fn need(name: &str, package: &str) -> Result<PathBuf> {
    find(name).with_context(|| format!("{name} is not here: install Debian's package {package}"))
}

/// Runs a program to its end. If it fails, the error contains its output.
pub fn said(command: &Command) -> Result<Output> {
    said_to(command, Stdio::null())
}

/// Does the same with `input` as the program's standard input.
pub fn said_to(command: &Command, input: Stdio) -> Result<Output> {
    let program = command.get_program().to_string_lossy().into_owned();
    // The program has a limit of time, since a mirror may be silent, and is killed with this process.
    let mut limited = Command::new(need("setpriv", "util-linux")?);
    limited
        .args(["--pdeathsig", "TERM", "timeout", "--foreground", "--kill-after=10", PROGRAM_PATIENCE])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs().filter_map(|(name, value)| Some((name, value?))) {
        limited.env(name, value);
    }
    if let Some(folder) = command.get_current_dir() {
        limited.current_dir(folder);
    }
    let output = limited.stdin(input).output().with_context(|| format!("cannot run {program}"))?;
    ensure!(output.status.code() != Some(124), "{program} did not end within {PROGRAM_PATIENCE} s");
    if !output.status.success() {
        bail!("{program} failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_program_is_named_with_what_it_said() {
        let error = said(Command::new("sh").args(["-c", "echo broken >&2; exit 3"])).unwrap_err().to_string();
        assert!(error.contains("sh failed") && error.contains("broken"), "{error}");
    }
}
