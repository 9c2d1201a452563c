//! Bilinear interpolation by AVX2, eight pixels at once.

use std::arch::x86_64::*;

use zerocopy::transmute;

use super::{ONE, PLACE_BITS, Places, View, at_edge, find};
use crate::geometry::Rect;
use crate::warp::Warp;

/// Pixels that are made at once.
const LANES: usize = 8;
/// Sides of an image below this length have places that fit 32 bits.
const SIDE_END: u32 = 1 << 19;
/// Bytes of one read. It begins at a pixel; that pixel and its neighbour to the right need six of the bytes.
const READ: usize = 16;

/// Eight pixels.
type Pixels = [u8; 3 * LANES];

/// An image whose offsets and places fit 32 bits.
pub struct Source<'a> {
    view: View<'a>,
    /// The pixels that have a row below them.
    upper: &'a [u8],
    /// The same number of bytes, from the second row on.
    lower: &'a [u8],
    /// Bytes of a row.
    stride: i32,
    /// Offset of the pixel in the image's upper left corner. Below 0 if the pixel is not in memory.
    origin: i32,
}

impl<'a> Source<'a> {
    /// Returns `None` if the image is too large, or if no pixel has all bytes that one read takes.
    pub fn new(view: View<'a>) -> Option<Self> {
        let stride = view.columns as usize * 3;
        let lower = view.pixels.get(stride..).filter(|lower| lower.len() >= READ)?;
        let upper = &view.pixels[..lower.len()];
        i32::try_from(view.pixels.len()).ok()?;
        if view.size.0.max(view.size.1).max(view.columns) >= SIDE_END {
            return None;
        }
        let [x, y] = [view.rect.x, view.rect.y].map(i64::from);
        let origin = (i64::from(view.left) - x) * 3 - y * stride as i64;
        Some(Self { view, upper, lower, stride: stride as i32, origin: i32::try_from(origin).ok()? })
    }

    /// Loads sixteen bytes of two pixels' rows.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(rows: &[u8], offsets: [u32; 2]) -> __m256i {
        let [one, other] = offsets.map(|offset| -> __m128i {
            let bytes: &[u8; READ] = rows[offset as usize..].first_chunk().expect("offsets are limited");
            transmute!(*bytes)
        });
        _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(one), other)
    }
}

/// Makes the rectangle `made` of a warp's result.
#[target_feature(enable = "avx2")]
pub fn make<const AFFINE: bool>(warp: &Warp, from: &Source<'_>, made: Rect, out: &mut [u8]) {
    let fill = warp.sampling.fill;
    let filled: Pixels = std::array::from_fn(|at| fill.unwrap_or_default()[at % 3]);
    let mut places = [[0; LANES]; 2];
    for (y, row) in (made.y..).zip(out.chunks_exact_mut(made.width as usize * 3)) {
        for (x, pixels) in (made.x..).step_by(LANES).zip(row.chunks_mut(3 * LANES)) {
            find::<AFFINE, LANES, i32>(warp, from.view.size, (x, y), ONE as f64, &mut places);
            let eight = make_eight(from, &places, pixels.len() / 3, fill, &filled);
            match <&mut Pixels>::try_from(&mut *pixels) {
                Ok(pixels) => *pixels = eight,
                Err(_) => pixels.copy_from_slice(&eight[..pixels.len()]),
            }
        }
    }
}

