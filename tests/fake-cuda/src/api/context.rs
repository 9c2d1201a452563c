//! Primary contexts, and the contexts of a thread.

use std::ffi::{c_int, c_uint};

use super::device::check;
use super::{driver_functions, put};
use crate::code::{Code, Failure};
use crate::session::{Session, with_current};

fn check_handle(call: &Session, context: u64) -> Result<(), Failure> {
    if call.contexts.contains_key(&context) {
        return Ok(());
    }
    Err(Failure::defect(Code::INVALID_CONTEXT, format!("{context:#x} is no context")))
}

driver_functions! {
    fn cuDevicePrimaryCtxRetain(context: *mut u64, device: c_int) Init |call| {
        check(call, device)?;
        let handle = call.retain(device);
        put(context, handle)?;
    }

    fn cuDevicePrimaryCtxRelease_v2(device: c_int) Init |call| {
        check(call, device)?;
        let found = call.contexts.iter_mut().find(|(_, context)| context.device == device);
        let Some((&handle, context)) = found else {
            return Err(Failure::defect(Code::INVALID_CONTEXT, "the primary context is not retained"));
        };
        context.retains -= 1;
        if context.retains == 0 {
            // What is queued still runs, unless the context has failed.
            let _ = call.wait_for_all(handle, |stream| stream.context == handle);
            call.destroy(handle);
        }
    }

    fn cuDevicePrimaryCtxGetState(device: c_int, flags: *mut c_uint, active: *mut c_int) Init |call| {
        check(call, device)?;
        put(flags, 0)?;
        put(active, call.contexts.values().any(|context| context.device == device).into())?;
    }

    fn cuCtxGetCurrent(context: *mut u64) Init |_| {
        put(context, with_current(|contexts| contexts.last().copied().unwrap_or(0)))?;
    }

    fn cuCtxSetCurrent(context: u64) Init |call| {
        if context != 0 {
            check_handle(call, context)?;
        }
        with_current(|contexts| {
            contexts.pop();
            if context != 0 {
                contexts.push(context);
            }
        });
    }

    fn cuCtxPushCurrent_v2(context: u64) Init |call| {
        check_handle(call, context)?;
        with_current(|contexts| contexts.push(context));
    }

    fn cuCtxPopCurrent_v2(context: *mut u64) Init |_| {
        let popped = with_current(Vec::pop);
        let popped = popped.ok_or_else(|| Failure::defect(Code::INVALID_CONTEXT, "there is no context to pop"))?;
        if !context.is_null() {
            put(context, popped)?;
        }
    }

    fn cuCtxGetDevice(device: *mut c_int) Init |call| {
        let context = call.context()?;
        put(device, call.contexts[&context].device)?;
    }

    fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) Init |call| {
        call.context()?;
        put(least, 0)?;
        put(greatest, -5)?;
    }

    fn cuCtxSynchronize() Init |call| {
        let context = call.context()?;
        call.check_capture()?;
        call.wait_for_all(context, |stream| stream.context == context)?;
    }
}
