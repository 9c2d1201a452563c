//! Why batches cannot be delivered to a device.

use crate::driver::{CAPABILITY_MIN, code};
use ddlp_cause::Cause;
use ddlp_host::DeliveryError;
use std::fmt;

/// Why a device cannot be used, or a batch cannot be delivered to it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// The text names no device.
    #[error("a device is cuda or cuda:N, with N from 0, not {0:?}")]
    Name(String),
    /// The driver's library cannot be loaded.
    #[error(
        "there is no CUDA driver on this machine ({reason}): install NVIDIA's driver, or leave the option device out \
         to keep batches in host memory"
    )]
    NoLibrary {
        /// What the dynamic linker says.
        reason: String,
    },
    /// The driver's library lacks a function.
    #[error("the CUDA driver has no function {name}: update NVIDIA's driver to 525 or newer")]
    NoFunction {
        /// Name of the function.
        name: &'static str,
    },
    /// The library is the one that programs are linked with where there is no driver.
    #[error(
        "libcuda.so.1 is the CUDA toolkit's stub, which only serves to link programs: take its folder out of \
         LD_LIBRARY_PATH, so that NVIDIA's driver is found"
    )]
    Stub,
    /// The driver finds no device.
    #[error(
        "the CUDA driver finds no device: `nvidia-smi` shows those of this machine, and CUDA_VISIBLE_DEVICES may hide \
         them"
    )]
    NoDevice,
    /// The driver is too old for the kernels.
    #[error(
        "the CUDA driver supports CUDA {major}.{minor}, but 12.0 is needed: update NVIDIA's driver to 525 or newer"
    )]
    TooOld {
        /// Version that the driver supports.
        major: i32,
        /// The same, behind the dot.
        minor: i32,
    },
    /// There is no device of this number.
    #[error("there is no device cuda:{index}: this process sees {count}, numbered from 0 (CUDA_VISIBLE_DEVICES)")]
    NoSuchDevice {
        /// Number that was asked for.
        index: u32,
        /// Devices that this process sees.
        count: u32,
    },
    /// The kernels are made for newer devices.
    #[error(
        "{device} is too old: its compute capability is {}.{}, and {}.{} or higher is supported (Turing, such as \
         T4 and RTX 20, and later); choose another device, or leave the option device out",
        capability[0], capability[1], CAPABILITY_MIN[0], CAPABILITY_MIN[1]
    )]
    OldDevice {
        /// Name of the device.
        device: String,
        /// Its compute capability: the number before the dot, and that behind it.
        capability: [i32; 2],
    },
    /// The device takes no further process.
    #[error(
        "{device} is busy or in exclusive compute mode ({call} returned {code}): `nvidia-smi` shows its mode and the \
         processes that use it; end them, or choose another device"
    )]
    Unavailable {
        /// Name of the device.
        device: String,
        /// Name of the function that was refused.
        call: &'static str,
        /// What it returned.
        code: DriverCode,
    },
    /// There is no memory to open the device.
    #[error(
        "{device} cannot be opened, since memory is exhausted ({call} returned {code}): end other programs that use \
         the device (`nvidia-smi` shows them), or choose another device"
    )]
    NoRoom {
        /// Name of the device.
        device: String,
        /// Name of the function that failed.
        call: &'static str,
        /// What it returned.
        code: DriverCode,
    },
    /// The device cannot copy from memory that this process allocated.
    #[error(
        "{device} cannot register this process's memory for copies, as its driver says: leave the option device out, \
         and copy batches from host memory"
    )]
    NoRegistration {
        /// Name of the device.
        device: String,
    },
    /// The device's memory is exhausted.
    #[error(
        "{device} has no memory for {what}: {} MB are free; use smaller batches or fewer buffers, or end other \
         programs that use the device (`nvidia-smi` shows them)", free / 1_000_000
    )]
    OutOfMemory {
        /// Name of the device.
        device: String,
        /// What the memory was for, and its size.
        what: String,
        /// Free bytes of the device.
        free: u64,
    },
    /// Memory of this machine cannot be locked for copies.
    #[error(
        "the CUDA driver cannot lock {what} in this machine's memory: use smaller batches or fewer buffers, or \
         end other programs"
    )]
    NotLocked {
        /// What the memory is for, and its size.
        what: String,
    },
    /// A function of the driver failed.
    #[error("the CUDA driver failed in {call}: {code}")]
    Call {
        /// Name of the function.
        call: &'static str,
        /// What it returned.
        code: DriverCode,
    },
    /// The device, or this process's context on it, can no longer be used.
    #[error(
        "the CUDA context of {device} is lost, and with it all batches there: {call} returned {code}; start the \
         program again, and look for the first failure in its own kernels and in the kernel's log (dmesg, lines \
         with Xid)"
    )]
    Lost {
        /// Name of the device.
        device: String,
        /// Name of the function that reported the loss.
        call: &'static str,
        /// What it returned.
        code: DriverCode,
    },
    /// The stream records a graph.
    #[error(
        "a batch cannot be delivered on a stream that is being captured as a CUDA graph: take the batch before the \
         capture, and copy it to the memory that the graph reads"
    )]
    Capturing,
    /// The batch has been finished already.
    #[error("the batch has been finished before: its rows are no longer on the device")]
    Finished,
    /// The batch was not delivered by this crate.
    #[error("the batch was not delivered to a CUDA device")]
    NotOnDevice,
    /// The process was forked.
    #[error(
        "CUDA cannot be used in a process that was forked from one that uses it: use the loader in the process that \
         built it, or start processes by the method 'spawn'"
    )]
    Forked,
    /// The system refused memory or a thread.
    #[error("the operating system refused {what}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// The system's answer.
        source: Cause,
    },
    /// The consumer has no place for a field.
    #[error("there is no place for the field {field}")]
    Place {
        /// Name of the field.
        field: String,
        /// What the consumer says.
        source: Cause,
    },
}

