//! Images and datasets for this crate's tests.

use crate::Dataset;
use ddlp_pixels::Source;
use ddlp_pixels::encode::{JpegOptions, jpeg};
use std::fs;
use std::path::Path;

/// Returns a small JPEG that depends on `seed`.
pub(crate) fn image(seed: u32) -> Vec<u8> {
    let (width, height) = (24 + seed % 17, 16 + seed % 11);
    let pixels: Vec<u8> = (0..width * height * 3).map(|at| (at.wrapping_mul(seed * 2 + 1) >> 3) as u8).collect();
    jpeg(&pixels, width, height, &JpegOptions::default()).expect("the options are valid")
}

/// Writes an image folder of `classes` classes with `each` samples.
pub(crate) fn write_folder(root: &Path, classes: u32, each: u32) {
    for class in 0..classes {
        let directory = root.join(format!("class{class}"));
        fs::create_dir_all(&directory).unwrap();
        for number in 0..each {
            fs::write(directory.join(format!("{number:04}.jpg")), image(class * each + number)).unwrap();
        }
    }
}

/// Returns the kind of a source, and its bytes.
pub(crate) fn bytes(source: Source<'_>) -> (&'static str, &[u8]) {
    match source {
        Source::Encoded(bytes) => ("encoded", bytes),
        Source::Indexed { file, .. } => ("indexed", file),
        Source::Planar { bytes, .. } => ("planar", bytes),
        _ => panic!("a source whose bytes are at hand"),
    }
}

/// Returns name, label, kind and bytes of every sample of a dataset.
pub(crate) fn contents(dataset: &dyn Dataset) -> Vec<(String, u32, &'static str, Vec<u8>)> {
    let mut buf = Vec::new();
    (0..dataset.len())
        .map(|index| {
            let (form, bytes) = bytes(dataset.sample(index, &mut buf).unwrap());
            (dataset.name(index), dataset.label(index), form, bytes.to_vec())
        })
        .collect()
}

/// Changes a file as a disk that loses bits does: the file's status does not change.
pub(crate) fn silently(path: &Path, change: impl FnOnce(&fs::File)) {
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    change(&file);
    file.set_modified(modified).unwrap();
}
