//! Memory that a loader takes beside its batches. A program of its own, since all memory of the process counts.

use ddlp_dataset::pack::{PackFormat, StoredForm};
use ddlp_host::{DType, ImageLayout, LoaderBuilder, Normalize, Strategy};
use ddlp_pixels::encode::{JpegOptions, Layout};
use ddlp_tests::photos::{Photos, image};
use ddlp_tests::runs::loader;

const SAMPLES: u64 = 768;
const BATCH: usize = 256;
const BUFFERS: usize = 2;
/// Interval, in images, between images of 4 megapixels, which have three times as many bytes of coefficients.
const LARGE_EVERY: u32 = 16;
/// Memory that a loader may take for itself, in 10⁶ bytes.
const OWN_MB_MAX: f64 = 200.0;

/// Goes through an epoch so that all buffers are in use, and returns by how much the process's peak memory exceeds
/// them, in 10⁶ bytes.
fn own_mb(builder: LoaderBuilder, dtype: DType) -> f64 {
    let mut loader = builder.with(|o| o.dtype = dtype).build().expect("it builds");
    let mut held = None;
    let mut images = 0;
    for batch in loader.by_ref() {
        let batch = batch.expect("every batch comes");
        images += batch.len() as u64;
        // Each batch is dropped only when the next one has come.
        held = Some(batch);
    }
    drop(held);
    assert_eq!(images, SAMPLES);
    let buffers_mb = (BUFFERS * BATCH * 224 * 224 * 3 * dtype.bytes()) as f64 / 1e6;
    let peak_mb = loader.report().peak_memory_mb;
    println!("{dtype}: a peak of {peak_mb} MB, {buffers_mb} MB of it buffers");
    assert!(peak_mb > buffers_mb, "{peak_mb} MB with {buffers_mb} MB of buffers, which were in use");
    peak_mb - buffers_mb
}

#[test]
fn a_loader_has_little_memory_beside_its_batches() {
    // As the programs do: a loader leaves the process's allocator as it is.
    ddlp_pixels::map_large_blocks();
    let options = JpegOptions { layout: Layout::Yuv444, progressive: true, quality: 60, ..JpegOptions::default() };
    let large = image(1, (2300, 1740), &options);
    let small = image(2, (120, 90), &JpegOptions::default());
    let photos = Photos::of(64, |number| if number.is_multiple_of(LARGE_EVERY) { &large } else { &small }.clone());
    let pack = photos.pack_as("kept.ddlp", PackFormat::of(StoredForm::Kept));
    let builder = || {
        let loader =
            loader(&pack).with(|o| (o.batch_size, o.epoch_samples, o.threads) = (BATCH, Some(SAMPLES), Some(4)));
        loader.with(|o| (o.buffers, o.strategy) = (BUFFERS, Strategy::Cpu))
    };
    let of_bytes = own_mb(builder(), DType::U8);
    let of_floats = own_mb(
        builder().with(|o| (o.layout, o.normalize) = (ImageLayout::Nchw, Some(Normalize::IMAGENET))),
        DType::F32,
    );
    assert!(of_bytes <= OWN_MB_MAX && of_floats <= OWN_MB_MAX, "{of_bytes} MB with u8, {of_floats} MB with f32");
}
