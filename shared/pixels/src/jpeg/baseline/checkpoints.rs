//! Places within a scan from which decoding can go on.

use super::NotMine;
use super::bits::Place;
use super::decoder::Decoder;
use super::header::Header;

/// A place to go on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The column of the MCU that begins here.
    pub column: u32,
    pub place: Place,
    pub predictors: [i32; 3],
}

/// Places in every row of MCUs, `every` MCUs apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoints {
    size: (u32, u32),
    every: u32,
    points: Vec<(Place, [i32; 3])>,
}

impl Checkpoints {
    fn per_row(&self) -> u32 {
        self.size.0.div_ceil(self.every)
    }

    pub(crate) fn fit(&self, header: &Header<'_>) -> bool {
        self.size == header.mcus()
    }

    pub(crate) fn before(&self, row: u32, column: u32) -> Checkpoint {
        let number = row * self.per_row() + column / self.every;
        let (place, predictors) = self.points[number as usize];
        Checkpoint { column: column / self.every * self.every, place, predictors }
    }

    pub(crate) fn make(decoder: &mut Decoder, file: &[u8], every: u32) -> Result<Self, NotMine> {
        let every = every.max(1);
        let mut points = Vec::new();
        let mut band = Vec::new();
        let mut rows = decoder.open(file, None, &mut band)?;
        let size = rows.walk(every, |place, predictors| points.push((place, predictors)))?;
        Ok(Self { size, every, points })
    }
}
