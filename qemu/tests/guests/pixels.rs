//! One pixel path on two architectures.

use crate::support::{BATCH, IMAGES, in_guests, photos, run_here, run_in};
use anyhow::Result;
use ddlp_pixels::{Format, Limits, Preparer};
use ddlp_qemu::HOST_NQN;
use ddlp_qemu::drive::{DriveGuest, Serve};
use ddlp_qemu::guest::Bus;
use ddlp_qemu::host::{HostGuest, HostKernel};
use ddlp_qemu::programs::board;
use ddlp_tests::photos::Photos;
use std::collections::BTreeSet;

/// Compares the order-free digest of an epoch, for both training pipelines, prepared by this machine's CPU, the CPU of
/// the ARM guest, the drive in that guest, and the CPU of the x86-64 guest, which has other vector instructions.
#[test]
fn pixels_are_the_same() -> Result<()> {
    in_guests("pixels_are_the_same", || {
        let photos = photos();
        assert_every_kind(&photos);
        let pack = photos.pack();
        let content = [("images.ddlp", &*pack), ("bin/ddlp", &board("ddlp")?)];
        let drive = DriveGuest::start("pixels-drive", Bus::Nvme, &content)?;
        let host = HostGuest::start("pixels-host", HostKernel::Linux6_1, false, &[("images.ddlp", &pack)])?;
        drive.ready()?;
        host.guest().ready()?;
        let agent = drive.serve(&Serve::new("images.ddlp", BATCH))?;
        for pipeline in ["imagenet-train", "cifar-train"] {
            let job = format!("--pipeline {pipeline} --batch {BATCH} --seed 11");
            let pack = pack.display();
            let native = run_here(&format!("{pack} {job} --drive none"))?;
            assert_eq!(native.images(), u64::from(IMAGES));
            let others = [
                (
                    "drive",
                    run_here(&format!(
                        "{pack} {job} --strategy csd --host-nqn {HOST_NQN} --drive {}",
                        agent.url_here()
                    ))?,
                ),
                ("arm cpu", run_in(drive.guest(), "/disk/bin/ddlp", &format!("/disk/images.ddlp {job} --drive none"))?),
                ("x86 guest", run_in(host.guest(), "ddlp", &format!("/data/images.ddlp {job} --drive none"))?),
            ];
            assert_eq!(
                others[0].1.drive_batches(),
                u64::from(IMAGES) / BATCH,
                "the drive made all: {:?}",
                others[0].1.faults()
            );
            for (who, figures) in others {
                assert_eq!(
                    (figures.images(), figures.digest()),
                    (native.images(), native.digest()),
                    "{pipeline}: {who}"
                );
            }
        }
        Ok(())
    })
}

/// Asserts that gray, 4:2:0, 4:4:4, restart markers, progressive, odd sizes and PNG are among the images.
fn assert_every_kind(photos: &Photos) {
    let mut reader = Preparer::new(Limits::default());
    let mut kinds = BTreeSet::new();
    for index in 0..IMAGES {
        let info = reader.info(&photos.read(index)).expect("a good image");
        if !info.width.is_multiple_of(8) && !info.height.is_multiple_of(2) {
            kinds.insert("odd");
        }
        match info.jpeg {
            Some(jpeg) => {
                kinds.extend(jpeg.subsampling());
                kinds.extend((info.components == 1).then_some("gray"));
                kinds.extend(jpeg.progressive.then_some("progressive"));
                kinds.extend((jpeg.restart_interval > 0).then_some("restart markers"));
            }
            None => kinds.extend((info.format == Format::Png).then_some("png")),
        }
    }
    for kind in ["4:2:0", "4:4:4", "gray", "odd", "png", "progressive", "restart markers"] {
        assert!(kinds.contains(kind), "no image is {kind}: {kinds:?}");
    }
}
