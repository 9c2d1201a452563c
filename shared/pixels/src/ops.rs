//! The operations of a pipeline. Each one has a file of its own, with its parameters, their check, the size of its
//! result, and what it does to an image for given draws.
//!
//! Names, parameters and defaults are torchvision's. The arithmetic uses only integers, and f64 with +, −, ×, ÷, √ and
//! the pinned `libm`, so every machine gets the same result.

use crate::draw::Words;
use crate::error::PixelError;
use crate::geometry::Window;
use serde::{Deserialize, Serialize};

mod center_crop;
mod random_crop;
mod random_horizontal_flip;
mod random_resized_crop;
mod resize;

pub use center_crop::CenterCrop;
pub use random_crop::RandomCrop;
pub use random_horizontal_flip::RandomHorizontalFlip;
pub use random_resized_crop::{RANDOM_RESIZED_CROP_TRIES, RandomResizedCrop};
pub use resize::Resize;

/// Longest side that an operation may ask for, in pixels: the limit of JPEG.
pub(crate) const SIDE_MAX: u32 = 65_535;

/// What every operation provides.
pub(crate) trait Operate {
    /// Checks the parameters. The error says what is wrong.
    fn check(&self) -> Result<(), String>;

    /// Returns the result's width and height, or `None` if they depend on the image. `before` is the size of the
    /// operation's input, if known.
    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String>;

    /// Returns what the operation does to an image of this size. Takes the random numbers that it needs from `words`.
    fn draw(&self, size: (u32, u32), words: &mut impl Words) -> Result<Piece, PixelError>;
}

/// What one operation does to an image, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Box that is cut out, or `None` for the whole image.
    pub window: Option<Window>,
    /// Width and height that the image is resized to, or `None` to keep its size.
    pub resize: Option<(u32, u32)>,
    /// Whether the image is mirrored left to right.
    pub flip: bool,
}

impl Piece {
    pub(crate) fn cut(window: Window) -> Self {
        Self { window: Some(window), ..Self::default() }
    }
}

/// Makes the type of all operations from their names. Programs and states store an operation as its position in this
/// list, so add new ones at the end.
macro_rules! operations {
    ($($(#[$documentation:meta])* $name:ident,)*) => {
        /// One operation of a pipeline.
        ///
        /// In TOML an operation is a table with its name as the only key: `{ resize = { size = 256 } }`.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Operation {
            $($(#[$documentation])* $name($name),)*
        }

        $(impl From<$name> for Operation {
            fn from(operation: $name) -> Self {
                Self::$name(operation)
            }
        })*

        impl Operation {
            /// See [`Operate::check`].
            pub(crate) fn check(&self) -> Result<(), String> {
                match self {
                    $(Self::$name(operation) => operation.check(),)*
                }
            }

            /// See [`Operate::size_after`].
            pub(crate) fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
                match self {
                    $(Self::$name(operation) => operation.size_after(before),)*
                }
            }

            /// Returns what the operation does to an image of this size. Takes the random numbers that it needs from
            /// `words`.
            ///
            /// # Errors
            ///
            /// [`PixelError::Unsupported`] if the operation cannot be applied to an image of this size.
            #[inline]
            pub fn draw(&self, size: (u32, u32), words: &mut impl Words) -> Result<Piece, PixelError> {
                match self {
                    $(Self::$name(operation) => operation.draw(size, words),)*
                }
            }
        }
    };
}

operations! {
    /// Cuts out a box of random area and aspect ratio and resizes it to a square.
    RandomResizedCrop,
    /// Resizes so that the shorter side has a given length.
    Resize,
    /// Cuts a square out of the middle.
    CenterCrop,
    /// Surrounds the image with zeros and cuts a square out of it at a random place.
    RandomCrop,
    /// Mirrors left to right at random.
    RandomHorizontalFlip,
}

pub(crate) fn check_side(size: u32) -> Result<(), String> {
    if (1..=SIDE_MAX).contains(&size) { Ok(()) } else { Err(format!("size {size} is not in 1..={SIDE_MAX}")) }
}

pub(crate) fn check_probability(p: f64) -> Result<(), String> {
    if (0.0..=1.0).contains(&p) { Ok(()) } else { Err(format!("p = {p} is not a probability")) }
}
