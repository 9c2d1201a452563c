//! What is to be delivered: what the command line says, and of what it leaves open, what the resumed run had.

use super::args::{Last, RunArgs};
use anyhow::bail;
use ddlp_host::{LastBatch, LoaderState, Strategy};

/// Samples of a batch, unless given.
const BATCH: u64 = 256;

/// The batches of a run and their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Samples of a global batch.
    pub batch: u64,
    /// Epochs, those of the resumed run included.
    pub epochs: u32,
    /// Order of delivery.
    pub strategy: Strategy,
    /// Of order and draws.
    pub seed: u64,
    /// What becomes of the last batch.
    pub last: LastBatch,
    /// Samples of an epoch, if not those of the dataset.
    pub samples: Option<u64>,
}

impl Job {
    /// Fails when the resumed run has nothing left to do.
    pub fn new(args: &RunArgs, resumed: Option<&LoaderState>) -> anyhow::Result<Self> {
        let job = Self {
            batch: args.batch.map(u64::from).or(resumed.map(|state| state.batch_size)).unwrap_or(BATCH),
            epochs: args.epochs.or(resumed.map(|state| state.epochs)).unwrap_or(1),
            strategy: args.strategy.or(resumed.map(|state| state.strategy)).unwrap_or_default(),
            seed: args.seed.or(resumed.map(|state| state.seed)).unwrap_or(0),
            last: args.last.map(Last::into).or(resumed.map(|state| state.last)).unwrap_or(LastBatch::Short),
            samples: args.samples.or(resumed.map(|state| state.epoch_samples)),
        };
        if let Some(state) = resumed.filter(|state| state.epoch >= job.epochs) {
            let (done, more) = (state.epoch, u64::from(state.epoch) + 1);
            bail!("this run was finished: {done} of {} epochs; --epochs {more} goes on", job.epochs.min(done));
        }
        Ok(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::args::parse;

    fn job(line: &str, resumed: Option<&LoaderState>) -> Result<Job, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        Job::new(&parse(&words).unwrap(), resumed).map_err(|error| error.to_string())
    }

    fn state(epoch: u32) -> LoaderState {
        LoaderState {
            version: 2,
            seed: 7,
            dataset: String::new(),
            program: String::new(),
            epochs: 3,
            epoch_samples: 100,
            batch_size: 32,
            last: LastBatch::Drop,
            strategy: Strategy::Mte,
            world: 1,
            epoch,
            delivered: Vec::new(),
        }
    }

    #[test]
    fn a_resumed_run_goes_on_with_what_it_began_with() {
        let fresh = job("", None).unwrap();
        assert_eq!((fresh.batch, fresh.epochs, fresh.strategy, fresh.samples), (256, 1, Strategy::Ordered, None));
        let resumed = job("", Some(&state(1))).unwrap();
        let expected =
            Job { batch: 32, epochs: 3, strategy: Strategy::Mte, seed: 7, last: LastBatch::Drop, samples: Some(100) };
        assert_eq!(resumed, expected);
        let other = job("--batch 8 --epochs 5 --strategy wrr", Some(&state(1))).unwrap();
        assert_eq!((other.batch, other.epochs, other.strategy), (8, 5, Strategy::Wrr));
    }

    #[test]
    fn a_finished_run_says_how_it_goes_on() {
        let finished = "this run was finished: 3 of 3 epochs; --epochs 4 goes on";
        assert_eq!(job("", Some(&state(3))).unwrap_err(), finished);
        assert_eq!(job("--epochs 4", Some(&state(3))).unwrap().epochs, 4);
        assert!(job("--epochs 1", Some(&state(2))).unwrap_err().contains("--epochs 3 goes on"));
    }
}
