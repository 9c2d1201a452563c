//! A QEMU process and the guest in it.

use crate::accel::kvm_works;
use crate::kernel::GuestKernel;
use crate::packages::Arch;
use crate::qmp::Qmp;
use crate::scratch::ScratchFolder;
use crate::shell::{SHELLS, Shell, ShellOutput, tail};
use crate::tools::need;
use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::json;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::{panicking, sleep};
use std::time::{Duration, Instant, SystemTime};

/// Longest time from QEMU's start until its sockets are connected.
const START_PATIENCE: Duration = Duration::from_secs(20);
/// Longest time from the kernel's start until the shells answer; 2 to 5 s if nothing else runs.
const BOOT_PATIENCE: Duration = Duration::from_secs(120);
/// Lines of the console that an error shows.
const CONSOLE_LINES: usize = 30;

/// Bus of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bus {
    /// virtio-blk: `/dev/vda`.
    Virtio,
    /// QEMU's NVMe controller, an ordinary disk: `/dev/nvme0n1`.
    Nvme,
}

/// A guest's hardware.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Name of the log.
    pub name: String,
    /// Architecture.
    pub arch: Arch,
    /// Kernel to boot.
    pub kernel: GuestKernel,
    /// Its root file system.
    pub initramfs: PathBuf,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Cores.
    pub cores: u32,
    /// Disk images, raw.
    pub disks: Vec<(PathBuf, Bus)>,
    /// Ports of this machine's loopback, and the ports of the guest to which they lead.
    pub forwards: Vec<(u16, u16)>,
}

impl Machine {
    /// Returns the file with the console of all boots.
    pub fn log(&self) -> PathBuf {
        log_folder().join(format!("{}.log", self.name))
    }

    fn command(&self, sockets: &Path) -> Result<Command> {
        let program = match self.arch {
            Arch::Amd64 => need("qemu-system-x86_64", "qemu-system-x86")?,
            Arch::Arm64 => need("qemu-system-aarch64", "qemu-system-arm")?,
        };
        // The kernel kills QEMU when the thread that started it ends, for whatever reason.
        let mut command = Command::new(need("setpriv", "util-linux")?);
        command.args(["--pdeathsig", "KILL"]).arg(program).current_dir(sockets);
        let (machine, cpu, accel, console) = match self.arch {
            Arch::Amd64 if kvm_works(&self.kernel.image, &self.initramfs) => ("q35", "host", "kvm", "ttyS0"),
            // A CPU without AVX2, so that libjpeg-turbo runs its SSE2 code, while the machine outside runs its AVX2
            // code.
            Arch::Amd64 => ("q35", "Nehalem", "tcg,thread=multi", "ttyS0"),
            Arch::Arm64 => ("virt", "cortex-a53", "tcg,thread=multi", "ttyAMA0"),
        };
        command.args(["-M", machine, "-cpu", cpu, "-accel", accel, "-nodefaults", "-no-user-config", "-no-reboot"]);
        command.args(["-display", "none", "-smp", &self.cores.to_string(), "-m", &self.memory_mib.to_string()]);
        command.arg("-kernel").arg(&self.kernel.image).arg("-initrd").arg(&self.initramfs);
        // Linux stops at boot if the timer of a busy machine's guest is late.
        let timer = if self.arch == Arch::Amd64 { " no_timer_check" } else { "" };
        command.args(["-append", &format!("console={console} panic=-1 rdinit=/sbin/init{timer}")]);
        command.args(["-chardev", &format!("file,id=console,append=on,path={}", self.log().display())]);
        command.args(["-serial", "chardev:console", "-chardev", "socket,id=monitor,path=monitor"]);
        command.args(["-mon", "chardev=monitor,mode=control", "-device", "virtio-serial-pci,max_ports=16"]);
        for shell in 0..SHELLS {
            command.args(["-chardev", &format!("socket,id=shell{shell},path=shell{shell}")]);
            command.args(["-device", &format!("virtserialport,chardev=shell{shell},name=shell{shell}")]);
        }
        let forwards = self.forwards.iter().map(|(out, inside)| format!(",hostfwd=tcp:127.0.0.1:{out}-:{inside}"));
        command.args(["-netdev", &format!("user,id=net{}", forwards.collect::<String>())]);
        command.args(["-device", "virtio-net-pci,netdev=net,id=nic,romfile="]);
        for (number, (path, bus)) in self.disks.iter().enumerate() {
            command.args(["-drive", &format!("file={},format=raw,if=none,id=disk{number}", path.display())]);
            let device = match bus {
                Bus::Virtio => format!("virtio-blk-pci,drive=disk{number}"),
                Bus::Nvme => format!("nvme,drive=disk{number},serial=ordinary{number}"),
            };
            command.args(["-device", &device]);
        }
        Ok(command)
    }
}

