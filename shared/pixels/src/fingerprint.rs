//! Whether two machines make the same pixels: a digest of built-in images through every stage, handed in as files and in each of the
//! other ways that a dataset has.

use std::fmt;
use std::sync::OnceLock;

use half::f16;

use crate::draw::Draw;
use crate::jpeg::baseline::Checkpoints;
use crate::normalize::Normalize;
use crate::pipeline::{Pipeline, Stage};
use crate::preparer::Preparer;
use crate::raw::RawImage;
use crate::source::{Limits, Source};

/// Digest of the pixel path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// A fingerprint that another machine told.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The digest.
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

/// The images: every kind of decoding that has an own path.
pub(crate) const IMAGES: [&[u8]; 6] = [
    include_bytes!("fingerprint/420.jpg"),
    include_bytes!("fingerprint/444-odd.jpg"),
    include_bytes!("fingerprint/422-progressive.jpg"),
    include_bytes!("fingerprint/gray.jpg"),
    include_bytes!("fingerprint/cmyk.jpg"),
    include_bytes!("fingerprint/rgb.png"),
];

/// The one that is also entered at checkpoints: it has several rows of MCUs and no restart markers, so that two rows are read at once.
const INDEXED: &[u8] = IMAGES[0];
/// MCUs between them.
const EVERY: u32 = 2;

/// Sides of the image in planes: wide enough for vector code.
const PLANAR: (u32, u32) = (40, 36);

/// Sides of the uncompressed image: so large that the pipelines shrink it by more than 3, where the resizer goes another way.
const RAW: (u32, u32) = (170, 150);
const GROUP_ROWS: u32 = 16;

/// The draws that each image gets.
const DRAWS: u64 = 3;

/// The fingerprint of this machine's pixel path. Computed once, then remembered.
pub fn fingerprint() -> Fingerprint {
    static DIGEST: OnceLock<Fingerprint> = OnceLock::new();
    *DIGEST.get_or_init(compute)
}

fn pipelines() -> [Pipeline; 3] {
    let mut train = Pipeline::imagenet_train();
    let mut val = Pipeline::imagenet_val();
    for stage in train.stages.iter_mut().chain(&mut val.stages) {
        match stage {
            Stage::RandomResizedCrop { size, .. } | Stage::CenterCrop { size } => *size = 32,
            Stage::Resize { size } => *size = 37,
            _ => {}
        }
    }
    [train, val, Pipeline::cifar_train()]
}

/// Noise: every byte counts.
fn noise((width, height): (u32, u32)) -> Vec<u8> {
    (0..width * height * 3).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// What comes in other ways than as a file.
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
            // A machine that finds none has another fingerprint only if its pixels are others.
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
                file: &self.pixels,
                offset: 0,
                group_rows: GROUP_ROWS,
                checksums: &self.checksums,
            }),
        ]
    }
}

fn compute() -> Fingerprint {
    let mut hasher = blake3::Hasher::new();
    let mut preparer = Preparer::new(Limits::default());
    let normalize = Normalize::imagenet();
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
            // A machine that cannot decode an image has another fingerprint, not a crash.
            hasher.update(&[outcome.as_ref().err().map_or(0, |error| error.reason().code())]);
            if outcome.is_ok() {
                hasher.update(&pixels);
                normalize.f32_nchw(&pixels, shape, &mut single);
                normalize.f16_nchw(&pixels, shape, &mut half);
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

    /// Every machine has to find this one. A change here is a change of pixels: drives and hosts of both sides of it
    /// refuse each other.
    #[test]
    fn it_is_the_one_of_every_machine() {
        assert_eq!(fingerprint().to_string(), "eb5c75574baf7a2a0c87b2a76308b108369d75c129c620a4d157dc9f1805f199");
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
        let [_, val, _] = pipelines();
        let Some(&Stage::Resize { size }) = val.stages.first() else { panic!("{val:?}") };
        assert!(RAW.0.min(RAW.1) > 3 * size);
    }
}
