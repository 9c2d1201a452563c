//! Form 1: three planes of 8-bit RGB, as CIFAR's files hold them.

use super::{Damage, Form, NotStored, check_bytes};
use crate::pack::StoredForm;
use crate::pack::record::IndexRecord;
use crate::pack::report::WhyKept;
use crate::pack::store::Store;
use crate::pack::storing::{StoredSample, Workspace};
use ddlp_pixels::{CorruptReason, Source};
use std::ops::Range;

pub(super) struct Planar;

impl Form for Planar {
    fn check(record: &IndexRecord) -> Result<(), String> {
        let &IndexRecord { length, width, height, .. } = record;
        if length == 0 || record.pixel_bytes() != Some(length.into()) {
            return Err(format!("{length} bytes are not three planes of {width} x {height}"));
        }
        Ok(())
    }

    fn opening(record: &IndexRecord) -> Range<u64> {
        record.bytes()
    }

    fn check_opening(record: &IndexRecord, read: &[u8]) -> Result<(), Damage> {
        check_bytes(record, read)
    }

    fn open<'a>(record: &IndexRecord, read: &'a [u8], _: &'a Store) -> Source<'a> {
        Source::Planar { width: record.width, height: record.height, bytes: read }
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
