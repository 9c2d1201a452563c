//! The forms of samples: each gives the same pixels; and the effects of damage.

use super::{Bench, Pixels, quietly};
use crate::forms::GROUPS;
use crate::pack::{
    Broken, Pack, PackFormat, PackOptions, PackSummary, StoredForm, StoredVerdict, Survey, WhyKept, verify,
    verify_sample,
};
use crate::samples::{contents, silently};
use crate::{Corrupt, Dataset, Drawn, ReadError, SampleError, SampleReader, StoredAt, open};
use ddlp_pixels::encode::{JpegOptions, Layout, jpeg};
use ddlp_pixels::ops::{CenterCrop, Operation, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, Resize};
use ddlp_pixels::{
    CompiledPipeline, CorruptReason, Draw, Fidelity, Limits, NotIndexed, Pipeline, PixelError, Preparer, Source,
    synthetic,
};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const KEPT: PackFormat = PackFormat::of(StoredForm::Kept);
const INDEXED: PackFormat = PackFormat::of(StoredForm::Indexed);
const RAW: PackFormat = PackFormat::of(StoredForm::Raw);

pub(super) fn encoded(number: u32, (width, height): (u32, u32), options: &JpegOptions) -> Vec<u8> {
    let pixels = synthetic::photo(width, height * 2, number);
    jpeg(&pixels[..(width * height * options.layout.channels()) as usize], width, height, options).unwrap()
}

/// A folder of one image of each layout, sequential and progressive, with and without restart markers and orientation,
/// an arithmetically coded one, one pixel, and a PPM. Returns how many.
pub(super) fn write_all_kinds(bench: &Bench) -> u64 {
    let folder = bench.path("source/class0");
    fs::remove_dir_all(bench.path("source")).unwrap();
    fs::create_dir_all(&folder).unwrap();
    let mut count = 0;
    let mut write = |name: &str, bytes: &[u8]| {
        fs::write(folder.join(format!("{count:03}-{name}")), bytes).unwrap();
        count += 1;
    };
    for (number, layout) in (0u32..).zip(Layout::ALL) {
        let size = (150 - number * 5, 61 + number * 9);
        let base = JpegOptions { layout, ..JpegOptions::default() };
        let turned = JpegOptions { orientation: Some(5 + (number % 4) as u8), ..base.clone() };
        write("plain.jpg", &encoded(number, size, &base));
        write("restarts.jpg", &encoded(number, size, &JpegOptions { restart_rows: 2, ..base.clone() }));
        write("turned.jpg", &encoded(number, size, &turned));
        write("progressive.jpg", &encoded(number, size, &JpegOptions { progressive: true, ..turned }));
    }
    write("arithmetic.jpg", &encoded(3, (90, 70), &JpegOptions { arithmetic: true, ..JpegOptions::default() }));
    write("one.jpg", &encoded(3, (1, 1), &JpegOptions::default()));
    write("other.ppm", &[b"P6 37 29 255\n", &synthetic::photo(37, 29, 1)[..]].concat());
    count
}

fn packed(bench: &Bench, name: &str, format: PackFormat) -> (PathBuf, PackSummary) {
    let out = bench.path(name);
    let options = PackOptions { format, overwrite: true, verify: true, threads: 2, ..PackOptions::default() };
    let summary = quietly(&*open(&bench.path("source")).unwrap(), &out, &options).unwrap();
    (out, summary)
}

fn pipelines() -> [Pipeline; 4] {
    let crop = Operation::from(RandomResizedCrop::within(24, [0.02, 1.0], [0.5, 2.0]));
    let flip = Operation::from(RandomHorizontalFlip { p: 0.5 });
    let exact = Operation::from(RandomCrop::padded(40, 20));
    let of = |exif_orientation, operations| Pipeline { exif_orientation, operations };
    [
        of(true, vec![crop.clone(), flip.clone()]),
        of(false, vec![crop]),
        of(false, vec![exact, flip]),
        of(true, vec![Resize::to(48).into(), CenterCrop::to(40).into()]),
    ]
}

