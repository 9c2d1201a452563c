//! Form 5: the pixels of a lossless image in L3, cut into patches, so that a crop reads and decodes only the patches
//! that it covers.
//!
//! The detail is the index of the L3 image, and lies in front of the patches: both together are a whole L3 file. Each
//! patch has a checksum in the index.

use super::StoredForm;
use super::form::{Form, Holds, PackOption, Unusable, check_detail};
use crate::pack::storing::{PackedSample, PixelsToStore, reserve};
use crate::pack::{IndexRecord, StoredVerdict};
use crate::{Header, Reads};
use ddlp_l3::{Error, Image, Index, Options, Region, encode};
use ddlp_pixels::{
    Band, BandMemory, FormDecoder, FormImage, ImageInfo, PixelError, Rect, SamplePlan, Sink, Source, synthetic,
};
use std::ops::Range;

/// Size up to which a sample is read as a whole, together with its index.
const WHOLE_BYTES: u64 = 32 << 10;
/// Largest gap between the patches of two rows that is read with them: another read would cost more.
const GAP_BYTES: u64 = 16 << 10;

pub(super) struct L3;

impl Form for L3 {
    /// The index and the extents of a sample of which a part was read.
    type Notes = Option<PartRead>;

    const OPTION: Option<PackOption> =
        Some(PackOption::Format("the pixels of lossless images in L3, of which a crop decodes only its part"));
    const DETAIL: Option<&'static str> = Some("index");
    const HOLDS: Holds = Holds::Pixels(store);
    /// That of patches in an L3 image.
    const ALIGNMENT: u64 = 4;

    fn examples(take: &mut dyn FnMut(Source<'_>)) {
        let photo = synthetic::photo(170, 150, 1);
        let gray: Vec<u8> = synthetic::photo(45, 70, 2).chunks_exact(3).flat_map(|color| [color[0]; 3]).collect();
        for (size, pixels) in [((170, 150), photo), ((45, 70), gray)] {
            // A machine that encodes no image gets another digest.
            let Ok((index, patches)) = encoded(pixels, size) else { continue };
            let (form, orientation, was_shrunk, offset) = (StoredForm::L3 as u8, 1, false, 0);
            let ((width, height), decoder, detail, bytes) = (size, &L3, &index[..], &patches[..]);
            let image = FormImage { form, decoder, width, height, orientation, was_shrunk, detail, offset, bytes };
            take(Source::Image(image));
        }
    }

    fn detail_of(bytes: &Range<u64>, detail_length: u32) -> Range<u64> {
        bytes.start.saturating_sub(detail_length.into())..bytes.start
    }

    fn check(record: &IndexRecord) -> Result<(), String> {
        let &IndexRecord { length, width, height, detail_length, .. } = record;
        if length == 0 || width == 0 || height == 0 || detail_length == 0 {
            return Err(format!(
                "an image of {width} x {height} cannot have {length} bytes of patches and {detail_length} bytes of \
                 index"
            ));
        }
        if matches!(record.verdict, StoredVerdict::Rejected(_)) {
            return Err("it was rejected, but its form stores only decoded samples".to_owned());
        }
        Ok(())
    }

    fn first_bytes(header: &Header) -> Range<u64> {
        let Header { bytes, detail, .. } = header;
        detail.start..if bytes.end - detail.start <= WHOLE_BYTES { bytes.end } else { detail.end }
    }

    fn next(
        header: &Header,
        read: &[u8],
        plan: &mut SamplePlan<'_>,
        notes: &mut Option<PartRead>,
        more: &mut Reads,
    ) -> Result<(), Unusable> {
        let first = Self::first_bytes(header);
        if read.len() as u64 > first.end - first.start {
            return Ok(());
        }
        let index = &read[..header.detail_bytes()];
        check_detail(header, index)?;
        if first.end == header.bytes.end {
            *notes = None;
            return Ok(());
        }
        let part = notes.insert(PartRead::of(header, index, plan)?);
        part.extents
            .iter()
            .for_each(|extent| more.add(header.detail.start + extent.start..header.detail.start + extent.end));
        Ok(())
    }

    fn source<'a>(
        header: &Header,
        read: &'a [u8],
        _: &mut SamplePlan<'_>,
        notes: &'a Option<PartRead>,
    ) -> Result<Source<'a>, PixelError> {
        let (index, patches) = read.split_at(header.detail_bytes());
        let decoder: &dyn FormDecoder = match notes {
            Some(part) => part,
            // All patches are there.
            None => &L3,
        };
        Ok(header.image(decoder, index, 0, patches))
    }

    fn misfit(info: &ImageInfo) -> Option<&'static str> {
        match info {
            ImageInfo { is_lossless: false, .. } => Some("lossy"),
            ImageInfo { bits: 9.., .. } => Some("more than 8 bits per value"),
            _ => None,
        }
    }
}

impl FormDecoder for L3 {
    fn read(
        &self,
        image: &FormImage<'_>,
        rect: Rect,
        memory: BandMemory<'_>,
        sink: Sink<'_>,
    ) -> Result<(), PixelError> {
        PartRead::whole(image.detail, (image.width, image.height))?.read(image, rect, memory, sink)
    }
}

/// The part of an L3 image that was read.
#[derive(Debug)]
pub(super) struct PartRead {
    index: Index,
    /// Where the bytes lie in the image, whose index comes first. They follow each other in memory.
    extents: Vec<Range<u64>>,
}

