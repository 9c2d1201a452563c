//! The driver's functions, as a program calls them.

use std::ffi::{CString, c_void};
use std::ops::{Deref, DerefMut};

use fake_cuda::StandIn;
use libloading::Library;

/// Calls a function of the driver by its name. Gives its result.
macro_rules! cu {
    ($gpu:expr, $name:ident($($argument:expr => $type:ty),* $(,)?)) => {{
        type Function = unsafe extern "C" fn($($type),*) -> i32;
        let name = stringify!($name);
        // SAFETY: the function has this type, and the test gives pointers that are valid for the call.
        unsafe {
            let function = $gpu.library.get::<Function>(name.as_bytes()).expect(name);
            function($($argument),*)
        }
    }};
}
pub(crate) use cu;

pub const SUCCESS: i32 = 0;
pub const PTX: &str = include_str!("../../../../host/cuda/kernels/finish.ptx");

/// A stand-in with a current context on this thread.
pub struct Gpu {
    pub stand_in: StandIn,
    cuda: Cuda,
}

/// A driver with a current context on this thread.
pub struct Cuda {
    pub library: &'static Library,
    pub context: u64,
}

impl Deref for Gpu {
    type Target = Cuda;

    fn deref(&self) -> &Cuda {
        &self.cuda
    }
}

impl Gpu {
    pub fn new(seed: u64) -> Self {
        Self::with(|stand_in| stand_in.set("seed", seed))
    }

    pub fn with(prepare: impl FnOnce(&StandIn)) -> Self {
        let stand_in = StandIn::new();
        prepare(&stand_in);
        let cuda = Cuda::new(stand_in.library());
        Self { stand_in, cuda }
    }
}

impl Cuda {
    pub fn new(library: &'static Library) -> Self {
        let mut cuda = Self { library, context: 0 };
        assert_eq!(cu!(cuda, cuInit(0 => u32)), SUCCESS);
        cuda.context = cuda.retain();
        cuda.enter();
        cuda
    }

    /// Returns the context of the first device, retained once more.
    pub fn retain(&self) -> u64 {
        let mut context = 0;
        assert_eq!(cu!(self, cuDevicePrimaryCtxRetain(&mut context => *mut u64, 0 => i32)), SUCCESS);
        context
    }

    /// Makes the context current on this thread.
    pub fn enter(&self) {
        assert_eq!(cu!(self, cuCtxSetCurrent(self.context => u64)), SUCCESS);
    }

    pub fn allocate(&self, bytes: usize) -> u64 {
        let mut address = 0;
        assert_eq!(cu!(self, cuMemAlloc_v2(&mut address => *mut u64, bytes => usize)), SUCCESS);
        address
    }

    pub fn free(&self, address: u64) -> i32 {
        cu!(self, cuMemFree_v2(address => u64))
    }

    /// Makes a stream that does not wait for the legacy default stream.
    pub fn stream(&self) -> u64 {
        let mut stream = 0;
        assert_eq!(cu!(self, cuStreamCreate(&mut stream => *mut u64, 1 => u32)), SUCCESS);
        stream
    }

    /// Makes an event without timing, for which threads wait without spinning.
    pub fn event(&self) -> u64 {
        let mut event = 0;
        assert_eq!(cu!(self, cuEventCreate(&mut event => *mut u64, 3 => u32)), SUCCESS);
        event
    }

    pub fn record(&self, event: u64, stream: u64) -> i32 {
        cu!(self, cuEventRecord(event => u64, stream => u64))
    }

    pub fn wait(&self, stream: u64, event: u64) -> i32 {
        cu!(self, cuStreamWaitEvent(stream => u64, event => u64, 0 => u32))
    }

    pub fn synchronize(&self, stream: u64) -> i32 {
        cu!(self, cuStreamSynchronize(stream => u64))
    }

    pub fn copy_to_device(&self, to: u64, from: &[u8], stream: u64) -> i32 {
        let (address, bytes) = (from.as_ptr().cast(), from.len());
        cu!(self, cuMemcpyHtoDAsync_v2(to => u64, address => *const c_void, bytes => usize, stream => u64))
    }