/// Records hold the numbers; options, JSON and the tables of the first version hold the names.
#[test]
fn numbers_and_names_of_forms_stay() {
    let forms: BTreeMap<u8, &str> = StoredForm::ALL.iter().map(|&form| (form as u8, form.name())).collect();
    assert_eq!(
        forms,
        BTreeMap::from([(0, "kept"), (1, "planar"), (2, "indexed"), (3, "raw"), (4, "rows"), (5, "l3"), (6, "pcr")])
    );
}

#[test]
fn every_form_has_the_pixels_of_the_source() {
    let bench = Bench::new(1, 1);
    let samples = write_all_kinds(&bench);
    let source = open(&bench.path("source")).unwrap();
    let packs: Vec<Pack> = [("kept", KEPT), ("indexed", INDEXED), ("raw", RAW)]
        .map(|(name, format)| Pack::open(&packed(&bench, name, format).0).unwrap())
        .into();
    let (mut preparer, mut reader) = (Preparer::new(Limits::default()), SampleReader::default());
    let mut boxes = 0;
    for index in 0..samples {
        for (pipeline, draws) in pipelines().iter().zip([60, 30, 30, 1]) {
            let compiled = CompiledPipeline::of(pipeline).unwrap();
            let mut prepare = |dataset: &dyn Dataset, epoch| {
                let mut out = vec![0; pipeline.output().bytes()];
                let draw = Draw { seed: 11, epoch, sample_id: index };
                (
                    reader
                        .prepare(
                            StoredAt { dataset, index },
                            None,
                            &mut preparer,
                            Drawn { pipeline: &compiled, draw, fidelity: Fidelity::WHOLE },
                            &mut out,
                        )
                        .unwrap(),
                    out,
                )
            };
            for epoch in 0..draws {
                let expected = prepare(&*source, epoch);
                for pack in &packs {
                    let form = pack.record(index).unwrap().form;
                    assert!(prepare(pack, epoch) == expected, "{} {form:?} {pipeline:?} {epoch}", source.name(index));
                }
                boxes += packs.len();
            }
        }
    }
    assert!(boxes > 5000, "{boxes} boxes");
    // Each pack has the forms that it should.
    let survey = packs.iter().map(|pack| Survey::of(pack).unwrap()).collect::<Vec<_>>();
    let stored = |number: usize, form| survey[number].forms[&form];
    let counts = [stored(0, StoredForm::Kept), stored(1, StoredForm::Indexed), stored(2, StoredForm::Raw)];
    assert_eq!(counts, [samples, samples - 18, samples]);
}

/// Counts the samples in all tallies of a summary that do not overlap.
fn tallied(summary: &PackSummary) -> u64 {
    let of_forms = summary.forms.values().flat_map(|form| [&form.plain, &form.rewritten]);
    of_forms.chain(summary.kept.values()).chain([&summary.undecodable]).map(|tally| tally.samples).sum()
}

