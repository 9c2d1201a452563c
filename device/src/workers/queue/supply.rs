//! Which samples of a job workers can take.

use ddlp_dataset::FetchedSample;
use std::mem;
use std::ops::Range;

/// The samples of a job that no worker has taken yet.
pub(super) enum Supply {
    /// Workers read the samples themselves.
    Unread {
        /// First position that no worker has taken.
        next: usize,
        /// Number of samples.
        samples: usize,
    },
    /// Samples are fetched first.
    Fetched(FetchedSupply),
}

/// The samples of a job that are fetched before workers take them.
pub(super) struct FetchedSupply {
    places: Vec<Place>,
    /// Positions below it have been asked for.
    unasked: usize,
    /// Positions below it have been taken.
    untaken: usize,
    /// Bytes of memory of the samples that have come and are not taken.
    waiting_bytes: u64,
}

enum Place {
    Unfetched,
    Come(Box<FetchedSample>),
    Taken,
}

/// Neighbouring samples for one worker.
pub(super) struct Taken {
    pub(super) positions: Range<usize>,
    /// What was fetched of each; empty if the worker reads the samples.
    pub(super) fetched: Vec<FetchedSample>,
}

impl Supply {
    /// Creates the supply of a job of this many samples, which are fetched first or not.
    pub(super) fn new(samples: usize, is_fetched: bool) -> Self {
        if is_fetched {
            let places = (0..samples).map(|_| Place::Unfetched).collect();
            Self::Fetched(FetchedSupply { places, unasked: 0, untaken: 0, waiting_bytes: 0 })
        } else {
            Self::Unread { next: 0, samples }
        }
    }

    /// Takes the next samples for a worker, at most `most`. If the job `is_unread`, those that have not come, too.
    pub(super) fn take(&mut self, most: usize, is_unread: bool) -> Option<Taken> {
        match self {
            Self::Unread { next, samples } => {
                let positions = *next..(*samples).min(*next + most);
                *next = positions.end;
                (!positions.is_empty()).then_some(Taken { positions, fetched: Vec::new() })
            }
            Self::Fetched(supply) => supply.take(most, is_unread),
        }
    }

    /// Returns the samples as they are fetched, if they are.
    pub(super) fn fetched(&mut self) -> Option<&mut FetchedSupply> {
        match self {
            Self::Unread { .. } => None,
            Self::Fetched(supply) => Some(supply),
        }
    }

    /// Drops the samples that have come, and keeps none that comes later: no worker will take samples of the job.
    pub(super) fn discard(&mut self) {
        if let Self::Fetched(supply) = self {
            supply.places.iter_mut().for_each(|place| *place = Place::Taken);
            (supply.unasked, supply.untaken, supply.waiting_bytes) = (supply.places.len(), supply.places.len(), 0);
        }
    }

    /// Returns the bytes of memory of samples that were fetched and wait for a worker.
    pub(super) fn waiting_bytes(&self) -> u64 {
        match self {
            Self::Unread { .. } => 0,
            Self::Fetched(supply) => supply.waiting_bytes,
        }
    }
}

impl FetchedSupply {
    /// Returns the next sample to ask for.
    pub(super) fn unasked(&self) -> Option<usize> {
        (self.unasked < self.places.len()).then_some(self.unasked)
    }

    /// Records that the next sample was asked for.
    pub(super) fn asked(&mut self) {
        self.unasked += 1;
    }

    /// Keeps a sample that has come, unless a worker has taken its position without it.
    pub(super) fn came(&mut self, position: usize, sample: FetchedSample) {
        if matches!(self.places[position], Place::Unfetched) {
            self.waiting_bytes += sample.memory_bytes();
            self.places[position] = Place::Come(Box::new(sample));
        }
    }

    fn take(&mut self, most: usize, is_unread: bool) -> Option<Taken> {
        let is_open = |place: &Place| match place {
            Place::Unfetched => is_unread,
            Place::Come(_) => true,
            Place::Taken => false,
        };
        let start = self.untaken + self.places[self.untaken..].iter().position(is_open)?;
        let length = self.places[start..].iter().take(most).take_while(|place| is_open(place)).count();
        let positions = start..start + length;
        let mut fetched = Vec::with_capacity(length);
        for place in &mut self.places[positions.clone()] {
            match mem::replace(place, Place::Taken) {
                Place::Come(sample) => {
                    self.waiting_bytes -= sample.memory_bytes();
                    fetched.push(*sample);
                }
                Place::Unfetched => fetched.push(FetchedSample::default()),
                Place::Taken => unreachable!("open places only"),
            }
        }
        let taken = self.places[self.untaken..].iter().take_while(|place| matches!(place, Place::Taken)).count();
        self.untaken += taken;
        Some(Taken { positions, fetched })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetched(samples: usize) -> FetchedSupply {
        let Supply::Fetched(supply) = Supply::new(samples, true) else { panic!("it is fetched") };
        supply
    }

    fn taken(supply: &mut FetchedSupply, most: usize, is_unread: bool) -> Option<Range<usize>> {
        supply.take(most, is_unread).map(|taken| {
            assert_eq!(taken.fetched.len(), taken.positions.len());
            taken.positions
        })
    }

    #[test]
    fn samples_that_have_come_are_taken_in_runs_each_of_them_once() {
        let mut supply = fetched(6);
        let asked = std::iter::from_fn(|| supply.unasked().inspect(|_| supply.asked())).collect::<Vec<_>>();
        assert_eq!((asked, supply.unasked()), (vec![0, 1, 2, 3, 4, 5], None));
        assert_eq!(taken(&mut supply, 9, false), None);
        [1, 2, 4, 5].into_iter().for_each(|position| supply.came(position, FetchedSample::default()));
        assert_eq!(taken(&mut supply, 1, false), Some(1..2));
        assert_eq!(taken(&mut supply, 9, false), Some(2..3));
        supply.came(0, FetchedSample::default());
        assert_eq!(taken(&mut supply, 9, false), Some(0..1));
        assert_eq!(taken(&mut supply, 9, false), Some(4..6));
        assert_eq!(taken(&mut supply, 9, false), None);
        supply.came(3, FetchedSample::default());
        assert_eq!(taken(&mut supply, 9, false), Some(3..4));
        assert_eq!((taken(&mut supply, 9, true), supply.untaken), (None, 6));
    }

    #[test]
    fn the_samples_of_a_job_that_cannot_be_read_are_taken_without_having_come() {
        let mut supply = fetched(4);
        supply.asked();
        supply.came(1, FetchedSample::default());
        assert_eq!(taken(&mut supply, 9, true), Some(0..4));
        supply.came(0, FetchedSample::default());
        assert_eq!((taken(&mut supply, 9, true), supply.waiting_bytes), (None, 0));
    }

    #[test]
    fn nothing_is_kept_of_a_discarded_supply() {
        let mut supply = Supply::new(2, true);
        supply.fetched().unwrap().came(0, FetchedSample::default());
        supply.discard();
        supply.fetched().unwrap().came(1, FetchedSample::default());
        assert_eq!(supply.fetched().unwrap().unasked(), None);
        assert!(supply.take(9, true).is_none());
    }

    #[test]
    fn samples_that_workers_read_are_taken_in_order() {
        let mut supply = Supply::new(5, false);
        let all = std::iter::from_fn(|| supply.take(3, false)).map(|taken| taken.positions).collect::<Vec<_>>();
        assert_eq!(all, [0..3, 3..5]);
        assert!(supply.fetched().is_none());
    }
}
