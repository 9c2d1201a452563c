//! Streams.

use std::ffi::{c_int, c_uint};

use super::{driver_functions, put};
use crate::code::{Code, Failure};
use crate::session::Session;
use crate::stream::{Stream, Work};

fn create(call: &mut Session, stream: *mut u64, flags: c_uint) -> Result<(), Failure> {
    let context = call.context()?;
    if flags > 1 {
        return Err(Failure::defect(Code::INVALID_VALUE, format!("a stream has no flags {flags}")));
    }
    let handle = call.new_handle();
    put(stream, handle)?;
    call.streams.insert(handle, Stream::new(context, flags == 0, true));
    Ok(())
}

driver_functions! {
    fn cuStreamCreate(stream: *mut u64, flags: c_uint) Init |call| {
        create(call, stream, flags)?;
    }

    fn cuStreamCreateWithPriority(stream: *mut u64, flags: c_uint, _priority: c_int) Init |call| {
        create(call, stream, flags)?;
    }

    fn cuStreamDestroy_v2(stream: u64) Init |call| {
        if stream <= 2 {
            return Err(Failure::defect(Code::INVALID_HANDLE, "a default stream cannot be destroyed"));
        }
        let found = call.stream(stream)?;
        let found = call.streams.get_mut(&found).expect("was looked up");
        found.is_destroyed = true;
        let is_empty = found.queue.is_empty();
        if is_empty {
            call.streams.remove(&stream);
        }
    }

    fn cuStreamSynchronize(stream: u64) Init |call| {
        let stream = call.stream(stream)?;
        call.check_capture()?;
        let context = call.context()?;
        let mark = call.queue_mark(stream);
        call.wait_for(context, &mark)?;
    }

    fn cuStreamQuery(stream: u64) Init |call| {
        let stream = call.stream(stream)?;
        call.check_capture()?;
        if !call.streams[&stream].queue.is_empty() {
            call.run_maybe();
            call.context()?;
            return Err(Code::NOT_READY.into());
        }
        let clock = call.streams[&stream].clock.clone();
        call.learn(&clock);
    }

    fn cuStreamWaitEvent(stream: u64, event: u64, flags: c_uint) Init |call| {
        let stream = call.stream(stream)?;
        if flags > 1 {
            return Err(Failure::defect(Code::INVALID_VALUE, format!("a wait has no flags {flags}")));
        }
        // Within a capture, such a wait is a part of the graph.
        if call.event(event)?.is_captured && call.streams[&stream].capture.is_some() {
            return Ok(());
        }
        // An event that was never recorded has nothing to wait for.
        if let Some(mark) = call.mark(event)? {
            call.check_isolation(stream)?;
            call.queue(stream, Work::Wait(mark));
        }
    }
}
