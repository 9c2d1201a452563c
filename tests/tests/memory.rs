//! Memory stays bounded with large images and a slow consumer, however large the dataset is. The tests measure whole
//! processes: agents, the command, and this program started again.

use ddlp_dataset::pack::{PackFormat, StoredForm};
use ddlp_host::{DriveSpec, LocalDrive, Progress, Strategy};
use ddlp_pixels::encode::{JpegOptions, Layout};
use ddlp_tests::agent::{Agent, program};
use ddlp_tests::photos::{Photos, image};
use ddlp_tests::runs::{Run, loader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Interval, in images, between images of 4 megapixels.
const LARGE_EVERY: u32 = 16;
const BATCH: usize = 256;
/// Samples of a batch in the short test.
const SMALL_BATCH: usize = 32;
const BUFFERS: usize = 8;
const SLOTS: usize = 4;

/// Returns the bytes of a batch of 224 × 224, in 10⁶.
fn batch_mb(samples: usize) -> f64 {
    (samples * 224 * 224 * 3) as f64 / 1e6
}

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

/// Returns the peaks of host and agent in 10⁶ bytes, for a consumer so slow that buffers and slots fill up.
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
            &BUFFERS.to_string(),
            "--slots",
            &SLOTS.to_string(),
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

/// Names the pack of the process that runs for the test below.
const HOLDS: &str = "DDLP_TEST_HOLDS";

/// Runs two consumers that take their second batch once all buffers are in use, and once all slots are. Prints the
/// peaks of host and agent in 10⁶ bytes.
fn hold(pack: &Path) {
    // As the command does.
    ddlp_pixels::map_large_blocks();
    let drive = LocalDrive {
        agent: Some(program("ddlp-device")),
        slots: Some(SLOTS as u32),
        threads: Some(1),
        ..LocalDrive::default()
    };
    // Beside a drive, the CPU would leave buffers free for batches that the drive can finish sooner.
    let run = |strategy, batches, is_full: fn(&Progress) -> bool| {
        let builder = loader(pack).with(|o| {
            o.batch_size = SMALL_BATCH;
            o.threads = Some(4);
            o.buffers = BUFFERS;
            o.strategy = strategy;
            o.epoch_samples = Some(batches * SMALL_BATCH as u64);
        });
        let builder = if strategy == Strategy::Csd { builder.drive(DriveSpec::Local(drive.clone())) } else { builder };
        let mut was_full = false;
        Run::with(builder, |_, loader| {
            if !std::mem::replace(&mut was_full, true) {
                // Large images take minutes on a busy machine, so that this has no limit of its own.
                while !is_full(&loader.progress().snapshot()) {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        })
        .report
    };
    let host_mb = run(Strategy::Cpu, 10, |progress| progress.free_buffers == 0).peak_memory_mb;
    // The consumer holds the batch that lies in the last slot.
    let report = run(Strategy::Csd, 6, |progress| progress.ready + 1 == SLOTS);
    let agent_mb = report.prongs[1].peak_memory_mb.expect("an agent on Linux tells it");
    println!("\npeaks {host_mb} {agent_mb}");
}

#[test]
fn host_and_agent_need_little_memory_beside_buffers_and_slots() {
    if let Some(pack) = std::env::var_os(HOLDS) {
        return hold(Path::new(&pack));
    }
    let photos = mixed_photos(320);
    let name = "host_and_agent_need_little_memory_beside_buffers_and_slots";
    let mut this = Command::new(std::env::current_exe().expect("this program"));
    this.args(["--exact", name, "--nocapture"]).env(HOLDS, kept(&photos)).stderr(Stdio::inherit());
    let output = this.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    let peaks = said.lines().find_map(|line| line.strip_prefix("peaks ")).expect("the peaks");
    let (host_mb, agent_mb) = peaks.split_once(' ').expect("two figures");
    let [host_mb, agent_mb] = [host_mb, agent_mb].map(|figure| figure.parse::<f64>().expect("a number"));
    let (buffers_mb, slots_mb) = (BUFFERS as f64 * batch_mb(SMALL_BATCH), SLOTS as f64 * batch_mb(SMALL_BATCH));
    let what =
        format!("host {host_mb} MB with {buffers_mb} MB of buffers, agent {agent_mb} MB with {slots_mb} of slots");
    println!("{what}");
    assert!(host_mb > buffers_mb, "the buffers were in use: {what}");
    assert!(host_mb < buffers_mb + 200.0 && agent_mb < slots_mb + 65.0, "{what}");
}

#[test]
#[ignore = "takes minutes, most of them to decode large images: .ci/full runs it"]
fn host_and_agent_stay_within_their_memory_however_large_the_dataset_is() {
    let [few, many] = [32, 320].map(mixed_photos);
    for pack in [kept(&few), kept(&many), many.pack()] {
        let (host_mb, agent_mb) = peaks_mb(&pack);
        let name = pack.display();
        let mb = batch_mb(BATCH);
        let what = format!("{name}: host {host_mb} MB, agent {agent_mb} MB, a batch has {mb} MB");
        println!("{what}");
        assert!(host_mb < 400.0, "{what}");
        assert!(agent_mb < 64.0 + SLOTS as f64 * (mb + 0.1), "{what}");
    }
}

/// A board's agent has to get by with little: 16 MB with the program's file, of which a release build has 6 MB
/// resident. The tested program can also load from stores, and a board's cannot: the tables of that code, which the
/// program's start relocates, take half a MB more.
#[test]
fn an_idle_agent_has_little_memory_of_its_own_before_and_after_work() {
    let photos = Photos::new(64);
    let agent = Agent::start(&photos.pack(), &photos.scratch().join("state"), &["--slots", "4", "--threads", "2"]);
    let before = agent.own_bytes();
    Run::of(loader(&photos.pack()).with(|o| o.strategy = Strategy::Csd).drive(DriveSpec::Remote(agent.url())))
        .assert_exactly_once(1, 64);
    let after = agent.own_bytes();
    println!("{before} bytes before, {after} after");
    assert!(before < 2_500_000 && after < 10_000_000, "{before} bytes before, {after} after");
}

#[test]
fn an_agent_reports_the_memory_that_the_kernel_reports() {
    let photos = mixed_photos(32);
    // Linux includes memory of the parent process in some of a child's figures.
    let own = std::hint::black_box(vec![1_u8; 256 << 20]);
    let agent = Agent::start(&kept(&photos), &photos.scratch().join("state"), &["--slots", "4", "--threads", "4"]);
    drop(own);
    let before = agent.peak_bytes();
    let builder = loader(&kept(&photos))
        .with(|o| (o.strategy, o.epochs) = (Strategy::Csd, 4))
        .drive(DriveSpec::Remote(agent.url()));
    let run = Run::of(builder);
    run.assert_exactly_once(4, 32);
    let said = run.report.prongs[1].peak_memory_mb.expect("an agent on Linux tells it") * 1e6;
    let peak = agent.peak_bytes();
    println!("{before} bytes before, {peak} after, {said} are said");
    assert!(before < peak, "large images take memory: {before} before, {peak} after");
    // The agent may have grown after it was asked.
    assert!(before as f64 <= said && said <= peak as f64, "{said} bytes are said; {before} before, {peak} after");
}
