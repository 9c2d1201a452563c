//! A small dataset of small planar images, kept in memory.
//!
//! Reading CIFAR's 3 KB costs a system call and a checksum, as much as everything that is done to the pixels. If all
//! samples fit into [`RESIDENT_BYTES_MAX`], each is read once, checked as usual, and then stays in memory. Samples are
//! read in groups of 2 MiB, by the thread that first needs one of them: nothing is read before it is needed, samples
//! that lie one after the other are one long read, and a group is one huge page if the kernel provides huge pages.
//!
//! A sample that cannot be read, or has another form or size than most, is left to the dataset itself, whose answer
//! always counts.

use crate::forms::StoredForm;
use crate::{Ahead, BytesRead, Dataset, FetchDepth, Half, Header, Location, ReadError};
use ddlp_pixels::Source;
use memmap2::{Advice, MmapMut};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Most bytes of all samples together. CIFAR has 154 MB.
pub const RESIDENT_BYTES_MAX: u64 = 160 << 20;
/// Most bytes of a sample. A larger one takes longer to prepare than to read.
const RESIDENT_SAMPLE_BYTES_MAX: usize = 64 << 10;
/// Bytes of a group: a huge page of x86-64, and of aarch64 with pages of 4 KiB.
const GROUP_BYTES: usize = 2 << 20;
/// Samples that are tried at the beginning, to find out form and size of samples.
const TRIED: u64 = 4;

/// A dataset whose samples stay in memory once they have been read.
pub struct Resident {
    dataset: Arc<dyn Dataset>,
    width: u32,
    height: u32,
    sample_bytes: usize,
    groups: Box<[OnceLock<SampleGroup>]>,
    read: Mutex<BytesRead>,
}

/// Neighbouring samples, one after the other.
struct SampleGroup {
    /// Pixels of the samples; `None` if there was no memory for them.
    pixels: Option<MmapMut>,
    /// Whether each sample is present.
    present: Vec<bool>,
}

impl Resident {
    /// Returns the dataset in memory if it consists of small planar images and fits, and otherwise the dataset as it
    /// is.
    pub fn of(dataset: Arc<dyn Dataset>) -> Arc<dyn Dataset> {
        if dataset.is_resident() {
            return dataset;
        }
        let mut buf = Vec::new();
        let form = (0..dataset.len().min(TRIED)).find_map(|index| planar(&*dataset, index, &mut buf, |_| ()));
        let Some((width, height, ())) = form else { return dataset };
        let sample_bytes = width as usize * height as usize * 3;
        let fits = dataset.len().checked_mul(sample_bytes as u64).is_some_and(|bytes| bytes <= RESIDENT_BYTES_MAX);
        if !(1..=RESIDENT_SAMPLE_BYTES_MAX).contains(&sample_bytes) || !fits {
            return dataset;
        }
        let groups = (dataset.len() as usize).div_ceil(GROUP_BYTES / sample_bytes);
        let groups = (0..groups).map(|_| OnceLock::new()).collect();
        Arc::new(Self { dataset, width, height, sample_bytes, groups, read: Mutex::default() })
    }

    /// Returns a sample's pixels if they can be kept in memory; the first call reads them.
    fn pixels(&self, index: u64) -> Option<&[u8]> {
        let (number, place) = self.place(index);
        self.of_group(self.groups.get(number)?.get_or_init(|| self.group(number)), place)
    }

    /// Returns a sample's pixels if they are in memory already.
    fn pixels_if_read(&self, index: u64) -> Option<&[u8]> {
        let (number, place) = self.place(index);
        self.of_group(self.groups.get(number)?.get()?, place)
    }