/// Makes eight pixels from their places. The caller uses the first `count`; the memory may lack the pixels around the
/// others.
#[inline]
#[target_feature(enable = "avx2")]
fn make_eight(
    from: &Source<'_>,
    places: &Places<LANES, i32>,
    count: usize,
    fill: Option<[u8; 3]>,
    filled: &Pixels,
) -> Pixels {
    let [of_x, of_y]: [__m256i; 2] = places.map(|places| transmute!(places));
    let [x, y] = [of_x, of_y].map(|places| _mm256_srai_epi32::<{ PLACE_BITS as i32 }>(places));
    let [width, height] = [from.view.size.0, from.view.size.1].map(|length| _mm256_set1_epi32(length as i32));
    let ones = _mm256_set1_epi32(-1);
    let is_near =
        |place, length| _mm256_andnot_si256(_mm256_cmpgt_epi32(ones, place), _mm256_cmpgt_epi32(length, place));
    let near = _mm256_and_si256(is_near(x, width), is_near(y, height));
    if _mm256_testz_si256(near, near) == 1 {
        return *filled;
    }
    // Adding all ones to a length gives the last pixel's place.
    let has_next = |place, length| {
        _mm256_and_si256(_mm256_cmpgt_epi32(place, ones), _mm256_cmpgt_epi32(_mm256_add_epi32(length, ones), place))
    };
    let three_x = _mm256_add_epi32(_mm256_add_epi32(x, x), x);
    let rows = _mm256_mullo_epi32(y, _mm256_set1_epi32(from.stride));
    let offsets = _mm256_add_epi32(_mm256_add_epi32(rows, three_x), _mm256_set1_epi32(from.origin));
    let last = _mm256_set1_epi32((from.lower.len() - READ) as i32);
    let readable = _mm256_cmpeq_epi32(_mm256_min_epu32(offsets, last), offsets);
    let inside = _mm256_and_si256(readable, _mm256_and_si256(has_next(x, width), has_next(y, height)));
    // Lanes whose corners cannot be read blend the first pixels of the memory, and are made again below.
    let offsets: [u32; LANES] = transmute!(_mm256_and_si256(offsets, inside));
    let mut out = blend_eight(from, offsets, of_x, of_y);
    let mut others = !_mm256_movemask_ps(_mm256_castsi256_ps(inside)) & ((1 << count) - 1);
    while others != 0 {
        let at = others.trailing_zeros() as usize;
        let pixel = at_edge(&from.view, [places[0][at], places[1][at]].map(i64::from), fill);
        out[3 * at..][..3].copy_from_slice(&pixel);
        others &= others - 1;
    }
    out
}

/// Blends the four pixels around each of eight places. The upper left ones have these offsets.
#[inline]
#[target_feature(enable = "avx2")]
fn blend_eight(from: &Source<'_>, offsets: [u32; LANES], of_x: __m256i, of_y: __m256i) -> Pixels {
    let part = _mm256_set1_epi32(ONE as i32 - 1);
    let [right, down] = [_mm256_and_si256(of_x, part), _mm256_and_si256(of_y, part)];
    // The weight of the left pixel in the lower half of a lane, that of the right pixel in the upper half.
    let left = _mm256_sub_epi32(_mm256_set1_epi32(ONE as i32), right);
    let across = _mm256_or_si256(left, _mm256_slli_epi32::<16>(right));
    // Pixel i and pixel i + 4, so that their weights are copied within the halves of a register.
    let two = |offsets, across, down| blend_two(from, offsets, across, down);
    let of = |at: usize| [offsets[at], offsets[at + 4]];
    let sums = [
        two(of(0), _mm256_shuffle_epi32::<0x00>(across), _mm256_shuffle_epi32::<0x00>(down)),
        two(of(1), _mm256_shuffle_epi32::<0x55>(across), _mm256_shuffle_epi32::<0x55>(down)),
        two(of(2), _mm256_shuffle_epi32::<0xAA>(across), _mm256_shuffle_epi32::<0xAA>(down)),
        two(of(3), _mm256_shuffle_epi32::<0xFF>(across), _mm256_shuffle_epi32::<0xFF>(down)),
    ];
    let values = _mm256_packus_epi16(_mm256_packs_epi32(sums[0], sums[1]), _mm256_packs_epi32(sums[2], sums[3]));
    // Drops every fourth byte.
    let dense = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    let values = _mm256_shuffle_epi8(values, _mm256_broadcastsi128_si256(dense));
    let values = _mm256_permutevar8x32_epi32(values, _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 3, 7));
    let values: [u8; 32] = transmute!(values);
    *values.first_chunk().expect("24 of 32 bytes")
}

/// Blends the four pixels around two places. `across` has the weights of the left and the right pixels, `down` the
/// weights of the lower pixels.
#[inline]
#[target_feature(enable = "avx2")]
fn blend_two(from: &Source<'_>, offsets: [u32; 2], across: __m256i, down: __m256i) -> __m256i {
    // Each value beside that of the pixel to the right, as 16 bits.
    let pairs = _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1);
    let pairs = _mm256_broadcastsi128_si256(pairs);
    let [above, below] = [from.upper, from.lower]
        .map(|rows| _mm256_madd_epi16(_mm256_shuffle_epi8(Source::load(rows, offsets), pairs), across));
    let round = _mm256_set1_epi32(1 << (2 * PLACE_BITS - 1));
    let above_rounded = _mm256_add_epi32(_mm256_slli_epi32::<{ PLACE_BITS as i32 }>(above), round);
    let sum = _mm256_add_epi32(above_rounded, _mm256_mullo_epi32(_mm256_sub_epi32(below, above), down));
    _mm256_srli_epi32::<{ 2 * PLACE_BITS as i32 }>(sum)
}
