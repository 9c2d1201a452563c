//! Parts of a BMP that Pillow reads differently from the `image` crate: run-length codes, values of 5 and 6 bits, and
//! the header of OS/2 version 2.

use crate::error::PixelError;
use crate::info::{Format, ImageInfo};
use crate::limits::Limits;
use std::borrow::Cow;

/// Bytes of the file's own header, behind which the image's header begins with its length.
const FILE_HEADER_BYTES: usize = 14;
/// Bytes of the usual header of an image. Longer ones begin with the same fields.
const INFO_HEADER_BYTES: usize = 40;
/// Bytes of the header of OS/2 version 2.
const OS2_HEADER_BYTES: usize = 64;

/// Compressions.
const NONE: u32 = 0;
const RLE8: u32 = 1;
const RLE4: u32 = 2;
const MASKS: u32 = 3;

/// Reads the little-endian number at an offset.
fn number(file: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*file.get(at..)?.first_chunk()?))
}

/// Returns the length of the image's header, if it has the usual fields.
fn header_bytes(file: &[u8]) -> Option<usize> {
    number(file, FILE_HEADER_BYTES)
        .map(|length| length as usize)
        .filter(|length| matches!(length, 40 | 52 | 56 | 64 | 108 | 124))
}

fn bits(file: &[u8]) -> Option<u32> {
    Some(u16::from_le_bytes(*file.get(28..)?.first_chunk()?).into())
}

fn compression(file: &[u8]) -> Option<u32> {
    number(file, 30)
}

/// Returns a file whose header the `image` crate knows: one of OS/2 version 2 loses its last fields, which say nothing
/// about pixels.
pub(crate) fn with_known_header(file: &[u8]) -> Cow<'_, [u8]> {
    let cut = OS2_HEADER_BYTES - INFO_HEADER_BYTES;
    let shortened = || {
        // Other compressions than none mean something else in OS/2.
        if header_bytes(file)? != OS2_HEADER_BYTES || compression(file)? != NONE {
            return None;
        }
        let data = number(file, 10)?.checked_sub(cut as u32)?;
        let (head, behind) = file.split_at_checked(FILE_HEADER_BYTES + OS2_HEADER_BYTES)?;
        let mut known = [&head[..FILE_HEADER_BYTES + INFO_HEADER_BYTES], behind].concat();
        known[10..14].copy_from_slice(&data.to_le_bytes());
        known[14..18].copy_from_slice(&(INFO_HEADER_BYTES as u32).to_le_bytes());
        Some(known)
    };
    shortened().map_or(Cow::Borrowed(file), Cow::Owned)
}

/// Changes the values of an image of 16 bits a pixel to Pillow's: the `image` crate rounds, Pillow cuts off.
pub(crate) fn cut_off_levels(file: &[u8], pixels: &mut [u8]) {
    let Some(masks) = masks_of_sixteen_bits(file) else { return };
    let levels = masks.map(|mask| {
        let most = match mask.count_ones() {
            bits @ (5 | 6) => (1u32 << bits) - 1,
            // Pillow does not read others.
            _ => 255,
        };
        std::array::from_fn::<u8, 256, _>(|level| (((level as u32 * most + 127) / 255) * 255 / most) as u8)
    });
    for pixel in pixels.as_chunks_mut::<3>().0 {
        for (value, levels) in pixel.iter_mut().zip(&levels) {
            *value = levels[usize::from(*value)];
        }
    }
}

/// Returns the bits of red, green and blue in an image of 16 bits a pixel.
fn masks_of_sixteen_bits(file: &[u8]) -> Option<[u32; 3]> {
    header_bytes(file)?;
    match (bits(file)?, compression(file)?) {
        (16, NONE) => Some([0x7C00, 0x03E0, 0x001F]),
        (16, MASKS) => Some([number(file, 54)?, number(file, 58)?, number(file, 62)?]),
        _ => None,
    }
}

/// An image of palette indices in run-length codes.
pub(crate) struct RunLengths<'f> {
    pub width: u32,
    pub height: u32,
    is_top_down: bool,
    has_four_bits: bool,
    palette: &'f [u8],
    file: &'f [u8],
    /// Offset of the codes.
    codes: usize,
}

impl<'f> RunLengths<'f> {
    /// Reads the header. Returns `None` for another BMP.
    pub fn parse(file: &'f [u8]) -> Option<Self> {
        let header = header_bytes(file)?;
        let has_four_bits = match (compression(file)?, bits(file)?) {
            (RLE8, 8) => false,
            (RLE4, 4) => true,
            _ => return None,
        };
        let (width, height) = (number(file, 18)?, number(file, 22)? as i32);
        let colors = match number(file, 46)? as usize {
            0 => 1 << bits(file)?,
            colors => colors.min(256),
        };
        let palette = file.get(FILE_HEADER_BYTES + header..)?.get(..4 * colors)?;
        // Some writers count no palette.
        let codes = match number(file, 10)? as usize {
            at if at <= FILE_HEADER_BYTES + header => FILE_HEADER_BYTES + header + palette.len(),
            at => at,
        };
        let (is_top_down, height) = (height < 0, height.unsigned_abs());
        Some(Self { width, height, is_top_down, has_four_bits, palette, file, codes })
    }

