//! The contents of a pack, compared with its source.

use super::{Bench, Pixels, quietly};
use crate::pack::format::SAMPLES_MAX;
use crate::pack::{
    Pack, PackError, PackFormat, PackOptions, Phase, StoredForm, StoredVerdict, Survey, VerdictEntry, pack, verify,
};
use crate::samples::{contents, image};
use crate::{CLASSES_MAX, Corrupt, Dataset, Header, Identity, Location, ReadError, open};
use ddlp_pixels::{CorruptReason, Source};
use std::fs;
use std::ops::ControlFlow;

#[test]
fn a_pack_holds_what_its_source_holds() {
    let bench = Bench::new(3, 40);
    let source = bench.source();
    let out = bench.path("out.ddlp");
    let format = PackFormat::of(StoredForm::Kept);
    let options = PackOptions { threads: 3, verify: true, format, ..PackOptions::default() };
    let summary = quietly(&source, &out, &options).unwrap();
    let pack = open(&out).unwrap();
    assert_eq!((pack.kind(), pack.len(), pack.classes()), ("pack", 120, source.classes()));
    assert_eq!(contents(&*pack), contents(&source));
    assert_eq!((summary.samples, summary.repaired_count, summary.rejected_count), (120, 0, 0));
    assert_eq!((summary.identity, summary.file_bytes), (pack.identity(), fs::metadata(&out).unwrap().len()));
    assert_eq!(pack.export().unwrap().len_bytes() % 4096, 0);
    assert_eq!(bench.names(), ["out.ddlp", "source"]);
    let opened = Pack::open(&out).unwrap();
    assert_eq!((opened.layout().source_identity, opened.layout().source_kind.as_str()), (source.identity(), "folder"));
}

#[test]
fn labels_of_classes_without_names_are_kept() {
    let bench = Bench::new(1, 2);
    let list = bench.path("source/list.csv");
    fs::write(&list, "path,label\nclass0/0000.jpg,7\nclass0/0001.jpg,1048575\n").unwrap();
    let (source, out) = (open(&list).unwrap(), bench.path("out.ddlp"));
    quietly(&*source, &out, &PackOptions { verify: true, ..PackOptions::default() }).unwrap();
    let pack = Pack::open(&out).unwrap();
    assert_eq!((pack.label(0), pack.label(1), pack.classes().len()), (7, 1_048_575, 0));
    assert!(Survey::of(&pack).unwrap().class_samples.is_empty());
}

#[test]
fn the_number_of_threads_does_not_show_in_the_file() {
    let bench = Bench::new(2, 300);
    let bytes = |threads: usize| {
        let out = bench.path(&format!("{threads}.ddlp"));
        quietly(&bench.source(), &out, &PackOptions { threads, ..PackOptions::default() }).unwrap();
        fs::read(out).unwrap()
    };
    let one = bytes(1);
    assert_eq!(one, bytes(2));
    assert_eq!(one, bytes(5));
    assert_eq!(one, bytes(0));
}

#[test]
fn a_pack_of_a_pack_is_the_same_pack() {
    let bench = Bench::new(2, 5);
    let first = Pack::open(&bench.packed()).unwrap();
    let again = bench.path("again.ddlp");
    let summary = quietly(&first, &again, &PackOptions::default()).unwrap();
    assert_eq!(summary.identity, first.identity());
    assert_eq!(contents(&Pack::open(&again).unwrap()), contents(&first));
}

#[test]
fn the_identity_follows_content_names_and_labels() {
    let bench = Bench::new(2, 3);
    let identity = || {
        let out = bench.path("id.ddlp");
        let options = PackOptions { overwrite: true, ..PackOptions::default() };
        quietly(&bench.source(), &out, &options).unwrap().identity
    };
    let one = identity();
    assert_eq!(one, identity());
    let (old, new) = (bench.path("source/class0/0001.jpg"), bench.path("source/class0/0001a.jpg"));
    let original = fs::read(&old).unwrap();
    // Same length, other content.
    let mut other = original.clone();
    let last = other.len() - 3;
    other[last] ^= 0x10;
    fs::write(&old, &other).unwrap();
    assert_ne!(one, identity());
    fs::write(&old, &original).unwrap();
    assert_eq!(one, identity());
    fs::rename(&old, &new).unwrap();
    assert_ne!(one, identity());
    fs::rename(&new, &old).unwrap();
    fs::rename(bench.path("source/class0"), bench.path("source/renamed")).unwrap();
    assert_ne!(one, identity());
}

