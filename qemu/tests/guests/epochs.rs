//! Epochs from both ends, with the host in one guest and the drive in another, and faults of the drive meanwhile.
//!
//! Each scenario takes the drive's address as `--drive` does.

use crate::support::{BATCH, Figures, IMAGES, PATIENCE, figures_in, in_guests, photos, run_command, run_here, run_in};
use anyhow::{Context, Result, ensure};
use ddlp_qemu::drive::{DriveGuest, RunningAgent, Serve};
use ddlp_qemu::guest::{Bus, Guest};
use ddlp_qemu::host::{HostGuest, HostKernel};
use ddlp_tests::photos::Photos;
use std::time::Duration;

/// How long the network is cut.
const CUT: Duration = Duration::from_secs(60);
/// Longest time from Ctrl-C until a run is over.
const CTRL_C_PATIENCE: Duration = Duration::from_secs(30);
/// Batches of an epoch.
pub const BATCHES: u64 = IMAGES as u64 / BATCH;
/// Samples of a batch of 7.2 MB.
const LARGE_BATCH: u64 = 48;
/// The consumer's time for a batch: so long that the CPU, which emulation slows down less, does not finish an epoch
/// before the drive has finished its first batch.
const STEP_MS: u64 = 150;
/// Length of an epoch in a run with a fault.
const EPOCH_SECONDS: u64 = 15;
/// The drive's controller in the host, where the ordinary disk is the first one.
pub const NODE: &str = "/dev/nvme1";
/// Exit status after Ctrl-C.
const INTERRUPTED: i32 = 130;

/// A host and a drive, and the dataset as this machine has it.
struct Pair {
    photos: Photos,
    drive: DriveGuest,
    host: HostGuest,
    serve: Serve,
}

impl Pair {
    /// Starts both. The host has an ordinary NVMe disk as well.
    fn start(name: &str, kernel: HostKernel) -> Result<Self> {
        let photos = photos();
        let pack = photos.pack();
        let drive = DriveGuest::start(&format!("{name}-drive"), Bus::Virtio, &[("images.ddlp", &pack)])?;
        let host = HostGuest::start(&format!("{name}-host"), kernel, true, &[("images.ddlp", &pack)])?;
        drive.ready()?;
        host.guest().ready()?;
        Ok(Self { photos, drive, host, serve: Serve::new("images.ddlp", LARGE_BATCH) })
    }

    /// Returns the digest that every run of `epochs` epochs has to have.
    fn digest(&self, epochs: u64) -> Result<String> {
        let native = run_here(&format!("{} {} --drive none", self.photos.pack().display(), job(epochs)))?;
        Ok(native.digest().to_string())
    }
}

pub fn job(epochs: u64) -> String {
    format!("--batch {BATCH} --epochs {epochs} --seed 3")
}

/// Returns the command of a run in the host, over the pack, with a drive at this address.
fn two_ended(address: &str, strategy: &str, epochs: u64) -> String {
    format!("/data/images.ddlp {} --strategy {strategy} --drive {address} --drive-timeout 15", job(epochs))
}

/// Runs two epochs under each strategy: each batch comes once, from both ends, with the pixels of a native run.
fn every_strategy_delivers(host: &Guest, address: &str, digest: &str) -> Result<()> {
    for strategy in ["mte", "wrr", "ordered"] {
        let figures = run_in(host, "ddlp", &format!("{} --step-ms {STEP_MS}", two_ended(address, strategy, 2)))?;
        figures.assert_each_batch_once(2, BATCHES);
        assert_eq!(figures.digest(), digest, "{strategy}");
        for epoch in 0..2 {
            let delivered = figures.delivered(epoch);
            match strategy {
                "ordered" => assert!(delivered.is_sorted(), "{delivered:?}"),
                // First the CPU's batches from the head, then the drive's from the tail backwards.
                "mte" => {
                    let turn = delivered.iter().position(|&batch| batch == BATCHES - 1).expect("each batch once");
                    let (head, tail) = delivered.split_at(turn);
                    assert!(head.is_sorted() && tail.is_sorted_by(|one, next| one > next), "{delivered:?}");
                }
                _ => {}
            }
        }
        let (drive, cpu) = (figures.drive_batches(), figures.cpu_batches());
        assert!(
            drive > 0 && cpu > 0,
            "{strategy}: both took part: {drive} by the drive, {cpu} by the CPU, {:?}",
            figures.faults()
        );
    }
    Ok(())
}

