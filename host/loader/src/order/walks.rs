//! The samples of each epoch.
//!
//! - An epoch of a plain dataset is a permutation, which seed and epoch determine. An epoch longer than the dataset
//!   repeats it; a shorter one has the dataset's first samples.
//! - An epoch of a mix takes the next samples of an endless walk over each part, and shuffles them together. A walk
//!   takes a part's samples in passes; seed and pass determine each pass, a permutation of the part. Epoch `e` takes as
//!   many samples of each walk as the part's portion says, from where epoch `e − 1` stopped. So every sample of a part
//!   is taken once before any is taken again, whatever the length of an epoch.
//! - A [`choice`](super::choice) of samples takes the place of the plain dataset's samples.
//! - A [windowed order](super::windowed) takes the place of the permutation if the run asks for one.
//!
//! If the run does not shuffle, the order of the dataset takes the place of every permutation.

use super::choice::{Chosen, Copies, Listed, Picks, of_epoch, wrong};
use super::windowed::ShuffleWindow;
use ddlp_dataset::MixPart;
use ddlp_pixels::draw::Rng;
use serde::{Deserialize, Serialize};
use std::io;

/// Stream of the draws that shuffle an epoch of a plain dataset. The passes of a mix use a stream for each part, from
/// this one on.
const SHUFFLE_STREAM: u32 = 0;
/// Stream of the draws that shuffle the portions of an epoch together.
const MIX_STREAM: u32 = u32::MAX;

/// Stream of the draws that take samples by weights.
const WEIGHT_STREAM: u32 = u32::MAX - 1;

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
    /// The samples of a plain dataset from which epochs are made.
    picks: Picks,
    copies: Copies,
    /// The order that takes the place of a permutation of all samples.
    window: Option<ShuffleWindow>,
}

impl Walks {
    /// Describes the epochs of a plain dataset, or of a choice of its samples, of at most `u32::MAX` samples each.
    pub fn plain(seed: Option<u64>, samples: u64, chosen: Chosen) -> Self {
        Self { seed, samples, portions: Vec::new(), picks: chosen.picks, copies: chosen.copies, window: None }
    }

    /// Takes the samples of an epoch, all of the dataset, in a windowed order if there is one.
    pub fn windowed(self, window: Option<ShuffleWindow>) -> Self {
        Self { window, ..self }
    }

    /// Returns the windowed order, if there is one.
    pub fn window(&self) -> Option<&ShuffleWindow> {
        self.window.as_ref()
    }

    /// Describes the epochs of a mix, of `samples` samples each. The portions count an epoch's different samples. The
    /// parts have at most `u32::MAX` samples together, and an epoch has at most as many.
    pub fn of_mix(seed: Option<u64>, samples: u64, portions: Vec<Portion>, copies: Copies) -> Self {
        Self { seed, samples, portions, picks: Picks::All, copies, window: None }
    }

    /// Returns the portions of a mix that each epoch takes, and nothing for a plain dataset.
    pub fn portions(&self) -> &[Portion] {
        &self.portions
    }

    /// Returns how often `repeats` and `views` let a sample occur.
    pub fn copies(&self) -> Copies {
        self.copies
    }

    /// Returns whether making an epoch's ids calls a function of the program.
    pub fn calls_program(&self) -> bool {
        matches!(self.picks, Picks::ByEpoch(..))
    }

    /// Returns a number that is greater than all sample ids. For a mix, this is its number of samples for each pass
    /// that an epoch may touch; for a choice, the dataset's number of samples for each occurrence of a sample.
    pub fn id_limit(&self) -> u64 {
        let Copies { dataset, .. } = self.copies;
        let occurrences = match &self.picks {
            _ if !self.portions.is_empty() => {
                let passes = |portion: &Portion| {
                    let whole = portion.taken / portion.samples;
                    if portion.taken.is_multiple_of(portion.samples) { whole } else { whole + 2 }
                };
                self.portions.iter().map(passes).max().unwrap_or_default()
            }
            Picks::All if self.copies.count() == 1 => return self.samples,
            Picks::All => self.pool(dataset).div_ceil(dataset),
            Picks::Fixed(listed) => self.wraps(listed.ids.len() as u64) * listed.occurrences,
            Picks::ByEpoch(_, count) => self.wraps(*count) * count,
            Picks::Weighted(_) => self.different(),
        };
        occurrences * self.copies.count() * dataset
    }

    /// Returns how many samples of an epoch are no copies of another one.
    fn different(&self) -> u64 {
        self.samples.div_ceil(self.copies.repeats)
    }

