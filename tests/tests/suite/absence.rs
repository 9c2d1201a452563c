//! A dataset that disappears or changes during a run is never taken for corrupt samples, whatever the policy; corrupt
//! samples have a limit.
//!
//! Faults: a folder, class or file that is removed or forbidden; a pack that is cut short, overwritten in place or
//! replaced by rename; a file that its disk cannot read; damage or truncation of the drive's copy alone; more corrupt
//! samples than allowed.

use ddlp_dataset::{Corrupt, Dataset, ReadError, Unavailable, open};
use ddlp_host::report::FaultKind;
use ddlp_host::{CorruptPolicy, DriveSpec, Loader, LoaderBuilder, LoaderError, LocalResults, MaxCorrupt, Strategy};
use ddlp_test_support::unprivileged::Unprivileged;
use ddlp_tests::agent::Agent;
use ddlp_tests::hooked::{Hooked, Hooks};
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::{Run, chain, faults, loader, local, troubles, wait_for_drive, wait_until};
use nix::errno::Errno;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

const SAMPLES: u32 = 300;
const POLICIES: [CorruptPolicy; 3] = [CorruptPolicy::Fail, CorruptPolicy::Skip, CorruptPolicy::Replace];

fn photos() -> Photos {
    Photos::with_sizes(SAMPLES, |index| (40 + index % 9, 36 + index % 7))
}

/// Cuts these images short.
fn damage(photos: &Photos, indices: impl Iterator<Item = u32>) {
    for index in indices {
        let good = photos.read(index);
        photos.write(index, &good[..good.len() / 3]);
    }
}

/// Delivers two batches, changes the dataset by `act`, and goes on to the end. Returns the error, and checks that the
/// report counts no sample as corrupt.
fn error_after(builder: LoaderBuilder, act: impl FnOnce()) -> LoaderError {
    let mut loader: Loader =
        builder.with(|o| o.buffers = 2).build().unwrap_or_else(|error| panic!("{}", chain(&error)));
    for batch in loader.by_ref().take(2) {
        batch.unwrap_or_else(|error| panic!("{}", chain(&error)));
    }
    act();
    let error = loader.by_ref().find_map(Result::err).expect("the run ends with an error");
    assert!(loader.next().is_none(), "nothing follows an error");
    let corrupt = loader.report().corrupt;
    assert!(corrupt.is_empty(), "what is gone is not corrupt: {corrupt:?}");
    error
}

/// Returns the text of an error that says that the dataset is unavailable.
fn unavailable(error: LoaderError) -> String {
    assert!(matches!(error, LoaderError::Unavailable(_)), "{}", chain(&error));
    chain(&error)
}

fn copied(photos: &Photos, name: &str) -> PathBuf {
    let copy = photos.scratch().join(name);
    fs::copy(photos.pack(), &copy).unwrap();
    copy
}

fn cut(pack: &Path) {
    let file = fs::File::options().write(true).open(pack).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
}

#[test]
fn a_folder_that_is_removed_ends_the_run_under_every_policy() {
    for policy in POLICIES {
        let photos = photos();
        let folder = photos.folder();
        let error = error_after(loader(&folder).with(|o| o.policy = policy), || fs::remove_dir_all(&folder).unwrap());
        let text = unavailable(error);
        // A thread may notice when only a file or a class is gone so far.
        let named = text.contains(&folder.display().to_string()) && text.contains("is gone");
        assert!(named, "{policy:?}: {text}");
    }
}

/// Neither prong takes what is gone for corrupt, and the drive's reports do not lead the CPU to do so.
#[test]
fn a_folder_that_is_removed_ends_a_run_with_a_drive() {
    for strategy in [Strategy::Csd, Strategy::Mte, Strategy::Wrr, Strategy::Ordered] {
        let photos = photos();
        let folder = photos.folder();
        // Far more epochs than buffers and slots hold.
        let builder = loader(&folder).with(|o| (o.policy, o.epochs, o.strategy) = (CorruptPolicy::Skip, 200, strategy));
        let builder = builder.drive(local(LocalResults::Shared));
        let text = unavailable(error_after(builder, || fs::remove_dir_all(&folder).unwrap()));
        assert!(text.contains("is gone"), "{strategy}: {text}");
    }
}

