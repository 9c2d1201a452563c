//! Extents of bundles that are read as a whole, since all samples in them will be read soon.
//!
//! An announced extent takes no memory yet. The first read of bytes in it reads all of it, and later reads wait for
//! that or find the bytes in memory. The extents that were not used for longest make room for new ones. What lies in no
//! announced extent is read alone, and so is everything once the extents are forgotten: damaged bytes are read again
//! from where they are stored.
//!
//! For a pack in a file, the kernel reads announced extents ahead, and keeps them in its page cache.

mod bytes;

use super::format::BLOCK_BYTES;
use super::store::{Blocks, BlocksRead};
use crate::{Reading, wait_for};
use bytes::{ExtentBytes, Found};
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{io, mem};

/// Length of an extent. The last one of a bundle may be shorter. Long enough for a disk or a network, and short enough
/// that two halves of a bundle, which are read at different times, have few extents in common.
pub(super) const EXTENT_BYTES: u64 = 256 << 10;

/// The announced extents of a pack. Many threads may use it at once.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    announced: Mutex<Announced>,
    /// Whether an extent was announced and none has been forgotten since.
    is_used: AtomicBool,
    interrupts: AtomicU64,
}

#[derive(Debug, Default)]
struct Announced {
    /// By first byte.
    extents: BTreeMap<u64, Extent>,
    /// Bytes of all extents.
    bytes: u64,
    /// Number of uses so far.
    uses: u64,
}

#[derive(Debug)]
struct Extent {
    end: u64,
    /// The last use.
    used: u64,
    bytes: Arc<ExtentBytes>,
}

impl Announced {
    /// Returns the extent that has the byte at `offset`.
    fn find(&mut self, offset: u64) -> Option<(Range<u64>, &mut Extent)> {
        let (&start, extent) = self.extents.range_mut(..=offset).next_back()?;
        (offset < extent.end).then_some((start..extent.end, extent))
    }

    fn remove(&mut self, start: u64) {
        if let Some(extent) = self.extents.remove(&start) {
            self.bytes -= extent.end - start;
        }
    }

    /// Adds an extent. Returns false if it is there.
    fn add(&mut self, extent: Range<u64>, most: u64) -> bool {
        self.uses += 1;
        let used = self.uses;
        if let Some((found, known)) = self.find(extent.start) {
            if found == extent {
                known.used = used;
                return false;
            }
            // It ends elsewhere at another fidelity.
            let start = found.start;
            self.remove(start);
        }
        let bytes = extent.end - extent.start;
        while self.bytes + bytes > most
            && let Some((&oldest, _)) = self.extents.iter().min_by_key(|(_, extent)| extent.used)
        {
            self.remove(oldest);
        }
        self.bytes += bytes;
        self.extents.insert(extent.start, Extent { end: extent.end, used, bytes: Arc::default() });
        true
    }

    /// Returns the extents in which these bytes lie, or nothing if some lie in none.
    fn around(&mut self, bytes: &Range<u64>) -> Vec<(Range<u64>, Arc<ExtentBytes>)> {
        let (mut around, mut at) = (Vec::new(), bytes.start);
        self.uses += 1;
        let used = self.uses;
        while at < bytes.end {
            let Some((extent, found)) = self.find(at) else { return Vec::new() };
            found.used = used;
            around.push((extent.clone(), found.bytes.clone()));
            at = extent.end;
        }
        around
    }
}

/// Returns the extents of a bundle's bytes `bundle` in which these bytes lie.
pub(super) fn extents_around(bundle: &Range<u64>, bytes: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let (bundle, end) = (bundle.clone(), bytes.end.min(bundle.end));
    let first = bundle.start + (bytes.start - bundle.start) / EXTENT_BYTES * EXTENT_BYTES;
    (first..end).step_by(EXTENT_BYTES as usize).map(move |start| start..(start + EXTENT_BYTES).min(bundle.end))
}

impl ReadAhead {
    fn announced(&self) -> MutexGuard<'_, Announced> {
        self.announced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces an extent; all extents together have at most `most` bytes, or are this one alone. Returns false if it
    /// was announced before.
    pub(super) fn announce(&self, extent: Range<u64>, most: u64) -> bool {
        let is_new = self.announced().add(extent, most);
        self.is_used.store(true, Ordering::Release);
        is_new
    }

    /// Returns whether an extent was announced and none has been forgotten since.
    pub(super) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    /// Forgets all extents.
    pub(super) fn forget(&self) {
        if self.is_used.swap(false, Ordering::AcqRel) {
            *self.announced() = Announced::default();
        }
    }