/// A run in which the drive takes part, and which lasts at least `seconds` unless it is ended.
struct Underway<'guest> {
    host: &'guest Guest,
    running: ddlp_qemu::guest::Running<'guest>,
    epochs: u64,
}

impl<'guest> Underway<'guest> {
    fn start(host: &'guest Guest, address: &str, seconds: u64) -> Result<Self> {
        // Short epochs, since a drive that comes back in the middle of one may be too slow for the rest of it.
        let epochs = seconds.div_ceil(EPOCH_SECONDS);
        let step_ms = EPOCH_SECONDS * 1000 / BATCHES;
        let args = format!("{} --step-ms {step_ms}", two_ended(address, "mte", epochs));
        let mut running = host.start_command(&run_command("env RUST_LOG=ddlp_host=warn ddlp", &args))?;
        // The display writes a line every five seconds; by the first one, both prongs have been at work.
        running.wait_for("a first line of its display", PATIENCE, |text| text.contains(" delivered"))?;
        Ok(Self { host, running, epochs })
    }

    fn wait_for_fault(&mut self, kinds: &[&str]) -> Result<()> {
        let kinds: Vec<String> = kinds.iter().map(|kind| format!("kind=\"{kind}\"")).collect();
        let holds = |text: &str| kinds.iter().any(|kind| plain(text).contains(kind));
        self.running.wait_for(&kinds.join(" or "), PATIENCE, holds).map(drop)
    }

    /// Interrupts the run as Ctrl-C does, and waits for its end.
    fn interrupt(self) -> Result<()> {
        self.host.succeed("kill -INT $(pidof ddlp)", Duration::from_secs(20))?;
        let output = self.running.finish(CTRL_C_PATIENCE)?;
        ensure!(output.status == INTERRUPTED, "after Ctrl-C status {}: {}", output.status, output.text);
        Ok(())
    }

    fn finish(self) -> Result<Figures> {
        let output = self.running.finish(PATIENCE)?;
        ensure!(output.status == 0, "status {}: {}", output.status, output.text);
        let figures = figures_in(self.host)?;
        figures.assert_each_batch_once(self.epochs, BATCHES);
        Ok(figures)
    }
}

/// Removes the colours of a log from a text.
pub fn plain(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |plain, part| plain + part.split_once('m').map_or(part, |(_, rest)| rest))
}

/// Asserts that no thread waits in the kernel where no signal reaches it, except the kernel's own (children of thread
/// 2).
pub fn assert_nothing_is_stuck(guest: &Guest) -> Result<()> {
    let look = "for thread in /proc/[0-9]*/task/[0-9]*; do \
                set -- $(sed 's/.*) //' $thread/stat 2> /dev/null); \
                if [ \"$1\" = D ] && [ \"$2\" != 2 ]; then cat $thread/comm; fi; done";
    let stuck = guest.succeed(look, Duration::from_secs(60))?;
    assert_eq!(stuck.trim(), "", "threads in state D");
    Ok(())
}

/// Asserts that reading the blocks of a lost drive ends with an error, as the README sets it up.
fn blocks_of_a_drive_that_is_away_fail(host: &Guest) -> Result<()> {
    let read = "for disk in /sys/block/nvme*; do name=${disk##*/}; case $name in *c*) continue;; esac; \
                if [ \"$(cat $disk/nsid)\" = 2 ]; then \
                if dd if=/dev/$name of=/dev/null bs=4096 count=1 iflag=direct; then echo read; else echo failed; fi; \
                fi; done";
    let said = host.succeed(read, Duration::from_secs(60))?;
    assert!(said.contains("failed"), "{said}");
    Ok(())
}

