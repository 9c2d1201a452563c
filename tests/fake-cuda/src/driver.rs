//! The driver's state, and how it changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::code::Code;
use crate::memory::{DeviceMemory, PinnedMemory};
use crate::module::{Function, Module};
use crate::order::Clock;
use crate::random::Random;
use crate::session::calls_in_children;
use crate::settings::Settings;
use crate::sources::Sources;
use crate::statistics::Statistics;
use crate::stream::{Event, Mark, Operation, Stream, Work};

/// A primary context.
pub(crate) struct Context {
    pub device: i32,
    /// What ended the context. Each call answers it from then on.
    pub error: Option<Code>,
    /// The legacy default stream.
    pub legacy: u64,
    /// The default streams of threads.
    pub per_thread: BTreeMap<u64, u64>,
    pub retains: u64,
}

/// All state. One lock protects it.
pub(crate) struct Driver {
    pub settings: Settings,
    pub is_initialised: bool,
    pub is_shut_down: bool,
    pub random: Random,
    /// How probable it is that a call runs a queued operation, and another one, of 256.
    eagerness: u32,
    pub statistics: Statistics,
    pub defects: Vec<String>,
    /// How often each function was called.
    pub calls: BTreeMap<&'static str, u64>,
    pub contexts: BTreeMap<u64, Context>,
    pub streams: BTreeMap<u64, Stream>,
    pub events: BTreeMap<u64, Event>,
    pub modules: BTreeMap<u64, Module>,
    pub functions: BTreeMap<u64, Function>,
    pub memory: DeviceMemory,
    pub pinned: PinnedMemory,
    /// What the host knows to have run, since it waited for it.
    known: Clock,
    pub sources: Sources,
    next_handle: u64,
    sequence: u64,
}

impl Driver {
    pub fn new() -> Self {
        let settings = Settings::from_environment();
        let mut driver = Self {
            random: Random::new(0),
            eagerness: 0,
            settings,
            is_initialised: false,
            is_shut_down: false,
            statistics: Statistics::default(),
            defects: Vec::new(),
            calls: BTreeMap::new(),
            contexts: BTreeMap::new(),
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            modules: BTreeMap::new(),
            functions: BTreeMap::new(),
            memory: DeviceMemory::new(),
            pinned: PinnedMemory::default(),
            known: Clock::default(),
            sources: Sources::default(),
            next_handle: 0x5000_0000_0000,
            sequence: 0,
        };
        driver.restart_random();
        driver
    }

    /// Begins the random numbers again, from the seed of the settings.
    pub fn restart_random(&mut self) {
        self.random = Random::new(self.settings.seed);
        self.eagerness = [0, 64, 128, 192, 256][self.random.below(5)];
    }

    /// Records a mistake in the use of the driver.
    pub fn note(&mut self, sentence: String) {
        if self.settings.verbose {
            eprintln!("fake CUDA: {sentence}");
        }
        self.statistics.defects += 1;
        self.defects.push(sentence);
    }

    /// Returns a handle that nothing has yet. It is no address.
    pub fn new_handle(&mut self) -> u64 {
        self.next_handle += 64;
        self.next_handle
    }

    /// Returns a device's primary context, retained once more.
    pub fn retain(&mut self, device: i32) -> u64 {
        if let Some((&handle, context)) = self.contexts.iter_mut().find(|(_, context)| context.device == device) {
            context.retains += 1;
            return handle;
        }
        let (handle, legacy) = (self.new_handle(), self.new_handle());
        self.streams.insert(legacy, Stream::new(handle, true, false));
        let context = Context { device, error: None, legacy, per_thread: BTreeMap::new(), retains: 1 };
        self.contexts.insert(handle, context);
        handle
    }

    /// Destroys a context, and all that belongs to it. After an error, no call could have given that back.
    pub fn destroy(&mut self, handle: u64) {
        let before = self.count();
        let is_lost = self.contexts.remove(&handle).is_some_and(|context| context.error.is_some());
        let of_context = self.streams.iter().filter(|(_, stream)| stream.context == handle);
        of_context.for_each(|(&stream, _)| self.sources.forget_stream(stream));
        self.streams.retain(|_, stream| stream.context != handle);
        self.events.retain(|_, event| event.context != handle);
        self.modules.retain(|_, module| module.context != handle);
        self.functions.retain(|_, function| function.context != handle);
        self.memory.forget(handle);
        if is_lost {
            self.pinned.forget(handle);
        } else {
            let after = self.count();
            let left = |of: &Statistics| of.live_allocations + of.live_streams + of.live_events + of.live_modules;
            self.statistics.left_to_release += left(&before) - left(&after);
        }
    }

    /// Queues work on a stream. Work of a stream that captures never runs.
    pub fn queue(&mut self, stream: u64, work: Work) {
        self.sequence += 1;
        let (sequence, after) = (self.sequence, self.known.clone());
        let stream = self.streams.get_mut(&stream).expect("was looked up");
        if stream.capture.is_some() {
            return;
        }
        if let Work::ToDevice { from, bytes, .. } = work {
            self.sources.add(sequence, from, bytes);
        }
        stream.queue.push_back(Operation { sequence, after, work });
    }

    /// Makes known to the host what has run.
    pub fn learn(&mut self, clock: &Clock) {
        self.known.join(clock);
        for sentence in self.sources.learn(&self.known) {
            self.note(sentence);
        }
    }

    /// Makes known to the host that a mark has passed.
    pub fn learn_mark(&mut self, mark: &Mark) {
        if let Some(clock) = mark.clock() {
            self.learn(clock);
        }
    }

    /// Queues a mark.
    pub fn queue_mark(&mut self, stream: u64) -> Arc<Mark> {
        let mark = Arc::new(Mark::default());
        self.queue(stream, Work::Record(mark.clone()));
        mark
    }

    /// Runs some of the queued work, as a real device works while the host does something else.
    pub fn run_some(&mut self) {
        let eagerness = self.eagerness;
        while self.random.happens(eagerness) && self.step() {}
    }

    /// Runs an operation or none, so that a program which asks again and again gets further.
    pub fn run_maybe(&mut self) {
        if self.random.happens(128) {
            self.step();
        }
    }

    /// Returns the bytes that are allocated on a device.
    pub fn allocated(&self, device: i32) -> u64 {
        let of_device = self.memory.allocations().values().filter(|allocation| allocation.device == device);
        of_device.map(|allocation| allocation.bytes.next_multiple_of(512)).sum()
    }

    /// Returns the statistics with what is alive now.
    pub fn count(&self) -> Statistics {
        let allocations = self.memory.allocations();
        let streams = self.streams.values();
        Statistics {
            calls_in_children: calls_in_children(),
            live_allocations: allocations.len() as u64,
            live_bytes: allocations.values().map(|allocation| allocation.bytes).sum(),
            live_pinned: self.pinned.pieces().len() as u64,
            live_pinned_bytes: self.pinned.pieces().values().map(|pinned| pinned.bytes).sum(),
            live_streams: streams.clone().filter(|stream| stream.is_made && !stream.is_destroyed).count() as u64,
            live_events: self.events.len() as u64,
            live_modules: self.modules.len() as u64,
            live_retains: self.contexts.values().map(|context| context.retains).sum(),
            queued: streams.map(|stream| stream.queue.len() as u64).sum(),
            ..self.statistics
        }
    }
}
