//! The bytes of an extent: one reader reads them, and others wait for that one without a thread.

use std::future::poll_fn;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// An extent's bytes, once they have been read.
#[derive(Debug, Default)]
pub(super) struct ExtentBytes(Mutex<State>);

#[derive(Debug, Default)]
enum State {
    #[default]
    Unread,
    /// Somebody reads them, and these wait.
    Reading(Vec<Waker>),
    There(Arc<Vec<u8>>),
}

/// What one who needs an extent's bytes finds.
pub(super) enum Found {
    There(Arc<Vec<u8>>),
    ReadByOther,
    /// The bytes are to be read with this.
    Unread(Reader),
}

impl ExtentBytes {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks for the bytes. If nobody has read them or reads them, the caller is to read them.
    pub fn find(self: &Arc<Self>) -> Found {
        let mut state = self.state();
        match &*state {
            State::There(bytes) => Found::There(bytes.clone()),
            State::Reading(_) => Found::ReadByOther,
            State::Unread => {
                *state = State::Reading(Vec::new());
                Found::Unread(Reader(self.clone()))
            }
        }
    }

    /// Waits until nobody reads the bytes: they are there, or have to be read again.
    pub async fn is_read(&self) {
        let poll = |context: &mut Context<'_>| match &mut *self.state() {
            State::Reading(waiting) => {
                if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                    waiting.push(context.waker().clone());
                }
                Poll::Pending
            }
            State::Unread | State::There(_) => Poll::Ready(()),
        };
        poll_fn(poll).await;
    }

    /// Ends a read.
    fn end(&self, state: State) {
        if let State::Reading(waiting) = mem::replace(&mut *self.state(), state) {
            waiting.into_iter().for_each(Waker::wake);
        }
    }
}

/// Who reads an extent. If it is dropped without the bytes, somebody else has to read them.
pub(super) struct Reader(Arc<ExtentBytes>);

impl Reader {
    /// Gives the bytes to all who wait, and returns them.
    pub fn give(self, bytes: Vec<u8>) -> Arc<Vec<u8>> {
        let bytes = Arc::new(bytes);
        self.0.end(State::There(bytes.clone()));
        bytes
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let is_reading = matches!(*self.0.state(), State::Reading(_));
        if is_reading {
            self.0.end(State::Unread);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait_for;
    use std::pin::pin;

    #[test]
    fn one_reads_and_the_others_wait_until_the_bytes_are_there_or_the_reader_is_gone() {
        let extent = Arc::new(ExtentBytes::default());
        for is_given_up in [true, false] {
            let Found::Unread(reader) = extent.find() else { panic!("nobody has read it") };
            assert!(matches!(extent.find(), Found::ReadByOther));
            let mut waiting = pin!(extent.is_read());
            assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            let waits = extent.clone();
            let thread = std::thread::spawn(move || wait_for(waits.is_read()));
            if is_given_up {
                drop(reader);
            } else {
                reader.give(vec![7]);
            }
            thread.join().unwrap();
            assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        }
        let Found::There(bytes) = extent.find() else { panic!("it was read") };
        assert_eq!(*bytes, [7]);
    }
}
