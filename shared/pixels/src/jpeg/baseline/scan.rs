//! Reads the MCUs of a scan in order: their coefficients, or only their length and their DC predictors.
//!
//! [`Scan::read`] stores coefficients, [`Scan::skip`] does not. Both follow restart markers and stop wherever libjpeg
//! would warn, so skipped MCUs are checked as strictly as those that are read.

#![allow(unsafe_code)]

use super::LeftToLibjpeg;
use super::bits::{BitWindow, Bits, Place};
use super::block::{self, BEHIND, BLOCK};
use super::header::JpegHeader;
use super::huffman::{AC_VALUE_BITS, AcTable, DcTable};
use crate::level::Level;

/// Most blocks in an MCU: four of luma and two of chroma.
pub const MCU_BLOCKS: usize = 6;
/// Largest dequantised DC coefficient that libjpeg's table clamps correctly. An encoder of 8 bits writes at most 1024,
/// plus half a step.
const DEQUANTISED_DC_MAX: u16 = 2047;
/// Largest dequantised coefficient: the sum of two fits 16 bits.
const DEQUANTISED_MAX: u16 = 16383;
/// AC coefficients with this many bits are in range for every quantisation step.
const PLAIN_BITS: u32 = 6;
/// Limits of a run. DC predictors are checked once per run: a predictor that passed cannot overflow within this many
/// MCUs.
const RUN_MAX: u32 = 1 << 16;
const RUN_PREDICTOR_MAX: i32 = 1 << 20;

/// The tables of a component.
pub struct Coding {
    pub dc: DcTable,
    pub ac: AcTable,
}

/// Returns the number of bits up to which AC coefficients cannot be out of range: one of a few fixed numbers.
pub fn plain_bits(quant: &[u8; 64]) -> u32 {
    let largest = quant[1..].iter().copied().max().unwrap_or(0);
    let is_plain = |&bits: &u32| ((1 << bits) - 1) * u32::from(largest) <= DEQUANTISED_MAX.into();
    [AC_VALUE_BITS, 8].into_iter().find(is_plain).unwrap_or(PLAIN_BITS)
}

/// Structure of a scan.
pub struct ScanLayout {
    /// Index of the component of each block of an MCU.
    pub blocks: Vec<u8>,
    /// Largest coefficients of each component, in the order of the stream.
    limits: [[u16; 64]; 3],
    restart_interval: u32,
    mcus: u64,
}

impl ScanLayout {
    /// Returns whether the scan has restart markers.
    pub fn restarts(&self) -> bool {
        self.restart_interval > 0
    }

