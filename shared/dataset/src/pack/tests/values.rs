//! A pack as one value for each sample: index and values together are the pack again.

use super::forms::write_all_kinds;
use super::{Bench, quietly};
use crate::pack::{Blocks, Pack, PackFormat, PackOptions, StoredForm, ValueMap, pack_aside};
use crate::{Dataset, open};
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// The bytes in front of a pack's sample region.
#[derive(Debug)]
struct IndexAlone {
    bytes: Vec<u8>,
    file_bytes: u64,
}

impl Blocks for IndexAlone {
    fn len_bytes(&self) -> u64 {
        self.file_bytes
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let from = self.bytes.get(offset as usize..).and_then(|bytes| bytes.get(..out.len()));
        out.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn session(&self) -> u64 {
        0
    }

    fn interrupt(&self) {}
}

/// Returns a pack of images of all kinds in a form.
fn packed(bench: &Bench, form: StoredForm) -> PathBuf {
    let out = bench.path(form.name());
    let options = PackOptions { format: PackFormat::of(form), bundle_samples: 7, ..PackOptions::default() };
    quietly(&*open(&bench.path("source")).unwrap(), &out, &options).unwrap();
    out
}

#[test]
fn index_and_values_together_are_the_pack() {
    let bench = Bench::new(2, 4);
    write_all_kinds(&bench);
    for form in
        [StoredForm::Kept, StoredForm::Indexed, StoredForm::Rows, StoredForm::Raw, StoredForm::L3, StoredForm::Pcr]
    {
        let path = packed(&bench, form);
        let (bytes, pack) = (fs::read(&path).unwrap(), Pack::open(&path).unwrap());
        let (begin, end) = (pack.layout().data_offset, pack.layout().file_bytes);
        let mut index = vec![0; begin as usize];
        pack.read_bytes(0, &mut index).unwrap();
        let values: Vec<Vec<u8>> = (0..pack.len())
            .map(|sample| {
                let mut value = vec![9; 3];
                pack.read_value(sample, &mut value).unwrap();
                value
            })
            .collect();
        let blocks = IndexAlone { bytes: index.clone(), file_bytes: end };
        let map = ValueMap::read(Box::new(blocks), Path::new("values")).unwrap();

        // Read in stretches of any length, each as a store would read it.
        for step in [1000, 4096, 1 << 20] {
            let mut joined = index.clone();
            for start in (begin..end).step_by(step) {
                let stretch = start..(start + step as u64).min(end);
                let mut out = vec![0; (stretch.end - stretch.start) as usize];
                let taken = map.parts(stretch.clone(), |part| {
                    let (at, length) =
                        ((part.extent.start - start) as usize, (part.extent.end - part.extent.start) as usize);
                    let from = &values[part.sample as usize][part.start as usize..][..length];
                    out[at..at + length].copy_from_slice(from);
                    Ok::<_, ()>(())
                });
                taken.unwrap();
                joined.extend_from_slice(&out);
            }
            assert!(joined == bytes, "{form:?} by {step}");
        }
        let whole: usize = values.iter().map(Vec::len).sum();
        assert!(whole as u64 <= pack.layout().data_bytes, "{form:?}");
    }
}

#[test]
fn a_pack_made_aside_has_the_contents_of_one_with_a_name_and_leaves_no_file() {
    let bench = Bench::new(2, 4);
    let named = Pack::open(&bench.packed()).unwrap();
    let before = bench.names();
    let folder = bench.path("");
    let packed =
        pack_aside(&bench.source(), &folder, &PackOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(packed.pack.identity(), named.identity());
    assert_eq!(packed.pack.layout(), named.layout());
    drop(packed);
    assert_eq!(bench.names(), before);
}