#[test]
fn what_was_done_with_each_sample_is_counted() {
    let bench = Bench::new(1, 1);
    let samples = write_all_kinds(&bench);
    let (_, kept) = packed(&bench, "kept.ddlp", KEPT);
    assert_eq!((kept.kept[&WhyKept::AskedFor].samples, tallied(&kept)), (samples, samples));
    let (out, indexed) = packed(&bench, "indexed.ddlp", INDEXED);
    let why = |why| indexed.kept.get(&why).map_or(0, |tally| tally.samples);
    let form = indexed.form(StoredForm::Indexed);
    // Six layouts of ten can be indexed; two have four components, two an unusual sampling.
    assert_eq!((form.plain.samples, form.rewritten.samples), (6 * 3 + 1, 6));
    assert_eq!(why(WhyKept::NotIndexed(NotIndexed::FourComponents)), 8);
    assert_eq!(why(WhyKept::NotIndexed(NotIndexed::Unusual)), 8);
    assert_eq!(why(WhyKept::NotIndexed(NotIndexed::Arithmetic)), 1);
    assert_eq!(why(WhyKept::NotIndexed(NotIndexed::OtherFormat)), 1);
    assert_eq!(tallied(&indexed), samples);
    let pack = Pack::open(&out).unwrap();
    let record = pack.record(0).unwrap();
    assert_eq!(
        (record.form, record.offset, record.was_shrunk),
        (StoredForm::Indexed, pack.layout().data_offset, false)
    );
    assert!(record.detail_length > 0);
    let all = form.plain;
    assert!(all.stored_bytes > all.source_bytes && all.stored_bytes * 10 < all.source_bytes * 11, "{all:?}");
    let (_, raw) = packed(&bench, "raw.ddlp", RAW);
    let form = raw.form(StoredForm::Raw);
    assert_eq!((form.plain.samples, form.shrunk.samples, tallied(&raw)), (samples, 0, samples));
    assert!(form.plain.stored_bytes > 4 * form.plain.source_bytes);
}

#[test]
fn a_repaired_sample_is_stored_as_a_whole_file_or_as_pixels() {
    let bench = Bench::new(1, 2);
    let mut bytes = crate::samples::image(5);
    let scan = bytes.windows(2).position(|two| two == [0xFF, 0xDA]).unwrap();
    bytes.splice(scan..scan, [0; 3]);
    fs::write(bench.path("source/class0/0000.jpg"), bytes).unwrap();
    fs::write(bench.path("source/class0/0001.jpg"), b"no image").unwrap();
    let form = |format| {
        let (out, summary) = packed(&bench, "out.ddlp", format);
        let pack = Pack::open(&out).unwrap();
        let records = [0, 1].map(|index| pack.record(index).unwrap());
        assert_eq!((records[0].verdict, summary.repaired_count), (StoredVerdict::Repaired, 1));
        let error = pack.sample(1, &mut Vec::new()).map(drop).unwrap_err();
        assert!(
            matches!(error, ReadError::Corrupt(Corrupt::Rejected { .. })) && records[1].form == StoredForm::Kept,
            "{error}"
        );
        assert_eq!((summary.undecodable.samples, summary.undecodable.stored_bytes), (1, 8));
        assert_eq!(tallied(&summary), 2);
        (records[0].form, summary.kept.into_keys().collect::<Vec<_>>())
    };
    assert_eq!(form(KEPT), (StoredForm::Kept, vec![WhyKept::AskedFor]));
    assert_eq!(form(INDEXED), (StoredForm::Kept, vec![WhyKept::Repaired]));
    assert_eq!(form(RAW), (StoredForm::Raw, vec![]));
}

#[test]
fn files_of_twelve_bits_and_lossless_ones_are_rejected_and_kept() {
    // The third image is intact: a source in which nothing decodes is refused.
    let bench = Bench::new(1, 3);
    let mut files = [0, 1].map(crate::samples::image);
    for (number, file) in files.iter_mut().enumerate() {
        let frame = file.windows(2).position(|two| two == [0xFF, 0xC0]).unwrap();
        // Sample precision; the code of a lossless frame.
        let (at, value) = [(frame + 4, 12), (frame + 1, 0xC3)][number];
        file[at] = value;
        fs::write(bench.path(&format!("source/class0/{number:04}.jpg")), file).unwrap();
    }
    for format in [KEPT, INDEXED, RAW] {
        let (out, summary) = packed(&bench, "out.ddlp", format);
        let pack = Pack::open(&out).unwrap();
        for (index, file) in (0..).zip(&files) {
            let record = pack.record(index).unwrap();
            let verdict = StoredVerdict::Rejected(CorruptReason::Unsupported);
            assert_eq!((record.form, record.verdict), (StoredForm::Kept, verdict), "{format:?} {index}");
            assert_eq!(u64::from(record.length), file.len() as u64);
        }
        assert_eq!((summary.undecodable.samples, tallied(&summary)), (2, 3));
        let why = summary.rejected.iter().map(|rejected| rejected.message.as_str()).collect::<Vec<_>>();
        assert_eq!(why, ["unsupported: 12 bits per component", "unsupported: lossless jpeg"], "{format:?}");
    }
}

