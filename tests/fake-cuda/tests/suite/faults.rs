//! Contexts, faults that are asked for, and the end of a process.

use std::ffi::{CStr, c_char};

use fake_cuda::StandIn;

use crate::driver::{Gpu, Pinned, SUCCESS, cu};

#[test]
fn calls_need_a_context() {
    let gpu = Gpu::new(0);
    assert_eq!(cu!(gpu, cuCtxSetCurrent(0 => u64)), SUCCESS);
    let mut address = 0;
    let allocate = |address| cu!(gpu, cuMemAlloc_v2(address => *mut u64, 1 => usize));
    assert_eq!(allocate(&mut address), 201);
    gpu.enter();
    assert_eq!(allocate(&mut address), SUCCESS);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| (gpu.free(address), gpu.synchronize(0), cu!(gpu, cuEventQuery(1 => u64))));
        assert_eq!(other.join().expect("no panic"), (201, 201, 201), "a context is current on its thread alone");
    });
    assert_eq!(gpu.stand_in.defects().len(), 4);
    assert_eq!(cu!(gpu, cuDevicePrimaryCtxRelease_v2(0 => i32)), SUCCESS);
    assert_eq!(gpu.free(address), 709, "the current context is destroyed");
}

#[test]
fn nothing_works_before_init() {
    let stand_in = StandIn::new();
    let gpu = Handle { library: stand_in.library() };
    let mut count = 0;
    assert_eq!(cu!(gpu, cuDeviceGetCount(&mut count => *mut i32)), 3);
    assert_eq!(cu!(gpu, cuDriverGetVersion(&mut count => *mut i32)), SUCCESS);
    assert_eq!(count, 12_000);
}

struct Handle {
    library: &'static libloading::Library,
}

#[test]
fn a_driver_can_be_missing_in_many_ways() {
    let init = |key: &str, value: i32| {
        let stand_in = StandIn::new();
        stand_in.set(key, value);
        let gpu = Handle { library: stand_in.library() };
        cu!(gpu, cuInit(0 => u32))
    };
    assert_eq!(init("devices", 0), 100);
    assert_eq!(init("init", 34), 34);
    assert_eq!(init("init", 803), 803);
    assert_eq!(init("devices", 2), SUCCESS);
}

#[test]
fn handles_of_another_context_are_refused() {
    let gpu = Gpu::with(|stand_in| stand_in.set("devices", 2));
    let (stream, event, address) = (gpu.stream(), gpu.event(), gpu.allocate(100));
    let mut second = 0;
    assert_eq!(cu!(gpu, cuDevicePrimaryCtxRetain(&mut second => *mut u64, 1 => i32)), SUCCESS);
    assert_eq!(cu!(gpu, cuCtxSetCurrent(second => u64)), SUCCESS);
    let (own_stream, own_address) = (gpu.stream(), gpu.allocate(100));
    assert_eq!(gpu.synchronize(stream), 400);
    assert_eq!(gpu.record(event, own_stream), 400);
    let copy = |to: u64| cu!(gpu, cuMemcpyDtoDAsync_v2(to => u64, own_address => u64, 1 => usize, 0 => u64));
    assert_eq!((copy(address), copy(own_address + 1)), (1, SUCCESS));
    // To wait for an event of another device is allowed.
    assert_eq!(gpu.wait(own_stream, event), SUCCESS);
    assert_eq!(gpu.synchronize(own_stream), SUCCESS);
}

#[test]
fn handles_end_when_they_are_destroyed() {
    let gpu = Gpu::new(0);
    let (stream, event) = (gpu.stream(), gpu.event());
    assert_eq!(gpu.record(event, stream), SUCCESS);
    assert_eq!(cu!(gpu, cuStreamDestroy_v2(stream => u64)), SUCCESS);
    assert_eq!(cu!(gpu, cuEventSynchronize(event => u64)), SUCCESS, "what was queued runs");
    assert_eq!(cu!(gpu, cuEventDestroy_v2(event => u64)), SUCCESS);
    assert_eq!((gpu.synchronize(stream), gpu.record(event, 0)), (400, 400));
    assert_eq!((cu!(gpu, cuEventQuery(event => u64)), cu!(gpu, cuStreamDestroy_v2(0 => u64))), (400, 400));
}

