//! The inverse DCT of libjpeg's `jidctint.c` (islow), for blocks of a component that lie side by side.
//!
//! The transform is from Loeffler, Ligtenberg and Moschytz, *Practical fast 1-D DCT algorithms with 11 multiplications*
//! (ICASSP 1989), in fixed point of 13 bits. libjpeg rounds once after the columns and once after the rows, and nowhere
//! in between. So each output is a sum of products of inputs and integers, and any order of summing gives the same
//! bits: here the odd part is a 4 × 4 matrix whose entries are sums of libjpeg's constants.
//!
//! This holds as long as no number exceeds 16 bits on the way. A quick check (see [`ROW_SUM_MAX`]) finds the blocks in
//! which a number might; these blocks get an exact check.

mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

use super::block::BLOCK;
use crate::level::Level;
use crate::range;

/// Bits of the constants, and bits kept between the passes (jidctint.c).
const CONST_BITS: i32 = 13;
const PASS1_BITS: i32 = 2;
/// Shifts after the columns and after the rows; both together also divide by 8.
const COLUMN_SHIFT: i32 = CONST_BITS - PASS1_BITS;
const ROW_SHIFT: i32 = CONST_BITS + PASS1_BITS + 3;

/// Even part: weights of inputs 0 and 4, and of 2 and 6.
const ONE: i16 = 1 << CONST_BITS;
const EVEN_INNER: [i16; 2] = [4433, 4433 - 15137];
const EVEN_OUTER: [i16; 2] = [4433 + 6270, 4433];
/// Odd part: weights of inputs 1, 3, 5 and 7 in outputs 0 to 3 (with the opposite sign in outputs 7 to 4).
const ODD: [[i16; 4]; 4] = {
    // Weights of inputs 7 and 3 in z3 of jidctint.c, and of inputs 5 and 1 in z4.
    let (z3, z4) = ([9633 - 16069, 9633], [9633, 9633 - 3196]);
    [
        [12299 - 7373 + z4[1], z4[0], z4[1], -7373 + z4[0]],
        [z3[1], 25172 - 20995 + z3[0], -20995 + z3[1], z3[0]],
        [z4[1], -20995 + z4[0], 16819 - 20995 + z4[1], z4[0]],
        [-7373 + z3[1], z3[0], z3[1], 2446 - 7373 + z3[0]],
    ]
};

/// Largest sum of magnitudes in a row between the passes.
///
/// The C code clamps by a table that is right up to ±511; the vector code adds pairs of inputs in 16 bits. Both are
/// safe up to this sum, because no weight of the row pass exceeds 1.3871 × 2^13, and 11 700 × 1.3871 / 2^5 < 511. Rows
/// of samples from −128 to 127 stay below it: their orthonormal DCT is at most √8 × √8 × 128 = 1024, which is 11 586 in
/// the scale between the passes.
const ROW_SUM_MAX: u16 = 11_700;

/// Last position, in the stream's order, up to which every coefficient lies in the first four rows and columns.
#[cfg(target_arch = "x86_64")]
const CORNER_LAST: u8 = 9;

/// Blocks that lie side by side in a component.
pub struct Strip<'a> {
    /// Blocks of a run of MCUs, and the last position that each of them uses.
    pub coefficients: &'a [i16],
    pub lasts: &'a [u8],
    /// Index of the strip's first block; number of blocks in an MCU; number of blocks that the strip takes from each
    /// MCU, one or two.
    pub first: usize,
    pub per_mcu: usize,
    pub across: usize,
    /// Number of blocks in the strip.
    pub blocks: usize,
    /// Quantisation steps by rows.
    pub quant: &'a [i16; 64],
}

impl Strip<'_> {
    /// Returns the coefficients of a block by rows, and the last position in the stream's order that is not zero.
    #[inline(always)]
    fn block(&self, number: usize) -> (&[i16; BLOCK], u8) {
        let number = number.min(self.blocks - 1);
        // An MCU has one or two blocks across, so no division is needed.
        let two = usize::from(self.across == 2);
        let at = self.first + (number >> two) * self.per_mcu + (number & two);
        let block = self.coefficients[at * BLOCK..].first_chunk().expect("a block's coefficients are complete");
        (block, self.lasts[at])
    }

    #[cold]
    fn is_in_range(&self) -> bool {
        let quant = self.quant.map(|step| step as u16);
        (0..self.blocks).all(|number| range::is_in_range(self.block(number).0, &quant))
    }
}

/// Writes the samples of a strip: eight rows, `stride` apart, of 8 samples a block, for an even number of blocks.
///
/// Returns false if a block is outside the range in which all builds of libjpeg agree (see [`range`]); the samples are
/// then meaningless.
pub fn transform(level: Level, strip: &Strip<'_>, out: &mut [u8], stride: usize) -> bool {
    let is_tame = match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2(token) => x86::transform(token, strip, out, stride),
        #[cfg(target_arch = "x86_64")]
        Level::Sse41(token) => x86::transform_by_compiler(token, strip, out, stride),
        Level::Base => portable::transform(strip, out, stride),
    };
    // Both builds clamp only between the passes, so a block in range is right even if its sums are large.
    is_tame || strip.is_in_range()
}

/// Returns the sample of a block that has only a DC coefficient, dequantised.
#[inline(always)]
fn flat(dc: i16) -> u8 {
    // Each pass is a multiplication by 2^13 and a shift: dc × 2^PASS1_BITS, then a rounding shift by PASS1_BITS + 3
    // bits.
    let level = ((i32::from(dc) << PASS1_BITS) + (1 << (PASS1_BITS + 2))) >> (PASS1_BITS + 3);
    (level + 128).clamp(0, 255) as u8
}

#[cfg(test)]
mod tests;
