//! The description of a pipeline: its operations, and the shape of the result.

use crate::ops::{CenterCrop, Operation, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, Resize};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Most operations in a pipeline.
const OPERATIONS_MAX: usize = 16;
/// Most operations in a pipeline and within its operations.
const ALL_OPERATIONS_MAX: usize = 64;
/// Most bytes that a prepared sample may have.
const SAMPLE_BYTES_MAX: u64 = 1 << 28;
/// Most bytes of an image between two operations whose size the operations alone determine.
const BETWEEN_BYTES_MAX: u64 = 1 << 30;

/// Height, width and channels of a prepared sample: u8, height × width × channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Shape {
    /// Height in rows.
    pub height: u32,
    /// Width in columns.
    pub width: u32,
    /// Channels, 3 for RGB.
    pub channels: u32,
}

impl Shape {
    /// Returns the bytes of one sample.
    pub fn bytes(&self) -> usize {
        self.height as usize * self.width as usize * self.channels as usize
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {} × {}", self.height, self.width, self.channels)
    }
}

/// Why a pipeline is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PipelineError {
    /// The text is not TOML or has unknown keys.
    #[error("the pipeline's description: {message}")]
    Syntax {
        /// Message of the parser.
        message: String,
    },
    /// A parameter is out of range.
    #[error("operation {index}, {operation}: {message}")]
    Parameter {
        /// Index of the operation, from 0.
        index: usize,
        /// Name of the operation.
        operation: String,
        /// What is wrong.
        message: String,
    },
    /// The samples would differ in size.
    #[error("the prepared samples would differ in size: a crop to a fixed size is missing")]
    OpenSize,
    /// The pipeline has too many operations.
    #[error("the pipeline has {operations} operations, more than the limit of {limit}")]
    TooManyOperations {
        /// Number of operations found.
        operations: usize,
        /// Most operations that a pipeline may have.
        limit: usize,
    },
    /// The pipeline and its operations have too many operations together.
    #[error("the pipeline and its operations have {operations} operations together, more than the limit of {limit}")]
    TooManyWithin {
        /// Number of operations found.
        operations: usize,
        /// Most operations that a pipeline and its operations may have.
        limit: usize,
    },
    /// The prepared sample would be too large.
    #[error("a prepared sample has {bytes} bytes, more than the limit of {limit}")]
    TooLarge {
        /// Bytes of a prepared sample.
        bytes: u64,
        /// Most bytes that a sample may have.
        limit: u64,
    },
}

/// Returns the number and name of the first operation of a description that cannot be read.
fn misread(text: &str) -> Option<String> {
    let description: toml::Table = text.parse().ok()?;
    let operations = description.get("operations")?.as_array()?;
    let (index, wrong) = operations.iter().enumerate().find(|(_, table)| {
        let operation: Result<Operation, _> = (*table).clone().try_into();
        operation.is_err()
    })?;
    let names = wrong.as_table().map(|table| table.keys().map(String::as_str).collect::<Vec<_>>().join(", "));
    Some(format!("operation {index}, {}", names.unwrap_or_else(|| wrong.to_string())))
}

/// The operations that every sample goes through.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pipeline {
    /// Whether the image is first turned upright by its EXIF orientation. Off by default, as in torchvision.
    #[serde(default)]
    pub exif_orientation: bool,
    /// The operations, in order. Files of the first version call them `stages`.
    #[serde(alias = "stages")]
    pub operations: Vec<Operation>,
}

impl Pipeline {
    /// Returns the usual ImageNet training recipe: RandomResizedCrop(224) and a flip.
    pub fn imagenet_train() -> Self {
        Self::of([RandomResizedCrop::to(224).into(), RandomHorizontalFlip { p: 0.5 }.into()])
    }

    /// Returns the usual ImageNet validation recipe: Resize(256) and CenterCrop(224).
    pub fn imagenet_val() -> Self {
        Self::of([Resize::to(256).into(), CenterCrop::to(224).into()])
    }

