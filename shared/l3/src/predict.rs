//! Predictions of a row from the row above it, and differences from a prediction.

use crate::planes::{MAX_SIDE, Row};

/// How the pixels of a row follow from the row above: from the pixels `a` above to the left, `b` above, and `c` above
/// to the right. At the left edge of a patch, `b` takes the place of `a`; at the right edge, `b` takes the place of
/// `c`. The mean of two pixels is rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Predictor {
    /// `b`
    Top = 0,
    /// `a`
    TopLeft = 1,
    /// `c`
    TopRight = 2,
    /// The mean of `a` and `b`.
    LeftMean = 3,
    /// The mean of `b` and `c`.
    RightMean = 4,
    /// The mean of `a` and `c`.
    OuterMean = 5,
    /// The mean of `b` and the mean of `a` and `c`.
    Smooth = 6,
}

impl Predictor {
    /// All predictors, in the order of their numbers.
    pub const ALL: [Self; 7] =
        [Self::Top, Self::TopLeft, Self::TopRight, Self::LeftMean, Self::RightMean, Self::OuterMean, Self::Smooth];

    /// Returns the predictor with a number.
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Predicts the row below `above`.
    #[inline(always)]
    pub fn below(self, above: &WithEdges) -> Row {
        let [left, top, right] = [0, 1, 2].map(|begin| &above[begin..begin + MAX_SIDE]);
        match self {
            Self::Top => of(|x| top[x]),
            Self::TopLeft => of(|x| left[x]),
            Self::TopRight => of(|x| right[x]),
            Self::LeftMean => of(|x| mean(left[x], top[x])),
            Self::RightMean => of(|x| mean(top[x], right[x])),
            Self::OuterMean => of(|x| mean(left[x], right[x])),
            Self::Smooth => of(|x| mean(top[x], mean(left[x], right[x]))),
        }
    }
}

/// A row with a pixel more on each side, which are the neighbours of the patch's first and last columns.
pub type WithEdges = [u8; MAX_SIDE + 2];

/// Puts the neighbours of the first and the last column beside a row.
#[inline(always)]
pub fn with_edges(row: &Row, last: usize) -> WithEdges {
    let mut with_edges = [0; MAX_SIDE + 2];
    with_edges[0] = row[0];
    with_edges[1..=MAX_SIDE].copy_from_slice(row);
    with_edges[last + 2] = row[last];
    with_edges
}

#[inline(always)]
fn of(pixel: impl Fn(usize) -> u8) -> Row {
    let mut row = [0; MAX_SIDE];
    for (x, row) in row.iter_mut().enumerate() {
        *row = pixel(x);
    }
    row
}

#[inline(always)]
fn mean(a: u8, b: u8) -> u8 {
    (u16::from(a) + u16::from(b)).div_ceil(2) as u8
}

/// What the pixel left of a patch's first row is taken to be.
pub const BEFORE_FIRST: u8 = 128;

/// Returns the first row of a patch as differences from the pixel to the left.
#[inline(always)]
pub fn first_differences(row: &Row) -> Row {
    let mut left = *row;
    left[0] = BEFORE_FIRST;
    left[1..].copy_from_slice(&row[..MAX_SIDE - 1]);
    differences(row, &left)
}

/// Does the opposite of `first_differences`.
#[inline(always)]
pub fn first_row(differences: &Row) -> Row {
    let mut left = BEFORE_FIRST;
    differences.map(|difference| {
        left = left.wrapping_add(signed(difference));
        left
    })
}

/// Returns the differences of a row from its prediction, modulo 256, as codes: 0, −1, 1, −2, 2, … become 0, 1, 2, 3,
/// 4, …
#[inline(always)]
pub fn differences(row: &Row, prediction: &Row) -> Row {
    of(|x| {
        let difference = row[x].wrapping_sub(prediction[x]) as i8;
        (difference << 1 ^ difference >> 7) as u8
    })
}

/// Does the opposite of `differences`.
#[inline(always)]
pub fn row(differences: &Row, prediction: &Row) -> Row {
    of(|x| prediction[x].wrapping_add(signed(differences[x])))
}

/// Returns the difference that a code stands for, modulo 256.
#[inline(always)]
fn signed(code: u8) -> u8 {
    code >> 1 ^ (code & 1).wrapping_neg()
}
