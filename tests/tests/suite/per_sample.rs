//! A function of the program that changes the image of each sample.

use ddlp_host::{DType, LoaderBuilder, LoaderError, LoaderErrorKind, LocalResults, Normalize, Strategy};
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::{Run, chain, images, loader, local};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

const SAMPLES: u32 = 60;

/// Adds to each pixel a number that the seed gives.
fn shifted(builder: LoaderBuilder) -> LoaderBuilder {
    builder.per_sample(|image, shape, seed| {
        assert_eq!(image.len(), shape.bytes());
        image.iter_mut().for_each(|value| *value = value.wrapping_add(seed as u8));
        Ok(())
    })
}

#[test]
fn the_function_changes_each_image_once_and_in_the_same_way_in_every_run() {
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
fn floats_are_made_of_the_changed_image_and_seeds_differ() {
    let photos = Photos::new(SAMPLES);
    let values = |dtype| {
        let mut values = BTreeMap::new();
        for batch in shifted(loader(&photos.pack()).with(|o| o.dtype = dtype)).build().unwrap() {
            let batch = batch.unwrap();
            match dtype {
                DType::U8 => values.extend(batch.sample_ids().iter().copied().zip(
                    images::<u8>(&batch).map(|row| row.iter().map(|&value| f32::from(value)).collect::<Vec<f32>>()),
                )),
                _ => values.extend(
                    batch.sample_ids().iter().copied().zip(
                        images::<f32>(&batch)
                            .map(|row| row.iter().map(|&value| (value * 255.0).round()).collect::<Vec<f32>>()),
                    ),
                ),
            }
        }
        values
    };
    assert!(values(DType::U8) == values(DType::F32));
    let seeds = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = seeds.clone();
    let builder = loader(&photos.pack()).with(|o| o.epochs = 2).per_sample(move |_, _, seed| {
        seen.lock().unwrap().insert(seed);
        Ok(())
    });
    assert_eq!(Run::of(builder).digest, Run::of(loader(&photos.pack()).with(|o| o.epochs = 2)).digest);
    let seeds = seeds.lock().unwrap();
    assert_eq!(seeds.len(), 2 * SAMPLES as usize, "one for each sample of each epoch");
    assert!(seeds.iter().all(|&seed| seed < 1 << 63));
}

#[test]
fn a_function_that_fails_or_panics_ends_the_run_with_its_error() {
    let photos = Photos::new(SAMPLES);
    let first_error = |builder: LoaderBuilder| builder.build().unwrap().find_map(Result::err).expect("an error");
    let error = first_error(loader(&photos.pack()).per_sample(|_, _, _| Err("no such colour".into())));
    assert_eq!(error.kind(), LoaderErrorKind::PerSample);
    assert!(matches!(&error, LoaderError::PerSample { sample, epoch: 0, .. } if sample.ends_with(".jpg")), "{error:?}");
    assert!(chain(&error).ends_with("of epoch 0: no such colour"), "{}", chain(&error));
    let error = first_error(loader(&photos.pack()).per_sample(|_, _, _| panic!("a defect")));
    assert!(chain(&error).contains("it panicked"), "{}", chain(&error));
}

#[test]
fn drives_are_refused_since_they_cannot_call_the_function() {
    let photos = Photos::new(SAMPLES);
    let with_drive =
        |strategy| shifted(loader(&photos.pack())).with(|o| o.strategy = strategy).drive(local(LocalResults::Shared));
    for strategy in [Strategy::Ordered, Strategy::Mte, Strategy::Wrr, Strategy::Csd] {
        let error = with_drive(strategy).build().expect_err("refused");
        assert!(chain(&error).contains("drives cannot call the function `per_sample`"), "{}", chain(&error));
    }
    Run::of(with_drive(Strategy::Cpu)).assert_exactly_once(1, SAMPLES.into());
}

#[test]
fn a_run_that_resumes_calls_the_function_with_the_same_seeds() {
    let photos = Photos::new(SAMPLES);
    let base =
        || shifted(loader(&photos.pack()).with(|o| (o.dtype, o.normalize) = (DType::F32, Some(Normalize::IMAGENET))));
    let rest = |mut run: ddlp_host::Loader| {
        run.by_ref().map(|batch| images::<f32>(&batch.unwrap()).flatten().copied().collect()).collect::<Vec<Vec<f32>>>()
    };
    let mut run = base().build().unwrap();
    run.next().unwrap().unwrap();
    let state = run.state();
    assert!(rest(run) == rest(base().with(|o| o.resume = Some(state)).build().unwrap()));
}
