//! Look-up tables of Huffman codes. One look-up resolves a code together with the bits of its value, and often two of
//! these pairs.
//!
//! Two tables are indexed by the next bits of the stream. A small table says how far to advance, in a form that serves
//! directly as the count of a shift, so that the next look-up waits only for a load from the nearest cache and that
//! shift. A larger table holds the values. The bits of a value may extend beyond the bits that index a table, if its
//! sign is among the indexing bits.
//!
//! Codes are canonical (T.81, annex C).

use super::LeftToLibjpeg;
use super::header::HuffmanSpec;

/// Bits of the stream that index a table of AC coefficients, and a table of DC differences.
pub const LOOKUP_BITS: u32 = 11;
pub const DC_BITS: u32 = 9;
/// Bits of the stream that index the table for skipping coefficients.
pub const SKIP_BITS: u32 = 11;
/// Most bits that one look-up takes: a value may extend beyond the bits that index the table.
pub const STEP_BITS: u32 = 18;
/// Bits of the longest code.
const CODE_BITS: u32 = 16;
/// The largest AC coefficient of an 8-bit encoder has ten bits (T.81, table F.2), the largest DC difference eleven
/// (table F.1).
pub const AC_VALUE_BITS: u32 = 10;
const DC_VALUE_BITS: u8 = 11;

/// The codes of a table, with their symbols.
#[derive(Clone)]
struct Codes {
    /// For each length 1 to 16: the first longer code, left-aligned in 16 bits (65536 if there is none).
    limits: [u32; 17],
    /// For each length: the difference between a code and the index of its symbol.
    offsets: [i32; 17],
    symbols: [u8; 256],
}

/// A symbol and the length of its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CodedSymbol {
    length: u32,
    symbol: u8,
}

impl Codes {
    fn new(spec: &HuffmanSpec<'_>) -> Result<Self, LeftToLibjpeg> {
        let mut codes = Self { limits: [0; 17], offsets: [0; 17], symbols: [0; 256] };
        codes.symbols[..spec.symbols.len()].copy_from_slice(spec.symbols);
        let (mut code, mut index) = (0u32, 0i32);
        for (length, &count) in (1..).zip(&spec.counts) {
            codes.offsets[length] = index - code as i32;
            code += u32::from(count);
            index += i32::from(count);
            // As in libjpeg, codes have to fit their lengths, and no code is all ones.
            if code >= 1 << length {
                return Err(LeftToLibjpeg);
            }
            codes.limits[length] = code << (16 - length);
            code <<= 1;
        }
        Ok(codes)
    }

    /// Returns the symbol at the beginning of 16 bits.
    fn decode(&self, bits: u32) -> Option<CodedSymbol> {
        // Limits grow with the length. Comparing all of them needs no branch.
        let length = 1 + self.limits[1..].iter().map(|&limit| usize::from(bits >= limit)).sum::<usize>();
        if length > 16 {
            return None;
        }
        let index = (bits >> (16 - length)) as i32 + self.offsets[length];
        let symbol = *self.symbols.get(usize::try_from(index).ok()?)?;
        Some(CodedSymbol { length: length as u32, symbol })
    }

    /// Returns the symbol at the beginning of 64 bits, with its value; both take at most 27 bits. Returns `None` if the
    /// bits are no code, or if an 8-bit encoder never writes the symbol.
    fn one(&self, kind: Kind, bits: u64) -> Option<Symbol> {
        let CodedSymbol { length, symbol } = self.decode((bits >> (64 - CODE_BITS)) as u32)?;
        let Meaning { advance, size } = kind.meaning(symbol)?;
        let length = length + size;
        Some(Symbol { length, advance, value: extend(first_of(bits, length), size) })
    }

    /// Visits each symbol with its code, left-aligned in 16 bits.
    fn each(spec: &HuffmanSpec<'_>, mut visit: impl FnMut(u32, CodedSymbol)) {
        let (mut code, mut symbols) = (0u32, spec.symbols.iter());
        for (length, &count) in (1u32..).zip(&spec.counts) {
            for &symbol in symbols.by_ref().take(count.into()) {
                visit(code << (16 - length), CodedSymbol { length, symbol });
                code += 1;
            }
            code <<= 1;
        }
    }
}

