//! A signal for threads that wait for work.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// Wakes threads that wait for work. Anybody may notify it, whatever locks he holds: a thread that is about to wait
/// misses nothing, since it waits only for changes after those that it [has seen](Self::seen).
#[derive(Debug, Default)]
pub(crate) struct Signal {
    changes: AtomicU64,
    waiting: Mutex<()>,
    changed: Condvar,
}

impl Signal {
    /// Returns the number of changes so far, for [`wait`](Self::wait). Call this before you look for work.
    pub fn seen(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Wakes one thread, which finds work.
    pub fn notify_one(&self) {
        self.change();
        self.changed.notify_one();
    }

    /// Wakes all threads.
    pub fn notify_all(&self) {
        self.change();
        self.changed.notify_all();
    }

    fn change(&self) {
        let _waiting = self.waiting.lock().expect("no panic while it is locked");
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Waits for a change after those that were `seen`, or until the time is over. May return earlier.
    pub fn wait(&self, seen: u64, within: Option<Duration>) {
        let waiting = self.waiting.lock().expect("no panic while it is locked");
        if self.seen() != seen {
            return;
        }
        let expected = "no panic while it is locked";
        match within {
            Some(time) => drop(self.changed.wait_timeout(waiting, time).expect(expected)),
            None => drop(self.changed.wait(waiting).expect(expected)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_change_before_the_wait_ends_it_and_so_does_one_during_it() {
        let signal = Arc::new(Signal::default());
        let seen = signal.seen();
        signal.notify_one();
        signal.wait(seen, None);
        let seen = signal.seen();
        let other = signal.clone();
        let notifying = std::thread::spawn(move || other.notify_all());
        while signal.seen() == seen {
            signal.wait(seen, None);
        }
        notifying.join().unwrap();
    }
}
