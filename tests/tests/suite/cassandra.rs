//! Datasets in Cassandra, from real nodes. A node takes seconds to start, so a test asks one node many things.

use crate::push_parts::shares_and_parts_become_a_dataset;
use crate::values::{command, digest, over, photos, pushed, pushed_with, refused};
use ddlp_dataset::pack::{Pack, PackFormat, StoredForm};
use ddlp_dataset::{Dataset, Identity};
use ddlp_host::{CorruptPolicy, Host, LoaderError, open_dataset};
use ddlp_stores::{PushError, PushOptions, push};
use ddlp_tests::cassandra::{CassandraNode, LOGIN, make_certificates};
use ddlp_tests::certificates;
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::{Run, chain};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

const SAMPLES: u64 = crate::values::SAMPLES as u64;

/// Returns the identifier of a sample's rows.
fn id(identity: &Identity, number: u64) -> String {
    let version = &identity.to_string()[..15];
    format!("{}-{}-8{}-8000-{number:012x}", &version[..8], &version[8..12], &version[12..])
}

#[test]
fn a_pack_in_tables_is_loaded_checked_replaced_and_refused() {
    let photos = photos();
    let Some(node) = CassandraNode::start(photos.scratch(), &[]) else { return };
    let said = refused(over(&node.url("early")));
    assert!(said.contains("no keyspace photos") && said.contains("CREATE KEYSPACE"), "{said}");
    node.create_keyspace(1);
    let said = refused(over(&node.url("early")));
    assert!(said.contains("no dataset early in this keyspace") && said.contains("`ddlp push"), "{said}");

    every_form_gives_the_images_of_its_file(&photos, &node);
    a_second_push_sends_only_what_is_missing(&photos, &node);
    a_stopped_push_goes_on(&photos, &node);
    missing_and_damaged_rows_are_told_apart(&photos, &node);
    a_value_without_one_of_its_rows_is_not_corrupt(&photos, &node);
    a_push_with_a_clock_behind_fails(&photos, &node);
    another_pack_replaces_a_dataset(&photos, &node);
    shares_and_parts_become_a_dataset(&photos.pack(), &node.url("shares"));
    // The index and the manifest have rows of their own; nothing else is left.
    assert_eq!(node.number("SELECT COUNT(*) FROM photos.shares_data"), SAMPLES as i64 + 2);

    node.execute("CREATE TABLE photos.foreign_data (id int PRIMARY KEY)");
    for said in
        [refused(over(&node.url("foreign"))), pushed(&photos.pack(), &node.url("foreign")).unwrap_err().to_string()]
    {
        assert!(said.contains("foreign_data was not made by `ddlp push`"), "{said}");
    }
    let said = digest(&node.url("kept").replace("cql://", "cqls://"), &[]).unwrap_err();
    assert!(said.contains("does not speak TLS"), "{said}");
}

fn every_form_gives_the_images_of_its_file(photos: &Photos, node: &CassandraNode) {
    for form in [StoredForm::Kept, StoredForm::Rows, StoredForm::Raw, StoredForm::Pcr] {
        let pack = photos.pack_as(form.name(), PackFormat::of(form));
        let url = node.url(form.name());
        let summary = pushed_with(&pack, &url, |options| options.verify = true).unwrap();
        assert_eq!((summary.samples, summary.sent), (SAMPLES, SAMPLES), "{form:?}");
        let (file, run) = (Run::of(over(pack.to_str().unwrap())), Run::of(over(&url)));
        assert_eq!(run.ordered_digest, file.ordered_digest, "{form:?}");
        run.assert_exactly_once(2, SAMPLES);
        assert!(run.troubles().is_empty(), "{form:?}: {:?}", run.troubles());
        let opened = open_dataset(Path::new(&url), &Host::system()).unwrap();
        assert_eq!(opened.identity(), Pack::open(&pack).unwrap().identity());
    }
    let lower = |place: &str| Run::of(over(place).with(|o| o.fidelity = "2".parse().unwrap())).ordered_digest;
    let pack = photos.pack_as("pcr", PackFormat::of(StoredForm::Pcr));
    assert_eq!(lower(&node.url("pcr")), lower(pack.to_str().unwrap()));
    assert_eq!(node.number("SELECT COUNT(*) FROM photos.kept_metadata"), SAMPLES as i64);
    assert!(command(&["verify", &node.url("kept")], &[]).unwrap().contains("intact"));
    assert!(command(&["inspect", &node.url("pcr")], &[]).unwrap().contains("48 samples in 3 classes"));
}

