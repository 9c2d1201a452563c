//! Rows of RGB from rows of components, as in libjpeg's jdcolor.c: JFIF's factors in 16 bits of fixed point, rounded
//! once.

/// 65536 × 1.402, 1.772, 0.34414 and 0.71414, rounded.
const RED_CR: i32 = 91881;
const BLUE_CB: i32 = 116_130;
const GREEN_CB: i32 = 22554;
const GREEN_CR: i32 = 46802;
const ONE: i32 = 1 << 16;

/// Converts luma and colour differences to RGB.
#[inline(always)]
pub fn rgb_from_ycbcr(luma: &[u8], blue: &[u8], red: &[u8], out: &mut [u8]) {
    let (pixels, _) = out.as_chunks_mut::<3>();
    for (((pixel, &luma), &blue), &red) in pixels.iter_mut().zip(luma).zip(blue).zip(red) {
        // The whole part of each factor is added separately. The rest fits products of 16 bits, and vector instructions
        // compute many of these at once.
        let (luma, cb, cr) = (i16::from(luma), i16::from(blue) - 128, i16::from(red) - 128);
        let times = |factor: i32, value: i16| i32::from(factor as i16) * i32::from(value);
        let scaled = |sum: i32| ((sum + (1 << 15)) >> 16) as i16;
        let clamped = |value: i16| value.clamp(0, 255) as u8;
        *pixel = [
            clamped(luma + cr + scaled(times(RED_CR - ONE, cr))),
            clamped(luma - cr + scaled(times(-GREEN_CB, cb) + times(ONE - GREEN_CR, cr))),
            clamped(luma + 2 * cb + scaled(times(BLUE_CB - 2 * ONE, cb))),
        ];
    }
}

/// Converts luma alone to RGB.
#[inline(always)]
pub fn rgb_from_gray(luma: &[u8], out: &mut [u8]) {
    let (pixels, _) = out.as_chunks_mut::<3>();
    for (pixel, &luma) in pixels.iter_mut().zip(luma) {
        *pixel = [luma; 3];
    }
}

#[cfg(target_arch = "x86_64")]
pub mod x86 {
    //! The same conversion by AVX2, 32 pixels at a time. The last step of a row overlaps the one before it.

    use std::arch::x86_64::*;

    use zerocopy::transmute;

    use super::{BLUE_CB, GREEN_CB, GREEN_CR, RED_CR};
    use crate::interleave::PLACES;

    const PIXELS: usize = 32;

    /// See [`super::rgb_from_ycbcr`].
    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn rgb_from_ycbcr(luma: &[u8], blue: &[u8], red: &[u8], out: &mut [u8]) {
        let width = luma.len().min(blue.len()).min(red.len()).min(out.len() / 3);
        if width < PIXELS {
            return super::rgb_from_ycbcr(luma, blue, red, out);
        }
        let mut x = 0;
        while x < width {
            let at = x.min(width - PIXELS);
            let load = |row: &[u8]| -> __m256i {
                let samples: [u8; PIXELS] = *row[at..].first_chunk().expect("32 samples are left");
                transmute!(samples)
            };
            let planes = colors(load(luma), load(blue), load(red));
            let pixels: [u8; 3 * PIXELS] = transmute!(interleaved(planes));
            out[3 * at..3 * (at + PIXELS)].copy_from_slice(&pixels);
            x += PIXELS;
        }
    }

