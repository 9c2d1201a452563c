//! The samples of each epoch.
//!
//! - An epoch of a plain dataset is a permutation, which seed and epoch determine. An epoch longer than the dataset
//!   repeats it; a shorter one has the dataset's first samples.
//! - An epoch of a mix takes the next samples of an endless walk over each part, and shuffles them together. A walk
//!   takes a part's samples in passes; seed and pass determine each pass, a permutation of the part. Epoch `e` takes as
//!   many samples of each walk as the part's portion says, from where epoch `e − 1` stopped. So every sample of a part
//!   is taken once before any is taken again, whatever the length of an epoch.
//!
//! If the run does not shuffle, the order of the dataset takes the place of every permutation.

use ddlp_dataset::MixPart;
use ddlp_pixels::draw::Rng;
use serde::{Deserialize, Serialize};
use std::io;

/// Stream of the draws that shuffle an epoch of a plain dataset. The passes of a mix use a stream for each part, from
/// this one on.
const SHUFFLE_STREAM: u32 = 0;
/// Stream of the draws that shuffle the portions of an epoch together.
const MIX_STREAM: u32 = u32::MAX;

/// Samples of a part of a mix, and how many of them an epoch takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Portion {
    /// Samples of the part.
    pub samples: u64,
    /// Samples that each epoch takes of the part.
    pub taken: u64,
}

/// Divides an epoch of `samples` samples among the parts of a mix by their weights. Each part gets the whole samples
/// of its share, and the parts with the largest remainders get one more.
///
/// # Errors
///
/// Says which part would get no sample.
pub(crate) fn portions_of(parts: &[MixPart], samples: u64) -> Result<Vec<Portion>, String> {
    // Weights up to the largest float have a finite sum this way.
    let largest = parts.iter().map(|part| part.weight).fold(0.0, f64::max);
    let sum: f64 = parts.iter().map(|part| part.weight / largest).sum();
    let shares: Vec<f64> = parts.iter().map(|part| part.weight / largest / sum * samples as f64).collect();
    let mut taken: Vec<u64> = shares.iter().map(|share| *share as u64).collect();
    let mut by_remainder: Vec<usize> = (0..parts.len()).collect();
    by_remainder.sort_by(|&a, &b| shares[b].fract().total_cmp(&shares[a].fract()));
    let left = samples - taken.iter().sum::<u64>();
    for &part in by_remainder.iter().cycle().take(left as usize) {
        taken[part] += 1;
    }
    if let Some(empty) = taken.iter().position(|&taken| taken == 0) {
        return Err(format!(
            "an epoch of {samples} samples has no sample of {}: give it more weight, make epochs longer \
             (`epoch_samples`), or leave it out",
            parts[empty].name
        ));
    }
    Ok(parts.iter().zip(taken).map(|(part, taken)| Portion { samples: part.samples, taken }).collect())
}

/// Returns in words what an epoch takes of each part.
pub(crate) fn described(portions: &[Portion]) -> String {
    let described = portions.iter().map(|portion| format!("{} of {} samples", portion.taken, portion.samples));
    described.collect::<Vec<_>>().join(" and ")
}

/// The samples of every epoch of a run.
#[derive(Debug)]
pub(crate) struct Walks {
    /// `None` if the run does not shuffle.
    seed: Option<u64>,
    /// Samples of an epoch.
    samples: u64,
    /// Empty unless the dataset is a mix.
    portions: Vec<Portion>,
}

impl Walks {
    /// Describes the epochs of a plain dataset, of at most `u32::MAX` samples each.
    pub fn plain(seed: Option<u64>, samples: u64) -> Self {
        Self { seed, samples, portions: Vec::new() }
    }

    /// Describes the epochs of a mix. The parts have at most `u32::MAX` samples together, and an epoch has as many.
    pub fn of_mix(seed: Option<u64>, portions: Vec<Portion>) -> Self {
        Self { seed, samples: portions.iter().map(|portion| portion.taken).sum(), portions }
    }

    /// Returns the portions of a mix that each epoch takes, and nothing for a plain dataset.
    pub fn portions(&self) -> &[Portion] {
        &self.portions
    }

