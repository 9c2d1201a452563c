//! Once a preparer has seen a similar sample, preparing a JPEG in any stored form, or uncompressed pixels, makes no
//! allocation as large as an image. Other formats are decoded whole by the crate `image`, which allocates.
//!
//! A counting allocator replaces the system's (`ddlp_test_support::allocations`). It does not see libjpeg's own
//! allocations. Large images, whose scratch memory is freed, are left out.

use ddlp_pixels::encode::{self, JpegOptions, Layout};
use ddlp_pixels::ops::{RandomCrop, RandomHorizontalFlip};
use ddlp_pixels::{
    CompiledPipeline, Draw, FormImage, Limits, PartialJpeg, Pipeline, PlanMemory, Preparer, RawRows, Rendered,
    RowIndex, SamplePlan, Source, synthetic,
};
use ddlp_test_support::allocations::{Counting, allocations_of};

#[global_allocator]
static COUNTING: Counting = Counting;

/// Largest single allocation allowed: a row of the images' pixels has 1500 bytes.
const ONE_MAX: usize = 1 << 10;
/// Bytes allowed for all allocations of a sample together: those for a JPEG's header.
const ALL_MAX: usize = 2 << 10;

const WIDTH: u32 = 500;
const HEIGHT: u32 = 375;

/// Prepares samples in many ways twice. Returns, for the second time, the largest allocation and the average bytes per
/// sample.
fn allocated(sources: &[Source<'_>], pipeline: &Pipeline) -> (usize, usize) {
    const DRAWS: u64 = 20;
    let (mut preparer, mut out) = (Preparer::new(Limits::default()), vec![0; pipeline.output().bytes()]);
    let mut pass = || {
        for sample_id in 0..DRAWS {
            for &source in sources {
                preparer.prepare(source, pipeline, Draw { seed: 1, epoch: 0, sample_id }, &mut out).unwrap();
            }
        }
    };
    pass();
    let again = allocations_of(pass);
    (again.largest, again.bytes / (DRAWS as usize * sources.len()))
}

fn file(layout: Layout, options: JpegOptions) -> Vec<u8> {
    let rgb = synthetic::photo(WIDTH, HEIGHT, 3);
    let pixels = if layout == Layout::Gray { rgb.into_iter().step_by(3).collect() } else { rgb };
    encode::jpeg(&pixels, WIDTH, HEIGHT, &JpegOptions { layout, ..options }).unwrap()
}

fn pipelines() -> [(&'static str, Pipeline); 3] {
    let turned = RandomCrop::padded(300, 40).into();
    let padded = Pipeline { exif_orientation: true, operations: vec![turned, RandomHorizontalFlip { p: 0.5 }.into()] };
    [("train", Pipeline::imagenet_train()), ("val", Pipeline::imagenet_val()), ("padded", padded)]
}

/// Prints the allocations, and fails if they are too large.
fn check(form: &str, sources: &[Source<'_>]) {
    for (name, pipeline) in pipelines() {
        let (largest, all) = allocated(sources, &pipeline);
        println!("{form}, {name}: {all} bytes a sample, {largest} at once");
        assert!(largest <= ONE_MAX, "{form}, {name}: {largest} bytes at once");
        assert!(all <= ALL_MAX, "{form}, {name}: {all} bytes a sample");
    }
}

#[test]
fn jpegs_of_every_layout() {
    let layouts = [Layout::Yuv420, Layout::Yuv422, Layout::Yuv444, Layout::Gray];
    for layout in layouts {
        let file = file(layout, JpegOptions::default());
        check(&format!("{layout:?}"), &[Source::Encoded(&file)]);
        let indexed = Preparer::new(Limits::default()).index(&file).unwrap();
        check(&format!("{layout:?}, indexed"), &[Source::Indexed { file: &file, checkpoints: &indexed.checkpoints }]);
    }
}

/// The limit for all allocations includes the row index, of 20 bytes for each of at most 47 rows.
#[test]
fn jpegs_of_which_a_crop_reads_only_its_rows() {
    let options = JpegOptions { orientation: Some(6), ..JpegOptions::default() };
    for layout in [Layout::Yuv420, Layout::Yuv444, Layout::Gray] {
        let file = file(layout, options.clone());
        let (mut preparer, mut memory) = (Preparer::new(Limits::default()), PlanMemory::default());
        let row_index = preparer.index_rows(&file).unwrap().row_index;
        for (name, pipeline) in pipelines() {
            let compiled = CompiledPipeline::of(&pipeline).unwrap();
            let mut out = vec![0; compiled.output().bytes()];
            let mut render = |sample_id| {
                let draw = Draw { seed: 1, epoch: 0, sample_id };
                let index = &RowIndex::parse(&row_index).unwrap();
                let mut plan = SamplePlan::crop(&compiled, draw, &mut memory);
                let reads = plan.bytes_of_jpeg(index).unwrap();
                let (header, rows) = (&file[..index.header_bytes() as usize], &file[reads.start as usize..]);
                let rows = &rows[..(reads.end - reads.start) as usize];
                let part = PartialJpeg { index, header, rows, rows_offset: reads.start };
                let rendered = preparer.render(&Source::Rows(part), &mut plan, &mut out);
                assert!(matches!(rendered, Ok(Rendered::Done(_))));
            };
            (0..20).for_each(&mut render);
            let again = allocations_of(|| (0..20).for_each(&mut render));
            assert!(again.largest <= ONE_MAX, "{layout:?}, {name}: {} bytes at once", again.largest);
            assert!(again.bytes / 20 <= ALL_MAX, "{layout:?}, {name}: {} bytes a sample", again.bytes / 20);
        }
    }
}

#[test]
fn jpegs_that_are_left_to_libjpeg() {
    let progressive = file(Layout::Yuv420, JpegOptions { progressive: true, ..JpegOptions::default() });
    check("progressive", &[Source::Encoded(&progressive)]);
}

#[test]
fn turned_jpegs() {
    for orientation in [3, 6] {
        let options = JpegOptions { orientation: Some(orientation), ..JpegOptions::default() };
        check(&format!("orientation {orientation}"), &[Source::Encoded(&file(Layout::Yuv420, options))]);
    }
}

const GROUPS: RawRows = RawRows { group_rows: 16 };

fn raw_image<'a>(pixels: &'a [u8], orientation: u8, detail: &'a [u8]) -> Source<'a> {
    Source::Image(FormImage {
        form: 3,
        decoder: &GROUPS,
        width: WIDTH,
        height: HEIGHT,
        orientation,
        was_shrunk: false,
        detail,
        offset: 0,
        bytes: pixels,
    })
}

#[test]
fn uncompressed_pixels() {
    let pixels = synthetic::photo(WIDTH, HEIGHT, 5);
    let planes: Vec<u8> = (0..3).flat_map(|channel| pixels.iter().skip(channel).step_by(3).copied()).collect();
    let checksums = GROUPS.checksums_of(&pixels, WIDTH);
    for orientation in [1, 6] {
        check(&format!("raw, orientation {orientation}"), &[raw_image(&pixels, orientation, &checksums)]);
    }
    check("planar", &[Source::Planar { width: WIDTH, height: HEIGHT, bytes: &planes }]);
}

#[test]
fn all_in_turn() {
    let pixels = synthetic::photo(WIDTH, HEIGHT, 5);
    let checksums = GROUPS.checksums_of(&pixels, WIDTH);
    let progressive = JpegOptions { progressive: true, ..JpegOptions::default() };
    let [first, gray, full, progressive] = [
        (Layout::Yuv420, JpegOptions::default()),
        (Layout::Gray, JpegOptions::default()),
        (Layout::Yuv444, JpegOptions { optimize: true, ..JpegOptions::default() }),
        (Layout::Yuv422, progressive),
    ]
    .map(|(layout, options)| file(layout, options));
    let indexed = Preparer::new(Limits::default()).index(&first).unwrap();
    check(
        "all in turn",
        &[
            Source::Encoded(&first),
            raw_image(&pixels, 1, &checksums),
            Source::Encoded(&gray),
            Source::Indexed { file: &first, checkpoints: &indexed.checkpoints },
            Source::Encoded(&progressive),
            raw_image(&pixels, 8, &checksums),
            Source::Encoded(&full),
        ],
    );
}