/// A JPEG with bytes between two of its markers: it decodes with a warning.
pub(super) fn image_that_warns() -> Vec<u8> {
    let mut bytes = image(5);
    let scan = bytes.windows(2).position(|two| two == [0xFF, 0xDA]).unwrap();
    bytes.splice(scan..scan, [0; 3]);
    bytes
}

#[test]
fn repaired_and_rejected_samples_are_named_and_keep_their_place() {
    let bench = Bench::new(2, 4);
    let write = |name: &str, bytes: &[u8]| fs::write(bench.path("source").join(name), bytes).unwrap();
    write("class0/0001.jpg", &image_that_warns());
    write("class0/0002.jpg", b"this is no image");
    write("class0/0003.jpg", b"");
    write("class1/0000.jpg", b"gone when it is read");
    let source = bench.source();
    fs::remove_file(bench.path("source/class1/0000.jpg")).unwrap();
    let out = bench.path("out.ddlp");
    let options = PackOptions { verify: true, allow_unreadable: true, ..PackOptions::default() };
    let summary = quietly(&source, &out, &options).unwrap();
    assert_eq!((summary.samples, summary.repaired_count, summary.rejected_count), (8, 1, 3));
    assert_eq!(summary.rejected.iter().filter(|sample| sample.is_unreadable).count(), 1);
    assert_eq!((summary.repaired[0].index, summary.repaired[0].name.as_str()), (1, "class0/0001.jpg"));
    assert!(summary.repaired[0].warnings > 0);
    let rejected: Vec<_> = summary.rejected.iter().map(|r| (r.index, r.name.as_str(), r.reason)).collect();
    let expected = [
        (2, "class0/0002.jpg", CorruptReason::UnknownFormat),
        (3, "class0/0003.jpg", CorruptReason::Empty),
        (4, "class1/0000.jpg", CorruptReason::Io),
    ];
    assert_eq!(rejected, expected);
    assert!(summary.rejected.iter().all(|rejected| !rejected.message.is_empty()));
    check_verdicts(&Pack::open(&out).unwrap());
}

#[test]
fn unreadable_samples_prevent_a_pack_unless_they_are_allowed() {
    let bench = Bench::new(2, 4);
    let path = |name: &str| bench.path("source").join(name);
    fs::write(path("class0/0001.jpg"), b"this is no image").unwrap();
    fs::remove_file(path("class0/0003.jpg")).unwrap();
    std::os::unix::fs::symlink("nowhere", path("class0/0003.jpg")).unwrap();
    let source = bench.source();
    fs::remove_file(path("class1/0000.jpg")).unwrap();
    fs::write(path("class1/0001.jpg"), b"another length").unwrap();
    let out = bench.path("out.ddlp");
    let lost = |options: &PackOptions| match quietly(&source, &out, options).unwrap_err() {
        PackError::Lost { samples, unreadable_count, damaged_count, listed } => {
            assert_eq!((samples, bench.names()), (8, vec!["source".to_owned()]), "nothing is left");
            assert!(listed.iter().all(|sample| !sample.message.is_empty()));
            (unreadable_count, damaged_count, listed.into_iter().map(|sample| sample.index).collect::<Vec<_>>())
        }
        other => panic!("{other}"),
    };
    assert_eq!(lost(&PackOptions::default()), (3, 0, vec![3, 4, 5]));
    assert_eq!(lost(&PackOptions { strict: true, ..PackOptions::default() }), (3, 1, vec![1, 3, 4, 5]));
    let summary = quietly(&source, &out, &PackOptions { allow_unreadable: true, ..PackOptions::default() }).unwrap();
    assert_eq!(summary.rejected_count, 4);
}

