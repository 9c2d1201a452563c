//! The digests: hashes of the pixels that this machine makes from built-in images.
//!
//! Every digest is that of one ability alone, as far as that is possible: a decoder's images go through the operations
//! of the usual recipes, and an operation whose result has an open size is followed by `CenterCrop`.

use super::{Ability, AbilityNumber, Decoder};
use crate::draw::Draw;
use crate::info::Format;
use crate::jpeg::baseline::{self, Checkpoints};
use crate::jpeg::exif;
use crate::level::Level;
use crate::limits::Limits;
use crate::ops::{CenterCrop, Operation, RandomHorizontalFlip, RandomResizedCrop, Resize};
use crate::orientation;
use crate::partial::PartialJpeg;
use crate::pipeline::{Pipeline, PipelineError};
use crate::preparer::Preparer;
use crate::raw::RawImage;
use crate::row_index::RowIndex;
use crate::source::Source;

/// Built-in images, one for each path through the decoders of most formats.
pub(crate) const IMAGES: [&[u8]; 9] = [
    include_bytes!("images/420.jpg"),
    include_bytes!("images/444-odd.jpg"),
    include_bytes!("images/422-progressive.jpg"),
    include_bytes!("images/gray.jpg"),
    include_bytes!("images/cmyk.jpg"),
    include_bytes!("images/rgb.png"),
    include_bytes!("images/turned.png"),
    include_bytes!("images/frame.webp"),
    include_bytes!("images/turned.tif"),
];

/// Built-in images of the other formats.
const BMP: &[u8] = include_bytes!("images/rgb.bmp");
const GIF: &[u8] = include_bytes!("images/palette.gif");
const PNM: &[u8] = include_bytes!("images/rgb.ppm");

/// Image that is also decoded from checkpoints and by a row index. It has several rows of MCUs and no restart markers,
/// so that the decoder reads two rows at once.
const JPEG: &[u8] = IMAGES[0];
/// MCUs between two checkpoints.
const EVERY: u32 = 2;

/// Sides of the planar image: wide enough for vector code.
const PLANAR: (u32, u32) = (40, 36);
/// Sides of the raw image: so large that the recipes shrink it by more than 3, where the resizer takes another path.
const RAW: (u32, u32) = (170, 150);
const GROUP_ROWS: u32 = 16;

/// Length to which validation resizes the shorter side.
const SHORT_SIDE: u32 = 37;
/// Side of the results.
const SIDE: u32 = 32;
/// Side of the image on which an operation works after a resize.
const BETWEEN: u32 = 40;
/// Number of draws of each image.
const DRAWS: u64 = 3;

/// Returns the files with which a format's decoder is tested.
fn files(format: Format) -> Vec<&'static [u8]> {
    match format {
        Format::Bmp => vec![BMP],
        Format::Gif => vec![GIF],
        Format::Pnm => vec![PNM],
        _ => IMAGES.into_iter().filter(|file| Format::of(file).is_ok_and(|found| found == format)).collect(),
    }
}

/// Returns noise, so that every byte of an image counts.
pub(crate) fn noise((width, height): (u32, u32)) -> Vec<u8> {
    (0..width * height * 3).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// The usual recipes: together they crop, resize, pad and mirror.
fn recipes() -> [Pipeline; 3] {
    let train = Pipeline::of([RandomResizedCrop::to(SIDE).into(), RandomHorizontalFlip { p: 0.5 }.into()]);
    let val = Pipeline::of([Resize::to(SHORT_SIDE).into(), CenterCrop::to(SIDE).into()]);
    [train, val, Pipeline::cifar_train()]
}

/// Inputs that are not files.
pub(super) struct Inputs {
    checkpoints: Vec<u8>,
    row_index: Option<RowIndex>,
    planes: Vec<u8>,
    pixels: Vec<u8>,
    checksums: Vec<u8>,
}

impl Inputs {
    pub(super) fn new() -> Self {
        let pixels = noise(RAW);
        let index = RowIndex::of(&mut baseline::BaselineDecoder::new(Level::best()), &mut Vec::new(), JPEG);
        Self {
            // No assertion here: a machine that finds no checkpoints, or makes no row index, gets another digest only
            // if its pixels differ.
            checkpoints: Checkpoints::of(JPEG, EVERY).map(|checkpoints| checkpoints.to_bytes()).unwrap_or_default(),
            row_index: index.ok().and_then(|index| RowIndex::parse(&index.to_bytes()).ok()),
            planes: noise(PLANAR),
            checksums: RawImage::checksums_of(&pixels, RAW.0, GROUP_ROWS),
            pixels,
        }
    }

    fn raw(&self, orientation: u8) -> Source<'_> {
        Source::Raw(RawImage {
            width: RAW.0,
            height: RAW.1,
            orientation,
            was_shrunk: false,
            group_rows: GROUP_ROWS,
            checksums: &self.checksums,
            first_row: 0,
            pixels: &self.pixels,
        })
    }

    fn planar(&self) -> Source<'_> {
        Source::Planar { width: PLANAR.0, height: PLANAR.1, bytes: &self.planes }
    }

    /// Returns the samples with which a decoder is tested.
    pub(super) fn of(&self, decoder: Decoder) -> Vec<Source<'_>> {
        match decoder {
            Decoder::File(format) => files(format).into_iter().map(Source::Encoded).collect(),
            Decoder::Planar => vec![self.planar()],
            Decoder::Indexed => vec![Source::Indexed { file: JPEG, checkpoints: &self.checkpoints }],
            Decoder::Raw => vec![self.raw(1)],
            Decoder::Rows => {
                let rows = self.row_index.as_ref().map_or(Source::Encoded(JPEG), |index| {
                    let header = &JPEG[..index.header_bytes() as usize];
                    Source::Rows(PartialJpeg { index, header, rows: JPEG, rows_offset: 0 })
                });
                vec![rows]
            }
        }
    }
}

