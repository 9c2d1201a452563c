//! Form 6: the pieces of a progressive JPEG, one for each scan group, and one for the markers that no decoder needs.
//!
//! A sample's pieces lie apart. For the samples of a bundle, the pieces of one scan group lie side by side. The record
//! has the place of the first piece, and the pack's section of pieces has all places and checksums. A crop reads the
//! pieces of its fidelity and no markers; a whole sample is all pieces, joined to a file.

use super::StoredForm;
use super::form::{Form, Holds, PackOption, Unusable};
use crate::pack::storing::{NotStored, PackedSample, Workspace};
use crate::pack::{IndexRecord, StoredVerdict, WhyKept};
use crate::{Header, Piece, SAMPLE_BYTES_MAX};
use ddlp_pixels::{NotCut, PixelError, SamplePlan, Source, examples};

pub(super) struct Pcr;

impl Form for Pcr {
    type Notes = ();

    const OPTION: Option<PackOption> = Some(PackOption::Format(
        "JPEGs in pieces (progressive compressed records), of which a run with a lower fidelity reads only the first",
    ));
    const REWRITTEN: &'static str = "rewritten as progressive ones and cut";
    const HOLDS: Holds = Holds::Pieces(store);

    fn examples(take: &mut dyn FnMut(Source<'_>)) {
        examples::pieces(take);
    }

    fn check(record: &IndexRecord) -> Result<(), String> {
        let &IndexRecord { length, width, height, .. } = record;
        if length == 0 || width == 0 || height == 0 {
            return Err(format!("an image of {width} x {height} cannot have a first piece of {length} bytes"));
        }
        if record.was_shrunk || matches!(record.verdict, StoredVerdict::Rejected(_)) {
            return Err("it was shrunk or rejected, but its form stores only whole images".to_owned());
        }
        Ok(())
    }

    fn source<'a>(
        header: &Header,
        read: &'a [u8],
        plan: &mut SamplePlan<'_>,
        (): &'a (),
    ) -> Result<Source<'a>, PixelError> {
        Ok(match plan.is_whole() {
            true => Source::Encoded(read),
            false => Source::Pieces { file: read, orientation: header.orientation },
        })
    }
}

/// Checks the pieces that have been read, which follow each other in `read`.
pub(crate) fn check_pieces(pieces: &[Piece], mut read: &[u8]) -> Result<(), Unusable> {
    for Piece { extent, crc32c: stored } in pieces {
        let (piece, rest) = read.split_at((extent.end - extent.start) as usize);
        let (stored, computed) = (*stored, crc32c::crc32c(piece));
        if stored != computed {
            return Err(Unusable::Detail { extent: extent.clone(), stored, computed });
        }
        read = rest;
    }
    Ok(())
}

fn store(file: &[u8], workspace: &mut Workspace<'_>) -> Result<PackedSample, NotStored> {
    let cut = workspace.preparer.cut(file, workspace.groups).map_err(|why| match why {
        NotCut::NoMemory => NotStored::Failed(PixelError::NoMemory { message: why.to_string() }),
        why => NotStored::Kept(WhyKept::NotCut(why)),
    })?;
    let pieces = (0..cut.groups()).map(|group| cut.piece(group)).chain([cut.markers()]);
    let lengths: Vec<u32> = pieces.clone().map(|piece| piece.len() as u32).collect();
    if pieces.map(|piece| piece.len() as u64).sum::<u64>() > SAMPLE_BYTES_MAX {
        return Err(NotStored::Kept(WhyKept::NotCut(NotCut::Unusual)));
    }
    let mut stored = PackedSample::appended(workspace.out, cut.piece(0), StoredForm::Pcr, workspace.size)?;
    for piece in (1..cut.groups()).map(|group| cut.piece(group)).chain([cut.markers()]) {
        crate::pack::storing::reserve(workspace.out, piece.len())?;
        workspace.out.extend_from_slice(piece);
    }
    stored.record.orientation = cut.orientation;
    stored.pieces = lengths;
    Ok(stored.noting(|note| note.is_rewritten = cut.is_rewritten))
}
