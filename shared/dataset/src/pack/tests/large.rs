//! A pack whose records do not stay in memory.

use super::{Bench, Pixels, quietly};
use crate::pack::format::RECORD_BYTES;
use crate::pack::{Broken, Pack, PackOptions, Part, RESIDENT_RECORD_BYTES_MAX, Survey, verify};
use crate::samples::{bytes, silently};
use crate::{Corrupt, Dataset, ReadError, Unavailable};
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;

#[test]
fn records_are_fetched_and_checked_one_by_one() {
    let bench = Bench::new(1, 1);
    let out = bench.path("out.ddlp");
    let samples = RESIDENT_RECORD_BYTES_MAX / RECORD_BYTES as u64 + 1000;
    let source = Pixels::new(samples);
    quietly(&source, &out, &PackOptions::default()).unwrap();
    let pack = Pack::open(&out).unwrap();
    let (mut buf, mut expected) = (Vec::new(), Vec::new());
    for index in (0..samples).step_by(997) {
        let (found, expected) = (pack.sample(index, &mut buf).unwrap(), source.sample(index, &mut expected).unwrap());
        assert_eq!(bytes(found), bytes(expected));
        assert_eq!((pack.label(index), pack.name(index)), (source.label(index), source.name(index)));
    }
    assert_eq!(Survey::of(&pack).unwrap().class_samples.iter().sum::<u64>(), samples);
    let report = verify(&out, 2, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((report.samples, report.broken_count), (samples, 0));
    damaged_record(&pack, &out, 70_000);
    record_of_a_later_version(&pack, &out, 70_002);
}

/// Damages a record while the pack is open.
fn damaged_record(pack: &Pack, out: &std::path::Path, index: u64) {
    let at = pack.layout().section(Part::Records).offset + index * RECORD_BYTES as u64;
    silently(out, |file| file.write_all_at(&[0xFF], at).unwrap());
    let error = pack.sample(index, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, ReadError::Corrupt(Corrupt::Record { .. })), "{error}");
    assert_eq!(pack.name(index), format!("#{index} (its record is damaged)"));
    assert!(pack.sample(index + 1, &mut Vec::new()).is_ok());
    // Opening does not look at the record; `verify` does.
    let report = verify(out, 2, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(report.samples, pack.len());
    let named = |broken: &Broken| matches!(broken, Broken::Record { index: found, .. } if *found == index);
    assert!(report.broken.iter().any(named), "{:?}", report.broken);
    assert!(Pack::open(out).is_ok());
}

/// Gives a record an unknown form while the pack is open.
fn record_of_a_later_version(pack: &Pack, out: &std::path::Path, index: u64) {
    let at = pack.layout().section(Part::Records).offset + index * RECORD_BYTES as u64;
    let file = fs::OpenOptions::new().read(true).write(true).open(out).unwrap();
    let mut record = [0; RECORD_BYTES];
    file.read_exact_at(&mut record, at).unwrap();
    record[24] = 9;
    let crc = crc32c::crc32c(&record[..60]);
    record[60..].copy_from_slice(&crc.to_le_bytes());
    silently(out, |file| file.write_all_at(&record, at).unwrap());
    let error = pack.sample(index, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, ReadError::Unavailable(Unavailable::UnknownForm { form: 9, .. })), "{error}");
    assert_eq!(pack.name(index), format!("#{index} (its form is unknown)"));
}
