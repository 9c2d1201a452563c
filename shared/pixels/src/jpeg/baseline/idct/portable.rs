//! The transform of eight columns side by side, for the compiler to vectorise: inputs of 16 bits and sums of 32.

use super::{COLUMN_SHIFT, EVEN_INNER, EVEN_OUTER, ODD, ONE, ROW_SHIFT, ROW_SUM_MAX, Strip, flat};

/// See [`super::transform`].
#[inline(always)]
pub fn transform(strip: &Strip<'_>, out: &mut [u8], stride: usize) -> bool {
    let mut in_range = true;
    for number in 0..strip.blocks {
        let (block, last) = strip.block(number);
        let place = |y: usize| y * stride + 8 * number;
        if last == 0 {
            // The scan has checked the range of DC coefficients.
            let sample = flat(block[0] * strip.quant[0]);
            (0..8).for_each(|y| out[place(y)..place(y) + 8].fill(sample));
            continue;
        }
        let mut columns = [[0; 8]; 8];
        for (i, value) in columns.as_flattened_mut().iter_mut().enumerate() {
            // The scan has checked that the product fits 16 bits.
            *value = block[i].wrapping_mul(strip.quant[i]);
        }
        // Clamp, so that no sum exceeds 32 bits for any block.
        let clamped = |value: i32| value.clamp(i16::MIN.into(), i16::MAX.into()) as i16;
        let between = transposed(pass::<COLUMN_SHIFT>(&columns).map(|row| row.map(clamped)));
        let largest =
            (0..8).map(|y| between.iter().map(|column| u32::from(column[y].unsigned_abs())).sum::<u32>()).max();
        in_range &= largest <= Some(ROW_SUM_MAX.into());
        let samples = pass::<ROW_SHIFT>(&between).map(|column| column.map(|value| (value + 128).clamp(0, 255) as i16));
        for (y, row) in transposed(samples).iter().enumerate() {
            let samples: &mut [u8; 8] = (&mut out[place(y)..place(y) + 8]).try_into().expect("eight samples");
            *samples = row.map(|value| value as u8);
        }
    }
    in_range
}

#[inline(always)]
fn transposed(rows: [[i16; 8]; 8]) -> [[i16; 8]; 8] {
    std::array::from_fn(|x| std::array::from_fn(|y| rows[y][x]))
}

/// Does one direction: eight transforms side by side.
#[inline(always)]
fn pass<const SHIFT: i32>(input: &[[i16; 8]; 8]) -> [[i32; 8]; 8] {
    let mut output = [[0; 8]; 8];
    for lane in 0..8 {
        let weigh = |weights: [i16; 2], i: usize, j: usize| {
            i32::from(input[i][lane]) * i32::from(weights[0]) + i32::from(input[j][lane]) * i32::from(weights[1])
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
