//! The bytes of one patch, with the color transform and the predictors that make them few.

use crate::bits::Fields;
use crate::color::{self, Color};
use crate::patch::{ALIGNMENT, GROUP, HEAD, ROWS, Shape};
use crate::planes::{MAX_SIDE, Plane, Planes, Row};
use crate::predict::{self, Predictor};

/// Encodes a patch.
#[inline(always)]
pub fn encode<F: Fields>(planes: &Planes, shape: &Shape) -> Vec<u8> {
    let minus_green = |plane| color::minus_green(&planes[plane], &planes[1], shape.height);
    let differences;
    let (color, planes) = if shape.channels == 1 {
        (Color::Plain, [&planes[0]].to_vec())
    } else {
        differences = [minus_green(0), minus_green(2)];
        let least = |planes: [&Plane; 2]| planes.iter().map(|plane| cost(plane, Predictor::Top, shape)).sum::<usize>();
        if least([&planes[0], &planes[2]]) <= least([&differences[0], &differences[1]]) {
            (Color::Plain, planes.iter().collect())
        } else {
            (Color::MinusGreen, vec![&differences[0], &planes[1], &differences[1]])
        }
    };
    let mut head = [0; HEAD];
    head[HEAD - 1] = color as u8;
    let mut widths = Vec::with_capacity(planes.len() * shape.plane_widths());
    let mut fields = Vec::with_capacity(planes.len() * (shape.height * MAX_SIDE + GROUP));
    for (plane, number) in planes.iter().zip(&mut head) {
        let predictor = cheapest(plane, shape);
        *number = predictor as u8;
        pack::<F>(plane, predictor, shape, &mut widths, &mut fields);
    }
    let mut bytes = [&head[..], &widths, &fields].concat();
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
    bytes
}

/// Returns the predictor with which a plane takes the fewest bytes.
#[inline(always)]
fn cheapest(plane: &Plane, shape: &Shape) -> Predictor {
    let cost = |&predictor: &Predictor| cost(plane, predictor, shape);
    Predictor::ALL.into_iter().min_by_key(cost).expect("there are predictors")
}

/// Returns the bytes that the fields of a plane take.
#[inline(always)]
fn cost(plane: &Plane, predictor: Predictor, shape: &Shape) -> usize {
    (0..shape.height)
        .step_by(ROWS)
        .map(|y| {
            let (rows, codes) = pair(plane, predictor, shape, y);
            rows * widths(&codes).into_iter().map(usize::from).sum::<usize>()
        })
        .sum()
}

/// Appends a plane's widths and fields.
#[inline(always)]
fn pack<F: Fields>(plane: &Plane, predictor: Predictor, shape: &Shape, all_widths: &mut Vec<u8>, fields: &mut Vec<u8>) {
    for y in (0..shape.height).step_by(ROWS) {
        let (rows, codes) = pair(plane, predictor, shape, y);
        let widths = widths(&codes);
        let twos = widths.chunks_exact(2).map(|two| two[0] | two[1] << 4);
        all_widths.extend(twos.take(shape.pair_widths()));
        for codes in &codes[..rows] {
            for (codes, width) in codes.chunks_exact(GROUP).zip(widths) {
                let word = u64::from_le_bytes(codes.try_into().expect("a group"));
                fields.extend_from_slice(&F::squeeze(word, width).to_le_bytes());
                fields.truncate(fields.len() - GROUP + usize::from(width));
            }
        }
    }
}

/// Returns how many rows the pair that begins with row `y` has, and their codes. Codes beyond the patch are 0.
#[inline(always)]
fn pair(plane: &Plane, predictor: Predictor, shape: &Shape, y: usize) -> (usize, [Row; ROWS]) {
    let rows = ROWS.min(shape.height - y);
    let mut codes = [[0; MAX_SIDE]; ROWS];
    for (codes, y) in codes.iter_mut().zip(y..shape.height) {
        let row = &plane[y];
        *codes = match y.checked_sub(1) {
            None => predict::first_differences(row),
            Some(above) => predict::differences(row, &predictor.below(&plane[above], shape.width - 1)),
        };
        codes[shape.width..].fill(0);
    }
    (rows, codes)
}

/// Returns the width of each group of columns: the bits of its largest code.
#[inline(always)]
fn widths(codes: &[Row; ROWS]) -> [u8; MAX_SIDE / GROUP] {
    std::array::from_fn(|group| {
        let word = |codes: &Row| u64::from_le_bytes(codes[group * GROUP..][..GROUP].try_into().expect("a group"));
        let mut bits = word(&codes[0]) | word(&codes[1]);
        bits |= bits >> 32;
        bits |= bits >> 16;
        bits |= bits >> 8;
        (u8::BITS - (bits as u8).leading_zeros()) as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits::Shifts;

    /// Returns the widths that occur in a gray patch whose values are below `2^bits`.
    fn widths_of_noise(bits: u32) -> [usize; 16] {
        let mut planes = crate::planes::EMPTY;
        let mut word = 1_u32;
        for value in planes[0].as_flattened_mut() {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *value = 128 + (word >> 24 & ((1 << bits) - 1)) as u8;
        }
        let shape = Shape { width: 64, height: 64, side: 64, channels: 1 };
        let bytes = encode::<Shifts>(&planes, &shape);
        let mut occurs = [0; 16];
        for two in &bytes[HEAD..][..shape.plane_widths()] {
            occurs[usize::from(two & 15)] += 1;
            occurs[usize::from(two >> 4)] += 1;
        }
        occurs
    }

    #[test]
    fn widths_are_those_of_the_differences() {
        assert_eq!(widths_of_noise(0)[0], 256);
        for bits in 1..=7 {
            let occurs = widths_of_noise(bits);
            assert!(occurs[bits as usize..=bits as usize + 1].iter().sum::<usize>() > 200, "{bits} bits: {occurs:?}");
        }
        assert!(widths_of_noise(7)[8] > 200);
    }
}
