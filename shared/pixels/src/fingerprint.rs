//! A digest that tells whether two machines make the same pixels. It covers built-in images, as files and in every
//! other form that a dataset can hold, through every operation.

use std::fmt;
use std::sync::OnceLock;

use half::f16;
use zerocopy::IntoBytes;

use crate::draw::Draw;
use crate::field::{DType, ImageLayout};
use crate::jpeg::baseline::Checkpoints;
use crate::limits::Limits;
use crate::normalize::{Normalize, Normalizer};
use crate::ops::{
    CenterCrop, GaussianBlur, RandomAutocontrast, RandomHorizontalFlip, RandomInvert, RandomResizedCrop, Resize,
};
use crate::pipeline::Pipeline;
use crate::preparer::Preparer;
use crate::raw::RawImage;
use crate::source::Source;

/// Digest of the pixel path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Takes the fingerprint that another machine reported.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the digest.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// Built-in images, one for each path through the decoders.
pub(crate) const IMAGES: [&[u8]; 9] = [
    include_bytes!("fingerprint/420.jpg"),
    include_bytes!("fingerprint/444-odd.jpg"),
    include_bytes!("fingerprint/422-progressive.jpg"),
    include_bytes!("fingerprint/gray.jpg"),
    include_bytes!("fingerprint/cmyk.jpg"),
    include_bytes!("fingerprint/rgb.png"),
    include_bytes!("fingerprint/turned.png"),
    include_bytes!("fingerprint/frame.webp"),
    include_bytes!("fingerprint/turned.tif"),
];

/// Image that is also decoded from checkpoints. It has several rows of MCUs and no restart markers, so that the decoder
/// reads two rows at once.
const INDEXED: &[u8] = IMAGES[0];
/// MCUs between two checkpoints.
const EVERY: u32 = 2;

/// Sides of the planar image: wide enough for vector code.
const PLANAR: (u32, u32) = (40, 36);

/// Sides of the uncompressed image: so large that the pipelines shrink it by more than 3, where the resizer takes
/// another path.
const RAW: (u32, u32) = (170, 150);
const GROUP_ROWS: u32 = 16;

/// Length to which validation resizes the shorter side.
const SHORT_SIDE: u32 = 37;

/// Number of draws of each image.
const DRAWS: u64 = 3;

/// Returns the fingerprint of this machine's pixel path, computed by the first call.
pub fn fingerprint() -> Fingerprint {
    static DIGEST: OnceLock<Fingerprint> = OnceLock::new();
    *DIGEST.get_or_init(compute)
}

fn pipelines() -> [Pipeline; 4] {
    let flip = || RandomHorizontalFlip { p: 0.5 }.into();
    let train = Pipeline::of([RandomResizedCrop::to(32).into(), flip()]);
    let val = Pipeline::of([Resize { size: SHORT_SIDE }.into(), CenterCrop { size: 32 }.into()]);
    let values = Pipeline::of([
        RandomResizedCrop::to(32).into(),
        RandomInvert { p: 0.5 }.into(),
        GaussianBlur { kernel_size: 5, sigma: [0.3, 2.0] }.into(),
        RandomAutocontrast { p: 0.5 }.into(),
    ]);
    [train, Pipeline { exif_orientation: true, ..val }, Pipeline::cifar_train(), values]
}

