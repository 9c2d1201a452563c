//! Several datasets in one run: a drive that opens the same mix prepares the same batches as the CPU.

use ddlp_host::{LocalResults, Strategy};
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::{Run, loader, local};
use std::fs;

#[test]
fn a_mix_is_the_same_under_every_strategy() {
    let (many, few) = (Photos::new(40), Photos::new(6));
    let mix = many.scratch().join("mix.toml");
    let parts = [(many.pack(), 0.6), (few.folder().to_path_buf(), 0.4)];
    let text = parts.map(|(path, weight)| format!("[[dataset]]\npath = {path:?}\nweight = {weight}\n"));
    fs::write(&mix, text.concat()).expect("room for a small file");
    let of = |strategy| loader(&mix).strategy(strategy).batch_size(8).epochs(2).epoch_samples(50);
    let expected = Run::of(of(Strategy::Cpu));
    assert_eq!(expected.counts.len(), 100, "each sample of an epoch has an id of its own");
    // Some ids lie far above the samples of an epoch: the few samples come again and again.
    assert!(expected.counts.keys().any(|&(_, id)| id >= 3 * 46));
    for strategy in [Strategy::Csd, Strategy::Ordered, Strategy::Mte, Strategy::Wrr] {
        let run = Run::of(of(strategy).drive(local(LocalResults::Shared)));
        assert_eq!((run.digest, run.counts), (expected.digest.clone(), expected.counts.clone()), "{strategy}");
        let of_drive = run.order.iter().filter(|(.., prong)| *prong > 0).count();
        assert!(strategy != Strategy::Csd || of_drive == run.order.len(), "{of_drive} batches of the drive");
    }
}
