//! Decides which stream's next operation runs, and runs it.

use crate::code::Code;
use crate::driver::{Context, Driver};
use crate::memory::{is_mapped, poison};
use crate::order::{Access, Clock};
use crate::stream::{Operation, Stream, Work};
use crate::twin::Touched;

impl Driver {
    /// Runs the next operation, or a part of it, of a stream that the random numbers choose. Returns false if nothing
    /// can run.
    pub fn step(&mut self) -> bool {
        let ready: Vec<u64> = self.streams.keys().copied().filter(|&stream| self.is_ready(stream)).collect();
        if ready.is_empty() {
            return false;
        }
        let stream = ready[self.random.below(ready.len())];
        let done = match self.settings.count_operation() {
            Ok(()) => self.run_next(stream).map_err(|(code, sentence)| {
                self.note(format!("while work ran: {sentence}"));
                code
            }),
            // An error that was asked for is no mistake of the program.
            Err(code) => Err(code),
        };
        if let Err(code) = done {
            let context = self.streams[&stream].context;
            self.end_context(context, code);
        }
        self.streams.retain(|_, stream| !stream.is_destroyed || !stream.queue.is_empty());
        true
    }

    fn is_ready(&self, handle: u64) -> bool {
        let stream = &self.streams[&handle];
        let Some(next) = stream.queue.front() else { return false };
        if matches!(&next.work, Work::Wait(mark) if !mark.has_passed()) {
            return false;
        }
        // The legacy default stream waits for what the blocking streams of its context got before, and they for it.
        let waits_for = |(&other, before): (&u64, &Stream)| {
            let legacy = self.contexts[&stream.context].legacy;
            let is_related = before.context == stream.context && before.is_blocking && stream.is_blocking;
            is_related
                && other != handle
                && (handle == legacy || other == legacy)
                && before.queue.front().is_some_and(|first| first.sequence < next.sequence)
        };
        !self.streams.iter().any(waits_for)
    }

