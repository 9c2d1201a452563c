//! The log of the Rust libraries, as records of Python's `logging`.
//!
//! A thread may log while it holds a lock, and a handler of `logging` may ask the loader for its figures. So records go
//! to a queue, which a thread of its own empties.

use pyo3::prelude::*;
use std::collections::VecDeque;
use std::fmt::{Debug, Write};
use std::mem;
use std::process;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::{EnvFilter, Layer};

/// Most records that wait; further ones are dropped, and counted.
const WAITING_MAX: usize = 1000;

/// Lowest level of `logging` that is forwarded.
static LEAST: AtomicU8 = AtomicU8::new(30);
static WAITING: Mutex<Waiting> = Mutex::new(Waiting { records: VecDeque::new(), dropped: 0 });
/// The process in which a thread empties the queue, or 0.
static EMPTIED_IN: AtomicU32 = AtomicU32::new(0);

/// The queue.
struct Waiting {
    records: VecDeque<Record>,
    /// Records that were dropped since the queue was last empty.
    dropped: u64,
}

/// A lock on the queue: while it is held, no thread adds or takes a record.
pub struct HeldLog(MutexGuard<'static, Waiting>);

/// Holds the queue, so that the process can fork.
pub fn hold() -> HeldLog {
    HeldLog(queue())
}

impl HeldLog {
    /// Drops all records: for a forked process, whose parent logs them.
    pub fn clear(mut self) {
        self.0.records.clear();
        self.0.dropped = 0;
    }
}

struct Record {
    logger: String,
    level: u8,
    message: String,
}

/// Forwards the log from now on. RUST_LOG also prints parts of it to standard error, as with the command.
pub fn begin() {
    let shown = std::env::var_os("RUST_LOG").map(|_| {
        tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_filter(EnvFilter::from_default_env())
    });
    let log = tracing_subscriber::registry().with(Forward.with_filter(IsWanted)).with(shown);
    // Another module of this process that uses the same libraries may have set up a log.
    let _ = tracing::subscriber::set_global_default(log);
}

/// Sets the lowest level of `logging` that is forwarded.
pub fn set_least(level: u8) {
    LEAST.store(level, Ordering::Relaxed);
    tracing::callsite::rebuild_interest_cache();
}

/// Hands all waiting records to `logging`.
pub fn empty(py: Python<'_>) -> PyResult<()> {
    let logging = py.import("logging")?;
    while let Some(record) = waiting(py) {
        let logger = logging.call_method1("getLogger", (record.logger,))?;
        logger.call_method1("log", (record.level, "%s", record.message))?;
    }
    Ok(())
}

/// Takes a record that waits.
fn waiting(py: Python<'_>) -> Option<Record> {
    py.detach(|| {
        let mut queue = queue();
        queue.records.pop_front().or_else(|| dropped(mem::take(&mut queue.dropped)))
    })
}

/// Returns a record that says how many were dropped, unless none was.
fn dropped(count: u64) -> Option<Record> {
    let message =
        format!("{count} records of the log were dropped: {WAITING_MAX} others waited for a slow handler of `logging`");
    (count > 0).then(|| Record { logger: "ddlp".into(), level: number(Level::WARN), message })
}

fn queue() -> MutexGuard<'static, Waiting> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the number that `logging` has for a level.
fn number(level: Level) -> u8 {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        Level::DEBUG => 10,
        Level::TRACE => 5,
    }
}

/// Passes only the records whose level Python wants.
struct IsWanted;

impl<S> tracing_subscriber::layer::Filter<S> for IsWanted {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        metadata.target().starts_with("ddlp") && number(*metadata.level()) >= LEAST.load(Ordering::Relaxed)
    }
}

struct Forward;

impl<S: Subscriber> Layer<S> for Forward {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let mut message = Message::default();
        event.record(&mut message);
        let logger = metadata.target().replacen("ddlp_", "ddlp.", 1).replace("::", ".");
        let record = Record { logger, level: number(*metadata.level()), message: message.0 + &message.1 };
        let mut queue = queue();
        if queue.records.len() < WAITING_MAX {
            queue.records.push_back(record);
        } else {
            queue.dropped += 1;
        }
        drop(queue);
        if EMPTIED_IN.swap(process::id(), Ordering::AcqRel) != process::id() {
            let emptied = thread::Builder::new().name("ddlp-log".into()).spawn(empty_until_none_waits);
            if emptied.is_err() {
                EMPTIED_IN.store(0, Ordering::Release);
            }
        }
    }
}

/// Empties the queue. Prints the exception if `logging` fails, and drops that record.
fn empty_until_none_waits() {
    loop {
        let emptied = Python::try_attach(|py| empty(py).inspect_err(|error| error.print(py)).is_ok());
        EMPTIED_IN.store(0, Ordering::Release);
        // A record may have come since, and seen that this thread still runs.
        let is_over = emptied != Some(true) || queue().records.is_empty();
        if is_over || EMPTIED_IN.swap(process::id(), Ordering::AcqRel) == process::id() {
            return;
        }
    }
}

/// The text of an event: its message, and its fields.
#[derive(Default)]
struct Message(String, String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.1, " {name}={value:?}"),
        };
    }
}
