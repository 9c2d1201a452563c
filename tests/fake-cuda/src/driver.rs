//! The driver's state, and what every call does first: check the process, count, run some of the queued work.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use crate::code::Code;
use crate::memory::{DeviceMemory, PinnedMemory};
use crate::module::{Function, Module};
use crate::order::Clock;
use crate::random::Random;
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

/// Why a call fails.
pub(crate) struct Failure {
    code: Code,
    /// What the program did wrong, if it is the program's mistake.
    defect: Option<String>,
}

impl From<Code> for Failure {
    fn from(code: Code) -> Self {
        Self { code, defect: None }
    }
}

impl Failure {
    pub fn defect(code: Code, sentence: impl Into<String>) -> Self {
        Self { code, defect: Some(sentence.into()) }
    }
}

static DRIVER: LazyLock<Mutex<Driver>> = LazyLock::new(|| Mutex::new(Driver::new()));
/// The process that called cuInit; 0 before.
static PROCESS: AtomicU64 = AtomicU64::new(0);
/// Counts calls in children; children share its page.
static CALLS_IN_CHILDREN: LazyLock<&'static AtomicU64> = LazyLock::new(|| {
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: maps a new page, which is never unmapped.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), 8, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    assert_ne!(page, libc::MAP_FAILED, "a page of memory");
    // SAFETY: a page of zeros holds an atomic number.
    unsafe { &*page.cast() }
});

