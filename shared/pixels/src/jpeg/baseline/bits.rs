//! Entropy-coded bytes without their stuffing, one window at a time, and the bits in them.

use super::LeftToLibjpeg;

/// Bytes of a window and of the space after it. A power of two, so that a mask keeps every load inside.
const BUFFER_BYTES: usize = 2 << 10;
/// Upper bound of a block's bytes: 64 symbols of at most 27 bits, and the bytes that the bit buffer reads ahead.
const BLOCK_BYTES: usize = 224;
/// Bytes at which a fill stops. Few, because filling in bytes after a rectangle's last MCU is wasted work.
const WINDOW_BYTES: usize = 768;
/// The bit buffer may run past the end of a segment by the bytes of one block.
const _: () = assert!(WINDOW_BYTES + CHUNK + 2 * BLOCK_BYTES <= BUFFER_BYTES);
/// Bytes that are searched for an 0xFF at once.
const CHUNK: usize = 32;

/// End of a segment of entropy-coded bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Not in the window yet.
    Ahead,
    /// A marker with this code.
    Marker(u8),
    /// The bytes of a part of a scan end here; the segment goes on.
    Cut,
    /// No marker: the file ends, or fill bytes follow.
    Missing,
}

/// The bytes of a window, and the bytes that a load at its end reaches.
pub type Bytes = [u8; BUFFER_BYTES + 8];

/// A part of a segment of entropy-coded bytes, without stuffing.
pub struct BitWindow {
    /// The bytes of the window, and the padding that the bit buffer may run into.
    bytes: Box<Bytes>,
    filled: usize,
    end: End,
    /// Offset in the scan at which the window continues.
    next: usize,
    /// Index of a byte in the window, and its offset in the scan.
    mark: (usize, usize),
    /// Whether the mark follows the window, which costs a look at every byte.
    pub follows: bool,
    /// Whether the bytes are only a part of a scan, so that they may end before the file.
    pub is_part: bool,
}

impl Default for BitWindow {
    fn default() -> Self {
        Self {
            bytes: Box::new([0; BUFFER_BYTES + 8]),
            filled: 0,
            end: End::Missing,
            next: 0,
            mark: (0, 0),
            follows: false,
            is_part: false,
        }
    }
}

/// A position among the entropy-coded bytes: the byte's offset in the scan, stuffing included, and the bit's number in
/// the byte, counted from the highest bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub byte: usize,
    pub bit: u32,
}

/// Reader of the bits of a window.
#[derive(Clone, Copy)]
pub struct Bits {
    /// The next bits, the first of them highest. Bits beyond `count` equal those that the next refill puts there.
    buffer: u64,
    /// Number of bits in the buffer, in the lowest six bits of this field.
    count: u64,
    /// Index in the window of the next byte to read.
    at: usize,
}

impl BitWindow {
    /// Starts reading at a place of a scan.
    pub fn seek(&mut self, scan: &[u8], place: Place) -> Bits {
        self.filled = 0;
        self.end = End::Ahead;
        self.next = place.byte;
        self.mark = (0, place.byte);
        self.fill(scan);
        Bits::at(&self.bytes, (place.bit & 7) as usize)
    }

    /// Checks that restart marker `number` ends this segment, and starts reading the segment after it.
    pub fn restart(&mut self, scan: &[u8], bits: Bits, number: u32) -> Result<Bits, LeftToLibjpeg> {
        let left = (8 * self.filled).checked_sub(bits.position()).ok_or(LeftToLibjpeg)?;
        let is_it = self.end == End::Marker(0xD0 + (number & 7) as u8);
        // libjpeg would warn about a whole byte left over.
        if left >= 8 || !is_it {
            return Err(LeftToLibjpeg);
        }
        Ok(self.seek(scan, Place { byte: self.next + 2, bit: 0 }))
    }

    /// Returns the bytes that [`Bits`] reads.
    #[inline(always)]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Fills the window until it holds all bits of the next block, or the rest of the segment.
    #[inline(always)]
    pub fn make_ready(&mut self, scan: &[u8], bits: Bits) -> Result<Bits, LeftToLibjpeg> {
        if bits.at + BLOCK_BYTES <= self.filled {
            return Ok(bits);
        }
        self.go_on(scan, bits)
    }

    #[cold]
    fn go_on(&mut self, scan: &[u8], bits: Bits) -> Result<Bits, LeftToLibjpeg> {
        if self.end != End::Ahead {
            return self.check(bits).map(|()| bits);
        }
        // Fill the bit buffer anew, from the byte that holds the next bit.
        let position = bits.position();
        let first = position / 8;
        if self.follows {
            self.move_mark(scan, first);
            self.mark.0 -= first;
        }
        self.bytes.copy_within(first..self.filled, 0);
        self.filled -= first;
        self.fill(scan);
        Ok(Bits::at(&self.bytes, position % 8))
    }

    /// Checks that every bit taken was inside the segment.
    pub fn check(&self, bits: Bits) -> Result<(), LeftToLibjpeg> {
        // Without a marker at the end, libjpeg has read past the end of the file, which it counts as a warning.
        if bits.position() > 8 * self.filled || self.end == End::Missing { Err(LeftToLibjpeg) } else { Ok(()) }
    }

