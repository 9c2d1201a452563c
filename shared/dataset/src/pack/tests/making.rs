//! What a pack of a source is.

use super::{Bench, quietly};
use crate::pack::{Pack, PackOptions};
use crate::samples::contents;
use crate::{Dataset, open};
use std::fs;

#[test]
fn a_pack_holds_what_its_source_holds() {
    let bench = Bench::new(3, 40);
    let source = bench.source();
    let out = bench.path("out.ddlp");
    let options = PackOptions { threads: 3, verify: true, ..PackOptions::default() };
    let summary = quietly(&source, &out, &options).unwrap();
    let pack = open(&out).unwrap();
    assert_eq!((pack.kind(), pack.len(), pack.classes()), ("pack", 120, source.classes()));
    assert_eq!(contents(&*pack), contents(&source));
    assert_eq!((summary.samples, summary.repaired_count, summary.rejected_count), (120, 0, 0));
    assert_eq!((summary.identity, summary.file_bytes), (pack.identity(), fs::metadata(&out).unwrap().len()));
    assert_eq!(pack.export().unwrap().len_bytes() % 4096, 0);
    assert_eq!(bench.names(), ["out.ddlp", "source"]);
    let opened = Pack::open(&out).unwrap();
    assert_eq!((opened.layout().source_identity, opened.layout().source_kind.as_str()), (source.identity(), "folder"));
}
