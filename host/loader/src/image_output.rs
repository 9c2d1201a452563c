//! The field of images as a run delivers it: pixels as prepared, or floats that the loader's threads compute from them.

use crate::options::LoaderOptions;
use ddlp_pixels::{DType, Field, ImageLayout, Normalize, Normalizer, Shape, Window, blend};

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
        let [height, width, channels] = self.prepared_sizes();
        match (self.layout, self.is_as_prepared()) {
            (ImageLayout::Nhwc, _) => vec![width * channels, channels, 1],
            (ImageLayout::Nchw, true) => vec![1, width * channels, channels],
            (ImageLayout::Nchw, false) => vec![height * width, width, 1],
        }
    }

    fn prepared_sizes(&self) -> [usize; 3] {
        let Shape { height, width, channels } = self.prepared;
        [height, width, channels].map(|size| size as usize)
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

    /// Converts the pixels of a batch to rows as they are delivered, at the beginning of the batch's buffer.
    pub fn write_rows(&self, pixels: &[u8], buffer: &mut [u8]) {
        let bytes = pixels.len() / self.prepared.bytes() * self.row_bytes();
        self.write(pixels, &mut buffer[..bytes]);
    }

    /// Blends a row, as it is delivered, with another one: see [`blend`].
    pub fn blend(&self, weight: f64, row: &mut [u8], other: &[u8]) {
        blend(self.dtype, weight, row, other);
    }

    /// Copies a rectangle of another row to a row, both as they are delivered.
    pub fn paste(&self, window: Window, row: &mut [u8], other: &[u8]) {
        let [height, width, channels] = self.prepared_sizes();
        let Window { x, y, width: wide, height: high } = window;
        let [x, y, wide, high] = [x as usize, y as usize, wide as usize, high as usize];
        // Neighbouring elements of a line, and the lines of the image one above the other: of each plane, if there are
        // planes.
        let is_planar = self.layout == ImageLayout::Nchw && !self.is_as_prepared();
        let (planes, elements) = if is_planar { (channels, 1) } else { (1, channels) };
        let bytes = elements * self.dtype.bytes();
        for line in (0..planes).flat_map(|plane| plane * height + y..plane * height + y + high) {
            let extent = (line * width + x) * bytes..(line * width + x + wide) * bytes;
            row[extent.clone()].copy_from_slice(&other[extent]);
        }
    }
}
