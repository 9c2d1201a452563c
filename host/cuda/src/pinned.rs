//! Memory of this process from which the device copies.

use crate::device::Device;
use crate::driver::code;
use crate::error::CudaError;
use ddlp_host::{BatchMemory, Home};
use memmap2::{Advice, MmapMut, MmapRaw};
use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex};

/// Memory that belongs to this value, registered with the driver when it is first copied from. Registering makes all of
/// its pages resident, so the threads that fill it get its pages before.
#[derive(Debug)]
pub(crate) struct Pinned {
    map: Arc<Mapping>,
    registered: Option<Registered>,
}

/// A mapping that forked processes do not have, and so do not unmap.
#[derive(Debug)]
struct Mapping {
    map: ManuallyDrop<MmapRaw>,
    home: Home,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.home.is_here() {
            // SAFETY: not used again.
            unsafe { ManuallyDrop::drop(&mut self.map) };
        }
    }
}

impl Pinned {
    pub fn new(bytes: usize) -> io::Result<Self> {
        let map = MmapMut::map_anon(bytes.max(1))?;
        // As for the buffers of the default target. Huge pages are optional.
        let _ = map.advise(Advice::HugePage);
        // A fork would make the pages copies on write: the device would read the former ones, and this process write
        // to others.
        map.advise(Advice::DontFork)?;
        let map = Mapping { map: ManuallyDrop::new(map.into()), home: Home::here() };
        Ok(Self { map: Arc::new(map), registered: None })
    }

    /// Registers the memory, unless it is.
    pub fn register(&mut self, device: &Device, what: &str) -> Result<(), CudaError> {
        if self.registered.is_none() {
            let (start, bytes) = (self.map.map.as_mut_ptr(), self.map.map.len());
            // SAFETY: the memory is mapped for as long as the mapping is held.
            let registered = unsafe { Registered::new(device, start, bytes, self.map.clone()) };
            self.registered = Some(registered.map_err(|error| match error.number() {
                Some(code::OUT_OF_MEMORY) => CudaError::NotLocked { what: what.to_owned() },
                Some(code::NOT_SUPPORTED) => CudaError::NoRegistration { device: device.name().to_owned() },
                _ => error.on(device.name()),
            })?);
        }
        Ok(())
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has these bytes, and is borrowed from this value.
        unsafe { std::slice::from_raw_parts(self.map.map.as_ptr(), self.map.map.len()) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; nothing else has the mapping.
        unsafe { std::slice::from_raw_parts_mut(self.map.map.as_mut_ptr(), self.map.map.len()) }
    }
}

/// A registration, which ends when it is dropped. It holds the memory's mapping, for ever if the driver does not end
/// the registration: memory that is mapped at the same place later could not be registered.
struct Registered {
    device: Device,
    start: *mut u8,
    bytes: usize,
    mapping: ManuallyDrop<Arc<dyn Any + Send + Sync>>,
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registered").field("start", &self.start).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

// SAFETY: the pointer only names memory to the driver.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

impl Registered {
    /// Registers memory.
    ///
    /// # Safety
    ///
    /// The memory stays mapped until `mapping` is dropped.
    unsafe fn new(
        device: &Device,
        start: *mut u8,
        bytes: usize,
        mapping: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self, CudaError> {
        let entered = device.enter()?;
        // SAFETY: the caller's duty; the context is current.
        unsafe { entered.driver().cuMemHostRegister_v2(start.cast(), bytes, 0)? };
        Ok(Self { device: device.clone(), start, bytes, mapping: ManuallyDrop::new(mapping) })
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let entered = self.device.enter();
        // SAFETY: registered by this value. Nothing copies from the memory any more.
        let ended = entered.and_then(|entered| unsafe { entered.driver().cuMemHostUnregister(self.start.cast()) });
        match ended.map_err(|error| error.on(self.device.name())) {
            // SAFETY: not used again.
            Ok(()) => unsafe { ManuallyDrop::drop(&mut self.mapping) },
            // The process ends, the device is lost, or the memory is the parent's: each was said elsewhere.
            Err(CudaError::Forked | CudaError::Lost { .. }) => {}
            Err(error) if error.number() == Some(code::DEINITIALIZED) => {}
            Err(error) => tracing::warn!("{} bytes stay in memory until the process ends: {error}", self.bytes),
        }
    }
}

/// What the driver answers if it never registers memory of this kind, such as the memory of a file.
const NEVER_REGISTERED: [i32; 4] =
    [code::INVALID_VALUE, code::OPERATING_SYSTEM, code::NOT_PERMITTED, code::NOT_SUPPORTED];

/// The registrations of result slots that drives share with this host. A slot is registered when a batch in it is first
/// copied, as far as the batch reaches.
#[derive(Debug, Default)]
pub(crate) struct PinnedSlots(Mutex<Slots>);

#[derive(Debug, Default)]
struct Slots {
    by_address: HashMap<usize, Registered>,
    /// Why slots cannot be registered, for example since they lie in a file: then none is tried again.
    refused: bool,
}

impl PinnedSlots {
    /// Registers a slot from which `bytes` bytes will be copied, unless it is. Returns false if that is impossible.
    pub fn register(&self, device: &Device, slot: &dyn BatchMemory, bytes: usize) -> bool {
        let (start, page) = (slot.address().as_ptr(), page_bytes());
        let whole = bytes.next_multiple_of(page);
        let mut slots = self.lock();
        if slots.by_address.get(&start.addr()).is_some_and(|registered| registered.bytes >= whole) {
            return true;
        }
        if slots.refused || !start.addr().is_multiple_of(page) {
            return false;
        }
        let Some(mapping) = slot.mapping() else { return false };
        // The slot has held a shorter batch.
        slots.by_address.remove(&start.addr());
        // SAFETY: slots are whole pages of their mapping.
        match unsafe { Registered::new(device, start, whole, mapping) } {
            Ok(registered) => {
                slots.by_address.insert(start.addr(), registered);
                true
            }
            Err(error) => {
                tracing::debug!("result slots are copied through buffers: {error}");
                slots.refused = error.number().is_some_and(|number| NEVER_REGISTERED.contains(&number));
                false
            }
        }
    }

    /// Ends the registration of a slot.
    pub fn forget(&self, slot: &dyn BatchMemory) {
        let registered = self.lock().by_address.remove(&slot.address().addr().get());
        drop(registered);
    }

    /// Ends all registrations, except of slots from which something is still copied.
    pub fn clear(&self, copied: &[usize]) {
        let mut slots = self.lock();
        slots.by_address.retain(|address, _| copied.contains(address));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Slots> {
        self.0.lock().expect("no panic while the slots are locked")
    }
}

/// Returns the bytes of a page.
fn page_bytes() -> usize {
    // SAFETY: asks for a number.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).expect("a page has a size")
}
