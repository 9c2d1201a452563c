//! What lies in the page cache of a pack: announced samples arrive although nobody reads them, reading a sample brings
//! no neighbours, and pixels of a pack much larger than memory are read past the page cache.

use ddlp_dataset::pack::{Pack, PackFormat, PackOptions, StoredForm, pack};
use ddlp_dataset::{Ahead, Dataset, Drawn, SampleReader, StoredAt};
use ddlp_pixels::encode::{JpegOptions, jpeg};
use ddlp_pixels::ops::{CenterCrop, Resize};
use ddlp_pixels::{CompiledPipeline, Draw, Fidelity, Limits, Pipeline, Preparer, synthetic};
use ddlp_test_support::page_cache::can_pass_cache;
use memmap2::MmapOptions;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longer than any disk takes for a sample.
const WITHIN: Duration = Duration::from_secs(30);
/// More bytes than the kernel reads at a time.
const SAMPLE_BYTES_MIN: u64 = 300 << 10;
/// Width and height of an image with so many bytes.
const LONG: (u32, u32) = (1100, 900);

/// A pack that has been dropped from memory.
struct Cold {
    _folder: TempDir,
    file: File,
    pack: Pack,
    extents: Vec<Range<u64>>,
}

impl Cold {
    /// Makes a pack of three long samples; `None` if it cannot be dropped from memory.
    fn new(format: PackFormat) -> Option<Self> {
        let cold = Self::of(format, &[LONG; 3])?;
        let is_long = |extent: &Range<u64>| extent.end - extent.start > SAMPLE_BYTES_MIN;
        assert!(cold.extents.iter().all(is_long), "{:?}", cold.extents);
        Some(cold)
    }

    /// Makes a pack of images of these sizes; `None` if it cannot be dropped from memory.
    fn of(format: PackFormat, sizes: &[(u32, u32)]) -> Option<Self> {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let file = packed(folder.path(), format, sizes);
        file.sync_all().unwrap();
        let pack = Pack::open(&folder.path().join("out.ddlp")).unwrap();
        let extent = |index| pack.record(index).map(|record| record.extent()).unwrap();
        let extents: Vec<_> = (0..pack.len()).map(extent).collect();
        let cold = Self { _folder: folder, file, pack, extents };
        // The kernel may still hold a page, such as one of a batch that it is about to note; it drops the page the next
        // time.
        let is_cold = (0..100).any(|_| {
            posix_fadvise(&cold.file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).unwrap();
            (0..sizes.len()).all(|index| cold.share(index) == 0.0)
        });
        if !is_cold {
            let _ = writeln!(io::stderr(), "not tested: the page cache, as this file system keeps all files in memory");
        }
        is_cold.then_some(cold)
    }

    /// Returns which share of a sample is in memory.
    fn share(&self, index: usize) -> f64 {
        let (there, all) = pages_in_memory(&self.file, &self.extents[index]).unwrap();
        there as f64 / all as f64
    }

    /// Returns whether `bring` brings a sample into memory; tries a few times, since a machine short of memory drops
    /// pages at once.
    fn comes_by(&self, index: usize, bring: impl Fn()) -> bool {
        (0..100).any(|_| {
            bring();
            self.share(index) > 0.5
        })
    }

    /// Prepares a whole sample.
    fn prepare(&self, index: u64) -> Vec<u8> {
        let resize = Resize::to(64).into();
        let operations = vec![resize, CenterCrop::to(64).into()];
        let pipeline = CompiledPipeline::of(&Pipeline { operations, exif_orientation: true }).unwrap();
        let mut row = vec![0; pipeline.output().bytes()];
        let draw = Draw { seed: 0, epoch: 0, sample_id: index };
        let mut preparer = Preparer::new(Limits::default());
        SampleReader::default()
            .prepare(
                StoredAt { dataset: &self.pack, index },
                None,
                &mut preparer,
                Drawn { pipeline: &pipeline, draw, fidelity: Fidelity::WHOLE },
                &mut row,
            )
            .unwrap();
        row
    }
}

fn packed(folder: &Path, format: PackFormat, sizes: &[(u32, u32)]) -> File {
    let class = folder.join("source/class");
    fs::create_dir_all(&class).unwrap();
    for (number, &(width, height)) in sizes.iter().enumerate() {
        let options = JpegOptions { quality: 95, ..JpegOptions::default() };
        let file = jpeg(&synthetic::photo(width, height, number as u32), width, height, &options).unwrap();
        fs::write(class.join(format!("{number:02}.jpg")), file).unwrap();
    }
    let out = folder.join("out.ddlp");
    let options = PackOptions { format, ..PackOptions::default() };
    let source = ddlp_dataset::open(&folder.join("source")).unwrap();
    pack(&*source, &out, &options, &mut |_| ControlFlow::Continue(())).unwrap();
    File::open(out).unwrap()
}

