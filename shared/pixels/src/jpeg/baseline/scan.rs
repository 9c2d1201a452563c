//! The MCUs of a scan, one after the other: their coefficients, or only their length and their DC predictors.
//!
//! [`Scan::read`] stores coefficients, [`Scan::skip`] does not. Both follow restart markers and stop at everything that libjpeg
//! would warn about, so that what is skipped is checked as what is read.

use super::NotMine;
use super::bits::{Bits, Bytes, Place, Window};
use super::header::{Header, ZIGZAG};
use super::huffman::{AcEntry, AcTable, DC_BITS, DcTable, END, LOOKUP_BITS, SKIP_BITS};
use super::level::Level;

/// Blocks of an MCU at most: four of luma and two of chroma.
pub const MCU_BLOCKS: usize = 6;
/// Coefficients of a block.
pub const BLOCK: usize = 64;

/// Look-ups between two refills: each takes at most [`LOOKUP_BITS`] bits and looks at as many.
const LOOKUPS: u32 = 56 / LOOKUP_BITS;
/// Those that pass over coefficients take more.
const SKIPS: u32 = 56 / SKIP_BITS;
/// A DC coefficient of an 8-bit encoder is at most 1024 from zero, and half a step more; so far libjpeg's table clamps it right.
const DEQUANTISED_DC_MAX: u16 = 2047;
/// Dequantised coefficients stay below this, so that no sum of two of them leaves 16 bits.
const DEQUANTISED_MAX: u16 = 16383;
/// DC predictors are checked once a run: so many MCUs of differences cannot overflow one that has passed.
const RUN_MAX: u32 = 1 << 16;
const PREDICTOR_MAX: i32 = 1 << 20;

/// Where a coefficient goes, by the position in the stream behind it. Those out of a block go to the block behind it, which is
/// cleared before it is read.
const PLACES: [u8; 256] = {
    let mut places = [BLOCK as u8; 256];
    let mut i = 0;
    while i < 64 {
        places[i + 1] = ZIGZAG[i];
        i += 1;
    }
    places
};

/// The tables of a component.
pub struct Coding {
    pub dc: DcTable,
    pub ac: AcTable,
}

/// What a scan is made of.
pub struct Layout {
    /// The component of each block of an MCU.
    pub blocks: Vec<u8>,
    /// Largest coefficient of each component, in the order of the stream.
    limits: [[u16; 64]; 3],
    restart_interval: u32,
    mcus: u64,
}

impl Layout {
    pub fn new(header: &Header<'_>) -> Self {
        let luma = usize::from(header.sampling.across * header.sampling.down);
        let mut blocks = vec![0; luma];
        blocks.extend(1..header.components.len() as u8);
        let mut limits = [[0; 64]; 3];
        for (limits, part) in limits.iter_mut().zip(&header.components) {
            *limits = part.quant.map(|step| DEQUANTISED_MAX / u16::from(step.max(1)));
            limits[0] = DEQUANTISED_DC_MAX / u16::from(part.quant[0].max(1));
        }
        let (across, down) = header.mcus();
        let mcus = u64::from(across) * u64::from(down);
        Self { blocks, limits, restart_interval: header.restart_interval, mcus }
    }
}

/// A position in a scan.
pub struct Scan<'s> {
    bytes: &'s [u8],
    layout: &'s Layout,
    codings: [&'s Coding; 3],
    level: Level,
    window: &'s mut Window,
    bits: Bits,
    predictors: [i32; 3],
    /// MCUs up to here.
    mcu: u64,
    /// Those up to the next restart marker.
    before_restart: u32,
}

/// The coefficients of a block in the order of its rows, and what lies behind them: as much as a byte can number.
type Target<'c> = &'c mut [i16; 256];
/// Blocks of room that a [`Target`] needs behind the last one.
pub const ROOM: usize = 3;

