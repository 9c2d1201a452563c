//! JPEGs with row indices: the pixels of the source, from a part of its bytes.

use super::{Bench, prepare_by, quietly};
use crate::forms::{FormNotes, Unusable};
use crate::pack::{Blocks, Pack, PackFormat, PackOptions, StoredForm, Survey, verify};
use crate::{BytesRead, Corrupt, Dataset, Header, ReadError, Reads, SampleError, SampleReader, open};
use ddlp_pixels::encode::{JpegOptions, Layout, jpeg};
use ddlp_pixels::ops::{CenterCrop, RandomHorizontalFlip, RandomResizedCrop, Resize};
use ddlp_pixels::{Pipeline, PlanMemory, SamplePlan, synthetic};
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A pack's bytes in memory, which counts the bytes that are read.
#[derive(Clone, Debug, Default)]
struct Counted {
    bytes: Arc<Mutex<Vec<u8>>>,
    read: Arc<AtomicU64>,
}

impl Blocks for Counted {
    fn len_bytes(&self) -> u64 {
        self.bytes.lock().unwrap().len() as u64
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.read.fetch_add(out.len() as u64, Ordering::Relaxed);
        let bytes = self.bytes.lock().unwrap();
        let from = bytes.get(offset as usize..).and_then(|bytes| bytes.get(..out.len()));
        out.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn session(&self) -> u64 {
        0
    }

    fn interrupt(&self) {}
}

/// Writes JPEGs of the usual layouts, which are large enough for a row index, and a small one. Packs them.
fn packed(bench: &Bench) -> (Box<dyn Dataset>, Counted, Pack) {
    let folder = bench.path("source/class0");
    fs::remove_dir_all(bench.path("source")).unwrap();
    fs::create_dir_all(&folder).unwrap();
    let (width, height) = (331, 243);
    let pixels = synthetic::photo(width, height, 5);
    for (number, layout) in (0u32..).zip([Layout::Yuv444, Layout::Yuv422, Layout::Yuv420]) {
        let base = JpegOptions { layout, ..JpegOptions::default() };
        let kinds = [
            base.clone(),
            JpegOptions { orientation: Some(6), ..base.clone() },
            JpegOptions { restart_rows: 2, ..base.clone() },
            JpegOptions { progressive: true, orientation: Some(3), ..base },
        ];
        for (kind, options) in kinds.iter().enumerate() {
            let file = jpeg(&pixels, width, height, options).unwrap();
            fs::write(folder.join(format!("{number}{kind}.jpg")), file).unwrap();
        }
    }
    let small = jpeg(&pixels[..3 * 16 * 16], 16, 16, &JpegOptions::default()).unwrap();
    fs::write(folder.join("small.jpg"), small).unwrap();
    let (source, out) = (open(&bench.path("source")).unwrap(), bench.path("rows.ddlp"));
    let options = PackOptions { format: PackFormat::of(StoredForm::Rows), verify: true, ..PackOptions::default() };
    quietly(&*source, &out, &options).unwrap();
    let counted = Counted::default();
    *counted.bytes.lock().unwrap() = fs::read(&out).unwrap();
    let pack = Pack::from_blocks(Box::new(counted.clone()), Path::new("memory")).unwrap();
    (source, counted, pack)
}

fn pipelines() -> [Pipeline; 3] {
    let crop = RandomResizedCrop::within(24, [0.02, 0.3], [0.5, 2.0]);
    let of = |exif_orientation, operations| Pipeline { exif_orientation, operations };
    [
        of(true, vec![crop.clone().into(), RandomHorizontalFlip { p: 0.5 }.into()]),
        of(false, vec![crop.into()]),
        of(true, vec![Resize::to(48).into(), CenterCrop::to(40).into()]),
    ]
}

fn prepare(
    dataset: &dyn Dataset,
    index: u64,
    pipeline: &Pipeline,
    epoch: u32,
) -> Result<(ddlp_pixels::Prepared, Vec<u8>), SampleError> {
    prepare_by(&mut SampleReader::default(), dataset, index, pipeline, epoch)
}

#[test]
fn crops_have_the_pixels_of_the_source_and_read_only_their_rows() {
    let bench = Bench::new(1, 1);
    let (source, counted, pack) = packed(&bench);
    assert_eq!(Survey::of(&pack).unwrap().forms[&StoredForm::Rows], 12, "all but the small one");
    let index_bytes: u64 = (0..12).map(|index| u64::from(pack.record(index).unwrap().detail_length)).sum();
    assert!(index_bytes * 64 < pack.layout().data_bytes, "{index_bytes}");
    for (pipeline, draws) in pipelines().iter().zip([40, 20, 1]) {
        let (mut read, mut whole, mut reader) = (0, 0, SampleReader::default());
        for index in 0..pack.len() {
            for epoch in 0..draws {
                let expected = prepare(&*source, index, pipeline, epoch).unwrap();
                let before = counted.read.load(Ordering::Relaxed);
                let prepared = prepare_by(&mut reader, &pack, index, pipeline, epoch).unwrap();
                assert!(prepared == expected, "{index} {pipeline:?} {epoch}");
                read += counted.read.load(Ordering::Relaxed) - before;
                whole += u64::from(pack.record(index).unwrap().length);
            }
        }
        let counted = reader.take_read();
        assert_eq!(counted.bytes, read, "what was read is counted");
        assert!(counted.block_bytes > read && counted.block_bytes.is_multiple_of(4096), "{counted:?}");
        assert_eq!(reader.take_read(), BytesRead::default());
        if draws > 1 {
            assert!(read * 10 < whole * 8, "{read} of {whole} bytes");
        }
    }
}

/// The photographs have as many pixels as ImageNet's usual ones, and half of their bytes, so that blocks weigh more.
/// One more row of MCUs above and below each crop would add 5 %.
#[test]
fn a_training_crop_asks_for_little_more_than_its_rows() {
    let bench = Bench::new(1, 1);
    let folder = bench.path("source/class0");
    fs::remove_dir_all(bench.path("source")).unwrap();
    fs::create_dir_all(&folder).unwrap();
    let options = JpegOptions { quality: 96, ..JpegOptions::default() };
    for seed in 0..6 {
        let (width, height) = (500 - seed * 7, 375 + seed * 5);
        let file = jpeg(&synthetic::photo(width, height, seed), width, height, &options).unwrap();
        fs::write(folder.join(format!("{seed}.jpg")), file).unwrap();
    }
    let (source, out) = (open(&bench.path("source")).unwrap(), bench.path("rows.ddlp"));
    let options = PackOptions { format: PackFormat::of(StoredForm::Rows), ..PackOptions::default() };
    quietly(&*source, &out, &options).unwrap();
    let pack = Pack::open(&out).unwrap();
    let records: Vec<_> = (0..pack.len()).map(|index| pack.record(index).unwrap()).collect();
    let files: u64 = records.iter().map(|record| u64::from(record.length)).sum();
    let index: u64 = records.iter().map(|record| u64::from(record.detail_length)).sum();
    assert!(index * 200 <= files, "the row indices have {index} bytes, the files {files}");
    let (mut reader, draws) = (SampleReader::default(), 100);
    for (sample, draw) in (0..pack.len()).flat_map(|sample| (0..draws).map(move |draw| (sample, draw))) {
        prepare_by(&mut reader, &pack, sample, &Pipeline::imagenet_train(), draw).unwrap();
    }
    let BytesRead { bytes, block_bytes, sample_bytes } = reader.take_read();
    assert_eq!(sample_bytes, files * u64::from(draws));
    let share = |bytes: u64| bytes as f64 / sample_bytes as f64;
    assert!(share(bytes) < 0.765, "{}", share(bytes));
    assert!(share(block_bytes) < 0.856, "{}", share(block_bytes));
}

#[test]
fn what_is_read_first_of_a_sample_lies_in_one_block() {
    let (_, _, pack) = packed(&Bench::new(1, 1));
    for header in (0..pack.len()).map(|index| pack.header(index).unwrap()) {
        if header.form == StoredForm::Rows {
            let first = header.form.first_bytes(&header);
            assert_eq!(first.start / 4096, (first.end - 1) / 4096, "{first:?}");
        }
    }
}

/// The pack is as if made by hand: its checksums are right, but the row index belongs to another file.
#[test]
fn a_row_index_that_does_not_fit_its_file_is_not_used() {
    let (_, counted, pack) = packed(&Bench::new(1, 1));
    let header = pack.header(0).unwrap();
    let first = header.form.first_bytes(&header);
    let bytes = counted.bytes.lock().unwrap();
    let next = |header: &Header| {
        let (mut plans, mut notes, mut reads) = (PlanMemory::default(), FormNotes::default(), Reads::default());
        let plan = &mut SamplePlan::whole(&mut plans);
        let read = &bytes[first.start as usize..first.end as usize];
        header.form.next(header, read, plan, &mut notes, &mut reads).map(|()| !reads.extents().is_empty())
    };
    assert_eq!(next(&header), Ok(true));
    // The bytes that the row index names must lie in the file. The row index does not name the file's last two bytes.
    let shortened = |by: u64| Header { bytes: header.bytes.start..header.bytes.end - by, ..header.clone() };
    assert_eq!(next(&shortened(2)), Ok(true));
    assert_eq!(next(&shortened(3)), Err(Unusable::NeedsFile));
    let (width, height) = header.size;
    for size in [(width + 1, height), (width, height - 1), (0, 0)] {
        assert_eq!(next(&Header { size, ..header.clone() }), Err(Unusable::NeedsFile), "{size:?}");
    }
}

#[test]
fn damage_costs_no_pixels_where_the_whole_file_has_them_and_is_an_error_elsewhere() {
    let bench = Bench::new(1, 1);
    let (source, counted, pack) = packed(&bench);
    let record = pack.record(0).unwrap();
    let whole = &pipelines()[2];
    let expected = prepare(&*source, 0, whole, 0).unwrap();
    let flip = |at: u64| counted.bytes.lock().unwrap()[at as usize] ^= 1;
    for at in [record.detail().start, record.detail().start + 30, record.detail().end - 1] {
        flip(at);
        assert!(prepare(&pack, 0, whole, 0).unwrap() == expected, "a damaged row index at {at}");
        flip(at);
    }
    for at in [record.offset + 30, record.offset + 5000] {
        flip(at);
        let error = prepare(&pack, 0, whole, 0).unwrap_err();
        assert!(matches!(error, SampleError::Read(ReadError::Corrupt(Corrupt::Checksum { .. }))), "{error}");
        flip(at);
    }
    assert!(prepare(&pack, 0, whole, 0).unwrap() == expected);
    let path = bench.path("rows.ddlp");
    flip(record.detail().start + 9);
    fs::write(&path, &*counted.bytes.lock().unwrap()).unwrap();
    let report = verify(&path, 1, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(report.broken_count, 1);
    assert!(report.broken[0].to_string().contains("row index"), "{}", report.broken[0]);
}

#[test]
fn a_pack_in_rows_is_packed_again_with_its_files() {
    let bench = Bench::new(1, 1);
    let (source, _, _) = packed(&bench);
    let rows = open(&bench.path("rows.ddlp")).unwrap();
    let options = PackOptions { format: PackFormat::of(StoredForm::Kept), ..PackOptions::default() };
    quietly(&*rows, &bench.path("again.ddlp"), &options).unwrap();
    let again = Pack::open(&bench.path("again.ddlp")).unwrap();
    let pipeline = &pipelines()[0];
    for index in 0..again.len() {
        assert_eq!(again.record(index).unwrap().form, StoredForm::Kept);
        assert!(prepare(&again, index, pipeline, 1).unwrap() == prepare(&*source, index, pipeline, 1).unwrap());
    }
}
