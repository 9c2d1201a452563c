//! Host memory that copies read.
//!
//! A program may change or free it when it knows that the copy has run: it waited, or asked. That the copy happened to
//! run before is not enough, so each run finds a buffer that is used again too early, whatever the seed.

use crate::order::Clock;

/// A copy that the program does not know to have run.
#[derive(Debug)]
struct Source {
    /// The copy's number among all operations.
    sequence: u64,
    address: u64,
    bytes: u64,
    digest: u64,
    /// The stream on which it ran, and its number there; `None` while it is queued.
    ran: Option<(u64, u64)>,
}

/// All such copies.
#[derive(Debug, Default)]
pub(crate) struct Sources(Vec<Source>);

impl Sources {
    /// Adds a copy that is queued.
    pub fn add(&mut self, sequence: u64, address: u64, bytes: u64) {
        self.0.push(Source { sequence, address, bytes, digest: digest(address, bytes), ran: None });
    }

    /// Notes that a copy ran, as the operation of a stream with this number.
    pub fn run(&mut self, sequence: u64, stream: u64, number: u64) {
        if let Some(source) = self.0.iter_mut().find(|source| source.sequence == sequence) {
            source.ran = Some((stream, number));
        }
    }

    /// Removes the copies that are now known to have run. Returns a sentence about each one whose memory has changed.
    pub fn learn(&mut self, known: &Clock) -> Vec<String> {
        let is_known = |source: &mut Source| source.ran.is_some_and(|(stream, number)| number <= known.count(stream));
        let learnt = self.0.extract_if(.., is_known).collect::<Vec<_>>();
        let changed = learnt.iter().filter(|source| digest(source.address, source.bytes) != source.digest);
        let sentence = |source: &Source| {
            let Source { address, bytes, .. } = source;
            format!("{bytes} bytes at {address:#x} changed before the program could know that their copy had run")
        };
        changed.map(sentence).collect()
    }

    /// Removes the copies that read an extent, which the program frees. Returns how many there are.
    pub fn free(&mut self, address: u64, bytes: u64) -> usize {
        let overlaps =
            |source: &mut Source| source.address < address + bytes && address < source.address + source.bytes;
        self.0.extract_if(.., overlaps).count()
    }

    /// Removes a copy that never runs.
    pub fn forget(&mut self, sequence: u64) {
        self.0.retain(|source| source.sequence != sequence);
    }

    /// Removes the copies that ran on a stream whose context has ended.
    pub fn forget_stream(&mut self, stream: u64) {
        self.0.retain(|source| source.ran.is_none_or(|(ran, _)| ran != stream));
    }
}

/// Returns a number that changes with the bytes.
fn digest(address: u64, bytes: u64) -> u64 {
    // SAFETY: the memory is registered as page-locked, and was mapped then. A copy reads it, so the program lets it be.
    let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, bytes as usize) };
    let (words, rest) = bytes.as_chunks::<8>();
    let mix = |digest: u64, word: u64| (digest ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let digest = words.iter().fold(1, |digest, word| mix(digest, u64::from_ne_bytes(*word)));
    rest.iter().fold(digest, |digest, &byte| mix(digest, byte.into()))
}