impl<'s> Scan<'s> {
    /// Starts at the first MCU.
    pub fn new(
        bytes: &'s [u8],
        layout: &'s Layout,
        codings: [&'s Coding; 3],
        level: Level,
        window: &'s mut Window,
    ) -> Self {
        window.follows = false;
        let bits = window.seek(bytes, Place::default());
        let before_restart = if layout.restart_interval > 0 { layout.restart_interval } else { u32::MAX };
        Self { bytes, layout, codings, level, window, bits, predictors: [0; 3], mcu: 0, before_restart }
    }

    /// Goes to an MCU whose place and predictors are known.
    pub fn seek(&mut self, mcu: u64, place: Place, predictors: [i32; 3]) {
        self.bits = self.window.seek(self.bytes, place);
        self.predictors = predictors;
        self.mcu = mcu;
        if self.layout.restart_interval > 0 {
            let interval = u64::from(self.layout.restart_interval);
            self.before_restart = (interval - mcu % interval) as u32;
        }
    }

    /// Makes [`place`](Self::place) possible.
    pub fn follow(&mut self) {
        self.window.follows = true;
    }

    /// Where the next MCU begins, and what its predictors are.
    pub fn place(&mut self) -> Result<(Place, [i32; 3]), NotMine> {
        self.restart_if_due()?;
        Ok((self.window.place(self.bytes, self.bits), self.predictors))
    }

    /// Passes over MCUs.
    pub fn skip(&mut self, mcus: u32) -> Result<(), NotMine> {
        self.runs(mcus, |scan, _, run| scan.run::<false>(run, &mut [], &mut []))
    }

    /// Reads MCUs: their blocks one after the other, and of each block the last position of the stream that it uses. There has to
    /// be [`ROOM`] for more blocks.
    pub fn read(&mut self, mcus: u32, coefficients: &mut [i16], lasts: &mut [u8]) -> Result<(), NotMine> {
        let blocks = self.layout.blocks.len();
        self.runs(mcus, |scan, done, run| {
            let coefficients = &mut coefficients[done as usize * blocks * BLOCK..];
            scan.run::<true>(run, coefficients, &mut lasts[done as usize * blocks..])
        })
    }

    /// Cuts MCUs into runs without a restart marker in between.
    fn runs(
        &mut self,
        mcus: u32,
        mut run: impl FnMut(&mut Self, u32, u32) -> Result<(), NotMine>,
    ) -> Result<(), NotMine> {
        let mut done = 0;
        while done < mcus {
            self.restart_if_due()?;
            let now = (mcus - done).min(self.before_restart).min(RUN_MAX);
            run(self, done, now)?;
            if self.predictors.iter().any(|predictor| predictor.abs() > PREDICTOR_MAX) {
                return Err(NotMine);
            }
            done += now;
            self.mcu += u64::from(now);
            if self.layout.restart_interval > 0 {
                self.before_restart -= now;
            }
        }
        Ok(())
    }

    fn restart_if_due(&mut self) -> Result<(), NotMine> {
        // No marker follows the last interval.
        if self.before_restart == 0 && self.mcu < self.layout.mcus {
            let number = self.mcu / u64::from(self.layout.restart_interval) - 1;
            self.bits = self.window.restart(self.bytes, self.bits, (number % 8) as u32)?;
            self.predictors = [0; 3];
            self.before_restart = self.layout.restart_interval;
        }
        Ok(())
    }

    fn run<const STORE: bool>(&mut self, mcus: u32, coefficients: &mut [i16], lasts: &mut [u8]) -> Result<(), NotMine> {
        match self.level {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: an `Avx2` is made only where the processor has AVX2 and BMI2.
            Level::Avx2(_) => unsafe { self.run_bmi2::<STORE>(mcus, coefficients, lasts) },
            _ => self.run_with::<STORE>(mcus, coefficients, lasts),
        }
    }

    /// With shifts that leave the flags alone.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn run_bmi2<const STORE: bool>(
        &mut self,
        mcus: u32,
        coefficients: &mut [i16],
        lasts: &mut [u8],
    ) -> Result<(), NotMine> {
        self.run_with::<STORE>(mcus, coefficients, lasts)
    }

    #[inline(always)]
    fn run_with<const STORE: bool>(
        &mut self,
        mcus: u32,
        coefficients: &mut [i16],
        lasts: &mut [u8],
    ) -> Result<(), NotMine> {
        let (mut bits, mut predictors) = (self.bits, self.predictors);
        let (layout, codings) = (self.layout, self.codings);
        let mut at = 0;
        for _ in 0..mcus {
            bits = self.window.make_ready(self.bytes, bits)?;
            let bytes = self.window.bytes();
            for &part in &layout.blocks {
                let part = usize::from(part).min(2);
                let Coding { dc, ac } = codings[part];
                predictors[part] += difference(&mut bits, bytes, dc)?;
                if !STORE {
                    skip(&mut bits, bytes, ac)?;
                    continue;
                }
                let limits = &layout.limits[part];
                if predictors[part].unsigned_abs() > limits[0].into() {
                    return Err(NotMine);
                }
                let target: Target<'_> = coefficients[at * BLOCK..].first_chunk_mut().ok_or(NotMine)?;
                target[..BLOCK].fill(0);
                target[0] = predictors[part] as i16;
                lasts[at] = read(&mut bits, bytes, ac, limits, target)?;
                at += 1;
            }
        }
        self.window.check(bits)?;
        (self.bits, self.predictors) = (bits, predictors);
        Ok(())
    }
}

