//! Captures of streams, as far as a loader meets them: nothing of a captured stream ever runs here.

use std::ffi::{c_int, c_uint};

use super::{driver_functions, put};
use crate::code::{Code, Failure};
use crate::session::{Session, exchange_capture_mode, this_thread};
use crate::stream::{Capture, Stream};

impl Session {
    /// Fails if a stream captures: what was queued elsewhere before cannot become a part of the graph.
    pub(super) fn check_isolation(&mut self, stream: u64) -> Result<(), Failure> {
        let Some(capture) = self.streams.get_mut(&stream).and_then(|stream| stream.capture.as_mut()) else {
            return Ok(());
        };
        capture.is_valid = false;
        let sentence = "a stream that captures waits for an event of a stream that does not";
        Err(Failure::defect(Code::STREAM_CAPTURE_ISOLATION, sentence))
    }

    /// Fails if an error ended a context.
    pub(super) fn check_context(&self, context: u64) -> Result<(), Failure> {
        match self.contexts.get(&context).map(|context| context.error) {
            Some(None) => Ok(()),
            Some(Some(error)) => Err(error.into()),
            None => Err(Code::CONTEXT_IS_DESTROYED.into()),
        }
    }
}

driver_functions! {
    fn cuThreadExchangeStreamCaptureMode(mode: *mut c_int) Init |_| {
        // SAFETY: the program gives a pointer to a mode.
        let wanted = if mode.is_null() { -1 } else { unsafe { mode.read() } };
        if !(0..=2).contains(&wanted) {
            return Err(Failure::defect(Code::INVALID_VALUE, format!("there is no capture mode {wanted}")));
        }
        put(mode, exchange_capture_mode(wanted))?;
    }

    fn cuStreamIsCapturing(stream: u64, status: *mut c_uint) Init |call| {
        let stream = call.stream(stream)?;
        let context = call.context()?;
        // The legacy default stream waits for blocking streams, which cannot be while one captures.
        let captures = |found: &Stream| found.context == context && found.is_blocking && found.capture.is_some();
        if stream == call.contexts[&context].legacy && call.streams.values().any(captures) {
            return Err(Code::STREAM_CAPTURE_IMPLICIT.into());
        }
        let status_now = match &call.streams[&stream].capture {
            None => 0,
            Some(capture) if capture.is_valid => 1,
            Some(_) => 2,
        };
        put(status, status_now)?;
    }

    fn cuStreamBeginCapture_v2(stream: u64, mode: c_int) Init |call| {
        let stream = call.stream(stream)?;
        let is_default = !call.streams[&stream].is_made;
        if !(0..=2).contains(&mode) || is_default || call.streams[&stream].capture.is_some() {
            return Err(Failure::defect(Code::INVALID_VALUE, "such a capture cannot begin"));
        }
        let capture = Capture { thread: this_thread(), mode, is_valid: true };
        call.streams.get_mut(&stream).expect("was looked up").capture = Some(capture);
    }

    /// Ends a capture. The graph is a handle that nothing takes.
    fn cuStreamEndCapture(stream: u64, graph: *mut u64) Init |call| {
        let stream = call.stream(stream)?;
        let Some(capture) = call.streams.get_mut(&stream).expect("was looked up").capture.take() else {
            return Err(Failure::defect(Code::INVALID_VALUE, "the stream does not capture"));
        };
        put(graph, 0)?;
        if capture.mode != 2 && capture.thread != this_thread() {
            return Err(Failure::defect(Code::STREAM_CAPTURE_WRONG_THREAD, "another thread began the capture"));
        }
        if !capture.is_valid {
            return Err(Code::STREAM_CAPTURE_INVALIDATED.into());
        }
        let handle = call.new_handle();
        put(graph, handle)?;
    }
}
