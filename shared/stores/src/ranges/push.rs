//! Pushes a pack to an object store, in parts that become an object together.

use super::super::push::{PushError, PushOptions, PushPart, PushProgress, PushSummary};
use super::super::shown;
use super::RangeBlocks;
use super::address::StoreAddress;
use super::failure::judge;
use ddlp_dataset::Dataset;
use ddlp_dataset::pack::{Broken, Pack, VerifyError, verify_blocks};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload, RetryConfig};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

/// Least bytes of a part: stores take no smaller ones.
const PART_BYTES: u64 = 8 << 20;
/// Most parts of an object, below the 10 000 that S3 takes.
const PARTS_MAX: u64 = 9_000;
/// Parts in flight, unless the options say otherwise.
const IN_FLIGHT: usize = 4;
/// Longest time between two calls of `progress`.
const TICK: Duration = Duration::from_millis(100);

/// Pushes a pack.
pub fn push(
    pack: &Pack,
    url: &str,
    options: &PushOptions,
    progress: &mut dyn FnMut(PushProgress) -> ControlFlow<()>,
) -> Result<PushSummary, PushError> {
    let place = |reason| PushError::Place { url: shown(url), reason };
    let address = StoreAddress::parse(url).map_err(place)?;
    if !address.is_writable() {
        return Err(place("web servers take no packs: copy the file to where the server reads it".to_owned()));
    }
    if options.part != PushPart::All {
        return Err(place("an object store takes a pack as one object: push it whole, by one machine".to_owned()));
    }
    let failed = |reason| PushError::Store { url: shown(url), reason };
    let store = address.store(RetryConfig::default()).map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(format!("no runtime for requests: {error}")))?;
    let upload = Upload { pack, url, address: &address, store: &*store, options };
    let summary = runtime.block_on(upload.run(progress))?;
    if options.verify {
        verify(url, &summary, options.threads, progress)?;
    }
    Ok(summary)
}

/// Reads the object back and checks every byte.
fn verify(
    url: &str,
    summary: &PushSummary,
    threads: usize,
    progress: &mut dyn FnMut(PushProgress) -> ControlFlow<()>,
) -> Result<(), PushError> {
    let failed = |reason| PushError::Store { url: shown(url), reason };
    let blocks = RangeBlocks::open(url).map_err(failed)?;
    let checked = verify_blocks(Box::new(blocks), Path::new(url), threads, &mut |now| {
        let (samples, samples_total, bytes) = (now.samples, now.samples_total, now.bytes);
        progress(PushProgress { samples, samples_total, bytes, sent: summary.sent.min(samples) })
    });
    let report = checked.map_err(|error| match error {
        VerifyError::Cancelled => PushError::Cancelled,
        error => failed(error.to_string()),
    })?;
    let what = |broken: &Broken| PushError::Differs { url: shown(url), what: broken.to_string() };
    report.broken.first().map_or(Ok(()), |broken| Err(what(broken)))
}

struct Upload<'u> {
    pack: &'u Pack,
    url: &'u str,
    address: &'u StoreAddress,
    store: &'u dyn ObjectStore,
    options: &'u PushOptions,
}

impl Upload<'_> {
    fn failed(&self, error: &object_store::Error) -> PushError {
        let failure = judge(error, || self.address.help(error));
        PushError::Store { url: shown(self.url), reason: failure.to_string() }
    }

    async fn run(&self, progress: &mut dyn FnMut(PushProgress) -> ControlFlow<()>) -> Result<PushSummary, PushError> {
        let (samples, bytes) = (self.pack.len(), self.pack.layout().file_bytes);
        match self.store.head(&self.address.path).await {
            Ok(meta) if !self.options.force => {
                let what = format!("an object of {} bytes", meta.size);
                return Err(PushError::Exists { url: shown(self.url), what });
            }
            Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(self.failed(&error)),
        }
        let mut upload = self.store.put_multipart(&self.address.path).await.map_err(|error| self.failed(&error))?;
        let sent = self.send(&mut *upload, bytes, progress).await;
        let ended = match sent {
            Ok(()) => upload.complete().await.map(drop).map_err(|error| self.failed(&error)),
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            // The store may be out of reach; what is left of the upload then costs space until the store removes it.
            let _ = tokio::time::timeout(Duration::from_secs(10), upload.abort()).await;
            return Err(error);
        }
        let identity = self.pack.identity();
        Ok(PushSummary {
            samples,
            sent: samples,
            bytes,
            sent_bytes: bytes,
            identity,
            evicts: None,
            missing_shares: Vec::new(),
        })
    }

    async fn send(
        &self,
        upload: &mut dyn MultipartUpload,
        bytes: u64,
        progress: &mut dyn FnMut(PushProgress) -> ControlFlow<()>,
    ) -> Result<(), PushError> {
        let part_bytes = PART_BYTES.max((bytes / PARTS_MAX).next_multiple_of(1 << 20));
        let most = if self.options.threads == 0 { IN_FLIGHT } else { self.options.threads };
        let (mut at, mut sent, mut in_flight) = (0, 0, FuturesUnordered::new());
        loop {
            while at < bytes && in_flight.len() < most {
                let mut part = vec![0; part_bytes.min(bytes - at) as usize];
                let reason = |error| format!("the pack cannot be read: {error}");
                let read = self.pack.read_bytes(at, &mut part);
                read.map_err(|error| PushError::Store { url: shown(self.url), reason: reason(error) })?;
                let length = part.len() as u64;
                let put = upload.put_part(PutPayload::from(part));
                in_flight.push(async move { put.await.map(|()| length) });
                at += length;
            }
            match tokio::time::timeout(TICK, in_flight.next()).await {
                Ok(None) => return Ok(()),
                Ok(Some(Ok(length))) => sent += length,
                Ok(Some(Err(error))) => return Err(self.failed(&error)),
                Err(_) => {}
            }
            // Samples lie side by side, so their share is that of the bytes.
            let samples_total = self.pack.len();
            let samples = (u128::from(samples_total) * u128::from(sent) / u128::from(bytes)) as u64;
            if progress(PushProgress { samples, samples_total, bytes: sent, sent: samples }).is_break() {
                return Err(PushError::Cancelled);
            }
        }
    }
}
