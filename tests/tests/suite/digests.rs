//! Pixels never depend on which prong prepares a batch, or how.

use ddlp_dataset::pack::{Pack, PackFormat, StoredForm};
use ddlp_host::{DriveSpec, Loader, LoaderState, LocalDrive, LocalResults, Plan, Strategy};
use ddlp_pixels::Pipeline;
use ddlp_tests::photos::{Photos, lossless};
use ddlp_tests::runs::{Run, loader, local, wait_for_every_prong};
use std::path::Path;

const SAMPLES: u32 = 75;

#[test]
fn the_order_free_digest_depends_on_no_strategy_thread_depth_or_kind_of_slot() {
    let photos = Photos::new(SAMPLES);
    let reference = Run::of(loader(&photos.pack()).with(|o| (o.strategy, o.threads) = (Strategy::Cpu, Some(1))));
    reference.assert_exactly_once(1, SAMPLES.into());
    let mut variants = Vec::new();
    for threads in 2..=4 {
        variants.push((
            format!("cpu {threads}"),
            loader(&photos.pack()).with(|o| (o.strategy, o.threads) = (Strategy::Cpu, Some(threads))),
        ));
    }
    variants.push(("folder".into(), loader(&photos.folder()).with(|o| o.strategy = Strategy::Cpu)));
    for results in [LocalResults::Shared, LocalResults::Read, LocalResults::File(photos.scratch().join("slots"))] {
        for (strategy, depth) in [
            (Strategy::Csd, 1),
            (Strategy::Csd, 2),
            (Strategy::Mte, 2),
            (Strategy::Wrr, 2),
            (Strategy::Ordered, 2),
            (Strategy::Ordered, 3),
        ] {
            let name = format!("{strategy} depth {depth} {results:?}");
            let builder = loader(&photos.pack())
                .with(|o| o.strategy = strategy)
                .drive(local(results.clone()))
                .with(|o| o.drive_depth = Some(depth));
            variants.push((name, builder));
        }
    }
    variants.push((
        "folder by drive".into(),
        loader(&photos.folder()).with(|o| o.strategy = Strategy::Mte).drive(local(LocalResults::Shared)),
    ));
    for (name, builder) in variants {
        let run = Run::of(builder);
        run.assert_exactly_once(1, SAMPLES.into());
        assert_eq!(run.digest, reference.digest, "{name}");
        assert!(run.troubles().is_empty(), "{name}: {:?}", run.report.faults);
    }
}

#[test]
fn pixels_do_not_depend_on_how_samples_are_stored() {
    let photos = Photos::new(SAMPLES);
    let pipelines = [true, false].map(|exif_orientation| Pipeline { exif_orientation, ..Pipeline::imagenet_train() });
    for pipeline in pipelines {
        let run = |dataset: &Path, strategy| {
            let builder = loader(dataset).with(|o| (o.strategy, o.pipeline) = (strategy, pipeline.clone()));
            let run = match strategy {
                Strategy::Cpu => Run::of(builder),
                _ => Run::of(builder.drive(local(LocalResults::Shared))),
            };
            run.assert_exactly_once(1, SAMPLES.into());
            assert!(run.troubles().is_empty(), "{dataset:?}: {:?}", run.report.faults);
            run.digest
        };
        let expected = run(&photos.folder(), Strategy::Cpu);
        let formats = [
            ("kept.ddlp", PackFormat::of(StoredForm::Kept)),
            ("indexed.ddlp", PackFormat::of(StoredForm::Indexed)),
            ("raw.ddlp", PackFormat::of(StoredForm::Raw)),
            ("rows.ddlp", PackFormat::of(StoredForm::Rows)),
            ("pcr.ddlp", PackFormat::of(StoredForm::Pcr)),
        ];
        for (name, format) in formats {
            let pack = photos.pack_as(name, format);
            for strategy in [Strategy::Cpu, Strategy::Csd, Strategy::Ordered] {
                assert_eq!(run(&pack, strategy), expected, "{name} by {strategy}");
            }
        }
    }
}

#[test]
fn pixels_of_lossless_images_do_not_depend_on_how_they_are_stored() {
    let photos = Photos::of(30, |index| lossless(index, (97 + index * 13 % 300, 64 + index * 29 % 200)));
    let run = |dataset: &Path, strategy| {
        let builder = loader(dataset).with(|o| (o.strategy, o.pipeline) = (strategy, Pipeline::imagenet_train()));
        let run = match strategy {
            Strategy::Cpu => Run::of(builder),
            _ => Run::of(builder.drive(local(LocalResults::Shared))),
        };
        run.assert_exactly_once(1, 30);
        assert!(run.troubles().is_empty(), "{dataset:?}: {:?}", run.report.faults);
        run.digest
    };
    let expected = run(&photos.folder(), Strategy::Cpu);
    for form in [StoredForm::Kept, StoredForm::Raw, StoredForm::L3] {
        let pack = photos.pack_as(&format!("{}.ddlp", form.name()), PackFormat::of(form));
        assert_eq!(Pack::open(&pack).unwrap().record(7).unwrap().form, form);
        for strategy in [Strategy::Cpu, Strategy::Csd, Strategy::Ordered] {
            assert_eq!(run(&pack, strategy), expected, "{form:?} by {strategy}");
        }
    }
}

