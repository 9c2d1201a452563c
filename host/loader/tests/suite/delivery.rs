//! A delivery target of the consumer's own: batches lie in its memory, and are delivered only when it says so.

#![allow(unsafe_code)]

use super::{SAMPLES, cifar, images, loader, wait_until};
use ddlp_host::report::FaultKind;
use ddlp_host::{
    BatchBuffer, BatchMemory, BufferNeed, DeliveryError, DeliveryTarget, Digest, FieldError, Filled, LoaderError,
    LoaderErrorKind, MakeReady, Strategy,
};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

/// Fills a buffer behind the batch's rows.
const MARK: u8 = 0xA5;

/// What a target does when a batch is ready.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Act {
    /// Lets the batch go on.
    Pass,
    /// Fails at this batch, counted in the order in which batches become ready.
    FailAt(usize),
    /// Keeps the thread until [`ReadyGate::open`].
    WaitForGate,
    /// Hides the rows in memory that only a device can read.
    Upload,
}

/// Buffers of a size fixed at the start, and what happened to them.
#[derive(Debug)]
struct Shelf {
    need: BufferNeed,
    act: Act,
    buffers: Mutex<Vec<Vec<u64>>>,
    /// Calls of `make_ready`, and those that have returned.
    asked: AtomicUsize,
    ready: AtomicUsize,
    gate: ReadyGate,
    /// Free buffers when the run ended.
    free_at_end: OnceLock<usize>,
}

/// Holds threads back until it opens.
#[derive(Debug, Default)]
struct ReadyGate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl ReadyGate {
    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    fn wait(&self) {
        let is_open = self.is_open.lock().unwrap();
        drop(self.opened.wait_while(is_open, |is_open| !*is_open).unwrap());
    }
}

#[derive(Clone, Debug)]
struct OwnTarget(Arc<Shelf>);

/// A buffer, and later the memory of its batch.
#[derive(Debug)]
struct Lent {
    words: Vec<u64>,
    /// Bytes of the batch, once it is ready.
    filled: usize,
    shelf: Arc<Shelf>,
}

impl DeliveryTarget for OwnTarget {
    fn count(&self) -> usize {
        self.0.need.count
    }

    fn free(&self) -> usize {
        self.0.buffers.lock().unwrap().len()
    }

    fn accepts_slots(&self) -> bool {
        false
    }

    fn end(&self) {
        self.0.free_at_end.set(self.free()).expect("a run ends once");
    }

    fn take(&self) -> io::Result<Option<Box<dyn BatchBuffer>>> {
        let words = self.0.buffers.lock().unwrap().pop();
        Ok(words.map(|words| Box::new(Lent { words, filled: 0, shelf: self.0.clone() }) as Box<dyn BatchBuffer>))
    }
}

// SAFETY: the buffer owns its memory, which does not move before the buffer is dropped.
unsafe impl BatchBuffer for Lent {
    fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = self.words.len() * size_of::<u64>();
        // SAFETY: the words are as many initialised bytes, borrowed for as long as the result.
        let all = unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast::<u8>(), bytes) };
        &mut all[..self.shelf.need.bytes]
    }
}

impl MakeReady for Lent {
    fn make_ready(mut self: Box<Self>, filled: Filled<'_>) -> Result<Box<dyn BatchMemory>, DeliveryError> {
        let number = self.shelf.asked.fetch_add(1, Ordering::SeqCst);
        match self.shelf.act {
            Act::FailAt(at) if at == number => return Err(DeliveryError::new("the copy failed")),
            Act::WaitForGate => self.shelf.gate.wait(),
            Act::Pass | Act::Upload | Act::FailAt(_) => {}
        }
        assert!(filled.fields.is_empty(), "they lie elsewhere");
        self.filled = filled.rows;
        self.bytes_mut()[filled.rows..].fill(MARK);
        self.shelf.ready.fetch_add(1, Ordering::SeqCst);
        Ok(self)
    }
}

// SAFETY: as above.
unsafe impl BatchMemory for Lent {
    fn address(&self) -> NonNull<u8> {
        NonNull::from(&self.words[..]).cast()
    }

    fn bytes(&self) -> Option<&[u8]> {
        (self.shelf.act != Act::Upload).then(|| read_by_device(self.address().as_ptr(), self.filled))
    }
}

