//! Buckets: each batch has images of one size, whichever prong prepares it.

use ddlp_host::pixels::ops::{RandomHorizontalFlip, RandomResizedCrop, Resize, Size};
use ddlp_host::{
    Batch, CorruptPolicy, DType, DriveSpec, LastBatch, Loader, LoaderBuilder, LocalResults, Pipeline, Strategy,
};
use ddlp_tests::agent::Agent;
use ddlp_tests::photos::Photos;
use ddlp_tests::proxy::{CAPSULE_RESPONSE, Fate, Pdu, Proxy};
use ddlp_tests::runs::{Run, chain, images, loader, local};
use std::collections::BTreeMap;
use std::fs;

const SAMPLES: u32 = 70;
/// Width and height of the images of each bucket.
const SIZES: [(u32, u32); 4] = [(48, 32), (32, 48), (40, 40), (80, 80)];

/// Wide, high, and two sizes of square images, 30, 20, 10 and 10 of them.
fn size(index: u32) -> (u32, u32) {
    match index % 7 {
        0..3 => (90 + index % 9, 60),
        3..5 => (61, 88 + index % 9),
        5 => (70, 71),
        _ => (101, 100),
    }
}

fn photos() -> Photos {
    Photos::with_sizes(SAMPLES, size)
}

fn pipelines() -> [Pipeline; 4] {
    SIZES.map(|(width, height)| {
        let crop = RandomResizedCrop { size: Size { height, width }, ..RandomResizedCrop::to(1) };
        Pipeline::of([crop.into(), RandomHorizontalFlip { p: 0.5 }.into()])
    })
}

/// Returns the bucket of a batch by the shape of its images.
fn bucket(batch: &Batch) -> usize {
    let field = batch.field("image").unwrap();
    let shape = field.field().shape.clone();
    SIZES.iter().position(|&(width, height)| shape == [height, width, 3]).expect("the images of a bucket")
}

/// Returns the bucket and the image of each epoch and sample.
fn rows(builder: LoaderBuilder) -> BTreeMap<(u32, u64), (usize, Vec<u8>)> {
    let mut rows = BTreeMap::new();
    for batch in builder.build().unwrap_or_else(|error| panic!("{}", chain(&error))) {
        let batch = batch.unwrap_or_else(|error| panic!("{}", chain(&error)));
        for (&id, image) in batch.sample_ids().iter().zip(images::<u8>(&batch)) {
            let before = rows.insert((batch.epoch(), id), (bucket(&batch), image.to_vec()));
            assert!(before.is_none(), "sample {id} came twice");
        }
    }
    rows
}

#[test]
fn each_sample_comes_once_from_the_pipeline_of_its_bucket() {
    let photos = photos();
    let found = rows(loader(&photos.folder()).with(|o| (o.buckets, o.epochs) = (pipelines().into(), 2)));
    assert_eq!(found.len(), 2 * SAMPLES as usize);
    let dataset = ddlp_dataset::open(&photos.folder()).unwrap();
    let mut counts = [0; 4];
    for (number, pipeline) in pipelines().into_iter().enumerate() {
        // The same samples without buckets.
        let mut alone = BTreeMap::new();
        for batch in loader(&photos.folder()).with(|o| (o.pipeline, o.epochs) = (pipeline, 2)).build().unwrap() {
            let batch = batch.unwrap();
            for (&id, image) in batch.sample_ids().iter().zip(images::<u8>(&batch)) {
                alone.insert((batch.epoch(), id), image.to_vec());
            }
        }
        for (&key, (_, image)) in found.iter().filter(|(_, (bucket, _))| *bucket == number) {
            assert!(alone[&key] == *image, "{key:?}");
            let name = dataset.name(key.1);
            let index: u32 = name.rsplit_once('/').unwrap().1.trim_end_matches(".jpg").parse().unwrap();
            let expected = match index % 7 {
                0..3 => 0,
                3..5 => 1,
                5 => 2,
                _ => 3,
            };
            assert_eq!(number, expected, "{name}");
            counts[number] += 1;
        }
    }
    assert_eq!(counts, [60, 40, 20, 20]);
}

