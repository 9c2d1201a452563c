//! Cuts samples into pieces, and compares the images of the first pieces with the whole image.

use anyhow::{Context, bail};
use ddlp_cause::with_causes;
use ddlp_dataset::{Dataset, ReadError};
use ddlp_pixels::similarity::{ComparedImage, ms_ssim, ssim};
use ddlp_pixels::{Limits, NotCut, PixelError, Preparer, ScanGroups, Source};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Shorter side, in pixels, of the images that are compared.
const SHORT_SIDE: u32 = 256;

/// Figures of one sample.
pub struct SampleFidelity {
    pub source_bytes: u64,
    /// Figures of its pieces, or why it has none.
    pub cut: Result<CutFidelity, String>,
}

/// Figures of a sample that was cut into pieces.
pub struct CutFidelity {
    /// Whether its source is not progressive.
    pub is_rewritten: bool,
    /// Bytes of all groups up to each group.
    pub bytes: Vec<u64>,
    pub marker_bytes: u64,
    /// Similarity at each group; `None` if the image is smaller than a window.
    pub similarity: Vec<Option<Similarity>>,
}

/// How similar an image is to the whole one.
pub struct Similarity {
    /// SSIM of luma.
    pub luma: f64,
    /// MS-SSIM of luma, if the image is large enough.
    pub luma_ms: Option<f64>,
    /// Mean SSIM of both colour differences.
    pub chroma: f64,
}

/// Measures samples, on a thread for each core. The results are in the order of the samples.
pub fn measure(dataset: &dyn Dataset, indices: &[u64], groups: &ScanGroups) -> anyhow::Result<Vec<SampleFidelity>> {
    let next = AtomicUsize::new(0);
    let measured = Mutex::new(Vec::with_capacity(indices.len()));
    let take_samples = || {
        let (mut preparer, mut buf) = (Preparer::new(Limits::default()), Vec::new());
        while let Some(&index) = indices.get(next.fetch_add(1, Ordering::Relaxed)) {
            let sample = measure_sample(dataset, index, groups, (&mut preparer, &mut buf));
            measured.lock().unwrap_or_else(PoisonError::into_inner).push((index, sample));
        }
    };
    let threads = thread::available_parallelism().map_or(1, |cores| cores.get()).min(indices.len());
    thread::scope(|scope| {
        for _ in 1..threads {
            // Without further threads, this one takes all samples.
            if thread::Builder::new().spawn_scoped(scope, take_samples).is_err() {
                break;
            }
        }
        take_samples();
    });
    let mut measured = measured.into_inner().unwrap_or_else(PoisonError::into_inner);
    measured.sort_unstable_by_key(|&(index, _)| index);
    measured.into_iter().map(|(_, sample)| sample).collect()
}

fn measure_sample(
    dataset: &dyn Dataset,
    index: u64,
    groups: &ScanGroups,
    (preparer, buf): (&mut Preparer, &mut Vec<u8>),
) -> anyhow::Result<SampleFidelity> {
    let whole = |why: String| SampleFidelity { source_bytes: dataset.location(index).length, cut: Err(why) };
    let file = match dataset.sample(index, buf) {
        Ok(Source::Encoded(file)) => file,
        Ok(_) => return Ok(whole("pixels, not a file".to_owned())),
        Err(ReadError::Corrupt(_)) => return Ok(whole("corrupt".to_owned())),
        Err(ReadError::Unavailable(error)) => return Err(error).context("the dataset is not available"),
    };
    let name = || format!("sample {index}, {}", dataset.name(index));
    let cut = match measure_file(file, groups, preparer) {
        Ok(cut) => Ok(cut),
        Err(MeasureError::NotCut(NotCut::NoMemory)) => bail!("{}: the system refuses memory", name()),
        Err(MeasureError::NotCut(why)) => Err(why.to_string()),
        Err(MeasureError::NotDecoded(error)) if error.is_of_the_image() => Err(with_causes(&error)),
        Err(MeasureError::NotDecoded(error)) => return Err(error).with_context(name),
    };
    Ok(SampleFidelity { source_bytes: file.len() as u64, cut })
}

/// Reason why a file is not measured.
enum MeasureError {
    NotCut(NotCut),
    NotDecoded(PixelError),
}

impl From<PixelError> for MeasureError {
    fn from(error: PixelError) -> Self {
        Self::NotDecoded(error)
    }
}

fn measure_file(file: &[u8], groups: &ScanGroups, preparer: &mut Preparer) -> Result<CutFidelity, MeasureError> {
    let pieces = preparer.cut(file, groups).map_err(MeasureError::NotCut)?;
    let whole = ComparedImage::decode(preparer, Source::Encoded(file), SHORT_SIDE)?;
    let (mut bytes, mut similarity, mut read) = (Vec::new(), Vec::new(), 0);
    for group in 0..pieces.groups() {
        read += pieces.piece(group).len() as u64;
        bytes.push(read);
        let shown = ComparedImage::decode(preparer, Source::Encoded(&pieces.prefix(group + 1)), SHORT_SIDE)?;
        similarity.push(Similarity::of(&shown, &whole));
    }
    let marker_bytes = pieces.markers().len() as u64;
    Ok(CutFidelity { is_rewritten: pieces.is_rewritten, bytes, marker_bytes, similarity })
}

impl Similarity {
    fn of(shown: &ComparedImage, whole: &ComparedImage) -> Option<Self> {
        let chroma = (ssim(&shown.cb, &whole.cb)? + ssim(&shown.cr, &whole.cr)?) / 2.0;
        Some(Self { luma: ssim(&shown.y, &whole.y)?, luma_ms: ms_ssim(&shown.y, &whole.y), chroma })
    }
}
