//! Eight values of n bits each, and their n bytes.

/// The widest field, in bits.
pub const MAX_WIDTH: u8 = 8;

/// Moves eight fields of n bits to the bytes of a word, and back.
pub trait Fields {
    /// Returns a word whose bytes are the eight fields of `width` bits that `packed` begins with. Higher bits of
    /// `packed` do not matter.
    fn spread(packed: u64, width: u8) -> u64;

    /// Returns the eight bytes of `word` as fields of `width` bits. Each byte must fit into its field.
    fn squeeze(word: u64, width: u8) -> u64;
}

/// Works by shifts and masks, on every processor.
pub struct Shifts;

/// For each width n: 4n bits, 2n bits in each half of a word, n bits in each quarter.
const MASKS: [[u64; 3]; MAX_WIDTH as usize + 1] = {
    let mut masks = [[0; 3]; MAX_WIDTH as usize + 1];
    let mut width = 0;
    while width <= MAX_WIDTH as usize {
        masks[width] = [
            (1 << (4 * width)) - 1,
            ((1 << (2 * width)) - 1) * 0x0000_0001_0000_0001,
            ((1 << width) - 1) * 0x0001_0001_0001_0001,
        ];
        width += 1;
    }
    masks
};

impl Fields for Shifts {
    #[inline(always)]
    fn spread(packed: u64, width: u8) -> u64 {
        let [half, quarter, eighth] = MASKS[usize::from(width)];
        let halves = packed & half | (packed >> (4 * width) & half) << 32;
        let quarters = halves & quarter | (halves >> (2 * width) & quarter) << 16;
        quarters & eighth | (quarters >> width & eighth) << 8
    }

    #[inline(always)]
    fn squeeze(word: u64, width: u8) -> u64 {
        let pairs = word & 0x00FF_00FF_00FF_00FF | (word >> 8 & 0x00FF_00FF_00FF_00FF) << width;
        let fours = pairs & 0x0000_FFFF_0000_FFFF | (pairs >> 16 & 0x0000_FFFF_0000_FFFF) << (2 * width);
        fours & 0xFFFF_FFFF | (fours >> 32) << (4 * width)
    }
}
