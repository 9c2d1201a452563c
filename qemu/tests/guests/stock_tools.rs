//! nvme-cli and the kernel's own driver against the drive, under both kernels.

use crate::support::{BATCH, in_guests, photos};
use anyhow::{Context, Result, ensure};
use ddlp_csd::prepare::{EpochContext, SamplePreparer};
use ddlp_csd::program::{CorruptPolicy, DriveProgram, Program, program_id};
use ddlp_csd::request::BatchRequest;
use ddlp_csd::slot::SlotLayout;
use ddlp_csd::{BLOCK_BYTES, PROGRAM_TYPE};
use ddlp_nvme::cp::{ExecuteProgram, LoadProgram, ProgramActivation};
use ddlp_pixels::{Fidelity, Limits, Pipeline};
use ddlp_qemu::drive::{DriveGuest, RunningAgent, Serve};
use ddlp_qemu::guest::{Bus, Guest};
use ddlp_qemu::host::{HostGuest, HostKernel};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Longest time that a tool may take.
const TOOL: Duration = Duration::from_secs(60);
/// Longest time until the kernel has finished the consequences of a command.
const KERNEL: Duration = Duration::from_secs(90);
/// Namespaces of the drive: dataset, results, compute.
const NAMESPACES: [u32; 3] = [1, 2, 3];

/// The drive, connected to the kernel of a host.
pub struct Connected<'guests> {
    pub guest: &'guests Guest,
    pub nqn: String,
    /// Name of the drive's controller, such as `nvme1`.
    pub controller: String,
}

impl<'guests> Connected<'guests> {
    pub fn connect(guest: &'guests Guest, agent: &RunningAgent<'_>) -> Result<Self> {
        let mut drive = Self { guest, nqn: agent.nqn.clone(), controller: String::new() };
        drive.connect_through(agent.port)?;
        let controllers = drive.controllers()?;
        ensure!(controllers.len() == 1, "one controller: {controllers:?}");
        drive.controller = controllers[0].clone();
        drive.wait_for_namespaces()?;
        Ok(drive)
    }

    fn connect_through(&self, port: u16) -> Result<()> {
        let nqn = &self.nqn;
        let options = "--reconnect-delay=1 --keep-alive-tmo=30 --nr-io-queues=2";
        self.tool(&format!("connect -t tcp -a 10.0.2.2 -s {port} -n {nqn} {options}")).map(drop)
    }

    pub fn tool(&self, args: &str) -> Result<String> {
        self.guest.succeed(&format!("nvme {args}"), TOOL)
    }

    /// Returns the controllers of the drive's subsystem.
    fn controllers(&self) -> Result<Vec<String>> {
        let command = format!("cd /sys/class/nvme; grep -lx '{}' */subsysnqn | cut -d / -f 1", self.nqn);
        Ok(self.guest.succeed(&command, TOOL)?.lines().map(String::from).collect())
    }

    /// Returns the generic node of a namespace. The number in the node's name is not the namespace's identifier, which
    /// is in sysfs, where the compute namespace has a hidden disk too.
    fn generic_node(&self, nsid: u32) -> Result<String> {
        let command = format!(
            "cd /sys/block; for disk in nvme*; do \
             [ \"$(cat $disk/nsid)\" = {nsid} ] && [ \"$(cat $disk/device/subsysnqn)\" = {} ] && \
             echo $disk | sed 's/^nvme\\([0-9]*\\)\\(c[0-9]*\\)*n/ng\\1n/'; done | sort -u",
            self.nqn
        );
        let found = self.guest.succeed(&command, TOOL)?;
        let names: Vec<&str> = found.lines().filter(|line| line.starts_with("ng")).collect();
        ensure!(names.len() == 1, "one node for namespace {nsid}: {found}");
        Ok(format!("/dev/{}", names[0]))
    }

