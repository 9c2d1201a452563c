//! Two architectures give the same verdict on a damaged file.

use crate::support::{PATIENCE, ddlp_here, flipped, in_guests, run_here, run_in};
use anyhow::{Context, Result};
use ddlp_qemu::drive::DriveGuest;
use ddlp_qemu::guest::Bus;
use ddlp_qemu::programs::board;
use serde_json::Value;
use std::process::Command;

const FILES: u32 = 1000;
const SEED: u64 = 20;

/// Packs 1000 files with flipped bits on x86-64 and on aarch64: the packs are equal to the byte, and so are verdicts
/// and repaired streams. Both architectures make the same pixels of all files that are kept. No file is excluded: one
/// that would decode differently without a warning is found by its coefficients, and stored clamped.
#[test]
fn verdicts_are_the_same() -> Result<()> {
    in_guests("verdicts_are_the_same", || {
        let photos = flipped(FILES, SEED);
        let content = [("flipped", &*photos.folder()), ("bin/ddlp", &board("ddlp")?)];
        let drive = DriveGuest::start("verdicts-drive", Bus::Virtio, &content)?;
        let pack = photos.scratch().join("native.ddlp");
        ddlp_here(&format!("pack {} {} --quiet", photos.folder().display(), pack.display()))?;
        let verdicts: Value = serde_json::from_str(&ddlp_here(&format!("inspect {} --json", pack.display()))?)?;
        let count =
            |verdict: &str| verdicts["pack"][verdict].as_u64().with_context(|| format!("{verdict}: {verdicts}"));
        for verdict in ["intact", "repaired", "rejected"] {
            assert!(count(verdict)? >= 20, "seed {SEED} gives enough of each verdict: {verdict} {}", count(verdict)?);
        }
        assert_eq!(count("intact")? + count("repaired")? + count("rejected")?, u64::from(FILES));

        drive.ready()?;
        drive.guest().succeed("/disk/bin/ddlp pack /disk/flipped /tmp/arm.ddlp --quiet", PATIENCE)?;
        let said = drive.guest().succeed("sha256sum < /tmp/arm.ddlp", PATIENCE)?;
        let native = Command::new("sha256sum").arg(&pack).output().context("cannot run sha256sum")?;
        let sum = |text: &str| text.split_whitespace().next().unwrap_or_default().to_string();
        assert_eq!(sum(&said), sum(&String::from_utf8(native.stdout)?), "the packs have other bytes");

        let job = "--policy skip --max-corrupt 100% --batch 50 --drive none --pipeline imagenet-train";
        let here = run_here(&format!("{} {job}", pack.display()))?;
        let there = run_in(drive.guest(), "/disk/bin/ddlp", &format!("/tmp/arm.ddlp {job}"))?;
        assert_eq!(here.images(), count("intact")? + count("repaired")?);
        assert_eq!((there.images(), there.digest()), (here.images(), here.digest()));
        Ok(())
    })
}
