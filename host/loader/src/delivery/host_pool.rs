//! The default delivery target: buffers in this process's memory.

#![allow(unsafe_code)]

use super::{BatchBuffer, BatchMemory, BufferNeed, BufferReturned, DeliveryError, DeliveryTarget, Filled, MakeReady};
use crate::forking::Home;
use memmap2::{Advice, MmapMut, MmapRaw};
use std::io;
use std::mem;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};

/// A bounded number of page-aligned buffers of one size, allocated when first needed and then reused.
#[derive(Debug)]
pub(crate) struct HostPool(Arc<PoolMemory>);

#[derive(Debug)]
struct PoolMemory {
    bytes: usize,
    count: usize,
    home: Home,
    buffers: Mutex<IdleBuffers>,
    returned: BufferReturned,
}

/// The buffers that are not on loan.
#[derive(Debug)]
struct IdleBuffers {
    idle: Vec<MmapRaw>,
    unmade: usize,
    /// Whether buffers that return are freed.
    is_over: bool,
}

impl HostPool {
    /// Creates a pool without memory.
    pub fn new(need: BufferNeed) -> Self {
        let BufferNeed { count, bytes, returned, .. } = need;
        Self(Arc::new(PoolMemory {
            bytes,
            count,
            home: Home::here(),
            buffers: Mutex::new(IdleBuffers { idle: Vec::new(), unmade: count, is_over: false }),
            returned,
        }))
    }
}

impl PoolMemory {
    fn lock(&self) -> MutexGuard<'_, IdleBuffers> {
        self.buffers.lock().expect("no panic while the pool is locked")
    }
}

impl DeliveryTarget for HostPool {
    fn count(&self) -> usize {
        self.0.count
    }

    fn free(&self) -> usize {
        let buffers = self.0.lock();
        buffers.idle.len() + buffers.unmade
    }

    /// Slots are memory of this process, as the pool's buffers are.
    fn accepts_slots(&self) -> bool {
        true
    }

    fn take(&self) -> io::Result<Option<Box<dyn BatchBuffer>>> {
        let on_loan = |map: MmapRaw| -> io::Result<Option<Box<dyn BatchBuffer>>> {
            Ok(Some(Box::new(PooledBuffer { map: Some(map), pool: self.0.clone() })))
        };
        let mut buffers = self.0.lock();
        if let Some(map) = buffers.idle.pop() {
            return on_loan(map);
        }
        if buffers.unmade == 0 {
            return Ok(None);
        }
        let refused = |error| ddlp_csd::memory::refused(self.0.bytes as u64, error);
        let map = MmapMut::map_anon(self.0.bytes).map_err(refused)?;
        // With huge pages the kernel clears and maps a large buffer 2 MiB at a time instead of 4 KiB. They are
        // optional.
        let _ = map.advise(Advice::HugePage);
        buffers.unmade -= 1;
        on_loan(map.into())
    }

    fn end(&self) {
        let mut buffers = self.0.lock();
        buffers.is_over = true;
        buffers.unmade += buffers.idle.len();
        let idle = mem::take(&mut buffers.idle);
        drop(buffers);
        // The kernel takes a while for large mappings.
        drop(idle);
    }
}

/// A buffer on loan: it returns to its pool when dropped. In a forked process it is a copy of its own, which is freed.
#[derive(Debug)]
struct PooledBuffer {
    map: Option<MmapRaw>,
    pool: Arc<PoolMemory>,
}

impl PooledBuffer {
    fn map(&self) -> &MmapRaw {
        self.map.as_ref().expect("held until dropped")
    }
}

// SAFETY: the buffer owns its mapping, which stays where it is until the buffer is dropped.
unsafe impl BatchBuffer for PooledBuffer {
    fn bytes_mut(&mut self) -> &mut [u8] {
        let map = self.map();
        // SAFETY: the mapping has these bytes for as long as the buffer lives, and is borrowed from it alone.
        unsafe { std::slice::from_raw_parts_mut(map.as_mut_ptr(), map.len()) }
    }
}

impl MakeReady for PooledBuffer {
    fn make_ready(self: Box<Self>, _: Filled<'_>) -> Result<Box<dyn BatchMemory>, DeliveryError> {
        Ok(self)
    }
}

// SAFETY: as above; the mapping can be written.
unsafe impl BatchMemory for PooledBuffer {
    fn address(&self) -> NonNull<u8> {
        NonNull::new(self.map().as_mut_ptr()).expect("a mapping has an address")
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn bytes(&self) -> Option<&[u8]> {
        let map = self.map();
        // SAFETY: the mapping has these bytes for as long as the buffer lives.
        Some(unsafe { std::slice::from_raw_parts(map.as_ptr(), map.len()) })
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        if let Some(map) = self.map.take().filter(|_| self.pool.home.is_here()) {
            let mut buffers = self.pool.lock();
            if buffers.is_over {
                buffers.unmade += 1;
                drop(buffers);
                drop(map);
            } else {
                buffers.idle.push(map);
                drop(buffers);
            }
            self.pool.returned.notify();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forking::tests::in_fork;

    const ALL: Filled<'static> = Filled { rows: 100, fields: &[] };

    fn need(count: usize) -> BufferNeed {
        BufferNeed { count, bytes: 100, table: Arc::default(), returned: BufferReturned::default() }
    }

    #[test]
    fn a_fork_drops_a_batch_whatever_its_parent_is_doing() {
        let pool = HostPool::new(need(1));
        let mut memory = Some(pool.take().unwrap().unwrap().make_ready(ALL).unwrap());
        let locked = pool.0.lock();
        in_fork(|| drop(memory.take()));
        drop(locked);
        drop(memory);
        assert_eq!(pool.free(), 1);
    }

    #[test]
    fn the_pool_is_bounded_and_reuses_buffers() {
        let pool = HostPool::new(need(2));
        let mut first = pool.take().unwrap().unwrap();
        first.bytes_mut()[0] = 7;
        let _second = pool.take().unwrap().unwrap();
        assert!(pool.take().unwrap().is_none());
        assert_eq!(pool.free(), 0);
        drop(first);
        assert_eq!(pool.free(), 1);
        assert_eq!(pool.take().unwrap().unwrap().bytes_mut()[0], 7, "the same memory");
    }

    #[test]
    fn after_the_end_only_buffers_on_loan_have_memory() {
        let pool = HostPool::new(need(3));
        let [idle, kept] = [(); 2].map(|()| pool.take().unwrap().unwrap().make_ready(ALL).unwrap());
        drop(idle);
        let made = |pool: &HostPool| pool.count() - pool.0.lock().unmade;
        assert_eq!(made(&pool), 2);
        pool.end();
        assert_eq!((made(&pool), pool.free(), kept.bytes().unwrap()), (1, 2, &[0; 100][..]));
        drop(kept);
        assert_eq!((made(&pool), pool.free(), pool.0.lock().idle.len()), (0, 3, 0));
    }

    #[test]
    fn a_batch_that_is_ready_keeps_its_buffer_until_it_is_dropped() {
        let pool = HostPool::new(need(1));
        let mut buffer = pool.take().unwrap().unwrap();
        buffer.bytes_mut()[99] = 7;
        let memory = buffer.make_ready(ALL).unwrap();
        assert_eq!((memory.bytes().unwrap()[99], pool.free()), (7, 0));
        drop(memory);
        assert_eq!(pool.free(), 1);
    }
}
