//! A pack as the source of another one: nothing is lost unnoticed.

use super::{Bench, quietly};
use crate::pack::{IndexPart, Pack, PackError, PackFormat, PackOptions, StoredForm, StoredVerdict, verify};
use crate::{Dataset, Stored};
use ddlp_pixels::CorruptReason;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

const KEPT: PackFormat = PackFormat::of(StoredForm::Kept);
const RAW: PackFormat = PackFormat::of(StoredForm::Raw);

fn options(format: PackFormat) -> PackOptions {
    PackOptions { format, overwrite: true, verify: true, threads: 2, ..PackOptions::default() }
}

#[test]
fn bytes_of_rejected_samples_stay() {
    let bench = Bench::new(1, 4);
    fs::write(bench.path("source/class0/0001.jpg"), b"this is no image").unwrap();
    let source = bench.source();
    fs::remove_file(bench.path("source/class0/0002.jpg")).unwrap();
    for format in [PackFormat::default(), KEPT, RAW] {
        let out = bench.path("out.ddlp");
        let first = quietly(&source, &out, &PackOptions { allow_unreadable: true, ..options(format) }).unwrap();
        // The pack is packed onto itself.
        let again = quietly(&Pack::open(&out).unwrap(), &out, &options(format)).unwrap();
        assert_eq!((again.identity, again.rejected_count), (first.identity, 2), "{format:?}");
        assert_eq!(again.rejected[0].message, first.rejected[0].message);
        let (pack, mut buf) = (Pack::open(&out).unwrap(), Vec::new());
        let Stored::Rejected { bytes, reason } = pack.stored(1, &mut buf).unwrap() else { panic!("it was rejected") };
        assert_eq!((bytes, reason), (&b"this is no image"[..], CorruptReason::UnknownFormat));
        assert_eq!(pack.record(2).unwrap().verdict, StoredVerdict::Rejected(CorruptReason::Io));
    }
}

/// Flips a bit of a pack, and returns why it cannot be packed again.
fn refused(bench: &Bench, path: &Path, at: u64, format: PackFormat) -> String {
    let mut bytes = fs::read(path).unwrap();
    bytes[at as usize] ^= 4;
    fs::write(path, bytes).unwrap();
    assert!(!verify(path, 1, &mut |_| ControlFlow::Continue(())).unwrap().is_intact());
    let again = bench.path("again.ddlp");
    let error = quietly(&Pack::open(path).unwrap(), &again, &options(format)).unwrap_err();
    assert!(matches!(error, PackError::SourceDamaged { .. }), "{error}");
    assert!(!again.exists());
    error.to_string()
}

#[test]
fn a_pack_that_was_written_to_is_changed_and_not_damaged() {
    for format in [PackFormat::default(), KEPT, RAW] {
        let bench = Bench::new(1, 4);
        let out = bench.path("out.ddlp");
        quietly(&bench.source(), &out, &options(format)).unwrap();
        let pack = Pack::open(&out).unwrap();
        let file = fs::File::options().write(true).open(&out).unwrap();
        file.write_all_at(b"other bytes", pack.record(2).unwrap().offset + 7).unwrap();
        // The clock of a file system is coarse.
        file.set_modified(SystemTime::now() + Duration::from_secs(1)).unwrap();
        let error = quietly(&pack, &bench.path("again.ddlp"), &options(format)).unwrap_err();
        assert!(matches!(error, PackError::SourceUnavailable { .. }), "{error}");
        assert!(error.to_string().contains("out.ddlp has been written to"), "{error}");
    }
}

#[test]
fn no_pack_is_made_of_a_damaged_one() {
    for format in [PackFormat::default(), KEPT, RAW] {
        // The first sample was rejected.
        for sample in [1, 2] {
            let bench = Bench::new(1, 4);
            fs::write(bench.path("source/class0/0001.jpg"), b"this is no image").unwrap();
            let out = bench.path("out.ddlp");
            quietly(&bench.source(), &out, &options(format)).unwrap();
            let at = Pack::open(&out).unwrap().record(sample).unwrap().offset + 7;
            let said = refused(&bench, &out, at, format);
            let name = format!("sample class0/000{sample}.jpg");
            assert!(said.contains(&name) && said.contains("checksum") && said.contains("ddlp verify"), "{said}");
        }
    }
    // A damaged name would replace the right one for good.
    let bench = Bench::new(1, 4);
    let out = bench.packed();
    let names = Pack::open(&out).unwrap().layout().section(IndexPart::Names).offset;
    let said = refused(&bench, &out, names + 3, PackFormat::default());
    assert!(said.contains("its name is damaged") && said.contains("sample 0"), "{said}");
}
