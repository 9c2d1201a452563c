//! A field of a batch, borrowed or shared.

use super::BatchField;
use crate::delivery::BatchMemory;
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
}

/// A field of a batch that keeps its memory. The buffer or slot in which the field lies returns to the loader when the
/// batch and all its shared fields are gone. This is what a view in another language holds.
#[derive(Clone, Debug)]
pub struct SharedField {
    field: BatchField,
    rows: usize,
    memory: Arc<dyn BatchMemory>,
}

/// Why a field's values cannot be had as requested.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldError {
    /// The batch has no such field.
    #[error("a batch has no field {name:?}; its fields are {}", fields.join(", "))]
    Missing {
        /// Name that was asked for.
        name: String,
        /// Names of the batch's fields.
        fields: Vec<String>,
    },
    /// The elements have another type.
    #[error("field {field} has elements of type {found}, not {asked}: ask for {found}{}", or_option(*asked))]
    DType {
        /// Name of the field.
        field: String,
        /// Type of the elements.
        found: DType,
        /// Type that was asked for.
        asked: DType,
    },
    /// The elements do not lie in memory in the order of the field's dimensions.
    #[error(
        "field {field} has the order {layout} with strides of {strides:?} elements, so it is no slice: use its bytes \
         and strides, or set the option layout to NHWC, or dtype to a float"
    )]
    Strided {
        /// Name of the field.
        field: String,
        /// Order of the dimensions.
        layout: ImageLayout,
        /// Distance between two elements along each dimension, counted in elements.
        strides: Vec<usize>,
    },
}

/// Names the option by which images get a type, if they can.
fn or_option(asked: DType) -> String {
    match asked {
        DType::U8 | DType::F16 | DType::Bf16 | DType::F32 => format!(", or set the option dtype to {asked}"),
        _ => String::new(),
    }
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

    /// Returns the order of an image's dimensions; `None` for a field that is no image.
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
    pub fn bytes(&self) -> &'a [u8] {
        &self.memory.bytes()[..self.rows * self.field().bytes()]
    }

    /// Returns all elements, in the order of the dimensions.
    ///
    /// # Errors
    ///
    /// [`FieldError::DType`] if the elements have another type, [`FieldError::Strided`] if they lie in another order.
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
        let bytes = self.bytes();
        // Memory without bytes need not be aligned.
        if bytes.is_empty() {
            return Ok(&[]);
        }
        Ok(<[T]>::ref_from_bytes(bytes).expect("rows are whole elements, in aligned memory"))
    }

    /// Returns the field with a share in its memory.
    pub fn share(&self) -> SharedField {
        SharedField { field: self.field.clone(), rows: self.rows, memory: self.memory.clone() }
    }
}

impl SharedField {
    /// Returns the field as a view.
    pub fn view(&self) -> FieldView<'_> {
        FieldView { field: &self.field, rows: self.rows, memory: &self.memory }
    }

    /// Returns the address of the first element, which stays the same until the last share is gone.
    pub fn as_ptr(&self) -> *const u8 {
        match self.memory.writable() {
            Some(pointer) => pointer.as_ptr(),
            None => self.memory.bytes().as_ptr(),
        }
    }

    /// Returns the address for code that also writes; `None` if the memory can only be read. Writing changes nothing
    /// but this batch. Write only while nobody uses a slice of the same field.
    pub fn writable(&self) -> Option<NonNull<u8>> {
        self.memory.writable()
    }
}
