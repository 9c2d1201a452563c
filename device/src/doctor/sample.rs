//! Images to measure with: windows of a photograph in the size, quality and layout that are frequent in ImageNet.

use ddlp_dataset::{Dataset, Identity, Location, ReadError};
use ddlp_pixels::encode::{self, JpegOptions, Layout};
use ddlp_pixels::{Draw, Limits, Pipeline, PixelError, Preparer, Source, Stage};

/// `assets/photos/README.md` names its source and terms.
const PHOTO: &[u8] = include_bytes!("../../../assets/photos/barn.jpg");

/// Width and height.
pub const SIZE: (u32, u32) = (500, 375);
const IMAGES: u64 = 8;
const QUALITY: u8 = 96;

/// The images, in memory.
pub struct Samples {
    images: Vec<Vec<u8>>,
}

impl Samples {
    /// Cuts and encodes them.
    pub fn make() -> Result<Self, PixelError> {
        let (width, height) = SIZE;
        let window = Stage::RandomResizedCrop { size: width, scale: [0.35, 0.66], ratio: [1.0, 1.0] };
        let pipeline = Pipeline { exif_orientation: false, stages: vec![window] };
        let mut preparer = Preparer::new(Limits::default());
        let mut square = vec![0; pipeline.output().bytes()];
        let mut images = Vec::new();
        for sample_id in 0..IMAGES {
            let draw = Draw { seed: 1, epoch: 0, sample_id };
            preparer.prepare(Source::Encoded(PHOTO), &pipeline, draw, &mut square)?;
            let layout = if sample_id % 4 == 3 { Layout::Yuv420 } else { Layout::Yuv444 };
            let options = JpegOptions { quality: QUALITY, layout, ..JpegOptions::default() };
            // The upper rows of the square.
            images.push(encode::jpeg(&square[..(width * height * 3) as usize], width, height, &options)?);
        }
        Ok(Self { images })
    }
}

impl Dataset for Samples {
    fn len(&self) -> u64 {
        IMAGES
    }

    fn classes(&self) -> &[String] {
        &[]
    }

    fn label(&self, _index: u64) -> u32 {
        0
    }

    fn name(&self, index: u64) -> String {
        format!("built-in image {index}")
    }

    fn location(&self, index: u64) -> Location {
        Location { file: "memory".into(), offset: 0, length: self.images[index as usize].len() as u64 }
    }

    fn sample<'a>(&'a self, index: u64, _buf: &'a mut Vec<u8>) -> Result<Source<'a>, ReadError> {
        Ok(Source::Encoded(&self.images[index as usize]))
    }

    fn identity(&self) -> Identity {
        Identity::from_bytes([0; 32])
    }

    fn kind(&self) -> &'static str {
        "built-in"
    }
}
