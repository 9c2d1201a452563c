//! Interleaves three planes into pixels one by one, and makes tables by which vector instructions shuffle sixteen
//! pixels at once.

/// Pixels that vector instructions shuffle at a time.
pub const LANES: usize = 16;
/// Entry of a table for a byte of another plane: the shuffle makes it 0.
pub const NONE: u8 = 0x80;

/// For each third of the 48 bytes of sixteen pixels and for each plane: the pixel to which a byte belongs, or [`NONE`]
/// if the byte comes from another plane.
pub const PLACES: [[[u8; LANES]; 3]; 3] = {
    let mut tables = [[[NONE; LANES]; 3]; 3];
    let mut at = 0;
    while at < 3 * LANES {
        tables[at / LANES][at % 3][at % LANES] = (at / 3) as u8;
        at += 1;
    }
    tables
};

/// Returns the pixels of three planes in order.
#[inline(always)]
pub fn pixels([red, green, blue]: [&[u8]; 3]) -> impl Iterator<Item = [u8; 3]> {
    red.iter().zip(green).zip(blue).map(|((&red, &green), &blue)| [red, green, blue])
}

/// Interleaves three planes into `out`.
#[inline(always)]
pub fn rgb_from_planes(planes: [&[u8]; 3], out: &mut [u8]) {
    let (out, _) = out.as_chunks_mut::<3>();
    out.iter_mut().zip(pixels(planes)).for_each(|(out, pixel)| *out = pixel);
}
