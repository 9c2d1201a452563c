//! Decodes a file: its tables, and the pixels of a rectangle.

use super::LeftToLibjpeg;
use super::bits::{BitWindow, Place};
use super::checkpoints::Checkpoints;
use super::header::{self, Component, JpegHeader, ZIGZAG};
use super::huffman::{AcTable, DcTable};
use super::idct::{self, Strip};
use super::output::{Output, Stop};
use super::pixels;
use super::region::{Plane, Region};
use super::scan::{Coded, Coding, McuBlocks, Scan, ScanLayout, plain_bits};
use crate::error::PixelError;
use crate::geometry::Rect;
use crate::level::Level;
use crate::rows::{ImageRows, Sink};

/// MCUs whose coefficients are read before they are transformed. Even, since blocks are transformed in pairs.
const GROUP: u32 = 16;
/// Number of tables that are kept for later files: many files have the tables of the standard's annex K.
const KEPT_CODINGS: usize = 8;

/// The state of decoding that is kept from file to file.
pub struct BaselineDecoder {
    level: Level,
    /// Windows of two rows of MCUs that are read at once.
    windows: [BitWindow; 2],
    blocks: [McuBlocks; 2],
    codings: Vec<Kept>,
    /// Samples of three rows of MCUs for each component.
    planes: [Vec<u8>; 3],
    pixels: pixels::RowScratch,
}

/// Look-up tables, and the bytes that they were made from.
struct Kept {
    bytes: Vec<u8>,
    coding: Coding,
}

impl BaselineDecoder {
    pub fn new(level: Level) -> Self {
        Self {
            level,
            windows: Default::default(),
            blocks: [McuBlocks::new(GROUP), McuBlocks::new(GROUP)],
            codings: Vec::new(),
            planes: Default::default(),
            pixels: pixels::RowScratch::default(),
        }
    }

    /// Opens a file, if its header is one that this decoder takes.
    pub fn open<'a>(
        &'a mut self,
        file: &'a [u8],
        checkpoints: Option<&'a Checkpoints>,
        band: &'a mut Vec<u8>,
    ) -> Result<BaselineRows<'a>, LeftToLibjpeg> {
        let header = header::parse(file)?;
        let coded = Coded::whole(header.scan);
        let checkpoints = checkpoints.filter(|checkpoints| checkpoints.fit(&header));
        self.rows(header, coded, checkpoints, band)
    }

    /// Opens a part of a file: its bytes up to the scan, and the bytes of some rows of MCUs. Only rectangles of these
    /// rows can be read. The checkpoints have to belong to the file.
    pub fn open_part<'a>(
        &'a mut self,
        header: &'a [u8],
        rows: Coded<'a>,
        checkpoints: &'a Checkpoints,
        band: &'a mut Vec<u8>,
    ) -> Result<BaselineRows<'a>, LeftToLibjpeg> {
        let header = header::parse(header)?;
        if !header.scan.is_empty() || !checkpoints.fit(&header) {
            return Err(LeftToLibjpeg);
        }
        self.rows(header, rows, Some(checkpoints), band)
    }

    fn rows<'a>(
        &'a mut self,
        header: JpegHeader<'a>,
        coded: Coded<'a>,
        checkpoints: Option<&'a Checkpoints>,
        band: &'a mut Vec<u8>,
    ) -> Result<BaselineRows<'a>, LeftToLibjpeg> {
        let codings = self.codings(&header.components)?;
        let layout = ScanLayout::new(&header);
        Ok(BaselineRows {
            decoder: self,
            header,
            coded,
            layout,
            codings,
            checkpoints,
            band,
            gave_up: false,
            depth: Depth::Pixels,
        })
    }

    /// Returns the indices of the components' tables. Makes those that are not among the kept ones.
    fn codings(&mut self, components: &[Component<'_>]) -> Result<[usize; 3], LeftToLibjpeg> {
        let mut codings = [0; 3];
        for (number, part) in components.iter().enumerate() {
            let plain_bits = plain_bits(part.quant);
            let kind = [plain_bits as u8];
            let bytes = [&kind[..], &part.dc.counts, part.dc.symbols, &part.ac.counts, part.ac.symbols].concat();
            codings[number] = match self.codings.iter().position(|kept| kept.bytes == bytes) {
                Some(index) => index,
                None => {
                    let coding = Coding { dc: DcTable::new(&part.dc)?, ac: AcTable::new(&part.ac, plain_bits)? };
                    self.keep(Kept { bytes, coding }, &codings[..number])
                }
            };
        }
        Ok(codings)
    }

    /// Keeps tables in a free place, or in place of tables that are not in use.
    fn keep(&mut self, kept: Kept, in_use: &[usize]) -> usize {
        match (0..KEPT_CODINGS).rev().find(|index| !in_use.contains(index)) {
            Some(index) if self.codings.len() == KEPT_CODINGS => {
                self.codings[index] = kept;
                index
            }
            _ => {
                self.codings.push(kept);
                self.codings.len() - 1
            }
        }
    }

    /// Frees scratch memory that is larger than `kept` bytes.
    pub fn trim(&mut self, kept: usize) {
        for plane in &mut self.planes {
            if plane.capacity() > kept {
                *plane = Vec::new();
            }
        }
    }
}

