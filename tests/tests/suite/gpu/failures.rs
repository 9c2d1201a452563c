//! A failure during delivery ends the run with a sentence that explains it, or does not affect the run.

use super::*;

#[test]
fn too_little_memory_is_an_error_of_the_build() {
    on_stand_in("gpu::failures::too_little_memory_is_an_error_of_the_build", &[("memory", "40000")], |driver| {
        let photos = Photos::new(SAMPLES);
        let device = device();
        let error = failure(loader(&photos.pack()).with(|o| o.pipeline = small()), &device);
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
    on_stand_in("gpu::failures::a_context_that_is_lost_ends_the_run_and_is_named", &[], |driver| {
        let photos = Photos::new(SAMPLES);
        let pack = photos.pack();
        for operations in [1, 2, 3, 5, 8, 13, 21, 34] {
            for results in [None, Some(LocalResults::Shared)] {
                let device = device();
                driver.set("seed", operations);
                driver.set("lost", format!("{operations}:700"));
                let builder =
                    loader(&pack).with(|o| (o.pipeline, o.epochs, o.buffers, o.dtype) = (small(), 4, 3, DType::F32));
                let builder = match results {
                    None => builder.with(|o| o.strategy = Strategy::Cpu),
                    Some(results) => builder.with(|o| o.strategy = Strategy::Csd).drive(local(results)),
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
    on_stand_in("gpu::failures::calls_that_fail_end_the_run_and_are_named", &[], |driver| {
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
            let builder =
                loader(&pack).with(|o| (o.pipeline, o.strategy, o.epochs, o.buffers) = (small(), Strategy::Cpu, 4, 3));
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
    on_stand_in("gpu::failures::slots_that_cannot_be_registered_are_copied_through_buffers", &[], |driver| {
        let photos = Photos::new(SAMPLES);
        let builder = loader(&photos.pack()).with(|o| o.pipeline = small());
        let expected = contents(builder.clone().with(|o| o.strategy = Strategy::Cpu), |batch| batch);
        let device = device();
        driver.set("call", "cuMemHostRegister_v2:1:801");
        let found = on_device(&device, builder.with(|o| o.strategy = Strategy::Csd).drive(local(LocalResults::Shared)));
        assert!(found == expected);
        drop(device);
        assert_clean(driver);
    });
}

#[test]
fn slots_are_registered_and_copied_in_place() {
    on_stand_in("gpu::failures::slots_are_registered_and_copied_in_place", &[], |driver| {
        let photos = Photos::new(SAMPLES);
        let builder =
            loader(&photos.pack()).with(|o| (o.pipeline, o.dtype, o.strategy) = (small(), DType::U8, Strategy::Csd));
        let builder = builder.drive(local(LocalResults::Shared));
        let device = device();
        let batches = u64::from(SAMPLES.div_ceil(8));
        // The first registration is for a slot. Only an answer that holds for all slots ends the attempts.
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
    on_stand_in("gpu::failures::memory_that_stays_registered_stays_mapped", &[], |driver| {
        let photos = Photos::new(SAMPLES);
        let builder = loader(&photos.pack()).with(|o| (o.pipeline, o.strategy) = (small(), Strategy::Csd));
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
    on_stand_in("gpu::failures::a_batch_whose_launch_failed_can_be_finished_again", &[], |driver| {
        let photos = Photos::new(SAMPLES);
        let builder =
            loader(&photos.pack()).with(|o| (o.pipeline, o.strategy, o.buffers) = (small(), Strategy::Cpu, 2));
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
fn a_driver_that_has_shut_down_disturbs_nobody() {
    on_stand_in("gpu::failures::a_driver_that_has_shut_down_disturbs_nobody", &[], |driver| {
        let photos = Photos::new(SAMPLES);
        let builder = loader(&photos.pack()).with(|o| (o.pipeline, o.strategy) = (small(), Strategy::Cpu));
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
    on_stand_in("gpu::failures::a_forked_process_calls_no_driver", &[], |driver| {
        let photos = Photos::new(SAMPLES);
        let builder = loader(&photos.pack()).with(|o| (o.pipeline, o.strategy) = (small(), Strategy::Cpu));
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
