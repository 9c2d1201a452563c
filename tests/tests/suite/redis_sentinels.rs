//! Datasets in a Redis master that Sentinels watch: they name the replica that takes its place when it is lost.

use crate::values::{SAMPLES, command, digest, over, photos, pushed, pushed_with};
use ddlp_dataset::pack::Pack;
use ddlp_host::{DriveSpec, Strategy};
use ddlp_stores::{PushOptions, PushProgress, push};
use ddlp_tests::agent::Agent;
use ddlp_tests::photos::Photos;
use ddlp_tests::redis::{RedisServer, SERVICE, Sentinels};
use ddlp_tests::runs::{Run, chain, wait_until};
use std::fs;
use std::net::TcpListener;
use std::ops::ControlFlow;
use std::path::Path;

/// Starts a server in a folder of its own.
fn server(photos: &Photos, name: &str, extra: &[&str]) -> Option<RedisServer> {
    let folder = photos.scratch().join(name);
    fs::create_dir(&folder).unwrap();
    RedisServer::start(&folder, extra)
}

/// Starts a master and a replica.
fn pair(photos: &Photos) -> Option<[RedisServer; 2]> {
    let [master, replica] = [server(photos, "first", &[])?, server(photos, "second", &[])?];
    replica.replicate(&master);
    Some([master, replica])
}

fn digest_of(pack: &Path, epochs: u32) -> String {
    Run::of(over(pack.to_str().unwrap()).with(|o| (o.batch_size, o.epochs) = (4, epochs))).ordered_digest.to_string()
}

#[test]
fn one_url_pushes_runs_splits_and_serves_what_the_sentinels_name() {
    let photos = photos();
    let Some(master) = server(&photos, "first", &[]) else { return };
    let sentinels = Sentinels::start(photos.scratch(), 1, &master, 0, "");
    let (pack, url) = (photos.pack(), sentinels.url("photos/train"));
    let (pack, url) = (pack.to_str().unwrap(), &*url);
    command(&["push", pack, url, "--quiet", "--verify"], &[]).unwrap();
    assert_eq!(master.keys().len(), SAMPLES as usize + 2);
    assert_eq!(pushed(Path::new(pack), url).unwrap().sent, 0);
    assert_eq!(digest(url, &[]), digest(pack, &[]));
    assert!(command(&["verify", url], &[]).unwrap().contains("intact"));
    assert!(command(&["inspect", url], &[]).unwrap().contains(&SAMPLES.to_string()));
    let split = |place: &str, file: &str| {
        let file = photos.scratch().join(file);
        command(&["split", place, "--out", file.to_str().unwrap()], &[]).unwrap();
        fs::read(file).unwrap()
    };
    assert_eq!(split(url, "of-url.json"), split(pack, "of-file.json"));
    let cache = photos.scratch().join("cache");
    for is_cached in [false, true] {
        let run = Run::of(over(url).with(|o| o.cache = Some(cache.clone())));
        assert_eq!(run.ordered_digest, Run::of(over(pack)).ordered_digest);
        assert_eq!(run.report.cache.unwrap().kept_mb == 0.0, is_cached);
    }
    let agent = Agent::start(Path::new(url), &photos.scratch().join("state"), &["--slots", "4"]);
    let run = Run::of(over(pack).with(|o| o.strategy = Strategy::Csd).drive(DriveSpec::Remote(agent.url())));
    assert_eq!(run.ordered_digest, Run::of(over(pack)).ordered_digest);
    assert_eq!(run.drive_batches(), run.order.len());
}

#[test]
fn what_cannot_be_found_is_an_error_that_says_what_to_do() {
    let photos = photos();
    let Some(master) = server(&photos, "first", &[]) else { return };
    let sentinels = Sentinels::start(photos.scratch(), 1, &master, 0, "");
    let url = sentinels.url("photos");
    pushed(&photos.pack(), &url).unwrap();
    let said = |url: &str| digest(url, &[]).unwrap_err();
    let unknown = said(&url.replace(SERVICE, "others"));
    assert!(unknown.contains("the Sentinels watch no master with the name others: check the URL"), "{unknown}");
    // Nothing listens there.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let lost = said(&format!("redis+sentinel://{free}/{SERVICE}/0/photos"));
    assert!(lost.contains(&free.to_string()) && lost.contains("check the address"), "{lost}");
    let both = url.replace("sentinel://", &format!("sentinel://{free},"));
    assert_eq!(digest(&both, &[]), digest(&url, &[]), "one Sentinel suffices");
    let unknown = said(&both.replace(SERVICE, "others"));
    assert!(unknown.contains("with the name others"), "{unknown}");
    let server = said(&format!("redis+sentinel://127.0.0.1:{}/{SERVICE}/0/photos", master.port()));
    assert!(server.contains("is no Sentinel") && server.contains(&master.port().to_string()), "{server}");
    let sentinel = said(&url.replace("redis+sentinel", "redis").replace(&format!("{SERVICE}/"), ""));
    assert!(sentinel.contains("begins with redis+sentinel://"), "{sentinel}");
    let missing = said(&sentinels.url("others"));
    assert!(missing.contains("no dataset others") && missing.contains(&sentinels.url("others")), "{missing}");
}