#[test]
fn a_strict_pack_has_every_sample() {
    let bench = Bench::new(1, 3);
    let options = PackOptions { strict: true, ..PackOptions::default() };
    fs::write(bench.path("source/class0/0001.jpg"), image_that_warns()).unwrap();
    let out = bench.path("out.ddlp");
    assert_eq!(quietly(&bench.source(), &out, &options).unwrap().repaired_count, 1, "a repaired one is no loss");
    fs::write(bench.path("source/class0/0002.jpg"), b"this is no image").unwrap();
    let error = quietly(&bench.source(), &bench.path("second.ddlp"), &options).unwrap_err();
    assert_eq!(error.to_string(), "1 of 3 samples cannot be decoded");
    assert!(quietly(&bench.source(), &bench.path("second.ddlp"), &PackOptions::default()).is_ok());
}

fn check_verdicts(pack: &Pack) {
    let mut buf = Vec::new();
    assert_eq!(pack.record(0).unwrap().verdict, StoredVerdict::Intact);
    assert_eq!((pack.record(0).unwrap().width, pack.record(0).unwrap().height), (24, 16));
    // The repaired sample can be read, and is intact when it is inspected again.
    let Source::Encoded(repaired) = pack.sample(1, &mut buf).unwrap() else { panic!("a file") };
    assert_ne!(repaired, image_that_warns());
    let again = ddlp_pixels::Preparer::new(Default::default()).inspect(repaired);
    assert_eq!(again, ddlp_pixels::Verdict::Intact);
    for (index, reason) in [(2, CorruptReason::UnknownFormat), (3, CorruptReason::Empty), (4, CorruptReason::Io)] {
        let ReadError::Corrupt(error) = pack.sample(index, &mut buf).unwrap_err() else { panic!("{index}") };
        assert!(matches!(error, Corrupt::Rejected { .. }), "{error}");
        assert_eq!((error.reason(), pack.record(index).unwrap().verdict), (reason, StoredVerdict::Rejected(reason)));
        assert!(error.to_string().contains(&pack.name(index)), "{error}");
    }
    // The rejected sample's bytes are kept all the same.
    let location = pack.location(2);
    let file = fs::read(&location.file).unwrap();
    assert_eq!(&file[location.offset as usize..][..location.length as usize], b"this is no image");
    let survey = Survey::of(pack).unwrap();
    assert_eq!(pack.rejected(), survey.rejected);
    let (kept, indexed) = (survey.forms[&StoredForm::Kept], survey.forms[&StoredForm::Indexed]);
    assert_eq!((survey.intact, survey.repaired, survey.rejected, kept, indexed), (4, 1, 3, 4, 4));
    assert_eq!((survey.class_samples, survey.smallest_bytes), (vec![4, 4], 0));
    let entry = |index, verdict| VerdictEntry { index, name: pack.name(index), verdict };
    assert_eq!(survey.listed[0], entry(1, StoredVerdict::Repaired));
    assert_eq!(survey.listed[3], entry(4, StoredVerdict::Rejected(CorruptReason::Io)));
}

#[test]
fn planar_samples_stay_planar_and_unpadded() {
    let bench = Bench::new(1, 1);
    let source = Pixels::new(1000);
    let out = bench.path("out.ddlp");
    quietly(&source, &out, &PackOptions { threads: 3, ..PackOptions::default() }).unwrap();
    let packed = Pack::open(&out).unwrap();
    assert_eq!(contents(&packed), contents(&source));
    assert_eq!((packed.record(7).unwrap().form, packed.layout().data_bytes), (StoredForm::Planar, 3000));
    assert_eq!(packed.record(7).unwrap().offset, packed.layout().data_offset + 21);
}

/// A source that lies about its only sample.
struct Liar;

impl Dataset for Liar {
    fn len(&self) -> u64 {
        1
    }

    fn classes(&self) -> &[String] {
        &[]
    }

