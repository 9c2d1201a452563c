//! Packing, reading, verifying.

mod ahead;
mod blocks;
mod changing;
mod faults;
mod forms;
mod hostile;
mod joining;
mod l3;
mod large;
mod losses;
mod making;
mod old;
mod parts;
mod pcr;
mod reads;
mod repacking;
mod rows;
mod size;
mod sparse;
mod starting;
mod values;
mod verifying;

use super::{PackError, PackOptions, PackSummary, pack};
use crate::folder::Folder;
use crate::samples::write_folder;
use crate::{Dataset, Drawn, Header, Identity, Location, ReadError, SampleError, SampleReader, StoredAt};
use ddlp_pixels::{CompiledPipeline, Draw, Fidelity, Limits, Pipeline, Prepared, Preparer};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// A folder with an image folder in `source` and room for packs.
struct Bench {
    directory: tempfile::TempDir,
}

impl Bench {
    fn new(classes: u32, each: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        write_folder(&directory.path().join("source"), classes, each);
        Self { directory }
    }

    fn source(&self) -> Folder {
        Folder::open(&self.path("source")).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Packs the folder and returns the pack's path.
    fn packed(&self) -> PathBuf {
        let out = self.path("out.ddlp");
        quietly(&self.source(), &out, &PackOptions::default()).unwrap();
        out
    }

    /// Returns the names of the files in the folder.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path()).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn quietly(source: &dyn Dataset, out: &Path, options: &PackOptions) -> Result<PackSummary, PackError> {
    pack(source, out, options, &mut |_| ControlFlow::Continue(()))
}

/// Prepares a sample for an epoch.
fn prepare_by(
    reader: &mut SampleReader,
    dataset: &dyn Dataset,
    index: u64,
    pipeline: &Pipeline,
    epoch: u32,
) -> Result<(Prepared, Vec<u8>), SampleError> {
    let pipeline = CompiledPipeline::of(pipeline).unwrap();
    let mut out = vec![0; pipeline.output().bytes()];
    let draw = Draw { seed: 3, epoch, sample_id: index };
    let mut preparer = Preparer::new(Limits::default());
    let prepared = reader.prepare(
        StoredAt { dataset, index },
        None,
        &mut preparer,
        Drawn { pipeline: &pipeline, draw, fidelity: Fidelity::WHOLE },
        &mut out,
    )?;
    Ok((prepared, out))
}

/// A source of planar samples of one pixel: sample `i` is `[i, i >> 8, i >> 16]` and has label `i % 3`.
pub(super) struct Pixels {
    samples: u64,
    classes: Vec<String>,
    /// Length that the source lists for each sample, whatever the actual length.
    listed_bytes: u64,
    /// Called before a sample is read.
    before_read: Box<dyn Fn(u64) + Send + Sync>,
}

impl Pixels {
    pub(super) fn new(samples: u64) -> Self {
        let classes = ["red", "green", "blue"].map(str::to_owned).to_vec();
        Self { samples, classes, listed_bytes: 3, before_read: Box::new(|_| {}) }
    }
}

impl Dataset for Pixels {
    fn len(&self) -> u64 {
        self.samples
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn label(&self, index: u64) -> u32 {
        (index % 3) as u32
    }

    fn name(&self, index: u64) -> String {
        format!("pixel#{index}")
    }

    fn location(&self, _: u64) -> Location {
        Location { file: PathBuf::from("memory"), offset: 0, length: self.listed_bytes }
    }

    fn header(&self, _: u64) -> Result<Header, ReadError> {
        Ok(Header::planar((1, 1), 0..3))
    }

    fn read(&self, index: u64, _: &Header, _: u64, out: &mut [u8]) -> Result<(), ReadError> {
        (self.before_read)(index);
        out.copy_from_slice(&(index as u32).to_le_bytes()[..3]);
        Ok(())
    }

    fn identity(&self) -> Identity {
        Identity::from_bytes([7; 32])
    }

    fn kind(&self) -> &'static str {
        "pixels"
    }
}
