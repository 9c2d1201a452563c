//! The pool of batch buffers. Its size bounds how far the loader prepares ahead: while no buffer is free, prongs wait.

use memmap2::{Advice, MmapMut};
use std::sync::{Arc, Condvar, Mutex};

/// A bounded number of page-aligned buffers of one size, allocated when first needed and then reused.
#[derive(Debug)]
pub(crate) struct BufferPool {
    bytes: usize,
    count: usize,
    state: Mutex<State>,
    returned: Arc<Condvar>,
}

#[derive(Debug)]
struct State {
    idle: Vec<MmapMut>,
    unmade: usize,
}

impl BufferPool {
    /// Creates a pool of `count` buffers of `bytes` bytes. The pool notifies `returned` whenever a buffer comes back.
    pub fn new(count: usize, bytes: usize, returned: Arc<Condvar>) -> Self {
        Self { bytes, count, state: Mutex::new(State { idle: Vec::new(), unmade: count }), returned }
    }

    /// Returns the number of buffers.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of buffers that can be taken now.
    pub fn free(&self) -> usize {
        let state = self.state.lock().expect("no panic while the pool is locked");
        state.idle.len() + state.unmade
    }

    /// Takes a buffer; `None` when all are on loan. Fails when the operating system refuses memory.
    pub fn take(self: &Arc<Self>) -> std::io::Result<Option<PooledBuffer>> {
        let on_loan = |buffer| Ok(Some(PooledBuffer { buffer: Some(buffer), pool: self.clone() }));
        let mut state = self.state.lock().expect("no panic while the pool is locked");
        if let Some(buffer) = state.idle.pop() {
            return on_loan(buffer);
        }
        if state.unmade == 0 {
            return Ok(None);
        }
        let refused = |error| ddlp_csd::memory::refused(self.bytes as u64, error);
        let buffer = MmapMut::map_anon(self.bytes).map_err(refused)?;
        // With huge pages the kernel clears and maps a large buffer 2 MiB at a time instead of 4 KiB. They are
        // optional.
        let _ = buffer.advise(Advice::HugePage);
        state.unmade -= 1;
        on_loan(buffer)
    }
}

/// A buffer on loan: it returns to its pool when dropped.
#[derive(Debug)]
pub(crate) struct PooledBuffer {
    buffer: Option<MmapMut>,
    pool: Arc<BufferPool>,
}

impl std::ops::Deref for PooledBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.buffer.as_deref().expect("held until dropped")
    }
}

impl std::ops::DerefMut for PooledBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.buffer.as_deref_mut().expect("held until dropped")
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.pool.state.lock().expect("no panic while the pool is locked").idle.push(buffer);
            self.pool.returned.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_is_bounded_and_reuses_buffers() {
        let pool = Arc::new(BufferPool::new(2, 100, Arc::default()));
        let mut first = pool.take().unwrap().unwrap();
        first[0] = 7;
        let _second = pool.take().unwrap().unwrap();
        assert!(pool.take().unwrap().is_none());
        assert_eq!(pool.free(), 0);
        drop(first);
        assert_eq!(pool.free(), 1);
        assert_eq!(pool.take().unwrap().unwrap()[0], 7, "the same memory");
    }
}
