//! Form 1: three planes of 8-bit RGB, as CIFAR's files hold them.

use super::StoredForm;
use super::form::{Form, Holds};
use crate::header::Header;
use crate::pack::IndexRecord;
use crate::pack::storing::PackedSample;
use ddlp_pixels::{CorruptReason, PixelError, SamplePlan, Source, examples};

pub(super) struct Planar;

impl Form for Planar {
    type Notes = ();

    const HOLDS: Holds = Holds::Planes;

    fn examples(take: &mut dyn FnMut(Source<'_>)) {
        examples::planar(take);
    }

    fn check(record: &IndexRecord) -> Result<(), String> {
        let &IndexRecord { length, width, height, .. } = record;
        if length == 0 || record.pixel_bytes() != Some(length.into()) {
            return Err(format!("{length} bytes are not three planes of {width} x {height}"));
        }
        Ok(())
    }

    fn source<'a>(
        header: &Header,
        read: &'a [u8],
        _: &mut SamplePlan<'_>,
        (): &'a (),
    ) -> Result<Source<'a>, PixelError> {
        let (width, height) = header.size;
        Ok(Source::Planar { width, height, bytes: read })
    }
}

/// Appends three planes of this width and height to the bytes of the chunk.
pub(crate) fn store_planes(
    (width, height): (u32, u32),
    planes: &[u8],
    out: &mut Vec<u8>,
) -> Result<PackedSample, PixelError> {
    match u64::from(width).checked_mul(height.into()).and_then(|pixels| pixels.checked_mul(3)) {
        Some(length) if length == planes.len() as u64 => {
            PackedSample::appended(out, planes, StoredForm::Planar, (width, height))
        }
        _ => {
            let message = format!("{} bytes are not three planes of {width} x {height}", planes.len());
            PackedSample::rejected(out, planes, CorruptReason::Malformed, message)
        }
    }
}
