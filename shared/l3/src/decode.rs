//! From the bytes of patches to pixels.

use std::ops::Range;

use crate::patch::{Parts, SLACK};
use crate::planes::{EMPTY, Planes};
use crate::{Error, Index, Level, Region};

/// An image in L3 whose bytes lie in memory.
#[derive(Clone, Debug)]
pub struct OpenImage<'a> {
    index: Index,
    bytes: &'a [u8],
}

impl<'a> OpenImage<'a> {
    /// Reads the index of the image that `bytes` are.
    ///
    /// # Errors
    ///
    /// Returns an error if the index is damaged, or if bytes are missing or too many. Damage in a patch shows when the
    /// patch is decoded.
    pub fn open(bytes: &'a [u8]) -> Result<Self, Error> {
        let index = Index::read(bytes)?;
        let (expected, found) = (index.image_bytes(), bytes.len() as u64);
        if expected != found {
            return Err(Error::Length { what: "bytes of the L3 image", expected, found });
        }
        Ok(Self { index, bytes })
    }

    /// Chooses the vector instructions for decoding. Every set gives the same pixels.
    pub fn with_level(mut self, level: Level) -> Self {
        self.index = self.index.with_level(level);
        self
    }

    /// Returns the image's index.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Returns the image's width in pixels.
    pub fn width(&self) -> usize {
        self.index.width()
    }

    /// Returns the image's height in pixels.
    pub fn height(&self) -> usize {
        self.index.height()
    }

    /// Returns the number of bytes of a pixel: 1 for gray, 3 for RGB.
    pub fn channels(&self) -> usize {
        self.index.channels()
    }

    /// Writes the pixels of a region to `pixels`, whose rows are `stride` bytes apart. Decodes only the patches that
    /// the region touches, and checks their checksums.
    ///
    /// # Errors
    ///
    /// Returns an error if the region does not lie in the image, if `pixels` or `stride` is too small, or if a patch
    /// is damaged. What `pixels` holds is then unspecified.
    pub fn decode_region(&self, region: Region, pixels: &mut [u8], stride: usize) -> Result<(), Error> {
        let piece = |piece: Range<u64>| &self.bytes[piece.start as usize..piece.end as usize];
        let pieces: Vec<_> = self.index.pieces(region)?.map(piece).collect();
        self.index.decode_region(region, &pieces, pixels, stride)
    }

    /// Returns all pixels, in rows without gaps. Uses `threads` threads, at most one for each row of patches.
    ///
    /// # Errors
    ///
    /// Returns an error if a patch is damaged.
    pub fn decode(&self, threads: usize) -> Result<Vec<u8>, Error> {
        let stride = self.width() * self.channels();
        let mut pixels = vec![0; stride * self.height()];
        let side = self.index.patch_side();
        let rows = self.height().div_ceil(side).div_ceil(threads.max(1)) * side;
        if rows >= self.height() {
            self.decode_region(self.index.whole(), &mut pixels, stride)?;
            return Ok(pixels);
        }
        std::thread::scope(|scope| {
            let bands = pixels.chunks_mut(rows * stride).enumerate().map(|(number, pixels)| {
                let band = Region { y: number * rows, height: pixels.len() / stride, ..self.index.whole() };
                scope.spawn(move || self.decode_region(band, pixels, stride))
            });
            let bands: Vec<_> = bands.collect();
            bands.into_iter().try_for_each(|band| band.join().expect("decoding does not panic"))
        })?;
        Ok(pixels)
    }
}

impl Index {
    /// Writes the pixels of a region to `pixels`, whose rows are `stride` bytes apart. `pieces` are the bytes that
    /// [`Index::pieces`] names.
    ///
    /// # Errors
    ///
    /// Returns an error as [`OpenImage::decode_region`] does, or if `pieces` have other lengths.
    pub fn decode_region(
        &self,
        region: Region,
        pieces: &[&[u8]],
        pixels: &mut [u8],
        stride: usize,
    ) -> Result<(), Error> {
        let (columns, rows) = self.patches(region)?;
        self.check_pieces(region, pieces)?;
        check_target(region, self.channels(), pixels.len(), stride)?;
        let (planes, end_of_piece) = (EMPTY, Vec::new());
        let mut worker = Worker { index: self, level: self.level(), region, stride, planes, end_of_piece };
        for (row, &piece) in rows.zip(pieces) {
            let mut rest = piece;
            for column in columns.clone() {
                worker.decode_patch(column, row, rest, pixels)?;
                rest = &rest[self.length(row * self.columns() + column)..];
            }
        }
        Ok(())
    }

