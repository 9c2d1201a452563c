//! ChaCha8 as a source of words: Bernstein's cipher (*ChaCha, a variant of Salsa20*, 2008) with 8 rounds, a block
//! counter of 64 bits that starts at 0, and a nonce of 0.
//!
//! An operation on a sample draws two or three words. Implementations for long streams make several blocks of one
//! stream at once, which here would take most of an operation's time. Making the first blocks of two streams at once
//! pays: each step of a block waits for the step before it, and a core can run two of these chains at once.

#![allow(unsafe_code)]

#[cfg(any(test, not(target_arch = "x86_64")))]
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

/// Number of 64-bit words in a block.
const WORDS: usize = 8;

/// Words of a block, before and after the rounds: constants, key, counter.
type State = [[u32; 4]; 4];

/// Number of double rounds: half of ChaCha8's rounds.
const DOUBLE_ROUNDS: usize = 4;

/// A stream of words.
#[derive(Clone, Debug)]
pub(crate) struct ChaCha8 {
    key: [u32; 8],
    /// Number of the next block.
    counter: u64,
    block: [u64; WORDS],
    /// Words of the block that [`word`](Self::word) has returned.
    given: usize,
}

impl ChaCha8 {
    /// Returns the stream of a key (its words are little-endian in ChaCha's key).
    pub fn new(key: [u64; 4]) -> Self {
        let key = halves(key);
        Self { key, counter: 1, block: block(key, 0), given: 0 }
    }

    /// Returns the streams of two keys. Makes the first blocks of both at once, so only keys whose words will be used
    /// belong here.
    pub fn two(keys: [[u64; 4]; 2]) -> [Self; 2] {
        let keys = keys.map(halves);
        let blocks = two_blocks(keys);
        std::array::from_fn(|at| Self { key: keys[at], counter: 1, block: blocks[at], given: 0 })
    }

    /// Returns the next word.
    #[inline]
    pub fn word(&mut self) -> u64 {
        if self.given == WORDS {
            self.block = block(self.key, self.counter);
            self.counter += 1;
            self.given = 0;
        }
        let word = self.block[self.given];
        self.given += 1;
        word
    }
}

/// Makes block `counter` of a stream.
fn block(key: [u32; 8], counter: u64) -> [u64; WORDS] {
    let start = first_state(key, counter);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has SSE2.
    let [block] = unsafe { x86::blocks([start]) };
    #[cfg(not(target_arch = "x86_64"))]
    let block = portable::block(start);
    joined(block)
}

/// Makes the first blocks of two streams.
fn two_blocks(keys: [[u32; 8]; 2]) -> [[u64; WORDS]; 2] {
    let starts = keys.map(|key| first_state(key, 0));
    #[cfg(target_arch = "x86_64")]
    let blocks = if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        unsafe { x86::two_blocks(starts) }
    } else {
        // SAFETY: every x86-64 has SSE2.
        unsafe { x86::blocks(starts) }
    };
    #[cfg(not(target_arch = "x86_64"))]
    let blocks = starts.map(portable::block);
    blocks.map(joined)
}

fn first_state([a, b, c, d, e, f, g, h]: [u32; 8], counter: u64) -> State {
    let constants = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];
    [constants, [a, b, c, d], [e, f, g, h], [counter as u32, (counter >> 32) as u32, 0, 0]]
}

fn halves(key: [u64; 4]) -> [u32; 8] {
    std::array::from_fn(|at| (key[at / 2] >> (32 * (at % 2))) as u32)
}

fn joined(block: State) -> [u64; WORDS] {
    let words = block.as_flattened();
    std::array::from_fn(|at| u64::from(words[2 * at]) | u64::from(words[2 * at + 1]) << 32)
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
        fn two_streams_are_those_of_their_keys(keys: [[u64; 4]; 2]) {
            for (mut stream, key) in ChaCha8::two(keys).into_iter().zip(keys) {
                let (_, mut other) = both(key);
                for at in 0..20 {
                    prop_assert_eq!(stream.word(), other.next_u64(), "word {}", at);
                }
            }
        }

        #[test]
        fn blocks_without_vector_instructions_are_the_same(key: [u64; 4], counter: u64) {
            prop_assert_eq!(joined(portable::block(first_state(halves(key), counter))), block(halves(key), counter));
        }

        #[test]
        #[cfg(target_arch = "x86_64")]
        fn two_blocks_without_avx2_are_the_same(keys: [[u64; 4]; 2]) {
            let starts = keys.map(|key| first_state(halves(key), 0));
            // SAFETY: every x86-64 has SSE2.
            prop_assert_eq!(unsafe { x86::blocks(starts) }.map(joined), two_blocks(keys.map(halves)));
        }

        #[test]
        fn the_counter_goes_on_past_32_bits(key: [u64; 4], block: u64) {
            let (mut ours, mut other) = both(key);
            (ours.counter, ours.given) = (block >> 4, WORDS);
            other.set_word_pos(u128::from(block >> 4) * 16);
            prop_assert_eq!(ours.word(), other.next_u64());
        }
    }
}