    /// Returns a number that is greater than all sample ids. For a mix, this is its number of samples for each pass
    /// that an epoch may touch.
    pub fn id_limit(&self) -> u64 {
        if self.portions.is_empty() {
            return self.samples;
        }
        let passes = |portion: &Portion| {
            let whole = portion.taken / portion.samples;
            if portion.taken.is_multiple_of(portion.samples) { whole } else { whole + 2 }
        };
        self.portions.iter().map(passes).max().unwrap_or_default() * self.mix_samples()
    }

    /// Returns the sample ids of an epoch. An id modulo the number of the dataset's samples is the sample's index
    /// there. In a mix, ids grow by that number with each further pass of a part that the epoch touches. So a sample
    /// that occurs twice in an epoch has two ids, and thus two draws.
    ///
    /// # Errors
    ///
    /// The system refuses memory.
    pub fn sample_ids(&self, epoch: u32) -> io::Result<Vec<u64>> {
        if !self.portions.is_empty() {
            return self.sample_ids_of_mix(epoch);
        }
        let mut ids = room(self.samples)?;
        ids.extend(0..self.samples);
        if let Some(seed) = self.seed {
            shuffle(&mut ids, Rng::for_epoch(seed, epoch.into(), SHUFFLE_STREAM));
        }
        Ok(ids)
    }

    fn sample_ids_of_mix(&self, epoch: u32) -> io::Result<Vec<u64>> {
        let mix_samples = self.mix_samples();
        let mut ids = room(self.samples)?;
        let (mut first_index, mut order) = (0, Vec::new());
        for (stream, portion) in (SHUFFLE_STREAM..).zip(&self.portions) {
            let start = u64::from(epoch) * portion.taken;
            let (mut at, end, first_pass) = (start, start + portion.taken, start / portion.samples);
            while at < end {
                let (pass, from) = (at / portion.samples, at % portion.samples);
                let until = portion.samples.min(from + end - at);
                let base = first_index + (pass - first_pass) * mix_samples;
                match self.seed {
                    Some(seed) => {
                        shuffle_pass(&mut order, Rng::for_epoch(seed, pass, stream), portion.samples)?;
                        ids.extend(order[from as usize..until as usize].iter().map(|&index| base + u64::from(index)));
                    }
                    None => ids.extend((from..until).map(|index| base + index)),
                }
                at += until - from;
            }
            first_index += portion.samples;
        }
        if let Some(seed) = self.seed
            && self.portions.len() > 1
        {
            shuffle(&mut ids, Rng::for_epoch(seed, epoch.into(), MIX_STREAM));
        }
        Ok(ids)
    }

    fn mix_samples(&self) -> u64 {
        self.portions.iter().map(|portion| portion.samples).sum()
    }
}

/// Makes `order` the permutation of a pass over `samples` samples.
fn shuffle_pass(order: &mut Vec<u32>, rng: Rng, samples: u64) -> io::Result<()> {
    if order.capacity() < samples as usize {
        *order = room(samples)?;
    }
    order.clear();
    order.extend(0..samples as u32);
    shuffle(order, rng);
    Ok(())
}

/// Shuffles by Fisher–Yates.
fn shuffle<T>(items: &mut [T], mut rng: Rng) {
    for last in (1..items.len()).rev() {
        items.swap(last, rng.below(last as u64 + 1) as usize);
    }
}

/// Returns an empty list with room for this many samples.
pub(super) fn room<T>(samples: u64) -> io::Result<Vec<T>> {
    let mut list = Vec::new();
    match list.try_reserve_exact(samples as usize) {
        Ok(()) => Ok(list),
        Err(_) => Err(no_memory(samples, samples * size_of::<T>() as u64)),
    }
}

fn no_memory(samples: u64, bytes: u64) -> io::Error {
    let message = format!(
        "{bytes} bytes for the order of {samples} samples are not available: free some memory, raise the limit of this \
         process (ulimit -v, the control group), or use shorter epochs (`epoch_samples`)"
    );
    io::Error::new(io::ErrorKind::OutOfMemory, message)
}

#[cfg(test)]
mod tests;