    /// Writes bytes, and waits.
    pub fn write(&self, to: u64, from: &[u8]) {
        let (address, bytes) = (from.as_ptr().cast(), from.len());
        assert_eq!(cu!(self, cuMemcpyHtoD_v2(to => u64, address => *const c_void, bytes => usize)), SUCCESS);
    }

    /// Reads bytes when all of the default stream and blocking streams is done.
    pub fn read(&self, from: u64, bytes: usize) -> Vec<u8> {
        let mut to = vec![0; bytes];
        let address = to.as_mut_ptr().cast();
        assert_eq!(cu!(self, cuMemcpyDtoH_v2(address => *mut c_void, from => u64, bytes => usize)), SUCCESS);
        to
    }

    /// Loads a module and returns one of its functions.
    pub fn function(&self, ptx: &str, name: &str) -> u64 {
        let [image, name] = [ptx, name].map(|text| CString::new(text).expect("no zero"));
        let (mut module, mut function) = (0, 0);
        let (image, name) = (image.as_ptr().cast(), name.as_ptr().cast());
        assert_eq!(cu!(self, cuModuleLoadData(&mut module => *mut u64, image => *const c_void)), SUCCESS);
        let result = cu!(
            self,
            cuModuleGetFunction(&mut function => *mut u64, module => u64, name => *const c_void)
        );
        assert_eq!(result, SUCCESS);
        function
    }

    /// Launches a kernel with arguments of 4 or 8 bytes, each in a word of its own.
    pub fn launch(&self, function: u64, grid: [u32; 3], threads: u32, arguments: &[u64], stream: u64) -> i32 {
        let pointers: Vec<*const u64> = arguments.iter().map(std::ptr::from_ref).collect();
        let [x, y, z] = grid;
        cu!(
            self,
            cuLaunchKernel(
                function => u64,
                x => u32, y => u32, z => u32,
                threads => u32, 1 => u32, 1 => u32,
                0 => u32,
                stream => u64,
                pointers.as_ptr() => *const *const u64,
                std::ptr::null() => *const c_void,
            )
        )
    }
}

/// Names a real driver, on which some tests then run instead of on the stand-in.
const REAL_DRIVER: &str = "DDLP_CUDA";

/// The real driver, or a stand-in.
pub struct Either {
    cuda: Cuda,
    stand_in: Option<StandIn>,
}

impl Either {
    pub fn new(seed: u64) -> Self {
        if let Ok(name) = std::env::var(REAL_DRIVER) {
            // SAFETY: a driver's library may be loaded.
            let library = unsafe { Library::new(name) }.expect("the driver");
            return Self { cuda: Cuda::new(Box::leak(Box::new(library))), stand_in: None };
        }
        let Gpu { stand_in, cuda } = Gpu::new(seed);
        Self { cuda, stand_in: Some(stand_in) }
    }

    /// Asserts that the stand-in saw no mistake.
    pub fn assert_no_mistake(&self) {
        let mistakes = self.stand_in.as_ref().map(StandIn::defects);
        assert_eq!(mistakes.unwrap_or_default(), Vec::<String>::new());
    }
}

impl Deref for Either {
    type Target = Cuda;

    fn deref(&self) -> &Cuda {
        &self.cuda
    }
}

/// Memory that is registered as page-locked.
pub struct Pinned {
    library: &'static Library,
    memory: memmap2::MmapMut,
    is_registered: bool,
}

impl Pinned {
    pub fn new(gpu: &Cuda, bytes: usize) -> Self {
        let mut memory = memmap2::MmapMut::map_anon(bytes).expect("memory");
        let address = memory.as_mut_ptr();
        assert_eq!(cu!(gpu, cuMemHostRegister_v2(address => *mut u8, bytes => usize, 1 => u32)), SUCCESS);
        Self { library: gpu.library, memory, is_registered: true }
    }

    pub fn unregister(&mut self) {
        self.is_registered = false;
        assert_eq!(cu!(self, cuMemHostUnregister(self.memory.as_mut_ptr() => *mut u8)), SUCCESS);
    }
}

impl Deref for Pinned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory
    }
}

impl DerefMut for Pinned {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // A test that lost its context has no other way.
        if self.is_registered {
            cu!(self, cuMemHostUnregister(self.memory.as_mut_ptr() => *mut u8));
        }
    }
}
