//! Lossless images as L3: the pixels of the source, from a part of the bytes.

use super::{Bench, prepare_by, quietly};
use crate::pack::{Pack, PackFormat, PackOptions, PackSummary, StoredForm, StoredVerdict, Survey, WhyKept, verify};
use crate::samples::silently;
use crate::{Corrupt, Dataset, ReadError, SampleError, SampleReader, open};
use ddlp_l3::{Index, Region};
use ddlp_pixels::encode::{JpegOptions, jpeg};
use ddlp_pixels::ops::{CenterCrop, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, Resize};
use ddlp_pixels::{Pipeline, PixelError, synthetic};
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const L3: PackFormat = PackFormat::of(StoredForm::L3);
const RAW: PackFormat = PackFormat::of(StoredForm::Raw);

/// Returns a file of the tests of `ddlp-pixels`.
fn golden(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pixels/tests/golden/formats");
    fs::read(folder.join(name)).unwrap()
}

fn ppm((width, height): (u32, u32), seed: u32) -> Vec<u8> {
    [format!("P6 {width} {height} 255\n").as_bytes(), &synthetic::photo(width, height, seed)].concat()
}

fn pgm((width, height): (u32, u32), seed: u32) -> Vec<u8> {
    let gray: Vec<u8> = synthetic::photo(width, height, seed).chunks_exact(3).map(|color| color[1]).collect();
    [format!("P5 {width} {height} 255\n").as_bytes(), &gray].concat()
}

/// Lossless images: large ones, of which a crop reads a part, small ones, gray ones, and turned ones.
fn lossless() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("large.ppm", ppm((331, 243), 1)),
        ("wide.ppm", ppm((900, 70), 2)),
        ("tall.ppm", ppm((65, 1000), 3)),
        ("gray.pgm", pgm((500, 301), 4)),
        ("small.ppm", ppm((33, 31), 5)),
        ("one.pgm", pgm((1, 1), 6)),
        ("patch.ppm", ppm((64, 64), 7)),
        ("turned.png", golden("turned.png")),
        ("turned.webp", golden("turned.webp")),
        ("turned.tif", golden("turned.tif")),
        ("rgba.tif", golden("rgba.tif")),
        ("bilevel.tif", golden("bilevel.tif")),
    ]
}

/// Files whose pixels are kept as they are, and the reason.
fn others() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let pixels = synthetic::photo(90, 70, 1);
    vec![
        ("lossy.jpg", jpeg(&pixels, 90, 70, &JpegOptions::default()).unwrap(), "lossy"),
        ("lossy.webp", golden("turned-lossy.webp"), "lossy"),
        ("gray16.png", golden("gray16.png"), "more than 8 bits per value"),
        ("rgb16.tif", golden("rgb16.tif"), "more than 8 bits per value"),
    ]
}

