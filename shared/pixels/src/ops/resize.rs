//! torchvision's `Resize`.

use super::first_form::{FirstForm, keep_first_form};
use super::numbers::{self, Numbers};
use super::{Effects, Operate, Piece, SIDE_MAX, Size, check_side};
use crate::draw::Words;
use crate::error::PixelError;
use crate::resize::Resampling;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Resizes to a height and a width, or so that the shorter side has a length. Then the longer side is rounded down to
/// whole pixels.
///
/// An image whose longer side would exceed 2³¹ − 1 pixels is an error. This does not check the memory that the result
/// needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Resize {
    /// What the image is resized to.
    pub size: ResizeTo,
    /// How a pixel is made.
    #[serde(default)]
    pub interpolation: Resampling,
    /// Longest that the longer side may become when the shorter one gets its length; both are then shorter.
    #[serde(default)]
    pub max_size: Option<u32>,
}

/// What an image is resized to. In a description, a number is the length of the shorter side, and a list has height and
/// width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizeTo {
    /// The length of the shorter side.
    Short(u32),
    /// Height and width.
    Both(Size),
}

impl Serialize for ResizeTo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Size { height, width } = match *self {
            Self::Short(side) if serializer.is_human_readable() => return side.serialize(serializer),
            Self::Short(side) => Size { height: side, width: 0 },
            Self::Both(size) => size,
        };
        [height, width].serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ResizeTo {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return <[u32; 2]>::deserialize(deserializer).map(|[height, width]| match width {
                0 => Self::Short(height),
                _ => Self::Both(Size { height, width }),
            });
        }
        numbers::read(deserializer, "a whole number, or a list of height and width", |given| match given {
            Numbers::One(side) | Numbers::List(&[side]) => numbers::whole(side).map(Self::Short),
            Numbers::List(&[height, width]) => {
                Some(Self::Both(Size { height: numbers::whole(height)?, width: numbers::whole(width)? }))
            }
            Numbers::List(_) => None,
        })
    }
}

keep_first_form!(Resize);

impl FirstForm for Resize {
    type Rest = ();

    fn first(&self) -> Option<(u32, ())> {
        match self.size {
            ResizeTo::Short(side) => (*self == Self::to(side)).then_some((side, ())),
            ResizeTo::Both(_) => None,
        }
    }

    fn of_first(size: u32, (): ()) -> Option<Self> {
        Some(Self::to(size))
    }
}

impl Operate for Resize {
    const EXAMPLES: &'static [Self] = &[
        Self { size: ResizeTo::Short(37), interpolation: Resampling::Bilinear, max_size: Some(41) },
        Self::to(211),
        Self {
            size: ResizeTo::Both(Size { height: 70, width: 29 }),
            interpolation: Resampling::Nearest,
            max_size: None,
        },
    ];
    const DRAWS: bool = false;

    fn check(&self) -> Result<(), String> {
        match (self.size, self.max_size) {
            (ResizeTo::Short(side), None) => check_side(side),
            (ResizeTo::Short(side), Some(most)) if side < most && most <= SIDE_MAX => check_side(side),
            (ResizeTo::Short(side), Some(most)) => {
                Err(format!("max_size {most} is not more than the shorter side, {side}, and at most {SIDE_MAX}"))
            }
            (ResizeTo::Both(size), None) => size.check(),
            (ResizeTo::Both(_), Some(most)) => {
                Err(format!("max_size {most} needs a size that is one number, the length of the shorter side"))
            }
        }
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(match self.size {
            ResizeTo::Short(_) => before.and_then(|size| self.target(size).ok()),
            ResizeTo::Both(size) => Some(size.pair()),
        })
    }

    #[inline]
    fn draw(&self, size: (u32, u32), _words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        let target = self.target(size).map_err(|message| PixelError::Misfit { message })?;
        effects.add(Piece { resize: Some(target), interpolation: self.interpolation, ..Piece::default() });
        Ok(())
    }
}

impl Resize {
    /// Returns the operation that gives the shorter side this length.
    pub const fn to(side: u32) -> Self {
        Self { size: ResizeTo::Short(side), interpolation: Resampling::Bilinear, max_size: None }
    }

    fn target(&self, (width, height): (u32, u32)) -> Result<(u32, u32), String> {
        let side = match self.size {
            ResizeTo::Short(side) => side,
            ResizeTo::Both(size) => return Ok(size.pair()),
        };
        let (short, long) = (width.min(height), width.max(height));
        let resized = u64::from(side) * u64::from(long) / u64::from(short);
        let (side, resized) = match self.max_size.map(u64::from).filter(|&most| resized > most) {
            // A side of a very long image has at least one pixel, which torchvision refuses to make.
            Some(most) => ((most * u64::from(side) / resized).max(1) as u32, most),
            None => (side, resized),
        };
        let Some(resized) = u32::try_from(resized).ok().filter(|&resized| resized <= i32::MAX as u32) else {
            return Err(format!(
                "an image of {width}x{height} pixels, resized to a short side of {side}, would be {resized} pixels \
                 long: set `max_size`, or give `size` both sides"
            ));
        };
        Ok(if width <= height { (side, resized) } else { (resized, side) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_torchvisions() {
        let target = |size, max_size, from| Resize { size, max_size, ..Resize::to(1) }.target(from);
        let both = ResizeTo::Both(Size { height: 30, width: 50 });
        assert_eq!(target(both, None, (7, 9)), Ok((50, 30)));
        // torchvision.transforms.functional._compute_resized_output_size of version 0.14.
        for (side, most, from, to) in [
            (100, 150, (300, 200), (150, 100)),
            (100, 149, (300, 200), (149, 99)),
            (100, 120, (200, 500), (48, 120)),
            (37, 41, (170, 150), (41, 37)),
            (64, 65, (1000, 999), (64, 64)),
        ] {
            assert_eq!(target(ResizeTo::Short(side), Some(most), from), Ok(to), "{side} {most} {from:?}");
        }
        assert_eq!(target(ResizeTo::Short(5), Some(6), (10_000, 1)), Ok((6, 1)));
    }
}
