//! A device that was opened: its name, the primary context of this process on it, and the kernels.

use crate::driver::{
    ATTRIBUTE_HOST_REGISTER, ATTRIBUTES_CAPABILITY, Address, CAPABILITY_MIN, CAPTURE_RELAXED, Driver, RawContext, code,
};
use crate::error::CudaError;
use crate::kernels::Kernels;
use ddlp_host::Home;
use std::ffi::{CStr, c_int};
use std::fmt;
use std::ptr;
use std::str::FromStr;
use std::sync::Arc;

/// Variable by which launchers of several processes tell each one its number on this machine.
const LOCAL_RANK: &str = "LOCAL_RANK";

/// Which device to open: `cuda:N`, or `cuda`. The latter is the device with the number in the environment variable
/// `LOCAL_RANK`, if this process sees it, and device 0 otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceName(Option<u32>);

impl DeviceName {
    /// Returns the name of the device with this number.
    pub fn number(index: u32) -> Self {
        Self(Some(index))
    }

    /// Returns the number of the device among `count` devices.
    fn index(self, count: u32) -> u32 {
        let rank = || std::env::var(LOCAL_RANK).ok()?.parse().ok().filter(|rank| *rank < count);
        self.0.or_else(rank).unwrap_or(0)
    }
}

impl FromStr for DeviceName {
    type Err = CudaError;

    fn from_str(text: &str) -> Result<Self, CudaError> {
        let wrong = || CudaError::Name(text.into());
        match text.strip_prefix("cuda") {
            Some("") => Ok(Self(None)),
            Some(rest) => {
                let digits = rest.strip_prefix(':').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
                digits.and_then(|digits| digits.parse().ok()).map(Self::number).ok_or_else(wrong)
            }
            None => Err(wrong()),
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(index) => write!(f, "cuda:{index}"),
            None => f.write_str("cuda"),
        }
    }
}

/// An opened device. All of this process's users of the device, such as PyTorch, share one context on it, the primary
/// one.
#[derive(Clone, Debug)]
pub struct Device(Arc<Opened>);

#[derive(Debug)]
struct Opened {
    /// Number of devices that this process sees.
    count: u32,
    context: Retained,
    kernels: Kernels,
    name: String,
}

/// The primary context, which exists at least as long as this value.
#[derive(Debug)]
pub(crate) struct Retained {
    driver: &'static Driver,
    index: u32,
    device: c_int,
    context: RawContext,
    home: Home,
}

// SAFETY: the handle of a context may be used by any thread.
unsafe impl Send for Retained {}
// SAFETY: as above; the value does not change.
unsafe impl Sync for Retained {}

/// The context is current on this thread, and the thread's calls end no capture of a graph, until the value is dropped;
/// then both are again as they were.
#[derive(Debug)]
pub(crate) struct Entered<'d> {
    device: &'d Retained,
    before: RawContext,
    /// Ends after the former context is current again.
    _relaxed: Relaxed,
}

/// This thread's calls end no capture of a graph, this thread's or another's, until the value is dropped.
///
/// While any thread captures in the default mode, calls that allocate, free, register or wait would otherwise fail, and
/// end the capture. No call here can become a part of a graph by mistake: captured streams are refused.
#[derive(Debug)]
struct Relaxed {
    driver: &'static Driver,
    /// Mode of the thread before.
    before: c_int,
}

impl Device {
    /// Opens a device.
    ///
    /// # Errors
    ///
    /// [`CudaError`] says what is missing: the driver, a device, or an ability of the device.
    pub fn open(name: DeviceName) -> Result<Self, CudaError> {
        let driver = Driver::get()?;
        let _relaxed = Relaxed::new(driver)?;
        let (mut count, mut device, mut can_register) = (0, 0, 0);
        // SAFETY: the driver writes one number.
        unsafe { driver.cuDeviceGetCount(&mut count)? };
        let count = u32::try_from(count).unwrap_or(0);
        let index = name.index(count);
        if count == 0 {
            return Err(CudaError::NoDevice);
        }
        if index >= count {
            return Err(CudaError::NoSuchDevice { index, count });
        }
        // SAFETY: as above.
        unsafe {
            driver.cuDeviceGet(&mut device, index as c_int)?;
            driver.cuDeviceGetAttribute(&mut can_register, ATTRIBUTE_HOST_REGISTER, device)?;
        }
        let name = format!("cuda:{index} ({})", model(driver, device)?);
        let mut capability = [0; 2];
        for (value, attribute) in capability.iter_mut().zip(ATTRIBUTES_CAPABILITY) {
            // SAFETY: as above.
            unsafe { driver.cuDeviceGetAttribute(value, attribute, device)? };
        }
        if capability < CAPABILITY_MIN {
            return Err(CudaError::OldDevice { device: name, capability });
        }
        if can_register == 0 {
            return Err(CudaError::NoRegistration { device: name });
        }
        let mut context = ptr::null_mut();
        // SAFETY: the driver writes a handle, which `Retained` gives back.
        unsafe { driver.cuDevicePrimaryCtxRetain(&mut context, device) }
            .map_err(|error| error.at_opening(&name, capability))?;
        let context = Retained { driver, index, device, context, home: Home::here() };
        let kernels = context.enter().and_then(|entered| Kernels::load(&entered));
        let kernels = kernels.map_err(|error| error.at_opening(&name, capability))?;
        Ok(Self(Arc::new(Opened { count, context, kernels, name })))
    }

    /// Returns the number of the device, which PyTorch uses too.
    pub fn index(&self) -> u32 {
        self.0.context.index
    }

