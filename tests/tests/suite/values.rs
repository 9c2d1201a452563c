//! Datasets in Redis, one value for each sample, from a real server.

use ddlp_dataset::pack::{Pack, PackFormat, StoredForm};
use ddlp_host::{Dataset, DriveSpec, Host, LoaderBuilder, LoaderError, Strategy, open_dataset};
use ddlp_stores::{PushError, PushOptions, PushProgress, PushSummary, push};
use ddlp_tests::agent::{Agent, program};
use ddlp_tests::photos::Photos;
use ddlp_tests::redis::RedisServer;
use ddlp_tests::runs::{Run, chain, loader};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const SAMPLES: u32 = 48;

pub fn photos() -> Photos {
    Photos::with_sizes(SAMPLES, |index| (320 + index % 9, 240 + index % 7))
}

pub fn over(place: &str) -> LoaderBuilder {
    loader(Path::new(place)).with(|o| (o.strategy, o.epochs) = (Strategy::Cpu, 2))
}

pub fn pushed(pack: &Path, url: &str) -> Result<PushSummary, PushError> {
    pushed_with(pack, url, |_| ())
}

pub fn pushed_with(pack: &Path, url: &str, change: fn(&mut PushOptions)) -> Result<PushSummary, PushError> {
    let mut options = PushOptions::default();
    change(&mut options);
    push(&Pack::open(pack).unwrap(), url, &options, &mut |_| ControlFlow::Continue(()))
}

/// Returns the error of opening or of a run.
pub fn refused(builder: LoaderBuilder) -> String {
    match builder.build() {
        Err(error) => chain(&error),
        Ok(loader) => chain(&loader.filter_map(Result::err).next().expect("an error")),
    }
}

/// Runs the command, and returns what it prints, or what it says otherwise.
pub fn command(arguments: &[&str], environment: &[(&str, &str)]) -> Result<String, String> {
    let mut command = Command::new(program("ddlp"));
    command
        .args(arguments)
        .env_remove("REDISCLI_AUTH")
        .env_remove("REDIS_SENTINEL_PASSWORD")
        .env_remove("REDIS_SENTINEL_USERNAME")
        .env_remove("CASSANDRA_PASSWORD")
        .envs(environment.iter().copied());
    let output = command.output().unwrap();
    let [said, wrong] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    if output.status.success() { Ok(said) } else { Err(wrong) }
}

pub fn digest(place: &str, environment: &[(&str, &str)]) -> Result<String, String> {
    let run = ["run", place, "--strategy", "cpu", "--batch", "8", "--epochs", "2", "--quiet", "--digest"];
    command(&run, environment)
}

/// Returns the keys of samples and chunks.
fn value_keys(server: &RedisServer) -> Vec<String> {
    server.keys().into_iter().filter(|key| !key.ends_with(":index") && !key.ends_with(":pushing")).collect()
}

#[test]
fn a_pack_in_values_gives_the_images_of_its_file_in_every_form() {
    let photos = photos();
    let Some(server) = RedisServer::start(photos.scratch(), &[]) else { return };
    let forms =
        [StoredForm::Kept, StoredForm::Indexed, StoredForm::Rows, StoredForm::Raw, StoredForm::L3, StoredForm::Pcr];
    for form in forms {
        let pack = photos.pack_as(form.name(), PackFormat::of(form));
        let url = server.url(form.name());
        let summary = pushed_with(&pack, &url, |options| options.verify = true).unwrap();
        assert_eq!((summary.samples, summary.sent), (SAMPLES.into(), SAMPLES.into()), "{form:?}");
        let lower = |builder: LoaderBuilder| match form {
            StoredForm::Pcr => builder.with(|o| o.fidelity = "5".parse().unwrap()),
            _ => builder,
        };
        let (file, run) = (Run::of(over(pack.to_str().unwrap())), Run::of(over(&url)));
        assert_eq!(run.ordered_digest, file.ordered_digest, "{form:?}");
        run.assert_exactly_once(2, SAMPLES.into());
        assert!(run.troubles().is_empty(), "{form:?}: {:?}", run.troubles());
        let lower = [pack.to_str().unwrap(), &url].map(|place| Run::of(lower(over(place))).ordered_digest);
        assert_eq!(lower[0], lower[1], "{form:?}");
        let opened = open_dataset(Path::new(&url), &Host::system()).unwrap();
        assert_eq!(opened.identity(), Pack::open(&pack).unwrap().identity());
    }
}