    fn label(&self, _: u64) -> u32 {
        0
    }

    fn name(&self, _: u64) -> String {
        "x".repeat(70_000)
    }

    fn location(&self, _: u64) -> Location {
        Location { file: "memory".into(), offset: 0, length: 4 }
    }

    fn header(&self, _: u64) -> Result<Header, ReadError> {
        Ok(Header::planar((u32::MAX, u32::MAX), 0..4))
    }

    fn read(&self, _: u64, _: &Header, _: u64, out: &mut [u8]) -> Result<(), ReadError> {
        out.fill(1);
        Ok(())
    }

    fn identity(&self) -> Identity {
        Identity::from_bytes([0; 32])
    }

    fn kind(&self) -> &'static str {
        "liar"
    }
}

#[test]
fn a_name_that_is_too_long_is_refused() {
    let bench = Bench::new(1, 1);
    let error = quietly(&Liar, &bench.path("out.ddlp"), &PackOptions::default()).unwrap_err();
    assert!(matches!(error, PackError::NameTooLong { index: 0, bytes: 70_000 }), "{error}");
    assert_eq!(bench.names(), ["source"]);
}

#[test]
fn sources_that_a_reader_would_refuse_are_not_packed() {
    let bench = Bench::new(1, 1);
    let error = |source: &Pixels| quietly(source, &bench.path("out.ddlp"), &PackOptions::default()).unwrap_err();
    let many = error(&Pixels::new(SAMPLES_MAX + 1));
    assert!(matches!(many, PackError::TooMany { samples: 1_073_741_825, classes: 3 }), "{many}");
    let mut source = Pixels::new(3);
    source.classes = vec![String::new(); CLASSES_MAX + 1];
    assert!(matches!(error(&source), PackError::TooMany { samples: 3, classes: 1_048_577 }));
    source.classes = vec!["short".to_owned(), "x".repeat(1025), "short".to_owned()];
    assert!(matches!(error(&source), PackError::ClassNameTooLong { class: 1, bytes: 1025 }));
    source.classes[1].pop();
    quietly(&source, &bench.path("out.ddlp"), &PackOptions { verify: true, ..PackOptions::default() }).unwrap();
    assert_eq!(Pack::open(&bench.path("out.ddlp")).unwrap().classes(), source.classes);
}

#[test]
fn progress_is_told_and_ends_at_everything() {
    let bench = Bench::new(2, 200);
    let mut seen = Vec::new();
    let options = PackOptions { threads: 2, verify: true, ..PackOptions::default() };
    let summary = pack(&bench.source(), &bench.path("out.ddlp"), &options, &mut |progress| {
        seen.push(progress);
        ControlFlow::Continue(())
    })
    .unwrap();
    let of = |phase| seen.iter().filter(move |progress| progress.phase == phase).collect::<Vec<_>>();
    for phase in [Phase::Packing, Phase::Verifying] {
        assert!(of(phase).windows(2).all(|pair| pair[0].samples <= pair[1].samples), "{phase:?}");
        assert_eq!(of(phase).last().unwrap().samples, 400, "{phase:?}");
    }
    assert_eq!(of(Phase::Packing).last().unwrap().bytes, summary.source_bytes);
    assert_eq!(of(Phase::Syncing).len(), 1);
}

#[test]
fn an_existing_file_is_replaced_only_when_asked() {
    let bench = Bench::new(1, 2);
    let out = bench.path("out.ddlp");
    fs::write(&out, b"precious").unwrap();
    let error = quietly(&bench.source(), &out, &PackOptions::default()).unwrap_err();
    assert!(matches!(error, PackError::Exists { .. }), "{error}");
    assert_eq!(fs::read(&out).unwrap(), b"precious");
    quietly(&bench.source(), &out, &PackOptions { overwrite: true, ..PackOptions::default() }).unwrap();
    assert!(verify(&out, 1, &mut |_| ControlFlow::Continue(())).unwrap().is_intact());
    assert_eq!(bench.names(), ["out.ddlp", "source"]);
}
