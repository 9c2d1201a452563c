//! Entropy-coded bytes without their stuffing, a window at a time, and the bits in them.

use super::NotMine;

/// Bytes of a window and of the room behind it. A power of two, so that a mask keeps every load inside.
const BUFFER_BYTES: usize = 2 << 10;
/// More than a block takes: 64 symbols of at most 27 bits, and what the bit buffer reads ahead.
const BLOCK_BYTES: usize = 224;
/// Bytes that a window aims at: few, as those behind a rectangle's last MCU are filled in for nothing.
const WINDOW_BYTES: usize = 768;
/// What the bit buffer may run into behind a segment is a block's bytes at most.
const _: () = assert!(WINDOW_BYTES + CHUNK + 2 * BLOCK_BYTES <= BUFFER_BYTES);
/// Bytes that are looked at together for an 0xFF.
const CHUNK: usize = 32;

/// What ends a segment of entropy-coded bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Not reached by the window yet.
    Ahead,
    /// A marker, with its code.
    Marker(u8),
    /// The file ends first, or fill bytes follow.
    Missing,
}

/// The bytes of a window, and what a load at its end takes in.
pub type Bytes = [u8; BUFFER_BYTES + 8];

/// A part of a segment of entropy-coded bytes, free of stuffing.
pub struct Window {
    /// The bytes of the window and what padding the bit buffer may run into.
    bytes: Box<Bytes>,
    filled: usize,
    end: End,
    /// Where in the scan the window goes on.
    next: usize,
    /// A byte of the window and where it is in the scan.
    mark: (usize, usize),
    /// Whether the mark moves with the window, which takes a look at every byte.
    pub follows: bool,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            bytes: Box::new([0; BUFFER_BYTES + 8]),
            filled: 0,
            end: End::Missing,
            next: 0,
            mark: (0, 0),
            follows: false,
        }
    }
}

/// A position among the entropy-coded bytes: the byte in the scan, stuffing counted, and a bit of it, the highest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub byte: usize,
    pub bit: u32,
}

/// The next bits of a window.
#[derive(Clone, Copy)]
pub struct Bits {
    /// The next bits, the first of them highest. Those behind `count` are what the next refill puts there.
    buffer: u64,
    /// How many there are, by the lowest six bits.
    count: u64,
    /// The byte of the window that is read next.
    at: usize,
}

impl Window {
    /// Starts at a place of a scan.
    pub fn seek(&mut self, scan: &[u8], place: Place) -> Bits {
        self.filled = 0;
        self.end = End::Ahead;
        self.next = place.byte;
        self.mark = (0, place.byte);
        self.fill(scan);
        Bits::at(&self.bytes, (place.bit & 7) as usize)
    }

    /// Behind the restart marker that ends this segment, the next segment begins.
    pub fn restart(&mut self, scan: &[u8], bits: Bits, number: u32) -> Result<Bits, NotMine> {
        let left = (8 * self.filled).checked_sub(bits.position()).ok_or(NotMine)?;
        let is_it = self.end == End::Marker(0xD0 + (number & 7) as u8);
        // A whole byte too many would be a warning of libjpeg.
        if left >= 8 || !is_it {
            return Err(NotMine);
        }
        Ok(self.seek(scan, Place { byte: self.next + 2, bit: 0 }))
    }

    /// The bytes that [`Bits`] reads from.
    #[inline(always)]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Sees to it that all bits of a block are in the window, as far as the segment has them.
    #[inline(always)]
    pub fn make_ready(&mut self, scan: &[u8], bits: Bits) -> Result<Bits, NotMine> {
        if bits.at + BLOCK_BYTES <= self.filled {
            return Ok(bits);
        }
        self.go_on(scan, bits)
    }

    #[cold]
    fn go_on(&mut self, scan: &[u8], bits: Bits) -> Result<Bits, NotMine> {
        if self.end != End::Ahead {
            return self.check(bits).map(|()| bits);
        }
        // The bit buffer is read anew, from the byte in which the next bit lies.
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

    /// Whether all bits that were taken were there.
    pub fn check(&self, bits: Bits) -> Result<(), NotMine> {
        // Without a marker behind them libjpeg has read past the end of the file, which it counts as a warning.
        if bits.position() > 8 * self.filled || self.end == End::Missing { Err(NotMine) } else { Ok(()) }
    }

    /// Fills the window up, as far as the segment goes.
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

    /// Takes up to `most` bytes, one by one.
    fn fill_slowly(&mut self, rest: &[u8], most: usize) {
        let mut at = 0;
        for _ in 0..most.max(1) {
            let (byte, length) = match rest[at..] {
                [0xFF, 0, ..] => (0xFF, 2),
                // Behind fill bytes libjpeg looks for a marker, through zeroes and to the file's end.
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

    /// Where in the scan the next bit is, for a window that [`follows`](Self::follows).
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

/// Where the first 0xFF stands.
#[inline(always)]
fn first_ff(chunk: &[u8; CHUNK]) -> Option<usize> {
    // A vector comparison: the position is asked for only where there is one.
    let any = chunk.iter().fold(false, |any, &byte| any | (byte == 0xFF));
    if !any {
        return None;
    }
    const LOW: u64 = 0x0101_0101_0101_0101;
    chunk.as_chunks::<8>().0.iter().enumerate().find_map(|(number, &word)| {
        let inverse = !u64::from_le_bytes(word);
        // The lowest zero byte has its highest bit set here, and none below it has.
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

    /// The next bit, counted from the window's first.
    #[inline(always)]
    fn position(self) -> usize {
        8 * self.at - (self.count & 63) as usize
    }

    /// Makes sure of at least 56 bits. Behind the segment's bytes they are anything: see [`Window::check`].
    ///
    /// As many whole bytes as fit are added by one load; the rest of the load stays where the next refill puts the same bits.
    #[inline(always)]
    pub fn refill(&mut self, bytes: &Bytes) {
        let count = self.count & 63;
        let at = self.at & (BUFFER_BYTES - 1);
        let word: [u8; 8] = bytes[at..at + 8].try_into().expect("eight bytes");
        self.buffer |= u64::from_be_bytes(word) >> count;
        self.at += ((63 - count) >> 3) as usize;
        self.count = count | 56;
    }

    /// The next bits, up to 32.
    #[inline(always)]
    pub fn peek(self, count: u32) -> u32 {
        (self.buffer >> (64 - count)) as u32
    }

    /// The next bits, the first of them highest.
    #[inline(always)]
    pub fn all(self) -> u64 {
        self.buffer
    }

    /// Takes as many bits as the lowest six bits of a number say. There have to be as many.
    #[inline(always)]
    pub fn take(&mut self, count: u64) {
        self.buffer <<= count & 63;
        self.count = self.count.wrapping_sub(count);
    }
}
