//! Datasets in a cluster of Redis servers, whose values are spread by hash slots.

use crate::values::{SAMPLES, command, digest, over, photos, pushed, pushed_with};
use ddlp_dataset::pack::{PackFormat, StoredForm};
use ddlp_stores::PushError;
use ddlp_tests::redis::{RedisCluster, RedisServer};
use ddlp_tests::runs::{Run, chain};
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
fn a_cluster_with_tls_gives_the_images_of_its_file() {
    let photos = photos();
    let Some(cluster) = RedisCluster::start_with_tls(photos.scratch(), 3) else { return };
    let [first, second, _] = &cluster.servers[..] else { unreachable!() };
    let (pack, authority) = (photos.pack(), first.authority());
    let (pack, trusted) = (pack.to_str().unwrap(), [("SSL_CERT_FILE", authority.to_str().unwrap())]);
    command(&["push", pack, &first.tls_url("photos"), "--quiet", "--verify"], &trusted).unwrap();
    assert!(cluster.servers.iter().all(|server| !samples(server).is_empty()));
    assert_eq!(digest(&second.tls_url("photos"), &trusted), digest(pack, &[]));
    let said = digest(&first.tls_url("photos"), &[]).unwrap_err();
    assert!(said.contains("certificate") && said.contains("SSL_CERT_FILE"), "{said}");
}

#[test]
#[ignore = "takes seconds: .ci/full runs it"]
fn a_bench_has_lines_to_all_masters_and_a_plain_receiver() {
    let photos = photos();
    let Some(cluster) = RedisCluster::start(photos.scratch(), 3, 0) else { return };
    let (pack, url) = (photos.pack(), cluster.servers[1].url("photos"));
    pushed(&pack, &url).unwrap();
    let bench = ["bench", "remote", &url, "--rtt", "0,20", "--seconds", "0.2", "--batch", "8", "--way", "auto,one"];
    let table = command(&[&bench[..], &["--file", pack.to_str().unwrap()]].concat(), &[]).unwrap();
    let rows = |name: &str| table.lines().filter(|line| line.starts_with(name)).collect::<Vec<_>>();
    assert_eq!([rows("auto "), rows("one "), rows("plain receiver ")].map(|rows| rows.len()), [3, 2, 3], "{table}");
    // The line delays what the servers answer, whichever has the sample.
    let rate = |row: &str| row.split_whitespace().nth(3).unwrap().parse::<f64>().unwrap();
    assert!(rate(rows("one ")[1]) <= 50.0, "{table}");
    assert!(table.contains("CPU time beyond that of the file"), "{table}");
}

#[test]
#[ignore = "takes seconds: .ci/full runs it"]
fn a_cluster_that_is_balanced_anew_under_a_run_changes_nothing() {
    let photos = photos();
    let Some(mut cluster) = RedisCluster::start(photos.scratch(), 3, 0) else { return };
    let (pack, url) = (photos.pack(), cluster.servers[1].url("photos"));
    pushed(&pack, &url).unwrap();
    cluster.add_master(photos.scratch());
    let cluster = &cluster;
    let [first, second, third, added] = &cluster.servers[..] else { unreachable!() };
    std::thread::scope(|scope| {
        // A part of each other master's values goes to the new one, and those of the first one altogether.
        let moving = scope.spawn(|| {
            cluster.move_slots(5461..6800, second, added);
            cluster.move_slots(10_922..12_300, third, added);
            cluster.move_slots(0..5461, first, added);
        });
        let (mut batches, mut is_over) = (0, 0);
        let run = Run::until("the slots have moved", over(&url).with(|o| o.batch_size = 4), |_, _| {
            batches += 1;
            // Some epochs follow.
            is_over += u32::from(moving.is_finished());
            is_over > 48
        });
        moving.join().unwrap();
        assert!(samples(first).is_empty() && !samples(added).is_empty());
        assert!(run.troubles().is_empty(), "{:?}", run.troubles());
        let doubled = run.counts.iter().filter(|(_, count)| **count != 1).count();
        assert_eq!(doubled, 0, "samples came twice");
        let file = Run::of_batches(batches, over(pack.to_str().unwrap()).with(|o| o.batch_size = 4));
        assert_eq!(run.ordered_digest, file.ordered_digest);
        assert_eq!(pushed(&pack, &url).unwrap().sent, 0);
    });
}

#[test]
#[ignore = "waits for more than a minute: .ci/full runs it"]
fn a_master_that_is_lost_for_good_ends_the_run_by_name() {
    for coverage in ["yes", "no"] {
        let photos = photos();
        let Some(mut cluster) = RedisCluster::start(photos.scratch(), 3, 0) else { return };
        let (pack, url) = (photos.pack(), cluster.servers[1].url("photos"));
        pushed(&pack, &url).unwrap();
        for server in &cluster.servers {
            server.say(&format!("CONFIG SET cluster-require-full-coverage {coverage}"));
        }
        let lost = &mut cluster.servers[0];
        let place = format!("127.0.0.1:{}", lost.port());
        let mut run = over(&url).with(|o| o.epochs = 100_000).build().unwrap();
        run.next().unwrap().unwrap();
        lost.kill();
        let said = chain(&run.filter_map(Result::err).next().expect("the run ends with an error"));
        assert!(said.contains("has not answered for 60 s"), "{said}");
        assert!(said.contains("CLUSTERDOWN") || said.contains(&place), "full coverage {coverage}: {said}");
    }
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
