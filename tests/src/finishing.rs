//! A delivery target that finishes batches on this host, value by value as [`Finishing`] describes it.

#![allow(unsafe_code)]

use ddlp_host::{
    Batch, BatchBuffer, BatchMemory, BatchMix, BufferNeed, DType, DeliveryError, DeliveryTarget, FIELD_ALIGNMENT,
    Filled, Finishing, MakeReady, bf16, f16,
};
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// What a [`Finisher`] does with result slots that a drive shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfSlots {
    /// Copies the rows to a buffer.
    Copied,
    /// Keeps the slot until the batch is finished.
    Kept,
}

/// Buffers in this process's memory for batches that are not finished.
#[derive(Debug)]
pub struct Finisher(Arc<Buffers>);

#[derive(Debug)]
struct Buffers {
    need: BufferNeed,
    of_slots: OfSlots,
    free: Mutex<Vec<Vec<u64>>>,
}

/// A buffer, and later the memory of its batch.
#[derive(Debug)]
struct Unfinished {
    words: Vec<u64>,
    /// Slot in which the rows lie, if they do not lie in the buffer.
    slot: Option<Box<dyn BatchMemory>>,
    rows: usize,
    fields: Vec<Range<usize>>,
    home: Arc<Buffers>,
}

impl Finisher {
    /// Makes the target.
    ///
    /// # Errors
    ///
    /// None.
    pub fn make(of_slots: OfSlots, need: BufferNeed) -> Result<Arc<dyn DeliveryTarget>, DeliveryError> {
        let free = Mutex::new(vec![vec![0; need.bytes.div_ceil(size_of::<u64>())]; need.count]);
        Ok(Arc::new(Self(Arc::new(Buffers { need, of_slots, free }))))
    }

    /// Returns the batch finished. Its other fields are those that the target got.
    ///
    /// # Panics
    ///
    /// If the batch is not one of a [`Finisher`], or its fields do not lie where they have to.
    pub fn finish(batch: Batch) -> Batch {
        let (Some(memory), Some(finishing)) = (batch.target_memory::<Unfinished>(), batch.finishing()) else {
            assert!(batch.is_empty(), "a batch of a target that finishes");
            return batch;
        };
        let rows = memory.slot.as_ref().map_or_else(|| memory.buffer(), |slot| slot.bytes().expect("shared"));
        let image = batch.fields().next().expect("images come first");
        let mut all = vec![Finished::of(batch.len() * image.bytes(), |out| make(finishing, &rows[..memory.rows], out))];
        assert_eq!(memory.fields.len() + 1, batch.fields().len(), "each field has a place");
        for (place, field) in memory.fields.iter().zip(batch.fields().skip(1)) {
            assert!(place.start.is_multiple_of(FIELD_ALIGNMENT), "{place:?}");
            let values = &memory.buffer()[place.clone()];
            assert_eq!(batch.field(&field.name).and_then(|field| field.bytes()), Ok(values), "{}", field.name);
            all.push(Finished::of(values.len(), |out| out.copy_from_slice(values)));
        }
        batch.finished_in(all)
    }
}

impl DeliveryTarget for Finisher {
    fn count(&self) -> usize {
        self.0.need.count
    }

    fn free(&self) -> usize {
        self.0.free.lock().unwrap().len()
    }

    fn accepts_slots(&self) -> bool {
        true
    }

    fn take(&self) -> io::Result<Option<Box<dyn BatchBuffer>>> {
        let words = self.0.free.lock().unwrap().pop();
        Ok(words.map(|words| {
            let home = self.0.clone();
            Box::new(Unfinished { words, slot: None, rows: 0, fields: Vec::new(), home }) as Box<dyn BatchBuffer>
        }))
    }
}

impl Unfinished {
    fn buffer(&self) -> &[u8] {
        &self.words.as_bytes()[..self.home.need.bytes]
    }
}

// SAFETY: the buffer owns its memory, which does not move before the buffer is dropped.
unsafe impl BatchBuffer for Unfinished {
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.words.as_mut_bytes()[..self.home.need.bytes]
    }

    fn make_ready_from(
        mut self: Box<Self>,
        rows: Box<dyn BatchMemory>,
        filled: Filled<'_>,
    ) -> Result<Box<dyn BatchMemory>, DeliveryError> {
        let slot = rows.bytes().expect("host and drive share the slot");
        assert_eq!(slot.len(), filled.rows, "the slot has the rows and nothing else");
        match self.home.of_slots {
            OfSlots::Copied => {
                self.bytes_mut()[..filled.rows].copy_from_slice(slot);
                drop(rows);
            }
            OfSlots::Kept => {
                self.bytes_mut()[..filled.rows].fill(0xA5);
                self.slot = Some(rows);
            }
        }
        self.make_ready(filled)
    }
}

