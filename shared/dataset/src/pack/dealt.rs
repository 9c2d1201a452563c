//! A dataset in the order in which a pack of pieces stores its samples: dealt to bundles by a fixed permutation. Or a
//! range of a dataset, for a part of a pack.

use crate::{Dataset, Header, Identity, Location, PackFile, Piece, ReadError, Stored, Unavailable};
use ddlp_pixels::Fidelity;
use std::ops::Range;

/// Seed of the permutation, to which the number of samples is added.
const SEED: u64 = 0x5EED_0F50_CA11_ED00;

/// A dataset of samples of the source.
pub(super) struct Dealt<'s> {
    source: &'s dyn Dataset,
    order: Order,
}

/// The index of the sample at each position.
enum Order {
    Listed(Vec<u32>),
    Range(Range<u64>),
}

impl<'s> Dealt<'s> {
    /// Deals the samples of a source, which has fewer than 2³².
    pub(super) fn new(source: &'s dyn Dataset) -> Self {
        let samples = u32::try_from(source.len()).expect("the plan refuses more");
        let mut order: Vec<u32> = (0..samples).collect();
        let mut state = SEED.wrapping_add(samples.into());
        for last in (1..order.len()).rev() {
            let chosen = (u128::from(next(&mut state)) * (last as u128 + 1)) >> 64;
            order.swap(last, chosen as usize);
        }
        Self { source, order: Order::Listed(order) }
    }

    /// Takes a range of the samples.
    ///
    /// # Panics
    /// If the source has fewer samples.
    pub(super) fn range(source: &'s dyn Dataset, range: Range<u64>) -> Self {
        assert!(range.start <= range.end && range.end <= source.len(), "{range:?} of {} samples", source.len());
        Self { source, order: Order::Range(range) }
    }

    /// Returns the index of the sample at a position.
    pub(super) fn index(&self, position: u64) -> u64 {
        match &self.order {
            Order::Listed(order) => order[position as usize].into(),
            Order::Range(range) => range.start + position,
        }
    }
}

/// Returns the next number of SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

/// What packing asks of a source.
impl Dataset for Dealt<'_> {
    fn len(&self) -> u64 {
        match &self.order {
            Order::Listed(order) => order.len() as u64,
            Order::Range(range) => range.end - range.start,
        }
    }

    fn classes(&self) -> &[String] {
        self.source.classes()
    }

    fn label(&self, position: u64) -> u32 {
        self.source.label(self.index(position))
    }

    fn name(&self, position: u64) -> String {
        self.source.name(self.index(position))
    }

    fn location(&self, position: u64) -> Location {
        self.source.location(self.index(position))
    }

    fn header(&self, position: u64) -> Result<Header, ReadError> {
        self.source.header(self.index(position))
    }

    fn pieces(
        &self,
        position: u64,
        header: &Header,
        fidelity: Option<Fidelity>,
        pieces: &mut Vec<Piece>,
    ) -> Result<u64, ReadError> {
        self.source.pieces(self.index(position), header, fidelity, pieces)
    }

    fn read(&self, position: u64, header: &Header, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        self.source.read(self.index(position), header, offset, out)
    }

    fn stored<'a>(&'a self, position: u64, buf: &'a mut Vec<u8>) -> Result<Stored<'a>, ReadError> {
        self.source.stored(self.index(position), buf)
    }

    fn check(&self) -> Result<(), Unavailable> {
        self.source.check()
    }

    fn check_damage(&self) -> Result<(), Unavailable> {
        self.source.check_damage()
    }

    fn read_again(&self, position: u64) {
        self.source.read_again(self.index(position));
    }

    fn identity(&self) -> Identity {
        self.source.identity()
    }

    fn kind(&self) -> &'static str {
        self.source.kind()
    }

    fn export(&self) -> Option<&PackFile> {
        self.source.export()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::tests::Pixels;

    #[test]
    fn samples_are_always_dealt_in_the_same_way() {
        let source = Pixels::new(1000);
        let dealt = Dealt::new(&source);
        let mut sorted: Vec<u64> = (0..1000).map(|position| dealt.index(position)).collect();
        assert_eq!(sorted[..6], [532, 329, 247, 891, 295, 135]);
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..1000));
        let kept = (0..1000).filter(|&position| dealt.index(position) == position).count();
        assert!(kept < 10, "{kept} samples stay where they are");
    }
}
