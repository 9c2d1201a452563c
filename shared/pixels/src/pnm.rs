//! PBM, PGM and PPM, plain and binary, with any maximum. The values are Pillow's, except those of 16-bit gray: we keep
//! the upper 8 bits of Pillow's value. (PAM, which Pillow does not read, is decoded by the `image` crate.)
//!
//! Everything is checked before memory is taken: a file has at least a byte, or a bit, for each value that its header
//! promises.

use crate::error::PixelError;
use crate::info::{Format, ImageInfo};
use crate::limits::Limits;
use ddlp_cause::Cause;

/// Longest number of a plain file, in digits.
const DIGITS_MAX: usize = 10;

/// How the values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    /// Characters 0 (white) and 1, with or without spaces between them.
    PlainBits,
    /// Bits, 1 is black; a row is whole bytes.
    Bits,
    /// Decimal numbers.
    Plain,
    /// Bytes, or pairs of bytes if the maximum is above 255.
    Binary,
}

/// A file behind its header.
pub(crate) struct Pnm<'f> {
    pub width: u32,
    pub height: u32,
    coding: Coding,
    channels: u32,
    /// Value of the brightest pixel, 1 to 65535.
    maximum: u32,
    data: &'f [u8],
}

fn malformed(message: impl Into<Cause>) -> PixelError {
    PixelError::Malformed { source: message.into() }
}

fn truncated(message: &str) -> PixelError {
    PixelError::Truncated { source: message.into() }
}

impl<'f> Pnm<'f> {
    /// Reads the header. Returns `None` for another file, such as a PAM.
    pub fn parse(file: &'f [u8]) -> Result<Option<Self>, PixelError> {
        let Some((magic, mut rest)) = file.split_at_checked(2) else { return Ok(None) };
        let (coding, channels) = match magic {
            b"P1" => (Coding::PlainBits, 1),
            b"P2" => (Coding::Plain, 1),
            b"P3" => (Coding::Plain, 3),
            b"P4" => (Coding::Bits, 1),
            b"P5" => (Coding::Binary, 1),
            b"P6" => (Coding::Binary, 3),
            _ => return Ok(None),
        };
        let (width, height) = (header_number(&mut rest)?, header_number(&mut rest)?);
        let maximum = match coding {
            Coding::PlainBits | Coding::Bits => 1,
            _ => header_number(&mut rest)?,
        };
        if !(1..=65535).contains(&maximum) {
            return Err(malformed(format!("a maximum of {maximum}, which has to be 1 to 65535")));
        }
        Ok(Some(Self { width, height, coding, channels, maximum, data: rest }))
    }

    /// Returns what the header says.
    pub fn info(&self) -> ImageInfo {
        ImageInfo {
            format: Format::Pnm,
            width: self.width,
            height: self.height,
            components: self.channels,
            bits: match self.coding {
                Coding::PlainBits | Coding::Bits => 1,
                _ => 8 * self.value_bytes() as u32,
            },
            is_lossless: true,
            orientation: 1,
            jpeg: None,
        }
    }

    fn value_bytes(&self) -> u64 {
        if self.maximum > 255 { 2 } else { 1 }
    }

    /// Returns the bytes of the values as numbers of 8 or 16 bits.
    pub fn native_bytes(&self) -> u64 {
        let pixels = u64::from(self.width) * u64::from(self.height);
        pixels.saturating_mul(u64::from(self.channels) * self.value_bytes())
    }

