//! Rows of colour differences at full width: libjpeg's fancy upsampling (jdsample.c), a triangle filter over the nearest samples.
//!
//! libjpeg's special cases at the edges are those of an edge sample that is repeated, which is what the callers do. Its roundings
//! differ from column to column, or from row to row, so that they add no bias.

/// Samples of a row and of the row next to it, weighted 3 to 1.
#[inline(always)]
pub fn blend(near: &[u8], far: &[u8], sums: &mut [u16]) {
    for ((sum, &near), &far) in sums.iter_mut().zip(near).zip(far) {
        *sum = 3 * u16::from(near) + u16::from(far);
    }
}

/// Rows halved downwards: the row of pixels next to the `far` row above or below.
#[inline(always)]
pub fn down(near: &[u8], far: &[u8], is_upper: bool, out: &mut [u8]) {
    let round = if is_upper { 1 } else { 2 };
    for ((out, &near), &far) in out.iter_mut().zip(near).zip(far) {
        *out = ((3 * u16::from(near) + u16::from(far) + round) >> 2) as u8;
    }
}

/// Columns halved: two pixels for each sample but the first and the last of `samples`, which are neighbours alone.
#[inline(always)]
pub fn across(samples: &[u8], out: &mut [u8]) {
    let (pairs, _) = out.as_chunks_mut::<2>();
    for (pair, triple) in pairs.iter_mut().zip(samples.windows(3)) {
        let [left, here, right] = [triple[0], triple[1], triple[2]].map(u16::from);
        *pair = [((3 * here + left + 1) >> 2) as u8, ((3 * here + right + 2) >> 2) as u8];
    }
}

/// Columns and rows halved: as [`across`], of sums that [`blend`] made.
#[inline(always)]
pub fn across_sums(sums: &[u16], out: &mut [u8]) {
    let (pairs, _) = out.as_chunks_mut::<2>();
    for (pair, triple) in pairs.iter_mut().zip(sums.windows(3)) {
        let [left, here, right] = [triple[0], triple[1], triple[2]];
        *pair = [((3 * here + left + 8) >> 4) as u8, ((3 * here + right + 7) >> 4) as u8];
    }
}

/// Columns halved and too few of them for a filter: libjpeg repeats each sample.
#[inline(always)]
pub fn repeat(samples: &[u8], out: &mut [u8]) {
    let (pairs, _) = out.as_chunks_mut::<2>();
    for (pair, &sample) in pairs.iter_mut().zip(samples) {
        *pair = [sample; 2];
    }
}
