//! Making the checkpoints of a file.

use super::{BITS_MAX, Checkpoints, PREDICTOR_MAX, StoredCheckpoint};
use crate::jpeg::baseline::LeftToLibjpeg;
use crate::jpeg::baseline::bits::Place;
use crate::jpeg::baseline::decoder::BaselineDecoder;
use crate::level::Level;

impl Checkpoints {
    /// Makes a checkpoint at every `every`th MCU of each row, in a pass over the whole file. Returns `None` unless the
    /// file is an intact sequential JPEG of 8 bits with one of the usual layouts.
    ///
    /// # Panics
    /// When `every` is zero.
    pub fn of(file: &[u8], every: u32) -> Option<Self> {
        Self::make(&mut BaselineDecoder::new(Level::best()), file, every).ok()
    }

    /// Does the same as [`of`](Self::of) with an existing decoder.
    pub(crate) fn make(decoder: &mut BaselineDecoder, file: &[u8], every: u32) -> Result<Self, LeftToLibjpeg> {
        Self::make_to_the_end(decoder, file, every).map(|(all, _)| all)
    }

    /// Does the same as [`make`](Self::make). Also returns where the last MCU ends.
    pub(crate) fn make_to_the_end(
        decoder: &mut BaselineDecoder,
        file: &[u8],
        every: u32,
    ) -> Result<(Self, Place), LeftToLibjpeg> {
        assert!(every > 0, "checkpoints are at least one MCU apart");
        let mut points = Vec::new();
        let mut band = Vec::new();
        let mut all_fit = true;
        let mut source = decoder.open(file, None, &mut band)?;
        let ((columns, rows), end) = source.walk(every, |place, predictors| {
            all_fit &= predictors.iter().all(|&predictor| i64::from(predictor).abs() <= PREDICTOR_MAX);
            let bits = 8 * place.byte as i64 + i64::from(place.bit);
            points.push(StoredCheckpoint { bits, predictors: predictors.map(|predictor| predictor as i16) });
        })?;
        if !all_fit || points.last().is_some_and(|point| point.bits > BITS_MAX) {
            return Err(LeftToLibjpeg);
        }
        let components = source.components();
        Ok((Self { components, every, columns, rows, points }, end))
    }
}
