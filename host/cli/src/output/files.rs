//! The files of a command: none that it writes may be one that it reads, or another one that it writes.

use super::STDOUT;
use crate::wrong::wrong;
use anyhow::Context;
use ddlp_dataset::{Dataset, destination};
use ddlp_host::remote_address;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Files that a command reads and writes, each with the option that names it. `assert_complete`, which a test of each
/// command calls, finds options that are missing.
#[derive(Default)]
pub struct Files<'a> {
    outputs: Vec<(&'static str, &'a Path)>,
    inputs: Vec<(&'static str, PathBuf)>,
}

impl<'a> Files<'a> {
    /// Adds a file that is written.
    pub fn writes(mut self, option: &'static str, path: Option<&'a Path>) -> Self {
        self.outputs.extend(path.map(|path| (option, path)));
        self
    }

    /// Adds files that are read.
    pub fn reads(mut self, what: &'static str, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        self.inputs.extend(paths.into_iter().map(|path| (what, path)));
        self
    }

    /// Fails if a file to be written is also read, belongs to the dataset, or is written by another option. Only the
    /// state of a resumed run may replace the state from which that run resumes.
    pub fn check(&self, dataset: &dyn Dataset, root: &Path) -> anyhow::Result<()> {
        let mut printed = self.outputs.iter().filter(|(_, path)| path.as_os_str() == STDOUT);
        if let (Some((one, _)), Some((other, _))) = (printed.next(), printed.next()) {
            wrong!("{other} and {one} both go to standard output (-): name a file for one of them");
        }
        let mut written = Vec::<(&str, FilePlace)>::new();
        for &(option, path) in &self.outputs {
            let shown = path.display();
            let place = FilePlace::of(path)
                .with_context(|| format!("{option} cannot go to {shown}: its folder is missing or not readable"))?;
            let Some(place) = place else { continue };
            if let Some((other, _)) = written.iter().find(|(_, other)| other.is(&place)) {
                wrong!("{option} and {other} are the same file, {shown}: name two files");
            }
            for (what, input) in &self.inputs {
                let is_the_same = FilePlace::of(input).ok().flatten().is_some_and(|input| input.is(&place));
                if is_the_same && (option, *what) != ("--state-out", "--resume") {
                    wrong!("{option} would overwrite {shown}, which is read as {what}: name another file");
                }
            }
            let root_shown = root.display();
            // No file of this machine belongs to a dataset that lies elsewhere.
            if remote_address(root).is_some() {
                written.push((option, place));
                continue;
            }
            if ddlp_dataset::is_input(dataset, root, &place.path)
                .with_context(|| format!("cannot examine dataset {root_shown}"))?
            {
                wrong!("{option} would write to {shown}, which belongs to the dataset {root_shown}: name another file");
            }
            written.push((option, place));
        }
        Ok(())
    }
}

/// A regular file, or the place for one.
struct FilePlace {
    /// Path without symbolic links.
    path: PathBuf,
    /// Device and inode, if the file exists.
    file: Option<(u64, u64)>,
}

impl FilePlace {
    /// Returns `None` for standard output, a device, a pipe or a folder.
    fn of(path: &Path) -> io::Result<Option<Self>> {
        let there = fs::metadata(path).ok();
        if path.as_os_str() == STDOUT || there.as_ref().is_some_and(|there| !there.is_file()) {
            return Ok(None);
        }
        let file = there.map(|there| (there.dev(), there.ino()));
        Ok(Some(Self { path: destination(path)?, file }))
    }

    fn is(&self, other: &Self) -> bool {
        self.path == other.path || (self.file.is_some() && self.file == other.file)
    }
}

#[cfg(test)]
pub mod tests;