    /// Runs a stream's next operation. Fails with what ends the context, and a sentence.
    fn run_next(&mut self, handle: u64) -> Result<(), (Code, String)> {
        self.statistics.operations += 1;
        let illegal = |sentence| (Code::ILLEGAL_ADDRESS, sentence);
        let operation = self.streams.get_mut(&handle).and_then(|stream| stream.queue.pop_front()).expect("is ready");
        let device = self.contexts[&self.streams[&handle].context].device;
        self.order(handle, &operation.after);
        let mut rest = None;
        match operation.work {
            Work::ToDevice { from, to, bytes, is_source_lost } => {
                if !is_source_lost && !is_mapped(from, bytes) {
                    return Err(illegal(format!("{bytes} bytes at {from:#x} were unmapped before their copy")));
                }
                let part = self.part_of(bytes);
                let value = poison(&mut self.random);
                let target = self.memory.bytes_mut(to, part).map_err(illegal)?;
                if is_source_lost {
                    target.fill(value);
                } else {
                    // SAFETY: the program promised, when it queued the copy, to keep the memory until the copy ran; it
                    // is registered. Nobody else has a reference to the target.
                    unsafe { std::ptr::copy_nonoverlapping(from as *const u8, target.as_mut_ptr(), part as usize) };
                }
                self.access(handle, to, part, true);
                if part < bytes {
                    let (from, to, bytes) = (from + part, to + part, bytes - part);
                    rest = Some(Work::ToDevice { from, to, bytes, is_source_lost });
                } else {
                    let number = self.streams[&handle].clock.count(handle);
                    self.sources.run(operation.sequence, handle, number);
                }
            }
            Work::StagedToDevice { from, to } => {
                self.memory.bytes_mut(to, from.len() as u64).map_err(illegal)?.copy_from_slice(&from);
                self.access(handle, to, from.len() as u64, true);
            }
            Work::ToHost { from, to, bytes, is_target_lost } => {
                let part = self.part_of(bytes);
                let source = self.memory.bytes_mut(from, part).map_err(illegal)?;
                if !is_target_lost {
                    // SAFETY: as above, for memory that the program lets the driver write.
                    unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), to as *mut u8, part as usize) };
                }
                self.access(handle, from, part, false);
                if part < bytes {
                    let (from, to, bytes) = (from + part, to + part, bytes - part);
                    rest = Some(Work::ToHost { from, to, bytes, is_target_lost });
                }
            }
            Work::OnDevice { from, to, bytes } => {
                self.memory.copy(from, to, bytes).map_err(illegal)?;
                self.access(handle, from, bytes, false);
                self.access(handle, to, bytes, true);
            }
            Work::Fill { to, bytes, value } => {
                self.memory.bytes_mut(to, bytes).map_err(illegal)?.fill(value);
                self.access(handle, to, bytes, true);
            }
            Work::Launch { kernel, dimensions, arguments } => {
                let seed = self.random.number();
                let mut regions = self.memory.regions(device);
                kernel.launch(&mut regions, dimensions, &arguments, seed)?;
                let touched = regions.iter().flat_map(|region| [(region.read, false), (region.written, true)]);
                for (Touched { start, end }, writes) in touched.filter(|(touched, _)| touched.end > 0) {
                    self.access(handle, start, end - start, writes);
                }
            }
            Work::Record(mark) => mark.pass(&self.streams[&handle].clock),
            Work::Wait(mark) => {
                if let (Some(clock), Some(stream)) = (mark.clock(), self.streams.get_mut(&handle)) {
                    stream.clock.join(clock);
                }
            }
        }
        if let (Some(work), Some(stream)) = (rest, self.streams.get_mut(&handle)) {
            stream.queue.push_front(Operation { work, ..operation });
        }
        Ok(())
    }

    /// Notes what has surely run before a stream's next operation, and counts it.
    fn order(&mut self, handle: u64, after: &Clock) {
        let Stream { context, is_blocking, .. } = self.streams[&handle];
        let legacy = self.contexts[&context].legacy;
        let mut clock = self.streams[&handle].clock.clone();
        clock.join(after);
        // The legacy default stream and the blocking streams wait for each other.
        let waited_for = |&(&other, before): &(&u64, &Stream)| {
            before.context == context && before.is_blocking && is_blocking && (handle == legacy || other == legacy)
        };
        self.streams.iter().filter(waited_for).for_each(|(_, before)| clock.join(&before.clock));
        clock.advance(handle);
        self.streams.get_mut(&handle).expect("is ready").clock = clock;
    }

    /// Notes that a stream's operation, which runs, accesses device memory.
    fn access(&mut self, stream: u64, address: u64, bytes: u64, writes: bool) {
        let clock = &self.streams[&stream].clock;
        let number = clock.count(stream);
        let access = Access { bytes: address..address + bytes, stream, number, writes };
        if let Some(sentence) = self.memory.access(address, access, clock) {
            self.note(sentence);
        }
    }

    /// Returns how many of a copy's bytes are copied before other work may run.
    fn part_of(&mut self, bytes: u64) -> u64 {
        if bytes > 1 && self.random.happens(64) { 1 + self.random.below(bytes as usize - 1) as u64 } else { bytes }
    }

    /// Ends a context with an error: what it has queued never runs.
    pub fn end_context(&mut self, context: u64, code: Code) {
        if let Some(Context { error, .. }) = self.contexts.get_mut(&context) {
            *error = Some(code);
        }
        for (&handle, stream) in self.streams.iter_mut().filter(|(_, stream)| stream.context == context) {
            self.sources.forget_stream(handle);
            for operation in stream.queue.drain(..) {
                self.sources.forget(operation.sequence);
                // Another context does not wait for ever.
                if let Work::Record(mark) = operation.work {
                    mark.pass(&Clock::default());
                }
            }
        }
    }

    /// Marks host memory as gone that queued copies still need.
    pub fn lose_host_memory(&mut self, address: u64, size: u64) {
        let overlaps = |start: u64, bytes: u64| start < address + size && address < start + bytes;
        for operation in self.streams.values_mut().flat_map(|stream| &mut stream.queue) {
            let is_lost = match &mut operation.work {
                Work::ToDevice { from, bytes, is_source_lost, .. } if overlaps(*from, *bytes) => is_source_lost,
                Work::ToHost { to, bytes, is_target_lost, .. } if overlaps(*to, *bytes) => is_target_lost,
                _ => continue,
            };
            *is_lost = true;
        }
    }
}
