//! The kernel's view of its NVMe controllers: reads `/sys/class/nvme`, and nothing else.
//!
//! - [`Sysfs`]: finds controllers, by name, by node or all of them. [`KernelController`]: the attributes of one of
//!   them.
//! - `namespaces`: its namespaces and their nodes, found by NSID.
//!
//! The numbers in the names of nodes carry no meaning here. Y of `/dev/ngXnY` is not an NSID (kernels that scan
//! asynchronously number namespaces in order of completion), and X is the instance of the controller or of its
//! subsystem. The layout is as in Linux 6.1 to 6.12 (`drivers/nvme/host`: `core.c`, `multipath.c`, `sysfs.c`), with
//! native multipath and without.
//!
//! Nothing here sends a command to a controller or opens a node, so a reader never waits for a drive that is gone. The
//! answers may be out of date at once: a controller that disappears while it is read is left out.

mod namespaces;
#[cfg(test)]
mod tests;

pub use namespaces::KernelNamespace;

use nix::errno::Errno;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The kernel's view, below two root folders.
#[derive(Clone, Debug)]
pub struct Sysfs {
    root: PathBuf,
    dev: PathBuf,
}

/// State of a controller in the kernel's driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControllerState {
    /// Coming up for the first time.
    New,
    /// Taking commands.
    Live,
    /// Tearing down its queues.
    Resetting,
    /// Path away; the kernel tries to get it back.
    Connecting,
    /// Being removed.
    Deleting,
    /// Given up by the kernel.
    Dead,
    /// Any word that this program does not know.
    Other(String),
}

/// A controller of the kernel's driver. Texts have no padding; attributes that the kernel does not tell are empty or
/// `None`.
#[derive(Clone, Debug)]
pub struct KernelController {
    /// Instance name, `nvme0`.
    pub name: String,
    /// Node for admin commands, `/dev/nvme0`.
    pub node: PathBuf,
    /// Folder of its attributes, `/sys/class/nvme/nvme0`.
    pub folder: PathBuf,
    /// Model number.
    pub model: String,
    /// Serial number.
    pub serial: String,
    /// Firmware revision.
    pub firmware_rev: String,
    /// Transport: `pcie`, `tcp`, `rdma`, `fc` or `loop`.
    pub transport: String,
    /// Address in the transport's notation: `traddr=10.0.0.7,trsvcid=4420,src_addr=10.0.0.2`, or for PCIe
    /// `0000:01:00.0`.
    pub address: String,
    /// Address of the target, from [`Self::address`]; `None` for PCIe.
    pub traddr: Option<String>,
    /// Port of the target, from [`Self::address`]; `None` for PCIe.
    pub trsvcid: Option<String>,
    /// State at the time of reading.
    pub state: ControllerState,
    /// NQN of the subsystem.
    pub subsysnqn: String,
    /// Instance name of the subsystem, `nvme-subsys0`.
    pub subsystem: Option<String>,
    /// Controller identifier.
    pub cntlid: Option<u16>,
    /// Type: `io`, `discovery` or `admin`; `None` before Linux 5.18.
    pub cntrltype: Option<String>,
    /// Keep alive time-out in seconds; 0 for no keep alive.
    pub kato: Option<u32>,
    /// Seconds from the loss of the path until commands fail. `None` if they wait as long as the kernel tries to
    /// reconnect ("off"), or for PCIe.
    pub fast_io_fail_tmo: Option<u32>,
    /// Seconds from the loss of the path until the kernel removes the controller. `None` if it never does ("off"), or
    /// for PCIe.
    pub ctrl_loss_tmo: Option<u32>,
    /// Seconds between two attempts to reconnect; `None` for PCIe.
    pub reconnect_delay: Option<u32>,
    /// NQN under which this host is connected; `None` for PCIe.
    pub hostnqn: Option<String>,
    /// Namespaces, sorted by NSID.
    pub namespaces: Vec<KernelNamespace>,
}

impl Sysfs {
    /// Returns the view of the running kernel.
    pub fn system() -> Self {
        Self::at("/sys", "/dev")
    }