fn a_second_push_sends_only_what_is_missing(photos: &Photos, node: &CassandraNode) {
    let (pack, url) = (photos.pack(), node.url("again"));
    let first = pushed(&pack, &url).unwrap();
    let again = pushed(&pack, &url).unwrap();
    assert_eq!((first.sent, again.sent, again.sent_bytes, again.bytes), (SAMPLES, 0, 0, first.bytes));
    node.execute(&format!("DELETE FROM photos.again_data WHERE id = {}", id(&first.identity, 3)));
    node.execute(&format!(
        "UPDATE photos.again_data SET head = 0x00 WHERE id = {} AND start = 0",
        id(&first.identity, 4)
    ));
    node.execute(&format!(
        "UPDATE photos.again_data SET data = 0x00 WHERE id = {} AND start = 0",
        id(&first.identity, 5)
    ));
    assert_eq!(pushed(&pack, &url).unwrap().sent, 2);
    assert_eq!(pushed_with(&pack, &url, |options| options.verify = true).unwrap().sent, 1);
    assert_eq!(Run::of(over(&url)).ordered_digest, Run::of(over(pack.to_str().unwrap())).ordered_digest);
}

fn a_stopped_push_goes_on(photos: &Photos, node: &CassandraNode) {
    let (pack, url) = (Pack::open(&photos.pack()).unwrap(), node.url("stopped"));
    let one = PushOptions { threads: 1, ..PushOptions::default() };
    let stopped = push(&pack, &url, &one, &mut |now| match now.samples {
        0 => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    });
    assert!(matches!(stopped, Err(PushError::Cancelled)));
    let said = refused(over(&url));
    assert!(said.contains("the push of stopped has not ended"), "{said}");
    let rest = pushed(&photos.pack(), &url).unwrap();
    assert!(rest.sent > 0 && rest.sent < SAMPLES, "{}", rest.sent);
    Run::of(over(&url)).assert_exactly_once(2, SAMPLES);
}

fn missing_and_damaged_rows_are_told_apart(photos: &Photos, node: &CassandraNode) {
    let (pack, url) = (photos.pack(), node.url("broken"));
    let identity = pushed(&pack, &url).unwrap().identity;
    let name = Pack::open(&pack).unwrap().name(7);
    node.execute(&format!("UPDATE photos.broken_data SET data = 0x00 WHERE id = {} AND start = 0", id(&identity, 7)));
    let said = refused(over(&url));
    assert!(said.contains(&name) && said.contains("leaves corrupt samples out"), "{said}");
    assert_eq!(command(&["verify", &url], &[]).unwrap_err(), "");
    node.execute(&format!("DELETE FROM photos.broken_data WHERE id = {}", id(&identity, 7)));
    let said = refused(over(&url).with(|o| o.policy = CorruptPolicy::Skip));
    assert!(said.contains(&id(&identity, 7)) && said.contains("`ddlp push` sends what is missing"), "{said}");
    node.execute("TRUNCATE photos.broken_data");
    let said = refused(over(&url));
    assert!(said.contains("no dataset broken in this keyspace"), "{said}");
}

fn a_value_without_one_of_its_rows_is_not_corrupt(photos: &Photos, node: &CassandraNode) {
    let (pack, url) = (photos.pack_as("pcr", PackFormat::of(StoredForm::Pcr)), node.url("pieces"));
    let id = id(&pushed(&pack, &url).unwrap().identity, 7);
    for rows in ["start = 0", "start > 0"] {
        node.execute(&format!("DELETE FROM photos.pieces_data WHERE id = {id} AND {rows}"));
        let said = refused(over(&url).with(|o| o.policy = CorruptPolicy::Skip));
        let expected = format!("a row of the value {id} of photos.pieces_data is missing; `ddlp push` sends it again");
        assert!(said.contains(&expected), "{said}");
        assert_eq!(pushed(&pack, &url).unwrap().sent, 1);
    }
    Run::of(over(&url)).assert_exactly_once(2, SAMPLES);
}

fn a_push_with_a_clock_behind_fails(photos: &Photos, node: &CassandraNode) {
    let (pack, url) = (photos.pack(), node.url("behind"));
    pushed(&pack, &url).unwrap();
    // The manifest, removed by a machine whose clock is far ahead.
    let manifest = "00000000-0000-8000-8000-000000000000";
    node.execute(&format!("DELETE FROM photos.behind_data USING TIMESTAMP 9000000000000000 WHERE id = {manifest}"));
    let said = pushed(&pack, &url).unwrap_err().to_string();
    assert!(said.contains("does not read back") && said.contains("the clock of this machine is behind"), "{said}");
}

