//! Compares crops from a part of a file with those from the whole file.

use std::cell::Cell;

use proptest::prelude::*;

use super::*;
use crate::compiled::CompiledPipeline;
use crate::draw::Draw;
use crate::encode::{JpegOptions, Layout};
use crate::error::PixelError;
use crate::jpeg::baseline::tests::{Sample, add, check, samples};
use crate::level::Level;
use crate::limits::Limits;
use crate::ops::{CenterCrop, Operation};
use crate::orient::{stored_rect, upright_size};
use crate::passes::PassPlan;
use crate::passes::tests::operation;
use crate::pipeline::Pipeline;
use crate::plan::{PlanMemory, SamplePlan};
use crate::preparer::Preparer;
use crate::rendered::Rendered;
use crate::source::Source;

fn index_of(file: &[u8]) -> RowIndex {
    RowIndex::of(&mut BaselineDecoder::new(Level::best()), &mut Vec::new(), file).unwrap()
}

/// Returns the bytes that a crop needs besides the header.
fn reads_of(index: &RowIndex, pipeline: &Pipeline, draw: Draw) -> Result<Range<u64>, PixelError> {
    let pipeline = CompiledPipeline::of(pipeline).unwrap();
    SamplePlan::crop(&pipeline, draw, &mut PlanMemory::default()).bytes_of_jpeg(index)
}

/// Renders from copies of the bytes that a crop needs, so that it cannot see any other byte of the file.
fn render(
    preparer: &mut Preparer,
    file: &[u8],
    index: &RowIndex,
    pipeline: &Pipeline,
    draw: Draw,
) -> Result<(Rendered, Vec<u8>), PixelError> {
    let mut memory = PlanMemory::default();
    let compiled = CompiledPipeline::of(pipeline).unwrap();
    let mut plan = SamplePlan::crop(&compiled, draw, &mut memory);
    let reads = plan.bytes_of_jpeg(index)?;
    let header = file[..index.header_bytes() as usize].to_vec();
    let rows = file[reads.start as usize..reads.end as usize].to_vec();
    let part = PartialJpeg { index, header: &header, rows: &rows, rows_offset: reads.start };
    let mut out = vec![0xA5; pipeline.output().bytes()];
    preparer.render(&Source::Rows(part), &mut plan, &mut out).map(|rendered| (rendered, out))
}

fn prepare(
    preparer: &mut Preparer,
    file: &[u8],
    pipeline: &Pipeline,
    draw: Draw,
) -> Result<(Rendered, Vec<u8>), PixelError> {
    let mut out = vec![0; pipeline.output().bytes()];
    let prepared = preparer.prepare(Source::Encoded(file), pipeline, draw, &mut out);
    prepared.map(|prepared| (Rendered::Done(prepared), out))
}

/// Files with an orientation, and pipelines of any operations.
fn cases() -> impl Strategy<Value = (Sample, Pipeline)> {
    let operations = prop::collection::vec(operation(), 1..5);
    let pipeline = (any::<bool>(), operations, 1u32..40).prop_map(|(exif_orientation, operations, last)| {
        let mut pipeline = Pipeline { exif_orientation, operations };
        let crop = Operation::from(CenterCrop::to(last));
        if pipeline.validate().is_err() {
            pipeline.operations.push(crop.clone());
        }
        // Some images are too small to be blurred.
        if pipeline.validate().is_err() {
            pipeline.operations = vec![crop];
        }
        pipeline
    });
    let sample = (samples(), prop::option::of(1u8..=8)).prop_map(|(mut sample, orientation)| {
        sample.options.orientation = orientation;
        sample
    });
    (sample, pipeline)
}

fn draw(seed: u64) -> Draw {
    Draw { seed, epoch: 0, sample_id: 1 }
}

