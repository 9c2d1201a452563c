//! A temporary pack in a file without a name, made only to be sent elsewhere.

use super::options::PackOptions;
use super::reader::Pack;
use super::report::{PackError, PackProgress, PackSummary};
use super::staging::Staging;
use super::writer::write;
use crate::Dataset;
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

/// A pack in a file that is gone when the pack is dropped.
pub struct Packed {
    /// The pack.
    pub pack: Pack,
    /// What was packed.
    pub summary: PackSummary,
    _staging: Staging,
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packed").field("summary", &self.summary).finish_non_exhaustive()
    }
}

/// Packs `source` as [`pack`](super::pack()) does, but into a file of the folder `folder` that gets no name.
///
/// # Errors
///
/// As [`pack`](super::pack()).
pub fn pack_aside(
    source: &dyn Dataset,
    folder: &Path,
    options: &PackOptions,
    progress: &mut dyn FnMut(PackProgress) -> ControlFlow<()>,
) -> Result<Packed, PackError> {
    // Messages show this name, and a file system without unnamed files has it until the pack is dropped.
    let out = folder.join(format!("ddlp-{}.ddlp", std::process::id()));
    let (staging, summary, _) = write(source, &out, options, progress)?;
    let opened = |source| PackError::Write { path: out.clone(), source };
    let file = staging.file().try_clone().map_err(opened)?;
    let pack = Pack::from_file(file, &out).map_err(|error| opened(io::Error::other(error)))?;
    Ok(Packed { pack, summary, _staging: staging })
}
