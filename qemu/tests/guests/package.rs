//! The Debian package on a board that runs Debian 12 with systemd, step by step as in docs/boards.md.

use crate::support::{BATCH, in_guests, run_here};
use anyhow::{Context, Result, ensure};
use ddlp_qemu::board::{ADDRESS, Board, PACKAGE};
use ddlp_qemu::{HOST_ID, HOST_NQN};
use ddlp_tests::photos::Photos;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

const IMAGES: u32 = 64;
/// Longest time that a tool may take.
const TOOL: Duration = Duration::from_secs(120);
/// Most memory of the idle agent beside its slots.
const IDLE_KIB_MAX: u64 = 16_000_000 / 1024;
/// Largest size of the stripped agent.
const PROGRAM_BYTES_MAX: u64 = 8_000_000;
/// Prefix that runs a command as the service's user, since the system has no sudo.
const AS_SERVICE: &str = "setpriv --reuid=ddlp-device --regid=ddlp-device --init-groups";
/// Command that lists all files that the package and the agent left behind.
const LEFT: &str = "find / -xdev '(' -name '*ddlp*' -o -user ddlp-device ')' -not -path '/var/lib/dpkg/*' | sort";

/// The board's administrator.
struct Admin<'board>(&'board Board);

impl Admin<'_> {
    /// Runs a command that must succeed. Returns its output.
    fn tool(&self, command: &str) -> Result<String> {
        Ok(self.0.guest().succeed(command, TOOL)?.trim_end().to_string())
    }

    /// Runs a command that must end with this status. Returns its output.
    fn ends_with(&self, status: i32, command: &str) -> Result<String> {
        let output = self.0.guest().run(command, TOOL)?;
        ensure!(output.status == status, "`{command}` ended with {}, not {status}:\n{}", output.status, output.text);
        Ok(output.text.trim_end().to_string())
    }

    /// Returns a property of the service.
    fn property(&self, name: &str) -> Result<String> {
        self.tool(&format!("systemctl show --property={name} --value ddlp-device"))
    }

    /// Asserts that systemd reports no failure.
    #[track_caller]
    fn assert_sound(&self) {
        let state = self.tool("systemctl is-system-running; systemctl --failed --plain --no-legend");
        assert_eq!(state.expect("systemd answers"), "running");
    }

    /// Returns the ready line of the serving agent, from the journal.
    fn announced(&self) -> Result<Value> {
        let lines = self.tool("journalctl --boot --unit=ddlp-device --output=cat --no-pager | grep '^{'")?;
        let line = lines.lines().last().context("a line that says where it listens")?;
        serde_json::from_str(line).with_context(|| format!("the agent printed {line:?}"))
    }

    /// Returns the NQN of the drive that serves at the board's address.
    fn nqn(&self) -> Result<String> {
        assert_eq!(self.property("ActiveState")?, "active");
        let announced = self.announced()?;
        assert_eq!(announced["listen"], ADDRESS);
        Ok(announced["nqn"].as_str().context("an NQN")?.to_string())
    }
}

/// Installs the package, which brings the files that docs/boards.md names, and starts nothing.
fn installs(admin: &Admin<'_>) -> Result<()> {
    admin.tool("mount /dev/nvme0n1 /mnt")?;
    let said = admin.tool(&format!("dpkg -i /mnt/{PACKAGE}"))?;
    assert!(said.contains("systemctl enable --now ddlp-device"), "it says what to do next: {said}");
    let conffiles = admin.tool("dpkg-query -W -f '${Conffiles}' ddlp-device")?;
    let names: Vec<&str> = conffiles.split_whitespace().step_by(2).collect();
    assert_eq!(names, ["/etc/ddlp-device/drive.toml"]);
    assert_eq!(admin.tool("dpkg --verify ddlp-device")?, "", "the files are those of the package");
    assert_eq!(admin.ends_with(1, "systemctl is-enabled ddlp-device")?, "disabled");
    assert_eq!(admin.ends_with(3, "systemctl is-active ddlp-device")?, "inactive");
    assert_eq!(admin.tool("stat -c '%U:%G %a' /var/lib/ddlp-device")?, "ddlp-device:ddlp-device 750");
    let bytes: u64 = admin.tool("stat -c %s /usr/bin/ddlp-device")?.parse()?;
    assert!(bytes <= PROGRAM_BYTES_MAX, "the agent has {bytes} bytes");
    admin.assert_sound();
    Ok(())
}

