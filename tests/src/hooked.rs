//! A dataset with hooks at its reads, and a gate for the CPU made of them.

use crate::runs::wait_until;
use ddlp_dataset::pack::Blocks;
use ddlp_dataset::{
    Ahead, Bundles, BytesRead, CacheUse, Dataset, Decoders, ExtentRead, FetchDepth, Half, Header, Identity, Location,
    MixPart, PackFile, Piece, ReadError, Reading, Requests, Silences, Stored, Unavailable,
};
use ddlp_host::{Loader, ProgressHandle};
use ddlp_pixels::{Fidelity, ScanGroups, Source};
use std::fs::Metadata;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

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

    /// Returns the silences of a drive that holds the dataset.
    fn silences(&self) -> Silences {
        Silences::default()
    }

    /// Returns whether the dataset claims to lie in memory, so that nobody keeps a copy there.
    fn is_resident(&self) -> bool {
        false
    }
}

type Condition = dyn FnMut(&ProgressHandle) -> bool + Send;

/// A gate at which the CPU's reads wait until drives have come far enough. Drives read in processes of their own, so
/// that they win a race however busy the machine is.
#[derive(Default)]
pub struct CpuGate {
    held: Mutex<Option<(ProgressHandle, Box<Condition>)>>,
}

impl CpuGate {
    /// Holds the CPU of this run until a condition is true.
    pub fn hold_until(&self, loader: &Loader, condition: impl FnMut(&ProgressHandle) -> bool + Send + 'static) {
        *self.held.lock().expect("no panic at the gate") = Some((loader.progress(), Box::new(condition)));
    }

    /// Holds the CPU of this run until the first drive has finished another batch, which the run then delivers as the
    /// drive's. Under `mte` the batch may wait in its slot until the prongs meet.
    pub fn hold_for_drive(&self, loader: &Loader) {
        let finished = |progress: &ProgressHandle| {
            let now = progress.snapshot();
            (now.prongs[1].prepared, (now.tail as usize).saturating_sub(now.prongs[1].outstanding))
        };
        let before = finished(&loader.progress());
        self.hold_until(loader, move |progress| {
            let now = finished(progress);
            now.0 > before.0 || now.1 > before.1
        });
    }

    fn is_open(&self) -> bool {
        let mut held = self.held.lock().expect("no panic at the gate");
        held.take_if(|(progress, condition)| condition(progress));
        held.is_none()
    }
}

impl Hooks for CpuGate {
    fn reads(&self, _index: u64) {
        wait_until("the CPU may read", || self.is_open());
    }

    fn interrupts(&self) {
        *self.held.lock().expect("no panic at the gate") = None;
    }
}

/// Opens a dataset behind a gate, which is open at first.
pub fn gated(dataset: &Path) -> Arc<Hooked<CpuGate>> {
    let dataset = ddlp_dataset::open(dataset).expect("the dataset opens");
    Arc::new(Hooked { dataset, hooks: CpuGate::default() })
}

/// A dataset with hooks, otherwise unchanged.
pub struct Hooked<H> {
    /// The dataset itself.
    pub dataset: Box<dyn Dataset>,
    /// The hooks.
    pub hooks: H,
}

#[warn(clippy::missing_trait_methods)]
impl<H: Hooks> Dataset for Hooked<H> {
    fn header(&self, index: u64) -> Result<Header, ReadError> {
        self.hooks.reads(index);
        self.hooks.fails(index)?;
        self.dataset.header(index)
    }

    fn pieces(
        &self,
        index: u64,
        header: &Header,
        fidelity: Option<Fidelity>,
        pieces: &mut Vec<Piece>,
    ) -> Result<u64, ReadError> {
        self.dataset.pieces(index, header, fidelity, pieces)
    }

    fn read(&self, index: u64, header: &Header, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        self.dataset.read(index, header, offset, out)
    }

    fn read_within(
        &self,
        index: u64,
        header: &Header,
        offset: u64,
        memory: &mut [u8],
        place: Range<usize>,
    ) -> Result<(), ReadError> {
        self.dataset.read_within(index, header, offset, memory, place)
    }

    fn read_many(&self, reads: &mut [ExtentRead<'_>]) -> Result<(), ReadError> {
        self.dataset.read_many(reads)
    }

    fn comes_over_network(&self) -> bool {
        self.dataset.comes_over_network()
    }

    fn header_extent(&self, index: u64) -> Range<u64> {
        self.dataset.header_extent(index)
    }

    fn header_in(&self, index: u64, bytes: &[u8]) -> Option<Header> {
        self.dataset.header_in(index, bytes)
    }

    fn in_memory(&self, index: u64) -> Option<Source<'_>> {
        self.dataset.in_memory(index)
    }

    fn sample<'a>(&'a self, index: u64, buf: &'a mut Vec<u8>) -> Result<Source<'a>, ReadError> {
        self.hooks.reads(index);
        self.hooks.fails(index)?;
        self.dataset.sample(index, buf)
    }

    fn stored<'a>(&'a self, index: u64, buf: &'a mut Vec<u8>) -> Result<Stored<'a>, ReadError> {
        self.hooks.reads(index);
        self.hooks.fails(index)?;
        self.dataset.stored(index, buf)
    }

    fn prefetch(&self, index: u64, half: Half) {
        self.dataset.prefetch(index, half);
    }

    fn bytes_read(&self) -> BytesRead {
        self.dataset.bytes_read()
    }

    fn export(&self) -> Option<&PackFile> {
        self.dataset.export()
    }

    fn export_blocks(&self) -> Option<&dyn Blocks> {
        self.dataset.export_blocks()
    }

    fn left_out(&self) -> u64 {
        self.dataset.left_out()
    }

    fn rejected(&self) -> u64 {
        self.dataset.rejected()
    }

    fn left_out_names(&self) -> &[String] {
        self.dataset.left_out_names()
    }

    fn silences(&self) -> Silences {
        self.hooks.silences()
    }

    fn sample_in(&self, found: &Metadata) -> Option<u64> {
        self.dataset.sample_in(found)
    }

    fn announce(&self, indices: &[u64], ahead: Ahead) {
        self.hooks.announces(indices);
        self.dataset.announce(indices, ahead);
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

    fn start_reads<'r>(&'r self, reads: Vec<ExtentRead<'r>>) -> Reading<'r, ReadError> {
        self.dataset.start_reads(reads)
    }

    fn requests(&self) -> Option<Requests> {
        self.dataset.requests()
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

    fn read_again(&self, index: u64) {
        self.dataset.read_again(index);
    }

    fn cache_use(&self) -> Option<CacheUse> {
        self.dataset.cache_use()
    }

    fn is_empty(&self) -> bool {
        self.dataset.is_empty()
    }

    fn len(&self) -> u64 {
        self.dataset.len()
    }

    fn parts(&self) -> Vec<MixPart> {
        self.dataset.parts()
    }

    fn bundles(&self) -> io::Result<Option<Bundles>> {
        self.dataset.bundles()
    }

    fn scan_groups(&self) -> Option<&ScanGroups> {
        self.dataset.scan_groups()
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

    fn names(&self, samples: Range<u64>) -> Result<Vec<String>, ReadError> {
        self.dataset.names(samples)
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
