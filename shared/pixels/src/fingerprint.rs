//! Whether two machines make the same pixels: a digest of built-in images through every stage.

use std::fmt;
use std::sync::OnceLock;

use half::f16;

use crate::draw::Draw;
use crate::normalize::Normalize;
use crate::pipeline::{Pipeline, Stage};
use crate::preparer::Preparer;
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

fn compute() -> Fingerprint {
    let mut hasher = blake3::Hasher::new();
    let mut preparer = Preparer::new(Limits::default());
    let normalize = Normalize::imagenet();
    let mut single = Vec::new();
    let mut half = Vec::new();
    for pipeline in pipelines() {
        let shape = pipeline.output();
        let mut pixels = vec![0; shape.bytes()];
        single.resize(shape.bytes(), 0.0f32);
        half.resize(shape.bytes(), f16::ZERO);
        for (image, sample_id) in IMAGES.into_iter().flat_map(|image| (0..DRAWS).map(move |id| (image, id))) {
            let draw = Draw { seed: 0xDD17, epoch: 1, sample_id };
            let outcome = preparer.prepare(Source::Encoded(image), &pipeline, draw, &mut pixels);
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
        assert_eq!(fingerprint().to_string(), "6e4c9ba86a6306b01c23802f97750a1483ce372d892cbf6c028b383f145cf8b0");
        assert_eq!(Fingerprint::from_bytes(*fingerprint().as_bytes()), fingerprint());
    }

    #[test]
    fn every_image_takes_part() {
        let mut preparer = Preparer::new(Limits::default());
        for image in IMAGES {
            assert_eq!(preparer.inspect(image), crate::Verdict::Intact);
        }
    }
}