/// Returns the folder of the consoles' logs.
pub fn log_folder() -> PathBuf {
    crate::target_dir().join("qemu/logs")
}

/// Chooses a free port of this machine's loopback for each of a guest's ports.
pub fn forwards(inside: &[u16]) -> Result<Vec<(u16, u16)>> {
    // Binds all ports before it releases any, so that no port comes twice.
    let bind = |_: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port of loopback is free");
    let taken: Vec<TcpListener> = inside.iter().map(bind).collect::<Result<_>>()?;
    taken.iter().zip(inside).map(|(listener, &port)| Ok((listener.local_addr()?.port(), port))).collect()
}

/// A running guest. Dropping it kills it.
pub struct Guest {
    machine: Machine,
    qemu: Child,
    monitor: Mutex<Qmp>,
    shells: Mutex<Vec<Shell>>,
    _sockets: ScratchFolder,
}

impl Guest {
    /// Starts QEMU. [`ready`](Self::ready) waits for the guest, so that several can boot at the same time.
    pub fn start(machine: Machine) -> Result<Self> {
        fs::create_dir_all(log_folder()).context("cannot make a folder for the guests' consoles")?;
        let sockets = ScratchFolder::new()?;
        let names: Vec<String> = (0..SHELLS).map(|shell| format!("shell{shell}")).chain(["monitor".into()]).collect();
        let listeners: Vec<UnixListener> = names
            .iter()
            .map(|name| {
                UnixListener::bind(sockets.join(name)).with_context(|| format!("cannot make a socket for {name}"))
            })
            .collect::<Result<_>>()?;
        let errors = OpenOptions::new().create(true).append(true).open(machine.log())?;
        let mut command = machine.command(sockets.path())?;
        let qemu =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).spawn().context("cannot run QEMU")?;
        let mut qemu = Killed(Some(qemu));
        let mut connected = Vec::new();
        for listener in &listeners {
            let accepted = accept(listener, qemu.0.as_mut().expect("not taken yet"));
            connected.push(accepted.map_err(|error| explained(&machine, error))?);
        }
        let monitor = Qmp::new(connected.pop().expect("the monitor is the last"))?;
        let shells = connected.into_iter().map(Shell::new).collect();
        let qemu = qemu.0.take().expect("taken here only");
        Ok(Self { machine, qemu, monitor: monitor.into(), shells: Mutex::new(shells), _sockets: sockets })
    }

    /// Waits until all shells answer.
    pub fn ready(&self) -> Result<()> {
        let until = Instant::now() + BOOT_PATIENCE;
        for shell in self.pool().iter_mut() {
            shell.start("true").and_then(|()| shell.finish(until)).map_err(|error| explained(&self.machine, error))?;
        }
        Ok(())
    }

    /// Returns the guest's hardware.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Runs a command to its end.
    pub fn run(&self, command: &str, patience: Duration) -> Result<ShellOutput> {
        self.start_command(command)?.finish(patience)
    }

    /// Runs a command that must end with status 0. Returns its output.
    pub fn succeed(&self, command: &str, patience: Duration) -> Result<String> {
        let output = self.run(command, patience)?;
        ensure!(
            output.status == 0,
            "{}: `{command}` ended with status {}:\n{}",
            self.machine.name,
            output.status,
            tail(&output.text, 40)
        );
        Ok(output.text)
    }

    /// Starts a command in a shell of its own.
    pub fn start_command(&self, command: &str) -> Result<Running<'_>> {
        let shell = self.pool().pop();
        let mut shell = shell.with_context(|| format!("{SHELLS} commands are running in {}", self.machine.name))?;
        shell.start(command).map_err(|error| explained(&self.machine, error))?;
        Ok(Running { guest: self, shell: Some(shell), command: command.to_string() })
    }

    /// Plugs the network in, or unplugs it.
    pub fn set_link(&self, up: bool) -> Result<()> {
        let mut monitor = self.monitor.lock().unwrap_or_else(PoisonError::into_inner);
        monitor.execute("set_link", json!({ "name": "nic", "up": up })).map(drop)
    }

    /// Switches the power off, without writing anything back or closing any connection.
    pub fn power_off(mut self) -> Result<()> {
        let quit = self.monitor.get_mut().unwrap_or_else(PoisonError::into_inner).execute("quit", json!({}));
        quit?;
        self.ended(START_PATIENCE)
    }

    /// Waits until the guest has switched itself off. A reboot counts too, since this QEMU ends at a reboot.
    pub fn ended(mut self, patience: Duration) -> Result<()> {
        let until = Instant::now() + patience;
        while self.qemu.try_wait()?.is_none() {
            ensure!(Instant::now() < until, "{}: QEMU does not end\n{}", self.machine.name, console(&self.machine));
            sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn pool(&self) -> std::sync::MutexGuard<'_, Vec<Shell>> {
        self.shells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
        if panicking() {
            eprintln!("{}", console(&self.machine));
        }
    }
}

