//! Programs that run in guests, and the libraries that they need.

use crate::profile_folder;
use crate::tools::said;
use anyhow::{Context, Result, bail, ensure};
use ddlp_test_support::nested::without_package;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Returns the folder of this workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in a workspace").to_path_buf()
}

/// Builds `ddlp`, `ddlp-device` or `ddlp-contract` for this machine, in the profile of the calling program.
pub fn native(name: &str) -> Result<PathBuf> {
    static BUILT: OnceLock<Result<(), String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        eprintln!("building ddlp for this machine");
        let mut cargo = Command::new(cargo());
        without_package(&mut cargo).current_dir(workspace()).args(["build", "--quiet", "--locked", "--bins"]);
        if profile_folder().ends_with("release") {
            cargo.args(["--release", "-p", "ddlp", "-p", "ddlp-device", "-p", "ddlp-tests"]);
        } else {
            // What the workspace's tests have built; other packages would turn on other features of libraries.
            cargo.args(["--workspace", "--tests"]);
        }
        said(cargo.env("CARGO_TARGET_DIR", crate::target_dir())).map(drop).map_err(|error| format!("{error:#}"))
    });
    if let Err(error) = built {
        bail!("the programs cannot be built: {error}");
    }
    Ok(profile_folder().join(name))
}

/// Builds a static program for aarch64 by `scripts/board`, in the profile of the calling program.
pub fn board(name: &str) -> Result<PathBuf> {
    let profile = profile_folder();
    let profile = profile.file_name().expect("a profile has a folder");
    let dev = (profile == "debug").then_some("--dev");
    let made = made_for_boards(&[&["--only", name], dev.as_slice()].concat())?;
    Ok(made.join("aarch64-unknown-linux-gnu").join(profile).join(name))
}

/// Builds the Debian package for boards by `scripts/board`.
pub fn board_package() -> Result<PathBuf> {
    // All crates have the same version.
    let package = made_for_boards(&[])?.join(concat!("ddlp-device_", env!("CARGO_PKG_VERSION"), "_arm64.deb"));
    ensure!(package.is_file(), "scripts/board made no {}", package.display());
    Ok(package)
}

/// Runs `scripts/board` with these arguments, one thread at a time. Returns the folder with its results.
fn made_for_boards(arguments: &[&str]) -> Result<PathBuf> {
    static BUILDING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    eprintln!("building for boards: scripts/board {}", arguments.join(" "));
    let mut script = Command::new(workspace().join("scripts/board"));
    said(without_package(&mut script).args(arguments).env("CARGO_TARGET_DIR", crate::target_dir()))
        .context("the programs for aarch64 cannot be built")?;
    Ok(crate::target_dir().join("board"))
}

fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Returns the libraries of a program, and the loader, as this machine's loader finds them, in `folders` first.
pub fn libraries(program: &Path, folders: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let search = std::env::join_paths(folders).context("a folder's name has a colon")?;
    let output = Command::new("ldd").arg(program).env("LD_LIBRARY_PATH", search).env("LC_ALL", "C").output();
    let output = output.context("cannot run ldd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "ldd {}: {text}", program.display());
    parse_ldd(&text).with_context(|| format!("libraries of {}", program.display()))
}

fn parse_ldd(text: &str) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for line in text.lines().map(str::trim) {
        ensure!(!line.ends_with("not found"), "{line}");
        let path = line.split_once(" => ").map_or(line, |(_, path)| path).split(" (").next().unwrap_or_default();
        if path.starts_with('/') {
            paths.push(PathBuf::from(path));
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ldd_names_libraries_and_the_loader() {
        let text =
            "\tlinux-vdso.so.1 (0x1)\n\tlibm.so.6 => /lib/x/libm.so.6 (0x2)\n\t/lib64/ld-linux-x86-64.so.2 (0x3)\n";
        assert_eq!(parse_ldd(text).unwrap(), [Path::new("/lib/x/libm.so.6"), Path::new("/lib64/ld-linux-x86-64.so.2")]);
        let error = parse_ldd("\tlibnvme.so.1 => not found\n").unwrap_err().to_string();
        assert!(error.contains("libnvme.so.1"), "{error}");
    }
}
