//! `verify` notices every change and names what it hit.

use super::{Bench, quietly};
use crate::Dataset;
use crate::forms::GROUPS;
use crate::pack::{Broken, IndexPart, Pack, PackFormat, PackOptions, StoredForm, VerifyError, VerifyReport, verify};
use ddlp_pixels::{Limits, PixelError, Preparer};
use proptest::prelude::*;
use std::fs;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::OnceLock;

fn report(path: &Path) -> VerifyReport {
    verify(path, 2, &mut |_| ControlFlow::Continue(())).unwrap()
}

#[test]
fn a_whole_pack_is_intact() {
    let bench = Bench::new(2, 90);
    let mut last = 0;
    let report = verify(&bench.packed(), 3, &mut |progress| {
        assert!((last..=180).contains(&progress.samples));
        last = progress.samples;
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(report.is_intact(), "{:?}", report.broken);
    assert_eq!((report.samples, last), (180, 180));
}

#[test]
fn it_can_be_cancelled() {
    let bench = Bench::new(2, 90);
    let error = verify(&bench.packed(), 2, &mut |_| ControlFlow::Break(())).unwrap_err();
    assert!(matches!(error, VerifyError::Cancelled));
}

#[test]
fn a_missing_file_and_a_file_that_is_not_a_pack_are_reported() {
    let bench = Bench::new(1, 1);
    let missing = verify(&bench.path("none.ddlp"), 1, &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(missing.to_string().contains("none.ddlp"));
    let path = bench.path("text.ddlp");
    fs::write(&path, b"hello").unwrap();
    let report = report(&path);
    assert_eq!((report.broken_count, report.samples), (1, 0));
    assert!(report.broken[0].to_string().contains("is not a pack"), "{}", report.broken[0]);
}

/// Changes the record of a sample and makes all checksums of the index fit.
fn forge_record(path: &Path, index: usize, forge: impl FnOnce(&mut [u8; 64])) {
    let mut bytes = fs::read(path).unwrap();
    let records = Pack::open(path).unwrap().layout().section(IndexPart::Records);
    let record: &mut [u8; 64] = (&mut bytes[records.offset as usize + 64 * index..][..64]).try_into().unwrap();
    forge(record);
    let crc = crc32c::crc32c(&record[..60]);
    record[60..].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[records.offset as usize..][..records.length as usize]);
    bytes[256 + 24..256 + 28].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..4092]);
    bytes[4092..4096].copy_from_slice(&crc.to_le_bytes());
    fs::write(path, bytes).unwrap();
}

#[test]
fn samples_that_share_bytes_are_noticed_though_all_checksums_fit() {
    let bench = Bench::new(1, 3);
    let path = bench.packed();
    let at = Pack::open(&path).unwrap().layout().section(IndexPart::Records).offset as usize;
    let first: [u8; 64] = fs::read(&path).unwrap()[at..at + 64].try_into().unwrap();
    forge_record(&path, 1, |second| *second = first);
    let report = report(&path);
    assert!(report.broken.iter().any(|broken| matches!(broken, Broken::Overlap { index: 1, .. })), "{report:?}");
    assert!(report.broken.iter().any(|broken| matches!(broken, Broken::Identity { .. })), "{report:?}");
}

/// A raw sample whose bytes are intact, with wrong checksums for its rows, and a checksum that fits these checksums.
#[test]
fn checksums_of_other_rows_are_noticed_though_all_checksums_fit() {
    let bench = Bench::new(1, 3);
    let path = bench.path("out.ddlp");
    let format = PackFormat::of(StoredForm::Raw);
    quietly(&bench.source(), &path, &PackOptions { format, ..PackOptions::default() }).unwrap();
    assert!(report(&path).is_intact());
    let record = Pack::open(&path).unwrap().record(1).unwrap();
    assert!(record.form == StoredForm::Raw && record.height > GROUPS.group_rows, "two groups of rows");
    let mut bytes = fs::read(&path).unwrap();
    let detail = &mut bytes[record.detail().start as usize..record.detail().end as usize];
    // A checksum of the second group of rows.
    detail[5] ^= 1;
    let crc = crc32c::crc32c(detail);
    fs::write(&path, bytes).unwrap();
    forge_record(&path, 1, |record| record[56..60].copy_from_slice(&crc.to_le_bytes()));
    let report = report(&path);
    let is_it = |broken: &Broken| match broken {
        Broken::Record { index: 1, problem } => problem.contains("not those of its rows"),
        _ => false,
    };
    assert!(report.broken.iter().any(is_it), "{report:?}");
    // The index was forged, too: nothing else is wrong.
    assert!(
        report.broken.iter().all(|broken| is_it(broken) || matches!(broken, Broken::Identity { .. })),
        "{report:?}"
    );
    let pack = Pack::open(&path).unwrap();
    let (mut preparer, mut buf, mut pixels) = (Preparer::new(Limits::default()), Vec::new(), Vec::new());
    let error = preparer.decode(pack.sample(1, &mut buf).unwrap(), None, &mut pixels).unwrap_err();
    assert!(matches!(&error, PixelError::Checksum { message } if message.contains("rows from 16 on")), "{error}");
    assert!(preparer.decode(pack.sample(0, &mut buf).unwrap(), None, &mut pixels).is_ok());
}