fn another_pack_replaces_a_dataset(photos: &Photos, node: &CassandraNode) {
    let (pack, url) = (photos.pack(), node.url("changing"));
    pushed(&pack, &url).unwrap();
    let raw = photos.pack_as("raw.ddlp", PackFormat::of(StoredForm::Raw));
    assert!(matches!(pushed(&raw, &url), Err(PushError::Exists { .. })));
    let mut run = over(&url).with(|o| o.epochs = 1000).build().unwrap();
    run.next().unwrap().unwrap();
    assert_eq!(pushed_with(&raw, &url, |options| options.force = true).unwrap().sent, SAMPLES);
    let said = chain(&run.filter_map(Result::err).next().expect("the run ends"));
    assert!(said.contains("changing was replaced after it was opened"), "{said}");
    assert_eq!(node.number("SELECT COUNT(*) FROM photos.changing_metadata"), SAMPLES as i64);
    assert_eq!(Run::of(over(&url)).ordered_digest, Run::of(over(raw.to_str().unwrap())).ordered_digest);
}

#[test]
#[ignore = "starts Cassandra three times; .ci/full runs it"]
fn a_node_that_is_killed_and_started_again_changes_nothing() {
    let photos = photos();
    let Some(mut node) = CassandraNode::start(photos.scratch(), &[]) else { return };
    node.create_keyspace(1);
    let (pack, url) = (photos.pack(), node.url("photos"));
    pushed(&pack, &url).unwrap();
    let mut batches = 0;
    let run = Run::with(over(&url).with(|o| (o.batch_size, o.epochs) = (4, 4)), |_, _| {
        batches += 1;
        if batches % 16 == 4 && batches < 32 {
            node.kill();
            node.restart(&[]);
        }
    });
    run.assert_exactly_once(4, SAMPLES);
    let file = Run::of(over(pack.to_str().unwrap()).with(|o| (o.batch_size, o.epochs) = (4, 4)));
    assert_eq!(run.ordered_digest, file.ordered_digest);

    let bench = ["bench", "remote", &url, "--rtt", "0,20", "--seconds", "0.2", "--batch", "8"];
    let table = command(&bench, &[]).unwrap();
    for name in ["auto ", "plain receiver "] {
        assert_eq!(table.lines().filter(|line| line.starts_with(name)).count(), 2, "{table}");
    }
}

#[test]
#[ignore = "starts Cassandra twice; .ci/full runs it"]
fn password_and_certificates_are_needed_on_both_sides() {
    if !certificates::can_be_made() {
        return;
    }
    let photos = photos();
    let Some(mut node) = CassandraNode::start(photos.scratch(), &["--password"]) else { return };
    node.create_keyspace(1);
    let (pack, url) = (photos.pack(), node.url("photos"));
    let pack = pack.to_str().unwrap();
    let said = digest(&url, &[]).unwrap_err();
    assert!(said.contains("the server wants a password") && said.contains("CASSANDRA_PASSWORD"), "{said}");
    let with_role = url.replace("cql://", &format!("cql://{}@", LOGIN.0));
    let said = digest(&with_role, &[]).unwrap_err();
    assert!(said.contains("put the password into CASSANDRA_PASSWORD"), "{said}");
    for arguments in [&["run", &with_role, "--quiet"][..], &["push", pack, &with_role, "--quiet"]] {
        let said = command(arguments, &[("CASSANDRA_PASSWORD", "barley")]).unwrap_err();
        assert!(said.contains("refuses the login") && said.contains("CASSANDRA_PASSWORD"), "{said}");
        assert!(!said.contains("barley"), "{said}");
    }
    let password = ("CASSANDRA_PASSWORD", LOGIN.1);
    command(&["push", pack, &with_role, "--quiet"], &[password]).unwrap();
    assert_eq!(digest(&with_role, &[password]), digest(pack, &[]));
    node.execute("CREATE ROLE reader WITH PASSWORD = 'word' AND LOGIN = true");
    node.execute("GRANT SELECT ON TABLE photos.photos_data TO reader");
    let (reader, word) = (url.replace("cql://", "cql://reader@"), ("CASSANDRA_PASSWORD", "word"));
    assert_eq!(digest(&reader, &[word]), digest(pack, &[]));
    let said = command(&["push", pack, &reader, "--quiet"], &[word]).unwrap_err();
    assert!(said.contains("GRANT … ON KEYSPACE photos"), "{said}");

    let home = tempfile::tempdir().unwrap();
    make_certificates(home.path());
    let [server, authority, leaf, key] = ["server.pem", "ca.pem", "leaf.pem", "leaf.key"]
        .map(|file| home.path().join(file).to_str().unwrap().to_owned());
    node.kill();
    node.restart(&["--tls", &server, "--client-ca", &authority]);
    let url = node.tls_url("photos");
    let trusted = ("SSL_CERT_FILE", &*authority);
    let client = [("SSL_CLIENT_CERT_FILE", &*leaf), ("SSL_CLIENT_KEY_FILE", &*key)];
    assert_eq!(digest(&url, &[&client[..], &[password, trusted]].concat()), digest(pack, &[]));
    let said = digest(&url, &[&client[..], &[password]].concat()).unwrap_err();
    assert!(said.contains("certificate") && said.contains("SSL_CERT_FILE"), "{said}");
    let said = digest(&url, &[password, trusted]).unwrap_err();
    assert!(said.contains("SSL_CLIENT_CERT_FILE"), "{said}");
    let stranger = tempfile::tempdir().unwrap();
    certificates::make(stranger.path());
    let [leaf, key] = ["leaf.pem", "leaf.key"].map(|file| stranger.path().join(file).to_str().unwrap().to_owned());
    let strange = [("SSL_CLIENT_CERT_FILE", &*leaf), ("SSL_CLIENT_KEY_FILE", &*key), password, trusted];
    for arguments in [&["run", &url, "--quiet"][..], &["push", pack, &url, "--quiet"]] {
        let said = command(arguments, &strange).unwrap_err();
        assert!(said.contains("does not accept the certificate of SSL_CLIENT_CERT_FILE"), "{said}");
    }
    let said = digest(&url, &[password, trusted, client[0]]).unwrap_err();
    assert!(said.contains("but not SSL_CLIENT_KEY_FILE"), "{said}");
    let plain = with_role.replace("127.0.0.1", "localhost");
    let said = digest(&plain, &[password]).unwrap_err();
    assert!(said.contains("cqls://"), "{said}");
}