/// Makes a folder of these files, in this order.
fn folder(bench: &Bench, files: &[(&'static str, Vec<u8>)]) -> Box<dyn Dataset> {
    let folder = bench.path("source/class0");
    fs::remove_dir_all(bench.path("source")).unwrap();
    fs::create_dir_all(&folder).unwrap();
    for (number, (name, bytes)) in files.iter().enumerate() {
        fs::write(folder.join(format!("{number:02}-{name}")), bytes).unwrap();
    }
    open(&bench.path("source")).unwrap()
}

fn packed(bench: &Bench, source: &dyn Dataset, name: &str, format: PackFormat) -> (PathBuf, PackSummary) {
    let out = bench.path(name);
    let options = PackOptions { format, overwrite: true, verify: true, threads: 2, ..PackOptions::default() };
    let summary = quietly(source, &out, &options).unwrap();
    (out, summary)
}

fn pipelines() -> [Pipeline; 4] {
    let crop = RandomResizedCrop::within(24, [0.02, 0.3], [0.5, 2.0]);
    let of = |exif_orientation, operations| Pipeline { exif_orientation, operations };
    [
        of(true, vec![crop.clone().into(), RandomHorizontalFlip { p: 0.5 }.into()]),
        of(false, vec![crop.into()]),
        of(true, vec![RandomCrop::padded(40, 20).into()]),
        of(true, vec![Resize::to(48).into(), CenterCrop::to(40).into()]),
    ]
}

fn check_same_pixels(one: &dyn Dataset, other: &dyn Dataset) {
    let mut reader = SampleReader::default();
    for (pipeline, draws) in pipelines().iter().zip([25, 15, 15, 1]) {
        for (index, epoch) in (0..one.len()).flat_map(|index| (0..draws).map(move |epoch| (index, epoch))) {
            let expected = prepare_by(&mut reader, one, index, pipeline, epoch).unwrap();
            let found = prepare_by(&mut reader, other, index, pipeline, epoch).unwrap();
            assert!(found == expected, "{} {pipeline:?} {epoch}", one.name(index));
        }
    }
}

#[test]
fn lossless_images_become_l3_with_the_same_pixels_and_others_are_kept() {
    let bench = Bench::new(1, 1);
    let (mut files, others) = (lossless(), others());
    files.extend(others.iter().map(|(name, bytes, _)| (*name, bytes.clone())));
    let source = folder(&bench, &files);
    let (out, summary) = packed(&bench, &*source, "out.ddlp", L3);
    let pack = Pack::open(&out).unwrap();
    for (index, (name, _)) in (0..).zip(&files) {
        let record = pack.record(index).unwrap();
        let is_l3 = index < lossless().len() as u64;
        assert_eq!(record.form, if is_l3 { StoredForm::L3 } else { StoredForm::Kept }, "{name}");
        assert_eq!((record.verdict, record.orientation == 6), (StoredVerdict::Intact, name.starts_with("turned.")));
        assert!(!is_l3 || record.offset.is_multiple_of(4) && record.detail().end == record.offset, "{record:?}");
    }
    let kept = |why: &'static str| summary.kept[&WhyKept::Misfit(why)].samples;
    for (_, _, why) in &others {
        assert_eq!(kept(why), others.iter().filter(|(_, _, other)| other == why).count() as u64);
    }
    let tally = summary.form(StoredForm::L3).plain;
    assert_eq!((tally.samples, summary.kept.len()), (lossless().len() as u64, 2));
    assert_eq!(Survey::of(&pack).unwrap().forms[&StoredForm::L3], tally.samples);
    check_same_pixels(&*source, &pack);
}

#[test]
fn a_crop_reads_only_its_patches() {
    let bench = Bench::new(1, 1);
    let source = folder(&bench, &[("large.ppm", ppm((1000, 900), 1))]);
    let pack = Pack::open(&packed(&bench, &*source, "out.ddlp", L3).0).unwrap();
    let record = pack.record(0).unwrap();
    let (index, all) = (u64::from(record.detail_length), u64::from(record.length));
    let mut reader = SampleReader::default();
    let mut read = |pipeline: &Pipeline| {
        prepare_by(&mut reader, &pack, 0, pipeline, 0).unwrap();
        reader.take_read().bytes - index
    };
    // The crop touches 4 of 240 patches.
    let part = read(&Pipeline::of([CenterCrop::to(100).into()]));
    assert!(part > 0 && part * 40 < all, "{part} of {all} bytes");
    let most = read(&Pipeline::of([Resize::to(100).into(), CenterCrop::to(100).into()]));
    assert!((all - all / 100..=all).contains(&most), "{most} of {all} bytes");
}

#[test]
fn samples_of_l3_are_packed_again_in_any_form_of_pixels() {
    let bench = Bench::new(1, 1);
    let source = folder(&bench, &lossless());
    let (first, _) = packed(&bench, &*source, "first.ddlp", L3);
    let first = Pack::open(&first).unwrap();
    for (name, format, form) in [
        ("l3.ddlp", L3, StoredForm::L3),
        ("raw.ddlp", RAW, StoredForm::Raw),
        ("encoded.ddlp", PackFormat::default(), StoredForm::L3),
    ] {
        let (out, summary) = packed(&bench, &first, name, format);
        assert_eq!(summary.form(form).plain.samples, first.len(), "{name}");
        assert_eq!(summary.form(form).shrunk.samples, 0, "{name}");
        check_same_pixels(&*source, &Pack::open(&out).unwrap());
    }
    let [first, again] = ["first.ddlp", "l3.ddlp"].map(|name| fs::read(bench.path(name)).unwrap());
    assert!(first[4096..] == again[4096..]);
    let raw = Pack::open(&bench.path("raw.ddlp")).unwrap();
    let (out, _) = packed(&bench, &raw, "back.ddlp", L3);
    assert!(fs::read(out).unwrap()[4096..] == first[4096..]);
    let shrunk = packed(&bench, &raw, "shrunk.ddlp", PackFormat { max_side: Some(100), ..L3 }).1;
    assert_eq!(shrunk.form(StoredForm::L3).shrunk.samples, 4, "images with a longer side");
}

/// Flips a bit of a file as a failing disk does: nothing else shows it.
fn flip(path: &Path, at: u64) {
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    silently(path, |file| file.write_all_at(&[byte[0] ^ 0x10], at).unwrap());
}

#[test]
fn damage_is_noticed_by_crops_that_touch_it() {
    let bench = Bench::new(1, 1);
    let source = folder(&bench, &[("large.ppm", ppm((1000, 900), 1))]);
    let (out, _) = packed(&bench, &*source, "out.ddlp", L3);
    let pack = Pack::open(&out).unwrap();
    let record = pack.record(0).unwrap();
    let middle = Pipeline::of([CenterCrop::to(100).into()]);
    let prepare = || prepare_by(&mut SampleReader::default(), &pack, 0, &middle, 0);
    let expected = prepare().unwrap();
    let broken = || verify(&out, 1, &mut |_| ControlFlow::Continue(())).unwrap().broken_count;
    for at in [record.detail().start, record.detail().start + 8, record.detail().end - 1] {
        flip(&out, at);
        let error = prepare().unwrap_err();
        assert!(matches!(error, SampleError::Read(ReadError::Corrupt(Corrupt::Checksum { .. }))), "{error}");
        assert_eq!(broken(), 1);
        flip(&out, at);
    }
    for at in [record.offset, record.offset + u64::from(record.length) - 5] {
        flip(&out, at);
        assert!(prepare().unwrap() == expected, "the crop does not touch the byte {at}");
        assert_eq!(broken(), 1);
        flip(&out, at);
    }
    let detail = record.detail().start as usize..record.detail().end as usize;
    let index = Index::read(&fs::read(&out).unwrap()[detail]).unwrap();
    let seen = index.pieces(Region { x: 450, y: 400, width: 100, height: 100 }).unwrap().next().unwrap();
    flip(&out, record.detail().start + seen.start + 20);
    let error = prepare().unwrap_err();
    assert!(matches!(error, SampleError::Pixels(PixelError::Checksum { .. })), "{error}");
    assert!(pack.sample(0, &mut Vec::new()).is_ok(), "patches are checked when they are decoded");
}
