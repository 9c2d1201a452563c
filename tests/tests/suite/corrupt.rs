//! Bad files under each policy: both prongs treat them alike, and the report names them.

use ddlp_dataset::{Corrupt, Location, ReadError};
use ddlp_host::{CorruptPolicy, Field, FieldKind, LocalResults, MaxCorrupt, Strategy};
use ddlp_pixels::{CorruptReason, Pipeline};
use ddlp_tests::hooked::{Hooked, Hooks};
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::{Run, chain, loader, local};
use std::sync::Arc;

const SAMPLES: u32 = 1000;
const BAD: [u32; 4] = [100, 357, 358, 999];

/// Makes 1000 small images, of which four are unusable: cut short, empty, text, and noise behind a JPEG's first bytes.
fn photos() -> Photos {
    let photos = Photos::with_sizes(SAMPLES, |index| (40 + index % 9, 36 + index % 7));
    let good = photos.read(BAD[0]);
    photos.write(BAD[0], &good[..good.len() / 3]);
    photos.write(BAD[1], b"");
    photos.write(BAD[2], b"not an image\n");
    photos.write(BAD[3], &[&good[..20], &[0x77; 300][..]].concat());
    photos
}

#[test]
fn skip_leaves_the_bad_ones_out_on_every_prong() {
    let photos = photos();
    let mut digests = Vec::new();
    for dataset in [photos.folder(), photos.pack()] {
        let base = || loader(&dataset).with(|o| (o.batch_size, o.policy) = (64, CorruptPolicy::Skip));
        let runs = [
            Run::of(base()),
            Run::of(base().with(|o| o.strategy = Strategy::Csd).drive(local(LocalResults::Shared))),
            Run::of(base().with(|o| o.strategy = Strategy::Mte).drive(local(LocalResults::Read))),
        ];
        for run in runs {
            assert_eq!(run.report.images, u64::from(SAMPLES) - 4);
            assert_eq!(run.report.corrupt.len(), 4);
            for (sample, action) in run.report.corrupt.iter().map(|corrupt| (&corrupt.sample, &corrupt.action)) {
                assert!(BAD.iter().any(|bad| sample.contains(&format!("{bad:05}.jpg"))), "{sample}");
                assert_eq!(action, "skipped");
            }
            digests.push(run.digest);
        }
    }
    digests.dedup();
    assert_eq!(digests.len(), 1, "{digests:?}");
}

#[test]
fn replace_takes_the_next_readable_sample_on_every_prong() {
    let photos = photos();
    let indices = (0..i64::from(SAMPLES)).flat_map(i64::to_ne_bytes).collect::<Vec<_>>();
    let index = Field { name: "index".into(), kind: FieldKind::Vector, ..Field::label() };
    let twice = 2 * u64::from(SAMPLES);
    let base = || {
        let builder = loader(&photos.pack())
            .with(|o| (o.batch_size, o.policy, o.epoch_samples) = (64, CorruptPolicy::Replace, Some(twice)));
        builder.field(index.clone(), indices.clone())
    };
    let on = |results| base().with(|o| o.strategy = Strategy::Csd).drive(local(results));
    let mut digests = Vec::new();
    for builder in [base(), on(LocalResults::Shared), on(LocalResults::Read)] {
        let mut replaced = Vec::new();
        let run = Run::with(builder, |batch, _| {
            let shown = batch.field("index").unwrap().as_slice::<i64>().unwrap();
            for ((&id, &requested), &shown) in batch.sample_ids().iter().zip(batch.requested_ids()).zip(shown) {
                assert_eq!(id % u64::from(SAMPLES), shown as u64, "the row has the id of the sample in it");
                replaced.extend((id != requested).then_some((requested, id)));
            }
        });
        run.assert_exactly_once(1, twice);
        replaced.sort_unstable();
        // The indices of the bad ones, which are sorted by class, and of those after them.
        let once = [(119, 120), (333, 334), (367, 368), (453, 454)];
        let again = once.map(|(requested, id)| (requested + u64::from(SAMPLES), id + u64::from(SAMPLES)));
        assert_eq!(replaced, [once, again].concat());
        assert_eq!(run.report.corrupt.len(), 8);
        let actions: Vec<&str> = run.report.corrupt.iter().map(|corrupt| corrupt.action.as_str()).collect();
        assert!(actions.iter().all(|action| action.starts_with("replaced by class_")), "{actions:?}");
        digests.push(run.ordered_digest);
    }
    digests.dedup();
    assert_eq!(digests.len(), 1, "{digests:?}");
}

#[test]
fn fail_names_the_sample_its_place_and_why() {
    let photos = photos();
    for builder in [
        loader(&photos.folder()),
        loader(&photos.pack()),
        loader(&photos.pack()).with(|o| o.strategy = Strategy::Csd).drive(local(LocalResults::Shared)),
    ] {
        let mut loader = builder.with(|o| (o.batch_size, o.policy) = (64, CorruptPolicy::Fail)).build().unwrap();
        let error = loader.by_ref().find_map(Result::err).expect("the run ends with an error");
        let text = chain(&error);
        assert!(BAD.iter().any(|bad| text.contains(&format!("{bad:05}.jpg"))), "{text}");
        assert!(loader.next().is_none(), "nothing follows an error");
    }
}

/// Rejects every sample but the first.
struct OneReadable;

impl Hooks for OneReadable {
    fn reads(&self, _index: u64) {}

    fn fails(&self, index: u64) -> Result<(), ReadError> {
        let location = Location { file: "memory".into(), offset: 0, length: 3072 };
        let rejected = Corrupt::Rejected { name: index.to_string(), location, reason: CorruptReason::Truncated };
        if index == 0 { Ok(()) } else { Err(rejected.into()) }
    }
}

#[test]
fn the_cpu_looks_for_a_replacement_as_far_as_max_corrupt_says() {
    const SAMPLES: u64 = 10_000;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("data_batch_1.bin"), vec![3; SAMPLES as usize * 3073]).unwrap();
    let dataset = ddlp_dataset::open(folder.path()).unwrap();
    let dataset = Arc::new(Hooked { dataset, hooks: OneReadable });
    let builder =
        loader(folder.path()).dataset(dataset).with(|o| (o.pipeline, o.batch_size) = (Pipeline::cifar_train(), 1));
    let builder = builder.with(|o| (o.policy, o.max_corrupt) = (CorruptPolicy::Replace, MaxCorrupt::Samples(SAMPLES)));
    let mut loader = builder.build().unwrap();
    // Number of neighbours up to the first sample, which replaces all others.
    let tried = loader.by_ref().take(8).map(|batch| {
        let batch = batch.unwrap_or_else(|error| panic!("{}", chain(&error)));
        assert_eq!(batch.sample_ids(), [0]);
        SAMPLES - batch.requested_ids()[0]
    });
    assert!(tried.max().unwrap() > 4096, "more than are tried at least");
}
