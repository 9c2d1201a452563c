//! A dataset with hooks at its reads, and a gate for the CPU made of them.

use crate::runs::wait_until;
use ddlp_dataset::{Ahead, Dataset, FetchDepth, Header, ReadError, Silences, Stored, Unavailable};
use ddlp_host::{Loader, ProgressHandle};
use ddlp_pixels::Source;
use std::io;
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
    ddlp_dataset::forward! {
        dataset:
        pieces read read_within read_many comes_over_network header_extent header_in in_memory prefetch bytes_read
        export export_blocks left_out rejected left_out_names sample_in start_reads requests read_again cache_use
        is_empty len parts bundles scan_groups classes name names location identity decoders kind
    }

    fn header(&self, index: u64) -> Result<Header, ReadError> {
        self.hooks.reads(index);
        self.hooks.fails(index)?;
        self.dataset.header(index)
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

    fn silences(&self) -> Silences {
        self.hooks.silences()
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

    fn label(&self, index: u64) -> u32 {
        self.hooks.labels(index);
        self.dataset.label(index)
    }
}
