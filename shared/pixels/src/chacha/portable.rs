//! Blocks without vector instructions.

use super::{DOUBLE_ROUNDS, State};

/// Returns the block of a state: the sum of the state before and after the rounds.
pub fn block(start: State) -> State {
    let mut rows = start;
    for _ in 0..DOUBLE_ROUNDS {
        quarter_rounds(&mut rows);
        // Rotate the diagonals into columns, and back.
        for (row, by) in rows.iter_mut().zip(0..) {
            row.rotate_left(by);
        }
        quarter_rounds(&mut rows);
        for (row, by) in rows.iter_mut().zip(0..) {
            row.rotate_right(by);
        }
    }
    for (word, start) in rows.as_flattened_mut().iter_mut().zip(start.as_flattened()) {
        *word = word.wrapping_add(*start);
    }
    rows
}

/// Does a quarter round of each column.
fn quarter_rounds([a, b, c, d]: &mut State) {
    for column in 0..4 {
        let (a, b, c, d) = (&mut a[column], &mut b[column], &mut c[column], &mut d[column]);
        for (first, second) in [(16, 12), (8, 7)] {
            *a = a.wrapping_add(*b);
            *d = (*d ^ *a).rotate_left(first);
            *c = c.wrapping_add(*d);
            *b = (*b ^ *c).rotate_left(second);
        }
    }
}