    /// Returns the bytes of all extents, read or not.
    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> u64 {
        self.announced().bytes
    }

    /// Forgets all extents, and fails reads that wait for other ones.
    pub(super) fn interrupt(&self) {
        self.interrupts.fetch_add(1, Ordering::AcqRel);
        self.forget();
    }

    /// Makes these reads of `blocks`: from extents that are announced, or alone.
    pub(super) fn read_many(&self, blocks: &dyn Blocks, reads: &mut [BlocksRead<'_>]) -> io::Result<()> {
        if !self.is_used() {
            return blocks.read_many(reads);
        }
        let mut started = Vec::with_capacity(reads.len());
        for BlocksRead { offset, memory, place } in reads {
            started.push(BlocksRead { offset: *offset, memory, place: place.clone() });
        }
        wait_for(self.start_reads(blocks, started))
    }

    /// Begins the reads of [`read_many`](Self::read_many).
    pub(super) fn start_reads<'r>(
        &'r self,
        blocks: &'r dyn Blocks,
        reads: Vec<BlocksRead<'r>>,
    ) -> Reading<'r, io::Error> {
        if !self.is_used() {
            return blocks.start_reads(reads);
        }
        let interrupts = self.interrupts.load(Ordering::Acquire);
        let (mut extents, mut alone, mut within) = (BTreeMap::new(), Vec::new(), Vec::new());
        {
            let mut announced = self.announced();
            for read in reads {
                let around = announced.around(&(read.offset..read.offset + read.place.len() as u64));
                if around.is_empty() {
                    alone.push(read);
                } else {
                    extents.extend(around.into_iter().map(|(extent, bytes)| (extent.start, (extent.end, bytes))));
                    within.push(read);
                }
            }
        }
        Box::pin(async move {
            let mut there = BTreeMap::new();
            loop {
                // What nobody reads is read before the others are waited for, so that no two reads wait for each other.
                let (mut missing, mut awaited) = (Vec::new(), Vec::new());
                for (&start, (end, bytes)) in &extents {
                    if there.contains_key(&start) {
                        continue;
                    }
                    match bytes.find() {
                        Found::There(bytes) => drop(there.insert(start, bytes)),
                        Found::ReadByOther => awaited.push(bytes.clone()),
                        Found::Unread(reader) => {
                            let length = (end - start) as usize;
                            missing.push((start, reader, memory(length)?, length));
                        }
                    }
                }
                let mut reads: Vec<BlocksRead<'_>> = mem::take(&mut alone);
                reads.extend(missing.iter_mut().map(|(offset, _, memory, length)| {
                    let place = 0..*length;
                    BlocksRead { offset: *offset, memory, place }
                }));
                if !reads.is_empty() {
                    if self.interrupts.load(Ordering::Acquire) != interrupts {
                        return Err(Errno::EINTR.into());
                    }
                    blocks.start_reads(reads).await?;
                }
                for (start, reader, memory, _) in missing {
                    there.insert(start, reader.give(memory));
                }
                if awaited.is_empty() {
                    break;
                }
                for bytes in awaited {
                    bytes.is_read().await;
                }
            }
            for BlocksRead { offset, memory, place } in within {
                copy(&there, offset, &mut memory[place]);
            }
            Ok(())
        })
    }
}

/// Returns memory for an extent, with room for whole blocks.
fn memory(bytes: usize) -> io::Result<Vec<u8>> {
    let (mut memory, bytes) = (Vec::new(), bytes.next_multiple_of(BLOCK_BYTES as usize));
    memory.try_reserve_exact(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
    memory.resize(bytes, 0);
    Ok(memory)
}

/// Fills `out` with the bytes from `offset` on, which lie in extents that follow each other.
fn copy(extents: &BTreeMap<u64, Arc<Vec<u8>>>, mut offset: u64, mut out: &mut [u8]) {
    while !out.is_empty() {
        let (start, bytes) = extents.range(..=offset).next_back().expect("each read lies in extents");
        let bytes = &bytes[(offset - start) as usize..];
        // Behind an extent's bytes may be room. The next extent begins there.
        let next = extents.range(offset + 1..).next().map_or(u64::MAX, |(&next, _)| next);
        let length = out.len().min(bytes.len()).min((next - offset).try_into().unwrap_or(usize::MAX));
        let (now, rest) = out.split_at_mut(length);
        now.copy_from_slice(&bytes[..length]);
        (out, offset) = (rest, offset + length as u64);
    }
}
