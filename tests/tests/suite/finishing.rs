//! Delivery targets that finish batches themselves get everything that they need for the batches of the default target.

use ddlp_host::{
    Batch, CorruptPolicy, DType, Digest, FieldError, ImageLayout, LastBatch, LoaderBuilder, LocalResults, Normalize,
    Strategy,
};
use ddlp_pixels::Pipeline;
use ddlp_pixels::ops::{Fill, PadTo, RandomHorizontalFlip, RandomResizedCrop, Resize, Size};
use ddlp_tests::finishing::{Finisher, OfSlots};
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::{Run, chain, loader, local};

const SAMPLES: u32 = 45;

/// Hashes all fields of each batch, with shapes and strides.
pub(super) fn contents(builder: LoaderBuilder, finish: impl Fn(Batch) -> Batch) -> Vec<(u32, u32, blake3::Hash)> {
    let loader = builder.build().unwrap_or_else(|error| panic!("{}", chain(&error)));
    let mut found = Vec::new();
    for batch in loader {
        let batch = finish(batch.unwrap_or_else(|error| panic!("{}", chain(&error))));
        let mut hasher = blake3::Hasher::new();
        for field in batch.fields() {
            let view = batch.field(&field.name).expect("it is there");
            hasher.update(format!("{field:?} {:?} {:?}", view.shape(), view.strides()).as_bytes());
            hasher.update(view.bytes().expect("memory of this process"));
        }
        found.push((batch.epoch(), batch.index(), hasher.finalize()));
    }
    found.sort_unstable_by_key(|&(epoch, index, _)| (epoch, index));
    found
}

/// Asserts that a run whose target finishes batches delivers the same batches as the default target.
fn assert_same(name: &str, expected: &[(u32, u32, blake3::Hash)], builder: LoaderBuilder) {
    for of_slots in [OfSlots::Copied, OfSlots::Kept] {
        let found =
            contents(builder.clone().deliver_prepared_to(move |need| Finisher::make(of_slots, need)), |batch| {
                assert!(batch.is_empty() || batch.finishing().is_some(), "{name}");
                Finisher::finish(batch)
            });
        assert!(found == expected, "{name}, slots are {of_slots:?}");
    }
}

/// Small images: what is compared is what becomes of them.
pub(super) fn small() -> Pipeline {
    Pipeline::of([RandomResizedCrop::to(30).into(), RandomHorizontalFlip { p: 0.5 }.into()])
}

#[test]
fn finished_batches_of_every_type_layout_and_mix_are_those_of_the_default_target() {
    let photos = Photos::new(SAMPLES);
    // A batch lacks a row, and rows follow it.
    photos.write(9, b"no image");
    let pack = photos.pack();
    let of = || loader(&pack).with(|o| (o.pipeline, o.policy, o.seed) = (small(), CorruptPolicy::Skip, 5));
    let mixes: [fn(LoaderBuilder) -> LoaderBuilder; 3] = [
        |builder| builder,
        |builder| builder.with(|o| (o.mixup, o.cutmix, o.mix_probability) = (0.4, 1.0, 0.9)),
        |builder| builder.with(|o| o.cutmix = 1.0),
    ];
    for dtype in [DType::U8, DType::F16, DType::Bf16, DType::F32] {
        for layout in ImageLayout::ALL {
            for (number, mix) in mixes.into_iter().enumerate() {
                let builder = mix(of().with(|o| (o.dtype, o.layout) = (dtype, layout)));
                let builder =
                    if dtype.is_float() { builder.with(|o| o.normalize = Some(Normalize::IMAGENET)) } else { builder };
                let expected = contents(builder.clone().with(|o| o.strategy = Strategy::Cpu), |batch| batch);
                let name = format!("{dtype} {layout} mix {number}");
                assert_same(&name, &expected, builder.clone().with(|o| o.strategy = Strategy::Cpu));
                for results in [LocalResults::Shared, LocalResults::Read] {
                    let drive = builder.clone().with(|o| o.strategy = Strategy::Csd).drive(local(results.clone()));
                    assert_same(&format!("{name} {results:?}"), &expected, drive);
                }
            }
        }
    }
}

#[test]
fn every_strategy_finishes_alike_with_few_buffers_and_resumes() {
    let photos = Photos::new(SAMPLES);
    let pack = photos.pack();
    let of = || {
        loader(&pack).with(|o| {
            o.pipeline = small();
            o.dtype = DType::F16;
            o.mixup = 0.3;
            o.batch_size = 7;
            o.epochs = 2;
            o.buffers = 2;
        })
    };
    let expected = contents(of().with(|o| o.strategy = Strategy::Cpu), |batch| batch);
    for strategy in [Strategy::Mte, Strategy::Wrr, Strategy::Ordered, Strategy::Csd] {
        for results in [LocalResults::Shared, LocalResults::Read] {
            assert_same(&format!("{strategy}"), &expected, of().with(|o| o.strategy = strategy).drive(local(results)));
        }
    }
    let mut first = of().with(|o| o.strategy = Strategy::Cpu).build().unwrap();
    first.by_ref().take(3).for_each(|batch| drop(batch.unwrap()));
    let resumed = of().with(|o| (o.strategy, o.resume) = (Strategy::Cpu, Some(first.state())));
    assert_same("resumed", &expected[3..], resumed);
}

#[test]
fn last_batches_canvases_and_ranks_without_samples_are_finished() {
    let photos = Photos::new(SAMPLES);
    let pack = photos.pack();
    let padded = Pipeline::of([
        Resize::to(24).into(),
        PadTo { size: Size { height: 40, width: 40 }, fill: Fill::default() }.into(),
    ]);
    for last in [LastBatch::Short, LastBatch::Drop, LastBatch::Pad] {
        let builder = loader(&pack)
            .with(|o| (o.pipeline, o.strategy, o.dtype, o.last) = (small(), Strategy::Cpu, DType::F32, last));
        let expected = contents(builder.clone(), |batch| batch);
        assert_same(&format!("{last:?}"), &expected, builder);
    }
    // The last batch has one sample, which is another rank's.
    let builder = loader(&pack).with(|o| {
        o.pipeline = small();
        o.strategy = Strategy::Cpu;
        o.batch_size = 4;
        (o.rank, o.world_size) = (1, 2);
    });
    assert_same("rank", &contents(builder.clone(), |batch| batch), builder);
    let builder = loader(&pack).with(|o| (o.pipeline, o.strategy, o.dtype) = (padded, Strategy::Cpu, DType::Bf16));
    assert_same("canvas", &contents(builder.clone(), |batch| batch), builder);
}

#[test]
fn images_that_are_not_finished_cannot_be_read_and_other_fields_can() {
    let photos = Photos::new(SAMPLES);
    let builder =
        loader(&photos.pack()).with(|o| (o.pipeline, o.strategy, o.dtype) = (small(), Strategy::Cpu, DType::F32));
    let expected = Run::of(builder.clone());
    let loader = builder.deliver_prepared_to(|need| Finisher::make(OfSlots::Copied, need)).build().unwrap();
    let mut digest = Digest::default();
    for batch in loader {
        let batch = batch.unwrap();
        let images = batch.field("image").unwrap();
        assert_eq!(images.as_slice::<f32>(), Err(FieldError::OnDevice { field: "image".into() }));
        assert_eq!((images.shape(), batch.labels().unwrap().len()), (vec![batch.len(), 30, 30, 3], batch.len()));
        assert!(images.share().writable().is_none());
        digest.update(&Finisher::finish(batch)).unwrap();
    }
    assert_eq!(digest.ordered(), expected.ordered_digest);
}
