//! torchvision's `RandomErasing`.

use super::{Cutout, Effects, Fill, MakeArea, Operate, SIDE_MAX, Scratch, between, check_probability, check_range};
use crate::draw::Words;
use crate::error::PixelError;
use crate::geometry::{Rect, Window};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Error, IntoDeserializer, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Number of rectangles that are tried, as in torchvision.
const TRIES: u32 = 10;
/// Word that stands for random values.
const RANDOM: &str = "random";

/// Fills a random rectangle at random: one whose share of the image's area and whose ratio of height to width are drawn
/// between bounds. If ten such rectangles do not fit into the image, leaves the image as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomErasing {
    /// Probability of erasing.
    #[serde(default = "default_probability")]
    pub p: f64,
    /// Bounds of the rectangle's share of the image's area, above 0 and at most 1.
    #[serde(default = "default_scale")]
    pub scale: [f64; 2],
    /// Bounds of the rectangle's height / width, above 0 and at most 65 535. The ratio's logarithm is drawn evenly.
    #[serde(default = "default_ratio")]
    pub ratio: [f64; 2],
    /// What the rectangle is filled with.
    #[serde(default)]
    pub value: Filling,
}

fn default_probability() -> f64 {
    0.5
}

fn default_scale() -> [f64; 2] {
    [0.02, 0.33]
}

fn default_ratio() -> [f64; 2] {
    [0.3, 3.3]
}

/// What a rectangle is filled with. In a description, a number or three numbers stand for a colour, and the word
/// `random` for random values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filling {
    /// One colour.
    Color(Fill),
    /// A random value from 0 to 255 for each channel of each pixel.
    Random,
}

impl Default for Filling {
    fn default() -> Self {
        Self::Color(Fill([0; 3]))
    }
}

/// A value as programs carry it.
#[derive(Serialize, Deserialize)]
enum Carried {
    Color([u8; 3]),
    Random,
}

impl Serialize for Filling {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let for_people = serializer.is_human_readable();
        match *self {
            Self::Color(color) if for_people => color.serialize(serializer),
            Self::Random if for_people => RANDOM.serialize(serializer),
            Self::Color(Fill(color)) => Carried::Color(color).serialize(serializer),
            Self::Random => Carried::Random.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Filling {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            return deserializer.deserialize_any(ColorOrRandom);
        }
        Ok(match Carried::deserialize(deserializer)? {
            Carried::Color(color) => Self::Color(Fill(color)),
            Carried::Random => Self::Random,
        })
    }
}

struct ColorOrRandom;

impl<'de> Visitor<'de> for ColorOrRandom {
    type Value = Filling;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 0 to 255, three of them, or \"{RANDOM}\"")
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Filling, E> {
        Fill::deserialize(number.into_deserializer()).map(Filling::Color)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Filling, E> {
        self.visit_f64(number as f64)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Filling, E> {
        self.visit_f64(number as f64)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, channels: A) -> Result<Filling, A::Error> {
        Fill::deserialize(SeqAccessDeserializer::new(channels)).map(Filling::Color)
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<Filling, E> {
        if word == RANDOM {
            Ok(Filling::Random)
        } else {
            Err(E::invalid_value(serde::de::Unexpected::Str(word), &self))
        }
    }
}

/// Fills a rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Erase {
    /// The rectangle, which lies within the image.
    pub window: Window,
    with: Content,
}

/// What fills a rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Content {
    Color([u8; 3]),
    /// Random values that follow from the seed.
    Noise {
        seed: u64,
    },
}

impl Operate for RandomErasing {
    /// No rectangle of the last one fits.
    const EXAMPLES: &'static [Self] = &[
        Self { p: 0.5, scale: [0.02, 0.33], ratio: [0.3, 3.3], value: Filling::Color(Fill([0; 3])) },
        Self { p: 1.0, scale: [0.3, 0.6], ratio: [0.1, 10.0], value: Filling::Color(Fill([200, 100, 7])) },
        Self { p: 1.0, scale: [0.1, 0.2], ratio: [1.0, 1.0], value: Filling::Random },
        Self { p: 1.0, scale: [1.0, 1.0], ratio: [2.0, 3.0], value: Filling::Random },
    ];

    fn check(&self) -> Result<(), String> {
        check_probability(self.p)?;
        check_range("scale", self.scale, 1.0)?;
        check_range("ratio", self.ratio, f64::from(SIDE_MAX))
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(before)
    }

    fn draw(&self, size: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        if words.uniform() >= self.p {
            return Ok(());
        }
        if let Some(window) = self.window(size, words) {
            let with = match self.value {
                Filling::Color(Fill(color)) => Content::Color(color),
                Filling::Random => Content::Noise { seed: words.word() },
            };
            effects.add(Erase { window, with });
        }
        Ok(())
    }
}

