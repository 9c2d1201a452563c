//! The extents of a sample that a plan names.

use std::fmt;
use std::ops::Range;

/// Extents that need no memory beside the list itself. Only forms whose crops lie in many pieces have more.
const FEW: usize = 4;

/// Extents of a sample to read, in the order in which their bytes follow each other in memory. They may be read in any
/// order. None of them is empty. The list is reused from sample to sample, and then allocates nothing.
#[derive(Clone)]
pub struct Reads(ReadList);

#[derive(Clone)]
enum ReadList {
    /// The first extents of the array.
    Few([Range<u64>; FEW], usize),
    /// A list that once had more. It keeps its memory.
    Many(Vec<Range<u64>>),
}

impl Reads {
    /// Adds an extent, unless it is empty.
    pub fn add(&mut self, extent: Range<u64>) {
        if extent.is_empty() {
            return;
        }
        match &mut self.0 {
            ReadList::Few(few, count) if *count < FEW => {
                few[*count] = extent;
                *count += 1;
            }
            ReadList::Few(few, _) => self.0 = ReadList::Many(few.iter().cloned().chain([extent]).collect()),
            ReadList::Many(many) => many.push(extent),
        }
    }

    /// Removes all extents.
    pub fn clear(&mut self) {
        match &mut self.0 {
            ReadList::Few(_, count) => *count = 0,
            ReadList::Many(many) => many.clear(),
        }
    }

    /// Returns the extents.
    pub fn extents(&self) -> &[Range<u64>] {
        match &self.0 {
            ReadList::Few(few, count) => &few[..*count],
            ReadList::Many(many) => many,
        }
    }

    /// Returns the number of bytes.
    pub fn bytes(&self) -> u64 {
        self.extents().iter().map(|extent| extent.end - extent.start).sum()
    }
}

impl Default for Reads {
    fn default() -> Self {
        Self(ReadList::Few([const { 0..0 }; FEW], 0))
    }
}

impl fmt::Debug for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.extents()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_takes_any_number_of_extents_but_no_empty_ones() {
        let mut reads = Reads::default();
        for count in [1, FEW as u64, 11, 2] {
            reads.clear();
            let expected: Vec<Range<u64>> = (0..count).map(|at| 10 * at..10 * at + at + 1).collect();
            for extent in &expected {
                reads.add(extent.clone());
                reads.add(extent.end..extent.end);
            }
            assert_eq!((reads.extents(), reads.bytes()), (&expected[..], count * (count + 1) / 2));
        }
    }
}
