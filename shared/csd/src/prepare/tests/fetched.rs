//! Samples that were fetched before they are prepared.

use super::*;
use ddlp_dataset::SampleToFetch;

const PPM: &[u8] = b"P6\n1 1\n255\n\x01\x02\x03";

/// A dataset of one file, whose first read may go wrong.
struct OneFile {
    file: &'static [u8],
    first: fn() -> Result<(), ReadError>,
    reads: AtomicU32,
}

impl Dataset for OneFile {
    fn len(&self) -> u64 {
        1
    }

    fn classes(&self) -> &[String] {
        &[]
    }

    fn label(&self, _index: u64) -> u32 {
        0
    }

    fn name(&self, index: u64) -> String {
        index.to_string()
    }

    fn location(&self, _index: u64) -> Location {
        Location { file: "memory".into(), offset: 0, length: 0 }
    }

    fn header(&self, _index: u64) -> Result<Header, ReadError> {
        Ok(Header::file(0..self.file.len() as u64))
    }

    fn read(&self, _: u64, _: &Header, _: u64, out: &mut [u8]) -> Result<(), ReadError> {
        if self.reads.fetch_add(1, Ordering::Relaxed) == 0 {
            (self.first)()?;
        }
        out.copy_from_slice(self.file);
        Ok(())
    }

    fn identity(&self) -> Identity {
        Identity::from_bytes([0; 32])
    }

    fn kind(&self) -> &'static str {
        "one file"
    }
}

/// Fetches and prepares the sample. Returns its outcome, and the number of reads.
fn fetch_and_prepare(file: &'static [u8], first: fn() -> Result<(), ReadError>) -> (Outcome, u32) {
    let pipeline = Pipeline::of([CenterCrop::to(1).into()]);
    let program = Program { pipeline, ..program(CorruptPolicy::Skip) };
    let dataset = OneFile { file, first, reads: AtomicU32::new(0) };
    let context = EpochContext { seed: 1, epoch: 2, fidelity: Fidelity::WHOLE };
    let mut samples = [SampleToFetch {
        index: 0,
        draw: context.draw(0),
        fidelity: Fidelity::WHOLE,
        fetched: FetchedSample::default(),
    }];
    // Preparing finds out about an error.
    let _ = SampleFetcher::new(&program).fetch(&dataset, &mut samples);
    let (mut preparer, fetched, mut row) = (impatient(&program), Some(&mut samples[0].fetched), [0; 3]);
    let record = preparer.prepare_unless(&|| false, &dataset, context, 0, fetched, &mut row).unwrap().unwrap();
    assert_eq!(record.has_row(), row == [1, 2, 3]);
    (record.outcome, dataset.reads.into_inner())
}

#[test]
fn what_was_fetched_is_not_read_again() {
    let intact = || Ok(());
    assert_eq!(fetch_and_prepare(PPM, intact), (Outcome::Prepared, 1));
    let unknown = Outcome::Skipped(CorruptReason::UnknownFormat);
    assert_eq!(fetch_and_prepare(b"no image", intact), (unknown, 1), "the bytes are judged as they came");
}

#[test]
fn a_read_that_went_wrong_ahead_is_made_again() {
    assert_eq!(fetch_and_prepare(PPM, || Err(timed_out())), (Outcome::Prepared, 2));
    assert_eq!(fetch_and_prepare(PPM, || panic!("half read")), (Outcome::Prepared, 2));
}
