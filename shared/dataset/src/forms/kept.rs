//! Form 0: the encoded file as it is in the source, or repaired.

use super::StoredForm;
use super::form::{Form, FormNotes, PackOption};
use crate::header::Header;
use crate::pack::storing::{NotStored, StoredSample, Workspace};
use crate::pack::{IndexRecord, WhyKept};
use ddlp_pixels::{Decoder, PixelError, SamplePlan, Source};

pub(super) struct Kept;

impl Form for Kept {
    const DECODER: Option<Decoder> = None;
    const OPTION: Option<PackOption> = Some(PackOption::Jpeg("as they are in the source"));
    const IS_FILE: bool = true;

    fn check(_: &IndexRecord) -> Result<(), String> {
        Ok(())
    }

    fn source<'a>(
        _: &Header,
        read: &'a [u8],
        _: &mut SamplePlan<'_>,
        _: &'a FormNotes,
    ) -> Result<Source<'a>, PixelError> {
        Ok(Source::Encoded(read))
    }

    fn store(source: Source<'_>, workspace: &mut Workspace<'_>) -> Result<StoredSample, NotStored> {
        let Source::Encoded(file) = source else { return Err(NotStored::Kept(WhyKept::AskedFor)) };
        Ok(StoredSample::appended(workspace.out, file, StoredForm::Kept, workspace.size)?)
    }
}
