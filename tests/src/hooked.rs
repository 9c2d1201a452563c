//! A dataset with something done at each of its reads.

use ddlp_dataset::{Dataset, Identity, Location, ReadError};
use ddlp_pixels::Source;
use std::io;

/// What is done.
pub trait Hooks: Send + Sync {
    /// Before a sample is read.
    fn reads(&self, index: u64);

    /// When samples are announced.
    fn announces(&self, _indices: &[u64]) {}

    /// What the dataset is told of the memory there is.
    fn memory(&self, available_bytes: u64) -> u64 {
        available_bytes
    }

    /// Whether the dataset says that it lies in memory, so that nobody keeps it there.
    fn is_resident(&self) -> bool {
        false
    }
}

/// The dataset, which is otherwise as it was.
pub struct Hooked<H> {
    /// Where samples come from.
    pub dataset: Box<dyn Dataset>,
    /// What is done at its reads.
    pub hooks: H,
}

impl<H: Hooks> Dataset for Hooked<H> {
    fn sample<'a>(&'a self, index: u64, buf: &'a mut Vec<u8>) -> Result<Source<'a>, ReadError> {
        self.hooks.reads(index);
        self.dataset.sample(index, buf)
    }

    fn announce(&self, indices: &[u64]) {
        self.hooks.announces(indices);
        self.dataset.announce(indices);
    }

    fn fit_memory(&self, available_bytes: u64) -> io::Result<bool> {
        self.dataset.fit_memory(self.hooks.memory(available_bytes))
    }

    fn is_resident(&self) -> bool {
        self.hooks.is_resident()
    }

    fn len(&self) -> u64 {
        self.dataset.len()
    }

    fn classes(&self) -> &[String] {
        self.dataset.classes()
    }

    fn label(&self, index: u64) -> u32 {
        self.dataset.label(index)
    }

    fn name(&self, index: u64) -> String {
        self.dataset.name(index)
    }

    fn location(&self, index: u64) -> Location {
        self.dataset.location(index)
    }

    fn identity(&self) -> Identity {
        self.dataset.identity()
    }

    fn kind(&self) -> &'static str {
        self.dataset.kind()
    }
}
