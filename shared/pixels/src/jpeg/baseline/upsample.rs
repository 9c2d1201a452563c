//! Rows of colour differences at full width: libjpeg's fancy upsampling (jdsample.c), a triangle filter over the
//! nearest samples.
//!
//! libjpeg's special cases at the edges have the same effect as repeating the edge sample, which the callers do. The
//! rounding of libjpeg alternates from column to column, or from row to row, so that it adds no bias.

/// Adds samples of a row and of the row next to it, weighted 3 to 1.
#[inline(always)]
pub fn blend(near: &[u8], far: &[u8], sums: &mut [u16]) {
    for ((sum, &near), &far) in sums.iter_mut().zip(near).zip(far) {
        *sum = 3 * u16::from(near) + u16::from(far);
    }
}

/// Upsamples rows that are halved: makes the row of pixels that is next to the `far` row, above it or below it.
#[inline(always)]
pub fn down(near: &[u8], far: &[u8], is_upper: bool, out: &mut [u8]) {
    let round = if is_upper { 1 } else { 2 };
    for ((out, &near), &far) in out.iter_mut().zip(near).zip(far) {
        *out = ((3 * u16::from(near) + u16::from(far) + round) >> 2) as u8;
    }
}

/// Upsamples columns that are halved: makes two pixels of each sample, except the first and the last, which serve only
/// as neighbours.
#[inline(always)]
pub fn across(samples: &[u8], out: &mut [u8]) {
    let (pairs, _) = out.as_chunks_mut::<2>();
    for (pair, triple) in pairs.iter_mut().zip(samples.windows(3)) {
        let [left, here, right] = [triple[0], triple[1], triple[2]].map(u16::from);
        *pair = [((3 * here + left + 1) >> 2) as u8, ((3 * here + right + 2) >> 2) as u8];
    }
}

/// Upsamples columns and rows that are halved, as [`across`] does, from sums that [`blend`] made.
#[inline(always)]
pub fn across_sums(sums: &[u16], out: &mut [u8]) {
    let (pairs, _) = out.as_chunks_mut::<2>();
    for (pair, triple) in pairs.iter_mut().zip(sums.windows(3)) {
        let [left, here, right] = [triple[0], triple[1], triple[2]];
        *pair = [((3 * here + left + 8) >> 4) as u8, ((3 * here + right + 7) >> 4) as u8];
    }
}

/// Upsamples columns that are halved and too few for a filter: repeats each sample, as libjpeg does.
#[inline(always)]
pub fn repeat(samples: &[u8], out: &mut [u8]) {
    let (pairs, _) = out.as_chunks_mut::<2>();
    for (pair, &sample) in pairs.iter_mut().zip(samples) {
        *pair = [sample; 2];
    }
}
