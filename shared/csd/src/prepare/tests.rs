//! Samples that panic, are corrupt, cannot be read, or cannot be read now.

/// Methods that most datasets here share: samples of 3072 bytes in memory, named by their numbers, without classes.
macro_rules! in_memory {
    () => {
        fn classes(&self) -> &[String] {
            &[]
        }

        fn name(&self, index: u64) -> String {
            index.to_string()
        }

        fn location(&self, _index: u64) -> Location {
            Location { file: "memory".into(), offset: 0, length: 3072 }
        }

        fn identity(&self) -> Identity {
            Identity::from_bytes([0; 32])
        }
    };
}

mod decoders;
mod fetched;

use super::*;
use ddlp_dataset::{Corrupt, Header, Identity, Location, ReadError};
use ddlp_pixels::ops::{CenterCrop, Resize};
use ddlp_pixels::{Fidelity, Limits, Pipeline};
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

/// Dataset of eight images that panics when asked for the bytes of 4 or 5.
struct Trapped;

impl Dataset for Trapped {
    in_memory!();

    fn len(&self) -> u64 {
        8
    }

    fn label(&self, index: u64) -> u32 {
        10 + index as u32
    }

    fn header(&self, _index: u64) -> Result<Header, ReadError> {
        Ok(Header::planar((32, 32), 0..3072))
    }

    fn read(&self, index: u64, _: &Header, _: u64, out: &mut [u8]) -> Result<(), ReadError> {
        out[0] = 0;
        assert!(index != 4 && index != 5, "half read");
        out.fill(index as u8);
        Ok(())
    }

    fn kind(&self) -> &'static str {
        "trapped"
    }
}

fn program(policy: CorruptPolicy) -> Program {
    Program { pipeline: Pipeline::cifar_train(), limits: Limits::default(), policy }
}

#[test]
fn a_panicking_sample_is_corrupt_and_leaves_the_next_one_alone() {
    let panicked = CorruptReason::DecoderPanic;
    let (failed, skipped, replaced) =
        (Outcome::Failed(panicked), Outcome::Skipped(panicked), Outcome::Replaced(panicked));
    let cases = [
        (CorruptPolicy::Fail, 4, (4, failed)),
        (CorruptPolicy::Skip, 4, (4, skipped)),
        (CorruptPolicy::Replace, 4, (6, replaced)),
    ];
    let context = EpochContext { seed: 1, epoch: 2, fidelity: Fidelity::WHOLE };
    for (policy, id, expected) in cases {
        let program = program(policy);
        let mut row = vec![0; program.pipeline.output().bytes()];
        let mut fresh = row.clone();
        let mut preparer = SamplePreparer::new(&program);
        let record = preparer.prepare(&Trapped, context, id, &mut row).unwrap();
        assert_eq!((record.index, record.outcome), expected, "{policy:?} {id}");
        let record = preparer.prepare(&Trapped, context, 7, &mut row).unwrap();
        let again = SamplePreparer::new(&program).prepare(&Trapped, context, 7, &mut fresh);
        assert_eq!(record, again.unwrap());
        assert_eq!(record.outcome, Outcome::Prepared);
        assert!(row == fresh, "{policy:?} {id}: a panic leaves nothing behind");
    }
}

#[test]
#[should_panic(expected = "the row has the pipeline's shape")]
fn a_row_of_the_wrong_length_panics() {
    let program = program(CorruptPolicy::Skip);
    let context = EpochContext { seed: 1, epoch: 2, fidelity: Fidelity::WHOLE };
    let _ = SamplePreparer::new(&program).prepare(&Trapped, context, 0, &mut [0; 5]);
}

/// Dataset of grey images. Samples from 1 up to `readable`, exclusive, were rejected by `ddlp pack`; the files of those
/// from `gone` on have disappeared.
struct Holed {
    samples: u64,
    readable: u64,
    gone: u64,
}

impl Dataset for Holed {
    in_memory!();

    fn len(&self) -> u64 {
        self.samples
    }

    fn label(&self, index: u64) -> u32 {
        index as u32
    }

    fn header(&self, index: u64) -> Result<Header, ReadError> {
        if index >= self.gone {
            let source = std::io::ErrorKind::NotFound.into();
            return Err(Unavailable::Gone { path: "memory".into(), source }.into());
        }
        if (1..self.readable).contains(&index) {
            let (name, location, reason) = (self.name(index), self.location(index), CorruptReason::Truncated);
            return Err(Corrupt::Rejected { name, location, reason }.into());
        }
        Ok(Header::planar((32, 32), 0..3072))
    }