#[test]
#[ignore = "starts three nodes of Cassandra; .ci/full runs it"]
fn a_lost_node_of_three_changes_nothing_at_two_replicas() {
    let photos = photos();
    let Some([first, mut second, third]) = CassandraNode::start_three(photos.scratch()) else { return };
    first.create_keyspace(2);
    let (pack, url) = (photos.pack(), first.url("photos"));
    pushed_with(&pack, &url, |options| options.verify = true).unwrap();
    let mut batches = 0;
    let run = Run::with(over(&url).with(|o| (o.batch_size, o.epochs) = (4, 6)), |_, _| {
        batches += 1;
        match batches {
            8 => second.kill(),
            40 => second.restart(&[]),
            _ => {}
        }
    });
    run.assert_exactly_once(6, SAMPLES);
    let file = Run::of(over(pack.to_str().unwrap()).with(|o| (o.batch_size, o.epochs) = (4, 6)));
    assert_eq!(run.ordered_digest, file.ordered_digest);
    second.kill();
    // Opened while a node is lost, by a URL that names it first.
    let named = url.replace("127.0.0.1", "127.0.0.2,127.0.0.1");
    Run::of(over(&named)).assert_exactly_once(2, SAMPLES);
    drop(third);
    let said = pushed_with(&photos.pack_as("raw", PackFormat::of(StoredForm::Raw)), &url, |o| o.force = true);
    assert!(said.is_err(), "a majority of the replicas is lost");
}

#[test]
#[ignore = "starts three nodes of Cassandra; .ci/full runs it"]
fn a_slow_node_of_three_changes_nothing() {
    let photos = photos();
    let Some([first, second, _third]) = CassandraNode::start_three(photos.scratch()) else { return };
    first.create_keyspace(2);
    let (pack, url) = (photos.pack(), first.url("photos"));
    pushed_with(&pack, &url, |options| options.verify = true).unwrap();
    // Shorter and longer than a request waits for an answer.
    for seconds in [3, 25] {
        let (mut batches, mut stopped) = (0, None);
        let run = Run::with(over(&url).with(|o| (o.batch_size, o.epochs) = (4, 40)), |_, _| {
            batches += 1;
            if batches == 8 {
                stopped = Some(second.stop_for(Duration::from_secs(seconds)));
            }
        });
        stopped.expect("batches came").join().unwrap();
        run.assert_exactly_once(40, SAMPLES);
        let file = Run::of(over(pack.to_str().unwrap()).with(|o| (o.batch_size, o.epochs) = (4, 40)));
        assert_eq!(run.ordered_digest, file.ordered_digest, "{seconds} s");
    }
}

#[test]
fn a_url_without_a_cluster_is_an_error_soon() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("cql://{free}/photos/train");
    let error = open_dataset(Path::new(&url), &Host::system()).map(drop).unwrap_err();
    assert!(matches!(error, LoaderError::Store { .. }), "{error}");
    assert!(error.to_string().contains("check the address, and that the server runs"), "{error}");
    let secret = url.replace("cql://", "cql://me:sesame@");
    for arguments in [&["run", &secret, "--quiet"][..], &["inspect", &secret], &["verify", &secret]] {
        let said = command(arguments, &[]).unwrap_err();
        assert!(said.contains("CASSANDRA_PASSWORD") && !said.contains("sesame"), "{said}");
    }
}
