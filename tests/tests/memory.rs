//! Memory stays bounded with large images and a slow consumer, and one slow sample holds up nothing but its batch.

use ddlp_host::Strategy;
use ddlp_pixels::encode::{JpegOptions, Layout, jpeg};
use ddlp_tests::agent::program;
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::{Run, loader};
use std::process::Command;

/// One image in eight has 4 megapixels.
fn mixed_photos() -> Photos {
    Photos::with_sizes(48, |index| if index.is_multiple_of(8) { (2300, 1740) } else { (120, 90) })
}

#[test]
fn host_and_agent_stay_within_their_memory() {
    let photos = mixed_photos();
    let json = photos.scratch().join("run.json");
    // The consumer is slow enough that all eight buffers and all slots fill up.
    let status = Command::new(program("ddlp"))
        .arg("run")
        .arg(photos.pack())
        .args(["--batch", "256", "--threads", "4", "--buffers", "8", "--strategy", "ordered", "--drive", "local"])
        .args(["--slots", "4", "--samples", "3072", "--step-ms", "400", "--quiet", "--json"])
        .arg(&json)
        .status()
        .expect("the command runs");
    assert!(status.success());
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).expect("a report")).expect("JSON");
    assert_eq!(report["images"], 3072);
    let host_mb = report["peak_memory_mb"].as_f64().expect("measured");
    let batch_mb = 256.0 * 224.0 * 224.0 * 3.0 / 1e6;
    assert!(host_mb > 2.0 * batch_mb, "the buffers were in use: {host_mb} MB");
    assert!(host_mb < 400.0, "{host_mb} MB");
    let agent_mb = report["prongs"][1]["peak_memory_mb"].as_f64().expect("the agent reports it");
    assert!(agent_mb < 64.0 + 4.0 * (batch_mb + 0.1), "{agent_mb} MB with four slots of {batch_mb} MB");
}

#[test]
fn a_slow_sample_holds_up_nothing_but_its_own_batch() {
    let photos = Photos::new(64);
    let side = 7000;
    let flat = jpeg(
        &vec![90; side * side],
        side as u32,
        side as u32,
        &JpegOptions { layout: Layout::Gray, ..JpegOptions::default() },
    );
    photos.write(5, &flat.expect("a flat image is encodable"));
    let run = Run::of(loader(&photos.folder()).strategy(Strategy::Wrr).buffers(4));
    run.assert_exactly_once(1, 64);
    let slow_id = (0..64u64).find(|&id| name_of(&photos, id).contains("00005")).expect("it is in the folder");
    let delivered_at = run.batches.iter().position(|ids| ids.contains(&slow_id)).expect("it was delivered");
    let (_, slow_batch, _) = run.order[delivered_at];
    let overtaken = run.order[..delivered_at].iter().filter(|&&(_, batch, _)| batch > slow_batch).count();
    assert!(slow_batch < 6, "the seed leaves batches behind the slow one to overtake it");
    assert!(overtaken > 0, "batch {slow_batch} came as number {delivered_at} of {:?}", run.order);
}

fn name_of(photos: &Photos, id: u64) -> String {
    ddlp_dataset::open(&photos.folder()).expect("the folder opens").name(id)
}
