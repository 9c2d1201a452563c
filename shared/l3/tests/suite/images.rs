//! Images that a seed determines.

use ddlp_l3::{Image, Options, PatchSize};

/// A generator of random numbers (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn word(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.word()) * end as u128) >> 64) as usize
    }
}

/// The pixels of an image, with its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pixels {
    pub width: usize,
    pub height: usize,
    pub channels: usize,
    pub bytes: Vec<u8>,
}

impl Pixels {
    /// Makes an image from the value of each channel `c` at each column `x` and row `y`.
    pub fn new(
        (width, height): (usize, usize),
        channels: usize,
        mut value: impl FnMut(usize, usize, usize) -> u8,
    ) -> Self {
        let mut bytes = Vec::with_capacity(width * height * channels);
        for y in 0..height {
            for x in 0..width {
                bytes.extend((0..channels).map(|c| value(x, y, c)));
            }
        }
        Self { width, height, channels, bytes }
    }

    /// Makes a random image of one of `KINDS` kinds.
    pub fn random(kind: usize, size: (usize, usize), channels: usize, random: &mut Random) -> Self {
        let base = random.word().to_le_bytes();
        let step = random.below(7) + 1;
        match kind {
            // Noise of 0 to 8 bits above a constant: the residuals have every width.
            0..=8 => Self::new(size, channels, |_, _, c| {
                let noise = if kind == 0 { 0 } else { random.word() as u8 >> (8 - kind) };
                base[c].wrapping_add(noise)
            }),
            // Gradients, which pass from 255 to 0.
            9 => Self::new(size, channels, |x, y, c| (x * step + y * (c + 1) + usize::from(base[c])) as u8),
            10 => Self::new(size, channels, |x, y, c| (x * x / 16 + y * step + c) as u8),
            // Checkerboards.
            11 => Self::new(size, channels, |x, y, _| if (x / step + y / step).is_multiple_of(2) { 0 } else { 255 }),
            12 => Self::new(size, channels, |x, y, c| if (x + y).is_multiple_of(2) { base[c] } else { base[c] ^ 128 }),
            // Values on both sides of the middle, from the first row on.
            13 => Self::new(size, channels, |_, _, _| if random.word().is_multiple_of(2) { 127 } else { 128 }),
            // Smooth noise, alike in all channels.
            _ => {
                let mut level = 128_i32;
                Self::new(size, channels, |_, _, c| {
                    level = (level + random.below(9) as i32 - 4).clamp(0, 255);
                    (level as u8).wrapping_add(c as u8 * 3)
                })
            }
        }
    }

    pub fn image(&self) -> Image<'_> {
        Image::new(&self.bytes, self.width, self.height, self.channels).expect("a valid image")
    }

    pub fn encoded(&self, patch: PatchSize) -> Vec<u8> {
        ddlp_l3::encode(self.image(), Options { patch, threads: 1 })
    }
}

/// How many kinds of images `Pixels::random` makes.
pub const KINDS: usize = 15;