    /// Fills the window, up to the end of the segment at most.
    fn fill(&mut self, scan: &[u8]) {
        while self.end == End::Ahead && self.filled < WINDOW_BYTES {
            let rest = scan.get(self.next..).unwrap_or_default();
            let Some(chunk) = rest.first_chunk::<CHUNK>() else {
                self.fill_slowly(rest, rest.len());
                continue;
            };
            self.bytes[self.filled..self.filled + CHUNK].copy_from_slice(chunk);
            match first_ff(chunk) {
                None => {
                    self.filled += CHUNK;
                    self.next += CHUNK;
                }
                Some(plain) => {
                    self.filled += plain;
                    self.next += plain;
                    self.fill_slowly(&rest[plain..], 1);
                }
            }
        }
    }

    /// Copies up to `most` bytes one by one, without their stuffing, and recognises the end of the segment.
    fn fill_slowly(&mut self, rest: &[u8], most: usize) {
        let mut at = 0;
        for _ in 0..most.max(1) {
            let (byte, length) = match rest[at..] {
                [0xFF, 0, ..] => (0xFF, 2),
                // A part of a scan may end between an 0xFF and its stuffing, but not within a marker.
                [0xFF] if self.is_part => (0xFF, 1),
                [] if self.is_part => {
                    self.end = End::Cut;
                    break;
                }
                // After fill bytes libjpeg searches for a marker, through zeros and up to the file's end.
                [0xFF, 0xFF, ..] | [0xFF] | [] => {
                    self.end = End::Missing;
                    break;
                }
                [0xFF, code, ..] => {
                    self.end = End::Marker(code);
                    break;
                }
                [byte, ..] => (byte, 1),
            };
            self.bytes[self.filled] = byte;
            self.filled += 1;
            at += length;
        }
        self.next += at;
    }

    /// Returns the place in the scan of the next bit, for a window that [`follows`](Self::follows).
    pub fn place(&mut self, scan: &[u8], bits: Bits) -> Place {
        let position = bits.position();
        self.move_mark(scan, position / 8);
        Place { byte: self.mark.1, bit: (position % 8) as u32 }
    }

    fn move_mark(&mut self, scan: &[u8], to: usize) {
        let (mut here, mut place) = self.mark;
        while here < to.min(self.filled) {
            place += if scan.get(place) == Some(&0xFF) { 2 } else { 1 };
            here += 1;
        }
        self.mark = (here, place);
    }
}

/// Returns the index of the first 0xFF.
#[inline(always)]
fn first_ff(chunk: &[u8; CHUNK]) -> Option<usize> {
    // A vector comparison first: most chunks hold no 0xFF, and need no search for its position.
    let any = chunk.iter().fold(false, |any, &byte| any | (byte == 0xFF));
    if !any {
        return None;
    }
    const LOW: u64 = 0x0101_0101_0101_0101;
    chunk.as_chunks::<8>().0.iter().enumerate().find_map(|(number, &word)| {
        let inverse = !u64::from_le_bytes(word);
        // Here the lowest zero byte has its highest bit set, and no byte below it has.
        let zeroes = inverse.wrapping_sub(LOW) & !inverse & (LOW << 7);
        (zeroes != 0).then(|| 8 * number + zeroes.trailing_zeros() as usize / 8)
    })
}

impl Bits {
    fn at(bytes: &Bytes, position: usize) -> Self {
        let mut bits = Self { buffer: 0, count: 0, at: position / 8 };
        bits.refill(bytes);
        bits.take((position % 8) as u64);
        bits
    }

    /// Returns the position of the next bit, counted from the window's first bit.
    #[inline(always)]
    fn position(self) -> usize {
        8 * self.at - (self.count & 63) as usize
    }

    /// Makes at least 56 bits available. Bits past the end of the segment have arbitrary values: see
    /// [`BitWindow::check`].
    ///
    /// One load adds as many whole bytes as fit; its other bits stay in the buffer, where the next refill puts the same
    /// bits.
    #[inline(always)]
    pub fn refill(&mut self, bytes: &Bytes) {
        let count = self.count & 63;
        let at = self.at & (BUFFER_BYTES - 1);
        let word: [u8; 8] = bytes[at..at + 8].try_into().expect("eight bytes");
        self.buffer |= u64::from_be_bytes(word) >> count;
        self.at += ((63 - count) >> 3) as usize;
        self.count = count | 56;
    }

    /// Returns the next bits, up to 32, without taking them.
    #[inline(always)]
    pub fn peek(self, count: u32) -> u32 {
        (self.buffer >> (64 - count)) as u32
    }

    /// Returns the next bits, the first of them highest, without taking them.
    #[inline(always)]
    pub fn all(self) -> u64 {
        self.buffer
    }

    /// Takes as many bits as the lowest six bits of `count` say. At least that many must be available.
    #[inline(always)]
    pub fn take(&mut self, count: u64) {
        self.buffer <<= count & 63;
        self.count = self.count.wrapping_sub(count);
    }
}
