//! Batches that end in the memory of a GPU are those of the host, and whatever fails there ends in a sentence.
//!
//! With `DDLP_CUDA` in the environment, the tests that call `on_driver` run on this machine's driver.

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
        let of = || loader(&pack).pipeline(small()).policy(CorruptPolicy::Skip).seed(5);
        let device = device();
        let mixes: [fn(LoaderBuilder) -> LoaderBuilder; 3] =
            [|builder| builder, |builder| builder.mixup(0.4), |builder| builder.cutmix(1.0)];
        for dtype in [DType::U8, DType::F16, DType::Bf16, DType::F32] {
            for layout in ImageLayout::ALL {
                for (number, mix) in mixes.into_iter().enumerate() {
                    let builder = mix(of().dtype(dtype).layout(layout));
                    let builder = if dtype.is_float() { builder.normalize(Normalize::IMAGENET) } else { builder };
                    let expected = contents(builder.clone().strategy(Strategy::Cpu), |batch| batch);
                    let found = on_device(&device, builder.clone().strategy(Strategy::Cpu));
                    assert!(found == expected, "{dtype} {layout} mix {number}");
                    for results in [LocalResults::Shared, LocalResults::Read] {
                        let drive = builder.clone().strategy(Strategy::Csd).drive(local(results.clone()));
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
        let of = || loader(&pack).pipeline(small()).dtype(DType::F16).mixup(0.3).batch_size(7).epochs(2).buffers(2);
        let expected = contents(of().strategy(Strategy::Cpu), |batch| batch);
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
                let found = on_device(&device, of().strategy(strategy).drive(drive));
                assert!(found == expected, "{strategy} {results:?}");
            }
        }
        let mut output = Output::new(&device).unwrap();
        let builder = of().strategy(Strategy::Cpu);
        let mut first = builder.clone().deliver_prepared_to(CudaTarget::on(&device)).build().unwrap();
        first.by_ref().take(3).for_each(|batch| output.finish(&batch.unwrap()).unwrap());
        let resumed = on_device(&device, builder.resume(first.state()));
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
                let builder = loader(&pack).pipeline(pipeline.clone()).strategy(Strategy::Cpu).dtype(dtype).last(last);
                let builder = builder.layout(ImageLayout::Nchw).mixup(0.5).cutmix(0.5);
                let found = on_device(&device, builder.clone());
                assert!(found == contents(builder, |batch| batch), "{width} × {height} {dtype} {last:?}");
            }
        }
        // The last batch has one sample, which is another rank's.
        let builder = loader(&pack).pipeline(small()).strategy(Strategy::Cpu).batch_size(4).rank(1, 2);
        assert!(on_device(&device, builder.clone()) == contents(builder, |batch| batch), "a rank without samples");
        drop(device);
        assert_clean(driver);
    });
}