/// How far decoding goes. Only benches, and checks of a file, stop before pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub enum Depth {
    /// Stop after reading coefficients.
    Entropy,
    /// Stop after making the samples of each component.
    Samples,
    /// Make pixels.
    Pixels,
}

/// The pixels of an open file.
pub struct BaselineRows<'a> {
    decoder: &'a mut BaselineDecoder,
    header: JpegHeader<'a>,
    coded: Coded<'a>,
    layout: ScanLayout,
    codings: [usize; 3],
    checkpoints: Option<&'a Checkpoints>,
    band: &'a mut Vec<u8>,
    gave_up: bool,
    /// How far decoding goes.
    pub depth: Depth,
}

impl ImageRows for BaselineRows<'_> {
    fn size(&self) -> (u32, u32) {
        (self.header.width, self.header.height)
    }

    fn read(&mut self, rect: Rect, sink: Sink<'_>) -> Result<(), PixelError> {
        self.region(rect, sink).map_err(|stop| match stop {
            Stop::Sink(error) => error,
            Stop::LeftToLibjpeg => {
                self.gave_up = true;
                PixelError::Unsupported { message: "the file has to be decoded by libjpeg".into() }
            }
        })
    }
}

impl BaselineRows<'_> {
    /// Returns whether reading failed because the file has to be decoded by libjpeg. The error and the bands handed out
    /// so far are then meaningless.
    pub fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// Returns the number of components.
    pub fn components(&self) -> u32 {
        self.header.components.len() as u32
    }

    /// Returns the file's header.
    pub fn header(&self) -> &JpegHeader<'_> {
        &self.header
    }

    /// Walks over the whole scan and reports where every `every`th MCU of a row begins. Returns the columns and rows of
    /// MCUs, and where the last MCU ends.
    pub fn walk(
        &mut self,
        every: u32,
        mut visit: impl FnMut(Place, [i32; 3]),
    ) -> Result<((u32, u32), Place), LeftToLibjpeg> {
        let (columns, rows) = self.header.mcus();
        let BaselineDecoder { level, windows: [window, _], codings, .. } = &mut *self.decoder;
        let codings = self.codings.map(|index| &codings[index].coding);
        let mut scan = Scan::new(self.coded, &self.layout, codings, *level, window);
        scan.follow();
        for _ in 0..rows {
            let mut column = 0;
            while column < columns {
                let (place, predictors) = scan.place()?;
                visit(place, predictors);
                let run = every.min(columns - column);
                scan.skip(run)?;
                column += run;
            }
        }
        let (end, _) = scan.place()?;
        Ok(((columns, rows), end))
    }

    fn region(&mut self, rect: Rect, sink: Sink<'_>) -> Result<(), Stop> {
        let header = &self.header;
        let region = Region::new(header.sampling, (header.width, header.height), rect);
        let BaselineDecoder { level, windows: [window, other], blocks, codings, planes: samples, pixels } =
            &mut *self.decoder;
        let codings = self.codings.map(|index| &codings[index].coding);
        let parts = parts_of(header, &region, samples);
        let parts = &parts[..header.components.len()];
        let mut planes = parts.iter().map(|part| part.plane);
        let planes = std::array::from_fn(|_| planes.next().unwrap_or(parts[0].plane));
        let mut output = Output::new(header, &region, planes, *level, pixels, self.band);

        let mut scan = Scan::new(self.coded, &self.layout, codings, *level, window);
        let (mcus, _) = header.mcus();
        if self.checkpoints.is_none() {
            (0..region.rows.start).try_for_each(|_| scan.skip(mcus))?;
        }
        // With checkpoints, two rows of MCUs are read at once, unless the file has restart markers.
        let mut second = self
            .checkpoints
            .filter(|_| !self.layout.restarts())
            .map(|_| Scan::new(self.coded, &self.layout, codings, *level, other));
        let enter = |scan: &mut Scan<'_>, row| enter(scan, self.checkpoints, mcus, (region.columns.start, row));
        let mut row = region.rows.start;
        while row < region.rows.end {
            enter(&mut scan, row)?;
            let mut below = second.as_mut().filter(|_| row + 1 < region.rows.end);
            if let Some(below) = &mut below {
                enter(below, row + 1)?;
            }
            let rows = row..row + 1 + u32::from(below.is_some());
            let mut column = region.columns.start;
            while column < region.columns.end {
                let group = (region.columns.end - column).min(GROUP);
                match &mut below {
                    Some(below) => scan.read_two(below, group, blocks)?,
                    None => scan.read(group, &mut blocks[0])?,
                }
                if self.depth >= Depth::Samples {
                    for (row, blocks) in rows.clone().zip(&*blocks) {
                        transform(*level, parts, blocks, group, samples, (row, column - region.columns.start))?;
                    }
                }
                column += group;
            }
            if self.checkpoints.is_none() {
                scan.skip(mcus - column)?;
            }
            for row in rows.clone() {
                for (part, samples) in parts.iter().zip(samples.iter_mut()).skip(1) {
                    part.plane.repeat_edges(samples, row);
                }
                if self.depth == Depth::Pixels {
                    output.emit(samples, row, sink)?;
                }
            }
            row = rows.end;
        }
        Ok(())
    }
}