#[test]
fn a_crop_from_its_rows_is_the_one_from_the_file() {
    // Numbers of crops that need only some rows, of these with an orientation that is turned, with halved rows of
    // colours, and with restart markers.
    let (parts, turned, halved, restarted) = (Cell::new(0), Cell::new(0), Cell::new(0), Cell::new(0));
    check(2000, 61, (cases(), any::<[u64; 4]>()), |((sample, pipeline), seeds)| {
        let file = sample.file();
        let index = RowIndex::parse(&index_of(&file).to_bytes()).unwrap();
        prop_assert_eq!(index.size(), sample.size);
        let mut preparer = Preparer::new(Limits::default());
        for draw in seeds.map(draw) {
            let expected = prepare(&mut preparer, &file, &pipeline, draw);
            let rendered = render(&mut preparer, &file, &index, &pipeline, draw);
            let is_same = rendered == expected;
            prop_assert!(is_same, "{:?} {:?}", rendered.map(|(rendered, _)| rendered), expected.is_ok());
            let Ok(reads) = reads_of(&index, &pipeline, draw) else { continue };
            let is_part = reads.end - reads.start < index.file_bytes_min() - index.header_bytes();
            add(&parts, is_part);
            add(&turned, is_part && pipeline.exif_orientation && index.orientation() > 4);
            add(&halved, is_part && matches!(sample.options.layout, Layout::Yuv420 | Layout::Yuv440));
            add(&restarted, is_part && sample.options.restart_rows + sample.options.restart_mcus > 0);
        }
        Ok(())
    });
    let counts = [parts, turned, halved, restarted].map(Cell::into_inner);
    let least = [1500, 150, 300, 500];
    assert!(counts.iter().zip(least).all(|(&count, least)| count >= least), "{counts:?} of at least {least:?}");
}

/// Leaves out the first row of MCUs or the last one: the decoder notices.
#[test]
fn no_row_is_read_without_need() {
    let narrowed = Cell::new(0);
    check(500, 62, (cases(), any::<u64>()), |((sample, pipeline), seed)| {
        let file = sample.file();
        let index = index_of(&file);
        let compiled = CompiledPipeline::of(&pipeline).unwrap();
        let Ok(Some(rows)) = SamplePlan::crop(&compiled, draw(seed), &mut PlanMemory::default()).rows_of_jpeg(&index)
        else {
            return Ok(());
        };
        let mut plan = PassPlan::default();
        let orientation = if pipeline.exif_orientation { index.orientation() } else { 1 };
        let size = upright_size(index.size(), orientation);
        plan.draw(&CompiledPipeline::of(&pipeline).unwrap(), size, draw(seed)).unwrap();
        let rect = stored_rect(plan.source_rect(size).unwrap(), index.size(), orientation);
        let header = &file[..index.header_bytes() as usize];
        let all = index.in_file(rows.clone());
        for rows in [rows.start + 1..rows.end, rows.start..rows.end - 1] {
            // A row of a few bits may lie in a byte of the next row.
            if rows.is_empty() || index.in_file(rows.clone()) == all {
                continue;
            }
            let coded = index.checked(rows, &file, 0).unwrap();
            let (mut decoder, mut band) = (BaselineDecoder::new(Level::best()), Vec::new());
            let mut part = decoder.open_part(header, coded, index.checkpoints(), &mut band).unwrap();
            prop_assert!(part.read(rect, &mut |_| Ok(())).is_err() && part.gave_up());
            add(&narrowed, true);
        }
        Ok(())
    });
    assert!(narrowed.get() >= 300, "{} narrower ranges", narrowed.get());
}

#[test]
fn damage_in_the_part_needs_the_file_and_damage_elsewhere_does_not() {
    let (inside, outside) = (Cell::new(0), Cell::new(0));
    check(1000, 63, (cases(), any::<u64>(), any::<[u32; 4]>(), 0u8..8), |((sample, pipeline), seed, places, bit)| {
        let file = sample.file();
        let index = index_of(&file);
        let mut preparer = Preparer::new(Limits::default());
        let Ok(reads) = reads_of(&index, &pipeline, draw(seed)) else { return Ok(()) };
        let expected = prepare(&mut preparer, &file, &pipeline, draw(seed)).unwrap();
        for place in places {
            let mut damaged = file.clone();
            let at = place as usize % file.len();
            damaged[at] ^= 1 << bit;
            let (rendered, out) = render(&mut preparer, &damaged, &index, &pipeline, draw(seed)).unwrap();
            let is_inside = (at as u64) < index.header_bytes() || reads.contains(&(at as u64));
            if is_inside {
                prop_assert_eq!(rendered, Rendered::NeedsFile, "byte {}", at);
            } else {
                prop_assert!((rendered, out) == expected, "byte {at}");
            }
            add(if is_inside { &inside } else { &outside }, true);
        }
        Ok(())
    });
    let counts = [inside.get(), outside.get()];
    assert!(counts[0] >= 1000 && counts[1] >= 500, "{counts:?} damaged bytes");
}

