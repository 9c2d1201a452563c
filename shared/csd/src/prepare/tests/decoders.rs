//! Samples whose decoder the drive lacks, or has with another digest than the host.

use super::*;
use ddlp_dataset::pack::StoredForm;
use ddlp_dataset::{Decoder, Decoders};
use ddlp_pixels::ops::RandomCrop;
use ddlp_pixels::{AbilityNumber, Fidelity, Format};

/// A dataset of a planar image, a PPM, a file of an unknown format, and a sample of a form that the drive does not
/// know.
#[derive(Default)]
struct Mixed {
    /// Whether the dataset was replaced after it was opened.
    is_replaced: bool,
}

const UNKNOWN: &[u8] = b"\0no image";
const PPM: &[u8] = b"P6\n1 1\n255\n\x01\x02\x03";

impl Dataset for Mixed {
    in_memory!();

    fn len(&self) -> u64 {
        4
    }

    fn label(&self, index: u64) -> u32 {
        index as u32
    }

    fn header(&self, index: u64) -> Result<Header, ReadError> {
        match index {
            0 => Ok(Header::planar((32, 32), 0..3072)),
            1 => Ok(Header::file(0..PPM.len() as u64)),
            2 => Ok(Header::file(0..UNKNOWN.len() as u64)),
            _ => Err(Unavailable::UnknownForm { index, file: "memory".into(), form: 9 }.into()),
        }
    }

    fn read(&self, index: u64, _: &Header, _: u64, out: &mut [u8]) -> Result<(), ReadError> {
        match index {
            1 => out.copy_from_slice(PPM),
            2 => out.copy_from_slice(UNKNOWN),
            _ => out.fill(9),
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Unavailable> {
        match self.is_replaced {
            true => Err(Unavailable::Gone { path: "memory".into(), source: io::ErrorKind::NotFound.into() }),
            false => Ok(()),
        }
    }

    fn kind(&self) -> &'static str {
        "mixed"
    }
}

/// Returns the outcome of each sample in a drive with this agreement.
fn outcomes(policy: CorruptPolicy, agreed: AgreedDecoders) -> [Outcome; 4] {
    let pipeline = Pipeline::of([CenterCrop::to(8).into()]);
    let program = Program { pipeline, ..program(policy) };
    let mut row = vec![0; program.pipeline.output().bytes()];
    let mut preparer = SamplePreparer::new(&program).for_drive(agreed);
    let context = EpochContext { seed: 1, epoch: 2, fidelity: Fidelity::WHOLE };
    [0, 1, 2, 3].map(|id| preparer.prepare(&Mixed::default(), context, id, &mut row).unwrap().outcome)
}

const FORM_9: Outcome = Outcome::OtherDecoder(Some(AbilityNumber(0x0309)));

#[test]
fn a_drive_leaves_to_the_host_what_it_cannot_judge() {
    let unknown = Outcome::Skipped(CorruptReason::UnknownFormat);
    let prepared = Outcome::Prepared;
    assert_eq!(outcomes(CorruptPolicy::Skip, AgreedDecoders::ALL), [prepared, prepared, unknown, FORM_9]);
    let decoders: Decoders = [Decoder::Form(StoredForm::Planar), Decoder::File(Format::Jpeg)].into_iter().collect();
    let agreed = AgreedDecoders { decoders, include_all_formats: false };
    let ppm = Outcome::OtherDecoder(Some(Decoder::File(Format::Pnm).ability()));
    let expected = [prepared, ppm, Outcome::OtherDecoder(None), FORM_9];
    assert_eq!(outcomes(CorruptPolicy::Skip, agreed), expected, "the host may know the format of sample 2");
}

#[test]
fn a_drive_that_cannot_judge_a_neighbour_leaves_the_replacement_to_the_host() {
    let replaced = outcomes(CorruptPolicy::Replace, AgreedDecoders::ALL);
    assert_eq!(replaced[2], FORM_9, "sample 2 is corrupt, and sample 3 would replace it");
}

#[test]
fn an_image_that_is_too_small_for_an_operation_is_an_error_of_the_run_on_the_host_and_left_to_it_by_a_drive() {
    let pipeline = Pipeline::of([RandomCrop::to(4096).into()]);
    let context = EpochContext { seed: 1, epoch: 2, fidelity: Fidelity::WHOLE };
    for policy in [CorruptPolicy::Fail, CorruptPolicy::Skip, CorruptPolicy::Replace] {
        let program = Program { pipeline: pipeline.clone(), ..program(policy) };
        let mut row = vec![0; program.pipeline.output().bytes()];
        for id in [0, 1] {
            let mut prepare = |mut preparer: SamplePreparer| preparer.prepare(&Mixed::default(), context, id, &mut row);
            let refused = prepare(SamplePreparer::new(&program));
            let Err(Unavailable::Misfit { name, problem, .. }) = refused else { panic!("{policy:?}: {refused:?}") };
            assert!(name == id.to_string() && problem.contains("a crop of 4096x4096 does not fit into"), "{problem}");
            let left = prepare(SamplePreparer::new(&program).for_drive(AgreedDecoders::ALL)).unwrap();
            assert_eq!(left.outcome, Outcome::Failed(CorruptReason::Unsupported), "{policy:?}");
        }
    }
}

#[test]
fn bytes_of_a_replaced_dataset_say_nothing_about_the_decoder() {
    let program = program(CorruptPolicy::Skip);
    let mut row = vec![0; program.pipeline.output().bytes()];
    let agreed = AgreedDecoders { decoders: Decoders::NONE, include_all_formats: false };
    for id in [0, 1, 2] {
        let context = EpochContext { seed: 1, epoch: 2, fidelity: Fidelity::WHOLE };
        let mut preparer = impatient(&program).for_drive(agreed);
        let prepared = preparer.prepare(&Mixed { is_replaced: true }, context, id, &mut row);
        assert!(matches!(prepared, Err(Unavailable::Gone { .. })), "{id}: {prepared:?}");
    }
}

#[test]
fn the_host_itself_has_no_other_decoder_to_leave_samples_to() {
    let program = program(CorruptPolicy::Skip);
    let mut row = vec![0; program.pipeline.output().bytes()];
    let context = EpochContext { seed: 1, epoch: 2, fidelity: Fidelity::WHOLE };
    let read = SamplePreparer::new(&program).prepare(&Mixed::default(), context, 3, &mut row);
    assert!(matches!(read, Err(Unavailable::UnknownForm { form: 9, .. })), "{read:?}");
}
