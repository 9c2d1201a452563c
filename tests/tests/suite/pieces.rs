//! Packs of pieces: the pixels of a fidelity do not depend on who reads them, and how.

use ddlp_dataset::pack::{PackFormat, StoredForm};
use ddlp_host::{Digest, Fidelity, LoaderBuilder, LocalResults, Strategy};
use ddlp_tests::agent::Agent;
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::{Run, loader, local};
use std::collections::{BTreeMap, BTreeSet};
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
        for (name, builder) in variants.clone() {
            variants.push((format!("{name}, in a window"), builder.with(|o| o.shuffle_window = Some(4))));
        }
        for (name, builder) in variants {
            assert_eq!(run(&name, builder).0, expected, "{name}, fidelity {fidelity}");
        }
        digests.insert(expected, fidelity);
    }
    assert_eq!(digests.len(), 4, "each fidelity has other pixels");
    assert_eq!(digests.get(&folder), Some(&"10"));
}

#[test]
fn ranks_together_have_the_digest_of_one_at_each_fidelity() {
    let photos = Photos::new(SAMPLES);
    let pack = photos.pack_as("pcr.ddlp", PackFormat::of(StoredForm::Pcr));
    let mut digests = BTreeSet::new();
    for (fidelity, window) in ["1", "5", "10"].into_iter().flat_map(|fidelity| [(fidelity, None), (fidelity, Some(6))])
    {
        let of = |rank, world| {
            let builder = loader(&pack).with(|o| (o.rank, o.world_size, o.shuffle_window) = (rank, world, window));
            Run::of(builder.with(|o| o.fidelity = fidelity.parse().unwrap()))
        };
        let number = |run: &Run| u128::from_str_radix(&run.digest, 16).unwrap();
        let whole = number(&of(0, 1));
        digests.insert(whole);
        // Batches divide into equal shares, so that no sample occurs twice.
        for world in [2, 3] {
            let sum = (0..world).fold(0, |sum: u128, rank| sum.wrapping_add(number(&of(rank, world))));
            assert_eq!(sum, whole, "fidelity {fidelity}, window {window:?}, {world} ranks");
        }
    }
    assert_eq!(digests.len(), 3, "each fidelity has one digest, in a window or not");
}

#[test]
fn a_run_that_goes_on_has_the_digest_of_its_fidelity() {
    let photos = Photos::new(SAMPLES);
    let pack = photos.pack_as("pcr.ddlp", PackFormat::of(StoredForm::Pcr));
    for (fidelity, window) in [("1", None), ("2", Some(4)), ("5", None), ("5", Some(4))] {
        let builder = || {
            let of = loader(&pack).with(|o| (o.epochs, o.shuffle_window) = (2, window));
            of.with(|o| (o.strategy, o.fidelity) = (Strategy::Ordered, fidelity.parse().unwrap()))
        };
        let number = |text: &str| u128::from_str_radix(text, 16).unwrap();
        let whole = Run::of(builder());
        let mut first = builder().build().unwrap();
        let mut digest = Digest::default();
        for _ in 0..5 {
            digest.update(&first.next().unwrap().unwrap()).unwrap();
        }
        let state = first.state();
        let by_drive = builder().with(|o| o.resume = Some(state)).drive(local(LocalResults::Shared));
        let rest = Run::of(by_drive);
        let sum = number(&digest.unordered()).wrapping_add(number(&rest.digest));
        assert_eq!(sum, number(&whole.digest), "fidelity {fidelity}, window {window:?}");
    }
}

#[test]
fn a_fidelity_that_changes_is_that_of_each_epoch_on_both_prongs() {
    let photos = Photos::new(SAMPLES);
    let pack = photos.pack_as("pcr.ddlp", PackFormat::of(StoredForm::Pcr));
    let with = |fidelity: &str, strategy| {
        let of = loader(&pack).with(|o| (o.epochs, o.strategy) = (2, strategy));
        of.with(|o| o.fidelity = fidelity.parse().unwrap())
    };
    let (expected, _) = run("cpu", with("0:1,1:5", Strategy::Cpu));
    let by_drive = with("0:1,1:5", Strategy::Csd).drive(local(LocalResults::Shared));
    assert_eq!(run("csd", by_drive).0, expected);
    let asked = |strategy| with("10", strategy).fidelity_by(|epoch| Ok(Fidelity::new(1 + 4 * epoch as u8).unwrap()));
    assert_eq!(run("asked", asked(Strategy::Cpu)).0, expected);
    assert_eq!(run("csd asked", asked(Strategy::Csd).drive(local(LocalResults::Shared))).0, expected);
    for other in ["1", "5"] {
        assert_ne!(run(other, with(other, Strategy::Cpu)).0, expected);
    }
    // A run that resumes in the middle of the first epoch.
    let whole = Run::of(with("0:1,1:5", Strategy::Ordered));
    let mut first = with("0:1,1:5", Strategy::Ordered).build().unwrap();
    for _ in 0..3 {
        first.next().unwrap().unwrap();
    }
    let state = first.state();
    let resumed = |fidelity: &str| {
        let builder = with(fidelity, Strategy::Ordered).with(|o| o.resume = Some(state.clone()));
        Run::of(builder.drive(local(LocalResults::Shared)))
    };
    assert_eq!(resumed("0:1,1:5").batches, whole.batches[3..]);
    assert_eq!(resumed("0:1,1:5").digest, resumed("0:1,1:5").digest);
    assert_ne!(resumed("0:1,1:5").digest, resumed("0:1,1:10").digest);
}