#[test]
fn a_class_that_is_removed_is_named() {
    let photos = photos();
    let class = photos.folder().join("class_1");
    let builder = loader(&photos.folder()).with(|o| o.policy = CorruptPolicy::Skip);
    // The class is removed at once: while its files disappear one by one, a thread may miss a file of a class that is
    // still there.
    let elsewhere = photos.scratch().join("elsewhere");
    let text = unavailable(error_after(builder, || fs::rename(&class, elsewhere).unwrap()));
    assert!(text.contains(&format!("{} is gone", class.display())), "{text}");
}

#[test]
fn a_pack_that_is_cut_ends_the_run_under_every_policy() {
    let photos = photos();
    for policy in POLICIES {
        let pack = copied(&photos, "cut.ddlp");
        let text = unavailable(error_after(loader(&pack).with(|o| o.policy = policy), || cut(&pack)));
        assert!(text.contains("the pack has changed since it was opened") && text.contains("cut.ddlp"), "{text}");
    }
}

#[test]
fn a_pack_that_is_overwritten_in_place_has_changed() {
    let photos = photos();
    let others = Photos::with_sizes(SAMPLES, |index| (41 + index % 9, 36 + index % 7));
    let other = others.pack();
    for policy in [CorruptPolicy::Skip, CorruptPolicy::Replace] {
        let pack = copied(&photos, "overwritten.ddlp");
        let error = error_after(loader(&pack).with(|o| o.policy = policy), || {
            fs::copy(&other, &pack).map(drop).unwrap();
        });
        let text = unavailable(error);
        assert!(text.contains("the pack has changed since it was opened"), "{text}");
    }
}

#[test]
fn a_pack_that_is_replaced_by_rename_is_read_on() {
    let photos = photos();
    let (pack, others) = (copied(&photos, "replaced.ddlp"), Photos::new(30));
    let whole = Run::of(loader(&photos.pack()));
    let mut other = Some(others.pack());
    let run = Run::with(loader(&pack).with(|o| o.buffers = 2), |_, _| {
        if let Some(other) = other.take() {
            fs::copy(&other, pack.with_extension("new")).unwrap();
            fs::rename(pack.with_extension("new"), &pack).unwrap();
        }
    });
    assert_eq!(run.ordered_digest, whole.ordered_digest);
}

#[test]
fn a_file_that_may_not_be_read_ends_the_run() {
    let photos = photos();
    let file = photos.folder().join("class_0/00000.jpg");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    let _unprivileged = Unprivileged::new(&photos.folder());
    let mut loader = loader(&photos.folder()).with(|o| o.policy = CorruptPolicy::Skip).build().unwrap();
    let text = unavailable(loader.find_map(Result::err).expect("the run ends with an error"));
    assert!(text.contains("00000.jpg"), "{text}");
}

/// A dataset in which every third sample fails twice before it can be read: first because a file server does not
/// answer, then for lack of file descriptors.
struct Absent {
    attempts: Mutex<HashMap<u64, usize>>,
}

impl Hooks for Absent {
    fn reads(&self, _index: u64) {}

    fn fails(&self, index: u64) -> Result<(), ReadError> {
        let mut attempts = self.attempts.lock().unwrap();
        let attempt = attempts.entry(index).or_default();
        let refused = [Errno::ETIMEDOUT, Errno::EMFILE].get(*attempt).filter(|_| index.is_multiple_of(3));
        *attempt += 1;
        let Some(&errno) = refused else { return Ok(()) };
        let source = io::Error::from_raw_os_error(errno as i32);
        Err(Unavailable::Io { what: format!("sample {index}"), path: "memory".into(), source }.into())
    }
}

