//! A bound on the memory of large images that a process decodes at the same time.
//!
//! Most images are decoded in bands and need little memory. Progressive JPEG needs all coefficients at once, and other
//! formats are decoded whole: with a thread per core, images of some megapixels would add up. Large images take turns;
//! small images never wait.

use crate::jpeg::ffi;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};

/// Memory up to which an image counts as small and takes no turn.
pub const SMALL_BYTES: u64 = 4 << 20;
/// Memory of large images at the same time. An image that needs more is decoded alone.
const AT_ONCE_BYTES: u64 = 32 << 20;

static IN_USE: Mutex<u64> = Mutex::new(0);
static GIVEN_BACK: Condvar = Condvar::new();

/// Whether the program lets large images change the process's allocator.
static MAY_MAP: AtomicBool = AtomicBool::new(false);

/// Has glibc map blocks of a megabyte or more individually as soon as a large image is decoded, in the whole process.
/// Otherwise glibc keeps such blocks once they are freed. For programs, not for libraries: the process belongs to the
/// program.
pub fn map_large_blocks() {
    MAY_MAP.store(true, Ordering::Relaxed);
}

/// The right to use memory for a large image, until the turn is dropped. Free the memory before that.
pub struct Turn {
    bytes: u64,
}

/// The turns of all threads, which none can take or give back meanwhile.
#[derive(Debug)]
pub struct HeldTurns(MutexGuard<'static, u64>);

/// Holds the turns of all threads, so that the process can fork.
pub fn hold_turns() -> HeldTurns {
    HeldTurns(IN_USE.lock().unwrap_or_else(PoisonError::into_inner))
}

impl HeldTurns {
    /// Ends all turns: for a forked process, in which the threads that had them do not exist.
    pub fn end_all(mut self) {
        *self.0 = 0;
    }
}

/// Returns whether an image of `bytes` takes a [`turn`].
pub fn is_large(bytes: u64) -> bool {
    bytes > SMALL_BYTES
}

/// Waits until an image of `bytes` may take its memory; a small one takes no turn. Deadlocks if the thread already
/// holds a turn. A thread that renders a large encoded image holds one.
pub fn turn(bytes: u64) -> Option<Turn> {
    if !is_large(bytes) {
        return None;
    }
    static MAPPED: Once = Once::new();
    if MAY_MAP.load(Ordering::Relaxed) {
        MAPPED.call_once(ffi::map_large_blocks);
    }
    let in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
    let is_full = |in_use: &mut u64| *in_use > 0 && in_use.saturating_add(bytes) > AT_ONCE_BYTES;
    let mut in_use = GIVEN_BACK.wait_while(in_use, is_full).unwrap_or_else(PoisonError::into_inner);
    *in_use += bytes;
    Some(Turn { bytes })
}

impl Drop for Turn {
    fn drop(&mut self) {
        *IN_USE.lock().unwrap_or_else(PoisonError::into_inner) -= self.bytes;
        GIVEN_BACK.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn large_images_take_turns_and_small_ones_do_not() {
        assert!(turn(SMALL_BYTES).is_none() && !is_large(SMALL_BYTES) && is_large(SMALL_BYTES + 1));
        let (now, most) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let (now, most) = (&now, &most);
                scope.spawn(move || {
                    for round in 0..200 {
                        // Some images exceed the bound.
                        let bytes = SMALL_BYTES * (2 + (thread + round) % 9);
                        let _turn = turn(bytes);
                        let counted = bytes.min(AT_ONCE_BYTES);
                        most.fetch_max(now.fetch_add(counted, Ordering::SeqCst) + counted, Ordering::SeqCst);
                        std::thread::yield_now();
                        now.fetch_sub(counted, Ordering::SeqCst);
                    }
                });
            }
        });
        let most = most.into_inner();
        assert!((SMALL_BYTES..=AT_ONCE_BYTES).contains(&most), "{most} bytes at once");
    }
}