#[test]
fn master_and_sentinels_have_logins_of_their_own() {
    let photos = photos();
    let Some(master) = server(&photos, "first", &["--requirepass", "sesame"]) else { return };
    let rules = format!("sentinel auth-pass {SERVICE} sesame\nrequirepass barley");
    let sentinels = Sentinels::start(photos.scratch(), 1, &master, 0, &rules);
    let (pack, url) = (photos.pack(), sentinels.url("photos"));
    let [of_master, of_sentinel] = [("REDISCLI_AUTH", "sesame"), ("REDIS_SENTINEL_PASSWORD", "barley")];
    let both = [of_master, of_sentinel];
    command(&["push", pack.to_str().unwrap(), &url, "--quiet"], &both).unwrap();
    assert_eq!(digest(&url, &both), digest(pack.to_str().unwrap(), &[]));
    let named = digest(&url, &[of_master, of_sentinel, ("REDIS_SENTINEL_USERNAME", "default")]);
    assert_eq!(named, digest(&url, &both));
    for wrong in [&[of_master][..], &[of_master, ("REDIS_SENTINEL_PASSWORD", "rye")]] {
        let said = digest(&url, wrong).unwrap_err();
        assert!(said.contains("the Sentinel refuses the login") && !said.contains("rye"), "{said}");
    }
    let said = digest(&url, &[of_sentinel]).unwrap_err();
    assert!(said.contains("the server refuses the login") && said.contains("REDISCLI_AUTH"), "{said}");
    let said = digest(&url, &[of_master, ("REDIS_SENTINEL_USERNAME", "default")]).unwrap_err();
    assert!(said.contains("REDIS_SENTINEL_USERNAME is set, but not REDIS_SENTINEL_PASSWORD"), "{said}");
}

#[test]
fn a_user_behind_sentinels_needs_few_rights() {
    let photos = photos();
    let Some(master) = server(&photos, "first", &[]) else { return };
    let sentinels = Sentinels::start(photos.scratch(), 1, &master, 0, "");
    let (pack, url) = (photos.pack(), sentinels.url("photos"));
    pushed(&pack, &url).unwrap();
    master.say("ACL SETUSER reader on >word ~photos:* +get +getrange +exists +select");
    let (user, word) = (url.replace("sentinel://", "sentinel://reader@"), [("REDISCLI_AUTH", "word")]);
    let said = digest(&user, &word).unwrap_err();
    assert!(said.contains("NOPERM") && said.contains("ROLE with Sentinels"), "{said}");
    master.say("ACL SETUSER reader +role");
    assert_eq!(digest(&user, &word), digest(pack.to_str().unwrap(), &[]));
}

#[test]
fn sentinels_and_master_with_tls_give_the_images_of_the_file() {
    let photos = photos();
    let Some(master) = RedisServer::start_with_tls(photos.scratch()) else { return };
    let sentinels = Sentinels::start(photos.scratch(), 1, &master, 0, "");
    let (pack, url, authority) = (photos.pack(), sentinels.url("photos"), master.authority());
    let (pack, trusted) = (pack.to_str().unwrap(), [("SSL_CERT_FILE", authority.to_str().unwrap())]);
    command(&["push", pack, &url, "--quiet"], &trusted).unwrap();
    assert_eq!(digest(&url, &trusted), digest(pack, &[]));
    let said = digest(&url, &[]).unwrap_err();
    assert!(said.contains("certificate") && said.contains("SSL_CERT_FILE"), "{said}");
}

/// A server that was made a replica keeps its connections, and answers. It has lost the values here.
#[test]
fn a_master_that_was_demoted_and_still_answers_is_not_read() {
    let photos = photos();
    let Some([old, new]) = pair(&photos) else { return };
    let sentinels = Sentinels::start(photos.scratch(), 1, &old, 1, "");
    let (pack, url) = (photos.pack(), sentinels.url("photos"));
    pushed(&pack, &url).unwrap();
    new.wait_for_data_of(&old);
    let asked = || {
        let said = old.say("INFO commandstats");
        let calls = said.lines().find_map(|line| line.strip_prefix("cmdstat_role:calls=")?.split(',').next());
        calls.map_or(0, |calls| calls.parse::<u64>().unwrap())
    };
    let mut batches = 0;
    std::thread::scope(|scope| {
        let run = Run::with(over(&url).with(|o| (o.batch_size, o.epochs) = (4, 6)), |_, _| {
            batches += 1;
            if batches == 8 {
                new.say("REPLICAOF NO ONE");
                old.say("CONFIG SET replica-read-only no");
                old.say("REPLICAOF 127.0.0.1 1");
                old.say("FLUSHALL");
                let before = asked();
                let (sentinels, asked, new) = (&sentinels, &asked, &new);
                scope.spawn(move || {
                    // The Sentinel has not heard of it yet, and the run asks again.
                    wait_until("the old master is asked", || asked() > before + 4);
                    sentinels.name(0, new);
                });
            }
        });
        run.assert_exactly_once(6, SAMPLES.into());
        assert_eq!(run.ordered_digest.to_string(), digest_of(&pack, 6));
    });
}