#[test]
fn both_prongs_take_part_in_every_two_ended_strategy() {
    let photos = Photos::new(SAMPLES);
    let DriveSpec::Local(drive) = local(LocalResults::Shared) else { unreachable!("a local drive") };
    for strategy in [Strategy::Mte, Strategy::Wrr, Strategy::Ordered] {
        // Neither buffers nor slots hold all ten batches of an epoch.
        let drive = DriveSpec::Local(LocalDrive { slots: Some(4), ..drive.clone() });
        let builder =
            loader(&photos.pack()).with(|o| (o.strategy, o.epochs, o.buffers) = (strategy, 2, 3)).drive(drive);
        let run = Run::with(builder, |_, loader| wait_for_every_prong(loader, true));
        run.assert_exactly_once(2, SAMPLES.into());
        let by_drive = run.drive_batches();
        assert!((1..run.order.len()).contains(&by_drive), "{strategy}: {by_drive} of {} batches", run.order.len());
    }
}

#[test]
fn ordered_delivers_as_the_cpu_alone_does() {
    let photos = Photos::new(SAMPLES);
    let cpu = Run::of(loader(&photos.pack()).with(|o| (o.strategy, o.epochs) = (Strategy::Cpu, 2)));
    let ordered = Run::of(
        loader(&photos.pack())
            .with(|o| (o.strategy, o.epochs) = (Strategy::Ordered, 2))
            .drive(local(LocalResults::Shared)),
    );
    assert_eq!(ordered.ordered_digest, cpu.ordered_digest);
    assert_eq!(ordered.batches, cpu.batches);
    assert_ne!(cpu.batches[0], cpu.batches[cpu.batches.len() / 2], "epochs are shuffled differently");
}

#[test]
fn a_replayed_plan_reproduces_the_order_of_delivery() {
    let photos = Photos::new(SAMPLES);
    for strategy in [Strategy::Mte, Strategy::Wrr] {
        let base = || {
            loader(&photos.pack()).with(|o| (o.strategy, o.epochs) = (strategy, 2)).drive(local(LocalResults::Shared))
        };
        let recorded = Run::of(base());
        let plan = Plan::from_bytes(&recorded.plan.to_bytes().unwrap()).unwrap();
        assert_eq!(plan.epochs.len(), 2);
        let replayed = Run::of(base().with(|o| (o.threads, o.replay) = (Some(1), Some(plan.clone()))));
        assert_eq!(replayed.ordered_digest, recorded.ordered_digest, "{strategy}");
        let alone =
            Run::of(loader(&photos.pack()).with(|o| (o.strategy, o.epochs, o.replay) = (Strategy::Cpu, 2, Some(plan))));
        assert_eq!(alone.ordered_digest, recorded.ordered_digest, "{strategy} without a drive");
    }
}

#[test]
fn a_plan_of_another_seed_is_refused() {
    let photos = Photos::new(9);
    let plan = Run::of(loader(&photos.pack())).plan;
    let error = loader(&photos.pack()).with(|o| (o.seed, o.replay) = (8, Some(plan))).build().expect_err("refused");
    assert!(ddlp_tests::runs::chain(&error).contains("seed 7, this run has 8"));
}

#[test]
fn two_ranks_together_give_the_global_batches_of_one() {
    let photos = Photos::new(SAMPLES);
    let one = Run::of(loader(&photos.pack()));
    let ranks: Vec<Run> =
        (0..2).map(|rank| Run::of(loader(&photos.pack()).with(|o| (o.rank, o.world_size) = (rank, 2)))).collect();
    let joined: Vec<Vec<u64>> =
        ranks[0].batches.iter().zip(&ranks[1].batches).map(|(first, second)| [&first[..], second].concat()).collect();
    assert_eq!(joined, one.batches);
    assert_ne!(ranks[0].digest, ranks[1].digest);
}

#[test]
fn a_run_of_two_ranks_goes_on_under_one_at_the_right_batch() {
    let photos = Photos::new(SAMPLES);
    let whole = Run::of(loader(&photos.pack()).with(|o| o.epochs = 2));
    let stops: Vec<LoaderState> = (0..2)
        .map(|rank| {
            let mut half: Loader =
                loader(&photos.pack()).with(|o| (o.epochs, (o.rank, o.world_size)) = (2, (rank, 2))).build().unwrap();
            for _ in 0..13 {
                half.next().unwrap().unwrap();
            }
            half.state()
        })
        .collect();
    assert_eq!(stops[0], stops[1]);
    let resumed = Run::of(
        loader(&photos.pack()).with(|o| (o.epochs, o.threads, o.resume) = (2, Some(3), Some(stops[0].clone()))),
    );
    assert_eq!(resumed.batches, whole.batches[13..]);
}

#[test]
fn an_mte_run_resumes_without_loss_after_any_batch() {
    let photos = Photos::new(40);
    let base = || {
        loader(&photos.pack()).with(|o| (o.strategy, o.epochs) = (Strategy::Mte, 2)).drive(local(LocalResults::Shared))
    };
    for stop_after in [1, 4, 5, 7] {
        let mut first = base().build().unwrap();
        let mut seen: Vec<(u32, Vec<u64>)> = Vec::new();
        for _ in 0..stop_after {
            let batch = first.next().unwrap().unwrap();
            seen.push((batch.epoch(), batch.sample_ids().to_vec()));
        }
        let state = first.state();
        drop(first);
        let rest = Run::of(base().with(|o| o.resume = Some(state)));
        seen.extend(rest.order.iter().map(|&(epoch, ..)| epoch).zip(rest.batches));
        let mut ids: Vec<(u32, u64)> =
            seen.into_iter().flat_map(|(epoch, ids)| ids.into_iter().map(move |id| (epoch, id))).collect();
        ids.sort_unstable();
        let all: Vec<(u32, u64)> = (0..2).flat_map(|epoch| (0..40).map(move |id| (epoch, id))).collect();
        assert_eq!(ids, all, "stopped after {stop_after}");
    }
}
