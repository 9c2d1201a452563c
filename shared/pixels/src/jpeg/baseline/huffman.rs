//! Look-up tables of Huffman codes that resolve a code together with the bits of its value, and often two such pairs at once.
//!
//! What the next bits of a stream stand for lies in two tables: a small one has how far they lead, in a form that is the count of a shift
//! itself, so that the next look-up waits for nothing but a load from nearby and that shift; a larger one has the values. The bits of a
//! value may reach behind those that a table is indexed by, if its sign is among them.
//!
//! Codes are canonical (T.81, annex C).

use super::NotMine;
use super::header::HuffmanSpec;

/// Bits of the stream by which a table of AC coefficients is indexed, and one of DC differences.
pub const LOOKUP_BITS: u32 = 11;
pub const DC_BITS: u32 = 9;
/// Bits by which a table is indexed that passes over coefficients.
pub const SKIP_BITS: u32 = 11;
/// Bits that one look-up takes at most: a value may reach behind those that index the table.
pub const STEP_BITS: u32 = 18;
/// Bits of the longest code.
const CODE_BITS: u32 = 16;
/// The largest AC coefficient of an 8-bit encoder has ten bits (T.81, table F.2), the largest DC difference eleven (table F.1).
pub const AC_VALUE_BITS: u32 = 10;
const DC_VALUE_BITS: u8 = 11;

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
        // Limits grow with the length. All are looked at, which needs no jump.
        let length = 1 + self.limits[1..].iter().map(|&limit| usize::from(bits >= limit)).sum::<usize>();
        if length > 16 {
            return None;
        }
        let index = (bits >> (16 - length)) as i32 + self.offsets[length];
        let symbol = *self.symbols.get(usize::try_from(index).ok()?)?;
        Some(Coded { length: length as u32, symbol })
    }

    /// The one symbol at the beginning of 64 bits, with its value: at most 27 of them. `None` for what is no code or no symbol of an
    /// 8-bit encoder.
    fn one(&self, kind: Kind, bits: u64) -> Option<Symbol> {
        let Coded { length, symbol } = self.decode((bits >> (64 - CODE_BITS)) as u32)?;
        let Meaning { advance, size } = kind.meaning(symbol)?;
        let length = length + size;
        Some(Symbol { length, advance, value: extend(first_of(bits, length), size) })
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

/// What a look-up resolves: a coefficient, two of them, one and the end of a block, or the end alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    /// Bits taken of the stream, with their values.
    length: u8,
    /// By how much the position in the block grows, [`AWAY`] more at the end of the block.
    advance: u8,
    step: Step,
}

/// The values of a look-up.
///
/// Its parts are read one by one where they are needed: a core has more ways to load than to shift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(4))]
pub struct Step {
    /// In the lower half, how many bits of the last value the table does not know, its lowest. In the upper one, by how much less
    /// one the position grows up to the first of two coefficients.
    open_and_run: u8,
    /// The first of two values.
    first: i8,
    /// The last value, or the only one.
    last: i16,
}
const _: () = assert!(size_of::<Step>() == 4);

/// Added to the position where nothing is resolved, so that it is out of any block.
pub const BEYOND: u8 = 64;
/// Added to the position by the end of a block, so that what is stored goes elsewhere.
pub const AWAY: u8 = 128;

impl Step {
    const NOTHING: Self = Self { open_and_run: 0, first: 0, last: 0 };

    /// By how much less one the position grows up to the first of two coefficients.
    #[inline(always)]
    pub fn run(&self) -> usize {
        usize::from(self.open_and_run >> 4)
    }

    /// The first of two values. Of one it is anything: the last one goes to the same place. At the end of a block alone it is a zero for a
    /// place that nothing is stored in.
    #[inline(always)]
    pub fn first(&self) -> i16 {
        self.first.into()
    }

    /// The value of the last coefficient, given the bits from the first of this look-up on, the first of them highest, and how many
    /// it takes.
    #[inline(always)]
    pub fn last(&self, bits: u64, length: u64) -> i16 {
        let low = first_of(bits, length as u32) & !(u64::MAX << (self.open_and_run & 15));
        self.last.wrapping_add(low as i16)
    }
}

