//! The windowed order: the same for all prongs, ranks and positions.

use ddlp_host::{Choice, Indices, LoaderBuilder, LocalResults, Strategy};
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::{Run, chain, loader, local};

const SAMPLES: u32 = 75;

fn windowed(photos: &Photos) -> LoaderBuilder {
    loader(&photos.pack()).with(|o| (o.epochs, o.shuffle_window) = (2, Some(4)))
}

#[test]
fn every_strategy_delivers_the_same_batches() {
    let photos = Photos::new(SAMPLES);
    let full = Run::of(loader(&photos.pack()).with(|o| (o.epochs, o.strategy) = (2, Strategy::Cpu)));
    let cpu = Run::of(windowed(&photos).with(|o| (o.strategy, o.threads) = (Strategy::Cpu, Some(1))));
    cpu.assert_exactly_once(2, SAMPLES.into());
    assert_eq!(cpu.digest, full.digest, "another order has the same samples");
    assert_ne!(cpu.batches, full.batches);
    let by_number = |run: &Run| {
        let mut batches: Vec<_> = run.order.iter().map(|&(epoch, batch, _)| (epoch, batch)).zip(&run.batches).collect();
        batches.sort();
        batches.into_iter().map(|(_, ids)| ids.clone()).collect::<Vec<_>>()
    };
    for strategy in [Strategy::Ordered, Strategy::Mte, Strategy::Wrr, Strategy::Csd] {
        let run = Run::of(windowed(&photos).with(|o| o.strategy = strategy).drive(local(LocalResults::Shared)));
        assert_eq!((by_number(&run), &run.digest), (by_number(&cpu), &cpu.digest), "{strategy}");
    }
    for world in [2, 3, 4] {
        let ranks: Vec<Run> = (0..world)
            .map(|rank| Run::of(windowed(&photos).with(|o| (o.rank, o.world_size) = (rank, world))))
            .collect();
        let joined: Vec<Vec<u64>> = (0..cpu.batches.len())
            .map(|batch| ranks.iter().flat_map(|run| run.batches[batch].clone()).collect())
            .collect();
        for (joined, batch) in joined.iter().zip(&cpu.batches) {
            // A short batch is filled until each rank has a sample.
            assert_eq!(joined[..batch.len()], batch[..], "{world} ranks");
            assert_eq!(joined.len(), batch.len().max(world as usize), "{world} ranks");
        }
        let notes = ranks[0].report.notes.iter().any(|note| note.contains("shuffle window"));
        assert_eq!(notes, world == 3, "{:?}", ranks[0].report.notes);
    }
}

#[test]
fn a_run_goes_on_with_its_window_alone() {
    let photos = Photos::new(SAMPLES);
    let whole = Run::of(windowed(&photos));
    let mut first = windowed(&photos).build().unwrap();
    for _ in 0..7 {
        first.next().unwrap().unwrap();
    }
    let state = first.state();
    let resumed = Run::of(windowed(&photos).with(|o| o.resume = Some(state.clone())));
    assert_eq!(resumed.batches, whole.batches[7..]);
    let replayed = Run::of(windowed(&photos).with(|o| o.replay = Some(whole.plan.clone())));
    assert_eq!(replayed.ordered_digest, whole.ordered_digest);
    for window in [None, Some(2)] {
        let said = |builder: LoaderBuilder| chain(&builder.with(|o| o.shuffle_window = window).build().unwrap_err());
        let of_state = said(windowed(&photos).with(|o| o.resume = Some(state.clone())));
        assert!(of_state.contains("shuffle window 4, this run has"), "{of_state}");
        let of_plan = said(windowed(&photos).with(|o| o.replay = Some(whole.plan.clone())));
        assert!(of_plan.contains("shuffle window 4, this run has"), "{of_plan}");
    }
}

#[test]
fn what_excludes_a_window_is_named() {
    let photos = Photos::new(SAMPLES);
    let of_folder = loader(&photos.folder()).with(|o| o.shuffle_window = Some(4));
    let indices = Choice { indices: Some(Indices::Fixed([1, 2, 3].into())), weights: None };
    for (builder, part) in [
        (of_folder, "(folder)"),
        (windowed(&photos).with(|o| o.shuffle = false), "`shuffle` is false"),
        (windowed(&photos).with(|o| o.epoch_samples = Some(70)), "`epoch_samples`"),
        (windowed(&photos).with(|o| o.repeats = 2), "`repeats`"),
        (windowed(&photos).choose(indices), "`indices`"),
        (windowed(&photos).with(|o| (o.batch_size, o.shuffle_window) = (8, Some(9))), "only 8 samples"),
        (windowed(&photos).with(|o| o.shuffle_window = Some(0)), "`shuffle_window` is 0"),
    ] {
        let said = chain(&builder.build().unwrap_err());
        assert!(said.contains("`shuffle_window`") && said.contains(part), "{said}");
    }
    Run::of(windowed(&photos).with(|o| o.epoch_samples = Some(SAMPLES.into()))).assert_exactly_once(2, SAMPLES.into());
}
