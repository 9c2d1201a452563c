use super::*;
use crate::wait_for;
use crate::{FetchedSample, Identity, Location, ReadError};
use ddlp_pixels::{Draw, Fidelity};
use std::sync::Mutex;

/// Bytes in a row, and the extents that are read. A read also writes behind its place, as one of whole blocks does.
struct Bytes {
    bytes: Vec<u8>,
    read: Mutex<Vec<Range<u64>>>,
}

impl Bytes {
    fn new(length: u32) -> Self {
        let bytes = (0..length).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        Self { bytes, read: Mutex::default() }
    }

    /// Fetches these extents of samples in one round. Returns the extents that were read, and counts them.
    fn fetch(&self, extents: &[Vec<Range<u64>>], join_gap: Option<u64>) -> (Vec<Range<u64>>, BytesRead) {
        let mut samples: Vec<SampleToFetch> = (0u64..)
            .zip(extents)
            .map(|(index, extents)| {
                let mut fetched = FetchedSample::default();
                fetched.fetch.want(extents);
                SampleToFetch { index, draw: Draw::default(), fidelity: Fidelity::WHOLE, fetched }
            })
            .collect();
        let (mut round, mut count) = (Round::default(), BytesRead::default());
        if round.plan(&mut samples, join_gap) {
            wait_for(round.read(self, &mut samples, &mut count)).unwrap();
        }
        for (sample, extents) in samples.iter().zip(extents) {
            let expected = extents.iter().flat_map(|extent| &self.bytes[extent.start as usize..extent.end as usize]);
            let expected: Vec<u8> = expected.copied().collect();
            assert_eq!(sample.fetched.is_in_round, !expected.is_empty());
            if !expected.is_empty() {
                assert!(sample.fetched.memory.sample()[..expected.len()] == expected, "{extents:?}");
            }
        }
        (std::mem::take(&mut self.read.lock().unwrap()), count)
    }
}

impl Dataset for Bytes {
    fn read_within(
        &self,
        _: u64,
        _: &Header,
        offset: u64,
        memory: &mut [u8],
        place: Range<usize>,
    ) -> Result<(), ReadError> {
        self.read.lock().unwrap().push(offset..offset + place.len() as u64);
        memory[place.clone()].copy_from_slice(&self.bytes[offset as usize..][..place.len()]);
        memory[place.end..place.end + ROOM_BYTES].fill(0xEE);
        Ok(())
    }

    fn len(&self) -> u64 {
        1
    }

    fn classes(&self) -> &[String] {
        &[]
    }

    fn label(&self, _: u64) -> u32 {
        0
    }

    fn name(&self, index: u64) -> String {
        format!("sample {index}")
    }

    fn location(&self, _: u64) -> Location {
        Location { file: "memory".into(), offset: 0, length: 0 }
    }

    fn header(&self, _: u64) -> Result<Header, ReadError> {
        Ok(Header::file(0..0))
    }

    fn read(&self, _: u64, _: &Header, _: u64, _: &mut [u8]) -> Result<(), ReadError> {
        unreachable!("reads have room")
    }

    fn identity(&self) -> Identity {
        Identity::from_bytes([0; 32])
    }

    fn kind(&self) -> &'static str {
        "bytes"
    }
}

/// The pieces of all samples lie group by group, as in a progressive record: first the first piece of each sample,
/// then the second piece of each sample, and so on.
#[test]
fn one_read_for_each_group_serves_all_samples_of_a_record() {
    let (samples, groups, piece) = (6, 10, 700);
    let record = Bytes::new(120_000);
    let extents: Vec<Vec<Range<u64>>> = (0..samples)
        .map(|sample| {
            let piece_of = |group: u64| {
                let start = 4096 * 3 * group + sample * piece;
                start..start + piece
            };
            (0..groups).map(piece_of).collect()
        })
        .collect();
    let expected: Vec<Range<u64>> =
        (0..groups).map(|group| 4096 * 3 * group..4096 * 3 * group + samples * piece).collect();
    let (read, count) = record.fetch(&extents, Some(0));
    assert_eq!(read, expected);
    assert_eq!(count, BytesRead { bytes: samples * groups * piece, block_bytes: groups * 8192, sample_bytes: 0 });
    let (read, count) = record.fetch(&extents, None);
    assert_eq!(read.len() as u64, samples * groups, "nothing is joined");
    assert_eq!(count.bytes, samples * groups * piece);
    // A gap of a block between the groups: one read gets all of them.
    let (read, count) = record.fetch(&extents, Some(3 * 4096));
    assert_eq!((read.len(), count.bytes), (1, samples * groups * piece));
}

#[test]
#[expect(clippy::single_range_in_vec_init, reason = "lists of one extent")]
fn extents_are_joined_up_to_the_gap_and_long_ones_never() {
    let bytes = Bytes::new(300_000);
    for (extents, gap, expected) in [
        (vec![vec![100..200], vec![210..300]], 10, vec![100..300]),
        (vec![vec![100..200], vec![211..300]], 10, vec![100..200, 211..300]),
        // In any order, one sample twice, one extent within another.
        (vec![vec![210..300], vec![100..200], vec![210..300], vec![120..130]], 10, vec![100..300]),
        // The order in memory is not that of the places.
        (vec![vec![500..600, 100..200], vec![200..500]], 0, vec![100..600]),
        (vec![vec![0..40_000], vec![40_000..40_100]], 0, vec![0..40_000, 40_000..40_100]),
        (vec![vec![0..40_000, 40_000..80_000, 80_000..80_010]], 9, vec![0..40_000, 40_000..80_000, 80_000..80_010]),
        (vec![vec![], vec![5..6]], 9, vec![5..6]),
        (vec![vec![]], 9, vec![]),
    ] {
        let (read, count) = bytes.fetch(&extents, Some(gap));
        assert_eq!(read, expected);
        let mut wanted: Vec<u64> = extents.iter().flatten().flat_map(Range::clone).collect();
        wanted.sort_unstable();
        wanted.dedup();
        assert_eq!(count.bytes, wanted.len() as u64, "bytes between extents do not count, and none counts twice");
    }
}
