//! Reading samples into a reused buffer allocates nothing, nor does preparing pixels. An open pack takes little memory
//! for each sample.
//!
//! A counting allocator replaces the system's: `ddlp_test_support::allocations`.

use ddlp_dataset::pack::{PackFormat, PackOptions, StoredForm, pack};
use ddlp_dataset::{Dataset, Drawn, Header, Identity, Location, ReadError, Resident, SampleReader, StoredAt, open};
use ddlp_pixels::encode::{JpegOptions, jpeg};
use ddlp_pixels::{CompiledPipeline, Draw, Fidelity, Limits, Pipeline, Preparer};
use ddlp_test_support::allocations::{Counting, allocations_of};
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations_of_a_second_pass(dataset: &dyn Dataset) -> usize {
    let mut buf = Vec::new();
    let mut pass = || {
        for index in 0..dataset.len() {
            dataset.sample(index, &mut buf).unwrap();
        }
    };
    pass();
    allocations_of(pass).count
}

fn allocations_of_preparing_twice(dataset: &dyn Dataset) -> usize {
    let (mut reader, mut preparer) = (SampleReader::default(), Preparer::new(Limits::default()));
    let pipeline = CompiledPipeline::of(&Pipeline::cifar_train()).unwrap();
    let mut out = vec![0; pipeline.output().bytes()];
    let mut pass = || {
        for index in 0..dataset.len().min(1000) {
            let draw = Draw { seed: 1, epoch: 0, sample_id: index };
            reader
                .prepare(
                    StoredAt { dataset, index },
                    None,
                    &mut preparer,
                    Drawn { pipeline: &pipeline, draw, fidelity: Fidelity::WHOLE },
                    &mut out,
                )
                .unwrap();
        }
    };
    pass();
    allocations_of(pass).count
}

fn image(seed: u32) -> Vec<u8> {
    let (width, height) = (32 + seed, 48);
    let pixels: Vec<u8> = (0..width * height * 3).map(|at| (at * seed) as u8).collect();
    jpeg(&pixels, width, height, &JpegOptions::default()).unwrap()
}

fn pack_into(source: &dyn Dataset, out: &Path) -> Box<dyn Dataset> {
    pack(source, out, &PackOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
    open(out).unwrap()
}

#[test]
fn no_kind_of_dataset_allocates_in_steady_state() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    for class in ["a class", "b"] {
        fs::create_dir_all(path("folder").join(class)).unwrap();
        (1..20)
            .for_each(|seed| fs::write(path("folder").join(class).join(format!("{seed}.jpg")), image(seed)).unwrap());
    }
    let folder = open(&path("folder")).unwrap();
    fs::write(path("list.csv"), format!("path,label\nfolder/{},cat\n", folder.name(0))).unwrap();
    let list = open(&path("list.csv")).unwrap();
    fs::create_dir(path("cifar")).unwrap();
    fs::write(path("cifar/data_batch_1.bin"), vec![1; 3073 * 10]).unwrap();
    let cifar = open(&path("cifar")).unwrap();
    let mut archive = tar::Builder::new(fs::File::create(path("shard.tar")).unwrap());
    for seed in 1..20 {
        for (extension, content) in [("jpg", image(seed)), ("cls", b"1".to_vec())] {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            archive.append_data(&mut header, format!("{seed}.{extension}"), content.as_slice()).unwrap();
        }
    }
    archive.into_inner().unwrap();
    let shards = open(&path("shard.tar")).unwrap();
    let small = pack_into(&*folder, &path("small.ddlp"));
    let raw = path("raw.ddlp");
    let options = PackOptions { format: PackFormat::of(StoredForm::Raw), ..PackOptions::default() };
    pack(&*folder, &raw, &options, &mut |_| ControlFlow::Continue(())).unwrap();
    let raw = open(&raw).unwrap();
    let resident = Resident::of(open(&path("cifar")).unwrap().into());
    assert!(resident.is_resident());
    let planar = pack_into(&*cifar, &path("planar.ddlp"));
    for dataset in [&*cifar, &*resident, &*planar, &*raw] {
        assert_eq!(allocations_of_preparing_twice(dataset), 0, "{} of {}", dataset.kind(), dataset.len());
    }
    for dataset in [folder, list, cifar, shards, small, raw] {
        assert_eq!(allocations_of_a_second_pass(&*dataset), 0, "{} of {}", dataset.kind(), dataset.len());
    }
}

/// Samples of one pixel.
struct Pixels(u64);

impl Dataset for Pixels {
    fn len(&self) -> u64 {
        self.0
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
        "pixels"
    }
}

#[test]
fn an_open_pack_of_1_3_million_samples_takes_at_most_64_mb() {
    let folder = tempfile::tempdir().unwrap();
    let bytes_of = |samples| {
        let out = folder.path().join(format!("{samples}.ddlp"));
        pack(&Pixels(samples), &out, &PackOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
        allocations_of(|| assert_eq!(open(&out).unwrap().len(), samples)).bytes
    };
    // What opening allocates for each sample, without what it allocates for any pack.
    let (few, many) = (40_000, 120_000);
    let of_few = bytes_of(few);
    let of_a_sample = (bytes_of(many) - of_few) as f64 / (many - few) as f64;
    assert!(of_a_sample >= 36.0, "the records are counted: {of_a_sample}");
    assert!(of_a_sample * 1.3e6 + of_few as f64 <= 64e6, "{of_a_sample} bytes a sample, {of_few} of {few}");
}
