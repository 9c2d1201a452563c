//! Form 0: the encoded file as it is in the source, or repaired.

use super::{Damage, Form, NotStored, PackOption, check_bytes};
use crate::pack::StoredForm;
use crate::pack::record::IndexRecord;
use crate::pack::report::WhyKept;
use crate::pack::store::Store;
use crate::pack::storing::{StoredSample, Workspace};
use ddlp_pixels::Source;
use std::ops::Range;

pub(super) struct Kept;

impl Form for Kept {
    const OPTION: Option<PackOption> = Some(PackOption::Jpeg("as they are in the source"));
    const IS_FILE: bool = true;

    fn check(_: &IndexRecord) -> Result<(), String> {
        Ok(())
    }

    fn opening(record: &IndexRecord) -> Range<u64> {
        record.bytes()
    }

    fn check_opening(record: &IndexRecord, read: &[u8]) -> Result<(), Damage> {
        check_bytes(record, read)
    }

    fn open<'a>(_: &IndexRecord, read: &'a [u8], _: &'a Store) -> Source<'a> {
        Source::Encoded(read)
    }

    fn store(source: Source<'_>, workspace: &mut Workspace<'_>) -> Result<StoredSample, NotStored> {
        let Source::Encoded(file) = source else { return Err(NotStored::Kept(WhyKept::AskedFor)) };
        Ok(StoredSample::appended(workspace.out, file, StoredForm::Kept, workspace.size)?)
    }
}
