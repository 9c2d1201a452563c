//! Launches of kernels, and how the stand-in answers wrong kernels and wrong launches.

use std::ffi::{CString, c_void};

use crate::driver::{Gpu, PTX, SUCCESS, cu};

/// Kernels of `twin/wrong.cu`, as a module declares them.
const MODULE: &str = "
.version 8.0
.target sm_75
.address_size 64
.visible .entry wrong_alignment(.param .u64 from, .param .u64 to, .param .u32 offset) .maxntid 64, 1, 1 { ret; }
.visible .entry wrong_end(.param .u64 to, .param .u32 first) { ret; }
.visible .entry wrong_race(.param .u64 from, .param .u64 to) { ret; }
.visible .entry right_race(.param .u64 from, .param .u64 to) { ret; }
.visible .entry wrong_barrier(.param .u64 to) { ret; }
.visible .entry wrong_index(.param .u64 to, .param .u32 at) { ret; }
.visible .entry wrong_stale(.param .u64 to) { ret; }
";
const INVALID_VALUE: i32 = 1;
const ILLEGAL_ADDRESS: i32 = 700;
const MISALIGNED_ADDRESS: i32 = 716;
const LAUNCH_FAILED: i32 = 719;
const SEEDS: std::ops::Range<u64> = 0..20;

/// Launches one block of 64 threads, and waits. Returns the result of waiting.
fn run(gpu: &Gpu, kernel: &str, arguments: &[u64]) -> i32 {
    let function = gpu.function(MODULE, kernel);
    assert_eq!(gpu.launch(function, [1, 1, 1], 64, arguments, 0), SUCCESS);
    gpu.synchronize(0)
}

#[test]
fn a_race_between_threads_is_seen() {
    let reversed: Vec<u8> = (0..64).rev().collect();
    for seed in SEEDS {
        let gpu = Gpu::new(seed);
        let (from, to) = (gpu.allocate(64), gpu.allocate(64));
        gpu.write(from, &(0..64).collect::<Vec<u8>>());
        assert_eq!(run(&gpu, "right_race", &[from, to]), SUCCESS);
        assert_eq!(gpu.read(to, 64), reversed);
        assert_eq!(run(&gpu, "wrong_race", &[from, to]), SUCCESS);
        assert_ne!(gpu.read(to, 64), reversed, "seed {seed}");
    }
}

#[test]
fn shared_memory_of_the_block_before_is_gone() {
    for seed in SEEDS {
        let gpu = Gpu::new(seed);
        let to = gpu.allocate(640);
        let function = gpu.function(MODULE, "wrong_stale");
        assert_eq!(gpu.launch(function, [10, 1, 1], 64, &[to], 0), SUCCESS);
        let found = gpu.read(to, 640);
        for (block, bytes) in found.chunks(64).enumerate() {
            assert_eq!(bytes == [7; 64], block % 2 == 0, "seed {seed}, block {block}");
        }
    }
}

#[test]
fn wrong_accesses_end_the_context() {
    let check = |kernel: &str, expected: i32, arguments: &dyn Fn(u64) -> Vec<u64>| {
        let gpu = Gpu::new(0);
        let to = gpu.allocate(100);
        assert_eq!(run(&gpu, kernel, &arguments(to)), expected, "{kernel}");
        let defects = gpu.stand_in.defects();
        assert!(matches!(&defects[..], [one] if one.contains("thread")), "{kernel}: {defects:?}");
        // Every later call says it too.
        let (mut address, mut event) = (0, 0);
        assert_eq!(cu!(gpu, cuMemAlloc_v2(&mut address => *mut u64, 1 => usize)), expected);
        assert_eq!(cu!(gpu, cuEventCreate(&mut event => *mut u64, 0 => u32)), expected);
        assert_eq!((gpu.free(to), gpu.free(0), gpu.synchronize(0)), (expected, expected, expected));
        assert_eq!(cu!(gpu, cuDevicePrimaryCtxRelease_v2(0 => i32)), SUCCESS);
        assert_eq!(gpu.stand_in.statistics().live_allocations, 0);
    };
    check("wrong_end", ILLEGAL_ADDRESS, &|to| vec![to, 37]);
    check("wrong_end", ILLEGAL_ADDRESS, &|to| vec![to, u64::from(u32::MAX)]);
    check("wrong_end", ILLEGAL_ADDRESS, &|_| vec![0, 0]);
    check("wrong_alignment", MISALIGNED_ADDRESS, &|to| vec![to, to + 8, 2]);
    check("wrong_alignment", MISALIGNED_ADDRESS, &|to| vec![to, to + 10, 0]);
    check("wrong_alignment", ILLEGAL_ADDRESS, &|to| vec![to, to + 8, 100]);
    check("wrong_index", ILLEGAL_ADDRESS, &|to| vec![to, 1]);
    check("wrong_barrier", LAUNCH_FAILED, &|to| vec![to]);
}