#[test]
fn a_dataset_that_is_absent_for_a_moment_costs_no_sample() {
    let photos = Photos::new(30);
    let whole = Run::of(loader(&photos.folder()));
    for policy in POLICIES {
        let hooks = Absent { attempts: Mutex::default() };
        let dataset = Arc::new(Hooked { dataset: open(&photos.folder()).unwrap(), hooks });
        let run = Run::of(loader(&photos.folder()).dataset(dataset.clone()).with(|o| o.policy = policy));
        assert_eq!(run.ordered_digest, whole.ordered_digest, "{policy:?}");
        assert!(run.report.corrupt.is_empty(), "{:?}", run.report.corrupt);
        let attempts = dataset.hooks.attempts.lock().unwrap();
        assert!(
            (0..30_u64).all(|index| attempts[&index] == if index.is_multiple_of(3) { 3 } else { 1 }),
            "{attempts:?}"
        );
    }
}

/// A dataset that has changed, which only one of its two checks notices.
struct Overwritten {
    is_seen_per_batch: bool,
}

impl Overwritten {
    fn checked(&self, is_seen: bool) -> Result<(), Unavailable> {
        let changed = || Unavailable::Changed { kind: "pack", file: "x".into(), change: "is another one".into() };
        if is_seen { Err(changed()) } else { Ok(()) }
    }
}

impl Hooks for Overwritten {
    fn reads(&self, _index: u64) {}

    fn checks(&self) -> Result<(), Unavailable> {
        self.checked(self.is_seen_per_batch)
    }

    fn checks_damage(&self) -> Result<(), Unavailable> {
        self.checked(!self.is_seen_per_batch)
    }
}

#[test]
fn each_of_the_two_checks_finds_a_dataset_that_has_changed() {
    for is_seen_per_batch in [true, false] {
        let photos = Photos::new(30);
        if !is_seen_per_batch {
            damage(&photos, 20..21);
        }
        let hooks = Overwritten { is_seen_per_batch };
        let dataset = Arc::new(Hooked { dataset: open(&photos.folder()).unwrap(), hooks });
        let builder = loader(&photos.folder())
            .dataset(dataset)
            .with(|o| (o.strategy, o.policy) = (Strategy::Cpu, CorruptPolicy::Skip));
        let text = unavailable(builder.build().unwrap().find_map(Result::err).expect("the run ends with an error"));
        assert!(text.contains("the pack has changed since it was opened"), "{text}");
    }
}

/// A dataset on a disk that cannot read these samples.
struct BadSectors {
    samples: Vec<u64>,
}

impl Hooks for BadSectors {
    fn reads(&self, _index: u64) {}

    fn fails(&self, index: u64) -> Result<(), ReadError> {
        if !self.samples.contains(&index) {
            return Ok(());
        }
        let location = ddlp_dataset::Location { file: "x".into(), offset: 0, length: 1 };
        let source = io::Error::from_raw_os_error(Errno::EIO as i32);
        Err(Corrupt::Io { name: index.to_string(), location, source }.into())
    }
}

#[test]
fn a_file_that_its_device_cannot_read_is_corrupt() {
    let photos = photos();
    let dataset = || -> Arc<dyn Dataset> {
        let dataset = open(&photos.folder()).unwrap();
        Arc::new(Hooked { dataset, hooks: BadSectors { samples: vec![7] } })
    };
    let run = Run::of(loader(&photos.folder()).dataset(dataset()).with(|o| o.policy = CorruptPolicy::Skip));
    assert_eq!((run.report.images, run.report.corrupt.len()), (u64::from(SAMPLES) - 1, 1));
    assert_eq!(run.report.corrupt[0].reason, "read failed");
}

