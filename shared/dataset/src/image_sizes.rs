//! The sizes of a dataset's images.

use crate::{Dataset, Header, Patience, ReadError, Unavailable, parallel};
use ddlp_pixels::{Limits, Preparer};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Bytes at the beginning of a file that are read for its header. Few files have a longer one.
const BEGINNING_BYTES: u64 = 64 << 10;
/// Samples that a thread takes at a time.
const CHUNK: u64 = 64;

/// Width and height of an image; zeros if its header cannot be decoded.
pub type ImageSize = (u32, u32);

/// Returns the size of each image of a dataset, as it is after it was turned upright by its EXIF orientation if
/// `upright` is set. Reads the beginnings of those files whose size the dataset does not know, on this many threads or
/// as many as the dataset's reads need. A sample whose header is corrupt has size (0, 0), as has one that was rejected
/// when it was packed. Returns `None` if the work `is_over`.
///
/// # Errors
///
/// If the dataset is unavailable for some seconds.
pub fn image_sizes(
    dataset: &dyn Dataset,
    limits: Limits,
    upright: bool,
    threads: usize,
    is_over: &(dyn Fn() -> bool + Sync),
) -> Result<Option<Vec<ImageSize>>, Unavailable> {
    let samples = dataset.len();
    let next = AtomicU64::new(0);
    let found = Mutex::new(Ok(vec![(0, 0); samples as usize]));
    let work = || {
        let mut reader = HeaderReader { preparer: Preparer::new(limits), bytes: Vec::new(), upright };
        let mut patience = Patience::default();
        loop {
            let first = next.fetch_add(CHUNK, Ordering::Relaxed);
            if first >= samples {
                return;
            }
            let chunk = first..samples.min(first + CHUNK);
            let has_ended = || is_over() || found.lock().is_ok_and(|found| found.is_err());
            let unless_over = chunk.clone().take_while(|_| !is_over());
            let read = unless_over.map(|index| patience.read(&has_ended, || reader.size(dataset, index)));
            let sizes: Result<Vec<ImageSize>, Unavailable> = read.collect();
            if is_over() {
                return;
            }
            let Ok(mut found) = found.lock() else { return };
            match (&mut *found, sizes) {
                (Ok(found), Ok(sizes)) => {
                    found[chunk.start as usize..chunk.end as usize].copy_from_slice(&sizes);
                }
                (Ok(_), Err(error)) => {
                    *found = Err(error);
                    return;
                }
                (Err(_), _) => return,
            }
        }
    };
    let threads = threads.max(dataset.fetch_depth().threads).max(1);
    thread::scope(|scope| {
        // Without further threads, this one reads all headers.
        let _ = parallel::spawn(scope, threads - 1, || &work);
        work();
    });
    let found = found.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())?;
    Ok((!is_over()).then_some(found))
}

/// One thread's means to read headers.
struct HeaderReader {
    preparer: Preparer,
    bytes: Vec<u8>,
    upright: bool,
}

impl HeaderReader {
    fn size(&mut self, dataset: &dyn Dataset, index: u64) -> Result<ImageSize, Unavailable> {
        let read = catch_unwind(AssertUnwindSafe(|| self.read_size(dataset, index)));
        match read {
            Ok(Ok(size)) => Ok(size),
            Ok(Err(ReadError::Unavailable(error))) => Err(error),
            // The policy decides about the sample when it is prepared.
            Ok(Err(ReadError::Corrupt(_))) | Err(_) => Ok((0, 0)),
        }
    }

    fn read_size(&mut self, dataset: &dyn Dataset, index: u64) -> Result<ImageSize, ReadError> {
        let header = dataset.header(index)?;
        let is_known = header.size != (0, 0) && (!self.upright || !header.form.is_file());
        if is_known {
            return Ok(turned(header.size, if self.upright { header.orientation } else { 1 }));
        }
        let bytes = header.bytes.end - header.bytes.start;
        for length in [bytes.min(BEGINNING_BYTES), bytes] {
            self.read(dataset, index, &header, length)?;
            if let Ok(info) = self.preparer.info(&self.bytes) {
                return Ok(turned((info.width, info.height), if self.upright { info.orientation } else { 1 }));
            }
        }
        Ok((0, 0))
    }

    fn read(&mut self, dataset: &dyn Dataset, index: u64, header: &Header, length: u64) -> Result<(), ReadError> {
        self.bytes.resize(length as usize, 0);
        dataset.read(index, header, header.bytes.start, &mut self.bytes)
    }
}

/// Returns the size of an image that is turned by an EXIF orientation.
fn turned((width, height): ImageSize, orientation: u8) -> ImageSize {
    if orientation >= 5 { (height, width) } else { (width, height) }
}
