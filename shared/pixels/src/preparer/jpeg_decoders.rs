//! The two decoders of JPEGs, and the choice between them.

use crate::error::PixelError;
use crate::jpeg::baseline::{self, Checkpoints};
use crate::jpeg::{self, JpegRows, ffi::Object};
use crate::large;
use crate::level::Level;
use crate::limits::Limits;
use crate::rendered::Prepared;
use crate::rows::ImageRows;

/// Work on an opened image.
type Run<'r> = &'r mut dyn FnMut(&mut dyn ImageRows) -> Result<(), PixelError>;

/// Limit on the memory for a file's checkpoints: `CHECKPOINT_SHARE` times the file's bytes, plus `CHECKPOINT_BYTES`. A
/// pack's checkpoints take less than the file's bytes.
const CHECKPOINT_SHARE: u64 = 4;
const CHECKPOINT_BYTES: u64 = 1 << 20;

/// The decoders of JPEGs, with their memory.
pub(super) struct JpegDecoders {
    /// Our own decoder, for most files; `None` leaves all of them to libjpeg.
    pub(super) baseline: Option<baseline::BaselineDecoder>,
    /// Checkpoints of the current sample, if it has any.
    checkpoints: Checkpoints,
    pub(super) libjpeg: Object,
}

impl JpegDecoders {
    pub(super) fn new(level: Level) -> Self {
        let baseline = Some(baseline::BaselineDecoder::new(level));
        Self { baseline, checkpoints: Checkpoints::default(), libjpeg: Object::new() }
    }

    /// Reads the checkpoints of a file that is decoded next. Returns whether they are good.
    pub(super) fn read_checkpoints(&mut self, file: &[u8], checkpoints: &[u8], limits: Limits) -> bool {
        let memory = limits.memory_bytes.min(CHECKPOINT_SHARE * file.len() as u64 + CHECKPOINT_BYTES);
        self.checkpoints.replace(checkpoints, memory).is_ok()
    }

    /// Hands the pixels of a file to `run`; calls it again if our decoder gives the file up midway and libjpeg starts
    /// again.
    pub(super) fn decode(
        &mut self,
        file: &[u8],
        with_checkpoints: bool,
        limits: Limits,
        band: &mut Vec<u8>,
        run: Run<'_>,
    ) -> Result<Prepared, PixelError> {
        let Self { baseline, checkpoints, libjpeg } = self;
        if !jpeg::has_end_marker(file) {
            jpeg::check_whole(libjpeg, file, limits, band)?;
        }
        let checkpoints = with_checkpoints.then_some(&*checkpoints);
        if let Some(Ok(mut rows)) = baseline.as_mut().map(|baseline| baseline.open(file, checkpoints, band))
            && limits.check_pixels(rows.size().0, rows.size().1).is_ok()
        {
            let outcome = run(&mut rows);
            if !rows.gave_up() {
                return outcome.map(|()| Prepared::default());
            }
        }
        // Declared before the open file, which holds the memory, so that it is dropped after the file.
        let _turn;
        let opened = jpeg::open(libjpeg, file, limits, false)?;
        _turn = large::turn(opened.header.whole_bytes());
        let mut rows = JpegRows::new(opened, band);
        run(&mut rows)?;
        Ok(Prepared { warnings: rows.warnings() })
    }

    /// Frees memory of more than `kept_bytes`.
    pub(super) fn trim(&mut self, kept_bytes: usize) {
        if let Some(baseline) = &mut self.baseline {
            baseline.trim(kept_bytes);
        }
        self.checkpoints.trim(kept_bytes);
    }
}