#[test]
fn a_drive_whose_pack_is_cut_costs_no_sample() {
    let photos = photos();
    let whole = Run::of(loader(&photos.pack()));
    for policy in POLICIES {
        let copy = copied(&photos, "drive.ddlp");
        let state = tempfile::tempdir().unwrap();
        let agent = Agent::start(&copy, state.path(), &["--slots", "4"]);
        // The drive prepares no more than it has slots before the consumer takes a batch, so it reads after the cut.
        let builder = loader(&photos.pack()).with(|o| (o.policy, o.strategy) = (policy, Strategy::Csd));
        let loader = builder.drive(DriveSpec::Remote(agent.url())).build().unwrap();
        cut(&copy);
        let run = Run::over(loader, |_, _| ());
        assert_eq!(run.digest, whole.digest, "{policy:?}");
        assert!(run.report.corrupt.is_empty(), "{:?}", run.report.corrupt);
        let faults = &run.report.faults;
        let said =
            faults.iter().find(|fault| fault.kind == FaultKind::Unavailable).unwrap_or_else(|| panic!("{faults:?}"));
        let named = ["class_", "images.ddlp at byte", "ddlp verify"];
        assert!(named.iter().all(|part| said.what.contains(part)), "{}", said.what);
    }
}

#[test]
fn a_drive_with_a_damaged_sample_of_its_own_costs_no_sample() {
    let photos = photos();
    let whole = Run::of(loader(&photos.pack()));
    let copy = copied(&photos, "drive.ddlp");
    let place = open(&copy).unwrap().location(200);
    fs::File::options().write(true).open(&copy).unwrap().write_all_at(&[0x5A; 8], place.offset + 9).unwrap();
    let state = tempfile::tempdir().unwrap();
    let agent = Agent::start(&copy, state.path(), &[]);
    let builder = loader(&photos.pack()).with(|o| (o.policy, o.strategy) = (CorruptPolicy::Skip, Strategy::Csd));
    let run = Run::of(builder.drive(DriveSpec::Remote(agent.url())));
    assert_eq!(run.digest, whole.digest);
    assert!(run.report.corrupt.is_empty(), "{:?}", run.report.corrupt);
    let damaged: Vec<_> = run.report.faults.iter().filter(|fault| fault.kind == FaultKind::Damaged).collect();
    assert_eq!(damaged.len(), 1, "{damaged:?}");
    let name = open(&copy).unwrap().name(200);
    assert!(damaged[0].what.contains(&name) && damaged[0].what.contains("wrong checksum"), "{}", damaged[0].what);
}

/// The first sample of a pair is damaged in both copies, its neighbour only in the drive's.
#[test]
fn a_drive_with_a_damaged_neighbour_replaces_as_the_host_does() {
    let photos = photos();
    // The samples of a class follow each other, in steps of three images.
    damage(&photos, [30].into_iter());
    let pack = photos.pack();
    let dataset = open(&pack).unwrap();
    let bad = (0..dataset.len()).find(|&index| dataset.name(index).ends_with("00030.jpg")).unwrap();
    let copy = copied(&photos, "drive.ddlp");
    let place = dataset.location(bad + 1);
    fs::File::options().write(true).open(&copy).unwrap().write_all_at(&[0x5A; 8], place.offset + 9).unwrap();
    let base = || loader(&pack).with(|o| o.policy = CorruptPolicy::Replace);
    let whole = Run::of(base());
    let state = tempfile::tempdir().unwrap();
    let agent = Agent::start(&copy, state.path(), &[]);
    let run = Run::of(base().with(|o| o.strategy = Strategy::Csd).drive(DriveSpec::Remote(agent.url())));
    assert_eq!(run.digest, whole.digest);
    assert_eq!((run.report.corrupt.len(), &run.report.corrupt[0].action), (1, &whole.report.corrupt[0].action));
    let damaged: Vec<_> = run.report.faults.iter().filter(|fault| fault.kind == FaultKind::Damaged).collect();
    let name = dataset.name(bad + 1);
    assert!(!damaged.is_empty() && damaged.iter().all(|fault| fault.what.contains(&name)), "{damaged:?}");
}

