//! What the kernel says of its NVMe controllers: reading `/sys/class/nvme`, nothing else.
//!
//! - [`Sysfs`]: finds controllers, by name, by node or all of them. [`KernelController`]: what one of them is.
//! - `namespaces`: its namespaces and their nodes, found by NSID.
//!
//! The numbers in the names of nodes mean nothing here: Y of `/dev/ngXnY` is no NSID (kernels that scan asynchronously number
//! namespaces in order of completion), and X is the instance of the controller or that of its subsystem. Layout as in Linux
//! 6.1 to 6.12 (`drivers/nvme/host`: `core.c`, `multipath.c`, `sysfs.c`), with native multipath and without.
//!
//! No command is sent to a controller and no node is opened, so that looking never waits for a drive that is gone. What is read
//! may be out of date at once: a controller that disappears while it is read is left out.

mod namespaces;
#[cfg(test)]
mod tests;

pub use namespaces::KernelNamespace;

use nix::errno::Errno;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The kernel's view, below two roots.
#[derive(Clone, Debug)]
pub struct Sysfs {
    root: PathBuf,
    dev: PathBuf,
}

/// State of a controller in the kernel's driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControllerState {
    /// Not up yet for the first time.
    New,
    /// Takes commands.
    Live,
    /// Its queues are torn down.
    Resetting,
    /// The path is away; the kernel tries to get it back.
    Connecting,
    /// On its way out.
    Deleting,
    /// Given up.
    Dead,
    /// A word that this program does not know.
    Other(String),
}

/// A controller of the kernel's driver. Texts are without padding; what the kernel does not tell is empty or `None`.
#[derive(Clone, Debug)]
pub struct KernelController {
    /// Instance name, `nvme0`.
    pub name: String,
    /// `/dev/nvme0`: admin commands.
    pub node: PathBuf,
    /// `/sys/class/nvme/nvme0`: its attributes.
    pub folder: PathBuf,
    /// Model number.
    pub model: String,
    /// Serial number.
    pub serial: String,
    /// Firmware revision.
    pub firmware_rev: String,
    /// `pcie`, `tcp`, `rdma`, `fc`, `loop`.
    pub transport: String,
    /// Address as the transport writes it: `traddr=10.0.0.7,trsvcid=4420,src_addr=10.0.0.2`, of PCIe `0000:01:00.0`.
    pub address: String,
    /// The target's address out of [`Self::address`], not of PCIe.
    pub traddr: Option<String>,
    /// The target's port out of [`Self::address`], not of PCIe.
    pub trsvcid: Option<String>,
    /// State when it was read.
    pub state: ControllerState,
    /// NQN of the subsystem.
    pub subsysnqn: String,
    /// Instance name of the subsystem, `nvme-subsys0`.
    pub subsystem: Option<String>,
    /// Controller identifier.
    pub cntlid: Option<u16>,
    /// `io`, `discovery` or `admin`; Linux 5.18 or newer tells.
    pub cntrltype: Option<String>,
    /// Keep alive time-out in seconds; 0: none.
    pub kato: Option<u32>,
    /// Seconds after the loss of the path until commands fail. `None`: they wait for as long as the kernel tries to reconnect
    /// ("off"), or the transport has no such thing (PCIe).
    pub fast_io_fail_tmo: Option<u32>,
    /// Seconds after the loss of the path until the kernel removes the controller. `None`: never ("off"), or PCIe.
    pub ctrl_loss_tmo: Option<u32>,
    /// Seconds between two attempts to reconnect; not of PCIe.
    pub reconnect_delay: Option<u32>,
    /// NQN under which this host is connected; not of PCIe.
    pub hostnqn: Option<String>,
    /// Namespaces by NSID.
    pub namespaces: Vec<KernelNamespace>,
}

impl Sysfs {
    /// That of the running kernel.
    pub fn system() -> Self {
        Self::at("/sys", "/dev")
    }

    /// That below other directories.
    pub fn at(sys_root: impl Into<PathBuf>, dev_root: impl Into<PathBuf>) -> Self {
        Self { root: sys_root.into(), dev: dev_root.into() }
    }

