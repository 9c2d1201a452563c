//! Decides which stream's next operation runs, and runs it.

use crate::code::Code;
use crate::driver::{Context, Driver};
use crate::memory::poison;
use crate::stream::{Stream, Work};

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
        let stream = self.streams.get_mut(&handle).expect("is ready");
        let device = self.contexts[&stream.context].device;
        let operation = stream.queue.pop_front().expect("is ready");
        let sequence = operation.sequence;
        let put_back = |driver: &mut Self, work| {
            let stream = driver.streams.get_mut(&handle).expect("is ready");
            stream.queue.push_front(crate::stream::Operation { sequence, work });
        };
        match operation.work {
            Work::ToDevice { from, to, bytes, is_source_lost } => {
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
                if part < bytes {
                    let (from, to, bytes) = (from + part, to + part, bytes - part);
                    put_back(self, Work::ToDevice { from, to, bytes, is_source_lost });
                }
            }
            Work::StagedToDevice { from, to } => {
                self.memory.bytes_mut(to, from.len() as u64).map_err(illegal)?.copy_from_slice(&from);
            }
            Work::ToHost { from, to, bytes, is_target_lost } => {
                let part = self.part_of(bytes);
                let source = self.memory.bytes_mut(from, part).map_err(illegal)?;
                if !is_target_lost {
                    // SAFETY: as above, for memory that the program lets the driver write.
                    unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), to as *mut u8, part as usize) };
                }
                if part < bytes {
                    let (from, to, bytes) = (from + part, to + part, bytes - part);
                    put_back(self, Work::ToHost { from, to, bytes, is_target_lost });
                }
            }
            Work::OnDevice { from, to, bytes } => self.memory.copy(from, to, bytes).map_err(illegal)?,
            Work::Fill { to, bytes, value } => self.memory.bytes_mut(to, bytes).map_err(illegal)?.fill(value),
            Work::Launch { kernel, dimensions, arguments } => {
                let seed = self.random.number();
                kernel.launch(&self.memory.regions(device), dimensions, &arguments, seed)?;
            }
            Work::Record(mark) => mark.pass(),
            Work::Wait(_) => {}
        }
        Ok(())
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
        for stream in self.streams.values_mut().filter(|stream| stream.context == context) {
            for operation in stream.queue.drain(..) {
                // Another context does not wait for ever.
                if let Work::Record(mark) = operation.work {
                    mark.pass();
                }
            }
        }
    }

    /// Marks host memory as gone that queued copies still need. Returns how many copies need it.
    pub fn lose_host_memory(&mut self, address: u64, size: u64) -> usize {
        let overlaps = |start: u64, bytes: u64| start < address + size && address < start + bytes;
        let mut copies = 0;
        for operation in self.streams.values_mut().flat_map(|stream| &mut stream.queue) {
            let is_lost = match &mut operation.work {
                Work::ToDevice { from, bytes, is_source_lost, .. } if overlaps(*from, *bytes) => is_source_lost,
                Work::ToHost { to, bytes, is_target_lost, .. } if overlaps(*to, *bytes) => is_target_lost,
                _ => continue,
            };
            *is_lost = true;
            copies += 1;
        }
        copies
    }
}
