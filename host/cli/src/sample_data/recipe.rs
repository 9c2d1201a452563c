//! One image of the sample data: a pure function of seed and number.
//!
//! Sizes, qualities, subsampling, gray images, restart markers and orientations are mixed as in photographic training
//! sets; a few images are progressive.

use super::photos::PHOTOS;
use ddlp_pixels::draw::Rng;
use ddlp_pixels::encode::{self, JpegOptions, Layout};
use ddlp_pixels::ops::{RandomHorizontalFlip, RandomResizedCrop};
use ddlp_pixels::{Draw, Limits, Pipeline, PixelError, Preparer, Source};

/// Stream of these draws, distinct from those of a training run with the same seed.
const STREAM: u64 = 0x0064_6174_6120_6473;

/// Width, height, and frequency in 102 images.
const SIZES: [((u32, u32), u64); 10] = [
    ((500, 375), 50),
    ((375, 500), 14),
    ((500, 333), 14),
    ((333, 500), 4),
    ((500, 500), 4),
    ((640, 480), 5),
    ((400, 300), 4),
    ((256, 256), 3),
    ((200, 150), 3),
    ((75, 110), 1),
];
/// Quality, and frequency in 100 images.
const QUALITIES: [(u8, u64); 4] = [(98, 58), (94, 24), (88, 12), (75, 6)];
/// Layout, and frequency in 100 images.
const LAYOUTS: [(Layout, u64); 4] =
    [(Layout::Yuv444, 76), (Layout::Yuv420, 20), (Layout::Yuv422, 2), (Layout::Gray, 2)];

fn choose<T: Copy>(rng: &mut Rng, choices: &[(T, u64)]) -> T {
    let mut left = rng.below(choices.iter().map(|(_, weight)| weight).sum());
    for (choice, weight) in choices {
        if left < *weight {
            return *choice;
        }
        left -= weight;
    }
    choices[0].0
}

fn one_of(rng: &mut Rng, per_thousand: u64) -> bool {
    rng.below(1000) < per_thousand
}

/// Maker of images.
pub struct Recipe {
    preparer: Preparer,
    seed: u64,
}

impl Recipe {
    /// Prepares the images of a seed.
    pub fn new(seed: u64) -> Self {
        Self { preparer: Preparer::new(Limits::default()), seed }
    }

    /// Returns the JPEG of image `number`.
    pub fn image(&mut self, number: u64) -> Result<Vec<u8>, PixelError> {
        let mut rng = Rng::from_key([self.seed, number, STREAM, 0]);
        let photo = PHOTOS[rng.below(PHOTOS.len() as u64) as usize];
        let (width, height) = choose(&mut rng, &SIZES);
        let options = options(&mut rng);
        let square = self.square(photo, width.max(height), number)?;
        let mut pixels = middle(&square, width, height);
        if options.layout == Layout::Gray {
            pixels = gray(&pixels);
        }
        encode::jpeg(&pixels, width, height, &options)
    }

    /// Returns a damaged file in place of image `number`: cut short, empty, or text.
    pub fn bad(&mut self, number: u64) -> Result<Vec<u8>, PixelError> {
        let mut image = self.image(number)?;
        match number % 4 {
            0 => image.truncate(image.len() / 3),
            1 => image.clear(),
            2 => image.truncate(40),
            _ => image = b"not an image\n".to_vec(),
        }
        Ok(image)
    }

    /// Returns a random square window of a photograph, resized, and mirrored half of the time.
    fn square(&mut self, photo: &[u8], side: u32, number: u64) -> Result<Vec<u8>, PixelError> {
        let operations = vec![
            RandomResizedCrop::within(side, [0.35, 0.66], [1.0, 1.0]).into(),
            RandomHorizontalFlip { p: 0.5 }.into(),
        ];
        let pipeline = Pipeline::of(operations);
        let mut pixels = vec![0; pipeline.output().bytes()];
        let draw = Draw { seed: self.seed ^ STREAM, epoch: 0, sample_id: number };
        self.preparer.prepare(Source::Encoded(photo), &pipeline, draw, &mut pixels)?;
        Ok(pixels)
    }
}

fn options(rng: &mut Rng) -> JpegOptions {
    JpegOptions {
        quality: choose(rng, &QUALITIES),
        layout: choose(rng, &LAYOUTS),
        progressive: one_of(rng, 20),
        restart_rows: u32::from(one_of(rng, 70)),
        orientation: one_of(rng, 3).then(|| [3, 6, 8][rng.below(3) as usize]),
        ..JpegOptions::default()
    }
}

/// Returns the middle `width` × `height` pixels of a square RGB image.
fn middle(square: &[u8], width: u32, height: u32) -> Vec<u8> {
    let side = width.max(height) as usize;
    let (width, height) = (width as usize, height as usize);
    let (left, top) = ((side - width) / 2, (side - height) / 2);
    let rows = square.chunks_exact(side * 3).skip(top).take(height);
    rows.flat_map(|row| &row[left * 3..(left + width) * 3]).copied().collect()
}

