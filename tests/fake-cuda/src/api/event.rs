//! Events.

use std::ffi::c_uint;
use std::sync::Arc;

use super::{driver_functions, put};
use crate::code::{Code, Failure};
use crate::session::Session;
use crate::stream::{Event, Mark};

const DISABLE_TIMING: u32 = 2;
const ALL_FLAGS: u32 = 7;

impl Session {
    /// Returns an event.
    pub(super) fn event(&self, handle: u64) -> Result<&Event, Failure> {
        let missing = || Failure::defect(Code::INVALID_HANDLE, format!("{handle:#x} is no event, or is destroyed"));
        self.events.get(&handle).ok_or_else(missing)
    }

    /// Returns the last recording of an event; `None` if it was never recorded.
    pub(super) fn mark(&self, handle: u64) -> Result<Option<Arc<Mark>>, Failure> {
        let event = self.event(handle)?;
        if event.is_captured {
            let sentence = format!("event {handle:#x} was recorded in a capture: it never comes");
            return Err(Failure::defect(Code::CAPTURED_EVENT, sentence));
        }
        Ok(event.mark.clone())
    }
}

driver_functions! {
    fn cuEventCreate(event: *mut u64, flags: c_uint) Init |call| {
        let context = call.context()?;
        if flags > ALL_FLAGS {
            return Err(Failure::defect(Code::INVALID_VALUE, format!("an event has no flags {flags}")));
        }
        let handle = call.new_handle();
        put(event, handle)?;
        call.events.insert(handle, Event { context, flags, mark: None, is_captured: false });
    }

    fn cuEventDestroy_v2(event: u64) Init |call| {
        call.event(event)?;
        call.events.remove(&event);
        // An error of the context is told, but the event is gone.
        call.context()?;
    }

    fn cuEventRecord(event: u64, stream: u64) Init |call| {
        let stream = call.stream(stream)?;
        if call.event(event)?.context != call.streams[&stream].context {
            return Err(Failure::defect(Code::INVALID_HANDLE, "event and stream belong to different contexts"));
        }
        let is_captured = call.streams[&stream].capture.is_some();
        let mark = (!is_captured).then(|| call.queue_mark(stream));
        let recorded = call.events.get_mut(&event).expect("was looked up");
        (recorded.mark, recorded.is_captured) = (mark, is_captured);
    }

    fn cuEventQuery(event: u64) Init |call| {
        call.context()?;
        let context = call.event(event)?.context;
        call.check_capture()?;
        call.check_context(context)?;
        let Some(mark) = call.mark(event)? else { return Ok(()) };
        if !mark.has_passed() {
            call.run_maybe();
            call.check_context(context)?;
            return Err(Code::NOT_READY.into());
        }
        call.learn_mark(&mark);
    }

    fn cuEventSynchronize(event: u64) Init |call| {
        call.context()?;
        let context = call.event(event)?.context;
        call.check_capture()?;
        call.check_context(context)?;
        if let Some(mark) = call.mark(event)? {
            call.wait_for(context, &mark)?;
        }
    }

    fn cuEventElapsedTime(milliseconds: *mut f32, start: u64, end: u64) Init |call| {
        call.context()?;
        let [start, end] = [call.event(start)?, call.event(end)?];
        if (start.flags | end.flags) & DISABLE_TIMING != 0 {
            return Err(Failure::defect(Code::INVALID_HANDLE, "an event was made without timing"));
        }
        let (Some(start), Some(end)) = (&start.mark, &end.mark) else {
            return Err(Failure::defect(Code::INVALID_HANDLE, "an event was never recorded"));
        };
        let (Some(start), Some(end)) = (start.time(), end.time()) else { return Err(Code::NOT_READY.into()) };
        put(milliseconds, end.saturating_duration_since(start).as_secs_f32() * 1e3)?;
    }
}
