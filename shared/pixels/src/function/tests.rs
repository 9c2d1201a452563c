use super::*;
use crate::ability::abilities_without_forms;
use crate::draw::Draw;
use crate::ops::{
    CenterCrop, Function, Operation, RandomHorizontalFlip, RandomInvert, RandomResizedCrop, Resize, Size,
};
use crate::pipeline::{Pipeline, PipelineError};
use crate::preparer::Preparer;
use crate::source::Source;

const SIZE: (u32, u32) = (60, 40);

fn function(name: &str, output: Option<(u32, u32)>) -> Operation {
    Function { name: name.into(), output: output.map(|(height, width)| Size { height, width }) }.into()
}

fn with(
    name: &str,
    call: impl Fn(Given<'_>, &mut [u8]) -> Result<(), Box<dyn Error + Send + Sync>> + Send + Sync + 'static,
) -> Functions {
    let mut functions = Functions::default();
    functions.add(name, Arc::new(call));
    functions
}

fn prepared(functions: &Functions, operations: impl Into<Vec<Operation>>, draw: Draw) -> Result<Vec<u8>, PixelError> {
    let pipeline = Pipeline::of(operations);
    let mut out = vec![0; pipeline.output().bytes()];
    let bytes = crate::examples::noise(SIZE);
    let source = Source::Planar { width: SIZE.0, height: SIZE.1, bytes: &bytes };
    Preparer::new(Limits::default()).with_functions(functions.clone()).prepare(source, &pipeline, draw, &mut out)?;
    Ok(out)
}

/// Inverts an image of unchanged size, or copies its corner.
fn inverted(given: Given<'_>, out: &mut [u8]) -> Result<(), Box<dyn Error + Send + Sync>> {
    for (row, made) in out.chunks_exact_mut(given.output.width as usize * 3).enumerate() {
        let from = &given.image[row * given.shape.width as usize * 3..];
        made.iter_mut().zip(from).for_each(|(made, value)| *made = 255 - value);
    }
    Ok(())
}

#[test]
fn a_function_does_to_the_image_what_an_operation_would_wherever_it_stands() {
    let functions = with("inverted", inverted);
    let own = function("inverted", None);
    let ours = Operation::from(RandomInvert { p: 1.0 });
    let crop = Operation::from(RandomResizedCrop::to(16));
    let flip = Operation::from(RandomHorizontalFlip { p: 1.0 });
    for place in 0..4 {
        let around = |operation: &Operation| {
            let mut operations = vec![crop.clone(), flip.clone(), CenterCrop::to(12).into()];
            operations.insert(place, operation.clone());
            operations
        };
        for sample_id in 0..4 {
            let draw = Draw { sample_id, ..Draw::default() };
            let found = prepared(&functions, around(&own), draw);
            // The operations after it have other numbers, and draw what they draw there.
            assert_eq!(found, prepared(&functions, around(&ours), draw), "place {place}");
        }
    }
}

#[test]
fn the_image_has_the_functions_size_after_it() {
    let functions = with("inverted", inverted);
    let corner =
        prepared(&functions, [function("inverted", Some((7, 9))), RandomInvert { p: 1.0 }.into()], Draw::default());
    let expected = {
        let all = prepared(&functions, [CenterCrop { size: Size { height: 40, width: 60 } }.into()], Draw::default())
            .unwrap();
        all.chunks_exact(60 * 3).take(7).flat_map(|row| row[..27].to_vec()).collect::<Vec<u8>>()
    };
    assert_eq!(corner, Ok(expected));
    let resized = [function("inverted", Some((7, 9))), Resize::to(14).into(), CenterCrop::to(14).into()];
    assert_eq!(prepared(&functions, resized, Draw::default()).map(|out| out.len()), Ok(14 * 14 * 3));
    assert_eq!(Pipeline::of([function("inverted", None)]).validate(), Err(PipelineError::OpenSize));
}

#[test]
fn seeds_differ_by_sample_epoch_and_place() {
    let functions = with("seed", |given, out| {
        assert!(given.seed < 1 << 63);
        out[..8].copy_from_slice(&given.seed.to_le_bytes());
        out[8..].fill(0);
        Ok(())
    });
    let seed = |before: &[Operation], epoch, sample_id| {
        let operations = [before, &[function("seed", Some((2, 2)))]].concat();
        prepared(&functions, operations, Draw { seed: 3, epoch, sample_id }).unwrap()
    };
    let still = [Operation::from(CenterCrop::to(9))];
    assert_eq!(seed(&[], 0, 5), seed(&[], 0, 5));
    let all = [seed(&[], 0, 5), seed(&[], 0, 6), seed(&[], 1, 5), seed(&still, 0, 5)];
    assert!((0..4).all(|one| (0..one).all(|other| all[one] != all[other])));
}

#[test]
fn a_function_that_fails_panics_or_is_missing_is_no_fault_of_the_image() {
    crate::panics::silence_decoder_panics();
    let failing = with("f", |_, _| Err("no such colour".into()));
    let panicking = with("f", |_, _| panic!("a defect"));
    for (functions, said) in
        [(failing, "no such colour"), (panicking, "it panicked"), (Functions::default(), "no function")]
    {
        let error = prepared(&functions, [function("f", Some((4, 4)))], Draw::default()).unwrap_err();
        assert!(!error.is_of_the_image(), "{error:?}");
        let PixelError::Function(call) = &error else { panic!("{error:?}") };
        assert!(call.source().unwrap().to_string().contains(said), "{call}");
    }
}

#[test]
fn no_machine_has_the_ability() {
    let pipeline = Pipeline::of([function("f", Some((4, 4)))]);
    let needed = function("f", None).ability();
    assert!(pipeline.needs().contains(&needed));
    assert!(abilities_without_forms().iter().all(|ability| ability.number != needed));
    assert_eq!(pipeline.functions().collect::<Vec<_>>(), ["f"]);
    assert!(function("", None).check().is_err() && function(&"f".repeat(201), None).check().is_err());
}
