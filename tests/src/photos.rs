//! An ImageFolder of generated JPEG files of every kind: gray, 4:2:0 to 4:4:4, CMYK, restart markers, progressive, odd
//! sizes, EXIF orientation, and other formats.

use ddlp_dataset::pack::{PackFormat, PackOptions};
use ddlp_pixels::encode::{JpegOptions, Layout, jpeg};
use std::path::{Path, PathBuf};

/// A folder of images and its pack, removed when dropped.
pub struct Photos {
    dir: tempfile::TempDir,
}

/// Returns a smooth scene with edges and some grain, so that it exercises every stage of a codec.
fn scene(width: u32, height: u32, channels: u32, seed: u32) -> Vec<u8> {
    let mut noise = seed.wrapping_mul(2_654_435_761) | 1;
    let mut pixels = Vec::with_capacity((width * height * channels) as usize);
    for y in 0..height {
        for x in 0..width {
            for channel in 0..channels {
                noise ^= noise << 13;
                noise ^= noise >> 17;
                noise ^= noise << 5;
                let wave = (x * (3 + seed % 5) + y * (2 + channel)) / 3 + (x * y / 64) * (1 + channel);
                let edge = if (x / 17 + y / 23 + seed).is_multiple_of(3) { 60 } else { 0 };
                pixels.push(((wave + edge + noise % 9) % 256) as u8);
            }
        }
    }
    pixels
}

fn options(index: u32) -> JpegOptions {
    let layouts = [Layout::Yuv444, Layout::Yuv420, Layout::Gray, Layout::Yuv422, Layout::Cmyk, Layout::Yuv440];
    JpegOptions {
        quality: [95, 88, 75][index as usize % 3],
        layout: layouts[index as usize % layouts.len()],
        progressive: index % 7 == 3,
        restart_rows: u32::from(index % 5 == 1),
        orientation: (index % 11 == 4).then_some(6),
        ..JpegOptions::default()
    }
}

/// Returns scene `number` as a JPEG file.
pub fn image(number: u32, (width, height): (u32, u32), options: &JpegOptions) -> Vec<u8> {
    let pixels = scene(width, height, options.layout.channels(), number);
    jpeg(&pixels, width, height, options).expect("a scene is encodable")
}

/// Returns scene `number` as a PPM file.
pub fn lossless(number: u32, (width, height): (u32, u32)) -> Vec<u8> {
    [format!("P6 {width} {height} 255\n").as_bytes(), &scene(width, height, 3, number)].concat()
}

impl Photos {
    /// Makes `count` good images in three classes.
    pub fn new(count: u32) -> Self {
        Self::with_sizes(count, |index| (97 + index * 13 % 90, 64 + index * 29 % 80))
    }

    /// Makes `count` images; `size` returns the size for each index.
    pub fn with_sizes(count: u32, size: impl Fn(u32) -> (u32, u32)) -> Self {
        Self::of(count, |index| image(index, size(index), &options(index)))
    }

    /// Makes `count` files; `bytes` returns the contents for each index.
    pub fn of(count: u32, bytes: impl Fn(u32) -> Vec<u8>) -> Self {
        let photos = Self { dir: tempfile::tempdir().expect("a folder for images") };
        for index in 0..count {
            photos.write(index, &bytes(index));
        }
        photos
    }

    /// Replaces image `index` by these bytes.
    pub fn write(&self, index: u32, bytes: &[u8]) {
        let class = self.folder().join(format!("class_{}", index % 3));
        std::fs::create_dir_all(&class).expect("a class folder");
        std::fs::write(class.join(format!("{index:05}.jpg")), bytes).expect("an image file");
    }

    /// Returns the bytes of image `index`.
    pub fn read(&self, index: u32) -> Vec<u8> {
        std::fs::read(self.folder().join(format!("class_{}/{index:05}.jpg", index % 3))).expect("an image file")
    }

    /// Returns the ImageFolder's path.
    pub fn folder(&self) -> PathBuf {
        self.dir.path().join("images")
    }

    /// Returns a scratch folder beside the ImageFolder.
    pub fn scratch(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the folder's pack, which the first call makes.
    pub fn pack(&self) -> PathBuf {
        self.pack_as("images.ddlp", PackFormat::default())
    }

    /// Returns the folder's pack with this name and format, which the first call makes.
    pub fn pack_as(&self, name: &str, format: PackFormat) -> PathBuf {
        let path = self.dir.path().join(name);
        if !path.exists() {
            let source = ddlp_dataset::open(&self.folder()).expect("the folder opens");
            let options = PackOptions { format, ..PackOptions::default() };
            ddlp_dataset::pack::pack(&*source, &path, &options, &mut |_| std::ops::ControlFlow::Continue(()))
                .expect("the folder packs");
        }
        path
    }
}
