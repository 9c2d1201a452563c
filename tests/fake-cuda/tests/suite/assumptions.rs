//! What the stand-in assumes about the real driver.
//!
//! With `DDLP_CUDA=libcuda.so.1` in the environment, these tests and those of `kernels` run on the real driver. Each
//! line that these tests print compares the driver with the stand-in. Other tests must not run at the same time:
//! `cargo test -p ddlp-fake-cuda --test suite assumptions:: -- --nocapture --test-threads 1`.

use std::ffi::{CString, c_void};
use std::process::Command;

use memmap2::MmapMut;

use crate::driver::{Cuda, Either, PTX, Pinned, SUCCESS, cu};

/// Results of a driver, compared with those that are expected.
struct Results {
    wrong: Vec<String>,
}

impl Results {
    fn check(&mut self, what: &str, found: i32, expected: i32) {
        println!("{what}: {found}{}", if found == expected { String::new() } else { format!(", not {expected}") });
        if found != expected {
            self.wrong.push(format!("{what}: {found}, not {expected}"));
        }
    }
}

/// Runs checks on the real driver or on a stand-in.
fn compare(checks: impl FnOnce(&Cuda, &mut Results)) {
    let mut results = Results { wrong: Vec::new() };
    checks(&Either::new(0), &mut results);
    assert_eq!(results.wrong, Vec::<String>::new());
}

