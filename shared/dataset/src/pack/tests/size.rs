//! Length of packs with checkpoints, compared with the documented figures for photographs of usual size.

use super::{Bench, quietly};
use crate::pack::{Pack, PackOptions, StoredForm};
use ddlp_pixels::encode::{JpegOptions, jpeg};
use ddlp_pixels::synthetic;
use std::fs;

/// Returns the bytes of a pack of such photographs for each byte of the source: samples and index, without the padding
/// of parts, which is the same for any number of photographs.
fn per_source_byte(options: &JpegOptions) -> f64 {
    let bench = Bench::new(1, 1);
    let folder = bench.path("source/class0");
    fs::remove_file(folder.join("0000.jpg")).unwrap();
    let mut source_bytes = 0;
    for (number, quality) in (0u32..).zip([85, 88, 90, 92, 95]) {
        let (width, height) = if number % 2 == 0 { (500, 375) } else { (375, 500) };
        let options = JpegOptions { quality, ..options.clone() };
        let file = jpeg(&synthetic::photo(width, height, number), width, height, &options).unwrap();
        source_bytes += file.len();
        fs::write(folder.join(format!("{number:04}.jpg")), file).unwrap();
    }
    let out = bench.path("out.ddlp");
    quietly(&bench.source(), &out, &PackOptions::default()).unwrap();
    let pack = Pack::open(&out).unwrap();
    assert!((0..5).all(|index| pack.record(index).unwrap().form == StoredForm::Indexed));
    let sections: u64 = pack.layout().sections.iter().map(|section| section.length).sum();
    (pack.layout().data_bytes + sections) as f64 / source_bytes as f64
}

#[test]
fn checkpoints_of_sequential_files_add_two_per_cent_at_most() {
    for optimize in [false, true] {
        let ratio = per_source_byte(&JpegOptions { optimize, ..JpegOptions::default() });
        assert!(ratio > 1.0 && ratio <= 1.02, "{ratio}, tables made for each image: {optimize}");
    }
}

#[test]
fn progressive_files_become_eight_per_cent_longer_at_most() {
    let ratio = per_source_byte(&JpegOptions { progressive: true, ..JpegOptions::default() });
    assert!(ratio <= 1.08, "{ratio}");
}