thread_local! {
    /// The contexts of this thread; the last one is current. 0 is none.
    static CURRENT: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    /// As cuThreadExchangeStreamCaptureMode numbers modes.
    static CAPTURE_MODE: Cell<i32> = const { Cell::new(0) };
    static THREAD: u64 = {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

/// Returns this thread's contexts to a function, which may change them.
pub(crate) fn with_current<T>(body: impl FnOnce(&mut Vec<u64>) -> T) -> T {
    CURRENT.with_borrow_mut(body)
}

/// Exchanges this thread's capture mode.
pub(crate) fn exchange_capture_mode(mode: i32) -> i32 {
    CAPTURE_MODE.replace(mode)
}

/// What a call needs before it may do anything.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Needs {
    Nothing,
    /// A call of cuInit.
    Init,
}

/// Runs the body of a driver's function, and returns its result.
pub(crate) fn call(name: &'static str, needs: Needs, body: impl FnOnce(&mut Session) -> Result<(), Failure>) -> i32 {
    if !is_right_process() {
        CALLS_IN_CHILDREN.fetch_add(1, Ordering::Relaxed);
        return Code::NOT_INITIALIZED.0;
    }
    let mut session = Session { name, guard: Some(lock()) };
    let result = session.begin(needs).and_then(|()| body(&mut session));
    match result {
        Ok(()) => 0,
        Err(Failure { code, defect }) => {
            if let Some(sentence) = defect {
                session.note(format!("{name}: {sentence}"));
            }
            code.0
        }
    }
}

fn lock() -> MutexGuard<'static, Driver> {
    DRIVER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives a control function the state, without any of a call's checks.
pub(crate) fn control<T>(body: impl FnOnce(&mut Driver) -> T) -> T {
    body(&mut lock())
}

/// Returns whether this process may call the driver: it is no child of the one that called cuInit.
pub(crate) fn is_right_process() -> bool {
    let process = PROCESS.load(Ordering::Acquire);
    process == 0 || process == u64::from(std::process::id())
}

/// Makes this process the one that may call the driver.
pub(crate) fn claim_process() {
    LazyLock::force(&CALLS_IN_CHILDREN);
    PROCESS.store(std::process::id().into(), Ordering::Release);
}

/// A call that is under way. It holds the driver's lock, except while it waits.
pub(crate) struct Session {
    pub name: &'static str,
    guard: Option<MutexGuard<'static, Driver>>,
}

impl Deref for Session {
    type Target = Driver;

    fn deref(&self) -> &Driver {
        self.guard.as_deref().expect("locked")
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut Driver {
        self.guard.as_deref_mut().expect("locked")
    }
}

impl Session {
    fn begin(&mut self, needs: Needs) -> Result<(), Failure> {
        if self.is_shut_down {
            return Err(Code::DEINITIALIZED.into());
        }
        let name = self.name;
        *self.calls.entry(name).or_default() += 1;
        self.settings.count_call(name)?;
        if needs == Needs::Init {
            if !self.is_initialised {
                return Err(Failure::defect(Code::NOT_INITIALIZED, "cuInit was not called"));
            }
            self.run_some();
        }
        Ok(())
    }

    /// Returns the current context. Fails if there is none, or an error ended it.
    pub fn context(&self) -> Result<u64, Failure> {
        let current = with_current(|contexts| contexts.last().copied().unwrap_or(0));
        if current == 0 {
            return Err(Failure::defect(Code::INVALID_CONTEXT, "this thread has no current context"));
        }
        match self.contexts.get(&current) {
            None => Err(Failure::defect(Code::CONTEXT_IS_DESTROYED, "the current context is destroyed")),
            Some(Context { error: Some(error), .. }) => Err((*error).into()),
            Some(_) => Ok(current),
        }
    }

    /// Returns the stream of a handle, which may also be that of a default stream, if its context is current.
    pub fn stream(&mut self, handle: u64) -> Result<u64, Failure> {
        let context = self.context()?;
        let stream = match handle {
            0 | 1 => self.contexts[&context].legacy,
            2 => self.per_thread_stream(context),
            handle => handle,
        };
        match self.streams.get(&stream) {
            Some(found) if found.is_destroyed => {
                Err(Failure::defect(Code::INVALID_HANDLE, format!("stream {handle:#x} is destroyed")))
            }
            Some(found) if found.context != context => {
                Err(Failure::defect(Code::INVALID_HANDLE, format!("stream {handle:#x} belongs to another context")))
            }
            Some(_) => Ok(stream),
            None => Err(Failure::defect(Code::INVALID_HANDLE, format!("{handle:#x} is no stream"))),
        }
    }

    fn per_thread_stream(&mut self, context: u64) -> u64 {
        let thread = THREAD.with(|&thread| thread);
        if let Some(&stream) = self.contexts[&context].per_thread.get(&thread) {
            return stream;
        }
        let stream = self.new_handle();
        self.streams.insert(stream, Stream::new(context, true, false));
        self.contexts.get_mut(&context).expect("was looked up").per_thread.insert(thread, stream);
        stream
    }

    /// Fails if this call would break a capture of a stream: by this thread, or by another one in the mode «global».
    pub fn check_capture(&mut self) -> Result<(), Failure> {
        let (mode, thread) = (CAPTURE_MODE.get(), thread::current().id());
        let mut is_broken = false;
        for capture in self.streams.values_mut().filter_map(|stream| stream.capture.as_mut()) {
            let is_own = capture.thread == thread && capture.mode != 2;
            if (mode == 0 && (capture.mode == 0 || is_own)) || (mode == 1 && is_own) {
                capture.is_valid = false;
                is_broken = true;
            }
        }
        if is_broken {
            let sentence = "breaks the capture of a stream, since this thread's capture mode is not relaxed";
            return Err(Failure::defect(Code::STREAM_CAPTURE_UNSUPPORTED, sentence));
        }
        Ok(())
    }

    /// Runs queued work until a condition holds. Other threads' calls come between. Fails if the context does.
    pub fn wait_until(&mut self, context: u64, mut holds: impl FnMut(&Driver) -> bool) -> Result<(), Failure> {
        loop {
            match self.contexts.get(&context) {
                Some(Context { error: Some(error), .. }) => return Err((*error).into()),
                None => return Err(Code::CONTEXT_IS_DESTROYED.into()),
                Some(_) => {}
            }
            if holds(self) {
                return Ok(());
            }
            if !self.step() {
                return Err(Failure::defect(Code::UNKNOWN, "waits for what never comes: nothing queued can run"));
            }
            self.guard = None;
            thread::yield_now();
            self.guard = Some(lock());
        }
    }

    /// Runs queued work until a mark has passed.
    pub fn wait_for(&mut self, context: u64, mark: &Mark) -> Result<(), Failure> {
        self.wait_until(context, |_| mark.has_passed())?;
        self.learn_mark(mark);
        Ok(())
    }

    /// Runs all queued work of the contexts for which a condition holds.
    pub fn wait_for_all(&mut self, context: u64, concerns: impl Fn(&Stream) -> bool) -> Result<(), Failure> {
        let is_idle = |stream: &Stream| !concerns(stream) || stream.queue.is_empty();
        self.wait_until(context, |driver| driver.streams.values().all(is_idle))?;
        let mut clock = Clock::default();
        self.streams.values().filter(|stream| concerns(stream)).for_each(|stream| clock.join(&stream.clock));
        self.learn(&clock);
        Ok(())
    }
}

impl Driver {
    fn new() -> Self {
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

    /// Destroys a context, and all that belongs to it.
    pub fn destroy(&mut self, handle: u64) {
        self.contexts.remove(&handle);
        self.streams.retain(|_, stream| stream.context != handle);
        self.events.retain(|_, event| event.context != handle);
        self.modules.retain(|_, module| module.context != handle);
        self.functions.retain(|_, function| function.context != handle);
        let of_context = self.memory.allocations().iter().filter(|(_, allocation)| allocation.context == handle);
        for address in of_context.map(|(&address, _)| address).collect::<Vec<_>>() {
            self.memory.free(address);
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
            calls_in_children: CALLS_IN_CHILDREN.load(Ordering::Relaxed),
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

/// Returns this thread's identity.
pub(crate) fn this_thread() -> ThreadId {
    thread::current().id()
}