/// Runs `doctor` without a dataset, which it reports as missing, and then with one.
fn doctor_sees_the_dataset(admin: &Admin<'_>) -> Result<()> {
    let doctor = format!("{AS_SERVICE} ddlp-device doctor --config /etc/ddlp-device/drive.toml");
    let page = admin.ends_with(1, &doctor)?;
    assert!(page.contains("FAILURE  cannot open dataset /var/lib/ddlp-device/train.ddlp"), "{page}");
    admin.tool("install -o ddlp-device -m 0440 /mnt/train.ddlp /var/lib/ddlp-device/train.ddlp")?;
    let page = admin.tool(&doctor)?;
    for text in [&format!("{IMAGES} samples"), "4 workers prepare", "images/s"] {
        assert!(page.contains(text), "no {text:?} in:\n{page}");
    }
    Ok(())
}

/// Opens the drive to a host and enables the service, which serves with only the rights that it needs. Returns the NQN.
fn starts(admin: &Admin<'_>) -> Result<String> {
    admin.tool(&format!(
        "sed -i -e 's/^listen = .*/listen = \"{ADDRESS}\"/' \
         -e 's/^#allowed-hosts = .*/allowed-hosts = [\"{HOST_NQN}\"]/' /etc/ddlp-device/drive.toml"
    ))?;
    admin.tool("systemctl enable --now ddlp-device")?;
    let nqn = admin.nqn()?;
    let status = admin.tool(&format!("cat /proc/{}/status", admin.property("MainPID")?))?;
    let field = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.and_then(|value| value.split_whitespace().next()).with_context(|| format!("no {name} in {status}"))
    };
    let uid = admin.tool("id -u ddlp-device")?;
    assert_eq!((field("Uid")?, field("CapEff")?, field("Seccomp")?), (uid.as_str(), "0000000000000000", "2"));
    // Fails if systemd counts an exposure of more than 2.0 out of 10.
    admin.tool("systemd-analyze security --no-pager --threshold=20 ddlp-device")?;
    let (all, slots): (u64, u64) = (field("VmRSS")?.parse()?, field("RssShmem")?.parse()?);
    assert!(all - slots < IDLE_KIB_MAX, "the idle agent has {all} KiB in memory, {slots} of them slots");
    Ok(nqn)
}

/// Serves an epoch to a host.
fn serves(admin: &Admin<'_>, nqn: &str, pack: &Path, digest: &str) -> Result<()> {
    let (pack, port) = (pack.display(), admin.0.port());
    let drive = format!("--strategy csd --host-nqn {HOST_NQN} --drive tcp://127.0.0.1:{port}/{nqn}");
    let figures = run_here(&format!("{pack} --batch {BATCH} --seed 5 {drive}"))?;
    assert_eq!(figures.drive_batches(), u64::from(IMAGES) / BATCH, "the drive made all: {:?}", figures.faults());
    assert_eq!(figures.digest(), digest);
    Ok(())
}

/// Connects the board's own kernel, whose udev has the package's rule: the drive's nodes belong to the group `ddlp`,
/// and the ordinary disk's nodes stay as they were.
fn udev_tells_drives_apart(admin: &Admin<'_>, nqn: &str) -> Result<()> {
    // Without a time-out, as `nvme connect` leaves it: reads would wait for a lost drive.
    let (address, port) = ADDRESS.split_once(':').context("an address")?;
    admin.tool(&format!(
        "echo 'transport=tcp,traddr={address},trsvcid={port},nqn={nqn},hostnqn={HOST_NQN},hostid={HOST_ID}' \
         > /dev/nvme-fabrics"
    ))?;
    let look = "udevadm settle && stat -c '%n %U:%G %a' /dev/nvme[0-9]* /dev/ng* && \
                cat /sys/class/nvme/nvme1/fast_io_fail_tmo";
    let opened = "/dev/nvme0 root:root 600\n/dev/nvme0n1 root:disk 660\n/dev/nvme1 root:ddlp 660\n\
                  /dev/nvme1n1 root:ddlp 660\n/dev/nvme1n2 root:ddlp 660\n/dev/ng0n1 root:root 600\n\
                  /dev/ng1n1 root:ddlp 660\n/dev/ng1n2 root:ddlp 660\n/dev/ng1n3 root:ddlp 660\n5";
    admin.tool("until [ -b /dev/nvme1n1 -a -b /dev/nvme1n2 -a -c /dev/ng1n3 ]; do sleep 0.1; done")?;
    assert_eq!(admin.tool(look)?, opened);
    // A drive that was connected before the rule was installed.
    admin.tool(
        "chgrp root /dev/nvme1* /dev/ng1* && echo -1 > /sys/class/nvme/nvme1/fast_io_fail_tmo && udevadm trigger",
    )?;
    assert_eq!(admin.tool(look)?, opened);

    let in_group = "setpriv --reuid=nobody --regid=nogroup --groups=$(getent group ddlp | cut -d : -f 3)";
    let read = admin.tool(&format!("{in_group} dd if=/dev/nvme1n1 bs=4096 count=1 status=none | sha256sum"))?;
    assert_eq!(read, admin.tool("head -c 4096 /var/lib/ddlp-device/train.ddlp | sha256sum")?);
    let page = admin.tool("ddlp devices")?;
    let (drives, others) = page.split_once("not DDLP drives:").with_context(|| page.clone())?;
    assert!(drives.contains("/dev/nvme1  DDLP computational storage") && drives.contains(nqn), "{page}");
    assert!(others.contains("/dev/nvme0  QEMU NVMe Ctrl"), "{page}");
    admin.tool("echo 1 > /sys/class/nvme/nvme1/delete_controller").map(drop)
}

