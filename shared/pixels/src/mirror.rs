//! Mirrors rows of RGB pixels left to right while it copies them.

#![allow(unsafe_code)]

use crate::level::Level;

#[cfg(target_arch = "x86_64")]
mod x86;

/// Writes the pixels of the row `from` in reverse order. Both rows have the same length.
pub(crate) fn mirror(level: Level, from: &[u8], to: &mut [u8]) {
    match level {
        // SAFETY: SSE4.1 and AVX2 include SSSE3.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2(_) | Level::Sse41(_) => unsafe { x86::mirror(from, to) },
        Level::Base => mirror_each(from, to),
    }
}

fn mirror_each(from: &[u8], to: &mut [u8]) {
    for (to, pixel) in to.as_chunks_mut::<3>().0.iter_mut().zip(from.as_chunks::<3>().0.iter().rev()) {
        *to = *pixel;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn every_level_mirrors_rows_of_every_length() {
        for width in 1..70 {
            let row = synthetic::photo(width, 1, width);
            let mut expected = row.clone();
            expected.as_chunks_mut::<3>().0.reverse();
            for level in Level::tested() {
                let mut found = vec![0xA5; row.len()];
                mirror(level, &row, &mut found);
                assert_eq!(found, expected, "{width}, {}", level.name());
            }
        }
    }
}