/// Returns how many pages of a part of a file are in memory, and how many there are.
fn pages_in_memory(file: &File, extent: &Range<u64>) -> io::Result<(usize, usize)> {
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)?.expect("a size") as u64;
    let start = extent.start / page * page;
    // SAFETY: nothing is read through the mapping, and nobody cuts the file, which is this test's own.
    let map = unsafe { MmapOptions::new().offset(start).len((extent.end - start) as usize).map(file)? };
    let mut pages = vec![0u8; (extent.end - start).div_ceil(page) as usize];
    // SAFETY: the mapping begins at a page, and there is a byte for each of its pages.
    let status = unsafe { libc::mincore(map.as_ptr().cast_mut().cast(), map.len(), pages.as_mut_ptr()) };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((pages.iter().filter(|&&page| page & 1 == 1).count(), pages.len()))
}

/// Waits until all of a part of a file is in memory, or as long as a disk may take; returns whether it is.
fn wait_for(file: &File, extent: &Range<u64>) -> bool {
    let until = Instant::now() + WITHIN;
    loop {
        let (there, all) = pages_in_memory(file, extent).unwrap();
        if there == all || Instant::now() > until {
            return there == all;
        }
        // The kernel has no notification for a page that has come.
        std::thread::sleep(Duration::from_millis(1));
    }
}

const INDEXED: PackFormat = PackFormat::of(StoredForm::Indexed);
const ANYWHERE: Ahead = Ahead { fidelity: Fidelity::WHOLE, window: None };
const RAW: PackFormat = PackFormat::of(StoredForm::Raw);

#[test]
fn announced_samples_come_into_memory_without_being_read() {
    let Some(cold) = Cold::new(INDEXED) else { return };
    cold.pack.announce(&[2, 1], ANYWHERE);
    for index in [1, 2] {
        assert!(wait_for(&cold.file, &cold.extents[index]), "sample {index} was announced and has not come");
    }
    assert!(cold.share(0) < 0.5, "{} of a sample that nobody announced", cold.share(0));
}

#[test]
fn short_samples_and_uncompressed_ones_are_not_announced() {
    let mut sizes = [(110, 90); 22];
    sizes[21] = LONG;
    let (Some(files), Some(raw)) = (Cold::of(INDEXED, &sizes), Cold::new(RAW)) else { return };
    let short = |extent: &Range<u64>| extent.end - extent.start < 16 << 10;
    assert!(files.extents[..21].iter().all(short), "{:?}", files.extents);
    raw.pack.announce(&[0, 1, 2], ANYWHERE);
    files.pack.announce(&(0..22).collect::<Vec<_>>(), ANYWHERE);
    // A sample that was announced before it would be there by then.
    assert!(wait_for(&files.file, &files.extents[21]), "a long one was announced and has not come");
    (0..3).for_each(|index| assert!(raw.share(index) < 0.05, "{} of pixels", raw.share(index)));
    // The last short samples may share a page, or what a disk reads at once, with the long one.
    let came: Vec<usize> = (0..12).filter(|&index| files.share(index) > 0.0).collect();
    assert!(came.is_empty(), "{came:?} of {:?}", files.extents);
}

#[test]
fn samples_that_are_read_bring_no_neighbours() {
    for format in [INDEXED, RAW] {
        let Some(cold) = Cold::new(format) else { return };
        // Reads samples one after the other, as if all were to be read.
        (0..2).for_each(|index| drop(cold.prepare(index)));
        assert!(cold.share(2) < 0.1, "{format:?}: {} of what nobody read", cold.share(2));
        assert!(cold.comes_by(1, || drop(cold.prepare(1))), "{format:?}: what is read is not there");
    }
}

#[test]
fn pixels_of_a_pack_much_larger_than_memory_are_read_past_the_page_cache() {
    let Some(cold) = Cold::new(RAW) else { return };
    let bytes = cold.pack.layout().data_bytes;
    assert!(!cold.pack.fit_memory(bytes / 2).unwrap(), "twice memory is not more than twice");
    if !can_pass_cache(&cold.file) {
        return;
    }
    assert!(cold.pack.fit_memory(bytes / 2 - 1).unwrap());
    let past = [0, 1, 2].map(|index| cold.prepare(index));
    // The page that holds the end of a sample also holds its checksums or the beginning of the next sample.
    (0..3).for_each(|index| assert!(cold.share(index) < 0.05, "{} of sample {index}", cold.share(index)));
    let Some(cached) = Cold::new(RAW) else { return };
    assert!(past == [0, 1, 2].map(|index| cached.prepare(index)), "pixels differ");
    assert!(cached.comes_by(0, || drop(cached.prepare(0))), "what is read through the page cache is not there");
}

#[test]
fn files_in_a_pack_are_read_through_the_page_cache_however_large_it_is() {
    let Some(cold) = Cold::new(INDEXED) else { return };
    assert!(!cold.pack.fit_memory(0).unwrap());
}
