//! A pack of any content: opened, surveyed, read, verified.
#![no_main]

use ddlp_dataset::Dataset;
use ddlp_dataset::pack::{Pack, Survey};
use libfuzzer_sys::fuzz_target;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

fuzz_target!(|bytes: &[u8]| {
    let file = File::from(memfd_create(c"pack", MFdFlags::empty()).expect("a memfd"));
    file.write_all_at(bytes, 0).expect("memory");
    let Ok(pack) = Pack::from_file(file, Path::new("fuzzed.ddlp")) else { return };
    assert!(pack.len() <= bytes.len() as u64, "every sample has a record in the file");
    let _ = Survey::of(&pack);
    let mut sample = Vec::new();
    for index in 0..pack.len().min(64) {
        let (_, _, _) = (pack.name(index), pack.label(index), pack.location(index));
        let _ = pack.sample(index, &mut sample);
        assert!(sample.len() <= bytes.len());
    }
});