#[test]
fn batches_may_be_kept_dropped_or_finished_late_but_not_twice() {
    on_driver("gpu::batches_may_be_kept_dropped_or_finished_late_but_not_twice", |driver| {
        let photos = Photos::new(SAMPLES);
        let builder = loader(&photos.pack()).pipeline(small()).strategy(Strategy::Cpu).epochs(3).buffers(3);
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
        let mut loader = ddlp_tests::runs::loader(&photos.pack()).pipeline(small()).build().unwrap();
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
        let builder = loader(&photos.pack()).pipeline(small()).batch_size(4).epochs(50).strategy(Strategy::Wrr);
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
        let builder = loader(&photos.pack()).pipeline(small()).strategy(Strategy::Cpu);
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
        let builder = loader(folder.path()).pipeline(pipeline).strategy(Strategy::Cpu).batch_size(8).buffers(2);
        let builder = builder.dtype(DType::F16).mixup(0.4).cutmix(1.0).classes(10);
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

#[test]
fn the_library_may_be_missing() {
    // Nobody searches on behind a file of this name that is no library.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("libcuda.so.1"), vec![b'x'; 4096]).unwrap();
    with_driver_in("gpu::the_library_may_be_missing", folder.path(), || {
        let error = Device::open(DeviceName::number(0)).unwrap_err();
        assert!(matches!(error, CudaError::NoLibrary { .. }), "{error}");
        assert!(error.to_string().starts_with("there is no CUDA driver on this machine (/"), "{error}");
    });
}

#[test]
fn a_library_without_the_functions_is_named() {
    let folder = tempfile::tempdir().unwrap();
    // A library that is there wherever tests run.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps.split_whitespace().find(|word| word.contains("/libc.so.6")).expect("this process uses it");
    std::os::unix::fs::symlink(libc, folder.path().join("libcuda.so.1")).unwrap();
    with_driver_in("gpu::a_library_without_the_functions_is_named", folder.path(), || {
        let error = Device::open(DeviceName::number(0)).unwrap_err();
        assert!(matches!(error, CudaError::NoFunction { .. }) && error.to_string().contains("cu"), "{error}");
    });
}

/// Opens the device on a stand-in with these settings, and asserts what the error says.
fn cannot_open(name: &str, settings: &[(&str, &str)], says: &str, is_it: fn(&CudaError) -> bool) {
    on_stand_in(name, settings, |driver| {
        for _ in 0..2 {
            let error = Device::open(DeviceName::number(0)).unwrap_err();
            assert!(is_it(&error) && error.to_string().contains(says), "{error}");
        }
        assert_clean(driver);
    });
}

#[test]
fn the_library_may_be_a_stub() {
    cannot_open("gpu::the_library_may_be_a_stub", &[("init", "34")], "stub", |error| matches!(error, CudaError::Stub));
}

#[test]
fn there_may_be_no_device() {
    let is_it: fn(&CudaError) -> bool = |error| matches!(error, CudaError::NoDevice);
    cannot_open("gpu::there_may_be_no_device", &[("init", "100")], "CUDA_VISIBLE_DEVICES", is_it);
}

#[test]
fn the_driver_may_be_too_old() {
    let is_it: fn(&CudaError) -> bool = |error| matches!(error, CudaError::TooOld { major: 11, minor: 8 });
    cannot_open("gpu::the_driver_may_be_too_old", &[("driver", "11080")], "supports CUDA 11.8, but 12.0", is_it);
}

#[test]
fn the_driver_may_fail_in_its_own_words() {
    let is_it: fn(&CudaError) -> bool = |error| matches!(error, CudaError::Call { call: "cuInit", .. });
    cannot_open(
        "gpu::the_driver_may_fail_in_its_own_words",
        &[("init", "803")],
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)",
        is_it,
    );
}

#[test]
fn the_device_may_register_no_memory() {
    let is_it: fn(&CudaError) -> bool = |error| matches!(error, CudaError::NoRegistration { .. });
    cannot_open("gpu::the_device_may_register_no_memory", &[("registration", "false")], "register", is_it);
}

#[test]
fn a_device_is_chosen_by_number_or_rank() {
    on_stand_in("gpu::a_device_is_chosen_by_number_or_rank", &[("devices", "3")], |driver| {
        let index = |name: &str| Device::open(name.parse().unwrap()).map(|device| device.index());
        assert_eq!((index("cuda").unwrap(), index("cuda:2").unwrap()), (0, 2));
        let error = index("cuda:3").unwrap_err();
        assert!(matches!(error, CudaError::NoSuchDevice { index: 3, count: 3 }), "{error}");
        for (rank, expected) in [("2", 2), ("3", 0), ("x", 0)] {
            // SAFETY: no other thread of this process uses the environment.
            unsafe { std::env::set_var("LOCAL_RANK", rank) };
            assert_eq!(index("cuda").unwrap(), expected, "rank {rank}");
        }
        assert_clean(driver);
    });
}

#[test]
fn too_little_memory_is_an_error_of_the_build() {
    on_stand_in("gpu::too_little_memory_is_an_error_of_the_build", &[("memory", "40000")], |driver| {
        let photos = Photos::new(SAMPLES);
        let device = device();
        let error = failure(loader(&photos.pack()).pipeline(small()), &device);
        assert_eq!(error.kind(), LoaderErrorKind::Delivery);
        assert!(matches!(cause(&error), CudaError::OutOfMemory { .. }), "{}", chain(&error));
        let text = chain(&error);
        let says = ["cuda:0 (Stand-in) has no memory for 6 buffers of 1 MB", "0 MB are free", "fewer buffers"];
        assert!(says.iter().all(|says| text.contains(says)), "{text}");
        drop(device);
        assert_clean(driver);
    });
}

#[test]
fn a_context_that_is_lost_ends_the_run_and_is_named() {
    on_stand_in("gpu::a_context_that_is_lost_ends_the_run_and_is_named", &[], |driver| {
        let photos = Photos::new(SAMPLES);
        let pack = photos.pack();
        for operations in [1, 2, 3, 5, 8, 13, 21, 34] {
            for results in [None, Some(LocalResults::Shared)] {
                let device = device();
                driver.set("seed", operations);
                driver.set("lost", format!("{operations}:700"));
                let builder = loader(&pack).pipeline(small()).epochs(4).buffers(3).dtype(DType::F32);
                let builder = match results {
                    None => builder.strategy(Strategy::Cpu),
                    Some(results) => builder.strategy(Strategy::Csd).drive(local(results)),
                };
                let error = failure(builder, &device);
                let lost = cause(&error);
                assert!(matches!(lost, CudaError::Lost { .. }), "{}", chain(&error));
                let text = chain(&error);
                assert!(text.contains("cuda:0") && text.contains("CUDA_ERROR_ILLEGAL_ADDRESS (700)"), "{text}");
                driver.set("lost", "");
                drop(device);
                // A new context begins only then.
                wait_until("the context is given back", || driver.statistics().live_retains == 0);
            }
        }
        assert_eq!(driver.defects(), Vec::<String>::new());
    });
}

#[test]
fn calls_that_fail_end_the_run_and_are_named() {
    on_stand_in("gpu::calls_that_fail_end_the_run_and_are_named", &[], |driver| {
        let photos = Photos::new(SAMPLES);
        let pack = photos.pack();
        let calls = [
            ("cuLaunchKernel", 2, 701),
            ("cuMemcpyHtoDAsync_v2", 3, 1),
            ("cuMemcpyDtoDAsync_v2", 2, 1),
            ("cuEventRecord", 4, 999),
            ("cuStreamWaitEvent", 2, 400),
            ("cuEventSynchronize", 2, 400),
            ("cuMemAlloc_v2", 2, 2),
            ("cuEventCreate", 3, 2),
            ("cuStreamCreate", 2, 2),
            ("cuMemHostRegister_v2", 2, 2),
        ];
        for (call, number, code) in calls {
            let device = device();
            driver.set("call", format!("{call}:{number}:{code}"));
            let builder = loader(&pack).pipeline(small()).strategy(Strategy::Cpu).epochs(4).buffers(3);
            let error = failure(builder, &device);
            let text = chain(&error);
            match cause(&error) {
                CudaError::Call { call: named, code: found } | CudaError::Lost { call: named, code: found, .. } => {
                    assert_eq!((*named, found.number), (call, code), "{text}");
                }
                CudaError::OutOfMemory { .. } => assert_eq!(code, 2, "{text}"),
                CudaError::NotLocked { .. } => assert_eq!(call, "cuMemHostRegister_v2", "{text}"),
                _ => panic!("{call}: {text}"),
            }
            driver.set("call", "");
            drop(device);
            wait_until("everything is given back", || driver.statistics().is_clean());
        }
        assert_eq!(driver.defects(), Vec::<String>::new());
    });
}

#[test]
fn slots_that_cannot_be_registered_are_copied_through_buffers() {
    on_stand_in("gpu::slots_that_cannot_be_registered_are_copied_through_buffers", &[], |driver| {
        let photos = Photos::new(SAMPLES);
        let builder = loader(&photos.pack()).pipeline(small());
        let expected = contents(builder.clone().strategy(Strategy::Cpu), |batch| batch);
        let device = device();
        driver.set("call", "cuMemHostRegister_v2:1:801");
        let found = on_device(&device, builder.strategy(Strategy::Csd).drive(local(LocalResults::Shared)));
        assert!(found == expected);
        drop(device);
        assert_clean(driver);
    });
}

#[test]
fn slots_are_registered_and_copied_in_place() {
    on_stand_in("gpu::slots_are_registered_and_copied_in_place", &[], |driver| {
        let photos = Photos::new(SAMPLES);
        let builder = loader(&photos.pack()).pipeline(small()).dtype(DType::U8).strategy(Strategy::Csd);
        let builder = builder.drive(local(LocalResults::Shared));
        let device = device();
        let batches = u64::from(SAMPLES.div_ceil(8));
        // The first registration is that of a slot. Only an answer that holds for all slots ends the attempts.
        for (fails, through_buffers) in
            [("", 0), ("cuMemHostRegister_v2:1:712", 1), ("cuMemHostRegister_v2:1:801", batches)]
        {
            driver.set("call", fails);
            let (before, registered) = (driver.statistics(), driver.calls("cuMemHostRegister_v2"));
            let mut output = Output::new(&device).unwrap();
            let mut bytes = 0;
            for batch in builder.clone().deliver_prepared_to(CudaTarget::on(&device)).build().unwrap() {
                let batch = batch.unwrap();
                output.finish(&batch).unwrap();
                bytes += batch.fields().map(|field| field.bytes() * batch.len()).sum::<usize>() as u64;
            }
            output.wait().unwrap();
            let after = driver.statistics();
            // One copy of rows in a slot and one of the fields in a buffer, or one of both in a buffer.
            let copies = after.copies_to_device - before.copies_to_device;
            assert_eq!(copies, 2 * batches - through_buffers, "{fails}");
            assert!(after.bytes_to_device - before.bytes_to_device >= bytes, "{fails}");
            // At least a slot and a buffer.
            assert!(driver.calls("cuMemHostRegister_v2") - registered >= 2, "{fails}");
        }
        drop(device);
        assert_clean(driver);
    });
}

#[test]
fn memory_that_stays_registered_stays_mapped() {
    on_stand_in("gpu::memory_that_stays_registered_stays_mapped", &[], |driver| {
        let photos = Photos::new(SAMPLES);
        let builder = loader(&photos.pack()).pipeline(small()).strategy(Strategy::Csd);
        let builder = builder.drive(local(LocalResults::Shared));
        let expected = contents(builder.clone(), |batch| batch);
        let device = device();
        for run in 1..=3 {
            driver.set("call", "cuMemHostUnregister:1:1");
            // Registering memory at the same place would be a mistake that the stand-in notes.
            assert!(on_device(&device, builder.clone()) == expected);
            wait_until("the rest is given back", || driver.statistics().live_pinned == run);
        }
        drop(device);
        wait_until("the context is given back", || driver.statistics().live_retains == 0);
        assert_eq!(driver.defects(), Vec::<String>::new());
    });
}

#[test]
fn a_batch_whose_launch_failed_can_be_finished_again() {
    on_stand_in("gpu::a_batch_whose_launch_failed_can_be_finished_again", &[], |driver| {
        let photos = Photos::new(SAMPLES);
        let builder = loader(&photos.pack()).pipeline(small()).strategy(Strategy::Cpu).buffers(2);
        let expected = contents(builder.clone(), |batch| batch);
        let device = device();
        let output = RefCell::new(Output::new(&device).unwrap());
        let found = contents(builder.deliver_prepared_to(CudaTarget::on(&device)), |batch| {
            let mut output = output.borrow_mut();
            for _ in 0..2 {
                driver.set("call", "cuLaunchKernel:1:701");
                let error = output.finish(&batch).unwrap_err();
                assert!(matches!(error, CudaError::Call { call: "cuLaunchKernel", .. }), "{error}");
            }
            output.read(batch).unwrap()
        });
        assert!(found == expected);
        drop((output, device));
        assert_clean(driver);
    });
}

#[test]
fn opening_says_what_stands_in_its_way() {
    on_stand_in("gpu::opening_says_what_stands_in_its_way", &[], |driver| {
        for (fails, says) in [
            ("cuDevicePrimaryCtxRetain:1:46", "cuda:0 (Stand-in) is busy or in exclusive compute mode"),
            ("cuDevicePrimaryCtxRetain:1:2", "cuda:0 (Stand-in) cannot be opened, since memory is exhausted"),
            ("cuModuleLoadData:1:2", "end other programs that use the device (`nvidia-smi` shows them)"),
            ("cuModuleLoadData:1:209", "cuda:0 (Stand-in) is too old: its compute capability is 7.5"),
        ] {
            driver.set("call", fails);
            let error = Device::open(DeviceName::number(0)).unwrap_err();
            assert!(error.to_string().contains(says) && !error.is_loss(), "{error}");
        }
        driver.set("call", "");
        driver.set("compute", 70);
        let error = Device::open(DeviceName::number(0)).unwrap_err();
        assert!(error.to_string().contains("capability is 7.0, and 7.5 or higher is supported"), "{error}");
        driver.set("compute", 75);
        let device = device();
        // A buffer cannot be registered, whatever the device promised.
        driver.set("call", "cuMemHostRegister_v2:1:801");
        let photos = Photos::new(SAMPLES);
        let error = failure(loader(&photos.pack()).pipeline(small()).strategy(Strategy::Cpu), &device);
        assert!(matches!(cause(&error), CudaError::NoRegistration { .. }), "{}", chain(&error));
        drop(device);
        assert_clean(driver);
    });
}

#[test]
fn a_driver_that_has_shut_down_disturbs_nobody() {
    on_stand_in("gpu::a_driver_that_has_shut_down_disturbs_nobody", &[], |driver| {
        let photos = Photos::new(SAMPLES);
        let builder = loader(&photos.pack()).pipeline(small()).strategy(Strategy::Cpu);
        let device = device();
        let mut output = Output::new(&device).unwrap();
        let mut loader = builder.deliver_prepared_to(CudaTarget::on(&device)).build().unwrap();
        let [kept, finished] = [(); 2].map(|()| loader.next().unwrap().unwrap());
        output.finish(&finished).unwrap();
        driver.shut_down();
        drop((kept, finished, loader, output, device));
    });
}

#[test]
fn a_forked_process_calls_no_driver() {
    on_stand_in("gpu::a_forked_process_calls_no_driver", &[], |driver| {
        let photos = Photos::new(SAMPLES);
        let builder = loader(&photos.pack()).pipeline(small()).strategy(Strategy::Cpu);
        let device = device();
        let output = Output::new(&device).unwrap();
        let mut loader = builder.deliver_prepared_to(CudaTarget::on(&device)).build().unwrap();
        let batch = loader.next().unwrap().unwrap();
        let held = (batch, output, device);
        // SAFETY: the child frees memory, which the C library allows after a fork, and runs nothing of the harness.
        match unsafe { nix::unistd::fork() }.unwrap() {
            nix::unistd::ForkResult::Child => {
                nix::unistd::alarm::set(60);
                let (batch, mut output, device) = held;
                let is_forked = matches!(output.finish(&batch), Err(CudaError::Forked));
                drop((batch, output, device));
                // SAFETY: ends the child at once.
                unsafe { nix::libc::_exit(if is_forked { 0 } else { 1 }) }
            }
            nix::unistd::ForkResult::Parent { child } => {
                let ended = nix::sys::wait::waitpid(child, None).unwrap();
                assert_eq!(ended, nix::sys::wait::WaitStatus::Exited(child, 0));
            }
        }
        let (batch, mut output, device) = held;
        output.finish(&batch).unwrap();
        drop((batch, output, device, loader));
        assert_clean(driver);
    });
}

/// Runs the command, and returns its standard output, standard error and exit status.
fn command(folder: &std::path::Path, dataset: &std::path::Path, extra: &[&str]) -> (String, String, Option<i32>) {
    let mut command = Command::new(program("ddlp"));
    command.arg("run").arg(dataset).args(["--batch-size", "8", "--pipeline", "cifar-train"]).args(extra);
    let done = on(&mut command, folder).env_remove("LOCAL_RANK").output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (text(done.stdout), text(done.stderr), done.status.code())
}

#[test]
fn the_command_delivers_to_a_device_and_reads_back_for_the_digest() {
    let photos = Photos::new(SAMPLES);
    let (pack, folder) = (photos.pack(), fake_cuda::folder());
    let digests =
        |out: &str| -> Vec<String> { out.lines().filter(|line| line.contains("digest")).map(str::to_owned).collect() };
    let (expected, _, _) = command(folder.path(), &pack, &["--digest", "--drive", "none"]);
    for (device, drive) in [("cuda:0", "none"), ("cuda", "none"), ("cuda:0", "local")] {
        let (out, err, code) = command(folder.path(), &pack, &["--digest", "--device", device, "--drive", drive]);
        assert_eq!((digests(&out), code), (digests(&expected), Some(0)), "{err}");
        assert!(
            out.lines().any(|line| line.trim_start().starts_with("delivered to") && line.contains("cuda:0 (")),
            "{out}"
        );
    }
    let (out, err, code) = command(folder.path(), &pack, &["--device", "cuda:0", "--epochs", "3"]);
    assert_eq!(code, Some(0), "{out}{err}");
    let (_, err, code) = command(folder.path(), &pack, &["--device", "cuda:1", "--quiet"]);
    assert_eq!((err.lines().count(), code), (1, Some(1)), "{err}");
    let (_, err, code) = command(folder.path(), &pack, &["--device", "gpu", "--quiet"]);
    assert!(code == Some(2) && err.contains("cuda:N"), "{err}");
}

#[test]
fn the_command_says_in_one_line_that_there_is_no_driver() {
    let photos = Photos::new(9);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("libcuda.so.1"), vec![b'x'; 4096]).unwrap();
    let (out, err, code) = command(folder.path(), &photos.pack(), &["--device", "cuda:0"]);
    assert_eq!((out.as_str(), err.lines().count(), code), ("", 1, Some(1)), "{err}");
    assert!(err.starts_with("error: there is no CUDA driver on this machine ("), "{err}");
}

/// Calls a function of the driver that takes this many numbers.
macro_rules! call {
    ($driver:expr, $name:literal, $($argument:expr => $type:ty),*) => {{
        // SAFETY: the function has these arguments, which are handles, numbers, or places for results.
        let result = unsafe {
            let function = $driver.library().get::<unsafe extern "C" fn($($type),*) -> i32>($name).expect("a function");
            function($($argument),*)
        };
        assert_eq!(result, 0, "{}", String::from_utf8_lossy($name));
    }};
}

#[test]
fn a_capture_of_the_consumers_survives_the_loader_and_takes_no_batch() {
    on_stand_in("gpu::a_capture_of_the_consumers_survives_the_loader_and_takes_no_batch", &[], |driver| {
        let photos = Photos::new(SAMPLES);
        let builder = loader(&photos.pack()).pipeline(small()).strategy(Strategy::Cpu).epochs(2).buffers(3);
        let device = device();
        let mut output = Output::new(&device).unwrap();
        let mut loader = builder.deliver_prepared_to(CudaTarget::on(&device)).build().unwrap();
        let batch = loader.next().unwrap().unwrap();
        let (mut context, mut stream, mut graph) = (0u64, 0u64, 0u64);
        call!(driver, b"cuDevicePrimaryCtxRetain", &mut context => *mut u64, 0 => i32);
        call!(driver, b"cuCtxSetCurrent", context => u64);
        call!(driver, b"cuStreamCreate", &mut stream => *mut u64, 1 => u32);
        // The strictest mode: unsafe calls of any thread end the capture.
        call!(driver, b"cuStreamBeginCapture_v2", stream => u64, 0 => i32);
        let error = finish(&batch, &mut Capturing(stream)).unwrap_err();
        assert!(matches!(error, CudaError::Capturing), "{error}");
        // A stream for which the legacy default stream waits.
        let mut blocking = 0u64;
        call!(driver, b"cuStreamCreate", &mut blocking => *mut u64, 0 => u32);
        call!(driver, b"cuStreamBeginCapture_v2", blocking => u64, 0 => i32);
        let error = finish(&batch, &mut Capturing(0)).unwrap_err();
        assert!(matches!(error, CudaError::Capturing), "{error}");
        call!(driver, b"cuStreamEndCapture", blocking => u64, &mut graph => *mut u64);
        call!(driver, b"cuStreamDestroy_v2", blocking => u64);
        // Threads copy, and one waits for events.
        loader.by_ref().take(8).for_each(|batch| drop(batch.unwrap()));
        call!(driver, b"cuStreamEndCapture", stream => u64, &mut graph => *mut u64);
        output.finish(&batch).unwrap();
        call!(driver, b"cuStreamDestroy_v2", stream => u64);
        call!(driver, b"cuDevicePrimaryCtxRelease_v2", 0 => i32);
        drop((batch, loader, output, device));
        assert_clean(driver);
    });
}

/// A capture of a graph on a thread of its own, in the default mode: unsafe calls of any thread end it.
struct OtherCapture {
    end: std::sync::mpsc::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl OtherCapture {
    fn begin() -> Self {
        let (begun, has_begun) = std::sync::mpsc::channel();
        let (end, is_to_end) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let driver = StandIn::in_use();
            let (mut context, mut stream, mut graph) = (0u64, 0u64, 0u64);
            call!(driver, b"cuInit", 0 => u32);
            call!(driver, b"cuDevicePrimaryCtxRetain", &mut context => *mut u64, 0 => i32);
            call!(driver, b"cuCtxSetCurrent", context => u64);
            call!(driver, b"cuStreamCreate", &mut stream => *mut u64, 1 => u32);
            call!(driver, b"cuStreamBeginCapture_v2", stream => u64, 0 => i32);
            begun.send(()).unwrap();
            is_to_end.recv().unwrap();
            // Fails if a call ended the capture.
            call!(driver, b"cuStreamEndCapture", stream => u64, &mut graph => *mut u64);
            call!(driver, b"cuStreamDestroy_v2", stream => u64);
            call!(driver, b"cuCtxSetCurrent", 0 => u64);
            call!(driver, b"cuDevicePrimaryCtxRelease_v2", 0 => i32);
        });
        has_begun.recv().unwrap();
        Self { end, thread }
    }

    fn end(self) {
        self.end.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

#[test]
fn a_capture_of_another_thread_survives_all_that_a_loader_does() {
    on_stand_in("gpu::a_capture_of_another_thread_survives_all_that_a_loader_does", &[], |driver| {
        let photos = Photos::new(SAMPLES);
        let of = || loader(&photos.pack()).pipeline(small()).dtype(DType::F16).epochs(2).buffers(3);
        let expected = contents(of().strategy(Strategy::Cpu), |batch| batch);
        let capture = OtherCapture::begin();
        for (strategy, results) in [
            (Strategy::Cpu, None),
            (Strategy::Csd, Some(LocalResults::Shared)),
            (Strategy::Wrr, Some(LocalResults::Shared)),
            (Strategy::Csd, Some(LocalResults::Read)),
        ] {
            let builder = results.into_iter().fold(of().strategy(strategy), |of, results| of.drive(local(results)));
            let device = device();
            assert!(on_device(&device, builder.clone()) == expected, "{strategy}");
            // Finished in memory of the crate's own, on a stream that exists.
            let mut loader = builder.deliver_prepared_to(CudaTarget::on(&device)).build().unwrap();
            let batches = [(); 2].map(|()| loader.next().unwrap().unwrap());
            // SAFETY: the default streams always exist.
            let finished = unsafe { [FinishedBatch::new(&batches[0], 1), FinishedBatch::new(&batches[1], 2)] };
            drop(finished.map(Result::unwrap));
            drop((batches, loader, device));
            // All but the other thread's context and stream.
            wait_until("everything is given back", || {
                let now = driver.statistics();
                (now.live_retains, now.live_streams) == (1, 1)
                    && now.live_pinned + now.live_allocations + now.live_events + now.live_modules == 0
            });
        }
        capture.end();
        let mut mode = 0;
        call!(driver, b"cuThreadExchangeStreamCaptureMode", &mut mode => *mut i32);
        assert_eq!(mode, 0, "this thread's mode is as before");
        assert_clean(driver);
    });
}

#[test]
fn several_loaders_deliver_to_several_devices() {
    on_stand_in("gpu::several_loaders_deliver_to_several_devices", &[("devices", "2")], |driver| {
        let photos = Photos::new(SAMPLES);
        let builder = loader(&photos.pack()).pipeline(small()).strategy(Strategy::Cpu).dtype(DType::Bf16);
        let devices = [0, 1, 0].map(|index| Device::open(DeviceName::number(index)).unwrap());
        let outputs = devices.each_ref().map(|device| Output::new(device).unwrap());
        let loaders = devices.each_ref().map(|device| {
            builder.clone().seed(device.index().into()).deliver_prepared_to(CudaTarget::on(device)).build().unwrap()
        });
        let mut all: Vec<_> = loaders.into_iter().zip(outputs).map(|both| (both, Digest::default())).collect();
        for _ in 0..SAMPLES.div_ceil(8) {
            for ((loader, output), digest) in &mut all {
                digest.update(&output.read(loader.next().unwrap().unwrap()).unwrap()).unwrap();
            }
        }
        for (((loader, _), digest), device) in all.iter_mut().zip(&devices) {
            assert!(loader.next().is_none());
            let expected = Run::of(builder.clone().seed(device.index().into()));
            assert_eq!(digest.ordered(), expected.ordered_digest, "{}", device.name());
        }
        drop((all, devices));
        assert_clean(driver);
    });
}