/// What a function of the driver returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverCode {
    /// The number.
    pub number: i32,
    /// The driver's name for the number.
    pub name: String,
    /// The driver's explanation.
    pub text: String,
}

impl fmt::Display for DriverCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, name, text } = self;
        write!(f, "{name} ({number}), {text}")
    }
}

impl DriverCode {
    /// Returns whether the context can do nothing more after this code.
    fn is_loss(&self) -> bool {
        // CUDA_ERROR_DEVICE_UNAVAILABLE, _ECC_UNCORRECTABLE, _NVLINK_UNCORRECTABLE, _CONTAINED, _ILLEGAL_ADDRESS,
        // _LAUNCH_TIMEOUT, _CONTEXT_IS_DESTROYED, _ASSERT, _HARDWARE_STACK_ERROR to _LAUNCH_FAILED,
        // _TENSOR_MEMORY_LEAK, _EXTERNAL_DEVICE, _UNKNOWN.
        matches!(self.number, 46 | 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 911 | 999)
    }
}

impl CudaError {
    /// Returns the error with the device's name, if its context is lost.
    pub(crate) fn on(self, device: &str) -> Self {
        match self {
            Self::Call { call, code } if code.is_loss() => Self::Lost { device: device.into(), call, code },
            error => error,
        }
    }

    /// Returns the error of a call that opens a device of this name and compute capability.
    pub(crate) fn at_opening(self, device: &str, capability: [i32; 2]) -> Self {
        let device = device.to_owned();
        match self {
            Self::Call { call, code } => match code.number {
                code::DEVICE_UNAVAILABLE => Self::Unavailable { device, call, code },
                code::OUT_OF_MEMORY => Self::NoRoom { device, call, code },
                code::NO_BINARY_FOR_GPU => Self::OldDevice { device, capability },
                _ => Self::Call { call, code }.on(&device),
            },
            error => error,
        }
    }

    /// Returns whether the context can do nothing more.
    pub fn is_loss(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }

    /// Returns the code of a call that failed.
    pub(crate) fn number(&self) -> Option<i32> {
        match self {
            Self::Call { code, .. } | Self::Lost { code, .. } => Some(code.number),
            _ => None,
        }
    }
}

impl From<CudaError> for DeliveryError {
    fn from(error: CudaError) -> Self {
        Self::new(error)
    }
}
