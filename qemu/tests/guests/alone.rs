//! A dataset that the drive alone holds, read through the kernel's driver: the host has no file of it.

use crate::epochs::{BATCHES, NODE, assert_nothing_is_stuck, connect, job, plain};
use crate::support::{Figures, IMAGES, PATIENCE, figures_in, in_guests, photos, run_command, run_here, run_in};
use anyhow::{Result, ensure};
use ddlp_qemu::drive::{DriveGuest, RunningAgent, Serve};
use ddlp_qemu::guest::{Bus, Guest, Running};
use ddlp_qemu::host::{HostGuest, HostKernel};
use ddlp_tests::photos::Photos;
use std::time::Duration;

/// How long the network is cut: longer than the kernel holds commands back.
const CUT: Duration = Duration::from_secs(10);
/// Samples of a slot.
const SLOT_SAMPLES: u64 = 8;

/// Returns the options of a run over the dataset of the drive.
fn alone(strategy: &str, epochs: u64) -> String {
    format!("{NODE} {} --strategy {strategy} --drive-timeout 15", job(epochs))
}

/// Starts a run of the CPU alone that takes its time, and waits until it has delivered a batch.
fn start_slowly(host: &Guest, epochs: u64) -> Result<Running<'_>> {
    let args = format!("{} --step-ms 400", alone("cpu", epochs));
    let mut running = host.start_command(&run_command("env RUST_LOG=ddlp_host=warn ddlp", &args))?;
    running.wait_for("a first line of its display", PATIENCE, |text| text.contains(" delivered"))?;
    Ok(running)
}

fn finish(host: &Guest, running: Running<'_>, epochs: u64) -> Result<Figures> {
    let output = running.finish(PATIENCE)?;
    ensure!(output.status == 0, "status {}: {}", output.status, output.text);
    let figures = figures_in(host)?;
    figures.assert_each_batch_once(epochs, BATCHES);
    Ok(figures)
}

/// Cuts the network in the middle of a run: the run names the drive, waits, and delivers what it would have delivered.
fn a_cut_network_is_waited_for(host: &Guest, drive: &DriveGuest, digest: &str) -> Result<()> {
    let mut running = start_slowly(host, 2)?;
    drive.guest().set_link(false)?;
    let is_named = |text: &str| plain(text).contains("kind=\"lost\"") && plain(text).contains("has not answered");
    running.wait_for("the silence of the drive", PATIENCE, is_named)?;
    // The sleep is the fault: the network stays cut.
    std::thread::sleep(CUT);
    assert_nothing_is_stuck(host)?;
    drive.guest().set_link(true)?;
    running.wait_for("an answer", PATIENCE, |text| plain(text).contains("kind=\"rejoined\""))?;
    assert_eq!(finish(host, running, 2)?.digest(), digest);
    Ok(())
}

/// Replaces the agent's pack in the middle of a run, under the same NQN: the run ends with an error that says so.
fn another_pack_ends_the_run(host: &Guest, drive: &DriveGuest, agent: RunningAgent<'_>, serve: &Serve) -> Result<()> {
    let running = start_slowly(host, 2)?;
    agent.kill()?;
    let other = drive.serve(&Serve { dataset: "others.ddlp".into(), ..serve.clone() })?;
    let output = running.finish(PATIENCE)?;
    assert_eq!(output.status, 1, "{}", output.text);
    let said = plain(&output.text);
    assert!(said.contains("the pack has changed") && said.contains(NODE), "{said}");
    drop(other);
    Ok(())
}

#[test]
fn a_dataset_on_the_drive_alone_by_the_kernel() -> Result<()> {
    in_guests("a_dataset_on_the_drive_alone_by_the_kernel", || {
        let (photos, others) = (photos(), Photos::with_sizes(IMAGES, |index| (50 + index % 90, 41)));
        let (pack, other) = (photos.pack(), others.pack());
        let content = [("images.ddlp", &*pack), ("others.ddlp", &*other)];
        let drive = DriveGuest::start("alone-drive", Bus::Virtio, &content)?;
        let machine = HostGuest::start("alone-host", HostKernel::Linux6_12, true, &[])?;
        let host = machine.guest();
        drive.ready()?;
        host.ready()?;
        let serve = Serve::new("images.ddlp", SLOT_SAMPLES);
        let agent = drive.serve(&serve)?;
        connect(host, "10.0.2.2", agent.port, &agent.nqn)?;
        let digest = |epochs| -> Result<String> {
            Ok(run_here(&format!("{} {} --drive none", pack.display(), job(epochs)))?.digest().to_owned())
        };
        for strategy in ["cpu", "ordered", "mte"] {
            let figures = run_in(host, "ddlp", &alone(strategy, 1))?;
            figures.assert_each_batch_once(1, BATCHES);
            assert_eq!(figures.digest(), digest(1)?, "{strategy}");
        }
        a_cut_network_is_waited_for(host, &drive, &digest(2)?)?;
        another_pack_ends_the_run(host, &drive, agent, &serve)
    })
}