impl PartRead {
    /// Reads the index of an image of this size, all of whose patches are there.
    fn whole(index: &[u8], (width, height): (u32, u32)) -> Result<Self, PixelError> {
        let (read, index_bytes) = (Index::read(index).map_err(error_of)?, index.len() as u64);
        let is_of_image = (read.width(), read.height()) == (width as usize, height as usize);
        if is_of_image && Index::bytes(index) == Ok(index_bytes) {
            let patches = index_bytes..read.image_bytes();
            return Ok(Self { index: read, extents: vec![patches] });
        }
        let (columns, rows) = (read.width(), read.height());
        Err(PixelError::Malformed {
            source: format!(
                "the index of {index_bytes} bytes is for an image of {columns}x{rows} pixels, not of {width}x{height}"
            )
            .into(),
        })
    }

    /// Returns the part that a plan needs.
    fn of(header: &Header, index: &[u8], plan: &mut SamplePlan<'_>) -> Result<Self, PixelError> {
        let Self { index, mut extents } = Self::whole(index, header.size)?;
        let (stored, described) = (header.bytes.end - header.detail.start, index.image_bytes());
        if stored != described {
            let message = format!("the index is of an image of {described} bytes, but {stored} are stored");
            return Err(PixelError::Malformed { source: message.into() });
        }
        extents.clear();
        if let Some(rect) = plan.rect(header.size, header.orientation)? {
            for piece in index.pieces(region_of(rect)).map_err(error_of)? {
                match extents.last_mut() {
                    Some(last) if piece.start <= last.end + GAP_BYTES => last.end = piece.end,
                    _ => extents.push(piece),
                }
            }
        }
        Ok(Self { index, extents })
    }

    /// Returns a piece of an image.
    fn bytes_of<'a>(&self, image: &FormImage<'a>, piece: Range<u64>) -> Result<&'a [u8], PixelError> {
        let missing = || PixelError::Malformed { source: format!("bytes {piece:?} are missing from {image:?}").into() };
        let mut before = 0;
        for Range { start, end } in self.extents.iter().cloned() {
            if start <= piece.start && piece.end <= end {
                let bytes = image.bytes.get((before + piece.start - start) as usize..);
                let bytes = bytes.and_then(|bytes| bytes.get(..(piece.end - piece.start) as usize));
                return bytes.ok_or_else(missing);
            }
            before += end - start;
        }
        Err(missing())
    }
}

impl FormDecoder for PartRead {
    fn read(
        &self,
        image: &FormImage<'_>,
        rect: Rect,
        mut memory: BandMemory<'_>,
        sink: Sink<'_>,
    ) -> Result<(), PixelError> {
        let Self { index, .. } = self;
        let (side, channels, columns) = (index.patch_side() as u32, index.channels(), rect.width as usize);
        let end = rect.y + rect.height;
        let mut y = rect.y;
        while y < end {
            let rows = (side - y % side).min(end - y);
            let region = region_of(Rect { y, height: rows, ..rect });
            // A region within one row of patches has one piece.
            let piece = index.pieces(region).map_err(error_of)?.next().unwrap_or_default();
            let piece = self.bytes_of(image, piece)?;
            let count = columns * rows as usize;
            let pixels = memory.bytes(3 * count as u64)?;
            index.decode_region(region, &[piece], pixels, columns * channels).map_err(error_of)?;
            if channels == 1 {
                repeat_gray(pixels, count);
            }
            sink(Band { y: y - rect.y, rows, columns: rect.width, left: 0, pixels })?;
            y += rows;
        }
        Ok(())
    }
}

/// Appends the L3 image of a sample.
fn store(pixels: &mut PixelsToStore<'_>, out: &mut Vec<u8>) -> Result<PackedSample, PixelError> {
    let mut rgb = Vec::new();
    let decoded = pixels.decode(&mut rgb)?;
    let (index, patches) = encoded(rgb, (decoded.width, decoded.height))?;
    let start = out.len() + index.len();
    reserve(out, index.len() + patches.len())?;
    out.extend_from_slice(&index);
    out.extend_from_slice(&patches);
    Ok(PackedSample::of_pixels(start, &patches, StoredForm::L3, decoded).with_detail(&index))
}

/// Encodes rows of RGB. Returns the index of the L3 image, and its patches.
fn encoded(mut pixels: Vec<u8>, (width, height): (u32, u32)) -> Result<(Vec<u8>, Vec<u8>), PixelError> {
    let is_gray = pixels.as_chunks::<3>().0.iter().all(|&[red, green, blue]| red == green && green == blue);
    if is_gray {
        let count = pixels.len() / 3;
        (0..count).for_each(|at| pixels[at] = pixels[3 * at]);
        pixels.truncate(count);
    }
    let channels = if is_gray { 1 } else { 3 };
    let image = Image::new(&pixels, width as usize, height as usize, channels).map_err(error_of)?;
    let mut index = encode(image, Options::default());
    let index_bytes = Index::bytes(&index).map_err(error_of)?;
    let patches = index.split_off(index_bytes as usize);
    Ok((index, patches))
}

fn region_of(rect: Rect) -> Region {
    let Rect { x, y, width, height } = rect;
    Region { x: x as usize, y: y as usize, width: width as usize, height: height as usize }
}

/// Turns the first `count` bytes of `pixels` from gray into RGB.
fn repeat_gray(pixels: &mut [u8], count: usize) {
    for at in (0..count).rev() {
        let gray = pixels[at];
        pixels[3 * at..][..3].fill(gray);
    }
}

fn error_of(error: Error) -> PixelError {
    match error {
        Error::IndexChecksum { .. } | Error::PatchChecksum { .. } => {
            PixelError::Checksum { message: error.to_string() }
        }
        error => PixelError::Malformed { source: error.into() },
    }
}
