//! The check that `ddlp pack` makes of every file once, whole, so that its pixels are the same on every machine.
//!
//! libjpeg-turbo's SIMD and C paths agree as long as no 16-bit intermediate wraps or saturates. What an 8-bit encoder
//! writes stays far below that; a damaged stream may not. So the check decodes all coefficients, requires that libjpeg
//! does not warn, and computes the inverse DCT of each block in wide integers (see [`crate::range`]). A stream that
//! fails is rewritten from coefficients brought into range, and the rewritten stream has to pass the same check.

use crate::error::{CorruptReason, PixelError};
use crate::jpeg;
use crate::jpeg::ffi::{BlockRow, Object};
use crate::large;
use crate::range;
use crate::source::Limits;

/// Result of checking a whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The file decodes without a warning, and to the same pixels on every machine.
    Intact,
    /// The file decodes, but not to the same pixels on every machine; `bytes` is to be stored in its place.
    Repaired {
        /// A JPEG of the same coefficients, brought into range.
        bytes: Vec<u8>,
        /// Number of the decoder's warnings about the original.
        warnings: u32,
        /// Number of coefficients that were out of range.
        clamped: u32,
    },
    /// The file does not decode.
    Rejected {
        /// Code of the reason.
        reason: CorruptReason,
        /// The reason in words.
        message: String,
    },
}

impl Verdict {
    pub(crate) fn rejected(error: &PixelError) -> Self {
        Self::Rejected { reason: error.reason(), message: error.to_string() }
    }
}

/// Result of reading all coefficients.
struct Findings {
    warnings: u32,
    clamped: u32,
    rewritten: Option<Vec<u8>>,
}

pub(crate) fn jpeg(object: &mut Object, file: &[u8], limits: Limits) -> Verdict {
    match check(object, file, limits) {
        Ok(verdict) => verdict,
        Err(error) => Verdict::rejected(&error),
    }
}

fn check(object: &mut Object, file: &[u8], limits: Limits) -> Result<Verdict, PixelError> {
    let findings = read_whole(object, file, limits)?;
    // Decoding to pixels refuses some colours and samplings, and gives some warnings, that reading coefficients does
    // not.
    let warnings = findings.warnings.max(start_pixels(object, file, limits)?);
    if warnings == 0 && findings.clamped == 0 {
        return Ok(Verdict::Intact);
    }
    let bytes = match findings.rewritten {
        Some(bytes) => bytes,
        None => return Err(PixelError::Malformed { message: "libjpeg warns about its pixels alone".into() }),
    };
    let again = read_whole(object, &bytes, limits)?;
    if again.warnings > 0 || again.clamped > 0 || start_pixels(object, &bytes, limits)? > 0 {
        let message =
            format!("rewritten, it has {} warnings and {} coefficients out of range", again.warnings, again.clamped);
        return Err(PixelError::Malformed { message });
    }
    Ok(Verdict::Repaired { bytes, warnings, clamped: findings.clamped })
}

fn start_pixels(object: &mut Object, file: &[u8], limits: Limits) -> Result<u32, PixelError> {
    let _turn;
    let mut opened = jpeg::open(object, file, limits, false)?;
    _turn = large::turn(opened.header.whole_bytes());
    let width = opened.header.width;
    opened.start(0, width, 0)?;
    let mut row = vec![0; width as usize * opened.channels()];
    opened.rows(&mut row, 1)?;
    Ok(opened.warnings())
}

fn read_whole(object: &mut Object, file: &[u8], limits: Limits) -> Result<Findings, PixelError> {
    let opened = jpeg::open(object, file, limits, true)?;
    let header = opened.header;
    limits.check_memory(header.coefficient_bytes)?;
    let _turn = large::turn(header.coefficient_bytes);
    let mut coefficients = opened.into_coefficients()?;
    let mut clamped = 0u32;
    for component in 0..header.components.min(4) as usize {
        for row in 0..header.blocks_high[component] {
            let BlockRow { blocks, quant } = coefficients.block_row(component, row)?;
            let Some(quant) = quant else {
                return Err(PixelError::Malformed { message: format!("no scan holds component {component}") });
            };
            for block in blocks {
                clamped = clamped.saturating_add(range::bring_into_range(block, quant));
            }
        }
    }
    let warnings = coefficients.opened.warnings();
    let rewritten = if warnings > 0 || clamped > 0 { Some(coefficients.rewrite(false)?) } else { None };
    Ok(Findings { warnings, clamped, rewritten })
}