impl MakeReady for Unfinished {
    fn make_ready(mut self: Box<Self>, filled: Filled<'_>) -> Result<Box<dyn BatchMemory>, DeliveryError> {
        assert!(filled.end() <= self.home.need.bytes, "a buffer has room for the fields");
        (self.rows, self.fields) = (filled.rows, filled.fields.to_vec());
        Ok(self)
    }
}

// SAFETY: as above.
unsafe impl BatchMemory for Unfinished {
    fn address(&self) -> NonNull<u8> {
        NonNull::from(&self.words[..]).cast()
    }

    fn bytes(&self) -> Option<&[u8]> {
        Some(self.buffer())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.home.free.lock().unwrap().push(std::mem::take(&mut self.words));
        self.home.need.returned.notify();
    }
}

/// Memory of a finished field.
#[derive(Debug)]
pub struct Finished(Vec<u64>, usize);

impl Finished {
    /// Makes memory of this many bytes, which `fill` writes.
    pub fn of(bytes: usize, fill: impl FnOnce(&mut [u8])) -> Arc<dyn BatchMemory> {
        let mut words = vec![0u64; bytes.div_ceil(size_of::<u64>())];
        fill(&mut words.as_mut_bytes()[..bytes]);
        Arc::new(Self(words, bytes))
    }
}

// SAFETY: the value owns its memory, which does not move.
unsafe impl BatchMemory for Finished {
    fn address(&self) -> NonNull<u8> {
        NonNull::from(&self.0[..]).cast()
    }

    fn bytes(&self) -> Option<&[u8]> {
        Some(&self.0.as_bytes()[..self.1])
    }
}

/// Makes the elements of a batch's images.
fn make(finishing: &Finishing, rows: &[u8], out: &mut [u8]) {
    match finishing.dtype {
        DType::U8 => make_of(finishing, rows, out, |_, byte| byte, blended_byte),
        DType::F16 => make_floats(finishing, rows, out, f16::to_f32, f16::from_f32),
        DType::Bf16 => make_floats(finishing, rows, out, bf16::to_f32, bf16::from_f32),
        DType::F32 => make_floats(finishing, rows, out, |value: f32| value, |value| value),
        dtype => panic!("images have no elements of type {dtype}"),
    }
}

fn make_floats<T: FromBytes + IntoBytes + Immutable + Copy>(
    finishing: &Finishing,
    rows: &[u8],
    out: &mut [u8],
    widen: fn(T) -> f32,
    round: fn(f32) -> T,
) {
    let table = finishing.table.chunks_exact(size_of::<T>()).map(|value| T::read_from_bytes(value).expect("a float"));
    let table: Vec<T> = table.collect();
    assert_eq!(table.len(), 3 * 256);
    let blended = |own, other, weight: f64| round(widen(other) * (1.0 - weight) as f32 + widen(own) * weight as f32);
    make_of(finishing, rows, out, |channel, byte| table[channel * 256 + usize::from(byte)], blended);
}

/// Weighs two bytes as a rounded mean, with weights in steps of 2⁻¹⁵.
fn blended_byte(own: u8, other: u8, weight: f64) -> u8 {
    let weight = (weight * 32_768.0).round() as i32;
    let step = (i32::from(own) - i32::from(other)) * weight;
    (i32::from(other) + ((step + (1 << 14)) >> 15)) as u8
}

fn make_of<T: IntoBytes + Immutable>(
    finishing: &Finishing,
    rows: &[u8],
    out: &mut [u8],
    value: impl Fn(usize, u8) -> T,
    blended: impl Fn(T, T, f64) -> T,
) {
    let (height, width) = (finishing.prepared.height as usize, finishing.prepared.width as usize);
    let (pixels, row_bytes) = (height * width, finishing.prepared.bytes());
    let count = rows.len() / row_bytes;
    for row in 0..count {
        let before = (row + count - 1) % count;
        for byte in 0..row_bytes {
            let (pixel, channel) = (byte / 3, byte % 3);
            let (x, y) = ((pixel % width) as i64, (pixel / width) as i64);
            let [own, other] = [row, before].map(|row| value(channel, rows[row * row_bytes + byte]));
            let made = match finishing.mix {
                BatchMix::Unmixed => own,
                BatchMix::Blend { weight } => blended(own, other, weight),
                BatchMix::Paste { window, .. } => {
                    let is_within = (window.x..window.x + i64::from(window.width)).contains(&x)
                        && (window.y..window.y + i64::from(window.height)).contains(&y);
                    if is_within { other } else { own }
                }
            };
            let place = if finishing.planar { channel * pixels + pixel } else { byte };
            let at = (row * row_bytes + place) * size_of::<T>();
            out[at..][..size_of::<T>()].copy_from_slice(made.as_bytes());
        }
    }
}
