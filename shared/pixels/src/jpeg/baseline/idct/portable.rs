//! The transform in 32-bit integers, eight columns beside each other, for the compiler to vectorise.

use super::{COLUMN_SHIFT, EVEN_INNER, EVEN_OUTER, ODD, ONE, ROW_SHIFT, ROW_SUM_MAX, Strip, flat};

/// See [`super::transform`].
#[inline(always)]
pub fn transform(strip: &Strip<'_>, out: &mut [u8], stride: usize) -> bool {
    let mut in_range = true;
    for number in 0..strip.blocks {
        let (block, last) = strip.block(number);
        let place = |y: usize| y * stride + 8 * number;
        if last == 0 {
            // DC coefficients have been checked where they were read.
            let sample = flat(block[0] * strip.quant[0]);
            (0..8).for_each(|y| out[place(y)..place(y) + 8].fill(sample));
            continue;
        }
        let mut columns = [[0; 8]; 8];
        for (i, value) in columns.as_flattened_mut().iter_mut().enumerate() {
            *value = i32::from(block[i]) * i32::from(strip.quant[i]);
        }
        // Into 16 bits, so that no sum leaves 32 whatever the block.
        let clamped = |value: i32| value.clamp(i16::MIN.into(), i16::MAX.into());
        let between = transposed(pass::<COLUMN_SHIFT>(&columns).map(|row| row.map(clamped)));
        let largest = (0..8).map(|y| between.iter().map(|column| column[y].unsigned_abs()).sum::<u32>()).max();
        in_range &= largest <= Some(ROW_SUM_MAX.into());
        for (y, row) in transposed(pass::<ROW_SHIFT>(&between)).iter().enumerate() {
            let samples: &mut [u8; 8] = (&mut out[place(y)..place(y) + 8]).try_into().expect("eight samples");
            *samples = row.map(|value| (value + 128).clamp(0, 255) as u8);
        }
    }
    in_range
}

fn transposed(rows: [[i32; 8]; 8]) -> [[i32; 8]; 8] {
    std::array::from_fn(|x| std::array::from_fn(|y| rows[y][x]))
}

/// One direction: eight transforms beside each other.
#[inline(always)]
fn pass<const SHIFT: i32>(input: &[[i32; 8]; 8]) -> [[i32; 8]; 8] {
    let mut output = [[0; 8]; 8];
    for lane in 0..8 {
        let weigh = |weights: [i16; 2], i: usize, j: usize| {
            input[i][lane] * i32::from(weights[0]) + input[j][lane] * i32::from(weights[1])
        };
        let round = 1 << (SHIFT - 1);
        let (sum, difference) = (weigh([ONE, ONE], 0, 4) + round, weigh([ONE, -ONE], 0, 4) + round);
        let (outer, inner) = (weigh(EVEN_OUTER, 2, 6), weigh(EVEN_INNER, 2, 6));
        let even = [sum + outer, difference + inner, difference - inner, sum - outer];
        for (i, (even, [a, b, c, d])) in even.into_iter().zip(ODD).enumerate() {
            let odd = weigh([a, b], 1, 3) + weigh([c, d], 5, 7);
            output[i][lane] = (even + odd) >> SHIFT;
            output[7 - i][lane] = (even - odd) >> SHIFT;
        }
    }
    output
}
