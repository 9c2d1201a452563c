//! Mirroring by SSSE3's shuffle, five pixels at once.

use std::arch::x86_64::*;

use zerocopy::transmute;

/// Bytes of five pixels.
const FIVE: usize = 15;
/// Where the bytes of five mirrored pixels lie among sixteen bytes: the first one belongs to another pixel. The last
/// byte of the result belongs to the next pixels.
const PLACES: [u8; 16] = [13, 14, 15, 10, 11, 12, 7, 8, 9, 4, 5, 6, 1, 2, 3, 0];

/// Writes the pixels of a row in reverse order.
#[target_feature(enable = "ssse3")]
pub fn mirror(from: &[u8], to: &mut [u8]) {
    let places: __m128i = transmute!(PLACES);
    let (mut end, mut start) = (from.len(), 0);
    while let Some(sixteen) = from[..end].last_chunk::<16>() {
        let mirrored = _mm_shuffle_epi8(transmute!(*sixteen), places);
        *to[start..].first_chunk_mut::<16>().expect("as many bytes as are left of the source") = transmute!(mirrored);
        (end, start) = (end - FIVE, start + FIVE);
    }
    super::mirror_each(&from[..end], &mut to[start..]);
}