#[test]
fn buckets_are_the_same_from_every_source_and_prong() {
    let photos = photos();
    photos.write(12, b"no image");
    let of = |builder: LoaderBuilder| {
        builder.with(|o| (o.buckets, o.epochs, o.policy) = (pipelines().into(), 2, CorruptPolicy::Skip))
    };
    for dtype in [DType::U8, DType::F32] {
        let expected = Run::of(of(loader(&photos.pack())).with(|o| o.dtype = dtype));
        expected.assert_exactly_once(2, u64::from(SAMPLES) - 1);
        let of = |builder: LoaderBuilder| of(builder).with(|o| o.dtype = dtype);
        assert_eq!(
            Run::of(of(loader(&photos.folder())).with(|o| o.threads = Some(5))).digest,
            expected.digest,
            "from the folder"
        );
        for results in [LocalResults::Shared, LocalResults::Read] {
            for strategy in [Strategy::Csd, Strategy::Ordered, Strategy::Mte, Strategy::Wrr] {
                let run =
                    Run::of(of(loader(&photos.pack())).with(|o| o.strategy = strategy).drive(local(results.clone())));
                assert_eq!(run.digest, expected.digest, "{dtype}, {strategy}, {results:?}");
                assert!(run.troubles().is_empty(), "{:?}", run.report.faults);
                if strategy == Strategy::Csd {
                    assert_eq!(run.drive_batches(), run.order.len());
                }
            }
        }
        let agent = Agent::start(&photos.pack(), &photos.scratch().join("state"), &["--slots", "8"]);
        for strategy in [Strategy::Cpu, Strategy::Ordered] {
            let run = Run::of(of(loader(agent.url().as_ref())).with(|o| o.strategy = strategy));
            assert_eq!(run.digest, expected.digest, "{dtype}, {strategy}, the dataset lies on the drive");
        }
    }
}

#[test]
fn ranks_share_each_batch_of_a_bucket() {
    let photos = photos();
    let of = |rank, world| {
        let builder = loader(&photos.pack()).with(|o| (o.buckets, o.last) = (pipelines().into(), LastBatch::Short));
        Run::with(builder.with(|o| (o.rank, o.world_size) = (rank, world)), |batch, _| {
            bucket(batch);
        })
    };
    let (whole, ranks) = (of(0, 1), [of(0, 3), of(1, 3), of(2, 3)]);
    for (number, batch) in whole.batches.iter().enumerate() {
        let shares: Vec<u64> = ranks.iter().flat_map(|run| run.batches[number].iter().copied()).collect();
        // A short batch is filled until each rank has a sample.
        assert_eq!(shares[..batch.len()], *batch, "batch {number}");
        assert_eq!(shares.len(), batch.len().max(ranks.len()), "batch {number}");
    }
}

#[test]
fn last_batches_of_buckets_are_padded_within_the_bucket_or_dropped() {
    let photos = photos();
    let of = |last| {
        let mut full = true;
        let run =
            Run::with(loader(&photos.pack()).with(|o| (o.buckets, o.last) = (pipelines().into(), last)), |batch, _| {
                full &= batch.len() == 8;
                bucket(batch);
            });
        assert!(full || last == LastBatch::Short);
        run.order.len()
    };
    // 30, 20, 10 and 10 samples in batches of 8.
    assert_eq!([LastBatch::Short, LastBatch::Pad, LastBatch::Drop].map(of), [11, 11, 7]);
}

#[test]
fn a_run_with_buckets_resumes_with_the_same_buckets_only() {
    let photos = photos();
    let of = || loader(&photos.pack()).with(|o| (o.buckets, o.epochs) = (pipelines().into(), 2));
    let whole = Run::of(of());
    let mut first = of().build().unwrap();
    let begun: Vec<Vec<u64>> = first.by_ref().take(5).map(|batch| batch.unwrap().sample_ids().to_vec()).collect();
    let state = first.state();
    let text = serde_json::to_string(&state).unwrap();
    let state: ddlp_host::LoaderState = serde_json::from_str(&text).unwrap();
    let rest = Run::of(of().with(|o| o.resume = Some(state.clone())));
    assert_eq!([begun, rest.batches].concat(), whole.batches);
    let [one, two, three, _] = pipelines();
    for other in [vec![one.clone(), two.clone(), three], vec![one.clone()]] {
        let error = loader(&photos.pack())
            .with(|o| (o.buckets, o.epochs, o.resume) = (other, 2, Some(state.clone())))
            .build()
            .unwrap_err();
        let error = chain(&error);
        assert!(error.contains("pipeline") || error.contains("batches"), "{error}");
    }
    let plan = whole.plan.to_bytes().unwrap();
    let plan = ddlp_host::Plan::from_bytes(&plan).unwrap();
    assert_eq!(Run::of(of().with(|o| o.replay = Some(plan.clone()))).batches, whole.batches);
    let error = loader(&photos.pack())
        .with(|o| (o.buckets, o.epochs, o.replay) = (vec![two, one], 2, Some(plan)))
        .build()
        .unwrap_err();
    assert!(chain(&error).contains("plan was recorded with"), "{}", chain(&error));
}

