//! Waits for a future on the calling thread.

use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};

/// Whether a future was woken since it was polled.
#[derive(Default)]
struct Woken {
    is_woken: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        *self.is_woken.lock().expect("no panic while it is locked") = true;
        self.changed.notify_one();
    }
}

/// Waits on the calling thread until a future is ready, and returns its result. Works within another executor's thread,
/// which stands still meanwhile, as in any read that waits.
pub fn wait_for<T>(future: impl Future<Output = T>) -> T {
    let (woken, mut future) = (Arc::new(Woken::default()), pin!(future));
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return result;
        }
        let expected = "no panic while it is locked";
        let is_woken = woken.is_woken.lock().expect(expected);
        *woken.changed.wait_while(is_woken, |is_woken| !*is_woken).expect(expected) = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    #[test]
    fn a_future_is_polled_again_when_it_was_woken_before_or_during_the_wait() {
        let mut polls = 0;
        let future = poll_fn(|context| {
            polls += 1;
            let waker = context.waker().clone();
            match polls {
                1 => waker.wake(),
                2 => drop(std::thread::spawn(move || waker.wake())),
                _ => return Poll::Ready(polls),
            }
            Poll::Pending
        });
        assert_eq!(wait_for(future), 3);
    }
}
