//! A pack that several machines push at the same time, in shares or in parts, to a real Redis server.

use crate::values::{SAMPLES, command, digest, over, photos, refused};
use ddlp_dataset::pack::{Pack, PackFormat, StoredForm};
use ddlp_stores::{PushError, PushOptions, PushPart, PushProgress, PushSummary, Share, push};
use ddlp_tests::redis::RedisServer;
use ddlp_tests::redis_relay::{RedisRelay, Reply};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

fn pushed_part(pack: &Path, url: &str, part: PushPart) -> Result<PushSummary, PushError> {
    let options = PushOptions { part, ..PushOptions::default() };
    push(&Pack::open(pack).unwrap(), url, &options, &mut |_| ControlFlow::Continue(()))
}

fn share(number: u32, of: u32) -> PushPart {
    PushPart::Share(Share { number, of })
}

/// Returns the keys that a finished push does not leave.
fn left(server: &RedisServer) -> Vec<String> {
    server.keys().into_iter().filter(|key| key.contains(":share:") || key.ends_with(":pushing")).collect()
}

/// Pushes a pack in shares and in parts, to a name in any store.
pub fn shares_and_parts_become_a_dataset(pack: &Path, url: &str) {
    assert_eq!(pushed_part(pack, url, share(1, 2)).unwrap().missing_shares, [0]);
    assert!(refused(over(url)).contains("has not ended"));
    assert!(pushed_part(pack, url, share(0, 2)).unwrap().missing_shares.is_empty());
    assert_eq!(digest(url, &[]), digest(pack.to_str().unwrap(), &[]));
    let parts = [PushPart::Begin, PushPart::Samples((0..48).rev().collect()), PushPart::End];
    assert!(parts.map(|part| pushed_part(pack, url, part).unwrap().sent).iter().all(|sent| *sent == 0));
    assert_eq!(digest(url, &[]), digest(pack.to_str().unwrap(), &[]));
}

#[test]
fn the_dataset_can_be_opened_when_all_shares_are_there_in_whatever_order_they_come() {
    let photos = photos();
    let Some(server) = RedisServer::start(photos.scratch(), &[]) else { return };
    let (pack, url) = (photos.pack(), server.url("photos"));
    let summaries = [2, 0, 1].map(|number| {
        if number != 2 {
            let said = refused(over(&url));
            assert!(said.contains("the push of photos has not ended"), "{said}");
        }
        let summary = pushed_part(&pack, &url, share(number, 3)).unwrap();
        assert_eq!((summary.samples, summary.sent), (16, 16));
        summary.missing_shares
    });
    assert_eq!(summaries, [vec![0, 1], vec![1], vec![]]);
    assert_eq!(digest(&url, &[]), digest(pack.to_str().unwrap(), &[]));
    assert_eq!((server.keys().len(), left(&server)), (SAMPLES as usize + 2, vec![]));
    // A share that is pushed once more sends nothing and leaves nothing.
    let again = pushed_part(&pack, &url, share(1, 3)).unwrap();
    assert_eq!((again.sent, again.missing_shares, left(&server)), (0, vec![], vec![]));
}

#[test]
fn machines_that_push_the_same_shares_at_the_same_time_change_nothing() {
    let photos = photos();
    let Some(server) = RedisServer::start(photos.scratch(), &[]) else { return };
    let (pack, url) = (photos.pack(), server.url("photos"));
    thread::scope(|scope| {
        for number in (0..4).chain(0..4) {
            let (pack, url) = (pack.to_str().unwrap(), &url);
            scope.spawn(move || command(&["push", pack, url, "--share", &format!("{number}/4")], &[]).unwrap());
        }
    });
    assert_eq!(digest(&url, &[]), digest(pack.to_str().unwrap(), &[]));
    assert_eq!((server.keys().len(), left(&server)), (SAMPLES as usize + 2, vec![]));
    let said = command(&["push", pack.to_str().unwrap(), &url, "--share", "3/4"], &[]).unwrap();
    assert!(said.contains("All shares are there"), "{said}");
}

#[test]
fn a_share_that_was_stopped_is_not_there_and_goes_on() {
    let photos = photos();
    let Some(server) = RedisServer::start(photos.scratch(), &[]) else { return };
    let (pack, url) = (photos.pack(), server.url("photos"));
    let options = PushOptions { threads: 1, part: share(0, 2), ..PushOptions::default() };
    let stop = |now: PushProgress| match now.samples {
        0 => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    };
    let stopped = push(&Pack::open(&pack).unwrap(), &url, &options, &mut { stop });
    assert!(matches!(stopped, Err(PushError::Cancelled)));
    assert_eq!(pushed_part(&pack, &url, share(1, 2)).unwrap().missing_shares, [0]);
    let rest = pushed_part(&pack, &url, share(0, 2)).unwrap();
    assert!(rest.sent < rest.samples && rest.missing_shares.is_empty(), "{rest:?}");
    assert_eq!(digest(&url, &[]), digest(pack.to_str().unwrap(), &[]));
}

