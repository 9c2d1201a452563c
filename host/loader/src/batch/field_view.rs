//! A field of a batch, borrowed or shared.

use super::BatchField;
use crate::delivery::BatchMemory;
use crate::field_error::FieldError;
use ddlp_pixels::{DType, Element, Field, ImageLayout};
use std::ptr::NonNull;
use std::sync::Arc;
use zerocopy::FromBytes;

/// A field of a batch: one value for each row, in the batch's memory.
#[derive(Clone, Copy, Debug)]
pub struct FieldView<'a> {
    pub(super) field: &'a BatchField,
    pub(super) rows: usize,
    pub(super) memory: &'a Arc<dyn BatchMemory>,
    /// Whether the memory holds prepared rows instead of the field's elements.
    pub(super) is_unfinished: bool,
}

/// A field of a batch that keeps its memory. The buffer or slot in which the field lies returns to the loader when the
/// batch and all its shared fields are gone. This is what a view in another language holds.
#[derive(Clone, Debug)]
pub struct SharedField {
    field: BatchField,
    rows: usize,
    memory: Arc<dyn BatchMemory>,
    is_unfinished: bool,
}

impl<'a> FieldView<'a> {
    /// Returns the field's description.
    pub fn field(&self) -> &'a Field {
        &self.field.field
    }

    /// Returns the type of the elements.
    pub fn dtype(&self) -> DType {
        self.field().dtype
    }

    /// Returns the order of an image's dimensions; `None` for a field that is not an image.
    pub fn layout(&self) -> Option<ImageLayout> {
        self.field().layout
    }

    /// Returns the number of elements along each dimension; the first dimension is the rows.
    pub fn shape(&self) -> Vec<usize> {
        let of_row = self.field().shape.iter().map(|&size| size as usize);
        std::iter::once(self.rows).chain(of_row).collect()
    }

    /// Returns, for each dimension, the distance in memory between two elements, counted in elements.
    pub fn strides(&self) -> Vec<usize> {
        std::iter::once(self.field().elements()).chain(self.field.strides.iter().copied()).collect()
    }

    /// Returns the bytes of all rows, in the order in which they lie in memory.
    ///
    /// # Errors
    ///
    /// [`FieldError::OnDevice`] if this process cannot read them: another delivery target than the default one may put
    /// images into memory of a device, or finish batches there.
    pub fn bytes(&self) -> Result<&'a [u8], FieldError> {
        let bytes = self.memory.bytes().filter(|_| !self.is_unfinished);
        let bytes = bytes.ok_or_else(|| FieldError::OnDevice { field: self.field().name.clone() })?;
        Ok(&bytes[..self.rows * self.field().bytes()])
    }

    /// Returns all elements, in the order of the dimensions.
    ///
    /// # Errors
    ///
    /// [`FieldError::DType`] if the elements have another type, [`FieldError::Strided`] if they lie in another order,
    /// [`FieldError::OnDevice`] if this process cannot read them.
    pub fn as_slice<T: Element>(&self) -> Result<&'a [T], FieldError> {
        let (field, asked) = (self.field(), T::DTYPE);
        if field.dtype != asked {
            return Err(FieldError::DType { field: field.name.clone(), found: field.dtype, asked });
        }
        if let Some(layout) = field.layout
            && !self.field.strides.is_sorted_by(|outer, inner| outer >= inner)
        {
            return Err(FieldError::Strided { field: field.name.clone(), layout, strides: self.strides() });
        }
        let bytes = self.bytes()?;
        // Memory without bytes need not be aligned.
        if bytes.is_empty() {
            return Ok(&[]);
        }
        Ok(<[T]>::ref_from_bytes(bytes).expect("rows are whole elements, in aligned memory"))
    }

    /// Returns the field with a share in its memory.
    pub fn share(&self) -> SharedField {
        SharedField {
            field: self.field.clone(),
            rows: self.rows,
            memory: self.memory.clone(),
            is_unfinished: self.is_unfinished,
        }
    }
}

impl SharedField {
    /// Returns the field as a view.
    pub fn view(&self) -> FieldView<'_> {
        FieldView { field: &self.field, rows: self.rows, memory: &self.memory, is_unfinished: self.is_unfinished }
    }

    /// Returns the address of the first element, which stays the same until the last share is gone. In a batch that is
    /// not [finished](crate::Batch::finishing), nothing can be read at the address of the images.
    pub fn as_ptr(&self) -> *const u8 {
        self.memory.address().as_ptr()
    }

    /// Returns the address for code that also writes; `None` if the memory can only be read. Writing changes nothing
    /// but this batch. Write only while nobody uses a slice of the same field.
    pub fn writable(&self) -> Option<NonNull<u8>> {
        (self.memory.is_writable() && !self.is_unfinished).then(|| self.memory.address())
    }
}
