//! The markers before a scan, read strictly: a file that libjpeg would warn about, correct or guess about is
//! [`LeftToLibjpeg`].
//!
//! See ITU-T T.81, annex B. The colours are determined as in libjpeg (jdapimin.c): a JFIF marker means YCbCr; without
//! one, Adobe's transform decides; without that, the components' names do.

use super::LeftToLibjpeg;

/// Index in a block's rows of each frequency, in the order of a stream (T.81, figure 5).
pub const ZIGZAG: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21,
    28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54,
    47, 55, 62, 63,
];

/// The longest side that libjpeg takes.
const SIDE_MAX: u16 = 65500;

/// Number of pixels, across and down, that share a sample of the second and third component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subsampling {
    pub across: u8,
    pub down: u8,
}

impl Subsampling {
    /// Returns the sides of an MCU in pixels.
    pub fn mcu_size(self) -> (u32, u32) {
        (8 * u32::from(self.across), 8 * u32::from(self.down))
    }

    /// Returns the number of MCUs of an image of this size, across and down.
    pub fn mcus(self, (width, height): (u32, u32)) -> (u32, u32) {
        let mcu = self.mcu_size();
        (width.div_ceil(mcu.0), height.div_ceil(mcu.1))
    }
}

/// Meaning of a pixel's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    Gray,
    YCbCr,
    Rgb,
}

/// A Huffman table as it stands in a file: the number of codes of each length, and their symbols, shortest code first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HuffmanSpec<'a> {
    pub counts: [u8; 16],
    pub symbols: &'a [u8],
}

/// A component of the frame.
#[derive(Clone, Copy, Debug)]
pub struct Component<'a> {
    /// Quantisation steps in the order of a stream.
    pub quant: &'a [u8; 64],
    pub dc: HuffmanSpec<'a>,
    pub ac: HuffmanSpec<'a>,
}

/// A file that this decoder takes, up to the beginning of its entropy-coded bytes.
#[derive(Clone, Debug)]
pub struct JpegHeader<'a> {
    pub width: u32,
    pub height: u32,
    pub color: Color,
    pub sampling: Subsampling,
    /// MCUs between restart markers; 0 for no markers.
    pub restart_interval: u32,
    /// The components: one or three.
    pub components: Vec<Component<'a>>,
    /// The entropy-coded bytes and everything after them.
    pub scan: &'a [u8],
}

impl JpegHeader<'_> {
    /// Returns the sides of an MCU in pixels.
    pub fn mcu_size(&self) -> (u32, u32) {
        self.sampling.mcu_size()
    }

    /// Returns the number of MCUs of the image, across and down.
    pub fn mcus(&self) -> (u32, u32) {
        self.sampling.mcus((self.width, self.height))
    }
}

#[derive(Clone, Copy)]
struct FrameComponent {
    id: u8,
    sampling: u8,
    quant: u8,
}

struct Frame {
    width: u16,
    height: u16,
    parts: Vec<FrameComponent>,
}