/// Asserts that a drive that was lost prepares batches in a new run. In the rest of the old run it may get none, if the
/// CPU finishes the epoch before the drive finishes a batch.
fn it_works_again(pair: &Pair, address: &str) -> Result<()> {
    let figures = run_in(pair.host.guest(), "ddlp", &two_ended(address, "csd", 1))?;
    assert_eq!(figures.digest(), pair.digest(1)?);
    assert!(figures.drive_batches() > 0, "it prepares batches: {:?}", figures.faults());
    Ok(())
}

/// Cuts the drive's power in the middle of a run and restores it: each batch is delivered once, and the drive works
/// again.
fn a_drive_without_power_is_survived(pair: &mut Pair, address: &str) -> Result<()> {
    let mut run = Underway::start(pair.host.guest(), address, 90)?;
    pair.drive.power_off()?;
    run.wait_for_fault(&["lost", "timeout"])?;
    pair.drive.power_on()?;
    pair.drive.ready()?;
    let agent = pair.drive.serve(&pair.serve)?;
    run.wait_for_fault(&["rejoined"])?;
    let epochs = run.epochs;
    let figures = run.finish()?;
    assert_nothing_is_stuck(pair.host.guest())?;
    assert_eq!(figures.digest(), pair.digest(epochs)?);
    it_works_again(pair, address)?;
    drop(agent);
    Ok(())
}

/// Interrupts a run while the network is cut: at once, or after the run has noticed.
fn ctrl_c_is_honoured_while_the_network_is_cut(pair: &Pair, address: &str, found_out: bool) -> Result<()> {
    let host = pair.host.guest();
    let mut run = Underway::start(host, address, 40)?;
    pair.drive.guest().set_link(false)?;
    if found_out {
        run.wait_for_fault(&["lost", "timeout"])?;
    }
    run.interrupt().with_context(|| format!("while the network is cut, by {address}, found out: {found_out}"))?;
    assert_nothing_is_stuck(host)?;
    pair.drive.guest().set_link(true)?;
    let all_live = "until ! cat /sys/class/nvme/*/state | grep -qv live; do sleep 0.2; done";
    host.succeed(all_live, Duration::from_secs(60)).map(drop).context("the kernel does not get the drive back")
}

/// Cuts the network for a minute: the run goes on without the drive, and takes it back.
fn a_cut_network_is_survived(pair: &Pair, address: &str) -> Result<()> {
    let host = pair.host.guest();
    let mut run = Underway::start(host, address, 135)?;
    pair.drive.guest().set_link(false)?;
    run.wait_for_fault(&["lost", "timeout"])?;
    // The sleep is the fault: the network stays cut.
    std::thread::sleep(CUT);
    blocks_of_a_drive_that_is_away_fail(host)?;
    assert_nothing_is_stuck(host)?;
    pair.drive.guest().set_link(true)?;
    run.wait_for_fault(&["rejoined"])?;
    let epochs = run.epochs;
    let figures = run.finish()?;
    assert_nothing_is_stuck(host)?;
    assert_eq!(figures.digest(), pair.digest(epochs)?);
    it_works_again(pair, address)
}

/// Tests the user-space driver: all strategies, and Ctrl-C while the network is cut. Its other tests need no guest.
#[test]
fn epochs_by_the_user_space_driver() -> Result<()> {
    in_guests("epochs_by_the_user_space_driver", || {
        let pair = Pair::start("epochs", HostKernel::Linux6_12)?;
        let agent = pair.drive.serve(&pair.serve)?;
        let address = agent.url_in_guest();
        every_strategy_delivers(pair.host.guest(), &address, &pair.digest(2)?)?;
        for found_out in [false, true] {
            ctrl_c_is_honoured_while_the_network_is_cut(&pair, &address, found_out)?;
        }
        Ok(())
    })
}