    pub fn new(header: &JpegHeader<'_>) -> Self {
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

/// Blocks of several MCUs.
pub struct McuBlocks {
    /// Coefficients by rows, one block after the other.
    pub coefficients: Vec<i16>,
    /// Last position, in the stream's order, that each block uses.
    pub lasts: Vec<u8>,
}

impl McuBlocks {
    /// Allocates blocks for `mcus` MCUs.
    pub fn new(mcus: u32) -> Self {
        let blocks = mcus as usize * MCU_BLOCKS;
        Self { coefficients: vec![0; (blocks + BEHIND) * BLOCK], lasts: vec![0; blocks] }
    }
}

/// Entropy-coded bytes: a whole scan and everything after it, or some rows of MCUs.
#[derive(Clone, Copy)]
pub struct Coded<'s> {
    pub bytes: &'s [u8],
    /// For some rows of MCUs: the offset in the scan at which they begin.
    pub part_from: Option<usize>,
}

impl<'s> Coded<'s> {
    /// Takes a whole scan and everything after it.
    pub fn whole(bytes: &'s [u8]) -> Self {
        Self { bytes, part_from: None }
    }
}

/// A position in a scan.
pub struct Scan<'s> {
    bytes: &'s [u8],
    /// Offset in the scan of the first of `bytes`.
    from: usize,
    layout: &'s ScanLayout,
    codings: [&'s Coding; 3],
    level: Level,
    window: &'s mut BitWindow,
    bits: Bits,
    predictors: [i32; 3],
    /// Number of MCUs before this position.
    mcu: u64,
    /// Number of MCUs up to the next restart marker.
    before_restart: u32,
}

impl<'s> Scan<'s> {
    /// Starts at the first MCU of a scan. In some rows of a scan, [`seek`](Self::seek) an MCU before reading.
    pub fn new(
        Coded { bytes, part_from }: Coded<'s>,
        layout: &'s ScanLayout,
        codings: [&'s Coding; 3],
        level: Level,
        window: &'s mut BitWindow,
    ) -> Self {
        window.follows = false;
        window.is_part = part_from.is_some();
        let from = part_from.unwrap_or(0);
        let bits = window.seek(bytes, Place::default());
        let before_restart = if layout.restart_interval > 0 { layout.restart_interval } else { u32::MAX };
        Self { bytes, from, layout, codings, level, window, bits, predictors: [0; 3], mcu: 0, before_restart }
    }

    /// Moves to an MCU whose place and predictors are known. Fails if the place is before the bytes.
    pub fn seek(&mut self, mcu: u64, place: Place, predictors: [i32; 3]) -> Result<(), LeftToLibjpeg> {
        let byte = place.byte.checked_sub(self.from).ok_or(LeftToLibjpeg)?;
        self.bits = self.window.seek(self.bytes, Place { byte, ..place });
        self.predictors = predictors;
        self.mcu = mcu;
        if self.layout.restart_interval > 0 {
            let interval = u64::from(self.layout.restart_interval);
            self.before_restart = (interval - mcu % interval) as u32;
        }
        Ok(())
    }

    /// Makes the window follow offsets in the scan, which [`place`](Self::place) needs.
    pub fn follow(&mut self) {
        self.window.follows = true;
    }

    /// Returns where the next MCU begins, and its predictors.
    pub fn place(&mut self) -> Result<(Place, [i32; 3]), LeftToLibjpeg> {
        self.restart_if_due()?;
        Ok((self.window.place(self.bytes, self.bits), self.predictors))
    }

    /// Skips MCUs.
    pub fn skip(&mut self, mcus: u32) -> Result<(), LeftToLibjpeg> {
        let mut nowhere = McuBlocks { coefficients: Vec::new(), lasts: Vec::new() };
        self.runs(mcus, |scan, _, run| scan.run::<false>(run, &mut nowhere, 0))
    }

    /// Reads MCUs, as many as there is space for.
    pub fn read(&mut self, mcus: u32, blocks: &mut McuBlocks) -> Result<(), LeftToLibjpeg> {
        self.runs(mcus, |scan, done, run| scan.run::<true>(run, blocks, done))
    }

    /// Reads MCUs from here and from another position at once, which is faster than one after the other: while a
    /// look-up of one position waits, the core works on the other. Only for scans without restart markers.
    pub fn read_two(&mut self, other: &mut Self, mcus: u32, blocks: &mut [McuBlocks; 2]) -> Result<(), LeftToLibjpeg> {
        assert!(self.layout.restart_interval == 0, "restart markers are followed at one position only");
        match self.level {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: an `Avx2` is made only where the processor has AVX2, BMI1 and BMI2.
            Level::Avx2(_) => unsafe { self.run_two_bmi2(other, mcus, blocks) },
            _ => self.run_two(other, mcus, blocks),
        }
    }

    /// Splits MCUs into runs that contain no restart marker.
    fn runs(
        &mut self,
        mcus: u32,
        mut run: impl FnMut(&mut Self, u32, u32) -> Result<(), LeftToLibjpeg>,
    ) -> Result<(), LeftToLibjpeg> {
        let mut done = 0;
        while done < mcus {
            self.restart_if_due()?;
            let now = (mcus - done).min(self.before_restart).min(RUN_MAX);
            run(self, done, now)?;
            if self.predictors.iter().any(|predictor| predictor.abs() > RUN_PREDICTOR_MAX) {
                return Err(LeftToLibjpeg);
            }
            done += now;
            self.mcu += u64::from(now);
            if self.layout.restart_interval > 0 {
                self.before_restart -= now;
            }
        }
        Ok(())
    }

    fn restart_if_due(&mut self) -> Result<(), LeftToLibjpeg> {
        // No marker follows the last interval.
        if self.before_restart == 0 && self.mcu < self.layout.mcus {
            let number = self.mcu / u64::from(self.layout.restart_interval) - 1;
            self.bits = self.window.restart(self.bytes, self.bits, (number % 8) as u32)?;
            self.predictors = [0; 3];
            self.before_restart = self.layout.restart_interval;
        }
        Ok(())
    }

    /// Reads or skips MCUs. If `STORE`, stores their blocks after the blocks of `done` MCUs.
    fn run<const STORE: bool>(&mut self, mcus: u32, blocks: &mut McuBlocks, done: u32) -> Result<(), LeftToLibjpeg> {
        match self.level {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: an `Avx2` is made only where the processor has AVX2, BMI1 and BMI2.
            Level::Avx2(_) => unsafe { self.run_bmi2::<STORE>(mcus, blocks, done) },
            _ => self.run_with::<STORE>(mcus, blocks, done),
        }
    }

    /// Does the same as `run_with`, with BMI2's shifts, which leave the flags alone.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn run_bmi2<const STORE: bool>(
        &mut self,
        mcus: u32,
        blocks: &mut McuBlocks,
        done: u32,
    ) -> Result<(), LeftToLibjpeg> {
        self.run_with::<STORE>(mcus, blocks, done)
    }