    fn read(&self, index: u64, _: &Header, _: u64, out: &mut [u8]) -> Result<(), ReadError> {
        out.fill(index as u8);
        Ok(())
    }

    fn kind(&self) -> &'static str {
        "holed"
    }
}

fn prepare_1_of(dataset: &Holed, policy: CorruptPolicy, neighbours: u64) -> Result<SampleRecord, Unavailable> {
    let program = program(policy);
    let mut row = vec![0; program.pipeline.output().bytes()];
    let mut preparer = SamplePreparer::new(&program).trying(neighbours);
    preparer.prepare(dataset, EpochContext { seed: 1, epoch: 2, fidelity: Fidelity::WHOLE }, 1, &mut row)
}

#[test]
fn the_next_readable_sample_replaces_a_corrupt_one_within_the_bound() {
    let replaced = |samples, readable, neighbours| {
        let dataset = Holed { samples, readable, gone: samples };
        let record = prepare_1_of(&dataset, CorruptPolicy::Replace, neighbours).unwrap();
        (record.index, record.outcome)
    };
    let reason = CorruptReason::Truncated;
    assert_eq!(replaced(10_000, 100, 0), (100, Outcome::Replaced(reason)), "more than 64 neighbours are tried");
    let last = 1 + NEIGHBOURS_MIN;
    assert_eq!(replaced(10_000, last, 0), (last, Outcome::Replaced(reason)));
    assert_eq!(replaced(10_000, last + 1, 0), (1, Outcome::Failed(reason)), "the bound");
    assert_eq!(
        replaced(10_000, last + 1, last),
        (last + 1, Outcome::Replaced(reason)),
        "the caller may raise the bound"
    );
    assert_eq!(replaced(1000, 1000, 0), (0, Outcome::Replaced(reason)), "the search wraps round");
}

#[test]
fn no_policy_applies_to_an_unavailable_dataset() {
    for policy in [CorruptPolicy::Fail, CorruptPolicy::Skip, CorruptPolicy::Replace] {
        let gone = prepare_1_of(&Holed { samples: 100, readable: 1, gone: 1 }, policy, 0);
        assert!(matches!(gone, Err(Unavailable::Gone { .. })), "{policy:?}: {gone:?}");
    }
    let gone = prepare_1_of(&Holed { samples: 100, readable: 9, gone: 5 }, CorruptPolicy::Replace, 0);
    assert!(gone.is_err(), "a neighbour that is gone is not skipped: {gone:?}");
}

#[test]
fn bytes_that_cannot_be_read_now_are_unavailable() {
    let program = program(CorruptPolicy::Skip);
    let prepare = |answer| {
        let mut row = vec![0; program.pipeline.output().bytes()];
        let context = EpochContext { seed: 1, epoch: 2, fidelity: Fidelity::WHOLE };
        impatient(&program).prepare(&Failing::new(answer), context, 0, &mut row)
    };
    fn refused(number: i32) -> ReadError {
        let location = Location { file: "memory".into(), offset: 0, length: 3072 };
        ReadError::of_sample("0".into(), location, io::Error::from_raw_os_error(number))
    }
    let answers: [Answer; 4] = [
        |_, _| Err(refused(libc::ETIMEDOUT)),
        |_, _| Err(refused(libc::ENOMEM)),
        |_, _| Err(refused(libc::ESTALE)),
        |_, _| Err(refused(libc::EACCES)),
    ];
    for answer in answers {
        assert!(matches!(prepare(answer), Err(Unavailable::Io { .. })));
    }
    let broken = prepare(|_, _| Err(refused(libc::EIO))).map(|record| record.outcome);
    assert!(matches!(broken, Ok(Outcome::Skipped(CorruptReason::Io))), "{broken:?}");
}

fn record(outcome: Outcome) -> SampleRecord {
    SampleRecord { sample_id: 0, index: 0, outcome, warned: false }
}

#[test]
fn gaps_are_closed_in_order() {
    let skipped = Outcome::Skipped(CorruptReason::Empty);
    let records =
        [Outcome::Prepared, skipped, Outcome::Replaced(CorruptReason::Io), skipped, Outcome::Prepared].map(record);
    let mut rows: Vec<u8> = (0..5).flat_map(|i| [i; 3]).collect();
    assert_eq!(close_gaps(&records, &mut rows, 3), 3);
    assert_eq!(&rows[..9], &[0, 0, 0, 2, 2, 2, 4, 4, 4]);
}