    /// Returns the usual CIFAR-10 training recipe: RandomCrop(32, padding 4) and a flip.
    pub fn cifar_train() -> Self {
        Self::of([RandomCrop::padded(32, 4).into(), RandomHorizontalFlip { p: 0.5 }.into()])
    }

    /// Returns a pipeline of these operations, which leaves the EXIF orientation alone.
    pub fn of(operations: impl Into<Vec<Operation>>) -> Self {
        Self { exif_orientation: false, operations: operations.into() }
    }

    /// The names that [`named`](Self::named) knows.
    pub const NAMES: [&'static str; 3] = ["imagenet-train", "imagenet-val", "cifar-train"];

    /// Returns the pipeline with this name, whose words may also be joined by `_`.
    pub fn named(name: &str) -> Option<Self> {
        match name.replace('_', "-").as_str() {
            "imagenet-train" => Some(Self::imagenet_train()),
            "imagenet-val" => Some(Self::imagenet_val()),
            "cifar-train" => Some(Self::cifar_train()),
            _ => None,
        }
    }

    /// Parses and validates a description.
    pub fn from_toml(text: &str) -> Result<Self, PipelineError> {
        let pipeline: Self = toml::from_str(text).map_err(|error| {
            let operation = misread(text).map_or_else(String::new, |operation| format!("{operation}: "));
            PipelineError::Syntax { message: format!("{operation}{error}") }
        })?;
        pipeline.validate()?;
        Ok(pipeline)
    }

    /// Checks every parameter and returns the shape of the prepared samples.
    pub fn validate(&self) -> Result<Shape, PipelineError> {
        if self.operations.len() > OPERATIONS_MAX {
            return Err(PipelineError::TooManyOperations { operations: self.operations.len(), limit: OPERATIONS_MAX });
        }
        let all = self.operations.iter().flat_map(Operation::with_all_within).count();
        if all > ALL_OPERATIONS_MAX {
            return Err(PipelineError::TooManyWithin { operations: all, limit: ALL_OPERATIONS_MAX });
        }
        let bytes = |(width, height): (u32, u32)| u64::from(width) * u64::from(height) * 3;
        let (mut size, mut large) = (None, None);
        for (index, operation) in self.operations.iter().enumerate() {
            let fault = |message: String| PipelineError::Parameter { index, operation: operation.name(), message };
            operation.check().map_err(fault)?;
            size = operation.size_after(size).map_err(fault)?;
            large = large.or(size.filter(|&size| bytes(size) > BETWEEN_BYTES_MAX).map(|size| (index, size)));
        }
        let size = size.ok_or(PipelineError::OpenSize)?;
        if bytes(size) > SAMPLE_BYTES_MAX {
            return Err(PipelineError::TooLarge { bytes: bytes(size), limit: SAMPLE_BYTES_MAX });
        }
        if let Some((index, (width, height))) = large {
            let message = format!("an image of {width}x{height} pixels has more than {BETWEEN_BYTES_MAX} bytes");
            return Err(PipelineError::Parameter { index, operation: self.operations[index].name(), message });
        }
        Ok(Shape { height: size.1, width: size.0, channels: 3 })
    }

    /// Returns the names of the functions that the pipeline calls, in order.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        self.operations.iter().flat_map(Operation::with_all_within).filter_map(|operation| match operation {
            Operation::Function(function) => Some(&*function.name),
            _ => None,
        })
    }

    /// Returns whether the last operation puts images of different sizes on canvases of one size.
    pub fn has_canvas(&self) -> bool {
        matches!(self.operations.last(), Some(Operation::PadTo(_)))
    }

    /// Returns the shape of the samples that a valid pipeline prepares.
    ///
    /// # Panics
    ///
    /// If the pipeline is invalid: [`validate`](Self::validate) a pipeline that comes from outside first.
    pub fn output(&self) -> Shape {
        self.validate().expect("a pipeline from outside is validated before its use")
    }
}

#[cfg(test)]
mod tests;