/// A command that runs in a guest.
pub struct Running<'guest> {
    guest: &'guest Guest,
    shell: Option<Shell>,
    command: String,
}

impl Running<'_> {
    /// Waits until `found` is true for the command's output. Fails if the command ends before.
    pub fn wait_for(&mut self, what: &str, patience: Duration, found: impl Fn(&str) -> bool) -> Result<String> {
        let shell = self.shell.as_mut().expect("given back in the end only");
        match shell.wait_for(Instant::now() + patience, found) {
            Ok(true) => Ok(shell.text()),
            Ok(false) => bail!("`{}` ended without {what}:\n{}", self.command, tail(&shell.text(), 40)),
            Err(error) => Err(explained(&self.guest.machine, error.context(format!("`{}`: {what}", self.command)))),
        }
    }

    /// Waits for the command's end.
    pub fn finish(self, patience: Duration) -> Result<ShellOutput> {
        self.end_by(|shell| shell.finish(Instant::now() + patience))
    }

    /// Waits for the command's end, and writes its output to `out` as it comes.
    pub fn follow(self, patience: Duration, out: &mut impl Write) -> Result<ShellOutput> {
        self.end_by(|shell| shell.follow(Instant::now() + patience, out))
    }

    fn end_by(mut self, wait: impl FnOnce(&mut Shell) -> Result<ShellOutput>) -> Result<ShellOutput> {
        let mut shell = self.shell.take().expect("given back in the end only");
        let output = wait(&mut shell);
        let output =
            output.map_err(|error| explained(&self.guest.machine, error.context(format!("`{}`", self.command))))?;
        // A shell whose command did not end does not come back to the pool.
        self.guest.pool().push(shell);
        Ok(output)
    }
}

/// Child process that is killed when dropped, unless it is taken out.
struct Killed(Option<Child>);

impl Drop for Killed {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Accepts QEMU's connection to a socket.
fn accept(listener: &UnixListener, qemu: &mut Child) -> Result<UnixStream> {
    listener.set_nonblocking(true)?;
    let until = Instant::now() + START_PATIENCE;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("QEMU's connection cannot be accepted"),
        }
        if let Some(status) = qemu.try_wait()? {
            bail!("QEMU ended at its start: {status}");
        }
        ensure!(Instant::now() < until, "QEMU does not connect to its sockets");
        sleep(Duration::from_millis(5));
    }
}

/// Adds the guest's name and the end of its console to an error.
fn explained(machine: &Machine, error: anyhow::Error) -> anyhow::Error {
    anyhow!("guest {}: {error:#}\n{}", machine.name, console(machine))
}

fn console(machine: &Machine) -> String {
    end_of(&machine.log())
}

/// Returns the ends of all consoles with output since `begun`.
pub fn consoles_since(begun: SystemTime) -> String {
    let logs = fs::read_dir(log_folder()).into_iter().flatten().flatten();
    let written = logs.filter(|log| log.metadata().and_then(|data| data.modified()).is_ok_and(|time| time >= begun));
    let mut paths: Vec<PathBuf> = written.map(|log| log.path()).collect();
    paths.sort();
    paths.iter().map(|path| end_of(path)).collect::<Vec<_>>().join("\n")
}

fn end_of(path: &Path) -> String {
    let text = fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    format!("-- end of the console ({}):\n{}", path.display(), tail(&text, CONSOLE_LINES))
}