    /// Decodes the pixels as RGB. The caller has checked the size of the image.
    pub fn decode(&self, limits: Limits, pixels: &mut Vec<u8>) -> Result<(), PixelError> {
        let count = u64::from(self.width) * u64::from(self.height);
        let values = count * u64::from(self.channels);
        let row_bytes = self.width.div_ceil(8) as usize;
        let least = match self.coding {
            Coding::PlainBits | Coding::Plain => values,
            Coding::Bits => row_bytes as u64 * u64::from(self.height),
            Coding::Binary => self.native_bytes(),
        };
        if (self.data.len() as u64) < least {
            return Err(truncated("fewer pixels than the header promises"));
        }
        limits.make_room(pixels, count * 3)?;
        let copies = 3 / self.channels as usize;
        let mut put = |value: u8| pixels.extend(std::iter::repeat_n(value, copies));
        match self.coding {
            Coding::Bits => {
                for row in self.data.chunks_exact(row_bytes).take(self.height as usize) {
                    (0..self.width as usize).for_each(|x| put(if row[x / 8] << (x % 8) & 0x80 == 0 { 255 } else { 0 }));
                }
            }
            Coding::PlainBits => {
                let mut bits = Plain { rest: self.data };
                for _ in 0..values {
                    put(if bits.bit()? { 0 } else { 255 });
                }
            }
            Coding::Plain => {
                let mut numbers = Plain { rest: self.data };
                for _ in 0..values {
                    let value = numbers.number()?;
                    if value > self.maximum {
                        return Err(malformed(format!("the value {value} exceeds the maximum of {}", self.maximum)));
                    }
                    put(self.level(value));
                }
            }
            Coding::Binary if self.maximum == 255 && self.channels == 3 => {
                pixels.extend_from_slice(&self.data[..values as usize]);
            }
            Coding::Binary if self.maximum <= 255 => {
                let levels: [u8; 256] = std::array::from_fn(|value| self.level(value as u32));
                self.data[..values as usize].iter().for_each(|&value| put(levels[usize::from(value)]));
            }
            Coding::Binary => {
                let (pairs, _) = self.data.as_chunks::<2>();
                let values = &pairs[..values as usize];
                values.iter().for_each(|&pair| put(self.level(u16::from_be_bytes(pair).into())));
            }
        }
        Ok(())
    }

    /// Returns the level of 8 bits for a value, as Pillow computes it. A value above the maximum is the brightest one.
    fn level(&self, value: u32) -> u8 {
        let scaled = |most: u32| {
            let level = f64::from(value) / f64::from(self.maximum) * f64::from(most);
            level.round_ties_even().min(f64::from(most)) as u32
        };
        // Pillow scales gray to 16 bits then.
        if self.channels == 1 && self.maximum > 255 { (scaled(65535) >> 8) as u8 } else { scaled(255) as u8 }
    }
}

/// Takes a number of the header and the white space behind it. A comment may stand anywhere, even within a number.
fn header_number(rest: &mut &[u8]) -> Result<u32, PixelError> {
    let mut number = None;
    while let Some((&byte, behind)) = rest.split_first() {
        *rest = behind;
        match byte {
            b'#' => skip_line(rest),
            b'0'..=b'9' => number = Some(appended(number, byte)?),
            byte if !is_space(byte) => return Err(malformed(format!("the byte {byte:#04x} in the header"))),
            _ if number.is_some() => break,
            _ => {}
        }
    }
    number.ok_or_else(|| truncated("the header is not complete"))
}

fn appended(number: Option<u32>, digit: u8) -> Result<u32, PixelError> {
    let tens = number.unwrap_or(0).checked_mul(10);
    tens.and_then(|tens| tens.checked_add(u32::from(digit - b'0'))).ok_or_else(|| malformed("a number is too large"))
}

/// Skips the rest of a line, with its end.
fn skip_line(rest: &mut &[u8]) {
    let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
    *rest = end.map_or(&[], |end| &rest[end + 1..]);
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// The values of a plain file.
struct Plain<'f> {
    rest: &'f [u8],
}

