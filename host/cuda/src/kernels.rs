//! The kernels that finish batches, and how they are launched. `kernels/finish.cu` is their source, and
//! `scripts/kernels` makes the PTX from it, which the driver compiles for the device.

use crate::device::{Entered, ended};
use crate::driver::{Address, Driver, RawFunction, RawModule, RawStream};
use crate::error::CudaError;
use ddlp_host::{BatchMix, DType, Finishing};
use std::ffi::{c_uint, c_void};
use std::ptr;

const PTX: &str = concat!(include_str!("../kernels/finish.ptx"), "\0");

/// Threads of a block: the kernels are compiled for no more.
const THREADS: u32 = 256;
/// Pixels that a thread makes, four at a time: a block fills its table once for all of them.
const PIXELS: u32 = 16;
/// Most blocks in the directions y and z of a grid.
const BLOCKS_MAX: u32 = 65_535;

/// The kernels, compiled for one device.
#[derive(Debug)]
pub(crate) struct Kernels {
    driver: &'static Driver,
    module: RawModule,
    functions: [RawFunction; 4],
}

// SAFETY: handles of modules and functions may be used by any thread.
unsafe impl Send for Kernels {}
// SAFETY: as above; the value does not change.
unsafe impl Sync for Kernels {}

impl Kernels {
    /// Has the driver compile the kernels.
    pub fn load(entered: &Entered<'_>) -> Result<Self, CudaError> {
        let driver = entered.driver();
        let (mut module, mut functions) = (ptr::null_mut(), [ptr::null_mut(); 4]);
        // SAFETY: PTX is a text with a zero byte at its end; the driver writes a handle.
        unsafe { driver.cuModuleLoadData(&mut module, PTX.as_ptr().cast())? };
        for (function, name) in functions.iter_mut().zip([c"finish_u8", c"finish_f16", c"finish_bf16", c"finish_f32"]) {
            // SAFETY: the module is loaded; the name is a C text.
            unsafe { driver.cuModuleGetFunction(function, module, name.as_ptr())? };
        }
        Ok(Self { driver, module, functions })
    }

    /// Gives the kernels back. None may be launched afterwards.
    pub fn unload(&self, entered: &Entered<'_>) {
        // SAFETY: loaded by this value; the context is current.
        ended(unsafe { entered.driver().cuModuleUnload(self.module) });
    }

    fn of(&self, dtype: DType) -> RawFunction {
        self.functions[match dtype {
            DType::U8 => 0,
            DType::F16 => 1,
            DType::Bf16 => 2,
            DType::F32 => 3,
            dtype => panic!("images have no elements of type {dtype}"),
        }]
    }

    /// Queues the kernel that makes the elements of `count` rows at `out`.
    ///
    /// # Safety
    ///
    /// `rows`, `table` and `out` lie in memory of the device, which nothing else writes until the kernel has ended: the
    /// rows, the table of `finishing`, and room for the elements. The stream exists, and its context is current.
    pub unsafe fn launch(
        &self,
        finishing: &Finishing,
        count: u32,
        [rows, table, out]: [Address; 3],
        stream: RawStream,
    ) -> Result<(), CudaError> {
        let (width, pixels) = (finishing.prepared.width, finishing.prepared.width * finishing.prepared.height);
        let mixed = Mixed::of(finishing.mix);
        let planar = c_uint::from(finishing.planar);
        let [x0, y0, x1, y1] = mixed.window;
        let parameters: [*const c_void; 15] = [
            (&raw const rows).cast(),
            (&raw const out).cast(),
            (&raw const table).cast(),
            (&raw const count).cast(),
            (&raw const pixels).cast(),
            (&raw const width).cast(),
            (&raw const planar).cast(),
            (&raw const mixed.how).cast(),
            (&raw const mixed.weight).cast(),
            (&raw const mixed.rest).cast(),
            (&raw const mixed.weight15).cast(),
            (&raw const x0).cast(),
            (&raw const y0).cast(),
            (&raw const x1).cast(),
            (&raw const y1).cast(),
        ];
        let blocks = pixels.div_ceil(THREADS * PIXELS).max(1);
        let (y, z) = (count.min(BLOCKS_MAX), count.div_ceil(BLOCKS_MAX));
        // SAFETY: the parameters are the kernel's, in its order and of its types, and live during the call, which
        // copies them; the rest is the caller's duty.
        unsafe {
            self.driver.cuLaunchKernel(
                self.of(finishing.dtype),
                blocks,
                y,
                z,
                THREADS,
                1,
                1,
                0,
                stream,
                parameters.as_ptr().cast_mut().cast(),
                ptr::null_mut(),
            )
        }
    }
}

/// A mix as the kernels take it.
struct Mixed {
    how: u32,
    weight: f32,
    rest: f32,
    weight15: i32,
    /// Left, upper, right and lower edge.
    window: [u32; 4],
}

impl Mixed {
    fn of(mix: BatchMix) -> Self {
        let none = Self { how: 0, weight: 0.0, rest: 0.0, weight15: 0, window: [0; 4] };
        match mix {
            BatchMix::Unmixed => none,
            BatchMix::Blend { weight } => {
                let weight15 = (weight * 32_768.0).round() as i32;
                Self { how: 1, weight: weight as f32, rest: (1.0 - weight) as f32, weight15, ..none }
            }
            BatchMix::Paste { window, .. } => {
                let (x, y) = (window.x as u32, window.y as u32);
                Self { how: 2, window: [x, y, x + window.width, y + window.height], ..none }
            }
        }
    }
}