/// Tests `ddlp devices` with an ordinary NVMe disk alone, and with a drive too.
fn devices(host: &Guest, agent: &RunningAgent<'_>) -> Result<()> {
    let show = || host.succeed("ddlp devices --all", Duration::from_secs(60));
    let before = show()?;
    assert!(before.contains("no DDLP drive") && before.contains("QEMU NVMe Ctrl"), "{before}");
    connect(host, "10.0.2.2", agent.port, &agent.nqn)?;
    let after = show()?;
    // A user without the rights to look is told what is missing.
    host.succeed("echo nobody:x:65534:65534::/:/bin/sh >> /etc/passwd", Duration::from_secs(20))?;
    let user = host.succeed("su -s /bin/sh nobody -c '/bin/ddlp devices'", Duration::from_secs(60))?;
    for text in ["usable         no", "may not be read by this user", "run as root", "60-ddlp.rules"] {
        assert!(user.contains(text), "no {text:?} in:\n{user}");
    }
    for text in ["usable         yes", &agent.nqn, "live", "dataset", "results", "compute", "QEMU NVMe Ctrl"] {
        assert!(after.contains(text), "no {text:?} in:\n{after}");
    }
    Ok(())
}

/// Follows the README for a real drive: finds an agent by its address alone. Here the agent runs in the host itself.
fn a_drive_is_found_by_its_address(host: &Guest, digest: &str) -> Result<()> {
    let brief = Duration::from_secs(60);
    let serve = "exec ddlp-device serve --dataset /data/images.ddlp --listen 127.0.0.1:4420 --ephemeral";
    let mut agent = host.start_command(serve)?;
    let said = agent.wait_for("a line that says where it listens", PATIENCE, |text| text.contains("\"nqn\""))?;
    let listed = host.succeed("nvme discover -t tcp -a 127.0.0.1", brief)?;
    let nqn = listed.lines().find_map(|line| line.strip_prefix("subnqn:")).map(str::trim);
    let nqn = nqn.with_context(|| format!("no drive in {listed:?}"))?;
    assert!(said.contains(nqn), "{nqn} in {said}");
    connect(host, "127.0.0.1", 4420, nqn)?;
    let figures = run_in(host, "ddlp", &format!("/data/images.ddlp {} --strategy csd --drive {NODE}", job(1)))?;
    figures.assert_each_batch_once(1, BATCHES);
    assert_eq!(figures.digest(), digest);
    host.succeed(&format!("nvme disconnect -n {nqn}"), brief)?;
    host.succeed("kill $(pidof ddlp-device)", brief)?;
    agent.finish(brief).map(drop)
}

/// Switches io_uring off, if the kernel can: the driver then uses ioctl, unless the user asks for io_uring.
fn io_uring_is_not_needed(host: &Guest, digest: &str) -> Result<()> {
    host.succeed("echo 2 > /proc/sys/kernel/io_uring_disabled", Duration::from_secs(20))?;
    let figures = run_in(host, "ddlp", &two_ended(NODE, "csd", 1))?;
    assert_eq!(figures.digest(), digest);
    assert_eq!(figures.cpu_batches(), 0, "{:?}", figures.faults());
    let refused = host.run(&run_command("ddlp", &two_ended(&format!("{NODE}?io_uring"), "csd", 1)), PATIENCE)?;
    assert!(refused.status != 0 && refused.text.contains("io_uring"), "{}: {}", refused.status, refused.text);
    host.succeed("echo 0 > /proc/sys/kernel/io_uring_disabled", Duration::from_secs(20)).map(drop)
}

