//! A thread with nobody's rights to files, even in a test that runs as root.

use nix::unistd::{Uid, setfsuid};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The user id of `nobody`.
const NOBODY: u32 = 65534;

/// Makes the calling thread, and those that it starts, access files as `nobody` if it runs as root, until dropped.
#[derive(Debug)]
pub struct Unprivileged {
    before: Uid,
}

impl Unprivileged {
    /// Begins, and makes the directories from `/tmp` down to `folder` accessible to everybody.
    pub fn new(folder: &Path) -> Self {
        let own = |folder: &&Path| fs::metadata(folder).is_ok_and(|found| !found.permissions().mode() & 0o5 != 0);
        for folder in folder.ancestors().filter(own) {
            fs::set_permissions(folder, Permissions::from_mode(0o755)).expect("a folder of the test");
        }
        let nobody = if Uid::effective().is_root() { Uid::from_raw(NOBODY) } else { Uid::effective() };
        Self { before: setfsuid(nobody) }
    }
}

impl Drop for Unprivileged {
    fn drop(&mut self) {
        setfsuid(self.before);
    }
}
