//! Functions of the program that prepares the samples: what a pipeline's operation `Function` calls.

use crate::error::PixelError;
use crate::geometry::{Border, Window};
use crate::limits::Limits;
use crate::passes::cut;
use crate::pipeline::Shape;
use crate::rows::ImageRows;
use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What a function gets.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// Rows of RGB, 8 bits: the image as the operations before have left it.
    pub image: &'a [u8],
    /// Shape of `image`.
    pub shape: Shape,
    /// Shape of the image that the function makes.
    pub output: Shape,
    /// A number from 0 to 2⁶³ − 1 that follows from seed, epoch, sample id and the place of the operation. A function
    /// that draws its random numbers from this number alone makes the same images in every run.
    pub seed: u64,
}

/// A function of the program. Writes an image of the shape [`Given::output`] to the slice.
pub type SampleFunction = dyn Fn(Given<'_>, &mut [u8]) -> Result<(), Box<dyn Error + Send + Sync>> + Send + Sync;

/// The functions of a program, by the names that pipelines call them by.
#[derive(Clone, Default)]
pub struct Functions(Arc<HashMap<FunctionId, Named>>);

/// A function with its name.
type Named = (String, Arc<SampleFunction>);

impl Functions {
    /// Adds a function, or replaces the one of this name.
    pub fn add(&mut self, name: &str, function: Arc<SampleFunction>) {
        Arc::make_mut(&mut self.0).insert(FunctionId::of(name), (name.to_owned(), function));
    }

    /// Returns whether there is a function of this name.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(&FunctionId::of(name))
    }
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} functions", self.0.len())
    }
}

/// Digest of a function's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FunctionId(u64);

impl FunctionId {
    pub fn of(name: &str) -> Self {
        let digest = blake3::hash(name.as_bytes());
        let (first, _) = digest.as_bytes().split_first_chunk().expect("a digest has 32 bytes");
        Self(u64::from_le_bytes(*first))
    }
}

/// Error of a function. Two of them are equal if they are of the same call.
#[derive(Clone, Debug)]
pub struct CallError {
    function: String,
    cause: Arc<dyn Error + Send + Sync>,
}

impl PartialEq for CallError {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.cause, &other.cause)
    }
}

impl Eq for CallError {}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the function `{}` failed", self.function)
    }
}

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.cause)
    }
}

/// A call of a function for one image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call {
    pub(crate) function: FunctionId,
    /// Width and height of the image that the function makes.
    pub(crate) size: (u32, u32),
    pub(crate) seed: u64,
}

/// Reusable memory of calls: the image that a function gets, and the one that it makes.
#[derive(Default)]
pub(crate) struct CallMemory {
    given: Vec<u8>,
    pub made: Vec<u8>,
}

impl CallMemory {
    /// Frees memory that is larger than `kept` bytes.
    pub fn trim(&mut self, kept: usize) {
        for buffer in [&mut self.given, &mut self.made] {
            if buffer.capacity() > kept {
                *buffer = Vec::new();
            }
        }
    }
}

impl Call {
    /// Calls the function with a whole image; `memory.made` is the image that it makes.
    pub(crate) fn make(
        &self,
        image: &mut dyn ImageRows,
        functions: &Functions,
        memory: &mut CallMemory,
        limits: Limits,
    ) -> Result<(), PixelError> {
        let size = image.size();
        let (shape, output) = (shape(size), shape(self.size));
        let given = limits.resize(&mut memory.given, shape.bytes() as u64)?;
        let whole = Window::whole(size.0, size.1);
        cut(image, (whole, Border::default()), false, &mut Vec::new(), limits, given)?;
        let made = limits.resize(&mut memory.made, output.bytes() as u64)?;
        let Some((name, function)) = functions.0.get(&self.function) else {
            let cause: Box<dyn Error + Send + Sync> = "this program has no function of that name".into();
            return Err(PixelError::Function(CallError { function: "?".to_owned(), cause: cause.into() }));
        };
        let given = Given { image: given, shape, output, seed: self.seed };
        // The decoder's guard against panics would take the image for damaged.
        let called = catch_unwind(AssertUnwindSafe(|| function(given, made)))
            .unwrap_or_else(|_| Err("it panicked; standard error has the panic's message".into()));
        called.map_err(|cause| PixelError::Function(CallError { function: name.clone(), cause: cause.into() }))
    }
}

fn shape((width, height): (u32, u32)) -> Shape {
    Shape { height, width, channels: 3 }
}

#[cfg(test)]
mod tests;
