//! Samples that a pack would lose: which losses the options allow, and which samples are named.

use super::{Bench, quietly};
use crate::pack::{LISTED_MAX, PackError, PackOptions};
use crate::{Corrupt, Dataset, Identity, Location, ReadError, Unavailable};
use ddlp_pixels::{CorruptReason, Source};
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

const ALLOWED: PackOptions = PackOptions { allow_unreadable: true, ..OPTIONS };
const OPTIONS: PackOptions = PackOptions {
    threads: 1,
    format: crate::pack::PackFormat::Encoded { jpeg: crate::pack::JpegForm::Kept },
    overwrite: false,
    verify: false,
    allow_unreadable: false,
    strict: false,
    limits: ddlp_pixels::Limits { pixels: 1 << 20, scans: 100, memory_bytes: 1 << 30 },
};

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

    fn sample<'a>(&'a self, index: u64, buf: &'a mut Vec<u8>) -> Result<Source<'a>, ReadError> {
        (self.answer)(index)?;
        buf.clear();
        buf.extend([1, 2, 3]);
        Ok(Source::Planar { width: 1, height: 1, bytes: buf })
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
    Unavailable::Io { what: "x".into(), source: io::Error::from_raw_os_error(errno) }.into()
}

#[test]
fn a_folder_that_vanishes_is_an_error_whatever_the_option() {
    let bench = Bench::new(2, 3);
    let (source, out) = (bench.source(), bench.path("out.ddlp"));
    std::fs::remove_file(bench.path("source/class0/0001.jpg")).unwrap();
    quietly(&source, &out, &ALLOWED).unwrap();
    std::fs::remove_file(&out).unwrap();
    std::fs::rename(bench.path("source/class1"), bench.path("elsewhere")).unwrap();
    let error = quietly(&source, &out, &ALLOWED).unwrap_err();
    assert!(matches!(&error, PackError::SourceUnavailable { .. }), "{error}");
    assert!(error.to_string().contains("source/class1 is gone"), "{error}");
    std::fs::remove_dir_all(bench.path("source")).unwrap();
    let error = quietly(&source, &out, &ALLOWED).unwrap_err();
    assert!(error.to_string().contains("source is gone"), "{error}");
    assert!(!out.exists());
}

#[test]
fn a_sample_that_cannot_be_read_for_a_moment_is_packed() {
    let bench = Bench::new(1, 1);
    let attempts = AtomicU32::new(0);
    let answer = |index| match index {
        4 if attempts.fetch_add(1, Ordering::Relaxed) < 2 => Err(os_error(libc::ETIMEDOUT)),
        _ => Ok(()),
    };
    let summary = quietly(&Failing { samples: 9, answer }, &bench.path("out.ddlp"), &OPTIONS).unwrap();
    assert_eq!((summary.planar.samples, attempts.load(Ordering::Relaxed)), (9, 3));
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
    let error = quietly(&Failing { samples: damaged + 2, answer }, &bench.path("out.ddlp"), &OPTIONS).unwrap_err();
    let PackError::Lost { unreadable_count: 1, listed, .. } = &error else { panic!("{error}") };
    let names: Vec<&str> = listed.iter().map(|sample| sample.name.as_str()).collect();
    assert_eq!(names, [format!("sample#{damaged}")]);
}
