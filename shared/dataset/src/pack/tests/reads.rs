//! Which bytes of a pack a crop reads, in each form, and when they are known.

use super::{Bench, quietly};
use crate::forms::FormNotes;
use crate::pack::{Blocks, Pack, PackFormat, PackOptions, StoredForm};
use crate::{Dataset, Drawn, FetchedSample, Reads, SampleReader, SampleToFetch, StoredAt, open};
use ddlp_pixels::encode::{JpegOptions, jpeg};
use ddlp_pixels::ops::CenterCrop;
use ddlp_pixels::{
    CompiledPipeline, Draw, Fidelity, Limits, Pipeline, PlanMemory, Prepared, Preparer, Rendered, SamplePlan, synthetic,
};
use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// A pack's bytes in memory, and the ranges that are read.
#[derive(Clone, Debug, Default)]
struct Recorded(Arc<Mutex<Contents>>);

#[derive(Debug, Default)]
struct Contents {
    bytes: Vec<u8>,
    read: Vec<Range<u64>>,
    fails: bool,
    /// Bytes that come flipped once.
    flips: Vec<u64>,
}

impl Recorded {
    fn take(&self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.0.lock().unwrap().read)
    }

    fn damage(&self, ranges: &[Range<u64>]) {
        let bytes = &mut self.0.lock().unwrap().bytes;
        for range in ranges {
            bytes[range.start as usize..range.end as usize].iter_mut().for_each(|byte| *byte ^= 0x55);
        }
    }
}

impl Blocks for Recorded {
    fn len_bytes(&self) -> u64 {
        self.0.lock().unwrap().bytes.len() as u64
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut contents = self.0.lock().unwrap();
        if contents.fails {
            return Err(io::Error::other("the store is gone"));
        }
        contents.read.push(offset..offset + out.len() as u64);
        out.copy_from_slice(&contents.bytes[offset as usize..][..out.len()]);
        contents.flips.retain(|flip| match flip.checked_sub(offset).and_then(|at| out.get_mut(at as usize)) {
            Some(byte) => {
                *byte ^= 1;
                false
            }
            None => true,
        });
        Ok(())
    }

    fn session(&self) -> u64 {
        0
    }

    fn interrupt(&self) {}
}

/// Returns a pack of one photograph in this form.
fn packed(bench: &Bench, form: StoredForm) -> (Recorded, Pack) {
    let (width, height) = (331, 243);
    let file = jpeg(&synthetic::photo(width, height, 5), width, height, &JpegOptions::default()).unwrap();
    packed_file(bench, form, "0000.jpg", &file)
}

/// Returns a pack of one file in this form.
fn packed_file(bench: &Bench, form: StoredForm, name: &str, file: &[u8]) -> (Recorded, Pack) {
    fs::remove_dir_all(bench.path("source/class0")).unwrap();
    fs::create_dir(bench.path("source/class0")).unwrap();
    fs::write(bench.path("source/class0").join(name), file).unwrap();
    let (source, out) = (open(&bench.path("source")).unwrap(), bench.path("out.ddlp"));
    let options = PackOptions { format: PackFormat::of(form), overwrite: true, ..PackOptions::default() };
    quietly(&*source, &out, &options).unwrap();
    let recorded = Recorded::default();
    recorded.0.lock().unwrap().bytes = fs::read(&out).unwrap();
    let pack = Pack::from_blocks(Box::new(recorded.clone()), Path::new("memory")).unwrap();
    (recorded, pack)
}

fn pipeline() -> CompiledPipeline {
    CompiledPipeline::of(&Pipeline::of([CenterCrop::to(40).into()])).unwrap()
}

fn prepare(pack: &Pack) -> Vec<u8> {
    prepare_by(&mut SampleReader::default(), pack)
}

fn prepare_by(reader: &mut SampleReader, pack: &Pack) -> Vec<u8> {
    let (mut out, mut preparer) = (vec![0; pipeline().output().bytes()], Preparer::new(Limits::default()));
    reader
        .prepare(
            StoredAt { dataset: pack, index: 0 },
            None,
            &mut preparer,
            Drawn { pipeline: &pipeline(), draw: Draw::default(), fidelity: Fidelity::WHOLE },
            &mut out,
        )
        .unwrap();
    out
}