#[test]
fn a_file_without_pixels_is_kept_with_a_reason() {
    let bench = Bench::new(1, 1);
    // Grey: 512 KiB of coefficients, 768 KiB of pixels.
    let grey = JpegOptions { layout: Layout::Gray, ..JpegOptions::default() };
    let file = encoded(1, (512, 512), &grey);
    fs::write(bench.path("source/class0/0000.jpg"), &file).unwrap();
    let limits = Limits { memory_bytes: 720_000, ..Limits::default() };
    let options = PackOptions { format: RAW, limits, ..PackOptions::default() };
    let out = bench.path("out.ddlp");
    let summary = quietly(&bench.source(), &out, &options).unwrap();
    let why = WhyKept::NotDecoded(CorruptReason::TooMuchMemory);
    assert_eq!(summary.kept.keys().collect::<Vec<_>>(), [&why]);
    assert_eq!((tallied(&summary), why.to_string().as_str()), (1, "too much memory"));
    let pack = Pack::open(&out).unwrap();
    let record = pack.record(0).unwrap();
    assert_eq!((record.form, record.verdict), (StoredForm::Kept, StoredVerdict::Intact));
    assert_eq!(contents(&pack)[0].3, file);
}

#[test]
fn a_survey_measures_samples_one_way() {
    let bench = Bench::new(1, 1);
    for format in [KEPT, INDEXED, RAW] {
        let pack = Pack::open(&packed(&bench, "out.ddlp", format).0).unwrap();
        let survey = Survey::of(&pack).unwrap();
        let record = pack.record(0).unwrap();
        let bytes = u64::from(record.length) + u64::from(record.detail_length);
        let all = (survey.smallest_bytes, survey.largest_bytes, survey.sample_bytes);
        assert_eq!(all, (bytes, bytes, bytes), "{format:?}");
    }
}

#[test]
fn packs_of_any_form_do_not_depend_on_threads_and_repack_to_the_same_bytes() {
    let bench = Bench::new(1, 1);
    write_all_kinds(&bench);
    for format in [KEPT, INDEXED, RAW, PackFormat { form: StoredForm::Raw, max_side: Some(100) }] {
        let bytes = |threads: usize, source: PathBuf, format| {
            let out = bench.path(&format!("{threads}.ddlp"));
            let options = PackOptions { threads, format, overwrite: true, verify: true, ..PackOptions::default() };
            quietly(&*open(&source).unwrap(), &out, &options).unwrap();
            fs::read(out).unwrap()
        };
        let one = bytes(1, bench.path("source"), format);
        assert_eq!(one, bytes(3, bench.path("source"), format), "{format:?}");
        // Only the source differs, which stands in the first block.
        let again = bytes(2, bench.path("1.ddlp"), format);
        assert!(one[4096..] == again[4096..], "{format:?}");
        let identity = |name: &str| Pack::open(&bench.path(name)).unwrap().identity();
        assert_eq!(identity("1.ddlp"), identity("2.ddlp"), "{format:?}");
        // Raw samples stay raw.
        if format.form == StoredForm::Raw {
            assert!(one[4096..] == bytes(2, bench.path("1.ddlp"), INDEXED)[4096..]);
        }
    }
}

#[test]
fn planes_stay_planes_in_an_uncompressed_pack() {
    let bench = Bench::new(1, 1);
    let source = Pixels::new(300);
    let out = bench.path("out.ddlp");
    let options = PackOptions { threads: 3, format: RAW, ..PackOptions::default() };
    let summary = quietly(&source, &out, &options).unwrap();
    assert_eq!((summary.form(StoredForm::Planar).plain.samples, tallied(&summary)), (300, 300));
    let pack = Pack::open(&out).unwrap();
    assert_eq!(contents(&pack), contents(&source));
    assert_eq!(pack.layout().data_bytes, 900);
}

