//! Form 0: the encoded file as it is in the source, or repaired.

use super::{Form, FormNotes, Next, NotStored, PackOption, Unusable, check_bytes};
use crate::header::Header;
use crate::pack::StoredForm;
use crate::pack::record::IndexRecord;
use crate::pack::report::WhyKept;
use crate::pack::storing::{StoredSample, Workspace};
use ddlp_pixels::{Decoder, PixelError, SamplePlan, Source};
use std::ops::Range;

pub(super) struct Kept;

impl Form for Kept {
    const DECODER: Option<Decoder> = None;
    const OPTION: Option<PackOption> = Some(PackOption::Jpeg("as they are in the source"));
    const IS_FILE: bool = true;

    fn check(_: &IndexRecord) -> Result<(), String> {
        Ok(())
    }

    fn opening(header: &Header) -> Range<u64> {
        header.bytes.clone()
    }

    fn next(header: &Header, read: &[u8], _: &mut SamplePlan<'_>, _: &mut FormNotes) -> Result<Next, Unusable> {
        check_bytes(header, read)?;
        Ok(Next::Render)
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
