//! Makes the pixels of a warp from a rectangle of the image.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod x86;

use super::{Interpolation, Sampling, Warp};
use crate::geometry::Rect;
use crate::level::{Level, for_levels};

/// Pixels whose places are computed at once.
const BLOCK: usize = 64;
/// Bits behind the binary point of a place, for bilinear and bicubic interpolation.
const PLACE_BITS: u32 = 11;
const ONE: i64 = 1 << PLACE_BITS;

/// A rectangle of an image, as rows that may be wider than the rectangle.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// Width and height of the image.
    pub size: (u32, u32),
    pub rect: Rect,
    /// Columns of `pixels`.
    pub columns: u32,
    /// Column of `pixels` at which the rectangle begins.
    pub left: u32,
    pub pixels: &'a [u8],
}

impl View<'_> {
    /// Returns whether a pixel lies within the image.
    fn has(&self, x: i64, y: i64) -> bool {
        (0..i64::from(self.size.0)).contains(&x) && (0..i64::from(self.size.1)).contains(&y)
    }

    /// Returns the index of a pixel's first value. The pixel has to lie in the rectangle.
    fn index(&self, x: i64, y: i64) -> usize {
        let row = y - i64::from(self.rect.y);
        let column = x - i64::from(self.rect.x) + i64::from(self.left);
        (row * i64::from(self.columns) + column) as usize * 3
    }

    /// Returns the pixel at x and y and its neighbours to the right, below, and below right, each with red in the
    /// lowest byte. Returns `None` if one of them lies outside the image, or if the last is the image's last pixel:
    /// each read takes one byte beyond the pixel.
    #[inline(always)]
    fn corners(&self, x: i64, y: i64) -> Option<[u32; 4]> {
        // A place below 0 is a large number without a sign.
        let [last_x, last_y] = [self.size.0, self.size.1].map(|length| u64::from(length.saturating_sub(1)));
        if x as u64 >= last_x || y as u64 >= last_y {
            return None;
        }
        let at = self.index(x, y);
        let two = |at: usize| {
            let bytes = self.pixels.get(at..at + 7)?.first_chunk::<7>()?;
            let [r, g, b, right_r, right_g, right_b, behind] = *bytes;
            Some([u32::from_le_bytes([r, g, b, right_r]), u32::from_le_bytes([right_r, right_g, right_b, behind])])
        };
        let ([left, right], [lower_left, lower_right]) = (two(at)?, two(at + self.columns as usize * 3)?);
        Some([left, right, lower_left, lower_right])
    }

    /// Returns a pixel, or `fill` for one outside the image.
    fn pixel(&self, x: i64, y: i64, fill: [u8; 3]) -> [u8; 3] {
        if !self.has(x, y) {
            return fill;
        }
        let at = self.index(x, y);
        [self.pixels[at], self.pixels[at + 1], self.pixels[at + 2]]
    }
}

/// Makes the rectangle `made` of a warp's result. `from` has the pixels that the warp needs for the rectangle.
pub fn make(level: Level, warp: &Warp, from: View<'_>, made: Rect, out: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if let (Level::Avx2(_), Interpolation::Bilinear) = (level, warp.sampling.interpolation)
        && let Some(source) = x86::Source::new(from)
    {
        let make = if warp.is_affine() { x86::make::<true> } else { x86::make::<false> };
        // SAFETY: the level proves that the processor has AVX2.
        return unsafe { make(warp, &source, made, out) };
    }
    make_any(level, warp, from, made, out);
}