/// Returns noise, so that every byte of an image counts.
fn noise((width, height): (u32, u32)) -> Vec<u8> {
    (0..width * height * 3).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Inputs that are not encoded files.
struct Others {
    checkpoints: Vec<u8>,
    planes: Vec<u8>,
    pixels: Vec<u8>,
    checksums: Vec<u8>,
}

impl Others {
    fn new() -> Self {
        let pixels = noise(RAW);
        Self {
            // No assertion here: a machine that finds no checkpoints gets another fingerprint only if its pixels
            // differ.
            checkpoints: Checkpoints::of(INDEXED, EVERY).map(|checkpoints| checkpoints.to_bytes()).unwrap_or_default(),
            planes: noise(PLANAR),
            checksums: RawImage::checksums_of(&pixels, RAW.0, GROUP_ROWS),
            pixels,
        }
    }

    fn sources(&self) -> [Source<'_>; 3] {
        [
            Source::Indexed { file: INDEXED, checkpoints: &self.checkpoints },
            Source::Planar { width: PLANAR.0, height: PLANAR.1, bytes: &self.planes },
            Source::Raw(RawImage {
                width: RAW.0,
                height: RAW.1,
                orientation: 1,
                was_shrunk: false,
                group_rows: GROUP_ROWS,
                checksums: &self.checksums,
                first_row: 0,
                pixels: &self.pixels,
            }),
        ]
    }
}

fn compute() -> Fingerprint {
    let mut hasher = blake3::Hasher::new();
    let mut preparer = Preparer::new(Limits::default());
    let normalizer = |dtype| Normalizer::new(&Normalize::IMAGENET, dtype, ImageLayout::Nchw);
    let (to_single, to_half) = (normalizer(DType::F32), normalizer(DType::F16));
    let others = Others::new();
    let sources: Vec<Source<'_>> = IMAGES.map(Source::Encoded).into_iter().chain(others.sources()).collect();
    let mut single = Vec::new();
    let mut half = Vec::new();
    for pipeline in pipelines() {
        let shape = pipeline.output();
        let mut pixels = vec![0; shape.bytes()];
        single.resize(shape.bytes(), 0.0f32);
        half.resize(shape.bytes(), f16::ZERO);
        for (&source, sample_id) in sources.iter().flat_map(|source| (0..DRAWS).map(move |id| (source, id))) {
            let draw = Draw { seed: 0xDD17, epoch: 1, sample_id };
            let outcome = preparer.prepare(source, &pipeline, draw, &mut pixels);
            // An image that a machine cannot decode changes the machine's fingerprint, without a panic.
            hasher.update(&[outcome.as_ref().err().map_or(0, |error| error.reason().code())]);
            if outcome.is_ok() {
                hasher.update(&pixels);
                to_single.write(&pixels, shape, single.as_mut_bytes());
                to_half.write(&pixels, shape, half.as_mut_bytes());
                single.iter().for_each(|value| _ = hasher.update(&value.to_le_bytes()));
                half.iter().for_each(|value| _ = hasher.update(&value.to_le_bytes()));
            }
        }
    }
    Fingerprint(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the digest that every machine has to find. Another digest means other pixels, and a host refuses drives
    /// whose digest is not its own.
    #[test]
    fn it_is_the_one_of_every_machine() {
        assert_eq!(fingerprint().to_string(), "02edd965b2766ce24a33e005a0cb8bdea238a3bf541b90deaf0dd6f202a33c2d");
        assert_eq!(Fingerprint::from_bytes(*fingerprint().as_bytes()), fingerprint());
    }

    #[test]
    fn every_image_takes_part() {
        let mut preparer = Preparer::new(Limits::default());
        for image in IMAGES {
            assert_eq!(preparer.inspect(image), crate::Verdict::Intact);
        }
        let others = Others::new();
        assert!(Checkpoints::from_bytes(&others.checkpoints).is_ok());
        for (pipeline, source) in
            pipelines().iter().flat_map(|pipeline| others.sources().map(|source| (pipeline, source)))
        {
            let mut pixels = vec![0; pipeline.output().bytes()];
            for sample_id in 0..DRAWS {
                let draw = Draw { seed: 0xDD17, epoch: 1, sample_id };
                assert!(preparer.prepare(source, pipeline, draw, &mut pixels).is_ok(), "{source:?} {pipeline:?}");
            }
        }
    }

    #[test]
    fn an_image_is_shrunk_by_more_than_three() {
        assert!(RAW.0.min(RAW.1) > 3 * SHORT_SIDE);
    }
}
