//! Namespaces: Identify, and the geometry of their blocks.

use crate::contract::{AdminData, Command, Controller};
use crate::error::DriverError;
use ddlp_cause::Cause;
use ddlp_nvme::admin::Identify;
use ddlp_nvme::identify::IdentifyNamespace;
use ddlp_nvme::{AdminOpcode, Cns, IDENTIFY_BYTES};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Blocks of a namespace with the NVM command set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockGeometry {
    /// Bytes of a logical block: a power of two from 512 to 65 536.
    pub block_bytes: u32,
    /// Number of logical blocks.
    pub blocks: u64,
}

impl BlockGeometry {
    /// Reads the geometry from Identify Namespace. Returns `None` if it is invalid (an inactive namespace is all
    /// zeros).
    pub fn from_identify(identify: &IdentifyNamespace) -> Option<Self> {
        let blocks = identify.blocks.get();
        Some(Self { block_bytes: identify.block_bytes()?, blocks }).filter(|geometry| geometry.blocks > 0)
    }

    /// Returns the number of blocks of a read of `bytes` bytes at `lba`. Returns an error unless the read is whole
    /// blocks within the namespace.
    pub fn blocks_of(&self, lba: u64, bytes: usize) -> Result<u64, DriverError> {
        let size = u64::from(self.block_bytes);
        let bytes = bytes as u64;
        if !bytes.is_multiple_of(size) {
            return Err(DriverError::Invalid(format!("{bytes} bytes are not a multiple of the block size {size}")));
        }
        let count = bytes / size;
        match lba.checked_add(count) {
            Some(end) if end <= self.blocks => Ok(count),
            _ => Err(DriverError::Invalid(format!(
                "{count} blocks from {lba} on end behind the last of {} blocks",
                self.blocks
            ))),
        }
    }
}

/// Geometries of a controller's namespaces, each read once.
#[derive(Debug, Default)]
pub(crate) struct Geometries(Mutex<HashMap<u32, BlockGeometry>>);

impl Geometries {
    pub(crate) fn of(
        &self,
        controller: &dyn Controller,
        nsid: u32,
        timeout: Duration,
    ) -> Result<BlockGeometry, DriverError> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&found) = known().get(&nsid) {
            return Ok(found);
        }
        let found = geometry(controller, nsid, timeout)?;
        known().insert(nsid, found);
        Ok(found)
    }
}

/// Runs Identify and returns its 4096 bytes.
pub fn identify(
    controller: &dyn Controller,
    nsid: u32,
    request: Identify,
    timeout: Duration,
) -> Result<Box<[u8; IDENTIFY_BYTES]>, DriverError> {
    let command = Command { opcode: AdminOpcode::IDENTIFY.0, nsid, cdw10_15: request.dwords(), ..Command::default() };
    let mut page = Box::new([0; IDENTIFY_BYTES]);
    let completion = controller.admin(&command, AdminData::Read(&mut page[..]), timeout)?;
    completion.success(controller.peer(), &format!("{} of namespace {nsid}", request.cns))?;
    Ok(page)
}

/// Returns the geometry of an NVM namespace (Identify Namespace, CNS 00h).
pub fn geometry(controller: &dyn Controller, nsid: u32, timeout: Duration) -> Result<BlockGeometry, DriverError> {
    let page = identify(controller, nsid, Identify { cns: Cns::NAMESPACE, ..Identify::default() }, timeout)?;
    let protocol = |source: Cause| DriverError::Protocol { peer: controller.peer().to_owned(), source };
    let identify = IdentifyNamespace::parse(&page[..]).map_err(|error| protocol(error.into()))?;
    BlockGeometry::from_identify(identify)
        .ok_or_else(|| protocol(format!("namespace {nsid} has no usable block format").into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_must_fit() {
        let geometry = BlockGeometry { block_bytes: 4096, blocks: 10 };
        assert_eq!(geometry.blocks_of(0, 40_960).unwrap(), 10);
        assert_eq!(geometry.blocks_of(10, 0).unwrap(), 0);
        assert!(geometry.blocks_of(0, 4095).is_err());
        assert!(geometry.blocks_of(1, 40_960).is_err());
        assert!(geometry.blocks_of(u64::MAX, 4096).is_err());
    }

    #[test]
    fn nonsense_is_no_geometry() {
        let mut identify = IdentifyNamespace::zeroed();
        assert_eq!(BlockGeometry::from_identify(&identify), None);
        identify.blocks = 5.into();
        assert_eq!(BlockGeometry::from_identify(&identify), None);
        identify.formats[0].data_size_log2 = 12;
        assert_eq!(BlockGeometry::from_identify(&identify), Some(BlockGeometry { block_bytes: 4096, blocks: 5 }));
        identify.blocks = 0.into();
        assert_eq!(BlockGeometry::from_identify(&identify), None);
    }
}
