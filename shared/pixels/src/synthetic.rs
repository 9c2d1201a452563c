//! Pictures with the statistics of photographs, made from integers alone, for demo data, tests and benches.
//!
//! A picture is eight octaves of value noise whose amplitude falls with their frequency, and discs with sharp edges.

/// Amplitudes of the octaves, for cells of 1 to 128 pixels; their sum is 256.
const AMPLITUDES: [u32; 8] = [3, 6, 9, 14, 24, 40, 64, 96];

/// Returns the RGB rows of a picture, which depends on `seed`.
pub fn photo(width: u32, height: u32, seed: u32) -> Vec<u8> {
    let mut pixels = Vec::with_capacity(width as usize * height as usize * 3);
    for y in 0..height {
        for x in 0..width {
            for channel in 0..3 {
                pixels.push(value(x, y, channel, seed));
            }
        }
    }
    pixels
}

fn value(x: u32, y: u32, channel: u32, seed: u32) -> u8 {
    let octaves = AMPLITUDES.iter().zip(0..);
    let sum: u32 = octaves.map(|(amplitude, k)| amplitude * noise(x, y, channel, k, seed)).sum();
    let smooth = (sum >> 8) as i32 * 2 - 128;
    // One disc in each cell of 64 pixels, with its own radius and brightness.
    let disc = hash(x >> 6, y >> 6, 3, 8, seed);
    let (across, down) = ((x & 63) as i32 - 32, (y & 63) as i32 - 32);
    let radius = (disc & 31) as i32;
    let edge = if across * across + down * down < radius * radius { (disc >> 5) as i32 * 16 - 56 } else { 0 };
    (smooth + edge).clamp(0, 255) as u8
}

/// Returns noise on a grid of 2^k pixels, bilinear in between.
fn noise(x: u32, y: u32, channel: u32, k: u32, seed: u32) -> u32 {
    let cell = 1 << k;
    let (column, row) = (x >> k, y >> k);
    let (across, down) = (x & (cell - 1), y & (cell - 1));
    let corner = |dx: u32, dy: u32| hash(column + dx, row + dy, channel, k, seed);
    let upper = corner(0, 0) * (cell - across) + corner(1, 0) * across;
    let lower = corner(0, 1) * (cell - across) + corner(1, 1) * across;
    (upper * (cell - down) + lower * down) >> (2 * k)
}

/// Returns a byte for a cell.
fn hash(x: u32, y: u32, channel: u32, k: u32, seed: u32) -> u32 {
    let words =
        [(x, 374_761_393), (y, 668_265_263), (channel, 2_246_822_519), (k, 3_266_489_917), (seed, 2_654_435_761)];
    let sum = words.iter().fold(0u32, |sum, &(word, factor)| sum.wrapping_add(word.wrapping_mul(factor)));
    let mixed = (sum ^ (sum >> 13)).wrapping_mul(1_274_126_177);
    (mixed ^ (mixed >> 16)) & 0xFF
}

/// Computes CRC-32 as zlib does.
#[cfg(test)]
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 })
    })
}
