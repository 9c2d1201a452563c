//! Look-up tables of Huffman codes that resolve a code together with the bits of its value, and often two such pairs at once.
//!
//! An entry is found by the next bits of a stream. It says in its lowest six bits how many of them it resolves, so that it serves as
//! the count of a shift itself: what follows in the stream waits for nothing but a load and that shift.
//!
//! Codes are canonical (T.81, annex C).

use super::NotMine;
use super::header::HuffmanSpec;

/// Bits of the stream by which a table of AC coefficients is indexed, and one of DC differences.
pub const LOOKUP_BITS: u32 = 11;
pub const DC_BITS: u32 = 9;
/// Bits of the longest code, and of it with its value.
const CODE_BITS: u32 = 16;
/// The largest AC coefficient of an 8-bit encoder has ten bits (T.81, table F.2), the largest DC difference eleven (table F.1).
const AC_VALUE_BITS: u32 = 10;
const DC_VALUE_BITS: u8 = 11;
/// AC coefficients of more bits are resolved one by one, so that their range can be checked: with steps of up to 255, a dequantised
/// one of six bits is at most 63 × 255.
const SHORT_VALUE_BITS: u32 = 6;

/// Bits that are passed over by one look-up at most.
pub const SKIP_BITS: u32 = 18;

/// Added to the position in a block by the end of the block.
pub const END: u8 = 128;
/// Added by an entry that resolves nothing.
const NOT_HERE: u8 = 192;

/// The codes of a table, and the symbol of each.
#[derive(Clone)]
struct Codes {
    /// Per length 1 to 16: the first code that is longer, left-aligned in 16 bits (65536 where there is none).
    limits: [u32; 17],
    /// Per length: what to add to a code for the index of its symbol.
    offsets: [i32; 17],
    symbols: [u8; 256],
}

/// A symbol and the length of its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Coded {
    length: u32,
    symbol: u8,
}

impl Codes {
    fn new(spec: &HuffmanSpec<'_>) -> Result<Self, NotMine> {
        let mut codes = Self { limits: [0; 17], offsets: [0; 17], symbols: [0; 256] };
        codes.symbols[..spec.symbols.len()].copy_from_slice(spec.symbols);
        let (mut code, mut index) = (0u32, 0i32);
        for (length, &count) in (1..).zip(&spec.counts) {
            codes.offsets[length] = index - code as i32;
            code += u32::from(count);
            index += i32::from(count);
            // libjpeg's rule, too: the codes have to fit their lengths, and none is all ones.
            if code >= 1 << length {
                return Err(NotMine);
            }
            codes.limits[length] = code << (16 - length);
            code <<= 1;
        }
        Ok(codes)
    }

    /// The symbol at the beginning of 16 bits.
    fn decode(&self, bits: u32) -> Option<Coded> {
        let length = (1..=16).find(|&length| bits < self.limits[length])?;
        let index = (bits >> (16 - length)) as i32 + self.offsets[length];
        let symbol = *self.symbols.get(usize::try_from(index).ok()?)?;
        Some(Coded { length: length as u32, symbol })
    }

    /// Each symbol with its code, left-aligned in 16 bits.
    fn each(spec: &HuffmanSpec<'_>, mut visit: impl FnMut(u32, Coded)) {
        let (mut code, mut symbols) = (0u32, spec.symbols.iter());
        for (length, &count) in (1u32..).zip(&spec.counts) {
            for &symbol in symbols.by_ref().take(count.into()) {
                visit(code << (16 - length), Coded { length, symbol });
                code += 1;
            }
            code <<= 1;
        }
    }
}

/// An AC coefficient, two of them, one and the end of a block, or the end alone.
///
/// From the lowest: 8 bits for the bits taken; 8 by how much the position in the block grows; 8 by how much it grows up to the first
/// of two coefficients; 8 unused; two values of 16 bits. An entry that takes no bits has a symbol in the place of the values, if its
/// code is known: 8 bits for the code's length, 8 for the symbol.
#[derive(Clone, Copy)]
pub struct AcEntry(u64);

impl AcEntry {
    /// `first` and `both`: growth of the position up to the first and to the last coefficient. For one both are the same.
    fn new(length: u32, first: u8, both: u8, values: [i16; 2]) -> Self {
        let [one, two] = values.map(|value| u64::from(value as u16));
        Self(u64::from(length) | u64::from(both) << 8 | u64::from(first) << 16 | one << 32 | two << 48)
    }

