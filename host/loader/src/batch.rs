//! A batch as the consumer gets it.

use crate::buffers::PooledBuffer;
use crate::drive::SlotLease;
use crate::error::LoaderError;
use crate::schedule::{BatchId, ProngId};
use crate::value::{Float, Value, values};
use ddlp_csd::memory;
use ddlp_csd::slot::SampleRecord;
use ddlp_pixels::Shape;
use memmap2::MmapMut;
use std::marker::PhantomData;

/// One batch: rows of values (pixels as u8, unless the loader was built for floats), their sample ids and labels.
///
/// The values lie in a buffer of the loader's pool or, pixels, in a result slot shared with a drive. Both go back when the batch
/// is dropped, so a consumer that keeps batches slows the loader down, and one that keeps all of them stops it. To keep batches,
/// copy them ([`into_owned`](Self::into_owned)), or have enough buffers ([`LoaderBuilder::buffers`](crate::LoaderBuilder::buffers)).
#[derive(Debug)]
pub struct Batch<V = u8> {
    id: BatchId,
    prong: ProngId,
    shape: Shape,
    sample_ids: Vec<u64>,
    labels: Vec<u32>,
    records: Vec<SampleRecord>,
    rows: Rows,
    value: PhantomData<V>,
}

/// Where the rows of a batch lie.
#[derive(Debug)]
pub(crate) enum Rows {
    Pooled(PooledBuffer),
    Slot(SlotLease),
    /// In memory of the batch's own.
    Owned(MmapMut),
}

impl<V: Value> Batch<V> {
    pub(crate) fn new(id: BatchId, prong: ProngId, shape: Shape, records: Vec<SampleRecord>, rows: Rows) -> Self {
        let delivered = records.iter().filter(|record| record.has_row());
        let (sample_ids, labels) = delivered.map(|record| (record.sample_id, record.label)).unzip();
        Self { id, prong, shape, sample_ids, labels, records, rows, value: PhantomData }
    }

    /// Epoch of the batch.
    pub fn epoch(&self) -> u32 {
        self.id.epoch
    }

    /// Number of the batch within its epoch.
    pub fn index(&self) -> u32 {
        self.id.batch
    }

    /// The prong that made it: 0 is the host's CPU, the drives follow in the order of the builder.
    pub fn prong(&self) -> usize {
        self.prong
    }

    /// Number of rows. Less than the batch size in a short last batch or where corrupt samples were skipped.
    pub fn len(&self) -> usize {
        self.sample_ids.len()
    }

    /// True when every sample of the batch was skipped.
    pub fn is_empty(&self) -> bool {
        self.sample_ids.is_empty()
    }

    /// Sample id of each row.
    pub fn sample_ids(&self) -> &[u64] {
        &self.sample_ids
    }

    /// Label (class index) of each row.
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// What became of each requested sample, rows or not.
    pub fn records(&self) -> &[SampleRecord] {
        &self.records
    }

    /// Height, width and channels of a row.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Copies the values into memory of the batch's own and gives its buffer or slot back: batches that are kept then keep
    /// nothing from the loader.
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
        Ok(Self { rows: Rows::Owned(copy), ..self })
    }

    fn all(&self) -> &[V] {
        values(self.bytes())
    }

    fn bytes(&self) -> &[u8] {
        let bytes = self.len() * self.shape.bytes() * size_of::<V>();
        match &self.rows {
            Rows::Pooled(buffer) => &buffer[..bytes],
            Rows::Slot(lease) => &lease.payload()[..bytes],
            Rows::Owned(copy) => &copy[..bytes],
        }
    }
}

impl<V: Float> Batch<V> {
    /// The rows normalised, contiguous: `len × channels × height × width` (NCHW).
    pub fn values(&self) -> &[V] {
        self.all()
    }
}

impl Batch {
    /// The rows, contiguous: `len × height × width × channels` u8 (NHWC).
    pub fn pixels(&self) -> &[u8] {
        self.all()
    }
}