#[test]
fn bytes_between_samples_must_be_zero() {
    for index in [1, 2] {
        let bench = Bench::new(1, 3);
        let path = bench.packed();
        let record = Pack::open(&path).unwrap().record(index).unwrap();
        let detail = fs::read(&path).unwrap()[record.detail().start as usize..record.detail().end as usize].to_vec();
        // The sample gives up the last byte of its checkpoints, which then belongs to nothing.
        let (last, shorter) = detail.split_last().unwrap();
        assert_ne!(*last, 0);
        forge_record(&path, index as usize, |record| {
            record[48..52].copy_from_slice(&(shorter.len() as u32).to_le_bytes());
            record[56..60].copy_from_slice(&crc32c::crc32c(shorter).to_le_bytes());
        });
        let (report, gap) = (report(&path), record.extent().end - 1);
        let named = |broken: &Broken| matches!(broken, Broken::Padding { offset } if *offset == gap);
        assert!(report.broken.iter().any(named), "{report:?}");
    }
}

#[test]
fn several_broken_samples_are_listed_in_order() {
    let bench = Bench::new(2, 80);
    let path = bench.packed();
    let mut bytes = fs::read(&path).unwrap();
    let pack = Pack::open(&path).unwrap();
    let broken = [3u64, 70, 71, 159];
    for index in broken {
        bytes[pack.location(index).offset as usize + 5] ^= 0x80;
    }
    fs::write(&path, bytes).unwrap();
    let report = report(&path);
    let found: Vec<u64> = report
        .broken
        .iter()
        .map(|broken| match broken {
            Broken::Sample { index, .. } => *index,
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!((found.as_slice(), report.broken_count), (broken.as_slice(), 4));
    let error = Pack::open(&path).unwrap().sample(70, &mut Vec::new()).map(drop).unwrap_err();
    assert!(matches!(error, crate::ReadError::Corrupt(crate::Corrupt::Checksum { .. })), "{error}");
    assert!(error.to_string().contains("class0/0070.jpg"), "{error}");
}

/// A pack that is made once and damaged in copies.
struct Original {
    bytes: Vec<u8>,
    data_offset: u64,
    /// Name and extent of each sample.
    samples: Vec<(String, Range<u64>)>,
}

fn original() -> &'static Original {
    static ORIGINAL: OnceLock<Original> = OnceLock::new();
    ORIGINAL.get_or_init(|| {
        let bench = Bench::new(2, 3);
        let path = bench.packed();
        let pack = Pack::open(&path).unwrap();
        let place = |index| {
            let record = pack.record(index).unwrap();
            (pack.name(index), record.extent())
        };
        let samples = (0..pack.len()).map(place).collect();
        Original { bytes: fs::read(&path).unwrap(), data_offset: pack.layout().data_offset, samples }
    })
}

/// Flips a bit and checks that `verify` notices it: by the sample's name if it hit a sample.
fn flipped_bit_is_named(at: usize, bit: u32) -> Result<(), TestCaseError> {
    let Original { bytes, data_offset, samples } = original();
    let mut bytes = bytes.clone();
    bytes[at] ^= 1 << bit;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("damaged.ddlp");
    fs::write(&path, bytes).unwrap();
    let report = report(&path);
    prop_assert!(!report.is_intact(), "a flipped bit {bit} of byte {at} is not noticed");
    let hit = samples.iter().find(|(_, extent)| extent.contains(&(at as u64)));
    match (hit, &report.broken[0]) {
        (Some((name, _)), Broken::Sample { name: found, .. } | Broken::Detail { name: found, .. }) => {
            prop_assert_eq!(name, found)
        }
        (Some(_), other) => prop_assert!(false, "{}", other),
        (None, Broken::Padding { offset }) => prop_assert_eq!(*offset, at as u64),
        (None, other) => prop_assert!((at as u64) < *data_offset, "{}", other),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_flipped_bit_is_noticed(place in any::<prop::sample::Index>(), bit in 0u32..8) {
        flipped_bit_is_named(place.index(original().bytes.len()), bit)?;
    }

    /// Most of a small pack is padding, so this test hits only bytes that are not.
    #[test]
    fn any_flipped_bit_of_something_is_noticed(place in any::<prop::sample::Index>(), bit in 0u32..8) {
        let original = original();
        let bytes = original.bytes.iter().enumerate();
        let filled: Vec<usize> = bytes.filter(|(_, byte)| **byte != 0).map(|(at, _)| at).collect();
        flipped_bit_is_named(*place.get(&filled), bit)?;
    }
}
