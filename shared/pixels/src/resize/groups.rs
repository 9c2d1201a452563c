//! The weights of the pass over columns as vector instructions want them.
//!
//! A group is four values of a row of outputs, in 32 bits each. A step loads 16 bytes of the inputs, spreads the bytes that two taps
//! of each of the four need, and adds their products with the weights; the next step's bytes lie two pixels further on. Groups come
//! in twos, for registers of two halves.

use super::weights::Weights;

/// Bytes from one step to the next: two pixels.
pub const STEP: usize = 6;
/// The furthest that two neighbouring outputs' inputs may lie apart for 16 bytes to hold two taps of both.
const NEAR: u32 = 3;
/// A byte that no input goes to.
const NOTHING: u8 = 0xFF;

/// Where the four lanes' two taps go: pairs on x86-64, whose products are summed in pairs, one after the other on aarch64.
const fn slot(lane: usize, tap: usize) -> usize {
    if cfg!(target_arch = "x86_64") { 2 * lane + tap } else { 4 * tap + lane }
}

/// Two groups.
#[derive(Clone)]
pub struct Two {
    /// Where in the inputs their first steps are.
    pub offsets: [u32; 2],
    /// Which bytes of 16 go where.
    pub bytes: [[u8; 16]; 2],
}

#[derive(Default)]
pub struct Groups {
    /// Steps of a group.
    pub steps: usize,
    /// Whether groups follow each other without a gap. Else each holds one pixel and a fourth value that the next one overwrites.
    pub dense: bool,
    pub twos: Vec<Two>,
    /// For each step of each two.
    pub weights: Vec<[[i16; 8]; 2]>,
    /// Bytes of a row of inputs.
    input_bytes: usize,
}

impl Groups {
    /// From weights for rows of `width` inputs. False where rows are too short.
    pub fn make(&mut self, weights: &Weights, width: u32, mirrored: bool) -> bool {
        self.steps = weights.taps / 2;
        self.input_bytes = width as usize * 3;
        let reach = STEP * (self.steps - 1) + 16;
        if (width as usize) < weights.taps || self.input_bytes < reach {
            return false;
        }
        let outputs = weights.inputs.len();
        self.dense = weights.inputs.windows(2).all(|pair| pair[1].0.abs_diff(pair[0].0) <= NEAR);
        let groups = if self.dense { (outputs * 3).div_ceil(4) } else { outputs };
        let twos = groups.div_ceil(2);
        self.twos.clear();
        self.twos.resize(twos, Two { offsets: [0; 2], bytes: [[NOTHING; 16]; 2] });
        self.weights.clear();
        self.weights.resize(twos * self.steps, [[0; 8]; 2]);
        // The last place where a first step may be.
        let last = self.input_bytes - reach;
        for group in 0..groups {
            let (output, channel) = if self.dense { (4 * group / 3, 4 * group % 3) } else { (group, 0) };
            // What a group has beyond the row's end, or beyond its one pixel, is of no use, whatever it is.
            let next = if self.dense { (output + 1).min(outputs - 1) } else { output };
            let pixels = [output, next].map(|output| if mirrored { outputs - 1 - output } else { output });
            let places = pixels.map(|pixel| weights.inputs[pixel].0 as usize * 3);
            let offset = places[0].min(places[1]).min(last);
            let (two, half) = (group / 2, group % 2);
            self.twos[two].offsets[half] = offset as u32;
            let bytes = &mut self.twos[two].bytes[half];
            for lane in 0..4 {
                let value = channel + lane;
                let byte = places[value / 3] + value % 3 - offset;
                bytes[2 * slot(lane, 0)] = byte as u8;
                bytes[2 * slot(lane, 1)] = byte as u8 + 3;
            }
            let pairs = pixels.map(|pixel| weights.of(pixel).as_chunks::<2>().0);
            let steps = self.weights[two * self.steps..][..self.steps].iter_mut();
            for (step, (left, right)) in steps.zip(pairs[0].iter().zip(pairs[1])) {
                for lane in 0..4 {
                    let pair = if channel + lane < 3 { left } else { right };
                    step[half][slot(lane, 0)] = pair[0];
                    step[half][slot(lane, 1)] = pair[1];
                }
            }
        }
        true
    }

    /// Bytes that a row of outputs takes, with what is written behind it.
    pub fn output_bytes(&self) -> usize {
        if self.dense { 8 * self.twos.len() } else { 6 * self.twos.len() + 1 }
    }

    /// Whether rows are long enough, those of inputs, and `count` of outputs that begin `stride` apart.
    pub fn fit(&self, inputs: &[&[u8]], outputs: &[u8], stride: usize) -> bool {
        inputs.iter().all(|row| row.len() >= self.input_bytes)
            && stride >= self.output_bytes()
            && outputs.len() >= stride * inputs.len()
    }

    /// Bytes that it holds.
    pub fn bytes(&self) -> usize {
        self.twos.capacity() * size_of::<Two>() + self.weights.capacity() * 32
    }
}
