//! A long pack: its records stay in memory unless one of them is damaged.

use super::{Bench, Pixels, quietly};
use crate::pack::format::{FormatError, RECORD_BYTES};
use crate::pack::reader::WHOLE_RECORDS_MAX;
use crate::pack::{Blocks, Broken, IndexPart, Pack, PackOptions, Survey, verify};
use crate::samples::{bytes, silently};
use crate::{Corrupt, Dataset, FetchedSample, ReadError, Unavailable};
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;

#[test]
fn records_are_kept_together_or_read_and_checked_one_by_one() {
    let bench = Bench::new(1, 1);
    let out = bench.path("out.ddlp");
    let samples = WHOLE_RECORDS_MAX + 1000;
    let source = Pixels::new(samples);
    quietly(&source, &out, &PackOptions::default()).unwrap();
    let kept = Pack::open(&out).unwrap();
    assert!(kept.records.is_some());
    let mut pack = Pack::open(&out).unwrap();
    pack.records = None;
    let (mut buf, mut expected) = (Vec::new(), Vec::new());
    for index in (0..samples).step_by(997) {
        let (found, expected) = (pack.sample(index, &mut buf).unwrap(), source.sample(index, &mut expected).unwrap());
        assert_eq!(bytes(found), bytes(expected));
        assert_eq!(kept.header(index).unwrap(), pack.header(index).unwrap());
        assert_eq!([&kept, &pack].map(|pack| pack.header_extent(index).count()), [0, RECORD_BYTES]);
        let needed = [&kept, &pack].map(|pack| FetchedSample::memory_needed(pack, index));
        assert!(needed[0].is_some() && needed[1].is_none());
        assert_eq!((pack.label(index), pack.name(index)), (source.label(index), source.name(index)));
    }
    assert_eq!(Survey::of(&pack).unwrap().class_samples.iter().sum::<u64>(), samples);
    let report = verify(&out, 2, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((report.samples, report.broken_count), (samples, 0));
    damaged_record(&pack, &out, 70_000);
    record_of_a_later_version(&pack, &out, 70_002);
    for index in [70_000, 70_002] {
        assert!(kept.sample(index, &mut buf).is_ok(), "records in memory are not read again");
    }
}

/// A pack's bytes in memory, with the error of reads at an offset.
#[derive(Debug)]
struct Failing {
    bytes: Vec<u8>,
    error: io::ErrorKind,
    at: u64,
}

impl Blocks for Failing {
    fn len_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if offset == self.at {
            return Err(self.error.into());
        }
        out.copy_from_slice(&self.bytes[offset as usize..][..out.len()]);
        Ok(())
    }

    fn session(&self) -> u64 {
        0
    }

    fn interrupt(&self) {}
}

#[test]
fn records_that_cannot_be_read_are_an_error_unless_there_is_no_memory_for_them() {
    let bench = Bench::new(1, 1);
    let out = bench.path("out.ddlp");
    quietly(&Pixels::new(WHOLE_RECORDS_MAX + 1), &out, &PackOptions::default()).unwrap();
    let records = Pack::open(&out).unwrap().layout().section(IndexPart::Records).offset;
    let open = |error| {
        let blocks = Failing { bytes: fs::read(&out).unwrap(), error, at: records };
        Pack::from_blocks(Box::new(blocks), Path::new("memory")).map(|pack| pack.records.is_some())
    };
    assert!(matches!(open(io::ErrorKind::TimedOut), Err(FormatError::Io { .. })));
    assert!(matches!(open(io::ErrorKind::OutOfMemory), Ok(false)));
}

/// Damages a record while the pack is open.
fn damaged_record(pack: &Pack, out: &std::path::Path, index: u64) {
    let at = pack.layout().section(IndexPart::Records).offset + index * RECORD_BYTES as u64;
    silently(out, |file| file.write_all_at(&[0xFF], at).unwrap());
    let error = pack.sample(index, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, ReadError::Corrupt(Corrupt::Record { .. })), "{error}");
    assert_eq!(pack.name(index), format!("#{index} (its record is damaged)"));
    assert!(pack.sample(index + 1, &mut Vec::new()).is_ok());
    let report = verify(out, 2, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(report.samples, pack.len());
    let named = |broken: &Broken| matches!(broken, Broken::Record { index: found, .. } if *found == index);
    assert!(report.broken.iter().any(named), "{:?}", report.broken);
    let opened = Pack::open(out).unwrap();
    assert!(opened.records.is_none(), "the other samples are not lost");
    opened.sample(index - 1, &mut Vec::new()).unwrap();
}

/// Gives a record an unknown form while the pack is open.
fn record_of_a_later_version(pack: &Pack, out: &std::path::Path, index: u64) {
    let at = pack.layout().section(IndexPart::Records).offset + index * RECORD_BYTES as u64;
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
