//! Why a field of a batch cannot be read.

use ddlp_pixels::{DType, ImageLayout};

/// Why a field's values cannot be read as requested.
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
    /// The values lie in memory of a device.
    #[error(
        "field {field} lies in memory that this process cannot read: the address of its first element is one of \
             the device to which batches are delivered"
    )]
    OnDevice {
        /// Name of the field.
        field: String,
    },
    /// The samples are mixed.
    #[error(
        "a digest is one of samples as they were prepared, but those of this batch are mixed: compare runs without \
             `mixup` and `cutmix`, which do not change what is prepared"
    )]
    Mixed,
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
        "field {field} has the order {layout} with strides of {strides:?} elements, so it is not a slice: use its \
         bytes and strides, or set the option layout to NHWC, or to NCHW and dtype to a float"
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