/// Returns the luma of each pixel.
fn gray(rgb: &[u8]) -> Vec<u8> {
    let luma = |pixel: &[u8]| {
        let weighted = 77 * u32::from(pixel[0]) + 150 * u32::from(pixel[1]) + 29 * u32::from(pixel[2]);
        (weighted >> 8) as u8
    };
    rgb.chunks_exact(3).map(luma).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddlp_dataset::pack::{Pack, PackFormat, PackOptions, StoredForm, pack};
    use ddlp_dataset::{Dataset as _, FetchedSample, SampleReader, SampleToFetch};
    use ddlp_pixels::{CompiledPipeline, Fidelity};
    use std::collections::HashSet;
    use std::fs;
    use std::ops::ControlFlow;

    #[test]
    fn images_depend_on_seed_and_number_alone() {
        let mut one = Recipe::new(7);
        let first = one.image(3).unwrap();
        one.image(9).unwrap();
        assert_eq!(one.image(3).unwrap(), first);
        assert_eq!(Recipe::new(7).image(3).unwrap(), first);
        assert_ne!(Recipe::new(8).image(3).unwrap(), first);
        assert_ne!(one.image(4).unwrap(), first);
    }

    #[test]
    fn sizes_and_layouts_are_mixed_and_decodable() {
        let mut recipe = Recipe::new(0);
        let mut reader = Preparer::new(Limits::default());
        let mut sizes = HashSet::new();
        let mut samplings = HashSet::new();
        for number in 0..60 {
            let info = reader.info(&recipe.image(number).unwrap()).unwrap();
            sizes.insert((info.width, info.height));
            samplings.insert(info.jpeg.and_then(|jpeg| jpeg.subsampling()));
        }
        assert!(sizes.len() >= 4, "{sizes:?}");
        assert!(samplings.contains(&Some("4:4:4")) && samplings.contains(&Some("4:2:0")), "{samplings:?}");
    }

    #[test]
    fn bad_images_do_not_decode() {
        let pipeline = Pipeline::imagenet_val();
        let mut recipe = Recipe::new(0);
        let mut reader = Preparer::new(Limits::default());
        let mut out = vec![0; pipeline.output().bytes()];
        for number in 0..4 {
            let bad = recipe.bad(number).unwrap();
            let intact = matches!(reader.inspect(&bad), ddlp_pixels::Verdict::Intact);
            assert!(!intact, "{number}");
            let draw = Draw { seed: 0, epoch: 0, sample_id: number };
            assert!(
                number == 0 || reader.prepare(Source::Encoded(&bad), &pipeline, draw, &mut out).is_err(),
                "{number}"
            );
        }
    }

    /// With one crop of each of 150 images, shares differ by up to 0.02 from the shares of many crops, since what a
    /// crop needs depends on its place and size. So each image is cropped 20 times, without decoding it.
    #[test]
    fn training_crops_of_the_sample_data_read_less_than_three_quarters_of_its_bytes() {
        let (folder, mut recipe) = (tempfile::tempdir().unwrap(), Recipe::new(0));
        let (source, out) = (folder.path().join("source"), folder.path().join("rows.ddlp"));
        fs::create_dir_all(source.join("class")).unwrap();
        for number in 0..150 {
            fs::write(source.join(format!("class/{number}.jpg")), recipe.image(number).unwrap()).unwrap();
        }
        let options = PackOptions { format: PackFormat::of(StoredForm::Rows), ..PackOptions::default() };
        pack(&*ddlp_dataset::open(&source).unwrap(), &out, &options, &mut |_| ControlFlow::Continue(())).unwrap();
        let pack = Pack::open(&out).unwrap();
        let records = (0..pack.len()).map(|index| pack.record(index).unwrap());
        let (files, indices) = records.fold((0, 0), |(files, indices), record| {
            (files + u64::from(record.length), indices + u64::from(record.detail_length))
        });
        assert!(indices * 200 <= files, "the row indices have {indices} bytes, the files {files}");
        let pipeline = CompiledPipeline::of(&Pipeline::imagenet_train()).unwrap();
        let (mut reader, draws) = (SampleReader::default(), 20);
        let mut samples = [SampleToFetch {
            index: 0,
            draw: Draw::default(),
            fidelity: Fidelity::WHOLE,
            fetched: FetchedSample::default(),
        }];
        for (index, epoch) in (0..pack.len()).flat_map(|index| (0..draws).map(move |epoch| (index, epoch))) {
            (samples[0].index, samples[0].draw) = (index, Draw { seed: 0, epoch, sample_id: index });
            reader.fetch(&pack, Limits::default(), &pipeline, &mut samples).unwrap();
        }
        let read = reader.take_read();
        assert_eq!(read.sample_bytes, files * u64::from(draws));
        let share = |bytes: u64| bytes as f64 / read.sample_bytes as f64;
        assert!(share(read.bytes) <= 0.74, "{}", share(read.bytes));
        // As a drive reads them, in whole blocks.
        assert!(share(read.block_bytes) <= 0.82, "{}", share(read.block_bytes));
    }

    #[test]
    fn the_middle_is_cut_out() {
        let square: Vec<u8> = (0..16u8).flat_map(|pixel| [pixel; 3]).collect();
        assert_eq!(middle(&square, 4, 2), (4..12u8).flat_map(|pixel| [pixel; 3]).collect::<Vec<_>>());
        assert_eq!(
            middle(&square, 2, 4),
            [1, 2, 5, 6, 9, 10, 13, 14].into_iter().flat_map(|p| [p; 3]).collect::<Vec<u8>>()
        );
        assert_eq!(gray(&[255, 255, 255, 0, 0, 0]), [255, 0]);
    }
}
