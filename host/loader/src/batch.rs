//! A batch as the training code gets it.

use crate::delivery::BatchMemory;
use crate::error::LoaderError;
use crate::schedule::{BatchId, ProngId};
use crate::value::{Float, Value, values};
use ddlp_csd::memory;
use ddlp_csd::slot::SampleRecord;
use ddlp_pixels::Shape;
use memmap2::MmapMut;
use std::marker::PhantomData;

/// One batch: rows of values (u8 pixels, unless the loader was built for floats) with their sample ids and labels.
///
/// The values lie in a buffer of the loader's [delivery target](crate::DeliveryTarget); pixels may lie in a result slot
/// that host and drive share. Dropping the batch gives the buffer or slot back. So a consumer that keeps batches slows
/// the loader down, and one that keeps all of them stops it. To keep batches, copy them
/// ([`into_owned`](Self::into_owned)), or configure enough buffers
/// ([`LoaderBuilder::buffers`](crate::LoaderBuilder::buffers)).
#[derive(Debug)]
pub struct Batch<V = u8> {
    id: BatchId,
    prong: ProngId,
    shape: Shape,
    sample_ids: Vec<u64>,
    labels: Vec<u32>,
    records: Vec<SampleRecord>,
    memory: Box<dyn BatchMemory>,
    value: PhantomData<V>,
}

/// Memory that belongs to a copied batch alone.
#[derive(Debug)]
struct OwnedMemory(MmapMut);

impl BatchMemory for OwnedMemory {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl<V: Value> Batch<V> {
    pub(crate) fn new(
        id: BatchId,
        prong: ProngId,
        shape: Shape,
        records: Vec<SampleRecord>,
        memory: Box<dyn BatchMemory>,
    ) -> Self {
        let delivered = records.iter().filter(|record| record.has_row());
        let (sample_ids, labels) = delivered.map(|record| (record.sample_id, record.label)).unzip();
        Self { id, prong, shape, sample_ids, labels, records, memory, value: PhantomData }
    }

    /// Returns the batch's epoch.
    pub fn epoch(&self) -> u32 {
        self.id.epoch
    }

    /// Returns the batch's number within its epoch.
    pub fn index(&self) -> u32 {
        self.id.batch
    }

    /// Returns the prong that prepared the batch: 0 is the host's CPU; the drives follow in the order in which the
    /// builder got them.
    pub fn prong(&self) -> usize {
        self.prong
    }

    /// Returns the number of rows, which is below the batch size in a short last batch, and where corrupt samples were
    /// skipped.
    pub fn len(&self) -> usize {
        self.sample_ids.len()
    }

    /// Returns whether the batch has no rows, for example because every sample was skipped.
    pub fn is_empty(&self) -> bool {
        self.sample_ids.is_empty()
    }

    /// Returns the sample id of each row.
    pub fn sample_ids(&self) -> &[u64] {
        &self.sample_ids
    }

    /// Returns the label (class index) of each row.
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// Returns the outcome for each requested sample, including those without a row.
    pub fn records(&self) -> &[SampleRecord] {
        &self.records
    }

    /// Returns height, width and channels of a row.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Copies the values into memory that belongs to the batch alone, and gives its buffer or slot back to the loader.
    /// A copied batch can be kept as long as you like.
    ///
    /// # Errors
    ///
    /// [`LoaderError::System`] when there is no memory for the copy.
    pub fn into_owned(self) -> Result<Self, LoaderError> {
        let bytes = self.bytes().len();
        let refused = |error| LoaderError::System {
            what: "memory for a copy of a batch",
            source: memory::refused(bytes as u64, error),
        };
        // A mapping has at least one byte.
        let mut copy = MmapMut::map_anon(bytes.max(1)).map_err(refused)?;
        copy[..bytes].copy_from_slice(self.bytes());
        Ok(Self { memory: Box::new(OwnedMemory(copy)), ..self })
    }

    fn all(&self) -> &[V] {
        // Memory without bytes need not be aligned.
        if self.is_empty() { &[] } else { values(self.bytes()) }
    }

    fn bytes(&self) -> &[u8] {
        let bytes = self.len() * self.shape.bytes() * size_of::<V>();
        &self.memory.bytes()[..bytes]
    }
}

impl<V: Float> Batch<V> {
    /// Returns the normalised rows, contiguous: `len × channels × height × width` (NCHW).
    pub fn values(&self) -> &[V] {
        self.all()
    }
}

impl Batch {
    /// Returns the rows, contiguous: `len × height × width × channels` u8 (NHWC).
    pub fn pixels(&self) -> &[u8] {
        self.all()
    }
}