impl Found {
    /// A symbol at the beginning of some bits, of which the first `known` are told. `None` where they do not tell enough, or where it takes
    /// more than a look-up may.
    #[inline(always)]
    fn new(Told { code, size, advance }: Told, bits: u64, known: u32) -> Option<Self> {
        let (code, size) = (u32::from(code), u32::from(size));
        let (length, open) = (code + size, (code + size).saturating_sub(known));
        // The first bit of a value tells its sign.
        if code == 0 || code > known || length > STEP_BITS || (open == size && size > 0) {
            return None;
        }
        let value = extend(first_of(bits, length) >> open << open, size) as i16;
        let run = (advance - 1).min(15);
        let step = Step { open_and_run: open as u8 | run << 4, first: value as i8, last: value };
        Some(Self { length: length as u8, advance, step })
    }

    /// This one and another behind it.
    fn and(self, other: Self) -> Option<Self> {
        let (length, advance) = (self.length + other.length, self.advance + other.advance);
        let fits = u32::from(length) <= STEP_BITS && self.advance + other.advance % AWAY < BEYOND;
        // All bits of the first value are known, as others are behind them.
        let open_and_run = (self.step.open_and_run & 0xF0) | (other.step.open_and_run & 15);
        let step = Step { open_and_run, first: i8::try_from(self.step.last).ok()?, last: other.step.last };
        fits.then_some(Self { length, advance, step })
    }

    fn stride(self) -> Stride {
        Stride(u16::from(self.length) | u16::from(self.advance) << 8)
    }
}

/// What symbols stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Dc,
    /// With the bits of the largest values that need no look.
    Ac {
        plain_bits: u32,
    },
}

/// What a symbol says.
struct Meaning {
    /// By how much the position grows.
    advance: u8,
    /// Bits of the value.
    size: u32,
}

impl Kind {
    /// The meaning of a symbol. `None` for one that is none of an 8-bit encoder, or that needs a look.
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
    /// Bits that both take.
    pub length: u32,
    /// By how much the position grows, [`AWAY`] at the end of a block.
    pub advance: u8,
    pub value: i32,
}

/// How far a look-up leads: the bits that it takes of the stream in the lowest eight bits, above them by how much the position in the block
/// grows. All that the next look-up waits for, so these tables are small and stay next to the core.
#[derive(Clone, Copy)]
pub struct Stride(u16);

impl Stride {
    const NOTHING: Self = Self((BEYOND as u16) << 8);

    #[inline(always)]
    pub fn is_nothing(self) -> bool {
        self.0 as u8 == 0
    }

    /// A number with the count of bits taken in its lowest six bits.
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
    pub steps: Box<[Step; 1 << DC_BITS]>,
    codes: Codes,
}

impl DcTable {
    pub fn new(spec: &HuffmanSpec<'_>) -> Result<Self, NotMine> {
        // libjpeg refuses larger ones than 15 when a scan begins; those from 12 to 15 are nothing that an encoder makes.
        if spec.symbols.iter().any(|&size| size > DC_VALUE_BITS) {
            return Err(NotMine);
        }
        let codes = Codes::new(spec)?;
        let told = by_index::<{ 1 << DC_BITS }>(Kind::Dc, spec);
        let mut strides = Box::new([Stride::NOTHING; 1 << DC_BITS]);
        let mut steps = Box::new([Step::NOTHING; 1 << DC_BITS]);
        for (index, (stride, step)) in strides.iter_mut().zip(steps.iter_mut()).enumerate() {
            let bits = (index as u64) << (64 - DC_BITS);
            if let Some(found) = Found::new(told[index], bits, DC_BITS) {
                (*stride, *step) = (found.stride(), found.step);
            }
        }
        Ok(Self { strides, steps, codes })
    }

    /// What is at the beginning of 64 bits.
    #[cold]
    pub fn one(&self, bits: u64) -> Option<Symbol> {
        self.codes.one(Kind::Dc, bits)
    }
}

