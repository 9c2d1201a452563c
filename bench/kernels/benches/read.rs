//! Samples per second that one core reads from packs in the page cache, checksums included: files, files with
//! checkpoints, and the part of raw samples that is read before a crop is known. Time to open a pack of as many samples
//! as ImageNet has.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ddlp_dataset::pack::{PackFormat, PackOptions, StoredForm, pack};
use ddlp_dataset::{Dataset, Header, Identity, Location, ReadError, open};
use ddlp_pixels::encode::{JpegOptions, jpeg};
use ddlp_pixels::synthetic;

const IMAGES: u32 = 40;

/// Writes an image folder of photographs as large as ImageNet's.
fn write_folder(root: &Path) {
    let class = root.join("class");
    fs::create_dir_all(&class).expect("a folder that can be made");
    for seed in 0..IMAGES {
        let options = JpegOptions { quality: 94, ..JpegOptions::default() };
        let file = jpeg(&synthetic::photo(500, 375, seed), 500, 375, &options).expect("a valid size");
        fs::write(class.join(format!("{seed:02}.jpg")), file).expect("room on the disk");
    }
}

fn read(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_folder(folder.path());
    let files = open(folder.path()).expect("an image folder");
    let formats = [
        ("kept", PackFormat::of(StoredForm::Kept)),
        ("indexed", PackFormat::of(StoredForm::Indexed)),
        ("raw", PackFormat::of(StoredForm::Raw)),
    ];
    let packs = formats.map(|(name, format)| {
        let out = folder.path().join(format!("{name}.ddlp"));
        let options = PackOptions { format, ..PackOptions::default() };
        pack(&*files, &out, &options, &mut |_| ControlFlow::Continue(())).expect("a source that can be packed");
        (name, open(&out).expect("a pack"))
    });
    let mut group = criterion.benchmark_group("read");
    group.throughput(Throughput::Elements(IMAGES.into())).measurement_time(Duration::from_secs(5));
    let mut buf = Vec::new();
    let sources: [(&str, &dyn Dataset); 4] =
        [("folder", &*files), (packs[0].0, &*packs[0].1), (packs[1].0, &*packs[1].1), (packs[2].0, &*packs[2].1)];
    for (name, dataset) in sources {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                for index in 0..dataset.len() {
                    dataset.sample(index, &mut buf).expect("a sample");
                }
            });
        });
    }
    group.finish();
}

/// Samples of one pixel, as many as ImageNet has.
struct Many;

impl Dataset for Many {
    fn len(&self) -> u64 {
        1_300_000
    }

    fn classes(&self) -> &[String] {
        const { &[String::new(), String::new()] }
    }

    fn label(&self, index: u64) -> u32 {
        index as u32 % 2
    }

    fn name(&self, index: u64) -> String {
        index.to_string()
    }

    fn location(&self, _: u64) -> Location {
        Location { file: "memory".into(), offset: 0, length: 3 }
    }

    fn header(&self, _: u64) -> Result<Header, ReadError> {
        Ok(Header::planar((1, 1), 0..3))
    }

    fn read(&self, _: u64, _: &Header, _: u64, out: &mut [u8]) -> Result<(), ReadError> {
        out.copy_from_slice(&[1, 2, 3]);
        Ok(())
    }

    fn identity(&self) -> Identity {
        Identity::from_bytes([1; 32])
    }

    fn kind(&self) -> &'static str {
        "many"
    }
}

fn open_many(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("many.ddlp");
    pack(&Many, &out, &PackOptions::default(), &mut |_| ControlFlow::Continue(())).expect("room on the disk");
    let mut group = criterion.benchmark_group("open");
    group.sample_size(10).measurement_time(Duration::from_secs(5));
    group.bench_function("1.3 million samples", |bencher| bencher.iter(|| open(&out).expect("a pack").len()));
    group.finish();
}

criterion_group!(benches, read, open_many);
criterion_main!(benches);