/// Result of a look-up: a coefficient, two of them, one and the end of a block, or the end alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    /// Bits of the stream that codes and values take.
    length: u8,
    /// Growth of the position in the block, plus [`AWAY`] at the end of the block.
    advance: u8,
    step: CodeStep,
}

/// The values of a look-up.
///
/// Each part is loaded separately where it is needed: a core can do more loads at once than shifts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(4))]
pub struct CodeStep {
    /// Lower half: number of the last value's lowest bits that the table does not know. Upper half: one less than the
    /// growth of the position up to the first of two coefficients.
    open_and_run: u8,
    /// The first of two values.
    first: i8,
    /// The last value, or the only one.
    last: i16,
}
const _: () = assert!(size_of::<CodeStep>() == 4);

/// Added to the position if the look-up resolves nothing, so that the position is outside every block.
pub const BEYOND: u8 = 64;
/// Added to the position by the end of a block, so that stores go elsewhere.
pub const AWAY: u8 = 128;

impl CodeStep {
    const NOTHING: Self = Self { open_and_run: 0, first: 0, last: 0 };

    /// Returns one less than the growth of the position up to the first of two coefficients.
    #[inline(always)]
    pub fn run(&self) -> usize {
        usize::from(self.open_and_run >> 4)
    }

    /// Returns the first of two values. If the look-up has only one, returns any value, which the last value then
    /// overwrites. At the end of a block alone, returns a zero for a place that holds nothing else.
    #[inline(always)]
    pub fn first(&self) -> i16 {
        self.first.into()
    }

    /// Returns the value of the last coefficient, given the bits of the stream from this look-up on (the first of them
    /// highest) and the number of bits that the look-up takes.
    #[inline(always)]
    pub fn last(&self, bits: u64, length: u64) -> i16 {
        let low = first_of(bits, length as u32) & !(u64::MAX << (self.open_and_run & 15));
        self.last.wrapping_add(low as i16)
    }
}

impl Found {
    /// Makes the result for the symbol with which `bits` begin; only the first `known` bits are known. Returns `None`
    /// if the known bits are too few, or if the symbol takes more bits than a look-up may.
    #[inline(always)]
    fn new(Told { code, size, advance }: Told, bits: u64, known: u32) -> Option<Self> {
        let (code, size) = (u32::from(code), u32::from(size));
        let (length, open) = (code + size, (code + size).saturating_sub(known));
        // The first bit of a value is its sign.
        if code == 0 || code > known || length > STEP_BITS || (open == size && size > 0) {
            return None;
        }
        let value = extend(first_of(bits, length) >> open << open, size) as i16;
        let run = (advance - 1).min(15);
        let step = CodeStep { open_and_run: open as u8 | run << 4, first: value as i8, last: value };
        Some(Self { length: length as u8, advance, step })
    }

    /// Combines this result with the one after it.
    fn and(self, other: Self) -> Option<Self> {
        let (length, advance) = (self.length + other.length, self.advance + other.advance);
        let fits = u32::from(length) <= STEP_BITS && self.advance + other.advance % AWAY < BEYOND;
        // The other symbol follows within the known bits, so all bits of the first value are known.
        let open_and_run = (self.step.open_and_run & 0xF0) | (other.step.open_and_run & 15);
        let step = CodeStep { open_and_run, first: i8::try_from(self.step.last).ok()?, last: other.step.last };
        fits.then_some(Self { length, advance, step })
    }

    fn stride(self) -> Stride {
        Stride(u16::from(self.length) | u16::from(self.advance) << 8)
    }
}

/// Kind of a table's symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Dc,
    /// AC coefficients. Values with at most `plain_bits` bits need no range check.
    Ac {
        plain_bits: u32,
    },
}

