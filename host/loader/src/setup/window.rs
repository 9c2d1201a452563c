//! The windowed order of a run.

use crate::options::LoaderOptions;
use crate::order::{EpochCut, Lanes, ShuffleWindow};
use ddlp_csd::memory;
use ddlp_dataset::Dataset;
use std::sync::Arc;

/// Returns the windowed order that the options ask for, if they do.
///
/// # Errors
///
/// Says what cannot go with it.
pub(super) fn window_of(
    options: &LoaderOptions,
    dataset: &Arc<dyn Dataset>,
    cut: &EpochCut,
    chooses: bool,
) -> Result<Option<ShuffleWindow>, String> {
    let Some(count) = options.shuffle_window else { return Ok(None) };
    let refusals = [
        (!options.shuffle, "it is an order of shuffled epochs, but `shuffle` is false: leave one of them out"),
        (!dataset.parts().is_empty(), "a mix has no bundles: make a pack of the mix, or leave `shuffle_window` out"),
        (
            chooses || cut.repeats > 1 || cut.samples != dataset.len(),
            "it is an order of all samples, so it excludes `indices`, `weights`, `repeats` and `epoch_samples`",
        ),
        (cut.buckets.is_some(), "its batches have samples of all sizes, so it excludes several pipelines (`buckets`)"),
    ];
    if let Some((_, message)) = refusals.iter().find(|(is_refused, _)| *is_refused) {
        return Err(format!("`shuffle_window`: {message}"));
    }
    if cut.batch < count as u64 {
        return Err(format!(
            "`shuffle_window` is {count}, but each batch has only {} samples: give it at most as many bundles",
            cut.batch
        ));
    }
    match dataset.bundles() {
        Ok(Some(bundles)) => {
            let lanes = Lanes { count: count as u64, samples: cut.samples, batch: cut.batch, last: cut.last };
            let (bundle_bytes, bundle_samples) = (bundles.bytes, bundles.samples);
            Ok(Some(ShuffleWindow { dataset: dataset.clone(), lanes, bundle_bytes, bundle_samples }))
        }
        Ok(None) => Err(format!(
            "`shuffle_window`: the order in which samples lie on the disk is known for packs alone, and this dataset \
             ({}) is none: make one (`ddlp pack SOURCE OUT`), or leave `shuffle_window` out",
            dataset.kind()
        )),
        Err(error) => Err(format!("`shuffle_window`: {}", memory::refused(dataset.len() * 4, error))),
    }
}

/// Says that ranks share bundles, if they do.
pub(super) fn note_of_window(options: &LoaderOptions) -> Option<String> {
    let (count, world) = (options.shuffle_window?, options.world_size as usize);
    (!count.is_multiple_of(world)).then(|| {
        format!(
            "{world} ranks do not divide the {count} bundles of the shuffle window, so several ranks read from one \
             bundle: a `shuffle_window` that is a multiple of the number of ranks avoids that"
        )
    })
}