#[test]
fn an_access_that_just_fits_is_right() {
    let gpu = Gpu::new(0);
    let to = gpu.allocate(100);
    assert_eq!(run(&gpu, "wrong_end", &[to, 36]), SUCCESS);
    assert_eq!(gpu.read(to, 100)[36..], (0..64).collect::<Vec<u8>>());
    assert_eq!(run(&gpu, "wrong_alignment", &[to, to + 8, 96]), SUCCESS);
    assert_eq!(gpu.read(to, 100)[8..12], [60, 61, 62, 63]);
    assert_eq!(gpu.stand_in.defects(), Vec::<String>::new());
}

#[test]
fn freed_memory_cannot_be_accessed() {
    let gpu = Gpu::new(0);
    let to = gpu.allocate(100);
    assert_eq!(gpu.free(to), SUCCESS);
    assert_eq!(run(&gpu, "wrong_end", &[to, 0]), ILLEGAL_ADDRESS);
}

#[test]
fn memory_is_freed_after_what_is_queued() {
    for seed in SEEDS {
        let gpu = Gpu::new(seed);
        let to = gpu.allocate(100);
        let function = gpu.function(MODULE, "wrong_end");
        assert_eq!(gpu.launch(function, [1, 1, 1], 64, &[to, 0], 0), SUCCESS);
        assert_eq!((gpu.free(to), gpu.synchronize(0)), (SUCCESS, SUCCESS), "seed {seed}");
    }
}

/// Launches a kernel with arguments in one buffer.
fn launch_packed(gpu: &Gpu, function: u64, arguments: &[u8]) -> i32 {
    let size = arguments.len();
    let extra: [*const c_void; 5] = [
        std::ptr::without_provenance(1),
        arguments.as_ptr().cast(),
        std::ptr::without_provenance(2),
        std::ptr::from_ref(&size).cast(),
        std::ptr::null(),
    ];
    cu!(
        gpu,
        cuLaunchKernel(
            function => u64,
            1 => u32, 1 => u32, 1 => u32,
            64 => u32, 1 => u32, 1 => u32,
            0 => u32, 0 => u64,
            std::ptr::null() => *const c_void,
            extra.as_ptr() => *const *const c_void,
        )
    )
}

#[test]
fn arguments_are_counted() {
    let gpu = Gpu::new(0);
    let to = gpu.allocate(100);
    let function = gpu.function(MODULE, "wrong_end");
    let packed = [&to.to_ne_bytes()[..], &36u32.to_ne_bytes()].concat();
    assert_eq!(launch_packed(&gpu, function, &packed), SUCCESS);
    assert_eq!(launch_packed(&gpu, function, &packed[..8]), INVALID_VALUE);
    assert_eq!(launch_packed(&gpu, function, &[&packed[..], &[0; 4]].concat()), INVALID_VALUE);
    // Pointers to arguments: too few of them, none, and one that cannot be read.
    let launch = |pointers: *const *const u64| {
        cu!(
            gpu,
            cuLaunchKernel(
                function => u64,
                1 => u32, 1 => u32, 1 => u32,
                64 => u32, 1 => u32, 1 => u32,
                0 => u32, 0 => u64,
                pointers => *const *const u64,
                std::ptr::null() => *const c_void,
            )
        )
    };
    assert_eq!(launch([&raw const to, std::ptr::null()].as_ptr()), INVALID_VALUE);
    assert_eq!(launch(std::ptr::null()), INVALID_VALUE);
    assert_eq!(launch([&raw const to, std::ptr::without_provenance(8)].as_ptr()), INVALID_VALUE);
    assert_eq!(gpu.synchronize(0), SUCCESS, "none of these was launched");
    assert_eq!(gpu.read(to, 100)[36..], (0..64).collect::<Vec<u8>>());
}

