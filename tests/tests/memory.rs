//! Memory stays bounded with large images and a slow consumer, however large the dataset is, and one slow sample holds
//! up nothing but its batch.

use ddlp_dataset::pack::{PackFormat, StoredForm};
use ddlp_host::{DriveSpec, Strategy};
use ddlp_pixels::encode::{JpegOptions, Layout};
use ddlp_tests::agent::{Agent, program};
use ddlp_tests::photos::{Photos, image};
use ddlp_tests::runs::{Run, loader};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Interval, in images, between images of 4 megapixels.
const LARGE_EVERY: u32 = 16;
const BATCH: usize = 256;
/// Bytes of a batch of 224 × 224, in 10⁶.
const BATCH_MB: f64 = (BATCH * 224 * 224 * 3) as f64 / 1e6;

/// Makes small images with large ones among them: three of four large ones are progressive, with all colours or as
/// CMYK, so that their coefficients take 24 or 32 MB.
fn mixed_photos(count: u32) -> Photos {
    let large = |layout, progressive| {
        image(1, (2300, 1740), &JpegOptions { layout, progressive, quality: 60, ..JpegOptions::default() })
    };
    let yuv444 = large(Layout::Yuv444, true);
    let large = [yuv444.clone(), large(Layout::Cmyk, true), large(Layout::Yuv420, false), yuv444];
    let small: Vec<Vec<u8>> = (0..7).map(|number| image(number, (120, 90), &JpegOptions::default())).collect();
    Photos::of(count, |number| {
        let is_large = number.is_multiple_of(LARGE_EVERY);
        let (files, at) = if is_large { (&large[..], number / LARGE_EVERY) } else { (&small[..], number) };
        files[at as usize % files.len()].clone()
    })
}

/// Packs the files as they are: progressive ones are decoded from all their coefficients.
fn kept(photos: &Photos) -> PathBuf {
    photos.pack_as("kept.ddlp", PackFormat::of(StoredForm::Kept))
}

/// Returns the peaks of host and agent in 10⁶ bytes, for a consumer so slow that all eight buffers and all four slots
/// fill up.
fn peaks_mb(pack: &Path) -> (f64, f64) {
    let json = pack.with_extension("json");
    let status = Command::new(program("ddlp"))
        .arg("run")
        .arg(pack)
        .args([
            "--batch",
            &BATCH.to_string(),
            "--threads",
            "4",
            "--drive-threads",
            "1",
            "--buffers",
            "8",
            "--slots",
            "4",
        ])
        .args([
            "--strategy",
            "ordered",
            "--drive",
            "local",
            "--samples",
            "3072",
            "--step-ms",
            "400",
            "--quiet",
            "--json",
        ])
        .arg(&json)
        .status()
        .expect("the command runs");
    assert!(status.success());
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).expect("a report")).expect("JSON");
    assert_eq!(report["images"], 3072);
    let mb = |value: &serde_json::Value| value.as_f64().expect("measured");
    (mb(&report["peak_memory_mb"]), mb(&report["prongs"][1]["peak_memory_mb"]))
}

#[test]
fn host_and_agent_stay_within_their_memory_however_large_the_dataset_is() {
    let [few, many] = [32, 320].map(mixed_photos);
    for pack in [kept(&few), kept(&many), many.pack()] {
        let (host_mb, agent_mb) = peaks_mb(&pack);
        let name = pack.display();
        let what = format!("{name}: host {host_mb} MB, agent {agent_mb} MB, a batch has {BATCH_MB} MB");
        println!("{what}");
        assert!(host_mb > 2.0 * BATCH_MB, "the buffers were in use: {what}");
        assert!(host_mb < 400.0, "{what}");
        assert!(agent_mb < 64.0 + 4.0 * (BATCH_MB + 0.1), "{what}");
    }
}

/// A board's agent has to get by with little: 16 MB with the program's file, of which a release build has 6 MB
/// resident.
#[test]
fn an_idle_agent_has_little_memory_of_its_own_before_and_after_work() {
    let photos = Photos::new(64);
    let agent = Agent::start(&photos.pack(), &photos.scratch().join("state"), &["--slots", "4", "--threads", "2"]);
    let before = agent.own_bytes();
    Run::of(loader(&photos.pack()).strategy(Strategy::Csd).drive(DriveSpec::Remote(agent.url())))
        .assert_exactly_once(1, 64);
    let after = agent.own_bytes();
    println!("{before} bytes before, {after} after");
    assert!(before < 2_000_000 && after < 10_000_000, "{before} bytes before, {after} after");
}

#[test]
fn an_agent_reports_the_memory_that_the_kernel_reports() {
    let photos = mixed_photos(32);
    // Linux includes memory of the parent process in some of a child's figures.
    let own = std::hint::black_box(vec![1_u8; 512 << 20]);
    let agent = Agent::start(&kept(&photos), &photos.scratch().join("state"), &["--slots", "4", "--threads", "4"]);
    drop(own);
    let before = agent.peak_bytes();
    let builder = loader(&kept(&photos)).strategy(Strategy::Csd).epochs(4).drive(DriveSpec::Remote(agent.url()));
    let run = Run::of(builder);
    run.assert_exactly_once(4, 32);
    let said = run.report.prongs[1].peak_memory_mb.expect("an agent on Linux tells it") * 1e6;
    let peak = agent.peak_bytes();
    println!("{before} bytes before, {peak} after, {said} are said");
    assert!(before < peak, "large images take memory: {before} before, {peak} after");
    // The agent may have grown after it was asked.
    assert!(before as f64 <= said && said <= peak as f64, "{said} bytes are said; {before} before, {peak} after");
}
