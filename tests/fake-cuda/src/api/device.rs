//! Start, errors, and what devices are.

use std::ffi::{CStr, c_char, c_int, c_uint};

use super::{driver_functions, put, put_text};
use crate::code::{Code, Failure};
use crate::driver::Driver;
use crate::session::claim_process;

/// Attributes that programs ask for, and what a device answers; `None` for compute capability and registration, which
/// the settings decide.
const ATTRIBUTES: [(i32, i32); 14] = [
    (1, 1024),     // MAX_THREADS_PER_BLOCK
    (2, 1024),     // MAX_BLOCK_DIM_X
    (5, i32::MAX), // MAX_GRID_DIM_X
    (6, 65_535),   // MAX_GRID_DIM_Y
    (7, 65_535),   // MAX_GRID_DIM_Z
    (8, 49_152),   // MAX_SHARED_MEMORY_PER_BLOCK
    (10, 32),      // WARP_SIZE
    (16, 4),       // MULTIPROCESSOR_COUNT
    (19, 1),       // CAN_MAP_HOST_MEMORY
    (20, 0),       // COMPUTE_MODE: default
    (40, 2),       // ASYNC_ENGINE_COUNT
    (41, 1),       // UNIFIED_ADDRESSING
    (113, 0),      // READ_ONLY_HOST_REGISTER_SUPPORTED
    (115, 0),      // MEMORY_POOLS_SUPPORTED
];

/// Fails unless a device exists.
pub(super) fn check(driver: &Driver, device: c_int) -> Result<(), Failure> {
    if (0..driver.settings.devices).contains(&device) {
        return Ok(());
    }
    Err(Failure::defect(Code::INVALID_DEVICE, format!("there is no device {device}")))
}

fn words(code: c_int) -> Result<(&'static CStr, &'static CStr), Failure> {
    Code(code).words().ok_or_else(|| Code::INVALID_VALUE.into())
}

driver_functions! {
    fn cuInit(flags: c_uint) Nothing |call| {
        if flags != 0 {
            return Err(Failure::defect(Code::INVALID_VALUE, "flags must be 0"));
        }
        if call.settings.init != 0 {
            return Err(Code(call.settings.init).into());
        }
        if call.settings.devices == 0 {
            return Err(Code::NO_DEVICE.into());
        }
        if !call.is_initialised {
            claim_process();
            super::control::report_at_exit();
        }
        call.is_initialised = true;
    }

    fn cuDriverGetVersion(version: *mut c_int) Nothing |call| {
        put(version, call.settings.driver)?;
    }

    fn cuGetErrorName(code: c_int, name: *mut *const c_char) Nothing |_| {
        put(name, std::ptr::null())?;
        put(name, words(code)?.0.as_ptr())?;
    }

    fn cuGetErrorString(code: c_int, text: *mut *const c_char) Nothing |_| {
        put(text, std::ptr::null())?;
        put(text, words(code)?.1.as_ptr())?;
    }

    fn cuDeviceGetCount(count: *mut c_int) Init |call| {
        put(count, call.settings.devices)?;
    }

    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) Init |call| {
        check(call, ordinal)?;
        put(device, ordinal)?;
    }

    fn cuDeviceGetName(name: *mut u8, room: c_int, device: c_int) Init |call| {
        check(call, device)?;
        put_text(name, room.max(0) as usize, "Stand-in")?;
    }

    fn cuDeviceGetUuid(uuid: *mut [u8; 16], device: c_int) Init |call| {
        check(call, device)?;
        put(uuid, [device as u8 + 1; 16])?;
    }

    fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) Init |call| {
        check(call, device)?;
        put(uuid, [device as u8 + 1; 16])?;
    }

    fn cuDeviceGetPCIBusId(id: *mut u8, room: c_int, device: c_int) Init |call| {
        check(call, device)?;
        put_text(id, room.max(0) as usize, &format!("0000:{:02x}:00.0", device + 1))?;
    }

    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) Init |call| {
        check(call, device)?;
        put(bytes, call.settings.memory as usize)?;
    }

    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) Init |call| {
        check(call, device)?;
        let found = match attribute {
            75 => Some(call.settings.compute as c_int / 10),
            76 => Some(call.settings.compute as c_int % 10),
            99 => Some(call.settings.registration.into()),
            other => ATTRIBUTES.iter().find(|(number, _)| *number == other).map(|(_, value)| *value),
        };
        let unknown = || Failure::defect(Code::INVALID_VALUE, format!("the stand-in lacks attribute {attribute}"));
        put(value, found.ok_or_else(unknown)?)?;
    }
}
