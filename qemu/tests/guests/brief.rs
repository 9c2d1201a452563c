//! As much as two boots can test: an ARM drive serves a host. Every change has to pass the test with the newer kernel;
//! the other tests take six times as long.

use crate::stock_tools::{self, ByHand, Connected, the_kernel_complains_of_nothing};
use crate::support::{BATCH, IMAGES, PATIENCE, in_guests, photos, run_here, run_in};
use anyhow::{Context, Result};
use ddlp_qemu::drive::{DriveGuest, Serve};
use ddlp_qemu::guest::Bus;
use ddlp_qemu::host::{HostGuest, HostKernel};

/// Samples of the largest batch that fits in a slot.
const SLOT_SAMPLES: u64 = 16;

#[test]
fn linux_6_1_works_with_an_arm_drive() -> Result<()> {
    in_guests("linux_6_1_works_with_an_arm_drive", || works_with_an_arm_drive(HostKernel::Linux6_1))
}

#[test]
fn linux_6_12_works_with_an_arm_drive() -> Result<()> {
    in_guests("linux_6_12_works_with_an_arm_drive", || works_with_an_arm_drive(HostKernel::Linux6_12))
}

/// Tests a kernel: nvme-cli finds and connects the drive and shows its pages; a batch by hand; the contract by both
/// ways of passthrough; an epoch by the drive alone and one from both ends, with the same pixels as this machine's CPU;
/// the same without a file of the dataset on the host; a reset, and an agent that is killed and comes back.
fn works_with_an_arm_drive(kernel: HostKernel) -> Result<()> {
    let photos = photos();
    let pack = photos.pack();
    let by_hand = ByHand::new(&pack)?;
    let job = format!("--batch {BATCH} --seed 3");
    let native = run_here(&format!("{} {job} --drive none", pack.display()))?;
    let name = format!("brief-{}", kernel.version());
    let device = DriveGuest::start(&format!("{name}-drive"), Bus::Virtio, &[("images.ddlp", &pack)])?;
    let data = [("images.ddlp", &*pack), ("program", &*by_hand.program), ("request", &*by_hand.request)];
    let host = HostGuest::start(&name, kernel, true, &data)?;
    device.ready()?;
    let serve = Serve::new("images.ddlp", SLOT_SAMPLES);
    let agent = device.serve(&serve)?;
    let host = host.guest();
    host.ready()?;
    stock_tools::discovery(host, &device, &agent)?;
    let drive = Connected::connect(host, &agent)?;
    stock_tools::pages(&drive)?;
    drive.assert_dataset_is(&pack)?;
    by_hand.run(&drive)?;
    let node = format!("/dev/{}", drive.controller);
    for way in ["io_uring", "ioctl"] {
        let check = format!("ddlp-contract '{node}?{way}' /data/images.ddlp");
        host.succeed(&check, PATIENCE).with_context(|| format!("passthrough by {way}"))?;
    }
    for strategy in ["csd --drive-timeout 60", "mte --step-ms 150"] {
        let run = format!("/data/images.ddlp {job} --strategy {strategy} --drive {node}");
        let figures = run_in(host, "ddlp", &run)?;
        figures.assert_each_batch_once(1, u64::from(IMAGES) / BATCH);
        assert_eq!(figures.digest(), native.digest(), "{strategy}");
        assert!(figures.drive_batches() > 0, "{strategy}: {:?}", figures.faults());
    }
    for strategy in ["cpu", "ordered", "mte --step-ms 150"] {
        let figures = run_in(host, "ddlp", &format!("{node} {job} --strategy {strategy}"))?;
        figures.assert_each_batch_once(1, u64::from(IMAGES) / BATCH);
        assert_eq!(figures.digest(), native.digest(), "{strategy} without a file on the host");
    }
    let _agent = stock_tools::endings(&drive, &device, &serve, agent)?;
    drive.assert_dataset_is(&pack)?;
    let gone = drive.tool(&format!("disconnect -n {}", drive.nqn))?;
    stock_tools::assert_shows(&gone, &["disconnected 1 controller(s)"]);
    the_kernel_complains_of_nothing(host)
}
