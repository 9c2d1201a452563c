//! The field of images as a run delivers it: pixels as prepared, or floats that the loader's threads compute from them.

use crate::options::LoaderOptions;
use ddlp_pixels::{DType, Field, ImageLayout, Normalize, Normalizer, Shape};

/// How the images of a run are delivered.
#[derive(Clone, Debug)]
pub(crate) struct ImageOutput {
    /// Dimensions of a prepared sample, u8 in NHWC.
    prepared: Shape,
    dtype: DType,
    layout: ImageLayout,
    /// Makes floats; `None` if pixels are delivered.
    normalizer: Option<Normalizer>,
}

impl ImageOutput {
    /// Returns the output of samples of a shape under checked options.
    pub fn new(options: &LoaderOptions, prepared: Shape) -> Self {
        let LoaderOptions { dtype, layout, normalize, .. } = *options;
        let normalize = normalize.unwrap_or(Normalize::UNIT);
        let normalizer = dtype.is_float().then(|| Normalizer::new(&normalize, dtype, layout));
        Self { prepared, dtype, layout, normalizer }
    }

    /// Returns the field.
    pub fn field(&self) -> Field {
        Field::image(self.prepared, self.dtype, self.layout)
    }

    /// Returns, for each dimension of a row, the distance in memory between two elements, counted in elements. Pixels
    /// keep the order in which they were prepared, NHWC, so under NCHW their field is a view with these strides.
    pub fn strides(&self) -> Vec<usize> {
        let Shape { height, width, channels } = self.prepared;
        let [height, width, channels] = [height, width, channels].map(|size| size as usize);
        match (self.layout, self.is_as_prepared()) {
            (ImageLayout::Nhwc, _) => vec![width * channels, channels, 1],
            (ImageLayout::Nchw, true) => vec![1, width * channels, channels],
            (ImageLayout::Nchw, false) => vec![height * width, width, 1],
        }
    }

    /// Returns the dimensions of a prepared sample.
    pub fn prepared(&self) -> Shape {
        self.prepared
    }

    /// Returns the bytes of a row as it is delivered.
    pub fn row_bytes(&self) -> usize {
        self.prepared.bytes() * self.dtype.bytes()
    }

    /// Returns whether rows are delivered as prepared.
    pub fn is_as_prepared(&self) -> bool {
        self.normalizer.is_none()
    }

    /// Converts whole rows of pixels. `out` must be aligned for its elements.
    pub fn write(&self, pixels: &[u8], out: &mut [u8]) {
        match &self.normalizer {
            None => out.copy_from_slice(pixels),
            Some(normalizer) => normalizer.write(pixels, self.prepared, out),
        }
    }
}