    fn of_group<'a>(&self, group: &'a SampleGroup, place: usize) -> Option<&'a [u8]> {
        group.present.get(place).filter(|&&is_present| is_present)?;
        group.pixels.as_ref()?.get(place * self.sample_bytes..(place + 1) * self.sample_bytes)
    }

    /// Returns the number of a sample's group, and the sample's place in it.
    fn place(&self, index: u64) -> (usize, usize) {
        let each = GROUP_BYTES / self.sample_bytes;
        (index as usize / each, index as usize % each)
    }

    fn group(&self, number: usize) -> SampleGroup {
        let Ok(mut pixels) = MmapMut::map_anon(GROUP_BYTES) else {
            return SampleGroup { pixels: None, present: Vec::new() };
        };
        // A kernel without huge pages uses small ones.
        let _ = pixels.advise(Advice::HugePage);
        let each = (GROUP_BYTES / self.sample_bytes) as u64;
        let first = number as u64 * each;
        let samples = first..self.dataset.len().min(first + each);
        if let Some(present) = self.read_neighbours(samples.clone(), &mut pixels) {
            return SampleGroup { pixels: Some(pixels), present };
        }
        let mut buf = Vec::new();
        let present = samples.zip(pixels.chunks_exact_mut(self.sample_bytes)).map(|(index, place)| {
            // A sample of another size may be large and cannot be kept, so it is not even read.
            let Location { offset, length, .. } = self.dataset.location(index);
            if length != self.sample_bytes as u64 {
                return false;
            }
            let form = planar(&*self.dataset, index, &mut buf, |bytes| {
                let is_whole = bytes.len() == place.len();
                if is_whole {
                    place.copy_from_slice(bytes);
                }
                is_whole
            });
            if form.is_some() {
                self.count(&(offset..offset + length));
            }
            form == Some((self.width, self.height, true))
        });
        let present = present.collect();
        SampleGroup { pixels: Some(pixels), present }
    }

    /// Reads these samples by one read, if they are planar, have checksums and lie one after the other. Returns whether
    /// each is intact; `None` if they lie otherwise or cannot be read.
    fn read_neighbours(&self, samples: Range<u64>, pixels: &mut [u8]) -> Option<Vec<bool>> {
        let first = samples.start;
        let read = catch_unwind(AssertUnwindSafe(|| {
            let fits = |header: &Header, start: u64| {
                header.form == StoredForm::Planar
                    && header.size == (self.width, self.height)
                    && header.bytes == (start..start + self.sample_bytes as u64)
            };
            let header = self.dataset.header(first).ok()?;
            let begin = header.bytes.start;
            let mut checksums = vec![header.crc32c.filter(|_| fits(&header, begin))?];
            for index in samples.skip(1) {
                let next = self.dataset.header(index).ok()?;
                let start = begin + (index - first) * self.sample_bytes as u64;
                checksums.push(next.crc32c.filter(|_| fits(&next, start))?);
            }
            let pixels = &mut pixels[..checksums.len() * self.sample_bytes];
            self.dataset.read(first, &header, begin, pixels).ok()?;
            self.count(&(begin..begin + pixels.len() as u64));
            let samples = checksums.iter().zip(pixels.chunks_exact(self.sample_bytes));
            Some(samples.map(|(&checksum, bytes)| checksum == crc32c::crc32c(bytes)).collect())
        }));
        read.ok().flatten()
    }

    /// Counts whole samples that were read.
    fn count(&self, range: &Range<u64>) {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.count(range);
        read.sample_bytes += range.end - range.start;
    }
}

/// Passes the bytes of a planar sample to `take`; returns width, height and the result. Returns `None` if the sample
/// has another form or cannot be read; if reading it panics, the panic is left to the caller who needs this sample.
fn planar<T>(
    dataset: &dyn Dataset,
    index: u64,
    buf: &mut Vec<u8>,
    take: impl FnOnce(&[u8]) -> T,
) -> Option<(u32, u32, T)> {
    let read = catch_unwind(AssertUnwindSafe(|| match dataset.sample(index, buf) {
        Ok(Source::Planar { width, height, bytes }) => Some((width, height, take(bytes))),
        _ => None,
    }));
    read.ok().flatten()
}

#[warn(clippy::missing_trait_methods)]
impl Dataset for Resident {
    crate::forward! {
        dataset:
        is_empty len parts bundles scan_groups classes label name names location header pieces read read_within
        read_many start_reads requests cache_use comes_over_network header_extent header_in stored check check_damage
        read_again interrupt silences sample_in fit_memory identity decoders kind left_out rejected left_out_names
        export export_blocks
    }

    /// No depth: almost all samples lie in memory, and the threads that prepare them read a group now and then.
    fn fetch_depth(&self) -> FetchDepth {
        FetchDepth::NONE
    }

    fn in_memory(&self, index: u64) -> Option<Source<'_>> {
        let bytes = self.pixels(index)?;
        Some(Source::Planar { width: self.width, height: self.height, bytes })
    }

    fn sample<'a>(&'a self, index: u64, buf: &'a mut Vec<u8>) -> Result<Source<'a>, ReadError> {
        match self.in_memory(index) {
            Some(source) => Ok(source),
            None => self.dataset.sample(index, buf),
        }
    }

    fn prefetch(&self, index: u64, half: Half) {
        if let Some(bytes) = self.pixels_if_read(index) {
            let (first, second) = bytes.split_at(bytes.len() / 2);
            ddlp_pixels::prefetch(match half {
                Half::First => first,
                Half::Second => second,
            });
        }
    }

    /// Announces to the dataset only samples that are not in memory: samples that no group holds, or whose group has
    /// not been read yet.
    fn announce(&self, indices: &[u64], ahead: Ahead) {
        let left: Vec<u64> = indices.iter().copied().filter(|&index| self.pixels_if_read(index).is_none()).collect();
        if !left.is_empty() {
            self.dataset.announce(&left, ahead);
        }
    }

    fn is_resident(&self) -> bool {
        true
    }

    fn bytes_read(&self) -> BytesRead {
        *self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
