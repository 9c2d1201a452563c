//! Parameters that people write as one number or as a list of numbers.

use super::{SIDE_MAX, check_side};
use crate::geometry::Border;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Error, IntoDeserializer, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// What was written: a number, or a list.
pub(super) enum Numbers<'n> {
    One(f64),
    List(&'n [f64]),
}

/// Reads a number or a list from a format that people write, and makes a parameter of it. `expected` says what the
/// parameter can be.
pub(super) fn read<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    expected: &'static str,
    make: impl Fn(Numbers<'_>) -> Option<T>,
) -> Result<T, D::Error> {
    deserializer.deserialize_any(NumbersVisitor { expected, make })
}

struct NumbersVisitor<F> {
    expected: &'static str,
    make: F,
}

impl<'de, T, F: Fn(Numbers<'_>) -> Option<T>> Visitor<'de> for NumbersVisitor<F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        let made = (self.make)(Numbers::One(number));
        made.ok_or_else(|| E::custom(format!("{number} is not {}", self.expected)))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.visit_f64(number as f64)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        self.visit_f64(number as f64)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<T, A::Error> {
        let (mut numbers, mut count) = ([0.0; 4], 0);
        while let Some(number) = list.next_element::<f64>()? {
            let Some(place) = numbers.get_mut(count) else {
                return Err(A::Error::invalid_length(count + 1, &self.expected));
            };
            (*place, count) = (number, count + 1);
        }
        let made = (self.make)(Numbers::List(&numbers[..count]));
        made.ok_or_else(|| A::Error::custom(format!("{:?} is not {}", &numbers[..count], self.expected)))
    }
}

/// Returns the whole number that a number is, if it is one and not negative.
pub(super) fn whole(number: f64) -> Option<u32> {
    let whole = number as u32;
    (f64::from(whole) == number).then_some(whole)
}

/// Bounds of an angle in degrees. In a description, one number x stands for −x and x.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Degrees(pub [f64; 2]);

/// Largest angle, in degrees.
const DEGREES_MAX: f64 = 360.0;

impl Degrees {
    pub(super) fn check(&self) -> Result<(), String> {
        let Self([low, high]) = *self;
        // Comparisons with NaN are false.
        if -DEGREES_MAX <= low && low <= high && high <= DEGREES_MAX {
            return Ok(());
        }
        Err(format!("degrees [{low}, {high}] is not a range within [-{DEGREES_MAX}, {DEGREES_MAX}]"))
    }
}

impl<'de> Deserialize<'de> for Degrees {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return Deserialize::deserialize(deserializer).map(Self);
        }
        read(deserializer, "a number of 0 or more, or two bounds", |given| match given {
            Numbers::One(number) => (number >= 0.0).then_some(Self([-number, number])),
            Numbers::List(bounds) => bounds.as_array().copied().map(Self),
        })
    }
}

/// Bounds of the angles of shears in degrees: parallel to the x axis, then parallel to the y axis. In a description,
/// one number x stands for −x and x along the x axis, and two numbers are the bounds along the x axis.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Shear(pub [f64; 4]);

impl Shear {
    pub(super) fn check(&self) -> Result<(), String> {
        for bounds in self.0.chunks(2) {
            let [low, high] = [bounds[0], bounds[1]];
            if !(-90.0 < low && low <= high && high < 90.0) {
                return Err(format!("shear [{low}, {high}] is not a range within (-90, 90)"));
            }
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Shear {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return Deserialize::deserialize(deserializer).map(Self);
        }
        read(deserializer, "a number of 0 or more, or two or four bounds", |given| match given {
            Numbers::One(number) => (number >= 0.0).then_some(Self([-number, number, 0.0, 0.0])),
            Numbers::List(&[low, high]) => Some(Self([low, high, 0.0, 0.0])),
            Numbers::List(bounds) => bounds.as_array().copied().map(Self),
        })
    }
}

/// Red, green and blue of the pixels outside an image, from 0 to 255. In a description, one number stands for all
/// three.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Fill(pub [u8; 3]);

impl<'de> Deserialize<'de> for Fill {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return Deserialize::deserialize(deserializer).map(Self);
        }
        let value = |number: f64| whole(number).and_then(|value| u8::try_from(value).ok());
        read(deserializer, "a whole number from 0 to 255, or three of them", |given| match given {
            Numbers::One(number) => value(number).map(|value| Self([value; 3])),
            Numbers::List(&[red, green, blue]) => Some(Self([value(red)?, value(green)?, value(blue)?])),
            Numbers::List(_) => None,
        })
    }
}

/// Colour of the pixels outside an image, or none: see [`Sampling::fill`](crate::warp::Sampling). In a description, a
/// colour is a [`Fill`], and the word `none` stands for no colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outside(pub Option<Fill>);

/// Word that stands for no colour.
const NONE: &str = "none";

