//! A batch as the training code gets it.

mod field_view;

pub use field_view::{FieldView, SharedField};

use crate::delivery::{BatchMemory, OwnedMemory};
use crate::error::LoaderError;
use crate::field_error::FieldError;
use crate::image_output::ImageOutput;
use crate::schedule::{BatchId, ProngId};
use ddlp_csd::memory;
use ddlp_csd::slot::SampleRecord;
use ddlp_pixels::Field;
use std::sync::Arc;

/// A field as it lies in a batch's memory.
#[derive(Clone, Debug)]
pub(crate) struct BatchField {
    field: Field,
    /// For each dimension of a row, the distance between two elements, counted in elements.
    strides: Vec<usize>,
}

impl BatchField {
    /// Returns the fields of a run's batches: the image, which prongs prepare, and the label, which the host fills.
    pub fn of_run(image: &ImageOutput) -> Arc<[Self]> {
        let image = Self { field: image.field(), strides: image.strides() };
        [image, Self { field: Field::label(), strides: Vec::new() }].into()
    }
}

/// Places in the list of [`BatchField::of_run`].
const IMAGE_AT: usize = 0;
const LABEL_AT: usize = 1;

/// The memory of a batch's fields.
#[derive(Debug)]
pub(crate) struct FieldMemory {
    /// Memory that a prong filled with images.
    pub images: Arc<dyn BatchMemory>,
    /// Memory that the host filled with labels.
    pub labels: Arc<dyn BatchMemory>,
}

/// One batch: rows of fields (`image` and `label`), with their sample ids.
///
/// The images lie in a buffer of the loader's [delivery target](crate::DeliveryTarget); pixels may lie in a result slot
/// that host and drive share. Dropping the batch and its [shared fields](SharedField) gives the buffer or slot back. So
/// a consumer that keeps batches slows the loader down, and one that keeps all of them stops it. To keep batches, copy
/// them ([`into_owned`](Self::into_owned)), or configure enough buffers
/// ([`LoaderBuilder::buffers`](crate::LoaderBuilder::buffers)).
#[derive(Debug)]
pub struct Batch {
    id: BatchId,
    prong: ProngId,
    fields: Arc<[BatchField]>,
    sample_ids: Vec<u64>,
    records: Vec<SampleRecord>,
    /// Memory of each field.
    memory: [Arc<dyn BatchMemory>; 2],
}

impl Batch {
    pub(crate) fn new(
        id: BatchId,
        prong: ProngId,
        fields: Arc<[BatchField]>,
        records: Vec<SampleRecord>,
        FieldMemory { images, labels }: FieldMemory,
    ) -> Self {
        let delivered = records.iter().filter(|record| record.has_row());
        let sample_ids = delivered.map(|record| record.sample_id).collect();
        Self { id, prong, fields, sample_ids, records, memory: [images, labels] }
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

    /// Returns the outcome for each requested sample, including those without a row.
    pub fn records(&self) -> &[SampleRecord] {
        &self.records
    }

    /// Returns the descriptions of the fields, in their order: the image, then the label.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = &Field> {
        self.fields.iter().map(|field| &field.field)
    }

    /// Returns the field with this name, such as `image` or `label`.
    ///
    /// # Errors
    ///
    /// [`FieldError::Missing`] names the fields that there are.
    pub fn field(&self, name: &str) -> Result<FieldView<'_>, FieldError> {
        let missing = || {
            let fields = self.fields().map(|field| field.name.clone()).collect();
            FieldError::Missing { name: name.into(), fields }
        };
        self.fields().position(|field| field.name == name).map(|at| self.view(at)).ok_or_else(missing)
    }

    /// Returns the label (class index) of each row: the elements of the field `label`.
    pub fn labels(&self) -> &[i64] {
        self.view(LABEL_AT).as_slice().expect("labels are int64")
    }

    /// Returns the field of images.
    pub(crate) fn images(&self) -> FieldView<'_> {
        self.view(IMAGE_AT)
    }

    /// Copies the images into memory that belongs to the batch alone, and gives the batch's share in its buffer or slot
    /// back to the loader. A copied batch can be kept as long as you like.
    ///
    /// # Errors
    ///
    /// [`LoaderError::System`] when there is no memory for the copy; [`LoaderError::Field`] when this process cannot
    /// read the images.
    pub fn into_owned(mut self) -> Result<Self, LoaderError> {
        let images = self.images().bytes()?;
        let refused = |error| LoaderError::System {
            what: "memory for a copy of a batch",
            source: memory::refused(images.len() as u64, error),
        };
        self.memory[IMAGE_AT] = Arc::new(OwnedMemory::copy(images).map_err(refused)?);
        Ok(self)
    }

    fn view(&self, at: usize) -> FieldView<'_> {
        FieldView { field: &self.fields[at], rows: self.len(), memory: &self.memory[at] }
    }
}