    /// Returns the block device of a namespace.
    fn block_node(&self, nsid: u32) -> Result<String> {
        Ok(self.generic_node(nsid)?.replace("/ng", "/nvme"))
    }

    fn wait_for_namespaces(&self) -> Result<()> {
        wait_until("the namespaces are there", || {
            Ok(NAMESPACES.iter().all(|&nsid| {
                self.generic_node(nsid)
                    .and_then(|node| self.guest.run(&format!("[ -c {node} ]"), TOOL))
                    .is_ok_and(|output| output.status == 0)
            }))
        })
    }

    fn state(&self) -> Result<String> {
        let text = self.guest.succeed(&format!("cat /sys/class/nvme/{}/state", self.controller), TOOL)?;
        Ok(text.trim().to_string())
    }

    /// Returns everything that must survive a reconnect: identifiers of controller and namespaces, and names of the
    /// nodes.
    fn identity(&self) -> Result<Vec<String>> {
        let mut identity = vec![self.controller.clone()];
        let page = self.tool(&format!("id-ctrl /dev/{}", self.controller))?;
        identity.extend(
            page.lines().filter(|line| line.starts_with("sn ") || line.starts_with("subnqn")).map(String::from),
        );
        ensure!(identity.len() == 3, "serial number and NQN: {page}");
        for nsid in NAMESPACES {
            identity.push(self.generic_node(nsid)?);
            identity.push(self.tool(&format!("ns-descs /dev/{} -n {nsid}", self.controller))?);
        }
        Ok(identity)
    }

    /// Asserts that the block device of the dataset gives the pack's bytes.
    pub fn assert_dataset_is(&self, pack: &Path) -> Result<()> {
        let read = format!("dd if={} bs=65536 count=4 iflag=direct 2> /dev/null | sha256sum", self.block_node(1)?);
        let read = self.guest.succeed(&read, TOOL)?;
        let bytes = Command::new("head").args(["-c", "262144"]).arg(pack).output().context("cannot run head")?.stdout;
        let expected = tempfile::NamedTempFile::new()?;
        std::fs::write(expected.path(), bytes)?;
        assert_eq!(sum_of(&read), sum_here(expected.path())?, "the block device has the pack's bytes");
        Ok(())
    }
}