/// The difference of a DC coefficient to its predictor.
#[inline(always)]
fn difference(bits: &mut Bits, bytes: &Bytes, table: &DcTable) -> Result<i32, NotMine> {
    bits.refill(bytes);
    let mut entry = table.entries[bits.peek(DC_BITS) as usize];
    if entry.length() == 0 {
        entry = table.long(bits.all()).ok_or(NotMine)?;
    }
    let difference = entry.difference(bits.all());
    bits.take(entry.length().into());
    Ok(difference)
}

/// The AC coefficients of a block. Returns the last position that is used, 0 where there are none.
#[inline(always)]
fn read(
    bits: &mut Bits,
    bytes: &Bytes,
    table: &AcTable,
    limits: &[u16; 64],
    target: Target<'_>,
) -> Result<u8, NotMine> {
    let mut position = 1;
    'refills: loop {
        bits.refill(bytes);
        for _ in 0..LOOKUPS {
            let entry = table.entries[bits.peek(LOOKUP_BITS) as usize];
            store(target, position + entry.first_advance(), entry.first_value());
            store(target, position + entry.advance(), entry.last_value());
            bits.take(entry.raw());
            position += entry.advance();
            if position >= BLOCK {
                if entry.length() > 0 && is_end(position) {
                    return Ok(last(position));
                }
                // Nothing was resolved, or the second of two belongs to another block.
                position -= entry.advance();
                let one = one(bits, bytes, table, (entry, entry.length()), &mut position)?;
                if one.advance() < usize::from(END) {
                    if one.first_value().unsigned_abs() > limits[(position - 1) & 63] {
                        return Err(NotMine);
                    }
                    store(target, position, one.first_value());
                }
                if position >= BLOCK {
                    return Ok(last(position));
                }
                continue 'refills;
            }
        }
    }
}

/// Passes over the AC coefficients of a block.
#[inline(always)]
fn skip(bits: &mut Bits, bytes: &Bytes, table: &AcTable) -> Result<(), NotMine> {
    let mut position = 1;
    'refills: loop {
        bits.refill(bytes);
        for _ in 0..SKIPS {
            let index = bits.peek(LOOKUP_BITS) as usize;
            let skip = table.skips[index];
            bits.take(skip.raw());
            position += skip.advance();
            if position >= BLOCK {
                if skip.length() > 0 && is_end(position) {
                    return Ok(());
                }
                position -= skip.advance();
                one(bits, bytes, table, (table.entries[index], skip.length()), &mut position)?;
                if position >= BLOCK {
                    return Ok(());
                }
                continue 'refills;
            }
        }
    }
}

/// Whether a position behind a look-up is that of a block that ends there: behind its last coefficient, or by a code behind one of
/// its 63 others.
#[inline(always)]
fn is_end(position: usize) -> bool {
    let end = usize::from(END);
    (position > end && position < end + BLOCK) || position == BLOCK
}

/// The last position of a block that is used.
#[inline(always)]
fn last(position: usize) -> u8 {
    (if position == BLOCK { BLOCK - 1 } else { position - usize::from(END) - 1 }) as u8
}

/// One symbol, after a look-up that took `back` bits in vain. `entry` is what the table has for it.
#[inline(always)]
fn one(
    bits: &mut Bits,
    bytes: &Bytes,
    table: &AcTable,
    (entry, back): (AcEntry, u32),
    position: &mut usize,
) -> Result<AcEntry, NotMine> {
    if back > 0 {
        *bits = bits.put_back(bytes, back);
    } else {
        bits.refill(bytes);
    }
    let one = table.one(entry, bits.all()).ok_or(NotMine)?;
    bits.take(one.raw());
    *position += one.advance();
    // A coefficient behind the last one.
    let is_beyond = *position > BLOCK && one.advance() < usize::from(END);
    if is_beyond { Err(NotMine) } else { Ok(one) }
}

#[inline(always)]
fn store(target: &mut [i16; 256], position: usize, value: i16) {
    target[usize::from(PLACES[position & 255])] = value;
}
