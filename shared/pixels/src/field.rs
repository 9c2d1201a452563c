//! Fields: the named values of a sample.
//!
//! A sample's schema is a list of [`Field`]s, and a batch holds, for each of them, one value per sample. Kinds, data
//! types and layouts have numbers, by which a slot's header describes a field. A number keeps its meaning for ever; new
//! kinds, types and layouts get new numbers.

use half::{bf16, f16};
use serde::{Deserialize, Serialize};
use std::fmt;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::pipeline::Shape;

/// Name of the field with the prepared image.
pub const IMAGE: &str = "image";
/// Name of the field with the class index.
pub const LABEL: &str = "label";
/// Name of the field with the height and width that each image has on its canvas.
pub const SIZE: &str = "size";

/// A field of a sample: its name, and what its values are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// Name, unique within a sample.
    pub name: String,
    /// What the values mean.
    pub kind: FieldKind,
    /// Type of an element of a value.
    pub dtype: DType,
    /// Order of an image's dimensions; `None` for a field that is not an image.
    pub layout: Option<ImageLayout>,
    /// Elements of one sample's value along each dimension; empty if the value is one element. An image has height,
    /// width, channels under NHWC, and channels, height, width otherwise.
    pub shape: Vec<u32>,
}

/// What the values of a field mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum FieldKind {
    /// The prepared image. The pipeline makes it, on the host or in a drive.
    Image,
    /// The class index, [`DType::I64`]. The host takes it from the dataset.
    Label,
    /// One number or several. The host takes them from a table beside the dataset, or makes them: mixed labels.
    Vector,
}

/// Type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum DType {
    /// Unsigned integer of 8 bits.
    #[default]
    #[serde(rename = "uint8")]
    U8,
    /// IEEE binary16.
    #[serde(rename = "float16")]
    F16,
    /// The first 16 bits of a binary32.
    #[serde(rename = "bfloat16")]
    Bf16,
    /// IEEE binary32.
    #[serde(rename = "float32")]
    F32,
    /// Signed integer of 64 bits.
    #[serde(rename = "int64")]
    I64,
}

/// Order of the dimensions of a batch of images, and of its elements in memory: N samples, C channels, H rows, W
/// columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum ImageLayout {
    /// Samples, rows, columns, channels.
    #[default]
    #[serde(rename = "NHWC")]
    Nhwc,
    /// Samples, channels, rows, columns.
    #[serde(rename = "NCHW")]
    Nchw,
    /// The dimensions of NCHW in the memory of NHWC, as PyTorch's `torch.channels_last`.
    #[serde(rename = "channels_last")]
    ChannelsLast,
}

impl Field {
    /// Returns the field of images with these dimensions.
    pub fn image(shape: Shape, dtype: DType, layout: ImageLayout) -> Self {
        let Shape { height, width, channels } = shape;
        let shape = match layout {
            ImageLayout::Nhwc => vec![height, width, channels],
            ImageLayout::Nchw | ImageLayout::ChannelsLast => vec![channels, height, width],
        };
        Self { name: IMAGE.into(), kind: FieldKind::Image, dtype, layout: Some(layout), shape }
    }

    /// Returns the field of labels.
    pub fn label() -> Self {
        Self { name: LABEL.into(), kind: FieldKind::Label, dtype: DType::I64, layout: None, shape: Vec::new() }
    }

    /// Returns the field of the height and width that each image has on its canvas, int64.
    pub fn size() -> Self {
        Self { name: SIZE.into(), kind: FieldKind::Vector, dtype: DType::I64, layout: None, shape: vec![2] }
    }

    /// Returns the number of elements of one sample's value.
    pub fn elements(&self) -> usize {
        self.shape.iter().map(|&size| size as usize).product()
    }

    /// Returns the bytes of one sample's value.
    pub fn bytes(&self) -> usize {
        self.elements() * self.dtype.bytes()
    }
}

impl FieldKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Image, Self::Label, Self::Vector];

    /// Returns the kind's number in stored and sent formats.
    pub const fn code(self) -> u16 {
        match self {
            Self::Image => 0,
            Self::Label => 1,
            Self::Vector => 2,
        }
    }

    /// Returns the kind with this number.
    pub fn from_code(code: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// Returns the kind's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Label => "label",
            Self::Vector => "vector",
        }
    }
}

impl DType {
    /// All types.
    pub const ALL: [Self; 5] = [Self::U8, Self::F16, Self::Bf16, Self::F32, Self::I64];

    /// Returns the bytes of an element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 => 4,
            Self::I64 => 8,
        }
    }

    /// Returns the type's number in stored and sent formats.
    pub const fn code(self) -> u16 {
        match self {
            Self::U8 => 0,
            Self::F16 => 1,
            Self::Bf16 => 2,
            Self::F32 => 3,
            Self::I64 => 4,
        }
    }

    /// Returns the type with this number.
    pub fn from_code(code: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.code() == code)
    }

    /// Returns the type's name, as NumPy and PyTorch call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "uint8",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
            Self::F32 => "float32",
            Self::I64 => "int64",
        }
    }

    /// Returns whether elements are floats.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16 | Self::F32)
    }
}