#[test]
fn the_index_of_a_long_dataset_takes_several_values() {
    let photos = Photos::new(1);
    // Long names, so that few images fill more than a MiB of index.
    fs::create_dir_all(photos.folder().join("class_0/long")).unwrap();
    let line = format!("images/class_0/{}00000.jpg,0\n", "long/../".repeat(40));
    let list = photos.scratch().join("list.csv");
    fs::write(&list, format!("path,label\n{}", line.repeat(3000))).unwrap();
    let Some(server) = RedisServer::start(photos.scratch(), &[]) else { return };
    let url = server.url("long");
    command(&["push", list.to_str().unwrap(), &url, "--quiet"], &[]).unwrap();
    assert!(server.keys().iter().filter(|key| key.contains(":index:")).count() > 1);
    assert!(command(&["verify", &url], &[]).unwrap().contains("intact (3"));
    let whole = open_dataset(Path::new(&url), &Host::system()).unwrap();
    assert!(whole.name(2999).ends_with("00000.jpg"));
    whole.header(2999).unwrap();
}

#[test]
fn a_folder_is_judged_and_repaired_as_by_pack() {
    let photos = photos();
    let mut image = photos.read(4);
    // A decoder skips bytes between two markers with a warning.
    let scan = image.windows(2).position(|two| two == [0xff, 0xda]).unwrap();
    image.splice(scan..scan, [0; 4]);
    photos.write(4, &image);
    photos.write(5, b"no image");
    let Some(server) = RedisServer::start(photos.scratch(), &[]) else { return };
    let (folder, url) = (photos.folder(), server.url("photos"));
    let folder = folder.to_str().unwrap();
    let said = command(&["push", folder, &url, "--verify"], &[]).unwrap();
    assert!(said.contains("repaired  class_1/00004.jpg") && said.contains("rejected  class_2/00005.jpg"), "{said}");
    assert!(said.contains("48 samples") && said.contains("read back and compared"), "{said}");
    let pack = photos.pack();
    let skipped = ["run", "--strategy", "cpu", "--policy", "skip", "--quiet", "--digest"];
    let of = |place| command(&[&skipped[..], &[place]].concat(), &[]).unwrap();
    assert_eq!(of(&url), of(pack.to_str().unwrap()));
    assert!(command(&["verify", &url], &[]).unwrap().contains("intact"));
    let inspected = command(&["inspect", &url], &[]).unwrap();
    assert!(inspected.contains("48 samples in 3 classes"), "{inspected}");
    let said = command(&["push", folder, &server.url("strict"), "--strict", "--quiet"], &[]).unwrap_err();
    assert!(said.contains("class_2/00005.jpg"), "{said}");
    assert!(server.keys().iter().all(|key| !key.starts_with("strict")));
}

