//! Form 0: the encoded file as it is in the source, or repaired.

use super::StoredForm;
use super::form::{Form, Holds, PackOption};
use crate::header::Header;
use crate::pack::IndexRecord;
use crate::pack::storing::{NotStored, PackedSample, Workspace};
use ddlp_pixels::{PixelError, SamplePlan, Source};

pub(super) struct Kept;

impl Form for Kept {
    type Notes = ();

    const OPTION: Option<PackOption> = Some(PackOption::Jpeg("as they are in the source"));
    const HOLDS: Holds = Holds::Files(store);

    fn examples(_: &mut dyn FnMut(Source<'_>)) {}

    fn check(_: &IndexRecord) -> Result<(), String> {
        Ok(())
    }

    fn source<'a>(_: &Header, read: &'a [u8], _: &mut SamplePlan<'_>, (): &'a ()) -> Result<Source<'a>, PixelError> {
        Ok(Source::Encoded(read))
    }
}

fn store(file: &[u8], workspace: &mut Workspace<'_>) -> Result<PackedSample, NotStored> {
    Ok(PackedSample::appended(workspace.out, file, StoredForm::Kept, workspace.size)?)
}