    /// Nothing is resolved but a code.
    fn not_here(known: Option<Coded>) -> Self {
        let known = known.map_or(0, |known| known.length | u32::from(known.symbol) << 8);
        Self(u64::from(NOT_HERE) << 8 | u64::from(NOT_HERE) << 16 | u64::from(known) << 32)
    }

    /// A symbol at the beginning of 64 bits with its value, as far as it is a baseline symbol.
    #[inline(always)]
    fn of(Coded { length, symbol }: Coded, bits: u64) -> Option<Self> {
        let (run, size) = (symbol >> 4, u32::from(symbol & 15));
        if size > AC_VALUE_BITS || (size == 0 && run != 0 && run != 15) {
            return None;
        }
        let advance = if symbol == 0 { END } else { run + 1 };
        let value = extend(first_of(bits, length + size), size) as i16;
        Some(Self::new(length + size, advance, advance, [value, value]))
    }

    /// A number with the count of bits taken in its lowest six bits.
    #[inline(always)]
    pub fn raw(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub fn length(self) -> u32 {
        (self.0 & 63) as u32
    }

    /// By how much the position in the block grows.
    #[inline(always)]
    pub fn advance(self) -> usize {
        usize::from((self.0 >> 8) as u8)
    }

    /// Of an entry that takes no bits: its symbol, if its code is known.
    fn known(self) -> Option<Coded> {
        let (length, symbol) = ((self.0 >> 32) as u8, (self.0 >> 40) as u8);
        (self.length() == 0 && length > 0).then_some(Coded { length: length.into(), symbol })
    }

    /// By how much it grows up to the first coefficient.
    #[inline(always)]
    pub fn first_advance(self) -> usize {
        usize::from((self.0 >> 16) as u8)
    }

    #[inline(always)]
    pub fn first_value(self) -> i16 {
        (self.0 >> 32) as i16
    }

    #[inline(always)]
    pub fn last_value(self) -> i16 {
        (self.0 >> 48) as i16
    }
}

/// The first `length` bits of 64 as a number; 64 of them for none.
#[inline(always)]
fn first_of(bits: u64, length: u32) -> u64 {
    bits.wrapping_shr(64u32.wrapping_sub(length))
}

/// The value that the last `size` of some bits stand for (T.81, figure F.12), 0 for none.
#[inline(always)]
fn extend(bits: u64, size: u32) -> i32 {
    let mask = (1u64 << size) - 1;
    let bits = bits & mask;
    let negative = if 2 * bits <= mask { mask } else { 0 };
    bits as i32 - negative as i32
}

/// As many coefficients as are told by the codes among some bits, without their values: the bits that they take in the lowest eight
/// bits, above them by how much the position in the block grows.
#[derive(Clone, Copy)]
pub struct Skip(u16);

impl Skip {
    fn new(entries: &[AcEntry; 1 << LOOKUP_BITS], index: usize) -> Self {
        let (mut length, mut advance) = (0, 0);
        while length < LOOKUP_BITS && advance < usize::from(END) {
            let entry = entries[(index << length) & ((1 << LOOKUP_BITS) - 1)];
            let (seen, taken, more) = match entry.known() {
                Some(Coded { length, symbol }) if (1..=AC_VALUE_BITS).contains(&u32::from(symbol & 15)) => {
                    (length, length + u32::from(symbol & 15), usize::from(symbol >> 4) + 1)
                }
                _ => (entry.length(), entry.length(), entry.advance()),
            };
            // Codes reach behind the known bits, or a position behind what any block has.
            if taken == 0 || length + seen > LOOKUP_BITS || length + taken > SKIP_BITS || advance + more % 128 > 64 {
                break;
            }
            length += taken;
            advance += more;
        }
        let nothing = Self(u16::from(NOT_HERE) << 8);
        if length == 0 { nothing } else { Self(length as u16 | (advance as u16) << 8) }
    }

    /// A number with the count of bits taken in its lowest six bits.
    #[inline(always)]
    pub fn raw(self) -> u64 {
        self.0.into()
    }

    #[inline(always)]
    pub fn length(self) -> u32 {
        u32::from(self.0 & 63)
    }

