//! The first frame of a GIF, as Pillow shows it: on a canvas of the colour with the frame's transparent index, or of
//! the palette's first colour, whatever the file says about a background. The canvas grows if the frame reaches out of
//! it.

use super::FirstFrame;

/// Bytes in front of the global palette: signature, size of the canvas, flags, background, aspect ratio.
const HEADER_BYTES: usize = 13;
/// Bytes of an image descriptor: its mark, place, size, flags.
const DESCRIPTOR_BYTES: usize = 10;
/// Flag of header and descriptor: a palette follows. The lowest three bits have its size.
const PALETTE: u8 = 0x80;

/// Places in a GIF up to its first frame.
pub(super) struct Gif<'f> {
    file: &'f [u8],
    /// The palette of the frame, or else of the file. Empty if neither has one.
    palette: &'f [u8],
    /// Palette index of transparent pixels.
    transparent: Option<u8>,
    /// Offset of the frame's image descriptor.
    descriptor: usize,
}

impl<'f> Gif<'f> {
    /// Finds the first frame. Returns `None` if it is not there, or if something unknown is in front of it.
    pub fn parse(file: &'f [u8]) -> Option<Self> {
        let global = palette(file, HEADER_BYTES, *file.get(10)?)?;
        let (mut at, mut transparent) = (HEADER_BYTES + global.len(), None);
        loop {
            match *file.get(at)? {
                b'!' => {
                    let is_control = *file.get(at + 1)? == 0xF9;
                    at += 2;
                    if let (true, [4..=255, flags, _, _, index, ..]) = (is_control, file.get(at..)?)
                        && flags & 1 == 1
                    {
                        transparent = Some(*index);
                    }
                    // Blocks, each behind its length; the last one is empty.
                    while let length @ 1.. = usize::from(*file.get(at)?) {
                        at += 1 + length;
                    }
                    at += 1;
                }
                b',' => {
                    let flags = *file.get(at + DESCRIPTOR_BYTES - 1)?;
                    let local = palette(file, at + DESCRIPTOR_BYTES, flags)?;
                    let palette = if local.is_empty() { global } else { local };
                    return Some(Self { file, palette, transparent, descriptor: at });
                }
                _ => return None,
            }
        }
    }

    fn number(&self, at: usize) -> u32 {
        u16::from_le_bytes([self.file[at], self.file[at + 1]]).into()
    }

    fn at(&self) -> (u32, u32) {
        (self.number(self.descriptor + 1), self.number(self.descriptor + 3))
    }

    fn size(&self) -> (u32, u32) {
        (self.number(self.descriptor + 5), self.number(self.descriptor + 7))
    }

    /// Returns columns and rows of the canvas.
    pub fn canvas(&self) -> (u32, u32) {
        let (at, size) = (self.at(), self.size());
        (self.number(6).max(at.0 + size.0), self.number(8).max(at.1 + size.1))
    }

    /// Returns the first frame, unless the file's decoder shows it alike: a frame as large as its canvas, with colours.
    pub fn first_frame(&self) -> Option<FirstFrame> {
        let (at, size, canvas) = (self.at(), self.size(), self.canvas());
        if size == canvas && canvas == (self.number(6), self.number(8)) && !self.palette.is_empty() {
            return None;
        }
        let index = usize::from(self.transparent.unwrap_or(0));
        let color = self.palette.as_chunks::<3>().0.get(index).copied();
        // Without any palette, indices are levels of gray.
        let fill = color.unwrap_or(if self.palette.is_empty() { [index as u8; 3] } else { [0; 3] });
        let file = self.file;
        let mut still = file[..6].to_vec();
        still.extend_from_slice(&file[self.descriptor + 5..][..4]);
        if self.palette.is_empty() {
            still.extend_from_slice(&[PALETTE | 7, 0, 0]);
            still.extend((0..=255).flat_map(|level| [level; 3]));
        } else {
            let global = palette(file, HEADER_BYTES, file[10]).unwrap_or_default();
            still.extend_from_slice(&file[10..][..3 + global.len()]);
        }
        still.extend_from_slice(&[b',', 0, 0, 0, 0]);
        still.extend_from_slice(&file[self.descriptor + 5..]);
        Some(FirstFrame { still, size, at, canvas, fill })
    }
}

