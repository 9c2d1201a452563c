//! States and plans: what a stopped, killed or finished run leaves, and what another run does with it.

use crate::{Running, fail, json, names, photos, refuse, run, stderr, succeed, wait_for};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Returns the batches that were delivered according to the JSON report, each as epoch and number.
fn delivered(figures: &Value) -> Vec<(u64, u64)> {
    let deliveries = figures["timeline"]["deliveries"].as_array().unwrap().iter();
    deliveries.map(|one| (one["epoch"].as_u64().unwrap(), one["batch"].as_u64().unwrap())).collect()
}

/// Returns the batches that were delivered before according to a state, for epochs of `batches` batches.
fn done(state: &Value, batches: u64) -> BTreeSet<(u64, u64)> {
    let epoch = state["epoch"].as_u64().unwrap();
    let whole = (0..epoch).flat_map(|epoch| (0..batches).map(move |batch| (epoch, batch)));
    let begun = state["delivered"].as_array().unwrap().iter().map(|batch| (epoch, batch.as_u64().unwrap()));
    whole.chain(begun).collect()
}

fn state(folder: &Path, name: &str) -> Option<Value> {
    serde_json::from_str(&fs::read_to_string(folder.join(name)).ok()?).ok()
}

fn digest(figures: &Value) -> u128 {
    u128::from_str_radix(figures["digest"].as_str().unwrap(), 16).unwrap()
}

/// Each batch takes long to consume, so that the process is killed within one; the resumed run delivers exactly the
/// others.
#[test]
fn a_run_that_is_killed_goes_on_with_nothing_lost_or_repeated() {
    let home = photos(0);
    let folder = home.path();
    let common = "run photos --strategy cpu --batch 4 --epochs 2 --seed 5 --digest --quiet";
    let whole = json(&succeed(folder, &format!("{common} --json -")));
    for batches in [1, 3, 8] {
        let line = format!("{common} --step-ms 300 --state-out at.json --state-every 1 --json never.json");
        let mut killed = Running::start(folder, &line);
        wait_for("a state", || state(folder, "at.json").filter(|state| done(state, 6).len() >= batches));
        killed.0.kill().unwrap();
        assert_eq!(killed.status(), None);
        assert!(!folder.join("never.json").exists());
        let left = state(folder, "at.json").expect("a whole state");
        let before = done(&left, 6);
        assert!((batches..12).contains(&before.len()), "{left}");

        let rest = json(&succeed(folder, "run photos --resume at.json --digest --quiet --json -"));
        let after = delivered(&rest);
        let all: BTreeSet<_> = before.iter().copied().chain(after.iter().copied()).collect();
        assert_eq!((all.len(), before.len() + after.len()), (12, 12), "{left} {after:?}");
        // The samples and pixels are the same: the digest of all is the sum of both parts.
        let first = json(&succeed(folder, &format!("{common} --stop-after {} --json -", before.len())));
        assert_eq!(digest(&first).wrapping_add(digest(&rest)), digest(&whole));
        fs::remove_file(folder.join("at.json")).unwrap();
    }
}

/// A step takes longer than the interval, so that the state follows each batch.
#[test]
fn a_state_is_written_by_time() {
    let home = photos(0);
    let folder = home.path();
    let line = "run photos --strategy cpu --batch 4 --epochs 2 --step-ms 30 --quiet --state-out at.json --state-every";
    let mut running = Running::start(folder, &format!("{line} 0.02s"));
    wait_for("a state", || state(folder, "at.json").filter(|state| done(state, 6).len() >= 3));
    running.0.kill().unwrap();
    running.status();
    fs::remove_file(folder.join("at.json")).unwrap();
    // The interval is longer than the run, so the state from the beginning stays until the end.
    let mut running = Running::start(folder, &format!("{line} 86400s"));
    wait_for("a state", || state(folder, "at.json"));
    let mut seen = BTreeSet::new();
    while running.0.try_wait().unwrap().is_none() {
        seen.extend(state(folder, "at.json").map(|state| done(&state, 6).len()));
    }
    assert!(seen.is_subset(&BTreeSet::from([0, 12])), "{seen:?} batches were done in the states");
    assert_eq!(state(folder, "at.json").map(|state| done(&state, 6).len()), Some(12));
}

