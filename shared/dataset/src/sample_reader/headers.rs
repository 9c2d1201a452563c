//! Headers of samples that are fetched together, for datasets that have to read headers.

use super::{ExtentRead, SampleToFetch};
use crate::{Dataset, Header, ReadError};

/// Headers that were read for samples.
#[derive(Debug, Default)]
pub(super) struct Headers(Vec<Option<Header>>);

/// Where the header of a sample is.
pub(super) enum Found {
    /// The dataset knows it without a read.
    Known,
    /// It was read.
    Read(Header),
    /// The dataset has to find out more than one read tells, and would wait for that.
    Unclear,
}

impl Headers {
    /// Reads the headers of those samples whose headers have to be read, all at the same time.
    ///
    /// # Errors
    ///
    /// If a read fails.
    pub async fn read(dataset: &dyn Dataset, samples: &[SampleToFetch]) -> Result<Self, ReadError> {
        let indices = || samples.iter().map(|sample| sample.index);
        let is_known = |index| dataset.in_memory(index).is_some() || dataset.header_extent(index).is_empty();
        if indices().all(is_known) {
            return Ok(Self::default());
        }
        let mut asked = Vec::with_capacity(samples.len());
        for (number, index) in indices().enumerate().filter(|&(_, index)| !is_known(index)) {
            let extent = dataset.header_extent(index);
            let memory = vec![0; (extent.end - extent.start) as usize];
            asked.push((number, index, Header::file(extent), memory));
        }
        let reads = asked.iter_mut().map(|(_, index, header, memory)| {
            let (offset, place) = (header.bytes.start, 0..memory.len());
            ExtentRead { index: *index, header, offset, memory, place }
        });
        dataset.start_reads(reads.collect()).await?;
        let mut headers = vec![None; samples.len()];
        for (number, index, _, bytes) in asked {
            headers[number] = dataset.header_in(index, &bytes);
        }
        Ok(Self(headers))
    }

    /// Returns where the header of this sample is, of the samples that were given to [`read`](Self::read).
    pub fn take(&mut self, dataset: &dyn Dataset, number: usize, index: u64) -> Found {
        match self.0.get_mut(number).and_then(Option::take) {
            Some(header) => Found::Read(header),
            None if dataset.header_extent(index).is_empty() => Found::Known,
            None => Found::Unclear,
        }
    }
}