fn wait_until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let until = Instant::now() + KERNEL;
    while !holds()? {
        ensure!(Instant::now() < until, "{what} within {} s", KERNEL.as_secs());
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Asserts that a page shows all of these texts.
#[track_caller]
pub fn assert_shows(page: &str, texts: &[&str]) {
    for text in texts {
        assert!(page.contains(text), "no {text:?} in:\n{page}");
    }
}

/// Runs nvme-cli's commands about a drive: each ends with status 0 and shows the drive's properties.
pub fn pages(drive: &Connected<'_>) -> Result<()> {
    let controller = format!("/dev/{}", drive.controller);
    let list = drive.tool("list")?;
    for nsid in [1, 2] {
        assert_shows(&list, &[&drive.block_node(nsid)?, "DDLP computational storage"]);
    }
    assert_shows(&drive.tool(&format!("id-ctrl {controller}"))?, &[&drive.nqn, "DDLP computational storage", "oacs"]);
    for nsid in [1, 2] {
        assert_shows(&drive.tool(&format!("id-ns {controller} -n {nsid}"))?, &["nsze", "lbads:12"]);
    }
    // The compute namespace has no blocks. Linux 6.12 asks for them whenever somebody reads the file `nuse`.
    assert_shows(&drive.tool(&format!("id-ns {controller} -n 3"))?, &["nsze    : 0", "ncap    : 0"]);
    drive.guest.succeed("for file in /sys/block/nvme*/nuse; do [ ! -e $file ] || cat $file || exit 1; done", TOOL)?;
    for (nsid, command_set) in [(1, "0"), (2, "0"), (3, "0x4")] {
        let descriptors = drive.tool(&format!("ns-descs {controller} -n {nsid}"))?;
        assert_shows(&descriptors, &["uuid", "nguid"]);
        let set = descriptors.lines().find_map(|line| line.strip_prefix("csi")).context("a command set")?;
        assert_eq!(set.trim().trim_start_matches([':', ' ']), command_set, "{descriptors}");
    }
    assert_shows(&drive.tool(&format!("smart-log {controller}"))?, &["critical_warning", "temperature"]);
    assert_shows(&drive.tool(&format!("error-log {controller}"))?, &["Error Log Entries"]);
    assert_shows(&drive.tool(&format!("effects-log {controller} --csi=0"))?, &["ACS133 ", "IOCS2 "]);
    assert_shows(&drive.tool(&format!("effects-log {controller} --csi=4"))?, &["IOCS1 "]);
    // nvme-cli asks for the zoned command set by default, which this drive does not have.
    assert_shows(&drive.tool(&format!("effects-log {controller} --csi=2"))?, &["ACS133 "]);
    drive.tool(&format!("effects-log {controller}"))?;
    assert_shows(&drive.tool(&format!("get-log {controller} --log-id=0xc0 --log-len=512"))?, &["0000:", "\"DDCT"]);
    assert_shows(&drive.tool(&format!("id-ns {} -n 1", drive.generic_node(1)?))?, &["nsze"]);
    Ok(())
}

/// Finds the agent by `nvme discover` at the discovery port and at the I/O port. The entry has the port inside the
/// agent's guest, where the forwarded port outside is not known.
pub fn discovery(guest: &Guest, device: &DriveGuest, agent: &RunningAgent<'_>) -> Result<()> {
    for port in [device.discovery(), agent.port] {
        let page = guest.succeed(&format!("nvme discover -t tcp -a 10.0.2.2 -s {port}"), TOOL)?;
        let subnqn = format!("subnqn:  {}", agent.nqn);
        assert_shows(&page, &["nvme subsystem", &subnqn, "traddr:  10.0.2.15", "trsvcid: 4420"]);
    }
    Ok(())
}

/// Resets the controller, and kills and restarts the agent: the kernel goes on by itself.
pub fn endings<'drive>(
    drive: &Connected<'_>,
    device: &'drive DriveGuest,
    serve: &Serve,
    agent: RunningAgent<'drive>,
) -> Result<RunningAgent<'drive>> {
    let identity = drive.identity()?;
    drive.tool(&format!("reset /dev/{}", drive.controller))?;
    wait_until("the controller is live after a reset", || Ok(drive.state()? == "live"))?;
    assert_eq!(drive.identity()?, identity, "over a reset");
    agent.kill()?;
    wait_until("the kernel sees that the agent is gone", || Ok(drive.state()? != "live"))?;
    let agent = device.serve(serve)?;
    wait_until("the kernel connects again by itself", || Ok(drive.state()? == "live"))?;
    assert_eq!(agent.nqn, drive.nqn, "the agent keeps its name");
    wait_until("the namespaces answer again", || Ok(drive.identity().is_ok_and(|now| now == identity)))?;
    Ok(agent)
}

/// Connects to the same agent a second time, which adds a second path to the same namespaces. The connection goes
/// through another port, since nvme-cli 2.3 refuses a second one to the same address, even with `--duplicate-connect`.
fn two_controllers(drive: &Connected<'_>, second_path: u16, pack: &Path) -> Result<()> {
    drive.connect_through(second_path)?;
    wait_until("there are two controllers", || Ok(drive.controllers()?.len() == 2))?;
    for controller in drive.controllers()? {
        let path = format!("/sys/class/nvme/{controller}/state");
        wait_until("both are live", || Ok(drive.guest.succeed(&format!("cat {path}"), TOOL)?.trim() == "live"))?;
        drive.tool(&format!("id-ctrl /dev/{controller}"))?;
    }
    drive.wait_for_namespaces()?;
    drive.assert_dataset_is(pack)?;
    assert_shows(&drive.tool(&format!("disconnect -n {}", drive.nqn))?, &["disconnected 2 controller(s)"]);
    Ok(())
}

