//! Functions of the program that a pipeline calls.

use ddlp_host::{CorruptPolicy, DType, LoaderBuilder, LoaderErrorKind, LocalResults, Normalize, Strategy};
use ddlp_pixels::Pipeline;
use ddlp_pixels::ops::{Function, Operation};
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::{Run, chain, images, loader, local};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

const SAMPLES: u32 = 60;

/// Lets the pipeline call the function `shift` at this place.
fn calling(builder: LoaderBuilder, place: usize) -> LoaderBuilder {
    builder.with(|o| {
        let mut operations = o.pipelines()[0].operations.clone();
        operations.insert(place, Function { name: "shift".into(), output: None }.into());
        o.pipeline = Pipeline { operations, ..o.pipeline.clone() };
    })
}

/// Adds to each pixel a number that the seed gives.
fn shifted(builder: LoaderBuilder) -> LoaderBuilder {
    calling(builder, 1).function("shift", |given, out| {
        assert_eq!((given.image.len(), out.len()), (given.shape.bytes(), given.output.bytes()));
        out.iter_mut().zip(given.image).for_each(|(out, value)| *out = value.wrapping_add(given.seed as u8));
        Ok(())
    })
}

#[test]
fn a_function_changes_each_image_in_the_same_way_in_every_run() {
    let photos = Photos::new(SAMPLES);
    let base = || loader(&photos.pack()).with(|o| o.epochs = 2);
    let plain = Run::of(base());
    let one = Run::of(shifted(base().with(|o| o.threads = Some(1))));
    one.assert_exactly_once(2, SAMPLES.into());
    assert_ne!(one.digest, plain.digest);
    for run in [
        Run::of(shifted(base().with(|o| o.threads = Some(3)))),
        Run::of(shifted(base().with(|o| o.strategy = Strategy::Cpu))),
        Run::of(shifted(loader(&photos.folder()).with(|o| o.epochs = 2))),
    ] {
        assert_eq!(run.digest, one.digest);
    }
    assert_ne!(Run::of(shifted(base().with(|o| o.seed = 1))).digest, one.digest);
}

#[test]
fn each_sample_of_each_epoch_has_a_seed_of_its_own() {
    let photos = Photos::new(SAMPLES);
    let seeds = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = seeds.clone();
    let run =
        Run::of(calling(loader(&photos.pack()).with(|o| o.epochs = 2), 1).function("shift", move |given, out| {
            seen.lock().unwrap().insert(given.seed);
            out.copy_from_slice(given.image);
            Ok(())
        }));
    run.assert_exactly_once(2, SAMPLES.into());
    assert_eq!(seeds.lock().unwrap().len(), 2 * SAMPLES as usize);
}

#[test]
fn a_function_that_fails_or_panics_ends_the_run_with_its_error_whatever_the_policy() {
    let photos = Photos::new(SAMPLES);
    for policy in [CorruptPolicy::Fail, CorruptPolicy::Skip, CorruptPolicy::Replace] {
        let base = || calling(loader(&photos.pack()), 1).with(|o| o.policy = policy);
        let first_error = |builder: LoaderBuilder| builder.build().unwrap().find_map(Result::err).expect("an error");
        let error = first_error(base().function("shift", |_, _| Err("no such colour".into())));
        assert_eq!(error.kind(), LoaderErrorKind::Function);
        let said = chain(&error);
        assert!(said.contains(".jpg") && said.ends_with("the function `shift` failed: no such colour"), "{said}");
        let error = first_error(base().function("shift", |_, _| panic!("a defect")));
        assert!(chain(&error).contains("it panicked"), "{}", chain(&error));
    }
}

#[test]
fn what_cannot_call_the_function_is_refused_by_name() {
    let photos = Photos::new(SAMPLES);
    let with_drive =
        |strategy| shifted(loader(&photos.pack())).with(|o| o.strategy = strategy).drive(local(LocalResults::Shared));
    for strategy in [Strategy::Ordered, Strategy::Mte, Strategy::Wrr, Strategy::Csd] {
        let error = with_drive(strategy).build().expect_err("refused");
        assert!(chain(&error).contains("drives cannot call the pipeline's function `shift`"), "{}", chain(&error));
    }
    Run::of(with_drive(Strategy::Cpu)).assert_exactly_once(1, SAMPLES.into());
    let error = calling(loader(&photos.pack()), 0).build().expect_err("refused");
    assert!(chain(&error).contains("calls the function `shift`, which this run does not have"), "{}", chain(&error));
}

#[test]
fn a_run_resumes_with_the_same_seeds_and_only_with_a_function_of_the_same_name() {
    let photos = Photos::new(SAMPLES);
    let base =
        || shifted(loader(&photos.pack()).with(|o| (o.dtype, o.normalize) = (DType::F32, Some(Normalize::IMAGENET))));
    let rest = |mut run: ddlp_host::Loader| {
        run.by_ref().map(|batch| images::<f32>(&batch.unwrap()).flatten().copied().collect()).collect::<Vec<Vec<f32>>>()
    };
    let mut run = base().build().unwrap();
    run.next().unwrap().unwrap();
    let state = run.state();
    let resumed = base().with(|o| o.resume = Some(state.clone()));
    assert!(rest(run) == rest(resumed.build().unwrap()));
    let other = base().with(|o| {
        let renamed = Operation::from(Function { name: "other".into(), output: None });
        o.pipeline.operations[1] = renamed;
        o.resume = Some(state);
    });
    let error = other.function("other", |_, _| Ok(())).build().expect_err("refused");
    assert!(chain(&error).contains("shift") && chain(&error).contains("other"), "{}", chain(&error));
}