    #[inline(always)]
    fn run_with<const STORE: bool>(
        &mut self,
        mcus: u32,
        blocks: &mut McuBlocks,
        done: u32,
    ) -> Result<(), LeftToLibjpeg> {
        let (mut bits, mut predictors) = (self.bits, self.predictors);
        let (layout, codings) = (self.layout, self.codings);
        let mut at = done as usize * layout.blocks.len();
        for _ in 0..mcus {
            for &part in &layout.blocks {
                bits = self.window.make_ready(self.bytes, bits)?;
                let bytes = self.window.bytes();
                let part = usize::from(part).min(2);
                let Coding { dc, ac } = codings[part];
                predictors[part] += block::difference(&mut bits, bytes, dc)?;
                if !STORE {
                    block::skip(&mut bits, bytes, ac)?;
                    continue;
                }
                let limits = &layout.limits[part];
                let target = block::start(&mut blocks.coefficients, at, predictors[part], limits)?;
                blocks.lasts[at] = block::read(&mut bits, bytes, ac, limits, target, 1)?;
                at += 1;
            }
        }
        self.window.check(bits)?;
        (self.bits, self.predictors) = (bits, predictors);
        Ok(())
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn run_two_bmi2(&mut self, other: &mut Self, mcus: u32, blocks: &mut [McuBlocks; 2]) -> Result<(), LeftToLibjpeg> {
        self.run_two(other, mcus, blocks)
    }

    #[inline(always)]
    fn run_two(
        &mut self,
        other: &mut Self,
        mcus: u32,
        [mine, others]: &mut [McuBlocks; 2],
    ) -> Result<(), LeftToLibjpeg> {
        let (mut bits, mut predictors) = ([self.bits, other.bits], [self.predictors, other.predictors]);
        let (layout, codings) = (self.layout, self.codings);
        let mut at = 0;
        for _ in 0..mcus {
            for &part in &layout.blocks {
                bits[0] = self.window.make_ready(self.bytes, bits[0])?;
                bits[1] = other.window.make_ready(other.bytes, bits[1])?;
                let bytes = [self.window.bytes(), other.window.bytes()];
                let part = usize::from(part).min(2);
                let Coding { dc, ac } = codings[part];
                predictors[0][part] += block::difference(&mut bits[0], bytes[0], dc)?;
                predictors[1][part] += block::difference(&mut bits[1], bytes[1], dc)?;
                let limits = &layout.limits[part];
                let first = block::start(&mut mine.coefficients, at, predictors[0][part], limits)?;
                let second = block::start(&mut others.coefficients, at, predictors[1][part], limits)?;
                let to = block::read_both(&mut bits, bytes, ac, [&mut *first, &mut *second]);
                mine.lasts[at] = block::read(&mut bits[0], bytes[0], ac, limits, first, to[0])?;
                others.lasts[at] = block::read(&mut bits[1], bytes[1], ac, limits, second, to[1])?;
                at += 1;
            }
        }
        self.window.check(bits[0])?;
        other.window.check(bits[1])?;
        ([self.bits, other.bits], [self.predictors, other.predictors]) = (bits, predictors);
        self.mcu += u64::from(mcus);
        other.mcu += u64::from(mcus);
        Ok(())
    }
}
