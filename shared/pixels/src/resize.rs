//! Antialiased bilinear resizing in u8 fixed point: columns first, band by band while it is in cache, then rows.
//!
//! Pillow's filter and its order of passes, with a rounding to u8 between them, too. Coefficients are computed in f64 by
//! +, −, ×, ÷ and rounding alone, so they are the same everywhere; the passes are integer sums.

use fast_image_resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};

use crate::error::PixelError;
use crate::rows::{Band, Rect, Rows};
use crate::source::Limits;

/// Reusable scratch of the resizer.
#[derive(Default)]
pub(crate) struct Scaler {
    resizer: Resizer,
    /// Rows of the rectangle at the width of the result.
    narrow: Vec<u8>,
}

impl Scaler {
    /// Gives back scratch that is larger than `kept`.
    pub fn trim(&mut self, kept: usize) {
        if self.narrow.capacity() > kept {
            self.narrow = Vec::new();
        }
        if self.resizer.size_of_internal_buffers() > kept {
            self.resizer.reset_internal_buffers();
        }
    }

    /// Makes room for the rows between the passes, so that [`resize`](Self::resize) need not.
    pub fn make_room(&mut self, bytes: u64, limits: Limits) -> Result<(), PixelError> {
        if (self.narrow.len() as u64) < bytes { limits.resize(&mut self.narrow, bytes).map(|_| ()) } else { Ok(()) }
    }

    /// Resizes a rectangle of an image into `out`, `width` × `height` RGB.
    pub fn resize(
        &mut self,
        image: &mut dyn Rows,
        rect: Rect,
        (width, height): (u32, u32),
        out: &mut [u8],
    ) -> Result<(), PixelError> {
        let row_bytes = width as usize * 3;
        let narrow_bytes = row_bytes * rect.height as usize;
        if rect.height == height {
            return image.read(rect, &mut |band| columns(&mut self.resizer, &band, rect.width, width, out));
        }
        if self.narrow.len() < narrow_bytes {
            self.narrow.resize(narrow_bytes, 0);
        }
        let narrow = &mut self.narrow[..narrow_bytes];
        image.read(rect, &mut |band| columns(&mut self.resizer, &band, rect.width, width, narrow))?;
        let source = TypedImageRef::<U8x3>::from_buffer(width, rect.height, narrow).map_err(refused)?;
        let mut target = TypedImage::<U8x3>::from_buffer(width, height, out).map_err(refused)?;
        self.resizer.resize_typed(&source, &mut target, &options()).map_err(refused)
    }
}

/// Resizes a band's columns into its rows of `narrow`.
fn columns(resizer: &mut Resizer, band: &Band<'_>, from: u32, to: u32, narrow: &mut [u8]) -> Result<(), PixelError> {
    let row_bytes = to as usize * 3;
    let rows = &mut narrow[band.y as usize * row_bytes..][..band.rows as usize * row_bytes];
    if from == to {
        for (y, row) in rows.chunks_exact_mut(row_bytes).enumerate() {
            row.copy_from_slice(band.row(y as u32, from));
        }
        return Ok(());
    }
    let wide = TypedImageRef::<U8x3>::from_buffer(band.columns, band.rows, band.pixels).map_err(refused)?;
    // A view of its own, because a crop by the resizer's options would let the filter see the pixels around it.
    let source = TypedCroppedImage::from_ref(&wide, band.left, 0, from, band.rows).map_err(refused)?;
    let mut target = TypedImage::<U8x3>::from_buffer(to, band.rows, rows).map_err(refused)?;
    resizer.resize_typed(&source, &mut target, &options()).map_err(refused)
}

fn options() -> ResizeOptions {
    ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear)).use_alpha(false)
}

fn refused(error: impl std::fmt::Display) -> PixelError {
    PixelError::Unsupported { message: format!("resizing: {error}") }
}

#[cfg(test)]
#[path = "resize/tests.rs"]
mod tests;
