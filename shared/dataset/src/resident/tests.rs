use super::*;
use crate::{Identity, Unavailable};
use ddlp_pixels::Fidelity;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// Samples of 32 × 32, except for four: 3 cannot be read, reading 5 panics, 7 is an image file, 9 is smaller. Counts
/// reads, and records announcements.
struct Mixed {
    samples: u64,
    side: u32,
    reads: Vec<AtomicU32>,
    announced: Mutex<Vec<u64>>,
}

impl Mixed {
    fn new(samples: u64, side: u32) -> Arc<Self> {
        let reads = (0..samples).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Self { samples, side, reads, announced: Mutex::default() })
    }

    fn side(&self, index: u64) -> u32 {
        if index == 9 { 8 } else { self.side }
    }

    fn bytes(&self, index: u64) -> u64 {
        u64::from(self.side(index)).pow(2) * 3
    }

    fn reads(&self, index: u64) -> u32 {
        self.reads[index as usize].load(Ordering::Relaxed)
    }
}

impl Dataset for Mixed {
    fn len(&self) -> u64 {
        self.samples
    }

    fn classes(&self) -> &[String] {
        &[]
    }

    fn label(&self, index: u64) -> u32 {
        index as u32 + 1
    }

    fn name(&self, index: u64) -> String {
        format!("sample {index}")
    }

    fn location(&self, index: u64) -> Location {
        Location { file: "memory".into(), offset: index, length: self.bytes(index) }
    }

    fn header(&self, index: u64) -> Result<Header, ReadError> {
        if index >= self.samples {
            return Err(Unavailable::OutOfRange { index, samples: self.samples }.into());
        }
        let count = || self.reads[index as usize].fetch_add(1, Ordering::Relaxed);
        let bytes = 0..self.bytes(index);
        match index {
            3 => {
                count();
                Err(Unavailable::OutOfRange { index, samples: 3 }.into())
            }
            5 => {
                count();
                panic!("sample 5")
            }
            7 => Ok(Header::file(bytes)),
            _ => Ok(Header::planar((self.side(index), self.side(index)), bytes)),
        }
    }

    fn read(&self, index: u64, _: &Header, _: u64, out: &mut [u8]) -> Result<(), ReadError> {
        self.reads[index as usize].fetch_add(1, Ordering::Relaxed);
        out.fill(index as u8);
        Ok(())
    }

    fn announce(&self, indices: &[u64], _ahead: Ahead) {
        self.announced.lock().unwrap().extend(indices);
    }

    fn identity(&self) -> Identity {
        Identity::from_bytes([7; 32])
    }

    fn kind(&self) -> &'static str {
        "mixed"
    }

    fn left_out(&self) -> u64 {
        11
    }
}

/// Enough samples for more than two groups.
const SAMPLES: u64 = 1500;

#[test]
fn samples_that_are_not_in_memory_are_announced() {
    let dataset = Mixed::new(SAMPLES, 32);
    let resident = Resident::of(dataset.clone());
    resident.sample(0, &mut Vec::new()).unwrap();
    let ahead = Ahead { fidelity: Fidelity::WHOLE, window: None };
    resident.announce(&[1, 3, 7, 8, SAMPLES - 1], ahead);
    resident.announce(&[2], ahead);
    assert_eq!(
        *dataset.announced.lock().unwrap(),
        [3, 7, SAMPLES - 1],
        "no group holds 3 and 7, the last is nowhere yet"
    );
}

#[test]
fn prefetching_reads_nothing() {
    let mixed = Mixed::new(SAMPLES, 32);
    let resident = Resident::of(mixed.clone());
    let tried = mixed.reads(0);
    let prefetch = || {
        for index in [0, 3, 7, SAMPLES - 1, SAMPLES, u64::MAX] {
            [Half::First, Half::Second].into_iter().for_each(|half| resident.prefetch(index, half));
        }
    };
    prefetch();
    assert_eq!((mixed.reads(0), mixed.reads(SAMPLES - 1)), (tried, 0));
    resident.sample(0, &mut Vec::new()).unwrap();
    prefetch();
    assert_eq!((mixed.reads(0), mixed.reads(3), mixed.reads(SAMPLES - 1)), (tried + 1, 1, 0), "one group was read");
}

#[test]
fn samples_are_read_once_and_unusual_ones_are_left_to_the_dataset() {
    let mixed = Mixed::new(SAMPLES, 32);
    let resident = Resident::of(mixed.clone());
    assert!(resident.is_resident());
    let tried = mixed.reads(0);
    let mut buf = Vec::new();
    for round in 1..4 {
        for index in (0..SAMPLES).rev().filter(|index| ![3, 5, 7, 9].contains(index)) {
            match resident.sample(index, &mut buf) {
                Ok(Source::Planar { width: 32, height: 32, bytes }) => assert_eq!(bytes, [index as u8; 3072]),
                other => panic!("sample {index}: {other:?}"),
            }
            assert_eq!(mixed.reads(index), if index == 0 { tried + 1 } else { 1 }, "sample {index}, round {round}");
        }
        assert!(matches!(
            resident.sample(3, &mut buf),
            Err(ReadError::Unavailable(Unavailable::OutOfRange { index: 3, samples: 3 }))
        ));
        assert!(matches!(resident.sample(7, &mut buf), Ok(Source::Encoded(bytes)) if bytes == [7; 3072]));
        assert!(matches!(resident.sample(9, &mut buf), Ok(Source::Planar { width: 8, .. })));
        assert!(matches!(
            resident.sample(SAMPLES, &mut buf),
            Err(ReadError::Unavailable(Unavailable::OutOfRange { .. }))
        ));
        let panicked = catch_unwind(AssertUnwindSafe(|| resident.sample(5, &mut Vec::new()).is_ok()));
        assert!(panicked.is_err(), "as without");
        assert_eq!(mixed.reads(5), 1 + round);
        assert_eq!(mixed.reads(9), round, "one of another size is read for itself alone");
    }
}

