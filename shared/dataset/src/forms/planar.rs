//! Form 1: three planes of 8-bit RGB, as CIFAR's files hold them.

use super::StoredForm;
use super::form::{Form, FormNotes};
use crate::header::Header;
use crate::pack::storing::{NotStored, StoredSample, Workspace};
use crate::pack::{IndexRecord, WhyKept};
use ddlp_pixels::{CorruptReason, Decoder, PixelError, SamplePlan, Source};

pub(super) struct Planar;

impl Form for Planar {
    const DECODER: Option<Decoder> = Some(Decoder::Planar);

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
        _: &'a FormNotes,
    ) -> Result<Source<'a>, PixelError> {
        let (width, height) = header.size;
        Ok(Source::Planar { width, height, bytes: read })
    }

    fn store(source: Source<'_>, workspace: &mut Workspace<'_>) -> Result<StoredSample, NotStored> {
        let Source::Planar { width, height, bytes } = source else { return Err(NotStored::Kept(WhyKept::AskedFor)) };
        let stored = match u64::from(width).checked_mul(height.into()).and_then(|pixels| pixels.checked_mul(3)) {
            Some(length) if length == bytes.len() as u64 => {
                StoredSample::appended(workspace.out, bytes, StoredForm::Planar, (width, height))?
            }
            _ => {
                let message = format!("{} bytes are not three planes of {width} x {height}", bytes.len());
                StoredSample::rejected(workspace.out, bytes, CorruptReason::Malformed, message)?
            }
        };
        Ok(stored)
    }
}
