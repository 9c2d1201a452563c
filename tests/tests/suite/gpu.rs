//! Batches in the memory of a GPU equal the host's, and an error explains in a sentence what failed there.
//!
//! With `DDLP_CUDA` in the environment, the tests that call `on_driver` run on this machine's driver.

mod command;
mod failures;
mod opening;
mod sharing;

use crate::finishing::{contents, small};
use ddlp_cuda::{Consumer, CudaError, CudaTarget, Device, DeviceName, FinishedBatch, Output, finish};
use ddlp_host::{
    Batch, CorruptPolicy, DType, Digest, DriveSpec, FieldView, ImageLayout, LastBatch, LoaderBuilder, LoaderError,
    LoaderErrorKind, LocalDrive, LocalResults, Normalize, Strategy,
};
use ddlp_pixels::Pipeline;
use ddlp_pixels::ops::{RandomHorizontalFlip, RandomResizedCrop, Resize, ResizeTo, Size};
use ddlp_tests::agent::program;
use ddlp_tests::gpu::{on, on_driver, on_stand_in, with_driver_in};
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::{Run, chain, loader, local, wait_until};
use fake_cuda::{StandIn, Statistics};
use std::cell::RefCell;
use std::error::Error;
use std::process::Command;

const SAMPLES: u32 = 45;

fn device() -> Device {
    Device::open(DeviceName::number(0)).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs a loader to the end on the device, and returns what was read back.
fn on_device(device: &Device, builder: LoaderBuilder) -> Vec<(u32, u32, blake3::Hash)> {
    let output = RefCell::new(Output::new(device).unwrap());
    contents(builder.deliver_prepared_to(CudaTarget::on(device)), |batch| {
        output.borrow_mut().read(batch).unwrap_or_else(|error| panic!("{}", chain(&error)))
    })
}

/// Waits until the stand-in, if there is one, has everything back, and asserts that nothing was done wrong.
fn assert_clean<'d>(driver: impl Into<Option<&'d StandIn>>) {
    let Some(driver) = driver.into() else { return };
    wait_until("everything is given back", || driver.statistics().is_clean());
    driver.assert_clean();
    assert_eq!(driver.statistics().pageable_to_host, 0);
}

/// Returns the error of a run that has to fail, and asserts that it does not hang.
fn failure(builder: LoaderBuilder, device: &Device) -> LoaderError {
    let mut output = match Output::new(device) {
        Ok(output) => output,
        Err(error) => return LoaderError::Delivery(error.into()),
    };
    let loader = match builder.deliver_prepared_to(CudaTarget::on(device)).build() {
        Ok(loader) => loader,
        Err(error) => return error,
    };
    for batch in loader {
        match batch {
            Ok(batch) => {
                if let Err(error) = output.finish(&batch) {
                    return LoaderError::Delivery(error.into());
                }
            }
            Err(error) => return error,
        }
    }
    match output.wait() {
        Ok(()) => panic!("the run ends well"),
        Err(error) => LoaderError::Delivery(error.into()),
    }
}

/// Returns the driver's error behind an error.
fn cause(error: &LoaderError) -> &CudaError {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(LoaderError::Delivery(error)) = error.downcast_ref::<LoaderError>() {
            return error.inner().downcast_ref().expect("an error of the crate");
        }
        cause = error.source();
    }
    panic!("not an error of delivery: {}", chain(error))
}

#[test]
fn batches_of_every_type_layout_mix_and_prong_are_those_of_the_host() {
    on_driver("gpu::batches_of_every_type_layout_mix_and_prong_are_those_of_the_host", |driver| {
        let photos = Photos::new(SAMPLES);
        // A batch lacks a row, and rows follow it.
        photos.write(9, b"no image");
        let pack = photos.pack();
        let of = || loader(&pack).with(|o| (o.pipeline, o.policy, o.seed) = (small(), CorruptPolicy::Skip, 5));
        let device = device();
        let mixes: [fn(LoaderBuilder) -> LoaderBuilder; 3] =
            [|builder| builder, |builder| builder.with(|o| o.mixup = 0.4), |builder| builder.with(|o| o.cutmix = 1.0)];
        for dtype in [DType::U8, DType::F16, DType::Bf16, DType::F32] {
            for layout in ImageLayout::ALL {
                for (number, mix) in mixes.into_iter().enumerate() {
                    let builder = mix(of().with(|o| (o.dtype, o.layout) = (dtype, layout)));
                    let builder = if dtype.is_float() {
                        builder.with(|o| o.normalize = Some(Normalize::IMAGENET))
                    } else {
                        builder
                    };
                    let expected = contents(builder.clone().with(|o| o.strategy = Strategy::Cpu), |batch| batch);
                    let found = on_device(&device, builder.clone().with(|o| o.strategy = Strategy::Cpu));
                    assert!(found == expected, "{dtype} {layout} mix {number}");
                    for results in [LocalResults::Shared, LocalResults::Read] {
                        let drive = builder.clone().with(|o| o.strategy = Strategy::Csd).drive(local(results.clone()));
                        let found = on_device(&device, drive);
                        assert!(found == expected, "{dtype} {layout} mix {number} {results:?}");
                    }
                }
            }
        }
        drop(device);
        assert_clean(driver);
    });
}

