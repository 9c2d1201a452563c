//! What every call does first: it checks the process, counts, and runs some of the queued work.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::code::{Code, Failure};
use crate::driver::{Context, Driver};
use crate::order::Clock;
use crate::stream::{Mark, Stream};

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
    /// The contexts of this thread; the last one is current. Never dropped, so that calls work while a thread ends.
    static CURRENT: ManuallyDrop<RefCell<Vec<u64>>> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };
    /// As cuThreadExchangeStreamCaptureMode numbers modes.
    static CAPTURE_MODE: Cell<i32> = const { Cell::new(0) };
    static THREAD: u64 = {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

/// Returns this thread's contexts to a function, which may change them.
pub(crate) fn with_current<T>(body: impl FnOnce(&mut Vec<u64>) -> T) -> T {
    CURRENT.with(|contexts| body(&mut contexts.borrow_mut()))
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

/// Returns how often children of the process called.
pub(crate) fn calls_in_children() -> u64 {
    CALLS_IN_CHILDREN.load(Ordering::Relaxed)
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

    /// Returns the stream of a handle, which may belong to a default stream, if the stream's context is current.
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
        let thread = this_thread();
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
        let (mode, thread) = (CAPTURE_MODE.get(), this_thread());
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

/// Returns this thread's number.
pub(crate) fn this_thread() -> u64 {
    THREAD.with(|&thread| thread)
}