/// Does that in a process of its own, since it ends the context. `name` is the test's.
fn compare_apart(name: &str, checks: impl FnOnce(&Cuda, &mut Results)) {
    const CHILD: &str = "DDLP_CUDA_CHILD";
    if std::env::var(CHILD).is_ok_and(|child| child == name) {
        return compare(checks);
    }
    let mut child = Command::new(std::env::current_exe().expect("the test's path"));
    let output = child.args(["--exact", name, "--nocapture"]).env(CHILD, name).output().expect("it starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    print!("{printed}");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(printed.contains("running 1 test\n"), "{name} is not the name of the calling test");
}

fn register(cuda: &Cuda, address: *mut u8, bytes: usize, flags: u32) -> i32 {
    cu!(cuda, cuMemHostRegister_v2(address => *mut u8, bytes => usize, flags => u32))
}

fn unregister(cuda: &Cuda, address: *mut u8) -> i32 {
    cu!(cuda, cuMemHostUnregister(address => *mut u8))
}

fn copy(cuda: &Cuda, to: u64, from: *const u8, bytes: usize) -> i32 {
    cu!(cuda, cuMemcpyHtoDAsync_v2(to => u64, from => *const u8, bytes => usize, 0 => u64))
}

#[test]
fn registration() {
    compare(|cuda, results| {
        let mut memory = MmapMut::map_anon(5 << 12).expect("memory");
        let start = memory.as_mut_ptr();
        let at = |offset: usize| start.wrapping_add(offset);
        results.check("register", register(cuda, at(4096), 4096, 1), 0);
        results.check("register it again", register(cuda, at(4096), 4096, 1), 712);
        results.check("register a part of it", register(cuda, at(4200), 10, 1), 712);
        results.check("register what overlaps it", register(cuda, at(4000), 200, 1), 712);
        results.check("unregister its inside", unregister(cuda, at(4196)), 1);
        results.check("unregister another page", unregister(cuda, at(4 << 12)), 713);
        results.check("unregister", unregister(cuda, at(4096)), 0);
        results.check("unregister it again", unregister(cuda, at(4096)), 713);
        results.check("register bytes that are no pages", register(cuda, at(100), 50, 1), 0);
        results.check("register more of the same page", register(cuda, at(150), 50, 1), 0);
        results.check("unregister the first ones", unregister(cuda, at(100)), 0);
        results.check("unregister the others", unregister(cuda, at(150)), 0);
        results.check("register 0 bytes", register(cuda, at(0), 0, 1), 1);
        results.check(
            "register what is not mapped",
            register(cuda, std::ptr::without_provenance_mut(1 << 40), 4096, 1),
            1,
        );
        let mut address = std::ptr::null_mut();
        let allocated = cu!(cuda, cuMemHostAlloc(&mut address => *mut *mut u8, 4096 => usize, 0 => u32));
        results.check("allocate page-locked memory", allocated, 0);
        results.check("unregister it", unregister(cuda, address), 1);
        let mut flags = 0;
        let asked = cu!(cuda, cuMemHostGetFlags(&mut flags => *mut u32, address => *mut u8));
        results.check("ask for its flags", asked, 0);
        results.check("its flags", flags as i32, 2);
        results.check("free it", cu!(cuda, cuMemFreeHost(address => *mut u8)), 0);
        results.check("free it again", cu!(cuda, cuMemFreeHost(address => *mut u8)), 1);
    });
}

#[test]
fn registration_of_files() {
    compare(|cuda, results| {
        let folder = std::env::temp_dir();
        let file = tempfile::tempfile_in(folder).expect("a file");
        file.set_len(4096).expect("room");
        // SAFETY: nobody else has the file.
        let (mut shared, mut private) = unsafe {
            (
                memmap2::MmapOptions::new().map_mut(&file).expect("a mapping"),
                memmap2::MmapOptions::new().map_copy(&file).expect("a mapping"),
            )
        };
        // The kernel refuses to lock pages of files on disks for writing, from 6.5 on.
        results.check("register a shared file", register(cuda, shared.as_mut_ptr(), 4096, 1), 1);
        results.check("register a private file", register(cuda, private.as_mut_ptr(), 4096, 1), 0);
        results.check("unregister it", unregister(cuda, private.as_mut_ptr()), 0);
        // SAFETY: makes a file in memory.
        let memory = unsafe { libc::memfd_create(c"assumption".as_ptr(), 0) };
        assert!(memory >= 0);
        // SAFETY: the descriptor is ours.
        let memory = unsafe { <std::fs::File as std::os::fd::FromRawFd>::from_raw_fd(memory) };
        memory.set_len(4096).expect("room");
        // SAFETY: nobody else has the file.
        let mut mapped = unsafe { memmap2::MmapOptions::new().map_mut(&memory).expect("a mapping") };
        results.check("register a file in memory", register(cuda, mapped.as_mut_ptr(), 4096, 1), 0);
        results.check("unregister it", unregister(cuda, mapped.as_mut_ptr()), 0);
        // SAFETY: as above.
        let read_only = unsafe { memmap2::MmapOptions::new().map(&memory).expect("a mapping") };
        results.check("register read-only memory", register(cuda, read_only.as_ptr().cast_mut(), 4096, 1), 1);
    });
}

#[test]
fn memory() {
    compare(|cuda, results| {
        let mut address = 0;
        let mut allocate = |bytes: usize| cu!(cuda, cuMemAlloc_v2(&mut address => *mut u64, bytes => usize));
        results.check("allocate 0 bytes", allocate(0), 1);
        results.check("allocate too much", allocate(1 << 45), 2);
        results.check("allocate", allocate(1000), 0);
        results.check("its alignment to 256", (address % 256) as i32, 0);
        let pinned = Pinned::new(cuda, 2000);
        let copy = |to: u64, from: *const u8, bytes: usize| copy(cuda, to, from, bytes);
        results.check("copy 0 bytes", copy(address, pinned.as_ptr(), 0), 0);
        results.check("copy to it", copy(address, pinned.as_ptr(), 1000), 0);
        results.check("free its inside", cuda.free(address + 256), 1);
        results.check("free it", cuda.free(address), 0);
        results.check("free it again", cuda.free(address), 1);
        results.check("free nothing", cuda.free(0), 0);
        results.check("copy to freed memory", copy(address, pinned.as_ptr(), 1000), 1);
        results.check("copy to host memory", copy(pinned.as_ptr() as u64 + 1000, pinned.as_ptr(), 10), 1);
    });
}

#[test]
fn contexts_and_events() {
    compare(|cuda, results| {
        results.check("init with flags", cu!(cuda, cuInit(1 => u32)), 1);
        let (event, stream) = (cuda.event(), cuda.stream());
        let query = |event: u64| cu!(cuda, cuEventQuery(event => u64));
        results.check("query an event that was never recorded", query(event), 0);
        results.check("wait for it on a stream", cuda.wait(stream, event), 0);
        results.check("wait for it", cu!(cuda, cuEventSynchronize(event => u64)), 0);
        let elapsed = |start: u64, end: u64| {
            let mut time = 0.0;
            cu!(cuda, cuEventElapsedTime(&mut time => *mut f32, start => u64, end => u64))
        };
        results.check("time of events without timing", elapsed(event, event), 400);
        let mut timed = 0;
        results.check("create with timing", cu!(cuda, cuEventCreate(&mut timed => *mut u64, 0 => u32)), 0);
        results.check("time of an event that was never recorded", elapsed(timed, timed), 400);
        results.check("record it", cuda.record(timed, stream), 0);
        results.check("wait for the stream", cuda.synchronize(stream), 0);
        results.check("query it", query(timed), 0);
        results.check("its time", elapsed(timed, timed), 0);
        let mut created = 0;
        results.check("create with unknown flags", cu!(cuda, cuEventCreate(&mut created => *mut u64, 64 => u32)), 1);
        results.check("destroy a default stream", cu!(cuda, cuStreamDestroy_v2(1 => u64)), 400);
        results.check("query a default stream", cu!(cuda, cuStreamQuery(2 => u64)), 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut address = 0;
                let allocated = cu!(cuda, cuMemAlloc_v2(&mut address => *mut u64, 8 => usize));
                results.check("allocate without a context", allocated, 201);
                results.check("synchronize without a context", cu!(cuda, cuCtxSynchronize()), 201);
            });
        });
    });
}

