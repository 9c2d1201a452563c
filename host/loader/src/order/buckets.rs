//! Buckets: samples grouped by the sizes of their images, so that each batch has images of one size.

use super::LastBatch;
use super::walks::room;
use ddlp_dataset::ImageSize;
use ddlp_pixels::Shape;
use std::cmp::Ordering;
use std::io;

/// Most buckets of a run. A drive keeps a program for each.
pub(crate) const BUCKETS_MAX: usize = 32;

/// The samples of each bucket, and the bucket of each global batch. They are the same in every epoch.
#[derive(Debug, PartialEq, Eq)]
pub struct Buckets {
    /// For each sample of the dataset, its bucket.
    of_sample: Vec<u8>,
    /// Number of samples of each bucket.
    samples: Vec<u64>,
    /// For each global batch, its bucket, and its number among the batches of this bucket.
    batches: Vec<(u8, u32)>,
}

impl Buckets {
    /// Puts each of the samples with these ids into the bucket whose images fit it best: the nearest aspect ratio;
    /// among equal ratios, the largest images that are not larger than the sample, or else the smallest. The batches of
    /// all buckets are spread evenly over the epoch.
    pub fn new(
        sizes: &[ImageSize],
        ids: impl Iterator<Item = u64>,
        shapes: &[Shape],
        batch: u64,
        last: LastBatch,
    ) -> Self {
        let of_sample: Vec<u8> = sizes.iter().map(|&size| nearest(size, shapes) as u8).collect();
        let mut counts = vec![0u64; shapes.len()];
        for id in ids {
            counts[usize::from(of_sample[(id % sizes.len() as u64) as usize])] += 1;
        }
        let batches = spread(counts.iter().map(|&count| last.batches(count, batch)));
        Self { of_sample, samples: counts, batches }
    }

    /// Returns the bucket of each sample of the dataset.
    pub fn of_sample(&self) -> &[u8] {
        &self.of_sample
    }

    /// Returns the number of global batches of an epoch.
    pub fn batches(&self) -> u64 {
        self.batches.len() as u64
    }

    /// Returns the bucket of a global batch, and the batch's number among the batches of this bucket.
    pub fn of_batch(&self, batch: u32) -> (usize, u64) {
        let (bucket, number) = self.batches[batch as usize];
        (bucket.into(), number.into())
    }

    /// Returns the number of samples of each bucket.
    pub fn samples(&self) -> &[u64] {
        &self.samples
    }

    /// Returns the number of samples before this bucket's, in [`sorted`](Self::sorted) ids.
    pub fn first(&self, bucket: usize) -> u64 {
        self.samples[..bucket].iter().sum()
    }

    /// Puts the ids of an epoch's samples into the order of their buckets. Within a bucket, they keep their order.
    ///
    /// # Errors
    ///
    /// The system refuses memory.
    pub fn sorted(&self, ids: &[u64]) -> io::Result<Vec<u64>> {
        let dataset = self.of_sample.len() as u64;
        let mut sorted = room(ids.len() as u64)?;
        sorted.resize(ids.len(), 0);
        let mut places: Vec<u64> = (0..self.samples.len()).map(|bucket| self.first(bucket)).collect();
        for &id in ids {
            let place = &mut places[usize::from(self.of_sample[(id % dataset) as usize])];
            sorted[*place as usize] = id;
            *place += 1;
        }
        Ok(sorted)
    }
}

/// Returns the bucket for an image of this size.
fn nearest(size: ImageSize, shapes: &[Shape]) -> usize {
    let fit = |&shape: &Shape| {
        let (own, other) = (area(size), u64::from(shape.width) * u64::from(shape.height));
        // A bucket of larger images would only enlarge the sample.
        (stretch(size, shape), if other <= own { (false, own - other) } else { (true, other) })
    };
    let compare = |one: &usize, other: &usize| {
        let ((one, one_size), (other, other_size)) = (fit(&shapes[*one]), fit(&shapes[*other]));
        one.cmp(&other).then(one_size.cmp(&other_size))
    };
    (0..shapes.len()).min_by(compare).expect("a run has a bucket")
}

fn area((width, height): ImageSize) -> u64 {
    u64::from(width) * u64::from(height)
}

