//! From pixels to bytes.

use crate::patch::PatchShape;
use crate::planes::{EMPTY, Planes};
use crate::{Image, Index, Level};

pub(crate) mod patch;

/// How an image is encoded. The choices change the number of bytes and the speed, never the pixels.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The side of a patch.
    pub patch: PatchSize,
    /// The number of threads, at most one for each row of patches.
    pub threads: usize,
}

impl Default for Options {
    /// Patches by the image's size, and one thread.
    fn default() -> Self {
        Self { patch: PatchSize::BySize, threads: 1 }
    }
}

/// The side of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchSize {
    /// 32 pixels, of which a small crop covers fewer.
    Side32,
    /// 64 pixels, which take fewer bytes in most images, and decode faster with wide vectors.
    Side64,
    /// 32 pixels for an image whose sides are both at most 32, and 64 for a larger one.
    BySize,
    /// The size that takes fewer bytes, or 64 if both take as many. Encoding takes twice as long.
    Smaller,
}

/// Encodes an image.
pub fn encode(image: Image<'_>, options: Options) -> Vec<u8> {
    encode_at(Level::best(), image, options)
}

/// Encodes an image with a set of vector instructions. Every set gives the same bytes.
pub fn encode_at(level: Level, image: Image<'_>, options: Options) -> Vec<u8> {
    let with_side = |side| encode_with_side(level, image, side, options.threads);
    match options.patch {
        PatchSize::Side32 => with_side(32),
        PatchSize::Side64 => with_side(64),
        PatchSize::BySize => with_side(if image.width().max(image.height()) <= 32 { 32 } else { 64 }),
        PatchSize::Smaller => {
            let (small, large) = (with_side(32), with_side(64));
            if small.len() < large.len() { small } else { large }
        }
    }
}

fn encode_with_side(level: Level, image: Image<'_>, side: usize, threads: usize) -> Vec<u8> {
    let rows = image.height().div_ceil(side);
    let band = rows.div_ceil(threads.max(1));
    let patches: Vec<_> = if band >= rows {
        encode_rows(level, image, side, 0..rows)
    } else {
        std::thread::scope(|scope| {
            let bands = (0..rows).step_by(band).map(|begin| {
                let rows = begin..rows.min(begin + band);
                scope.spawn(move || encode_rows(level, image, side, rows))
            });
            let bands: Vec<_> = bands.collect();
            bands.into_iter().flat_map(|band| band.join().expect("encoding does not panic")).collect()
        })
    };
    let mut bytes = Index::write(image.width(), image.height(), image.channels(), side, &patches);
    bytes.reserve_exact(patches.iter().map(Vec::len).sum());
    patches.iter().for_each(|patch| bytes.extend_from_slice(patch));
    bytes
}

/// Encodes rows of patches, patch by patch.
fn encode_rows(level: Level, image: Image<'_>, side: usize, rows: std::ops::Range<usize>) -> Vec<Vec<u8>> {
    let mut planes = EMPTY;
    let mut patches = Vec::with_capacity(rows.len() * image.width().div_ceil(side));
    for y in rows.map(|row| row * side) {
        for x in (0..image.width()).step_by(side) {
            let shape = PatchShape {
                width: side.min(image.width() - x),
                height: side.min(image.height() - y),
                side,
                channels: image.channels(),
            };
            read_planes(image, x, y, &shape, &mut planes);
            patches.push(level.encode_patch(&planes, &shape));
        }
    }
    patches
}

/// Reads the pixels of a patch.
fn read_planes(image: Image<'_>, x: usize, y: usize, shape: &PatchShape, planes: &mut Planes) {
    for row in 0..shape.height {
        let pixels = image.row(x, y + row, shape.width);
        let [red, green, blue] = planes.each_mut().map(|plane| &mut plane[row][..shape.width]);
        match shape.channels {
            1 => red.copy_from_slice(pixels),
            _ => {
                for (((pixel, red), green), blue) in pixels.chunks_exact(3).zip(red).zip(green).zip(blue) {
                    [*red, *green, *blue] = [pixel[0], pixel[1], pixel[2]];
                }
            }
        }
    }
}