/// Returns the palette at this offset that the flags announce, or an empty one.
fn palette(file: &[u8], at: usize, flags: u8) -> Option<&[u8]> {
    file.get(at..)?.get(..if flags & PALETTE == 0 { 0 } else { 3 << ((flags & 7) + 1) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::info::Format;
    use crate::limits::Limits;
    use crate::raster;

    const COLORS: [u8; 12] = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120];

    /// Returns a GIF with a frame of 2 x 1 pixels, of indices 1 and 3.
    fn gif(canvas: [u8; 2], at: u8, transparent: Option<u8>, (global, local): (&[u8], &[u8])) -> Vec<u8> {
        let flags = |palette: &[u8]| if palette.is_empty() { 0 } else { 0x81 };
        let mut file = b"GIF89a".to_vec();
        file.extend([canvas[0], 0, canvas[1], 0, flags(global), 2, 0]);
        file.extend(global);
        file.extend(b"!\xFE\x02no\0");
        if let Some(index) = transparent {
            file.extend([b'!', 0xF9, 4, 1, 0, 0, index, 0]);
        }
        file.extend([b',', at, 0, 0, 0, 2, 0, 1, 0, flags(local)]);
        file.extend(local);
        // Codes of 3 bits: clear, 1, 3, end.
        file.extend([2, 2, 0b1100_1100, 0b1010, 0, b';']);
        file
    }

    fn decoded(file: &[u8]) -> Vec<[u8; 3]> {
        let (limits, mut pixels) = (Limits::default(), Vec::new());
        let decoded = raster::decode(file, Format::Gif, limits, &mut Vec::new(), &mut pixels).unwrap();
        let info = raster::info(file, Format::Gif, limits).unwrap();
        assert_eq!((info.width, info.height), (decoded.width, decoded.height));
        pixels.as_chunks().0.to_vec()
    }

    /// Pillow 13 gives the same pixels.
    #[test]
    fn the_canvas_has_the_first_or_the_transparent_colour() {
        let color = |index: usize| COLORS.as_chunks::<3>().0[index];
        let global = (&COLORS[..], &[][..]);
        assert_eq!(decoded(&gif([2, 1], 0, None, global)), [1, 3].map(color));
        assert_eq!(decoded(&gif([4, 1], 1, None, global)), [0, 1, 3, 0].map(color));
        assert_eq!(decoded(&gif([4, 1], 1, Some(2), global)), [2, 1, 3, 2].map(color));
        assert_eq!(decoded(&gif([2, 2], 0, Some(3), global)), [1, 3, 3, 3].map(color));
        assert_eq!(decoded(&gif([4, 1], 1, Some(9), global)), [[0; 3], color(1), color(3), [0; 3]]);
        let own = [9, 9, 1, 9, 9, 2, 9, 9, 3, 9, 9, 4];
        assert_eq!(decoded(&gif([3, 1], 1, None, (&COLORS, &own))), [[9, 9, 1], [9, 9, 2], [9, 9, 4]]);
    }

    #[test]
    fn the_canvas_grows_and_a_file_without_palette_is_gray() {
        let color = |index: usize| COLORS.as_chunks::<3>().0[index];
        assert_eq!(decoded(&gif([2, 1], 1, None, (&COLORS, &[]))), [0, 1, 3].map(color));
        assert_eq!(decoded(&gif([0, 0], 0, None, (&COLORS, &[]))), [1, 3].map(color));
        assert_eq!(decoded(&gif([3, 1], 1, Some(5), (&[], &[]))), [[5; 3], [1; 3], [3; 3]]);
        assert_eq!(decoded(&gif([2, 1], 0, None, (&[], &[]))), [[1; 3], [3; 3]]);
    }

    #[test]
    fn cut_files_are_no_danger() {
        let whole = gif([4, 1], 1, Some(2), (&COLORS, &COLORS));
        for end in 0..whole.len() {
            let frame = Gif::parse(&whole[..end]).and_then(|gif| gif.first_frame());
            assert!(frame.is_none_or(|frame| frame.canvas == (4, 1)), "{end}");
        }
    }
}