#[test]
fn device_memory_ends() {
    let gpu = Gpu::with(|stand_in| stand_in.set("memory", 10_000));
    let address = gpu.allocate(6000);
    let mut second = 0;
    let allocate = |address| cu!(gpu, cuMemAlloc_v2(address => *mut u64, 6000 => usize));
    assert_eq!(allocate(&mut second), 2);
    let (mut free, mut total) = (0, 0);
    assert_eq!(cu!(gpu, cuMemGetInfo_v2(&mut free => *mut usize, &mut total => *mut usize)), SUCCESS);
    assert_eq!((free, total), (10_000 - 6144, 10_000));
    assert_eq!(gpu.free(address), SUCCESS);
    assert_eq!(allocate(&mut second), SUCCESS, "want of memory ends nothing");
    assert_eq!(gpu.stand_in.statistics().peak_bytes, 6000);
}

#[test]
fn a_context_can_be_lost_at_an_operation() {
    for seed in 0..20 {
        let gpu = Gpu::with(|stand_in| {
            stand_in.set("seed", seed);
            stand_in.set("lost", "3:719");
        });
        let (buffer, address, stream) = (Pinned::new(&gpu, 1000), gpu.allocate(1000), gpu.stream());
        let event = gpu.event();
        let queue = |_| [gpu.copy_to_device(address, &buffer, stream), gpu.record(event, stream)];
        let mut results: Vec<i32> = (0..5).flat_map(queue).collect();
        results.push(cu!(gpu, cuEventSynchronize(event => u64)));
        results.push(cu!(gpu, cuEventQuery(event => u64)));
        results.push(gpu.free(address));
        let lost = results.iter().position(|&result| result == 719).expect("it is lost");
        assert!((1..=10).contains(&lost), "{results:?}");
        assert!(results[lost..].iter().all(|&result| result == 719), "{results:?}");
        assert_eq!(gpu.stand_in.defects(), Vec::<String>::new(), "that is no mistake of the program");
    }
}

#[test]
fn one_call_can_fail() {
    let gpu = Gpu::new(0);
    gpu.stand_in.set("call", "cuEventRecord:2:999");
    let event = gpu.event();
    assert_eq!([(); 3].map(|()| gpu.record(event, 0)), [SUCCESS, 999, SUCCESS]);
}

#[test]
fn host_memory_is_registered_once() {
    let gpu = Gpu::new(0);
    let mut memory = memmap2::MmapMut::map_anon(10_000).expect("memory");
    let start = memory.as_mut_ptr();
    let register = |offset: usize, bytes: usize| {
        let start = start.wrapping_add(offset);
        cu!(gpu, cuMemHostRegister_v2(start => *mut u8, bytes => usize, 0 => u32))
    };
    let unregister = |offset: usize| cu!(gpu, cuMemHostUnregister(start.wrapping_add(offset) => *mut u8));
    assert_eq!(register(100, 5000), SUCCESS);
    assert_eq!((register(100, 5000), register(200, 10), register(0, 101), register(5099, 1)), (712, 712, 712, 712));
    assert_eq!((register(5100, 100), register(0, 100)), (SUCCESS, SUCCESS), "another part of the same page");
    assert_eq!((unregister(101), unregister(6000)), (1, 713));
    assert_eq!((unregister(100), unregister(100)), (SUCCESS, 713));
    assert_eq!((unregister(0), unregister(5100)), (SUCCESS, SUCCESS));
    assert_eq!(register(0, 0), 1);
    assert_eq!(register(1 << 40, 1), 1, "memory that is not mapped");
}

