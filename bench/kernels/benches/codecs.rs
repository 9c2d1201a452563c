//! Size and speed of lossless formats on one core, in one run: L3 with each set of vector instructions, the `png`
//! crate, QOI and ZPNG, beside a copy of the pixels.
//!
//! ```text
//! cargo bench --bench codecs -- FOLDER    # the PNG files of a folder, all RGB or gray with 8 bits
//! cargo bench --bench codecs              # one made image of 2048×1024
//! ```
//!
//! Speeds are bytes of pixels per second of processor time. Each round runs every codec once over all images, so
//! that whatever slows the machine down meets all of them. Every decoder writes interleaved pixels, and L3 checks
//! its checksums.

use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use ddlp_l3::{Image, Level, OpenImage, Options, PatchSize, encode_at};

const ROUNDS: usize = 15;

/// An image's pixels.
struct Pixels {
    width: usize,
    height: usize,
    channels: usize,
    bytes: Vec<u8>,
    /// The PNG file it came from.
    png: Vec<u8>,
}

impl Pixels {
    fn read(path: &Path) -> Self {
        let png = std::fs::read(path).expect("a file that can be read");
        let mut reader = png::Decoder::new(std::io::Cursor::new(&png)).read_info().expect("a PNG file");
        let mut bytes = vec![0; reader.output_buffer_size().expect("an image that fits into memory")];
        let info = reader.next_frame(&mut bytes).expect("an intact PNG file");
        assert_eq!(info.bit_depth, png::BitDepth::Eight, "{}: only 8 bits are compared", path.display());
        let channels = info.color_type.samples();
        assert!(matches!(channels, 1 | 3), "{}: only RGB and gray are compared", path.display());
        Self { width: info.width as usize, height: info.height as usize, channels, bytes, png }
    }

    /// Makes an image of smooth shapes with noise.
    fn made(width: usize, height: usize) -> Self {
        let mut word = 24_u64;
        let mut random = || {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (word >> 40) as f32 / (1 << 24) as f32
        };
        let octaves = [(256, 90.0), (64, 40.0), (16, 16.0), (4, 5.0)].map(|(size, weight)| {
            let columns = width / size + 2;
            let lattice: Vec<f32> = (0..columns * (height / size + 2)).map(|_| random() - 0.5).collect();
            (size, weight, columns, lattice)
        });
        let mut bytes = Vec::with_capacity(width * height * 3);
        for y in 0..height {
            for x in 0..width {
                let octave = |(size, weight, columns, lattice): &(usize, f32, usize, Vec<f32>)| {
                    let at = |column: usize, row: usize| lattice[row * columns + column];
                    let (column, row) = (x / size, y / size);
                    let [right, down] = [x, y].map(|side| (side % size) as f32 / *size as f32);
                    let top = at(column, row) * (1.0 - right) + at(column + 1, row) * right;
                    let bottom = at(column, row + 1) * (1.0 - right) + at(column + 1, row + 1) * right;
                    weight * (top * (1.0 - down) + bottom * down)
                };
                let value = 128.0 + octaves.iter().map(octave).sum::<f32>();
                let noise = random() * 3.0;
                bytes.extend([0.9, 1.0, 1.1].map(|gain| (value * gain + noise + random()) as u8));
            }
        }
        let mut png = Vec::new();
        let mut encoder = png::Encoder::new(&mut png, width as u32, height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.write_header().and_then(|mut writer| writer.write_image_data(&bytes)).expect("memory");
        Self { width, height, channels: 3, bytes, png }
    }

    fn image(&self) -> Image<'_> {
        Image::new(&self.bytes, self.width, self.height, self.channels).expect("a valid image")
    }

    fn zpng(&self) -> zpng::ImageData {
        zpng::ImageData {
            buffer: self.bytes.clone(),
            bytes_per_channel: 1,
            channels: self.channels as _,
            width_pixels: self.width as _,
            height_pixels: self.height as _,
            stride_bytes: (self.width * self.channels) as _,
        }
    }
}

/// Returns how long this thread has run: time that other programs take does not count.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes the structure that the pointer names.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0, "Linux measures the processor time of a thread");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Works on the image with a number; a decoder writes its pixels.
type Pass<'a> = Box<dyn FnMut(usize, &mut [u8]) + 'a>;

/// What is measured: a name, the encoded bytes of all images if it makes any, and one pass over an image.
struct Subject<'a> {
    name: String,
    bytes: Option<usize>,
    pass: Pass<'a>,
    seconds: Vec<f64>,
}

impl<'a> Subject<'a> {
    fn new(name: impl Into<String>, bytes: Option<usize>, pass: impl FnMut(usize, &mut [u8]) + 'a) -> Self {
        Self { name: name.into(), bytes, pass: Box::new(pass), seconds: Vec::new() }
    }
}

fn total(files: &[Vec<u8>]) -> Option<usize> {
    Some(files.iter().map(Vec::len).sum())
}

fn l3(images: &[Pixels], patch: PatchSize) -> Vec<Vec<u8>> {
    let options = Options { patch, threads: 1 };
    images.iter().map(|image| ddlp_l3::encode(image.image(), options)).collect()
}

