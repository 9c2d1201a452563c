//! Samples that a pack would lose: which losses the options allow, and which samples are named.

use super::{Bench, quietly};
use crate::forms::GROUPS;
use crate::pack::storing::Fault;
use crate::pack::{LISTED_MAX, PackError, PackFormat, PackOptions, StoredForm};
use crate::{Corrupt, Dataset, Header, Identity, Location, ReadError, Unavailable};
use ddlp_pixels::{CorruptReason, PixelError};
use ddlp_test_support::unprivileged::Unprivileged;
use std::fs::{Permissions, set_permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU32, Ordering};

fn kept() -> PackOptions {
    PackOptions { threads: 1, format: PackFormat::of(StoredForm::Kept), ..PackOptions::default() }
}

fn allowed() -> PackOptions {
    PackOptions { allow_unreadable: true, ..kept() }
}

/// A source of planar samples of one pixel whose reads may fail.
struct Failing<F> {
    samples: u64,
    answer: F,
}

impl<F: Fn(u64) -> Result<(), ReadError> + Send + Sync> Dataset for Failing<F> {
    fn len(&self) -> u64 {
        self.samples
    }

    fn classes(&self) -> &[String] {
        &[]
    }

    fn label(&self, _: u64) -> u32 {
        0
    }

    fn name(&self, index: u64) -> String {
        format!("sample#{index}")
    }

    fn location(&self, _: u64) -> Location {
        place()
    }

    fn header(&self, _: u64) -> Result<Header, ReadError> {
        Ok(Header::planar((1, 1), 0..3))
    }

    fn read(&self, index: u64, _: &Header, _: u64, out: &mut [u8]) -> Result<(), ReadError> {
        (self.answer)(index)?;
        out.copy_from_slice(&[1, 2, 3]);
        Ok(())
    }

    fn identity(&self) -> Identity {
        Identity::from_bytes([7; 32])
    }

    fn kind(&self) -> &'static str {
        "failing"
    }
}

fn place() -> Location {
    Location { file: "memory".into(), offset: 0, length: 3 }
}

fn os_error(errno: i32) -> ReadError {
    let source = io::Error::from_raw_os_error(errno);
    Unavailable::Io { what: "x".into(), path: place().file, source }.into()
}

#[test]
fn a_folder_that_vanishes_is_an_error_whatever_the_option() {
    let bench = Bench::new(2, 3);
    let (source, out) = (bench.source(), bench.path("out.ddlp"));
    std::fs::remove_file(bench.path("source/class0/0001.jpg")).unwrap();
    quietly(&source, &out, &allowed()).unwrap();
    std::fs::remove_file(&out).unwrap();
    std::fs::rename(bench.path("source/class1"), bench.path("elsewhere")).unwrap();
    let error = quietly(&source, &out, &allowed()).unwrap_err();
    assert!(matches!(&error, PackError::SourceUnavailable { .. }), "{error}");
    assert!(error.to_string().contains("source/class1 is gone"), "{error}");
    std::fs::remove_dir_all(bench.path("source")).unwrap();
    let error = quietly(&source, &out, &allowed()).unwrap_err();
    assert!(error.to_string().contains("source is gone"), "{error}");
    assert!(!out.exists());
}

#[test]
fn a_folder_that_may_not_be_read_any_more_is_an_error_whatever_the_option() {
    let bench = Bench::new(2, 3);
    let (source, out) = (bench.source(), bench.path("out.ddlp"));
    set_permissions(bench.directory.path(), Permissions::from_mode(0o777)).unwrap();
    for folder in ["source/class1", "source"] {
        let folder = bench.path(folder);
        set_permissions(&folder, Permissions::from_mode(0o000)).unwrap();
        let packed = {
            let _unprivileged = Unprivileged::new(bench.directory.path());
            quietly(&source, &out, &allowed())
        };
        set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        let error = packed.unwrap_err();
        assert!(matches!(&error, PackError::SourceUnavailable { .. }), "{error}");
        assert!(error.to_string().contains(&format!("folder {} cannot be read", folder.display())), "{error}");
        assert!(!out.exists());
    }
}