/// Reads a buffer's memory, as a device does when a target delivers to it.
fn read_by_device<'a>(address: *const u8, bytes: usize) -> &'a [u8] {
    // SAFETY: the caller holds the buffer with this memory.
    unsafe { std::slice::from_raw_parts(address, bytes) }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.shelf.buffers.lock().unwrap().push(std::mem::take(&mut self.words));
        self.shelf.need.returned.notify();
    }
}

/// Result of a function that makes a target.
type Made = Result<Arc<dyn DeliveryTarget>, DeliveryError>;

/// Place where a target's shelf appears once the target is made.
type ShelfPlace = Arc<OnceLock<Arc<Shelf>>>;

/// Returns a function that makes a target, and the place where the target appears once it is made.
fn target(act: Act) -> (impl Fn(BufferNeed) -> Made + Send + Sync + 'static, ShelfPlace) {
    let made = ShelfPlace::default();
    let place = made.clone();
    let make = move |need: BufferNeed| -> Made {
        let words = need.bytes.div_ceil(size_of::<u64>());
        let buffers = Mutex::new(vec![vec![0; words]; need.count]);
        let (asked, ready) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (gate, free_at_end) = (ReadyGate::default(), OnceLock::new());
        let shelf = Arc::new(Shelf { need, act, buffers, asked, ready, gate, free_at_end });
        place.set(shelf.clone()).expect("a loader makes one target");
        Ok(Arc::new(OwnTarget(shelf)))
    };
    (make, made)
}

/// Reads a dataset's batches from a loader.
fn batches(loader: ddlp_host::Loader) -> Vec<(Vec<u64>, Vec<u8>)> {
    loader
        .map(|batch| {
            let batch = batch.unwrap_or_else(|error| panic!("{error}"));
            (batch.sample_ids().to_vec(), images(&batch).to_vec())
        })
        .collect()
}

#[test]
fn batches_in_a_targets_own_memory_are_those_of_the_host_pool() {
    let folder = cifar();
    let (make, made) = target(Act::Pass);
    let own = batches(loader(&folder).with(|o| o.epochs = 2).deliver_to(make).build().unwrap());
    assert_eq!(own, batches(loader(&folder).with(|o| o.epochs = 2).build().unwrap()));
    let shelf = made.get().unwrap().clone();
    assert_eq!(shelf.ready.load(Ordering::SeqCst), 2 * SAMPLES / 8, "every batch was made ready once");
    assert_eq!(shelf.buffers.lock().unwrap().len(), shelf.need.count, "every buffer came back");
}

#[test]
fn images_may_lie_where_only_a_device_can_read_them() {
    let folder = cifar();
    let (make, made) = target(Act::Upload);
    let expected = batches(loader(&folder).build().unwrap());
    let uploaded = loader(&folder).deliver_to(make).build().unwrap();
    for (batch, (ids, rows)) in uploaded.zip(expected) {
        let batch = batch.unwrap();
        let images = batch.field("image").unwrap();
        let on_device = FieldError::OnDevice { field: "image".into() };
        assert_eq!((images.bytes(), images.as_slice::<u8>()), (Err(on_device.clone()), Err(on_device.clone())));
        assert_eq!(Digest::default().update(&batch), Err(on_device));
        // Its place, size and labels are known all the same.
        let shared = images.share();
        assert!(read_by_device(shared.as_ptr(), rows.len()) == rows && shared.writable().is_none());
        assert_eq!(
            (batch.sample_ids(), batch.labels().unwrap().len(), images.shape()[0]),
            (&ids[..], ids.len(), ids.len())
        );
        let error = batch.into_owned().unwrap_err();
        assert!(matches!(error, LoaderError::Field(FieldError::OnDevice { .. })), "{error}");
    }
    let shelf = made.get().unwrap().clone();
    assert_eq!(shelf.buffers.lock().unwrap().len(), shelf.need.count, "every buffer came back");
}

