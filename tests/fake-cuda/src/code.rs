//! Results of the driver's functions, as cuda.h numbers them.

use std::ffi::CStr;

/// A result other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub i32);

macro_rules! codes {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        // Faults may be asked for by number.
        #[allow(dead_code)]
        impl Code {
            $(pub const $name: Self = Self($number);)*

            /// Returns the driver's name and text; `None` for an unknown number.
            pub fn words(self) -> Option<(&'static CStr, &'static CStr)> {
                let c_text = |text: &'static str| CStr::from_bytes_with_nul(text.as_bytes()).expect("a final zero");
                match self.0 {
                    0 => Some((c"CUDA_SUCCESS", c"no error")),
                    $($number => Some((
                        c_text(concat!("CUDA_ERROR_", stringify!($name), "\0")),
                        c_text(concat!($text, "\0")),
                    )),)*
                    _ => None,
                }
            }
        }
    };
}

#[rustfmt::skip]
codes! {
    INVALID_VALUE = 1, "invalid argument";
    OUT_OF_MEMORY = 2, "out of memory";
    NOT_INITIALIZED = 3, "initialization error";
    DEINITIALIZED = 4, "driver shutting down";
    STUB_LIBRARY = 34, "CUDA driver is a stub library";
    DEVICE_UNAVAILABLE = 46, "CUDA-capable device(s) is/are busy or unavailable";
    NO_DEVICE = 100, "no CUDA-capable device is detected";
    INVALID_DEVICE = 101, "invalid device ordinal";
    INVALID_IMAGE = 200, "device kernel image is invalid";
    INVALID_CONTEXT = 201, "invalid device context";
    NO_BINARY_FOR_GPU = 209, "no kernel image is available for execution on the device";
    ECC_UNCORRECTABLE = 214, "uncorrectable ECC error encountered";
    INVALID_PTX = 218, "a PTX JIT compilation failed";
    UNSUPPORTED_PTX_VERSION = 222, "the provided PTX was compiled with an unsupported toolchain.";
    OPERATING_SYSTEM = 304, "OS call failed or operation not supported on this OS";
    INVALID_HANDLE = 400, "invalid resource handle";
    NOT_FOUND = 500, "named symbol not found";
    NOT_READY = 600, "device not ready";
    ILLEGAL_ADDRESS = 700, "an illegal memory access was encountered";
    LAUNCH_OUT_OF_RESOURCES = 701, "too many resources requested for launch";
    LAUNCH_TIMEOUT = 702, "the launch timed out and was terminated";
    CONTEXT_IS_DESTROYED = 709, "context is destroyed";
    HOST_MEMORY_ALREADY_REGISTERED = 712, "part or all of the requested memory range is already mapped";
    HOST_MEMORY_NOT_REGISTERED = 713, "pointer does not correspond to a registered memory region";
    MISALIGNED_ADDRESS = 716, "misaligned address";
    LAUNCH_FAILED = 719, "unspecified launch failure";
    NOT_PERMITTED = 800, "operation not permitted";
    NOT_SUPPORTED = 801, "operation not supported";
    SYSTEM_DRIVER_MISMATCH = 803, "system has unsupported display driver / cuda driver combination";
    STREAM_CAPTURE_UNSUPPORTED = 900, "operation not permitted when stream is capturing";
    STREAM_CAPTURE_INVALIDATED = 901, "operation failed due to a previous error during capture";
    STREAM_CAPTURE_ISOLATION = 905, "dependency created on uncaptured work in another stream";
    STREAM_CAPTURE_IMPLICIT = 906, "operation would make the legacy stream depend on a capturing blocking stream";
    CAPTURED_EVENT = 907, "operation not permitted on an event last recorded in a capturing stream";
    STREAM_CAPTURE_WRONG_THREAD = 908, "attempt to terminate a thread-local capture sequence from another thread";
    UNKNOWN = 999, "unknown error";
}

/// Why a call fails.
pub(crate) struct Failure {
    pub code: Code,
    /// What the program did wrong, if it is the program's mistake.
    pub defect: Option<String>,
}

impl From<Code> for Failure {
    fn from(code: Code) -> Self {
        Self { code, defect: None }
    }
}

impl Failure {
    pub fn defect(code: Code, sentence: impl Into<String>) -> Self {
        Self { code, defect: Some(sentence.into()) }
    }
}
