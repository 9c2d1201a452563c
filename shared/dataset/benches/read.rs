//! Samples per second that one core reads from packs in the page cache, checksums included: files, files with
//! checkpoints, and the part of raw samples that is read before a crop is known.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ddlp_dataset::pack::{PackFormat, PackOptions, StoredForm, pack};
use ddlp_dataset::{Dataset, open};
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

criterion_group!(benches, read);
criterion_main!(benches);