/// What the old master has taken last, the new one may lack. Here it lacks everything.
#[test]
fn a_push_sends_again_what_a_new_master_lacks() {
    let photos = photos();
    let (Some(old), Some(new)) = (server(&photos, "first", &[]), server(&photos, "second", &[])) else { return };
    let sentinels = Sentinels::start(photos.scratch(), 1, &old, 0, "");
    let (pack, url) = (photos.pack(), sentinels.url("photos"));
    let options = PushOptions { threads: 1, ..PushOptions::default() };
    let mut has_failed_over = false;
    let mut fail_over = |now: PushProgress| {
        if now.sent > 0 && !std::mem::replace(&mut has_failed_over, true) {
            sentinels.name(0, &new);
            old.say(&format!("REPLICAOF 127.0.0.1 {}", new.port()));
        }
        ControlFlow::Continue(())
    };
    let summary = push(&Pack::open(&pack).unwrap(), &url, &options, &mut fail_over).unwrap();
    // The new master may have got some values before the push knew that it is another one.
    assert!((1..=u64::from(SAMPLES)).contains(&summary.sent), "{}", summary.sent);
    assert_eq!(new.keys().len(), SAMPLES as usize + 2);
    assert!(command(&["verify", &url], &[]).unwrap().contains("intact"));
    assert_eq!(digest(&url, &[]), digest(pack.to_str().unwrap(), &[]));
}

#[test]
#[ignore = "waits for Sentinels to replace a master: .ci/full runs it"]
fn a_master_that_is_killed_under_a_run_is_replaced() {
    let photos = photos();
    let Some([mut master, replica]) = pair(&photos) else { return };
    let mut sentinels = Sentinels::start(photos.scratch(), 3, &master, 1, "");
    let (pack, url) = (photos.pack(), sentinels.url("photos"));
    pushed(&pack, &url).unwrap();
    replica.wait_for_data_of(&master);
    let mut batches = 0;
    let run = Run::with(over(&url).with(|o| (o.batch_size, o.epochs) = (4, 6)), |_, _| {
        batches += 1;
        if batches == 8 {
            // Two Sentinels suffice, also to the run.
            sentinels.kill(0);
            master.kill();
        }
    });
    assert!(replica.say("ROLE").starts_with("master"));
    run.assert_exactly_once(6, SAMPLES.into());
    assert_eq!(run.ordered_digest.to_string(), digest_of(&pack, 6));
    assert!(run.report.corrupt.is_empty());
    // The old master comes back without its data, and the Sentinels make it a replica.
    master.restart();
    wait_until("the old master is a replica", || master.say("ROLE").starts_with("slave"));
    assert_eq!(pushed_with(&pack, &url, |options| options.verify = true).unwrap().sent, 0);
}

#[test]
#[ignore = "waits for Sentinels to replace a master: .ci/full runs it"]
fn a_push_goes_on_at_the_replica_that_takes_the_place_of_its_master() {
    let photos = photos();
    let Some([mut master, replica]) = pair(&photos) else { return };
    let sentinels = Sentinels::start(photos.scratch(), 3, &master, 1, "");
    let (pack, url) = (photos.pack(), sentinels.url("photos"));
    let options = PushOptions { threads: 1, ..PushOptions::default() };
    let mut is_killed = false;
    let mut kill = |now: PushProgress| {
        if now.sent > 0 && !std::mem::replace(&mut is_killed, true) {
            master.kill();
        }
        ControlFlow::Continue(())
    };
    push(&Pack::open(&pack).unwrap(), &url, &options, &mut kill).unwrap();
    assert_eq!(replica.keys().len(), SAMPLES as usize + 2);
    assert!(command(&["verify", &url], &[]).unwrap().contains("intact"));
    assert_eq!(digest(&url, &[]), digest(pack.to_str().unwrap(), &[]));
}

#[test]
#[ignore = "waits for more than a minute: .ci/full runs it"]
fn a_master_that_nothing_replaces_ends_the_run_by_name() {
    let photos = photos();
    let Some(mut master) = server(&photos, "first", &[]) else { return };
    let sentinels = Sentinels::start(photos.scratch(), 1, &master, 0, "");
    let url = sentinels.url("photos");
    pushed(&photos.pack(), &url).unwrap();
    let mut run = over(&url).with(|o| o.epochs = 100_000).build().unwrap();
    run.next().unwrap().unwrap();
    master.kill();
    let said = chain(&run.filter_map(Result::err).next().expect("the run ends with an error"));
    assert!(said.contains("has not answered for 60 s") && said.contains(&master.port().to_string()), "{said}");
    let said = digest(&url, &[]).unwrap_err();
    assert!(said.contains("has not been ready for 60 s"), "{said}");
}
