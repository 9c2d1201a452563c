//! A sheet as one picture: a line of text above each sample's images.

use super::{JPEG_QUALITY, JpegOptions, Sheet, SheetImage, encode, font};

/// Space around images and between them, in pixels.
const GAP: u32 = 6;
const BACKGROUND: [u8; 3] = [255; 3];
const TEXT: [u8; 3] = [60; 3];
const WRONG: [u8; 3] = [160, 0, 0];
/// Beside the pixels of a sample that has none.
const EMPTY: [u8; 3] = [235; 3];

/// A picture in RGB.
pub struct Picture {
    width: u32,
    height: u32,
    pixels: Vec<u8>,
}

/// Draws a sheet.
pub fn draw(sheet: &Sheet) -> anyhow::Result<Picture> {
    let (columns, scale) = (sheet.columns() as u32, sheet.scale());
    let (wide, high) = (sheet.width * scale, sheet.height * scale);
    let line = font::HEIGHT + GAP;
    let width = GAP + columns * (wide + GAP);
    let height = GAP + line + sheet.rows.len() as u32 * (line + high + GAP);
    let mut picture = Picture::new(width, height)?;
    for column in 0..columns {
        picture.write([GAP + column * (wide + GAP), GAP], wide, &Sheet::heading(column as usize), TEXT);
    }
    for (number, row) in sheet.rows.iter().enumerate() {
        let top = GAP + line + number as u32 * (line + high + GAP);
        let text = format!("{}: {}  {}", row.index, row.label, row.name);
        picture.write([GAP, top], width - 2 * GAP, &text, TEXT);
        for (column, image) in row.images.iter().enumerate() {
            let place = [GAP + column as u32 * (wide + GAP), top + line];
            picture.put(place, sheet, scale, image);
        }
    }
    Ok(picture)
}

impl Picture {
    fn new(width: u32, height: u32) -> anyhow::Result<Self> {
        let bytes = width as usize * height as usize * 3;
        let mut pixels = Vec::new();
        pixels.try_reserve_exact(bytes)?;
        pixels.resize(bytes, BACKGROUND[0]);
        Ok(Self { width, height, pixels })
    }

    pub fn png(&self) -> anyhow::Result<Vec<u8>> {
        Ok(encode::png(&self.pixels, self.width, self.height)?)
    }

    pub fn jpeg(&self) -> anyhow::Result<Vec<u8>> {
        let options = JpegOptions { quality: JPEG_QUALITY, optimize: true, ..JpegOptions::default() };
        Ok(encode::jpeg(&self.pixels, self.width, self.height, &options)?)
    }

    /// Puts an image at a place, x and y, or says why there is none.
    fn put(&mut self, place: [u32; 2], sheet: &Sheet, scale: u32, image: &SheetImage) {
        let Sheet { width, height, .. } = *sheet;
        for y in 0..height * scale {
            for x in 0..width * scale {
                let color = match image {
                    Ok(pixels) => {
                        let at = ((y / scale) as usize * width as usize + (x / scale) as usize) * 3;
                        [pixels[at], pixels[at + 1], pixels[at + 2]]
                    }
                    Err(_) => EMPTY,
                };
                self.set([place[0] + x, place[1] + y], color);
            }
        }
        if let Err(reason) = image {
            self.write([place[0] + GAP, place[1] + GAP], (width * scale).saturating_sub(2 * GAP), reason, WRONG);
        }
    }

    /// Writes as much of a text as fits a width.
    fn write(&mut self, [left, top]: [u32; 2], width: u32, text: &str, color: [u8; 3]) {
        let fitting = (width / font::ADVANCE) as usize;
        for (number, character) in text.chars().take(fitting).enumerate() {
            for [x, y] in font::dots(character) {
                self.set([left + number as u32 * font::ADVANCE + x, top + y], color);
            }
        }
    }

    fn set(&mut self, [x, y]: [u32; 2], color: [u8; 3]) {
        let at = (y as usize * self.width as usize + x as usize) * 3;
        self.pixels[at..at + 3].copy_from_slice(&color);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::SheetRow;

    #[test]
    fn a_picture_has_every_image_at_its_place() {
        let images = vec![Ok(vec![10; 12]), Err("no image".into()), Ok(vec![200; 12])];
        let row = SheetRow { index: 7, name: "a".repeat(500), label: "x".into(), images };
        let picture = draw(&Sheet { width: 2, height: 2, rows: vec![row] }).unwrap();
        assert_eq!(picture.width, GAP + 3 * (128 + GAP));
        let count = |color: [u8; 3]| picture.pixels.as_chunks::<3>().0.iter().filter(|&&pixel| pixel == color).count();
        assert_eq!((count([10; 3]), count([200; 3])), (128 * 128, 128 * 128));
        assert_eq!(count(EMPTY) + count(WRONG), 128 * 128);
        assert!(count(WRONG) > 50 && count(TEXT) > 500);
        assert!(picture.png().unwrap().starts_with(b"\x89PNG") && picture.jpeg().unwrap().starts_with(&[0xFF, 0xD8]));
    }
}