impl ImageLayout {
    /// All layouts.
    pub const ALL: [Self; 3] = [Self::Nhwc, Self::Nchw, Self::ChannelsLast];

    /// Returns the layout's number in stored and sent formats.
    pub const fn code(self) -> u16 {
        match self {
            Self::Nhwc => 0,
            Self::Nchw => 1,
            Self::ChannelsLast => 2,
        }
    }

    /// Returns the layout with this number.
    pub fn from_code(code: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|layout| layout.code() == code)
    }

    /// Returns the layout's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nhwc => "NHWC",
            Self::Nchw => "NCHW",
            Self::ChannelsLast => "channels_last",
        }
    }
}

impl fmt::Display for FieldKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for ImageLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A Rust type of elements: `u8`, [`f16`](struct@f16), [`bf16`](struct@bf16), `f32` or `i64`.
pub trait Element: sealed::Sealed + FromBytes + IntoBytes + Immutable + Copy + fmt::Debug {
    /// The same type as data.
    const DTYPE: DType;
}

impl Element for u8 {
    const DTYPE: DType = DType::U8;
}

impl Element for f16 {
    const DTYPE: DType = DType::F16;
}

impl Element for bf16 {
    const DTYPE: DType = DType::Bf16;
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;
}

impl Element for i64 {
    const DTYPE: DType = DType::I64;
}

mod sealed {
    pub trait Sealed {}

    impl Sealed for u8 {}
    impl Sealed for half::f16 {}
    impl Sealed for half::bf16 {}
    impl Sealed for f32 {}
    impl Sealed for i64 {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_meaning() {
        let kinds = FieldKind::ALL.map(|kind| (kind.code(), kind.name()));
        assert_eq!(kinds, [(0, "image"), (1, "label"), (2, "vector")]);
        let dtypes = DType::ALL.map(|dtype| (dtype.code(), dtype.name(), dtype.bytes()));
        let expected = [(0, "uint8", 1), (1, "float16", 2), (2, "bfloat16", 2), (3, "float32", 4), (4, "int64", 8)];
        assert_eq!(dtypes, expected);
        let layouts = ImageLayout::ALL.map(|layout| (layout.code(), layout.name()));
        assert_eq!(layouts, [(0, "NHWC"), (1, "NCHW"), (2, "channels_last")]);
    }

    #[test]
    fn numbers_lead_back_and_unknown_ones_lead_nowhere() {
        assert_eq!(FieldKind::ALL.map(|kind| FieldKind::from_code(kind.code())), FieldKind::ALL.map(Some));
        assert_eq!(DType::ALL.map(|dtype| DType::from_code(dtype.code())), DType::ALL.map(Some));
        assert_eq!(ImageLayout::ALL.map(|layout| ImageLayout::from_code(layout.code())), ImageLayout::ALL.map(Some));
        assert_eq!((FieldKind::from_code(3), DType::from_code(5), ImageLayout::from_code(3)), (None, None, None));
    }

    #[test]
    fn names_are_those_of_descriptions() {
        fn text(value: impl Serialize) -> String {
            toml::Value::try_from(value).unwrap().as_str().unwrap().to_string()
        }
        FieldKind::ALL.into_iter().for_each(|kind| assert_eq!(text(kind), kind.name()));
        DType::ALL.into_iter().for_each(|dtype| assert_eq!(text(dtype), dtype.name()));
        ImageLayout::ALL.into_iter().for_each(|layout| assert_eq!(text(layout), layout.name()));
    }

    #[test]
    fn rust_types_have_the_size_of_their_data_type() {
        fn has_size<T: Element>() {
            assert_eq!(size_of::<T>(), T::DTYPE.bytes());
        }
        has_size::<u8>();
        has_size::<f16>();
        has_size::<bf16>();
        has_size::<f32>();
        has_size::<i64>();
    }

    #[test]
    fn a_layout_orders_the_dimensions_of_an_image() {
        let shape = Shape { height: 2, width: 5, channels: 3 };
        let [rows, planes, last] = ImageLayout::ALL.map(|layout| Field::image(shape, DType::F16, layout));
        assert_eq!((rows.shape.as_slice(), planes.shape.as_slice()), (&[2, 5, 3][..], &[3, 2, 5][..]));
        assert_eq!(last.shape, planes.shape);
        assert_eq!((rows.elements(), rows.bytes(), planes.bytes()), (30, 60, 60));
        assert_eq!((Field::label().elements(), Field::label().bytes()), (1, 8));
    }
}