    /// Returns the number of devices that this process sees.
    pub fn count(&self) -> u32 {
        self.0.count
    }

    /// Returns the number and the model of the device, such as `cuda:0 (NVIDIA H100 80GB HBM3)`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns whether this is the process that opened the device, and not one forked from it.
    pub(crate) fn is_home(&self) -> bool {
        self.0.context.home.is_here()
    }

    pub(crate) fn driver(&self) -> &'static Driver {
        self.0.context.driver
    }

    pub(crate) fn kernels(&self) -> &Kernels {
        &self.0.kernels
    }

    /// Makes the context current on this thread, whose calls end no capture of a graph until the value is dropped.
    pub(crate) fn enter(&self) -> Result<Entered<'_>, CudaError> {
        self.0.context.enter()
    }

    /// Returns the error for memory of the device that was refused, and any other error as it is.
    pub(crate) fn refused(&self, error: CudaError, what: &str) -> CudaError {
        if error.number() != Some(code::OUT_OF_MEMORY) {
            return error.on(self.name());
        }
        let (mut free, mut total) = (0, 0);
        if let Ok(entered) = self.enter() {
            // SAFETY: the driver writes two numbers; the context is current. If it fails, they stay 0.
            let _ = unsafe { entered.driver().cuMemGetInfo_v2(&mut free, &mut total) };
        }
        CudaError::OutOfMemory { device: self.name().to_owned(), what: what.to_owned(), free: free as u64 }
    }
}

/// Returns the name of a device's model.
fn model(driver: &Driver, device: c_int) -> Result<String, CudaError> {
    let mut name = [0u8; 256];
    // SAFETY: the driver writes at most as many bytes, with a zero byte at the end.
    unsafe { driver.cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as c_int, device)? };
    Ok(CStr::from_bytes_until_nul(&name).map_or_else(|_| String::new(), |name| name.to_string_lossy().into_owned()))
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Ok(entered) = self.context.enter() {
            self.kernels.unload(&entered);
        }
    }
}

impl Retained {
    fn enter(&self) -> Result<Entered<'_>, CudaError> {
        if !self.home.is_here() {
            return Err(CudaError::Forked);
        }
        let relaxed = Relaxed::new(self.driver)?;
        let mut before = ptr::null_mut();
        // SAFETY: the driver writes a handle; the context exists.
        unsafe {
            self.driver.cuCtxGetCurrent(&mut before)?;
            if before != self.context {
                self.driver.cuCtxSetCurrent(self.context)?;
            }
        }
        Ok(Entered { device: self, before, _relaxed: relaxed })
    }
}

impl Drop for Retained {
    fn drop(&mut self) {
        if self.home.is_here() {
            let _relaxed = Relaxed::new(self.driver);
            // SAFETY: retained once; nothing uses the context through this value any more.
            ended(unsafe { self.driver.cuDevicePrimaryCtxRelease_v2(self.device) });
        }
    }
}

impl Entered<'_> {
    pub fn driver(&self) -> &'static Driver {
        self.device.driver
    }
}

impl Relaxed {
    fn new(driver: &'static Driver) -> Result<Self, CudaError> {
        let mut mode = CAPTURE_RELAXED;
        // SAFETY: the driver reads and writes one number.
        unsafe { driver.cuThreadExchangeStreamCaptureMode(&mut mode)? };
        Ok(Self { driver, before: mode })
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        let mut mode = self.before;
        // SAFETY: the driver reads and writes one number.
        ended(unsafe { self.driver.cuThreadExchangeStreamCaptureMode(&mut mode) });
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if self.before != self.device.context {
            // SAFETY: the context was current before, and its owner keeps it. A driver that has shut down refuses.
            ended(unsafe { self.driver().cuCtxSetCurrent(self.before) });
        }
    }
}

/// Notes that something could not be given back: the context is lost, or the driver has shut down.
pub(crate) fn ended(result: Result<(), CudaError>) {
    if let Err(error) = result {
        tracing::debug!("{error}");
    }
}

/// Memory of a device.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    device: Device,
    address: Address,
    bytes: usize,
}

impl DeviceMemory {
    /// Allocates memory; `what` says in messages what it is for, and how large.
    pub fn new(device: &Device, bytes: usize, what: &str) -> Result<Self, CudaError> {
        let entered = device.enter()?;
        let mut address = 0;
        // SAFETY: the driver writes an address; the context is current.
        unsafe { entered.driver().cuMemAlloc_v2(&mut address, bytes.max(1)) }
            .map_err(|error| device.refused(error, what))?;
        Ok(Self { device: device.clone(), address, bytes })
    }

    pub fn device(&self) -> &Device {
        &self.device
    }

    pub fn address(&self) -> Address {
        self.address
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if let Ok(entered) = self.device.enter() {
            // SAFETY: allocated by this value; the driver waits for work that uses the memory.
            ended(unsafe { entered.driver().cuMemFree_v2(self.address) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cuda_with_or_without_a_number() {
        for (text, index) in [("cuda", None), ("cuda:0", Some(0)), ("cuda:12", Some(12))] {
            let name: DeviceName = text.parse().unwrap();
            assert_eq!((name, name.to_string()), (DeviceName(index), text.to_owned()));
        }
        for text in ["", "cud", "cuda:", "cuda:-1", "cuda:+1", "cuda: 1", "cuda0", "cuda:99999999999", "cpu", "CUDA:0"]
        {
            let error = text.parse::<DeviceName>().unwrap_err().to_string();
            assert!(error.contains("cuda:N") && error.contains(&format!("{text:?}")), "{error}");
        }
    }
}
