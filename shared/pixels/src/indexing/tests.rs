use super::*;
use crate::compiled::CompiledPipeline;
use crate::draw::Draw;
use crate::encode::{self, JpegOptions, Layout};
use crate::ops::{CenterCrop, RandomCrop, RandomHorizontalFlip, Resize};
use crate::pipeline::Pipeline;
use crate::plan::{PlanMemory, SamplePlan};
use crate::preparer::Preparer;
use crate::source::Source;
use crate::synthetic;

fn file(layout: Layout, options: &JpegOptions, (width, height): (u32, u32)) -> Vec<u8> {
    let pixels = synthetic::photo(width, height * 2, 4);
    let pixels = &pixels[..(width * height * layout.channels()) as usize];
    encode::jpeg(pixels, width, height, &JpegOptions { layout, ..options.clone() }).unwrap()
}

fn index_of(file: &[u8]) -> Result<IndexedJpeg, NotIndexed> {
    Preparer::new(Limits::default()).index(file)
}

fn prepared(source: Source<'_>, pipeline: &Pipeline, sample_id: u64) -> Vec<u8> {
    let mut out = vec![0; pipeline.output().bytes()];
    Preparer::new(Limits::default())
        .prepare(source, pipeline, Draw { seed: 3, epoch: 1, sample_id }, &mut out)
        .unwrap();
    out
}

/// Layouts whose files can have checkpoints.
const ENTERED: [Layout; 6] =
    [Layout::Gray, Layout::Yuv444, Layout::Yuv422, Layout::Yuv420, Layout::Yuv440, Layout::Rgb];

#[test]
fn a_progressive_file_becomes_a_sequential_one_of_the_same_pixels() {
    let operations = vec![RandomCrop::to(50).into(), RandomHorizontalFlip { p: 0.5 }.into()];
    let pipeline = Pipeline { exif_orientation: true, operations };
    for layout in ENTERED {
        for orientation in [None, Some(6)] {
            let options = JpegOptions { progressive: true, orientation, ..JpegOptions::default() };
            let file = file(layout, &options, (131, 97));
            let indexed = index_of(&file).unwrap_or_else(|why| panic!("{layout:?}: {why}"));
            let transcoded = indexed.transcoded.expect("another file");
            assert!(Preparer::new(Limits::default()).inspect(&transcoded) == crate::inspect::Verdict::Intact);
            assert_eq!(crate::orientation::of(&transcoded), orientation.unwrap_or(1));
            let source = Source::Indexed { file: &transcoded, checkpoints: &indexed.checkpoints };
            for sample_id in 0..20 {
                let whole = prepared(Source::Encoded(&file), &pipeline, sample_id);
                assert!(prepared(source, &pipeline, sample_id) == whole, "{layout:?}");
            }
        }
    }
}

/// libjpeg reads an EXIF segment between two scans, but only those in front of the first scan set the image's
/// orientation.
#[test]
fn a_progressive_file_that_would_be_turned_is_left_alone() {
    let options = JpegOptions { progressive: true, ..JpegOptions::default() };
    let file = file(Layout::Yuv420, &options, (131, 97));
    let app1 = crate::jpeg::exif::app1_of_orientation(6);
    let segment = [&[0xFF, 0xE1][..], &(app1.len() as u16 + 2).to_be_bytes(), &app1].concat();
    let first_scan = file.windows(2).position(|marker| marker == [0xFF, 0xDA]).expect("a scan");
    let between_scans = |&at: &usize| matches!(file[at..], [0xFF, 0xC4 | 0xDA, ..]);
    let at = (first_scan + 2..file.len()).find(between_scans).expect("a second scan");
    let mut between = file.clone();
    between.splice(at..at, segment);
    assert_eq!(crate::orientation::of(&between), 1);
    assert!(Preparer::new(Limits::default()).inspect(&between) == crate::inspect::Verdict::Intact);
    assert_eq!(index_of(&between), Err(NotIndexed::Unusual));
}