/// Batches that are prepared ahead are not done, nor is the batch that the consumer works on.
#[test]
fn a_state_is_written_at_the_beginning_and_counts_what_was_consumed() {
    let home = photos(0);
    let folder = home.path();
    fs::write(folder.join("at.json"), "of another run").unwrap();
    let line = "run photos --strategy cpu --batch 4 --step-ms 3600000 --state-out at.json --state-every 1";
    let mut running = Running::start(folder, line);
    let mut lines = running.lines();
    let line = lines.next().expect("a line of progress").expect("text");
    assert!(line.contains("1 of 6 batches delivered"), "{line}");
    let held = state(folder, "at.json").expect("a state");
    assert_eq!((&held["epoch"], &held["delivered"]), (&0.into(), &json("[]")));
    running.0.kill().unwrap();
    running.status();
    // Only the run's own file is there: no temporary one.
    assert_eq!(names(folder), ["at.json", "photos"]);
}

#[test]
fn a_state_brings_policy_and_pipeline_and_every_other_option_is_named() {
    let home = photos(2);
    let folder = home.path();
    fs::write(folder.join("p.toml"), "operations = [{ random_resized_crop = { size = 32 } }]").unwrap();
    let first =
        "run photos --drive none --batch 8 --policy skip --pipeline p.toml --stop-after 1 --state-out at.json --quiet";
    succeed(folder, first);
    fs::remove_file(folder.join("p.toml")).unwrap();
    let rest = json(&succeed(folder, "run photos --resume at.json --drive none --quiet --json -"));
    assert_eq!(rest["batches"], 2);
    let message =
        refuse(folder, "run photos --resume at.json --batch 6 --seed 1 --policy fail --pipeline imagenet-val");
    for part in [
        "--batch-size 8 --seed 0",
        "--policy skip --pipeline {",
        "--batch-size 6 --seed 1 --policy fail --pipeline imagenet-val",
    ] {
        assert!(message.contains(part), "{message}");
    }
    // A state of revision 77a8d6c has neither policy nor pipeline: the digest of both decides.
    let mut old = state(folder, "at.json").unwrap();
    old.as_object_mut().unwrap().retain(|key, _| key != "policy" && key != "pipeline");
    fs::write(folder.join("old.json"), old.to_string()).unwrap();
    let message = fail(folder, "run photos --resume old.json --drive none --quiet");
    assert!(message.contains("another pipeline or corrupt-sample policy"), "{message}");
    fs::write(folder.join("p.toml"), "operations = [{ random_resized_crop = { size = 32 } }]").unwrap();
    succeed(folder, "run photos --resume old.json --drive none --policy skip --pipeline p.toml --quiet");
}

#[test]
fn a_finished_run_has_nothing_to_do() {
    let home = photos(0);
    let folder = home.path();
    succeed(folder, "run photos --strategy cpu --batch 5 --epochs 2 --state-out end.json --quiet");
    let said = succeed(folder, "run photos --resume end.json --state-out again.json --json o.json");
    assert_eq!(said, "nothing to do: this run finished after 2 epochs; --epochs 3 continues it\n");
    assert_eq!(state(folder, "again.json"), state(folder, "end.json"));
    assert_eq!(state(folder, "o.json").unwrap()["batches"], 0);
    // With nothing to prepare, the run contacts no drive.
    succeed(folder, "run photos --resume end.json --drive tcp://127.0.0.1:1/nqn.x --strategy mte --quiet");
    let third = json(&succeed(folder, "run photos --resume end.json --epochs 3 --quiet --json -"));
    assert_eq!((&third["batches"], &third["images"]), (&5.into(), &24.into()));
}

#[test]
fn a_plan_brings_what_it_determines_and_says_what_contradicts_it() {
    let home = photos(0);
    let folder = home.path();
    let first =
        "run photos --strategy cpu --batch 5 --epochs 2 --seed 3 --samples 22 --last pad --rank 1 --world-size 2";
    let recorded = json(&succeed(folder, &format!("{first} --digest --plan-out o.plan --quiet --json -")));
    let again = json(&succeed(folder, "run photos --plan-in o.plan --digest --quiet --json -"));
    for key in ["batches", "images", "strategy", "seed", "digest", "ordered_digest"] {
        assert_eq!(again[key], recorded[key], "{key}");
    }
    let message = refuse(folder, "run photos --plan-in o.plan --batch 6 --seed 4 --epochs 3");
    assert!(
        message.contains("--batch-size 5 --epochs 2 --seed 3, but --batch-size 6 --epochs 3 --seed 4 is given"),
        "{message}"
    );
}

