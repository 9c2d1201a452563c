//! torchvision's `JPEG`.

use super::numbers::{self, Numbers};
use super::{Cutout, Effects, MakeArea, Operate, Scratch};
use crate::draw::Words;
use crate::encode::{self, JpegOptions};
use crate::error::PixelError;
use crate::geometry::Rect;
use crate::jpeg::ffi::Object;
use crate::jpeg::{self, JpegRows};
use crate::rows::ImageRows;
use serde::{Deserialize, Deserializer, Serialize};

/// Longest side of an image that libjpeg encodes, in pixels.
const JPEG_SIDE_MAX: u32 = 65_500;

/// Encodes the image as a JPEG with colour differences at half the resolution, and decodes it again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jpeg {
    /// Bounds of the quality, from 1 to 100.
    pub quality: Quality,
}

/// Bounds of libjpeg's quality, both included. In a description, a number stands for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Quality(pub [u32; 2]);

impl<'de> Deserialize<'de> for Quality {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return Deserialize::deserialize(deserializer).map(Self);
        }
        numbers::read(deserializer, "a whole number from 1 to 100, or two of them", |given| match given {
            Numbers::One(quality) => numbers::whole(quality).map(|quality| Self([quality; 2])),
            Numbers::List(&[low, high]) => Some(Self([numbers::whole(low)?, numbers::whole(high)?])),
            Numbers::List(_) => None,
        })
    }
}

/// Encodes and decodes an image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recompress {
    /// libjpeg's quality, from 1 to 100.
    pub quality: u8,
}

impl Operate for Jpeg {
    const EXAMPLES: &'static [Self] = &[Self { quality: Quality([1, 100]) }, Self { quality: Quality([40, 40]) }];

    fn check(&self) -> Result<(), String> {
        let Quality([low, high]) = self.quality;
        if 1 <= low && low <= high && high <= 100 {
            return Ok(());
        }
        Err(format!("quality [{low}, {high}] is not a range within [1, 100]"))
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        before.map_or(Ok(None), |size| check_size(size).map(|()| before))
    }

    fn draw(&self, size: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        check_size(size).map_err(|message| PixelError::Misfit { message })?;
        let Quality([low, high]) = self.quality;
        let quality = u64::from(low) + words.below(u64::from(high - low) + 1);
        effects.add(Recompress { quality: quality as u8 });
        Ok(())
    }
}

fn check_size((width, height): (u32, u32)) -> Result<(), String> {
    if width.max(height) <= JPEG_SIDE_MAX {
        return Ok(());
    }
    Err(format!("an image of {width}x{height} pixels is longer than a JPEG can be, {JPEG_SIDE_MAX}: resize it first"))
}

impl MakeArea for Recompress {
    fn needs(&self, _made: Rect, (width, height): (u32, u32)) -> Rect {
        Rect { x: 0, y: 0, width, height }
    }

    fn make(&self, from: &Cutout<'_>, made: Rect, scratch: &mut Scratch<'_>, out: &mut [u8]) -> Result<(), PixelError> {
        let (width, height) = from.size;
        let options = JpegOptions { quality: self.quality, ..JpegOptions::default() };
        let file = encode::jpeg(from.pixels, width, height, &options)?;
        let (mut object, mut band) = (Object::new(), Vec::new());
        let opened = jpeg::open(&mut object, &file, scratch.limits, false)?;
        let row_bytes = made.width as usize * 3;
        JpegRows::new(opened, &mut band).read(made, &mut |band| {
            for row in 0..band.rows {
                out[(band.y + row) as usize * row_bytes..][..row_bytes].copy_from_slice(band.row(row, made.width));
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Draw, Rng};
    use crate::ops::golden::{image, pixels};
    use crate::ops::{Area, Effect, Operation, make_alone};
    use std::collections::HashSet;

    /// Compares with torchvision's JPEG (golden/jpeg.py).
    #[test]
    fn pixels_are_torchvisions() {
        let image = image();
        let size = (20, 20);
        let whole = Rect { x: 0, y: 0, width: 20, height: 20 };
        let mut count = 0;
        for line in include_str!("../../tests/golden/jpeg.txt").lines() {
            let (quality, expected) = line.split_once(' ').unwrap();
            let change = Recompress { quality: quality.parse().unwrap() };
            let mut out = vec![0; image.len()];
            make_alone(&change, &Cutout { size, rect: whole, pixels: &image }, whole, &mut out);
            assert_eq!(out, pixels(expected), "{quality}");
            count += 1;
        }
        assert_eq!(count, 6);
    }

    #[test]
    fn every_quality_between_the_bounds_is_drawn() {
        let operation = Operation::from(toml::from_str::<Jpeg>("quality = [30, 33]").unwrap());
        let words = &mut Rng::for_sample(Draw::default(), 0);
        let mut drawn = || match operation.effects((9, 9), words).unwrap()[..] {
            [Effect::Area(Area::Recompress(Recompress { quality }))] => quality,
            ref other => panic!("{other:?}"),
        };
        assert_eq!((0..100).map(|_| drawn()).collect::<HashSet<_>>(), HashSet::from([30, 31, 32, 33]));
    }

    #[test]
    fn wrong_parameters_are_named() {
        let read = |text: &str| toml::from_str::<Jpeg>(text).map_err(|error| error.to_string());
        assert_eq!(read("quality = 7").unwrap().quality, Quality([7, 7]));
        for (text, message) in
            [("quality = 0", "[0, 0]"), ("quality = [9, 101]", "[9, 101]"), ("quality = [9, 8]", "[9, 8]")]
        {
            assert!(read(text).unwrap().check().unwrap_err().contains(message));
        }
        assert!(read("quality = 7.5").unwrap_err().contains("from 1 to 100"));
        assert!(check_size((65_501, 1)).unwrap_err().contains("resize it first"));
    }
}