#[test]
fn larger_images_are_shrunk_and_reported() {
    let bench = Bench::new(1, 1);
    write_all_kinds(&bench);
    let (out, summary) = packed(&bench, "out.ddlp", PackFormat { form: StoredForm::Raw, max_side: Some(120) });
    let pack = Pack::open(&out).unwrap();
    let source = open(&bench.path("source")).unwrap();
    let (mut buf, mut shrunk) = (Vec::new(), 0);
    let mut preparer = Preparer::new(Limits::default());
    for index in 0..pack.len() {
        let Source::Encoded(file) = source.sample(index, &mut buf).unwrap() else { panic!("a file") };
        let info = preparer.info(file).unwrap();
        let (record, long) = (pack.record(index).unwrap(), info.width.max(info.height));
        assert_eq!(record.width.max(record.height), long.min(120));
        assert_eq!((record.was_shrunk, record.orientation), (long > 120, info.orientation));
        assert_eq!(record.offset % 64, 0);
        shrunk += u64::from(record.was_shrunk);
    }
    assert!(shrunk > 0 && shrunk < pack.len());
    assert_eq!((summary.form(StoredForm::Raw).shrunk.samples, Survey::of(&pack).unwrap().shrunk), (shrunk, shrunk));
    shrunk_samples_stay_so_and_are_not_shrunk_twice(&bench, &pack, shrunk);
}

/// Packs the pack again.
fn shrunk_samples_stay_so_and_are_not_shrunk_twice(bench: &Bench, source: &Pack, shrunk: u64) {
    let out = bench.path("again.ddlp");
    for max_side in [None, Some(60)] {
        let format = PackFormat { form: StoredForm::Raw, max_side };
        let options = PackOptions { format, overwrite: true, ..PackOptions::default() };
        let summary = quietly(source, &out, &options).unwrap();
        let larger = |index: &u64| {
            let record = source.record(*index).unwrap();
            record.width.max(record.height) > max_side.unwrap_or(u32::MAX)
        };
        assert_eq!(summary.form(StoredForm::Raw).shrunk.samples, (0..source.len()).filter(larger).count() as u64);
        assert!(Survey::of(&Pack::open(&out).unwrap()).unwrap().shrunk >= shrunk);
    }
}

/// Flips a bit of a file as a failing disk does: nothing else shows it.
fn flip(path: &Path, at: u64) {
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    silently(path, |file| file.write_all_at(&[byte[0] ^ 0x10], at).unwrap());
}

fn broken(path: &Path) -> Vec<String> {
    let report = verify(path, 2, &mut |_| ControlFlow::Continue(())).unwrap();
    report.broken.iter().map(ToString::to_string).collect()
}