/// A pixel and its checksum, whose server answers only the third read of the pixel.
struct Waking {
    reads: AtomicU32,
    checksums: Vec<u8>,
}

impl Waking {
    const PIXEL: [u8; 3] = [1, 2, 3];
}

impl Dataset for Waking {
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
        "waking".to_owned()
    }

    fn location(&self, _: u64) -> Location {
        place()
    }

    fn header(&self, _: u64) -> Result<Header, ReadError> {
        let (form, detail_crc32c) = (StoredForm::Raw, crc32c::crc32c(&self.checksums));
        Ok(Header { form, detail: 3..7, detail_crc32c, ..Header::planar((1, 1), 0..3) })
    }

    fn read(&self, _: u64, header: &Header, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        if offset == header.detail.start {
            out.copy_from_slice(&self.checksums);
            return Ok(());
        }
        if self.reads.fetch_add(1, Ordering::Relaxed) < 2 {
            return Err(os_error(libc::ETIMEDOUT));
        }
        out.copy_from_slice(&Self::PIXEL);
        Ok(())
    }

    fn identity(&self) -> Identity {
        Identity::from_bytes([8; 32])
    }

    fn kind(&self) -> &'static str {
        "waking"
    }
}

#[test]
fn a_momentary_failure_while_pixels_are_read_is_waited_for() {
    let bench = Bench::new(1, 1);
    let checksums = GROUPS.checksums_of(&Waking::PIXEL, 1);
    let source = Waking { reads: AtomicU32::new(0), checksums };
    let summary = quietly(&source, &bench.path("out.ddlp"), &kept()).unwrap();
    assert_eq!((summary.form(StoredForm::Raw).plain.samples, source.reads.load(Ordering::Relaxed)), (1, 3));
}

#[test]
fn refused_memory_is_momentary_and_names_the_sample() {
    let source = Failing { samples: 1, answer: |_| Ok(()) };
    let error = PixelError::NoMemory { message: "12 bytes".into() };
    let Fault::Unavailable(error) = Fault::of_pixels(error, &source, 0) else { panic!("it is not the pack's fault") };
    assert!(error.is_momentary(), "{error}");
    assert!(error.to_string().contains("no memory for sample sample#0"), "{error}");
}

#[test]
fn a_sample_that_cannot_be_read_for_a_moment_is_packed() {
    let bench = Bench::new(1, 1);
    let attempts = AtomicU32::new(0);
    let answer = |index| match index {
        4 if attempts.fetch_add(1, Ordering::Relaxed) < 2 => Err(os_error(libc::ETIMEDOUT)),
        _ => Ok(()),
    };
    let summary = quietly(&Failing { samples: 9, answer }, &bench.path("out.ddlp"), &kept()).unwrap();
    assert_eq!((summary.form(StoredForm::Planar).plain.samples, attempts.load(Ordering::Relaxed)), (9, 3));
}

/// Puts more damaged samples than the list can name before an unreadable one.
#[test]
fn an_unreadable_sample_is_named_behind_many_damaged_ones() {
    let bench = Bench::new(1, 1);
    let damaged = LISTED_MAX as u64 + 1;
    let answer = |index| match index {
        _ if index < damaged => {
            let (name, location, reason) = (String::new(), place(), CorruptReason::Malformed);
            Err(Corrupt::Rejected { name, location, reason }.into())
        }
        _ if index == damaged => Err(os_error(libc::EACCES)),
        _ => Ok(()),
    };
    let error = quietly(&Failing { samples: damaged + 2, answer }, &bench.path("out.ddlp"), &kept()).unwrap_err();
    let PackError::Lost { unreadable_count: 1, listed, .. } = &error else { panic!("{error}") };
    let names: Vec<&str> = listed.iter().map(|sample| sample.name.as_str()).collect();
    assert_eq!(names, [format!("sample#{damaged}")]);
}
