//! Rice's code for small signed numbers.
//!
//! A number n is folded to 2n or −2n − 1. The part above its lowest `parameter` bits is written in unary, as that many
//! ones and a zero; the lowest bits follow. If the unary part would have [`UNARY_MAX`] ones or more, [`UNARY_MAX`] ones
//! are written and the folded number follows in 40 bits.

/// Most ones of a unary part.
const UNARY_MAX: u64 = 20;
/// Bits of a number that is written whole.
const WHOLE_BITS: u32 = 40;
/// Number of parameters that [`best_parameter`] tries.
const PARAMETERS: u32 = 24;

fn folded(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

fn unfolded(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Returns the parameter with which the numbers take the fewest bits.
pub fn best_parameter(numbers: impl Iterator<Item = i64> + Clone) -> u32 {
    let cost = |parameter: u32| -> u64 {
        let of = |number: i64| match folded(number) >> parameter {
            high if high < UNARY_MAX => high + 1 + u64::from(parameter),
            _ => UNARY_MAX + u64::from(WHOLE_BITS),
        };
        numbers.clone().map(of).sum()
    };
    (0..PARAMETERS).min_by_key(|&parameter| cost(parameter)).unwrap_or(0)
}

/// Collects bits into bytes.
pub struct Writer {
    bytes: Vec<u8>,
    /// Bits not yet in a byte, in the lowest `count` bits.
    waiting: u64,
    count: u32,
}

impl Writer {
    /// Starts writing after some bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, waiting: 0, count: 0 }
    }

    fn bits(&mut self, bits: u64, count: u32) {
        self.waiting = self.waiting << count | bits;
        self.count += count;
        while self.count >= 8 {
            self.count -= 8;
            self.bytes.push((self.waiting >> self.count) as u8);
        }
    }

    /// Writes a number of at most 39 bits and a sign.
    pub fn put(&mut self, number: i64, parameter: u32) {
        let number = folded(number);
        assert!(number >> WHOLE_BITS == 0, "the number has more than {WHOLE_BITS} bits");
        match number >> parameter {
            high if high < UNARY_MAX => {
                // The unary part: ones and a zero.
                self.bits((1 << (high + 1)) - 2, high as u32 + 1);
                self.bits(number & ((1 << parameter) - 1), parameter);
            }
            _ => {
                self.bits((1 << UNARY_MAX) - 1, UNARY_MAX as u32);
                self.bits(number, WHOLE_BITS);
            }
        }
    }

    /// Fills up the last byte with zeros and returns all bytes.
    pub fn finish(mut self) -> Vec<u8> {
        if self.count > 0 {
            self.bits(0, 8 - self.count);
        }
        self.bytes
    }
}

/// Reads bits from bytes.
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns at least the next 57 bits, the first of them highest; zeros past the end.
    fn peek(&self) -> u64 {
        let rest = self.bytes.get(self.at / 8..).unwrap_or_default();
        let word = match rest.first_chunk::<8>() {
            Some(word) => *word,
            None => std::array::from_fn(|i| rest.get(i).copied().unwrap_or(0)),
        };
        u64::from_be_bytes(word) << (self.at % 8)
    }

    fn bits(&mut self, count: u32) -> u64 {
        let bits = if count == 0 { 0 } else { self.peek() >> (64 - count) };
        self.at += count as usize;
        bits
    }

    /// Reads the next number. Returns `None` if the bytes end before the number does.
    pub fn take(&mut self, parameter: u32) -> Option<i64> {
        let ones = u64::from(self.peek().leading_ones()).min(UNARY_MAX);
        let number = if ones < UNARY_MAX {
            self.at += ones as usize + 1;
            ones << parameter | self.bits(parameter)
        } else {
            self.at += ones as usize;
            self.bits(WHOLE_BITS)
        };
        (self.at <= 8 * self.bytes.len()).then_some(unfolded(number))
    }

    /// Returns whether only the padding of the last byte is left.
    pub fn is_at_the_end(&self) -> bool {
        self.at.div_ceil(8) == self.bytes.len() && self.peek() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive() {
        let numbers: Vec<i64> = (0..39)
            .flat_map(|bit| [1i64 << bit, -(1 << bit), (1 << bit) - 1, bit])
            .filter(|n| folded(*n) >> 40 == 0)
            .collect();
        for parameter in [0, 1, 5, 13, 23, 31] {
            let mut writer = Writer::new(vec![7]);
            numbers.iter().for_each(|&number| writer.put(number, parameter));
            let bytes = writer.finish();
            let mut reader = Reader::new(&bytes[1..]);
            for &number in &numbers {
                assert_eq!(reader.take(parameter), Some(number), "{parameter}");
            }
            assert!(reader.is_at_the_end());
            let mut cut = Reader::new(&bytes[1..bytes.len() - 1]);
            assert!(numbers.iter().map(|_| cut.take(parameter)).any(|number| number.is_none()));
        }
    }

    #[test]
    fn the_parameter_follows_the_numbers() {
        assert_eq!(best_parameter([0, 0, 0].into_iter()), 0);
        let parameter = best_parameter((-1000..1000).step_by(7));
        assert!((8..=11).contains(&parameter), "{parameter}");
    }
}
