//! Built-in samples, with which machines compare how they make pixels.

use crate::form_image::FormImage;
use crate::info::Format;
use crate::jpeg::baseline::{self, Checkpoints};
use crate::level::Level;
use crate::limits::Limits;
use crate::partial::PartialJpeg;
use crate::pieces::ScanGroups;
use crate::preparer::Preparer;
use crate::raw::RawRows;
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

/// Built-in images that earlier versions decoded to other pixels, or not at all.
const PNG_WITHOUT_END: &[u8] = include_bytes!("images/no-end.png");
const BMP_OF_16_BITS: &[u8] = include_bytes!("images/555.bmp");
const BMP_OF_OS2: &[u8] = include_bytes!("images/os2.bmp");
const BMP_OF_RUNS: &[u8] = include_bytes!("images/rle8-skips.bmp");
const GIF_FRAME: &[u8] = include_bytes!("images/frame.gif");
const PNM_MAXIMUM: &[u8] = include_bytes!("images/maximum.ppm");
const PNM_WIDE: &[u8] = include_bytes!("images/wide.ppm");

/// Image that is also decoded from checkpoints and by a row index. It has several rows of MCUs and no restart markers,
/// so that the decoder reads two rows at once.
pub(super) const JPEG: &[u8] = IMAGES[0];
/// MCUs between two checkpoints.
const EVERY: u32 = 2;

/// Sides of the planar image: wide enough for vector code.
const PLANAR: (u32, u32) = (40, 36);
/// Sides of a raw image: so large that the usual recipes shrink it by more than 3, where the resizer takes another
/// path.
const RAW: (u32, u32) = (170, 150);
/// Groups of the raw image.
const GROUPS: RawRows = RawRows { group_rows: 16 };

/// Returns the files with which a format's decoder is tested.
pub(super) fn files(format: Format) -> Vec<&'static [u8]> {
    let images = IMAGES.into_iter().chain([PNG_WITHOUT_END]);
    match format {
        Format::Bmp => vec![BMP, BMP_OF_16_BITS, BMP_OF_OS2, BMP_OF_RUNS],
        Format::Gif => vec![GIF, GIF_FRAME],
        Format::Pnm => vec![PNM, PNM_MAXIMUM, PNM_WIDE],
        _ => images.filter(|file| Format::of(file).is_ok_and(|found| found == format)).collect(),
    }
}

/// Returns noise of 8-bit RGB, so that every byte of an image counts.
pub fn noise((width, height): (u32, u32)) -> Vec<u8> {
    (0..width * height * 3).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Passes an image of three planes to `take`.
pub fn planar(take: &mut dyn FnMut(Source<'_>)) {
    take(Source::Planar { width: PLANAR.0, height: PLANAR.1, bytes: &noise(PLANAR) });
}

/// Passes a JPEG with checkpoints to `take`.
pub fn indexed(take: &mut dyn FnMut(Source<'_>)) {
    // No assertion here and below: a machine that finds no checkpoints, or makes no row index, gets another digest only
    // if its pixels differ.
    let checkpoints = Checkpoints::of(JPEG, EVERY).map(|checkpoints| checkpoints.to_bytes()).unwrap_or_default();
    take(Source::Indexed { file: JPEG, checkpoints: &checkpoints });
}

/// Passes a JPEG with a row index to `take`.
pub fn rows(take: &mut dyn FnMut(Source<'_>)) {
    let index = RowIndex::of(&mut baseline::BaselineDecoder::new(Level::best()), &mut Vec::new(), JPEG);
    let index = index.ok().and_then(|index| RowIndex::parse(&index.to_bytes()).ok());
    take(index.as_ref().map_or(Source::Encoded(JPEG), |index| {
        let header = &JPEG[..index.header_bytes() as usize];
        Source::Rows(PartialJpeg { index, header, rows: JPEG, rows_offset: 0 })
    }));
}

/// Passes a JPEG of the first pieces of its scan groups to `take`.
pub fn pieces(take: &mut dyn FnMut(Source<'_>)) {
    let cut = Preparer::new(Limits::default()).cut(JPEG, &ScanGroups::default());
    for groups in [1, 3, 4] {
        let prefix = cut.as_ref().map(|pieces| pieces.prefix(groups)).unwrap_or_default();
        take(Source::Pieces { file: &prefix, orientation: 6 });
    }
}

/// Passes an image of raw pixels, stored in this orientation, to `take`. `form` is the form's number in a record.
pub fn raw(form: u8, orientation: u8, take: &mut dyn FnMut(Source<'_>)) {
    let ((width, height), pixels) = (RAW, noise(RAW));
    let detail = GROUPS.checksums_of(&pixels, width);
    take(Source::Image(FormImage {
        form,
        decoder: &GROUPS,
        width,
        height,
        orientation,
        was_shrunk: false,
        detail: &detail,
        offset: 0,
        bytes: &pixels,
    }));
}
