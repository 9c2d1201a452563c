//! The blocks of a scan: their coefficients, or only their length in bits.

use super::LeftToLibjpeg;
use super::bits::{Bits, Bytes};
use super::header::ZIGZAG;
use super::huffman::{AWAY, AcTable, BEYOND, DC_BITS, DcTable, LOOKUP_BITS, SKIP_BITS, STEP_BITS, Symbol};

/// Coefficients in a block.
pub const BLOCK: usize = 64;

/// Look-ups between two refills.
const LOOKUPS: u32 = 56 / STEP_BITS;
/// Index in a block's rows of the coefficient before each position in the stream: position 1 follows the first one.
/// Positions outside the block lead to the next block, which is cleared before it is read.
const PLACES: [u8; 256] = {
    let mut places = [BLOCK as u8; 256];
    let mut i = 0;
    while i < 64 {
        places[i + 1] = ZIGZAG[i];
        i += 1;
    }
    places
};

/// The coefficients of a block by rows, and of the blocks after it: as many as a byte can index.
pub type Target<'c> = &'c mut [i16; 256];
/// Blocks after the current one in a [`Target`].
pub const BEHIND: usize = 3;

/// Clears a block and stores its DC coefficient.
#[inline(always)]
pub fn start<'c>(
    coefficients: &'c mut [i16],
    number: usize,
    dc: i32,
    limits: &[u16; 64],
) -> Result<Target<'c>, LeftToLibjpeg> {
    if dc.unsigned_abs() > limits[0].into() {
        return Err(LeftToLibjpeg);
    }
    let target: Target<'_> = coefficients[number * BLOCK..].first_chunk_mut().ok_or(LeftToLibjpeg)?;
    target[..BLOCK].fill(0);
    target[0] = dc as i16;
    Ok(target)
}

/// Reads the difference between a DC coefficient and its predictor.
#[inline(always)]
pub fn difference(bits: &mut Bits, bytes: &Bytes, table: &DcTable) -> Result<i32, LeftToLibjpeg> {
    bits.refill(bytes);
    let index = bits.peek(DC_BITS) as usize;
    let (stride, step) = (table.strides[index], &table.steps[index]);
    if stride.is_nothing() {
        let Symbol { length, value, .. } = table.one(bits.all()).ok_or(LeftToLibjpeg)?;
        bits.take(length.into());
        return Ok(value);
    }
    let difference = step.last(bits.all(), stride.raw());
    bits.take(stride.raw());
    Ok(difference.into())
}

/// Reads the AC coefficients of a block, from a position on. Returns the last position with a coefficient, or 0 if
/// there are none.
#[inline(always)]
pub fn read(
    bits: &mut Bits,
    bytes: &Bytes,
    table: &AcTable,
    limits: &[u16; 64],
    target: Target<'_>,
    mut position: usize,
) -> Result<u8, LeftToLibjpeg> {
    'refills: loop {
        bits.refill(bytes);
        for _ in 0..LOOKUPS {
            let index = bits.peek(LOOKUP_BITS) as usize;
            let (stride, step) = (table.strides[index], &table.steps[index]);
            let to = position + stride.advance();
            if to >= BLOCK {
                if is_end(to) {
                    store(target, position + 1 + step.run(), step.first());
                    bits.take(stride.raw());
                    return Ok((to - usize::from(AWAY) - 1) as u8);
                }
                // The look-up resolved nothing, or the block is full, perhaps after the first of two coefficients.
                let one = one(*bits, bytes, table, position)?;
                *bits = one.bits;
                if let Some(value) = one.value {
                    if value.unsigned_abs() > limits[(one.position - 1) & 63].into() {
                        return Err(LeftToLibjpeg);
                    }
                    store(target, one.position, value as i16);
                }
                position = one.position;
                if one.ends {
                    return Ok((position - 1) as u8);
                }
                continue 'refills;
            }
            store(target, position + 1 + step.run(), step.first());
            store(target, to, step.last(bits.all(), stride.raw()));
            bits.take(stride.raw());
            position = to;
        }
    }
}

/// Reads AC coefficients of two blocks of a component, as long as neither block ends and no step needs a closer look.
/// Returns the positions at which [`read`] has to continue.
#[inline(always)]
pub fn read_both(
    bits: &mut [Bits; 2],
    bytes: [&Bytes; 2],
    table: &AcTable,
    [first, second]: [Target<'_>; 2],
) -> [usize; 2] {
    let [mut a, mut b] = *bits;
    let mut positions = [1, 1];
    'blocks: loop {
        a.refill(bytes[0]);
        b.refill(bytes[1]);
        for _ in 0..LOOKUPS {
            let indices = [a.peek(LOOKUP_BITS) as usize, b.peek(LOOKUP_BITS) as usize];
            let strides = indices.map(|index| table.strides[index]);
            let steps = indices.map(|index| &table.steps[index]);
            let to = [positions[0] + strides[0].advance(), positions[1] + strides[1].advance()];
            if (to[0] | to[1]) >= BLOCK {
                break 'blocks;
            }
            store(first, positions[0] + 1 + steps[0].run(), steps[0].first());
            store(first, to[0], steps[0].last(a.all(), strides[0].raw()));
            store(second, positions[1] + 1 + steps[1].run(), steps[1].first());
            store(second, to[1], steps[1].last(b.all(), strides[1].raw()));
            a.take(strides[0].raw());
            b.take(strides[1].raw());
            positions = to;
        }
    }
    *bits = [a, b];
    positions
}

/// Skips the AC coefficients of a block.
#[inline(always)]
pub fn skip(bits: &mut Bits, bytes: &Bytes, table: &AcTable) -> Result<(), LeftToLibjpeg> {
    let mut position = 1;
    'refills: loop {
        bits.refill(bytes);
        for _ in 0..LOOKUPS {
            let skip = table.skips[bits.peek(SKIP_BITS) as usize];
            let to = position + skip.advance();
            if to >= BLOCK {
                if is_end(to) {
                    bits.take(skip.raw());
                    return Ok(());
                }
                let one = one(*bits, bytes, table, position)?;
                (*bits, position) = (one.bits, one.position);
                if one.ends {
                    return Ok(());
                }
                continue 'refills;
            }
            bits.take(skip.raw());
            position = to;
        }
    }
}

/// Returns whether a position outside the block means the end of a block that is not full.
#[inline(always)]
fn is_end(position: usize) -> bool {
    position & usize::from(BEYOND) == 0
}

/// One symbol of a block.
struct One {
    bits: Bits,
    position: usize,
    value: Option<i32>,
    ends: bool,
}

/// Reads the symbol that follows a position.
#[inline(never)]
fn one(mut bits: Bits, bytes: &Bytes, table: &AcTable, position: usize) -> Result<One, LeftToLibjpeg> {
    bits.refill(bytes);
    let Symbol { length, advance, value } = table.one(bits.all()).ok_or(LeftToLibjpeg)?;
    bits.take(length.into());
    if advance == AWAY {
        return Ok(One { bits, position, value: None, ends: true });
    }
    let position = position + usize::from(advance);
    // The coefficient would lie outside the block.
    if position > BLOCK {
        return Err(LeftToLibjpeg);
    }
    Ok(One { bits, position, value: Some(value), ends: position == BLOCK })
}

#[inline(always)]
fn store(target: &mut [i16; 256], position: usize, value: i16) {
    target[usize::from(PLACES[position & 255])] = value;
}
