//! MixUp and CutMix give the same batches, whichever prong prepared them.

use ddlp_host::{Batch, CorruptPolicy, DType, DriveSpec, LoaderBuilder, LocalDrive, LocalResults, Strategy};
use ddlp_pixels::Pipeline;
use ddlp_pixels::ops::{RandomHorizontalFlip, RandomResizedCrop};
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::{loader, local};
use std::collections::BTreeMap;

const SAMPLES: u32 = 45;

/// A hash of each batch's fields, by epoch and number.
type Contents = BTreeMap<(u32, u32), blake3::Hash>;

/// Runs a loader to the end. Returns what its batches contain, and the number of batches from drives.
fn contents(builder: LoaderBuilder) -> (Contents, usize) {
    let (mut found, mut of_drives) = (Contents::new(), 0);
    for batch in builder.build().expect("it builds") {
        let batch: Batch = batch.expect("every batch comes");
        let mut hasher = blake3::Hasher::new();
        for field in batch.fields() {
            hasher.update(batch.field(&field.name).and_then(|field| field.bytes()).expect("bytes"));
        }
        assert!(found.insert((batch.epoch(), batch.index()), hasher.finalize()).is_none(), "a batch came twice");
        of_drives += usize::from(batch.prong() > 0);
    }
    (found, of_drives)
}

/// A drive with few slots, so that each is used again after its batch was mixed in place.
fn few_slots(results: LocalResults) -> DriveSpec {
    let DriveSpec::Local(drive) = local(results) else { unreachable!() };
    DriveSpec::Local(LocalDrive { slots: Some(3), ..drive })
}

#[test]
fn mixed_batches_are_the_same_from_every_prong() {
    let photos = Photos::new(SAMPLES);
    // A batch lacks a row, and rows follow it.
    photos.write(9, b"no image");
    // Small images: what is compared is who mixes which rows, and where.
    let small = Pipeline::of([RandomResizedCrop::to(40).into(), RandomHorizontalFlip { p: 0.5 }.into()]);
    let of = |strategy| {
        let builder = loader(&photos.pack())
            .with(|o| (o.pipeline, o.strategy, o.policy) = (small.clone(), strategy, CorruptPolicy::Skip));
        builder.with(|o| (o.batch_size, o.epochs) = (8, 2))
    };
    for dtype in [DType::U8, DType::F32] {
        let mixed =
            |builder: LoaderBuilder| builder.with(|o| (o.dtype, o.mixup, o.cutmix, o.seed) = (dtype, 0.4, 1.0, 5));
        let (expected, _) = contents(mixed(of(Strategy::Cpu)));
        assert_eq!(expected.len(), 12);
        let (unmixed, _) = contents(of(Strategy::Cpu).with(|o| (o.dtype, o.seed) = (dtype, 5)));
        assert!(unmixed.iter().all(|(batch, contents)| expected[batch] != *contents));
        for results in [LocalResults::Shared, LocalResults::Read] {
            let (found, of_drives) = contents(mixed(of(Strategy::Csd).drive(few_slots(results.clone()))));
            assert!(found == expected && of_drives == 12, "{dtype}, drives alone, {results:?}");
            for strategy in [Strategy::Ordered, Strategy::Mte] {
                let (found, _) =
                    contents(mixed(of(strategy).drive(few_slots(results.clone())).with(|o| o.buffers = 2)));
                assert!(found == expected, "{dtype}, {strategy}, {results:?}");
            }
        }
    }
}
