//! Datasets, runs of `ddlp` here and in guests, and a lock that lets one test at a time use the machine.

use anyhow::{Context, Result, ensure};
use ddlp_pixels::encode::{JpegOptions, Layout};
use ddlp_qemu::guest::{self, Guest};
use ddlp_qemu::programs;
use ddlp_tests::photos::{Photos, image};
use serde_json::Value;
use std::io::Write;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Images of a dataset.
pub const IMAGES: u32 = 240;
/// Samples of a batch.
pub const BATCH: u64 = 8;
/// Longest run of a program in a guest. Guests share the cores with everything else that runs here.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Runs a test that boots guests, one test at a time, if `DDLP_QEMU=1`. If it fails, shows the ends of the consoles.
pub fn in_guests(test: &str, body: impl FnOnce() -> Result<()>) -> Result<()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    if std::env::var_os("DDLP_QEMU").is_none_or(|value| value != "1") {
        // Straight to standard error, since the harness shows a test's output only if the test fails.
        let _ = writeln!(
            std::io::stderr(),
            "skipped: {test} boots guests under QEMU, which takes minutes; DDLP_QEMU=1 runs it"
        );
        return Ok(());
    }
    let _one_at_a_time = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let begun = SystemTime::now();
    // A guest that is dropped during a panic shows its console itself.
    body().inspect_err(|_| eprintln!("{}", guest::consoles_since(begun)))
}

/// Makes small images of every kind that the encoder makes, four of them PNG.
pub fn photos() -> Photos {
    let photos = Photos::with_sizes(IMAGES, |index| (49 + index * 13 % 100, 37 + index * 29 % 110));
    for index in (0..IMAGES).step_by(60) {
        let (width, height) = (61 + index / 4, 47 + index / 6);
        let pixels = ddlp_pixels::synthetic::photo(width, height, index);
        let rgb = image::RgbImage::from_raw(width, height, pixels).expect("all its pixels");
        let mut png = std::io::Cursor::new(Vec::new());
        rgb.write_to(&mut png, image::ImageFormat::Png).expect("an image is encodable");
        photos.write(index, png.get_ref());
    }
    photos
}

/// Makes `count` JPEG files with one to three bits flipped in each, from a seed.
pub fn flipped(count: u32, seed: u64) -> Photos {
    let layouts = [Layout::Yuv420, Layout::Yuv444, Layout::Gray, Layout::Yuv422];
    Photos::of(count, |index| {
        let mut rng = ddlp_pixels::draw::Rng::from_key([seed, index.into(), 0, 0]);
        let options = JpegOptions {
            quality: [60, 85, 95][index as usize % 3],
            layout: layouts[index as usize % 4],
            progressive: index % 5 == 0,
            restart_rows: u32::from(index % 3 == 1),
            ..JpegOptions::default()
        };
        let mut bytes = image(index, (40 + index % 37, 32 + index % 41), &options);
        for _ in 0..=rng.below(3) {
            let bit = rng.below(bytes.len() as u64 * 8);
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        bytes
    })
}

/// Figures of `ddlp run --json`.
pub struct Figures(Value);

impl Figures {
    /// Returns the order-free digest over sample ids and pixels.
    pub fn digest(&self) -> &str {
        self.0["digest"].as_str().expect("a digest was asked for")
    }

    /// Returns the number of delivered images.
    pub fn images(&self) -> u64 {
        self.0["images"].as_u64().expect("a count")
    }

    /// Returns the number of batches that the drives prepared.
    pub fn drive_batches(&self) -> u64 {
        let prongs = self.0["prongs"].as_array().expect("prongs");
        prongs.iter().filter(|prong| prong["name"] != "cpu").filter_map(|prong| prong["batches"].as_u64()).sum()
    }

    /// Returns the number of batches that the CPU prepared.
    pub fn cpu_batches(&self) -> u64 {
        let all = self.0["batches"].as_u64().expect("a count");
        all - self.drive_batches()
    }

    /// Returns the batches of an epoch in the order of their delivery.
    pub fn delivered(&self, epoch: u64) -> Vec<u64> {
        let deliveries = self.0["timeline"]["deliveries"].as_array().expect("deliveries");
        let of_epoch = deliveries.iter().filter(|delivery| delivery["epoch"] == epoch);
        of_epoch.filter_map(|delivery| delivery["batch"].as_u64()).collect()
    }

    /// Returns the kinds of all faults, including recoveries.
    pub fn faults(&self) -> Vec<String> {
        let faults = self.0["faults"].as_array().expect("faults");
        faults.iter().filter_map(|fault| fault["kind"].as_str().map(String::from)).collect()
    }

    /// Asserts that `epochs` epochs of `batches` batches were delivered, each batch once.
    pub fn assert_each_batch_once(&self, epochs: u64, batches: u64) {
        assert_eq!(self.0["timeline"]["kept_every"], 1, "all deliveries are listed");
        let deliveries = self.0["timeline"]["deliveries"].as_array().expect("deliveries");
        let number = |delivery: &Value, key: &str| delivery[key].as_u64().expect("a number");
        let mut seen: Vec<(u64, u64)> =
            deliveries.iter().map(|delivery| (number(delivery, "epoch"), number(delivery, "batch"))).collect();
        seen.sort_unstable();
        let all: Vec<(u64, u64)> =
            (0..epochs).flat_map(|epoch| (0..batches).map(move |batch| (epoch, batch))).collect();
        assert_eq!(seen, all, "each batch once");
    }
}

/// Runs `ddlp` on this machine. Returns its output.
pub fn ddlp_here(args: &str) -> Result<String> {
    let mut command = Command::new(programs::native("ddlp")?);
    let output = command.args(args.split_whitespace()).output().context("cannot run ddlp")?;
    ensure!(output.status.success(), "ddlp {args}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// Runs `ddlp run` on this machine.
pub fn run_here(args: &str) -> Result<Figures> {
    let json = tempfile::NamedTempFile::new()?;
    ddlp_here(&format!("run {args} --quiet --digest --json {}", json.path().display()))?;
    Ok(Figures(serde_json::from_slice(&std::fs::read(json.path())?)?))
}

/// Runs `ddlp run` in a guest, as `program`.
pub fn run_in(guest: &Guest, program: &str, args: &str) -> Result<Figures> {
    guest.succeed(&run_command(program, args), PATIENCE)?;
    figures_in(guest)
}

/// Returns the command of a run whose figures [`figures_in`] reads.
pub fn run_command(program: &str, args: &str) -> String {
    format!("exec {program} run {args} --digest --json /tmp/figures.json")
}

/// Reads the figures of the last run in a guest.
pub fn figures_in(guest: &Guest) -> Result<Figures> {
    let text = guest.succeed("cat /tmp/figures.json", Duration::from_secs(30))?;
    Ok(Figures(serde_json::from_str(&text).with_context(|| format!("not the figures of a run: {text}"))?))
}
