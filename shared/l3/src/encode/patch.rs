//! The bytes of one patch, with the color transform and the predictors that make them few.

use crate::bits::Fields;
use crate::color::{self, Color};
use crate::patch::{ALIGNMENT, GROUP, HEAD, PatchShape, ROWS};
use crate::planes::{self, MAX_SIDE, Planes, Row};
use crate::predict::{self, Predictor, WithEdges};

/// A plane whose rows have their edges beside them.
type EdgedPlane = [WithEdges; MAX_SIDE];

/// Encodes a patch.
#[inline(always)]
pub fn encode<F: Fields>(planes: &Planes, shape: &PatchShape) -> Vec<u8> {
    let [red, green, blue] = planes;
    let green_with_edges = with_edges(green, shape);
    let (color, planes) = if shape.channels == 1 {
        (Color::Plain, vec![with_edges(red, shape)])
    } else {
        let plain = [with_edges(red, shape), with_edges(blue, shape)];
        let minus_green = |plane| with_edges(&color::minus_green(plane, green, shape.height), shape);
        let differences = [minus_green(red), minus_green(blue)];
        let cost =
            |planes: &[EdgedPlane; 2]| planes.iter().map(|plane| cost(plane, Predictor::Top, shape)).sum::<usize>();
        let (color, [first, last]) = match cost(&plain) <= cost(&differences) {
            true => (Color::Plain, plain),
            false => (Color::MinusGreen, differences),
        };
        (color, vec![first, green_with_edges, last])
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

#[inline(always)]
fn with_edges(plane: &planes::Plane, shape: &PatchShape) -> EdgedPlane {
    let mut with_edges = [[0; MAX_SIDE + 2]; MAX_SIDE];
    for (with_edges, row) in with_edges.iter_mut().zip(plane).take(shape.height) {
        *with_edges = predict::with_edges(row, shape.width - 1);
    }
    with_edges
}

/// Returns the predictor with which a plane takes the fewest bytes.
#[inline(always)]
fn cheapest(plane: &EdgedPlane, shape: &PatchShape) -> Predictor {
    let cost = |&predictor: &Predictor| cost(plane, predictor, shape);
    Predictor::ALL.into_iter().min_by_key(cost).expect("there are predictors")
}

/// Returns the bytes that the fields of a plane take.
#[inline(always)]
fn cost(plane: &EdgedPlane, predictor: Predictor, shape: &PatchShape) -> usize {
    let pair = |y| {
        let (rows, codes) = pair(plane, predictor, shape, y);
        rows * ones(&codes).count_ones() as usize
    };
    (0..shape.height).step_by(ROWS).map(pair).sum()
}

/// Appends a plane's widths and fields.
#[inline(always)]
fn pack<F: Fields>(
    plane: &EdgedPlane,
    predictor: Predictor,
    shape: &PatchShape,
    all_widths: &mut Vec<u8>,
    fields: &mut Vec<u8>,
) {
    for y in (0..shape.height).step_by(ROWS) {
        let (rows, codes) = pair(plane, predictor, shape, y);
        let widths = ones(&codes).to_le_bytes().map(|ones| ones.count_ones() as u8);
        let twos = widths.chunks_exact(2).map(|two| two[0] | two[1] << 4);
        all_widths.extend(twos.take(shape.pair_widths()));
        for codes in &codes[..rows] {
            // Each group writes eight bytes; the next group overwrites the bytes beyond the width.
            let mut packed = [0; MAX_SIDE + GROUP];
            let mut length = 0;
            for (codes, width) in codes.as_chunks().0.iter().zip(widths) {
                let bytes = F::squeeze(u64::from_le_bytes(*codes), width).to_le_bytes();
                packed[length..length + GROUP].copy_from_slice(&bytes);
                length += usize::from(width);
            }
            fields.extend_from_slice(&packed[..length]);
        }
    }
}

/// Returns how many rows the pair that begins with row `y` has, and their codes. Codes beyond the patch are 0.
#[inline(always)]
fn pair(plane: &EdgedPlane, predictor: Predictor, shape: &PatchShape, y: usize) -> (usize, [Row; ROWS]) {
    let rows = ROWS.min(shape.height - y);
    let mut codes = [[0; MAX_SIDE]; ROWS];
    for (codes, y) in codes.iter_mut().zip(y..shape.height) {
        let row = plane[y][1..].first_chunk().expect("a row between its edges");
        *codes = match y.checked_sub(1) {
            None => predict::first_differences(row),
            Some(above) => predict::differences(row, &predictor.below(&plane[above])),
        };
        if shape.width < MAX_SIDE {
            codes[shape.width..].fill(0);
        }
    }
    (rows, codes)
}

/// Returns in each byte ones as wide as the largest code of a group.
#[inline(always)]
fn ones(codes: &[Row; ROWS]) -> u64 {
    let [first, second] = codes.each_ref().map(|row| row.as_chunks::<GROUP>().0);
    let mut ones = [0; MAX_SIDE / GROUP];
    for ((ones, first), second) in ones.iter_mut().zip(first).zip(second) {
        let mut bits = u64::from_le_bytes(*first) | u64::from_le_bytes(*second);
        bits |= bits >> 32;
        bits |= bits >> 16;
        bits |= bits >> 8;
        *ones = bits as u8;
    }
    let mut ones = u64::from_le_bytes(ones);
    ones |= ones >> 1 & 0x7F7F_7F7F_7F7F_7F7F;
    ones |= ones >> 2 & 0x3F3F_3F3F_3F3F_3F3F;
    ones | ones >> 4 & 0x0F0F_0F0F_0F0F_0F0F
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
        let shape = PatchShape { width: 64, height: 64, side: 64, channels: 1 };
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
