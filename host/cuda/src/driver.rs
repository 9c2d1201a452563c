//! The driver's library, `libcuda.so.1`: the functions that this crate calls, found when a device is first opened.
//!
//! A driver may return codes that this crate does not know, so they stay numbers. A function that the library lacks is
//! an error that names it.

use crate::error::{CudaError, DriverCode};
use ddlp_host::Home;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::ptr;
use std::sync::OnceLock;

/// Name under which every driver installs its library.
const LIBRARY: &CStr = c"libcuda.so.1";

/// Oldest driver whose compiler takes the kernels: CUDA 12.0.
const VERSION_MIN: c_int = 12_000;

pub(crate) type RawContext = *mut c_void;
pub(crate) type RawStream = *mut c_void;
pub(crate) type RawEvent = *mut c_void;
pub(crate) type RawModule = *mut c_void;
pub(crate) type RawFunction = *mut c_void;
/// An address in memory of a device.
pub(crate) type Address = u64;

/// `CU_STREAM_NON_BLOCKING`: the stream does not wait for the default stream.
pub(crate) const STREAM_NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING`: a thread that waits sleeps.
pub(crate) const EVENT_SLEEPING: c_uint = 1 | 2;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`: calls of the thread do not end captures of other threads.
pub(crate) const CAPTURE_RELAXED: c_int = 2;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR`.
pub(crate) const ATTRIBUTES_CAPABILITY: [c_int; 2] = [75, 76];
/// Lowest compute capability for which the kernels are made.
pub(crate) const CAPABILITY_MIN: [c_int; 2] = [7, 5];
/// `CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED`.
pub(crate) const ATTRIBUTE_HOST_REGISTER: c_int = 99;

/// Codes that this crate tells apart.
pub(crate) mod code {
    pub const SUCCESS: i32 = 0;
    pub const OUT_OF_MEMORY: i32 = 2;
    pub const INVALID_VALUE: i32 = 1;
    pub const DEINITIALIZED: i32 = 4;
    pub const STUB_LIBRARY: i32 = 34;
    pub const DEVICE_UNAVAILABLE: i32 = 46;
    pub const NO_DEVICE: i32 = 100;
    pub const NO_BINARY_FOR_GPU: i32 = 209;
    pub const OPERATING_SYSTEM: i32 = 304;
    pub const NOT_PERMITTED: i32 = 800;
    pub const NOT_SUPPORTED: i32 = 801;
    pub const STREAM_CAPTURE_IMPLICIT: i32 = 906;
}

/// Declares the functions of the driver that return a code.
macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        /// The library's functions, by their names there.
        #[allow(non_snake_case)]
        struct Functions {
            $($name: unsafe extern "C" fn($($type),*) -> c_int,)*
        }

        impl Functions {
            /// Finds all functions.
            fn find(library: &Library) -> Result<Self, CudaError> {
                Ok(Self {
                    $($name: {
                        let function = library.find(concat!(stringify!($name), "\0"))?;
                        // SAFETY: the driver's function of this name has this type.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> c_int>(function)
                        }
                    },)*
                })
            }
        }

        // The driver's names and numbers of arguments.
        #[allow(non_snake_case, clippy::too_many_arguments)]
        impl Driver {
            $(
                /// Calls the driver's function of this name.
                ///
                /// # Safety
                ///
                /// What the driver's documentation asks of the arguments and of the thread's current context.
                pub unsafe fn $name(&self, $($argument: $type),*) -> Result<(), CudaError> {
                    // SAFETY: the caller's duty.
                    self.check(stringify!($name), unsafe { (self.functions.$name)($($argument),*) })
                }
            )*
        }
    };
}

functions! {
    cuInit(flags: c_uint);
    cuDriverGetVersion(version: *mut c_int);
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGet(device: *mut c_int, ordinal: c_int);
    cuDeviceGetName(name: *mut c_char, bytes: c_int, device: c_int);
    cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int);
    cuDevicePrimaryCtxRetain(context: *mut RawContext, device: c_int);
    cuDevicePrimaryCtxRelease_v2(device: c_int);
    cuCtxGetCurrent(context: *mut RawContext);
    cuCtxSetCurrent(context: RawContext);
    cuThreadExchangeStreamCaptureMode(mode: *mut c_int);
    cuStreamCreate(stream: *mut RawStream, flags: c_uint);
    cuStreamDestroy_v2(stream: RawStream);
    cuStreamSynchronize(stream: RawStream);
    cuStreamWaitEvent(stream: RawStream, event: RawEvent, flags: c_uint);
    cuStreamIsCapturing(stream: RawStream, status: *mut c_int);
    cuEventCreate(event: *mut RawEvent, flags: c_uint);
    cuEventDestroy_v2(event: RawEvent);
    cuEventRecord(event: RawEvent, stream: RawStream);
    cuEventSynchronize(event: RawEvent);
    cuMemAlloc_v2(address: *mut Address, bytes: usize);
    cuMemFree_v2(address: Address);
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuMemHostRegister_v2(start: *mut c_void, bytes: usize, flags: c_uint);
    cuMemHostUnregister(start: *mut c_void);
    cuMemcpyHtoDAsync_v2(to: Address, from: *const c_void, bytes: usize, stream: RawStream);
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: Address, bytes: usize, stream: RawStream);
    cuMemcpyDtoDAsync_v2(to: Address, from: Address, bytes: usize, stream: RawStream);
    cuModuleLoadData(module: *mut RawModule, image: *const c_void);
    cuModuleUnload(module: RawModule);
    cuModuleGetFunction(function: *mut RawFunction, module: RawModule, name: *const c_char);
    cuLaunchKernel(
        function: RawFunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared_bytes: c_uint, stream: RawStream, parameters: *mut *mut c_void, extra: *mut *mut c_void
    );
}

/// A function that writes the address of a text about a code.
type Text = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;

/// The driver, initialised. It stays loaded until the process ends.
pub(crate) struct Driver {
    /// A forked process cannot use the driver of its parent.
    home: Home,
    functions: Functions,
    /// `cuGetErrorName` and `cuGetErrorString`.
    texts: [Text; 2],
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

impl Driver {
    /// Returns the driver of this machine, which the first call loads and initialises.
    pub fn get() -> Result<&'static Self, CudaError> {
        static DRIVER: OnceLock<Result<Driver, CudaError>> = OnceLock::new();
        let driver = DRIVER.get_or_init(Self::load).as_ref().map_err(Clone::clone)?;
        if driver.home.is_here() { Ok(driver) } else { Err(CudaError::Forked) }
    }

    fn load() -> Result<Self, CudaError> {
        let library = Library::open()?;
        let texts = [library.find("cuGetErrorName\0")?, library.find("cuGetErrorString\0")?];
        // SAFETY: the driver's functions of these names have this type.
        let texts = texts.map(|text| unsafe { std::mem::transmute::<*mut c_void, Text>(text) });
        let driver = Self { home: Home::here(), functions: Functions::find(&library)?, texts };
        // SAFETY: may be called at any time.
        match unsafe { driver.cuInit(0) } {
            Err(CudaError::Call { code, .. }) if code.number == code::STUB_LIBRARY => return Err(CudaError::Stub),
            Err(CudaError::Call { code, .. }) if code.number == code::NO_DEVICE => return Err(CudaError::NoDevice),
            initialised => initialised?,
        }
        let mut version = 0;
        // SAFETY: the driver writes one number.
        unsafe { driver.cuDriverGetVersion(&mut version)? };
        if version < VERSION_MIN {
            return Err(CudaError::TooOld { major: version / 1000, minor: version % 1000 / 10 });
        }
        Ok(driver)
    }

    /// Turns a code into a result.
    fn check(&self, call: &'static str, number: c_int) -> Result<(), CudaError> {
        if number == code::SUCCESS {
            return Ok(());
        }
        let [name, text] = self.texts.map(|ask| {
            let mut text = ptr::null();
            // SAFETY: the driver writes the address of a text that it never frees, or leaves the pointer null.
            let result = unsafe { ask(number, &mut text) };
            (result == code::SUCCESS && !text.is_null()).then(|| {
                // SAFETY: as above.
                unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
            })
        });
        let name = name.unwrap_or_else(|| "an unknown error".into());
        let text = text.unwrap_or_else(|| "the driver has no text for it".into());
        Err(CudaError::Call { call, code: DriverCode { number, name, text } })
    }
}

/// The library in this process.
struct Library(*mut c_void);

impl Library {
    fn open() -> Result<Self, CudaError> {
        // SAFETY: loading the driver runs its constructors, which are made for that.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(CudaError::NoLibrary { reason: why() });
        }
        Ok(Self(library))
    }

    /// Finds a function by its name, which ends with a zero byte.
    fn find(&self, name: &'static str) -> Result<*mut c_void, CudaError> {
        let symbol = CStr::from_bytes_with_nul(name.as_bytes()).expect("a name ends with a zero byte");
        // SAFETY: the library is open, and the name is a C text.
        let function = unsafe { libc::dlsym(self.0, symbol.as_ptr()) };
        if function.is_null() {
            return Err(CudaError::NoFunction { name: name.trim_end_matches('\0') });
        }
        Ok(function)
    }
}

/// Returns why the last call of the dynamic linker failed.
fn why() -> String {
    // SAFETY: the text is this thread's until its next call of the linker.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the linker says nothing".into();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