#[test]
fn files_on_disks_cannot_be_registered() {
    let gpu = Gpu::new(0);
    let register = |memory: &mut memmap2::MmapMut| {
        let (start, bytes) = (memory.as_mut_ptr(), memory.len());
        cu!(gpu, cuMemHostRegister_v2(start => *mut u8, bytes => usize, 0 => u32))
    };
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = tempfile::tempfile_in(folder).expect("a file");
    file.set_len(5000).expect("room");
    // SAFETY: nobody else has the file.
    let (mut shared, mut private) = unsafe {
        let options = memmap2::MmapOptions::new();
        (options.map_mut(&file).expect("a mapping"), options.map_copy(&file).expect("a mapping"))
    };
    assert_eq!((register(&mut shared), register(&mut private)), (1, SUCCESS));
    let mut in_memory = memmap2::MmapOptions::new().len(5000).map_anon().expect("memory");
    assert_eq!(register(&mut in_memory), SUCCESS);
    gpu.stand_in.set("registration", false);
    let mut other = memmap2::MmapMut::map_anon(100).expect("memory");
    assert_eq!(register(&mut other), 801);
    let mut value = 7;
    assert_eq!(cu!(gpu, cuDeviceGetAttribute(&mut value => *mut i32, 99 => i32, 0 => i32)), SUCCESS);
    assert_eq!(value, 0);
}

#[test]
fn a_program_finds_it_by_its_name() {
    const NAME: &str = "CHILD_LOADS_CUDA";
    if let Ok(name) = std::env::var(NAME) {
        // SAFETY: the library has no functions that run when it is loaded.
        let library = unsafe { libloading::Library::new(name) }.expect("in LD_LIBRARY_PATH");
        let gpu = Handle { library: Box::leak(Box::new(library)) };
        assert_eq!(cu!(gpu, cuInit(0 => u32)), SUCCESS);
        let (mut context, mut count) = (0, 0);
        assert_eq!(cu!(gpu, cuDeviceGetCount(&mut count => *mut i32)), SUCCESS);
        assert_eq!(cu!(gpu, cuDevicePrimaryCtxRetain(&mut context => *mut u64, 1 => i32)), SUCCESS);
        assert_eq!((count, cu!(gpu, cuCtxSynchronize())), (2, 201));
        return;
    }
    for name in ["libcuda.so", "libcuda.so.1"] {
        let folder = fake_cuda::folder();
        let report = folder.path().join("report");
        let output = std::process::Command::new(std::env::current_exe().expect("the test's path"))
            .args(["--exact", "faults::a_program_finds_it_by_its_name"])
            .env("LD_LIBRARY_PATH", folder.path())
            .env("FAKE_CUDA_DEVICES", "2")
            .env("FAKE_CUDA_REPORT", &report)
            .env(NAME, name)
            .output()
            .expect("the test starts itself");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let report = std::fs::read_to_string(report).expect("a report");
        let lines: Vec<&str> = report.lines().collect();
        assert!(lines.contains(&"live_retains: 1") && lines.contains(&"defects: 1"), "{report}");
        assert_eq!(lines.last(), Some(&"defect: cuCtxSynchronize: this thread has no current context"));
    }
}

#[test]
fn what_is_left_is_counted() {
    let gpu = Gpu::new(0);
    let (stream, event, address) = (gpu.stream(), gpu.event(), gpu.allocate(100));
    let mut pinned = Pinned::new(&gpu, 100);
    let statistics = gpu.stand_in.statistics();
    let live = |of: &fake_cuda::Statistics| {
        [of.live_streams, of.live_events, of.live_allocations, of.live_pinned, of.live_retains, of.live_bytes]
    };
    assert_eq!(live(&statistics), [1, 1, 1, 1, 1, 100]);
    pinned.unregister();
    assert_eq!(gpu.free(address), SUCCESS);
    assert_eq!(cu!(gpu, cuEventDestroy_v2(event => u64)), SUCCESS);
    assert_eq!(cu!(gpu, cuStreamDestroy_v2(stream => u64)), SUCCESS);
    assert_eq!(cu!(gpu, cuDevicePrimaryCtxRelease_v2(0 => i32)), SUCCESS);
    assert_eq!(live(&gpu.stand_in.statistics()), [0; 6]);
    gpu.stand_in.assert_clean();
}

#[test]
fn what_a_context_takes_with_it_is_counted() {
    let gpu = Gpu::new(0);
    let (stream, event, address) = (gpu.stream(), gpu.event(), gpu.allocate(100));
    assert_eq!(cu!(gpu, cuEventDestroy_v2(event => u64)), SUCCESS);
    assert_eq!(cu!(gpu, cuDevicePrimaryCtxRelease_v2(0 => i32)), SUCCESS);
    let statistics = gpu.stand_in.statistics();
    assert_eq!((statistics.live_allocations, statistics.live_streams, statistics.left_to_release), (0, 0, 2));
    assert!(!statistics.is_clean());
    assert_eq!(cu!(gpu, cuCtxSetCurrent(gpu.retain() => u64)), SUCCESS);
    assert_eq!((gpu.free(address), gpu.synchronize(stream)), (1, 400));
}

