//! A dataset that disappears or changes during `ddlp run` ends the command with status 1, whatever the policy.

use crate::{Running, json, photos, succeed, wait_for};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Starts a run of far more epochs than can be delivered, acts on the dataset after the first batches, and returns the
/// message of the run's end.
fn message_after(folder: &Path, dataset: &str, act: impl FnOnce()) -> String {
    let line = format!(
        "run {dataset} --drive none --batch 4 --epochs 1000000 --policy skip --json o.json --state-out at.json \
         --state-every 1"
    );
    let mut running = Running::start(folder, &line);
    let lines = running.lines();
    let is_delivered = |state: &Value| state["epoch"] != 0 || state["delivered"] != json("[]");
    wait_for("a batch", || {
        fs::read_to_string(folder.join("at.json")).ok().map(|state| json(&state)).filter(is_delivered)
    });
    act();
    assert_eq!(running.status(), Some(1));
    let said: Vec<String> = lines.map_while(Result::ok).skip_while(|line| !line.starts_with("error: ")).collect();
    let figures = json(&fs::read_to_string(folder.join("o.json")).unwrap());
    assert_eq!(figures["corrupt"], json("[]"), "what is gone is not corrupt");
    assert!(figures["ended_early"].is_string(), "{figures}");
    said.join("\n")
}

#[test]
fn a_folder_that_is_removed_ends_the_run_and_is_named() {
    let home = photos(0);
    let folder = home.path();
    let said = message_after(folder, "photos", || fs::remove_dir_all(folder.join("photos")).unwrap());
    // A thread may notice when only a file or a class is gone so far.
    assert!(said.contains("because: photos") && said.contains(" is gone: "), "{said}");
}

#[test]
fn a_pack_that_is_overwritten_ends_the_run_as_changed() {
    let home = photos(0);
    let folder = home.path();
    succeed(folder, "sample-data others --images 24 --classes 3 --seed 9 --quiet");
    succeed(folder, "pack photos p.ddlp --quiet");
    succeed(folder, "pack others q.ddlp --quiet");
    let overwrite = || fs::copy(folder.join("q.ddlp"), folder.join("p.ddlp")).map(drop).unwrap();
    let said = message_after(folder, "p.ddlp", overwrite);
    assert!(said.contains("p.ddlp") && said.contains("the pack has changed since it was opened"), "{said}");
}
