//! Datasets in a cluster of Redis servers, whose values are spread by hash slots.

use crate::values::{SAMPLES, command, over, photos, pushed, pushed_with};
use ddlp_dataset::pack::{PackFormat, StoredForm};
use ddlp_stores::PushError;
use ddlp_tests::redis::{RedisCluster, RedisServer};
use ddlp_tests::runs::Run;
use std::path::Path;

fn digest_of(place: &Path, epochs: u32) -> String {
    let run = Run::of(over(place.to_str().unwrap()).with(|o| (o.batch_size, o.epochs) = (4, epochs)));
    run.ordered_digest.to_string()
}

/// Returns the keys of samples that a server has.
fn samples(server: &RedisServer) -> Vec<String> {
    let is_sample = |key: &String| key.rsplit(':').next().is_some_and(|end| end.parse::<u64>().is_ok());
    server.keys().into_iter().filter(|key| is_sample(key) && !key.contains(":index:")).collect()
}

#[test]
fn a_dataset_is_spread_over_the_masters_and_gives_the_images_of_its_file() {
    let photos = photos();
    let Some(cluster) = RedisCluster::start(photos.scratch(), 3, 0) else { return };
    let [first, second, third] = &cluster.servers[..] else { unreachable!() };
    let (pack, url) = (photos.pack(), first.url("photos"));
    let summary = pushed_with(&pack, &url, |options| options.verify = true).unwrap();
    assert_eq!((summary.samples, summary.sent), (SAMPLES.into(), SAMPLES.into()));
    let spread = [first, second, third].map(|server| samples(server).len());
    assert!(
        spread.iter().all(|samples| *samples > 0) && spread.iter().sum::<usize>() == SAMPLES as usize,
        "{spread:?}"
    );
    let again = pushed(&pack, &third.url("photos")).unwrap();
    assert_eq!((again.sent, again.sent_bytes), (0, 0));
    let run = Run::of(over(&second.url("photos")));
    run.assert_exactly_once(2, SAMPLES.into());
    assert_eq!(run.ordered_digest, Run::of(over(pack.to_str().unwrap())).ordered_digest);
    assert!(command(&["verify", &url], &[]).unwrap().contains("intact"));
    // The first host need not be up.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let several = url.replace("redis://", &format!("redis://{free},"));
    Run::of(over(&several)).assert_exactly_once(2, SAMPLES.into());

    let raw = photos.pack_as("raw.ddlp", PackFormat::of(StoredForm::Raw));
    assert!(matches!(pushed(&raw, &url), Err(PushError::Exists { .. })));
    pushed_with(&raw, &url, |options| options.force = true).unwrap();
    assert_eq!(cluster.servers.iter().map(|server| samples(server).len()).sum::<usize>(), SAMPLES as usize);
}

#[test]
fn slots_that_move_under_a_run_change_nothing() {
    let photos = photos();
    let Some(cluster) = RedisCluster::start(photos.scratch(), 3, 0) else { return };
    let [from, to, _] = &cluster.servers[..] else { unreachable!() };
    let (pack, url) = (photos.pack(), from.url("photos"));
    pushed(&pack, &url).unwrap();
    let key = samples(from).pop().unwrap();
    let slot = from.say(&format!("CLUSTER KEYSLOT {key}"));
    let mut batches = 0;
    let run = Run::with(over(&url).with(|o| (o.batch_size, o.epochs) = (4, 8)), |_, _| {
        batches += 1;
        match batches {
            // The key is there already, the slot not yet: ASK.
            8 => {
                to.say(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", from.id()));
                from.say(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", to.id()));
                from.say(&format!("MIGRATE 127.0.0.1 {} {key} 0 5000", to.port()));
            }
            48 => {
                for server in [to, from] {
                    server.say(&format!("CLUSTER SETSLOT {slot} NODE {}", to.id()));
                }
            }
            _ => {}
        }
    });
    assert!(samples(to).contains(&key));
    run.assert_exactly_once(8, SAMPLES.into());
    assert_eq!(run.ordered_digest.to_string(), digest_of(&pack, 8));
    assert!(run.troubles().is_empty(), "{:?}", run.troubles());
}

#[test]
#[ignore = "waits for a cluster to replace a master: .ci/full runs it"]
fn a_lost_master_is_waited_for_or_replaced_by_its_replica() {
    for replicas in [0, 1] {
        let photos = photos();
        let Some(mut cluster) = RedisCluster::start(photos.scratch(), 3, replicas) else { return };
        let pack = photos.pack();
        // The URL names a node that stays.
        let url = cluster.servers[1].url("photos");
        pushed(&pack, &url).unwrap();
        let lost = &mut cluster.servers[0];
        lost.say("SAVE");
        let mut batches = 0;
        let run = Run::with(over(&url).with(|o| (o.batch_size, o.epochs) = (4, 6)), |_, _| {
            batches += 1;
            if batches == 8 {
                lost.kill();
                if replicas == 0 {
                    lost.restart();
                }
            }
        });
        run.assert_exactly_once(6, SAMPLES.into());
        assert_eq!(run.ordered_digest.to_string(), digest_of(&pack, 6), "{replicas} replicas");
        assert_eq!(pushed(&pack, &url).unwrap().sent, 0);
    }
}