    /// Returns red, green and blue of 32 pixels.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn colors(luma: __m256i, blue: __m256i, red: __m256i) -> [__m256i; 3] {
        let zero = _mm256_setzero_si256();
        let low = |samples| _mm256_unpacklo_epi8(samples, zero);
        let high = |samples| _mm256_unpackhi_epi8(samples, zero);
        let low = half(low(luma), low(blue), low(red));
        let high = half(high(luma), high(blue), high(red));
        std::array::from_fn(|i| _mm256_packus_epi16(low[i], high[i]))
    }

    /// Returns red, green and blue of 16 pixels, not yet clamped.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn half(luma: __m256i, blue: __m256i, red: __m256i) -> [__m256i; 3] {
        let center = _mm256_set1_epi16(128);
        let (cb, cr) = (_mm256_sub_epi16(blue, center), _mm256_sub_epi16(red, center));
        let (cb2, cr2) = (_mm256_add_epi16(cb, cb), _mm256_add_epi16(cr, cr));
        // Computes (x × f + 2^15) >> 16 from a product's upper half: floor((floor(2 × x × f / 2^16) + 1) / 2).
        let scaled = |twice: __m256i, factor: i32| {
            let product = _mm256_mulhi_epi16(twice, _mm256_set1_epi16(factor as i16));
            _mm256_srai_epi16::<1>(_mm256_add_epi16(product, _mm256_set1_epi16(1)))
        };
        // Whole multiples of 2^16 are added separately, so that the rest of a factor fits 16 bits.
        let red = _mm256_add_epi16(cr, scaled(cr2, const { RED_CR - (1 << 16) }));
        let blue = _mm256_add_epi16(cb2, scaled(cb2, const { BLUE_CB - (2 << 16) }));
        let factors = const { (-GREEN_CB & 0xFFFF) | ((1 << 16) - GREEN_CR) << 16 };
        let green = |pairs: __m256i| {
            let sum = _mm256_madd_epi16(pairs, _mm256_set1_epi32(factors));
            _mm256_srai_epi32::<16>(_mm256_add_epi32(sum, _mm256_set1_epi32(1 << 15)))
        };
        let green = _mm256_packs_epi32(green(_mm256_unpacklo_epi16(cb, cr)), green(_mm256_unpackhi_epi16(cb, cr)));
        let green = _mm256_sub_epi16(green, cr);
        [red, green, blue].map(|difference| _mm256_add_epi16(luma, difference))
    }

    /// Interleaves three planes into 32 pixels.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn interleaved(planes: [__m256i; 3]) -> [__m256i; 3] {
        // The lower half holds bytes of the left 16 pixels, the upper half bytes of the right 16.
        let [a, b, c] = PLACES.map(|places| {
            let [red, green, blue] = std::array::from_fn(|plane| {
                let places = _mm256_broadcastsi128_si256(transmute!(places[plane]));
                _mm256_shuffle_epi8(planes[plane], places)
            });
            _mm256_or_si256(_mm256_or_si256(red, green), blue)
        });
        [
            _mm256_permute2x128_si256::<0x20>(a, b),
            _mm256_permute2x128_si256::<0x30>(c, a),
            _mm256_permute2x128_si256::<0x31>(b, c),
        ]
    }
}

#[cfg(test)]
mod tests {
    use crate::jpeg::baseline::header::Color;
    use crate::jpeg::baseline::pixels::{Row, RowScratch, Samples, rgb};
    use crate::level::Level;

    /// Computes the formulas of jdcolor.c directly.
    fn defined(luma: u8, blue: u8, red: u8) -> [u8; 3] {
        let fix = |factor: f64| (factor * 65536.0 + 0.5) as i64;
        let (luma, cb, cr) = (i64::from(luma), i64::from(blue) - 128, i64::from(red) - 128);
        let half = 1 << 15;
        let green = (-fix(0.34414) * cb + half - fix(0.71414) * cr) >> 16;
        let (red, blue) = ((fix(1.402) * cr + half) >> 16, (fix(1.772) * cb + half) >> 16);
        [luma + red, luma + green, luma + blue].map(|value| value.clamp(0, 255) as u8)
    }

    #[test]
    fn every_pair_of_differences_gives_the_defined_colors() {
        let reds: [u8; 256] = std::array::from_fn(|red| red as u8);
        let mut scratch = RowScratch::default();
        for (luma, blue) in
            [0, 1, 77, 128, 200, 255].into_iter().flat_map(|luma| (0..=255).map(move |blue| (luma, blue)))
        {
            let row = Row {
                color: Color::YCbCr,
                first: &[luma; 256],
                lead: 0,
                others: [Samples::Each(&[blue; 256]), Samples::Each(&reds)],
            };
            let wanted = reds.map(|red| defined(luma, blue, red));
            for level in Level::tested() {
                let mut out = [0; 768];
                rgb(level, &row, &mut scratch, &mut out);
                assert!(out == *wanted.as_flattened(), "{level:?}: luma {luma}, blue {blue}");
            }
        }
    }
}