    /// Returns how many samples are shuffled for an epoch, if there are `count`: an epoch of repeated samples takes
    /// some of all, and any other epoch takes the first ones.
    fn pool(&self, count: u64) -> u64 {
        if self.copies.repeats > 1 { self.different().max(count) } else { self.different() }
    }

    /// Returns how often an epoch goes through `count` samples.
    fn wraps(&self, count: u64) -> u64 {
        self.pool(count).div_ceil(count)
    }

    /// Returns the sample ids of an epoch. An id modulo the number of the dataset's samples is the sample's index
    /// there. In a mix, ids grow by that number with each further pass of a part that the epoch touches. So a sample
    /// that occurs twice in an epoch has two ids, and thus two draws. Of a sample's views, the first one is named.
    ///
    /// # Errors
    ///
    /// The system refuses memory, or (`InvalidInput`) the program's function does not name the epoch's samples.
    pub fn sample_ids(&self, epoch: u32) -> io::Result<Vec<u64>> {
        let ids = self.different_ids(epoch)?;
        if self.copies.count() == 1 {
            return Ok(ids);
        }
        let mut copied = room(self.samples)?;
        for id in ids {
            let left = self.samples - copied.len() as u64;
            copied.extend((0..self.copies.repeats.min(left)).map(|repeat| self.copies.id(id, repeat)));
        }
        Ok(copied)
    }

    /// Returns the ids of the samples of an epoch, each without its copies.
    fn different_ids(&self, epoch: u32) -> io::Result<Vec<u64>> {
        if !self.portions.is_empty() {
            return self.sample_ids_of_mix(epoch);
        }
        if let (Some(window), Some(seed)) = (&self.window, self.seed) {
            return window.sample_ids(seed, epoch);
        }
        let mut ids = match &self.picks {
            Picks::All => {
                let pool = self.pool(self.copies.dataset);
                let mut ids = room(pool)?;
                ids.extend(0..pool);
                ids
            }
            Picks::Fixed(listed) => self.of_list(listed)?,
            Picks::ByEpoch(indices, count) => {
                let listed = of_epoch(&**indices, epoch, self.copies.dataset)?;
                let found = listed.ids.len() as u64;
                if found != *count {
                    return Err(wrong(format!(
                        "`indices`({epoch}) has {found} indices, but `indices`(0) had {count}: return as many for each \
                         epoch"
                    )));
                }
                self.of_list(&listed)?
            }
            Picks::Weighted(draw) => {
                let (mut ids, mut counts) = (room(self.different())?, room(self.copies.dataset)?);
                counts.resize(self.copies.dataset as usize, 0u32);
                let mut rng = Rng::for_epoch(self.seed.unwrap_or_default(), epoch.into(), WEIGHT_STREAM);
                for _ in 0..self.different() {
                    let index = draw.draw(&mut rng);
                    let count = &mut counts[index as usize];
                    ids.push(index + u64::from(*count) * self.copies.dataset);
                    *count += 1;
                }
                return Ok(ids);
            }
        };
        if let Some(seed) = self.seed {
            shuffle(&mut ids, &mut Rng::for_epoch(seed, epoch.into(), SHUFFLE_STREAM));
        }
        ids.truncate(self.different() as usize);
        Ok(ids)
    }

    /// Returns the ids of a list, as often as an epoch goes through it.
    fn of_list(&self, listed: &Listed) -> io::Result<Vec<u64>> {
        let pool = self.pool(listed.ids.len() as u64);
        let mut ids = room(pool)?;
        let step = listed.occurrences * self.copies.dataset;
        let mut first = 0;
        while ids.len() < pool as usize {
            let left = (pool as usize - ids.len()).min(listed.ids.len());
            ids.extend(listed.ids[..left].iter().map(|id| id + first));
            first += step;
        }
        Ok(ids)
    }

    fn sample_ids_of_mix(&self, epoch: u32) -> io::Result<Vec<u64>> {
        let mix_samples = self.copies.dataset;
        let mut ids = room(self.different())?;
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
            shuffle(&mut ids, &mut Rng::for_epoch(seed, epoch.into(), MIX_STREAM));
        }
        Ok(ids)
    }
}

/// Makes `order` the permutation of a pass over `samples` samples.
fn shuffle_pass(order: &mut Vec<u32>, mut rng: Rng, samples: u64) -> io::Result<()> {
    if order.capacity() < samples as usize {
        *order = room(samples)?;
    }
    order.clear();
    order.extend(0..samples as u32);
    shuffle(order, &mut rng);
    Ok(())
}

/// Shuffles by Fisher–Yates.
pub(super) fn shuffle<T>(items: &mut [T], rng: &mut Rng) {
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
