//! Writing a file as a whole: a crash, a full disk or a limit leaves the old file, the new one or none, never half a
//! file.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Writes `bytes` to a file beside `path`, with these permissions less the umask, and then gives it that name.
pub fn file(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let fresh = fresh(path)?;
    let write = || {
        let mut file = File::options().create(true).truncate(true).write(true).mode(mode).open(&fresh)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&fresh, path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&fresh)))
}

/// Returns the path of the file until it is complete: `.NAME.partial`, as `ddlp` calls such files too.
fn fresh(path: &Path) -> io::Result<PathBuf> {
    let mut name = OsString::from(".");
    name.push(path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
    name.push(".partial");
    Ok(path.with_file_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_replaced_whole_or_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.toml");
        file(&path, b"old", 0o600).unwrap();
        file(&path, b"new", 0o600).unwrap();
        assert_eq!(
            (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().permissions().mode() & 0o777),
            (b"new".to_vec(), 0o600)
        );
        let taken = folder.path().join("folder");
        fs::create_dir(&taken).unwrap();
        assert!(file(&taken, b"new", 0o600).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