/// Kills the agent, which systemd starts again, and installs the package again, which restarts it.
fn comes_back(admin: &Admin<'_>, nqn: &str) -> Result<()> {
    let first = admin.property("MainPID")?;
    admin.tool(&format!("kill -9 {first}"))?;
    let restarted = "[ \"$(systemctl show --property=NRestarts --value ddlp-device)\" = 1 ]";
    admin.tool(&format!("until {restarted} && systemctl --quiet is-active ddlp-device; do sleep 0.2; done"))?;
    let second = admin.property("MainPID")?;
    assert_ne!(second, first);
    assert_eq!(admin.nqn()?, nqn);
    admin.tool(&format!("dpkg -i /mnt/{PACKAGE}"))?;
    assert_ne!(admin.property("MainPID")?, second, "an upgrade starts the new program");
    assert_eq!(admin.nqn()?, nqn);
    assert_eq!(admin.tool("systemctl is-enabled ddlp-device")?, "enabled");
    Ok(())
}

/// Removes the package while it serves, which keeps configuration and state, and purges it after the service has
/// failed, which keeps the dataset.
fn goes(admin: &Admin<'_>, nqn: &str) -> Result<()> {
    admin.tool("mount /dev/nvme0n1 /mnt")?;
    let no_service = || -> Result<()> {
        admin.ends_with(1, "pgrep ddlp-device")?;
        assert_eq!(admin.property("LoadState")?, "not-found");
        admin.assert_sound();
        Ok(())
    };
    admin.tool("dpkg -r ddlp-device")?;
    no_service()?;
    let state = "/var/lib/ddlp\n/var/lib/ddlp-device\n/var/lib/ddlp-device/identity\n\
                 /var/lib/ddlp-device/identity/identity.toml\n/var/lib/ddlp-device/identity/lock\n\
                 /var/lib/ddlp-device/train.ddlp";
    assert_eq!(admin.tool(LEFT)?, format!("/etc/ddlp-device\n{state}"));

    admin.tool(&format!("dpkg -i /mnt/{PACKAGE}"))?;
    assert_eq!(admin.ends_with(1, "systemctl is-enabled ddlp-device")?, "disabled");
    admin.tool("systemctl start ddlp-device")?;
    assert_eq!(admin.nqn()?, nqn, "the drive that it was");
    admin.tool("echo 'surprise = 1' >> /etc/ddlp-device/drive.toml")?;
    admin.ends_with(1, "systemctl restart ddlp-device")?;
    let properties = ["ActiveState", "ExecMainStatus", "NRestarts"].map(|name| admin.property(name));
    assert_eq!(properties.into_iter().collect::<Result<Vec<_>>>()?, ["failed", "78", "0"]);

    admin.tool("dpkg -P ddlp-device")?;
    no_service()?;
    assert_eq!(admin.tool(LEFT)?, "/var/lib/ddlp-device\n/var/lib/ddlp-device/train.ddlp");
    Ok(())
}

/// Installs the package, runs `doctor`, enables the service, uses it from a host and a kernel, kills, upgrades,
/// reboots, removes and purges it.
#[test]
fn the_package_is_a_service() -> Result<()> {
    in_guests("the_package_is_a_service", || {
        let photos = Photos::new(IMAGES);
        let pack = photos.pack();
        let native = run_here(&format!("{} --batch {BATCH} --seed 5 --drive none", pack.display()))?;
        let mut board = Board::start("package-board", &[("train.ddlp", &pack)])?;
        board.ready()?;

        let admin = Admin(&board);
        admin.assert_sound();
        installs(&admin)?;
        doctor_sees_the_dataset(&admin)?;
        let nqn = starts(&admin)?;
        serves(&admin, &nqn, &pack, native.digest())?;
        udev_tells_drives_apart(&admin, &nqn)?;
        comes_back(&admin, &nqn)?;

        board.reboot()?;
        let admin = Admin(&board);
        admin.assert_sound();
        assert_eq!(admin.nqn()?, nqn, "over a reboot");
        serves(&admin, &nqn, &pack, native.digest())?;
        goes(&admin, &nqn)
    })
}
