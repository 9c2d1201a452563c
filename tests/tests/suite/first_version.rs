//! Files of the first published version: its packs, states and plans can be read, and runs over them give its digests.
//!
//! Commit 77a8d6c made the files in `fixtures/first` from `Photos::new(12)`, and the digests below.

use ddlp_dataset::pack::{JpegForm, PackFormat};
use ddlp_host::{LoaderBuilder, LoaderState, LocalResults, Plan, Strategy};
use ddlp_pixels::Pipeline;
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::{Run, loader, local};
use std::fs;
use std::path::{Path, PathBuf};

/// Pipeline, whether it applies the EXIF orientation, and the order-free and the ordered digest of two epochs.
const DIGESTS: [(&str, bool, &str, &str); 6] = [
    (
        "imagenet-train",
        true,
        "7171005fcb1ce6678f430d4e9cebc9a8",
        "d52c8f1d2b54eb549b55d6ed4dff885200f4c429238fc3fccbee34057fdb7220",
    ),
    (
        "imagenet-train",
        false,
        "b889d931ffad1529a50d0f7e5466b0a1",
        "b761b24808c29c05d9b574493a081ef181a73c213cd7c199cd967fe2aa50b90e",
    ),
    (
        "imagenet-val",
        true,
        "70abd0252ca3c767f091981160556012",
        "2706545ef56e33008dee7064ceb7c83c7a8101a7883833dd97ab1e4f195c389a",
    ),
    (
        "imagenet-val",
        false,
        "35e8ec93e048ff2468d6fba23830350c",
        "6fdeff4a7f73bc277ed24fa109a5c3cfc62f3aed18c529398a0244fa5d1abd59",
    ),
    (
        "cifar-train",
        true,
        "e8b7c97729466f47046dc061893c0071",
        "91e13ef8f2575ee94de508e09dcae5ccdfbe3ea645b4a8aa5ca8bfb7882cc0a5",
    ),
    (
        "cifar-train",
        false,
        "92b9378f8818f6bdcbcedaa5cad934d5",
        "9a825671bd5311a796c0c9bb2cc32529edd1d78ff8379553886ebb58b0c934e2",
    ),
];

/// Sample ids of the two epochs from which `state.json` was taken, after its fourth batch.
const BATCHES: [[u64; 2]; 12] =
    [[11, 3], [8, 7], [10, 0], [4, 2], [5, 6], [9, 1], [10, 8], [1, 0], [6, 3], [11, 9], [7, 4], [5, 2]];

/// Ordered digest of the run under `mte` that wrote `plan.bin`.
const PLANNED: &str = "d3ceaa60fe02362dba2549d05c648f7a0fe0b484fefc783771f73d555b6b96c7";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/first").join(name)
}

/// Returns the run that wrote the states and the plan.
fn published_run() -> LoaderBuilder {
    loader(&fixture("indexed.ddlp")).batch_size(2).epochs(2).seed(3)
}

fn state(name: &str) -> LoaderState {
    serde_json::from_slice(&fs::read(fixture(name)).unwrap()).unwrap()
}

#[test]
fn digests_are_those_of_the_first_version() {
    let photos = Photos::new(12);
    let formats = [
        ("kept.ddlp", PackFormat::Encoded { jpeg: JpegForm::Kept }),
        ("indexed.ddlp", PackFormat::Encoded { jpeg: JpegForm::Indexed }),
        ("raw.ddlp", PackFormat::Raw { max_side: None }),
    ];
    let mut datasets = vec![photos.folder()];
    for (name, format) in formats {
        datasets.extend([fixture(name), photos.pack_as(name, format)]);
    }
    for dataset in &datasets {
        for (name, exif_orientation, unordered, ordered) in DIGESTS {
            let pipeline = Pipeline { exif_orientation, ..Pipeline::named(name).unwrap() };
            let base = loader(dataset).batch_size(5).epochs(2).seed(3).pipeline(pipeline);
            let run = Run::of(base.strategy(Strategy::Cpu));
            assert_eq!(run.digest, unordered, "{} {name} {exif_orientation}", dataset.display());
            assert_eq!(run.ordered_digest, ordered, "{} {name} {exif_orientation}", dataset.display());
        }
    }
}

#[test]
fn its_states_resume() {
    for (name, delivered) in [("state.json", 4), ("state-of-an-epoch.json", 6)] {
        let run = Run::of(published_run().resume(state(name)));
        assert_eq!(run.batches, BATCHES[delivered..], "{name}");
    }
}

#[test]
fn its_plan_replays() {
    let plan = Plan::from_bytes(&fs::read(fixture("plan.bin")).unwrap()).unwrap();
    let replayed = published_run().strategy(Strategy::Mte).replay(plan);
    let run = Run::of(replayed.drive(local(LocalResults::Shared)));
    assert_eq!(run.ordered_digest, PLANNED);
}