#[test]
fn many_threads_read_each_sample_once() {
    let mixed = Mixed::new(SAMPLES, 32);
    let resident = Resident::of(mixed.clone());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let resident = &resident;
            scope.spawn(move || {
                for at in 0..SAMPLES {
                    let index = (at * 7 + thread * 300) % SAMPLES;
                    if ![3, 5, 7, 9].contains(&index) {
                        let read = resident.sample(index, &mut Vec::new()).is_ok();
                        assert!(read, "sample {index}");
                    }
                }
            });
        }
    });
    assert!((10..SAMPLES).all(|index| mixed.reads(index) == 1));
}

#[test]
fn all_other_calls_go_to_the_dataset() {
    let resident = Resident::of(Mixed::new(20, 32));
    assert_eq!((resident.len(), resident.label(4), resident.left_out()), (20, 5, 11));
    assert_eq!((resident.name(6), resident.kind()), ("sample 6".into(), "mixed"));
    assert_eq!((resident.location(8).offset, resident.identity()), (8, Identity::from_bytes([7; 32])));
    assert!(resident.export().is_none());
    let again = Resident::of(resident.clone());
    assert!(Arc::ptr_eq(&resident, &again), "a resident dataset is not wrapped again");
}

#[test]
fn large_samples_and_large_datasets_stay_where_they_are() {
    assert!(!Resident::of(Mixed::new(2, 150)).is_resident(), "samples of 67 500 bytes");
    assert!(Resident::of(Mixed::new(2, 147)).is_resident());
    let most = RESIDENT_BYTES_MAX / 3072;
    assert!(Resident::of(Mixed::new(most, 32)).is_resident());
    assert!(!Resident::of(Mixed::new(most + 1, 32)).is_resident());
}

/// Samples of 32 × 32 that lie one after the other, with checksums. Sample 17 is damaged. Records what is read.
struct Neighbours {
    reads: Mutex<Vec<Range<u64>>>,
}

impl Neighbours {
    const BYTES: u64 = 3072;
}

impl Dataset for Neighbours {
    fn len(&self) -> u64 {
        SAMPLES
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

    fn location(&self, index: u64) -> Location {
        Location { file: "memory".into(), offset: index * Self::BYTES, length: Self::BYTES }
    }

    fn header(&self, index: u64) -> Result<Header, ReadError> {
        let crc32c = Some(crc32c::crc32c(&[index as u8; Self::BYTES as usize]));
        let bytes = index * Self::BYTES..(index + 1) * Self::BYTES;
        Ok(Header { crc32c, ..Header::planar((32, 32), bytes) })
    }

    fn read(&self, _: u64, _: &Header, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        self.reads.lock().unwrap().push(offset..offset + out.len() as u64);
        for (at, byte) in (offset..).zip(out) {
            let index = at / Self::BYTES;
            *byte = if at == 17 * Self::BYTES + 5 { 0xff } else { index as u8 };
        }
        Ok(())
    }

    fn identity(&self) -> Identity {
        Identity::from_bytes([8; 32])
    }

    fn kind(&self) -> &'static str {
        "neighbours"
    }
}

#[test]
fn neighbours_are_read_by_one_read_and_damaged_ones_are_left_to_the_dataset() {
    let dataset = Arc::new(Neighbours { reads: Mutex::default() });
    let resident = Resident::of(dataset.clone());
    dataset.reads.lock().unwrap().clear();
    let mut buf = Vec::new();
    let mut damaged = Vec::new();
    for index in 0..SAMPLES {
        match resident.sample(index, &mut buf) {
            Ok(Source::Planar { bytes, .. }) => assert_eq!(bytes, [index as u8; 3072]),
            Err(ReadError::Corrupt(_)) => damaged.push(index),
            other => panic!("sample {index}: {other:?}"),
        }
    }
    assert_eq!(damaged, [17]);
    let each = (GROUP_BYTES as u64 / Neighbours::BYTES) * Neighbours::BYTES;
    let all = SAMPLES * Neighbours::BYTES;
    let of_17 = 17 * Neighbours::BYTES..18 * Neighbours::BYTES;
    assert_eq!(*dataset.reads.lock().unwrap(), [0..each, of_17, each..2 * each, 2 * each..all]);
    assert_eq!(resident.bytes_read().bytes, all);
}