#[test]
fn a_drive_that_claims_damage_which_the_cpu_refutes_is_given_up() {
    let photos = photos();
    let copy = copied(&photos, "drive.ddlp");
    let (dataset, file) = (open(&copy).unwrap(), fs::File::options().write(true).open(&copy).unwrap());
    (0..dataset.len()).for_each(|index| file.write_all_at(&[0x5A; 8], dataset.location(index).offset + 9).unwrap());
    let state = tempfile::tempdir().unwrap();
    let agent = Agent::start(&copy, state.path(), &[]);
    let builder = loader(&photos.pack()).with(|o| (o.policy, o.strategy) = (CorruptPolicy::Skip, Strategy::Csd));
    let builder = builder.drive(DriveSpec::Remote(agent.url()));
    let run = Run::until("the drive is given up", builder, |_, loader| {
        // The CPU does not prepare everything while the drive is lost.
        wait_for_drive(loader);
        faults(&loader.progress(), FaultKind::Refused) > 0
    });
    let alone = Run::of_batches(run.order.len(), loader(&photos.pack()));
    assert_eq!((&run.batches, &run.ordered_digest), (&alone.batches, &alone.ordered_digest));
    assert_eq!((run.drive_batches(), run.report.corrupt.len()), (0, 0), "{:?}", run.report.corrupt);
    let kinds = [FaultKind::Damaged, FaultKind::Refused].map(|kind| run.faults(kind));
    assert!(kinds[0] > 0 && kinds[1] == 1, "{:?}", run.report.faults);
}

#[test]
fn a_drive_whose_dataset_was_away_is_used_again() {
    let photos = photos();
    let (there, away) = (photos.scratch().join("drive"), photos.scratch().join("away"));
    for class in fs::read_dir(photos.folder()).unwrap().flatten() {
        fs::create_dir_all(there.join(class.file_name())).unwrap();
        for file in fs::read_dir(class.path()).unwrap().flatten() {
            fs::copy(file.path(), there.join(class.file_name()).join(file.file_name())).unwrap();
        }
    }
    let state = tempfile::tempdir().unwrap();
    let agent = Agent::start(&there, state.path(), &[]);
    let builder = loader(&photos.folder()).with(|o| (o.strategy, o.epochs) = (Strategy::Csd, 1_000_000));
    let mut loader = builder.drive(DriveSpec::Remote(agent.url())).build().unwrap();
    let progress = loader.progress();
    let mut is_by_drive = || loader.next().expect("more epochs").expect("no sample is lost").prong() == 1;
    assert!((0..4).all(|_| is_by_drive()));
    let classes = [0, 1, 2].map(|class| format!("class_{class}"));
    fs::create_dir(&away).unwrap();
    classes.iter().for_each(|class| fs::rename(there.join(class), away.join(class)).unwrap());
    wait_until("the drive reports the absence", || {
        is_by_drive();
        faults(&progress, FaultKind::Unavailable) > 0
    });
    classes.iter().for_each(|class| fs::rename(away.join(class), there.join(class)).unwrap());
    wait_until("the drive works again", is_by_drive);
    let report = loader.report();
    let faults = troubles(&report);
    let is_unavailable = faults.iter().all(|fault| fault.kind == FaultKind::Unavailable);
    assert!(is_unavailable && !faults.is_empty(), "{faults:?}");
}

#[test]
fn an_image_that_is_bad_on_both_sides_is_no_fault_of_the_drive() {
    let photos = photos();
    damage(&photos, [5].into_iter());
    let csd = |policy| {
        let builder = loader(&photos.folder()).with(|o| (o.policy, o.strategy) = (policy, Strategy::Csd));
        builder.drive(local(LocalResults::Shared))
    };
    let mut failing = csd(CorruptPolicy::Fail).build().unwrap();
    let error = failing.find_map(Result::err).expect("the run ends with an error");
    assert!(matches!(error, LoaderError::CorruptSample { .. }), "{}", chain(&error));
    let faults = failing.report().faults;
    assert!(faults.iter().all(|fault| fault.kind != FaultKind::Damaged), "{faults:?}");
    let run = Run::of(csd(CorruptPolicy::Skip));
    assert_eq!(run.report.corrupt.len(), 1);
    assert_eq!(run.faults(FaultKind::Damaged), 0, "{:?}", run.report.faults);
    // No policy skips a link that leads nowhere: the disk to which it leads may be absent.
    let file = photos.folder().join("class_1/00001.jpg");
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("nowhere", &file).unwrap();
    let error = csd(CorruptPolicy::Skip).build().unwrap().find_map(Result::err).expect("the run ends with an error");
    assert!(matches!(error, LoaderError::Unavailable(_)), "{}", chain(&error));
}