#[test]
#[expect(clippy::single_range_in_vec_init, reason = "lists of one extent")]
fn a_crop_reads_what_its_form_names_before_anything_is_read() {
    let bench = Bench::new(1, 1);
    for form in [StoredForm::Kept, StoredForm::Indexed, StoredForm::Raw, StoredForm::Rows] {
        let (recorded, pack) = packed(&bench, form);
        let (header, pipeline, mut memory) = (pack.header(0).unwrap(), pipeline(), PlanMemory::default());
        recorded.take();
        let mut plan = SamplePlan::crop(&pipeline, Draw::default(), &mut memory);
        let mut named = Reads::default();
        form.add_reads(&header, &mut plan, &mut named).unwrap();
        assert_eq!(recorded.take(), [], "{form:?}: to plan is not to read");
        prepare(&pack);
        let mut read = recorded.take();
        let (bytes, row) = (header.bytes.clone(), 3 * 331);
        // Rows 101 to 140 lie in the groups of rows 96 to 143.
        let groups = bytes.start + 96 * row..bytes.start + 144 * row;
        let expected = match form {
            StoredForm::Kept => vec![bytes.clone()],
            StoredForm::Indexed => vec![bytes.start..header.detail.end],
            StoredForm::Raw => vec![header.detail.clone(), groups],
            _ => vec![header.detail.start..bytes.start + 1024],
        };
        assert_eq!(named.extents(), expected, "{form:?}");
        if form == StoredForm::Rows {
            let part = read.pop().unwrap();
            assert!(part.start > bytes.start && part.end < bytes.end, "{part:?} of {bytes:?}");
            assert!((part.end - part.start) * 3 < bytes.end - bytes.start, "{part:?} of {bytes:?}");
        }
        assert_eq!(read, expected, "{form:?}");
    }
}

#[test]
fn a_damaged_part_is_read_again_with_the_whole_file() {
    let bench = Bench::new(1, 1);
    let (recorded, pack) = packed(&bench, StoredForm::Rows);
    let (header, expected) = (pack.header(0).unwrap(), prepare(&pack));
    recorded.take();
    // The row index expects other bytes than the file has. The file has a checksum of its own.
    let index = header.detail.start as usize + 24..header.detail.end as usize;
    recorded.0.lock().unwrap().bytes[index].fill(0);
    assert!(prepare(&pack) == expected, "the pixels are those of the file");
    // Two reads tell that the part is stored so, and the superblock that it is still the same pack.
    let (part, superblock) = (header.detail.start..header.bytes.start + 1024, 0..4096);
    assert_eq!(recorded.take(), [part.clone(), superblock.clone(), part, superblock, header.bytes.clone()]);
}

#[test]
fn a_part_that_arrives_damaged_is_read_again_and_the_rest_of_the_sample_is_not() {
    let bench = Bench::new(1, 1);
    for form in [StoredForm::Kept, StoredForm::Indexed, StoredForm::Raw, StoredForm::Rows] {
        let (recorded, pack) = packed(&bench, form);
        let (header, mut reader) = (pack.header(0).unwrap(), SampleReader::default());
        recorded.take();
        let expected = prepare_by(&mut reader, &pack);
        let (reads, intact) = (recorded.take(), reader.take_read());
        // What the share of the bytes that were read refers to: all bytes of the sample, without its detail.
        assert_eq!(intact.sample_bytes, header.bytes.end - header.bytes.start, "{form:?}");
        assert_eq!(intact.bytes, reads.iter().map(|read| read.end - read.start).sum::<u64>(), "{form:?}");
        let damaged = reads.last().unwrap();
        recorded.0.lock().unwrap().flips = vec![damaged.start + (damaged.end - damaged.start) / 2];
        assert!(prepare_by(&mut reader, &pack) == expected, "{form:?}");
        assert!(recorded.0.lock().unwrap().flips.is_empty(), "{form:?}: a byte came flipped");
        assert_eq!(reader.take_healed(), 1, "{form:?}");
        // The superblock tells that it is still the same pack.
        let superblock = 0..4096;
        let twice: Vec<_> = reads.iter().chain([&superblock]).chain(&reads).cloned().collect();
        assert_eq!(recorded.take(), twice, "{form:?}");
        let again = reader.take_read();
        assert_eq!((again.bytes, again.sample_bytes), (2 * intact.bytes, intact.sample_bytes), "{form:?}");
    }
}

