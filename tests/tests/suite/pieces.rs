//! Packs of pieces: the pixels of a fidelity do not depend on who reads them, and how.

use ddlp_dataset::pack::{PackFormat, StoredForm};
use ddlp_host::{LoaderBuilder, LocalResults, Strategy};
use ddlp_tests::agent::Agent;
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::{Run, loader, local};
use std::collections::BTreeMap;
use std::path::Path;

const SAMPLES: u32 = 60;

/// Prepares two epochs and returns the digest, and the bytes of samples that the host read, in MB.
fn run(name: &str, builder: LoaderBuilder) -> (String, f64) {
    let run = Run::of(builder);
    run.assert_exactly_once(2, SAMPLES.into());
    assert!(run.troubles().is_empty(), "{name}: {:?}", run.report.faults);
    (format!("{:?}", run.digest), run.report.read_mb)
}

#[test]
fn each_fidelity_has_one_digest_and_that_of_whole_images_is_the_folders() {
    let photos = Photos::new(SAMPLES);
    let pack = photos.pack_as("pcr.ddlp", PackFormat::of(StoredForm::Pcr));
    let agent = Agent::start(&pack, &photos.scratch().join("state"), &["--slots", "8"]);
    let (folder, _) = run("folder", loader(&photos.folder()).with(|o| (o.epochs, o.strategy) = (2, Strategy::Cpu)));
    let mut digests = BTreeMap::new();
    let mut read_before = 0.0;
    for fidelity in ["1", "2", "5", "10"] {
        let with = |dataset: &Path, strategy| {
            let of = loader(dataset).with(|o| (o.epochs, o.strategy) = (2, strategy));
            of.with(|o| o.fidelity = fidelity.parse().unwrap())
        };
        let (expected, read) = run("cpu", with(&pack, Strategy::Cpu).with(|o| o.threads = Some(1)));
        assert!(read > read_before, "fidelity {fidelity} reads {read} MB, the one before {read_before} MB");
        read_before = read;
        let url = agent.url();
        let mut variants = vec![
            ("cpu 3".to_owned(), with(&pack, Strategy::Cpu).with(|o| o.threads = Some(3))),
            ("drive alone, cpu".to_owned(), with(Path::new(&url), Strategy::Cpu)),
        ];
        for strategy in [Strategy::Csd, Strategy::Ordered, Strategy::Mte, Strategy::Wrr] {
            variants.push((format!("{strategy}"), with(&pack, strategy).drive(local(LocalResults::Shared))));
        }
        variants.push(("drive alone, mte".to_owned(), with(Path::new(&url), Strategy::Mte)));
        for (name, builder) in variants {
            assert_eq!(run(&name, builder).0, expected, "{name}, fidelity {fidelity}");
        }
        digests.insert(expected, fidelity);
    }
    assert_eq!(digests.len(), 4, "each fidelity has other pixels");
    assert_eq!(digests.get(&folder), Some(&"10"));
}