    fn check_pieces(&self, region: Region, pieces: &[&[u8]]) -> Result<(), Error> {
        let expected = self.pieces(region)?;
        if expected.len() != pieces.len() {
            let (expected, found) = (expected.len() as u64, pieces.len() as u64);
            return Err(Error::Length { what: "pieces for the region", expected, found });
        }
        for (expected, piece) in expected.zip(pieces) {
            let (expected, found) = (expected.end - expected.start, piece.len() as u64);
            if expected != found {
                return Err(Error::Length { what: "piece of the L3 image", expected, found });
            }
        }
        Ok(())
    }
}

/// Checks that the pixels of a region have place in `bytes` bytes.
fn check_target(region: Region, channels: usize, bytes: usize, stride: usize) -> Result<(), Error> {
    let row = region.width as u64 * channels as u64;
    if (stride as u64) < row {
        return Err(Error::Length { what: "stride of the pixels", expected: row, found: stride as u64 });
    }
    let expected = (region.height as u64 - 1).saturating_mul(stride as u64).saturating_add(row);
    if (bytes as u64) < expected {
        return Err(Error::Length { what: "memory for the pixels", expected, found: bytes as u64 });
    }
    Ok(())
}

/// Decodes the patches of a region one after the other.
struct Worker<'a> {
    index: &'a Index,
    level: Level,
    region: Region,
    stride: usize,
    planes: Planes,
    /// A copy of the last patch of a piece, with the bytes after it that a decoder may load.
    end_of_piece: Vec<u8>,
}

impl Worker<'_> {
    /// Decodes the patch that `bytes` begin with, and writes its pixels of the region.
    fn decode_patch(&mut self, column: usize, row: usize, bytes: &[u8], pixels: &mut [u8]) -> Result<(), Error> {
        let patch = row * self.index.columns() + column;
        let (shape, length) = (self.index.shape(patch), self.index.length(patch));
        // The next patch is about as long. Memory delivers it while this one is decoded.
        self.level.prefetch(&bytes[length..bytes.len().min(2 * length)]);
        self.index.check(patch, &bytes[..length])?;
        let bytes = if bytes.len() >= length + SLACK {
            bytes
        } else {
            self.end_of_piece.clear();
            self.end_of_piece.extend_from_slice(&bytes[..length]);
            self.end_of_piece.resize(length + SLACK, 0);
            &self.end_of_piece
        };
        let parts = Parts::find(bytes, length, &shape).map_err(|why| Error::Patch { patch, why })?;
        let side = self.index.patch_side();
        let columns = overlap(column * side, shape.width, self.region.x, self.region.width);
        let rows = overlap(row * side, shape.height, self.region.y, self.region.height);
        for (parts, plane) in parts.planes.iter().zip(&mut self.planes).take(shape.channels) {
            self.level.decode_plane(parts, &shape, rows.end, plane);
        }
        let x = (column * side + columns.start - self.region.x) * shape.channels;
        let y = row * side + rows.start - self.region.y;
        let target = &mut pixels[y * self.stride + x..];
        if shape.channels == 3 {
            self.level.write_rgb(&self.planes, parts.color, columns, rows, target, self.stride);
        } else {
            for (row, target) in self.planes[0][rows].iter().zip(target.chunks_mut(self.stride)) {
                target[..columns.len()].copy_from_slice(&row[columns.clone()]);
            }
        }
        Ok(())
    }
}

/// Returns the part of `count` pixels from `begin` on that lies in a region, counted from `begin`.
fn overlap(begin: usize, count: usize, region_begin: usize, region_count: usize) -> Range<usize> {
    region_begin.saturating_sub(begin)..(region_begin + region_count - begin).min(count)
}
