//! ChaCha8 as a source of words: Bernstein's cipher (*ChaCha, a variant of Salsa20*, 2008) with 8 rounds, a block counter of 64 bits
//! from 0 on, and a nonce of 0.
//!
//! A block is made when a word of it is asked for. A sample's stage draws two or three words, so making several blocks at once, as
//! implementations for long streams do, would cost such a stage most of its time.

/// Words of 64 bits in a block.
const WORDS: usize = 8;

/// A stream of words.
#[derive(Clone, Debug)]
pub(crate) struct ChaCha8 {
    key: [u32; 8],
    /// Number of the next block.
    counter: u64,
    block: [u64; WORDS],
    /// Words of the block that were given out.
    given: usize,
}

impl ChaCha8 {
    /// The stream of a key, whose words are little-endian in ChaCha's.
    pub fn new(key: [u64; 4]) -> Self {
        let key = std::array::from_fn(|at| (key[at / 2] >> (32 * (at % 2))) as u32);
        Self { key, counter: 0, block: [0; WORDS], given: WORDS }
    }

    /// The next word.
    #[inline]
    pub fn word(&mut self) -> u64 {
        if self.given == WORDS {
            self.block = block(&self.key, self.counter);
            self.counter += 1;
            self.given = 0;
        }
        let word = self.block[self.given];
        self.given += 1;
        word
    }
}

/// Four of the state's sixteen words.
type Row = [u32; 4];

fn block(key: &[u32; 8], counter: u64) -> [u64; WORDS] {
    let start: [Row; 4] = [
        [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574],
        [key[0], key[1], key[2], key[3]],
        [key[4], key[5], key[6], key[7]],
        [counter as u32, (counter >> 32) as u32, 0, 0],
    ];
    let mut rows = start;
    for _ in 0..4 {
        quarter_rounds(&mut rows);
        // The diagonals become columns, and columns again.
        let [a, b, c, d] = rows;
        rows = [a, turned::<1>(b), turned::<2>(c), turned::<3>(d)];
        quarter_rounds(&mut rows);
        let [a, b, c, d] = rows;
        rows = [a, turned::<3>(b), turned::<2>(c), turned::<1>(d)];
    }
    std::array::from_fn(|at| {
        let word = |at: usize| u64::from(rows[at / 4][at % 4].wrapping_add(start[at / 4][at % 4]));
        word(2 * at) | word(2 * at + 1) << 32
    })
}

/// A quarter round of each column.
#[inline(always)]
fn quarter_rounds([a, b, c, d]: &mut [Row; 4]) {
    for (first, second) in [(16, 12), (8, 7)] {
        add(a, b);
        mix(d, a, first);
        add(c, d);
        mix(b, c, second);
    }
}

#[inline(always)]
fn turned<const BY: usize>(row: Row) -> Row {
    [row[BY % 4], row[(BY + 1) % 4], row[(BY + 2) % 4], row[(BY + 3) % 4]]
}

#[inline(always)]
fn add(row: &mut Row, other: &Row) {
    row.iter_mut().zip(other).for_each(|(word, other)| *word = word.wrapping_add(*other));
}

#[inline(always)]
fn mix(row: &mut Row, other: &Row, by: u32) {
    row.iter_mut().zip(other).for_each(|(word, other)| *word = (*word ^ other).rotate_left(by));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    fn both(key: [u64; 4]) -> (ChaCha8, ChaCha8Rng) {
        (ChaCha8::new(key), ChaCha8Rng::from_seed(zerocopy::transmute!(key.map(u64::to_le_bytes))))
    }

    proptest! {
        #[test]
        fn words_are_those_of_another_implementation(key: [u64; 4]) {
            let (mut ours, mut other) = both(key);
            for at in 0..100 {
                prop_assert_eq!(ours.word(), other.next_u64(), "word {}", at);
            }
        }

        #[test]
        fn the_counter_goes_on_past_32_bits(key: [u64; 4], block: u64) {
            let (mut ours, mut other) = both(key);
            ours.counter = block >> 4;
            other.set_word_pos(u128::from(block >> 4) * 16);
            prop_assert_eq!(ours.word(), other.next_u64());
        }
    }
}