/// Meaning of a symbol.
struct Meaning {
    /// Growth of the position in the block.
    advance: u8,
    /// Number of bits of the value.
    size: u32,
}

impl Kind {
    /// Returns the meaning of a symbol, or `None` if an 8-bit encoder never writes it or if its value needs a range
    /// check.
    fn meaning(self, symbol: u8) -> Option<Meaning> {
        let (run, size) = (symbol >> 4, u32::from(symbol & 15));
        match self {
            Kind::Dc => Some(Meaning { advance: 1, size: symbol.into() }),
            Kind::Ac { .. } if symbol == 0 => Some(Meaning { advance: AWAY, size: 0 }),
            Kind::Ac { plain_bits } if size <= plain_bits && (size > 0 || run == 15) => {
                Some(Meaning { advance: run + 1, size })
            }
            Kind::Ac { .. } => None,
        }
    }
}

/// A symbol with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Number of bits of the code and the value together.
    pub length: u32,
    /// Growth of the position in the block, or [`AWAY`] at the end of a block.
    pub advance: u8,
    pub value: i32,
}

/// Advance of a look-up: the bits that it takes, in the lowest eight bits, and above them the growth of the position in
/// the block. The next look-up waits for nothing else, so these tables are small and stay in the nearest cache.
#[derive(Clone, Copy)]
pub struct Stride(u16);

impl Stride {
    const NOTHING: Self = Self((BEYOND as u16) << 8);

    #[inline(always)]
    pub fn is_nothing(self) -> bool {
        self.0 as u8 == 0
    }

    /// Returns a number whose lowest six bits are the count of bits taken.
    #[inline(always)]
    pub fn raw(self) -> u64 {
        self.0.into()
    }

    #[inline(always)]
    pub fn advance(self) -> usize {
        usize::from(self.0 >> 8)
    }
}

/// The codes of DC differences.
pub struct DcTable {
    pub strides: Box<[Stride; 1 << DC_BITS]>,
    pub steps: Box<[CodeStep; 1 << DC_BITS]>,
    codes: Codes,
}

impl DcTable {
    pub fn new(spec: &HuffmanSpec<'_>) -> Result<Self, LeftToLibjpeg> {
        // libjpeg refuses sizes above 15 when a scan begins; no encoder writes sizes from 12 to 15.
        if spec.symbols.iter().any(|&size| size > DC_VALUE_BITS) {
            return Err(LeftToLibjpeg);
        }
        let codes = Codes::new(spec)?;
        let table = by_index::<{ 1 << DC_BITS }>(Kind::Dc, spec);
        let mut strides = Box::new([Stride::NOTHING; 1 << DC_BITS]);
        let mut steps = Box::new([CodeStep::NOTHING; 1 << DC_BITS]);
        for (index, (stride, step)) in strides.iter_mut().zip(steps.iter_mut()).enumerate() {
            let bits = (index as u64) << (64 - DC_BITS);
            if let Some(found) = Found::new(table[index], bits, DC_BITS) {
                (*stride, *step) = (found.stride(), found.step);
            }
        }
        Ok(Self { strides, steps, codes })
    }

    /// Returns the symbol at the beginning of 64 bits, with its value.
    #[cold]
    pub fn one(&self, bits: u64) -> Option<Symbol> {
        self.codes.one(Kind::Dc, bits)
    }
}

/// The codes of AC coefficients.
pub struct AcTable {
    pub strides: Box<[Stride; 1 << LOOKUP_BITS]>,
    pub steps: Box<[CodeStep; 1 << LOOKUP_BITS]>,
    /// Advance over all symbols whose codes lie completely within the indexing bits, without their values.
    pub skips: Box<[Stride; 1 << SKIP_BITS]>,
    codes: Codes,
}

