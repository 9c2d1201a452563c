//! The drive: an aarch64 guest whose disk holds packs, the agent and its results.
//!
//! The disk is ext4, made without root. It survives a power cut, and with it identity and slots.

use crate::disk::copy;
use crate::guest::{Bus, Guest, Machine, forwards};
use crate::initramfs::Initramfs;
use crate::kernel::GuestKernel;
use crate::packages::{Arch, Packages};
use crate::programs::board;
use crate::scratch::ScratchFolder;
use crate::shell::tail;
use crate::{HOST_NQN, guest::Running};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Ports at which agents in the guest listen.
pub const PORTS: [u16; 2] = [4420, 4421];
/// Port of discovery.
const DISCOVERY_PORT: u16 = 8009;
/// Longest time from an agent's start until it listens. The agent first checks its own pixel path.
const SERVE_PATIENCE: Duration = Duration::from_secs(90);

/// Configuration of an agent.
#[derive(Clone, Debug)]
pub struct Serve {
    /// Dataset: a file or folder on the disk.
    pub dataset: String,
    /// Index of the port in [`PORTS`].
    pub port: usize,
    /// Name of the identity: agents of the same name are the same drive.
    pub name: String,
    /// Number of result slots.
    pub slots: u32,
    /// Bytes of a slot.
    pub slot_bytes: u64,
}

impl Serve {
    /// Configures the first agent: eight slots on the disk for batches of `samples` samples of 224 × 224.
    pub fn new(dataset: &str, samples: u64) -> Self {
        let slot_bytes = samples * (224 * 224 * 3 + 64) + 8192;
        Self { dataset: dataset.into(), port: 0, name: "drive".into(), slots: 8, slot_bytes }
    }

    /// Returns the same configuration at the second port, under another name.
    pub fn second(&self) -> Self {
        Self { port: 1, name: "second".into(), ..self.clone() }
    }

    fn config(&self) -> String {
        let Self { dataset, port, name, slots, slot_bytes } = self;
        format!(
            "dataset = \"/disk/{dataset}\"\nlisten = \"10.0.2.15:{}\"\nallowed-hosts = [\"{HOST_NQN}\"]\n\
             results = \"/disk/{name}.slots\"\nslots = {slots}\nslot-bytes = {slot_bytes}\n\
             state = \"/disk/{name}.state\"\n",
            PORTS[*port]
        )
    }
}

/// A drive whose power may be off.
pub struct DriveGuest {
    guest: Option<Guest>,
    machine: Machine,
    _scratch: ScratchFolder,
}

impl DriveGuest {
    /// Starts a guest with these files and folders on its disk.
    pub fn start(name: &str, bus: Bus, content: &[(&str, &Path)]) -> Result<Self> {
        let packages = Packages::open()?;
        let scratch = ScratchFolder::new()?;
        let kernel = GuestKernel::debian(&packages, "linux-image-arm64", Arch::Arm64)?;
        let busybox = packages.unpacked("busybox-static", Arch::Arm64)?.join("bin/busybox");
        let modules = kernel.modules(&[
            "virtio_pci",
            "virtio_console",
            "virtio_net",
            "virtio_blk",
            "nvme",
            "crc32c_generic",
            "ext4",
        ])?;
        let initramfs = scratch.join("initramfs");
        let mut root = Initramfs::create(&initramfs, name, &busybox, &modules)?;
        let device = match bus {
            Bus::Virtio => "/dev/vda",
            Bus::Nvme => "/dev/nvme0n1",
        };
        root.text("etc/fstab", &format!("{device} /disk ext4 defaults 0 0\n"))?;
        root.finish()?;
        let disk = scratch.join("disk");
        make_disk(&disk, &scratch.join("content"), content)?;
        let forwards = forwards(&[PORTS[0], PORTS[1], PORTS[0], DISCOVERY_PORT])?;
        let machine = Machine {
            name: name.into(),
            arch: Arch::Arm64,
            kernel,
            initramfs,
            memory_mib: 512,
            cores: 4,
            disks: vec![(disk, bus)],
            forwards,
        };
        let _ = fs::remove_file(machine.log());
        let guest = Guest::start(machine.clone())?;
        Ok(Self { guest: Some(guest), machine, _scratch: scratch })
    }

    /// Waits until the guest is up, and mounts its disk.
    pub fn ready(&self) -> Result<()> {
        let guest = self.guest();
        guest.ready()?;
        let wait = format!("until [ -b {0} ]; do sleep 0.1; done; mkdir -p /disk && mount /disk", self.device());
        guest.succeed(&wait, Duration::from_secs(60)).map(drop)
    }