/// Contents of the markers read so far.
#[derive(Default)]
struct Markers<'a> {
    frame: Option<Frame>,
    quant: [Option<&'a [u8; 64]>; 4],
    dc: [Option<HuffmanSpec<'a>>; 4],
    ac: [Option<HuffmanSpec<'a>>; 4],
    restart_interval: u32,
    jfif: bool,
    adobe: Option<u8>,
}

/// Parses a file up to its scan.
pub fn parse(file: &[u8]) -> Result<JpegHeader<'_>, LeftToLibjpeg> {
    let mut rest = file.strip_prefix(&[0xFF, 0xD8]).ok_or(LeftToLibjpeg)?;
    let mut markers = Markers::default();
    loop {
        let [0xFF, code, high, low, ..] = *rest else { return Err(LeftToLibjpeg) };
        let length = usize::from(u16::from_be_bytes([high, low]));
        let payload = rest.get(4..2 + length).ok_or(LeftToLibjpeg)?;
        rest = &rest[2 + length..];
        match code {
            0xDA => return markers.scan(payload, rest),
            0xC0 | 0xC1 => markers.frame(payload)?,
            0xC4 => markers.huffman(payload)?,
            0xDB => markers.quant(payload)?,
            0xDD => {
                markers.restart_interval = u16::from_be_bytes(payload.try_into().map_err(|_| LeftToLibjpeg)?).into()
            }
            0xE0 => markers.app0(payload)?,
            0xEE => markers.app14(payload),
            0xE1..=0xEF | 0xFE => {}
            _ => return Err(LeftToLibjpeg),
        }
    }
}

impl<'a> Markers<'a> {
    fn frame(&mut self, payload: &[u8]) -> Result<(), LeftToLibjpeg> {
        let [8, y0, y1, x0, x1, count, ref parts @ ..] = *payload else { return Err(LeftToLibjpeg) };
        let (width, height) = (u16::from_be_bytes([x0, x1]), u16::from_be_bytes([y0, y1]));
        let sides_fit = (1..=SIDE_MAX).contains(&width) && (1..=SIDE_MAX).contains(&height);
        let (parts, rest) = parts.as_chunks::<3>();
        if self.frame.is_some() || !sides_fit || usize::from(count) != parts.len() || !rest.is_empty() {
            return Err(LeftToLibjpeg);
        }
        let parts = parts.iter().map(|&[id, sampling, quant]| FrameComponent { id, sampling, quant }).collect();
        self.frame = Some(Frame { width, height, parts });
        Ok(())
    }

    fn huffman(&mut self, mut payload: &'a [u8]) -> Result<(), LeftToLibjpeg> {
        while let Some((&class_and_slot, rest)) = payload.split_first() {
            let (counts, rest) = rest.split_first_chunk::<16>().ok_or(LeftToLibjpeg)?;
            let total: usize = counts.iter().map(|&count| usize::from(count)).sum();
            let (symbols, rest) = rest.split_at_checked(total).filter(|_| total <= 256).ok_or(LeftToLibjpeg)?;
            let tables = match class_and_slot >> 4 {
                0 => &mut self.dc,
                1 => &mut self.ac,
                _ => return Err(LeftToLibjpeg),
            };
            let slot = tables.get_mut(usize::from(class_and_slot & 15)).ok_or(LeftToLibjpeg)?;
            *slot = Some(HuffmanSpec { counts: *counts, symbols });
            payload = rest;
        }
        Ok(())
    }

    fn quant(&mut self, mut payload: &'a [u8]) -> Result<(), LeftToLibjpeg> {
        while let Some((&precision_and_slot, rest)) = payload.split_first() {
            // Steps of 16 bits (precision 1) are left to libjpeg.
            let slot = self.quant.get_mut(usize::from(precision_and_slot)).ok_or(LeftToLibjpeg)?;
            let (steps, rest) = rest.split_first_chunk::<64>().ok_or(LeftToLibjpeg)?;
            *slot = Some(steps);
            payload = rest;
        }
        Ok(())
    }

    fn app0(&mut self, payload: &[u8]) -> Result<(), LeftToLibjpeg> {
        if payload.len() >= 14 && payload.starts_with(b"JFIF\0") {
            // libjpeg warns about other major versions.
            if payload[5] != 1 {
                return Err(LeftToLibjpeg);
            }
            self.jfif = true;
        }
        Ok(())
    }

    fn app14(&mut self, payload: &[u8]) {
        if payload.len() >= 12 && payload.starts_with(b"Adobe") {
            self.adobe = Some(payload[11]);
        }
    }

    fn scan(self, payload: &[u8], scan: &'a [u8]) -> Result<JpegHeader<'a>, LeftToLibjpeg> {
        let frame = self.frame.as_ref().ok_or(LeftToLibjpeg)?;
        let count = frame.parts.len();
        let (color, sampling) = self.layout(&frame.parts)?;
        let [named, ref selectors @ .., 0, 63, 0] = *payload else { return Err(LeftToLibjpeg) };
        let (selectors, rest) = selectors.as_chunks::<2>();
        if usize::from(named) != count || selectors.len() != count || !rest.is_empty() {
            return Err(LeftToLibjpeg);
        }
        let components = frame.parts.iter().zip(selectors).map(|(part, &[id, tables])| {
            let of = |specs: &[Option<HuffmanSpec<'a>>; 4], slot: u8| specs.get(usize::from(slot)).copied().flatten();
            let quant = self.quant.get(usize::from(part.quant)).copied().flatten();
            match (quant, of(&self.dc, tables >> 4), of(&self.ac, tables & 15)) {
                (Some(quant), Some(dc), Some(ac)) if id == part.id => Ok(Component { quant, dc, ac }),
                _ => Err(LeftToLibjpeg),
            }
        });
        Ok(JpegHeader {
            width: frame.width.into(),
            height: frame.height.into(),
            color,
            sampling,
            restart_interval: self.restart_interval,
            components: components.collect::<Result<_, _>>()?,
            scan,
        })
    }

    fn layout(&self, parts: &[FrameComponent]) -> Result<(Color, Subsampling), LeftToLibjpeg> {
        let sampling = |across, down| Subsampling { across, down };
        match parts {
            [gray] if gray.sampling == 0x11 => Ok((Color::Gray, sampling(1, 1))),
            [first, second, third] if second.sampling == 0x11 && third.sampling == 0x11 => {
                let ids = [first.id, second.id, third.id];
                if ids[0] == ids[1] || ids[1] == ids[2] || ids[0] == ids[2] {
                    return Err(LeftToLibjpeg);
                }
                let color = match (self.jfif, self.adobe) {
                    (true, _) | (false, Some(1)) => Color::YCbCr,
                    (false, Some(0)) => Color::Rgb,
                    (false, Some(_)) => return Err(LeftToLibjpeg),
                    (false, None) if ids == *b"RGB" => Color::Rgb,
                    (false, None) => Color::YCbCr,
                };
                match first.sampling {
                    0x11 => Ok((color, sampling(1, 1))),
                    0x21 => Ok((color, sampling(2, 1))),
                    0x12 => Ok((color, sampling(1, 2))),
                    0x22 => Ok((color, sampling(2, 2))),
                    _ => Err(LeftToLibjpeg),
                }
            }
            _ => Err(LeftToLibjpeg),
        }
    }
}
