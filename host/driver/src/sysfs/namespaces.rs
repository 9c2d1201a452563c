//! Namespaces of a controller and their nodes.
//!
//! Two layouts, by what a controller's directory holds:
//!
//! | | with a head (multipath, and the subsystem may have several controllers) | without |
//! |---|---|---|
//! | in the controller's directory | `nvmeScCnY`, hidden, has `nsid` | `nvmeXnY` with `nsid`, and `ngCnY` |
//! | in the subsystem's directory | `nvmeSnY`, and `ngSnY` | – |
//!
//! S, C: instances of subsystem and controller, X one of the two, Y the instance of the namespace. A disk that is hidden has no
//! block node: the paths below a head, and namespaces of a command set that the kernel has no block driver for.

use super::{digits, names_in, read_number};
use std::io;
use std::path::{Path, PathBuf};

/// Bytes of a sector, the unit of the attribute `size`.
const SECTOR_BYTES: u64 = 512;

/// A namespace as the kernel shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelNamespace {
    /// Namespace identifier.
    pub nsid: u32,
    /// Size of its block device; 0 without one.
    pub bytes: u64,
    /// `/dev/ngXnY`: commands of its command set. `None` while the kernel has not made it.
    pub generic: Option<PathBuf>,
    /// `/dev/nvmeXnY`: blocks. `None` when the kernel has no block driver for it.
    pub block: Option<PathBuf>,
}

/// What a disk's name says.
enum Disk {
    /// `nvmeXnY`.
    Own { namespace: u32 },
    /// `nvmeScCnY`: one path of several to `nvmeSnY`.
    Path { subsystem: u32, namespace: u32 },
}

impl Disk {
    fn from_name(name: &str) -> Option<Self> {
        let (device, namespace) = name.strip_prefix("nvme")?.split_once('n')?;
        let namespace = digits(namespace)?;
        match device.split_once('c') {
            None => digits(device).map(|_| Self::Own { namespace }),
            Some((subsystem, controller)) => {
                digits(controller)?;
                digits(subsystem).map(|subsystem| Self::Path { subsystem, namespace })
            }
        }
    }
}

/// The namespaces of a controller, by NSID.
pub(super) fn read(controller: &Path, subsystem: Option<PathBuf>, dev: &Path) -> io::Result<Vec<KernelNamespace>> {
    let entries = names_in(controller)?;
    let mut namespaces = Vec::new();
    for name in &entries {
        let Some(disk) = Disk::from_name(name) else { continue };
        let folder = controller.join(name);
        // Gone between the listing and here.
        let Some(nsid) = read_number::<u32>(&folder.join("nsid"))? else { continue };
        let (generic, block) = match disk {
            Disk::Own { namespace } => {
                let generic = entries.iter().find(|entry| is_generic(entry, namespace));
                (generic.cloned(), shown(&folder)?.then(|| name.clone()))
            }
            Disk::Path { subsystem: instance, namespace } => {
                let head = format!("nvme{instance}n{namespace}");
                let generic = format!("ng{instance}n{namespace}");
                let there =
                    |name: &str| subsystem.as_ref().map(|folder| folder.join(name)).filter(|path| path.exists());
                let has_block = match there(&head) {
                    Some(folder) => shown(&folder)?,
                    None => false,
                };
                (there(&generic).map(|_| generic), has_block.then_some(head))
            }
        };
        let sectors = read_number::<u64>(&folder.join("size"))?.unwrap_or(0);
        namespaces.push(KernelNamespace {
            nsid,
            bytes: sectors.saturating_mul(SECTOR_BYTES),
            generic: generic.map(|name| dev.join(name)),
            block: block.map(|name| dev.join(name)),
        });
    }
    namespaces.sort_by_key(|namespace| namespace.nsid);
    Ok(namespaces)
}

/// `ngXnY` of namespace instance Y.
fn is_generic(name: &str, namespace: u32) -> bool {
    let numbers = name.strip_prefix("ng").and_then(|rest| rest.split_once('n'));
    numbers.is_some_and(|(device, number)| digits(device).is_some() && digits(number) == Some(namespace))
}

/// The disk has a block node.
fn shown(disk: &Path) -> io::Result<bool> {
    Ok(read_number::<u32>(&disk.join("hidden"))? != Some(1))
}