#[test]
fn every_call_fails_after_the_end() {
    let gpu = Gpu::new(0);
    let event = gpu.event();
    gpu.stand_in.shut_down();
    assert_eq!((cu!(gpu, cuEventDestroy_v2(event => u64)), cu!(gpu, cuInit(0 => u32))), (4, 4));
    assert_eq!(cu!(gpu, cuCtxSetCurrent(gpu.context => u64)), 4);
}

#[test]
fn a_child_may_not_call() {
    let gpu = Gpu::new(0);
    let event = gpu.event();
    // SAFETY: the child calls functions that take no lock in it, and ends at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let results = [cu!(gpu, cuEventQuery(event => u64)), cu!(gpu, cuInit(0 => u32))];
        // SAFETY: ends the child without its parent's destructors.
        unsafe { libc::_exit((results != [3, 3]).into()) };
    }
    let mut status = -1;
    // SAFETY: waits for the child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(gpu.stand_in.statistics().calls_in_children, 2);
}

#[test]
fn events_that_are_not_ready_say_so() {
    let mut not_ready = 0;
    for seed in 0..20 {
        let gpu = Gpu::new(seed);
        let (event, stream) = (gpu.event(), gpu.stream());
        let query = || cu!(gpu, cuEventQuery(event => u64));
        assert_eq!(query(), SUCCESS, "an event that was never recorded");
        assert_eq!(gpu.record(event, stream), SUCCESS);
        while query() == 600 {
            not_ready += 1;
        }
        assert_eq!((query(), cu!(gpu, cuStreamQuery(stream => u64))), (SUCCESS, SUCCESS));
    }
    assert!(not_ready > 0);
}

#[test]
fn captures_of_a_user_survive_relaxed_threads_alone() {
    let gpu = Gpu::new(0);
    let (stream, event) = (gpu.stream(), gpu.event());
    let capture = |mode: i32| {
        assert_eq!(cu!(gpu, cuStreamBeginCapture_v2(stream => u64, 0 => i32)), SUCCESS);
        let result = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                gpu.enter();
                let mut mode = mode;
                assert_eq!(cu!(gpu, cuThreadExchangeStreamCaptureMode(&mut mode => *mut i32)), SUCCESS);
                cu!(gpu, cuEventQuery(event => u64))
            });
            other.join().expect("no panic")
        });
        let (mut status, mut graph) = (0, 0);
        assert_eq!(cu!(gpu, cuStreamIsCapturing(stream => u64, &mut status => *mut u32)), SUCCESS);
        (result, status, cu!(gpu, cuStreamEndCapture(stream => u64, &mut graph => *mut u64)))
    };
    assert_eq!(capture(2), (SUCCESS, 1, SUCCESS));
    assert_eq!(capture(0), (900, 2, 901));
}

#[test]
fn errors_have_the_drivers_names() {
    let gpu = Gpu::new(0);
    let words = |code: i32| {
        let (mut name, mut text) = (std::ptr::null(), std::ptr::null());
        let results = [
            cu!(gpu, cuGetErrorName(code => i32, &mut name => *mut *const c_char)),
            cu!(gpu, cuGetErrorString(code => i32, &mut text => *mut *const c_char)),
        ];
        // SAFETY: the driver gives constants, or null.
        let text_of =
            |at: *const c_char| (!at.is_null()).then(|| unsafe { CStr::from_ptr(at) }.to_str().expect("UTF-8"));
        (results, text_of(name), text_of(text))
    };
    assert_eq!(words(2), ([0, 0], Some("CUDA_ERROR_OUT_OF_MEMORY"), Some("out of memory")));
    assert_eq!(words(0), ([0, 0], Some("CUDA_SUCCESS"), Some("no error")));
    assert_eq!(words(4242), ([1, 1], None, None));
}
