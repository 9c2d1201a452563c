//! The EXIF orientation of a file, in every format that has one, and the tags of a TIFF's first page.
//!
//! The parser accepts any bytes: what it does not understand means "upright". Checksums of PNG chunks do not matter.

use crate::info::Format;
use crate::jpeg::exif;

const COMPRESSION: u16 = 0x0103;
const ORIENTATION: u16 = 0x0112;

/// Returns the EXIF orientation of a file, 1 (upright) to 8.
pub(crate) fn of(file: &[u8]) -> u8 {
    let tiff = match Format::of(file) {
        Ok(Format::Jpeg) => exif::tiff(file),
        Ok(Format::Png) => png_chunks(file).find(|&(kind, _)| kind == b"eXIf").map(|(_, data)| data.into()),
        Ok(Format::WebP) => riff_chunks(file).find(|&(kind, _)| kind == b"EXIF").map(|(_, data)| data.into()),
        Ok(Format::Tiff) => Some(file.into()),
        _ => None,
    };
    // Some writers put JPEG's prefix in front of it in other formats, too.
    let tiff = tiff.as_deref().map(|tiff| tiff.strip_prefix(b"Exif\0\0").unwrap_or(tiff));
    let found = tiff.and_then(|tiff| Tiff::parse(tiff)?.numbers(ORIENTATION).next());
    found.and_then(|value| u8::try_from(value).ok()).filter(|value| (1..=8).contains(value)).unwrap_or(1)
}

/// Returns whether the first page of a TIFF is compressed as JPEG.
pub(crate) fn is_jpeg_in_tiff(file: &[u8]) -> bool {
    Tiff::parse(file).is_some_and(|tiff| tiff.numbers(COMPRESSION).any(|value| matches!(value, 6 | 7)))
}

/// Returns a PNG whose image data end the file, if chunks are damaged or missing behind them. Pillow does not read
/// these chunks.
pub(crate) fn png_up_to_its_pixels(file: &[u8]) -> Option<Vec<u8>> {
    let (mut at, mut end) = (8, None);
    for (kind, data) in png_chunks(file) {
        at += 12 + data.len();
        match kind {
            b"IDAT" => end = Some(at),
            b"IEND" => break,
            _ => {}
        }
    }
    Some([file.get(..end?)?, b"\0\0\0\0IEND\xAE\x42\x60\x82"].concat())
}

/// Returns the chunks of a PNG, each with its kind and its data.
fn png_chunks(file: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = file.get(8..).unwrap_or_default();
    std::iter::from_fn(move || {
        let (length, behind) = rest.split_first_chunk::<4>()?;
        let (kind, behind) = behind.split_at_checked(4)?;
        let (data, behind) = behind.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        rest = behind.get(4..).unwrap_or_default();
        Some((kind, data))
    })
}

/// Returns the chunks of a WebP, each with its kind and its data.
pub(crate) fn riff_chunks(file: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    chunks_of(file.get(12..).unwrap_or_default())
}

/// Returns chunks that lie one behind the other, padded to even lengths.
pub(crate) fn chunks_of(mut rest: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    std::iter::from_fn(move || {
        let (kind, behind) = rest.split_at_checked(4)?;
        let (length, behind) = behind.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes(*length) as usize;
        let data = behind.get(..length)?;
        rest = behind.get(length.next_multiple_of(2)..).unwrap_or_default();
        Some((kind, data))
    })
}

/// The first directory of a TIFF. TIFF 6.0, section 2: byte order, 42, offset of the directory, whose entries have 12
/// bytes each.
struct Tiff<'a> {
    bytes: &'a [u8],
    is_little: bool,
    directory: usize,
}

impl<'a> Tiff<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let is_little = match bytes.get(..2)? {
            b"II" => true,
            b"MM" => false,
            _ => return None,
        };
        let mut tiff = Self { bytes, is_little, directory: 0 };
        if tiff.u16_at(2)? != 42 {
            return None;
        }
        tiff.directory = tiff.u32_at(4)? as usize;
        Some(tiff)
    }

    fn u16_at(&self, at: usize) -> Option<u16> {
        let bytes = self.bytes.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if self.is_little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    }

    fn u32_at(&self, at: usize) -> Option<u32> {
        let bytes = self.bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(if self.is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    }

    /// Returns the values of all entries of a tag that hold one whole number, signed ones as their bits.
    fn numbers(&self, tag: u16) -> impl Iterator<Item = u32> {
        let entries = self.u16_at(self.directory).unwrap_or(0);
        let places = (0..usize::from(entries)).map_while(|i| self.directory.checked_add(2 + 12 * i));
        places.filter_map(move |at| {
            if self.u16_at(at)? != tag || self.u32_at(at + 4)? != 1 {
                return None;
            }
            match self.u16_at(at + 2)? {
                1 | 6 => self.bytes.get(at + 8).map(|&byte| u32::from(byte)),
                3 | 8 => self.u16_at(at + 8).map(u32::from),
                4 | 9 => self.u32_at(at + 8),
                _ => None,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A TIFF that says nothing but an orientation.
    fn tiff(orientation: u8) -> Vec<u8> {
        exif::app1_of_orientation(orientation).split_off(6)
    }

    fn png(exif: &[u8]) -> Vec<u8> {
        let mut file = b"\x89PNG\r\n\x1a\n\0\0\0\x01IHDRx\0\0\0\0".to_vec();
        file.extend((exif.len() as u32).to_be_bytes());
        [&file, &b"eXIf"[..], exif, &[0; 4]].concat()
    }

    fn webp(exif: &[u8]) -> Vec<u8> {
        let mut file = b"RIFF\0\0\0\0WEBPVP8X\x03\0\0\0\0\0\0\0EXIF".to_vec();
        file.extend((exif.len() as u32).to_le_bytes());
        [&file, exif].concat()
    }

    #[test]
    fn each_format_has_its_own_place_for_it() {
        for value in 1..=8 {
            let tiff = tiff(value);
            let prefixed = [&b"Exif\0\0"[..], &tiff].concat();
            for file in [png(&tiff), webp(&tiff), png(&prefixed), webp(&prefixed), tiff] {
                assert_eq!(of(&file), value, "{file:02x?}");
            }
        }
    }

    #[test]
    fn both_byte_orders_are_read() {
        let mut little = b"II\x2A\0\x08\0\0\0\x01\0".to_vec();
        little.extend_from_slice(&[0x12, 0x01, 3, 0, 1, 0, 0, 0, 6, 0, 0, 0]);
        assert_eq!(of(&little), 6);
    }

    #[test]
    fn nonsense_is_upright() {
        assert_eq!(of(&tiff(9)), 1);
        for good in [png(&tiff(6)), webp(&tiff(6)), tiff(6)] {
            for length in 0..good.len() {
                assert!(matches!(of(&good[..length]), 1 | 6));
            }
            for i in 0..good.len() {
                for byte in [0, 0x7F, 0xFF] {
                    let mut bad = good.clone();
                    bad[i] = byte;
                    assert!((1..=8).contains(&of(&bad)));
                }
            }
        }
    }
}
