//! A loader leaves the process's panic hook as it is. A program of its own, since the hook serves a whole process.

use ddlp_host::{Loader, Strategy};
use std::panic;

/// An image of 1 × 1 pixel in the format PPM.
const IMAGE: &[u8] = b"P6 1 1 255\n\x10\x20\x30";

/// Returns the address of the hook.
fn hook() -> *const () {
    let hook = panic::take_hook();
    let address = std::ptr::from_ref(&*hook).cast();
    panic::set_hook(hook);
    address
}

#[test]
fn a_loader_that_decodes_by_other_libraries_leaves_the_panic_hook_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let class = folder.path().join("class");
    std::fs::create_dir(&class).unwrap();
    std::fs::write(class.join("small.ppm"), IMAGE).unwrap();
    let before = panic::take_hook();
    // A hook that holds a value, and therefore has an address of its own.
    panic::set_hook(Box::new(move |info| before(info)));
    let before = hook();
    let run = || {
        let loader = Loader::builder()
            .with(|o| (o.dataset, o.batch_size, o.strategy) = (Some(folder.path().into()), 1, Strategy::Cpu));
        let images: usize = loader.build().unwrap().map(|batch| batch.unwrap().len()).sum();
        assert_eq!(images, 1);
    };
    run();
    assert_eq!(hook(), before, "a loader has changed the process's panic hook");
    ddlp_host::pixels::silence_decoder_panics();
    assert_ne!(hook(), before, "a program may change its own");
}