impl RandomErasing {
    /// Draws a rectangle. Returns `None` if no rectangle fits, or if the one that fits has no pixels.
    fn window(&self, (width, height): (u32, u32), words: &mut impl Words) -> Option<Window> {
        let area = f64::from(width) * f64::from(height);
        let log_ratio = self.ratio.map(libm::log);
        for _ in 0..TRIES {
            let erased = area * between(words.uniform(), self.scale);
            let aspect = libm::exp(between(words.uniform(), log_ratio));
            let h = (erased * aspect).sqrt().round_ties_even();
            let w = (erased / aspect).sqrt().round_ties_even();
            if h < f64::from(height) && w < f64::from(width) {
                let (w, h) = (w as u32, h as u32);
                let y = words.below(u64::from(height - h) + 1) as i64;
                let x = words.below(u64::from(width - w) + 1) as i64;
                return (w > 0 && h > 0).then_some(Window { x, y, width: w, height: h });
            }
        }
        None
    }
}

impl MakeArea for Erase {
    fn needs(&self, made: Rect, _size: (u32, u32)) -> Rect {
        made
    }

    fn make(
        &self,
        from: &Cutout<'_>,
        made: Rect,
        _scratch: &mut Scratch<'_>,
        out: &mut [u8],
    ) -> Result<(), PixelError> {
        let Self { window: Window { x, y, width, height }, with } = *self;
        // The window lies within the image, so the casts lose nothing.
        let rect = Rect { x: x as u32, y: y as u32, width, height };
        let first = made.x.max(rect.x);
        let end = (made.x + made.width).min(rect.x + rect.width).max(first);
        for (y, row) in (made.y..).zip(out.chunks_exact_mut(made.width as usize * 3)) {
            row.copy_from_slice(&from.row(y)[(made.x - from.rect.x) as usize * 3..][..row.len()]);
            if y < rect.y || y >= rect.y + rect.height || first == end {
                continue;
            }
            let pixels = &mut row.as_chunks_mut::<3>().0[(first - made.x) as usize..(end - made.x) as usize];
            match with {
                Content::Color([value, green, blue]) if value == green && value == blue => {
                    pixels.as_flattened_mut().fill(value);
                }
                Content::Color(color) => pixels.fill(color),
                Content::Noise { seed } => {
                    let row = u64::from(y - rect.y) * u64::from(rect.width);
                    for (x, pixel) in (first - rect.x..).zip(pixels) {
                        let [red, green, blue, ..] = hash(seed, row + u64::from(x)).to_le_bytes();
                        *pixel = [red, green, blue];
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns the random word of a pixel: the output of splitmix64 after `number` steps from `seed`.
pub(super) fn hash(seed: u64, number: u64) -> u64 {
    let state = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Draw, Rng};
    use crate::ops::{Area, Effect, Operation, make_alone};
    use crate::synthetic;

    fn default() -> RandomErasing {
        toml::from_str("").unwrap()
    }

    /// Draws the operation for a sample, and returns what it fills.
    fn drawn(operation: &RandomErasing, size: (u32, u32), sample_id: u64) -> Option<Erase> {
        let words = &mut Rng::for_sample(Draw { sample_id, ..Draw::default() }, 0);
        match Operation::from(operation.clone()).effects(size, words).unwrap()[..] {
            [] => None,
            [Effect::Area(Area::Erase(erase))] => Some(erase),
            ref other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_value_is_a_colour_or_random() {
        let read = |value: &str| {
            let operation = toml::from_str::<RandomErasing>(&format!("value = {value}"));
            operation.map(|operation| operation.value).map_err(|error| error.to_string())
        };
        assert_eq!(read("0"), Ok(Filling::default()));
        assert_eq!(read("255.0"), Ok(Filling::Color(Fill([255; 3]))));
        assert_eq!(read("[1, 2, 3]"), Ok(Filling::Color(Fill([1, 2, 3]))));
        assert_eq!(read("'random'"), Ok(Filling::Random));
        for wrong in ["256", "-1", "0.5", "[1, 2]", "'mean'", "nan"] {
            assert!(read(wrong).unwrap_err().contains("from 0 to 255"), "{wrong}: {:?}", read(wrong));
        }
    }

    #[test]
    fn a_program_carries_every_value() {
        let codec = bincode::config::standard().with_little_endian().with_fixed_int_encoding();
        for example in RandomErasing::EXAMPLES {
            let bytes = Operation::from(example.clone()).to_bytes();
            let read = bincode::serde::decode_from_slice::<Operation, _>(&bytes, codec).unwrap();
            assert_eq!(read, (example.clone().into(), bytes.len()));
            let text = toml::to_string(example).unwrap();
            assert_eq!(toml::from_str::<RandomErasing>(&text).as_ref(), Ok(example), "{text}");
        }
    }

    #[test]
    fn rectangles_have_the_area_and_the_ratio_that_were_asked_for() {
        let size = (400, 300);
        let (mut count, mut area, mut log_ratio, mut x, mut y) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for sample_id in 0..20_000 {
            let Some(Erase { window: rect, .. }) = drawn(&default(), size, sample_id) else { continue };
            let (w, h) = (f64::from(rect.width), f64::from(rect.height));
            count += 1.0;
            area += w * h / 120_000.0;
            log_ratio += (h / w).ln();
            x += (rect.x as f64 + 0.5) / (401.0 - w);
            y += (rect.y as f64 + 0.5) / (301.0 - h);
        }
        assert!((9_700.0..10_300.0).contains(&count), "{count}");
        // Rectangles that do not fit are drawn again: high ones more often than wide ones.
        assert!((0.16..0.175).contains(&(area / count)), "{}", area / count);
        assert!((-0.06..0.0).contains(&(log_ratio / count)), "{}", log_ratio / count);
        assert!((0.49..0.51).contains(&(x / count)) && (0.49..0.51).contains(&(y / count)));
    }

    #[test]
    fn an_image_into_which_no_rectangle_fits_stays_as_it_is() {
        let whole = RandomErasing { p: 1.0, scale: [1.0, 1.0], ratio: [1.0, 1.0], ..default() };
        assert_eq!(drawn(&whole, (30, 30), 0), None);
        let tiny = RandomErasing { p: 1.0, scale: [0.0001, 0.0001], ..default() };
        assert_eq!(drawn(&tiny, (30, 30), 0), None, "a rectangle without pixels");
        let never = RandomErasing { p: 0.0, ..default() };
        assert!((0..100).all(|sample_id| drawn(&never, (30, 30), sample_id).is_none()));
    }

    #[test]
    fn each_part_is_that_of_the_whole_image() {
        let size = (12, 9);
        let pixels = synthetic::photo(12, 9, 1);
        let whole = Rect { x: 0, y: 0, width: 12, height: 9 };
        let window = Window { x: 3, y: 2, width: 6, height: 4 };
        for with in [Content::Color([1, 2, 3]), Content::Noise { seed: 7 }] {
            let erase = Erase { window, with };
            let mut expected = vec![0; pixels.len()];
            make_alone(&erase, &Cutout { size, rect: whole, pixels: &pixels }, whole, &mut expected);
            for (at, pixel) in (0..).zip(expected.as_chunks::<3>().0) {
                let (x, y) = (at % 12, at / 12);
                let inside = (3..9).contains(&x) && (2..6).contains(&y);
                let before = &pixels[at as usize * 3..][..3];
                match with {
                    Content::Color(color) if inside => assert_eq!(*pixel, color),
                    Content::Noise { .. } if inside => {}
                    _ => assert_eq!(pixel, before, "{x} {y}"),
                }
            }
            for made in [Rect { x: 5, y: 0, width: 7, height: 9 }, Rect { x: 0, y: 4, width: 4, height: 5 }] {
                let of_made = |pixels: &[u8]| -> Vec<u8> {
                    let rows = pixels.chunks(36).skip(made.y as usize).take(made.height as usize);
                    let (start, bytes) = (made.x as usize * 3, made.width as usize * 3);
                    rows.flat_map(|row| row[start..start + bytes].to_vec()).collect()
                };
                let mut out = vec![0; (made.width * made.height * 3) as usize];
                let part = of_made(&pixels);
                make_alone(&erase, &Cutout { size, rect: made, pixels: &part }, made, &mut out);
                assert_eq!(out, of_made(&expected), "{made:?}");
            }
        }
    }

    #[test]
    fn noise_is_even() {
        let mean = |shift: u32| (0..10_000).map(|at| f64::from((hash(5, at) >> shift) as u8)).sum::<f64>() / 10_000.0;
        // The standard deviation of the mean is 0.74.
        assert!([0, 8, 16].into_iter().all(|shift| (mean(shift) - 127.5).abs() < 3.0));
    }
}
