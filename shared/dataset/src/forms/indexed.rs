//! Form 2: a JPEG with checkpoints as its detail, so that a crop decodes little more than the MCUs that it covers.
//!
//! Checkpoints whose checksum is wrong cost only time: the file alone gives the same pixels.

use super::StoredForm;
use super::form::{Form, Holds, PackOption, Unusable, check_bytes, check_detail};
use crate::pack::storing::{NotStored, PackedSample, Workspace, reserve};
use crate::pack::{IndexRecord, StoredVerdict, WhyKept};
use crate::{Header, Reads};
use ddlp_pixels::{PixelError, SamplePlan, Source, checkpoint_bytes_max, examples};

pub(super) struct Indexed;

impl Form for Indexed {
    type Notes = ();

    const OPTION: Option<PackOption> = Some(PackOption::Jpeg("with checkpoints (progressive ones rewritten for this)"));
    const DETAIL: Option<&'static str> = Some("checkpoints");
    const REWRITTEN: &'static str = "rewritten into one scan and indexed";
    const HOLDS: Holds = Holds::Files(store);

    fn examples(take: &mut dyn FnMut(Source<'_>)) {
        examples::indexed(take);
    }

    fn check(record: &IndexRecord) -> Result<(), String> {
        let &IndexRecord { length, width, height, detail_length, .. } = record;
        let most = checkpoint_bytes_max(length.into(), width.max(height));
        if u64::from(detail_length) > most {
            return Err(format!(
                "{detail_length} bytes of checkpoints for a file of {length}, at most {most} are made"
            ));
        }
        if record.verdict != StoredVerdict::Intact {
            return Err("its form is that of intact samples".to_owned());
        }
        Ok(())
    }

    fn next(header: &Header, read: &[u8], _: &mut SamplePlan<'_>, (): &mut (), _: &mut Reads) -> Result<(), Unusable> {
        let (file, checkpoints) = read.split_at(read.len() - header.detail_bytes());
        check_bytes(header, file)?;
        // The file alone gives the same pixels.
        check_detail(header, checkpoints).map_err(|_| Unusable::NeedsFile)
    }

    fn source<'a>(
        header: &Header,
        read: &'a [u8],
        _: &mut SamplePlan<'_>,
        (): &'a (),
    ) -> Result<Source<'a>, PixelError> {
        let (file, checkpoints) = read.split_at(read.len() - header.detail_bytes());
        Ok(Source::Indexed { file, checkpoints })
    }
}

fn store(file: &[u8], workspace: &mut Workspace<'_>) -> Result<PackedSample, NotStored> {
    if workspace.is_repaired {
        return Err(NotStored::Kept(WhyKept::Repaired));
    }
    let indexed = workspace.preparer.index(file).map_err(|why| NotStored::Kept(WhyKept::NotIndexed(why)))?;
    let bytes = indexed.transcoded.as_deref().unwrap_or(file);
    let stored = PackedSample::appended(workspace.out, bytes, StoredForm::Indexed, workspace.size)?;
    reserve(workspace.out, indexed.checkpoints.len())?;
    workspace.out.extend_from_slice(&indexed.checkpoints);
    let stored = stored.with_detail(&indexed.checkpoints);
    Ok(stored.noting(|note| note.is_rewritten = indexed.transcoded.is_some()))
}
