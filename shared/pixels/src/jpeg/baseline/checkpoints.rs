//! Places within a scan from which decoding can go on: with them a rectangle costs only the MCUs that it covers.
//!
//! A checkpoint is what a decoder knows between two MCUs: a bit of the entropy-coded bytes and the DC predictors. The file itself
//! stays as it is. As bytes, checkpoints are small differences in Rice's code (R. F. Rice, *Some practical universal noiseless
//! coding techniques*, JPL 79-22): predictors are close to those of the checkpoint above, distances to those of the row above.
//!
//! The bytes, all numbers LEB128 up to the coded part: version, components, MCUs between checkpoints, columns and rows of MCUs, one
//! parameter of Rice's code for distances and one for the predictors of each component. Then bits, the highest of a byte first: for
//! each checkpoint, row by row, its distance in bits from the one before it and its predictors, each as the difference to the same
//! of the checkpoint above, zero in the first row. The last byte is filled up with zeroes.

use super::NotMine;
use super::bits::Place;
use super::decoder::Decoder;
use super::header::Header;
use super::rice::{Reader, Writer, best_parameter};
use crate::level::Level;

/// The first byte.
const VERSION: u32 = 1;
/// No predictor of an 8-bit image is further from zero.
const PREDICTOR_MAX: i64 = 1 << 11;
/// A scan's bits have to be numbered by this.
const BITS_MAX: i64 = u32::MAX as i64 * 8;

/// A place to go on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    /// The column of the MCU that begins here.
    pub column: u32,
    pub place: Place,
    pub predictors: [i32; 3],
}

/// One checkpoint as it is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Point {
    /// Bits of the entropy-coded bytes in front of it, stuffing counted.
    bits: i64,
    predictors: [i16; 3],
}

/// Checkpoints of a JPEG, at the same columns in every row of MCUs.
///
/// They are believed: those of another file give other pixels, or none, and nothing worse.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoints {
    components: u32,
    every: u32,
    columns: u32,
    rows: u32,
    points: Vec<Point>,
}