#[test]
fn a_second_push_sends_only_what_is_missing_or_differs() {
    let photos = photos();
    let Some(server) = RedisServer::start(photos.scratch(), &[]) else { return };
    let (pack, url) = (photos.pack(), server.url("photos"));
    let first = pushed(&pack, &url).unwrap();
    assert_eq!((first.sent, first.sent_bytes), (48, first.bytes));
    let keys = server.keys();
    let again = pushed(&pack, &url).unwrap();
    assert_eq!((again.sent, again.sent_bytes, again.bytes), (0, 0, first.bytes));
    assert_eq!(server.keys(), keys);

    let key = |sample: u64| format!("photos:{}:{sample}", &first.identity.to_string()[..16]);
    server.command(&[b"DEL", key(3).as_bytes(), key(7).as_bytes()]);
    // Another length, another head, another content: only reading back finds the last one.
    server.command(&[b"APPEND", key(11).as_bytes(), b"more"]);
    server.command(&[b"SETRANGE", key(12).as_bytes(), b"12", b"x"]);
    server.command(&[b"SETRANGE", key(13).as_bytes(), b"500", b"damaged bytes"]);
    assert_eq!(pushed(&pack, &url).unwrap().sent, 4);
    assert!(command(&["verify", &url], &[]).is_err());
    assert_eq!(pushed_with(&pack, &url, |options| options.verify = true).unwrap().sent, 1);
    assert_eq!(Run::of(over(&url)).ordered_digest, Run::of(over(pack.to_str().unwrap())).ordered_digest);
}