#[test]
fn what_the_decoder_gives_up_needs_the_file() {
    let (given_up, done) = (Cell::new(0), Cell::new(0));
    check(400, 64, (cases(), any::<u64>(), any::<[u32; 4]>(), 0u8..8), |((sample, pipeline), seed, places, bit)| {
        let file = sample.file();
        let mut index = index_of(&file);
        let mut preparer = Preparer::new(Limits::default());
        let Ok(reads) = reads_of(&index, &pipeline, draw(seed)) else { return Ok(()) };
        for place in places.iter().filter(|_| !reads.is_empty()) {
            let mut damaged = file.clone();
            damaged[(reads.start + u64::from(*place) % (reads.end - reads.start)) as usize] ^= 1 << bit;
            // The checksums of the damaged bytes leave the damage to the decoder.
            index.seal(&damaged).unwrap();
            let (rendered, _) = render(&mut preparer, &damaged, &index, &pipeline, draw(seed)).unwrap();
            add(if rendered == Rendered::NeedsFile { &given_up } else { &done }, true);
        }
        Ok(())
    });
    let counts = [given_up.get(), done.get()];
    assert!(counts[0] >= 50 && counts[1] >= 50, "{counts:?} given up and done");
}

#[test]
fn other_bytes_than_those_of_the_index_need_the_file() {
    let options = JpegOptions { layout: Layout::Yuv420, ..JpegOptions::default() };
    let sample = Sample { options, size: (240, 200), seed: 7, noise: 20 };
    let file = sample.file();
    let (index, pipeline) = (index_of(&file), Pipeline::of([CenterCrop::to(40).into()]));
    let reads = reads_of(&index, &pipeline, draw(0)).unwrap();
    let (start, end) = (reads.start as usize, reads.end as usize);
    let header = &file[..index.header_bytes() as usize];
    let mut preparer = Preparer::new(Limits::default());
    let (expected, pixels) = prepare(&mut preparer, &file, &pipeline, draw(0)).unwrap();
    let render = |preparer: &mut Preparer, header, rows, from: usize| {
        let mut out = vec![0xA5; pixels.len()];
        let part = PartialJpeg { index: &index, header, rows, rows_offset: from as u64 };
        let mut memory = PlanMemory::default();
        let compiled = CompiledPipeline::of(&pipeline).unwrap();
        let mut plan = SamplePlan::crop(&compiled, draw(0), &mut memory);
        let rendered = preparer.render(&Source::Rows(part), &mut plan, &mut out).unwrap();
        assert!(rendered == Rendered::NeedsFile || out == pixels);
        rendered
    };
    // The rows, and the rows among others.
    assert_eq!(render(&mut preparer, header, &file[start..end], start), expected);
    assert_eq!(render(&mut preparer, header, &file[start - 9..end + 9], start - 9), expected);
    assert_eq!(render(&mut preparer, header, &file, 0), expected);
    for (from, rows) in [
        (start, &file[start..end - 1]),
        (start + 1, &file[start + 1..end]),
        (start + 1, &file[start..end]),
        (0, &file[start..end]),
        (start, &[]),
    ] {
        assert_eq!(render(&mut preparer, header, rows, from), Rendered::NeedsFile, "{} bytes at {from}", rows.len());
    }
    for header in [&header[1..], &file[..header.len() + 1], &[]] {
        assert_eq!(render(&mut preparer, header, &file, 0), Rendered::NeedsFile, "{} bytes", header.len());
    }
    assert_eq!(render(&mut Preparer::by_libjpeg(Limits::default()), header, &file, 0), Rendered::NeedsFile);
    let limits = Limits { pixels: 100, ..Limits::default() };
    let part = PartialJpeg { index: &index, header, rows: &file, rows_offset: 0 };
    let refused = Preparer::new(limits).prepare(Source::Rows(part), &pipeline, draw(0), &mut vec![0; pixels.len()]);
    assert_eq!(refused, Err(PixelError::TooManyPixels { width: 240, height: 200, limit: 100 }));
}