    /// All controllers, by instance number. None when the kernel has no NVMe driver.
    pub fn controllers(&self) -> io::Result<Vec<KernelController>> {
        let mut names = names_in(&self.class("nvme"))?;
        names.retain(|name| instance(name).is_some());
        names.sort_by_key(|name| instance(name));
        let mut controllers = Vec::new();
        for name in names {
            match self.controller(&name) {
                Ok(controller) => controllers.push(controller),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(controllers)
    }

    /// One controller by its instance name, `nvme0`. [`ErrorKind::NotFound`] when there is none of that name.
    pub fn controller(&self, name: &str) -> io::Result<KernelController> {
        let folder = self.folder(name)?;
        // Every controller has a state: without one it is not there, or is going away right now.
        let state = self.state(name)?;
        let text = |attribute: &str| read_text(&folder.join(attribute)).map(Option::unwrap_or_default);
        let seconds = |attribute: &str| read_number::<u32>(&folder.join(attribute));
        let subsystem = self.subsystem_of(name)?;
        let address = text("address")?;
        let namespaces = namespaces::read(&folder, subsystem.as_deref().map(|name| self.subsystem(name)), &self.dev)?;
        Ok(KernelController {
            name: name.to_owned(),
            node: self.dev.join(name),
            model: text("model")?,
            serial: text("serial")?,
            firmware_rev: text("firmware_rev")?,
            transport: text("transport")?,
            traddr: address_part(&address, "traddr"),
            trsvcid: address_part(&address, "trsvcid"),
            address,
            state,
            subsysnqn: text("subsysnqn")?,
            subsystem,
            cntlid: read_number(&folder.join("cntlid"))?,
            cntrltype: read_text(&folder.join("cntrltype"))?,
            kato: seconds("kato")?,
            fast_io_fail_tmo: seconds("fast_io_fail_tmo")?,
            ctrl_loss_tmo: seconds("ctrl_loss_tmo")?,
            reconnect_delay: seconds("reconnect_delay")?,
            hostnqn: read_text(&folder.join("hostnqn"))?,
            namespaces,
            folder,
        })
    }

    /// The controller behind its node, `/dev/nvme0`. [`ErrorKind::InvalidInput`] for other nodes, those of namespaces among them:
    /// with multipath these belong to no one controller.
    pub fn controller_at(&self, node: &Path) -> io::Result<KernelController> {
        match node.strip_prefix(&self.dev).ok().and_then(Path::to_str).filter(|name| instance(name).is_some()) {
            Some(name) => self.controller(name),
            None => {
                let what = format!("{} is no NVMe controller's node, which looks like /dev/nvme0", node.display());
                Err(io::Error::new(ErrorKind::InvalidInput, what))
            }
        }
    }

    /// State of a controller: one small file, cheap enough to poll. [`ErrorKind::NotFound`] when the controller is gone.
    pub fn state(&self, name: &str) -> io::Result<ControllerState> {
        let path = self.folder(name)?.join("state");
        match read_text(&path)? {
            Some(word) => Ok(ControllerState::from_word(&word)),
            None => Err(io::Error::new(ErrorKind::NotFound, format!("there is no controller {name}"))),
        }
    }

    fn class(&self, class: &str) -> PathBuf {
        self.root.join("class").join(class)
    }

    fn subsystem(&self, name: &str) -> PathBuf {
        self.class("nvme-subsystem").join(name)
    }

    /// Directory of a controller. The name may come from a person: it leads nowhere else.
    fn folder(&self, name: &str) -> io::Result<PathBuf> {
        if instance(name).is_none() {
            let what = format!("{name:?} is no NVMe controller's name, which looks like nvme0");
            return Err(io::Error::new(ErrorKind::InvalidInput, what));
        }
        Ok(self.class("nvme").join(name))
    }

    /// A subsystem's directory has a link to each of its controllers.
    fn subsystem_of(&self, controller: &str) -> io::Result<Option<String>> {
        let subsystems = names_in(&self.class("nvme-subsystem"))?;
        Ok(subsystems.into_iter().find(|name| self.subsystem(name).join(controller).exists()))
    }
}

impl ControllerState {
    fn from_word(word: &str) -> Self {
        match word {
            "new" => Self::New,
            "live" => Self::Live,
            "resetting" => Self::Resetting,
            "connecting" => Self::Connecting,
            "deleting" | "deleting (no IO)" => Self::Deleting,
            "dead" => Self::Dead,
            _ => Self::Other(word.to_owned()),
        }
    }

    /// The word for it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::New => "new",
            Self::Live => "live",
            Self::Resetting => "resetting",
            Self::Connecting => "connecting",
            Self::Deleting => "deleting",
            Self::Dead => "dead",
            Self::Other(word) => word,
        }
    }
}

impl KernelController {
    /// The namespace of an NSID.
    pub fn namespace(&self, nsid: u32) -> Option<&KernelNamespace> {
        self.namespaces.iter().find(|namespace| namespace.nsid == nsid)
    }

    /// It has I/O queues: a discovery controller, which may have the model of the drives that it tells of, has none.
    pub fn serves_io(&self) -> bool {
        self.cntrltype.as_deref().is_none_or(|kind| kind == "io")
    }

    /// Over a network: the kernel reconnects, and `ctrl_loss_tmo`, `fast_io_fail_tmo` and `reconnect_delay` say how.
    pub fn is_fabric(&self) -> bool {
        self.transport != "pcie"
    }
}

/// Number X of `nvmeX`.
fn instance(name: &str) -> Option<u32> {
    digits(name.strip_prefix("nvme")?)
}

/// A number of digits alone: no sign, no blank.
fn digits(text: &str) -> Option<u32> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// A part of a fabric's address, `traddr=…,trsvcid=…`.
fn address_part(address: &str, key: &str) -> Option<String> {
    let mut parts = address.split(',').filter_map(|part| part.split_once('='));
    parts.find(|(name, _)| *name == key).map(|(_, value)| value.trim().to_owned())
}

/// Names in a directory, sorted; none when there is no such directory.
fn names_in(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string().ok());
    }
    names.sort();
    Ok(names)
}

/// An attribute without its padding; `None` when there is none. A device that goes away while its attribute is read answers
/// ENODEV.
fn read_text(path: &Path) -> io::Result<Option<String>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).trim_matches(['\0', ' ', '\n', '\t']).to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(Errno::ENODEV as i32) => Ok(None),
        Err(error) => Err(io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display()))),
    }
}

/// An attribute that is a number; `None` for words such as "off" and for numbers out of range.
fn read_number<N: std::str::FromStr>(path: &Path) -> io::Result<Option<N>> {
    Ok(read_text(path)?.and_then(|text| text.parse().ok()))
}
