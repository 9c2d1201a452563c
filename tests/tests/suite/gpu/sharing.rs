//! A device shared with others: captures of graphs, other loaders, other devices.

use super::*;

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
    on_stand_in("gpu::sharing::a_capture_of_the_consumers_survives_the_loader_and_takes_no_batch", &[], |driver| {
        let photos = Photos::new(SAMPLES);
        let builder = loader(&photos.pack())
            .with(|o| (o.pipeline, o.strategy, o.epochs, o.buffers) = (small(), Strategy::Cpu, 2, 3));
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
    on_stand_in("gpu::sharing::a_capture_of_another_thread_survives_all_that_a_loader_does", &[], |driver| {
        let photos = Photos::new(SAMPLES);
        let of = || {
            loader(&photos.pack()).with(|o| (o.pipeline, o.dtype, o.epochs, o.buffers) = (small(), DType::F16, 2, 3))
        };
        let expected = contents(of().with(|o| o.strategy = Strategy::Cpu), |batch| batch);
        let capture = OtherCapture::begin();
        for (strategy, results) in [
            (Strategy::Cpu, None),
            (Strategy::Csd, Some(LocalResults::Shared)),
            (Strategy::Wrr, Some(LocalResults::Shared)),
            (Strategy::Csd, Some(LocalResults::Read)),
        ] {
            let builder =
                results.into_iter().fold(of().with(|o| o.strategy = strategy), |of, results| of.drive(local(results)));
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
    on_stand_in("gpu::sharing::several_loaders_deliver_to_several_devices", &[("devices", "2")], |driver| {
        let photos = Photos::new(SAMPLES);
        let builder =
            loader(&photos.pack()).with(|o| (o.pipeline, o.strategy, o.dtype) = (small(), Strategy::Cpu, DType::Bf16));
        let devices = [0, 1, 0].map(|index| Device::open(DeviceName::number(index)).unwrap());
        let outputs = devices.each_ref().map(|device| Output::new(device).unwrap());
        let loaders = devices.each_ref().map(|device| {
            builder
                .clone()
                .with(|o| o.seed = device.index().into())
                .deliver_prepared_to(CudaTarget::on(device))
                .build()
                .unwrap()
        });
        let mut all: Vec<_> = loaders.into_iter().zip(outputs).map(|both| (both, Digest::default())).collect();
        for _ in 0..SAMPLES.div_ceil(8) {
            for ((loader, output), digest) in &mut all {
                digest.update(&output.read(loader.next().unwrap().unwrap()).unwrap()).unwrap();
            }
        }
        for (((loader, _), digest), device) in all.iter_mut().zip(&devices) {
            assert!(loader.next().is_none());
            let expected = Run::of(builder.clone().with(|o| o.seed = device.index().into()));
            assert_eq!(digest.ordered(), expected.ordered_digest, "{}", device.name());
        }
        drop((all, devices));
        assert_clean(driver);
    });
}
