//! The advice for an error about a sample that ends a run.

use anyhow::anyhow;
use ddlp_dataset::Unavailable;
use ddlp_host::LoaderError;
use ddlp_pixels::CorruptReason;
use std::io;

/// Adds advice to an error that ends a run.
pub fn explained(error: LoaderError) -> anyhow::Error {
    match error {
        LoaderError::Unavailable(why) => {
            let remedy = remedy(&why);
            let problem = anyhow::Error::from(why);
            anyhow!("{problem:#}\n{remedy}; --resume continues from the last state that --state-out wrote")
        }
        LoaderError::CorruptSample { sample, sample_id, location, reason, problem, .. } => {
            let further = match reason {
                CorruptReason::Checksum => {
                    "`ddlp verify` finds all damage in a pack (call it where the pack lies): put an intact copy in the \
                     pack's place, or pack the source again"
                }
                _ => "`ddlp pack` finds all corrupt samples, and `ddlp inspect PACK` lists them",
            };
            anyhow!(
                "sample {sample} (id {sample_id}, {location}) cannot be used: {problem}\n\
                 --policy skip leaves corrupt samples out, --policy replace replaces each by the next intact one; \
                 {further}"
            )
        }
        error => error.into(),
    }
}

/// Returns the advice for a dataset that cannot be read.
fn remedy(why: &Unavailable) -> &'static str {
    match why {
        Unavailable::Gone { .. } | Unavailable::Changed { .. } => {
            "the dataset is not as it was when the run began, and no --policy applies: restore it"
        }
        Unavailable::NoFile { .. } => {
            "a sample has no file, and no --policy applies: restore the file, or remove what is in its place"
        }
        Unavailable::NoImage { .. } => "a row has no image, and no --policy applies",
        Unavailable::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            "you may not read the dataset, and no --policy applies: ask for permission"
        }
        Unavailable::Io { source, .. } if source.kind() == io::ErrorKind::TimedOut => {
            "the dataset is out of reach, and no --policy applies"
        }
        Unavailable::NoMemory { .. } => "the system refused memory; the sample itself may be intact",
        _ => "the dataset cannot be read now, and no --policy applies: check its storage",
    }
}
