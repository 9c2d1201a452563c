//! Packs of a few blocks on disk that claim to be larger than memory.
//!
//! If a claim is to be refused, only the superblock is read, so these tests need no memory even when they fail.

use crate::pack::format::SAMPLES_MAX;
use crate::pack::format::round_up;
use crate::pack::index::Index;
use crate::pack::store::Store;
use crate::pack::{BLOCK_BYTES, FormatError, IndexPart, Pack, PackLayout, Section, VerifyError, verify};
use crate::{CLASSES_MAX, Dataset, Identity};
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Claims of a sparse pack.
#[derive(Clone, Copy)]
struct Claim {
    samples: u64,
    classes: u32,
    names_bytes: u64,
    classes_bytes: u64,
    /// Bytes before the sample region that belong to nothing.
    padding: u64,
}

const SMALL: Claim = Claim { samples: 1, classes: 1, names_bytes: 0, classes_bytes: 4, padding: 0 };

/// A superblock followed by a hole.
struct Sparse {
    _directory: tempfile::TempDir,
    path: PathBuf,
    layout: PackLayout,
}

impl Sparse {
    fn new(claim: Claim) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sparse.ddlp");
        let mut end = BLOCK_BYTES;
        let lengths = [claim.samples * 64, claim.samples * 4, claim.names_bytes, claim.classes_bytes];
        let sections = IndexPart::OF_ALL.into_iter().zip(lengths).map(|(part, length)| {
            let offset = end;
            end = round_up(end + length).unwrap();
            Section { part, offset, length, crc32c: 0 }
        });
        let sections = sections.collect();
        let file_bytes = end + claim.padding;
        let layout = PackLayout {
            file_bytes,
            samples: claim.samples,
            classes: claim.classes,
            data_offset: file_bytes,
            data_bytes: 0,
            identity: Identity::from_bytes([0; 32]),
            source_identity: Identity::from_bytes([0; 32]),
            source_kind: "folder".to_owned(),
            sections,
        };
        let sparse = Self { _directory: directory, path, layout };
        File::create(&sparse.path).unwrap().set_len(file_bytes).unwrap();
        sparse.seal();
        sparse
    }

    fn seal(&self) {
        let file = File::options().write(true).open(&self.path).unwrap();
        file.write_all_at(&self.layout.to_bytes(), 0).unwrap();
    }

    /// Makes the checksum of a section fit its zeros.
    fn sum(mut self, part: IndexPart) -> Self {
        let section = self.layout.sections.iter_mut().find(|section| section.part == part).unwrap();
        let block = [0; BLOCK_BYTES as usize];
        let mut left = section.length;
        while left > 0 {
            let length = left.min(BLOCK_BYTES);
            section.crc32c = crc32c::crc32c_append(section.crc32c, &block[..length as usize]);
            left -= length;
        }
        self.seal();
        self
    }

    /// Returns the problem for which the superblock is refused.
    fn refused(&self) -> String {
        match read_superblock(&self.path) {
            Err(FormatError::Malformed { part: IndexPart::Superblock, problem, .. }) => problem,
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("it is accepted"),
        }
    }
}

fn read_superblock(path: &Path) -> Result<Index, FormatError> {
    Index::read(Store::of_file(File::open(path).unwrap(), path).unwrap())
}

#[test]
fn more_samples_than_the_limit() {
    let claim = |samples| Sparse::new(Claim { samples, ..SMALL });
    assert_eq!(claim(100_000_000_000).refused(), "it counts 100000000000 samples, at most 1073741824 are possible");
    assert!(claim(SAMPLES_MAX + 1).refused().contains("at most 1073741824"));
    assert!(read_superblock(&claim(SAMPLES_MAX).path).is_ok());
}

#[test]
fn a_classes_section_longer_than_its_names_can_be() {
    let claim = |classes, classes_bytes| Sparse::new(Claim { classes, classes_bytes, ..SMALL });
    assert_eq!(claim(1, 1 << 30).refused(), "the classes section has 1073741824 bytes, which do not fit 1 classes");
    assert!(claim(1, 1029).refused().contains("1029 bytes"));
    assert!(claim(CLASSES_MAX as u32, (CLASSES_MAX as u64 * 1028) + 1).refused().contains("1048576 classes"));
    for allowed in [claim(1, 1028), claim(CLASSES_MAX as u32, CLASSES_MAX as u64 * 1028)] {
        assert!(read_superblock(&allowed.path).is_ok());
    }
}

/// `contents.rs` tests how little of the hole is kept.
#[test]
fn a_hole_of_labels_reads_as_zeros() {
    let samples = 3 << 20;
    let sparse = Sparse::new(Claim { samples, ..SMALL }).sum(IndexPart::Labels).sum(IndexPart::Classes);
    let pack = Pack::open(&sparse.path).unwrap();
    assert_eq!((pack.label(0), pack.label(samples - 1), pack.classes()), (0, 0, &[String::new()][..]));
}

#[test]
fn a_hole_of_class_names_is_refused() {
    let sparse = Sparse::new(Claim { classes: 4096, classes_bytes: 4096 * 1028, ..SMALL });
    let sparse = sparse.sum(IndexPart::Labels).sum(IndexPart::Classes);
    let Err(FormatError::Malformed { part: IndexPart::Classes, problem, .. }) = Pack::open(&sparse.path) else {
        panic!("it opens")
    };
    assert_eq!(problem, "4194304 bytes follow the last class");
}

#[test]
fn verifying_can_be_stopped_in_a_section_and_in_padding() {
    let hole = 32 << 20;
    for claim in [Claim { names_bytes: hole, ..SMALL }, Claim { padding: hole, ..SMALL }] {
        let sparse = Sparse::new(claim);
        let calls_of = |calls_max: u32| {
            let mut calls = 0;
            let result = verify(&sparse.path, 1, &mut |_| {
                calls += 1;
                if calls == calls_max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            (calls, result)
        };
        let (calls, result) = calls_of(u32::MAX);
        assert!(calls > 32 && result.is_ok(), "{calls} calls for {hole} bytes");
        let (calls, result) = calls_of(20);
        assert!(matches!((calls, result), (20, Err(VerifyError::Cancelled))));
    }
}
