//! A batch as the training code gets it.

mod field_view;

pub use field_view::{FieldView, SharedField};

use crate::delivery::{BatchMemory, OwnedMemory};
use crate::error::LoaderError;
use crate::field_error::FieldError;
use crate::finishing::Finishing;
use crate::image_output::ImageOutput;
use crate::mixing::Mixing;
use crate::schedule::{BatchId, ProngId};
use ddlp_csd::memory;
use ddlp_csd::slot::SampleRecord;
use ddlp_dataset::SampleFields;
use ddlp_pixels::{Field, FieldKind, LABEL};
use std::any::Any;
use std::sync::Arc;

/// A field as it lies in a batch's memory.
#[derive(Clone, Debug)]
pub(crate) struct BatchField {
    field: Field,
    /// For each dimension of a row, the distance between two elements, counted in elements.
    strides: Vec<usize>,
}

impl BatchField {
    /// Returns the fields of a run's batches: the image, which prongs prepare, and those that the host fills, which are
    /// the label, the image's size on its canvas if it `has_canvas`, and the fields beside the dataset.
    pub fn of_run(
        image: &ImageOutput,
        mixing: Option<&Mixing>,
        has_canvas: bool,
        beside: &SampleFields,
    ) -> Arc<[Self]> {
        let image = Self { field: image.field(), strides: image.strides() };
        let others = beside.fields().filter(|field| field.name != LABEL).cloned();
        let label = mixing.map_or_else(Field::label, Mixing::label);
        let size = has_canvas.then(Field::size);
        let filled = std::iter::once(label).chain(size).chain(others).map(|field| {
            let strides = strides(&field.shape);
            Self { field, strides }
        });
        std::iter::once(image).chain(filled).collect()
    }

    /// Returns the field's description.
    pub fn field(&self) -> &Field {
        &self.field
    }
}

/// Returns the strides of values that lie one after the other, the last dimension first in memory.
fn strides(shape: &[u32]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for at in (1..shape.len()).rev() {
        strides[at - 1] = strides[at] * shape[at] as usize;
    }
    strides
}

/// Places in the list of [`BatchField::of_run`].
const IMAGE_AT: usize = 0;
const LABEL_AT: usize = 1;

/// The memory of each field of a batch, in the order of [`BatchField::of_run`].
pub(crate) type FieldMemory = Box<[Arc<dyn BatchMemory>]>;

/// One batch: rows of fields (`image`, `label`, and those beside the dataset), with their sample ids. If the pipeline
/// ends with [`PadTo`](crate::pixels::ops::PadTo), the field `size` has each image's height and width on its canvas.
///
/// The images lie in a buffer of the loader's [delivery target](crate::DeliveryTarget); pixels may lie in a result slot
/// that host and drive share. Dropping the batch and its [shared fields](SharedField) gives the buffer or slot back. So
/// a consumer that keeps batches slows the loader down, and one that keeps all of them stops it. To keep batches, copy
/// them ([`into_owned`](Self::into_owned)), or configure enough buffers
/// ([`LoaderOptions::buffers`](crate::LoaderOptions::buffers)).
#[derive(Debug)]
pub struct Batch {
    id: BatchId,
    prong: ProngId,
    fields: Arc<[BatchField]>,
    sample_ids: Vec<u64>,
    requested_ids: Vec<u64>,
    records: Vec<SampleRecord>,
    memory: FieldMemory,
    finishing: Option<Finishing>,
}

impl Batch {
    /// Makes a batch of a dataset with this number of samples.
    pub(crate) fn new(
        samples: u64,
        id: BatchId,
        prong: ProngId,
        fields: Arc<[BatchField]>,
        records: Vec<SampleRecord>,
        memory: FieldMemory,
        finishing: Option<Finishing>,
    ) -> Self {
        let delivered = || records.iter().filter(|record| record.has_row());
        let requested_ids = delivered().map(|record| record.sample_id).collect();
        // An id beyond the dataset's end belongs to a sample that the epoch repeats. A replacement keeps the
        // repetition.
        let shown_id = |record: &SampleRecord| record.sample_id - record.sample_id % samples + record.index;
        let sample_ids = delivered().map(shown_id).collect();
        Self { id, prong, fields, sample_ids, requested_ids, records, memory, finishing }
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

    /// Returns the sample id of each row: of the sample whose image, label and other fields the row has.
    pub fn sample_ids(&self) -> &[u64] {
        &self.sample_ids
    }

    /// Returns the sample id that the epoch's order has for each row. It differs from that in
    /// [`sample_ids`](Self::sample_ids) where [`CorruptPolicy::Replace`](crate::CorruptPolicy::Replace) has replaced a
    /// corrupt sample. An epoch has each of these ids once, unless its last batch is padded.
    pub fn requested_ids(&self) -> &[u64] {
        &self.requested_ids
    }

    /// Returns the outcome for each requested sample, including those without a row.
    pub fn records(&self) -> &[SampleRecord] {
        &self.records
    }

    /// Returns the descriptions of the fields, in their order: the image, the label, the size if the images lie on
    /// canvases, then those beside the dataset.
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
    ///
    /// # Errors
    ///
    /// [`FieldError::DType`] under MixUp or CutMix, which make labels float32:
    /// [`LoaderOptions::mixup`](crate::LoaderOptions::mixup).
    pub fn labels(&self) -> Result<&[i64], FieldError> {
        self.view(LABEL_AT).as_slice()
    }

    /// Returns whether MixUp or CutMix has mixed the samples.
    pub(crate) fn is_mixed(&self) -> bool {
        self.fields[LABEL_AT].field.kind != FieldKind::Label
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

    /// Returns how to make the elements of the images, if the delivery target has to do that
    /// ([`LoaderBuilder::deliver_prepared_to`](crate::LoaderBuilder::deliver_prepared_to)). The fields describe the
    /// finished batch. This process cannot read the field of images; it can read the other fields.
    pub fn finishing(&self) -> Option<&Finishing> {
        self.finishing.as_ref()
    }

    /// Returns the images' memory if it has this type, which a delivery target made.
    pub fn target_memory<T: BatchMemory>(&self) -> Option<&T> {
        let memory: &dyn Any = &*self.memory[IMAGE_AT];
        memory.downcast_ref()
    }

    /// Returns the batch finished, with its fields in other memory: one for each field, with the elements that the
    /// field describes. The batch's buffer or slot goes back to the loader.
    ///
    /// # Panics
    ///
    /// If the number of fields differs.
    pub fn finished_in(mut self, memory: Vec<Arc<dyn BatchMemory>>) -> Self {
        assert_eq!(memory.len(), self.fields.len(), "each field has memory");
        (self.memory, self.finishing) = (memory.into(), None);
        self
    }

    fn view(&self, at: usize) -> FieldView<'_> {
        let is_unfinished = at == IMAGE_AT && self.finishing.is_some();
        FieldView { field: &self.fields[at], rows: self.len(), memory: &self.memory[at], is_unfinished }
    }
}