#[test]
fn modules_and_launches() {
    compare(|cuda, results| {
        let load = |ptx: &str| {
            let (image, mut module) = (CString::new(ptx).expect("no zero"), 0u64);
            cu!(cuda, cuModuleLoadData(&mut module => *mut u64, image.as_ptr().cast() => *const c_void))
        };
        results.check("load", load(PTX), 0);
        results.check("load a version of the future", load(&PTX.replace(".version 8.0", ".version 98.7")), 222);
        results.check("load what is no PTX", load("no PTX"), 200);
        results.check("load a half", load(&PTX[..PTX.len() / 2]), 218);
        let function = cuda.function(PTX, "finish_u8");
        let (rows, out) = (cuda.allocate(48), cuda.allocate(48));
        let mut arguments = vec![rows, out, 0, 1, 16, 4];
        arguments.extend([0; 9]);
        let launch = |grid: [u32; 3], threads: u32| cuda.launch(function, grid, threads, &arguments, 0);
        results.check("launch", launch([1, 1, 1], 256), 0);
        results.check("launch no block", launch([0, 1, 1], 256), 1);
        results.check("launch no thread", launch([1, 1, 1], 0), 1);
        results.check("launch too many threads for the kernel", launch([1, 1, 1], 257), 1);
        results.check("launch too many blocks", launch([1, 65_536, 1], 256), 1);
        results.check("synchronize", cuda.synchronize(0), 0);
        let mut value = 0;
        let asked = cu!(cuda, cuFuncGetAttribute(&mut value => *mut i32, 0 => i32, function => u64));
        results.check("ask for the most threads", asked, 0);
        results.check("the most threads", value, 256);
    });
}

#[test]
fn captures() {
    compare(|cuda, results| {
        let (stream, other, event) = (cuda.stream(), cuda.stream(), cuda.event());
        let begin = |mode: i32| cu!(cuda, cuStreamBeginCapture_v2(stream => u64, mode => i32));
        let end = || {
            let mut graph = 0;
            cu!(cuda, cuStreamEndCapture(stream => u64, &mut graph => *mut u64))
        };
        let query = || cu!(cuda, cuEventQuery(event => u64));
        results.check("record", cuda.record(event, other), SUCCESS);
        results.check("synchronize", cuda.synchronize(other), SUCCESS);
        results.check("begin", begin(0), 0);
        results.check("query another event", query(), 900);
        results.check("end", end(), 901);
        results.check("begin relaxed", begin(2), 0);
        results.check("query another event in it", query(), 0);
        results.check("wait for another event in it", cuda.wait(stream, event), 905);
        end();
        results.check("begin again", begin(2), 0);
        results.check("record in it", cuda.record(event, stream), 0);
        results.check("query that event", query(), 907);
        results.check("end again", end(), 0);
        results.check("query that event afterwards", query(), 907);
    });
}

#[test]
fn illegal_addresses() {
    compare_apart("assumptions::illegal_addresses", |cuda, results| {
        let (function, out, event) = (cuda.function(PTX, "finish_u8"), cuda.allocate(48), cuda.event());
        let mut arguments = vec![8, out, 0, 1, 16, 4];
        arguments.extend([0; 9]);
        results.check("launch", cuda.launch(function, [1, 1, 1], 256, &arguments, 0), 0);
        results.check("synchronize", cuda.synchronize(0), 700);
        results.check("query an event", cu!(cuda, cuEventQuery(event => u64)), 700);
        results.check("wait for an event", cu!(cuda, cuEventSynchronize(event => u64)), 700);
        results.check("destroy an event", cu!(cuda, cuEventDestroy_v2(event => u64)), 700);
        results.check("free", cuda.free(out), 700);
        let mut memory = MmapMut::map_anon(4096).expect("memory");
        results.check("register", register(cuda, memory.as_mut_ptr(), 4096, 1), 700);
        results.check("make the context current", cu!(cuda, cuCtxSetCurrent(cuda.context => u64)), 0);
        results.check("release the context", cu!(cuda, cuDevicePrimaryCtxRelease_v2(0 => i32)), 0);
    });
}

#[test]
fn misaligned_addresses() {
    compare_apart("assumptions::misaligned_addresses", |cuda, results| {
        let (function, rows, out) = (cuda.function(PTX, "finish_f32"), cuda.allocate(4000), cuda.allocate(4000));
        let mut arguments = vec![rows, out + 2, rows, 1, 16, 4];
        arguments.extend([0; 9]);
        results.check("launch", cuda.launch(function, [1, 1, 1], 256, &arguments, 0), 0);
        results.check("synchronize", cuda.synchronize(0), 716);
    });
}
