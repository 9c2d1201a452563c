//! Pixels out of three planes: one by one, and the tables by which vector instructions do sixteen at once.

/// Pixels that vector instructions rearrange at a time.
pub const LANES: usize = 16;
/// A place in a table that no pixel has: shuffled by it a byte is 0.
pub const NONE: u8 = 0x80;

/// For each sixteen bytes of sixteen pixels and each plane: which pixel a byte is of, or [`NONE`] where it is of another plane.
pub const PLACES: [[[u8; LANES]; 3]; 3] = {
    let mut tables = [[[NONE; LANES]; 3]; 3];
    let mut at = 0;
    while at < 3 * LANES {
        tables[at / LANES][at % 3][at % LANES] = (at / 3) as u8;
        at += 1;
    }
    tables
};

/// The pixels of three planes, one after the other.
#[inline(always)]
pub fn pixels([red, green, blue]: [&[u8]; 3]) -> impl Iterator<Item = [u8; 3]> {
    red.iter().zip(green).zip(blue).map(|((&red, &green), &blue)| [red, green, blue])
}

/// Writes the pixels of three planes.
#[inline(always)]
pub fn rgb_from_planes(planes: [&[u8]; 3], out: &mut [u8]) {
    let (out, _) = out.as_chunks_mut::<3>();
    out.iter_mut().zip(pixels(planes)).for_each(|(out, pixel)| *out = pixel);
}