/// Adds up the results of one ability.
struct Digest {
    number: AbilityNumber,
    hasher: blake3::Hasher,
    preparer: Preparer,
    pixels: Vec<u8>,
}

impl Digest {
    fn of(number: AbilityNumber) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&number.0.to_le_bytes());
        Self { number, hasher, preparer: Preparer::new(Limits::default()), pixels: Vec::new() }
    }

    /// Prepares a sample with several draws. A sample that a machine cannot prepare changes the digest, without a
    /// panic.
    fn prepare(&mut self, source: Source<'_>, pipeline: &Pipeline) {
        self.pixels.resize(pipeline.output().bytes(), 0);
        for sample_id in 0..DRAWS {
            let draw = Draw { seed: 0xDD17, epoch: 1, sample_id };
            let outcome = self.preparer.prepare(source, pipeline, draw, &mut self.pixels);
            self.hasher.update(&[outcome.as_ref().err().map_or(0, |error| error.reason().code())]);
            if outcome.is_ok() {
                self.hasher.update(&self.pixels);
            }
        }
    }

    fn finish(self) -> Ability {
        let digest = self.hasher.finalize();
        let (first, _) = digest.as_bytes().split_first_chunk().expect("a digest has 32 bytes");
        Ability { number: self.number, digest: *first }
    }
}

fn rendering(inputs: &Inputs) -> Ability {
    let mut digest = Digest::of(AbilityNumber::RENDERING);
    recipes().iter().for_each(|recipe| digest.prepare(inputs.raw(1), recipe));
    digest.finish()
}

fn orienting(inputs: &Inputs) -> Ability {
    let mut digest = Digest::of(AbilityNumber::ORIENTATION);
    let exif = exif::app1_of_orientation(6);
    let length = (exif.len() as u16 + 2).to_be_bytes();
    let turned = [&JPEG[..2], &[0xFF, 0xE1], &length, &exif, &JPEG[2..]].concat();
    let found: Vec<u8> = IMAGES.into_iter().chain([&turned[..]]).map(orientation::of).collect();
    digest.hasher.update(&found);
    let [_, val, _] = recipes();
    let upright = Pipeline { exif_orientation: true, ..val };
    (1..=8).for_each(|orientation| digest.prepare(inputs.raw(orientation), &upright));
    digest.finish()
}

/// Returns a pipeline of these operations, whose result has a fixed size.
fn closed(mut operations: Vec<Operation>) -> Pipeline {
    let pipeline = Pipeline::of(operations.clone());
    if pipeline.validate() != Err(PipelineError::OpenSize) {
        return pipeline;
    }
    operations.push(CenterCrop::to(SIDE).into());
    Pipeline::of(operations)
}

/// Covers the parameters as programs carry them, and the operation on a whole image, after a resize and after itself.
fn operation(examples: &[Operation], inputs: &Inputs) -> Ability {
    let mut digest = Digest::of(examples.first().expect("an operation has an example").ability());
    for example in examples {
        digest.hasher.update(&example.to_bytes());
        let resized = RandomResizedCrop::to(BETWEEN).into();
        for pipeline in [vec![example.clone()], vec![resized, example.clone(), example.clone()]].map(closed) {
            digest.prepare(inputs.planar(), &pipeline);
            digest.prepare(inputs.raw(1), &pipeline);
        }
    }
    digest.finish()
}

fn decoding(decoder: Decoder, inputs: &Inputs) -> Ability {
    let mut digest = Digest::of(decoder.ability());
    for source in inputs.of(decoder) {
        recipes().iter().for_each(|recipe| digest.prepare(source, recipe));
    }
    digest.finish()
}

/// Returns the ability for samples that are JPEG files with a detail. `files` is the ability for JPEG files, which
/// decodes a sample whose detail is damaged.
fn decoding_by_detail(decoder: Decoder, inputs: &Inputs, files: Ability) -> Ability {
    let Ability { number, digest } = decoding(decoder, inputs);
    let mut both = Digest::of(number);
    both.hasher.update(&digest).update(&files.digest);
    both.finish()
}

pub(super) fn compute() -> Vec<Ability> {
    let inputs = Inputs::new();
    let mut abilities = vec![rendering(&inputs), orienting(&inputs)];
    abilities.extend(Operation::examples().iter().map(|examples| operation(examples, &inputs)));
    let files = decoding(Decoder::File(Format::Jpeg), &inputs);
    abilities.extend(Decoder::all().map(|decoder| match decoder {
        Decoder::File(Format::Jpeg) => files,
        Decoder::Indexed | Decoder::Rows => decoding_by_detail(decoder, &inputs, files),
        _ => decoding(decoder, &inputs),
    }));
    abilities
}