fn decoders(images: &[Pixels]) -> Vec<Subject<'_>> {
    let mut subjects = vec![Subject::new("copy", None, |number, out| out.copy_from_slice(&images[number].bytes))];
    for (patch, side) in [(PatchSize::Side64, 64), (PatchSize::Side32, 32)] {
        for level in Level::all() {
            let files = l3(images, patch);
            subjects.push(Subject::new(format!("L3 {side}, {}", level.name()), total(&files), move |number, out| {
                let opened = OpenImage::open(&files[number]).expect("an image").with_level(level);
                let stride = opened.width() * opened.channels();
                opened.decode_region(opened.index().whole(), out, stride).expect("an intact image");
            }));
        }
    }
    let size = images.iter().map(|image| image.png.len()).sum();
    subjects.push(Subject::new("png crate", Some(size), |number, out| {
        let file = std::io::Cursor::new(&images[number].png);
        let mut reader = png::Decoder::new(file).read_info().expect("a PNG file");
        reader.next_frame(out).expect("an intact image");
    }));
    if images.iter().all(|image| image.channels == 3) {
        let files: Vec<_> = images.iter().map(qoi_of).collect();
        subjects.push(Subject::new("QOI", total(&files), move |number, out| {
            qoi::decode_to_buf(out, &files[number]).expect("an intact image");
        }));
    }
    let files: Vec<_> = images.iter().map(|image| zpng::compress(&image.zpng()).expect("a valid image")).collect();
    subjects.push(Subject::new("ZPNG", total(&files), move |number, _| {
        black_box(zpng::decompress(&files[number]).expect("an intact image"));
    }));
    subjects
}

fn encoders(images: &[Pixels]) -> Vec<Subject<'_>> {
    let mut subjects = Vec::new();
    for level in Level::all() {
        subjects.push(Subject::new(format!("L3 64, {}", level.name()), None, move |number, _| {
            black_box(encode_at(level, images[number].image(), Options { patch: PatchSize::Side64, threads: 1 }));
        }));
    }
    if images.iter().all(|image| image.channels == 3) {
        subjects.push(Subject::new("QOI", None, |number, _| drop(black_box(qoi_of(&images[number])))));
    }
    let sources: Vec<_> = images.iter().map(Pixels::zpng).collect();
    subjects.push(Subject::new("ZPNG", None, move |number, _| {
        black_box(zpng::compress(&sources[number]).expect("a valid image"));
    }));
    subjects
}

fn qoi_of(image: &Pixels) -> Vec<u8> {
    qoi::encode_to_vec(&image.bytes, image.width as u32, image.height as u32).expect("a valid image")
}

/// Runs the subjects in turn, and prints what each needed.
fn measure(title: &str, images: &[Pixels], mut subjects: Vec<Subject<'_>>) {
    let bytes: usize = images.iter().map(|image| image.bytes.len()).sum();
    let png: usize = images.iter().map(|image| image.png.len()).sum();
    let mut out = vec![0; images.iter().map(|image| image.bytes.len()).max().expect("images")];
    for round in 0..=ROUNDS {
        for subject in &mut subjects {
            let mut time = Duration::ZERO;
            for (number, image) in images.iter().enumerate() {
                let out = &mut out[..image.bytes.len()];
                let begin = processor_time();
                (subject.pass)(number, out);
                time += processor_time() - begin;
                black_box(&out);
            }
            // The first round warms up.
            if round > 0 {
                subject.seconds.push(time.as_secs_f64());
            }
        }
    }
    println!(
        "{title}: {:<16} {:>8} {:>8} {:>8}   {:>11} {:>11}",
        "", "median", "slowest", "fastest", "of pixels", "of PNG"
    );
    for subject in &mut subjects {
        subject.seconds.sort_by(f64::total_cmp);
        let speed = |seconds: f64| bytes as f64 / seconds / 1e9;
        let speeds = [ROUNDS / 2, ROUNDS - 1, 0].map(|number| speed(subject.seconds[number]));
        let [median, slowest, fastest] = speeds;
        print!("{title}: {:<16} {median:>8.2} {slowest:>8.2} {fastest:>8.2} GB/s", subject.name);
        match subject.bytes {
            Some(size) => println!("   {:>8.4} {:>11.4}", size as f64 / bytes as f64, size as f64 / png as f64),
            None => println!(),
        }
    }
}

fn main() {
    let folder = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let images: Vec<_> = match &folder {
        Some(folder) => {
            let files = std::fs::read_dir(folder).expect("a folder");
            let mut files: Vec<_> = files.map(|file| file.expect("a readable folder").path()).collect();
            files.sort();
            let is_png = |path: &&std::path::PathBuf| path.extension().is_some_and(|extension| extension == "png");
            files.iter().filter(is_png).map(|path| Pixels::read(path)).collect()
        }
        None => vec![Pixels::made(2048, 1024)],
    };
    assert!(!images.is_empty(), "the folder has no PNG files");
    let bytes: usize = images.iter().map(|image| image.bytes.len()).sum();
    let from = folder.as_deref().unwrap_or("made");
    println!("{} images ({from}), {bytes} bytes of pixels, {ROUNDS} rounds, one core", images.len());
    measure("decode", &images, decoders(&images));
    measure("encode", &images, encoders(&images));
}