#[test]
fn a_target_that_fails_ends_the_run_when_the_batch_is_due() {
    let folder = cifar();
    let (make, made) = target(Act::FailAt(3));
    // One thread makes batches ready in the order of delivery.
    let mut loader = loader(&folder).with(|o| o.threads = Some(1)).deliver_to(make).build().unwrap();
    for number in 0..3 {
        assert_eq!(loader.next().unwrap().unwrap().index(), number);
    }
    let error = loader.next().unwrap().unwrap_err();
    assert_eq!(error.kind(), LoaderErrorKind::Delivery);
    let source = std::error::Error::source(&error).expect("it keeps its source");
    assert_eq!(source.to_string(), "the copy failed");
    assert!(loader.next().is_none());
    drop(loader);
    let shelf = made.get().unwrap().clone();
    assert_eq!(shelf.buffers.lock().unwrap().len(), shelf.need.count, "every buffer came back");
}

#[test]
fn a_target_learns_of_the_end_when_only_the_consumer_has_buffers() {
    let folder = cifar();
    let (make, made) = target(Act::Pass);
    let mut loader = loader(&folder).deliver_to(make).build().unwrap();
    let (shelf, progress) = (made.get().unwrap().clone(), loader.progress());
    let kept = loader.next().unwrap().unwrap();
    wait_until("another batch is ready", || progress.snapshot().ready > 0);
    assert_eq!(shelf.free_at_end.get(), None);
    drop(loader);
    assert_eq!(shelf.free_at_end.get(), Some(&(shelf.need.count - 1)), "batches that nobody got have gone");
    assert_eq!((kept.len(), progress.state().delivered, progress.report().images), (8, vec![0], 8));
}

#[test]
fn a_batch_is_delivered_only_once_its_target_has_made_it_ready() {
    let folder = cifar();
    let (make, made) = target(Act::WaitForGate);
    let mut loader = loader(&folder).deliver_to(make).build().unwrap();
    let shelf = made.get().unwrap().clone();
    let progress = loader.progress();
    let opener = std::thread::spawn(move || {
        wait_until("both threads have filled a batch, and wait with it", || shelf.asked.load(Ordering::SeqCst) >= 2);
        let seen = progress.snapshot();
        assert_eq!((seen.delivered, shelf.ready.load(Ordering::SeqCst)), (0, 0));
        assert_eq!(seen.prongs[0].outstanding, 0, "the CPU is done with them");
        shelf.gate.open();
        shelf
    });
    let first = loader.next().unwrap().unwrap();
    let shelf = opener.join().unwrap();
    assert!(shelf.ready.load(Ordering::SeqCst) >= 1);
    assert_eq!((first.index(), first.len()), (0, 8));
    assert_eq!(1 + loader.count(), SAMPLES / 8);
}

#[test]
fn a_consumer_that_waits_for_the_target_is_not_told_that_it_keeps_batches() {
    let folder = cifar();
    let (make, made) = target(Act::WaitForGate);
    let builder =
        loader(&folder).with(|o| (o.buffers, o.stall_after) = (2, Duration::from_millis(100))).deliver_to(make);
    let mut loader = builder.build().unwrap();
    let (shelf, progress) = (made.get().unwrap().clone(), loader.progress());
    let opener = std::thread::spawn(move || {
        wait_until("both buffers are with the target", || shelf.asked.load(Ordering::SeqCst) >= 2);
        // A stall that was named before may have had another reason.
        let before = progress.snapshot().faults;
        wait_until("the loader says what the consumer waits for", || progress.snapshot().faults > before);
        shelf.gate.open();
    });
    assert_eq!(loader.by_ref().count(), SAMPLES / 8);
    opener.join().unwrap();
    let kinds: Vec<FaultKind> = loader.report().faults.iter().map(|fault| fault.kind).collect();
    assert!(kinds.contains(&FaultKind::Stall) && !kinds.contains(&FaultKind::Kept), "{kinds:?}");
}

#[test]
fn a_target_that_cannot_be_made_is_an_error_of_the_build() {
    let folder = cifar();
    let builder = loader(&folder)
        .with(|o| o.strategy = Strategy::Cpu)
        .deliver_to(|need| Err(DeliveryError::new(format!("no device for {} buffers", need.count))));
    let error = builder.with(|o| o.buffers = 5).build().map(drop).unwrap_err();
    assert!(matches!(&error, LoaderError::Delivery(why) if why.to_string() == "no device for 5 buffers"), "{error}");
}