/// The codes of AC coefficients.
pub struct AcTable {
    pub strides: Box<[Stride; 1 << LOOKUP_BITS]>,
    pub steps: Box<[Step; 1 << LOOKUP_BITS]>,
    /// Of as many coefficients as are told by the codes among some bits, without their values.
    pub skips: Box<[Stride; 1 << SKIP_BITS]>,
    codes: Codes,
}

impl AcTable {
    /// Values of more than `plain_bits` bits are left to [`one`](Self::one).
    pub fn new(spec: &HuffmanSpec<'_>, plain_bits: u32) -> Result<Self, NotMine> {
        let codes = Codes::new(spec)?;
        let told = by_index::<{ 1 << LOOKUP_BITS }>(Kind::Ac { plain_bits }, spec);
        let found = |index: usize, before: u8| {
            let known = LOOKUP_BITS.checked_sub(before.into())?;
            let index = (index << before) & ((1 << LOOKUP_BITS) - 1);
            Found::new(told[index], (index as u64) << (64 - LOOKUP_BITS), known)
        };
        let mut strides = Box::new([Stride::NOTHING; 1 << LOOKUP_BITS]);
        let mut steps = Box::new([Step::NOTHING; 1 << LOOKUP_BITS]);
        for (index, (stride, step)) in strides.iter_mut().zip(steps.iter_mut()).enumerate() {
            let Some(first) = found(index, 0) else { continue };
            // The end of a block is followed by another table's codes.
            let second = if first.advance < AWAY { found(index, first.length) } else { None };
            let both = second.and_then(|second| first.and(second)).unwrap_or(first);
            (*stride, *step) = (both.stride(), both.step);
        }
        Ok(Self { strides, steps, skips: skips(spec), codes })
    }

    /// The one symbol at the beginning of 64 bits, with its value.
    pub fn one(&self, bits: u64) -> Option<Symbol> {
        self.codes.one(Kind::Ac { plain_bits: AC_VALUE_BITS }, bits)
    }
}

/// Of each index, how far as many symbols lead as it has the codes of.
fn skips(spec: &HuffmanSpec<'_>) -> Box<[Stride; 1 << SKIP_BITS]> {
    let told = by_index::<{ 1 << SKIP_BITS }>(Kind::Ac { plain_bits: AC_VALUE_BITS }, spec);
    let mut skips = Box::new([Stride::NOTHING; 1 << SKIP_BITS]);
    for (index, skip) in skips.iter_mut().enumerate() {
        let (mut length, mut advance) = (0, 0);
        while length < SKIP_BITS && advance < AWAY {
            let Told { code, size, advance: more } = told[(index << length) & ((1 << SKIP_BITS) - 1)];
            let behind_code = length + u32::from(code);
            let behind = behind_code + u32::from(size);
            // Codes have to be among the known bits, and positions in a block.
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

/// What an index tells: bits of a code and of its value, and by how much the position grows. No code has no bits.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    code: u8,
    size: u8,
    advance: u8,
}

/// What code each index begins with, if it holds all of it.
fn by_index<const INDICES: usize>(kind: Kind, spec: &HuffmanSpec<'_>) -> Box<[Told; INDICES]> {
    let mut all = Box::new([Told::default(); INDICES]);
    Codes::each(spec, |code, Coded { length, symbol }| {
        let Some(free) = INDICES.ilog2().checked_sub(length) else { return };
        let Some(Meaning { advance, size }) = kind.meaning(symbol) else { return };
        let start = (code >> (CODE_BITS - INDICES.ilog2())) as usize;
        all[start..start + (1 << free)].fill(Told { code: length as u8, size: size as u8, advance });
    });
    all
}

/// The first `length` bits of 64 as a number; 64 of them for none.
#[inline(always)]
fn first_of(bits: u64, length: u32) -> u64 {
    bits.wrapping_shr(length.wrapping_neg())
}

/// The value that the last `size` of some bits stand for (T.81, figure F.12), 0 for none.
#[inline(always)]
fn extend(bits: u64, size: u32) -> i32 {
    let mask = (1i32 << size) - 1;
    let bits = bits as i32 & mask;
    let is_negative = size > 0 && bits >> (size - 1) == 0;
    if is_negative { bits - mask } else { bits }
}
