//! A pair on its way to the consumer: a prong fills it, its copy is queued, and it becomes the memory of a batch.

use super::returning::CopiedSlot;
use super::{Pair, Pairs, megabytes};
use crate::device::ended;
use crate::error::CudaError;
use crate::pinned::Pinned;
use crate::queue::Event;
use ddlp_host::{BatchBuffer, BatchMemory, DeliveryError, Filled, MakeReady};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A pair on loan to a prong.
#[derive(Debug)]
pub(super) struct Filling {
    pub pair: Option<Pair>,
    pub pairs: Arc<Pairs>,
}

impl Filling {
    fn host(&mut self) -> &mut Pinned {
        self.pair.as_mut().and_then(|pair| pair.host.as_mut()).expect("a pair on loan has memory")
    }

    /// Queues the copy of a batch, whose rows lie in the pair or in a slot. Returns the batch's memory.
    fn upload(mut self, slot: Option<CopiedSlot>, filled: Filled<'_>) -> Result<Box<dyn BatchMemory>, CudaError> {
        let pairs = self.pairs.clone();
        pairs.check()?;
        // Kept until the end, so that what follows finds the context current.
        let entered = pairs.device.enter()?;
        self.host().register(&pairs.device, &format!("a buffer of {}", megabytes(pairs.need.bytes)))?;
        let pair = self.pair.as_ref().expect("on loan");
        let host = pair.host.as_ref().expect("a pair on loan has memory").bytes();
        let queued = match &slot {
            None => pairs.copy(entered.driver(), pair, &[(&host[..filled.end()], 0)], &[&pair.copied]),
            Some(CopiedSlot { rows, copied }) => {
                let rows = rows.bytes().expect("host and drive share the slot");
                let fields = filled.fields.first().map_or(filled.end(), |first| first.start);
                let parts = [(&rows[..filled.rows], 0), (&host[fields..filled.end()], fields)];
                pairs.copy(entered.driver(), pair, &parts, &[&pair.copied, copied])
            }
        };
        if let Err(error) = queued {
            // Pair and slot go back at once: nothing may use them any more.
            ended(pairs.copies.synchronize());
            return Err(pairs.failed(error));
        }
        if let Some(slot) = slot {
            pairs.lock().returning.add_slot(slot);
            pairs.changed.notify_all();
        }
        let pair = Mutex::new(self.pair.take());
        Ok(Box::new(CudaMemory { pair, pairs: pairs.clone(), fields: filled.fields.into() }))
    }
}

// SAFETY: the pair owns its mapping, which stays where it is. The device copies from it only after it was made ready,
// and the pair is lent again only when that copy is done.
unsafe impl BatchBuffer for Filling {
    fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = self.pairs.need.bytes;
        &mut self.host().bytes_mut()[..bytes]
    }

    fn make_ready_from(
        mut self: Box<Self>,
        rows: Box<dyn BatchMemory>,
        filled: Filled<'_>,
    ) -> Result<Box<dyn BatchMemory>, DeliveryError> {
        let pairs = self.pairs.clone();
        // Kept until the end, so that what follows finds the context current.
        let _entered = pairs.device.enter()?;
        if !self.pairs.slots.register(&self.pairs.device, &*rows, filled.rows) {
            let slot = rows.bytes().expect("host and drive share the slot");
            self.bytes_mut()[..filled.rows].copy_from_slice(&slot[..filled.rows]);
            return Ok(self.upload(None, filled)?);
        }
        let copied = Event::new(&self.pairs.device)?;
        Ok(self.upload(Some(CopiedSlot { rows, copied }), filled)?)
    }
}

impl MakeReady for Filling {
    fn make_ready(self: Box<Self>, filled: Filled<'_>) -> Result<Box<dyn BatchMemory>, DeliveryError> {
        Ok(self.upload(None, filled)?)
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        if let Some(pair) = self.pair.take()
            && self.pairs.device.is_home()
        {
            self.pairs.put(pair);
        }
    }
}

/// A batch on the device, or on its way there. Its pair leaves it when the batch is finished.
#[derive(Debug)]
pub(crate) struct CudaMemory {
    pair: Mutex<Option<Pair>>,
    pub pairs: Arc<Pairs>,
    /// Where the values of each further field lie in the pair.
    pub fields: Box<[Range<usize>]>,
}

impl CudaMemory {
    /// Returns whether the batch was finished before.
    pub fn is_finished(&self) -> bool {
        self.pair().is_none()
    }

    /// Returns the pair; `None` if the batch was finished before.
    pub fn pair(&self) -> MutexGuard<'_, Option<Pair>> {
        self.pair.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: the memory has no bytes for this process, and nothing can be read at its address.
unsafe impl BatchMemory for CudaMemory {
    fn address(&self) -> NonNull<u8> {
        NonNull::<u64>::dangling().cast()
    }

    fn bytes(&self) -> Option<&[u8]> {
        None
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        if self.pairs.device.is_home()
            && let Some(pair) = self.pair().take()
        {
            self.pairs.put_unused(pair);
        }
    }
}
