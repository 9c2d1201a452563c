//! What to do where the agent can have no identity.

use super::IdentityError;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat, geteuid};
use std::io;
use std::path::Path;

impl IdentityError {
    /// What whoever runs the agent can do about it. `directory` is where the identity was to be.
    pub fn remedy(&self, directory: &Path) -> String {
        match self {
            Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => permission(directory),
            Self::Io { .. } => "name another folder by --state DIR, or by `state` in the configuration".into(),
            Self::InUse(_) => "stop that agent, or give this one another --state DIR or --name, or --ephemeral".into(),
            Self::Damaged { .. } => "restore the file, or remove it: to its hosts, the drive is a new one then".into(),
            Self::Random(_) => "start again once the machine has them".into(),
        }
    }
}

/// What gives the user that this process runs as the right to use the directory.
fn permission(directory: &Path) -> String {
    let (user, shown) = (user_name(), directory.display());
    // What lies in a folder that may not be entered cannot even be looked at.
    match directory.ancestors().find(|path| path.metadata().is_ok()) {
        Some(nearest) if nearest == directory => {
            format!("give it to the user that the agent runs as: sudo chown -R {user}: {shown}")
        }
        Some(nearest) if faccessat(AT_FDCWD, nearest, AccessFlags::X_OK, AtFlags::AT_EACCESS).is_err() => {
            let nearest = nearest.display();
            format!("let the user that the agent runs as enter it (sudo chmod o+x {nearest}), or name another folder")
        }
        _ => format!("make it for the user that the agent runs as: sudo install -d -o {user} -m 0700 {shown}"),
    }
}

/// The user that this process runs as: by name, where the machine's own list has one, else by number.
pub(crate) fn user_name() -> String {
    // Not through getpwuid: a static program would load the C library's modules for it.
    let uid = geteuid().to_string();
    let list = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut users = list.lines().map(|line| line.split(':'));
    let name = users.find_map(|mut fields| {
        let name = fields.next()?;
        (fields.nth(1) == Some(uid.as_str())).then(|| name.to_owned())
    });
    name.unwrap_or(uid)
}