impl AcTable {
    /// Makes the tables. Values of more than `plain_bits` bits are left to [`one`](Self::one).
    pub fn new(spec: &HuffmanSpec<'_>, plain_bits: u32) -> Result<Self, LeftToLibjpeg> {
        let codes = Codes::new(spec)?;
        let table = by_index::<{ 1 << LOOKUP_BITS }>(Kind::Ac { plain_bits }, spec);
        let found = |index: usize, before: u8| {
            let known = LOOKUP_BITS.checked_sub(before.into())?;
            let index = (index << before) & ((1 << LOOKUP_BITS) - 1);
            Found::new(table[index], (index as u64) << (64 - LOOKUP_BITS), known)
        };
        let mut strides = Box::new([Stride::NOTHING; 1 << LOOKUP_BITS]);
        let mut steps = Box::new([CodeStep::NOTHING; 1 << LOOKUP_BITS]);
        for (index, (stride, step)) in strides.iter_mut().zip(steps.iter_mut()).enumerate() {
            let Some(first) = found(index, 0) else { continue };
            // After the end of a block comes a code of another table.
            let second = if first.advance < AWAY { found(index, first.length) } else { None };
            let both = second.and_then(|second| first.and(second)).unwrap_or(first);
            (*stride, *step) = (both.stride(), both.step);
        }
        Ok(Self { strides, steps, skips: skips(spec), codes })
    }

    /// Returns the symbol at the beginning of 64 bits, with its value.
    pub fn one(&self, bits: u64) -> Option<Symbol> {
        self.codes.one(Kind::Ac { plain_bits: AC_VALUE_BITS }, bits)
    }
}

/// Makes the table for skipping: for each index, the advance over all symbols whose codes it holds.
fn skips(spec: &HuffmanSpec<'_>) -> Box<[Stride; 1 << SKIP_BITS]> {
    let table = by_index::<{ 1 << SKIP_BITS }>(Kind::Ac { plain_bits: AC_VALUE_BITS }, spec);
    let mut skips = Box::new([Stride::NOTHING; 1 << SKIP_BITS]);
    for (index, skip) in skips.iter_mut().enumerate() {
        let (mut length, mut advance) = (0, 0);
        while length < SKIP_BITS && advance < AWAY {
            let Told { code, size, advance: more } = table[(index << length) & ((1 << SKIP_BITS) - 1)];
            let behind_code = length + u32::from(code);
            let behind = behind_code + u32::from(size);
            // Codes have to lie within the known bits, and positions within a block.
            if code == 0 || behind_code > SKIP_BITS || behind > STEP_BITS || advance + more % AWAY >= BEYOND {
                break;
            }
            (length, advance) = (behind, advance + more);
        }
        if length > 0 {
            *skip = Stride(length as u16 | u16::from(advance) << 8);
        }
    }
    skips
}

/// Contents of an index: the number of bits of a code and of its value, and the growth of the position. A code of 0
/// bits means that the index holds no whole code.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    code: u8,
    size: u8,
    advance: u8,
}

/// Returns the code at the beginning of each index, if the index holds the whole code.
fn by_index<const INDICES: usize>(kind: Kind, spec: &HuffmanSpec<'_>) -> Box<[Told; INDICES]> {
    let mut all = Box::new([Told::default(); INDICES]);
    Codes::each(spec, |code, CodedSymbol { length, symbol }| {
        let Some(free) = INDICES.ilog2().checked_sub(length) else { return };
        let Some(Meaning { advance, size }) = kind.meaning(symbol) else { return };
        let start = (code >> (CODE_BITS - INDICES.ilog2())) as usize;
        all[start..start + (1 << free)].fill(Told { code: length as u8, size: size as u8, advance });
    });
    all
}

/// Returns the first `length` of 64 bits as a number; all 64 for a length of 0.
#[inline(always)]
fn first_of(bits: u64, length: u32) -> u64 {
    bits.wrapping_shr(length.wrapping_neg())
}

/// Returns the value of the last `size` bits of `bits` (T.81, figure F.12), 0 for no bits.
#[inline(always)]
fn extend(bits: u64, size: u32) -> i32 {
    let mask = (1i32 << size) - 1;
    let bits = bits as i32 & mask;
    let is_negative = size > 0 && bits >> (size - 1) == 0;
    if is_negative { bits - mask } else { bits }
}
