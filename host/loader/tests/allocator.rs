//! A loader leaves the process's allocator as it is. A program of its own, since the allocator serves a whole process.

#![cfg(target_env = "gnu")]

use ddlp_host::pixels::encode::{JpegOptions, Layout, jpeg};
use ddlp_host::pixels::synthetic::photo;
use ddlp_host::{Loader, Strategy};

/// Returns whether glibc maps a block on its own although the process has freed one of this size before. glibc does so
/// only if a program has fixed the size from which it maps blocks. Each call needs larger blocks than the calls before
/// it, whose freed blocks would serve otherwise.
fn maps_blocks_again(bytes: usize) -> bool {
    // SAFETY: both blocks are freed once, and never used.
    unsafe {
        libc::free(std::hint::black_box(libc::malloc(bytes)));
        let before = libc::mallinfo2().hblks;
        let block = std::hint::black_box(libc::malloc(bytes));
        let after = libc::mallinfo2().hblks;
        libc::free(block);
        after > before
    }
}

#[test]
fn a_loader_of_large_images_leaves_the_allocator_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let class = folder.path().join("class");
    std::fs::create_dir(&class).unwrap();
    // Its coefficients take more than 4 MiB, so the image counts as large.
    let options = JpegOptions { layout: Layout::Yuv444, progressive: true, ..JpegOptions::default() };
    let image = jpeg(&photo(1600, 1200, 1), 1600, 1200, &options).unwrap();
    std::fs::write(class.join("large.jpg"), image).unwrap();
    let run = || {
        let loader = Loader::builder()
            .with(|o| (o.dataset, o.batch_size, o.strategy) = (Some(folder.path().into()), 1, Strategy::Cpu));
        let images: usize = loader.build().unwrap().map(|batch| batch.unwrap().len()).sum();
        assert_eq!(images, 1);
    };
    assert!(!maps_blocks_again(8 << 20), "the test can tell");
    run();
    assert!(!maps_blocks_again(16 << 20), "a loader has changed the process's allocator");
    ddlp_host::pixels::map_large_blocks();
    run();
    assert!(maps_blocks_again(28 << 20), "a program may change its own");
}
