//! The windowed order: a shuffle in which samples come from a few bundles at a time, so that the dataset is read almost
//! in sequence.
//!
//! An epoch goes through all bundles, in an order that seed and epoch determine, on as many *lanes* as the window has
//! bundles. A lane takes one bundle after the other, each in an order of its own. Each global batch has an equal share
//! from each lane, lane by lane: so a number of ranks that divides the number of lanes divides the bundles among the
//! ranks, and all numbers of ranks have the same global batches.
//!
//! Lanes are staggered: with bundles of `n` samples, a bundle begins about every `n` samples of the epoch, so that
//! reads are spread evenly. A lane therefore begins within a bundle, whose other samples it takes at the end of the
//! epoch. The sequence of all bundles also begins within a bundle, at a place that is drawn for each epoch. Otherwise
//! the samples that are left out at the end, or that a lane of few bundles has, would be the same in each epoch.

use super::LastBatch;
use super::walks::{room, shuffle};
use ddlp_dataset::{Bundles, Dataset};
use ddlp_pixels::draw::Rng;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Stream of the draws that order the bundles of an epoch.
const BUNDLE_STREAM: u32 = u32::MAX - 2;
/// Stream of the draws that shuffle the samples of each bundle.
const LANE_STREAM: u32 = u32::MAX - 3;

/// The windowed order of a dataset.
#[derive(Clone)]
pub(crate) struct ShuffleWindow {
    /// The dataset, whose bundles every epoch asks for: it need not keep a list of its positions.
    pub dataset: Arc<dyn Dataset>,
    /// How an epoch is divided.
    pub lanes: Lanes,
    /// Most bytes of a bundle that may be read as a whole ([`Bundles::bytes`]).
    pub bundle_bytes: u64,
    /// Samples of a bundle.
    pub bundle_samples: u64,
}

impl fmt::Debug for ShuffleWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lanes.fmt(f)
    }
}

impl ShuffleWindow {
    /// Returns the sample ids of an epoch. Fails if the system refuses memory.
    pub fn sample_ids(&self, seed: u64, epoch: u32) -> io::Result<Vec<u64>> {
        let bundles = self.dataset.bundles()?.expect("checked when the run was set up");
        self.lanes.sample_ids(&bundles, seed, epoch)
    }
}

/// The division of an epoch into global batches, and of these into lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lanes {
    /// Number of lanes, and so of bundles at a time.
    pub count: u64,
    /// Samples of an epoch: all of the dataset.
    pub samples: u64,
    /// Samples of a global batch, at least one for each lane.
    pub batch: u64,
    /// Treatment of the last batch.
    pub last: LastBatch,
}

/// Neighbouring samples of a bundle.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Position of the first sample.
    first: u64,
    samples: u64,
}

impl Part {
    /// Divides it in front of its sample `at`.
    fn split(self, at: u64) -> (Self, Self) {
        (Self { samples: at, ..self }, Self { first: self.first + at, samples: self.samples - at })
    }
}

impl Lanes {
    fn sample_ids(&self, bundles: &Bundles, seed: u64, epoch: u32) -> io::Result<Vec<u64>> {
        let mut rng = Rng::for_epoch(seed, epoch.into(), BUNDLE_STREAM);
        let count = self.samples.div_ceil(bundles.samples);
        let mut order = room(count)?;
        order.extend(0..count as u32);
        shuffle(&mut order, &mut rng);
        let bundle = |number: u32| {
            let first = u64::from(number) * bundles.samples;
            Part { first, samples: bundles.samples.min(self.samples - first) }
        };
        let mut parts = order.into_iter().map(bundle);
        let first = parts.next().expect("a dataset has samples");
        let (end, begin) = first.split(rng.below(first.samples));
        let mut line = Line { parts: parts.chain([end]), rest: Some(begin) };
        let mut ids = room(self.taken())?;
        ids.resize(self.taken() as usize, 0);
        let (mut positions, mut rng) = (Vec::new(), Rng::for_epoch(seed, epoch.into(), LANE_STREAM));
        for lane in 0..self.count {
            let parts = line.take(self.samples_of(lane));
            let until_second = ((lane + 1) * bundles.samples).div_ceil(self.count);
            let mut at = 0;
            for Part { first, samples } in staggered(&parts, until_second) {
                positions.clear();
                positions.extend(first..first + samples);
                shuffle(&mut positions, &mut rng);
                for &position in &positions {
                    ids[self.place(lane, at) as usize] = bundles.index(position);
                    at += 1;
                }
            }
        }
        Ok(ids)
    }

    /// Returns the number of full batches, and the samples of the batch behind them.
    fn batches(&self) -> (u64, u64) {
        let rest = if self.last == LastBatch::Drop { 0 } else { self.samples % self.batch };
        (self.samples / self.batch, rest)
    }

    /// Returns how many samples all batches have.
    fn taken(&self) -> u64 {
        let (full, rest) = self.batches();
        full * self.batch + rest
    }

    /// Returns where a lane's share of a batch of this size begins.
    fn begin(&self, lane: u64, size: u64) -> u64 {
        size * lane / self.count
    }

    /// Returns the samples that a lane has of a batch of this size.
    fn share(&self, lane: u64, size: u64) -> u64 {
        self.begin(lane + 1, size) - self.begin(lane, size)
    }

    /// Returns the samples of a lane.
    fn samples_of(&self, lane: u64) -> u64 {
        let (full, rest) = self.batches();
        full * self.share(lane, self.batch) + self.share(lane, rest)
    }

    /// Returns the place in the epoch of a lane's sample `at`.
    fn place(&self, lane: u64, at: u64) -> u64 {
        let ((full, rest), share) = (self.batches(), self.share(lane, self.batch));
        match at.checked_sub(full * share) {
            None => at / share * self.batch + self.begin(lane, self.batch) + at % share,
            Some(at) => full * self.batch + self.begin(lane, rest) + at,
        }
    }
}

/// All bundles, one after the other.
struct Line<I> {
    parts: I,
    /// What is left of the bundle that was taken last.
    rest: Option<Part>,
}

impl<I: Iterator<Item = Part>> Line<I> {
    /// Takes this many samples, the next ones.
    fn take(&mut self, mut samples: u64) -> Vec<Part> {
        let mut taken = Vec::new();
        while samples > 0 {
            let part = self.rest.take().or_else(|| self.parts.next()).expect("lanes take no more than there is");
            let (now, rest) = part.split(part.samples.min(samples));
            self.rest = (rest.samples > 0).then_some(rest);
            samples -= now.samples;
            taken.push(now);
        }
        taken
    }
}

/// Rotates the parts of a lane so that a part ends after `until` samples, if the lane is long enough.
fn staggered(parts: &[Part], until: u64) -> impl Iterator<Item = Part> {
    let mut end = 0;
    let mut ends = parts.iter().map(|part| {
        end += part.samples;
        end
    });
    let offset = ends.find(|&end| end >= until).map_or(0, |end| end - until);
    let (mut at, mut before, mut behind) = (0, Vec::new(), Vec::new());
    for &part in parts {
        let (cut, rest) = part.split(offset.saturating_sub(at).min(part.samples));
        before.extend((cut.samples > 0).then_some(cut));
        behind.extend((rest.samples > 0).then_some(rest));
        at += part.samples;
    }
    behind.into_iter().chain(before)
}

#[cfg(test)]
mod tests;
