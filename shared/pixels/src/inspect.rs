//! The check by which `ddlp pack` makes sure, once for each whole file, that its pixels are the same on every machine.
//!
//! libjpeg-turbo's SIMD and C paths agree as long as no 16-bit intermediate wraps or saturates. What an 8-bit encoder
//! writes stays far below that; a damaged stream may not. So the check decodes all coefficients, requires that libjpeg
//! does not warn, and computes the inverse DCT of each block in wide integers (see [`crate::range`]). A stream that
//! fails is rewritten from coefficients brought into range, and the rewritten stream has to pass the same check.
//!
//! The check needs all coefficients at once, while a file of one scan is decoded to pixels band by band. If the
//! coefficients need more memory than the limit allows, the check decodes the file to pixels instead: the file is
//! intact if libjpeg does not warn.

use crate::error::{CorruptReason, PixelError};
use crate::jpeg;
use crate::jpeg::ffi::{Block, BlockRow, Coefficients, Extent, Object, Script};
use crate::large;
use crate::limits::Limits;
use crate::range;
use ddlp_cause::with_causes;

/// Result of checking a whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The file decodes without a warning, and to the same pixels on every machine. (The latter is not checked if the
    /// coefficients need more memory than the limit allows.)
    Intact,
    /// The file decodes, but not to the same pixels on every machine; `bytes` replaces it.
    Repaired {
        /// A JPEG of the same coefficients, brought into range.
        bytes: Vec<u8>,
        /// Number of the decoder's warnings about the original.
        warnings: u32,
        /// Number of coefficients that were out of range.
        clamped: u32,
    },
    /// The file does not decode, or only with warnings and repairing it needs more memory than the limit allows.
    Rejected {
        /// Code of the reason.
        reason: CorruptReason,
        /// The reason in words.
        message: String,
    },
    /// The system refused memory, so nothing is known about the file.
    Undecided {
        /// Description of the refused allocation.
        message: String,
    },
}

impl Verdict {
    pub(crate) fn of(error: &PixelError) -> Self {
        let message = with_causes(error);
        if !error.is_of_the_image() {
            return Self::Undecided { message };
        }
        Self::Rejected { reason: error.reason(), message }
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
        Err(error) => Verdict::of(&error),
    }
}

fn check(object: &mut Object, file: &[u8], limits: Limits) -> Result<Verdict, PixelError> {
    // Decoding to pixels refuses some colours and samplings, and gives some warnings, that reading coefficients does
    // not.
    let begun = start_pixels(object, file, limits)?;
    let mut findings = read_whole(object, file, limits, (Extent::Whole, begun.warnings > 0));
    if begun.has_one_scan && findings.is_err() {
        // The error may lie behind the scan, where decoding to pixels does not look.
        findings = read_whole(object, file, limits, (Extent::FirstScan, true));
    }
    if let Err(error @ PixelError::TooMuchMemory { .. }) = findings {
        let warnings = jpeg::check_whole(object, file, limits, &mut Vec::new())?;
        return if warnings == 0 { Ok(Verdict::Intact) } else { Err(error) };
    }
    let Findings { warnings, clamped, rewritten } = findings?;
    let Some(bytes) = rewritten else { return Ok(Verdict::Intact) };
    let again = read_whole(object, &bytes, limits, (Extent::Whole, false))?;
    let begun_again = start_pixels(object, &bytes, limits)?;
    if again.rewritten.is_some() || begun_again.warnings > 0 {
        let message =
            format!("rewritten, it has {} warnings and {} coefficients out of range", again.warnings, again.clamped);
        return Err(PixelError::Malformed { source: message.into() });
    }
    // If neither warnings nor coefficients are the reason, the bytes behind the scan are: count a warning for them.
    let warnings = warnings.max(begun.warnings).max(u32::from(clamped == 0));
    Ok(Verdict::Repaired { bytes, warnings, clamped })
}

/// Result of decoding the first row to pixels.
struct Begun {
    warnings: u32,
    has_one_scan: bool,
}

fn start_pixels(object: &mut Object, file: &[u8], limits: Limits) -> Result<Begun, PixelError> {
    let _turn;
    let mut opened = jpeg::open(object, file, limits, false)?;
    _turn = large::turn(opened.header.whole_bytes());
    let width = opened.header.width;
    opened.start(0, width, 0)?;
    let mut row = vec![0; width as usize * opened.channels()];
    opened.rows(&mut row, 1)?;
    Ok(Begun { warnings: opened.warnings(), has_one_scan: opened.header.multiple_scans == 0 })
}

/// Reads all coefficients. Rewrites the file if asked to, or if the coefficients or warnings require it.
fn read_whole(
    object: &mut Object,
    file: &[u8],
    limits: Limits,
    (extent, is_rewritten): (Extent, bool),
) -> Result<Findings, PixelError> {
    let opened = jpeg::open(object, file, limits, true)?;
    let coefficient_bytes = opened.header.coefficient_bytes;
    limits.check_memory(coefficient_bytes)?;
    let _turn = large::turn(coefficient_bytes);
    let mut coefficients = opened.into_coefficients(extent)?;
    let mut clamped = change_blocks(&mut coefficients, range::bring_into_range)?;
    let warnings = coefficients.opened.warnings();
    if !is_rewritten && warnings == 0 && clamped == 0 {
        return Ok(Findings { warnings, clamped, rewritten: None });
    }
    clamped = clamped.saturating_add(change_blocks(&mut coefficients, range::make_encodable)?);
    Ok(Findings { warnings, clamped, rewritten: Some(coefficients.rewrite(Script::AsSource)?) })
}

/// Calls `change` for every block, and returns the number of coefficients changed. Skips components without a scan,
/// which are all zeros.
fn change_blocks(
    coefficients: &mut Coefficients<'_>,
    change: fn(&mut Block<i16>, &Block<u16>) -> u32,
) -> Result<u32, PixelError> {
    let mut changed = 0u32;
    let header = coefficients.opened.header;
    for component in 0..header.components.min(4) as usize {
        for row in 0..header.blocks_high[component] {
            let BlockRow { blocks, quant } = coefficients.block_row(component, row)?;
            let Some(quant) = quant else { break };
            for block in blocks {
                changed = changed.saturating_add(change(block, quant));
            }
        }
    }
    Ok(changed)
}
