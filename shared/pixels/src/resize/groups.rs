//! The weights of the pass over columns, arranged for vector instructions.
//!
//! A group is four values of a row of outputs, of 32 bits each. A step loads 16 bytes of the inputs, spreads the bytes
//! of two taps for each of the four values, and adds their products with the weights; the next step loads two pixels
//! further on. Groups come in twos, for registers of two halves.

use super::weights::Weights;

/// Values that vector code of the pass over rows makes at once; rows of inputs are at least that long.
pub const VALUES_AT_ONCE: usize = 32;
/// Bytes from one step to the next: two pixels.
pub const STEP: usize = 6;
/// Largest distance between the inputs of two neighbouring outputs at which 16 bytes hold two taps of both.
const NEAR: u32 = 3;
/// Most steps of a group. If few outputs are made of many inputs, more steps would take more memory than the image.
const MOST_STEPS: usize = 1024;
/// Entry of a shuffle for a byte that gets no input.
const NOTHING: u8 = 0xFF;

/// Returns the slot for a tap of a lane. On x86-64 both taps of a lane are a pair, whose products one instruction adds;
/// on aarch64 the second taps follow the first taps of all lanes.
const fn slot(lane: usize, tap: usize) -> usize {
    if cfg!(target_arch = "x86_64") { 2 * lane + tap } else { 4 * tap + lane }
}

/// Two groups.
#[derive(Clone)]
pub struct Two {
    /// Offset in the inputs of each group's first step.
    pub offsets: [u32; 2],
    /// Shuffle of the 16 bytes of each group.
    pub bytes: [[u8; 16]; 2],
}

#[derive(Default)]
pub struct Groups {
    /// Steps in a group.
    pub steps: usize,
    /// Whether groups follow each other without gaps. If not, each holds one pixel and a fourth value that the next
    /// group overwrites.
    pub dense: bool,
    pub twos: Vec<Two>,
    /// Weights of each step of each two groups.
    pub weights: Vec<[[i16; 8]; 2]>,
    /// Bytes in a row of inputs.
    input_bytes: usize,
}

impl Groups {
    /// Arranges weights for rows of `width` inputs. Returns false if rows are too short or weights too many.
    pub fn make(&mut self, weights: &Weights, width: u32, mirrored: bool) -> bool {
        self.steps = weights.taps / 2;
        self.input_bytes = width as usize * 3;
        let reach = STEP * (self.steps - 1) + 16;
        if (width as usize) < weights.taps || self.input_bytes < reach || self.steps > MOST_STEPS {
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
        // Last offset at which a first step can start.
        let last = self.input_bytes - reach;
        for group in 0..groups {
            let (output, channel) = if self.dense { (4 * group / 3, 4 * group % 3) } else { (group, 0) };
            // Values beyond the end of the row, or beyond the one pixel of a group, may be anything.
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

    /// Returns the bytes of a row of outputs, including those written behind its pixels.
    pub fn output_bytes(&self) -> usize {
        if self.dense { 8 * self.twos.len() } else { 6 * self.twos.len() + 1 }
    }

    /// Returns whether the rows of inputs, and the rows of outputs, which begin `stride` apart, are long enough.
    pub fn fit(&self, inputs: &[&[u8]], outputs: &[u8], stride: usize) -> bool {
        inputs.iter().all(|row| row.len() >= self.input_bytes)
            && stride >= self.output_bytes()
            && outputs.len() >= stride * inputs.len()
    }

    /// Returns the bytes of memory in use.
    pub fn bytes(&self) -> usize {
        self.twos.capacity() * size_of::<Two>() + self.weights.capacity() * 32
    }
}