#[test]
fn a_plan_of_a_mix_is_replayed_and_knows_its_shares() {
    let home = photos(0);
    let folder = home.path();
    let write = |first: f64| {
        let parts = [first, 1.0 - first].map(|weight| format!("[[dataset]]\npath = \"photos\"\nweight = {weight}\n"));
        fs::write(folder.join("mix.toml"), parts.concat()).unwrap();
    };
    write(0.75);
    let first = "run mix.toml --strategy cpu --batch 5 --epochs 2 --samples 20";
    let recorded = json(&succeed(folder, &format!("{first} --digest --plan-out o.plan --quiet --json -")));
    let again = json(&succeed(folder, "run mix.toml --plan-in o.plan --digest --quiet --json -"));
    for key in ["batches", "images", "digest", "ordered_digest"] {
        assert_eq!(again[key], recorded[key], "{key}");
    }
    write(0.5);
    let message = fail(folder, "run mix.toml --plan-in o.plan");
    let shares = "15 of 24 samples and 5 of 24 samples, this run has 10 of 24 samples and 10 of 24 samples";
    assert!(message.contains(shares), "{message}");
}

#[test]
fn a_run_says_where_it_goes_on_and_how_a_stopped_one_can() {
    let home = photos(0);
    succeed(home.path(), "run photos --strategy cpu --batch 4 --stop-after 2 --state-out at.json --quiet");
    let output = run(home.path(), "run photos --resume at.json");
    assert!(stderr(&output).contains("resumes from at.json: after 2 batches\n"), "{}", stderr(&output));
    for (option, expected) in [
        ("--state-out end.json", "its state is in end.json: the same command with --resume end.json resumes it"),
        ("", "with --state-out FILE, a stopped run can be resumed"),
    ] {
        let line = format!("run photos --strategy cpu --batch 4 --step-ms 3600000 {option}");
        let mut running = Running::start(home.path(), &line);
        let mut lines = running.lines();
        lines.next().expect("a line of progress").expect("text");
        running.press(Signal::SIGTERM);
        let said = lines.map_while(Result::ok).find(|line| line.starts_with("stopped by")).expect("how it ended");
        assert!(said.contains("SIGTERM") && said.contains(expected), "{said}");
    }
}

#[test]
fn the_exit_status_contains_the_signal() {
    let home = photos(0);
    for (signal, status, name) in
        [(Signal::SIGINT, 130, "Ctrl-C"), (Signal::SIGTERM, 143, "SIGTERM"), (Signal::SIGHUP, 129, "SIGHUP")]
    {
        let line = "run photos --strategy cpu --batch 4 --step-ms 3600000 --json o.json --state-out at.json";
        let mut running = Running::start(home.path(), line);
        // It is written when the run begins.
        wait_for("a state", || state(home.path(), "at.json"));
        running.press(signal);
        assert_eq!(running.status(), Some(status));
        fs::remove_file(home.path().join("at.json")).unwrap();
        assert_eq!(state(home.path(), "o.json").unwrap()["ended_early"], name);
    }
}

#[test]
fn epochs_count_from_0_wherever_they_are_named() {
    let home = photos(1);
    let folder = home.path();
    let line = "run photos --strategy cpu --batch 8 --epochs 2 --policy skip --json o.json --report o.html --quiet";
    succeed(folder, line);
    let figures = state(folder, "o.json").unwrap();
    assert_eq!((&figures["epochs"][0]["epoch"], &figures["corrupt"][0]["epoch"]), (&0.into(), &0.into()));
    let page = fs::read_to_string(folder.join("o.html")).unwrap();
    let epochs = &page[page.find("<h2>Epochs").expect("a table of epochs")..];
    assert!(
        epochs.contains("<tr><td class=\"s\">0</td>") && !epochs.contains("<tr><td class=\"s\">2</td>"),
        "{epochs}"
    );
}