#[test]
fn the_limit_is_reached_exactly_and_by_one_more() {
    let photos = photos();
    const BAD: u32 = 17;
    damage(&photos, (0..BAD).map(|number| number * 17));
    let dataset = photos.pack();
    for policy in [CorruptPolicy::Skip, CorruptPolicy::Replace] {
        let base = || loader(&dataset).with(|o| (o.policy, o.epochs) = (policy, 2));
        let both = || base().with(|o| o.strategy = Strategy::Mte).drive(local(LocalResults::Shared));
        let exactly = MaxCorrupt::Samples(BAD.into());
        let run = Run::of(both().with(|o| o.max_corrupt = exactly));
        assert_eq!(run.report.corrupt.len(), 2 * BAD as usize, "each epoch counts for itself");
        assert_eq!(run.digest, Run::of(base().with(|o| o.max_corrupt = exactly)).digest);
        for builder in [base(), both(), base().with(|o| o.max_corrupt = MaxCorrupt::Samples(u64::from(BAD) - 1))] {
            let error = builder.build().unwrap().find_map(Result::err).expect("the run ends with an error");
            let LoaderError::TooManyCorrupt { corrupt, limit, .. } = &error else { panic!("{}", chain(&error)) };
            assert_eq!((*corrupt, *limit), (BAD.into(), u64::from(BAD) - 1), "the default is 16 here");
            let text = error.to_string();
            assert!(["class_", "ddlp verify", "`max_corrupt`"].iter().all(|part| text.contains(part)), "{text}");
        }
    }
}

/// The batch beyond the limit is not delivered, and not lost either: a run with a higher limit goes on with it.
#[test]
fn a_run_beyond_the_limit_goes_on_with_a_higher_one() {
    let photos = photos();
    damage(&photos, (0..20).map(|number| number * 15));
    let base = || loader(&photos.folder()).with(|o| o.policy = CorruptPolicy::Skip);
    let mut first = base().build().unwrap();
    let mut images: usize = first.by_ref().map_while(Result::ok).map(|batch| batch.len()).sum();
    let state = first.state();
    let rest = Run::of(base().with(|o| (o.resume, o.max_corrupt) = (Some(state), MaxCorrupt::Percent(100.0))));
    images += rest.report.images as usize;
    assert_eq!(images, SAMPLES as usize - 20);
}

#[test]
fn the_next_readable_sample_may_be_far_away() {
    let photos = photos();
    // All hundred samples of the second class, which follow each other, are damaged.
    damage(&photos, (0..SAMPLES).filter(|index| index % 3 == 1));
    for dataset in [photos.folder(), photos.pack()] {
        let base = || {
            let builder = loader(&dataset).with(|o| o.policy = CorruptPolicy::Replace);
            builder.with(|o| o.max_corrupt = MaxCorrupt::Percent(50.0))
        };
        let cpu = Run::of(base());
        let csd = Run::of(base().with(|o| o.strategy = Strategy::Csd).drive(local(LocalResults::Shared)));
        cpu.assert_exactly_once(1, SAMPLES.into());
        assert_eq!(cpu.ordered_digest, csd.ordered_digest);
        assert!(csd.troubles().is_empty(), "the drive looks as far: {:?}", csd.report.faults);
        let action = "replaced by class_2/00002.jpg";
        assert!(cpu.report.corrupt.iter().all(|corrupt| corrupt.action == action), "{:?}", cpu.report.corrupt[0]);
    }
}

#[test]
fn replace_says_how_far_it_looked_and_does_not_advise_itself() {
    let photos = photos();
    damage(&photos, 0..SAMPLES);
    let error = loader(&photos.folder())
        .with(|o| o.policy = CorruptPolicy::Replace)
        .build()
        .unwrap()
        .find_map(Result::err)
        .unwrap();
    let text = error.to_string();
    assert!(text.contains("none of the 299 samples after it"), "{text}");
    assert!(text.contains(r#"leave them out: `policy="skip"`"#), "{text}");
}