impl Outside {
    /// Black.
    pub(super) const BLACK: Self = Self(Some(Fill([0; 3])));

    /// Returns the colour as a warp has it.
    pub(super) fn color(self) -> Option<[u8; 3]> {
        self.0.map(|Fill(color)| color)
    }
}

impl Serialize for Outside {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            color if !serializer.is_human_readable() => color.serialize(serializer),
            Some(color) => color.serialize(serializer),
            None => NONE.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Outside {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return Deserialize::deserialize(deserializer).map(Self);
        }
        deserializer.deserialize_any(ColorOrNone)
    }
}

struct ColorOrNone;

impl<'de> Visitor<'de> for ColorOrNone {
    type Value = Outside;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 0 to 255, three of them, or \"{NONE}\"")
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Outside, E> {
        Fill::deserialize(number.into_deserializer()).map(|color| Outside(Some(color)))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Outside, E> {
        self.visit_f64(number as f64)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Outside, E> {
        self.visit_f64(number as f64)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, channels: A) -> Result<Outside, A::Error> {
        Fill::deserialize(SeqAccessDeserializer::new(channels)).map(|color| Outside(Some(color)))
    }

    /// Python's and JSON's word for none.
    fn visit_unit<E: Error>(self) -> Result<Outside, E> {
        Ok(Outside(None))
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<Outside, E> {
        if word == NONE { Ok(Outside(None)) } else { Err(E::invalid_value(Unexpected::Str(word), &self)) }
    }
}

/// Height and width, in pixels. In a description, one number stands for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Height in rows.
    pub height: u32,
    /// Width in columns.
    pub width: u32,
}

impl Size {
    /// Returns the size of a square.
    pub const fn square(side: u32) -> Self {
        Self { height: side, width: side }
    }

    /// Returns the side, if the size is a square.
    pub(super) fn side(self) -> Option<u32> {
        (self.height == self.width).then_some(self.width)
    }

    /// Returns width and height.
    pub(super) fn pair(self) -> (u32, u32) {
        (self.width, self.height)
    }

    pub(super) fn check(self) -> Result<(), String> {
        check_side(self.height)?;
        check_side(self.width)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.side() {
            Some(side) if serializer.is_human_readable() => side.serialize(serializer),
            _ => (self.height, self.width).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return Deserialize::deserialize(deserializer).map(|(height, width)| Self { height, width });
        }
        read(deserializer, "a whole number, or a list of height and width", |given| match given {
            Numbers::One(side) | Numbers::List(&[side]) => whole(side).map(Self::square),
            Numbers::List(&[height, width]) => Some(Self { height: whole(height)?, width: whole(width)? }),
            Numbers::List(_) => None,
        })
    }
}

/// Widths of a border, in pixels: left, top, right, bottom. In a description, one number stands for all four, and two
/// numbers are the widths left and right, and top and bottom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Padding(pub [u32; 4]);

impl Padding {
    /// Returns the border that is equally wide on all sides.
    pub const fn all(width: u32) -> Self {
        Self([width; 4])
    }

    /// Returns the width of the border, if all sides have the same.
    pub(super) fn width(self) -> Option<u32> {
        (self == Self::all(self.0[0])).then_some(self.0[0])
    }

    pub(super) fn check(self) -> Result<(), String> {
        match self.0.iter().find(|&&width| width > SIDE_MAX) {
            Some(width) => Err(format!("padding {width} is more than {SIDE_MAX}")),
            None => Ok(()),
        }
    }
}

impl Serialize for Padding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.width() {
            Some(width) if serializer.is_human_readable() => width.serialize(serializer),
            _ => self.0.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Padding {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return Deserialize::deserialize(deserializer).map(Self);
        }
        read(deserializer, "a whole number, or a list of one, two or four", |given| match given {
            Numbers::One(width) | Numbers::List(&[width]) => whole(width).map(Self::all),
            Numbers::List(&[across, down]) => {
                let (across, down) = (whole(across)?, whole(down)?);
                Some(Self([across, down, across, down]))
            }
            Numbers::List(&[left, top, right, bottom]) => {
                Some(Self([whole(left)?, whole(top)?, whole(right)?, whole(bottom)?]))
            }
            Numbers::List(_) => None,
        })
    }
}

/// What a border around an image is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PaddingMode {
    /// One colour.
    #[default]
    Constant,
    /// The outermost pixels.
    Edge,
    /// The image, mirrored at its outermost pixels, which are not repeated.
    Reflect,
    /// The image, mirrored at its edges, so that the outermost pixels are repeated.
    Symmetric,
}

impl PaddingMode {
    /// Returns what lies around an image; `fill` is the colour if it is one.
    pub(super) fn border(self, fill: Fill) -> Border {
        match self {
            Self::Constant => Border::Fill(fill.0),
            Self::Edge => Border::Edge,
            Self::Reflect => Border::Reflect,
            Self::Symmetric => Border::Symmetric,
        }
    }
}