impl Plain<'_> {
    /// Takes the next byte that belongs to no comment.
    fn byte(&mut self) -> Option<u8> {
        while let Some((&byte, behind)) = self.rest.split_first() {
            self.rest = behind;
            match byte {
                b'#' => skip_line(&mut self.rest),
                byte => return Some(byte),
            }
        }
        None
    }

    fn bit(&mut self) -> Result<bool, PixelError> {
        loop {
            match self.byte().ok_or_else(|| truncated("a pixel is missing"))? {
                b'0' => return Ok(false),
                b'1' => return Ok(true),
                byte if is_space(byte) => {}
                byte => return Err(malformed(format!("the byte {byte:#04x} among the pixels"))),
            }
        }
    }

    fn number(&mut self) -> Result<u32, PixelError> {
        let (mut number, mut digits) = (None, 0);
        while let Some(byte) = self.byte() {
            match byte {
                b'0'..=b'9' if digits < DIGITS_MAX => (number, digits) = (Some(appended(number, byte)?), digits + 1),
                byte if !is_space(byte) => return Err(malformed(format!("the byte {byte:#04x} among the pixels"))),
                _ if number.is_some() => break,
                _ => {}
            }
        }
        number.ok_or_else(|| truncated("a pixel is missing"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(file: &[u8]) -> Result<Vec<u8>, PixelError> {
        let mut pixels = Vec::new();
        Pnm::parse(file)?.expect("no PAM").decode(Limits::default(), &mut pixels)?;
        Ok(pixels)
    }

    /// Returns the first values of gray pixels.
    fn gray(file: &[u8]) -> Vec<u8> {
        decoded(file).unwrap().chunks(3).map(|pixel| pixel[0]).collect()
    }

    fn binary(magic: &str, columns: usize, maximum: u32, values: &[u16]) -> Vec<u8> {
        let mut file = format!("{magic}\n{columns} 1\n{maximum}\n").into_bytes();
        values.iter().for_each(|value| match maximum {
            ..=255 => file.push(*value as u8),
            _ => file.extend(value.to_be_bytes()),
        });
        file
    }

    /// Sums that Pillow 13 has for all values of all maxima: position-weighted, so that every value counts.
    #[test]
    fn values_of_every_maximum_are_those_of_pillow() {
        let mut sum = 0u64;
        for maximum in 1..=255u16 {
            let values: Vec<u16> = (0..=maximum).collect();
            let levels = gray(&binary("P5", values.len(), maximum.into(), &values));
            let plain: Vec<String> = values.iter().map(u16::to_string).collect();
            let plain = format!("P2 {} 1 {maximum}\n{}", values.len(), plain.join(" "));
            assert_eq!(gray(plain.as_bytes()), levels, "{maximum}");
            sum = levels.iter().fold(sum, |sum, &level| sum.wrapping_mul(31).wrapping_add(level.into()));
        }
        assert_eq!(sum, EIGHT_BITS);
        let mut sum = 0u64;
        for maximum in (256..=65535u32).step_by(257).chain([65534, 65535]) {
            let values: Vec<u16> = (0..=maximum as u16).step_by(13).collect();
            let values = &values[..values.len() / 3 * 3];
            let levels = decoded(&binary("P6", values.len() / 3, maximum, values)).unwrap();
            sum = levels.iter().fold(sum, |sum, &level| sum.wrapping_mul(31).wrapping_add(level.into()));
        }
        assert_eq!(sum, SIXTEEN_BITS);
    }

    const EIGHT_BITS: u64 = 0x4D44_147D_87DC_8B60;
    const SIXTEEN_BITS: u64 = 0x32BC_4C9E_C53D_E97B;

    #[test]
    fn each_kind_of_file_is_read() {
        assert_eq!(gray(b"P5\n7 1\n6\n\0\x01\x02\x03\x04\x05\x06"), [0, 42, 85, 128, 170, 212, 255]);
        assert_eq!(decoded(b"P6 1 1 65535 \0\0\0\xFF\x80\0").unwrap(), [0, 1, 128]);
        assert_eq!(decoded(b"P3 1 1 1000 0 500#half\n 1000").unwrap(), [0, 128, 255]);
        assert_eq!(gray(b"P1 3 2\n1 0#no\n10\n01"), [0, 255, 0, 255, 255, 0]);
        assert_eq!(gray(b"P4 #wide\n9 2\n\xAA\x80\x00\x00"), [[0, 255].repeat(4), vec![0], vec![255; 9]].concat());
        assert_eq!(gray(b"P5 2 1 4095 \x08\0\x0F\xFF"), [128, 255], "the upper 8 of 16 bits");
        assert_eq!(gray(b"P5 1 1 10 \xFF"), [255], "a value above the maximum is the brightest");
        assert!(Pnm::parse(b"P7\nWIDTH 1\n").is_ok_and(|pnm| pnm.is_none()));
    }

    #[test]
    fn hostile_files_are_errors_before_memory_is_taken() {
        for file in [&b"P6 65535 65535 255\n123"[..], b"P3 60000 60000 255\n1 2 3", b"P4 65535 65535\n1", b"P1 3 1\n10"]
        {
            assert!(matches!(decoded(file), Err(PixelError::Truncated { .. })), "{file:?}");
        }
        for file in [
            &b"P5 1 1 0\n1"[..],
            b"P5 1 1 65536\n1",
            b"P5 99999999999 1 1\n1",
            b"P5 -1 1 1\n1",
            b"P2 1 1 9\n10",
            b"P2 1 1 9\n00000000009",
            b"P1 1 1\n2",
        ] {
            assert!(matches!(decoded(file), Err(PixelError::Malformed { .. })), "{file:?}");
        }
        let vast = Pnm::parse(b"P6 4294967295 4294967295 65535\n1").unwrap().unwrap();
        assert_eq!(vast.native_bytes(), u64::MAX);
        let whole = b"P3 #\n2 1 9\n1 2 3 4 5 6";
        (2..whole.len()).for_each(|end| assert!(decoded(&whole[..end]).is_err(), "{end}"));
    }
}
