//! Packing, reading, verifying.

mod making;

use super::{PackError, PackOptions, PackSummary, pack};
use crate::Dataset;
use crate::folder::Folder;
use crate::samples::write_folder;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// A directory with an image folder in `source` and room for packs.
pub(super) struct Bench {
    pub(super) directory: tempfile::TempDir,
}

impl Bench {
    pub(super) fn new(classes: u32, each: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        write_folder(&directory.path().join("source"), classes, each);
        Self { directory }
    }

    pub(super) fn source(&self) -> Folder {
        Folder::open(&self.directory.path().join("source")).unwrap()
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// What lies in the directory.
    pub(super) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path()).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

pub(super) fn quietly(source: &dyn Dataset, out: &Path, options: &PackOptions) -> Result<PackSummary, PackError> {
    pack(source, out, options, &mut |_| ControlFlow::Continue(()))
}