#[test]
fn a_push_that_was_stopped_leaves_no_dataset_and_goes_on() {
    let photos = photos();
    let Some(server) = RedisServer::start(photos.scratch(), &[]) else { return };
    let (pack, url) = (Pack::open(&photos.pack()).unwrap(), server.url("photos"));
    let options = PushOptions::default();
    let mut stop = |now: PushProgress| match now.samples {
        0 => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    };
    let one = PushOptions { threads: 1, ..PushOptions::default() };
    assert!(matches!(push(&pack, &url, &one, &mut stop), Err(PushError::Cancelled)));
    assert!(!value_keys(&server).is_empty());
    let said = refused(over(&url));
    assert!(said.contains("the push of photos has not ended"), "{said}");
    let rest = push(&pack, &url, &options, &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(rest.sent > 0 && rest.sent < 48, "{}", rest.sent);
    assert_eq!(Run::of(over(&url)).ordered_digest, Run::of(over(photos.pack().to_str().unwrap())).ordered_digest);
    assert!(!server.keys().contains(&"photos:pushing".to_owned()));
}

#[test]
fn another_pack_replaces_a_dataset_only_if_asked_to_and_ends_runs_over_it() {
    let photos = photos();
    let Some(server) = RedisServer::start(photos.scratch(), &[]) else { return };
    let (pack, url) = (photos.pack(), server.url("photos"));
    pushed(&pack, &url).unwrap();
    let raw = photos.pack_as("raw.ddlp", PackFormat::of(StoredForm::Raw));
    let said = pushed(&raw, &url).unwrap_err();
    assert!(matches!(said, PushError::Exists { .. }) && said.to_string().contains("another pack"), "{said}");

    let mut run = over(&url).with(|o| o.epochs = 1000).build().unwrap();
    run.next().unwrap().unwrap();
    assert_eq!(pushed_with(&raw, &url, |options| options.force = true).unwrap().sent, 48);
    let said = chain(&run.filter_map(Result::err).next().expect("the run ends"));
    assert!(said.contains("photos was replaced after it was opened: start the run again"), "{said}");
    assert_eq!(value_keys(&server).len(), 49, "nothing is left of the first pack");
    assert_eq!(Run::of(over(&url)).ordered_digest, Run::of(over(raw.to_str().unwrap())).ordered_digest);
}

#[test]
fn what_a_stopped_push_has_left_goes_when_another_pack_is_pushed() {
    let photos = photos();
    let Some(server) = RedisServer::start(photos.scratch(), &[]) else { return };
    let (pack, url) = (photos.pack(), server.url("photos"));
    let raw = photos.pack_as("raw.ddlp", PackFormat::of(StoredForm::Raw));
    let stopped = push(&Pack::open(&raw).unwrap(), &url, &PushOptions::default(), &mut |now| match now.samples {
        0 => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    });
    assert!(matches!(stopped, Err(PushError::Cancelled)));
    pushed(&pack, &url).unwrap();
    assert_eq!(value_keys(&server).len(), 49);
}

#[test]
fn a_missing_value_ends_the_run_with_what_to_do_and_is_not_corrupt() {
    let photos = photos();
    let Some(server) = RedisServer::start(photos.scratch(), &[]) else { return };
    let (pack, url) = (photos.pack(), server.url("photos"));
    let identity = pushed(&pack, &url).unwrap().identity.to_string();
    let key = format!("photos:{}:7", &identity[..16]);
    server.command(&[b"DEL", key.as_bytes()]);
    let skipping = || over(&url).with(|o| o.policy = ddlp_host::CorruptPolicy::Skip);
    let said = refused(skipping());
    assert!(said.contains(&key) && said.contains("evicted") && said.contains("`ddlp push`"), "{said}");
    server.command(&[b"DEL", b"photos:index"]);
    let said = refused(skipping());
    assert!(said.contains("the server has no dataset photos"), "{said}");
}

#[test]
fn a_damaged_value_is_a_corrupt_sample() {
    let photos = photos();
    let Some(server) = RedisServer::start(photos.scratch(), &[]) else { return };
    let (pack, url) = (photos.pack(), server.url("photos"));
    let identity = pushed(&pack, &url).unwrap().identity.to_string();
    let key = |rest: &str| format!("photos:{}:{rest}", &identity[..16]).into_bytes();
    let name = ddlp_dataset::Dataset::name(&Pack::open(&pack).unwrap(), 7);
    server.command(&[b"SETRANGE", &key("7"), b"5000", b"damaged bytes"]);
    let said = refused(over(&url));
    assert!(said.contains(&name) && said.contains("wrong checksum"), "{said}");
    let said = command(&["verify", &url], &[]).unwrap_err();
    assert!(said.is_empty(), "{said}");
    // Cut short.
    let value = server.command(&[b"GET", &key("7")]);
    server.command(&[b"SET", &key("7"), &value[..1000]]);
    let said = refused(over(&url));
    assert!(said.contains(&name), "{said}");
    server.command(&[b"SETRANGE", &key("index:0"), b"5000", b"damaged bytes"]);
    let said = refused(over(&url));
    assert!(said.contains("index:0 is damaged") && said.contains("`ddlp push --verify`"), "{said}");
}

#[test]
fn a_server_that_is_killed_and_started_again_changes_nothing() {
    let photos = photos();
    let Some(mut server) = RedisServer::start(photos.scratch(), &[]) else { return };
    let (pack, url) = (photos.pack(), server.url("photos"));
    pushed(&pack, &url).unwrap();
    server.command(&[b"SAVE"]);
    let mut batches = 0;
    let run = Run::with(over(&url).with(|o| (o.batch_size, o.epochs) = (4, 6)), |_, _| {
        batches += 1;
        if batches % 16 == 4 {
            server.kill();
            server.restart();
        }
    });
    assert!(batches >= 64, "{batches}");
    run.assert_exactly_once(6, SAMPLES.into());
    let file = Run::of(over(pack.to_str().unwrap()).with(|o| (o.batch_size, o.epochs) = (4, 6)));
    assert_eq!(run.ordered_digest, file.ordered_digest);
}

#[test]
fn a_server_that_loses_its_memory_ends_the_run() {
    let photos = photos();
    let Some(mut server) = RedisServer::start(photos.scratch(), &[]) else { return };
    let url = server.url("photos");
    pushed(&photos.pack(), &url).unwrap();
    let mut run = over(&url).with(|o| o.epochs = 1000).build().unwrap();
    run.next().unwrap().unwrap();
    server.kill();
    server.restart();
    let said = chain(&run.filter_map(Result::err).next().expect("the run ends"));
    assert!(said.contains("photos was removed from the server after it was opened: push it again"), "{said}");
}

#[test]
fn a_drive_with_the_same_pack_takes_part() {
    let photos = photos();
    let Some(server) = RedisServer::start(photos.scratch(), &[]) else { return };
    let url = server.url("photos");
    pushed(&photos.pack(), &url).unwrap();
    let agent = Agent::start(&photos.pack(), &photos.scratch().join("state"), &["--slots", "4"]);
    let builder = over(&url).with(|o| o.strategy = Strategy::Ordered);
    let run = Run::of(builder.drive(DriveSpec::Remote(agent.url())));
    assert_eq!(run.ordered_digest, Run::of(over(photos.pack().to_str().unwrap())).ordered_digest);
    run.assert_exactly_once(2, SAMPLES.into());
}

#[test]
fn passwords_come_from_the_environment_and_are_never_shown() {
    let photos = photos();
    let Some(server) = RedisServer::start(photos.scratch(), &["--requirepass", "sesame"]) else { return };
    let (pack, url) = (photos.pack(), server.url("photos"));
    let pack = pack.to_str().unwrap();
    let right = [("REDISCLI_AUTH", "sesame")];
    command(&["push", pack, &url, "--quiet"], &right).unwrap();
    assert_eq!(digest(&url, &right), digest(pack, &[]));
    for environment in [&[][..], &[("REDISCLI_AUTH", "barley")]] {
        for arguments in [&["run", &url, "--quiet"][..], &["push", pack, &url, "--quiet"]] {
            let said = command(arguments, environment).unwrap_err();
            assert!(said.contains("refuses the login") && said.contains("REDISCLI_AUTH"), "{said}");
            assert!(!said.contains("barley"), "{said}");
        }
    }
    let secret = url.replace("redis://", "redis://me:sesame@");
    for arguments in [&["run", &secret, "--quiet"][..], &["push", pack, &secret, "--quiet"], &["inspect", &secret]] {
        let said = command(arguments, &right).unwrap_err();
        assert!(said.contains("REDISCLI_AUTH") && !said.contains("sesame"), "{said}");
    }
}

#[test]
fn a_user_needs_few_rights() {
    let photos = photos();
    let Some(server) = RedisServer::start(photos.scratch(), &[]) else { return };
    let rules = "ACL SETUSER reader on >word ~photos:* +get +getrange +exists +select";
    server.command(&rules.split(' ').map(str::as_bytes).collect::<Vec<_>>());
    let (pack, url) = (photos.pack(), server.url("photos"));
    pushed(&pack, &url).unwrap();
    let (user, word) = (url.replace("redis://", "redis://reader@"), [("REDISCLI_AUTH", "word")]);
    assert_eq!(digest(&user, &word), digest(pack.to_str().unwrap(), &[]));
    let said = command(&["push", pack.to_str().unwrap(), &user, "--quiet"], &word).unwrap_err();
    assert!(said.contains("NOPERM") && said.contains("UNLINK"), "{said}");
}

#[test]
fn tls_needs_a_certificate_that_is_trusted() {
    let photos = photos();
    let Some(server) = RedisServer::start_with_tls(photos.scratch()) else { return };
    let (pack, url): (PathBuf, String) = (photos.pack(), server.tls_url("photos"));
    let (pack, authority) = (pack.to_str().unwrap(), server.authority());
    let trusted = [("SSL_CERT_FILE", authority.to_str().unwrap())];
    command(&["push", pack, &url, "--quiet"], &trusted).unwrap();
    assert_eq!(digest(&url, &trusted), digest(pack, &[]));
    let said = digest(&url, &[]).unwrap_err();
    assert!(said.contains("certificate") && said.contains("SSL_CERT_FILE"), "{said}");
    let said = digest(&url.replace("localhost", "127.0.0.1"), &trusted).unwrap_err();
    assert!(said.contains("certificate"), "{said}");
}

#[test]
fn a_server_that_wants_a_certificate_of_the_client_gets_it() {
    let photos = photos();
    let Some(server) = RedisServer::start_with_tls(photos.scratch()) else { return };
    server.say("CONFIG SET tls-auth-clients yes");
    let (pack, url, stranger) = (photos.pack(), server.tls_url("photos"), tempfile::tempdir().unwrap());
    ddlp_tests::certificates::make(stranger.path());
    let (pack, authority) = (pack.to_str().unwrap(), server.authority());
    let trusted = ("SSL_CERT_FILE", authority.to_str().unwrap());
    let of = |folder: &Path| ["leaf.pem", "leaf.key"].map(|file| folder.join(file).to_str().unwrap().to_owned());
    let shown = |[certificate, key]: &[String; 2], arguments: &[&str]| {
        command(arguments, &[("SSL_CLIENT_CERT_FILE", certificate), ("SSL_CLIENT_KEY_FILE", key), trusted])
    };
    let own = of(authority.parent().unwrap());
    shown(&own, &["push", pack, &url, "--quiet"]).unwrap();
    shown(&own, &["verify", &url]).unwrap();
    let said = shown(&of(stranger.path()), &["run", &url, "--quiet"]).unwrap_err();
    assert!(said.contains("does not accept the certificate of SSL_CLIENT_CERT_FILE"), "{said}");
    let said = digest(&url, &[trusted]).unwrap_err();
    assert!(said.contains("SSL_CLIENT_CERT_FILE and SSL_CLIENT_KEY_FILE name the files"), "{said}");
    let said = digest(&url, &[trusted, ("SSL_CLIENT_KEY_FILE", &own[1])]).unwrap_err();
    assert!(said.contains("SSL_CLIENT_KEY_FILE is set, but not SSL_CLIENT_CERT_FILE"), "{said}");
}

#[test]
fn what_a_server_refuses_is_an_error_that_says_what_to_do() {
    let photos = photos();
    let Some(server) = RedisServer::start(photos.scratch(), &["--maxmemory", "5mb"]) else { return };
    let pack = photos.pack_as("raw.ddlp", PackFormat::of(StoredForm::Raw));
    let said = pushed(&pack, &server.url("photos")).unwrap_err().to_string();
    assert!(said.contains("its memory is full: raise its maxmemory"), "{said}");
    assert!(refused(over(&server.url("photos"))).contains("the push of photos has not ended"));
    server.command(&[b"FLUSHALL"]);
    server.command(&[b"CONFIG", b"SET", b"maxmemory", b"0"]);

    server.command(&[b"SET", b"other:index", b"5"]);
    for said in [refused(over(&server.url("other"))), pushed(&pack, &server.url("other")).unwrap_err().to_string()] {
        assert!(said.contains("the value of other:index was not written by `ddlp push`"), "{said}");
    }
    server.command(&[b"LPUSH", b"list:index", b"5"]);
    for said in [refused(over(&server.url("list"))), pushed(&pack, &server.url("list")).unwrap_err().to_string()] {
        assert!(said.contains("WRONGTYPE") && said.contains("choose another name"), "{said}");
    }
    let elsewhere = server.url("photos").replace("/0/", "/99/");
    assert!(refused(over(&elsewhere)).contains("DB index is out of range"), "{}", refused(over(&elsewhere)));
}

#[test]
fn a_server_that_evicts_is_named() {
    let photos = photos();
    let rules = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let Some(server) = RedisServer::start(photos.scratch(), &rules) else { return };
    let url = server.url("photos");
    assert_eq!(pushed(&photos.pack(), &url).unwrap().evicts.as_deref(), Some("allkeys-lru"));
    let said = command(&["push", photos.pack().to_str().unwrap(), &url], &[]).unwrap();
    assert!(said.contains("48 samples were there") && said.contains("maxmemory-policy allkeys-lru"), "{said}");
}

#[test]
fn a_url_without_a_server_is_an_error_soon() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = open_dataset(Path::new(&format!("redis://{free}/0/photos")), &Host::system()).map(drop).unwrap_err();
    assert!(matches!(error, LoaderError::Store { .. }), "{error}");
    assert!(error.to_string().contains("check the address, and that the server runs"), "{error}");
}