    /// Returns what the header says.
    pub fn info(&self) -> ImageInfo {
        let Self { width, height, .. } = *self;
        let format = Format::Bmp;
        ImageInfo { format, width, height, components: 3, bits: 8, is_lossless: true, orientation: 1, jpeg: None }
    }

    /// Decodes the pixels as RGB. The caller has checked the size of the image. `indices` is scratch memory.
    pub fn decode(&self, limits: Limits, indices: &mut Vec<u8>, pixels: &mut Vec<u8>) -> Result<(), PixelError> {
        let count = u64::from(self.width) * u64::from(self.height);
        limits.make_room(indices, count)?;
        self.read(count as usize, indices)?;
        limits.make_room(pixels, count * 3)?;
        let colors = self.palette.as_chunks::<4>().0;
        let colors: [[u8; 3]; 256] =
            std::array::from_fn(|index| colors.get(index).map_or([0; 3], |&[blue, green, red, _]| [red, green, blue]));
        let rows = indices.chunks_exact(self.width as usize);
        let mut put = |row: &[u8]| row.iter().for_each(|&index| pixels.extend(colors[usize::from(index)]));
        if self.is_top_down {
            rows.for_each(&mut put)
        } else {
            rows.rev().for_each(&mut put)
        }
        Ok(())
    }

    /// Appends the indices of all pixels, in the order of the file. Pixels that the codes skip have the index 0. An end
    /// mark is not necessary.
    fn read(&self, count: usize, indices: &mut Vec<u8>) -> Result<(), PixelError> {
        let ended = || PixelError::Truncated { source: "the codes end before the image does".into() };
        let width = self.width as usize;
        let (mut at, mut x) = (self.codes, 0);
        while indices.len() < count {
            let Some(&[first, second]) = self.file.get(at..).and_then(|rest| rest.first_chunk()) else {
                return Err(ended());
            };
            at += 2;
            let room = count - indices.len();
            match (first, second) {
                (0, 0) => {
                    let row_end = indices.len().next_multiple_of(width);
                    indices.resize(row_end, 0);
                    x = 0;
                }
                (0, 1) => indices.resize(count, 0),
                (0, 2) => {
                    let Some(&[right, up]) = self.file.get(at..).and_then(|rest| rest.first_chunk()) else {
                        return Err(ended());
                    };
                    at += 2;
                    let skipped = usize::from(right) + usize::from(up) * width;
                    indices.resize(indices.len() + skipped.min(room), 0);
                    x = indices.len() % width;
                }
                (0, length) => {
                    let length = usize::from(length);
                    let bytes = if self.has_four_bits { length.div_ceil(2) } else { length };
                    let taken = self.file.get(at..).and_then(|rest| rest.get(..bytes)).ok_or_else(ended)?;
                    let index = |i: usize| if self.has_four_bits { half(taken[i / 2], i) } else { taken[i] };
                    indices.extend((0..length.min(room)).map(index));
                    x += length;
                    // The next code lies at an even offset.
                    at = (at + bytes).next_multiple_of(2);
                }
                (length, value) => {
                    // A run ends with its row.
                    let length = usize::from(length).min(width.saturating_sub(x));
                    let index = |i: usize| if self.has_four_bits { half(value, i) } else { value };
                    indices.extend((0..length.min(room)).map(index));
                    x += length;
                }
            }
        }
        Ok(())
    }
}

