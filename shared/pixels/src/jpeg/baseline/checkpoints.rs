//! Places in a scan at which decoding can start: with them, a rectangle costs only the MCUs that it covers.
//!
//! A checkpoint is the decoder's state between two MCUs: a bit of the entropy-coded bytes, and the DC predictors. The
//! file itself is not changed. Checkpoints are stored as small differences in Rice's code (R. F. Rice, *Some practical
//! universal noiseless coding techniques*, JPL 79-22): predictors are close to the predictors of the checkpoint above,
//! distances to the distances of the row above.
//!
//! Layout of the bytes. The head is LEB128 numbers: version, components, MCUs between checkpoints, columns and rows of
//! MCUs, one parameter of Rice's code for distances and one for the predictors of each component. Bits follow, the
//! highest of a byte first. For each checkpoint, row by row, they hold its distance in bits from the checkpoint before
//! it, and its predictors. Each number is stored as its difference from the same number of the checkpoint above; in the
//! first row, from zero. Zeros fill up the last byte.

mod making;

use super::bits::Place;
use super::header::JpegHeader;
use super::rice::{Reader, Writer, best_parameter};

/// Version of the layout: the first number of the bytes.
const VERSION: u32 = 1;
/// Largest magnitude of a predictor of an 8-bit image.
const PREDICTOR_MAX: i64 = 1 << 11;
/// Largest offset of a bit in a scan.
const BITS_MAX: i64 = u32::MAX as i64 * 8;

/// A place at which decoding can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    /// Column of the MCU that begins here.
    pub column: u32,
    pub place: Place,
    pub predictors: [i32; 3],
}

/// A checkpoint as it is kept in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct StoredCheckpoint {
    /// Offset of the checkpoint's bit in the entropy-coded bytes, stuffing included.
    bits: i64,
    predictors: [i16; 3],
}

/// Checkpoints of a JPEG, at the same columns in every row of MCUs.
///
/// Trusted: checkpoints of another file yield wrong pixels or none, never unsoundness.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoints {
    components: u32,
    every: u32,
    columns: u32,
    rows: u32,
    points: Vec<StoredCheckpoint>,
}

/// Error: the bytes are not checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid checkpoints of a JPEG: {0}")]
pub struct BadCheckpoints(&'static str);

impl Checkpoints {
    /// Drops every other checkpoint of each row. Returns false if each row has only one.
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

    /// Returns the number of checkpoints.
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// Returns whether there are no checkpoints. A file always has some: one in every row at least.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    fn per_row(&self) -> u32 {
        self.columns.div_ceil(self.every)
    }

    /// Returns whether these are the beginnings of an image's rows of MCUs, the first one at the scan's beginning.
    pub(crate) fn begin_rows(&self, columns: u32, rows: u32) -> bool {
        (self.columns, self.rows, self.per_row()) == (columns, rows, 1) && self.points[0] == StoredCheckpoint::default()
    }

    /// Returns whether the checkpoints belong to a file of this shape.
    pub(crate) fn fit(&self, header: &JpegHeader<'_>) -> bool {
        (self.columns, self.rows) == header.mcus() && self.components as usize == header.components.len()
    }

    /// Returns the last checkpoint of a row that is at an MCU or before it.
    pub(crate) fn before(&self, row: u32, column: u32) -> Checkpoint {
        let number = column / self.every;
        let StoredCheckpoint { bits, predictors } = self.points[(row * self.per_row() + number) as usize];
        let place = Place { byte: (bits / 8) as usize, bit: (bits % 8) as u32 };
        Checkpoint { column: number * self.every, place, predictors: predictors.map(i32::from) }
    }

    /// Returns the coded numbers of each checkpoint: differences from the checkpoint above it.
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

    /// Encodes the checkpoints as bytes; the module describes them.
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

    /// Decodes bytes that [`to_bytes`](Self::to_bytes) made. Refuses checkpoints that no file could have; it cannot
    /// know which file they belong to.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadCheckpoints> {
        let mut all = Self::default();
        all.replace(bytes, u64::MAX)?;
        Ok(all)
    }

    /// Decodes bytes into these checkpoints and reuses their memory, at most `memory_bytes` of it. After an error the
    /// checkpoints are meaningless.
    pub(crate) fn replace(&mut self, bytes: &[u8], memory_bytes: u64) -> Result<(), BadCheckpoints> {
        let mut rest = bytes;
        let mut number = || take_leb128(&mut rest).ok_or(BadCheckpoints("the head is cut short or a number too large"));
        if number()? != VERSION {
            return Err(BadCheckpoints("another version"));
        }
        let [components, every, columns, rows] = [number()?, number()?, number()?, number()?];
        let sides = 1..=8192;
        if !matches!(components, 1 | 3) || every == 0 || !sides.contains(&columns) || !sides.contains(&rows) {
            return Err(BadCheckpoints("no image has such a shape"));
        }
        let mut parameters = [0; 4];
        for parameter in &mut parameters[..=components as usize] {
            *parameter = number()?;
            if *parameter > 31 {
                return Err(BadCheckpoints("a parameter is out of range"));
            }
        }
        let count = columns.div_ceil(every) as usize * rows as usize;
        // Each number takes at least one bit.
        if count.saturating_mul(components as usize + 1) > rest.len().saturating_mul(8) {
            return Err(BadCheckpoints("the bytes are cut short"));
        }
        let is_too_much = (count * size_of::<StoredCheckpoint>()) as u64 > memory_bytes;
        let mut points = std::mem::take(&mut self.points);
        points.clear();
        if is_too_much || points.try_reserve_exact(count).is_err() {
            return Err(BadCheckpoints("they need more memory than the limit"));
        }
        *self = Self { components, every, columns, rows, points };
        let mut reader = Reader::new(rest);
        (0..count).try_for_each(|_| self.read_point(&mut reader, &parameters))?;
        if reader.is_at_the_end() { Ok(()) } else { Err(BadCheckpoints("bytes follow the last checkpoint")) }
    }

    /// Frees memory if it is larger than `kept` bytes.
    pub(crate) fn trim(&mut self, kept: usize) {
        if self.points.capacity() * size_of::<StoredCheckpoint>() > kept {
            self.points = Vec::new();
        }
    }

    fn read_point(&mut self, reader: &mut Reader<'_>, parameters: &[u32; 4]) -> Result<(), BadCheckpoints> {
        let cut = BadCheckpoints("the bytes are cut short or a difference is too large");
        let number = self.points.len();
        let bits = |number: usize| self.points[number].bits;
        let before = number.checked_sub(1).map_or(0, bits);
        let above = number.checked_sub(self.per_row() as usize);
        let distance_above = above.map_or(0, |at| bits(at) - at.checked_sub(1).map_or(0, bits));
        let mut point = above.map_or(StoredCheckpoint::default(), |at| self.points[at]);
        let distance = reader.take(parameters[0]).ok_or(cut)? + distance_above;
        point.bits = before + distance;
        if distance < 0 || point.bits > BITS_MAX {
            return Err(BadCheckpoints("the places are out of order"));
        }
        for (predictor, &parameter) in point.predictors.iter_mut().zip(&parameters[1..=self.components as usize]) {
            let value = i64::from(*predictor) + reader.take(parameter).ok_or(cut)?;
            if value.abs() > PREDICTOR_MAX {
                return Err(BadCheckpoints("a predictor is out of range"));
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