#[test]
fn dimensions_are_checked() {
    let gpu = Gpu::new(0);
    let to = gpu.allocate(100);
    let function = gpu.function(MODULE, "wrong_alignment");
    for (grid, threads) in
        [([0, 1, 1], 64), ([1, 65_536, 1], 64), ([1, 1, 65_536], 64), ([1, 1, 1], 0), ([1, 1, 1], 65)]
    {
        assert_eq!(gpu.launch(function, grid, threads, &[to, to, 0], 0), INVALID_VALUE);
    }
}

fn load(gpu: &Gpu, ptx: &str) -> (i32, String) {
    let image = CString::new(ptx).expect("no zero");
    let (mut module, mut log) = (0u64, [0u8; 200]);
    let options = [5i32, 6];
    let values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(log.len())];
    let result = cu!(
        gpu,
        cuModuleLoadDataEx(
            &mut module => *mut u64,
            image.as_ptr().cast() => *const c_void,
            2 => u32,
            options.as_ptr() => *const i32,
            values.as_ptr() => *const *mut c_void,
        )
    );
    let end = log.iter().position(|&byte| byte == 0).expect("a final zero");
    (result, String::from_utf8_lossy(&log[..end]).into_owned())
}

#[test]
fn modules_need_a_driver_that_is_new_enough() {
    let loads = |driver: i32, compute: u32, ptx: &str| {
        let gpu = Gpu::with(|stand_in| {
            stand_in.set("driver", driver);
            stand_in.set("compute", compute);
        });
        load(&gpu, ptx)
    };
    assert_eq!(loads(12_000, 75, PTX), (SUCCESS, String::new()));
    assert_eq!(loads(13_000, 120, PTX), (SUCCESS, String::new()));
    let (result, log) = loads(11_080, 75, PTX);
    assert!(result == 222 && log.contains("newer driver"), "{log}");
    let (result, log) = loads(12_040, 90, &PTX.replace(".version 8.0", ".version 8.8"));
    assert!(result == 222 && log.contains("8.8"), "{log}");
    let (result, log) = loads(12_000, 70, PTX);
    assert!(result == 209 && log.contains("sm_75"), "{log}");
    assert_eq!(loads(12_000, 75, "not PTX").0, 200);
    assert_eq!(loads(12_000, 75, &PTX[..PTX.len() / 2]).0, 218);
}

#[test]
fn a_kernel_has_the_parameters_of_its_source() {
    let gpu = Gpu::new(0);
    let find = |ptx: &str, name: &str| {
        let [image, name] = [ptx, name].map(|text| CString::new(text).expect("no zero"));
        let (mut module, mut function) = (0, 0);
        let image = image.as_ptr().cast();
        assert_eq!(cu!(gpu, cuModuleLoadData(&mut module => *mut u64, image => *const c_void)), SUCCESS);
        let name = name.as_ptr().cast();
        cu!(gpu, cuModuleGetFunction(&mut function => *mut u64, module => u64, name => *const c_void))
    };
    assert_eq!(find(MODULE, "wrong_end"), SUCCESS);
    assert_eq!(find(MODULE, "finish_u8"), 500);
    assert_eq!(find(&MODULE.replace(".param .u32 first", ".param .u64 first"), "wrong_end"), 500);
    assert_eq!(find(&MODULE.replace("wrong_end", "unknown"), "unknown"), 500);
    assert_eq!(gpu.stand_in.defects().len(), 2, "a name that the module lacks is no mistake");
}