/// Returns the upper four bits for an even pixel and the lower ones for an odd one.
fn half(byte: u8, pixel: usize) -> u8 {
    if pixel.is_multiple_of(2) { byte >> 4 } else { byte & 15 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raster;

    /// Returns a BMP of the length of its header, bits a pixel, compression, palette and data.
    fn bmp(
        (width, height): (u32, i32),
        header: usize,
        (bits, compression): (u16, u32),
        palette: &[u8],
        data: &[u8],
    ) -> Vec<u8> {
        let start = FILE_HEADER_BYTES + header + palette.len();
        let mut file = b"BM\0\0\0\0\0\0\0\0".to_vec();
        file.extend((start as u32).to_le_bytes());
        file.extend((header as u32).to_le_bytes());
        file.extend(width.to_le_bytes());
        file.extend(height.to_le_bytes());
        file.extend([1, 0]);
        file.extend(bits.to_le_bytes());
        file.extend(compression.to_le_bytes());
        file.resize(46, 0);
        file.extend((palette.len() as u32 / 4).to_le_bytes());
        file.resize(start - palette.len(), 0);
        [&file, palette, data].concat()
    }

    fn decoded(file: &[u8]) -> Result<Vec<u8>, PixelError> {
        let (limits, mut pixels) = (Limits::default(), Vec::new());
        let decoded = raster::decode(file, Format::Bmp, limits, &mut Vec::new(), &mut pixels)?;
        let info = raster::info(file, Format::Bmp, limits)?;
        assert_eq!((info.width, info.height), (decoded.width, decoded.height));
        Ok(pixels)
    }

    /// Returns the indices of an image of run-length codes, in the order of the file.
    fn indices(width: u32, height: u32, (bits, compression): (u16, u32), codes: &[u8]) -> Result<Vec<u8>, PixelError> {
        let palette: Vec<u8> = (0..16).flat_map(|index| [0, 0, index, 0]).collect();
        let file = bmp((width, -(height as i32)), 40, (bits, compression), &palette, codes);
        decoded(&file).map(|pixels| pixels.chunks(3).map(|pixel| pixel[0]).collect())
    }

    #[test]
    fn levels_of_five_and_six_bits_are_cut_off_as_by_pillow() {
        let values: Vec<u8> =
            (0..64u16).flat_map(|value| ((value << 5) | ((value & 31) * 0x0801)).to_le_bytes()).collect();
        let masks = [0xF800u32, 0x07E0, 0x001F].map(u32::to_le_bytes).concat();
        let five = |value: u32| ((value & 31) * 255 / 31) as u8;
        let expected: Vec<u8> = (0..64).flat_map(|v| [five(v), (v * 255 / 63) as u8, five(v)]).collect();
        // The masks stand where a palette would.
        let file = bmp((64, 1), 40, (16, MASKS), &masks, &values);
        assert_eq!(decoded(&file), Ok(expected));
        let values: Vec<u8> = (0..32u16).flat_map(|value| (value * 0x0421).to_le_bytes()).collect();
        let expected: Vec<u8> = (0..32).flat_map(|value| [five(value); 3]).collect();
        assert_eq!(expected[9], 24);
        assert_eq!(decoded(&bmp((32, 1), 40, (16, NONE), &[], &values)), Ok(expected));
    }

    #[test]
    fn a_header_of_os2_says_the_same_as_the_usual_one() {
        let palette: Vec<u8> = (0..64u8).map(|value| value.wrapping_mul(37)).collect();
        let data: Vec<u8> = (0..96u8).map(|value| value.wrapping_mul(101)).collect();
        for (bits, palette) in [(1, &palette[..8]), (4, &palette), (8, &palette), (16, &[]), (24, &[]), (32, &[])] {
            let file = |header| bmp((6, 4), header, (bits, NONE), palette, &data);
            let usual = decoded(&file(INFO_HEADER_BYTES));
            assert!(usual.is_ok() && decoded(&file(OS2_HEADER_BYTES)) == usual, "{bits}");
        }
        let fax = bmp((6, 4), OS2_HEADER_BYTES, (1, MASKS), &palette[..8], &data);
        assert!(matches!(decoded(&fax), Err(PixelError::Unsupported { .. })));
    }

    #[test]
    fn run_lengths_need_no_end_mark_but_all_pixels() {
        let eight = |codes: &[u8]| indices(3, 2, (8, RLE8), codes);
        assert_eq!(eight(&[3, 7, 0, 0, 2, 5, 1, 6]), Ok(vec![7, 7, 7, 5, 5, 6]));
        assert_eq!(eight(&[9, 7, 0, 0, 0, 3, 1, 2, 3, 0]), Ok(vec![7, 7, 7, 1, 2, 3]));
        assert_eq!(eight(&[1, 7, 0, 0, 0, 2, 2, 0, 1, 9]), Ok(vec![7, 0, 0, 0, 0, 9]), "skipped pixels");
        assert_eq!(eight(&[1, 7, 0, 1]), Ok(vec![7, 0, 0, 0, 0, 0]), "an early end mark");
        let four = |codes: &[u8]| indices(3, 2, (4, RLE4), codes);
        assert_eq!(four(&[3, 0x12, 0, 0, 0, 3, 0x34, 0x50]), Ok(vec![1, 2, 1, 3, 4, 5]));
        for codes in [&[3, 7, 0, 0, 2, 5][..], &[3, 7, 0, 0, 0, 3, 1, 2], &[3, 7, 0, 2, 1], &[3], &[]] {
            assert!(matches!(eight(codes), Err(PixelError::Truncated { .. })), "{codes:?}");
        }
    }
}