#[test]
fn every_strategy_delivers_alike_with_few_pairs_and_slots_and_resumes() {
    on_driver("gpu::every_strategy_delivers_alike_with_few_pairs_and_slots_and_resumes", |driver| {
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
        let device = device();
        let file = photos.scratch().join("slots");
        for (seed, strategy) in [Strategy::Mte, Strategy::Wrr, Strategy::Ordered, Strategy::Csd].into_iter().enumerate()
        {
            for results in [LocalResults::Shared, LocalResults::Read, LocalResults::File(file.clone())] {
                if let Some(driver) = driver {
                    driver.set("seed", seed);
                }
                let DriveSpec::Local(drive) = local(results.clone()) else { unreachable!("a local drive") };
                let drive = DriveSpec::Local(LocalDrive { slots: Some(3), ..drive });
                let found = on_device(&device, of().with(|o| o.strategy = strategy).drive(drive));
                assert!(found == expected, "{strategy} {results:?}");
            }
        }
        let mut output = Output::new(&device).unwrap();
        let builder = of().with(|o| o.strategy = Strategy::Cpu);
        let mut first = builder.clone().deliver_prepared_to(CudaTarget::on(&device)).build().unwrap();
        first.by_ref().take(3).for_each(|batch| output.finish(&batch.unwrap()).unwrap());
        let resumed = on_device(&device, builder.with(|o| o.resume = Some(first.state())));
        assert!(resumed == expected[3..], "resumed");
        drop((first, output, device));
        assert_clean(driver);
    });
}

#[test]
fn odd_sizes_and_last_batches_are_delivered() {
    on_driver("gpu::odd_sizes_and_last_batches_are_delivered", |driver| {
        let photos = Photos::new(SAMPLES);
        let pack = photos.pack();
        let device = device();
        for (width, height) in [(1, 1), (31, 29), (33, 2), (5, 64), (64, 64)] {
            let pipeline =
                Pipeline::of([Resize { size: ResizeTo::Both(Size { width, height }), ..Resize::to(8) }.into()]);
            for (dtype, last) in
                [(DType::U8, LastBatch::Short), (DType::F32, LastBatch::Pad), (DType::Bf16, LastBatch::Drop)]
            {
                let builder = loader(&pack).with(|o| {
                    (o.pipeline, o.strategy, o.dtype, o.last) = (pipeline.clone(), Strategy::Cpu, dtype, last)
                });
                let builder = builder.with(|o| (o.layout, o.mixup, o.cutmix) = (ImageLayout::Nchw, 0.5, 0.5));
                let found = on_device(&device, builder.clone());
                assert!(found == contents(builder, |batch| batch), "{width} × {height} {dtype} {last:?}");
            }
        }
        // The last batch has one sample, which is another rank's.
        let builder = loader(&pack).with(|o| {
            o.pipeline = small();
            o.strategy = Strategy::Cpu;
            o.batch_size = 4;
            (o.rank, o.world_size) = (1, 2);
        });
        assert!(on_device(&device, builder.clone()) == contents(builder, |batch| batch), "a rank without samples");
        drop(device);
        assert_clean(driver);
    });
}

#[test]
fn batches_may_be_kept_dropped_or_finished_late_but_not_twice() {
    on_driver("gpu::batches_may_be_kept_dropped_or_finished_late_but_not_twice", |driver| {
        let photos = Photos::new(SAMPLES);
        let builder = loader(&photos.pack())
            .with(|o| (o.pipeline, o.strategy, o.epochs, o.buffers) = (small(), Strategy::Cpu, 3, 3));
        let device = device();
        let mut output = Output::new(&device).unwrap();
        let mut kept: Vec<Batch> = Vec::new();
        let mut loader = builder.clone().deliver_prepared_to(CudaTarget::on(&device)).build().unwrap();
        for (number, batch) in loader.by_ref().enumerate() {
            let batch = batch.unwrap();
            assert_eq!(batch.labels().unwrap().len(), batch.len(), "the host knows them too");
            match number % 3 {
                0 => {
                    output.finish(&batch).unwrap();
                    assert!(matches!(output.finish(&batch), Err(CudaError::Finished)));
                    // Keeps no pair.
                    kept.push(batch);
                }
                1 => drop(batch),
                _ => output.finish(&batch).unwrap(),
            }
        }
        assert!(kept.len() > 3);
        let report = loader.report();
        drop(loader);
        assert!(report.device.as_deref().is_some_and(|device| device.starts_with("cuda:0")), "{:?}", report.device);
        // A batch that outlives its loader.
        let mut loader = builder.deliver_prepared_to(CudaTarget::on(&device)).build().unwrap();
        let late = loader.next().unwrap().unwrap();
        drop(loader);
        output.finish(&late).unwrap();
        drop((late, kept, output, device));
        assert_clean(driver);
        // A batch of the host's.
        let device = Device::open(DeviceName::number(0)).unwrap();
        let mut loader = ddlp_tests::runs::loader(&photos.pack()).with(|o| o.pipeline = small()).build().unwrap();
        let batch = loader.next().unwrap().unwrap();
        assert!(matches!(Output::new(&device).unwrap().finish(&batch), Err(CudaError::NotOnDevice)));
    });
}

