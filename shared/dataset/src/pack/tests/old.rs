//! A pack from before forms 2 and 3 existed can still be read, and the same samples still make the same pack.

use super::{Bench, quietly};
use crate::Dataset;
use crate::pack::{Pack, PackFormat, PackOptions, StoredForm, StoredVerdict, verify};
use crate::samples::contents;
use std::fs;
use std::ops::ControlFlow;

/// A seed of the fuzz target of packs: two files of a folder with two classes. It must never be made anew.
const OLD: &[u8] = include_bytes!("../../../../../fuzz/seeds/pack/two.ddlp");
const IDENTITY: &str = "320ed50d968fabc434758840003586a55ab8016b6b5cc2c41172d84f57253852";
/// The files.
const GRAY: &[u8] = include_bytes!("../../../../pixels/src/ability/images/gray.jpg");
const COLOR: &[u8] = include_bytes!("../../../../pixels/src/ability/images/420.jpg");

#[test]
fn it_opens_and_has_its_identity_and_its_samples() {
    let bench = Bench::new(1, 1);
    let path = bench.path("old.ddlp");
    fs::write(&path, OLD).unwrap();
    let pack = Pack::open(&path).unwrap();
    assert_eq!(pack.identity().to_string(), IDENTITY);
    assert_eq!((pack.classes(), pack.layout().source_kind.as_str()), (&["a".to_owned(), "b".to_owned()][..], "folder"));
    let sample = |name: &str, label, file: &[u8]| (name.to_owned(), label, "encoded", file.to_vec());
    assert_eq!(contents(&pack), [sample("a/1.jpg", 0, GRAY), sample("b/2.jpg", 1, COLOR)]);
    for (index, size) in [(0, (50, 40)), (1, (72, 56))] {
        let record = pack.record(index).unwrap();
        assert_eq!((record.form, record.verdict), (StoredForm::Kept, StoredVerdict::Intact));
        assert_eq!(((record.width, record.height), record.detail_length), (size, 0));
        assert_eq!((record.orientation, record.was_shrunk), (1, false));
    }
    let report = verify(&path, 1, &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(report.is_intact() && report.samples == 2, "{report:?}");
}

#[test]
fn the_same_samples_make_the_same_pack_today() {
    let bench = Bench::new(1, 1);
    let (old, new) = (bench.path("old.ddlp"), bench.path("new.ddlp"));
    fs::write(&old, OLD).unwrap();
    let options = PackOptions { format: PackFormat::of(StoredForm::Kept), ..PackOptions::default() };
    quietly(&Pack::open(&old).unwrap(), &new, &options).unwrap();
    assert_eq!(Pack::open(&new).unwrap().identity().to_string(), IDENTITY);
    // Only the source differs, which stands in the first block.
    assert!(fs::read(&new).unwrap()[4096..] == OLD[4096..]);
}
