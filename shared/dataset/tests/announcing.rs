//! What is announced is fetched: a sample's bytes come into memory although nobody reads them.

use ddlp_dataset::Dataset;
use ddlp_dataset::pack::{JpegForm, Pack, PackFormat, PackOptions, pack};
use ddlp_pixels::encode::{JpegOptions, jpeg};
use ddlp_pixels::synthetic;
use memmap2::MmapOptions;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::time::{Duration, Instant};

/// Longer than any disk takes for a sample.
const WITHIN: Duration = Duration::from_secs(30);
/// Longer than what the kernel reads at a time.
const SAMPLE_BYTES_MIN: u64 = 300 << 10;

/// A pack of three long samples.
fn packed(folder: &Path) -> File {
    let class = folder.join("source/class");
    fs::create_dir_all(&class).unwrap();
    for number in 0..3 {
        let (width, height) = (1100, 900);
        let options = JpegOptions { quality: 95, ..JpegOptions::default() };
        let file = jpeg(&synthetic::photo(width, height, number), width, height, &options).unwrap();
        fs::write(class.join(format!("{number}.jpg")), file).unwrap();
    }
    let out = folder.join("out.ddlp");
    let options = PackOptions { format: PackFormat::Encoded { jpeg: JpegForm::Indexed }, ..PackOptions::default() };
    let source = ddlp_dataset::open(&folder.join("source")).unwrap();
    pack(&*source, &out, &options, &mut |_| ControlFlow::Continue(())).unwrap();
    File::open(out).unwrap()
}

/// How many pages of a part of a file are in memory, and how many there are.
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

/// Looks until all of a part of a file is in memory, or as long as a disk may take.
fn wait_for(file: &File, extent: &Range<u64>) -> bool {
    let until = Instant::now() + WITHIN;
    loop {
        let (there, all) = pages_in_memory(file, extent).unwrap();
        if there == all || Instant::now() > until {
            return there == all;
        }
        // The kernel tells nobody when a page has come.
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn announced_samples_come_into_memory_without_being_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = packed(folder.path());
    file.sync_all().unwrap();
    let dataset = Pack::open(&folder.path().join("out.ddlp")).unwrap();
    let extents = [0, 1, 2].map(|index| {
        let record = dataset.record(index).unwrap();
        assert!(u64::from(record.length) > SAMPLE_BYTES_MIN, "{record:?}");
        record.offset..record.end()
    });
    let drop_all = || posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).unwrap();
    let in_memory = || -> usize { extents.iter().map(|extent| pages_in_memory(&file, extent).unwrap().0).sum() };
    // What the kernel still has in hand, such as a page of a batch that it is about to note, is dropped the next time.
    let is_cold = (0..100).any(|_| {
        drop_all();
        in_memory() == 0
    });
    if !is_cold {
        let _ = writeln!(io::stderr(), "not tested: announcing samples, as this file system keeps all files in memory");
        return;
    }
    dataset.announce(&[2, 1]);
    for index in [1, 2] {
        assert!(wait_for(&file, &extents[index]), "sample {index} was announced and has not come");
    }
    let (there, all) = pages_in_memory(&file, &extents[0]).unwrap();
    assert!(there < all / 2, "{there} pages of {all} of a sample that nobody announced");
}
