//! Opens, surveys, reads, checks and prepares any bytes as a pack: once unchanged, and once with checksums corrected,
//! as an attacker would correct them.
#![no_main]

use ddlp_dataset::pack::{Pack, Survey, verify_sample};
use ddlp_dataset::{Ahead, Dataset, Drawn, SampleReader, StoredAt};
use ddlp_pixels::fuzz::LIMITS;
use ddlp_pixels::ops::RandomResizedCrop;
use ddlp_pixels::{CompiledPipeline, Draw, Fidelity, Pipeline, Preparer};
use libfuzzer_sys::fuzz_target;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Number of rows that share a checksum.
const GROUP_ROWS: usize = 16;

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    let mut sealed = bytes.to_vec();
    if seal(&mut sealed).is_some() {
        check(&sealed);
    }
});

fn check(bytes: &[u8]) {
    let file = File::from(memfd_create(c"pack", MFdFlags::empty()).expect("a memfd"));
    file.write_all_at(bytes, 0).expect("memory");
    let Ok(pack) = Pack::from_file(file, Path::new("fuzzed.ddlp")) else { return };
    assert!(pack.len() <= bytes.len() as u64, "the pack claims more samples than the file has bytes");
    let _ = Survey::of(&pack);
    let operations = vec![RandomResizedCrop::within(9, [0.08, 1.0], [0.75, 4.0 / 3.0]).into()];
    let pipeline = Pipeline { exif_orientation: true, operations };
    let pipeline = CompiledPipeline::of(&pipeline).expect("a valid pipeline");
    let (mut preparer, mut out) = (Preparer::new(LIMITS), vec![0; pipeline.output().bytes()]);
    let (mut reader, mut buf) = (SampleReader::default(), Vec::new());
    for index in 0..pack.len().min(16) {
        let (_, _, _) = (pack.name(index), pack.label(index), pack.location(index));
        let _ = verify_sample(&pack, index);
        let draw = Draw { seed: 1, epoch: 0, sample_id: index };
        let dataset: &dyn Dataset = &pack;
        let lowest = pack.scan_groups().and_then(|groups| Fidelity::new(groups.numbers()[0]));
        for fidelity in lowest.into_iter().chain([Fidelity::WHOLE]) {
            pack.announce(&[index], Ahead { fidelity, window: Some(index) });
            let drawn = Drawn { pipeline: &pipeline, draw, fidelity };
            let _ = reader.prepare(StoredAt { dataset, index }, None, &mut preparer, drawn, &mut out);
        }
        let _ = pack.sample(index, &mut buf);
        assert!(buf.len() <= bytes.len());
    }
}

/// Corrects all checksums of the index and of the samples that lie within the file: the samples' own first, then those
/// that cover them.
fn seal(bytes: &mut [u8]) -> Option<()> {
    let length = bytes.len() as u64;
    put(bytes, 16, &length.to_le_bytes())?;
    let sections = (number(bytes, 36..40)? as usize).min(64);
    let mut bundles = None;
    for entry in (0..sections).map(|section| 256 + 32 * section) {
        let section = extent(bytes, entry + 8..entry + 16, entry + 16..entry + 24)?;
        match (number(bytes, entry..entry + 4)?, &bundles) {
            (1, _) => section.clone().step_by(64).try_for_each(|record| seal_record(bytes, record))?,
            (5, _) => bundles = Some(section.clone()),
            (6, Some(bundles)) => drop(seal_tables(bytes, bundles.clone(), section.clone())),
            _ => {}
        }
        put_checksum(bytes, section, entry + 24)?;
    }
    put_checksum(bytes, 0..4092, 4092)
}

fn seal_record(bytes: &mut [u8], at: usize) -> Option<()> {
    let sample = extent(bytes, at..at + 8, at + 8..at + 12);
    let detail = extent(bytes, at + 40..at + 48, at + 48..at + 52).filter(|detail| !detail.is_empty());
    if let Some(sample) = &sample {
        put_checksum(bytes, sample.clone(), at + 12)?;
    }
    if let Some(detail) = detail {
        let is_uncompressed = bytes.get(at + 24) == Some(&3);
        if let Some(sample) = sample.filter(|sample| is_uncompressed && !sample.is_empty()) {
            let row_bytes = 3 * number(bytes, at + 16..at + 20)? as usize;
            seal_groups(bytes, sample, &detail, GROUP_ROWS * row_bytes);
        }
        put_checksum(bytes, detail, at + 56)?;
    }
    put_checksum(bytes, at..at + 60, at + 60)
}

/// Corrects the checksums of all pieces, and those of their tables.
fn seal_tables(bytes: &mut [u8], bundles: Range<usize>, tables: Range<usize>) -> Option<()> {
    let groups = number(bytes, bundles.start..bundles.start + 1)?.min(10);
    let mut at = tables.start;
    for entry in (bundles.start + 16..bundles.end).step_by(32) {
        let mut begin = number(bytes, entry..entry + 8)?;
        let samples = (number(bytes, entry + 16..entry + 20)? as usize).min(bytes.len());
        for _ in 0..=groups {
            let (starts, checksums) = (at, at + 4 * (samples + 1));
            let end = checksums + 4 * samples;
            for sample in 0..samples {
                let place = |sample: usize| {
                    let at = starts + 4 * sample;
                    begin.checked_add(number(bytes, at..at + 4)?)
                };
                let piece = place(sample)? as usize..place(sample + 1)? as usize;
                put_checksum(bytes, piece, checksums + 4 * sample)?;
            }
            begin = begin.checked_add(number(bytes, checksums - 4..checksums)?)?;
            put_checksum(bytes, at..end, end)?;
            at = end + 4;
        }
    }
    Some(())
}

/// Corrects the checksums of an uncompressed sample's groups of rows.
fn seal_groups(bytes: &mut [u8], sample: Range<usize>, checksums: &Range<usize>, group: usize) -> Option<()> {
    let end = sample.end;
    for (start, at) in sample.step_by(group.max(1)).zip(checksums.clone().step_by(4)) {
        put_checksum(bytes, start..end.min(start + group), at)?;
    }
    Some(())
}

fn number(bytes: &[u8], at: Range<usize>) -> Option<u64> {
    Some(bytes.get(at)?.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

/// Returns the range that an offset and a length describe, if it lies within the file.
fn extent(bytes: &[u8], offset: Range<usize>, length: Range<usize>) -> Option<Range<usize>> {
    let (start, length) = (number(bytes, offset)?, number(bytes, length)?);
    let end = start.checked_add(length).filter(|&end| end <= bytes.len() as u64)?;
    Some(start as usize..end as usize)
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) -> Option<()> {
    bytes.get_mut(at..at + value.len())?.copy_from_slice(value);
    Some(())
}

fn put_checksum(bytes: &mut [u8], of: Range<usize>, at: usize) -> Option<()> {
    let checksum = crc32c::crc32c(bytes.get(of)?);
    put(bytes, at, &checksum.to_le_bytes())
}