/// A batch for nvme-cli to request from the drive: the command's files, and the expected rows.
pub struct ByHand {
    _folder: tempfile::TempDir,
    pub program: PathBuf,
    pub request: PathBuf,
    parameters: (u64, u64),
    rows: Vec<u8>,
    /// First block of the rows in the result namespace.
    first_block: usize,
}

impl ByHand {
    pub fn new(pack: &Path) -> Result<Self> {
        let dataset = ddlp_dataset::open(pack)?;
        let program =
            Program { pipeline: Pipeline::cifar_train(), limits: Limits::default(), policy: CorruptPolicy::Fail };
        let sample_ids = vec![5, 0, 17];
        let (seed, epoch, generation, id_limit) = (1, 2, 3, dataset.len());
        let encoded = DriveProgram::new(program.clone(), dataset.decoders()).to_bytes()?;
        let id = program_id(dataset.identity().as_bytes(), &encoded);
        let request = BatchRequest {
            program: id,
            seed,
            epoch,
            fidelity: Fidelity::WHOLE,
            batch: 4,
            slot: 0,
            generation,
            id_limit,
            sample_ids,
        };
        let shape = program.pipeline.output();
        let mut rows = vec![0; request.sample_ids.len() * shape.bytes()];
        let mut preparer = SamplePreparer::new(&program);
        for (&id, row) in request.sample_ids.iter().zip(rows.chunks_exact_mut(shape.bytes())) {
            preparer.prepare(dataset.as_ref(), EpochContext { seed, epoch, fidelity: Fidelity::WHOLE }, id, row)?;
        }
        let layout = SlotLayout::new(request.sample_ids.len(), shape).context("a layout")?;
        let folder = tempfile::tempdir()?;
        let file = |name: &str, bytes: Vec<u8>| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).map(|()| path)
        };
        Ok(Self {
            program: file("program", encoded)?,
            request: file("request", request.to_bytes())?,
            parameters: request.parameters(),
            rows,
            first_block: layout.payload_offset / BLOCK_BYTES,
            _folder: folder,
        })
    }

    /// Loads, activates and executes a program by passthrough, and reads the rows from the block device.
    pub fn run(&self, drive: &Connected<'_>) -> Result<()> {
        let bytes = |path: &Path| std::fs::metadata(path).map(|data| data.len());
        let (program, request) = (bytes(&self.program)?, bytes(&self.request)?);
        let controller = format!("/dev/{}", drive.controller);
        let load = LoadProgram {
            kind: PROGRAM_TYPE,
            program_bytes: program as u32,
            bytes: program as u32,
            ..LoadProgram::default()
        };
        let dwords = |dwords: [u32; 6]| {
            let words = dwords.iter().enumerate();
            words.map(|(index, word)| format!("--cdw{}={word:#x} ", index + 10)).collect::<String>()
        };
        let admin = format!("admin-passthru {controller} -n 3");
        drive.tool(&format!(
            "{admin} --opcode=0x85 {} --data-len={program} --write --input-file=/data/program",
            dwords(load.dwords())
        ))?;
        let activate = ProgramActivation { index: 0, select: ProgramActivation::ACTIVATE };
        drive.tool(&format!("{admin} --opcode=0x88 {}", dwords(activate.dwords())))?;
        let (parameter1, parameter2) = self.parameters;
        let execute = ExecuteProgram { parameter1, parameter2, ..ExecuteProgram::default() };
        drive.tool(&format!(
            "io-passthru {} -n 3 --opcode=1 {} --data-len={request} --write --input-file=/data/request",
            drive.generic_node(3)?,
            dwords(execute.dwords())
        ))?;
        let expected = tempfile::NamedTempFile::new()?;
        std::fs::write(expected.path(), &self.rows)?;
        let read = format!(
            "dd if={} bs={BLOCK_BYTES} skip={} count={} 2> /dev/null | head -c {} | sha256sum",
            drive.block_node(2)?,
            self.first_block,
            self.rows.len().div_ceil(BLOCK_BYTES),
            self.rows.len()
        );
        assert_eq!(sum_of(&drive.guest.succeed(&read, TOOL)?), sum_here(expected.path())?, "the rows in the slot");
        Ok(())
    }
}