#[test]
fn memory_and_pairs_stay_the_same_over_fifty_epochs() {
    on_stand_in("gpu::memory_and_pairs_stay_the_same_over_fifty_epochs", &[], |driver| {
        let photos = Photos::new(12);
        let DriveSpec::Local(drive) = local(LocalResults::Shared) else { unreachable!("a local drive") };
        let drive = DriveSpec::Local(LocalDrive { slots: Some(4), ..drive });
        let builder = loader(&photos.pack())
            .with(|o| (o.pipeline, o.batch_size, o.epochs, o.strategy) = (small(), 4, 50, Strategy::Wrr));
        let device = device();
        let mut output = Output::new(&device).unwrap();
        let loader = builder.drive(drive).deliver_prepared_to(CudaTarget::on(&device)).build().unwrap();
        let live = |of: Statistics| (of.live_allocations, of.live_bytes, of.live_streams, of.live_modules);
        let mut early = None;
        for batch in loader {
            let batch = batch.unwrap();
            let epoch = batch.epoch();
            output.finish(&batch).unwrap();
            let now = driver.statistics();
            // Six pairs and four slots; each has at most an event more than the two of a pair.
            assert!(now.live_pinned <= 10 && now.live_events <= 2 * 6 + 4 && now.queued < 200, "{now:#?}");
            match early {
                None if epoch == 2 => early = Some(live(now)),
                Some(early) => assert_eq!(live(now), early),
                None => {}
            }
        }
        drop((output, device));
        assert_clean(driver);
    });
}

/// Takes batches on a stream that may be captured.
struct Capturing(u64);

// SAFETY: the stream exists; no place is given.
unsafe impl Consumer for Capturing {
    fn stream(&self) -> u64 {
        self.0
    }

    fn place(&mut self, field: FieldView<'_>) -> Result<u64, Box<dyn Error + Send + Sync>> {
        Err(format!("no place for {}", field.field().name).into())
    }
}

#[test]
fn a_consumer_without_a_place_gets_an_error_and_the_batch_stays() {
    on_driver("gpu::a_consumer_without_a_place_gets_an_error_and_the_batch_stays", |driver| {
        let photos = Photos::new(SAMPLES);
        let builder = loader(&photos.pack()).with(|o| (o.pipeline, o.strategy) = (small(), Strategy::Cpu));
        let device = device();
        let mut loader = builder.deliver_prepared_to(CudaTarget::on(&device)).build().unwrap();
        let batch = loader.next().unwrap().unwrap();
        let error = finish(&batch, &mut Capturing(0)).unwrap_err();
        assert_eq!(chain(&error), "there is no place for the field image: no place for image");
        Output::new(&device).unwrap().finish(&batch).unwrap();
        drop((batch, loader, device));
        assert_clean(driver);
    });
}

#[test]
fn many_orders_of_work_give_the_same_batches() {
    on_stand_in("gpu::many_orders_of_work_give_the_same_batches", &[], |driver| {
        let folder = tempfile::tempdir().unwrap();
        let records = (0..40u8).flat_map(|number| (0..3073u32).map(move |at| (at as u8).wrapping_mul(number) % 10));
        std::fs::write(folder.path().join("data_batch_1.bin"), records.collect::<Vec<u8>>()).unwrap();
        let pipeline = Pipeline::of([RandomResizedCrop::to(6).into(), RandomHorizontalFlip { p: 0.5 }.into()]);
        let builder = loader(folder.path())
            .with(|o| (o.pipeline, o.strategy, o.batch_size, o.buffers) = (pipeline, Strategy::Cpu, 8, 2));
        let builder = builder.with(|o| (o.dtype, o.mixup, o.cutmix, o.classes) = (DType::F16, 0.4, 1.0, Some(10)));
        let expected = contents(builder.clone(), |batch| batch);
        let device = device();
        let seeds: u64 = std::env::var("DDLP_GPU_SEEDS").map_or(200, |seeds| seeds.parse().expect("a number of seeds"));
        for seed in 0..seeds {
            driver.set("seed", seed);
            assert!(on_device(&device, builder.clone()) == expected, "seed {seed}");
        }
        drop(device);
        assert_clean(driver);
    });
}
