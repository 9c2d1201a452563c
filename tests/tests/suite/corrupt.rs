//! Bad files under each policy: both prongs treat them alike, and the report names them.

use ddlp_host::{CorruptPolicy, LocalResults, Strategy};
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::{Run, chain, loader, local};

const SAMPLES: u32 = 1000;
const BAD: [u32; 4] = [100, 357, 358, 999];

/// Makes 1000 small images, of which four are unusable: cut short, empty, text, and noise behind a JPEG's first bytes.
fn photos() -> Photos {
    let photos = Photos::with_sizes(SAMPLES, |index| (40 + index % 9, 36 + index % 7));
    let good = photos.read(BAD[0]);
    photos.write(BAD[0], &good[..good.len() / 3]);
    photos.write(BAD[1], b"");
    photos.write(BAD[2], b"not an image\n");
    photos.write(BAD[3], &[&good[..20], &[0x77; 300][..]].concat());
    photos
}

#[test]
fn skip_leaves_the_bad_ones_out_on_every_prong() {
    let photos = photos();
    let mut digests = Vec::new();
    for dataset in [photos.folder(), photos.pack()] {
        let base = || loader(&dataset).batch_size(64).policy(CorruptPolicy::Skip);
        let runs = [
            Run::of(base()),
            Run::of(base().strategy(Strategy::Csd).drive(local(LocalResults::Shared))),
            Run::of(base().strategy(Strategy::Mte).drive(local(LocalResults::Read))),
        ];
        for run in runs {
            assert_eq!(run.report.images, u64::from(SAMPLES) - 4);
            assert_eq!(run.report.corrupt.len(), 4);
            for (sample, action) in run.report.corrupt.iter().map(|corrupt| (&corrupt.sample, &corrupt.action)) {
                assert!(BAD.iter().any(|bad| sample.contains(&format!("{bad:05}.jpg"))), "{sample}");
                assert_eq!(action, "skipped");
            }
            digests.push(run.digest);
        }
    }
    digests.dedup();
    assert_eq!(digests.len(), 1, "{digests:?}");
}

#[test]
fn replace_takes_the_next_readable_sample_on_every_prong() {
    let photos = photos();
    let base = || loader(&photos.pack()).batch_size(64).policy(CorruptPolicy::Replace);
    let cpu = Run::of(base());
    let csd = Run::of(base().strategy(Strategy::Csd).drive(local(LocalResults::Shared)));
    cpu.assert_exactly_once(1, SAMPLES.into());
    assert_eq!(cpu.ordered_digest, csd.ordered_digest);
    for run in [cpu, csd] {
        assert_eq!(run.report.corrupt.len(), 4);
        let actions: Vec<&str> = run.report.corrupt.iter().map(|corrupt| corrupt.action.as_str()).collect();
        assert!(actions.iter().all(|action| action.starts_with("replaced by class_")), "{actions:?}");
    }
}

#[test]
fn fail_names_the_sample_its_place_and_why() {
    let photos = photos();
    for builder in [
        loader(&photos.folder()),
        loader(&photos.pack()),
        loader(&photos.pack()).strategy(Strategy::Csd).drive(local(LocalResults::Shared)),
    ] {
        let mut loader = builder.batch_size(64).policy(CorruptPolicy::Fail).build().unwrap();
        let error = loader.by_ref().find_map(Result::err).expect("the run ends with an error");
        let text = chain(&error);
        assert!(BAD.iter().any(|bad| text.contains(&format!("{bad:05}.jpg"))), "{text}");
        assert!(loader.next().is_none(), "nothing follows an error");
    }
}