fn sum_of(said: &str) -> String {
    said.split_whitespace().next().unwrap_or_default().to_string()
}

fn sum_here(path: &Path) -> Result<String> {
    let output = Command::new("sha256sum").arg(path).output().context("cannot run sha256sum")?;
    Ok(sum_of(&String::from_utf8(output.stdout)?))
}

fn stock_tools_work(kernel: HostKernel) -> Result<()> {
    let version = kernel.version();
    let photos = photos();
    let pack = photos.pack();
    let by_hand = ByHand::new(&pack)?;
    let device = DriveGuest::start(&format!("tools-{version}-drive"), Bus::Virtio, &[("images.ddlp", &pack)])?;
    let host = HostGuest::start(
        &format!("tools-{version}-host"),
        kernel,
        true,
        &[("program", &by_hand.program), ("request", &by_hand.request)],
    )?;
    device.ready()?;
    host.guest().ready()?;
    let release = host.guest().succeed("uname -r", TOOL)?;
    ensure!(release.starts_with(&format!("{version}.")), "{release} is not {version}");

    let serve = Serve::new("images.ddlp", BATCH);
    let agent = device.serve(&serve)?;
    discovery(host.guest(), &device, &agent)?;
    let drive = Connected::connect(host.guest(), &agent)?;
    pages(&drive)?;
    drive.assert_dataset_is(&pack)?;
    by_hand.run(&drive)?;
    // Another drive with the same dataset.
    let second_agent = device.serve(&serve.second())?;
    let second = Connected::connect(host.guest(), &second_agent)?;
    for (one, other) in drive.identity()?.iter().zip(second.identity()?) {
        assert_ne!(*one, other, "nothing of one is the other's");
    }
    second.assert_dataset_is(&pack)?;
    assert_shows(&drive.tool("list")?, &[&drive.block_node(1)?, &second.block_node(1)?, "QEMU NVMe Ctrl"]);
    assert_shows(&second.tool(&format!("disconnect -n {}", second.nqn))?, &["disconnected 1 controller(s)"]);

    let _agent = endings(&drive, &device, &serve, agent)?;
    drive.assert_dataset_is(&pack)?;
    two_controllers(&drive, device.second_path(), &pack)?;
    assert_eq!(drive.controllers()?, Vec::<String>::new(), "nothing is left");
    the_kernel_complains_of_nothing(host.guest())
}

pub fn the_kernel_complains_of_nothing(host: &Guest) -> Result<()> {
    let log = host.succeed("dmesg", TOOL)?;
    for trouble in
        ["duplicate IDs", "Identify namespace failed", "WARNING:", "BUG:", "hung_task", "blocked for more than"]
    {
        assert!(!log.contains(trouble), "{trouble}: {log}");
    }
    Ok(())
}

/// Tests the kernel of Debian 12's release: discovery; nvme-cli's pages; reset; an agent that is killed and started
/// again; two agents beside each other; two controllers of one subsystem.
#[test]
fn stock_tools_work_on_linux_6_1() -> Result<()> {
    in_guests("stock_tools_work_on_linux_6_1", || stock_tools_work(HostKernel::Linux6_1))
}

/// Tests the same with the newer kernel.
#[test]
fn stock_tools_work_on_linux_6_12() -> Result<()> {
    in_guests("stock_tools_work_on_linux_6_12", || stock_tools_work(HostKernel::Linux6_12))
}