/// Why bytes are no checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no checkpoints of a jpeg: {0}")]
pub struct BadCheckpoints(&'static str);

impl Checkpoints {
    /// Checkpoints `every` so many MCUs of each row, by a pass over the whole file. `None` where the file is none that can be entered
    /// in between: anything but an intact sequential one of 8 bits with the usual layouts.
    ///
    /// # Panics
    /// When `every` is zero.
    pub fn of(file: &[u8], every: u32) -> Option<Self> {
        Self::make(&mut Decoder::new(Level::best()), file, every).ok()
    }

    /// The same by a decoder that is there.
    pub(crate) fn make(decoder: &mut Decoder, file: &[u8], every: u32) -> Result<Self, NotMine> {
        assert!(every > 0, "checkpoints are at least one MCU apart");
        let mut points = Vec::new();
        let mut band = Vec::new();
        let mut all_fit = true;
        let mut source = decoder.open(file, None, &mut band)?;
        let (columns, rows) = source.walk(every, |place, predictors| {
            all_fit &= predictors.iter().all(|&predictor| i64::from(predictor).abs() <= PREDICTOR_MAX);
            let bits = 8 * place.byte as i64 + i64::from(place.bit);
            points.push(Point { bits, predictors: predictors.map(|predictor| predictor as i16) });
        })?;
        if !all_fit || points.last().is_some_and(|point| point.bits > BITS_MAX) {
            return Err(NotMine);
        }
        let components = source.components();
        Ok(Self { components, every, columns, rows, points })
    }

    /// Leaves every other one of a row. False where each row has but one.
    pub(crate) fn thin_out(&mut self) -> bool {
        let per_row = self.per_row() as usize;
        if per_row <= 1 {
            return false;
        }
        let mut number = 0..;
        self.points.retain(|_| number.next().is_some_and(|number: usize| (number % per_row).is_multiple_of(2)));
        self.every *= 2;
        true
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// Never of a file's: every row has one.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    fn per_row(&self) -> u32 {
        self.columns.div_ceil(self.every)
    }

    /// Whether they are those of a file of this shape.
    pub(crate) fn fit(&self, header: &Header<'_>) -> bool {
        (self.columns, self.rows) == header.mcus() && self.components as usize == header.components.len()
    }

    /// The last one at or in front of an MCU that its row has.
    pub(crate) fn before(&self, row: u32, column: u32) -> Checkpoint {
        let number = column / self.every;
        let Point { bits, predictors } = self.points[(row * self.per_row() + number) as usize];
        let place = Place { byte: (bits / 8) as usize, bit: (bits % 8) as u32 };
        Checkpoint { column: number * self.every, place, predictors: predictors.map(i32::from) }
    }

    /// What is coded of each checkpoint: differences to the one above it.
    fn differences(&self) -> Vec<[i64; 4]> {
        let per_row = self.per_row() as usize;
        let distance =
            |number: usize| self.points[number].bits - number.checked_sub(1).map_or(0, |at| self.points[at].bits);
        let of = |number: usize| {
            let above = number.checked_sub(per_row);
            let mut all = [distance(number) - above.map_or(0, distance), 0, 0, 0];
            for (part, difference) in all[1..].iter_mut().enumerate() {
                let predictor = |number: usize| i64::from(self.points[number].predictors[part]);
                *difference = predictor(number) - above.map_or(0, predictor);
            }
            all
        };
        (0..self.points.len()).map(of).collect()
    }

    /// As bytes: see the module.
    pub fn to_bytes(&self) -> Vec<u8> {
        let differences = self.differences();
        let kinds = 1 + self.components as usize;
        let parameters: Vec<u32> =
            (0..kinds).map(|kind| best_parameter(differences.iter().map(|all| all[kind]))).collect();
        let mut bytes = Vec::new();
        for number in [VERSION, self.components, self.every, self.columns, self.rows].iter().chain(&parameters) {
            put_leb128(&mut bytes, *number);
        }
        let mut writer = Writer::new(bytes);
        for all in differences {
            all.iter().zip(&parameters).for_each(|(&difference, &parameter)| writer.put(difference, parameter));
        }
        writer.finish()
    }

    /// From bytes that [`to_bytes`](Self::to_bytes) made. Refuses what no file could have; which file they belong to it cannot know.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadCheckpoints> {
        let mut all = Self::default();
        all.replace(bytes, u64::MAX)?;
        Ok(all)
    }

    /// The same into what is there, whose memory is used again: at most `memory_bytes` of it. After an error they are of no use.
    pub(crate) fn replace(&mut self, bytes: &[u8], memory_bytes: u64) -> Result<(), BadCheckpoints> {
        let mut rest = bytes;
        let mut number = || take_leb128(&mut rest).ok_or(BadCheckpoints("its head is cut short or a number too large"));
        if number()? != VERSION {
            return Err(BadCheckpoints("another version"));
        }
        let [components, every, columns, rows] = [number()?, number()?, number()?, number()?];
        let sides = 1..=8192;
        if !matches!(components, 1 | 3) || every == 0 || !sides.contains(&columns) || !sides.contains(&rows) {
            return Err(BadCheckpoints("a shape that no image has"));
        }
        let mut parameters = [0; 4];
        for parameter in &mut parameters[..=components as usize] {
            *parameter = number()?;
            if *parameter > 31 {
                return Err(BadCheckpoints("a parameter out of range"));
            }
        }
        let count = columns.div_ceil(every) as usize * rows as usize;
        // Each number takes a bit at least.
        if count.saturating_mul(components as usize + 1) > rest.len().saturating_mul(8) {
            return Err(BadCheckpoints("cut short"));
        }
        let is_too_much = (count * size_of::<Point>()) as u64 > memory_bytes;
        let mut points = std::mem::take(&mut self.points);
        points.clear();
        if is_too_much || points.try_reserve_exact(count).is_err() {
            return Err(BadCheckpoints("more than there is memory for"));
        }
        *self = Self { components, every, columns, rows, points };
        let mut reader = Reader::new(rest);
        (0..count).try_for_each(|_| self.read_point(&mut reader, &parameters))?;
        if reader.is_at_the_end() { Ok(()) } else { Err(BadCheckpoints("more bytes than checkpoints")) }
    }

    /// Gives memory back that is larger than `kept`.
    pub(crate) fn trim(&mut self, kept: usize) {
        if self.points.capacity() * size_of::<Point>() > kept {
            self.points = Vec::new();
        }
    }

    fn read_point(&mut self, reader: &mut Reader<'_>, parameters: &[u32; 4]) -> Result<(), BadCheckpoints> {
        let cut = BadCheckpoints("cut short or a difference too large");
        let number = self.points.len();
        let bits = |number: usize| self.points[number].bits;
        let before = number.checked_sub(1).map_or(0, bits);
        let above = number.checked_sub(self.per_row() as usize);
        let distance_above = above.map_or(0, |at| bits(at) - at.checked_sub(1).map_or(0, bits));
        let mut point = above.map_or(Point::default(), |at| self.points[at]);
        let distance = reader.take(parameters[0]).ok_or(cut)? + distance_above;
        point.bits = before + distance;
        if distance < 0 || point.bits > BITS_MAX {
            return Err(BadCheckpoints("places out of order"));
        }
        for (predictor, &parameter) in point.predictors.iter_mut().zip(&parameters[1..=self.components as usize]) {
            let value = i64::from(*predictor) + reader.take(parameter).ok_or(cut)?;
            if value.abs() > PREDICTOR_MAX {
                return Err(BadCheckpoints("a predictor out of range"));
            }
            *predictor = value as i16;
        }
        self.points.push(point);
        Ok(())
    }
}

fn put_leb128(bytes: &mut Vec<u8>, mut number: u32) {
    while number > 0x7F {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take_leb128(rest: &mut &[u8]) -> Option<u32> {
    let mut number = 0u64;
    for shift in (0..35).step_by(7) {
        let (&byte, behind) = rest.split_first()?;
        *rest = behind;
        number |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return u32::try_from(number).ok();
        }
    }
    None
}

#[cfg(test)]
mod tests;