#[test]
fn bytes_may_come_in_any_order() {
    let bench = Bench::new(1, 1);
    let (_, pack) = packed(&bench, StoredForm::Raw);
    let (header, pipeline, mut memory) = (pack.header(0).unwrap(), pipeline(), PlanMemory::default());
    let plan = &mut SamplePlan::crop(&pipeline, Draw::default(), &mut memory);
    let mut reads = Reads::default();
    header.form.add_reads(&header, plan, &mut reads).unwrap();
    let mut bytes = vec![0; reads.bytes() as usize];
    let mut end = bytes.len();
    for range in reads.extents().iter().rev() {
        let start = end - (range.end - range.start) as usize;
        pack.read(0, &header, range.start, &mut bytes[start..end]).unwrap();
        end = start;
    }
    let mut notes = FormNotes::default();
    let mut more = Reads::default();
    assert_eq!(header.form.next(&header, &bytes, plan, &mut notes, &mut more), Ok(()));
    assert!(more.extents().is_empty());
    let source = header.form.source(&header, &bytes, plan, &notes).unwrap();
    let mut out = vec![0; pipeline.output().bytes()];
    let rendered = Preparer::new(Limits::default()).render(&source, plan, &mut out).unwrap();
    assert_eq!(rendered, Rendered::Done(Prepared::default()));
    assert!(out == prepare(&pack));
}

#[test]
fn one_thread_fetches_and_another_one_renders() {
    let bench = Bench::new(1, 1);
    let (mut fetched, limits) = (FetchedSample::default(), Limits::default());
    for form in [StoredForm::Kept, StoredForm::Indexed, StoredForm::Raw, StoredForm::Rows] {
        let (recorded, pack) = packed(&bench, form);
        let pipeline = pipeline();
        let drawn = Drawn { pipeline: &pipeline, draw: Draw::default(), fidelity: Fidelity::WHOLE };
        recorded.take();
        let expected = prepare(&pack);
        let read = recorded.take();
        let fetch = |fetched: FetchedSample| {
            let (index, draw) = (0, Draw::default());
            let mut samples = [SampleToFetch { index, draw, fidelity: Fidelity::WHOLE, fetched }];
            SampleReader::default().fetch(&pack, limits, &pipeline, &mut samples).unwrap();
            let [SampleToFetch { fetched, .. }] = samples;
            fetched
        };
        fetched = fetch(fetched);
        assert_eq!(recorded.take(), read, "{form:?}");
        let render = |fetched: &mut FetchedSample| {
            let (mut out, mut preparer) = (vec![0; pipeline.output().bytes()], Preparer::new(limits));
            let sample = StoredAt { dataset: &pack as &dyn Dataset, index: 0 };
            SampleReader::default().prepare(sample, Some(fetched), &mut preparer, drawn, &mut out).map(|_| out)
        };
        assert!(render(&mut fetched).unwrap() == expected, "{form:?}");
        assert_eq!(recorded.take(), [], "{form:?}: what was fetched suffices");
        assert!(render(&mut fetched).unwrap() == expected, "{form:?}: a sample is rendered once");
        assert_eq!(recorded.take(), read, "{form:?}: and then read again");
        // Damage in every byte that is read of the sample.
        recorded.damage(&read);
        fetched = fetch(fetched);
        let by_fetching = recorded.take();
        assert!(read.starts_with(&by_fetching), "{form:?}: damage is left to the thread that prepares");
        assert!(render(&mut fetched).is_err(), "{form:?}");
        assert!(recorded.take().len() > by_fetching.len(), "{form:?}: which reads it again");
    }
}

