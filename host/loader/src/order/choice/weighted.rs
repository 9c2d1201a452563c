//! Draws of samples by weights, with replacement, in constant time for each draw (Walker's aliases in the form of Vose,
//! "A linear algorithm for generating random numbers with a given distribution", 1991).

use super::super::walks::room;
use super::{Weights, wrong};
use ddlp_pixels::draw::Rng;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

/// A table from which samples are drawn.
#[derive(Debug)]
pub(crate) struct WeightedDraw {
    /// For each place, the probability with which a draw of the place stays there.
    stays: Vec<f64>,
    /// For each place, the place that a draw goes to otherwise.
    otherwise: Vec<u32>,
    /// Index of the sample at each place; `None` if all samples have a place.
    indices: Option<Arc<[u64]>>,
}

impl WeightedDraw {
    /// Makes the table for the samples of these indices, or for all, from the weights of all samples.
    ///
    /// # Errors
    ///
    /// Says that no sample has a weight, or that the system refuses memory.
    pub fn new(weights: &[f64], indices: Option<Arc<[u64]>>) -> io::Result<Self> {
        let places = indices.as_ref().map_or(weights.len(), |indices| indices.len());
        if places > u32::MAX as usize {
            return Err(wrong(format!("{places} samples have weights, but at most {} are possible", u32::MAX)));
        }
        let weight =
            |place: usize| indices.as_ref().map_or_else(|| weights[place], |indices| weights[indices[place] as usize]);
        // Weights up to the largest float have a finite sum this way.
        let largest = (0..places).map(weight).fold(0.0, f64::max);
        if largest == 0.0 {
            return Err(wrong("every weight in `weights` is 0, so no sample can be drawn".into()));
        }
        let sum: f64 = (0..places).map(|place| weight(place) / largest).sum();
        let mut stays: Vec<f64> = room(places as u64)?;
        stays.extend((0..places).map(|place| weight(place) / largest / sum * places as f64));
        let mut otherwise: Vec<u32> = room(places as u64)?;
        otherwise.extend(0..places as u32);
        let (mut below, mut above) = (room(places as u64)?, room(places as u64)?);
        for place in 0..places as u32 {
            if stays[place as usize] < 1.0 { below.push(place) } else { above.push(place) }
        }
        while let (Some(&low), Some(&high)) = (below.last(), above.last()) {
            below.pop();
            otherwise[low as usize] = high;
            stays[high as usize] = stays[high as usize] + stays[low as usize] - 1.0;
            if stays[high as usize] < 1.0 {
                above.pop();
                below.push(high);
            }
        }
        // What is left here differs from 1 by rounding alone.
        below.iter().chain(&above).for_each(|&place| stays[place as usize] = 1.0);
        Ok(Self { stays, otherwise, indices })
    }

    /// Draws the index of a sample.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        let place = rng.below(self.stays.len() as u64) as usize;
        let place = if rng.uniform() < self.stays[place] { place } else { self.otherwise[place] as usize };
        self.indices.as_ref().map_or(place as u64, |indices| indices[place])
    }
}

/// Returns the weight of each sample of the dataset, for draws from `indices`, or from all samples. `classes` is the
/// number of classes that have names.
pub(super) fn of_samples(
    weights: &Weights,
    indices: Option<&[u64]>,
    dataset: u64,
    classes: usize,
    label: impl Fn(u64) -> i64,
) -> io::Result<Arc<[f64]>> {
    match weights {
        Weights::Given(weights) => {
            if let Some(at) = weights.iter().position(|&weight| !(weight >= 0.0 && weight.is_finite())) {
                return Err(wrong(format!(
                    "`weights`[{at}] is {}, but a weight is a finite number, 0 or more",
                    weights[at]
                )));
            }
            if weights.len() as u64 == dataset {
                return Ok(weights.clone());
            }
            let classes = match classes {
                0 => (0..dataset).map(&label).max().map_or(0, |largest| largest.saturating_add(1).max(0) as usize),
                classes => classes,
            };
            if weights.len() != classes {
                return Err(wrong(format!(
                    "`weights` has {} weights, but the dataset has {dataset} samples and {classes} classes: give a \
                     weight for each sample, or for each class",
                    weights.len()
                )));
            }
            let mut of_samples = room(dataset)?;
            for index in 0..dataset {
                let label = label(index);
                let weight = usize::try_from(label).ok().and_then(|label| weights.get(label)).ok_or_else(|| {
                    wrong(format!(
                        "sample {index} has the label {label}, but `weights` has weights for {classes} classes"
                    ))
                })?;
                of_samples.push(*weight);
            }
            Ok(of_samples.into())
        }
        Weights::Balanced => {
            let mut labels: Vec<i64> = room(dataset)?;
            labels.extend((0..dataset).map(label));
            let mut counts: HashMap<i64, u64> = HashMap::new();
            let mut count = |index: u64| *counts.entry(labels[index as usize]).or_default() += 1;
            match indices {
                Some(indices) => indices.iter().for_each(|&index| count(index)),
                None => (0..dataset).for_each(count),
            }
            Ok(labels.iter().map(|label| counts.get(label).map_or(0.0, |&count| 1.0 / count as f64)).collect())
        }
    }
}
