//! Writing outputs: files as a whole or not at all; standard output without an error when its reader has gone.
//!
//! [`Files`] decides before the work whether a file may be written at all; [`partial`] replaces a file as a whole.

mod files;
mod partial;

pub use files::Files;
#[cfg(test)]
pub use files::tests::assert_complete;

use crate::text;
use anyhow::{Context, bail};
use serde::Serialize;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Name that means standard output.
pub const STDOUT: &str = "-";

/// Writes `bytes` under the name `path` ("-": to standard output). A regular file appears whole or not at all, and
/// keeps the permissions of the file that it replaces; a device or a pipe is written to as it is.
pub fn write(path: &Path, bytes: &[u8], what: &str) -> anyhow::Result<()> {
    let place = || format!("cannot write {what} to {}", path.display());
    if path.as_os_str() == STDOUT {
        return print_bytes(bytes).with_context(place);
    }
    match fs::metadata(path) {
        Ok(there) if !there.is_file() => fs::write(path, bytes).with_context(place),
        _ => write_file(path, bytes).with_context(place),
    }
}

/// Prints a line about the file that was written to `path`. Prints nothing if `path` is standard output, a device or a
/// pipe.
pub fn say_written(path: &Path, what: &str) -> anyhow::Result<()> {
    if is_file(path) { print(&format!("{}: {what}\n", path.display())) } else { Ok(()) }
}

/// Returns whether an output to `path` is a regular file, which is replaced each time.
pub fn is_file(path: &Path) -> bool {
    path.as_os_str() != STDOUT && fs::metadata(path).map_or(true, |there| there.is_file())
}

fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // A link is kept, and its target replaced.
    let path = ddlp_dataset::destination(path)?;
    partial::write(&path, bytes, fs::metadata(&path).ok().map(|replaced| replaced.permissions()))
}

/// Returns the folder of a file.
pub fn folder(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Fails if `path` cannot be written later, since that should be known before a long run.
pub fn check_writable(path: &Path, what: &str) -> anyhow::Result<()> {
    if path.as_os_str() == STDOUT {
        return Ok(());
    }
    if path.is_dir() {
        bail!("{what} cannot go to {}: it is a folder, name a file in it", path.display());
    }
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return Ok(());
    }
    ddlp_dataset::destination(path)
        .and_then(|path| tempfile::tempfile_in(folder(&path)))
        .map(drop)
        .with_context(|| format!("{what} cannot go to {}: its folder is missing or not writable", path.display()))
}

/// Breaks the lines of a text at the right edge of the terminal, if standard output is one.
pub fn fitted(text: &str) -> String {
    let terminal = console::Term::stdout();
    if terminal.is_term() { text::wrapped(text, terminal.size().1.into()) } else { text.to_string() }
}

/// Prints to standard output. A reader that has gone (`| head`) is not an error.
pub fn print(text: &str) -> anyhow::Result<()> {
    print_bytes(text.as_bytes()).context("cannot write to standard output")
}

/// Prints a summary as [`print()`] does, or to standard error if the JSON report goes to standard output (`json`).
pub fn print_beside(json: Option<&Path>, summary: &str) -> anyhow::Result<()> {
    if json.is_some_and(|path| path.as_os_str() == STDOUT) {
        eprint!("{summary}");
        return Ok(());
    }
    print(summary)
}

/// Prints a summary, and then writes the figures to `json`, so that a report that cannot be written loses no summary.
pub fn report(summary: &str, json: Option<&Path>, figures: &impl Serialize) -> anyhow::Result<()> {
    print_beside(json, summary)?;
    json.map_or(Ok(()), |path| write(path, &serde_json::to_vec_pretty(figures)?, "the JSON report"))
}

fn print_bytes(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_replaced_whole_and_leaves_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.json");
        write(&path, b"first", "the report").unwrap();
        write(&path, b"second", "the report").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_missing_folder_is_found_before_the_work() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("no/such/out.json");
        let error = check_writable(&path, "the JSON report").unwrap_err().to_string();
        assert!(error.contains("the JSON report") && error.contains("no/such/out.json"), "{error}");
        assert!(check_writable(folder.path(), "the JSON report").is_err());
        assert!(check_writable(&folder.path().join("out.json"), "the JSON report").is_ok());
        assert!(write(&path, b"", "the JSON report").is_err());
    }

    #[test]
    fn devices_are_written_to_and_not_replaced() {
        let device = Path::new("/dev/null");
        write(device, b"text", "the report").unwrap();
        assert!(!fs::metadata(device).unwrap().is_file());
        assert!(check_writable(device, "the report").is_ok());
    }

    #[test]
    fn a_link_keeps_pointing_where_it_did() {
        let folder = tempfile::tempdir().unwrap();
        let (link, target) = (folder.path().join("link"), folder.path().join("target"));
        fs::write(&target, b"old").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        write(&link, b"new", "the report").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        fs::remove_file(&target).unwrap();
        write(&link, b"made", "the report").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"made");
    }

    #[test]
    fn a_replaced_file_keeps_its_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.json");
        fs::write(&path, b"old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o606)).unwrap();
        write(&path, b"new", "the report").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o606);
    }
}