#[test]
fn damaged_checkpoints_cost_time_and_no_pixels() {
    let bench = Bench::new(1, 3);
    let (out, _) = packed(&bench, "out.ddlp", INDEXED);
    let record = Pack::open(&out).unwrap().record(1).unwrap();
    flip(&out, record.detail().start + 2);
    let (pack, mut buf) = (Pack::open(&out).unwrap(), Vec::new());
    let prepare = |dataset: &dyn Dataset, index| {
        let mut out = [0; 3 * 8 * 8];
        let draw = Draw::default();
        let pipeline = CompiledPipeline::of(&Pipeline::of([CenterCrop::to(8).into()])).unwrap();
        let mut preparer = Preparer::new(Limits::default());
        SampleReader::default()
            .prepare(
                StoredAt { dataset, index },
                None,
                &mut preparer,
                Drawn { pipeline: &pipeline, draw, fidelity: Fidelity::WHOLE },
                &mut out,
            )
            .map(|_| out)
    };
    let source = open(&bench.path("source")).unwrap();
    (0..2).for_each(|index| assert!(prepare(&pack, index).unwrap() == prepare(&*source, index).unwrap()));
    let found = broken(&out);
    assert!(found.len() == 1 && found[0].starts_with("checkpoints of sample ") && found[0].contains("0001.jpg"));
    assert!(found[0].contains("can still be read"), "{found:?}");
    assert!(matches!(verify_sample(&pack, 1)[..], [Broken::Detail { index: 1, .. }]));
    assert!(verify_sample(&pack, 0).is_empty() && verify_sample(&pack, 2).is_empty());
    // Damage in the file itself is an error.
    flip(&out, record.offset + 2);
    let error = pack.sample(1, &mut buf).map(drop).unwrap_err();
    assert!(matches!(error, ReadError::Corrupt(Corrupt::Checksum { .. })), "{error}");
    assert!(matches!(prepare(&pack, 1), Err(SampleError::Read(ReadError::Corrupt(Corrupt::Checksum { .. })))));
}

#[test]
fn pixels_beyond_the_limits_are_not_read() {
    let bench = Bench::new(1, 1);
    fs::write(bench.path("source/class0/0000.jpg"), encoded(1, (64, 100), &JpegOptions::default())).unwrap();
    let (out, _) = packed(&bench, "out.ddlp", RAW);
    let pack = Pack::open(&out).unwrap();
    let pipeline = CompiledPipeline::of(&Pipeline::of([CenterCrop::to(10).into()])).unwrap();
    let mut row = vec![0; pipeline.output().bytes()];
    let mut prepare = |dataset: &dyn Dataset, limits| {
        let (mut reader, mut preparer) = (SampleReader::default(), Preparer::new(limits));
        let prepared = reader.prepare(
            StoredAt { dataset, index: 0 },
            None,
            &mut preparer,
            Drawn { pipeline: &pipeline, draw: Draw::default(), fidelity: Fidelity::WHOLE },
            &mut row,
        );
        (prepared.map(drop), reader.take_read().bytes)
    };
    // Of the raw sample rows 32 to 63, and the checksums of all seven groups of rows.
    let samples: [(&dyn Dataset, u64, u64); 2] = [(&pack, 64 * 100, 32 * 64 * 3 + 7 * 4), (&Pixels::new(1), 1, 3)];
    for (dataset, pixels, bytes) in samples {
        let allowed = Limits { pixels, memory_bytes: bytes.max(4096), ..Limits::default() };
        let (prepared, read) = prepare(dataset, allowed);
        prepared.unwrap();
        assert_eq!(read, bytes);
        let (prepared, read) = prepare(dataset, Limits { pixels: pixels - 1, ..allowed });
        assert!(matches!(prepared, Err(SampleError::Pixels(PixelError::TooManyPixels { .. }))), "{prepared:?}");
        assert_eq!(read, 0);
        let (prepared, read) = prepare(dataset, Limits { memory_bytes: bytes - 1, ..allowed });
        assert!(matches!(prepared, Err(SampleError::Pixels(PixelError::TooMuchMemory { .. }))), "{prepared:?}");
        assert_eq!(read, 0);
    }
}

