//! Opening a dataset: from files of this machine, or from the drive that alone holds it.

mod blocks;

use crate::drive::Endpoint;
use crate::error::LoaderError;
use blocks::DriveBlocks;
use ddlp_dataset::pack::{FormatError, Pack};
use ddlp_dataset::{Dataset, OpenError};
use ddlp_driver::Host;
use std::path::Path;
use std::sync::Arc;

/// Opens a dataset: a path of files, or the address of a drive (`tcp://HOST:PORT/NQN`, or `/dev/nvmeX` if the kernel is
/// connected to it), whose dataset the host then reads over NVMe. Towards the drive, this machine is `host`.
///
/// # Errors
///
/// [`LoaderError::Dataset`] if the files are not a dataset, and [`LoaderError::Drive`] if the drive cannot be reached
/// or holds no pack that this version reads.
pub fn open_dataset(place: &Path, host: &Host) -> Result<Arc<dyn Dataset>, LoaderError> {
    let Some(address) = drive_address(place) else {
        return Ok(ddlp_dataset::open(place).map_err(LoaderError::Dataset)?.into());
    };
    let refused = |source| LoaderError::Drive { drive: address.to_owned(), source };
    let endpoint = Endpoint::remote(address, host).map_err(|reason| refused(reason.into()))?;
    let blocks = DriveBlocks::open(endpoint).map_err(refused)?;
    match Pack::from_blocks(Box::new(blocks), place) {
        Ok(pack) => Ok(Arc::new(pack)),
        Err(FormatError::NotAPack { .. }) => Err(refused(
            "it serves no pack, so no host can read its dataset: let its agent serve a pack (`ddlp pack`)"
                .to_owned()
                .into(),
        )),
        Err(error) => Err(LoaderError::Dataset(OpenError::Pack(error))),
    }
}

/// Returns the place of a dataset as text if it is the address of a drive: `tcp://HOST:PORT/NQN`, or the node of a
/// controller, `/dev/nvmeX`.
pub fn drive_address(place: &Path) -> Option<&str> {
    let is_controller = |place: &str| {
        let instance = place.strip_prefix("/dev/nvme").map(|rest| rest.split('?').next().unwrap_or_default());
        instance.is_some_and(|instance| !instance.is_empty() && instance.bytes().all(|byte| byte.is_ascii_digit()))
    };
    place.to_str().filter(|place| place.starts_with("tcp://") || is_controller(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_drive_is_told_from_a_file() {
        for drive in ["tcp://10.0.0.7:4420/nqn.2024-01.a:b", "/dev/nvme0", "/dev/nvme12", "/dev/nvme0?ioctl"] {
            assert_eq!(drive_address(Path::new(drive)), Some(drive));
        }
        for file in ["/dev/nvme0n1", "/dev/nvme", "/dev/ng0n1", "/data/nvme0", "tcp", "photos.ddlp"] {
            assert_eq!(drive_address(Path::new(file)), None, "{file}");
        }
    }
}
