//! The namespaces of a controller, and their nodes.
//!
//! There are two layouts, by the contents of a controller's folder:
//!
//! | | with a head (multipath, and the subsystem may have several controllers) | without |
//! |---|---|---|
//! | in the controller's folder | `nvmeScCnY`, hidden, has `nsid` | `nvmeXnY` with `nsid`, and `ngCnY` |
//! | in the subsystem's folder | `nvmeSnY`, and `ngSnY` | – |
//!
//! S and C are the instances of subsystem and controller, X is one of the two, Y the instance of the namespace. A
//! hidden disk has no block node: this applies to the paths below a head, and to namespaces of a command set without a
//! block driver in the kernel.

use super::{digits, names_in, read_number};
use std::io;
use std::path::{Path, PathBuf};

/// Bytes of a sector, the unit of the attribute `size`.
const SECTOR_BYTES: u64 = 512;

/// A namespace in the kernel's view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelNamespace {
    /// Namespace identifier.
    pub nsid: u32,
    /// Size of its block device in bytes; 0 without a block device.
    pub bytes: u64,
    /// Generic node, `/dev/ngXnY`, for commands of its command set. `None` until the kernel has made it.
    pub generic: Option<PathBuf>,
    /// Block node, `/dev/nvmeXnY`. `None` if the kernel has no block driver for the namespace.
    pub block: Option<PathBuf>,
}

/// Meaning of a disk's name.
enum Disk {
    /// `nvmeXnY`.
    Own { namespace: u32 },
    /// `nvmeScCnY`: one of several paths to `nvmeSnY`.
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

/// Returns the namespaces of a controller, sorted by NSID.
pub(super) fn read(controller: &Path, subsystem: Option<PathBuf>, dev: &Path) -> io::Result<Vec<KernelNamespace>> {
    let entries = names_in(controller)?;
    let mut namespaces = Vec::new();
    for name in &entries {
        let Some(disk) = Disk::from_name(name) else { continue };
        let folder = controller.join(name);
        // The namespace went away after the listing.
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

/// Returns whether `name` is `ngXnY` for namespace instance Y.
fn is_generic(name: &str, namespace: u32) -> bool {
    let numbers = name.strip_prefix("ng").and_then(|rest| rest.split_once('n'));
    numbers.is_some_and(|(device, number)| digits(device).is_some() && digits(number) == Some(namespace))
}

/// Returns whether the disk has a block node.
fn shown(disk: &Path) -> io::Result<bool> {
    Ok(read_number::<u32>(&disk.join("hidden"))? != Some(1))
}