/// Large samples in flight together could exceed the look-ahead's bound.
#[test]
fn samples_of_many_bytes_are_left_to_the_thread_that_renders_them() {
    let bench = Bench::new(1, 1);
    let side = 1300;
    let [pixels, noise] = [synthetic::photo(side, side, 5), noise(2 * side, side)];
    let file = jpeg(&pixels, side, side, &JpegOptions::default()).unwrap();
    let (recorded, pack) = packed_file(&bench, StoredForm::Raw, "0000.jpg", &file);
    assert_large_crops_are_left(&recorded, &pack, &[(40, true), (side, false)]);
    let file = jpeg(&noise, 2 * side, side, &JpegOptions { quality: 100, ..JpegOptions::default() }).unwrap();
    assert!(file.len() > 4 << 20, "{} bytes", file.len());
    let (recorded, pack) = packed_file(&bench, StoredForm::Rows, "0000.jpg", &file);
    assert_large_crops_are_left(&recorded, &pack, &[(40, true), (side, false)]);
    let (recorded, pack) = packed_file(&bench, StoredForm::Kept, "0000.jpg", &file);
    assert_large_crops_are_left(&recorded, &pack, &[(40, false)]);
    let (recorded, pack) = packed_file(&bench, StoredForm::Kept, "0000.bmp", &bmp(&pixels, side));
    assert_large_crops_are_left(&recorded, &pack, &[(40, false)]);
}

/// Checks which centre crops of these sizes are fetched.
fn assert_large_crops_are_left(recorded: &Recorded, pack: &Pack, sizes: &[(u32, bool)]) {
    let limits = Limits::default();
    for &(size, is_fetched) in sizes {
        let pipeline = CompiledPipeline::of(&Pipeline::of([CenterCrop::to(size).into()])).unwrap();
        let fetched = FetchedSample::default();
        let mut samples = [SampleToFetch { index: 0, draw: Draw::default(), fidelity: Fidelity::WHOLE, fetched }];
        recorded.take();
        SampleReader::default().fetch(pack, limits, &pipeline, &mut samples).unwrap();
        let bytes_read = || recorded.take().iter().map(|extent| extent.end - extent.start).sum::<u64>();
        let fetched = bytes_read();
        assert!(fetched < 4 << 20, "{fetched} bytes of a crop of {size}");
        let needed = FetchedSample::memory_needed(pack, 0).unwrap();
        assert!(needed > 4 << 20 && samples[0].fetched.memory_bytes() <= needed);
        let sample = StoredAt { dataset: pack as &dyn Dataset, index: 0 };
        let drawn = Drawn { pipeline: &pipeline, draw: Draw::default(), fidelity: Fidelity::WHOLE };
        let (mut out, mut preparer) = (vec![0; pipeline.output().bytes()], Preparer::new(limits));
        let fetched = Some(&mut samples[0].fetched);
        SampleReader::default().prepare(sample, fetched, &mut preparer, drawn, &mut out).unwrap();
        let left = bytes_read();
        assert!(if is_fetched { left == 0 } else { left > 3 << 20 }, "{left} bytes of a crop of {size}");
        assert!(samples[0].fetched.memory_bytes() <= 1 << 20, "unusually large memory is freed");
    }
}

/// Returns pixels that no codec makes small.
fn noise(width: u32, height: u32) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..3 * width * height).map(|_| next()).collect()
}

/// Returns a square image of RGB as a BMP file. The order of the colours and of the rows is wrong, which does not
/// matter here.
fn bmp(pixels: &[u8], side: u32) -> Vec<u8> {
    assert_eq!(side % 4, 0, "rows without padding");
    let mut file = b"BM".to_vec();
    for field in [54 + pixels.len() as u32, 0, 54, 40, side, side, 1 | 24 << 16, 0, pixels.len() as u32, 0, 0, 0, 0] {
        file.extend(field.to_le_bytes());
    }
    file.extend(pixels);
    file
}

#[test]
fn a_sample_whose_name_cannot_be_read_is_not_called_damaged() {
    let (recorded, pack) = packed(&Bench::new(1, 1), StoredForm::Kept);
    recorded.0.lock().unwrap().fails = true;
    assert_eq!(pack.name(0), "#0 (its name cannot be read)");
}