    #[inline(always)]
    pub fn advance(self) -> usize {
        usize::from(self.0 >> 8)
    }
}

/// The codes of AC coefficients.
pub struct AcTable {
    pub entries: Box<[AcEntry; 1 << LOOKUP_BITS]>,
    pub skips: Box<[Skip; 1 << LOOKUP_BITS]>,
    codes: Codes,
}

impl AcTable {
    pub fn new(spec: &HuffmanSpec<'_>) -> Result<Self, NotMine> {
        let codes = Codes::new(spec)?;
        let mut single = Box::new([AcEntry::not_here(None); 1 << LOOKUP_BITS]);
        Codes::each(spec, |code, coded| fill_ac(&mut single, code, coded));
        let mut entries = single.clone();
        for (index, entry) in entries.iter_mut().enumerate() {
            let first = single[index];
            let length = first.length();
            // The end of a block is followed by another table's codes.
            if length == 0 || first.advance() >= usize::from(END) {
                continue;
            }
            let second = single[(index << length) & ((1 << LOOKUP_BITS) - 1)];
            let both = length + second.length();
            if second.length() == 0 || both > LOOKUP_BITS {
                continue;
            }
            let advance = first.advance() as u8;
            let values = [first.first_value(), second.first_value()];
            *entry = AcEntry::new(both, advance, advance + second.advance() as u8, values);
        }
        let mut skips = Box::new([Skip(0); 1 << LOOKUP_BITS]);
        skips.iter_mut().enumerate().for_each(|(index, skip)| *skip = Skip::new(&entries, index));
        Ok(Self { entries, skips, codes })
    }

    /// The one symbol at the beginning of 64 bits, with its value: at most 16 and 10 of them. `entry` is what the table says.
    /// `None` for what is no code or no baseline symbol.
    #[inline(always)]
    pub fn one(&self, entry: AcEntry, bits: u64) -> Option<AcEntry> {
        match entry.known() {
            Some(coded) => AcEntry::of(coded, bits),
            None => self.long(bits),
        }
    }

    #[inline(never)]
    fn long(&self, bits: u64) -> Option<AcEntry> {
        AcEntry::of(self.codes.decode((bits >> (64 - CODE_BITS)) as u32)?, bits)
    }
}

/// The entries that begin with a code.
fn fill_ac(entries: &mut [AcEntry; 1 << LOOKUP_BITS], code: u32, coded: Coded) {
    let Some(free) = LOOKUP_BITS.checked_sub(coded.length) else { return };
    let start = (code >> (CODE_BITS - LOOKUP_BITS)) as usize;
    let range = &mut entries[start..start + (1 << free)];
    let size = u32::from(coded.symbol & 15);
    if size > free || size > SHORT_VALUE_BITS {
        return range.fill(AcEntry::not_here(Some(coded)));
    }
    for (bits, same) in (0..).zip(range.chunks_exact_mut(1 << (free - size))) {
        // The value's bits behind those of the code, which do not matter any more.
        let bits = if size == 0 { 0 } else { bits << (64 - coded.length - size) };
        same.fill(AcEntry::of(coded, bits).unwrap_or(AcEntry::not_here(Some(coded))));
    }
}

/// A DC difference: in the lowest eight bits those that it takes, 0 where its code is not resolved; above them those of its value.
#[derive(Clone, Copy)]
pub struct DcEntry(u16);

impl DcEntry {
    #[inline(always)]
    pub fn length(self) -> u32 {
        u32::from(self.0 as u8)
    }

    /// The difference, given the bits from the entry's first on, the first of them highest.
    #[inline(always)]
    pub fn difference(self, bits: u64) -> i32 {
        extend(first_of(bits, self.length()), u32::from(self.0 >> 8))
    }
}

/// The codes of DC differences.
pub struct DcTable {
    pub entries: Box<[DcEntry; 1 << DC_BITS]>,
    codes: Codes,
}

impl DcTable {
    pub fn new(spec: &HuffmanSpec<'_>) -> Result<Self, NotMine> {
        // libjpeg refuses larger ones than 15 when a scan begins; those from 12 to 15 are nothing that an encoder makes.
        if spec.symbols.iter().any(|&size| size > DC_VALUE_BITS) {
            return Err(NotMine);
        }
        let codes = Codes::new(spec)?;
        let mut entries = Box::new([DcEntry(0); 1 << DC_BITS]);
        Codes::each(spec, |code, coded| {
            let Some(free) = DC_BITS.checked_sub(coded.length) else { return };
            let start = (code >> (CODE_BITS - DC_BITS)) as usize;
            entries[start..start + (1 << free)].fill(dc_entry(coded));
        });
        Ok(Self { entries, codes })
    }

    /// What is at the beginning of 64 bits. `None` for what is no code.
    #[cold]
    pub fn long(&self, bits: u64) -> Option<DcEntry> {
        self.codes.decode((bits >> (64 - CODE_BITS)) as u32).map(dc_entry)
    }
}

fn dc_entry(coded: Coded) -> DcEntry {
    let size = u16::from(coded.symbol);
    DcEntry((coded.length as u16 + size) | (size << 8))
}