#[test]
fn checkpoints_take_a_small_part_of_their_file() {
    for (layout, size) in [(Layout::Yuv444, (500, 375)), (Layout::Yuv420, (500, 375)), (Layout::Gray, (333, 17))] {
        let file = file(layout, &JpegOptions::default(), size);
        let indexed = index_of(&file).unwrap();
        assert_eq!(indexed.transcoded, None);
        let share = indexed.checkpoints.len() as f64 / file.len() as f64;
        assert!(share <= 1.0 / SHARE as f64, "{layout:?}: {share}");
        assert!(Checkpoints::from_bytes(&indexed.checkpoints).unwrap().len() > size.1 as usize / 16);
    }
    // A file of many short rows keeps one checkpoint a row, even if they exceed their share.
    let narrow = file(Layout::Gray, &JpegOptions { quality: 1, ..JpegOptions::default() }, (9, 800));
    let checkpoints = Checkpoints::from_bytes(&index_of(&narrow).unwrap().checkpoints).unwrap();
    assert_eq!(checkpoints.len(), 100);
}

#[test]
fn training_crops_need_three_quarters_of_a_file() {
    let mut memory = PlanMemory::default();
    let train = CompiledPipeline::of(&Pipeline::imagenet_train()).unwrap();
    let (mut needed, mut whole) = (0, 0);
    for (layout, size) in [(Layout::Yuv444, (500, 375)), (Layout::Yuv420, (500, 375)), (Layout::Gray, (375, 500))] {
        let file = file(layout, &JpegOptions { quality: 98, ..JpegOptions::default() }, size);
        let indexed = Preparer::new(Limits::default()).index_rows(&file).unwrap();
        assert_eq!(indexed.transcoded, None);
        let index = RowIndex::parse(&indexed.row_index).unwrap();
        for sample_id in 0..100 {
            let draw = Draw { seed: 3, epoch: 1, sample_id };
            let reads = SamplePlan::crop(&train, draw, &mut memory).bytes_of_jpeg(&index).unwrap();
            needed += indexed.row_index.len() as u64 + index.header_bytes() + reads.end - reads.start;
            whole += file.len() as u64;
        }
    }
    let share = needed as f64 / whole as f64;
    assert!((0.65..0.78).contains(&share), "{share}");
}

#[test]
fn what_has_no_row_index_says_why() {
    let mut preparer = Preparer::new(Limits::default());
    let options = JpegOptions { quality: 98, ..JpegOptions::default() };
    let large = file(Layout::Yuv420, &options, (500, 375));
    let row_index = preparer.index_rows(&large).unwrap().row_index;
    assert!(row_index.len() as u64 <= row_index_bytes_max(large.len() as u64));
    // A file without its end marker, and one that is cut short.
    for length in [large.len() - 2, large.len() / 2] {
        assert_eq!(preparer.index_rows(&large[..length]), Err(NotIndexed::Unusual), "{length} bytes");
    }
    let small = file(Layout::Yuv444, &JpegOptions { quality: 75, ..options.clone() }, (75, 110));
    assert_eq!(preparer.index_rows(&small), Err(NotIndexed::Small));
    assert_eq!(preparer.index_rows(&file(Layout::Yuv411, &options, (500, 375))), Err(NotIndexed::Unusual));
    assert_eq!(preparer.index_rows(&file(Layout::Cmyk, &options, (500, 375))), Err(NotIndexed::FourComponents));
    assert_eq!(preparer.index_rows(b"\x89PNG\r\n\x1A\n"), Err(NotIndexed::OtherFormat));
    let progressive = file(Layout::Yuv420, &JpegOptions { progressive: true, ..options }, (500, 375));
    let indexed = preparer.index_rows(&progressive).unwrap();
    let transcoded = indexed.transcoded.expect("another file");
    let again = preparer.index_rows(&transcoded).unwrap();
    assert_eq!((again.transcoded, again.row_index), (None, indexed.row_index));
}