/// Returns a preparer that tries three times, without pauses.
fn impatient(program: &Program) -> SamplePreparer {
    SamplePreparer { patience: Patience::with(&[0, 0]), ..SamplePreparer::new(program) }
}

/// Answers an attempt to read a sample; attempts count from 1.
type Answer = fn(index: u64, attempt: u32) -> Result<(), ReadError>;

/// A dataset of four gray images whose reads and checks may fail. A check asks for the index `u64::MAX`.
struct Failing {
    attempts: AtomicU32,
    answer: Answer,
}

impl Failing {
    fn new(answer: Answer) -> Self {
        Self { attempts: AtomicU32::new(0), answer }
    }
}

impl Dataset for Failing {
    in_memory!();

    fn len(&self) -> u64 {
        4
    }

    fn label(&self, index: u64) -> u32 {
        index as u32
    }

    fn header(&self, _index: u64) -> Result<Header, ReadError> {
        Ok(Header::planar((32, 32), 0..3072))
    }

    fn read(&self, index: u64, _: &Header, _: u64, out: &mut [u8]) -> Result<(), ReadError> {
        (self.answer)(index, self.attempts.fetch_add(1, Ordering::Relaxed) + 1)?;
        out.fill(index as u8);
        Ok(())
    }

    fn check(&self) -> Result<(), Unavailable> {
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed) + 1;
        match (self.answer)(u64::MAX, attempt) {
            Err(ReadError::Unavailable(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Says nothing, so that only reads and checks count as attempts.
    fn check_damage(&self) -> Result<(), Unavailable> {
        Ok(())
    }

    fn kind(&self) -> &'static str {
        "failing"
    }
}

fn timed_out() -> ReadError {
    let source = io::Error::from_raw_os_error(libc::ETIMEDOUT);
    Unavailable::Io { what: "sample".into(), path: "memory".into(), source }.into()
}

fn corrupt(reason: CorruptReason) -> ReadError {
    let location = Location { file: "memory".into(), offset: 0, length: 3072 };
    match reason {
        CorruptReason::Checksum => Corrupt::Checksum { name: "x".into(), location, stored: 0, computed: 1 }.into(),
        reason => Corrupt::Rejected { name: "x".into(), location, reason }.into(),
    }
}

/// A dataset of one file that needs more memory than any machine has.
struct Vast;

impl Dataset for Vast {
    fn len(&self) -> u64 {
        1
    }

    fn classes(&self) -> &[String] {
        &[]
    }

    fn label(&self, _index: u64) -> u32 {
        0
    }

    fn name(&self, _index: u64) -> String {
        "vast".into()
    }

    fn location(&self, _index: u64) -> Location {
        Location { file: "memory".into(), offset: 0, length: 3072 }
    }

    fn header(&self, _index: u64) -> Result<Header, ReadError> {
        Ok(Header::file(0..u64::MAX))
    }

    fn read(&self, _: u64, _: &Header, _: u64, _: &mut [u8]) -> Result<(), ReadError> {
        panic!("there is no buffer to read into")
    }

    fn identity(&self) -> Identity {
        Identity::from_bytes([0; 32])
    }

    fn kind(&self) -> &'static str {
        "vast"
    }
}

#[test]
fn refused_memory_says_nothing_about_the_sample() {
    for policy in [CorruptPolicy::Fail, CorruptPolicy::Skip, CorruptPolicy::Replace] {
        let program = program(policy);
        let mut row = vec![0; program.pipeline.output().bytes()];
        let context = EpochContext { seed: 1, epoch: 2, fidelity: Fidelity::WHOLE };
        let refused = impatient(&program).prepare(&Vast, context, 0, &mut row);
        assert!(matches!(refused, Err(Unavailable::NoMemory { .. })), "{policy:?}: {refused:?}");
        let pipeline = Pipeline::of([Resize::to(40).into(), CenterCrop::to(32).into()]);
        let program = Program { limits: Limits { memory_bytes: 100, ..Limits::default() }, pipeline, ..program };
        let limited = impatient(&program).prepare(&Trapped, context, 0, &mut row);
        let limited = limited.map(|record| record.outcome);
        let is_too_much = matches!(
            limited,
            Ok(Outcome::Failed(CorruptReason::TooMuchMemory) | Outcome::Skipped(CorruptReason::TooMuchMemory))
        );
        assert!(is_too_much, "the sample needs more than the limit: {policy:?}: {limited:?}");
    }
}

fn prepare_0_of(dataset: &Failing, preparer: &mut SamplePreparer, program: &Program) -> Option<SampleRecord> {
    let mut row = vec![0; program.pipeline.output().bytes()];
    let context = EpochContext { seed: 1, epoch: 2, fidelity: Fidelity::WHOLE };
    preparer.prepare(dataset, context, 0, &mut row).ok()
}

#[test]
fn a_sample_that_cannot_be_read_for_a_moment_is_read_again() {
    let program = program(CorruptPolicy::Skip);
    let dataset = Failing::new(|_, attempt| if attempt < 3 { Err(timed_out()) } else { Ok(()) });
    let record = prepare_0_of(&dataset, &mut impatient(&program), &program);
    assert_eq!(record.map(|record| record.outcome), Some(Outcome::Prepared));
    assert_eq!(dataset.attempts.into_inner(), 3);
    let dataset = Failing::new(|_, _| Err(timed_out()));
    assert_eq!(prepare_0_of(&dataset, &mut impatient(&program), &program), None);
    assert_eq!(dataset.attempts.into_inner(), 3, "the wait has an end");
}

#[test]
fn samples_and_the_check_of_a_batch_share_one_patience() {
    let program = program(CorruptPolicy::Skip);
    let check = |preparer: &mut SamplePreparer, answer| {
        let dataset = Failing::new(answer);
        let is_intact = preparer.check(&dataset, &|| false).is_ok();
        (is_intact, dataset.attempts.into_inner())
    };
    let for_two: Answer = |_, attempt| if attempt < 3 { Err(timed_out()) } else { Ok(()) };
    let mut preparer = impatient(&program);
    assert_eq!(check(&mut preparer, for_two), (true, 3), "the check is patient");
    assert_eq!(prepare_0_of(&Failing::new(|_, _| Err(timed_out())), &mut preparer, &program), None);
    assert_eq!(check(&mut preparer, for_two), (false, 1), "the wait for the sample brought no answer");
    assert_eq!(check(&mut preparer, |_, _| Ok(())), (true, 1));
}

/// The samples 0 and 1 do not decode, and 2 cannot be read from the drive's storage.
#[test]
fn a_drive_passes_over_no_neighbour_that_the_host_may_be_able_to_read() {
    let program = program(CorruptPolicy::Replace);
    let answer: Answer = |index, _| match index {
        0 | 1 => Err(corrupt(CorruptReason::Truncated)),
        2 => Err(corrupt(CorruptReason::Checksum)),
        _ => Ok(()),
    };
    let prepare = |mut preparer: SamplePreparer, answer: Answer| {
        let record = prepare_0_of(&Failing::new(answer), &mut preparer, &program).unwrap();
        (record.index, record.outcome)
    };
    let host = prepare(SamplePreparer::new(&program), answer);
    assert_eq!(host, (3, Outcome::Replaced(CorruptReason::Truncated)));
    let drive = prepare(SamplePreparer::new(&program).for_drive(AgreedDecoders::ALL), answer);
    assert_eq!(drive, (2, Outcome::Failed(CorruptReason::Checksum)));
    let decoded: Answer = |index, _| if index < 3 { Err(corrupt(CorruptReason::Truncated)) } else { Ok(()) };
    assert_eq!(
        prepare(SamplePreparer::new(&program).for_drive(AgreedDecoders::ALL), decoded),
        host,
        "the host finds the same"
    );
}

#[test]
fn work_that_is_over_ends_among_the_neighbours_and_while_it_waits() {
    let program = program(CorruptPolicy::Replace);
    let mut row = vec![0; program.pipeline.output().bytes()];
    let context = EpochContext { seed: 1, epoch: 2, fidelity: Fidelity::WHOLE };
    let answers: [Answer; 2] = [|_, _| Err(corrupt(CorruptReason::Truncated)), |_, _| Err(timed_out())];
    for answer in answers {
        let dataset = Failing::new(answer);
        let is_over = || dataset.attempts.load(Ordering::Relaxed) > 0;
        let mut preparer = SamplePreparer::new(&program);
        let prepared = preparer.prepare_unless(&is_over, &dataset, context, 0, None, &mut row);
        assert!(matches!(prepared, Ok(None)), "{prepared:?}");
        assert_eq!(dataset.attempts.into_inner(), 1);
    }
}