/// Connects the kernel as the README says, by an nvme-cli without `--fast_io_fail_tmo`: `ddlp devices` says what is
/// left to do. The drive's node is the one after the disk's.
pub fn connect(host: &Guest, address: &str, port: u16, nqn: &str) -> Result<()> {
    let brief = Duration::from_secs(60);
    let options = "--reconnect-delay=2 --keep-alive-tmo=10";
    host.succeed(&format!("nvme connect -t tcp -a {address} -s {port} -n {nqn} {options}"), brief)?;
    host.succeed(&format!("until ddlp devices | grep -q 'usable .*{NODE}'; do sleep 0.2; done"), brief)?;
    let warned = host.succeed("ddlp devices", brief)?;
    let remedy = warned.lines().find_map(|line| line.split_once("to do")).map(|(_, remedy)| remedy.trim());
    let remedy = remedy.with_context(|| format!("no warning of a time-out that is off: {warned}"))?;
    host.succeed(&remedy.replace("sudo ", ""), brief)?;
    let settled = host.succeed("ddlp devices", brief)?;
    ensure!(settled.contains("commands fail 5 s after a loss"), "{settled}");
    Ok(())
}

/// Reads batches that need several times as many reads as are in flight.
fn large_batches_come_whole(pair: &Pair, way: &str) -> Result<()> {
    let job = format!("--batch {LARGE_BATCH} --epochs 1 --seed 4");
    let native = run_here(&format!("{} {job} --drive none", pair.photos.pack().display()))?;
    let drive = format!("/data/images.ddlp {job} --strategy csd --drive {NODE}?{way} --drive-timeout 60");
    let figures = run_in(pair.host.guest(), "ddlp", &drive)?;
    assert_eq!(figures.digest(), native.digest(), "by {way}");
    // An emulated drive may be slow.
    let mut faults = figures.faults();
    faults.retain(|kind| kind != "slow" && kind != "stall");
    assert_eq!((figures.cpu_batches(), faults), (0, vec![]), "the drive made all, by {way}");
    Ok(())
}

/// Tests the kernel's own driver: the contract by both ways of passthrough, then all strategies.
fn epochs_by_the_kernel(kernel: HostKernel) -> Result<Pair> {
    let pair = Pair::start(&format!("kernel-{}", kernel.version()), kernel)?;
    let host = pair.host.guest();
    a_drive_is_found_by_its_address(host, &pair.digest(1)?)?;
    let agent = pair.drive.serve(&pair.serve)?;
    devices(host, &agent)?;
    for way in ["io_uring", "ioctl"] {
        let check = format!("ddlp-contract '{NODE}?{way}' /data/images.ddlp");
        host.succeed(&check, PATIENCE).with_context(|| format!("passthrough by {way}"))?;
    }
    every_strategy_delivers(host, "auto", &pair.digest(2)?)?;
    for way in ["io_uring", "ioctl"] {
        large_batches_come_whole(&pair, way)?;
    }
    drop(agent);
    Ok(pair)
}

#[test]
fn epochs_by_the_kernel_of_linux_6_1() -> Result<()> {
    in_guests("epochs_by_the_kernel_of_linux_6_1", || {
        let mut pair = epochs_by_the_kernel(HostKernel::Linux6_1)?;
        a_drive_without_power_is_survived(&mut pair, NODE)
    })
}

#[test]
fn epochs_by_the_kernel_of_linux_6_12() -> Result<()> {
    in_guests("epochs_by_the_kernel_of_linux_6_12", || {
        let mut pair = epochs_by_the_kernel(HostKernel::Linux6_12)?;
        a_drive_without_power_is_survived(&mut pair, NODE)?;
        io_uring_is_not_needed(pair.host.guest(), &pair.digest(1)?)?;
        for (way, found_out) in [("io_uring", false), ("io_uring", true), ("ioctl", false)] {
            ctrl_c_is_honoured_while_the_network_is_cut(&pair, &format!("{NODE}?{way}"), found_out)?;
        }
        a_cut_network_is_survived(&pair, NODE)?;
        let host = pair.host.guest();
        host.succeed("nvme disconnect -d nvme1", Duration::from_secs(60))?;
        assert_nothing_is_stuck(host)
    })
}
