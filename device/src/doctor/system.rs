//! What the kernel tells of the board, below `/proc` and `/sys`: through a root, so that tests can show another board.

use std::fs;
use std::path::PathBuf;
use std::str::FromStr;

/// The kernel's files.
pub struct System {
    root: PathBuf,
}

impl System {
    /// Those of the running kernel.
    pub fn running() -> Self {
        Self::under("/")
    }

    /// Those in a folder that has a `proc` and a `sys`.
    pub fn under(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where a file of the kernel lies.
    pub fn path(&self, file: &str) -> PathBuf {
        self.root.join(file)
    }

    /// A file's text without the newline at its end; `None` when it cannot be read or is empty.
    pub fn text(&self, file: &str) -> Option<String> {
        let text = fs::read_to_string(self.path(file)).ok()?;
        let text = text.trim_end();
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// A file that holds one value.
    pub fn value<T: FromStr>(&self, file: &str) -> Option<T> {
        self.text(file)?.trim().parse().ok()
    }

    /// Names in a folder, sorted; none when it cannot be read.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(folder)) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }
}

/// A folder that looks like `/`, with these files.
#[cfg(test)]
pub fn board_with(files: &[(&str, &str)]) -> (tempfile::TempDir, System) {
    let root = tempfile::tempdir().unwrap();
    for (file, text) in files {
        let path = root.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let system = System::under(root.path());
    (root, system)
}