#[test]
fn what_has_none_says_why() {
    let options = JpegOptions::default();
    let of = |layout, options: &JpegOptions| index_of(&file(layout, options, (64, 48))).unwrap_err();
    assert_eq!(of(Layout::Yuv420, &JpegOptions { arithmetic: true, ..options.clone() }), NotIndexed::Arithmetic);
    assert_eq!(of(Layout::Cmyk, &options), NotIndexed::FourComponents);
    assert_eq!(of(Layout::Ycck420, &options), NotIndexed::FourComponents);
    assert_eq!(of(Layout::Yuv411, &options), NotIndexed::Unusual);
    assert_eq!(index_of(b"\x89PNG\r\n\x1A\n"), Err(NotIndexed::OtherFormat));
    assert_eq!(index_of(b""), Err(NotIndexed::OtherFormat));
    let cut = file(Layout::Yuv420, &options, (64, 48));
    assert_eq!(index_of(&cut[..cut.len() / 2]), Err(NotIndexed::Unusual));
}

#[test]
fn damaged_checkpoints_leave_the_file_alone_to_be_decoded() {
    let file = file(Layout::Yuv420, &JpegOptions::default(), (131, 97));
    let good = index_of(&file).unwrap().checkpoints;
    let pipeline = Pipeline::of([CenterCrop::to(40).into()]);
    let expected = prepared(Source::Encoded(&file), &pipeline, 0);
    for bad in [&good[..good.len() - 1], &[9; 40], b"", &[&good[..], &[0]].concat()] {
        assert!(Checkpoints::from_bytes(bad).is_err());
        assert!(prepared(Source::Indexed { file: &file, checkpoints: bad }, &pipeline, 0) == expected);
    }
    // Checkpoints of other images, too: with more columns, with more rows, and so small that they have none for the
    // crop.
    for size in [(231, 97), (131, 200), (131, 31), (41, 31)] {
        let other = index_of(&self::file(Layout::Yuv420, &JpegOptions::default(), size)).unwrap().checkpoints;
        assert!(prepared(Source::Indexed { file: &file, checkpoints: &other }, &pipeline, 0) == expected, "{size:?}");
    }
    // More checkpoints than the memory limit allows.
    let limits = Limits { memory_bytes: 600, ..Limits::default() };
    let mut out = vec![0; expected.len()];
    let dense = Checkpoints::of(&file, 1).unwrap();
    let source = Source::Indexed { file: &file, checkpoints: &dense.to_bytes() };
    assert!(dense.len() * 16 > 600);
    Preparer::new(limits).prepare(source, &pipeline, Draw::default(), &mut out).unwrap();
    assert!(out == expected);
}

#[test]
fn a_whole_image_is_appended_as_it_is_stored() {
    let mut preparer = Preparer::new(Limits::default());
    let options = JpegOptions { orientation: Some(8), ..JpegOptions::default() };
    let file = file(Layout::Yuv422, &options, (60, 60));
    let mut pixels = vec![1, 2, 3];
    let decoded = preparer.decode(Source::Encoded(&file), None, &mut pixels).unwrap();
    assert_eq!((decoded.width, decoded.height, decoded.orientation, decoded.was_shrunk), (60, 60, 8, false));
    let pipeline = Pipeline::of([CenterCrop::to(60).into()]);
    assert!(pixels[..3] == [1, 2, 3] && pixels[3..] == prepared(Source::Encoded(&file), &pipeline, 0));
    // Shrunk by the resizer that every pipeline uses.
    pixels.clear();
    let decoded = preparer.decode(Source::Encoded(&file), Some(30), &mut pixels).unwrap();
    assert_eq!((decoded.width, decoded.height, decoded.was_shrunk), (30, 30, true));
    let pipeline = Pipeline::of([Resize::to(30).into(), CenterCrop::to(30).into()]);
    assert!(pixels == prepared(Source::Encoded(&file), &pipeline, 0));
    // A failed decode appends nothing.
    let before = pixels.clone();
    assert!(preparer.decode(Source::Encoded(b"no image at all"), None, &mut pixels).is_err() && pixels == before);
    assert!(preparer.decode(Source::Encoded(&file[..file.len() / 2]), None, &mut pixels).is_err() && pixels == before);
}