#[test]
fn shares_of_another_number_of_shares_do_not_count_and_a_whole_push_needs_none() {
    let photos = photos();
    let Some(server) = RedisServer::start(photos.scratch(), &[]) else { return };
    let (pack, url) = (photos.pack(), server.url("photos"));
    assert_eq!(pushed_part(&pack, &url, share(0, 2)).unwrap().missing_shares, [1]);
    // The second half of two is not the rest of three.
    assert_eq!(pushed_part(&pack, &url, share(1, 3)).unwrap().missing_shares, [0, 2]);
    assert_eq!(pushed_part(&pack, &url, share(2, 3)).unwrap().missing_shares, [0]);
    let whole = pushed_part(&pack, &url, PushPart::All).unwrap();
    assert_eq!((whole.samples, whole.sent), (48, 0));
    assert_eq!(digest(&url, &[]), digest(pack.to_str().unwrap(), &[]));
    assert_eq!(left(&server), Vec::<String>::new());
}

#[test]
fn another_pack_takes_away_shares_and_marks() {
    let photos = photos();
    let Some(server) = RedisServer::start(photos.scratch(), &[]) else { return };
    let (pack, url) = (photos.pack(), server.url("photos"));
    let raw = photos.pack_as("raw.ddlp", PackFormat::of(StoredForm::Raw));
    pushed_part(&pack, &url, share(0, 2)).unwrap();
    pushed_part(&raw, &url, share(0, 2)).unwrap();
    assert_eq!(server.keys().len(), 24 + 2, "samples and mark of the other pack, and what is being pushed");
    assert_eq!(pushed_part(&pack, &url, share(1, 2)).unwrap().missing_shares, [0]);
    pushed_part(&pack, &url, share(0, 2)).unwrap();
    let said = pushed_part(&raw, &url, share(0, 2)).unwrap_err();
    assert!(matches!(said, PushError::Exists { .. }), "{said}");
    let forced = |number| {
        let options = PushOptions { force: true, part: share(number, 2), ..PushOptions::default() };
        push(&Pack::open(&raw).unwrap(), &url, &options, &mut |_| ControlFlow::Continue(())).unwrap()
    };
    assert_eq!(forced(0).missing_shares, [1]);
    assert_eq!(digest(&url, &[]), digest(pack.to_str().unwrap(), &[]), "the first pack stays until the other is there");
    assert!(forced(1).missing_shares.is_empty());
    assert_eq!(digest(&url, &[]), digest(raw.to_str().unwrap(), &[]));
    assert_eq!((server.keys().len(), left(&server)), (SAMPLES as usize + 2, vec![]));
}

/// Marks stay if a push is killed, or is written to a name that is another pack's by now. The samples may be gone.
#[test]
fn marks_of_another_session_do_not_count() {
    let photos = photos();
    let Some(server) = RedisServer::start(photos.scratch(), &[]) else { return };
    let (pack, url) = (photos.pack(), server.url("photos"));
    let raw = photos.pack_as("raw.ddlp", PackFormat::of(StoredForm::Raw));
    let copy = |from: &str, to: &str| assert!(server.say(&format!("COPY {from} {to} REPLACE")).ends_with('1'));
    // Another pack has removed the samples of a share, but not its mark.
    pushed_part(&pack, &url, share(0, 2)).unwrap();
    let mark = left(&server).into_iter().find(|key| key.contains(":share:")).unwrap();
    copy(&mark, "kept");
    pushed_part(&raw, &url, share(0, 2)).unwrap();
    copy("kept", &mark);
    assert_eq!(pushed_part(&pack, &url, share(1, 2)).unwrap().missing_shares, [0]);
    // A push was killed after it had ended but for the marks, and another pack took the dataset's place.
    let there: Vec<String> = left(&server).into_iter().filter(|key| *key != mark).collect();
    there.iter().for_each(|key| copy(key, &format!("kept:{key}")));
    assert!(pushed_part(&pack, &url, share(0, 2)).unwrap().missing_shares.is_empty());
    there.iter().for_each(|key| copy(&format!("kept:{key}"), key));
    let forced = |pack: &Path, part| {
        let options = PushOptions { force: true, part, ..PushOptions::default() };
        push(&Pack::open(pack).unwrap(), &url, &options, &mut |_| ControlFlow::Continue(())).unwrap()
    };
    forced(&raw, PushPart::All);
    assert_eq!(left(&server).len(), there.len(), "the copies alone");
    there.iter().filter(|key| key.contains(":share:")).for_each(|key| copy(&format!("kept:{key}"), key));
    assert_eq!(forced(&pack, share(0, 2)).missing_shares, [1]);
    assert_eq!(digest(&url, &[]), digest(raw.to_str().unwrap(), &[]), "the dataset that is there stays");
}