/// One component of the rectangle.
struct ComponentRegion {
    /// Blocks of the component in an MCU, across and down.
    blocks: (u32, u32),
    plane: Plane,
    /// Quantisation steps by rows.
    quant: [i16; 64],
}

/// Describes each component, and makes room for its samples.
fn parts_of(header: &JpegHeader<'_>, region: &Region, samples: &mut [Vec<u8>; 3]) -> [ComponentRegion; 3] {
    let (across, down) = (u32::from(header.sampling.across), u32::from(header.sampling.down));
    let mut parts: [ComponentRegion; 3] = std::array::from_fn(|part| {
        let blocks = if part == 0 { (across, down) } else { (1, 1) };
        let factors = if part == 0 { (1, 1) } else { (across, down) };
        let size = (header.width.div_ceil(factors.0), header.height.div_ceil(factors.1));
        ComponentRegion { blocks, plane: Plane::new(region, blocks, size), quant: [1; 64] }
    });
    for ((part, component), samples) in parts.iter_mut().zip(&header.components).zip(samples) {
        for (&at, &step) in ZIGZAG.iter().zip(component.quant) {
            part.quant[usize::from(at)] = step.into();
        }
        if samples.len() < part.plane.bytes() {
            samples.resize(part.plane.bytes(), 0);
        }
    }
    parts
}

/// Moves the scan to an MCU: from the checkpoint at or before it. Without checkpoints, the scan must stand at the start
/// of the MCU's row.
fn enter(
    scan: &mut Scan<'_>,
    checkpoints: Option<&Checkpoints>,
    mcus: u32,
    (column, row): (u32, u32),
) -> Result<(), LeftToLibjpeg> {
    let mut from = 0;
    if let Some(checkpoint) = checkpoints.map(|points| points.before(row, column)) {
        let mcu = u64::from(row) * u64::from(mcus) + u64::from(checkpoint.column);
        scan.seek(mcu, checkpoint.place, checkpoint.predictors)?;
        from = checkpoint.column;
    }
    scan.skip(column - from)
}

/// Transforms MCUs into the planes, starting at a column of MCUs of the region.
fn transform(
    level: Level,
    parts: &[ComponentRegion],
    McuBlocks { coefficients, lasts }: &McuBlocks,
    mcus: u32,
    samples: &mut [Vec<u8>; 3],
    (row, column): (u32, u32),
) -> Result<(), LeftToLibjpeg> {
    let per_mcu = parts.iter().map(|part| part.blocks.0 * part.blocks.1).sum::<u32>() as usize;
    let mut first = 0;
    for (part, samples) in parts.iter().zip(samples) {
        let (across, down) = part.blocks;
        for y in 0..down {
            let blocks = (mcus * across) as usize;
            let across = across as usize;
            let strip = Strip { coefficients, lasts, first, per_mcu, across, blocks, quant: &part.quant };
            let at = part.plane.row((row * down + y) as usize * 8) + column as usize * across * 8;
            if !idct::transform(level, &strip, &mut samples[at..], part.plane.stride) {
                return Err(LeftToLibjpeg);
            }
            first += across;
        }
    }
    Ok(())
}