    fn device(&self) -> &'static str {
        match self.machine.disks[0].1 {
            Bus::Virtio => "/dev/vda",
            Bus::Nvme => "/dev/nvme0n1",
        }
    }

    /// Returns the running guest.
    ///
    /// # Panics
    ///
    /// Panics while the power is off.
    pub fn guest(&self) -> &Guest {
        self.guest.as_ref().expect("the power is on")
    }

    /// Starts an agent and waits until it listens.
    pub fn serve(&self, serve: &Serve) -> Result<RunningAgent<'_>> {
        let config = format!("/disk/{}.toml", serve.name);
        let log = format!("/tmp/{}.log", serve.name);
        let write = format!("cat > {config} << 'END'\n{}END", serve.config());
        self.guest().succeed(&write, Duration::from_secs(30))?;
        let pid = format!("/tmp/{}.pid", serve.name);
        let command = format!("echo $$ > {pid}; exec /disk/bin/ddlp-device serve --config {config} 2>> {log}");
        let mut running = self.guest().start_command(&command)?;
        let said = running.wait_for("a line that says where it listens", SERVE_PATIENCE, |text| text.contains('\n'));
        let said = said.with_context(|| {
            let log = self.guest().run(&format!("tail -n 20 {log}"), Duration::from_secs(10));
            format!("the agent does not start: {}", log.map(|output| output.text).unwrap_or_default())
        })?;
        let line = said.lines().next().unwrap_or_default();
        let ready: Value = serde_json::from_str(line).with_context(|| format!("the agent printed {line:?}"))?;
        let nqn = ready["nqn"].as_str().context("the agent tells no NQN")?.to_string();
        Ok(RunningAgent { running, nqn, port: self.machine.forwards[serve.port].0, pid, drive: self })
    }

    /// Switches the power off.
    pub fn power_off(&mut self) -> Result<()> {
        self.guest.take().context("the power is off already")?.power_off()
    }

    /// Switches the power on again, with the same ports. [`ready`](Self::ready) waits for the guest.
    pub fn power_on(&mut self) -> Result<()> {
        ensure!(self.guest.is_none(), "the power is on already");
        self.guest = Some(Guest::start(self.machine.clone())?);
        Ok(())
    }

    /// Returns another port of this machine's loopback that leads to the first of [`PORTS`]: a second path to the first
    /// agent.
    pub fn second_path(&self) -> u16 {
        self.machine.forwards[2].0
    }

    /// Returns the port of this machine's loopback that leads to the first agent's discovery controller.
    pub fn discovery(&self) -> u16 {
        self.machine.forwards[3].0
    }
}

/// An agent that runs in the guest.
pub struct RunningAgent<'drive> {
    running: Running<'drive>,
    /// Its NQN.
    pub nqn: String,
    /// Port of this machine's loopback that leads to it.
    pub port: u16,
    pid: String,
    drive: &'drive DriveGuest,
}

impl RunningAgent<'_> {
    /// Returns the agent's address for a loader on this machine.
    pub fn url_here(&self) -> String {
        format!("tcp://127.0.0.1:{}/{}", self.port, self.nqn)
    }

    /// Returns the agent's address for a loader in a guest.
    pub fn url_in_guest(&self) -> String {
        format!("tcp://10.0.2.2:{}/{}", self.port, self.nqn)
    }

    /// Kills the agent without warning.
    pub fn kill(self) -> Result<()> {
        self.drive.guest().succeed(&format!("kill -9 $(cat {})", self.pid), Duration::from_secs(20))?;
        let output = self.running.finish(Duration::from_secs(20))?;
        ensure!(output.status != 0, "a killed agent ended as if asked to: {}", tail(&output.text, 10));
        Ok(())
    }
}

/// Makes an ext4 image with the agent in `bin` and this content.
fn make_disk(disk: &Path, staging: &Path, content: &[(&str, &Path)]) -> Result<()> {
    fs::create_dir_all(staging.join("bin"))?;
    copy(&board("ddlp-device")?, &staging.join("bin/ddlp-device"))?;
    for (name, source) in content {
        copy(source, &staging.join(name)).with_context(|| format!("cannot take {}", source.display()))?;
    }
    crate::disk::make(disk, staging)?;
    fs::remove_dir_all(staging).context("cannot remove the disk's content")
}