/// A push asks for two manifests, one after the other. Another push of the same pack changes both when it ends.
#[test]
fn a_push_that_ends_between_two_reads_of_another_is_seen() {
    let photos = photos();
    let Some(server) = RedisServer::start(photos.scratch(), &[]).map(Arc::new) else { return };
    let (pack, url) = (photos.pack(), server.url("photos"));
    pushed_part(&pack, &url, PushPart::Begin).unwrap();
    server.say("COPY photos:pushing kept:pushing");
    pushed_part(&pack, &url, PushPart::All).unwrap();
    server.say("COPY photos:index kept:index");
    // Lets the other push end between the reads of the pair with this number. Returns whether there was such a pair.
    let end_within = |pair: usize, work: &dyn Fn(&str)| {
        server.say("COPY kept:pushing photos:pushing REPLACE");
        server.say("DEL photos:index");
        let has_ended = Arc::new(AtomicBool::new(false));
        let (other, ended, mut first, mut pairs) = (server.clone(), has_ended.clone(), None, 0);
        let relay = RedisRelay::start(&url, move |command| {
            let is_manifest = ["GET photos:pushing", "GET photos:index"].contains(&&*command.words.join(" "));
            let second = is_manifest.then(|| command.words.clone());
            let is_pair = first.is_some() && second.is_some() && first != second;
            if is_pair && pairs == pair {
                other.say("COPY kept:index photos:index REPLACE");
                other.say("DEL photos:pushing");
                ended.store(true, Ordering::Relaxed);
            }
            pairs += usize::from(is_pair);
            first = second.filter(|_| !is_pair);
            Reply::Pass
        });
        work(&relay.url(&url));
        has_ended.load(Ordering::Relaxed)
    };
    for part in [PushPart::All, share(1, 2), PushPart::Samples((0..8).collect()), PushPart::End] {
        let push = |url: &str| assert_eq!(pushed_part(&pack, url, part.clone()).unwrap().sent, 0);
        let pairs = (0..).take_while(|pair| end_within(*pair, &push)).count();
        assert!(pairs >= 2, "{part:?} has {pairs} pairs");
    }
    let is_read = |url: &str| assert_eq!(digest(url, &[]), digest(pack.to_str().unwrap(), &[]));
    assert!(end_within(0, &is_read));
}

#[test]
fn parts_of_any_samples_become_a_dataset_at_the_end() {
    let photos = photos();
    let Some(server) = RedisServer::start(photos.scratch(), &[]) else { return };
    let (pack, url) = (photos.pack(), server.url("photos"));
    let parts = [0, 1].map(|rest| PushPart::Samples((0..48).filter(|number| number % 2 == rest).collect()));
    for part in [&parts[0], &PushPart::End] {
        let said = pushed_part(&pack, &url, part.clone()).unwrap_err().to_string();
        assert!(said.contains("another pack was pushed to this name meanwhile"), "{said}");
    }
    pushed_part(&pack, &url, PushPart::Begin).unwrap();
    for part in &parts {
        assert_eq!(pushed_part(&pack, &url, part.clone()).unwrap().sent, 24);
        assert!(refused(over(&url)).contains("has not ended"));
    }
    pushed_part(&pack, &url, PushPart::End).unwrap();
    assert_eq!(digest(&url, &[]), digest(pack.to_str().unwrap(), &[]));
    assert_eq!(left(&server), Vec::<String>::new());
    // A part that comes late, as a worker that was thought to be lost may send it.
    assert_eq!(pushed_part(&pack, &url, parts[0].clone()).unwrap().sent, 0);
    assert_eq!(left(&server), Vec::<String>::new());
}

#[test]
fn another_pack_in_between_is_found() {
    let photos = photos();
    let Some(server) = RedisServer::start(photos.scratch(), &[]) else { return };
    let (pack, url) = (photos.pack(), server.url("photos"));
    let raw = photos.pack_as("raw.ddlp", PackFormat::of(StoredForm::Raw));
    pushed_part(&pack, &url, PushPart::Begin).unwrap();
    pushed_part(&pack, &url, PushPart::Samples((0..48).collect())).unwrap();
    pushed_part(&raw, &url, PushPart::Begin).unwrap();
    for part in [PushPart::Samples((0..8).collect()), PushPart::End] {
        let said = pushed_part(&pack, &url, part).unwrap_err().to_string();
        assert!(said.contains("another pack was pushed to this name meanwhile"), "{said}");
    }
}

#[test]
fn what_cannot_be_shared_is_refused_with_what_to_do() {
    let photos = photos();
    let pack = photos.pack();
    let said =
        command(&["push", pack.to_str().unwrap(), "s3://bucket/photos.ddlp", "--share", "0/2"], &[]).unwrap_err();
    assert!(said.contains("takes a pack as one object"), "{said}");
    let folder = photos.folder();
    let said = command(&["push", folder.to_str().unwrap(), "redis://127.0.0.1:1/0/photos", "--share", "0/2"], &[])
        .unwrap_err();
    assert!(said.contains("make a pack once"), "{said}");
    let wrong = ["push", pack.to_str().unwrap(), "redis://127.0.0.1:1/0/photos", "--share", "2/2"];
    let said = command(&wrong, &[]).unwrap_err();
    assert!(said.contains("there is no share 2/2"), "{said}");
}