for_levels! {
    /// Makes a rectangle by whatever interpolation, of an image of whatever size.
    make_any = make_rows(warp: &Warp, from: View<'_>, made: Rect, out: &mut [u8])
}

#[inline(always)]
fn make_rows(warp: &Warp, from: View<'_>, made: Rect, out: &mut [u8]) {
    match warp.is_affine() {
        true => make_by::<true>(warp, &from, made, out),
        false => make_by::<false>(warp, &from, made, out),
    }
}

/// Places in the image, in units of a part of a pixel.
type Places<const COUNT: usize, Place> = [[Place; COUNT]; 2];

for_levels! {
    /// Makes a rectangle of an image whose pixels come from other places: at distances along x and y from their own,
    /// which are given for all pixels of the image.
    displace = displace_rows(from: View<'_>, distances: [&[f32]; 2], sampling: Sampling, made: Rect, out: &mut [u8])
}

#[inline(always)]
fn displace_rows(from: View<'_>, distances: [&[f32]; 2], sampling: Sampling, made: Rect, out: &mut [u8]) {
    let mut places = [[0; BLOCK]; 2];
    let (width, height) = from.size;
    let scale = scale_of(sampling.interpolation);
    let most = [width, height].map(|length| f64::from(length) + 1.0);
    for (y, row) in (made.y..).zip(out.chunks_exact_mut(made.width as usize * 3)) {
        for (first, pixels) in (made.x..).step_by(BLOCK).zip(row.as_chunks_mut::<3>().0.chunks_mut(BLOCK)) {
            let start = y as usize * width as usize + first as usize;
            let [of_x, of_y] = distances.map(|distances| &distances[start..][..pixels.len()]);
            for (at, (&along_x, &along_y)) in of_x.iter().zip(of_y).enumerate() {
                let place = [f64::from(first + at as u32) + f64::from(along_x), f64::from(y) + f64::from(along_y)];
                places[0][at] = i64::rounded(within(place[0], most[0]) * scale);
                places[1][at] = i64::rounded(within(place[1], most[1]) * scale);
            }
            pixels_at(&from, &places, sampling, pixels);
        }
    }
}

/// Returns the units of a place in a pixel.
#[inline(always)]
fn scale_of(interpolation: Interpolation) -> f64 {
    if interpolation == Interpolation::Nearest { 1.0 } else { ONE as f64 }
}

/// Makes pixels from their places.
#[inline(always)]
fn pixels_at(
    from: &View<'_>,
    places: &Places<BLOCK, i64>,
    Sampling { interpolation, fill }: Sampling,
    out: &mut [[u8; 3]],
) {
    // Calls by name, not through a parameter: a function that is passed on is not built for the level.
    match interpolation {
        Interpolation::Nearest => nearest(from, places, fill.unwrap_or_default(), out),
        Interpolation::Bilinear => bilinear(from, places, fill, out),
        Interpolation::Bicubic => bicubic(from, places, fill.unwrap_or_default(), out),
    }
}

#[inline(always)]
fn make_by<const AFFINE: bool>(warp: &Warp, from: &View<'_>, made: Rect, out: &mut [u8]) {
    let mut places = [[0; BLOCK]; 2];
    let scale = scale_of(warp.sampling.interpolation);
    for (y, row) in (made.y..).zip(out.chunks_exact_mut(made.width as usize * 3)) {
        for (number, pixels) in (0..).zip(row.as_chunks_mut::<3>().0.chunks_mut(BLOCK)) {
            find::<AFFINE, BLOCK, i64>(warp, from.size, (made.x + number * BLOCK as u32, y), scale, &mut places);
            pixels_at(from, &places, warp.sampling, pixels);
        }
    }
}

/// Finds the places of the pixels from one to the right. Limits them to less than two pixels outside of the image.
#[inline(always)]
fn find<const AFFINE: bool, const COUNT: usize, Place: Whole>(
    warp: &Warp,
    size: (u32, u32),
    (x, y): (u32, u32),
    scale: f64,
    places: &mut Places<COUNT, Place>,
) {
    let (first, y) = (f64::from(x), f64::from(y));
    let [across, down, n] = warp.matrix.map(|[of_x, of_y, one]| (of_x, of_y * y + one));
    let [most_x, most_y] = [size.0, size.1].map(|length| f64::from(length) + 1.0);
    let [of_x, of_y] = places;
    for (at, (to_x, to_y)) in of_x.iter_mut().zip(of_y).enumerate() {
        let x = first + at as i32 as f64;
        let [mut place_x, mut place_y] = [across.0 * x + across.1, down.0 * x + down.1];
        if !AFFINE {
            let n = n.0 * x + n.1;
            (place_x, place_y) = (place_x / n, place_y / n);
        }
        *to_x = Place::rounded(within(place_x, most_x) * scale);
        *to_y = Place::rounded(within(place_y, most_y) * scale);
    }
}

/// Returns the value, limited to −2 and `most`; −2 if it is NaN.
#[inline(always)]
fn within(value: f64, most: f64) -> f64 {
    let value = if value > -2.0 { value } else { -2.0 };
    if value < most { value } else { most }
}

/// Whole numbers that places are rounded to.
trait Whole: Sized {
    /// Rounds a value half to even. The value has to fit the type and to lie below 2⁵¹.
    fn rounded(value: f64) -> Self;
}

/// A number that has no bits for a fraction, so that a sum with it rounds half to even.
const LARGE: f64 = (3u64 << 51) as f64;

impl Whole for i64 {
    #[inline(always)]
    fn rounded(value: f64) -> Self {
        (value + LARGE).to_bits() as i64 - LARGE.to_bits() as i64
    }
}

impl Whole for i32 {
    #[inline(always)]
    fn rounded(value: f64) -> Self {
        const { assert!(LARGE.to_bits() as u32 == 0) };
        (value + LARGE).to_bits() as i32
    }
}

#[inline(always)]
fn nearest(from: &View<'_>, [of_x, of_y]: &Places<BLOCK, i64>, fill: [u8; 3], out: &mut [[u8; 3]]) {
    for (pixel, (&x, &y)) in out.iter_mut().zip(of_x.iter().zip(of_y)) {
        *pixel = from.pixel(x, y, fill);
    }
}

#[inline(always)]
fn bilinear(from: &View<'_>, [of_x, of_y]: &Places<BLOCK, i64>, fill: Option<[u8; 3]>, out: &mut [[u8; 3]]) {
    let (mut corners, mut outside) = ([[0; BLOCK]; 4], 0u64);
    for at in 0..out.len() {
        match from.corners(of_x[at] >> PLACE_BITS, of_y[at] >> PLACE_BITS) {
            Some(values) => (0..4).for_each(|corner| corners[corner][at] = values[corner]),
            None => outside |= 1 << at,
        }
    }
    if outside.count_ones() as usize != out.len() {
        let mut block = [[0; 3]; BLOCK];
        blend_block(&corners, [of_x, of_y].map(|places| places.map(|place| (place & (ONE - 1)) as i32)), &mut block);
        out.copy_from_slice(&block[..out.len()]);
    }
    while outside != 0 {
        let at = outside.trailing_zeros() as usize;
        out[at] = at_edge(from, [of_x[at], of_y[at]], fill);
        outside &= outside - 1;
    }
}

/// Blends the four pixels around each place. `corners` has the values of the upper left, upper right, lower left and
/// lower right pixels: see [`View::corners`]. `right` and `lower` are the distances from the left and the upper pixels.
#[inline(always)]
fn blend_block(corners: &[[u32; BLOCK]; 4], [right, lower]: [[i32; BLOCK]; 2], out: &mut [[u8; 3]; BLOCK]) {
    let mut planes = [[0; BLOCK]; 3];
    for (plane, shift) in planes.iter_mut().zip([0, 8, 16]) {
        for at in 0..BLOCK {
            let [upper_left, upper_right, lower_left, lower_right] =
                [0, 1, 2, 3].map(|corner| (corners[corner][at] >> shift & 255) as i32);
            let above = (upper_left << PLACE_BITS) + (upper_right - upper_left) * right[at];
            let below = (lower_left << PLACE_BITS) + (lower_right - lower_left) * right[at];
            let sum = (above << PLACE_BITS) + (below - above) * lower[at];
            plane[at] = ((sum + (1 << (2 * PLACE_BITS - 1))) >> (2 * PLACE_BITS)) as u8;
        }
    }
    for at in 0..BLOCK {
        out[at] = [planes[0][at], planes[1][at], planes[2][at]];
    }
}

/// Weights of the left and the right pixel, and of the upper and the lower one. Each pair adds up to `ONE`.
type PixelWeights = [(u32, u32); 2];

/// Blends two pixels of each of two rows. The values have twice `PLACE_BITS` bits behind the binary point.
#[inline(always)]
fn blend([(left, right), (upper, lower)]: PixelWeights, [upper_row, lower_row]: [&[u8]; 2]) -> [u32; 3] {
    std::array::from_fn(|channel| {
        let along = |row: &[u8]| u32::from(row[channel]) * left + u32::from(row[channel + 3]) * right;
        along(upper_row) * upper + along(lower_row) * lower
    })
}

/// Returns the value of a place where some of the four pixels lie outside the image, or at its end. As in torchvision,
/// the image is blended with black there, and the result with the fill colour, if there is one, by the same weight.
fn at_edge(from: &View<'_>, place: [i64; 2], fill: Option<[u8; 3]>) -> [u8; 3] {
    let [x, y] = place.map(|place| place >> PLACE_BITS);
    if !(-1..i64::from(from.size.0)).contains(&x) || !(-1..i64::from(from.size.1)).contains(&y) {
        return fill.unwrap_or_default();
    }
    let weights = place.map(|place| (place & (ONE - 1)) as u32).map(|part| (ONE as u32 - part, part));
    let rows = [y, y + 1].map(|y| [x, x + 1].map(|x| from.pixel(x, y, [0; 3])));
    let sums = blend(weights, [rows[0].as_flattened(), rows[1].as_flattened()]);
    let one = 1u64 << (2 * PLACE_BITS);
    let Some(fill) = fill else { return sums.map(|sum| ((u64::from(sum) + one / 2) / one) as u8) };
    let [across, down] = weights;
    let inside = |x: i64, y: i64, weight: u32| if from.has(x, y) { u64::from(weight) } else { 0 };
    let inside = inside(x, y, across.0 * down.0)
        + inside(x + 1, y, across.1 * down.0)
        + inside(x, y + 1, across.0 * down.1)
        + inside(x + 1, y + 1, across.1 * down.1);
    std::array::from_fn(|channel| {
        let sum = u64::from(sums[channel]) * inside + u64::from(fill[channel]) * (one - inside) * one;
        ((sum + one * one / 2) / (one * one)) as u8
    })
}

/// Bits behind the binary point of a cubic's weights.
const WEIGHT_BITS: u32 = 14;
/// Bits behind the binary point of a value between the two directions.
const BETWEEN_BITS: u32 = 8;

/// The weights of the four pixels around each place between two pixels. Each four add up to 1.
static CUBIC: [[i16; 4]; ONE as usize] = cubic_weights();

const fn cubic_weights() -> [[i16; 4]; ONE as usize] {
    let mut weights = [[0; 4]; ONE as usize];
    let cube = ONE * ONE * ONE;
    let mut right = 0;
    while right < ONE {
        let left = ONE - right;
        // The cubic of a pixel beyond the neighbour at this distance is −d (1 − d)², with a = −1.
        let first = rounded(-right * left * left, cube);
        let last = rounded(-left * right * right, cube);
        // That of the neighbour is d³ − 2 d² + 1.
        let second = rounded(cube - 2 * right * right * ONE + right * right * right, cube);
        let third = (1 << WEIGHT_BITS) - first - second - last;
        weights[right as usize] = [first as i16, second as i16, third as i16, last as i16];
        right += 1;
    }
    weights
}

/// Returns a quotient as a weight, rounded to the nearest.
const fn rounded(value: i64, unit: i64) -> i64 {
    (value * (1 << WEIGHT_BITS) + unit / 2).div_euclid(unit)
}

#[inline(always)]
fn bicubic(from: &View<'_>, [of_x, of_y]: &Places<BLOCK, i64>, fill: [u8; 3], out: &mut [[u8; 3]]) {
    // Places are counted from the centres of pixels.
    let has = |place: i64, length: u32| (-ONE / 2..i64::from(length) * ONE - ONE / 2).contains(&place);
    for (pixel, (&x, &y)) in out.iter_mut().zip(of_x.iter().zip(of_y)) {
        *pixel = match has(x, from.size.0) && has(y, from.size.1) {
            true => cubic_pixel(from, [x, y]),
            false => fill,
        };
    }
}

/// Returns the value of a place within the image, whose edge pixels go on outside. Rounds down, as Pillow does.
#[inline(always)]
fn cubic_pixel(from: &View<'_>, place: [i64; 2]) -> [u8; 3] {
    let [across, down] = place.map(|place| CUBIC[(place & (ONE - 1)) as usize].map(i32::from));
    let around = |axis: usize, length: u32| {
        let first = (place[axis] >> PLACE_BITS) - 1;
        [0, 1, 2, 3].map(|tap| (first + tap).clamp(0, i64::from(length) - 1))
    };
    let (columns, rows) = (around(0, from.size.0), around(1, from.size.1));
    let mut sums = [0; 3];
    for (y, of_row) in rows.into_iter().zip(down) {
        let mut along = [1 << (WEIGHT_BITS - BETWEEN_BITS - 1); 3];
        for (x, weight) in columns.into_iter().zip(across) {
            let at = from.index(x, y);
            for (sum, &value) in along.iter_mut().zip(&from.pixels[at..at + 3]) {
                *sum += i32::from(value) * weight;
            }
        }
        // The weights' absolute values add up to 1.5 at most, so that sums fit 32 bits.
        for (sum, along) in sums.iter_mut().zip(along) {
            *sum += (along >> (WEIGHT_BITS - BETWEEN_BITS)) * of_row;
        }
    }
    sums.map(|sum| (sum >> (WEIGHT_BITS + BETWEEN_BITS)).clamp(0, 255) as u8)
}