/// How far two aspect ratios lie apart: the greater one divided by the other, as a fraction.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    greater: u64,
    less: u64,
}

impl Stretch {
    fn products(self, other: Self) -> (u128, u128) {
        let product = |one: u64, other: u64| u128::from(one) * u128::from(other);
        (product(self.greater, other.less), product(other.greater, self.less))
    }
}

impl PartialEq for Stretch {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Stretch {}

impl PartialOrd for Stretch {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Stretch {
    fn cmp(&self, other: &Self) -> Ordering {
        let (own, its) = self.products(*other);
        own.cmp(&its)
    }
}

fn stretch((width, height): ImageSize, shape: Shape) -> Stretch {
    let crossed = [u64::from(width) * u64::from(shape.height), u64::from(height) * u64::from(shape.width)];
    Stretch { greater: crossed[0].max(crossed[1]), less: crossed[0].min(crossed[1]) }
}

/// Returns the batches of all buckets, ordered so that the batches of each bucket lie equally far apart.
fn spread(counts: impl Iterator<Item = u64>) -> Vec<(u8, u32)> {
    let mut batches: Vec<(u64, u64, u8)> = Vec::new();
    for (bucket, count) in counts.enumerate() {
        // Batch n of `count` lies at (2n + 1) / (2 count) of the epoch.
        batches.extend((0..count).map(|number| (2 * number + 1, count, bucket as u8)));
    }
    batches.sort_by(|&(one, of_one, one_bucket), &(other, of_other, other_bucket)| {
        (one * of_other).cmp(&(other * of_one)).then(one_bucket.cmp(&other_bucket))
    });
    batches.into_iter().map(|(place, _, bucket)| (bucket, ((place - 1) / 2) as u32)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape((width, height): (u32, u32)) -> Shape {
        Shape { height, width, channels: 3 }
    }

    #[test]
    fn a_sample_goes_to_the_nearest_aspect_ratio_and_then_to_the_largest_images_that_are_not_larger() {
        let shapes = [(512, 512), (576, 448), (448, 576), (256, 256)].map(shape);
        let bucket = |size| nearest(size, &shapes);
        assert_eq!([(600, 600), (640, 480), (480, 640), (4000, 100)].map(bucket), [0, 1, 2, 1]);
        assert_eq!([(511, 512), (300, 300), (200, 200), (512, 512)].map(bucket), [3, 3, 3, 0]);
        // 1.134 lies between 1 and 576/448 = 1.286: the geometric mean decides.
        assert_eq!([(1133, 1000), (1135, 1000)].map(bucket), [0, 1]);
        assert_eq!(bucket((0, 0)), 3, "an image of unknown size goes to the smallest");
    }

    #[test]
    fn batches_of_a_bucket_are_spread_over_the_epoch() {
        let batches = spread([4, 2, 0, 1].into_iter());
        let buckets: Vec<u8> = batches.iter().map(|&(bucket, _)| bucket).collect();
        assert_eq!(buckets, [0, 1, 0, 3, 0, 1, 0]);
        let numbers = |wanted| -> Vec<u32> {
            batches.iter().filter(|(bucket, _)| *bucket == wanted).map(|&(_, number)| number).collect()
        };
        assert_eq!([numbers(0), numbers(1), numbers(2), numbers(3)], [vec![0, 1, 2, 3], vec![0, 1], vec![], vec![0]]);
    }

    #[test]
    fn each_bucket_has_its_own_last_batch() {
        let sizes = [(100, 100), (200, 100), (100, 100), (100, 100), (200, 100)];
        let shapes = [(64, 64), (64, 32)].map(shape);
        let batches = |last| Buckets::new(&sizes, 0..5, &shapes, 2, last).batches();
        assert_eq!([LastBatch::Short, LastBatch::Pad, LastBatch::Drop].map(batches), [3, 3, 2]);
        let buckets = Buckets::new(&sizes, 0..7, &shapes, 2, LastBatch::Short);
        assert_eq!(buckets.samples(), [4, 3], "samples 0 and 1 occur twice");
        assert_eq!(buckets.sorted(&[6, 0, 4, 5, 1, 3, 2]).unwrap(), [0, 5, 3, 2, 6, 4, 1]);
    }
}
