//! Launches kernels that were compiled for the CPU: the Rust side of `twin/launch.h`.

use std::ffi::{CStr, c_char};

use crate::code::Code;

/// Memory that a kernel may access, by its address on the device.
#[repr(C)]
pub(crate) struct Region {
    pub address: u64,
    pub bytes: u64,
    pub storage: *mut u8,
    /// What the kernel read and wrote.
    pub read: Touched,
    pub written: Touched,
}

/// From the first address that was accessed to the end of the last access; both 0 if there was none.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Touched {
    pub start: u64,
    pub end: u64,
}

#[repr(C)]
struct Launch {
    regions: *mut Region,
    region_count: u64,
    grid: [u32; 3],
    block: [u32; 3],
    seed: u64,
    arguments: *const u64,
}

#[repr(C)]
#[derive(Default)]
struct Fault {
    code: i32,
    bytes: u32,
    address: u64,
    block: [u32; 3],
    thread: u32,
}

/// A kernel, compiled for the CPU.
#[repr(C)]
pub(crate) struct Kernel {
    name: *const c_char,
    parameters: u32,
    sizes: [u32; 32],
    call: extern "C" fn(*const u64),
}

// SAFETY: a kernel is never changed, and its name is a constant.
unsafe impl Sync for Kernel {}

unsafe extern "C" {
    static fake_cuda_kernels: [Kernel; 0];
    static fake_cuda_kernel_count: usize;
    fn fake_cuda_launch(kernel: *const Kernel, launch: *const Launch, fault: *mut Fault);
}

impl Kernel {
    /// Returns the kernel of a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        // SAFETY: twin/kernels.cpp defines an array of that many kernels.
        let all = unsafe { std::slice::from_raw_parts(fake_cuda_kernels.as_ptr(), fake_cuda_kernel_count) };
        // SAFETY: names are C's constants.
        all.iter().find(|kernel| unsafe { CStr::from_ptr(kernel.name) }.to_bytes() == name.as_bytes())
    }

    /// Returns the bytes of each parameter.
    pub fn parameters(&self) -> Vec<usize> {
        self.sizes[..self.parameters as usize].iter().map(|&size| size as usize).collect()
    }

    /// Runs the whole grid. `regions` are sorted by address; each argument has a word of its own. Fails with the result
    /// that the context has from then on, and a sentence.
    pub fn launch(
        &self,
        regions: &mut [Region],
        [grid, block]: [[u32; 3]; 2],
        arguments: &[u64],
        seed: u64,
    ) -> Result<(), (Code, String)> {
        assert_eq!(arguments.len(), self.parameters as usize);
        let launch = Launch {
            regions: regions.as_mut_ptr(),
            region_count: regions.len() as u64,
            grid,
            block,
            seed,
            arguments: arguments.as_ptr(),
        };
        let mut fault = Fault::default();
        // SAFETY: the pointers are valid for the call, which the driver's lock keeps the only one. Each region has that
        // many bytes of storage, and nothing else refers to them meanwhile.
        unsafe { fake_cuda_launch(self, &launch, &mut fault) };
        let Fault { code, bytes, address, block: [x, y, z], thread } = fault;
        let what = match code {
            0 => return Ok(()),
            719 => "undefined behaviour, or a barrier that only some threads reach".to_string(),
            _ => format!("access to {bytes} bytes at {address:#x}"),
        };
        Err((Code(code), format!("block ({x}, {y}, {z}), thread {thread}: {what}")))
    }
}
