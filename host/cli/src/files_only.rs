//! The limit of commands that read a dataset from files alone.

use crate::wrong::wrong;
use ddlp_host::drive_address;
use std::path::Path;

/// Refuses the address of a drive as a source.
pub fn check(source: &Path) -> anyhow::Result<()> {
    if let Some(address) = drive_address(source) {
        wrong!(
            "{address} is a drive, and only `ddlp run`, `ddlp inspect` and `ddlp bench dual` read from drives: call \
             this command on the machine where the pack lies"
        );
    }
    Ok(())
}
