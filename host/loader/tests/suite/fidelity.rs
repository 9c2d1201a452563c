//! The fidelity of each epoch.

use super::{cifar, loader, wait_until};
use ddlp_host::dataset::{Dataset, Header, Identity, Location, ReadError};
use ddlp_host::pixels::ScanGroups;
use ddlp_host::{Fidelity, Loader, LoaderBuilder, LoaderError, LoaderState};
use std::error::Error as _;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// A dataset that says that its samples are stored in pieces, although every fidelity gives the same pixels.
struct Grouped {
    dataset: Box<dyn Dataset>,
    groups: ScanGroups,
}

impl Dataset for Grouped {
    fn len(&self) -> u64 {
        self.dataset.len()
    }

    fn classes(&self) -> &[String] {
        self.dataset.classes()
    }

    fn label(&self, index: u64) -> u32 {
        self.dataset.label(index)
    }

    fn name(&self, index: u64) -> String {
        self.dataset.name(index)
    }

    fn location(&self, index: u64) -> Location {
        self.dataset.location(index)
    }

    fn header(&self, index: u64) -> Result<Header, ReadError> {
        self.dataset.header(index)
    }

    fn read(&self, index: u64, header: &Header, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        self.dataset.read(index, header, offset, out)
    }

    fn scan_groups(&self) -> Option<&ScanGroups> {
        Some(&self.groups)
    }

    fn identity(&self) -> Identity {
        self.dataset.identity()
    }

    fn kind(&self) -> &'static str {
        "pack"
    }
}

/// Returns a loader of epochs of eight batches.
fn grouped(folder: &TempDir) -> LoaderBuilder {
    let dataset = ddlp_host::dataset::open(folder.path()).unwrap();
    loader(folder).with(|o| o.epochs = 5).dataset(Arc::new(Grouped { dataset, groups: ScanGroups::default() }))
}

fn fidelity(number: u8) -> Fidelity {
    Fidelity::new(number).unwrap()
}

/// Returns what is wrong with a state.
fn cause(error: &LoaderError) -> String {
    error.source().expect("the state says more").to_string()
}

fn take(run: &mut Loader, batches: usize) {
    (0..batches).for_each(|_| drop(run.next().expect("the run goes on").expect("every batch comes")));
}

#[test]
fn a_dataset_that_lacks_the_fidelity_is_refused() {
    let folder = cifar();
    let said = |builder: LoaderBuilder, text: &str| {
        builder.with(|o| o.fidelity = text.parse().unwrap()).build().unwrap_err().to_string()
    };
    let refused = said(loader(&folder), "5");
    assert!(refused.contains("`fidelity`: it is 5") && refused.contains("(cifar)"), "{refused}");
    let refused = said(grouped(&folder), "0:10,7:4");
    assert!(refused.contains("it is 4") && refused.contains("scan groups 1, 2, 5, 10"), "{refused}");
    loader(&folder).with(|o| o.fidelity = "10".parse().unwrap()).build().unwrap();
    grouped(&folder).with(|o| o.fidelity = "0:1,1:10".parse().unwrap()).build().unwrap();
}

#[test]
fn a_function_is_asked_when_the_epoch_before_begins() {
    let folder = cifar();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let asks = asked.clone();
    let mut run = grouped(&folder)
        .fidelity_by(move |epoch| {
            asks.lock().unwrap().push(epoch);
            Ok(fidelity([1, 1, 2, 5, 10][epoch as usize]))
        })
        .build()
        .unwrap();
    let asked = || asked.lock().unwrap().clone();
    assert_eq!(asked(), [0; 0]);
    take(&mut run, 8);
    // Prongs prepare epoch 1 meanwhile, and nothing of epoch 2.
    wait_until("buffers fill", || run.progress().snapshot().ready >= 4);
    assert_eq!(asked(), [0, 1]);
    take(&mut run, 1);
    assert_eq!(asked(), [0, 1, 2]);
    take(&mut run, 2 * 8);
    let state = run.state();
    assert_eq!((state.epoch, state.fidelity.to_string()), (3, "0:1,2:2,3:5,4:10".into()));
    take(&mut run, 2 * 8 - 1);
    assert!(run.next().is_none());
    assert_eq!(asked(), [0, 1, 2, 3, 4], "once for each epoch");
}

#[test]
fn a_function_that_fails_ends_the_run_at_its_epoch() {
    let folder = cifar();
    let one = |epoch| if epoch == 1 { Err("no more".to_owned()) } else { Ok(fidelity(2)) };
    let mut run = grouped(&folder).fidelity_by(one).build().unwrap();
    take(&mut run, 8);
    let said = run.next().unwrap().unwrap_err().to_string();
    assert!(said.contains("`fidelity`(1): no more"), "{said}");
    assert!(run.next().is_none());
}

#[test]
fn a_run_resumes_in_the_middle_of_an_epoch_with_its_fidelity_alone() {
    let folder = cifar();
    let with = |text: &str| grouped(&folder).with(|o| o.fidelity = text.parse().unwrap());
    let mut run = with("0:1,1:5").build().unwrap();
    take(&mut run, 8 + 3);
    let state = run.state();
    let resumed = |builder: LoaderBuilder, state: &LoaderState| {
        builder.with(|o| o.resume = Some(state.clone())).build().map(drop).map_err(|error| cause(&error))
    };
    assert_eq!(resumed(with("0:2,1:5"), &state), Ok(()));
    let by = |number| grouped(&folder).fidelity_by(move |_| Ok(fidelity(number)));
    assert_eq!(resumed(by(5), &state), Ok(()));
    for builder in [with("10"), by(2)] {
        let refused = resumed(builder, &state).unwrap_err();
        assert!(refused.contains("fidelity 5, this run has"), "{refused}");
    }
    let next = LoaderState { epoch: 2, delivered: Vec::new(), ..state.clone() };
    assert_eq!(resumed(with("10"), &next), Ok(()), "another fidelity may begin with an epoch");
    // A run that goes on elsewhere, too.
    let mut moved = by(2).build().unwrap();
    assert!(moved.go_to(&state).is_err());
    moved.go_to(&next).unwrap();
    take(&mut moved, 8);
}
