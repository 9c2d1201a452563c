//! The field of images as a run delivers it: pixels as prepared, or floats. The loader's threads make the floats,
//! unless the delivery target finishes batches itself.

use crate::finishing::Finishing;
use crate::options::LoaderOptions;
use ddlp_pixels::{DType, Field, ImageLayout, Normalize, Normalizer, Shape, Window, blend};

/// How the images of a run are delivered.
#[derive(Clone, Debug)]
pub(crate) struct ImageOutput {
    /// Dimensions of a prepared sample, u8 in NHWC.
    prepared: Shape,
    dtype: DType,
    layout: ImageLayout,
    /// Makes floats; `None` if pixels are delivered, or if the target makes the floats.
    normalizer: Option<Normalizer>,
    /// How the target finishes a batch that is not mixed; `None` if the loader's threads finish batches.
    finishing: Option<Finishing>,
}

impl ImageOutput {
    /// Returns the output of samples of a shape under checked options. `by_target` tells whether the delivery target
    /// finishes batches.
    pub fn new(options: &LoaderOptions, prepared: Shape, by_target: bool) -> Self {
        let LoaderOptions { dtype, layout, normalize, .. } = *options;
        let normalize = normalize.unwrap_or(Normalize::UNIT);
        let normalizer = dtype.is_float().then(|| Normalizer::new(&normalize, dtype, layout));
        if !by_target {
            return Self { prepared, dtype, layout, normalizer, finishing: None };
        }
        let table = normalizer.map_or_else(Default::default, |normalizer| normalizer.table().into());
        let planar = is_planar(dtype, layout);
        let finishing = Some(Finishing::unmixed(prepared, dtype, planar, table));
        Self { prepared, dtype, layout, normalizer: None, finishing }
    }

    /// Returns the field.
    pub fn field(&self) -> Field {
        Field::image(self.prepared, self.dtype, self.layout)
    }

    /// Returns, for each dimension of a delivered image, the distance in memory between two elements, counted in
    /// elements. Pixels keep the order in which they were prepared, NHWC, so under NCHW their field is a view with
    /// these strides.
    pub fn strides(&self) -> Vec<usize> {
        let [height, width, channels] = self.prepared_sizes();
        match self.layout {
            ImageLayout::Nhwc => vec![width * channels, channels, 1],
            _ if is_planar(self.dtype, self.layout) => vec![height * width, width, 1],
            ImageLayout::Nchw | ImageLayout::ChannelsLast => vec![1, width * channels, channels],
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

    /// Returns the bytes of a row in a buffer.
    pub fn row_bytes(&self) -> usize {
        let of_element = if self.is_as_prepared() { 1 } else { self.dtype.bytes() };
        self.prepared.bytes() * of_element
    }

    /// Returns whether rows lie in buffers as prepared.
    pub fn is_as_prepared(&self) -> bool {
        self.normalizer.is_none()
    }

    /// Returns how the delivery target finishes a batch that is not mixed; `None` if the loader's threads finish
    /// batches.
    pub fn finishing(&self) -> Option<&Finishing> {
        self.finishing.as_ref()
    }

    /// Converts whole rows of pixels. `out` must be aligned for its elements.
    pub fn write(&self, pixels: &[u8], out: &mut [u8]) {
        match &self.normalizer {
            None => out.copy_from_slice(pixels),
            Some(normalizer) => normalizer.write(pixels, self.prepared, out),
        }
    }

    /// Converts the pixels of a batch to rows as they lie in buffers, at the beginning of the batch's buffer.
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
        let (planes, elements) = if is_planar(self.dtype, self.layout) { (channels, 1) } else { (1, channels) };
        let bytes = elements * self.dtype.bytes();
        for line in (0..planes).flat_map(|plane| plane * height + y..plane * height + y + high) {
            let extent = (line * width + x) * bytes..(line * width + x + wide) * bytes;
            row[extent.clone()].copy_from_slice(&other[extent]);
        }
    }
}

/// Returns whether an image's elements lie in planes. Pixels keep the order in which they were prepared.
fn is_planar(dtype: DType, layout: ImageLayout) -> bool {
    layout == ImageLayout::Nchw && dtype.is_float()
}
