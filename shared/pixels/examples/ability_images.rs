//! Writes the built-in images of the abilities' digests: `cargo run --example ability_images -- DIRECTORY`.
//!
//! The files are part of the crate, because other images would have other digests. This program records how they were
//! made.

use std::path::PathBuf;

use ddlp_pixels::draw::Rng;
use ddlp_pixels::encode::{self, JpegOptions, Layout};

/// Returns waves of several lengths, edges and noise, so that every frequency occurs.
fn pixels(width: u32, height: u32, channels: u32) -> Vec<u8> {
    let mut rng = Rng::from_key([1, 2, 3, u64::from(channels)]);
    let mut pixels = Vec::new();
    for y in 0..height as i64 {
        for x in 0..width as i64 {
            for c in 0..i64::from(channels) {
                let wave = ((x * (c + 2) + y * 3) % 64 - 32).abs() * 4;
                let edge = if (x - 30) * (x - 30) + (y - 20 - 8 * c) * (y - 20 - 8 * c) < 240 { 96 } else { 0 };
                pixels.push((wave + edge + rng.below(24) as i64).clamp(0, 255) as u8);
            }
        }
    }
    pixels
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = PathBuf::from(std::env::args().nth(1).ok_or("a folder is missing")?);
    let base = JpegOptions { quality: 85, ..JpegOptions::default() };
    let files = [
        ("420.jpg", 72, 56, base.clone()),
        ("444-odd.jpg", 67, 45, JpegOptions { layout: Layout::Yuv444, restart_rows: 1, ..base.clone() }),
        ("422-progressive.jpg", 61, 50, JpegOptions { layout: Layout::Yuv422, progressive: true, ..base.clone() }),
        ("gray.jpg", 50, 40, JpegOptions { layout: Layout::Gray, ..base.clone() }),
        ("cmyk.jpg", 49, 41, JpegOptions { layout: Layout::Ycck420, ..base }),
    ];
    for (name, width, height, options) in files {
        let pixels = pixels(width, height, options.layout.channels());
        std::fs::write(directory.join(name), encode::jpeg(&pixels, width, height, &options)?)?;
    }
    let (width, height) = (43, 39);
    let png = image::RgbImage::from_raw(width, height, pixels(width, height, 3)).ok_or("a wrong size")?;
    png.save(directory.join("rgb.png"))?;
    let (width, height) = (28, 25);
    let other = image::RgbImage::from_raw(width, height, pixels(width, height, 3)).ok_or("a wrong size")?;
    for name in ["rgb.bmp", "rgb.ppm", "palette.gif"] {
        other.save(directory.join(name))?;
    }
    Ok(())
}