#[test]
fn damaged_rows_are_noticed_by_crops_that_touch_them() {
    let bench = Bench::new(1, 1);
    fs::write(bench.path("source/class0/0000.jpg"), encoded(1, (64, 100), &JpegOptions::default())).unwrap();
    let (out, _) = packed(&bench, "out.ddlp", RAW);
    let pack = Pack::open(&out).unwrap();
    let record = pack.record(0).unwrap();
    // The crop has rows 45 to 54, and touches the groups of rows 32 to 47 and 48 to 63: those in front of them are not
    // read.
    let row = u64::from(record.width) * 3;
    let pipeline = CompiledPipeline::of(&Pipeline::of([CenterCrop::to(10).into()])).unwrap();
    let mut out_row = vec![0; pipeline.output().bytes()];
    let mut prepare = || {
        let mut preparer = Preparer::new(Limits::default());
        let draw = Draw::default();
        SampleReader::default()
            .prepare(
                StoredAt { dataset: &pack, index: 0 },
                None,
                &mut preparer,
                Drawn { pipeline: &pipeline, draw, fidelity: Fidelity::WHOLE },
                &mut out_row,
            )
            .map(drop)
    };
    prepare().unwrap();
    flip(&out, record.offset + 3 * row);
    prepare().expect("rows 45 to 54 do not touch row 3");
    assert!(matches!(verify_sample(&pack, 0)[..], [Broken::Sample { index: 0, .. }]));
    let found = broken(&out);
    assert!(found.len() == 1 && found[0].contains("0000.jpg"), "{found:?}");
    flip(&out, record.offset + 3 * row);
    flip(&out, record.offset + 33 * row);
    let error = prepare().unwrap_err();
    let is_of_pixels = matches!(error, SampleError::Pixels(PixelError::Checksum { .. }));
    assert!(is_of_pixels, "row 33 shares its checksum with row 45: {error}");
    flip(&out, record.offset + 33 * row);
    flip(&out, record.detail().start);
    let error = prepare().unwrap_err();
    assert!(matches!(error, SampleError::Read(ReadError::Corrupt(Corrupt::Checksum { .. }))), "{error}");
    assert_eq!(broken(&out).len(), 1);
    flip(&out, record.detail().start);
    // The file is cut short while it is open.
    fs::File::options().write(true).open(&out).unwrap().set_len(record.offset + 100).unwrap();
    assert!(prepare().is_err());
    assert_eq!(GROUPS.group_rows, 16);
}

/// One checkpoint for each row of MCUs is far more than a 64th of the bytes of such a file.
#[test]
fn checkpoints_of_a_tall_file_with_few_bytes_can_be_read() {
    let bench = Bench::new(1, 1);
    for (width, height) in [(1, 65_000), (8, 40_001), (65_000, 1)] {
        for layout in [Layout::Gray, Layout::ALL[0]] {
            let options = JpegOptions { quality: 1, layout, ..JpegOptions::default() };
            let channels = options.layout.channels();
            let noise = (0..width * height * channels).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8);
            let file = jpeg(&noise.collect::<Vec<u8>>(), width, height, &options).unwrap();
            fs::write(bench.path("source/class0/0000.jpg"), &file).unwrap();
            let pack = Pack::open(&packed(&bench, "out.ddlp", INDEXED).0).unwrap();
            assert_eq!(pack.record(0).unwrap().form, StoredForm::Indexed);
            assert_eq!(contents(&pack)[0].3, file);
        }
    }
}

/// Returns how often this thread has read; `None` if the kernel does not count that.
fn reads() -> Option<u64> {
    let counted = fs::read_to_string("/proc/thread-self/io").ok()?;
    counted.lines().find_map(|line| line.strip_prefix("syscr: "))?.parse().ok()
}

#[test]
fn narrow_pixels_are_read_in_long_pieces() {
    let bench = Bench::new(1, 1);
    // The pixels take 3 MiB, in groups of 768 bytes.
    let (width, height) = (16, 65_000);
    let file = jpeg(&synthetic::photo(width, height, 1), width, height, &JpegOptions::default()).unwrap();
    fs::write(bench.path("source/class0/0000.jpg"), file).unwrap();
    let (out, _) = packed(&bench, "out.ddlp", RAW);
    let pack = Pack::open(&out).unwrap();
    let Some(before) = reads() else {
        // Not written by eprintln!, whose output the test harness hides when a test passes.
        let _ = writeln!(std::io::stderr(), "not tested: reads of narrow pixels, which this kernel does not count");
        return;
    };
    assert!(verify_sample(&pack, 0).is_empty());
    let taken = reads().unwrap() - before;
    assert!(taken < 20, "{taken} reads");
}