    /// Returns the view below other root folders.
    pub fn at(sys_root: impl Into<PathBuf>, dev_root: impl Into<PathBuf>) -> Self {
        Self { root: sys_root.into(), dev: dev_root.into() }
    }

    /// Returns all controllers, sorted by instance number; an empty list if the kernel has no NVMe driver.
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

    /// Returns one controller by its instance name, `nvme0`. Fails with [`ErrorKind::NotFound`] if no controller has
    /// that name.
    pub fn controller(&self, name: &str) -> io::Result<KernelController> {
        let folder = self.folder(name)?;
        // Every controller has a state: one without is absent, or is just going away.
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

    /// Returns the controller of a node, `/dev/nvme0`. Fails with [`ErrorKind::InvalidInput`] for other nodes. That
    /// includes nodes of namespaces: with multipath, they belong to no single controller.
    pub fn controller_at(&self, node: &Path) -> io::Result<KernelController> {
        match node.strip_prefix(&self.dev).ok().and_then(Path::to_str).filter(|name| instance(name).is_some()) {
            Some(name) => self.controller(name),
            None => {
                let what =
                    format!("{} is not the node of an NVMe controller, which looks like /dev/nvme0", node.display());
                Err(io::Error::new(ErrorKind::InvalidInput, what))
            }
        }
    }

    /// Returns the state of a controller. It reads one small file, cheap enough to poll. Fails with
    /// [`ErrorKind::NotFound`] if the controller is gone.
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

    /// Returns the folder of a controller. Checks the name, which may come from a user, so that it leads nowhere else.
    fn folder(&self, name: &str) -> io::Result<PathBuf> {
        if instance(name).is_none() {
            let what = format!("{name:?} is not the name of an NVMe controller, which looks like nvme0");
            return Err(io::Error::new(ErrorKind::InvalidInput, what));
        }
        Ok(self.class("nvme").join(name))
    }

    /// Returns the subsystem of a controller: the one whose folder has a link to it.
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

    /// Returns the kernel's word for the state.
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
    /// Returns the namespace with this NSID.
    pub fn namespace(&self, nsid: u32) -> Option<&KernelNamespace> {
        self.namespaces.iter().find(|namespace| namespace.nsid == nsid)
    }

    /// Returns whether the controller has I/O queues. A discovery controller, which may have the same model as the
    /// drives in its log, has none.
    pub fn serves_io(&self) -> bool {
        self.cntrltype.as_deref().is_none_or(|kind| kind == "io")
    }

    /// Returns whether the controller is reached over a network. Then the kernel reconnects, as `ctrl_loss_tmo`,
    /// `fast_io_fail_tmo` and `reconnect_delay` say.
    pub fn is_fabric(&self) -> bool {
        self.transport != "pcie"
    }
}

/// Returns X of `nvmeX`.
fn instance(name: &str) -> Option<u32> {
    digits(name.strip_prefix("nvme")?)
}

/// Parses a number that consists of digits only: no sign, no blank.
fn digits(text: &str) -> Option<u32> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// Returns a part of a fabric's address, `traddr=…,trsvcid=…`.
fn address_part(address: &str, key: &str) -> Option<String> {
    let mut parts = address.split(',').filter_map(|part| part.split_once('='));
    parts.find(|(name, _)| *name == key).map(|(_, value)| value.trim().to_owned())
}

/// Returns the names in a folder, sorted; an empty list if there is no such folder.
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

/// Reads an attribute without its padding. Returns `None` if it does not exist, or if the device goes away during the
/// read (ENODEV).
fn read_text(path: &Path) -> io::Result<Option<String>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).trim_matches(['\0', ' ', '\n', '\t']).to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(Errno::ENODEV as i32) => Ok(None),
        Err(error) => Err(io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display()))),
    }
}

/// Reads an attribute that is a number. Returns `None` for words such as "off" and for numbers out of range.
fn read_number<N: std::str::FromStr>(path: &Path) -> io::Result<Option<N>> {
    Ok(read_text(path)?.and_then(|text| text.parse().ok()))
}
