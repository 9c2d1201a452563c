//! A store on a network whose bytes fail at one place.

use crate::FetchDepth;
use crate::pack::Blocks;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// What happens to the byte at a place of the pack.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// The first reads bring the byte changed, each in another way.
    Flips { reads: u32 },
    /// Every read brings the byte changed in the same way.
    Stored,
    /// As [`Stored`](Self::Stored), and the superblock is another one.
    Replaced,
    /// The first reads of the byte fail.
    Fails { reads: u32, errno: i32 },
}

/// A pack's bytes in memory, with a fault.
#[derive(Clone, Debug, Default)]
pub(super) struct Faulty(Arc<Mutex<Store>>);

#[derive(Debug, Default)]
struct Store {
    bytes: Vec<u8>,
    fault: Option<(u64, Fault)>,
    /// Reads of the faulty byte so far.
    reads_of_place: u32,
    /// The extents that were read.
    read: Vec<Range<u64>>,
    join_gap: Option<u64>,
    samples: usize,
}

impl Faulty {
    /// Returns a store of these bytes, in which `samples` are fetched at the same time.
    pub(super) fn new(bytes: Vec<u8>, samples: usize) -> Self {
        Self(Arc::new(Mutex::new(Store { bytes, samples, ..Store::default() })))
    }

    /// From now on, joins extents with at most `gap` bytes between them.
    pub(super) fn join(&self, gap: Option<u64>) {
        self.0.lock().unwrap().join_gap = gap;
    }

    /// Returns the bytes of an extent.
    pub(super) fn bytes(&self, extent: &Range<u64>) -> Vec<u8> {
        self.0.lock().unwrap().bytes[extent.start as usize..extent.end as usize].to_vec()
    }

    /// Has this fault at this place from now on, and forgets what was read.
    pub(super) fn begin(&self, fault: Option<(u64, Fault)>) {
        let mut store = self.0.lock().unwrap();
        (store.fault, store.reads_of_place) = (fault, 0);
        store.read.clear();
    }

    /// Returns the extents within `of` that were read since [`begin`](Self::begin).
    pub(super) fn extents(&self, of: &Range<u64>) -> Vec<Range<u64>> {
        self.0.lock().unwrap().read.iter().filter(|extent| of.contains(&extent.start)).cloned().collect()
    }
}

impl Blocks for Faulty {
    fn len_bytes(&self) -> u64 {
        self.0.lock().unwrap().bytes.len() as u64
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let store = &mut *self.0.lock().unwrap();
        let extent = offset..offset + out.len() as u64;
        out.copy_from_slice(&store.bytes[extent.start as usize..extent.end as usize]);
        if let Some((place, fault)) = store.fault {
            if extent.contains(&place) {
                store.reads_of_place += 1;
                let (byte, read) = (&mut out[(place - offset) as usize], store.reads_of_place);
                match fault {
                    Fault::Flips { reads } if read <= reads => *byte ^= read as u8,
                    Fault::Stored | Fault::Replaced => *byte ^= 0x40,
                    Fault::Fails { reads, errno } if read <= reads => return Err(io::Error::from_raw_os_error(errno)),
                    Fault::Flips { .. } | Fault::Fails { .. } => {}
                }
            }
            if matches!(fault, Fault::Replaced) && offset == 0 {
                out[100] ^= 1;
            }
        }
        store.read.push(extent);
        Ok(())
    }

    /// Also writes behind the place, as reads of whole blocks do.
    fn read_within(&self, offset: u64, memory: &mut [u8], place: Range<usize>) -> io::Result<()> {
        self.read(offset, &mut memory[place.clone()])?;
        let behind = (place.end + 4095).min(memory.len());
        memory[place.end..behind].fill(0xEE);
        Ok(())
    }

    fn fetch_depth(&self) -> FetchDepth {
        let store = self.0.lock().unwrap();
        FetchDepth { threads: 1, samples: store.samples, join_gap: store.join_gap, at_once: None }
    }

    fn session(&self) -> u64 {
        0
    }

    fn interrupt(&self) {}
}