#[test]
fn orientation_decides_about_the_bucket_if_images_are_turned_upright() {
    let photos = Photos::of(6, |index| {
        let options = ddlp_pixels::encode::JpegOptions {
            orientation: (index % 2 == 0).then_some(6),
            ..ddlp_pixels::encode::JpegOptions::default()
        };
        ddlp_tests::photos::image(index, (90, 60), &options)
    });
    let counts = |upright| {
        let [wide, high, ..] = pipelines().map(|pipeline| Pipeline { exif_orientation: upright, ..pipeline });
        let mut counts = [0; 4];
        for pack in [photos.folder(), photos.pack()] {
            Run::with(loader(&pack).with(|o| o.buckets = vec![wide.clone(), high.clone()]), |batch, _| {
                counts[bucket(batch)] += batch.len();
            });
        }
        counts
    };
    assert_eq!([counts(false), counts(true)], [[12, 0, 0, 0], [6, 6, 0, 0]]);
}

#[test]
fn what_buckets_cannot_do_is_refused_with_a_reason() {
    let photos = photos();
    let refused = |builder: LoaderBuilder| chain(&builder.build().unwrap_err());
    let [wide, high, ..] = pipelines();
    let mixed = [wide.clone(), Pipeline { exif_orientation: true, ..high.clone() }];
    let said = refused(loader(&photos.pack()).with(|o| o.buckets = mixed.into()));
    assert!(said.contains("exif_orientation"), "{said}");
    let said = refused(loader(&photos.pack()).with(|o| o.buckets = vec![wide.clone(); 33]));
    assert!(said.contains("33 pipelines, but at most 32"), "{said}");
    let said = refused(
        loader(&photos.pack()).with(|o| (o.buckets, o.batch_size, o.last) = (pipelines().into(), 31, LastBatch::Drop)),
    );
    assert!(said.contains("no whole batch of 31 of one bucket"), "{said}");
    let open = Pipeline::of([Resize::to(20).into()]);
    let said = refused(loader(&photos.pack()).with(|o| o.buckets = vec![wide.clone(), open]));
    assert!(said.contains("pipeline"), "{said}");
    let mix = photos.scratch().join("mix.toml");
    fs::write(&mix, "[[dataset]]\npath = \"images\"\n[[dataset]]\npath = \"images\"\n").unwrap();
    let said = refused(loader(&mix).with(|o| o.buckets = vec![wide, high]));
    assert!(said.contains("(`buckets`) cannot be used with a mix"), "{said}");
}

#[test]
fn a_drive_with_too_few_places_for_programs_says_how_many_it_keeps() {
    let photos = photos();
    let agent = Agent::start(&photos.pack(), &photos.scratch().join("state"), &["--slots", "8"]);
    // As a drive with two places: Load Program (85h) and Program Activation (88h) with a higher index fail.
    let proxy = Proxy::start(agent.address(), |pdu: &mut Pdu<'_>| {
        let is_beyond = |entry: [u8; 64]| matches!(entry[0], 0x85 | 0x88) && entry[40] >= 2;
        if pdu.kind() == CAPSULE_RESPONSE && pdu.command().is_some_and(is_beyond) {
            pdu.set_status(0x18F);
        }
        Fate::Pass
    });
    let of = |buckets: usize| {
        let drive = DriveSpec::Remote(agent.url_by(&proxy.address()));
        loader(&photos.pack())
            .with(|o| (o.buckets, o.strategy) = (pipelines()[..buckets].to_vec(), Strategy::Csd))
            .drive(drive)
    };
    let said = chain(&of(3).build().unwrap_err());
    assert!(said.contains("it keeps 2 programs, but the run has 3 buckets"), "{said}");
    Run::of(of(2)).assert_exactly_once(1, SAMPLES.into());
}

#[test]
fn an_image_that_is_gone_before_its_size_is_read_ends_the_start() {
    let photos = photos();
    let dataset = ddlp_dataset::open(&photos.folder()).unwrap();
    fs::remove_file(photos.folder().join("class_1/00001.jpg")).unwrap();
    let built =
        Loader::builder().dataset(dataset.into()).with(|o| (o.buckets, o.batch_size) = (pipelines().into(), 8)).build();
    let error = chain(&built.unwrap_err());
    assert!(error.contains("00001.jpg"), "{error}");
}
