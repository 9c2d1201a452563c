//! A dataset with hooks at its reads.

use ddlp_dataset::{Dataset, Decoders, FetchDepth, Header, Identity, Location, ReadError, Unavailable};
use std::io;

/// Hooks of a dataset.
pub trait Hooks: Send + Sync {
    /// Called before a sample is read.
    fn reads(&self, index: u64);

    /// Returns the error that reading a sample ends with, if any.
    fn fails(&self, _index: u64) -> Result<(), ReadError> {
        Ok(())
    }

    /// Returns the error that the check of the files ends with, if any.
    fn checks(&self) -> Result<(), Unavailable> {
        Ok(())
    }

    /// Returns the error that the check after a corrupt sample ends with, if any.
    fn checks_damage(&self) -> Result<(), Unavailable> {
        Ok(())
    }

    /// Called when samples are announced.
    fn announces(&self, _indices: &[u64]) {}

    /// Called when the loader interrupts all reads.
    fn interrupts(&self) {}

    /// Called before a label is looked up.
    fn labels(&self, _index: u64) {}

    /// Changes the bytes of memory that the dataset is told of.
    fn memory(&self, available_bytes: u64) -> u64 {
        available_bytes
    }

    /// Returns how samples are fetched, as if reads had latency.
    fn fetch_depth(&self) -> FetchDepth {
        FetchDepth::NONE
    }

    /// Returns whether the dataset claims to lie in memory, so that nobody keeps a copy there.
    fn is_resident(&self) -> bool {
        false
    }
}

/// A dataset with hooks, otherwise unchanged.
pub struct Hooked<H> {
    /// The dataset itself.
    pub dataset: Box<dyn Dataset>,
    /// The hooks.
    pub hooks: H,
}

impl<H: Hooks> Dataset for Hooked<H> {
    fn header(&self, index: u64) -> Result<Header, ReadError> {
        self.hooks.reads(index);
        self.hooks.fails(index)?;
        self.dataset.header(index)
    }

    fn read(&self, index: u64, header: &Header, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        self.dataset.read(index, header, offset, out)
    }

    fn announce(&self, indices: &[u64]) {
        self.hooks.announces(indices);
        self.dataset.announce(indices);
    }

    fn interrupt(&self) {
        self.hooks.interrupts();
        self.dataset.interrupt();
    }

    fn fit_memory(&self, available_bytes: u64) -> io::Result<bool> {
        self.dataset.fit_memory(self.hooks.memory(available_bytes))
    }

    fn is_resident(&self) -> bool {
        self.hooks.is_resident()
    }

    fn fetch_depth(&self) -> FetchDepth {
        self.hooks.fetch_depth()
    }

    fn check(&self) -> Result<(), Unavailable> {
        self.hooks.checks()?;
        self.dataset.check()
    }

    fn check_damage(&self) -> Result<(), Unavailable> {
        self.hooks.checks_damage()?;
        self.dataset.check_damage()
    }

    fn len(&self) -> u64 {
        self.dataset.len()
    }

    fn classes(&self) -> &[String] {
        self.dataset.classes()
    }

    fn label(&self, index: u64) -> u32 {
        self.hooks.labels(index);
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

    fn decoders(&self) -> Decoders {
        self.dataset.decoders()
    }

    fn kind(&self) -> &'static str {
        self.dataset.kind()
    }
}
